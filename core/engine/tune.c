// SPDX-License-Identifier: Apache-2.0
// Autotune: dummy steps in which every product and the attention are timed in each variant that the
// device has, and the fastest one is chosen. Variants of an op give the same bits and take the same
// memory, so neither a text nor the plan moves with what is chosen.
//
// The head is left out of the steps with many rows, for which no [rows, vocabulary] buffer exists;
// it is tuned on its own, in a step of as many rows as serving has logits rows.
#include "core/engine/tune.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/engine/forward.h"
#include "core/engine/load.h"
#include "core/engine/stress.h"
#include "core/engine/window_pools.h"

// Time of all timing of a cold start. What is not reached runs as it would untuned.
#define BUDGET_NS INT64_C(250000000)
// A chunk of a prompt: long enough to walk as the longest does, short enough to be timed.
#define CHUNK_ROWS 128u
#define CONTEXT    256u // tokens before which attention looks back
#define BLOCKS     16u  // of KV, which the tables repeat
// Of so many runs the shortest counts: what else the machine does makes a run longer, never
// shorter.
#define RUNS 3
// Runs below it are repeated within a list, so that starting the list does not show.
#define SHORT_NS INT64_C(200000)
#define REPEATS  8
// In percent: what is not faster by as much is noise, and the first variant stays.
#define GAIN_PERCENT 4

// One start's work.
struct run {
    struct plm_core *core;
    const struct plm_tuning *known; // NULL: nothing that fits
    int64_t deadline;
    uint32_t timed, changed;                  // ops that were timed, and that are not variant 0
    bool late;                                // some were not reached before the deadline
    char in_hand[PLM_TUNING_NAME_BYTES + 32]; // op and variant that are timed
};

static void make_key(const struct plm_core *core, struct plm_tuning_key *ret)
{
    const struct plm_caps *caps = plm_device_caps(core->rank.device);
    snprintf(ret->build, sizeof(ret->build), "%s %s", plim_version(), plim_build_info());
    snprintf(ret->device_uuid, sizeof(ret->device_uuid), "%s", caps->uuid);
    snprintf(ret->isa, sizeof(ret->isa), "%s", caps->isa);
}

// ---- timing ----

static int launch(struct plm_core *core, enum plm_op op, const void *args)
{
    int r = op == PLM_OP_MATMUL ? plm_launch_matmul(core->rank.device, args)
                                : plm_launch_attention(core->rank.device, args);
    return r == PLM_OK ? plm_device_barrier(core->rank.device) : r;
}

static int time_once(struct plm_core *core, enum plm_op op, const void *args, int repeats,
                     int64_t *ret_ns)
{
    int r = PLM_OK;
    for (int i = 0; i < repeats && r == PLM_OK; i++)
        r = launch(core, op, args);
    const int64_t from = plm_now(core->clock);
    r = plm_device_run(core->rank.device, r);
    *ret_ns = (plm_now(core->clock) - from) / repeats;
    return r;
}

static int time_variant(struct plm_core *core, enum plm_op op, const void *args, uint32_t index,
                        int64_t *ret_ns)
{
    int64_t ns, best = INT64_MAX;
    int r = plm_device_choose(core->rank.device, op, args, index);
    if (r == PLM_OK)
        r = time_once(core, op, args, 1, &ns); // loads weights and code into the caches
    const int repeats = r == PLM_OK && ns < SHORT_NS ? REPEATS : 1;
    for (int i = 0; i < RUNS && r == PLM_OK; i++) {
        r = time_once(core, op, args, repeats, &ns);
        best = plm_min_i64(best, ns);
    }
    *ret_ns = best;
    return r;
}

// The fastest of n variants; 0 where time runs out, and where the clock of a simulation stands
// still and tells nothing. None is chosen afterwards.
static int time_all(struct run *run, enum plm_op op, const void *args, uint32_t n,
                    uint32_t *ret_best, bool *ret_complete)
{
    struct plm_core *core = run->core;
    int64_t first = 0, best_ns = 0, once;
    *ret_best = 0;
    *ret_complete = true;
    int r = time_once(core, op, args, 1, &once);
    if (r != PLM_OK || once <= 0)
        return r;
    for (uint32_t i = 0; i < n; i++) {
        int64_t ns;
        if (plm_now(core->clock) >= run->deadline) {
            *ret_best = 0;
            *ret_complete = false;
            return PLM_OK;
        }
        r = time_variant(core, op, args, i, &ns);
        if (r != PLM_OK)
            return r;
        if (i == 0)
            first = best_ns = ns;
        // Divided first: a clock may have jumped by any amount.
        if (ns < best_ns && ns < first - first / 100 * GAIN_PERCENT) {
            best_ns = ns;
            *ret_best = i;
        }
    }
    return PLM_OK;
}

