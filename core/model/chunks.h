// SPDX-License-Identifier: Apache-2.0
// Chunks of weights on their way from the file into the device. Workers, a thread each, read and
// re-lay a chunk at a time; the owner brings finished ones into the device, oldest first. So a load
// is as fast as reading and re-laying by several threads, or as the copies, while the device is
// called by one thread, in an order that does not depend on timing.
#ifndef PLM_MODEL_CHUNKS_H
#define PLM_MODEL_CHUNKS_H

#include "core/model/arch.h"

// One thread re-lays slower than it reads from the page cache, halves the
// slowest (tests/bench/bench_load.c measures both together).
#define PLM_CHUNK_WORKERS 4

// Bytes of a worker's buffers: of one read, and of what it becomes re-laid. Large enough for a disk
// or page-cache copy at full speed, small enough that they do not show in the plan.
#define PLM_CHUNK_BYTES (4ull << 20)

// Rows of a matrix.
struct plm_chunk {
    const struct plm_weight *weight;
    uint32_t first, rows;
    uint64_t file_at, file_bytes; // in the tensor; at most PLM_CHUNK_BYTES
    uint64_t addr, bytes;         // where they lie re-laid, and what they take; as many at most
    void *visible;                // the host's view of addr; NULL: it has none
};

struct plm_chunks;

// No thread is started before the first chunk. NULL: no host memory.
struct plm_chunks *plm_chunks_create(struct plm_host *host, const struct plm_gguf *gguf,
                                     struct plm_device *device);
// Chunks that were not taken are dropped. NULL is allowed.
void plm_chunks_destroy(struct plm_chunks *chunks);

bool plm_chunks_is_full(const struct plm_chunks *chunks);
bool plm_chunks_is_empty(const struct plm_chunks *chunks);
// Begins a chunk; not while it is full. NOMEM_HOST.
int plm_chunks_put(struct plm_chunks *chunks, const struct plm_chunk *chunk, struct plm_error *err);
// Waits for the oldest chunk and brings it into the device; not while it is empty. What failed to
// be read fails here.
int plm_chunks_take(struct plm_chunks *chunks, struct plm_chunk *ret, struct plm_error *err);

#endif
