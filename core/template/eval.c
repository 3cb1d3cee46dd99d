// SPDX-License-Identifier: Apache-2.0
// Expressions.
#include "core/template/run.h"

#include <string.h>

static bool look_up(struct plm_trun *r, uint32_t sym, struct plm_tval *ret)
{
    for (const struct plm_tscope *s = r->scope; s != NULL; s = s->parent)
        for (size_t i = s->n; i-- > 0;)
            if (s->vars[i].sym == sym) {
                *ret = s->vars[i].value;
                return true;
            }
    const struct plm_slice *name = &r->tmpl->syms[sym];
    const struct plm_tval *v = plm_tdict_find(r->context, *name);
    if (v != NULL) {
        *ret = *v;
        return true;
    }
    const struct plm_tfunc *func = plm_tpl_global(*name);
    *ret =
        func != NULL ? (struct plm_tval){.kind = PLM_T_FUNC, .func = func} : plm_tval_undef(name);
    return true;
}

static bool add_lists(struct plm_trun *r, const struct plm_tval *a, const struct plm_tval *b,
                      struct plm_tval *ret)
{
    struct plm_tlist *list = plm_tlist_new(r, a->list->n + b->list->n);
    if (list == NULL || !plm_tpl_step(r, list->cap / 8))
        return false;
    for (size_t i = 0; i < a->list->n; i++)
        list->v[list->n++] = a->list->v[i];
    for (size_t i = 0; i < b->list->n; i++)
        list->v[list->n++] = b->list->v[i];
    list->user = a->list->user || b->list->user;
    return plm_tlist_val(list, a->kind, ret);
}

static bool repeat(struct plm_trun *r, const struct plm_tval *seq, const struct plm_tval *times,
                   struct plm_tval *ret)
{
    const __int128 whole = plm_tnum_whole(times);
    const uint64_t n = whole < 0 ? 0 : (uint64_t)whole;
    if (seq->kind == PLM_T_STR) {
        struct plm_tbuf *buf = plm_tbuf_new(r);
        if (buf == NULL)
            return false;
        if (seq->str->len > 0 && n > r->limits.output_bytes / seq->str->len)
            return plm_tpl_fail_limit(r, "output bytes");
        for (uint64_t i = 0; seq->str->len > 0 && i < n; i++)
            if (!plm_tbuf_add_str(r, buf, seq->str))
                return false;
        if (!plm_tpl_step(r, n / 16) || !plm_tbuf_value(r, buf, ret))
            return false;
        ret->str->markup = seq->str->markup;
        return true;
    }
    struct plm_tlist *list = plm_tlist_new(r, 0);
    if (list == NULL)
        return false;
    list->user = seq->list->user;
    for (uint64_t i = 0; seq->list->n > 0 && i < n; i++)
        for (size_t k = 0; k < seq->list->n; k++)
            if (!plm_tpl_step(r, 1) || !plm_tlist_add(r, list, seq->list->v[k]))
                return false;
    return plm_tlist_val(list, seq->kind, ret);
}

static bool is_sequence(const struct plm_tval *v)
{
    return v->kind == PLM_T_STR || v->kind == PLM_T_LIST || v->kind == PLM_T_TUPLE;
}

bool plm_tpl_binary(struct plm_trun *r, int op, const struct plm_tval *a, const struct plm_tval *b,
                    struct plm_tval *ret)
{
    static const char *const names[] = {"+", "-", "*", "/", "//", "%"};
    if (plm_tval_is_number(a) && plm_tval_is_number(b))
        return plm_tnum_binary(r, op, a, b, ret);
    if (a->kind == PLM_T_UNDEF || b->kind == PLM_T_UNDEF)
        return plm_tpl_fail_undef(r, a->kind == PLM_T_UNDEF ? a : b);
    if (op == PLM_OP_ADD && a->kind == b->kind) {
        if (a->kind == PLM_T_STR)
            return plm_tstr_concat(r, a->str, b->str, ret);
        if (a->kind == PLM_T_LIST || a->kind == PLM_T_TUPLE)
            return add_lists(r, a, b, ret);
    }
    if (op == PLM_OP_MUL && is_sequence(a) && plm_tval_is_int(b))
        return repeat(r, a, b, ret);
    if (op == PLM_OP_MUL && is_sequence(b) && plm_tval_is_int(a))
        return repeat(r, b, a, ret);
    if (op == PLM_OP_MOD && a->kind == PLM_T_STR)
        return plm_tpl_fail(r, "formatting of a string by '%%' is not supported");
    return plm_tpl_fail(r, "'%s' does not take %s and %s", names[op], plm_tval_type(a),
                        plm_tval_type(b));
}

