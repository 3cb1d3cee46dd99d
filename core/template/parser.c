// SPDX-License-Identifier: Apache-2.0
// Values, and what stands directly behind them: members, items, calls, filters, tests.
#include <string.h>

#include "core/template/ast.h"
#include "core/template/run.h"

static bool parse_primary(struct plm_tload *p, bool with_namespace, struct plm_tnode **ret);

static bool literal_value(struct plm_tload *p, const struct plm_ttoken *t, struct plm_tval *ret)
{
    if (t->type == PLM_TOK_INT) {
        const enum plm_tint found = plm_tnum_int_text(t->text, ret);
        if (found == PLM_TINT_BEYOND)
            return plm_tload_fail(p, PLM_ERR_UNSUPPORTED, t->line,
                                  "integers beyond 64 bits are not supported: %.*s",
                                  (int)(t->text.len < 60 ? t->text.len : 60), t->text.ptr);
        return found == PLM_TINT_OK ||
               plm_tload_fail(p, PLM_ERR_FORMAT, t->line, "malformed number");
    }
    ret->kind = PLM_T_FLOAT;
    return plm_tnum_float_text(t->text, &ret->d) ||
           plm_tload_fail(p, PLM_ERR_FORMAT, t->line, "malformed number");
}

// A string constant, shared by all renders and therefore complete (characters counted).
static bool string_value(struct plm_tload *p, struct plm_slice s, struct plm_tval *ret)
{
    struct plm_tstr *str = plm_tload_alloc(p, 1, sizeof(*str));
    struct plm_tbuf *buf = plm_tload_alloc(p, 1, sizeof(*buf));
    if (str == NULL || buf == NULL)
        return false;
    *buf = (struct plm_tbuf){
        .data = (char *)s.ptr, .len = s.len, .n_runs = 1, .cap_runs = 1, .one = {s.len, false}};
    buf->runs = &buf->one;
    *str = (struct plm_tstr){.buf = buf, .len = s.len, .n_chars = SIZE_MAX};
    plm_tstr_chars(str);
    *ret = (struct plm_tval){.kind = PLM_T_STR, .str = str};
    return true;
}

static bool parse_strings(struct plm_tload *p, struct plm_tnode *node)
{
    size_t first = p->at;
    size_t total = 0;
    for (; plm_tload_tok(p)->type == PLM_TOK_STRING; plm_tload_next(p))
        total += plm_tload_tok(p)->text.len;
    struct plm_slice s = p->tokens[first].text;
    if (p->at > first + 1) {
        char *joined = plm_tload_alloc(p, total + 1, 1);
        if (joined == NULL)
            return false;
        s = (struct plm_slice){joined, 0};
        for (size_t i = first; i < p->at; i++) {
            memcpy(joined + s.len, p->tokens[i].text.ptr, p->tokens[i].text.len);
            s.len += p->tokens[i].text.len;
        }
    }
    return string_value(p, s, &node->value);
}

static bool parse_name(struct plm_tload *p, bool with_namespace, struct plm_tnode **ret)
{
    static const struct {
        const char *name;
        struct plm_tval value;
    } constants[] = {
        {"true", {.kind = PLM_T_BOOL, .b = true}},
        {"True", {.kind = PLM_T_BOOL, .b = true}},
        {"false", {.kind = PLM_T_BOOL, .b = false}},
        {"False", {.kind = PLM_T_BOOL, .b = false}},
        {"none", {.kind = PLM_T_NONE}},
        {"None", {.kind = PLM_T_NONE}},
    };
    uint32_t line = plm_tload_tok(p)->line;
    struct plm_slice name;
    if (!plm_tload_expect_name(p, &name))
        return false;
    struct plm_tnode *node = plm_tload_node(p, PLM_N_NAME, line);
    if (node == NULL)
        return false;
    *ret = node;
    for (size_t i = 0; i < sizeof(constants) / sizeof(constants[0]); i++) {
        if (!plm_slice_eq_str(name, constants[i].name))
            continue;
        node->kind = PLM_N_CONST;
        node->value = constants[i].value;
        return true;
    }
    if (!plm_tload_sym(p, name, &node->sym))
        return false;
    if (with_namespace && plm_tload_skip_op(p, ".")) {
        node->kind = PLM_N_NSREF;
        return plm_tload_expect_name(p, &node->name);
    }
    // Jinja gives macros what they were called with beyond their parameters.
    if (p->macros > 0 && (plm_slice_eq_str(name, "varargs") || plm_slice_eq_str(name, "kwargs")))
        return plm_tload_fail(p, PLM_ERR_UNSUPPORTED, line, "'%.*s' of a macro is not supported",
                              (int)name.len, name.ptr);
    return true;
}

