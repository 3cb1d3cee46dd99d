// SPDX-License-Identifier: Apache-2.0
// Filters on sequences and objects.
#include <string.h>

#include "core/template/filters.h"

static bool iter_value(struct plm_titer *it, struct plm_tval *ret)
{
    if (it == NULL)
        return false;
    *ret = (struct plm_tval){.kind = PLM_T_ITER, .iter = it};
    return true;
}

// A lazy sequence over a finished list.
static bool over_list(struct plm_trun *r, struct plm_tlist *list, enum plm_titer_kind kind,
                      struct plm_tval *ret)
{
    struct plm_titer *it = plm_tpl_alloc(r, sizeof(*it));
    if (it == NULL || list == NULL)
        return false;
    *it = (struct plm_titer){.kind = kind, .over = {.kind = PLM_T_LIST, .list = list}};
    return iter_value(it, ret);
}

// "a.0.b" as the keys 'a', 0, 'b'; NULL for no attribute.
static bool parse_path(struct plm_trun *r, const struct plm_tval *attr, struct plm_tlist **ret)
{
    *ret = NULL;
    if (!plm_tpl_given(attr))
        return true;
    struct plm_tlist *path = plm_tlist_new(r, 2);
    if (path == NULL)
        return false;
    *ret = path;
    if (attr->kind != PLM_T_STR)
        return plm_tlist_add(r, path, *attr);
    const struct plm_tstr *s = attr->str;
    for (size_t from = 0; from <= s->len;) {
        const char *p = plm_tstr_ptr(s);
        const char *dot = memchr(p + from, '.', s->len - from);
        size_t to = dot == NULL ? s->len : (size_t)(dot - p);
        bool digits = to > from;
        for (size_t i = from; i < to; i++)
            digits = digits && p[i] >= '0' && p[i] <= '9';
        struct plm_tval key;
        if (!plm_tstr_val(plm_tstr_sub(r, s, from, to - from), &key))
            return false;
        if (digits && !plm_tnum_int_text(r, (struct plm_slice){p + from, to - from}, 10, &key))
            return false;
        if (!plm_tlist_add(r, path, key))
            return false;
        from = to + 1;
    }
    return true;
}

static bool walk(struct plm_trun *r, const struct plm_tlist *path, const struct plm_tval *fallback,
                 struct plm_tval *v)
{
    for (size_t i = 0; path != NULL && i < path->n; i++) {
        if (!plm_tpl_getitem(r, v, &path->v[i], v))
            return false;
        if (v->kind == PLM_T_UNDEF && fallback != NULL && plm_tpl_given(fallback))
            *v = *fallback;
    }
    return true;
}

// The key that an item is sorted and compared by.
static bool key_of(struct plm_trun *r, struct plm_tval item, const struct plm_tlist *path,
                   bool case_sensitive, struct plm_tval *ret)
{
    if (!walk(r, path, NULL, &item))
        return false;
    if (!case_sensitive && item.kind == PLM_T_STR)
        return plm_tpl_casing(r, item.str, PLM_CASE_LOWER, ret);
    *ret = item;
    return true;
}

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
    bool done;
    if (!plm_titer_init(r, &c->self, &it) || !plm_titer_next(r, it, c->ret, &done))
        return false;
    if (done)
        *c->ret = plm_tval_undef(NULL);
    return true;
}

static bool f_last(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tlist *list;
    if (c->self.kind == PLM_T_ITER)
        return plm_tpl_fail(r, "last does not take a lazy sequence");
    if (c->self.kind == PLM_T_LIST || c->self.kind == PLM_T_TUPLE)
        list = c->self.list;
    else if (!plm_tpl_to_list(r, &c->self, &list))
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
    return plm_tpl_to_list(r, &c->self, &list) && over_list(r, list, PLM_I_REVERSED, c->ret);
}

static bool f_join(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tlist *path;
    struct plm_tstr *sep;
    if (c->a[0].kind == PLM_T_UNSET && !plm_tstr_valz(r, "", &c->a[0]))
        return false;
    return parse_path(r, &c->a[1], &path) && plm_tval_str(r, &c->a[0], &sep) &&
           plm_tpl_join(r, sep, &c->self, path, false, c->ret);
}

