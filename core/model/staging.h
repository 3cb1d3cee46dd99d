// SPDX-License-Identifier: Apache-2.0
// Chunks of weights on their way from the file into the device. A stage holds one chunk; a thread
// of its own reads and re-lays it while other stages do the same, and the owner of the staging
// brings finished chunks into the device, oldest first. So a load is as fast as reading and
// re-laying by several threads, or as the copies, while the device is called by one thread, in an
// order that does not depend on timing.
#ifndef PLM_MODEL_STAGING_H
#define PLM_MODEL_STAGING_H

#include "core/model/arch.h"

// Stages, and threads. One thread re-lays slower than it reads from the page cache, halves the
// slowest (tests/bench/bench_load.c measures both together).
#define PLM_STAGING_STAGES 4

// Bytes of a stage's buffers: of one read, and of what it becomes re-laid. Large enough for a disk
// or page-cache copy at full speed, small enough that staging does not show in the plan.
#define PLM_STAGING_BYTES (4ull << 20)

// Rows of a matrix.
struct plm_staging_chunk {
    const struct plm_weight *weight;
    uint32_t first, rows;
    uint64_t file_at, file_bytes; // in the tensor; at most PLM_STAGING_BYTES
    uint64_t addr, bytes;         // where they lie re-laid, and what they take; as many at most
    void *visible;                // the host's view of addr; NULL: it has none
};

struct plm_staging;

// No thread is started before the first chunk. NULL: no host memory.
struct plm_staging *plm_staging_create(struct plm_host *host, const struct plm_gguf *gguf,
                                       struct plm_device *device);
// Chunks that were not taken are dropped. NULL is allowed.
void plm_staging_destroy(struct plm_staging *staging);

bool plm_staging_is_full(const struct plm_staging *staging);
bool plm_staging_is_empty(const struct plm_staging *staging);
// Begins a chunk; not while it is full. NOMEM_HOST.
int plm_staging_put(struct plm_staging *staging, const struct plm_staging_chunk *chunk,
                    struct plm_error *err);
// Waits for the oldest chunk and brings it into the device; not while it is empty. What failed to
// be read fails here.
int plm_staging_take(struct plm_staging *staging, struct plm_staging_chunk *ret,
                     struct plm_error *err);

#endif
