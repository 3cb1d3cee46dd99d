// SPDX-License-Identifier: Apache-2.0
// Forwards on the core's workspace, watched by the guard behind it: those of serving, and dummies
// of any shape over whatever blocks the pool has.
#include "core/engine/forward.h"

#include <string.h>

#include "core/base/checked.h"

// ---- the guard ----

#define GUARD_BYTE 0xA5 // neither zero nor a likely byte of a float
// What results hold in the guard's place until they come. No likely byte either, so that a guard
// that a kernel wrote to is not taken for one that did not come.
#define UNWRITTEN_BYTE 0x5C

static bool is_all(const void *bytes, unsigned char byte)
{
    unsigned char all[PLM_COST_GUARD_BYTES];
    memset(all, byte, sizeof(all));
    return memcmp(bytes, all, sizeof(all)) == 0;
}

static const char *guard_of_results(const struct plm_run *run)
{
    return (const char *)run->results + run->guard_at;
}

static int read_guard(struct plm_core *core, const struct plm_run *run, int64_t *ret_used_bytes)
{
    unsigned char guard[PLM_COST_GUARD_BYTES];
    int r = PLM_OK;
    if (run->results != NULL)
        memcpy(guard, guard_of_results(run), sizeof(guard));
    else
        r = plm_device_copy_out(core->rank.device, guard, run->out.guard, sizeof(guard));
    int64_t over = is_all(guard, GUARD_BYTE) ? 0 : PLM_COST_GUARD_BYTES;
    while (r == PLM_OK && over > 0 && guard[over - 1] == GUARD_BYTE)
        over--;
    if (r == PLM_OK)
        *ret_used_bytes = run->cost + over;
    return r;
}

// ---- forwards ----

void plm_core_drop_ballast(struct plm_core *core)
{
    plm_arena_destroy(core->rank.ballast);
    core->rank.ballast = NULL;
}

// A step is idempotent: its writes are addressed by position. So where a submit of serving finds no
// room, the ballast makes it, and the same list goes out once more. During the start a refusal is a
// finding, not a mishap.
static int submit(struct plm_core *core, bool ahead, uint64_t *ret_value)
{
    int r = plm_device_submit(core->rank.device, ret_value);
    if (r != PLM_ERR_OUT_OF_DEVICE || ahead || !plm_device_sealed(core->rank.device))
        return r;
    core->resubmits++;
    plm_core_drop_ballast(core);
    return plm_device_submit(core->rank.device, ret_value);
}

// Three result buffers: the step being submitted, the step running, and the step whose tokens it
// reads.
#define RESULTS 3

void plm_core_drop_results(struct plm_core *core)
{
    plm_device_free(core->rank.device, &core->rank.results);
}

int plm_core_take_results(struct plm_core *core, const struct plm_shape *worst)
{
    plm_core_drop_results(core);
    if (!plm_model_runs_ahead(core->model))
        return PLM_OK;
    const uint64_t bytes = RESULTS * plm_model_results_bytes(core->model, worst);
    const int r = plm_device_alloc(core->rank.device, PLM_SLAB_PINNED, bytes, &core->rank.results);
    if (r == PLM_OK && core->rank.results.host != NULL)
        memset(core->rank.results.host, 0, bytes);
    return r;
}

// The part of the results that this forward writes, if it leaves any.
static void choose_results(struct plm_core *core, const struct plm_forward *forward,
                           struct plm_run *run)
{
    const struct plm_shape *s = &forward->shape;
    // Records and guard are copied as one, with nothing between them.
    if (core->rank.results.host == NULL || s->logits_rows == 0 || forward->reserve > 0 ||
        (forward->flags & PLM_FORWARD_SKIP_HEAD) != 0)
        return;
    const uint64_t at = core->rank.results_next * (core->rank.results.bytes / RESULTS);
    core->rank.results_next = (core->rank.results_next + 1) % RESULTS;
    run->results_addr = core->rank.results.addr + at;
    run->results = (const void *)((const char *)core->rank.results.host + at);
    run->guard_at = plm_model_results_bytes(core->model, s) - PLM_COST_GUARD_BYTES;
    // Results that never arrive must be noticed: until they do, every row counts as wrong and the
    // guard is missing. The token is a valid one, since a chained step may read it before the host
    // looks. On a device that computes nothing, the records are those of a step without fault.
    const bool computes = !plm_device_caps(core->rank.device)->addresses_only;
    struct plm_argmax_record *records = (void *)((char *)core->rank.results.host + at);
    memset(records, 0, run->guard_at);
    for (uint32_t i = 0; i < s->logits_rows; i++)
        records[i].n_wrong = computes;
    memset((char *)records + run->guard_at, computes ? UNWRITTEN_BYTE : GUARD_BYTE,
           PLM_COST_GUARD_BYTES);
}

