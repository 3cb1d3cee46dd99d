// SPDX-License-Identifier: Apache-2.0
// The load line among neighbours, after READY: how many blocks the KV cache should have now. Pure
// arithmetic from one reading of the device to the next, by the plan's own formula, so that what is
// checked at run time is what was planned.
//
// A reading may tighten the line at once. It loosens it only where several in a row agree, never
// beyond the plan, and none that can not be true counts at all. Between what tightens and what
// loosens lies a quarter of the margin on either side, and who loosened too early waits longer the
// next time: so a busy desktop does not make the cache breathe.
#ifndef PLM_PLAN_LINE_H
#define PLM_PLAN_LINE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/plan/plan.h"
#include "core/plan/profile.h"

#define PLM_LINE_STABLE     3  // readings that agree before the line is loosened; 3 s at 1 Hz
#define PLM_LINE_STABLE_MAX 60 // the longest that a flapping neighbour makes it wait

struct plm_line {
    const struct plm_plan *plan;
    bool yields;    // else: hold what there is, only stop growing
    int64_t floor;  // blocks that no neighbour gets
    int64_t target; // blocks that there should be, floor .. plan->blocks
    bool urgent;    // the margin is half gone, or this is not the first reading that finds so

    // What the last readings said.
    bool any;
    struct plm_stress_reading last;
    int64_t run_budget; // of the first of the readings that agree
    uint32_t stable;    // how many agree
    uint32_t needed;    // how many must
    uint32_t age;       // readings since the line was loosened; NEVER once it is tightened
    uint32_t over;      // readings in a row that found too little free
    uint32_t eaten;     // of them, those before which we had given something back
    uint32_t unmoved;   // readings in a row that do not show a resize of ours
    uint32_t doubts;    // how many of those are waited for
};

// The floor: the blocks of one request of the whole context and one for each sequence, or
// kv_min_bytes where that is more; at most the plan's. The line begins at the plan.
void plm_line_init(struct plm_line *line, const struct plm_plan *plan, bool yields,
                   uint64_t kv_min_bytes);
// The next reading, O and K of the same moment.
void plm_line_follow(struct plm_line *line, const struct plm_stress_reading *reading);
// The pool has `blocks` blocks for reasons of others: they are the target until readings from now
// on say otherwise.
void plm_line_restart(struct plm_line *line, int64_t blocks);
// The device gave no more than `blocks` although there seemed to be room: the same, and later.
void plm_line_settle(struct plm_line *line, int64_t blocks);
// What no reading tells: memory of ours was pushed out. Tightens the line to `blocks`, where it
// yields, and lets it not loosen until readings from now on agree that it may.
void plm_line_press(struct plm_line *line, int64_t blocks);
// The size that a pool of `blocks` blocks should have now in whole slabs; `blocks` where it is
// right.
int64_t plm_line_size(const struct plm_line *line, int64_t blocks);
// The most blocks that this reading leaves room for, at most the plan's; -1 where it can not be
// true.
int64_t plm_line_fit(const struct plm_line *line, const struct plm_stress_reading *reading);

#endif
