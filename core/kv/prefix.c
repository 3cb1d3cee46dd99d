// SPDX-License-Identifier: Apache-2.0
#include "core/kv/prefix.h"

#include <stdbool.h>
#include <string.h>

// The hash is used from the header: its streaming state then lies on our stack, and nothing is
// allocated behind the host budget.
#define XXH_INLINE_ALL
#include <xxhash.h>

#define NONE       PLM_KV_NO_NODE
#define TOKENS     PLM_KV_BLOCK_TOKENS
#define SEED_ROOTS UINT64_C(0x726f6f7473) // keeps roots apart from blocks under one seed
// Cached blocks given up at most for a node, where the last one is taken: they hang on nodes.
#define NODE_TRIES 64

struct key {
    uint64_t lo, hi;
};

struct node {
    struct key key;
    struct key root;                    // of a first node
    uint32_t parent;                    // START: a first node
    uint32_t next;                      // in its bucket; of a free node: the next free one
    uint32_t refs;                      // blocks, children and holds; 0: free
    bool hashed;                        // can be found
    uint32_t blocks[PLM_KV_GROUPS_MAX]; // or PLM_KV_NO_BLOCK
    int32_t tokens[TOKENS];
};

// What the hooks of a pool are called with.
struct group {
    struct plm_prefix *prefix;
    uint32_t index;
    uint32_t window;
    struct plm_kv_pool *pool;
};

struct plm_prefix {
    struct plm_host *host;
    struct group groups[PLM_KV_GROUPS_MAX];
    uint32_t n_groups;
    uint32_t extra_nodes;
    uint64_t seed;
    struct node *nodes;
    uint32_t n_nodes;
    uint32_t free_node;
    uint32_t *buckets;
    uint32_t mask; // buckets - 1
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

// ---- nodes ----

static void unhash(struct plm_prefix *prefix, uint32_t id)
{
    struct node *node = &prefix->nodes[id];
    uint32_t *at = &prefix->buckets[node->key.lo & prefix->mask];
    while (*at != id)
        at = &prefix->nodes[*at].next;
    *at = node->next;
    node->hashed = false;
}

// One reference less: a node without any is free, and its parent has a child less.
static void unref(struct plm_prefix *prefix, uint32_t id)
{
    while (id != PLM_PREFIX_START && --prefix->nodes[id].refs == 0) {
        struct node *node = &prefix->nodes[id];
        const uint32_t parent = node->parent;
        if (node->hashed)
            unhash(prefix, id);
        node->next = prefix->free_node;
        prefix->free_node = id;
        prefix->stats.nodes--;
        id = parent;
    }
}

void plm_prefix_drop(struct plm_prefix *prefix, uint32_t node)
{
    if (node != PLM_PREFIX_LOST)
        unref(prefix, node);
}

static int format(void *ctx, uint32_t max_blocks)
{
    struct plm_prefix *prefix = ((struct group *)ctx)->prefix;
    const uint64_t n = (uint64_t)max_blocks + prefix->extra_nodes;
    uint64_t n_buckets = 64;
    while (n_buckets < n)
        n_buckets *= 2;
    if (n_buckets > UINT32_MAX)
        return PLM_ERR_INVALID;
    struct node *nodes = plm_calloc(prefix->host, PLM_HOST_KV, n, sizeof(*nodes));
    uint32_t *buckets = plm_malloc(prefix->host, PLM_HOST_KV, n_buckets * sizeof(*buckets));
    if (nodes == NULL || buckets == NULL) {
        plm_free(prefix->host, nodes);
        plm_free(prefix->host, buckets);
        return PLM_ERR_NOMEM_HOST;
    }
    memset(buckets, 0xff, n_buckets * sizeof(*buckets));
    plm_free(prefix->host, prefix->nodes);
    plm_free(prefix->host, prefix->buckets);
    prefix->nodes = nodes;
    prefix->n_nodes = (uint32_t)n;
    prefix->buckets = buckets;
    prefix->mask = (uint32_t)n_buckets - 1;
    for (uint32_t id = 0; id < n; id++)
        nodes[id].next = id + 1 < n ? id + 1 : NONE;
    prefix->free_node = n > 0 ? 0 : NONE;
    prefix->stats.known = prefix->stats.nodes = 0;
    return PLM_OK;
}

// The node lost its block of this group.
static void evicted(void *ctx, uint32_t id)
{
    const struct group *group = ctx;
    struct plm_prefix *prefix = group->prefix;
    prefix->nodes[id].blocks[group->index] = PLM_KV_NO_BLOCK;
    prefix->stats.known--;
    prefix->stats.evicted++;
    unref(prefix, id);
}

static void ahead(void *ctx, uint32_t id)
{
    const struct node *node = &((const struct group *)ctx)->prefix->nodes[id];
    __builtin_prefetch(node, 1);
    __builtin_prefetch((const char *)node + 64, 1);
}

static void moved(void *ctx, const struct plm_kv_move *moves, uint32_t n)
{
    const struct group *group = ctx;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t id = plm_kv_pool_node(group->pool, moves[i].to);
        if (id != NONE)
            group->prefix->nodes[id].blocks[group->index] = moves[i].to;
    }
}

