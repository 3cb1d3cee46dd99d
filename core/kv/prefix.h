// SPDX-License-Identifier: Apache-2.0
// The prefix index: which full blocks hold which tokens after which prefix. A node is a prefix of
// whole blocks: it has one block of each group at most, since a group with a window keeps only the
// last ones. Its key is the XXH3-128 of its parent's key and its 16 tokens; the first node's parent
// is a root, made from tagged extras (the salt). Keys find, tokens and parent decide: on a hit they
// are compared. A hit of n nodes needs all their blocks of a full group, and of a group with a
// window those that the window before the next token touches.
//
// A node stays while it has a block, a child, or a sequence that goes on from it. Blocks stay in
// their pool's LRU list while nobody uses them. O(1) a block; memory is taken at the format of the
// main group's pool only. One thread.
#ifndef PLM_KV_PREFIX_H
#define PLM_KV_PREFIX_H

#include <stdint.h>

#include "core/base/alloc.h"
#include "core/kv/set.h"

struct plm_prefix;

// Hooks itself into the pools; created before their first format, destroyed before they are.
// Nodes: as many as the main pool has ids, and extra_nodes for prefixes whose blocks left a window.
// seed: secret, so that nobody can aim at a collision (plm_random_seed; fixed in simulations).
int plm_prefix_create(struct plm_host *host, const struct plm_kv_set *kv, uint64_t seed,
                      uint32_t extra_nodes, struct plm_prefix **ret);
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

// Where a sequence stands. Who has a node holds it, until it is passed on or dropped.
#define PLM_PREFIX_START UINT32_MAX       // before its first block
#define PLM_PREFIX_LOST  (UINT32_MAX - 1) // behind blocks that are not known: nothing is put there

// The longest known prefix of tokens whose blocks are there: at most cap nodes, and never the block
// of the last token, since at least one token must be computed. ret_blocks[group][i] is the block
// of the i-th node, which got a reference, or PLM_KV_NO_BLOCK where a window does not need it.
// Returns the number of nodes; *ret_node is the last one, or START.
uint32_t plm_prefix_take(struct plm_prefix *prefix, struct plm_prefix_root root,
                         const int32_t *tokens, uint32_t n_tokens, uint32_t *const *ret_blocks,
                         uint32_t cap, uint32_t *ret_node);
// The same without taking references: for admission. *ret_used (may be NULL): how many of their
// blocks in the main group are in use by others now and so cost nothing.
uint32_t plm_prefix_peek(const struct plm_prefix *prefix, struct plm_prefix_root root,
                         const int32_t *tokens, uint32_t n_tokens, uint32_t *ret_used);

// Makes full blocks known: blocks[group] (PLM_KV_NO_BLOCK: there is none) hold `tokens` after the
// prefix `parent`. The caller has references to them, and its hold on parent passes to the node
// that is returned. Where an equal block is known already, its reference replaces the caller's,
// whose block is unreferenced, and blocks[group] is the known one. LOST: parent is, or was
// forgotten, or no node can be had; blocks are as they were.
uint32_t plm_prefix_put(struct plm_prefix *prefix, struct plm_prefix_root root, uint32_t parent,
                        const int32_t tokens[PLM_KV_BLOCK_TOKENS], uint32_t *blocks);
// Holds the node that a block is known by; LOST: it is not.
uint32_t plm_prefix_hold(struct plm_prefix *prefix, uint32_t group, uint32_t block);
void plm_prefix_drop(struct plm_prefix *prefix, uint32_t node); // START and LOST are allowed

// Makes the blocks of a prefix unknown, and whatever follows it with them; no more than that, where
// it is START or LOST. Holds stay.
void plm_prefix_forget(struct plm_prefix *prefix, uint32_t node);
// Ask memory for what plm_prefix_put() will read, in two strides: far ahead of it the nodes, and
// nearer what its tokens lead to.
void plm_prefix_prefetch_far(const struct plm_prefix *prefix, uint32_t parent);
void plm_prefix_prefetch_near(const struct plm_prefix *prefix, struct plm_prefix_root root,
                              uint32_t parent, const int32_t tokens[PLM_KV_BLOCK_TOKENS]);

struct plm_prefix_stats {
    uint32_t known;      // blocks in the index, of all groups
    uint32_t nodes;      // in use
    uint64_t queries;    // blocks asked for by take
    uint64_t hits;       // blocks found by take
    uint64_t evicted;    // known blocks that were given up
    uint64_t false_hits; // equal keys, different tokens or parent
};
void plm_prefix_read(const struct plm_prefix *prefix, struct plm_prefix_stats *ret);

#endif
