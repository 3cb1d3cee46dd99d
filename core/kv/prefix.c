// SPDX-License-Identifier: Apache-2.0
#include "core/kv/prefix.h"

#include <stdbool.h>
#include <string.h>

// The hash is used from the header: its streaming state then lies on our stack, and nothing is
// allocated behind the host budget.
#define XXH_INLINE_ALL
#include <xxhash.h>

#define NONE       PLM_KV_NO_BLOCK
#define TOKENS     PLM_KV_BLOCK_TOKENS
#define SEED_ROOTS UINT64_C(0x726f6f7473) // keeps roots apart from blocks under one seed

struct key {
    uint64_t lo, hi;
};

struct entry {
    struct key key;
    struct key root; // of a first block
    uint32_t parent; // NONE: a first block
    uint32_t parent_generation;
    uint32_t generation; // of this block; grows when it leaves the index
    uint32_t next;       // in its bucket
    bool known;
    int32_t tokens[TOKENS];
};

struct plm_prefix {
    struct plm_host *host;
    struct plm_kv_pool *pool;
    uint64_t seed;
    struct entry *entries; // by block
    uint32_t *buckets;
    uint32_t mask; // buckets - 1
    uint32_t max_blocks;
    struct plm_prefix_stats stats;
};

// ---- keys ----

static struct key block_key(const struct plm_prefix *prefix, struct key parent,
                            const int32_t *tokens)
{
    struct {
        struct key parent;
        int32_t tokens[TOKENS];
    } input;
    input.parent = parent;
    memcpy(input.tokens, tokens, sizeof(input.tokens));
    XXH128_hash_t hash = XXH3_128bits_withSeed(&input, sizeof(input), prefix->seed);
    return (struct key){hash.low64, hash.high64};
}

struct plm_prefix_root plm_prefix_root(const struct plm_prefix *prefix,
                                       const struct plm_prefix_extra *extras, uint32_t n)
{
    XXH3_state_t state;
    XXH3_INITSTATE(&state);
    XXH3_128bits_reset_withSeed(&state, prefix->seed ^ SEED_ROOTS);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t head[2] = {(uint32_t)extras[i].tag, extras[i].len};
        XXH3_128bits_update(&state, head, sizeof(head));
        if (extras[i].len > 0)
            XXH3_128bits_update(&state, extras[i].data, extras[i].len);
    }
    XXH128_hash_t hash = XXH3_128bits_digest(&state);
    return (struct plm_prefix_root){hash.low64, hash.high64};
}

static bool key_eq(struct key a, struct key b)
{
    return a.lo == b.lo && a.hi == b.hi;
}

// ---- the index ----

static int format(void *ctx, uint32_t max_blocks)
{
    struct plm_prefix *prefix = ctx;
    uint32_t n_buckets = 64;
    while (n_buckets < max_blocks)
        n_buckets *= 2; // at most 2^31: the pool has no more ids
    struct entry *entries = plm_calloc(prefix->host, PLM_HOST_KV, max_blocks, sizeof(*entries));
    uint32_t *buckets = plm_malloc(prefix->host, PLM_HOST_KV, n_buckets * sizeof(*buckets));
    if (entries == NULL || buckets == NULL) {
        plm_free(prefix->host, entries);
        plm_free(prefix->host, buckets);
        return PLM_ERR_NOMEM_HOST;
    }
    memset(buckets, 0xff, n_buckets * sizeof(*buckets));
    plm_free(prefix->host, prefix->entries);
    plm_free(prefix->host, prefix->buckets);
    prefix->entries = entries;
    prefix->buckets = buckets;
    prefix->mask = n_buckets - 1;
    prefix->max_blocks = max_blocks;
    prefix->stats.known = 0;
    return PLM_OK;
}

// A block is not known any more. Its children, if any are left, see by its generation that it is
// not their parent.
static void evicted(void *ctx, uint32_t block)
{
    struct plm_prefix *prefix = ctx;
    struct entry *entry = &prefix->entries[block];
    uint32_t *at = &prefix->buckets[entry->key.lo & prefix->mask];
    while (*at != block)
        at = &prefix->entries[*at].next;
    *at = entry->next;
    entry->known = false;
    entry->generation++;
    prefix->stats.known--;
    prefix->stats.evicted++;
}