static bool parse_list(struct plm_tload *p, struct plm_tnode **ret)
{
    uint32_t line = plm_tload_tok(p)->line;
    struct plm_tnodes items = {0};
    plm_tload_next(p);
    while (!plm_tload_is_op(p, "]")) {
        struct plm_tnode *item;
        if (items.n > 0 && !plm_tload_expect_op(p, ","))
            return false;
        if (plm_tload_is_op(p, "]"))
            break;
        if (!plm_tload_expression(p, true, &item) || !plm_tload_push(p, &items, item))
            return false;
    }
    plm_tload_next(p);
    return plm_tload_list(p, PLM_N_LIST, line, &items, ret);
}

static bool parse_dict(struct plm_tload *p, struct plm_tnode **ret)
{
    uint32_t line = plm_tload_tok(p)->line;
    struct plm_tnodes items = {0};
    plm_tload_next(p);
    while (!plm_tload_is_op(p, "}")) {
        struct plm_tnode *key, *value;
        if (items.n > 0 && !plm_tload_expect_op(p, ","))
            return false;
        if (plm_tload_is_op(p, "}"))
            break;
        if (!plm_tload_expression(p, true, &key) || !plm_tload_expect_op(p, ":") ||
            !plm_tload_expression(p, true, &value) || !plm_tload_push(p, &items, key) ||
            !plm_tload_push(p, &items, value))
            return false;
    }
    plm_tload_next(p);
    return plm_tload_list(p, PLM_N_DICT, line, &items, ret);
}

static bool parse_primary(struct plm_tload *p, bool with_namespace, struct plm_tnode **ret)
{
    struct plm_ttoken *t = plm_tload_tok(p);
    switch (t->type) {
    case PLM_TOK_NAME: return parse_name(p, with_namespace, ret);
    case PLM_TOK_STRING:
    case PLM_TOK_INT:
    case PLM_TOK_FLOAT:
        *ret = plm_tload_node(p, PLM_N_CONST, t->line);
        if (*ret == NULL)
            return false;
        if (t->type == PLM_TOK_STRING)
            return parse_strings(p, *ret);
        plm_tload_next(p);
        return literal_value(p, t, &(*ret)->value);
    default: break;
    }
    if (plm_tload_skip_op(p, "("))
        return plm_tload_tuple(p, true, true, NULL, ret) && plm_tload_expect_op(p, ")");
    if (plm_tload_is_op(p, "["))
        return parse_list(p, ret);
    if (plm_tload_is_op(p, "{"))
        return parse_dict(p, ret);
    return plm_tload_unexpected(p, "an expression");
}

static bool at_tuple_end(struct plm_tload *p, const char *end_name)
{
    enum plm_ttoken_type type = plm_tload_tok(p)->type;
    return type == PLM_TOK_VAR_END || type == PLM_TOK_BLOCK_END || plm_tload_is_op(p, ")") ||
           (end_name != NULL && plm_tload_is_name(p, end_name));
}

