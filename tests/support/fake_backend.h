// SPDX-License-Identifier: Apache-2.0
// A device for unit tests: slabs of real host memory out of a capacity that the test sets, and
// failures on demand. It runs nothing.
#ifndef FAKE_BACKEND_H
#define FAKE_BACKEND_H

#include "core/device.h"

struct fake_world {
    uint64_t capacity_bytes;
    uint64_t granularity_bytes;
    uint64_t max_slab_bytes;
    uint32_t max_slabs;
    uint32_t align_bytes;
    bool no_memory;    // addresses only; nothing may touch them
    uint64_t fail_nth; // 1: the next alloc is refused; counts down
    // What happens:
    uint64_t taken_bytes;
    uint64_t allocs;
    uint64_t slabs;
    uint64_t next_addr;
};

extern const struct plm_backend fake_backend;

// Opens it; world (defaults for zero fields) outlives the device.
struct plm_device *fake_open(struct plm_host *host, struct fake_world *world);

#endif
