// SPDX-License-Identifier: Apache-2.0
// Jinja's tests: what stands after `is`.
#include "core/template/run.h"

enum {
    INTEGERS = 1 << PLM_T_INT | 1 << PLM_T_UINT,
    NUMBERS = INTEGERS | 1 << PLM_T_FLOAT | 1 << PLM_T_BOOL,
    SEQUENCES = 1 << PLM_T_STR | 1 << PLM_T_LIST | 1 << PLM_T_TUPLE | 1 << PLM_T_DICT |
                1 << PLM_T_RANGE | 1 << PLM_T_UNDEF,
    ITERABLES = SEQUENCES | 1 << PLM_T_VIEW | 1 << PLM_T_ITER | 1 << PLM_T_LOOP,
    // Jinja's undefined has a call, which fails.
    CALLABLES =
        1 << PLM_T_FUNC | 1 << PLM_T_METHOD | 1 << PLM_T_MACRO | 1 << PLM_T_LOOP | 1 << PLM_T_UNDEF,
};

// Whether the value is of one of the kinds in the mask aux.
static bool t_kind(struct plm_trun *r, struct plm_tcall *c)
{
    (void)r;
    *c->ret = plm_tval_bool(c->func->aux >> c->self.kind & 1);
    return true;
}

static bool t_bool(struct plm_trun *r, struct plm_tcall *c)
{
    (void)r;
    *c->ret = plm_tval_bool(c->self.kind == PLM_T_BOOL && c->self.b == (c->func->aux == 1));
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

static const struct plm_tfunc tests[] = {
    {"!=", "other", t_compare, PLM_CMP_NE},
    {"<", "other", t_compare, PLM_CMP_LT},
    {"<=", "other", t_compare, PLM_CMP_LE},
    {"==", "other", t_compare, PLM_CMP_EQ},
    {">", "other", t_compare, PLM_CMP_GT},
    {">=", "other", t_compare, PLM_CMP_GE},
    {"boolean", "", t_kind, 1 << PLM_T_BOOL},
    {"callable", "", t_kind, CALLABLES},
    {"defined", "", t_kind, ~(1 << PLM_T_UNDEF)},
    {"divisibleby", "num", t_divisible, 0},
    {"eq", "other", t_compare, PLM_CMP_EQ},
    {"equalto", "other", t_compare, PLM_CMP_EQ},
    {"escaped", "*", NULL, 0},
    {"even", "", t_divisible, 2},
    {"false", "", t_bool, 0},
    {"filter", "*", NULL, 0},
    {"float", "", t_kind, 1 << PLM_T_FLOAT},
    {"ge", "other", t_compare, PLM_CMP_GE},
    {"greaterthan", "other", t_compare, PLM_CMP_GT},
    {"gt", "other", t_compare, PLM_CMP_GT},
    {"in", "seq", t_compare, PLM_CMP_IN},
    {"integer", "", t_kind, INTEGERS},
    {"iterable", "", t_kind, ITERABLES},
    {"le", "other", t_compare, PLM_CMP_LE},
    {"lessthan", "other", t_compare, PLM_CMP_LT},
    {"lower", "*", NULL, 0},
    {"lt", "other", t_compare, PLM_CMP_LT},
    {"mapping", "", t_kind, 1 << PLM_T_DICT},
    {"ne", "other", t_compare, PLM_CMP_NE},
    {"none", "", t_kind, 1 << PLM_T_NONE},
    {"number", "", t_kind, NUMBERS},
    {"odd", "", t_divisible, 1},
    {"sameas", "other", t_sameas, 0},
    {"sequence", "", t_kind, SEQUENCES},
    {"string", "", t_kind, 1 << PLM_T_STR},
    {"test", "*", NULL, 0},
    {"true", "", t_bool, 1},
    {"undefined", "", t_kind, 1 << PLM_T_UNDEF},
    {"upper", "*", NULL, 0},
};

const struct plm_tfunc *plm_tpl_test(struct plm_slice name)
{
    return PLM_FIND_FUNC(tests, name);
}
