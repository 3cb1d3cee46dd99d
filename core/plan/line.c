// SPDX-License-Identifier: Apache-2.0
#include "core/plan/line.h"

#include "core/base/checked.h"
#include "core/plan/profile_impl.h"

#define DOUBTS     3  // readings that may lag behind a resize of ours
#define DOUBTS_MAX 60 // where they always did
#define EATEN_MAX  6  // doublings of what a hungry neighbour gets
#define FLAP_AGE   10 // readings within which a loosening that is taken back was a mistake
#define NEVER      UINT32_MAX

// Bytes that are not worth a move: a quarter of the margin, and what the device can show at all.
static int64_t slack(const struct plm_line *line)
{
    return plm_max_i64(line->plan->in.g, line->plan->margin / 4);
}

void plm_line_init(struct plm_line *line, const struct plm_plan *plan, bool yields,
                   uint64_t kv_min_bytes)
{
    // One whole request; with a window the others give way to it, so their number does not count.
    int64_t least = plm_plan_request_blocks(&plan->in);
    if (plm_plan_main_window(&plan->in) == 0)
        least = plm_max_i64(least, (int64_t)plan->in.limits.max_sequences);
    // In 64 bits as they come: a wish beyond the plan means all of it.
    uint64_t wish = plm_div_ceil(kv_min_bytes, (uint64_t)plan->in.block_bytes);
    if (wish > (uint64_t)plan->blocks)
        wish = (uint64_t)plan->blocks;
    *line = (struct plm_line){.plan = plan,
                              .yields = yields,
                              .floor = plm_min_i64(plan->blocks, plm_max_i64(least, (int64_t)wish)),
                              .target = plan->blocks,
                              .needed = PLM_LINE_STABLE,
                              .age = NEVER,
                              .doubts = DOUBTS};
}

// ---- what a reading is worth ----

static bool possible(const struct plm_line *line, const struct plm_stress_reading *r)
{
    const struct plm_plan_input *in = &line->plan->in;
    // 0 of 0, or another device's figure; more free than there is beside our own slabs; a process
    // that uses the whole device and more than we know of, which is what an underflow is cut to.
    // Below 0 is what a budget below our own slabs leaves.
    return r->T > 0 && r->T - in->T < slack(line) && in->T - r->T < slack(line) && r->F >= -r->T &&
           r->F <= r->T - r->O + slack(line) &&
           (r->process_use < r->T || r->process_use <= r->O + line->plan->own_drv + slack(line));
}

// Whether the reading is of this moment. One that is the same to the byte although we took or gave
// slabs meanwhile is older than that, or a neighbour took just as much: time tells.
static bool fresh(struct plm_line *line, const struct plm_stress_reading *r)
{
    const int64_t ours = r->O - line->last.O, g = line->plan->in.g;
    if (!line->any || (ours > -g && ours < g))
        return true;
    if (r->F != line->last.F || r->F == 0) {
        line->unmoved = 0;
        line->doubts = DOUBTS;
        return true;
    }
    if (++line->unmoved <= line->doubts)
        return false;
    line->unmoved = 0;
    line->doubts = line->doubts * 2 < DOUBTS_MAX ? line->doubts * 2 : DOUBTS_MAX;
    return true;
}

// Bytes that the formula leaves for the KV cache; false where the reading can not be.
static bool budget_of(const struct plm_line *line, const struct plm_stress_reading *r,
                      int64_t *ret_budget)
{
    struct plm_plan_input in = line->plan->in;
    struct plm_plan now;
    if (!possible(line, r))
        return false;
    plm_loop_put_reading(&in, r);
    if (plm_plan_compute(&in, &now, NULL) != PLM_OK)
        return false;
    *ret_budget = now.budget;
    return true;
}

static int64_t fit(const struct plm_line *line, int64_t budget)
{
    return plm_min_i64(line->plan->blocks, plm_slab_fit(&line->plan->slabs, budget));
}

