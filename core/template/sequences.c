// SPDX-License-Identifier: Apache-2.0
// Filters on sequences and objects.
#include <string.h>

#include "core/template/filters.h"
#include "core/template/text.h"

static bool iter_value(struct plm_titer *it, struct plm_tval *ret)
{
    if (it == NULL)
        return false;
    *ret = (struct plm_tval){.kind = PLM_T_ITER, .iter = it};
    return true;
}

// A lazy sequence over a finished list.
static bool over_list(struct plm_trun *r, struct plm_tlist *list, bool reversed,
                      struct plm_tval *ret)
{
    struct plm_titer *it = plm_tpl_alloc(r, sizeof(*it));
    if (it == NULL || list == NULL)
        return false;
    *it = (struct plm_titer){.over = {.kind = PLM_T_LIST, .list = list}, .reversed = reversed};
    return iter_value(it, ret);
}

// ---- attributes and keys ----

// "a.0.b" as the keys 'a', 0, 'b'; NULL for no attribute.
static bool parse_path(struct plm_trun *r, const struct plm_tval *attr, struct plm_tlist **ret)
{
    *ret = NULL;
    if (attr->kind == PLM_T_UNSET || attr->kind == PLM_T_NONE)
        return true;
    struct plm_tlist *path = plm_tlist_new(r, 2);
    if (path == NULL)
        return false;
    *ret = path;
    if (attr->kind != PLM_T_STR)
        return plm_tlist_add(r, path, *attr);
    struct plm_tval names;
    struct plm_tstr *dot = plm_tstr_copyz(r, ".", PLM_ORIGIN_TEMPLATE);
    if (dot == NULL || !plm_tpl_split(r, attr->str, dot, -1, false, &names))
        return false;
    for (size_t i = 0; i < names.list->n; i++) {
        struct plm_tval key = names.list->v[i], index;
        const struct plm_slice name = plm_tstr_slice(key.str);
        size_t digits = 0;
        while (digits < name.len && name.ptr[digits] >= '0' && name.ptr[digits] <= '9')
            digits++;
        if (digits == name.len && plm_tnum_int_text(name, &index) == PLM_TINT_OK)
            key = index;
        if (!plm_tlist_add(r, path, key))
            return false;
    }
    return true;
}

bool plm_tpl_follow(struct plm_trun *r, const struct plm_tlist *path,
                    const struct plm_tval *fallback, struct plm_tval *v)
{
    for (size_t i = 0; path != NULL && i < path->n; i++) {
        if (!plm_tpl_getitem(r, v, &path->v[i], v))
            return false;
        if (v->kind == PLM_T_UNDEF && fallback != NULL && fallback->kind != PLM_T_UNSET &&
            fallback->kind != PLM_T_NONE)
            *v = *fallback;
    }
    return true;
}

// The items of a sequence, and what each is compared by.
struct keyed {
    struct plm_tlist *list;
    struct plm_tval *keys;
};

static bool keys_of(struct plm_trun *r, const struct plm_tval *attr, bool case_sensitive,
                    struct keyed *ret)
{
    struct plm_tlist *path;
    ret->keys = plm_tpl_array(r, ret->list->n, sizeof(*ret->keys));
    if (ret->keys == NULL || !parse_path(r, attr, &path))
        return false;
    for (size_t i = 0; i < ret->list->n; i++) {
        struct plm_tval *key = &ret->keys[i];
        *key = ret->list->v[i];
        if (!plm_tpl_follow(r, path, NULL, key) ||
            (!case_sensitive && key->kind == PLM_T_STR &&
             !plm_tpl_casing(r, key->str, PLM_CASE_LOWER, key)))
            return false;
    }
    return true;
}

static bool keyed_of(struct plm_trun *r, const struct plm_tval *sequence,
                     const struct plm_tval *attr, const struct plm_tval *case_sensitive,
                     struct keyed *ret)
{
    return plm_tpl_to_list(r, sequence, &ret->list) &&
           keys_of(r, attr, plm_tval_truth(case_sensitive), ret);
}

// ---- filters ----

