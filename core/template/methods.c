// SPDX-License-Identifier: Apache-2.0
// Methods of lists, objects, loops and cyclers. Methods that change a list or an object are there,
// although Jinja's sandbox refuses them: several published templates count on them, and what they
// change is the render's own copy.
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

static bool merge(struct plm_trun *r, struct plm_tdict *into, const struct plm_tdict *from)
{
    into->user = into->user || from->user;
    for (size_t i = 0, n = from->n; i < n; i++)
        if (from->entries[i].key.kind != PLM_T_UNSET &&
            (!plm_tpl_step(r, 1) ||
             !plm_tdict_set(r, into, from->entries[i].key, from->entries[i].value)))
            return false;
    return true;
}

static bool m_dict_copy(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tdict *dict = plm_tdict_new(r);
    if (dict == NULL || !merge(r, dict, c->self.dict))
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

static bool m_setdefault(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tval *v;
    if (!plm_tdict_get(r, c->self.dict, &c->a[0], &v))
        return false;
    *c->ret = v != NULL ? *v : c->a[1].kind != PLM_T_UNSET ? c->a[1] : plm_tval_none();
    return v != NULL || plm_tdict_set(r, c->self.dict, c->a[0], *c->ret);
}

static bool m_update(struct plm_trun *r, struct plm_tcall *c)
{
    const struct plm_targs *args = c->args;
    if (args->n_pos > 1 || (args->n_pos == 1 && args->pos[0].kind != PLM_T_DICT))
        return plm_tpl_fail(r, "update() needs an object");
    if (args->n_pos == 1 && !merge(r, c->self.dict, args->pos[0].dict))
        return false;
    for (size_t i = 0; i < args->n_kw; i++) {
        struct plm_tval key;
        if (!plm_tstr_val(plm_tstr_view(r, args->kw_names[i].ptr, args->kw_names[i].len, true),
                          &key) ||
            !plm_tdict_set(r, c->self.dict, key, args->kw[i]))
            return false;
    }
    return true;
}

static bool m_dict_clear(struct plm_trun *r, struct plm_tcall *c)
{
    (void)r;
    for (size_t i = 0; i < c->self.dict->n; i++)
        c->self.dict->entries[i].key.kind = PLM_T_UNSET;
    c->self.dict->live = 0;
    return true;
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

// Position for insert and pop, clipped to [0, n].
static size_t position(const struct plm_tlist *list, int64_t i)
{
    if (i < 0)
        i += (int64_t)list->n;
    return i < 0 ? 0 : (uint64_t)i > list->n ? list->n : (size_t)i;
}

static bool m_insert(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tlist *list = c->self.list;
    int64_t i;
    if (!plm_tpl_arg_int(r, &c->a[0], 0, &i) || !plm_tpl_step(r, list->n / 16))
        return false;
    size_t at = position(list, i);
    if (!plm_tlist_add(r, list, c->a[1]))
        return false;
    memmove(list->v + at + 1, list->v + at, (list->n - 1 - at) * sizeof(*list->v));
    list->v[at] = c->a[1];
    return true;
}

static void take_out(struct plm_tlist *list, size_t at)
{
    list->n--;
    memmove(list->v + at, list->v + at + 1, (list->n - at) * sizeof(*list->v));
}

static bool m_list_pop(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tlist *list = c->self.list;
    int64_t i;
    if (!plm_tpl_arg_int(r, &c->a[0], -1, &i) || !plm_tpl_step(r, list->n / 16))
        return false;
    if (i >= (int64_t)list->n || i < -(int64_t)list->n)
        return plm_tpl_fail(r, "pop() outside of the list");
    size_t at = position(list, i);
    *c->ret = list->v[at];
    take_out(list, at);
    return true;
}

// Index of a[0] in the list, or n.
static bool search(struct plm_trun *r, struct plm_tcall *c, size_t *ret)
{
    const struct plm_tlist *list = c->self.list;
    bool eq = false;
    size_t i = 0;
    for (; i < list->n; i++) {
        if (!plm_tval_eq(r, &list->v[i], &c->a[0], &eq))
            return false;
        if (eq)
            break;
    }
    *ret = i;
    return true;
}

static bool m_remove(struct plm_trun *r, struct plm_tcall *c)
{
    size_t at;
    if (!search(r, c, &at))
        return false;
    if (at == c->self.list->n)
        return plm_tpl_fail(r, "remove() of what is not in the list");
    take_out(c->self.list, at);
    return true;
}

static bool m_index(struct plm_trun *r, struct plm_tcall *c)
{
    size_t at;
    if (!search(r, c, &at))
        return false;
    if (at == c->self.list->n)
        return plm_tpl_fail(r, "index() of what is not in the list");
    *c->ret = plm_tval_int((int64_t)at);
    return true;
}

static bool m_count(struct plm_trun *r, struct plm_tcall *c)
{
    int64_t n = 0;
    for (size_t i = 0; i < c->self.list->n; i++) {
        bool eq;
        if (!plm_tval_eq(r, &c->self.list->v[i], &c->a[0], &eq))
            return false;
        n += eq;
    }
    *c->ret = plm_tval_int(n);
    return true;
}

static bool m_list_clear(struct plm_trun *r, struct plm_tcall *c)
{
    (void)r;
    c->self.list->n = 0;
    return true;
}

static bool m_list_copy(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tlist *list;
    return plm_tpl_to_list(r, &c->self, &list) && plm_tlist_val(list, PLM_T_LIST, c->ret);
}

static bool m_reverse(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tlist *list = c->self.list;
    for (size_t i = 0; i < list->n / 2; i++) {
        struct plm_tval v = list->v[i];
        list->v[i] = list->v[list->n - 1 - i];
        list->v[list->n - 1 - i] = v;
    }
    return plm_tpl_step(r, list->n / 16);
}

static bool m_sort(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tlist *keys;
    if (plm_tpl_given(&c->a[0]))
        return plm_tpl_fail(r, "sort() with a key is not supported");
    return plm_tpl_to_list(r, &c->self, &keys) &&
           plm_tlist_sort(r, c->self.list->v, keys->v, keys->n, plm_tval_truth(&c->a[1]));
}

static bool m_cycle(struct plm_trun *r, struct plm_tcall *c)
{
    if (c->args->n_pos == 0 || c->args->n_kw > 0)
        return plm_tpl_fail(r, "loop.cycle() needs items");
    *c->ret = c->args->pos[(size_t)c->self.loop->index0 % c->args->n_pos];
    return true;
}

static bool m_changed(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tlist *now = plm_tlist_new(r, c->args->n_pos);
    struct plm_tval v;
    bool same;
    if (!plm_tlist_val(now, PLM_T_TUPLE, &v))
        return false;
    for (size_t i = 0; i < c->args->n_pos; i++)
        now->v[now->n++] = c->args->pos[i];
    if (!plm_tval_eq(r, &c->self.loop->changed, &v, &same))
        return false;
    c->self.loop->changed = v;
    *c->ret = plm_tval_bool(!same);
    return true;
}

static bool m_next(struct plm_trun *r, struct plm_tcall *c)
{
    (void)r;
    struct plm_tcycler *cycler = c->self.cycler;
    *c->ret = cycler->items->v[cycler->at];
    cycler->at = (cycler->at + 1) % cycler->items->n;
    return true;
}

static bool m_reset(struct plm_trun *r, struct plm_tcall *c)
{
    (void)r;
    c->self.cycler->at = 0;
    return true;
}

static const struct plm_tfunc dict_methods[] = {
    {"clear", "", m_dict_clear, 0},
    {"copy", "", m_dict_copy, 0},
    {"get", "/key|default", m_get, 0},
    {"items", "", m_view, PLM_T_ITEMS},
    {"keys", "", m_view, PLM_T_KEYS},
    {"pop", "/key|default", m_dict_pop, 0},
    {"setdefault", "/key|default", m_setdefault, 0},
    {"update", "*", m_update, 0},
    {"values", "", m_view, PLM_T_VALUES},
};

static const struct plm_tfunc list_methods[] = {
    // Those that a tuple has too come first.
    {"count", "/value", m_count, 0},
    {"index", "/value", m_index, 0},
    {"append", "/object", m_append, 0},
    {"clear", "", m_list_clear, 0},
    {"copy", "", m_list_copy, 0},
    {"extend", "/iterable", m_extend, 0},
    {"insert", "/index,object", m_insert, 0},
    {"pop", "/|index", m_list_pop, 0},
    {"remove", "/value", m_remove, 0},
    {"reverse", "", m_reverse, 0},
    {"sort", "|key,reverse", m_sort, 0},
};

static const struct plm_tfunc loop_methods[] = {
    {"changed", "*", m_changed, 0},
    {"cycle", "*", m_cycle, 0},
};

static const struct plm_tfunc cycler_methods[] = {
    {"next", "", m_next, 0},
    {"reset", "", m_reset, 0},
};

const struct plm_tfunc *plm_tpl_method(const struct plm_tval *self, struct plm_slice name)
{
    switch (self->kind) {
    case PLM_T_STR: return plm_tpl_str_method(name);
    case PLM_T_DICT:
        return plm_tpl_find_func(dict_methods, sizeof(dict_methods) / sizeof(dict_methods[0]),
                                 name);
    case PLM_T_LIST:
        return plm_tpl_find_func(list_methods, sizeof(list_methods) / sizeof(list_methods[0]),
                                 name);
    case PLM_T_TUPLE: return plm_tpl_find_func(list_methods, 2, name);
    case PLM_T_LOOP: return plm_tpl_find_func(loop_methods, 2, name);
    case PLM_T_CYCLER: return plm_tpl_find_func(cycler_methods, 2, name);
    default: return NULL;
    }
}
