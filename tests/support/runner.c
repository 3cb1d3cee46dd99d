// SPDX-License-Identifier: Apache-2.0
#include "tests/support/runner.h"

#include <math.h>

#include "backends/cpu/cpu.h"
#include "core/base/checked.h"

#define ROWS_MAX 512 // of one step

struct runner {
    struct plm_host *host;
    struct plm_gguf *gguf;
    struct plm_model *model;
    struct plm_device *device;
    struct plm_ledger *ledger;
    struct plm_arena *weights;
    struct plm_arena *kv;
    struct plm_arena *work;
    uint64_t workspace;
    // Of the sequence in each group: addresses of its blocks, and behind them what a step is given.
    uint64_t *tables[PLM_KV_GROUPS_MAX];
    uint32_t n_blocks; // capacity
    uint32_t n_past;
    uint32_t n_vocab;
    uint64_t dispatches; // of the last step
};

static uint64_t fused_prefers;

static const struct plm_caps *fused_caps(const struct plm_backend_device *dev)
{
    static struct plm_caps caps;
    caps = *plm_cpu_backend.caps(dev);
    caps.prefers = fused_prefers;
    caps.few_rows = PLM_VULKAN_FEW_ROWS;
    return &caps;
}

const struct plm_backend *runner_fused_cpu(uint64_t prefers)
{
    static struct plm_backend backend;
    fused_prefers = prefers;
    backend = plm_cpu_backend;
    backend.caps = fused_caps;
    return &backend;
}

static int open_device(struct runner *r, const struct runner_opts *opts, struct plm_error *err)
{
    const struct plm_device_opts d = {
        .host = r->host,
        .clock = plm_clock_system(),
        .threads = opts->threads,
        .kernels = opts->reference ? PLM_KERNELS_REFERENCE : PLM_KERNELS_AUTO,
        .max_dispatches = plm_model_max_dispatches(r->model),
        .backend_opts = opts->backend_opts,
    };
    int s = opts->backend != NULL ? plm_device_open_backend(opts->backend, &d, &r->device, err)
                                  : plm_device_open(opts->device, &d, &r->device, err);
    if (s == PLM_OK)
        plm_model_specialize(r->model, plm_device_caps(r->device));
    return s;
}

static int load(struct runner *r, struct plm_error *err)
{
    struct plm_kernel_needs needs;
    plm_model_needs(r->model, &needs);
    int s = plm_model_load(r->model, r->device, r->weights, NULL, err);
    return s == PLM_OK ? plm_device_warm_up(r->device, &needs, err) : s;
}

static int take_blocks(struct runner *r, uint32_t g)
{
    const uint64_t block = plm_kv_block_bytes(&plm_model_facts(r->model)->groups[g]);
    int s = PLM_OK;
    r->tables[g] = plm_calloc(r->host, PLM_HOST_KV, 2ull * r->n_blocks, sizeof(*r->tables[g]));
    if (r->tables[g] == NULL)
        return PLM_ERR_NOMEM_HOST;
    for (uint32_t i = 0; s == PLM_OK && i < r->n_blocks; i++)
        s = plm_arena_alloc(r->kv, block, PLM_COST_ALIGN, &r->tables[g][i]);
    return s;
}

static int open_memory(struct runner *r, const struct runner_opts *opts, struct plm_error *err)
{
    int s;
    r->ledger = plm_ledger_create(r->host);
    if (r->ledger == NULL)
        return plm_fail(err, PLM_ERR_NOMEM_HOST, "no host memory for a ledger");
    const struct plm_model_facts *facts = plm_model_facts(r->model);
    uint64_t kv = 0;
    r->n_blocks = (uint32_t)plm_div_ceil(opts->max_tokens, PLM_KV_BLOCK_TOKENS);
    const struct plm_shape shape = {ROWS_MAX, 1, ROWS_MAX, opts->max_tokens};
    for (uint32_t g = 0; g < facts->n_groups; g++)
        kv += plm_round_up(plm_kv_block_bytes(&facts->groups[g]), PLM_COST_ALIGN) * r->n_blocks;
    const uint64_t work = (uint64_t)plm_cost(plm_model_cost_table(r->model), &shape);
    if ((s = plm_arena_create(r->host, r->device, r->ledger, PLM_MEM_WEIGHTS, 0, &r->weights)) ||
        (s = plm_arena_create(r->host, r->device, r->ledger, PLM_MEM_KV, kv, &r->kv)) ||
        (s = plm_arena_create(r->host, r->device, r->ledger, PLM_MEM_WORKSPACE, work, &r->work)) ||
        (s = plm_arena_alloc(r->work, work, PLM_COST_ALIGN, &r->workspace)))
        return plm_fail(err, s, "no memory to run a model");
    for (uint32_t g = 0; g < facts->n_groups; g++) {
        if ((s = take_blocks(r, g)) != PLM_OK)
            return plm_fail(err, s, "no memory for the blocks of a sequence");
    }
    return PLM_OK;
}

