// SPDX-License-Identifier: Apache-2.0
// Hash look-up of names that lie in an array of structs: the first member of each struct is its
// `struct plm_slice` name. The index holds positions only, so the array may move as it grows.
#ifndef PLM_GGUF_NAME_INDEX_H
#define PLM_GGUF_NAME_INDEX_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/alloc.h"
#include "core/base/buf.h"

struct plm_name_slot {
    uint32_t hash;
    uint32_t place; // position + 1; 0: empty
};

// All zero is an empty index.
struct plm_name_index {
    struct plm_name_slot *slots;
    uint32_t n_slots; // a power of two, at least twice n
    uint32_t n;
};

void plm_name_index_finish(struct plm_name_index *index, struct plm_host *host);

// Adds position i of the array at base, whose elements are stride bytes apart. Constant time, also
// for hostile names. PLM_ERR_INVALID where the name is there already, PLM_ERR_LIMIT where the names
// were made to collide, PLM_ERR_NOMEM_HOST.
int plm_name_index_add(struct plm_name_index *index, struct plm_host *host, const void *base,
                       size_t stride, uint32_t i);

// Position of name in the array, or -1.
int64_t plm_name_index_find(const struct plm_name_index *index, const void *base, size_t stride,
                            struct plm_slice name);

#endif
