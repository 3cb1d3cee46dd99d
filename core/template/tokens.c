// SPDX-License-Identifier: Apache-2.0
// What the parser's files share: looking at tokens, making nodes, counting depth.
#include <string.h>

#include "core/template/ast.h"

enum {
    DEPTH_MAX = 150, // nesting of expressions and blocks in a source; each level is some C frames
};

struct plm_ttoken *plm_tload_tok(struct plm_tload *p)
{
    return &p->tokens[p->at];
}

struct plm_ttoken *plm_tload_look(struct plm_tload *p)
{
    return &p->tokens[p->at + 1 < p->n_tokens ? p->at + 1 : p->at];
}

void plm_tload_next(struct plm_tload *p)
{
    if (p->at + 1 < p->n_tokens)
        p->at++;
}

bool plm_ttoken_is(const struct plm_ttoken *t, enum plm_ttoken_type type, const char *text)
{
    return t->type == type && plm_slice_eq_str(t->text, text);
}

bool plm_tload_is_op(struct plm_tload *p, const char *op)
{
    return plm_ttoken_is(plm_tload_tok(p), PLM_TOK_OP, op);
}

bool plm_tload_is_name(struct plm_tload *p, const char *name)
{
    return plm_ttoken_is(plm_tload_tok(p), PLM_TOK_NAME, name);
}

bool plm_tload_skip_op(struct plm_tload *p, const char *op)
{
    bool is = plm_tload_is_op(p, op);
    if (is)
        plm_tload_next(p);
    return is;
}

bool plm_tload_skip_name(struct plm_tload *p, const char *name)
{
    bool is = plm_tload_is_name(p, name);
    if (is)
        plm_tload_next(p);
    return is;
}

bool plm_tload_unexpected(struct plm_tload *p, const char *wanted)
{
    static const char *const names[] = {
        [PLM_TOK_EOF] = "the end of the template",
        [PLM_TOK_DATA] = "text",
        [PLM_TOK_VAR_BEGIN] = "'{{'",
        [PLM_TOK_VAR_END] = "'}}'",
        [PLM_TOK_BLOCK_BEGIN] = "'{%'",
        [PLM_TOK_BLOCK_END] = "'%}'",
        [PLM_TOK_NAME] = "name",
        [PLM_TOK_STRING] = "string",
        [PLM_TOK_INT] = "integer",
        [PLM_TOK_FLOAT] = "float",
        [PLM_TOK_OP] = "operator",
    };
    const struct plm_ttoken *t = plm_tload_tok(p);
    bool text = t->type >= PLM_TOK_NAME;
    return plm_tload_fail(p, PLM_ERR_FORMAT, t->line, "expected %s, found %s%s%.*s%s", wanted,
                          names[t->type], text ? " '" : "",
                          text ? (int)(t->text.len < 40 ? t->text.len : 40) : 0, t->text.ptr,
                          text ? "'" : "");
}

bool plm_tload_expect_op(struct plm_tload *p, const char *op)
{
    if (plm_tload_skip_op(p, op))
        return true;
    char wanted[8] = {'\'', op[0], '\'', '\0'};
    return plm_tload_unexpected(p, wanted);
}

bool plm_tload_expect_name(struct plm_tload *p, struct plm_slice *ret)
{
    struct plm_ttoken *t = plm_tload_tok(p);
    if (t->type != PLM_TOK_NAME || (t->text.ptr[0] >= '0' && t->text.ptr[0] <= '9'))
        return plm_tload_unexpected(p, "a name");
    *ret = t->text;
    plm_tload_next(p);
    return true;
}

bool plm_tload_enter(struct plm_tload *p)
{
    if (++p->depth > DEPTH_MAX)
        return plm_tload_fail(p, PLM_ERR_LIMIT, plm_tload_tok(p)->line,
                              "nested deeper than %d levels", DEPTH_MAX);
    return true;
}

struct plm_tnode *plm_tload_node(struct plm_tload *p, enum plm_tnode_kind kind, uint32_t line)
{
    struct plm_tnode *node = plm_tload_alloc(p, 1, sizeof(*node));
    if (node != NULL) {
        node->kind = (uint8_t)kind;
        node->line = line;
    }
    return node;
}

bool plm_tload_push(struct plm_tload *p, struct plm_tnodes *list, struct plm_tnode *node)
{
    struct plm_tnode **grown =
        plm_tarena_more(&p->tmpl->arena, list->v, list->n, &list->cap, sizeof(*grown));
    if (grown == NULL)
        return plm_tload_nomem(p);
    list->v = grown;
    list->v[list->n++] = node;
    return true;
}

bool plm_tload_list(struct plm_tload *p, enum plm_tnode_kind kind, uint32_t line,
                    const struct plm_tnodes *list, struct plm_tnode **ret)
{
    struct plm_tnode *node = plm_tload_node(p, kind, line);
    if (node == NULL)
        return false;
    node->list = list->v;
    node->n = (uint32_t)list->n;
    *ret = node;
    return true;
}