static bool f_length(struct plm_trun *r, struct plm_tcall *c)
{
    size_t n;
    if (!plm_tpl_len(&c->self, &n))
        return plm_tpl_fail(r, "%s has no length", plm_tval_type(&c->self));
    *c->ret = plm_tval_int((int64_t)n);
    return true;
}

static bool f_list(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tlist *list;
    return plm_tpl_to_list(r, &c->self, &list) && plm_tlist_val(list, PLM_T_LIST, c->ret);
}

static bool f_first(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_titer *it;
    if (!plm_titer_init(r, &c->self, &it))
        return false;
    if (!plm_titer_next(r, it, c->ret))
        *c->ret = plm_tval_undef(NULL);
    return r->status == PLM_OK;
}

static bool f_last(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tlist *list;
    if (c->self.kind == PLM_T_ITER)
        return plm_tpl_fail(r, "last does not take a lazy sequence");
    if (!plm_tpl_as_list(r, &c->self, &list))
        return false;
    *c->ret = list->n > 0 ? list->v[list->n - 1] : plm_tval_undef(NULL);
    return true;
}

static bool f_reverse(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tlist *list;
    if (c->self.kind == PLM_T_STR) {
        struct plm_tval bound[3] = {{0}, {0}, plm_tval_int(-1)};
        return plm_tpl_getslice(r, &c->self, bound, c->ret);
    }
    return plm_tpl_to_list(r, &c->self, &list) && over_list(r, list, true, c->ret);
}

static bool f_join(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tlist *path;
    if (c->a[0].kind == PLM_T_UNSET && !plm_tstr_valz(r, "", &c->a[0]))
        return false;
    return parse_path(r, &c->a[1], &path) && plm_tval_text(r, &c->a[0]) &&
           plm_tpl_join(r, c->a[0].str, &c->self, path, false, c->ret);
}

// Sorts by an attribute, or by several, "a,b": from the last to the first, since equal items keep
// their order.
static bool f_sort(struct plm_trun *r, struct plm_tcall *c)
{
    struct keyed items;
    struct plm_tval names = {.kind = PLM_T_LIST};
    struct plm_tstr *comma = plm_tstr_copyz(r, ",", PLM_ORIGIN_TEMPLATE);
    const bool reverse = plm_tval_truth(&c->a[0]);
    if (comma == NULL || !plm_tpl_to_list(r, &c->self, &items.list))
        return false;
    if (c->a[2].kind == PLM_T_STR) {
        if (!plm_tpl_split(r, c->a[2].str, comma, -1, false, &names))
            return false;
    } else {
        names.list = plm_tlist_new(r, 1);
        if (names.list == NULL || !plm_tlist_add(r, names.list, c->a[2]))
            return false;
    }
    for (size_t k = names.list->n; k-- > 0;)
        if (!keys_of(r, &names.list->v[k], plm_tval_truth(&c->a[1]), &items) ||
            !plm_tlist_sort(r, items.list->v, items.keys, items.list->n, reverse))
            return false;
    return plm_tlist_val(items.list, PLM_T_LIST, c->ret);
}

static bool items_of(struct plm_trun *r, struct plm_tcall *c, struct plm_tlist **ret)
{
    struct plm_tview view = {c->self.dict, PLM_T_ITEMS};
    struct plm_tval v = {.kind = PLM_T_VIEW, .view = &view};
    if (c->self.kind != PLM_T_DICT)
        return plm_tpl_fail(r, "%s needs an object, not %s", c->func->name,
                            plm_tval_type(&c->self));
    return plm_tpl_to_list(r, &v, ret);
}

static bool f_dictsort(struct plm_trun *r, struct plm_tcall *c)
{
    struct keyed items;
    const struct plm_tstr *by = c->a[1].kind == PLM_T_STR ? c->a[1].str : NULL;
    const bool by_value = by != NULL && plm_tstr_is(by, "value");
    const struct plm_tval which = plm_tval_int(by_value);
    if (by != NULL && !by_value && !plm_tstr_is(by, "key"))
        return plm_tpl_fail(r, "dictsort sorts by 'key' or by 'value'");
    return items_of(r, c, &items.list) && keys_of(r, &which, plm_tval_truth(&c->a[0]), &items) &&
           plm_tlist_sort(r, items.list->v, items.keys, items.list->n, plm_tval_truth(&c->a[2])) &&
           plm_tlist_val(items.list, PLM_T_LIST, c->ret);
}