// What the items of a tuple are.
enum tuple_item { NAMES, NAMES_AND_MEMBERS, EXPRESSIONS, EXPRESSIONS_WITHOUT_IF };

static bool parse_tuple(struct plm_tload *p, enum tuple_item what, bool parens,
                        const char *end_name, struct plm_tnode **ret)
{
    uint32_t line = plm_tload_tok(p)->line;
    struct plm_tnodes items = {0};
    bool is_tuple = false;
    if (!plm_tload_enter(p))
        return false;
    for (;;) {
        struct plm_tnode *item;
        if (items.n > 0 && !plm_tload_expect_op(p, ","))
            return false;
        if (at_tuple_end(p, end_name))
            break;
        bool ok = what <= NAMES_AND_MEMBERS ? parse_primary(p, what == NAMES_AND_MEMBERS, &item)
                                            : plm_tload_expression(p, what == EXPRESSIONS, &item);
        if (!ok || !plm_tload_push(p, &items, item))
            return false;
        if (!plm_tload_is_op(p, ","))
            break;
        is_tuple = true;
    }
    p->depth--;
    if (!is_tuple && items.n > 0) {
        *ret = items.v[0];
        return true;
    }
    if (!is_tuple && !parens)
        return plm_tload_unexpected(p, "an expression");
    return plm_tload_list(p, PLM_N_TUPLE, line, &items, ret);
}

bool plm_tload_tuple(struct plm_tload *p, bool with_cond, bool parens, const char *end_name,
                     struct plm_tnode **ret)
{
    return parse_tuple(p, with_cond ? EXPRESSIONS : EXPRESSIONS_WITHOUT_IF, parens, end_name, ret);
}

static bool check_target(struct plm_tload *p, const struct plm_tnode *node)
{
    if (node->kind == PLM_N_NAME || node->kind == PLM_N_NSREF)
        return true;
    if (node->kind != PLM_N_TUPLE)
        return plm_tload_fail(p, PLM_ERR_FORMAT, node->line, "can not assign to this expression");
    for (uint32_t i = 0; i < node->n; i++)
        if (!check_target(p, node->list[i]))
            return false;
    return true;
}

bool plm_tload_target(struct plm_tload *p, bool with_namespace, const char *end_name,
                      struct plm_tnode **ret)
{
    return parse_tuple(p, with_namespace ? NAMES_AND_MEMBERS : NAMES, false, end_name, ret) &&
           check_target(p, *ret);
}

static bool parse_call_args(struct plm_tload *p, struct plm_tcall_args **ret)
{
    struct plm_tcall_args *call = plm_tload_alloc(p, 1, sizeof(*call));
    struct plm_tnodes pos = {0};
    struct plm_tnodes kw = {0};
    struct plm_slice names[64]; // more keyword arguments than any function of ours takes
    if (call == NULL || !plm_tload_expect_op(p, "("))
        return false;
    for (bool first = true; !plm_tload_is_op(p, ")"); first = false) {
        struct plm_tnode *node;
        if (!first && !plm_tload_expect_op(p, ","))
            return false;
        if (plm_tload_is_op(p, ")"))
            break;
        if (plm_tload_is_op(p, "*") || plm_tload_is_op(p, "**"))
            return plm_tload_fail(p, PLM_ERR_UNSUPPORTED, plm_tload_tok(p)->line,
                                  "'%.*s' before an argument is not supported",
                                  (int)plm_tload_tok(p)->text.len, plm_tload_tok(p)->text.ptr);
        bool named = plm_tload_tok(p)->type == PLM_TOK_NAME &&
                     plm_ttoken_is(plm_tload_look(p), PLM_TOK_OP, "=");
        if ((!named && kw.n > 0) || kw.n == 64)
            return plm_tload_unexpected(p, "')' (order or number of arguments)");
        for (size_t i = 0; named && i < kw.n; i++)
            if (plm_slice_eq(names[i], plm_tload_tok(p)->text))
                return plm_tload_unexpected(p, "another name (this one is given already)");
        if (named) {
            names[kw.n] = plm_tload_tok(p)->text;
            plm_tload_next(p);
            plm_tload_next(p);
        }
        if (!plm_tload_expression(p, true, &node) || !plm_tload_push(p, named ? &kw : &pos, node))
            return false;
    }
    plm_tload_next(p);
    call->pos = pos.v;
    call->n_pos = pos.n;
    call->kw = kw.v;
    call->n_kw = kw.n;
    call->kw_names = plm_tload_alloc(p, kw.n + 1, sizeof(*names));
    if (call->kw_names == NULL)
        return false;
    memcpy(call->kw_names, names, kw.n * sizeof(*names));
    *ret = call;
    return true;
}