int plm_core_submit(struct plm_core *core, const struct plm_forward *forward, struct plm_run *ret)
{
    struct plm_forward with = *forward;
    struct plm_run run = {.start_ns = plm_now(core->clock),
                          .cost = plm_cost(plm_model_cost_table(core->model), &forward->shape) +
                                  (int64_t)forward->reserve};
    choose_results(core, forward, &run);
    unsigned char guard[PLM_COST_GUARD_BYTES];
    memset(guard, GUARD_BYTE, sizeof(guard));
    with.guard = guard;
    with.results = run.results_addr;
    core->logits_at = 0;
    int r = plm_model_forward(core->model, core->rank.device, &with, &run.out);
    if (r == PLM_OK && (forward->flags & PLM_FORWARD_CAPTURE) != 0)
        r = plm_device_capture(core->rank.device);
    if (r == PLM_OK)
        r = submit(core, forward->chained != 0, &run.value);
    if (r != PLM_OK)
        plm_device_discard(core->rank.device); // the next forward must not run what is left of it
    *ret = run;
    return r;
}

int plm_core_wait(struct plm_core *core, const struct plm_run *run, int64_t *ret_used_bytes)
{
    // While serving, the watchdog sets the limit; before READY the device's patience does (core.c).
    const int64_t limit_ms = core->serving ? (int64_t)core->opts.watchdog_ms : 0;
    int r = plm_device_wait(core->rank.device, run->value, limit_ms > 0 ? limit_ms * 1000000 : -1);
    const int64_t now = plm_now(core->clock);
    // A forward that was submitted while another ran began when the other one ended.
    core->forward_ns = now - plm_max_i64(run->start_ns, core->ended_ns);
    core->ended_ns = now;
    if (r == PLM_OK && run->results != NULL && is_all(guard_of_results(run), UNWRITTEN_BYTE)) {
        plm_logf(&core->log, PLM_LOG_ERROR, "a step has ended, but its results did not come");
        return PLM_ERR_LOST; // nothing that such a device reports can be trusted
    }
    if (r == PLM_OK && ret_used_bytes != NULL)
        r = read_guard(core, run, ret_used_bytes);
    return r;
}

// ---- logits and records ----

const float *plm_core_logits(struct plm_core *core, uint64_t logits, uint32_t i)
{
    uint64_t bytes = 4ull * plm_model_facts(core->model)->n_vocab;
    uint64_t addr = logits + bytes * i;
    const float *host = plm_arena_host(core->rank.workspace, addr);
    if (host != NULL)
        return host;
    // A step of one sequence reads its row twice: to check that it is finite, and to sample.
    if (core->logits_row != NULL && core->logits_at == addr)
        return core->logits_row;
    core->logits_at = 0;
    if (core->logits_row == NULL ||
        plm_device_copy_out(core->rank.device, core->logits_row, addr, bytes) != PLM_OK)
        return NULL;
    core->logits_at = addr;
    return core->logits_row;
}

const struct plm_argmax_record *plm_core_best(struct plm_core *core, const struct plm_run *run,
                                              uint32_t rows)
{
    if (run->results != NULL)
        return run->results;
    const struct plm_argmax_record *host = plm_arena_host(core->rank.workspace, run->out.best);
    if (host != NULL)
        return host;
    if (core->best == NULL || plm_device_copy_out(core->rank.device, core->best, run->out.best,
                                                  rows * sizeof(*core->best)) != PLM_OK)
        return NULL;
    return core->best;
}

// ---- dummy steps ----

// Host arrays of one, in one allocation.
struct dummy {
    int32_t *tokens, *pos, *seq, *logits_rows;
    uint64_t *slots[PLM_KV_GROUPS_MAX], *tables[PLM_KV_GROUPS_MAX];
    struct plm_sample_row *sampling;
    uint32_t stride;
};

