// SPDX-License-Identifier: Apache-2.0
#include "core/template/arena.h"

#include <string.h>

#include "core/base/checked.h"

enum {
    FIRST_CHUNK_BYTES = 8 << 10,  // a small template fits one chunk
    LAST_CHUNK_BYTES = 256 << 10, // keeps the number of chunks low for large renders
    OWN_CHUNK_BYTES = 16 << 10,   // from here on a block has its own chunk and can be moved
    HEADS_BYTES = 96,             // that stand before a chunk's blocks, at most
};

struct plm_tarena_chunk {
    struct plm_tarena_chunk *prev;
    struct plm_tarena_chunk *next;
    size_t bytes;
    size_t pad;
};
_Static_assert(sizeof(struct plm_tarena_chunk) % 16 == 0, "blocks stay 16-byte aligned");
_Static_assert(sizeof(struct plm_tarena_chunk) + PLM_HOST_HEAD_BYTES <= HEADS_BYTES, "fits");

void plm_tarena_init(struct plm_tarena *arena, struct plm_host *host, uint64_t limit_bytes)
{
    *arena = (struct plm_tarena){
        .host = host, .chunk_bytes = FIRST_CHUNK_BYTES, .limit_bytes = limit_bytes};
}

void plm_tarena_finish(struct plm_tarena *arena)
{
    struct plm_tarena_chunk *chunk = arena->chunks;
    while (chunk != NULL) {
        struct plm_tarena_chunk *next = chunk->next;
        plm_free(arena->host, chunk);
        chunk = next;
    }
    plm_tarena_init(arena, arena->host, arena->limit_bytes);
}

bool plm_tarena_may_add(struct plm_tarena *arena, uint64_t bytes)
{
    arena->over_limit =
        bytes > arena->limit_bytes || arena->used_bytes > arena->limit_bytes - bytes;
    return !arena->over_limit;
}

static void link_chunk(struct plm_tarena *arena, struct plm_tarena_chunk *chunk, size_t bytes)
{
    chunk->bytes = bytes;
    chunk->prev = NULL;
    chunk->next = arena->chunks;
    if (chunk->next != NULL)
        chunk->next->prev = chunk;
    arena->chunks = chunk;
    arena->used_bytes += bytes;
}

static struct plm_tarena_chunk *add_chunk(struct plm_tarena *arena, size_t payload)
{
    size_t bytes = payload + sizeof(struct plm_tarena_chunk);
    if (!plm_tarena_may_add(arena, bytes))
        return NULL;
    struct plm_tarena_chunk *chunk = plm_malloc(arena->host, PLM_HOST_TEMPLATE, bytes);
    if (chunk != NULL)
        link_chunk(arena, chunk, bytes);
    return chunk;
}

void *plm_tarena_alloc(struct plm_tarena *arena, size_t bytes)
{
    if (bytes > arena->limit_bytes) {
        arena->over_limit = true;
        return NULL;
    }
    bytes = bytes == 0 ? 16 : plm_round_up(bytes, 16);
    if (bytes >= OWN_CHUNK_BYTES) {
        struct plm_tarena_chunk *own = add_chunk(arena, bytes);
        return own == NULL ? NULL : memset(own + 1, 0, bytes);
    }
    if (bytes > arena->left) {
        // With what stands before it a chunk is whole pages, which is what large blocks take.
        size_t payload = arena->chunk_bytes - HEADS_BYTES;
        if (bytes > payload)
            payload = OWN_CHUNK_BYTES;
        struct plm_tarena_chunk *chunk = add_chunk(arena, payload);
        if (chunk == NULL)
            return NULL;
        arena->next = (char *)(chunk + 1);
        arena->left = payload;
        if (arena->chunk_bytes < LAST_CHUNK_BYTES)
            arena->chunk_bytes *= 2;
    }
    void *block = arena->next;
    arena->next += bytes;
    arena->left -= bytes;
    return memset(block, 0, bytes);
}

void *plm_tarena_array(struct plm_tarena *arena, size_t n, size_t size)
{
    uint64_t bytes;
    if (!plm_mul_u64(n, size, &bytes)) {
        arena->over_limit = true;
        return NULL;
    }
    return plm_tarena_alloc(arena, bytes);
}

void *plm_tarena_grow(struct plm_tarena *arena, void *ptr, size_t old_bytes, size_t new_bytes)
{
    if (old_bytes < OWN_CHUNK_BYTES - 15) {
        void *moved = plm_tarena_alloc(arena, new_bytes);
        if (moved != NULL && old_bytes > 0)
            memcpy(moved, ptr, old_bytes);
        return moved;
    }
    if (new_bytes > arena->limit_bytes) {
        arena->over_limit = true;
        return NULL;
    }
    struct plm_tarena_chunk *chunk = (struct plm_tarena_chunk *)ptr - 1;
    size_t bytes = plm_round_up(new_bytes, 16) + sizeof(*chunk);
    if (bytes <= chunk->bytes)
        return ptr;
    if (!plm_tarena_may_add(arena, bytes - chunk->bytes))
        return NULL;
    struct plm_tarena_chunk *moved = plm_realloc(arena->host, PLM_HOST_TEMPLATE, chunk, bytes);
    if (moved == NULL)
        return NULL;
    arena->used_bytes += bytes - moved->bytes;
    moved->bytes = bytes;
    if (moved->prev != NULL)
        moved->prev->next = moved;
    else
        arena->chunks = moved;
    if (moved->next != NULL)
        moved->next->prev = moved;
    return moved + 1;
}

void *plm_tarena_more(struct plm_tarena *arena, void *array, size_t n, size_t *cap, size_t size)
{
    if (n < *cap)
        return array;
    const size_t more = *cap < 4 ? 4 : *cap * 2;
    void *grown = plm_tarena_grow(arena, array, *cap * size, more * size);
    if (grown != NULL)
        *cap = more;
    return grown;
}