static bool keys_of(struct plm_trun *r, const struct plm_tlist *list, const struct plm_tlist *path,
                    bool case_sensitive, struct plm_tval **ret)
{
    struct plm_tval *keys = plm_tpl_array(r, list->n, sizeof(*keys));
    if (keys == NULL)
        return false;
    for (size_t i = 0; i < list->n; i++)
        if (!key_of(r, list->v[i], path, case_sensitive, &keys[i]))
            return false;
    *ret = keys;
    return true;
}

// Paths of "a,b" one after the other; each item's key is the list of what they lead to, also for
// one path or none: equal keys without an order, such as two undefined ones, compare in a list.
static bool multi_keys(struct plm_trun *r, const struct plm_tlist *list,
                       const struct plm_tval *attr, bool case_sensitive, struct plm_tval **ret)
{
    struct plm_tval comma, names;
    struct plm_tlist *path;
    if (attr->kind == PLM_T_STR) {
        if (!plm_tstr_valz(r, ",", &comma) ||
            !plm_tpl_split(r, attr->str, &comma, -1, false, &names))
            return false;
    } else if (!plm_tlist_val(plm_tlist_new(r, 1), PLM_T_LIST, &names) ||
               !plm_tlist_add(r, names.list, *attr)) {
        return false;
    }
    struct plm_tval *keys = plm_tpl_array(r, list->n, sizeof(*keys));
    if (keys == NULL)
        return false;
    for (size_t i = 0; i < list->n; i++)
        if (!plm_tlist_val(plm_tlist_new(r, names.list->n), PLM_T_LIST, &keys[i]))
            return false;
    for (size_t k = 0; k < names.list->n; k++) {
        struct plm_tval *part;
        if (!parse_path(r, &names.list->v[k], &path) ||
            !keys_of(r, list, path, case_sensitive, &part))
            return false;
        for (size_t i = 0; i < list->n; i++)
            if (!plm_tlist_add(r, keys[i].list, part[i]))
                return false;
    }
    *ret = keys;
    return true;
}

static bool f_sort(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tlist *list;
    struct plm_tval *keys;
    return plm_tpl_to_list(r, &c->self, &list) &&
           multi_keys(r, list, &c->a[2], plm_tval_truth(&c->a[1]), &keys) &&
           plm_tlist_sort(r, list->v, keys, list->n, plm_tval_truth(&c->a[0])) &&
           plm_tlist_val(list, PLM_T_LIST, c->ret);
}

static bool items_of(struct plm_trun *r, const struct plm_tval *dict, struct plm_tlist **ret)
{
    struct plm_tview view = {dict->dict, PLM_T_ITEMS};
    struct plm_tval v = {.kind = PLM_T_VIEW, .view = &view};
    return plm_tpl_to_list(r, &v, ret);
}

static bool f_dictsort(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tlist *list;
    struct plm_tlist *path;
    struct plm_tval *keys;
    struct plm_tval which = plm_tval_int(0);
    if (c->self.kind == PLM_T_UNDEF)
        return plm_tpl_fail_undef(r, &c->self);
    if (c->self.kind != PLM_T_DICT)
        return plm_tpl_fail(r, "dictsort needs an object, not %s", plm_tval_type(&c->self));
    if (c->a[1].kind != PLM_T_UNSET) {
        struct plm_tstr *by;
        if (!plm_tpl_arg_str(r, &c->a[1], &by))
            return false;
        which.i = plm_tstr_is(by, "value");
        if (which.i == 0 && !plm_tstr_is(by, "key"))
            return plm_tpl_fail(r, "dictsort sorts by 'key' or by 'value'");
    }
    return items_of(r, &c->self, &list) && parse_path(r, &which, &path) &&
           keys_of(r, list, path, plm_tval_truth(&c->a[0]), &keys) &&
           plm_tlist_sort(r, list->v, keys, list->n, plm_tval_truth(&c->a[2])) &&
           plm_tlist_val(list, PLM_T_LIST, c->ret);
}

