// SPDX-License-Identifier: Apache-2.0
// Attempts to render a conversation, until one brings all of it into the prompt.
#include "core/chat/chat.h"

#include <json.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "core/chat/chat_impl.h"
#include "core/template/ast.h"

void plm_chat_opts_init(struct plm_chat_opts *opts)
{
    *opts = (struct plm_chat_opts){0};
    plm_render_opts_init(&opts->render);
}

int plm_chat_try(const struct plm_template *tmpl, struct plm_chat_attempt *a, uint64_t *steps,
                 struct plm_render *ret, struct plm_error *err)
{
    struct plm_render_opts opts = a->opts->render;
    struct plm_trender render = {.ctx = a, .prepare = plm_chat_prepare, .check = plm_chat_check};
    opts.limits.steps = *steps;
    int status = plm_template_run(tmpl, &opts, &render, ret, err);
    *steps -= render.steps < *steps ? render.steps : *steps;
    a->items = NULL; // they lay in the render's arena
    return status;
}

// The best attempt so far.
struct best {
    int status;
    int score; // 0: everything is there
    struct plm_chat_attempt attempt;
    struct plm_render render;
    struct plm_error err;
};

static int score_of(int status, const struct plm_chat_attempt *a)
{
    if (status != PLM_OK)
        return INT_MAX;
    const int missing = a->n_missing < INT_MAX / 4 ? (int)a->n_missing : INT_MAX / 4;
    return 2 * missing + a->printed_parts;
}

// The attempt with what differs by a set of PLM_CHAT_HAS_*.
static struct plm_chat_form varied(const struct plm_chat_form *form, unsigned how)
{
    struct plm_chat_form other = *form;
    for (int role = 0; role < PLM_CHAT_ROLES; role++) {
        if (how & PLM_CHAT_HAS_PARTS)
            other.content[role] = PLM_CHAT_STRING;
        if (how & PLM_CHAT_HAS_TEXT)
            other.content[role] = PLM_CHAT_PARTS;
    }
    if (how & PLM_CHAT_HAS_NO_TOOLS)
        other.no_tools_list = !form->no_tools_list;
    if (how & PLM_CHAT_HAS_ARGS)
        other.text_args = !form->text_args;
    if (how & PLM_CHAT_HAS_EMPTY)
        other.empty = (uint8_t)((form->empty + 1) % PLM_CHAT_EMPTIES);
    if (how & PLM_CHAT_HAS_CALL_TEXT)
        other.split_calls = !form->split_calls;
    return other;
}

// Tries one form, and keeps it where it is better. PLM_OK, or what ends all attempts: else a prompt
// would depend on what memory is free.
static int try_form(const struct plm_template *tmpl, struct plm_chat_attempt attempt,
                    uint64_t *steps, struct best *best)
{
    struct plm_render render;
    struct plm_error err = {0};
    int status = plm_chat_try(tmpl, &attempt, steps, &render, &err);
    const int score = score_of(status, &attempt);
    if (status == PLM_ERR_NOMEM_HOST || status == PLM_ERR_CANCELLED) {
        plm_render_finish(&best->render);
        best->status = status;
        best->err = err;
        return status;
    }
    if (status == PLM_OK && score >= best->score)
        plm_render_finish(&render);
    if (score >= best->score)
        return PLM_OK;
    plm_render_finish(&best->render);
    *best = (struct best){status, score, attempt, render, err};
    return PLM_OK;
}

static int try_all(const struct plm_template *tmpl, const struct plm_chat_attempt *first,
                   uint64_t *steps, struct best *best)
{
    struct plm_chat_attempt attempt = *first;
    struct plm_chat_attempt given = *first; // to see what the conversation has
    int r = PLM_OK;
    best->score = INT_MAX;
    best->status = plm_chat_try(tmpl, &given, steps, &best->render, &best->err);
    best->score = score_of(best->status, &given);
    best->attempt = given;
    if (best->status != PLM_OK && best->status != PLM_ERR_INVALID)
        return best->status;
    unsigned has = given.has;
    if (first->form.known) // else the test renders have decided
        has &= ~(unsigned)PLM_CHAT_HAS_TEXT;
    // Fewest changes first.
    const int most = first->form.known ? 2 : 3;
    for (int bits = 1; bits <= most; bits++)
        for (unsigned how = 1; how < 64 && best->score > 0 && r == PLM_OK; how++) {
            const bool both = (how & PLM_CHAT_HAS_PARTS) && (how & PLM_CHAT_HAS_TEXT);
            if (__builtin_popcount(how) != bits || (how & ~has) != 0 || both)
                continue;
            attempt.form = varied(&first->form, how);
            r = try_form(tmpl, attempt, steps, best);
        }
    return r;
}