int runner_open(const char *path, const struct runner_opts *opts, struct runner **ret,
                struct plm_error *err)
{
    struct plm_host *host = plm_host_create(0);
    struct runner *r = host != NULL ? plm_calloc(host, PLM_HOST_OTHER, 1, sizeof(*r)) : NULL;
    if (r == NULL) {
        plm_host_destroy(host);
        return plm_fail(err, PLM_ERR_NOMEM_HOST, "no host memory");
    }
    r->host = host;
    const struct plm_model_opts model_opts = {.kv_type = opts->kv_q8_0  ? PLM_TYPE_Q8_0
                                                         : opts->strict ? PLM_TYPE_F32
                                                                        : PLM_TYPE_F16,
                                              .float_activations = opts->strict};
    int s;
    if ((s = plm_gguf_open(host, path, &r->gguf, err)) ||
        (s = plm_model_create(host, r->gguf, &model_opts, &r->model, err)) ||
        (s = open_device(r, opts, err)) || (s = open_memory(r, opts, err)) || (s = load(r, err))) {
        runner_close(r);
        return s;
    }
    r->n_vocab = plm_model_facts(r->model)->n_vocab;
    *ret = r;
    return PLM_OK;
}

int64_t runner_close(struct runner *r)
{
    struct plm_host *host = r->host;
    for (uint32_t g = 0; g < PLM_KV_GROUPS_MAX; g++)
        plm_free(host, r->tables[g]);
    plm_arena_destroy(r->work);
    plm_arena_destroy(r->kv);
    plm_arena_destroy(r->weights);
    plm_ledger_destroy(r->ledger);
    plm_model_destroy(r->model);
    if (r->device != NULL)
        plm_device_close(r->device);
    plm_gguf_close(r->gguf);
    plm_free(host, r);
    return plm_host_destroy(host);
}

const struct plm_model_facts *runner_facts(const struct runner *r)
{
    return plm_model_facts(r->model);
}

uint64_t runner_dispatches(const struct runner *r)
{
    return r->dispatches;
}

void runner_reset(struct runner *r)
{
    r->n_past = 0;
}

void runner_set_context(struct runner *r, uint32_t tokens)
{
    plm_model_set_context(r->model, tokens);
}

static int run(struct runner *r, const struct plm_forward *forward, float *logits)
{
    struct plm_forward_out out = {0};
    struct plm_device_counters before, after;
    uint64_t value;
    plm_device_counters(r->device, &before);
    int s = plm_model_forward(r->model, r->device, forward, &out);
    if (s == PLM_OK)
        s = plm_device_submit(r->device, &value);
    if (s == PLM_OK)
        s = plm_device_wait(r->device, value, -1);
    plm_device_counters(r->device, &after);
    r->dispatches = after.dispatches - before.dispatches;
    if (s == PLM_OK && out.logits != 0)
        s = plm_device_copy_out(r->device, logits, out.logits,
                                4ull * forward->shape.logits_rows * r->n_vocab);
    return s;
}

// Blocks that no row of the step sees have no address there, as the scheduler has it: who reads
// through one fails.
static const uint64_t *table_of_step(struct runner *r, uint32_t g)
{
    const uint32_t window = plm_model_facts(r->model)->groups[g].window;
    const uint32_t first = plm_kv_first_block(window, r->n_past);
    uint64_t *table = r->tables[g] + r->n_blocks;
    for (uint32_t i = 0; i < r->n_blocks; i++)
        table[i] = i < first ? 0 : r->tables[g][i];
    return table;
}

int runner_step(struct runner *r, const int32_t *tokens, uint32_t n, uint32_t n_logits,
                float *logits, struct plm_error *err)
{
    int32_t pos[ROWS_MAX], seq[ROWS_MAX] = {0}, rows[ROWS_MAX];
    uint64_t slots[PLM_KV_GROUPS_MAX][ROWS_MAX];
    const struct plm_model_facts *facts = plm_model_facts(r->model);
    if (n > ROWS_MAX || n_logits > n || r->n_past + n > r->n_blocks * PLM_KV_BLOCK_TOKENS)
        return plm_fail(err, PLM_ERR_INVALID, "a step of %u tokens after %u", n, r->n_past);
    for (uint32_t i = 0; i < n; i++) {
        pos[i] = (int32_t)(r->n_past + i);
        for (uint32_t g = 0; g < facts->n_groups; g++)
            slots[g][i] = r->tables[g][(r->n_past + i) / PLM_KV_BLOCK_TOKENS];
    }
    for (uint32_t i = 0; i < n_logits; i++)
        rows[i] = (int32_t)(n - n_logits + i);
    const uint32_t ctx = r->n_past + n;
    struct plm_forward forward = {
        .shape = {.rows = n, .seqs = 1, .logits_rows = n_logits, .ctx = ctx},
        .workspace = r->workspace,
        .tokens = tokens,
        .pos = pos,
        .seq = seq,
        .table_stride = (uint32_t)plm_div_ceil(ctx, PLM_KV_BLOCK_TOKENS),
        .logits_rows = rows,
    };
    for (uint32_t g = 0; g < facts->n_groups; g++) {
        forward.slots[g] = slots[g];
        forward.tables[g] = table_of_step(r, g);
    }
    int s = run(r, &forward, logits);
    if (s != PLM_OK)
        return plm_fail(err, s, "a step failed: %s", plm_strstatus(s));
    r->n_past = ctx;
    return PLM_OK;
}

double runner_logprob(const float *logits, uint32_t n, int32_t id)
{
    double top = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < n; i++)
        top = fmax(top, (double)logits[i]);
    for (uint32_t i = 0; i < n; i++)
        sum += exp((double)logits[i] - top);
    return (double)logits[id] - top - log(sum);
}
