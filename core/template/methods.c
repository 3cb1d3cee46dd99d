// SPDX-License-Identifier: Apache-2.0
// Methods of lists and objects. Jinja's sandbox refuses those that change a list or an object; of
// these, the ones that published templates count on are there: what they change is the render's own
// copy.
#include <string.h>

#include "core/template/filters.h"

static bool m_get(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tval *v;
    if (!plm_tdict_get(r, c->self.dict, &c->a[0], &v))
        return false;
    *c->ret = v != NULL ? *v : c->a[1].kind != PLM_T_UNSET ? c->a[1] : plm_tval_none();
    return true;
}

static bool m_view(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tview *view = plm_tpl_alloc(r, sizeof(*view));
    if (view == NULL)
        return false;
    *view = (struct plm_tview){c->self.dict, (enum plm_tview_what)c->func->aux};
    *c->ret = (struct plm_tval){.kind = PLM_T_VIEW, .view = view};
    return true;
}

static bool m_dict_copy(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tdict *dict = plm_tdict_new(r);
    if (dict == NULL || !plm_tdict_merge(r, dict, c->self.dict))
        return false;
    *c->ret = (struct plm_tval){.kind = PLM_T_DICT, .dict = dict};
    return true;
}

static bool m_dict_pop(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tval *v;
    if (!plm_tdict_get(r, c->self.dict, &c->a[0], &v))
        return false;
    if (v == NULL && c->a[1].kind == PLM_T_UNSET)
        return plm_tpl_fail(r, "pop() of a key that is not there");
    *c->ret = v != NULL ? *v : c->a[1];
    if (v != NULL)
        plm_tdict_remove(c->self.dict, v);
    return true;
}

static bool m_update(struct plm_trun *r, struct plm_tcall *c)
{
    const struct plm_targs *args = c->args;
    if (args->n_pos > 1 || (args->n_pos == 1 && args->pos[0].kind != PLM_T_DICT))
        return plm_tpl_fail(r, "update() needs an object");
    return (args->n_pos == 0 || plm_tdict_merge(r, c->self.dict, args->pos[0].dict)) &&
           plm_tdict_add_named(r, c->self.dict, args);
}

static bool m_append(struct plm_trun *r, struct plm_tcall *c)
{
    return plm_tlist_add(r, c->self.list, c->a[0]);
}

static bool m_extend(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tlist *more;
    if (!plm_tpl_to_list(r, &c->a[0], &more))
        return false;
    for (size_t i = 0; i < more->n; i++)
        if (!plm_tlist_add(r, c->self.list, more->v[i]))
            return false;
    return true;
}

static bool m_list_pop(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tlist *list = c->self.list;
    const int64_t n = (int64_t)list->n, i = c->a[0].i;
    if (!plm_tpl_step(r, list->n / 16))
        return false;
    if (i >= n || i < -n)
        return plm_tpl_fail(r, "pop() outside of the list");
    const size_t at = (size_t)(i < 0 ? i + n : i);
    *c->ret = list->v[at];
    list->n--;
    memmove(list->v + at, list->v + at + 1, (list->n - at) * sizeof(*list->v));
    return true;
}

// aux: 0 how often the list has a value, 1 at which place first.
static bool m_search(struct plm_trun *r, struct plm_tcall *c)
{
    const struct plm_tlist *list = c->self.list;
    int64_t n = 0;
    for (size_t i = 0; i < list->n; i++) {
        bool eq;
        if (!plm_tval_eq(r, &list->v[i], &c->a[0], &eq))
            return false;
        if (eq && c->func->aux == 1) {
            *c->ret = plm_tval_int((int64_t)i);
            return true;
        }
        n += eq;
    }
    *c->ret = plm_tval_int(n);
    return c->func->aux == 0 || plm_tpl_fail(r, "index() of what is not in the list");
}

static bool m_list_copy(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tlist *list;
    return plm_tpl_to_list(r, &c->self, &list) && plm_tlist_val(list, PLM_T_LIST, c->ret);
}

static const struct plm_tfunc dict_methods[] = {
    {"clear", "", NULL, 0},
    {"copy", "", m_dict_copy, 0},
    {"fromkeys", "*", NULL, 0},
    {"get", "/key,default=", m_get, 0},
    {"items", "", m_view, PLM_T_ITEMS},
    {"keys", "", m_view, PLM_T_KEYS},
    {"pop", "/key,default=", m_dict_pop, 0},
    {"popitem", "", NULL, 0},
    {"setdefault", "*", NULL, 0},
    {"update", "*", m_update, 0},
    {"values", "", m_view, PLM_T_VALUES},
};

static const struct plm_tfunc tuple_methods[] = {
    {"count", "/value", m_search, 0},
    {"index", "/value", m_search, 1},
};

static const struct plm_tfunc list_methods[] = {
    {"append", "/object", m_append, 0},
    {"clear", "", NULL, 0},
    {"copy", "", m_list_copy, 0},
    {"count", "/value", m_search, 0},
    {"extend", "/iterable", m_extend, 0},
    {"index", "/value", m_search, 1},
    {"insert", "*", NULL, 0},
    {"pop", "/index:i=-1", m_list_pop, 0},
    {"remove", "*", NULL, 0},
    {"reverse", "", NULL, 0},
    {"sort", "*", NULL, 0},
};

// What Python and Jinja have beyond this.
static const struct plm_tfunc loop_members[] = {
    {"changed", "*", NULL, 0},
    {"cycle", "*", NULL, 0},
    {"depth", "", NULL, 0},
    {"depth0", "", NULL, 0},
};
static const struct plm_tfunc macro_members[] = {
    {"arguments", "", NULL, 0},     {"caller", "", NULL, 0}, {"catch_kwargs", "", NULL, 0},
    {"catch_varargs", "", NULL, 0}, {"name", "", NULL, 0},
};
static const struct plm_tfunc number_members[] = {
    {"as_integer_ratio", "", NULL, 0},
    {"bit_count", "", NULL, 0},
    {"bit_length", "", NULL, 0},
    {"conjugate", "", NULL, 0},
    {"denominator", "", NULL, 0},
    {"hex", "", NULL, 0},
    {"imag", "", NULL, 0},
    {"is_integer", "", NULL, 0},
    {"numerator", "", NULL, 0},
    {"real", "", NULL, 0},
};

const struct plm_tfunc *plm_tpl_method(const struct plm_tval *self, struct plm_slice name)
{
    switch (self->kind) {
    case PLM_T_STR: return plm_tpl_str_method(name);
    case PLM_T_DICT: return PLM_FIND_FUNC(dict_methods, name);
    case PLM_T_LIST: return PLM_FIND_FUNC(list_methods, name);
    case PLM_T_TUPLE: return PLM_FIND_FUNC(tuple_methods, name);
    case PLM_T_LOOP: return PLM_FIND_FUNC(loop_members, name);
    case PLM_T_MACRO: return PLM_FIND_FUNC(macro_members, name);
    case PLM_T_BOOL:
    case PLM_T_INT:
    case PLM_T_UINT:
    case PLM_T_FLOAT: return PLM_FIND_FUNC(number_members, name);
    default: return NULL;
    }
}