static bool f_items(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tlist *list;
    if (c->self.kind == PLM_T_UNDEF)
        return over_list(r, plm_tlist_new(r, 0), PLM_I_LIST, c->ret);
    if (c->self.kind != PLM_T_DICT)
        return plm_tpl_fail(r, "items needs an object, not %s", plm_tval_type(&c->self));
    return items_of(r, &c->self, &list) && over_list(r, list, PLM_I_LIST, c->ret);
}

static bool f_unique(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tlist *list;
    struct plm_tlist *path;
    struct plm_tval *keys;
    struct plm_tdict *seen = plm_tdict_new(r);
    struct plm_tlist *kept = plm_tlist_new(r, 0);
    if (seen == NULL || kept == NULL || !plm_tpl_to_list(r, &c->self, &list) ||
        !parse_path(r, &c->a[1], &path) || !keys_of(r, list, path, plm_tval_truth(&c->a[0]), &keys))
        return false;
    for (size_t i = 0; i < list->n; i++) {
        struct plm_tval *found;
        if (!plm_tdict_get(r, seen, &keys[i], &found))
            return false;
        if (found == NULL && (!plm_tdict_set(r, seen, keys[i], plm_tval_none()) ||
                              !plm_tlist_add(r, kept, list->v[i])))
            return false;
    }
    return over_list(r, kept, PLM_I_LIST, c->ret);
}

static bool f_extreme(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tlist *list;
    struct plm_tlist *path;
    struct plm_tval *keys;
    size_t best = 0;
    if (!plm_tpl_to_list(r, &c->self, &list) || !parse_path(r, &c->a[1], &path) ||
        !keys_of(r, list, path, plm_tval_truth(&c->a[0]), &keys))
        return false;
    for (size_t i = 1; i < list->n; i++) {
        int order;
        bool nan = false;
        if (!plm_tval_cmp(r, &keys[i], &keys[best], &order, &nan, c->func->aux < 0 ? "<" : ">"))
            return false;
        if (!nan && order == c->func->aux)
            best = i;
    }
    *c->ret = list->n > 0 ? list->v[best] : plm_tval_undef(NULL);
    return true;
}

static bool f_sum(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tlist *path;
    struct plm_titer *it;
    struct plm_tval total = c->a[1].kind == PLM_T_UNSET ? plm_tval_int(0) : c->a[1];
    if (!parse_path(r, &c->a[0], &path) || !plm_titer_init(r, &c->self, &it))
        return false;
    for (;;) {
        struct plm_tval v;
        bool done;
        if (!plm_titer_next(r, it, &v, &done))
            return false;
        if (done)
            break;
        if (!walk(r, path, NULL, &v) || !plm_tpl_binary(r, PLM_OP_ADD, &total, &v, &total))
            return false;
    }
    *c->ret = total;
    return true;
}

static bool f_batch(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tlist *list;
    struct plm_tlist *rows = plm_tlist_new(r, 0);
    struct plm_tlist *row = NULL;
    int64_t size;
    if (rows == NULL || !plm_tpl_to_list(r, &c->self, &list) ||
        !plm_tpl_arg_int(r, &c->a[0], 0, &size))
        return false;
    for (size_t i = 0; i < list->n; i++) {
        if (row == NULL || (int64_t)row->n == size) {
            struct plm_tval v;
            row = plm_tlist_new(r, 0);
            if (!plm_tlist_val(row, PLM_T_LIST, &v) || !plm_tlist_add(r, rows, v))
                return false;
        }
        if (!plm_tlist_add(r, row, list->v[i]))
            return false;
    }
    while (row != NULL && plm_tpl_given(&c->a[1]) && (int64_t)row->n < size)
        if (!plm_tpl_step(r, 1) || !plm_tlist_add(r, row, c->a[1]))
            return false;
    return over_list(r, rows, PLM_I_LIST, c->ret);
}