static void ahead(void *ctx, uint32_t first, uint32_t second)
{
    const struct plm_prefix *prefix = ctx;
    // The line of the first was asked for when it was the second.
    __builtin_prefetch(&prefix->buckets[prefix->entries[first].key.lo & prefix->mask], 1);
    __builtin_prefetch(&prefix->entries[second], 1);
}

// Entries follow their blocks, and then their children's look up at them. The walk over all entries
// is the price for not keeping lists of children; slabs are evacuated rarely.
static void moved(void *ctx, const struct plm_kv_move *moves, uint32_t n)
{
    struct plm_prefix *prefix = ctx;
    bool any = false;
    for (uint32_t i = 0; i < n; i++) {
        struct entry *from = &prefix->entries[moves[i].from], *to = &prefix->entries[moves[i].to];
        if (!from->known)
            continue;
        const uint32_t generation = to->generation;
        uint32_t *at = &prefix->buckets[from->key.lo & prefix->mask];
        while (*at != moves[i].from)
            at = &prefix->entries[*at].next;
        *at = moves[i].to;
        *to = *from;
        to->generation = generation;
        from->known = false;
        any = true;
    }
    for (uint32_t id = 0; any && id < prefix->max_blocks; id++) {
        struct entry *entry = &prefix->entries[id];
        if (!entry->known || entry->parent == NONE)
            continue;
        uint32_t to = plm_kv_moved_to(moves, n, entry->parent);
        if (to == NONE || entry->parent_generation != prefix->entries[entry->parent].generation)
            continue;
        entry->parent = to;
        entry->parent_generation = prefix->entries[to].generation;
    }
    for (uint32_t i = 0; i < n; i++)
        prefix->entries[moves[i].from].generation++;
}

// What a block follows.
struct place {
    struct key key;  // of the parent, or the root
    uint32_t parent; // NONE: none, key is the root
};

static bool is_child(const struct plm_prefix *prefix, const struct entry *entry,
                     const struct place *place)
{
    if (entry->parent != place->parent)
        return false;
    if (place->parent == NONE)
        return key_eq(entry->root, place->key);
    return entry->parent_generation == prefix->entries[place->parent].generation;
}

// The block with these tokens at this place, or NONE. False hits are counted in *ret_false.
static uint32_t find(const struct plm_prefix *prefix, const struct place *place, struct key key,
                     const int32_t *tokens, uint64_t *ret_false)
{
    uint32_t id = prefix->buckets[key.lo & prefix->mask];
    for (; id != NONE; id = prefix->entries[id].next) {
        const struct entry *entry = &prefix->entries[id];
        if (!key_eq(entry->key, key))
            continue;
        if (is_child(prefix, entry, place) &&
            memcmp(entry->tokens, tokens, sizeof(entry->tokens)) == 0)
            return id;
        (*ret_false)++;
    }
    return NONE;
}

static struct place first_place(struct plm_prefix_root root)
{
    return (struct place){.key = {root.lo, root.hi}, .parent = NONE};
}

// Whole blocks that may be reused: at least the last token is computed.
static uint32_t reusable(uint32_t n_tokens)
{
    return n_tokens > 0 ? (n_tokens - 1) / TOKENS : 0;
}

uint32_t plm_prefix_take(struct plm_prefix *prefix, struct plm_prefix_root root,
                         const int32_t *tokens, uint32_t n_tokens, uint32_t *ret_blocks,
                         uint32_t cap)
{
    struct place place = first_place(root);
    uint32_t most = reusable(n_tokens), n = 0;
    if (most > cap)
        most = cap;
    prefix->stats.queries += most;
    if (prefix->buckets == NULL)
        return 0;
    for (; n < most; n++, tokens += TOKENS) {
        struct key key = block_key(prefix, place.key, tokens);
        uint32_t id = find(prefix, &place, key, tokens, &prefix->stats.false_hits);
        if (id == NONE)
            break;
        plm_kv_pool_ref(prefix->pool, id);
        ret_blocks[n] = id;
        place = (struct place){.key = key, .parent = id};
    }
    prefix->stats.hits += n;
    return n;
}

