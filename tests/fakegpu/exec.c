// SPDX-License-Identifier: Apache-2.0
// Runs a launch. Its argument struct is the op's, and weights lie as on the CPU, so the CPU's
// kernels run it; or the emulator runs the kernel's own source (tests/simt). Before, each span of
// memory that the op touches must lie in a living allocation.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/cpu.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/list.h"
#include "backends/cpu/pool.h"
#include "fake.h"
#include "tests/simt/simt_run.h"
#include "tests/support/spans.h"

// With the driver's lock held.
static struct {
    const struct plm_cpu_kernels *kernels;
    struct plm_host *host;
    struct plm_cpu_pool *pool;
    struct plm_cpu_list list;
    float *partial; // of attention
    size_t partial_bytes;
} cpu;

bool fake_exec_start(void)
{
    struct world w;
    if (cpu.pool != NULL)
        return true;
    rules_world(&w);
    cpu.kernels = plm_cpu_kernels_select(0, PLM_KERNELS_AUTO);
    cpu.host = plm_host_create(0);
    return cpu.host != NULL && plm_cpu_list_init(&cpu.list, cpu.host, 2) == PLM_OK &&
           plm_cpu_pool_create(cpu.host, (uint32_t)w.threads, &cpu.pool) == PLM_OK;
}

// ---- on the CPU ----

static bool append(enum plm_op op, const void *args, size_t args_bytes)
{
    uint64_t units = 0;
    switch (op) {
#define PLM_OP(NAME, name, n_units, tolerance)                                                     \
    case PLM_OP_##NAME: {                                                                          \
        const struct plm_##name##_args *a = args;                                                  \
        units = (n_units);                                                                         \
        break;                                                                                     \
    }
#include "kernels/ops.def"
#undef PLM_OP
    default: return false;
    }
    return units == 0 ||
           (units < UINT32_MAX && plm_cpu_list_append(&cpu.list, cpu.kernels->fn[op],
                                                      (uint32_t)units, args, args_bytes) == PLM_OK);
}

// As on a card, attention is its splits merged, bit by bit: the CPU's own is of another class.
static bool append_attention(const struct plm_attention_args *a)
{
    const int32_t *pos = (const int32_t *)(uintptr_t)a->pos;
    int32_t last = 0;
    for (uint32_t r = 0; r < a->rows; r++)
        last = pos[r] > last ? pos[r] : last;
    const uint32_t splits = (uint32_t)last / PLM_ATTN_SPLIT_TOKENS + 1;
    const size_t bytes =
        (size_t)a->rows * a->heads * splits * (a->head_dim + 2) * sizeof(*cpu.partial);
    if (bytes > cpu.partial_bytes) {
        free(cpu.partial);
        cpu.partial = malloc(bytes);
        cpu.partial_bytes = cpu.partial != NULL ? bytes : 0;
    }
    if (cpu.partial == NULL)
        return false;
    const uint64_t partial = (uint64_t)(uintptr_t)cpu.partial;
    const struct plm_attention_split_args split = {.q = a->q,
                                                   .partial = partial,
                                                   .pos = a->pos,
                                                   .seq = a->seq,
                                                   .tables = a->tables,
                                                   .layer_offset = a->layer_offset,
                                                   .table_stride = a->table_stride,
                                                   .rows = a->rows,
                                                   .ld_q = a->ld_q,
                                                   .heads = a->heads,
                                                   .kv_heads = a->kv_heads,
                                                   .head_dim = a->head_dim,
                                                   .kv_type = a->kv_type,
                                                   .splits = splits,
                                                   .window = a->window,
                                                   .scale = a->scale};
    const struct plm_attention_merge_args merge = {.partial = partial,
                                                   .pos = a->pos,
                                                   .dst_f32 = a->dst,
                                                   .rows = a->rows,
                                                   .heads = a->heads,
                                                   .head_dim = a->head_dim,
                                                   .splits = splits,
                                                   .window = a->window};
    if (!append(PLM_OP_ATTENTION_SPLIT, &split, sizeof(split)))
        return false;
    plm_cpu_list_barrier(&cpu.list);
    return append(PLM_OP_ATTENTION_MERGE, &merge, sizeof(merge));
}

