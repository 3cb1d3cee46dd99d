// SPDX-License-Identifier: Apache-2.0
// Trees of json-c made from foreign text, on the host budget. json-c takes its memory from malloc
// behind the budget's back, and a value costs far more than its text: "{}," of three bytes becomes
// 800. So what a text can become is found out by one scan over it and charged before json-c sees
// it, and the charge ends together with the tree.
#ifndef PLM_BASE_JSON_TREE_H
#define PLM_BASE_JSON_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/alloc.h"
#include "core/base/buf.h"
#include "core/base/status.h"

struct json_object; // json-c

// Of objects and arrays in one another, in any text: what the server accepts.
#define PLM_JSON_TREE_DEPTH_MAX 64
// Values and names that the texts of one tree may hold together. A prompt of token ids for the
// longest contexts fits.
#define PLM_JSON_TREE_NODES_MAX 262144

struct plm_json_tree {
    struct json_object *root; // the tree's; NULL: null, or nothing yet
    struct plm_host *host;
    enum plm_host_owner owner;
    int64_t bytes;       // charged, until plm_json_tree_finish()
    uint32_t nodes_left; // that texts may still add
};

// An empty tree that is charged to an owner. Nothing fails.
void plm_json_tree_init(struct plm_json_tree *tree, struct plm_host *host,
                        enum plm_host_owner owner);
// Frees the root and returns the charge. Values that the caller still holds must be gone by now,
// or be charged elsewhere. The tree may be used again after another init.
void plm_json_tree_finish(struct plm_json_tree *tree);

// Reads a text on the tree's charge. *ret (NULL: null) is the caller's, who makes it the root, puts
// it somewhere below, or frees it; its charge stays with the tree in each case. Strict: UTF-8
// without NUL, no comments, nothing behind the value; escaped surrogate pairs are what they spell.
// PLM_OK; FORMAT or LIMIT, with the byte at which the text went wrong; NOMEM_HOST. A text that is
// refused leaves the charge as it was.
int plm_json_tree_parse(struct plm_json_tree *tree, struct plm_slice text, struct json_object **ret,
                        struct plm_error *err);

// What a text can become, found by one pass over it.
struct plm_json_cost {
    int64_t tree_bytes;  // of the tree
    int64_t parse_bytes; // of the parser, while it works
    uint32_t nodes;      // values and names
};

// PLM_OK; FORMAT where a byte stands outside of strings that no JSON has there (so that json-c
// reads strings where this scan does), LIMIT beyond depth or nodes_max. text is valid UTF-8.
int plm_json_measure(struct plm_slice text, uint32_t nodes_max, struct plm_json_cost *ret,
                     struct plm_error *err);

#endif