bool plm_tpl_compare(struct plm_trun *r, int op, const struct plm_tval *a, const struct plm_tval *b,
                     bool *ret)
{
    static const char *const names[] = {"==", "!=", "<", "<=", ">", ">="};
    int c = 0;
    bool nan = false;
    switch (op) {
    case PLM_CMP_EQ: return plm_tval_eq(r, a, b, ret);
    case PLM_CMP_NE:
    case PLM_CMP_NOT_IN:
        if (!(op == PLM_CMP_NE ? plm_tval_eq(r, a, b, ret) : plm_tpl_contains(r, a, b, ret)))
            return false;
        *ret = !*ret;
        return true;
    case PLM_CMP_IN: return plm_tpl_contains(r, a, b, ret);
    default: break;
    }
    if (!plm_tval_cmp(r, a, b, &c, &nan, names[op]))
        return false;
    *ret = !nan && (op == PLM_CMP_LT   ? c < 0
                    : op == PLM_CMP_LE ? c <= 0
                    : op == PLM_CMP_GT ? c > 0
                                       : c >= 0);
    return true;
}

static bool eval_list(struct plm_trun *r, const struct plm_tnode *node, struct plm_tval *ret)
{
    struct plm_tlist *list = plm_tlist_new(r, node->n);
    if (list == NULL)
        return false;
    for (uint32_t i = 0; i < node->n; i++, list->n++)
        if (!plm_tpl_eval(r, node->list[i], &list->v[i]))
            return false;
    return plm_tlist_val(list, node->kind == PLM_N_LIST ? PLM_T_LIST : PLM_T_TUPLE, ret);
}

static bool eval_dict(struct plm_trun *r, const struct plm_tnode *node, struct plm_tval *ret)
{
    struct plm_tdict *dict = plm_tdict_new(r);
    if (dict == NULL)
        return false;
    for (uint32_t i = 0; i < node->n; i += 2) {
        struct plm_tval key, value;
        if (!plm_tpl_eval(r, node->list[i], &key) || !plm_tpl_eval(r, node->list[i + 1], &value) ||
            !plm_tdict_set(r, dict, key, value))
            return false;
    }
    *ret = (struct plm_tval){.kind = PLM_T_DICT, .dict = dict};
    return true;
}

static bool eval_slice(struct plm_trun *r, const struct plm_tnode *node, struct plm_tval *ret)
{
    struct plm_tval obj;
    struct plm_tval bound[3] = {{0}};
    if (!plm_tpl_eval(r, node->a, &obj))
        return false;
    for (int i = 0; i < 3; i++)
        if (node->list[i] != NULL && !plm_tpl_eval(r, node->list[i], &bound[i]))
            return false;
    return plm_tpl_getslice(r, &obj, bound, ret);
}

static bool eval_binary(struct plm_trun *r, const struct plm_tnode *node, struct plm_tval *ret)
{
    struct plm_tval acc, next;
    if (!plm_tpl_eval(r, node->list[0], &acc))
        return false;
    for (uint32_t i = 1; i < node->n; i++)
        if (!plm_tpl_eval(r, node->list[i], &next) ||
            !plm_tpl_binary(r, node->ops[i - 1], &acc, &next, &acc))
            return false;
    *ret = acc;
    return true;
}

static bool eval_compare(struct plm_trun *r, const struct plm_tnode *node, struct plm_tval *ret)
{
    struct plm_tval left, right;
    bool result = true;
    if (!plm_tpl_eval(r, node->list[0], &left))
        return false;
    for (uint32_t i = 1; result && i < node->n; i++) {
        if (!plm_tpl_eval(r, node->list[i], &right) ||
            !plm_tpl_compare(r, node->ops[i - 1], &left, &right, &result))
            return false;
        left = right;
    }
    *ret = plm_tval_bool(result);
    return true;
}

static bool eval_logic(struct plm_trun *r, const struct plm_tnode *node, struct plm_tval *ret)
{
    for (uint32_t i = 0; i < node->n; i++) {
        if (!plm_tpl_eval(r, node->list[i], ret))
            return false;
        if (plm_tval_truth(ret) == (node->kind == PLM_N_OR))
            return true;
    }
    return true;
}

static bool eval_concat(struct plm_trun *r, const struct plm_tnode *node, struct plm_tval *ret)
{
    struct plm_tbuf *buf = plm_tbuf_new(r);
    struct plm_tval v;
    if (buf == NULL)
        return false;
    for (uint32_t i = 0; i < node->n; i++)
        if (!plm_tpl_eval(r, node->list[i], &v) || !plm_tval_print(r, buf, &v))
            return false;
    return plm_tbuf_value(r, buf, ret);
}

static bool eval_sign(struct plm_trun *r, const struct plm_tnode *node, struct plm_tval *ret)
{
    struct plm_tval v;
    if (!plm_tpl_eval(r, node->a, &v))
        return false;
    bool neg = node->kind == PLM_N_NEG;
    if (v.kind == PLM_T_UNDEF)
        return plm_tpl_fail_undef(r, &v);
    if (!plm_tval_is_number(&v))
        return plm_tpl_fail(r, "unary '%s' does not take %s", neg ? "-" : "+", plm_tval_type(&v));
    if (v.kind == PLM_T_FLOAT) {
        *ret = plm_tval_float(neg ? -v.d : v.d);
        return true;
    }
    struct plm_tval zero = plm_tval_int(0);
    return plm_tnum_binary(r, neg ? PLM_OP_SUB : PLM_OP_ADD, &zero, &v, ret);
}

