// SPDX-License-Identifier: Apache-2.0
// Lists and objects.
#include "core/template/value.h"

#include <string.h>

enum {
    INDEX_FROM = 9, // objects below this size are searched from front to back
};

struct plm_tlist *plm_tlist_new(struct plm_trun *r, size_t cap)
{
    struct plm_tlist *list = plm_tpl_alloc(r, sizeof(*list));
    if (list == NULL || cap == 0)
        return list;
    list->v = plm_tpl_array(r, cap, sizeof(*list->v));
    list->cap = cap;
    return list->v == NULL ? NULL : list;
}

bool plm_tlist_add(struct plm_trun *r, struct plm_tlist *list, struct plm_tval v)
{
    if (list->n == list->cap) {
        size_t cap = list->cap < 4 ? 4 : list->cap * 2;
        struct plm_tval *grown =
            plm_tarena_grow(&r->arena, list->v, list->cap * sizeof(*grown), cap * sizeof(*grown));
        if (grown == NULL)
            return plm_tpl_fail_memory(r);
        list->v = grown;
        list->cap = cap;
    }
    list->v[list->n++] = v;
    return true;
}

bool plm_tlist_val(struct plm_tlist *list, enum plm_tkind kind, struct plm_tval *ret)
{
    if (list == NULL)
        return false;
    *ret = (struct plm_tval){.kind = kind, .list = list};
    return true;
}

struct plm_tdict *plm_tdict_new(struct plm_trun *r)
{
    return plm_tpl_alloc(r, sizeof(struct plm_tdict));
}

static void index_insert(struct plm_tdict *dict, size_t entry)
{
    size_t mask = dict->index_cap - 1;
    size_t at = dict->entries[entry].hash & mask;
    while (dict->index[at] != 0)
        at = (at + 1) & mask;
    dict->index[at] = (uint32_t)entry + 1;
}

static bool build_index(struct plm_trun *r, struct plm_tdict *dict)
{
    size_t cap = 32;
    while (cap < dict->cap * 2)
        cap *= 2;
    dict->index = plm_tpl_array(r, cap, sizeof(*dict->index));
    if (dict->index == NULL)
        return false;
    dict->index_cap = cap;
    for (size_t i = 0; i < dict->n; i++)
        index_insert(dict, i);
    return true;
}

static bool find_entry(struct plm_trun *r, const struct plm_tdict *dict, const struct plm_tval *key,
                       uint64_t hash, struct plm_tentry **ret)
{
    *ret = NULL;
    size_t mask = dict->index_cap - 1;
    size_t at = dict->index == NULL ? 0 : hash & mask;
    for (size_t probes = 0;; probes++) {
        struct plm_tentry *e;
        if (dict->index == NULL) {
            if (at == dict->n)
                return true;
            e = &dict->entries[at++];
        } else {
            uint32_t slot = dict->index[at];
            if (slot == 0)
                return true;
            e = &dict->entries[slot - 1];
            at = (at + 1) & mask;
        }
        // Keys chosen to collide cost steps.
        if (probes > 16 && !plm_tpl_step(r, 1))
            return false;
        if (e->hash != hash || e->key.kind == PLM_T_UNSET)
            continue;
        bool eq;
        if (!plm_tval_eq(r, &e->key, key, &eq))
            return false;
        if (eq) {
            *ret = e;
            return true;
        }
    }
}

bool plm_tdict_get(struct plm_trun *r, const struct plm_tdict *dict, const struct plm_tval *key,
                   struct plm_tval **ret)
{
    uint64_t hash;
    struct plm_tentry *e;
    if (!plm_tval_hash(r, key, &hash) || !find_entry(r, dict, key, hash, &e))
        return false;
    *ret = e == NULL ? NULL : &e->value;
    return true;
}