static bool parse_call(struct plm_tload *p, struct plm_tnode *callee, struct plm_tnode **ret)
{
    struct plm_tnode *node = plm_tload_node(p, PLM_N_CALL, plm_tload_tok(p)->line);
    if (node == NULL || !parse_call_args(p, &node->call))
        return false;
    node->a = callee;
    *ret = node;
    return true;
}

// What stands in brackets, without them: an index or a slice.
static bool parse_slice(struct plm_tload *p, struct plm_tnode *node)
{
    struct plm_tnode *part[3] = {NULL, NULL, NULL};
    if (!plm_tload_is_op(p, ":")) {
        if (!plm_tload_expression(p, true, &part[0]))
            return false;
        if (!plm_tload_is_op(p, ":")) {
            node->kind = PLM_N_ITEM;
            node->b = part[0];
            return true;
        }
    }
    for (int i = 1; i < 3 && plm_tload_skip_op(p, ":"); i++)
        if (!plm_tload_is_op(p, ":") && !plm_tload_is_op(p, "]") &&
            !plm_tload_expression(p, true, &part[i]))
            return false;
    node->kind = PLM_N_SLICE;
    node->list = plm_tload_alloc(p, 3, sizeof(*node->list));
    if (node->list == NULL)
        return false;
    memcpy(node->list, part, sizeof(part));
    return true;
}

static bool parse_subscript(struct plm_tload *p, struct plm_tnode *of, struct plm_tnode **ret)
{
    struct plm_tnode *node = plm_tload_node(p, PLM_N_ATTR, plm_tload_tok(p)->line);
    if (node == NULL)
        return false;
    node->a = of;
    *ret = node;
    if (plm_tload_skip_op(p, ".")) {
        struct plm_ttoken *t = plm_tload_tok(p);
        if (t->type == PLM_TOK_NAME)
            return plm_tload_expect_name(p, &node->name);
        if (t->type != PLM_TOK_INT)
            return plm_tload_unexpected(p, "a name or number after '.'");
        node->kind = PLM_N_ITEM;
        return parse_primary(p, false, &node->b);
    }
    plm_tload_next(p); // [
    return parse_slice(p, node) && plm_tload_expect_op(p, "]");
}

static bool parse_postfix(struct plm_tload *p, struct plm_tnode **ret)
{
    for (;;) {
        if (plm_tload_is_op(p, ".") || plm_tload_is_op(p, "[")) {
            if (!parse_subscript(p, *ret, ret))
                return false;
        } else if (plm_tload_is_op(p, "(")) {
            if (!parse_call(p, *ret, ret))
                return false;
        } else {
            return true;
        }
    }
}

static void find_func(struct plm_tload *p, struct plm_tnode *node, bool filter)
{
    node->func = filter ? plm_tpl_filter(node->name) : plm_tpl_test(node->name);
    const bool known = node->func != NULL;
    if ((!known || node->func->fn == NULL) && p->in_branch == 0 && p->unknown.ptr == NULL) {
        p->unknown = node->name;
        p->unknown_line = node->line;
        p->unknown_what = filter ? (known ? "unsupported filter" : "unknown filter")
                                 : (known ? "unsupported test" : "unknown test");
    }
}

