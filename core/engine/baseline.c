// SPDX-License-Identifier: Apache-2.0
// The step-time baseline: what steps of each width take on the proved pool, with little and with
// much to attend to. It is what steps of serving are held against.
#include "core/engine/baseline.h"

#include "core/base/checked.h"
#include "core/engine/forward.h"

#define NEAR_CONTEXT 64 // tokens: next to nothing to attend to
// Rows x context of the longer ones: 32 GiB of KV for a model of 8 B parameters, 10 ms on an H100;
// but a few times the shorter context. Beyond it time grows as it did up to there, since attention
// is linear in it; so far that noise in both times does not grow to what is looked for.
#define FAR_WORK  (INT64_C(1) << 18)
#define FAR_TIMES 8

static uint64_t attended(const struct plm_shape *s)
{
    const uint64_t n = s->rows / s->seqs; // of each sequence; the last one ends its context
    return s->seqs * (n * s->ctx - n * (n - 1) / 2);
}

// One step of this width at this context: the faster of two.
static bool time_step(struct plm_core *core, uint32_t rows, uint32_t ctx, int64_t *ret_ns,
                      uint64_t *ret_attended)
{
    const uint32_t seqs = rows < core->worst.seqs ? rows : core->worst.seqs;
    const struct plm_stress_step step = {
        .flags = PLM_STRESS_EVEN,
        .shape = {.rows = rows, .seqs = seqs, .logits_rows = seqs, .ctx = ctx}};
    struct plm_forward_out out;
    *ret_ns = INT64_MAX;
    *ret_attended = attended(&step.shape);
    for (int i = 0; i < 2; i++) {
        if (plm_core_dummy_step(core, &step, 0, NULL, &out, NULL) != PLM_OK)
            return false;
        *ret_ns = plm_min_i64(*ret_ns, core->forward_ns);
    }
    return true;
}

// What can not be timed is not watched; what it means for the start, others say.
void plm_core_take_baseline(struct plm_core *core)
{
    const struct plm_shape *worst = &core->worst;
    struct plm_baseline *baseline = &core->baseline;
    baseline->n = 0;
    for (uint32_t rows = 1; baseline->n < PLM_BASELINE_WIDTHS; rows *= 4) {
        struct plm_baseline_width *w = &baseline->widths[baseline->n];
        w->rows = rows < worst->rows ? rows : worst->rows;
        const uint32_t seqs = w->rows < worst->seqs ? w->rows : worst->seqs;
        const uint32_t least = (uint32_t)plm_div_ceil(w->rows, seqs);
        if (least > worst->ctx)
            return;
        const uint32_t near = (uint32_t)plm_clamp_i64(NEAR_CONTEXT, least, worst->ctx);
        const int64_t wish = plm_max_i64(FAR_WORK / w->rows, FAR_TIMES * (int64_t)near);
        const uint32_t far = (uint32_t)plm_min_i64(wish, worst->ctx);
        if (!time_step(core, w->rows, near, &w->near_ns, &w->near_attended) ||
            !time_step(core, w->rows, far, &w->far_ns, &w->far_attended))
            return;
        baseline->n++;
        if (w->rows == worst->rows)
            return;
    }
}

int64_t plm_baseline_ns(const struct plm_baseline *baseline, uint32_t rows, uint64_t attends)
{
    uint32_t i = 0;
    while (i < baseline->n && baseline->widths[i].rows < rows)
        i++;
    if (i == baseline->n)
        return 0;
    const struct plm_baseline_width *w = &baseline->widths[i];
    if (attends > FAR_TIMES * w->far_attended)
        return 0;
    if (attends <= w->near_attended || w->far_attended == w->near_attended ||
        w->far_ns <= w->near_ns)
        return w->near_ns;
    return w->near_ns +
           (int64_t)((double)(w->far_ns - w->near_ns) * (double)(attends - w->near_attended) /
                     (double)(w->far_attended - w->near_attended));
}