static void *dummy_alloc(struct plm_core *core, const struct plm_shape *s, struct dummy *ret)
{
    uint64_t stride = plm_div_ceil(s->ctx, PLM_KV_BLOCK_TOKENS);
    uint64_t words = (s->rows + s->seqs * stride) * core->kv.n_groups;
    char *at = plm_calloc(core->host, PLM_HOST_OTHER, 1,
                          words * 8 + sizeof(*ret->sampling) * s->logits_rows + 12ull * s->rows +
                              4ull * s->logits_rows);
    if (at == NULL)
        return NULL;
    ret->stride = (uint32_t)stride;
    uint64_t *addrs = (uint64_t *)(void *)at;
    for (uint32_t g = 0; g < core->kv.n_groups; g++) {
        ret->slots[g] = addrs;
        ret->tables[g] = addrs += s->rows;
        addrs += s->seqs * stride;
    }
    ret->sampling = (struct plm_sample_row *)(void *)(at + words * 8);
    ret->tokens = (int32_t *)(void *)(ret->sampling + s->logits_rows);
    ret->pos = ret->tokens + s->rows;
    ret->seq = ret->pos + s->rows;
    ret->logits_rows = ret->seq + s->rows;
    return at;
}

// Spreads the rows over the sequences as struct plm_stress_step says. Blocks are dealt in turn and
// repeat where the pool has fewer than the tables name.
static void dummy_fill(struct plm_core *core, const struct plm_stress_step *step, struct dummy *d)
{
    const struct plm_shape *s = &step->shape;
    const uint32_t n_vocab = plm_model_facts(core->model)->n_vocab;
    for (uint32_t g = 0; g < core->kv.n_groups; g++) {
        const struct plm_kv_pool *pool = core->kv.pools[g];
        const uint32_t total = plm_kv_pool_total(pool);
        for (uint64_t i = 0; i < (uint64_t)s->seqs * d->stride; i++)
            d->tables[g][i] = plm_kv_pool_addr(pool, (uint32_t)(i % total));
    }
    uint32_t row = 0;
    for (uint32_t q = 0; q < s->seqs; q++) {
        uint32_t n = 1;
        if (step->flags & PLM_STRESS_EVEN)
            n = s->rows / s->seqs + (q < s->rows % s->seqs);
        else if (q == 0)
            n = s->rows - (s->seqs - 1);
        for (uint32_t i = 0; i < n; i++, row++) {
            uint32_t pos = s->ctx - n + i;
            d->tokens[row] = (int32_t)(row % n_vocab);
            d->pos[row] = (int32_t)pos;
            d->seq[row] = (int32_t)q;
            for (uint32_t g = 0; g < core->kv.n_groups; g++)
                d->slots[g][row] =
                    d->tables[g][(uint64_t)q * d->stride + pos / PLM_KV_BLOCK_TOKENS];
        }
    }
    for (uint32_t i = 0; i < s->logits_rows; i++) {
        d->logits_rows[i] = (int32_t)(s->rows - s->logits_rows + i);
        d->sampling[i] = (struct plm_sample_row){
            .u = (uint64_t)i << 32, .scale = 1.0f, .cut = PLM_SAMPLE_NO_CUT, .top_p = 0.9f};
    }
}

int plm_core_dummy_step(struct plm_core *core, const struct plm_stress_step *step, unsigned flags,
                        const struct plm_tuner *tuner, struct plm_forward_out *ret,
                        struct plm_error *err)
{
    struct dummy d;
    struct plm_run run;
    void *memory = dummy_alloc(core, &step->shape, &d);
    if (memory == NULL)
        return plm_fail(err, PLM_ERR_NOMEM_HOST, "no host memory for a dummy step");
    dummy_fill(core, step, &d);
    const bool samples = plm_model_samples(core->model);
    const bool chained = (flags & PLM_FORWARD_CHAINED) != 0;
    if (chained) // every row takes the token of the first record
        memset(d.tokens, 0, step->shape.rows * sizeof(*d.tokens));
    struct plm_forward forward = {.shape = step->shape,
                                  .flags = flags,
                                  .workspace = core->rank.workspace_addr,
                                  .tokens = d.tokens,
                                  .pos = d.pos,
                                  .seq = d.seq,
                                  .table_stride = d.stride,
                                  .logits_rows = d.logits_rows,
                                  .sampling = samples ? d.sampling : NULL,
                                  .tuner = tuner,
                                  .chained = chained ? core->rank.results.addr : 0,
                                  .source_rows = d.tokens};
    for (uint32_t g = 0; g < core->kv.n_groups; g++) {
        forward.slots[g] = d.slots[g];
        forward.tables[g] = d.tables[g];
    }
    int r = plm_core_submit(core, &forward, &run);
    if (r == PLM_OK)
        r = plm_core_wait(core, &run, NULL);
    *ret = run.out;
    plm_free(core->host, memory);
    return r == PLM_OK
               ? r
               : plm_fail(err, r, "a forward of %u rows and %u sequences at context %u failed: %s",
                          step->shape.rows, step->shape.seqs, step->shape.ctx, plm_strstatus(r));
}