// ---- choosing ----

static uint32_t index_of(const struct plm_core *core, enum plm_op op, uint32_t n,
                         const char *variant)
{
    for (uint32_t i = 0; variant != NULL && i < n; i++) {
        const char *name = plm_device_variant_name(core->rank.device, op, i);
        if (name != NULL && strcmp(name, variant) == 0)
            return i;
    }
    return n;
}

static int choose(struct run *run, enum plm_op op, const void *args, const char *name,
                  uint32_t index)
{
    struct plm_tune *tune = run->core->tune;
    const char *variant = plm_device_variant_name(run->core->rank.device, op, index);
    int r = plm_device_choose(run->core->rank.device, op, args, index);
    if (r == PLM_ERR_LIMIT)
        return PLM_OK; // as many as the device keeps: this op stays as it is
    if (r != PLM_OK || variant == NULL || tune->found.n == PLM_TUNING_ENTRIES_MAX)
        return r;
    const uint32_t i = tune->found.n++;
    snprintf(tune->found.entries[i].name, sizeof(tune->found.entries[i].name), "%s", name);
    snprintf(tune->found.entries[i].variant, sizeof(tune->found.entries[i].variant), "%s", variant);
    tune->made[i].op = op;
    tune->made[i].index = index;
    if (op == PLM_OP_MATMUL)
        tune->made[i].args.matmul = *(const struct plm_matmul_args *)args;
    else
        tune->made[i].args.attention = *(const struct plm_attention_args *)args;
    run->changed += index != 0;
    return PLM_OK;
}

static int tune_op(struct run *run, enum plm_op op, const void *args, uint32_t n, const char *name)
{
    uint32_t best =
        run->known != NULL ? index_of(run->core, op, n, plm_tuning_find(run->known, name)) : n;
    bool complete = true;
    if (best == n) {
        if (plm_now(run->core->clock) >= run->deadline) {
            run->late = true;
            return PLM_OK;
        }
        // What the op reads was appended before it.
        int r = plm_device_run(run->core->rank.device, PLM_OK);
        if (r == PLM_OK)
            r = time_all(run, op, args, n, &best, &complete);
        if (r != PLM_OK)
            return r;
        run->timed += complete;
        run->late = run->late || !complete;
    }
    if (!complete)
        return plm_device_choose(run->core->rank.device, op, args, 0);
    return choose(run, op, args, name, best);
}

static int offer(void *ctx, enum plm_op op, const void *args)
{
    struct run *run = ctx;
    char name[PLM_TUNING_NAME_BYTES];
    const uint32_t n = plm_device_variants(run->core->rank.device, op, args, name);
    snprintf(run->in_hand, sizeof(run->in_hand), "%s", name);
    int r = PLM_OK;
    if (n > 1 && plm_tuning_find(&run->core->tune->found, name) == NULL)
        r = tune_op(run, op, args, n, name);
    // Once more as a part of the step, so that what comes after it reads what it is meant to.
    return r == PLM_OK ? launch(run->core, op, args) : r;
}

// ---- dummy steps ----

static int run_steps(struct run *run, const struct plm_plan_limits *limits, struct plm_error *err)
{
    const struct plm_tuner tuner = {.ctx = run, .offer = offer};
    const uint32_t seqs = limits->max_sequences, ctx = limits->max_context;
    const uint32_t rows = plm_limits_shape(limits).rows;
    // What decodes wait for comes first, should time run out. In the steps with a head everything
    // before it is known already.
    const struct {
        struct plm_shape shape;
        unsigned flags;
    } steps[] = {
        {{.rows = 1, .seqs = 1, .ctx = ctx}, PLM_FORWARD_SKIP_HEAD},
        {{.rows = 1, .seqs = 1, .logits_rows = 1, .ctx = ctx}, 0},
        {{.rows = seqs, .seqs = seqs, .ctx = ctx}, PLM_FORWARD_SKIP_HEAD},
        {{.rows = seqs, .seqs = seqs, .logits_rows = seqs, .ctx = ctx}, 0},
        {{.rows = rows < ctx ? rows : ctx, .seqs = 1, .ctx = ctx}, PLM_FORWARD_SKIP_HEAD},
    };
    int r = PLM_OK;
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]) && r == PLM_OK; i++) {
        const struct plm_stress_step step = {.shape = steps[i].shape};
        struct plm_forward_out out;
        r = plm_core_dummy_step(run->core, &step,
                                steps[i].flags | PLM_FORWARD_TUNING | PLM_FORWARD_FEW_LAYERS,
                                &tuner, &out, err);
    }
    return r;
}

