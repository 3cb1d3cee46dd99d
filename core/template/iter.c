// SPDX-License-Identifier: Apache-2.0
// Iteration over anything that can be iterated.
#include "core/template/run.h"

bool plm_tpl_iterable(const struct plm_tval *v)
{
    switch (v->kind) {
    case PLM_T_UNDEF:
    case PLM_T_STR:
    case PLM_T_LIST:
    case PLM_T_TUPLE:
    case PLM_T_DICT:
    case PLM_T_VIEW:
    case PLM_T_RANGE:
    case PLM_T_ITER: return true;
    default: return false;
    }
}

bool plm_tpl_len(const struct plm_tval *v, size_t *ret)
{
    switch (v->kind) {
    case PLM_T_UNDEF: *ret = 0; return true;
    case PLM_T_STR: *ret = plm_tstr_chars(v->str); return true;
    case PLM_T_LIST:
    case PLM_T_TUPLE: *ret = v->list->n; return true;
    case PLM_T_DICT: *ret = v->dict->live; return true;
    case PLM_T_VIEW: *ret = v->view->dict->live; return true;
    case PLM_T_RANGE: *ret = (size_t)v->range->n; return true;
    default: return false;
    }
}

bool plm_titer_init(struct plm_trun *r, const struct plm_tval *over, struct plm_titer **ret)
{
    if (over->kind == PLM_T_ITER) {
        *ret = over->iter;
        return true;
    }
    *ret = NULL;
    if (!plm_tpl_iterable(over))
        return plm_tpl_fail(r, "%s can not be iterated", plm_tval_type(over));
    struct plm_titer *it = plm_tpl_alloc(r, sizeof(*it));
    if (it == NULL)
        return false;
    it->over = *over;
    *ret = it;
    return true;
}

static bool next_char(struct plm_trun *r, struct plm_titer *it, struct plm_tval *ret)
{
    struct plm_tstr *s = it->over.str;
    if (it->at >= s->len)
        return false;
    const char *p = plm_tstr_ptr(s);
    uint32_t cp;
    size_t n = plm_tstr_next(p + it->at, p + s->len, &cp);
    it->at += n;
    return plm_tstr_val(plm_tstr_sub(r, s, it->at - n, n), ret);
}

static bool next_entry(struct plm_trun *r, struct plm_titer *it, const struct plm_tdict *dict,
                       enum plm_tview_what what, struct plm_tval *ret)
{
    while (it->at < dict->n && dict->entries[it->at].key.kind == PLM_T_UNSET)
        it->at++;
    if (it->at >= dict->n)
        return false;
    const struct plm_tentry *e = &dict->entries[it->at++];
    if (what != PLM_T_ITEMS) {
        *ret = what == PLM_T_KEYS ? e->key : e->value;
        return true;
    }
    struct plm_tlist *pair = plm_tlist_new(r, 2);
    if (pair == NULL)
        return false;
    pair->user = dict->user;
    pair->v[0] = e->key;
    pair->v[1] = e->value;
    pair->n = 2;
    return plm_tlist_val(pair, PLM_T_TUPLE, ret);
}

static bool next_lazy(struct plm_trun *r, struct plm_titer *it, struct plm_tval *ret)
{
    struct plm_tval item;
    bool keep = false;
    // A chain of lazy sequences is a chain of calls.
    if (!plm_tpl_enter(r))
        return false;
    while (!keep && plm_titer_next(r, it->source, &item))
        if (!it->step(r, it, item, &keep, ret))
            return false;
    r->depth--;
    return keep;
}

bool plm_titer_next(struct plm_trun *r, struct plm_titer *it, struct plm_tval *ret)
{
    if (!plm_tpl_step(r, 1))
        return false;
    if (it->step != NULL)
        return next_lazy(r, it, ret);
    switch (it->over.kind) {
    case PLM_T_UNDEF: return false; // as an empty list
    case PLM_T_STR: return next_char(r, it, ret);
    case PLM_T_DICT: return next_entry(r, it, it->over.dict, PLM_T_KEYS, ret);
    case PLM_T_VIEW: return next_entry(r, it, it->over.view->dict, it->over.view->what, ret);
    case PLM_T_RANGE:
        if ((int64_t)it->at >= it->over.range->n)
            return false;
        *ret = plm_tval_int(it->over.range->start + (int64_t)it->at++ * it->over.range->step);
        return true;
    default: {
        const struct plm_tlist *list = it->over.list;
        if (it->at >= list->n)
            return false;
        it->at++;
        *ret = list->v[it->reversed ? list->n - it->at : it->at - 1];
        return true;
    }
    }
}

bool plm_tpl_to_list(struct plm_trun *r, const struct plm_tval *v, struct plm_tlist **ret)
{
    size_t n = 0;
    if (v->kind == PLM_T_LIST || v->kind == PLM_T_TUPLE)
        n = v->list->n;
    struct plm_tlist *list = plm_tlist_new(r, n);
    struct plm_titer *it;
    if (list == NULL || !plm_titer_init(r, v, &it))
        return false;
    list->user = v->kind == PLM_T_LIST || v->kind == PLM_T_TUPLE ? v->list->user
                 : v->kind == PLM_T_DICT                         ? v->dict->user
                 : v->kind == PLM_T_VIEW                         ? v->view->dict->user
                 : v->kind == PLM_T_STR                          ? plm_tstr_any_user(v->str)
                                                                 : false;
    list->parts = v->kind == PLM_T_LIST && v->list->parts;
    struct plm_tval item;
    while (plm_titer_next(r, it, &item))
        if (!plm_tlist_add(r, list, item))
            return false;
    if (r->status != PLM_OK)
        return false;
    *ret = list;
    return true;
}

bool plm_tpl_as_list(struct plm_trun *r, const struct plm_tval *v, struct plm_tlist **ret)
{
    if (v->kind != PLM_T_LIST && v->kind != PLM_T_TUPLE)
        return plm_tpl_to_list(r, v, ret);
    *ret = v->list;
    return true;
}