bool plm_tload_filters(struct plm_tload *p, struct plm_tnode *input, bool start_inline,
                       struct plm_tnode **ret)
{
    *ret = input;
    while (start_inline || plm_tload_skip_op(p, "|")) {
        start_inline = false;
        struct plm_tnode *node = plm_tload_node(p, PLM_N_FILTER, plm_tload_tok(p)->line);
        if (node == NULL || !plm_tload_expect_name(p, &node->name))
            return false;
        find_func(p, node, true);
        node->a = *ret;
        *ret = node;
        if (plm_tload_is_op(p, "(") && !parse_call_args(p, &node->call))
            return false;
    }
    return true;
}

static bool parse_test(struct plm_tload *p, struct plm_tnode **ret)
{
    uint32_t line = plm_tload_tok(p)->line;
    plm_tload_next(p); // is
    bool negated = plm_tload_skip_name(p, "not");
    struct plm_tnode *node = plm_tload_node(p, PLM_N_TEST, line);
    if (node == NULL || !plm_tload_expect_name(p, &node->name))
        return false;
    find_func(p, node, false);
    node->a = *ret;
    struct plm_ttoken *t = plm_tload_tok(p);
    bool operand = (t->type >= PLM_TOK_NAME && t->type <= PLM_TOK_FLOAT) ||
                   plm_tload_is_op(p, "[") || plm_tload_is_op(p, "{");
    static const char *const stop[] = {"else", "or", "and"};
    for (int i = 0; i < 3; i++)
        operand = operand && !plm_tload_is_name(p, stop[i]);
    if (plm_tload_is_op(p, "(")) {
        if (!parse_call_args(p, &node->call))
            return false;
    } else if (operand) {
        if (plm_tload_is_name(p, "is"))
            return plm_tload_unexpected(p, "an operand ('is' can not be chained)");
        node->call = plm_tload_alloc(p, 1, sizeof(*node->call));
        if (node->call == NULL)
            return false;
        node->call->pos = plm_tload_alloc(p, 1, sizeof(*node->call->pos));
        node->call->n_pos = 1;
        if (node->call->pos == NULL || !parse_primary(p, false, &node->call->pos[0]) ||
            !parse_postfix(p, &node->call->pos[0]))
            return false;
    }
    *ret = node;
    if (!negated)
        return true;
    struct plm_tnode *not = plm_tload_node(p, PLM_N_NOT, line);
    if (not == NULL)
        return false;
    not ->a = node;
    *ret = not ;
    return true;
}

static bool parse_filter_expr(struct plm_tload *p, struct plm_tnode **ret)
{
    for (;;) {
        bool ok = true;
        if (plm_tload_is_op(p, "|"))
            ok = plm_tload_filters(p, *ret, false, ret);
        else if (plm_tload_is_name(p, "is"))
            ok = parse_test(p, ret);
        else if (plm_tload_is_op(p, "("))
            ok = parse_call(p, *ret, ret);
        else
            return true;
        if (!ok)
            return false;
    }
}

bool plm_tload_unary(struct plm_tload *p, bool with_filter, struct plm_tnode **ret)
{
    uint32_t line = plm_tload_tok(p)->line;
    bool neg = plm_tload_is_op(p, "-");
    if (!plm_tload_enter(p))
        return false;
    if (neg || plm_tload_is_op(p, "+")) {
        struct plm_tnode *node = plm_tload_node(p, neg ? PLM_N_NEG : PLM_N_POS, line);
        plm_tload_next(p);
        if (node == NULL || !plm_tload_unary(p, false, &node->a))
            return false;
        *ret = node;
    } else if (!parse_primary(p, false, ret)) {
        return false;
    }
    p->depth--;
    return parse_postfix(p, ret) && (!with_filter || parse_filter_expr(p, ret));
}
