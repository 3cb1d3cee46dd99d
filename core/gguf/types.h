// SPDX-License-Identifier: Apache-2.0
// Traits of the tensor types: how many elements one block holds and how many bytes it takes.
#ifndef PLM_GGUF_TYPES_H
#define PLM_GGUF_TYPES_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/abi.h"

struct plm_type_traits {
    const char *name;     // as ggml spells it
    uint32_t block_elems; // a row is a whole number of blocks
    uint32_t block_bytes;
};

// Traits of the type with this id of the file format; NULL where enum plm_type has no such type.
const struct plm_type_traits *plm_type_traits(uint32_t id);

// Whether there are kernels for weights of this type, as a matrix or as a vector (norms, biases).
bool plm_type_is_supported(uint32_t id, bool vector);
// Writes the names of those types, with commas between them.
#define PLM_TYPE_NAMES_BYTES 192
void plm_type_names(bool vector, char ret[PLM_TYPE_NAMES_BYTES]);

// Name of any type id that ggml has ever written, also of those which cannot be sized here (for
// messages); NULL for an unknown id.
const char *plm_type_name(uint32_t id);

// Bytes of a row of n elements. False, with *ret untouched, where the type is not in enum plm_type,
// n is not a multiple of the block, or the size does not fit.
bool plm_type_row_bytes(uint32_t id, uint64_t n, uint64_t *ret);

#endif
