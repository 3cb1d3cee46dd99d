// SPDX-License-Identifier: Apache-2.0
#include "core/model/explain.h"

#include <string.h>

#include "core/base/checked.h"
#include "core/mem/arena.h"
#include "core/mem/ledger.h"
#include "core/model/arch.h"

// ---- a device that counts ----

// What it adds to, and what it must know: backend_opts.
struct tally {
    const struct plm_explain_opts *opts;
    struct plm_explain_part *parts;
    uint32_t part; // where the step stands
    uint32_t last; // the part of the last dispatch
};

struct plm_backend_device {
    struct plm_host *host;
    struct tally *tally;
    struct plm_caps caps;
    uint64_t next_addr;
};

static int count_open(const struct plm_device_opts *opts, struct plm_backend_device **ret,
                      struct plm_error *err)
{
    struct plm_backend_device *dev = plm_calloc(opts->host, PLM_HOST_DEVICE, 1, sizeof(*dev));
    if (dev == NULL)
        return plm_fail(err, PLM_ERR_NOMEM_HOST, "no host memory for a device");
    dev->host = opts->host;
    dev->tally = (struct tally *)(uintptr_t)opts->backend_opts; // is const for other backends
    dev->caps = *dev->tally->opts->caps;
    dev->caps.addresses_only = true;
    dev->next_addr = dev->caps.granularity_bytes; // 0 means "not there"
    *ret = dev;
    return PLM_OK;
}

static void count_close(struct plm_backend_device *dev)
{
    if (dev != NULL)
        plm_free(dev->host, dev);
}

static const struct plm_caps *count_caps(const struct plm_backend_device *dev)
{
    return &dev->caps;
}

static int count_alloc(struct plm_backend_device *dev, enum plm_slab_kind kind, uint64_t bytes,
                       void *import_ptr, struct plm_slab *ret)
{
    (void)import_ptr;
    const uint64_t taken = plm_round_up(bytes, dev->caps.granularity_bytes);
    *ret = (struct plm_slab){
        .addr = dev->next_addr, .bytes = bytes, .taken_bytes = taken, .kind = kind};
    dev->next_addr += taken;
    return PLM_OK;
}

static void count_free(struct plm_backend_device *dev, struct plm_slab *slab)
{
    (void)dev, (void)slab;
}

static int count_layout(const struct plm_backend_device *dev, enum plm_type type, uint32_t n_in,
                        uint32_t n_out, struct plm_weight_layout *ret)
{
    const struct plm_explain_opts *opts = dev->tally->opts;
    return opts->layout(opts->layout_ctx, type, n_in, n_out, ret);
}

static int count_launch(struct plm_backend_device *dev, enum plm_op op, uint32_t units,
                        const void *args, size_t args_bytes)
{
    (void)units, (void)args_bytes;
    struct tally *tally = dev->tally;
    const struct plm_explain_opts *opts = tally->opts;
    struct plm_explain_op *entry = &tally->parts[tally->part].ops[op];
    struct plm_reads reads;
    int r = plm_op_reads(op, args, opts->context, opts->layout, opts->layout_ctx, &reads);
    if (r != PLM_OK)
        return r;
    entry->dispatches++;
    entry->reads.weight_bytes += reads.weight_bytes;
    entry->reads.kv_bytes += reads.kv_bytes;
    entry->reads.act_bytes += reads.act_bytes;
    tally->last = tally->part;
    return PLM_OK;
}

static int count_barrier(struct plm_backend_device *dev)
{
    dev->tally->parts[dev->tally->last].barriers++;
    return PLM_OK;
}

static void count_discard(struct plm_backend_device *dev)
{
    (void)dev;
}

static int count_copy_in(struct plm_backend_device *dev, uint64_t dst, const void *src,
                         uint64_t bytes)
{
    (void)dev, (void)dst, (void)src, (void)bytes;
    return PLM_OK;
}

// The entries that loading without bytes and one discarded step call.
static const struct plm_backend counting_backend = {
    .name = "count",
    .open = count_open,
    .close = count_close,
    .caps = count_caps,
    .alloc = count_alloc,
    .free = count_free,
    .weight_layout = count_layout,
    .launch = count_launch,
    .barrier = count_barrier,
    .discard = count_discard,
    .copy_in = count_copy_in,
};

// ---- a decode step ----

