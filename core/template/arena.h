// SPDX-License-Identifier: Apache-2.0
// Memory of one parsed template or of one render: grows by chunks, is freed as a whole, and counts
// what it holds against a limit.
#ifndef PLM_TEMPLATE_ARENA_H
#define PLM_TEMPLATE_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/alloc.h"

struct plm_tarena_chunk;

struct plm_tarena {
    struct plm_host *host;
    struct plm_tarena_chunk *chunks; // all of them, doubly linked
    char *next;                      // free bytes of the current chunk
    size_t left;
    size_t chunk_bytes; // of the next chunk
    uint64_t used_bytes;
    uint64_t limit_bytes;
    bool over_limit; // why the last allocation failed: the limit, else the host
};

void plm_tarena_init(struct plm_tarena *arena, struct plm_host *host, uint64_t limit_bytes);
void plm_tarena_finish(struct plm_tarena *arena);
// Whether so many bytes more are within the limit; if not, over_limit is set.
bool plm_tarena_may_add(struct plm_tarena *arena, uint64_t bytes);
// Zeroed, 16-byte aligned; NULL when the limit or the host budget is reached.
void *plm_tarena_alloc(struct plm_tarena *arena, size_t bytes);
// n * size bytes, checked.
void *plm_tarena_array(struct plm_tarena *arena, size_t n, size_t size);
// Moves a block of old_bytes to new_bytes (more); the added bytes are not zeroed. Large blocks
// give their old place back.
void *plm_tarena_grow(struct plm_tarena *arena, void *ptr, size_t old_bytes, size_t new_bytes);

// Room for one element more in an array of n, for which there is room for *cap: the array, which
// may have moved. NULL as for plm_tarena_alloc().
void *plm_tarena_more(struct plm_tarena *arena, void *array, size_t n, size_t *cap, size_t size);

#endif
