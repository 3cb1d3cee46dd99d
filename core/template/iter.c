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
    if (!plm_tpl_iterable(over))
        return plm_tpl_fail(r, "%s can not be iterated", plm_tval_type(over));
    struct plm_titer *it = plm_tpl_alloc(r, sizeof(*it));
    if (it == NULL)
        return false;
    it->over = *over;
    switch (over->kind) {
    case PLM_T_STR: it->kind = PLM_I_STR; break;
    case PLM_T_RANGE: it->kind = PLM_I_RANGE; break;
    case PLM_T_VIEW: it->kind = PLM_I_VIEW; break;
    case PLM_T_DICT: {
        struct plm_tview *view = plm_tpl_alloc(r, sizeof(*view));
        if (view == NULL)
            return false;
        *view = (struct plm_tview){over->dict, PLM_T_KEYS};
        it->over = (struct plm_tval){.kind = PLM_T_VIEW, .view = view};
        it->kind = PLM_I_VIEW;
        break;
    }
    case PLM_T_UNDEF: // as an empty list
        it->kind = PLM_I_LIST;
        it->over.list = plm_tlist_new(r, 0);
        if (it->over.list == NULL)
            return false;
        break;
    default: it->kind = PLM_I_LIST; break;
    }
    *ret = it;
    return true;
}

static bool next_char(struct plm_trun *r, struct plm_titer *it, struct plm_tval *ret, bool *done)
{
    struct plm_tstr *s = it->over.str;
    *done = it->at >= s->len;
    if (*done)
        return true;
    const char *p = plm_tstr_ptr(s);
    uint32_t cp;
    size_t n = plm_tstr_next(p + it->at, p + s->len, &cp);
    it->at += n;
    return plm_tstr_val(plm_tstr_sub(r, s, it->at - n, n), ret);
}

static bool next_entry(struct plm_trun *r, struct plm_titer *it, struct plm_tval *ret, bool *done)
{
    const struct plm_tview *view = it->over.view;
    const struct plm_tdict *dict = view->dict;
    while (it->at < dict->n && dict->entries[it->at].key.kind == PLM_T_UNSET)
        it->at++;
    *done = it->at >= dict->n;
    if (*done)
        return true;
    const struct plm_tentry *e = &dict->entries[it->at++];
    if (view->what != PLM_T_ITEMS) {
        *ret = view->what == PLM_T_KEYS ? e->key : e->value;
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

static bool next_lazy(struct plm_trun *r, struct plm_titer *it, struct plm_tval *ret, bool *done)
{
    // A chain of lazy sequences is a chain of calls.
    if (!plm_tpl_enter(r))
        return false;
    for (;;) {
        struct plm_tval item;
        bool keep = true;
        if (!plm_titer_next(r, it->source, &item, done))
            return false;
        if (*done)
            break;
        if (!it->step(r, it, item, &keep, ret))
            return false;
        if (keep)
            break;
    }
    r->depth--;
    return true;
}

bool plm_titer_next(struct plm_trun *r, struct plm_titer *it, struct plm_tval *ret, bool *ret_done)
{
    if (!plm_tpl_step(r, 1))
        return false;
    *ret_done = false;
    switch (it->kind) {
    case PLM_I_LIST:
        if (it->at < it->over.list->n)
            *ret = it->over.list->v[it->at++];
        else
            *ret_done = true;
        return true;
    case PLM_I_REVERSED: // `at` counts from the end; the list may have shrunk since
        if (it->at < it->over.list->n)
            *ret = it->over.list->v[it->over.list->n - ++it->at];
        else
            *ret_done = true;
        return true;
    case PLM_I_STR: return next_char(r, it, ret, ret_done);
    case PLM_I_VIEW: return next_entry(r, it, ret, ret_done);
    case PLM_I_RANGE:
        if ((int64_t)it->at < it->over.range->n)
            *ret = plm_tval_int(it->over.range->start + (int64_t)it->at++ * it->over.range->step);
        else
            *ret_done = true;
        return true;
    case PLM_I_LAZY: return next_lazy(r, it, ret, ret_done);
    }
    return true;
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
    for (;;) {
        struct plm_tval item;
        bool done;
        if (!plm_titer_next(r, it, &item, &done))
            return false;
        if (done)
            break;
        if (!plm_tlist_add(r, list, item))
            return false;
    }
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
