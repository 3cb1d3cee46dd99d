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
    struct plm_tval *grown =
        plm_tarena_more(&r->arena, list->v, list->n, &list->cap, sizeof(*grown));
    if (grown == NULL)
        return plm_tpl_fail_memory(r);
    list->v = grown;
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

// The next entry with that hash; *at is where to look, 0 at first. NULL: there is no more.
static struct plm_tentry *next_entry(const struct plm_tdict *dict, uint64_t hash, size_t *at)
{
    if (dict->index == NULL) {
        while (*at < dict->n && dict->entries[*at].hash != hash)
            ++*at;
        return *at < dict->n ? &dict->entries[(*at)++] : NULL;
    }
    for (;; ++*at) {
        uint32_t slot = dict->index[(hash + *at) & (dict->index_cap - 1)];
        if (slot == 0)
            return NULL;
        if (dict->entries[slot - 1].hash == hash) {
            ++*at;
            return &dict->entries[slot - 1];
        }
    }
}

static bool find_entry(struct plm_trun *r, const struct plm_tdict *dict, const struct plm_tval *key,
                       uint64_t hash, struct plm_tentry **ret)
{
    bool eq = false;
    for (size_t at = 0, before = 0; !eq; before = at) {
        *ret = next_entry(dict, hash, &at);
        // Keys chosen to collide cost steps.
        if (at > 16 && !plm_tpl_step(r, at - before))
            return false;
        if (*ret == NULL)
            break;
        if ((*ret)->key.kind != PLM_T_UNSET && !plm_tval_eq(r, &(*ret)->key, key, &eq))
            return false;
    }
    return true;
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
    const uint64_t hash = plm_tstr_hash(name);
    struct plm_tentry *e;
    for (size_t at = 0; (e = next_entry(dict, hash, &at)) != NULL;)
        if (e->key.kind == PLM_T_STR && plm_slice_eq(plm_tstr_slice(e->key.str), name))
            return &e->value;
    return NULL;
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
    const size_t cap = dict->cap;
    if (cap > UINT32_MAX / 4)
        return plm_tpl_fail_limit(r, "entries of an object");
    e = plm_tarena_more(&r->arena, dict->entries, dict->n, &dict->cap, sizeof(*e));
    if (e == NULL)
        return plm_tpl_fail_memory(r);
    dict->entries = e;
    if (dict->cap > cap && dict->cap >= INDEX_FROM && !build_index(r, dict))
        return false;
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

bool plm_tdict_merge(struct plm_trun *r, struct plm_tdict *into, const struct plm_tdict *from)
{
    into->user = into->user || from->user;
    for (size_t i = 0, n = from->n; i < n; i++)
        if (from->entries[i].key.kind != PLM_T_UNSET &&
            (!plm_tpl_step(r, 1) ||
             !plm_tdict_set(r, into, from->entries[i].key, from->entries[i].value)))
            return false;
    return true;
}

void plm_tlist_reverse(struct plm_tlist *list)
{
    for (size_t i = 0; i < list->n / 2; i++) {
        struct plm_tval v = list->v[i];
        list->v[i] = list->v[list->n - 1 - i];
        list->v[list->n - 1 - i] = v;
    }
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
                const struct plm_tval *low = reverse ? &k[a] : &k[b];
                const struct plm_tval *high = reverse ? &k[b] : &k[a];
                int c = 0;
                bool nan = false, eq;
                // Equal elements keep their order, and need none: two undefined ones, say.
                if (!plm_tpl_step(r, 1) || !plm_tval_eq(r, low, high, &eq) ||
                    (!eq && !plm_tval_cmp(r, low, high, &c, &nan, "<")))
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