static bool f_items(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tlist *list;
    if (c->self.kind == PLM_T_UNDEF)
        return over_list(r, plm_tlist_new(r, 0), false, c->ret);
    return items_of(r, c, &list) && over_list(r, list, false, c->ret);
}

static bool f_unique(struct plm_trun *r, struct plm_tcall *c)
{
    struct keyed items;
    struct plm_tdict *seen = plm_tdict_new(r);
    struct plm_tlist *kept = plm_tlist_new(r, 0);
    if (seen == NULL || kept == NULL || !keyed_of(r, &c->self, &c->a[1], &c->a[0], &items))
        return false;
    for (size_t i = 0; i < items.list->n; i++) {
        struct plm_tval *found;
        if (!plm_tdict_get(r, seen, &items.keys[i], &found))
            return false;
        if (found == NULL && (!plm_tdict_set(r, seen, items.keys[i], plm_tval_none()) ||
                              !plm_tlist_add(r, kept, items.list->v[i])))
            return false;
    }
    return over_list(r, kept, false, c->ret);
}

// min and max.
static bool f_extreme(struct plm_trun *r, struct plm_tcall *c)
{
    struct keyed items;
    size_t best = 0;
    if (!keyed_of(r, &c->self, &c->a[1], &c->a[0], &items))
        return false;
    for (size_t i = 1; i < items.list->n; i++) {
        int order;
        bool nan = false;
        if (!plm_tval_cmp(r, &items.keys[i], &items.keys[best], &order, &nan,
                          c->func->aux < 0 ? "<" : ">"))
            return false;
        if (!nan && order == c->func->aux)
            best = i;
    }
    *c->ret = items.list->n > 0 ? items.list->v[best] : plm_tval_undef(NULL);
    return true;
}

static bool f_sum(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tlist *path;
    struct plm_titer *it;
    struct plm_tval total = c->a[1].kind == PLM_T_UNSET ? plm_tval_int(0) : c->a[1];
    if (!parse_path(r, &c->a[0], &path) || !plm_titer_init(r, &c->self, &it))
        return false;
    struct plm_tval v;
    while (plm_titer_next(r, it, &v))
        if (!plm_tpl_follow(r, path, NULL, &v) ||
            !plm_tpl_binary(r, PLM_OP_ADD, &total, &v, &total))
            return false;
    *c->ret = total;
    return r->status == PLM_OK;
}

// ---- lazy sequences ----

static bool step_map(struct plm_trun *r, struct plm_titer *it, struct plm_tval item, bool *keep,
                     struct plm_tval *ret)
{
    *keep = true;
    if (it->func != NULL)
        return plm_tpl_invoke(r, it->func, &item, &it->args, ret);
    *ret = item;
    return plm_tpl_follow(r, it->path, &it->fallback, ret);
}

static bool step_select(struct plm_trun *r, struct plm_titer *it, struct plm_tval item, bool *keep,
                        struct plm_tval *ret)
{
    struct plm_tval v = item;
    if (!plm_tpl_follow(r, it->path, NULL, &v))
        return false;
    if (it->func != NULL && !plm_tpl_invoke(r, it->func, &v, &it->args, &v))
        return false;
    *ret = item;
    *keep = plm_tval_truth(&v) != it->negate;
    return true;
}

static struct plm_titer *lazy(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_titer *it = plm_tpl_alloc(r, sizeof(*it));
    struct plm_tval empty;
    if (it == NULL)
        return NULL;
    // Nothing, zero and undefined are empty sequences here, as in Jinja.
    if (!plm_tlist_val(plm_tlist_new(r, 0), PLM_T_LIST, &empty) ||
        !plm_titer_init(r, plm_tval_truth(&c->self) ? &c->self : &empty, &it->source))
        return NULL;
    return it;
}