// A free node, or NONE: all are taken, and giving up cached blocks freed none.
static uint32_t new_node(struct plm_prefix *prefix)
{
    for (uint32_t i = 0; prefix->free_node == NONE && i < NODE_TRIES; i++) {
        for (uint32_t g = 0; g < prefix->n_groups; g++)
            plm_kv_pool_drop_cached(prefix->groups[g].pool, 1);
    }
    const uint32_t id = prefix->free_node;
    if (id == NONE)
        return NONE;
    prefix->free_node = prefix->nodes[id].next;
    prefix->stats.nodes++;
    if (prefix->free_node != NONE) // the next one
        __builtin_prefetch(&prefix->nodes[prefix->free_node], 1);
    return id;
}

// ---- finding ----

static bool is_child(const struct node *node, uint32_t parent, struct key key)
{
    return node->parent == parent && (parent != PLM_PREFIX_START || key_eq(node->root, key));
}

// The node with these tokens after parent, whose key (or root) is up; or NONE. False hits are
// counted in *ret_false.
static uint32_t find(const struct plm_prefix *prefix, uint32_t parent, struct key up,
                     struct key key, const int32_t *tokens, uint64_t *ret_false)
{
    uint32_t id = prefix->buckets[key.lo & prefix->mask];
    for (; id != NONE; id = prefix->nodes[id].next) {
        const struct node *node = &prefix->nodes[id];
        if (!key_eq(node->key, key))
            continue;
        if (is_child(node, parent, up) && memcmp(node->tokens, tokens, sizeof(node->tokens)) == 0)
            return id;
        (*ret_false)++;
    }
    return NONE;
}

// Whole blocks that may be reused: at least the last token is computed.
static uint32_t reusable(uint32_t n_tokens)
{
    return n_tokens > 0 ? (n_tokens - 1) / TOKENS : 0;
}

struct hit {
    uint32_t n;    // nodes
    uint32_t node; // the last one
    uint32_t used; // of their blocks in the main group
};

// Counts for each group how many nodes in a row, up to this one, have a block. Whether a sequence
// can start behind n nodes follows from it.
static bool can_start(const struct plm_prefix *prefix, const struct node *node, uint32_t n,
                      uint32_t *runs, bool *ret_goes_on)
{
    bool all = true;
    for (uint32_t g = 0; g < prefix->n_groups; g++) {
        const uint32_t window = prefix->groups[g].window;
        runs[g] = node->blocks[g] != PLM_KV_NO_BLOCK ? runs[g] + 1 : 0;
        all &= runs[g] >= n - plm_kv_first_block(window, n * TOKENS);
        *ret_goes_on &= window != 0 || runs[g] == n;
    }
    return all;
}

static void longest(const struct plm_prefix *prefix, struct plm_prefix_root root,
                    const int32_t *tokens, uint32_t most, struct hit *ret, uint64_t *ret_false)
{
    struct key up = {root.lo, root.hi};
    uint32_t runs[PLM_KV_GROUPS_MAX] = {0}, used = 0, parent = PLM_PREFIX_START;
    bool goes_on = prefix->buckets != NULL;
    *ret = (struct hit){.node = PLM_PREFIX_START};
    for (uint32_t n = 1; n <= most && goes_on; n++, tokens += TOKENS) {
        const struct key key = block_key(prefix, up, tokens);
        const uint32_t id = find(prefix, parent, up, key, tokens, ret_false);
        if (id == NONE)
            return;
        const struct node *node = &prefix->nodes[id];
        const uint32_t block = node->blocks[0];
        if (block != PLM_KV_NO_BLOCK)
            used += plm_kv_pool_refs(prefix->groups[0].pool, block) > 0;
        if (can_start(prefix, node, n, runs, &goes_on))
            *ret = (struct hit){.n = n, .node = id, .used = used};
        up = key;
        parent = id;
    }
}