struct plm_tval *plm_tdict_find(const struct plm_tdict *dict, struct plm_slice name)
{
    uint64_t hash = plm_tstr_hash(name);
    size_t mask = dict->index_cap - 1;
    size_t at = dict->index == NULL ? 0 : hash & mask;
    for (;;) {
        struct plm_tentry *e;
        if (dict->index == NULL) {
            if (at == dict->n)
                return NULL;
            e = &dict->entries[at++];
        } else {
            if (dict->index[at] == 0)
                return NULL;
            e = &dict->entries[dict->index[at] - 1];
            at = (at + 1) & mask;
        }
        if (e->hash == hash && e->key.kind == PLM_T_STR &&
            plm_slice_eq(plm_tstr_slice(e->key.str), name))
            return &e->value;
    }
}

bool plm_tdict_set(struct plm_trun *r, struct plm_tdict *dict, struct plm_tval key,
                   struct plm_tval value)
{
    uint64_t hash;
    struct plm_tentry *e;
    if (!plm_tval_hash(r, &key, &hash) || !find_entry(r, dict, &key, hash, &e))
        return false;
    if (e != NULL) {
        e->value = value;
        return true;
    }
    if (dict->n == dict->cap) {
        size_t cap = dict->cap < 4 ? 4 : dict->cap * 2;
        if (cap > UINT32_MAX / 2)
            return plm_tpl_fail_limit(r, "entries of an object");
        e = plm_tarena_grow(&r->arena, dict->entries, dict->cap * sizeof(*e), cap * sizeof(*e));
        if (e == NULL)
            return plm_tpl_fail_memory(r);
        dict->entries = e;
        dict->cap = cap;
        if (cap >= INDEX_FROM && !build_index(r, dict))
            return false;
    }
    dict->entries[dict->n] = (struct plm_tentry){key, value, hash};
    dict->n++;
    dict->live++;
    if (dict->index != NULL)
        index_insert(dict, dict->n - 1);
    return true;
}

void plm_tdict_remove(struct plm_tdict *dict, struct plm_tval *value)
{
    struct plm_tentry *e =
        (struct plm_tentry *)((char *)value - offsetof(struct plm_tentry, value));
    e->key = (struct plm_tval){.kind = PLM_T_UNSET};
    dict->live--;
}

// One merge pass over runs of `width`, from (v, k) to (to_v, to_k).
static bool merge_pass(struct plm_trun *r, struct plm_tval *v, struct plm_tval *k,
                       struct plm_tval *to_v, struct plm_tval *to_k, size_t n, size_t width,
                       bool reverse)
{
    for (size_t lo = 0; lo < n; lo += 2 * width) {
        size_t mid = lo + width < n ? lo + width : n;
        size_t hi = lo + 2 * width < n ? lo + 2 * width : n;
        size_t a = lo;
        size_t b = mid;
        for (size_t i = lo; i < hi; i++) {
            bool take_b = a >= mid;
            if (!take_b && b < hi) {
                int c;
                bool nan = false;
                // As Python: only `<` decides, and equal elements keep their order.
                bool ok = reverse ? plm_tval_cmp(r, &k[a], &k[b], &c, &nan, "<")
                                  : plm_tval_cmp(r, &k[b], &k[a], &c, &nan, "<");
                if (!ok || !plm_tpl_step(r, 1))
                    return false;
                take_b = !nan && c < 0;
            }
            size_t from = take_b ? b++ : a++;
            to_v[i] = v[from];
            to_k[i] = k[from];
        }
    }
    return true;
}

bool plm_tlist_sort(struct plm_trun *r, struct plm_tval *values, struct plm_tval *keys, size_t n,
                    bool reverse)
{
    struct plm_tval *v = plm_tpl_array(r, n, sizeof(*v));
    struct plm_tval *k = plm_tpl_array(r, n, sizeof(*k));
    if (v == NULL || k == NULL)
        return false;
    for (size_t width = 1; width < n; width *= 2) {
        if (!merge_pass(r, values, keys, v, k, n, width, reverse))
            return false;
        memcpy(values, v, n * sizeof(*v));
        memcpy(keys, k, n * sizeof(*k));
    }
    return true;
}
