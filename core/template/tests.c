// SPDX-License-Identifier: Apache-2.0
// Jinja's tests: what stands after `is`.
#include "core/template/run.h"

enum {
    IS_DEFINED,
    IS_UNDEFINED,
    IS_NONE,
    IS_BOOLEAN,
    IS_TRUE,
    IS_FALSE,
    IS_INTEGER,
    IS_FLOAT,
    IS_NUMBER,
    IS_STRING,
    IS_MAPPING,
    IS_SEQUENCE,
    IS_ITERABLE,
    IS_CALLABLE,
    IS_ESCAPED,
};

static bool is_callable(const struct plm_tval *v)
{
    switch (v->kind) {
    case PLM_T_UNDEF: // Jinja's undefined has a call, which fails
    case PLM_T_FUNC:
    case PLM_T_METHOD:
    case PLM_T_MACRO:
    case PLM_T_LOOP:
    case PLM_T_JOINER: return true;
    default: return false;
    }
}

static bool kind_is(const struct plm_tval *v, int what)
{
    enum plm_tkind k = v->kind;
    switch (what) {
    case IS_DEFINED: return k != PLM_T_UNDEF;
    case IS_UNDEFINED: return k == PLM_T_UNDEF;
    case IS_NONE: return k == PLM_T_NONE;
    case IS_BOOLEAN: return k == PLM_T_BOOL;
    case IS_TRUE: return k == PLM_T_BOOL && v->b;
    case IS_FALSE: return k == PLM_T_BOOL && !v->b;
    case IS_INTEGER: return k == PLM_T_INT || k == PLM_T_BIG;
    case IS_FLOAT: return k == PLM_T_FLOAT;
    case IS_NUMBER: return plm_tval_is_number(v);
    case IS_STRING: return k == PLM_T_STR;
    case IS_MAPPING: return k == PLM_T_DICT;
    case IS_SEQUENCE:
        return k == PLM_T_STR || k == PLM_T_BYTES || k == PLM_T_LIST || k == PLM_T_TUPLE ||
               k == PLM_T_DICT || k == PLM_T_RANGE || k == PLM_T_UNDEF;
    case IS_ITERABLE: return plm_tpl_iterable(v) || k == PLM_T_LOOP || k == PLM_T_BYTES;
    case IS_CALLABLE: return is_callable(v);
    default: return k == PLM_T_STR && v->str->markup;
    }
}

static bool t_kind(struct plm_trun *r, struct plm_tcall *c)
{
    (void)r;
    *c->ret = plm_tval_bool(kind_is(&c->self, c->func->aux));
    return true;
}

static bool t_compare(struct plm_trun *r, struct plm_tcall *c)
{
    bool result;
    if (!plm_tpl_compare(r, c->func->aux, &c->self, &c->a[0], &result))
        return false;
    *c->ret = plm_tval_bool(result);
    return true;
}

static bool t_divisible(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tval by = c->func->aux > 0 ? plm_tval_int(2) : c->a[0];
    struct plm_tval left;
    if (!plm_tpl_binary(r, PLM_OP_MOD, &c->self, &by, &left))
        return false;
    struct plm_tval want = plm_tval_int(c->func->aux == 1); // odd
    bool eq;
    if (!plm_tval_eq(r, &left, &want, &eq))
        return false;
    *c->ret = plm_tval_bool(eq);
    return true;
}

static bool t_case(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tstr *s;
    struct plm_tval v;
    const struct plm_tfunc *method =
        plm_tpl_str_method(c->func->aux == 0 ? PLM_SLICE("islower") : PLM_SLICE("isupper"));
    struct plm_targs none = {0};
    if (!plm_tval_str(r, &c->self, &s) || !plm_tstr_val(s, &v))
        return false;
    return plm_tpl_invoke(r, method, &v, &none, c->ret);
}

static bool t_sameas(struct plm_trun *r, struct plm_tcall *c)
{
    (void)r;
    const struct plm_tval *a = &c->self;
    const struct plm_tval *b = &c->a[0];
    bool same = a->kind == b->kind;
    switch (a->kind) {
    case PLM_T_NONE: break;
    case PLM_T_BOOL: same = same && a->b == b->b; break;
    case PLM_T_FLOAT: same = same && a->d == b->d; break;
    case PLM_T_INT: same = same && a->i == b->i; break;
    default: same = same && a->str == b->str; break;
    }
    *c->ret = plm_tval_bool(same);
    return true;
}

static bool t_known(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tstr *name;
    if (!plm_tpl_arg_str(r, &c->self, &name))
        return false;
    *c->ret = plm_tval_bool((c->func->aux == 0 ? plm_tpl_filter(plm_tstr_slice(name))
                                               : plm_tpl_test(plm_tstr_slice(name))) != NULL);
    return true;
}

static const struct plm_tfunc tests[] = {
    {"!=", "other", t_compare, PLM_CMP_NE},
    {"<", "other", t_compare, PLM_CMP_LT},
    {"<=", "other", t_compare, PLM_CMP_LE},
    {"==", "other", t_compare, PLM_CMP_EQ},
    {">", "other", t_compare, PLM_CMP_GT},
    {">=", "other", t_compare, PLM_CMP_GE},
    {"boolean", "", t_kind, IS_BOOLEAN},
    {"callable", "", t_kind, IS_CALLABLE},
    {"defined", "", t_kind, IS_DEFINED},
    {"divisibleby", "num", t_divisible, 0},
    {"eq", "other", t_compare, PLM_CMP_EQ},
    {"equalto", "other", t_compare, PLM_CMP_EQ},
    {"escaped", "", t_kind, IS_ESCAPED},
    {"even", "", t_divisible, 2},
    {"false", "", t_kind, IS_FALSE},
    {"filter", "", t_known, 0},
    {"float", "", t_kind, IS_FLOAT},
    {"ge", "other", t_compare, PLM_CMP_GE},
    {"greaterthan", "other", t_compare, PLM_CMP_GT},
    {"gt", "other", t_compare, PLM_CMP_GT},
    {"in", "seq", t_compare, PLM_CMP_IN},
    {"integer", "", t_kind, IS_INTEGER},
    {"iterable", "", t_kind, IS_ITERABLE},
    {"le", "other", t_compare, PLM_CMP_LE},
    {"lessthan", "other", t_compare, PLM_CMP_LT},
    {"lower", "", t_case, 0},
    {"lt", "other", t_compare, PLM_CMP_LT},
    {"mapping", "", t_kind, IS_MAPPING},
    {"ne", "other", t_compare, PLM_CMP_NE},
    {"none", "", t_kind, IS_NONE},
    {"number", "", t_kind, IS_NUMBER},
    {"odd", "", t_divisible, 1},
    {"sameas", "other", t_sameas, 0},
    {"sequence", "", t_kind, IS_SEQUENCE},
    {"string", "", t_kind, IS_STRING},
    {"test", "", t_known, 1},
    {"true", "", t_kind, IS_TRUE},
    {"undefined", "", t_kind, IS_UNDEFINED},
    {"upper", "", t_case, 1},
};

const struct plm_tfunc *plm_tpl_test(struct plm_slice name)
{
    return plm_tpl_find_func(tests, sizeof(tests) / sizeof(tests[0]), name);
}
