// SPDX-License-Identifier: Apache-2.0
// Memory for the names and values of one header: taken in chunks, freed as a whole.
#include "core/gguf/gguf_impl.h"

#define FIRST_CHUNK_BYTES 1024ull // doubles up to the next
#define CHUNK_BYTES       65536ull

struct plm_gguf_chunk {
    struct plm_gguf_chunk *next;
    size_t cap;
    size_t used;
    unsigned char data[];
};

void *plm_gguf_pool_alloc(struct plm_gguf_pool *pool, struct plm_host *host, size_t n)
{
    struct plm_gguf_chunk *head = pool->head;
    if (n == 0)
        n = 1;
    if (head == NULL || head->cap - head->used < n) {
        size_t cap = head == NULL ? FIRST_CHUNK_BYTES : head->cap * 2;
        cap = cap < CHUNK_BYTES ? cap : CHUNK_BYTES;
        cap = cap > n ? cap : n;
        struct plm_gguf_chunk *chunk = plm_malloc(host, PLM_HOST_MODEL, sizeof(*chunk) + cap);
        if (chunk == NULL)
            return NULL;
        *chunk = (struct plm_gguf_chunk){.next = head, .cap = cap};
        pool->head = head = chunk;
    }
    void *at = head->data + head->used;
    head->used += n;
    return at;
}

void plm_gguf_pool_finish(struct plm_gguf_pool *pool, struct plm_host *host)
{
    while (pool->head != NULL) {
        struct plm_gguf_chunk *next = pool->head->next;
        plm_free(host, pool->head);
        pool->head = next;
    }
}