uint32_t plm_explain_parts(const struct plm_model *model)
{
    return model->hp.n_layer + 2;
}

static void enter(void *ctx, uint32_t part)
{
    struct tally *tally = ctx;
    tally->part = part;
}

// Appends the step's launches; nothing runs.
static int append(struct plm_model *model, struct plm_device *device, struct tally *tally,
                  uint64_t workspace, const struct plm_shape *shape, const uint64_t *tables)
{
    const struct plm_parts parts = {.ctx = tally, .enter = enter};
    const int32_t token = 0, seq = 0, row = 0, pos = (int32_t)(shape->ctx - 1);
    // As while it decodes: each step follows one whose tokens are still on the device.
    const uint64_t results = plm_model_runs_ahead(model) ? workspace : 0;
    const struct plm_sample_row sampling = {.scale = 1.0f, .cut = PLM_SAMPLE_NO_CUT, .top_p = 1.0f};
    struct plm_forward_out out;
    struct plm_forward forward = {.shape = *shape,
                                  .workspace = workspace,
                                  .tokens = &token,
                                  .pos = &pos,
                                  .seq = &seq,
                                  .table_stride =
                                      (uint32_t)plm_div_ceil(shape->ctx, PLM_KV_BLOCK_TOKENS),
                                  .logits_rows = &row,
                                  .sampling = plm_model_samples(model) ? &sampling : NULL,
                                  .chained = results,
                                  .source_rows = &row,
                                  .results = results,
                                  .parts = &parts};
    for (uint32_t g = 0; g < model->facts.n_groups; g++)
        forward.slots[g] = forward.tables[g] = tables;
    const int r = plm_model_forward(model, device, &forward, &out);
    plm_device_discard(device);
    return r;
}

static int decode(struct plm_model *model, struct plm_device *device, struct tally *tally)
{
    const struct plm_explain_opts *opts = tally->opts;
    const struct plm_shape shape = {.rows = 1, .seqs = 1, .logits_rows = 1, .ctx = opts->context};
    const uint64_t n_blocks = plm_div_ceil(opts->context, PLM_KV_BLOCK_TOKENS);
    struct plm_slab workspace;
    // The blocks of the cache lie where nothing does.
    uint64_t *tables = plm_calloc(opts->host, PLM_HOST_OTHER, n_blocks, sizeof(*tables));
    if (tables == NULL)
        return PLM_ERR_NOMEM_HOST;
    int r = plm_device_alloc(device, PLM_SLAB_DEVICE, (uint64_t)plm_cost(&model->cost, &shape),
                             &workspace);
    if (r == PLM_OK) {
        r = append(model, device, tally, workspace.addr, &shape, tables);
        plm_device_free(device, &workspace);
    }
    plm_free(opts->host, tables);
    return r;
}

int plm_model_explain(struct plm_model *model, const struct plm_explain_opts *opts,
                      struct plm_explain_part *ret_parts, struct plm_error *err)
{
    struct tally tally = {.opts = opts, .parts = ret_parts};
    const struct plm_device_opts device_opts = {.host = opts->host,
                                                .max_dispatches = plm_model_max_dispatches(model),
                                                .backend_opts = &tally};
    struct plm_device *device = NULL;
    struct plm_arena *weights = NULL;
    plm_model_specialize(model, opts->caps);
    plm_model_set_context(model, opts->context);
    memset(ret_parts, 0, plm_explain_parts(model) * sizeof(*ret_parts));
    struct plm_ledger *ledger = plm_ledger_create(opts->host);
    if (ledger == NULL)
        return plm_fail(err, PLM_ERR_NOMEM_HOST, "no host memory for a ledger");
    int r = plm_device_open_backend(&counting_backend, &device_opts, &device, err);
    if (r == PLM_OK &&
        (r = plm_arena_create(opts->host, device, ledger, PLM_MEM_WEIGHTS, 0, &weights)) != PLM_OK)
        plm_fail(err, r, "no host memory for an arena");
    if (r == PLM_OK)
        r = plm_model_load(model, device, weights, NULL, err);
    if (r == PLM_OK && (r = decode(model, device, &tally)) != PLM_OK)
        plm_fail(err, r, "a decode step could not be counted: %s", plm_strstatus(r));
    plm_arena_destroy(weights);
    plm_device_close(device);
    plm_ledger_destroy(ledger);
    return r;
}