uint32_t plm_prefix_take(struct plm_prefix *prefix, struct plm_prefix_root root,
                         const int32_t *tokens, uint32_t n_tokens, uint32_t *const *ret_blocks,
                         uint32_t cap, uint32_t *ret_node)
{
    struct hit hit;
    uint32_t most = reusable(n_tokens), first[PLM_KV_GROUPS_MAX];
    if (most > cap)
        most = cap;
    prefix->stats.queries += most;
    longest(prefix, root, tokens, most, &hit, &prefix->stats.false_hits);
    for (uint32_t g = 0; g < prefix->n_groups; g++)
        first[g] = plm_kv_first_block(prefix->groups[g].window, hit.n * TOKENS);
    uint32_t id = hit.node;
    for (uint32_t b = hit.n; b-- > 0; id = prefix->nodes[id].parent) {
        const struct node *node = &prefix->nodes[id];
        for (uint32_t g = 0; g < prefix->n_groups; g++) {
            ret_blocks[g][b] = b >= first[g] ? node->blocks[g] : PLM_KV_NO_BLOCK;
            if (b >= first[g])
                plm_kv_pool_ref(prefix->groups[g].pool, node->blocks[g]);
        }
    }
    if (hit.node != PLM_PREFIX_START)
        prefix->nodes[hit.node].refs++;
    prefix->stats.hits += hit.n;
    *ret_node = hit.node;
    return hit.n;
}

uint32_t plm_prefix_peek(const struct plm_prefix *prefix, struct plm_prefix_root root,
                         const int32_t *tokens, uint32_t n_tokens, uint32_t *ret_used)
{
    struct hit hit;
    uint64_t ignored = 0;
    longest(prefix, root, tokens, reusable(n_tokens), &hit, &ignored);
    if (ret_used != NULL)
        *ret_used = hit.used;
    return hit.n;
}

// ---- putting and forgetting ----

// A node takes the block as its own, unless it has one: then the caller gets that one.
static void put_block(struct plm_prefix *prefix, uint32_t g, uint32_t id, uint32_t *block)
{
    struct plm_kv_pool *pool = prefix->groups[g].pool;
    struct node *node = &prefix->nodes[id];
    const uint32_t there = node->blocks[g];
    if (*block == PLM_KV_NO_BLOCK || *block == there)
        return;
    if (there != PLM_KV_NO_BLOCK) {
        plm_kv_pool_ref(pool, there);
        plm_kv_pool_unref(pool, *block);
        *block = there;
    } else if (plm_kv_pool_node(pool, *block) == NONE) {
        node->blocks[g] = *block;
        node->refs++;
        prefix->stats.known++;
        plm_kv_pool_mark(pool, *block, id);
    }
}

// A node for these tokens after parent, held by the caller, whose hold on parent becomes the
// child's.
static uint32_t add(struct plm_prefix *prefix, uint32_t parent, struct key up, struct key key,
                    const int32_t *tokens)
{
    const uint32_t id = new_node(prefix);
    if (id == NONE)
        return NONE;
    struct node *node = &prefix->nodes[id];
    uint32_t *bucket = &prefix->buckets[key.lo & prefix->mask];
    node->key = key;
    node->root = parent == PLM_PREFIX_START ? up : (struct key){0, 0};
    node->parent = parent;
    node->refs = 1;
    memset(node->blocks, 0xff, sizeof(node->blocks)); // PLM_KV_NO_BLOCK
    memcpy(node->tokens, tokens, sizeof(node->tokens));
    node->next = *bucket;
    *bucket = id;
    node->hashed = true;
    return id;
}

uint32_t plm_prefix_put(struct plm_prefix *prefix, struct plm_prefix_root root, uint32_t parent,
                        const int32_t tokens[TOKENS], uint32_t *blocks)
{
    struct key up = {root.lo, root.hi};
    if (parent == PLM_PREFIX_LOST)
        return PLM_PREFIX_LOST;
    if (parent != PLM_PREFIX_START) {
        if (!prefix->nodes[parent].hashed) {
            unref(prefix, parent);
            return PLM_PREFIX_LOST;
        }
        up = prefix->nodes[parent].key;
    }
    const struct key key = block_key(prefix, up, tokens);
    uint32_t id = find(prefix, parent, up, key, tokens, &prefix->stats.false_hits);
    if (id != NONE) {
        prefix->nodes[id].refs++;
        unref(prefix, parent);
    } else if ((id = add(prefix, parent, up, key, tokens)) == NONE) {
        unref(prefix, parent);
        return PLM_PREFIX_LOST;
    }
    for (uint32_t g = 0; g < prefix->n_groups; g++)
        put_block(prefix, g, id, &blocks[g]);
    return id;
}