int64_t plm_line_fit(const struct plm_line *line, const struct plm_stress_reading *reading)
{
    int64_t budget;
    return budget_of(line, reading, &budget) ? fit(line, budget) : -1;
}

// ---- what follows from it ----

static void wait_longer(struct plm_line *line)
{
    line->needed = line->needed * 2 < PLM_LINE_STABLE_MAX ? line->needed * 2 : PLM_LINE_STABLE_MAX;
}

static void tighten(struct plm_line *line, int64_t blocks)
{
    const int64_t target = plm_max_i64(line->floor, plm_min_i64(line->target, blocks));
    if (target == line->target)
        return;
    line->target = target;
    if (line->age < FLAP_AGE)
        wait_longer(line);
    line->age = NEVER;
}

// Free memory can not tell how much more a neighbour wants than there is. One who eats what it is
// given gets twice as much each time; what was too much comes back by loosening.
static int64_t hunger(const struct plm_line *line)
{
    return (INT64_C(1) << plm_min_i64(line->eaten, EATEN_MAX)) - 1;
}

static void loosen(struct plm_line *line, int64_t budget)
{
    // All of the plan was proven as it is; a part of it keeps its distance.
    int64_t blocks = fit(line, budget);
    if (blocks < line->plan->blocks)
        blocks = fit(line, budget - slack(line));
    if (blocks <= line->target)
        return;
    line->target = blocks;
    line->age = 0;
}

void plm_line_follow(struct plm_line *line, const struct plm_stress_reading *r)
{
    int64_t budget;
    if (!budget_of(line, r, &budget) || !fresh(line, r)) {
        line->stable = 0;
        return;
    }
    const bool gave = line->any && r->K <= line->last.K - line->plan->in.g;
    line->last = *r;
    line->any = true;
    if (line->age < FLAP_AGE && ++line->age == FLAP_AGE)
        line->needed = PLM_LINE_STABLE; // it was right
    const int64_t drift = budget - line->run_budget;
    if (line->stable == 0 || drift >= slack(line) || -drift >= slack(line)) {
        line->run_budget = budget;
        line->stable = 0;
    }
    line->stable++;
    const int64_t deficit = r->K - budget;
    line->over = deficit > slack(line) ? line->over + 1 : 0;
    line->eaten = line->over > 0 ? line->eaten + gave : 0;
    line->urgent = line->over > 1 || (line->over > 0 && deficit > line->plan->margin / 2);
    if (line->over > 0 && line->yields)
        tighten(line, fit(line, budget - deficit * hunger(line)));
    else if (line->stable >= line->needed)
        loosen(line, budget);
}

void plm_line_restart(struct plm_line *line, int64_t blocks)
{
    line->target = plm_clamp_i64(blocks, 0, line->plan->blocks);
    line->any = line->urgent = false;
    line->stable = line->over = line->eaten = line->unmoved = 0;
}

void plm_line_settle(struct plm_line *line, int64_t blocks)
{
    line->target = plm_clamp_i64(blocks, 0, line->plan->blocks);
    line->stable = 0;
    wait_longer(line);
}

void plm_line_press(struct plm_line *line, int64_t blocks)
{
    if (line->yields)
        tighten(line, blocks);
    line->stable = 0;
}

int64_t plm_line_size(const struct plm_line *line, int64_t blocks)
{
    const int64_t slab = line->plan->slabs.slab_blocks;
    if (blocks < line->target) {
        // The last slab of the plan may be a short one, no other.
        const int64_t whole = blocks / slab * slab;
        const int64_t next = plm_min_i64(line->plan->blocks, whole + slab);
        return next <= line->target ? next : blocks;
    }
    while (blocks > line->target) {
        const int64_t rest = blocks % slab;
        const int64_t next = blocks - (rest > 0 ? rest : slab);
        if (next < line->floor)
            break;
        blocks = next;
    }
    return blocks;
}
