// SPDX-License-Identifier: Apache-2.0
// What a dispatch costs, and how a list is cut for a watchdog (split.c): pure.
#ifndef PLM_VULKAN_SPLIT_H
#define PLM_VULKAN_SPLIT_H

#include <stdbool.h>
#include <stdint.h>

#include "backends/vulkan/kernels.h"
#include "kernels/abi.h"

// What a dispatch costs, in bytes of memory traffic or what takes as long.
uint64_t plm_vk_work(enum plm_op op, const void *args);

// How much work one part of a list may hold under a watchdog of limit_ms (0: none).
struct plm_vk_pace {
    uint32_t limit_ms;
    bool measured;
    uint32_t faster; // lists in a row
    uint64_t rate;   // work per ms: of the slowest list lately
};
void plm_vk_pace_init(struct plm_vk_pace *pace, uint32_t limit_ms);
uint64_t plm_vk_pace_limit(const struct plm_vk_pace *pace);
// A list of so much work took so long.
void plm_vk_pace_learn(struct plm_vk_pace *pace, uint64_t work, uint32_t dispatches,
                       int64_t elapsed_ns);
// Parts that a list of so many dispatches may need.
uint32_t plm_vk_parts(uint32_t limit_ms, uint32_t max_dispatches);
// Most dispatches of one part.
uint32_t plm_vk_part_dispatches(uint32_t limit_ms, uint32_t max_dispatches);

// A list being cut: starts with its limit and zeros; returns the part that the next piece is in.
struct plm_vk_cut {
    uint64_t limit;
    uint64_t work; // of the last part
    uint32_t n;    // pieces of the last part
    uint32_t n_parts;
};
uint32_t plm_vk_cut_add(struct plm_vk_cut *cut, uint64_t work);

// A dispatch longer than the limit is cut over its grid.
struct plm_vk_piece {
    uint32_t index;
    struct plm_vk_grid base, size;
};
uint32_t plm_vk_pieces(uint64_t limit, uint64_t work, struct plm_vk_grid grid);
struct plm_vk_piece plm_vk_piece(struct plm_vk_grid grid, uint32_t pieces, uint32_t index);

#endif