bool plm_tpl_eval_args(struct plm_trun *r, const struct plm_tcall_args *call, struct plm_targs *ret)
{
    *ret = (struct plm_targs){0};
    if (call == NULL)
        return true;
    struct plm_tlist *pos = plm_tlist_new(r, call->n_pos);
    struct plm_tlist *kw = plm_tlist_new(r, call->n_kw);
    struct plm_tval v;
    if (pos == NULL || kw == NULL)
        return false;
    for (size_t i = 0; i < call->n_pos; i++)
        if (!plm_tpl_eval(r, call->pos[i], &v) || !plm_tlist_add(r, pos, v))
            return false;
    for (size_t i = 0; i < call->n_kw; i++)
        if (!plm_tpl_eval(r, call->kw[i], &v) || !plm_tlist_add(r, kw, v))
            return false;
    *ret = (struct plm_targs){pos->v, pos->n, call->kw_names, kw->v, kw->n};
    return true;
}

static bool eval_call(struct plm_trun *r, const struct plm_tnode *node, struct plm_tval *ret)
{
    struct plm_tval callee;
    struct plm_targs args;
    return plm_tpl_eval(r, node->a, &callee) && plm_tpl_eval_args(r, node->call, &args) &&
           plm_tpl_call(r, &callee, &args, ret);
}

static bool eval_func(struct plm_trun *r, const struct plm_tnode *node, struct plm_tval *ret)
{
    struct plm_tval self;
    struct plm_targs args;
    if (node->func == NULL)
        return plm_tpl_fail(r, "unknown %s '%.*s'", node->kind == PLM_N_TEST ? "test" : "filter",
                            (int)node->name.len, node->name.ptr);
    return plm_tpl_eval(r, node->a, &self) && plm_tpl_eval_args(r, node->call, &args) &&
           plm_tpl_invoke(r, node->func, &self, &args, ret);
}

static bool eval_cond(struct plm_trun *r, const struct plm_tnode *node, struct plm_tval *ret)
{
    struct plm_tval cond;
    if (!plm_tpl_eval(r, node->b, &cond))
        return false;
    const struct plm_tnode *taken = plm_tval_truth(&cond) ? node->a : node->c;
    if (taken != NULL)
        return plm_tpl_eval(r, taken, ret);
    *ret = plm_tval_undef(NULL);
    return true;
}

static bool eval_inner(struct plm_trun *r, const struct plm_tnode *node, struct plm_tval *ret)
{
    struct plm_tval a, b;
    switch (node->kind) {
    case PLM_N_CONST: *ret = node->value; return true;
    case PLM_N_NAME: return look_up(r, node->sym, ret);
    case PLM_N_LIST:
    case PLM_N_TUPLE: return eval_list(r, node, ret);
    case PLM_N_DICT: return eval_dict(r, node, ret);
    case PLM_N_ATTR:
        return plm_tpl_eval(r, node->a, &a) && plm_tpl_getattr(r, &a, &node->name, ret);
    case PLM_N_ITEM:
        return plm_tpl_eval(r, node->a, &a) && plm_tpl_eval(r, node->b, &b) &&
               plm_tpl_getitem(r, &a, &b, ret);
    case PLM_N_SLICE: return eval_slice(r, node, ret);
    case PLM_N_CALL: return eval_call(r, node, ret);
    case PLM_N_FILTER:
    case PLM_N_TEST: return eval_func(r, node, ret);
    case PLM_N_NOT:
        if (!plm_tpl_eval(r, node->a, &a))
            return false;
        *ret = plm_tval_bool(!plm_tval_truth(&a));
        return true;
    case PLM_N_AND:
    case PLM_N_OR: return eval_logic(r, node, ret);
    case PLM_N_COND: return eval_cond(r, node, ret);
    case PLM_N_COMPARE: return eval_compare(r, node, ret);
    case PLM_N_BINARY: return eval_binary(r, node, ret);
    case PLM_N_CONCAT: return eval_concat(r, node, ret);
    case PLM_N_NEG:
    case PLM_N_POS: return eval_sign(r, node, ret);
    case PLM_N_HOLE: *ret = r->hole; return true;
    default: return plm_tpl_fail(r, "this is no expression");
    }
}

bool plm_tpl_eval(struct plm_trun *r, const struct plm_tnode *node, struct plm_tval *ret)
{
    uint32_t line = r->line;
    r->line = node->line;
    if (!plm_tpl_enter(r) || !eval_inner(r, node, ret))
        return false;
    r->depth--;
    r->line = line;
    return true;
}
