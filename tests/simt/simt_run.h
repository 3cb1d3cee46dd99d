// SPDX-License-Identifier: Apache-2.0
// Runs kernels of kernels/*.cu on the host: each thread of a block is a fiber, barriers and
// exchanges within a warp are where fibers meet, and the order in which they run is drawn from a
// seed. What a kernel may not do, and what shows only on some cards, comes back as an error
// (README.md). Thread-safe; one launch runs at a time.
#ifndef PLM_TESTS_SIMT_RUN_H
#define PLM_TESTS_SIMT_RUN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SIMT_ERROR_BYTES 512

// An entry point as PLM_KERNEL declares it.
struct simt_kernel {
    const char *name;
    const char *args; // name of the argument struct
    uint32_t args_bytes;
    uint32_t threads; // of a block
    void (*enter)(const void *args);
    const struct simt_kernel *next;
};

// Bytes that may not be touched before plm_await: written by a kernel before, or results.
struct simt_range {
    void *at;
    uint64_t bytes;
};

struct simt_launch {
    const char *kernel;
    uint32_t grid[3];
    uint32_t threads; // of a block, what PLM_KERNEL says
    const void *args;
    size_t args_bytes;
    uint32_t width; // lanes of a wave: 32 or 64
    uint64_t seed;  // of the order of blocks, waves and lanes
    // Optional. In as many blocks as little time allows they hold garbage until every thread of the
    // block has called plm_await.
    const struct simt_range *guarded;
    size_t n_guarded;
};

// The entry point of that name, or NULL. Of several the one that was loaded last.
const struct simt_kernel *simt_find(const char *name);

// Runs all blocks. Returns 0, or 1 with a sentence in `ret_error`; memory is then as the kernel
// left it.
int simt_run(const struct simt_launch *launch, char ret_error[SIMT_ERROR_BYTES]);

#ifdef __cplusplus
}
#endif
#endif
