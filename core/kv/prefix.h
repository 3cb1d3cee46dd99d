// SPDX-License-Identifier: Apache-2.0
// The prefix index: which full blocks hold which tokens after which prefix. A block's key is the
// XXH3-128 of its parent's key and its 16 tokens; the first block's parent is a root, made from
// tagged extras (the salt). Keys find, tokens and parent decide: on a hit they are compared.
// Blocks stay in the pool's LRU list while nobody uses them. O(1) a block; memory is taken at the
// pool's format only. One thread.
#ifndef PLM_KV_PREFIX_H
#define PLM_KV_PREFIX_H

#include <stdint.h>

#include "core/base/alloc.h"
#include "core/kv/pool.h"

struct plm_prefix;

// Hooks itself into the pool; created before the pool's first format, destroyed before the pool.
// seed: secret, so that nobody can aim at a collision (plm_random_seed; fixed in simulations).
int plm_prefix_create(struct plm_host *host, struct plm_kv_pool *pool, uint64_t seed,
                      struct plm_prefix **ret);
void plm_prefix_destroy(struct plm_prefix *prefix); // NULL is allowed

// What is hashed in front of the first token. Different tags never collide.
enum plm_prefix_tag {
    PLM_PREFIX_SALT = 1,    // cache_salt of the request
    PLM_PREFIX_OWNER = 2,   // API key
    PLM_PREFIX_ROLE = 3,    // --deterministic full: numerics role
    PLM_PREFIX_ADAPTER = 4, // adapters loaded
};
struct plm_prefix_extra {
    enum plm_prefix_tag tag;
    const void *data;
    uint32_t len;
};
struct plm_prefix_root {
    uint64_t lo, hi;
};
// A pure function of seed and extras (n may be 0).
struct plm_prefix_root plm_prefix_root(const struct plm_prefix *prefix,
                                       const struct plm_prefix_extra *extras, uint32_t n);

// The longest run of known blocks at the start of tokens, at most cap and never the block of the
// last token, since at least one token must be computed. Each block returned got a reference.
// Returns their number.
uint32_t plm_prefix_take(struct plm_prefix *prefix, struct plm_prefix_root root,
                         const int32_t *tokens, uint32_t n_tokens, uint32_t *ret_blocks,
                         uint32_t cap);
// The same without taking references: for admission. *ret_used (may be NULL): how many of them are
// in use by others now and so cost nothing.
uint32_t plm_prefix_peek(const struct plm_prefix *prefix, struct plm_prefix_root root,
                         const int32_t *tokens, uint32_t n_tokens, uint32_t *ret_used);

// Makes a full block known: it holds `tokens` after the block `parent` of the same sequence
// (PLM_KV_NO_BLOCK: it is the first). The caller holds references to both. Returns the block to go
// on with: where an equal block is known already, its reference replaces the caller's (`block` is
// unreferenced) and the caller puts the returned id into its table; else `block` itself. A block
// whose parent is not known stays unknown.
uint32_t plm_prefix_put(struct plm_prefix *prefix, struct plm_prefix_root root, uint32_t parent,
                        const int32_t tokens[PLM_KV_BLOCK_TOKENS], uint32_t block);

// Makes a used block unknown, whatever follows it with it; no more than that, where it is unknown.
void plm_prefix_forget(struct plm_prefix *prefix, uint32_t block);
// Ask memory for what plm_prefix_put() will read, in two strides: far ahead of it what its ids lead
// to, and nearer what its tokens lead to.
void plm_prefix_prefetch_far(const struct plm_prefix *prefix, uint32_t parent, uint32_t block);
void plm_prefix_prefetch_near(const struct plm_prefix *prefix, struct plm_prefix_root root,
                              uint32_t parent, const int32_t tokens[PLM_KV_BLOCK_TOKENS]);

struct plm_prefix_stats {
    uint32_t known;      // blocks in the index
    uint64_t queries;    // blocks asked for by take
    uint64_t hits;       // blocks found by take
    uint64_t evicted;    // known blocks that were given up
    uint64_t false_hits; // equal keys, different tokens or parent
};
void plm_prefix_read(const struct plm_prefix *prefix, struct plm_prefix_stats *ret);

#endif