// Arguments after the first n by position.
static struct plm_targs rest(const struct plm_targs *args, size_t n)
{
    struct plm_targs more = *args;
    more.pos = n < args->n_pos ? args->pos + n : NULL;
    more.n_pos = args->n_pos - n;
    return more;
}

// The filter or test that an argument names.
static bool func_of(struct plm_trun *r, const struct plm_tcall *c, const struct plm_tval *name,
                    const struct plm_tfunc *(*find)(struct plm_slice name),
                    const struct plm_tfunc **ret)
{
    *ret = name->kind == PLM_T_STR ? find(plm_tstr_slice(name->str)) : NULL;
    if (*ret != NULL)
        return true;
    if (name->kind != PLM_T_STR)
        return plm_tpl_fail(r, "%s needs a name, not %s", c->func->name, plm_tval_type(name));
    const struct plm_slice s = plm_tstr_slice(name->str);
    return plm_tpl_fail(r, "%s: unknown name '%.*s'", c->func->name, (int)(s.len < 60 ? s.len : 60),
                        s.ptr);
}

static bool f_map(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_titer *it = lazy(r, c);
    const struct plm_targs *args = c->args;
    if (it == NULL)
        return false;
    it->step = step_map;
    if (args->n_pos == 0) {
        struct plm_tval attr = {.kind = PLM_T_UNSET};
        for (size_t i = 0; i < args->n_kw; i++) {
            if (plm_slice_eq_str(args->kw_names[i], "attribute"))
                attr = args->kw[i];
            else if (plm_slice_eq_str(args->kw_names[i], "default"))
                it->fallback = args->kw[i];
            else
                return plm_tpl_fail(r, "map got a named argument that it does not know");
        }
        if (attr.kind == PLM_T_UNSET)
            return plm_tpl_fail(r, "map needs a filter or an attribute");
        return parse_path(r, &attr, &it->path) && iter_value(it, c->ret);
    }
    it->args = rest(args, 1);
    return func_of(r, c, &args->pos[0], plm_tpl_filter, &it->func) && iter_value(it, c->ret);
}

enum { SELECT_NEGATE = 1, SELECT_ATTR = 2 };

static bool f_select(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_titer *it = lazy(r, c);
    const struct plm_targs *args = c->args;
    size_t used = 0;
    if (it == NULL)
        return false;
    it->step = step_select;
    it->negate = c->func->aux & SELECT_NEGATE;
    if (c->func->aux & SELECT_ATTR) {
        if (args->n_pos == 0)
            return plm_tpl_fail(r, "%s needs an attribute", c->func->name);
        if (!parse_path(r, &args->pos[used++], &it->path))
            return false;
    }
    if (args->n_pos > used && !func_of(r, c, &args->pos[used++], plm_tpl_test, &it->func))
        return false;
    it->args = rest(args, used);
    return iter_value(it, c->ret);
}

static const struct plm_tfunc sequence_filters[] = {
    {"count", "", f_length, 0},
    {"dictsort", "case_sensitive=,by:s=,reverse=", f_dictsort, 0},
    {"first", "", f_first, 0},
    {"items", "", f_items, 0},
    {"join", "d=,attribute=", f_join, 0},
    {"last", "", f_last, 0},
    {"length", "", f_length, 0},
    {"list", "", f_list, 0},
    {"map", "*", f_map, 0},
    {"max", "case_sensitive=,attribute=", f_extreme, 1},
    {"min", "case_sensitive=,attribute=", f_extreme, -1},
    {"reject", "*", f_select, SELECT_NEGATE},
    {"rejectattr", "*", f_select, SELECT_NEGATE | SELECT_ATTR},
    {"reverse", "", f_reverse, 0},
    {"select", "*", f_select, 0},
    {"selectattr", "*", f_select, SELECT_ATTR},
    {"sort", "reverse=,case_sensitive=,attribute=", f_sort, 0},
    {"sum", "attribute=,start=", f_sum, 0},
    {"unique", "case_sensitive=,attribute=", f_unique, 0},
};

const struct plm_tfunc *plm_tpl_sequence_filter(struct plm_slice name)
{
    return PLM_FIND_FUNC(sequence_filters, name);
}