static bool f_slice(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tlist *list;
    struct plm_tlist *rows = plm_tlist_new(r, 0);
    int64_t n;
    if (rows == NULL || !plm_tpl_to_list(r, &c->self, &list) ||
        !plm_tpl_arg_int(r, &c->a[0], 0, &n))
        return false;
    if (n == 0)
        return plm_tpl_fail(r, "slice into zero parts");
    size_t at = 0;
    for (int64_t i = 0; i < n; i++) {
        bool extra = (uint64_t)i < list->n % (uint64_t)n;
        size_t take = list->n / (uint64_t)n + extra;
        struct plm_tlist *row = plm_tlist_new(r, take + 1);
        struct plm_tval v;
        if (!plm_tpl_step(r, 1) || !plm_tlist_val(row, PLM_T_LIST, &v) ||
            !plm_tlist_add(r, rows, v))
            return false;
        for (size_t k = 0; k < take; k++)
            row->v[row->n++] = list->v[at++];
        if (!extra && plm_tpl_given(&c->a[1]) && !plm_tlist_add(r, row, c->a[1]))
            return false;
    }
    return over_list(r, rows, PLM_I_LIST, c->ret);
}

static bool step_map(struct plm_trun *r, struct plm_titer *it, struct plm_tval item, bool *keep,
                     struct plm_tval *ret)
{
    *keep = true;
    if (it->func != NULL)
        return plm_tpl_invoke(r, it->func, &item, &it->args, ret);
    *ret = item;
    return walk(r, it->path, &it->fallback, ret);
}

static bool step_select(struct plm_trun *r, struct plm_titer *it, struct plm_tval item, bool *keep,
                        struct plm_tval *ret)
{
    struct plm_tval v = item;
    if (!walk(r, it->path, NULL, &v))
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
    it->kind = PLM_I_LAZY;
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
    struct plm_tstr *name;
    if (!plm_tpl_arg_str(r, &args->pos[0], &name))
        return false;
    it->func = plm_tpl_filter(plm_tstr_slice(name));
    if (it->func == NULL)
        return plm_tpl_fail(r, "map: unknown filter '%.*s'", (int)(name->len < 60 ? name->len : 60),
                            plm_tstr_ptr(name));
    it->args = rest(args, 1);
    return iter_value(it, c->ret);
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
    if (args->n_pos > used) {
        struct plm_tstr *name;
        if (!plm_tpl_arg_str(r, &args->pos[used++], &name))
            return false;
        it->func = plm_tpl_test(plm_tstr_slice(name));
        if (it->func == NULL)
            return plm_tpl_fail(r, "%s: unknown test '%.*s'", c->func->name,
                                (int)(name->len < 60 ? name->len : 60), plm_tstr_ptr(name));
    }
    it->args = rest(args, used);
    return iter_value(it, c->ret);
}

static const struct plm_tfunc sequence_filters[] = {
    {"batch", "linecount|fill_with", f_batch, 0},
    {"count", "", f_length, 0},
    {"dictsort", "|case_sensitive,by,reverse", f_dictsort, 0},
    {"first", "", f_first, 0},
    {"items", "", f_items, 0},
    {"join", "|d,attribute", f_join, 0},
    {"last", "", f_last, 0},
    {"length", "", f_length, 0},
    {"list", "", f_list, 0},
    {"map", "*", f_map, 0},
    {"max", "|case_sensitive,attribute", f_extreme, 1},
    {"min", "|case_sensitive,attribute", f_extreme, -1},
    {"reject", "*", f_select, SELECT_NEGATE},
    {"rejectattr", "*", f_select, SELECT_NEGATE | SELECT_ATTR},
    {"reverse", "", f_reverse, 0},
    {"select", "*", f_select, 0},
    {"selectattr", "*", f_select, SELECT_ATTR},
    {"slice", "slices|fill_with", f_slice, 0},
    {"sort", "|reverse,case_sensitive,attribute", f_sort, 0},
    {"sum", "|attribute,start", f_sum, 0},
    {"unique", "|case_sensitive,attribute", f_unique, 0},
};

const struct plm_tfunc *plm_tpl_sequence_filter(struct plm_slice name)
{
    return plm_tpl_find_func(sequence_filters,
                             sizeof(sequence_filters) / sizeof(sequence_filters[0]), name);
}