uint32_t plm_prefix_hold(struct plm_prefix *prefix, uint32_t group, uint32_t block)
{
    const uint32_t id = plm_kv_pool_node(prefix->groups[group].pool, block);
    if (id == NONE)
        return PLM_PREFIX_LOST;
    prefix->nodes[id].refs++;
    return id;
}

// One node is found no longer; its blocks are nobody's but their users'.
static void forget_one(struct plm_prefix *prefix, uint32_t id)
{
    struct node *node = &prefix->nodes[id];
    if (node->hashed)
        unhash(prefix, id);
    node->refs++; // until the end of this
    for (uint32_t g = 0; g < prefix->n_groups; g++) {
        struct plm_kv_pool *pool = prefix->groups[g].pool;
        const uint32_t block = node->blocks[g];
        if (block == PLM_KV_NO_BLOCK)
            continue;
        const bool used = plm_kv_pool_refs(pool, block) > 0;
        plm_kv_pool_mark(pool, block, NONE);
        if (!used)
            plm_kv_pool_drop_block(pool, block);
        evicted(&prefix->groups[g], id);
    }
    unref(prefix, id);
}

void plm_prefix_forget(struct plm_prefix *prefix, uint32_t node)
{
    if (node == PLM_PREFIX_LOST)
        return;
    while (node != PLM_PREFIX_START) {
        const uint32_t parent = prefix->nodes[node].parent;
        forget_one(prefix, node);
        node = parent;
    }
}

void plm_prefix_prefetch_far(const struct plm_prefix *prefix, uint32_t parent)
{
    if (parent < prefix->n_nodes)
        __builtin_prefetch(&prefix->nodes[parent], 1);
}

void plm_prefix_prefetch_near(const struct plm_prefix *prefix, struct plm_prefix_root root,
                              uint32_t parent, const int32_t tokens[TOKENS])
{
    struct key key = {root.lo, root.hi};
    if (parent < prefix->n_nodes)
        key = prefix->nodes[parent].key;
    key = block_key(prefix, key, tokens); // again then: a hash costs less than the miss
    __builtin_prefetch(&prefix->buckets[key.lo & prefix->mask], 1);
}

void plm_prefix_read(const struct plm_prefix *prefix, struct plm_prefix_stats *ret)
{
    *ret = prefix->stats;
}

// ---- life ----

int plm_prefix_create(struct plm_host *host, const struct plm_kv_set *kv, uint64_t seed,
                      uint32_t extra_nodes, struct plm_prefix **ret)
{
    struct plm_prefix *prefix = plm_calloc(host, PLM_HOST_KV, 1, sizeof(*prefix));
    if (prefix == NULL)
        return PLM_ERR_NOMEM_HOST;
    prefix->host = host;
    prefix->seed = seed;
    prefix->extra_nodes = extra_nodes;
    prefix->n_groups = kv->n_groups;
    prefix->free_node = NONE;
    for (uint32_t g = 0; g < kv->n_groups; g++) {
        prefix->groups[g] = (struct group){
            .prefix = prefix, .index = g, .window = kv->windows[g], .pool = kv->pools[g]};
        plm_kv_pool_set_hook(kv->pools[g],
                             &(struct plm_kv_pool_hook){.format = g == 0 ? format : NULL,
                                                        .evicted = evicted,
                                                        .ahead = ahead,
                                                        .moved = moved,
                                                        .ctx = &prefix->groups[g]});
    }
    *ret = prefix;
    return PLM_OK;
}

void plm_prefix_destroy(struct plm_prefix *prefix)
{
    if (prefix == NULL)
        return;
    for (uint32_t g = 0; g < prefix->n_groups; g++) {
        plm_kv_pool_drop_cached(prefix->groups[g].pool, UINT32_MAX);
        plm_kv_pool_set_hook(prefix->groups[g].pool, NULL);
    }
    plm_free(prefix->host, prefix->nodes);
    plm_free(prefix->host, prefix->buckets);
    plm_free(prefix->host, prefix);
}