static bool run_on_cpu(const struct fake_launch *l)
{
    const enum plm_op op = l->function->kernel->op;
    plm_cpu_list_clear(&cpu.list);
    if (op == PLM_OP_ATTENTION ? !append_attention((const void *)l->args)
                               : !append(op, l->args, l->args_bytes))
        return false;
    plm_cpu_pool_run(cpu.pool, &cpu.list);
    return true;
}

// ---- by its own source ----

#define GUARDED 64u

struct guard {
    struct simt_range ranges[GUARDED];
    size_t n;
    struct span weights[GUARDED];
    size_t n_weights;
};

static bool keep_weight(void *ctx, const struct span *span)
{
    struct guard *g = ctx;
    if (span->mode == SPAN_WEIGHT && g->n_weights < GUARDED)
        g->weights[g->n_weights++] = *span;
    return true;
}

// What a kernel may not touch before it has waited: everything but weights, and what lies where
// they do (a warm-up lets all arguments share one scratch).
static bool guard(void *ctx, const struct span *span)
{
    struct guard *g = ctx;
    bool alone = span->mode != SPAN_WEIGHT && g->n < GUARDED;
    for (size_t i = 0; i < g->n_weights; i++)
        alone = alone && !span_overlaps(&g->weights[i], span);
    if (alone)
        g->ranges[g->n++] =
            (struct simt_range){(void *)(uintptr_t)span->address, span_extent(span)};
    return true;
}

static bool emulate(const struct fake_launch *l, const struct world *w)
{
    const struct plm_gpu_kernel *kernel = l->function->kernel;
    char error[SIMT_ERROR_BYTES];
    struct guard g = {.n = 0};
    if (l->early) {
        spans_direct(kernel->op, l->args, keep_weight, &g);
        spans_direct(kernel->op, l->args, guard, &g);
    }
    const struct simt_launch launch = {.kernel = kernel->symbol,
                                       .grid = {l->grid[0], l->grid[1], l->grid[2]},
                                       .threads = l->block[0],
                                       .args = l->args,
                                       .args_bytes = l->args_bytes,
                                       .width = fake_front.lanes(w->arch),
                                       .seed = w->seed,
                                       .guarded = g.ranges,
                                       .n_guarded = g.n};
    account_add(ACCOUNT_kernels_emulated, 1);
    if (simt_run(&launch, error) == 0)
        return true;
    rules_misuse("%s", error);
    return false;
}

static bool is_emulated(const struct fake_launch *l, const struct world *w)
{
    const uint64_t threads =
        (uint64_t)l->grid[0] * l->grid[1] * l->grid[2] * l->function->kernel->threads;
    return w->exec == EXEC_SIMT || (w->exec == EXEC_AUTO && threads <= w->emulate);
}

// ---- what it touches ----

struct judge {
    const struct fake_ctx *ctx;
    const char *kernel;
};

static bool lives(void *ctx, const struct span *span)
{
    const struct judge *j = ctx;
    if (fake_is_live(j->ctx, span->address, span_extent(span)))
        return true;
    rules_misuse("%s: %s: %llu bytes at %#llx are in no allocation that is there", j->kernel,
                 span->field, (unsigned long long)span_extent(span),
                 (unsigned long long)span->address);
    return false;
}

bool fake_run_launch(struct fake_ctx *ctx, struct fake_order *order, const struct fake_launch *l)
{
    if (!fake_object_is(l->function, FAKE_FUNCTION)) {
        rules_misuse("a kernel runs whose module is gone");
        return false;
    }
    struct judge j = {ctx, l->function->kernel->symbol};
    if (!spans_of(l->function->kernel->op, l->args, lives, &j) || !fake_order_launch(order, l))
        return false;
    struct world w;
    rules_world(&w);
    account_add(ACCOUNT_kernels_run, 1);
    return is_emulated(l, &w) ? emulate(l, &w) : run_on_cpu(l);
}
