// SPDX-License-Identifier: Apache-2.0
// The walk over the words of a text: which stage of a rule finds the next one.
#include "core/tokenizer/tok_split.h"

#include "core/base/utf8.h"

void plm_tok_pre_init(struct plm_tok_pre *pre, const struct plm_tok_rule *rule)
{
    pre->rule = rule;
    for (uint32_t cp = 0; cp < sizeof(pre->ascii) / sizeof(*pre->ascii); cp++)
        pre->ascii[cp] = plm_tok_kinds(cp);
}

void plm_tok_words_init(struct plm_tok_words *words, const struct plm_tok_pre *pre,
                        struct plm_slice text)
{
    *words = (struct plm_tok_words){.pre = pre, .text = text};
}

static size_t scan(const struct plm_tok_stage *stage, const struct plm_tok_view *view, size_t at)
{
    size_t n = 0;
    for (size_t i = 0; i < PLM_TOK_ALTS_MAX && stage->alts[i].scan != NULL && n == 0; i++)
        n = stage->alts[i].scan(&stage->alts[i], view, at);
    return n;
}

// Stores what the stage finds next in [at, end), which is one piece for it.
static void search(struct plm_tok_words *words, size_t stage, size_t at, size_t end)
{
    const struct plm_tok_view view = {words->text.ptr, at, end, words->pre->ascii};
    size_t n = 0;
    while (at < end && (n = scan(words->pre->rule->stages[stage], &view, at)) == 0) {
        uint32_t cp;
        size_t bytes = plm_utf8_decode(view.text + at, end - at, &cp);
        at += bytes > 0 ? bytes : 1;
    }
    words->found[stage].begin = at;
    words->found[stage].end = at + n;
}

bool plm_tok_words_next(struct plm_tok_words *words, struct plm_slice *ret)
{
    const size_t at = words->at;
    if (at == words->text.len)
        return false;
    // The end of the piece that the stages so far have cut out. Each searches a piece once, so that
    // the walk takes linear time.
    size_t end = words->text.len;
    for (size_t stage = 0; stage < PLM_TOK_STAGES_MAX; stage++) {
        if (words->pre->rule->stages[stage] == NULL)
            break;
        if (words->found[stage].end <= at)
            search(words, stage, at, end);
        end = at < words->found[stage].begin ? words->found[stage].begin : words->found[stage].end;
    }
    *ret = (struct plm_slice){words->text.ptr + at, end - at};
    words->at = end;
    return true;
}