// Whether arguments that are no object are why a render failed.
static bool fails_by_arguments(const struct plm_template *tmpl, const struct plm_chat_attempt *a,
                               uint64_t *steps)
{
    struct plm_chat_attempt mended = {.opts = a->opts, .form = a->form, .mend_args = true};
    struct plm_render render;
    if (!a->broken.any || plm_chat_try(tmpl, &mended, steps, &render, NULL) != PLM_OK)
        return false;
    plm_render_finish(&render);
    return true;
}

// Whether the template reads what is missing, and took it for reasoning.
static bool reads_missing(const struct plm_template *tmpl, const struct plm_chat_attempt *a,
                          uint64_t *steps)
{
    struct plm_chat_attempt marked = {.opts = a->opts, .form = a->form, .mark_texts = true};
    struct plm_render render;
    if (!a->missing_reply_only || plm_chat_try(tmpl, &marked, steps, &render, NULL) != PLM_OK)
        return false;
    plm_render_finish(&render);
    return marked.n_missing == 0;
}

// Where the template fails for its own reasons: a role that it was seen not to take, else the
// conversation as such.
static void name_role(const struct plm_chat_opts *opts)
{
    char param[PLM_CHAT_PARAM_BYTES];
    const size_t n = json_object_array_length(opts->messages);
    plm_chat_set_param(opts, "messages");
    for (size_t i = 0; opts->form != NULL && i < n; i++) {
        const enum plm_chat_role role =
            plm_chat_role_of(json_object_array_get_idx(opts->messages, i));
        if (role == PLM_CHAT_ROLES || !(opts->form->lacks_roles >> role & 1))
            continue;
        snprintf(param, sizeof(param), "messages[%zu].role", i);
        plm_chat_set_param(opts, param);
        return;
    }
}

static int render_checked(const struct plm_template *tmpl, const struct plm_chat_opts *opts,
                          struct plm_render *ret, struct plm_error *err)
{
    struct plm_chat_attempt first = {.opts = opts};
    struct best best = {0};
    uint64_t steps = opts->render.limits.steps;
    plm_chat_form_init(&first.form);
    if (opts->form != NULL)
        first.form = *opts->form;
    if (try_all(tmpl, &first, &steps, &best) == PLM_OK && best.status == PLM_ERR_INVALID &&
        fails_by_arguments(tmpl, &best.attempt, &steps))
        return plm_chat_refuse_arguments(&best.attempt, best.err.msg, err);
    if (best.status != PLM_OK) {
        name_role(opts);
        if (err != NULL)
            *err = best.err;
        return best.status;
    }
    if (best.attempt.n_missing > 0 && !reads_missing(tmpl, &best.attempt, &steps)) {
        plm_render_finish(&best.render);
        return plm_chat_refuse(&best.attempt, err);
    }
    *ret = best.render;
    return PLM_OK;
}

int plm_chat_render(const struct plm_template *tmpl, const struct plm_chat_opts *opts,
                    struct plm_render *ret, struct plm_error *err)
{
    if (opts->param != NULL)
        opts->param[0] = '\0';
    if (!json_object_is_type(opts->messages, json_type_array))
        return plm_fail(err, PLM_ERR_INVALID, "messages must be an array");
    if (opts->continue_final_message && json_object_array_length(opts->messages) == 0)
        return plm_fail(err, PLM_ERR_INVALID, "there is no message to continue");
    if (!opts->strict)
        return render_checked(tmpl, opts, ret, err);
    struct plm_chat_attempt attempt = {.opts = opts};
    uint64_t steps = opts->render.limits.steps;
    plm_chat_form_init(&attempt.form);
    return plm_chat_try(tmpl, &attempt, &steps, ret, err);
}
