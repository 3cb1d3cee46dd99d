// SPDX-License-Identifier: Apache-2.0
// What became of a request in its prompt. Every byte that a render writes knows whose it is, so a
// text counts by where it came from: one that happens to be equal does not stand in for it.
#include <stdio.h>
#include <string.h>

#include "core/chat/chat_impl.h"

// Without the white space at both ends (sides: 1 left, 2 right).
static struct plm_slice stripped(struct plm_slice s, int sides)
{
    uint32_t cp;
    while ((sides & 1) && s.len > 0) {
        size_t n = plm_tstr_next(s.ptr, s.ptr + s.len, &cp);
        if (!plm_cp_is_space(cp))
            break;
        s.ptr += n;
        s.len -= n;
    }
    while ((sides & 2) && s.len > 0) {
        size_t n = plm_tstr_prev(s.ptr, s.ptr + s.len, &cp);
        if (!plm_cp_is_space(cp))
            break;
        s.len -= n;
    }
    return s;
}

static void cut(struct plm_tbuf *out, size_t len)
{
    out->len = len;
    while (out->n_runs > 0 && (out->n_runs > 1 ? out->runs[out->n_runs - 2].end : 0) >= len)
        out->n_runs--;
    if (out->n_runs > 0 && out->runs[out->n_runs - 1].end > len)
        out->runs[out->n_runs - 1].end = len;
}

// Cuts what was written where the last mark begins.
static bool cut_at_mark(struct plm_trun *r, struct plm_slice text)
{
    const size_t bare = sizeof(PLM_CHAT_MARK) - 2; // without its space
    struct plm_slice all = {r->out->data, r->out->len};
    struct plm_slice core = stripped(text, 3);
    size_t at = SIZE_MAX;
    for (const char *p = all.ptr; p != NULL;) {
        p = memmem(p, all.len - (size_t)(p - all.ptr), PLM_CHAT_MARK, bare);
        if (p != NULL)
            at = (size_t)(p++ - all.ptr);
    }
    if (at == SIZE_MAX || memmem(all.ptr, all.len, core.ptr, core.len) == NULL)
        return plm_tpl_fail_as(r, "the last message can not be continued: the chat template "
                                  "changes it");
    bool trimmed = at + bare >= all.len || all.ptr[at + bare] != ' ';
    cut(r->out, trimmed ? stripped((struct plm_slice){all.ptr, at}, 2).len : at);
    return true;
}

static void look(struct plm_chat_attempt *a, const struct plm_tbuf *out)
{
    size_t at = 0;
    for (size_t i = 0; i < out->n_runs; i++) {
        const size_t end = out->runs[i].end;
        const uint32_t origin = out->runs[i].origin;
        struct plm_chat_item *item =
            origin < PLM_ORIGIN_TEXT ? NULL : &a->items[origin - PLM_ORIGIN_TEXT];
        if (item != NULL && !item->seen)
            item->seen = stripped((struct plm_slice){out->data + at, end - at}, 1).len > 0;
        at = end;
    }
}

bool plm_chat_check(struct plm_trun *r, void *attempt)
{
    struct plm_chat_attempt *a = attempt;
    if (a->opts->continue_final_message && !cut_at_mark(r, a->continued))
        return false;
    look(a, r->out);
    a->printed_parts = r->printed_parts;
    a->printed_args = r->printed_args;
    a->missing_reply_only = true;
    for (size_t i = 0; i < a->n_items; i++) {
        const struct plm_chat_item *item = &a->items[i];
        const bool call = item->what == PLM_CHAT_CALL || item->what == PLM_CHAT_ARGUMENTS;
        a->some_tool = a->some_tool || (item->what == PLM_CHAT_TOOL_DEF && item->seen);
        a->some_call = a->some_call || (item->what == PLM_CHAT_CALL && item->seen);
        if (item->seen || item->may_vanish)
            continue;
        a->calls_missing = a->calls_missing || call;
        // Of arguments there may be nothing to see: numbers have no origin of their own.
        if (item->what == PLM_CHAT_ARGUMENTS || (call && !(a->form.known && a->form.reads_calls)))
            continue;
        if (a->n_missing++ == 0)
            a->missing = *item;
        if (item->what != PLM_CHAT_TEXT || item->role != PLM_CHAT_ASSISTANT)
            a->missing_reply_only = false;
    }
    return true;
}

void plm_chat_set_param(const struct plm_chat_opts *opts, const char *param)
{
    if (opts->param != NULL)
        snprintf(opts->param, PLM_CHAT_PARAM_BYTES, "%s", param);
}

int plm_chat_refuse(const struct plm_chat_attempt *a, struct plm_error *err)
{
    const struct plm_chat_item *item = &a->missing;
    char param[PLM_CHAT_PARAM_BYTES];
    const bool reads_tools = a->some_tool || (a->form.known && a->form.reads_tools);
    if (item->what == PLM_CHAT_TOOL_DEF && !reads_tools) {
        plm_chat_set_param(a->opts, "tools");
        return plm_fail(err, PLM_ERR_INVALID,
                        "tools: the model's chat template writes no tool definitions, so the model "
                        "would not see them");
    }
    if (item->what == PLM_CHAT_CALL)
        snprintf(param, sizeof(param), "messages[%u].tool_calls[%u]", item->at, item->part);
    else if (item->what == PLM_CHAT_TOOL_DEF)
        snprintf(param, sizeof(param), "tools[%u]", item->at);
    else if (item->part == PLM_CHAT_REFUSAL)
        snprintf(param, sizeof(param), "messages[%u].refusal", item->at);
    else if (item->part == PLM_CHAT_WHOLE)
        snprintf(param, sizeof(param), "messages[%u].content", item->at);
    else
        snprintf(param, sizeof(param), "messages[%u].content[%u]", item->at, item->part);
    plm_chat_set_param(a->opts, param);
    return plm_fail(err, PLM_ERR_INVALID,
                    "%s: the model's chat template leaves it out of the prompt, so the model would "
                    "not see it",
                    param);
}

int plm_chat_refuse_arguments(const struct plm_chat_attempt *a, const char *cause,
                              struct plm_error *err)
{
    const struct plm_chat_broken *broken = &a->broken;
    char param[PLM_CHAT_PARAM_BYTES];
    snprintf(param, sizeof(param), "messages[%u].tool_calls[%u].%sarguments", broken->message,
             broken->call, broken->in_function ? "function." : "");
    plm_chat_set_param(a->opts, param);
    return plm_fail(err, PLM_ERR_INVALID,
                    "%s must be a JSON object for this model's chat template: %.128s (%.192s)",
                    param, broken->why.msg, cause);
}
