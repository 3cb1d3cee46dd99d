// SPDX-License-Identifier: Apache-2.0
// Operations on text that filters and methods share. What has the form of a function (run.h) works
// on c->self, a string, and stands in both tables.
#ifndef PLM_TEMPLATE_TEXT_H
#define PLM_TEMPLATE_TEXT_H

#include "core/template/run.h"

// aux: enum plm_tcasing.
bool plm_text_casing(struct plm_trun *r, struct plm_tcall *c);
// a: characters. aux: sides, 1 left and 2 right.
bool plm_text_strip(struct plm_trun *r, struct plm_tcall *c);
// a: old, new, how often at most (below 0: always).
bool plm_text_replace(struct plm_trun *r, struct plm_tcall *c);
// a: width, one character to fill with. aux: '<', '>' or 0 for the middle.
bool plm_text_pad(struct plm_trun *r, struct plm_tcall *c);

enum plm_tcasing {
    PLM_CASE_UPPER,
    PLM_CASE_LOWER,
    PLM_CASE_CAPITALIZE,
    PLM_CASE_TITLE,
    PLM_CASE_SWAP,
    PLM_CASE_FOLD,
    PLM_CASE_WORDS, // Jinja's title: a word starts after white space and some signs
};
bool plm_tpl_casing(struct plm_trun *r, struct plm_tstr *s, enum plm_tcasing how,
                    struct plm_tval *ret);
// fill is one character, or NULL for spaces; how: '<' '>' '^', 0 as str.center().
bool plm_tpl_pad(struct plm_trun *r, struct plm_tstr *s, int64_t width, struct plm_tstr *fill,
                 int how, struct plm_tval *ret);
bool plm_tpl_splitlines(struct plm_trun *r, struct plm_tstr *s, bool keep_ends,
                        struct plm_tlist **ret);
// sep NULL: at white space. max below 0: everywhere.
bool plm_tpl_split(struct plm_trun *r, struct plm_tstr *s, const struct plm_tstr *sep, int64_t max,
                   bool from_right, struct plm_tval *ret);
bool plm_tpl_join(struct plm_trun *r, struct plm_tstr *sep, const struct plm_tval *items,
                  const struct plm_tlist *path, bool strict, struct plm_tval *ret);

#endif
