// SPDX-License-Identifier: Apache-2.0
// Operators. The precedence is Jinja's, which is not Python's everywhere: ~ binds tighter than +,
// unary minus tighter than filters.
#include <string.h>

#include "core/template/ast.h"

// Levels of binary operators, from the tightest.
static const struct {
    enum plm_tnode_kind kind;
    const char *ops[4];
    uint8_t codes[4];
    int n;
} levels[] = {
    {PLM_N_BINARY, {"*", "/", "//", "%"}, {PLM_OP_MUL, PLM_OP_DIV, PLM_OP_FLOORDIV, PLM_OP_MOD}, 4},
    {PLM_N_CONCAT, {"~"}, {0}, 1},
    {PLM_N_BINARY, {"+", "-"}, {PLM_OP_ADD, PLM_OP_SUB}, 2},
};
enum { LOOSEST = 2 };

static int operator_at(struct plm_tload *p, int level)
{
    if (plm_tload_tok(p)->type == PLM_TOK_OP)
        for (int i = 0; i < levels[level].n; i++)
            if (plm_tload_is_op(p, levels[level].ops[i]))
                return i;
    return -1;
}

// Operands of one level, left to right, as one node, so that long chains do not nest.
static bool parse_binary(struct plm_tload *p, int level, struct plm_tnode **ret)
{
    struct plm_tnode *item;
    uint32_t line = plm_tload_tok(p)->line;
    if (!(level == 0 ? plm_tload_unary(p, true, &item) : parse_binary(p, level - 1, &item)))
        return false;
    int op = operator_at(p, level);
    *ret = item;
    if (op < 0)
        return true;
    struct plm_tnodes items = {0};
    uint8_t *ops = NULL;
    size_t cap = 0;
    if (!plm_tload_push(p, &items, item))
        return false;
    for (; op >= 0; op = operator_at(p, level)) {
        ops = plm_tarena_more(&p->tmpl->arena, ops, items.n - 1, &cap, 1);
        if (ops == NULL)
            return plm_tload_nomem(p);
        ops[items.n - 1] = levels[level].codes[op];
        plm_tload_next(p);
        if (!(level == 0 ? plm_tload_unary(p, true, &item) : parse_binary(p, level - 1, &item)) ||
            !plm_tload_push(p, &items, item))
            return false;
    }
    if (!plm_tload_list(p, levels[level].kind, line, &items, ret))
        return false;
    (*ret)->ops = ops;
    return true;
}

static int compare_at(struct plm_tload *p)
{
    static const char *const ops[] = {"==", "!=", "<", "<=", ">", ">="};
    for (int i = 0; i < 6; i++)
        if (plm_tload_is_op(p, ops[i]))
            return i;
    if (plm_tload_is_name(p, "in"))
        return PLM_CMP_IN;
    if (plm_tload_is_name(p, "not") && plm_ttoken_is(plm_tload_look(p), PLM_TOK_NAME, "in")) {
        plm_tload_next(p);
        return PLM_CMP_NOT_IN;
    }
    return -1;
}

static bool parse_compare(struct plm_tload *p, struct plm_tnode **ret)
{
    struct plm_tnode *item;
    uint32_t line = plm_tload_tok(p)->line;
    if (!parse_binary(p, LOOSEST, &item))
        return false;
    int op = compare_at(p);
    *ret = item;
    if (op < 0)
        return true;
    struct plm_tnodes items = {0};
    uint8_t ops[32]; // a chain longer than this is nobody's template
    if (!plm_tload_push(p, &items, item))
        return false;
    for (; op >= 0; op = compare_at(p)) {
        if (items.n > sizeof(ops))
            return plm_tload_fail(p, PLM_ERR_LIMIT, line, "chain of comparisons too long");
        ops[items.n - 1] = (uint8_t)op;
        plm_tload_next(p);
        if (!parse_binary(p, LOOSEST, &item) || !plm_tload_push(p, &items, item))
            return false;
    }
    if (!plm_tload_list(p, PLM_N_COMPARE, line, &items, ret))
        return false;
    (*ret)->ops = plm_tload_alloc(p, items.n, 1);
    if ((*ret)->ops == NULL)
        return false;
    memcpy((*ret)->ops, ops, items.n - 1);
    return true;
}

static bool parse_not(struct plm_tload *p, struct plm_tnode **ret)
{
    if (!plm_tload_is_name(p, "not"))
        return parse_compare(p, ret);
    struct plm_tnode *node = plm_tload_node(p, PLM_N_NOT, plm_tload_tok(p)->line);
    plm_tload_next(p);
    if (node == NULL || !plm_tload_enter(p) || !parse_not(p, &node->a))
        return false;
    p->depth--;
    *ret = node;
    return true;
}

static bool parse_logic(struct plm_tload *p, bool is_or, struct plm_tnode **ret)
{
    struct plm_tnode *item;
    uint32_t line = plm_tload_tok(p)->line;
    if (!(is_or ? parse_logic(p, false, &item) : parse_not(p, &item)))
        return false;
    *ret = item;
    const char *word = is_or ? "or" : "and";
    if (!plm_tload_is_name(p, word))
        return true;
    struct plm_tnodes items = {0};
    if (!plm_tload_push(p, &items, item))
        return false;
    // Behind a literal that decides the result nothing is ever looked at.
    bool decided = false;
    const uint32_t in_branch = p->in_branch;
    while (plm_tload_skip_name(p, word)) {
        decided = decided || (item->kind == PLM_N_CONST && plm_tval_truth(&item->value) == is_or);
        p->in_branch = in_branch + decided;
        if (!(is_or ? parse_logic(p, false, &item) : parse_not(p, &item)) ||
            !plm_tload_push(p, &items, item))
            return false;
    }
    p->in_branch = in_branch;
    return plm_tload_list(p, is_or ? PLM_N_OR : PLM_N_AND, line, &items, ret);
}

bool plm_tload_expression(struct plm_tload *p, bool with_cond, struct plm_tnode **ret)
{
    struct plm_tnode *value;
    if (!plm_tload_enter(p))
        return false;
    // Jinja looks up filters of a conditional expression only when they run. What stands before
    // `if` is parsed before the `if` is seen, so an unknown name is noted and forgiven here.
    struct plm_slice unknown = p->unknown;
    uint32_t depth = p->depth;
    if (!parse_logic(p, true, &value))
        return false;
    if (!with_cond || !plm_tload_is_name(p, "if")) {
        p->depth--;
        *ret = value;
        return true;
    }
    p->unknown = unknown;
    p->in_branch++;
    while (plm_tload_is_name(p, "if")) {
        struct plm_tnode *cond = plm_tload_node(p, PLM_N_COND, plm_tload_tok(p)->line);
        plm_tload_next(p);
        if (cond == NULL || !parse_logic(p, true, &cond->b))
            return false;
        cond->a = value;
        if (plm_tload_skip_name(p, "else") && !plm_tload_expression(p, true, &cond->c))
            return false;
        value = cond;
        if (!plm_tload_enter(p)) // each further `if` is a level of evaluation
            return false;
    }
    p->in_branch--;
    p->depth = depth - 1;
    *ret = value;
    return true;
}