static int take_memory(struct plm_core *core, const struct plm_stress_ops *ops,
                       const struct plm_plan_limits *limits)
{
    uint32_t blocks;
    int64_t failed;
    int r = ops->set_limits(core, limits);
    if (r == PLM_OK)
        r = ops->kv_format(core, BLOCKS, BLOCKS);
    return r == PLM_OK ? ops->kv_resize(core, BLOCKS, &blocks, &failed) : r;
}

static void give_memory_back(struct plm_core *core, const struct plm_stress_ops *ops)
{
    uint32_t blocks;
    int64_t failed;
    ops->kv_resize(core, 0, &blocks, &failed);
    plm_core_drop_windows(core);
    plm_arena_destroy(core->rank.workspace);
    core->rank.workspace = NULL;
}

// What the caller kept of an earlier start, if it holds for this one.
static const struct plm_tuning *read_known(struct plm_core *core, struct plm_tuning *into)
{
    struct plm_error why = {0};
    const char *field;
    if (core->opts.tuning == NULL || core->opts.tuning_len == 0)
        return NULL;
    if (plm_tuning_read(core->opts.tuning, core->opts.tuning_len, into, &why) != PLM_OK) {
        plm_logf(&core->log, PLM_LOG_WARN, "the tuning results are not usable: %s", why.msg);
        return NULL;
    }
    field = plm_tuning_differs(&into->key, &core->tune->found.key);
    if (field == NULL)
        return into;
    plm_logf(&core->log, PLM_LOG_INFO, "the tuning results are of another %s", field);
    return NULL;
}

static int tune(struct plm_core *core, struct plm_tuning *known, struct plm_error *err)
{
    const uint32_t trained = plm_model_facts(core->model)->n_ctx_train;
    const struct plm_plan_limits limits = {
        .batch_max_tokens =
            core->opts.batch_max_tokens < CHUNK_ROWS ? core->opts.batch_max_tokens : CHUNK_ROWS,
        .max_sequences = core->opts.max_sequences,
        .max_context = trained < CONTEXT ? trained : CONTEXT};
    const int64_t from = plm_now(core->clock);
    struct run run = {.core = core, .known = read_known(core, known)};
    struct plm_stress_ops ops;
    plm_core_stress_ops(core, &ops);
    plm_core_phase(core, PLM_PHASE_TUNE);
    core->stage = "tune";
    int r = take_memory(core, &ops, &limits);
    if (r != PLM_OK)
        plm_fail(err, r, "no memory for the tuning: %s", plm_strstatus(r));
    // Not counted: on a busy machine the pages alone may take longer.
    run.deadline = plm_now(core->clock) + BUDGET_NS;
    if (r == PLM_OK)
        r = run_steps(&run, &limits, err);
    give_memory_back(core, &ops);
    if (r == PLM_ERR_TIMEOUT) // what hangs in a dummy step would hang in the stress, too
        return plm_fail(err, r, "a variant of %s was timed", run.in_hand);
    if (r != PLM_OK) {
        plm_logf(&core->log, PLM_LOG_WARN, "autotune ended early: %s", plm_strstatus(r));
        return r == PLM_ERR_LOST || r == PLM_ERR_NOMEM_HOST ? r : PLM_OK;
    }
    plm_logf(&core->log, PLM_LOG_INFO,
             "autotune: %" PRIu32 " ops, %" PRIu32 " of them timed, %" PRIu32
             " not in their first variant, %.2f s%s",
             core->tune->found.n, run.timed, run.changed,
             (double)(plm_now(core->clock) - from) / 1e9,
             run.late ? "; the time ran out before others" : "");
    return PLM_OK;
}

int plm_core_tune(struct plm_core *core, struct plm_error *err)
{
    if (core->opts.autotune == 0 || !plm_device_caps(core->rank.device)->tunes)
        return PLM_OK;
    core->tune = plm_calloc(core->host, PLM_HOST_DEVICE, 1, sizeof(*core->tune));
    struct plm_tuning *known = plm_malloc(core->host, PLM_HOST_DEVICE, sizeof(*known));
    int r = core->tune != NULL && known != NULL
                ? PLM_OK
                : plm_fail(err, PLM_ERR_NOMEM_HOST, "no host memory for tuning results");
    if (r == PLM_OK) {
        make_key(core, &core->tune->found.key);
        r = tune(core, known, err);
    }
    plm_free(core->host, known);
    return r;
}
