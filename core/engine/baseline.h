// SPDX-License-Identifier: Apache-2.0
// The step-time baseline: what steps took when the plan was proved, by width: with little to attend
// to, and with much. Attended: positions that the rows of a step look at, summed.
#ifndef PLM_ENGINE_BASELINE_H
#define PLM_ENGINE_BASELINE_H

#include <stdint.h>

struct plm_core;

#define PLM_BASELINE_WIDTHS 12 // each four times the one before: up to 4 M rows
struct plm_baseline {
    struct plm_baseline_width {
        uint32_t rows;
        uint64_t near_attended, far_attended;
        int64_t near_ns, far_ns;
    } widths[PLM_BASELINE_WIDTHS]; // ascending
    uint32_t n;                    // 0: steps are not watched
};

// Times steps on the proved pool, into core->baseline. What can not be timed is not
// watched.
void plm_core_take_baseline(struct plm_core *core);
// What such a step took then. 0: nothing so wide or so long was timed, or nothing takes time here.
int64_t plm_baseline_ns(const struct plm_baseline *baseline, uint32_t rows, uint64_t attends);

#endif