uint32_t plm_prefix_peek(const struct plm_prefix *prefix, struct plm_prefix_root root,
                         const int32_t *tokens, uint32_t n_tokens, uint32_t *ret_used)
{
    struct place place = first_place(root);
    uint32_t most = reusable(n_tokens), n = 0, used = 0;
    uint64_t ignored = 0;
    if (prefix->buckets == NULL)
        most = 0;
    for (; n < most; n++, tokens += TOKENS) {
        struct key key = block_key(prefix, place.key, tokens);
        uint32_t id = find(prefix, &place, key, tokens, &ignored);
        if (id == NONE)
            break;
        used += plm_kv_pool_refs(prefix->pool, id) > 0;
        place = (struct place){.key = key, .parent = id};
    }
    if (ret_used != NULL)
        *ret_used = used;
    return n;
}

uint32_t plm_prefix_put(struct plm_prefix *prefix, struct plm_prefix_root root, uint32_t parent,
                        const int32_t tokens[TOKENS], uint32_t block)
{
    struct place place = first_place(root);
    struct entry *entry = &prefix->entries[block];
    if (parent != NONE) {
        if (!prefix->entries[parent].known)
            return block;
        place = (struct place){.key = prefix->entries[parent].key, .parent = parent};
    }
    struct key key = block_key(prefix, place.key, tokens);
    uint32_t other = find(prefix, &place, key, tokens, &prefix->stats.false_hits);
    if (other == block || entry->known)
        return block;
    if (other != NONE) {
        plm_kv_pool_ref(prefix->pool, other);
        plm_kv_pool_unref(prefix->pool, block);
        return other;
    }
    entry->key = key;
    entry->root = parent == NONE ? place.key : (struct key){0, 0};
    entry->parent = parent;
    entry->parent_generation = parent == NONE ? 0 : prefix->entries[parent].generation;
    memcpy(entry->tokens, tokens, sizeof(entry->tokens));
    uint32_t *bucket = &prefix->buckets[key.lo & prefix->mask];
    entry->next = *bucket;
    *bucket = block;
    entry->known = true;
    prefix->stats.known++;
    plm_kv_pool_mark(prefix->pool, block, true);
    return block;
}

void plm_prefix_forget(struct plm_prefix *prefix, uint32_t block)
{
    if (!prefix->entries[block].known)
        return;
    evicted(prefix, block);
    plm_kv_pool_mark(prefix->pool, block, false);
}

void plm_prefix_prefetch_far(const struct plm_prefix *prefix, uint32_t parent, uint32_t block)
{
    const char *entry = (const char *)&prefix->entries[block];
    for (size_t at = 0; at < sizeof(struct entry); at += 64)
        __builtin_prefetch(entry + at, 1);
    if (parent != NONE)
        __builtin_prefetch(&prefix->entries[parent]);
}

void plm_prefix_prefetch_near(const struct plm_prefix *prefix, struct plm_prefix_root root,
                              uint32_t parent, const int32_t tokens[TOKENS])
{
    struct key key = {root.lo, root.hi};
    if (parent != NONE)
        key = prefix->entries[parent].key;
    key = block_key(prefix, key, tokens); // again then: a hash costs less than the miss
    __builtin_prefetch(&prefix->buckets[key.lo & prefix->mask], 1);
}

void plm_prefix_read(const struct plm_prefix *prefix, struct plm_prefix_stats *ret)
{
    *ret = prefix->stats;
}

// ---- life ----

int plm_prefix_create(struct plm_host *host, struct plm_kv_pool *pool, uint64_t seed,
                      struct plm_prefix **ret)
{
    struct plm_prefix *prefix = plm_calloc(host, PLM_HOST_KV, 1, sizeof(*prefix));
    if (prefix == NULL)
        return PLM_ERR_NOMEM_HOST;
    prefix->host = host;
    prefix->pool = pool;
    prefix->seed = seed;
    plm_kv_pool_set_hook(
        pool,
        &(struct plm_kv_pool_hook){
            .format = format, .evicted = evicted, .ahead = ahead, .moved = moved, .ctx = prefix});
    *ret = prefix;
    return PLM_OK;
}

void plm_prefix_destroy(struct plm_prefix *prefix)
{
    if (prefix == NULL)
        return;
    plm_kv_pool_drop_cached(prefix->pool, UINT32_MAX);
    plm_kv_pool_set_hook(prefix->pool, NULL);
    plm_free(prefix->host, prefix->entries);
    plm_free(prefix->host, prefix->buckets);
    plm_free(prefix->host, prefix);
}
