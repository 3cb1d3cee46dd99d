// SPDX-License-Identifier: Apache-2.0
// What follows ':' in the ids of cards, read without any driver: part of every build, so that an id
// is checked also where its backend is not built or its device not opened.
#ifndef PLM_SHARED_CARD_OPTS_H
#define PLM_SHARED_CARD_OPTS_H

#include <stdbool.h>
#include <stdint.h>

#include "backends/shared/which.h"

// ---- "cuda:WHICH,key=value", "hip:..." ----

// Keys:
//   graphs=on|off   replay lists that were captured at the start (on)
//   early=on|off    let kernels begin before their predecessor has ended, in steps of few rows (on)
//   elastic=on|off  map elastic slabs, so that their release waits for nothing (on)
//   spill=on|off    use a card whose driver may move memory to the host without an error (off)
struct plm_gpu_opts {
    struct plm_which which;
    bool graphs;
    bool early;
    bool elastic;
    bool spill;
};

void plm_gpu_opts_defaults(struct plm_gpu_opts *ret);
// backend: for messages, "cuda".
int plm_gpu_opts_parse(const char *backend, const char *text, struct plm_gpu_opts *ret,
                       struct plm_error *err);

// ---- "vulkan:WHICH,key=value" ----

// Keys:
//   math=f32|f16     arithmetic of float products; f16 is a numerics class of its own
//   dot=on|off       integer dot product instructions, where the driver has them (on)
//   coopmat=on|off   cooperative matrix, where the driver lists the shape (on)
//   kernels=auto|gpu gpu: what cards run also on a driver for the CPU, which has few of its own
//   (tests) host_visible=on|off  off: never map device memory, go through the rings (tests)
//   submit_ms=N      longest submit; 0: what the driver is known to tolerate
//   cache=FILE       pipeline cache, read at open and written after the warm-up
struct plm_vk_opts {
    struct plm_which which;
    bool f16_math;
    bool dot;
    bool coopmat;
    bool gpu_kernels;
    bool host_visible;
    uint32_t submit_ms;
    char cache_path[4096]; // "": none
};

void plm_vk_opts_defaults(struct plm_vk_opts *ret);
int plm_vk_opts_parse(const char *text, struct plm_vk_opts *ret, struct plm_error *err);

#endif
