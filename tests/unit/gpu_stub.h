// SPDX-License-Identifier: Apache-2.0
// A GPU driver for tests of backends/gpudrv: host memory behind every address, a stream whose work
// runs when an event is asked for, and a script of what fails. It runs no kernels; it remembers
// which were launched.
#ifndef PLM_TESTS_GPU_STUB_H
#define PLM_TESTS_GPU_STUB_H

#include "backends/gpudrv/impl.h"

#define STUB_LAUNCHES 4096

struct stub_launch {
    const char *symbol;
    uint32_t grid, threads, args_bytes;
    unsigned char args[PLM_GPU_ARGS_MAX];
    bool early, replayed;
};

struct stub {
    // The script.
    struct plm_gpu_card cards[3];
    uint32_t n_cards;
    uint64_t capacity;        // of the card
    uint64_t map_granularity; // of mapped memory
    const char *fail_at;      // the driver's function that fails, or NULL: any
    uint64_t fail_nth;        // the first call of it that does, from 1; 0: none
    uint64_t fail_times;      // calls in a row that do
    plm_gpu_r fail_with;
    uint64_t not_ready;    // so often an event is not reached yet
    uint64_t foreign[4];   // taken by others at the next readings, the last of them from then on
    uint64_t late;         // readings in which memory that is freed is still counted
    const char *bad_image; // that is corrupt
    const char *no_symbol; // that no image has
    const char *local;     // the kernel that takes local memory
    // The account.
    uint64_t calls;        // of fail_at
    int64_t live;          // objects and memory that were not given back
    int64_t maps;          // of them mapped memory
    uint64_t device_bytes; // taken
    uint64_t queries, settles, readings, copies_in;
    uint64_t late_bytes, late_left; // freed and still counted, in so many readings to come
    uint32_t n_launches;            // that ran
    struct stub_launch launches[STUB_LAUNCHES];
};

extern struct stub stub;
extern struct plm_gpu_driver stub_driver;

// One good card, nothing fails. Before the first use.
void stub_reset(void);

#endif
