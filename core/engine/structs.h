// SPDX-License-Identifier: Apache-2.0
// Structs of the public API that begin with struct_size, whose caller may be of another version.
#ifndef PLM_ENGINE_STRUCTS_H
#define PLM_ENGINE_STRUCTS_H

#include <stdbool.h>
#include <stddef.h>

// Whether a size can be one.
bool plm_struct_sized(size_t bytes);
// Fills what the caller's struct has room for, but its struct_size. INVALID: it has no size.
int plm_struct_out(void *ret, const void *full, size_t full_bytes);
// Sets the caller's struct up: with its size, and then what `full` says of it.
void plm_struct_init(void *ret, size_t ret_bytes, const void *full, size_t full_bytes);

#endif
