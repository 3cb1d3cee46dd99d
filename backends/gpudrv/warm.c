// SPDX-License-Identifier: Apache-2.0
// Drivers take memory for code and local memory when a kernel first runs. So each runs once before
// anything is measured, with small arguments over a scratch slab: zeros to read, a part to write,
// and addresses of that part where an op reads addresses.
#include "backends/gpudrv/impl.h"

// Of each part of the slab: more than any of the arguments below spans.
#define PART_BYTES    (UINT64_C(8) << 20)
#define ADDRESSES     512
#define SCRATCH_BYTES (2 * PART_BYTES + ADDRESSES * 8)
// A kernel of this size is done in microseconds; a device that takes longer hangs. An emulated one
// needs seconds.
#define RUN_NS INT64_C(300000000000)

// Sizes that every type accepts.
#define N        256
#define N_OUT    32
#define KV_HEADS 2

// What conditions of kernels ask about.
struct shape {
    uint32_t rows;
    uint32_t group; // query heads that share a KV head
    uint32_t head_dim;
};
static const uint32_t rows_tried[] = {1, 2, 3, 5, 9, 17, 33, 65, 129};
static const uint32_t groups_tried[] = {2, 1, 4, 8, 3, 5, 6, 7, 16};
static const uint32_t dims_tried[] = {64, 128, 256, 32, 80, 96, 160, 192};

union args {
#define PLM_OP(NAME, name, units, tolerance) struct plm_##name##_args name;
#include "kernels/ops.def"
#undef PLM_OP
};

struct warm {
    struct plm_backend_device *dev;
    struct plm_error *err;
    struct plm_slab slab;
    uint64_t zeros, out, addresses;
};

// Fills ret for one kernel and shape.
static void fill_args(const struct warm *w, const struct plm_gpu_kernel *k, const struct shape *s,
                      union args *ret)
{
    const uint64_t in = w->zeros, out = w->out, at = w->addresses;
    const uint32_t rows = s->rows, dim = s->head_dim, heads = KV_HEADS * s->group;
    const uint32_t type = k->type != PLM_ANY_TYPE ? k->type : PLM_TYPE_F16;
    const uint32_t act = k->act != PLM_ANY_ACT ? k->act : PLM_ACT_F32;
    const uint32_t ld = heads * dim;
#define ARGS(name, ...)                                                                            \
    ret->name = (struct plm_##name##_args){__VA_ARGS__};                                           \
    break
    switch (k->op) {
    case PLM_OP_GET_ROWS: ARGS(get_rows, in, in, out, type, rows, N, N_OUT, 1.0f, 0);
    case PLM_OP_RMS_NORM: ARGS(rms_norm, out, in, in, 0, out, rows, N, 1e-5f, 0);
    case PLM_OP_QUANTIZE: ARGS(quantize, in, out, rows, N);
    case PLM_OP_MATMUL: ARGS(matmul, in, in, out, 0, type, act, rows, N, N_OUT, N_OUT, 0, 0);
    case PLM_OP_ROPE_TABLE: ARGS(rope_table, in, in, out, rows, dim);
    case PLM_OP_ROPE: ARGS(rope, out, in, rows, ld, heads, dim, dim, PLM_ROPE_NORM);
    case PLM_OP_KV_WRITE: ARGS(kv_write, in, in, at, in, 0, rows, ld, ld, KV_HEADS, dim, type);
    case PLM_OP_ROPE_KV:
        ARGS(rope_kv, out, out, in, in, at, in, 0, rows, ld, heads, KV_HEADS, dim, dim,
             PLM_ROPE_NORM, type);
    case PLM_OP_ATTENTION:
        ARGS(attention, in, out, in, in, at, 0, 1, rows, ld, heads, KV_HEADS, dim, type, 1.0f);
    case PLM_OP_SILU_MUL: ARGS(silu_mul, in, in, 0, out, rows, N, N, 0);
    case PLM_OP_ADD: ARGS(add, in, in, out, rows, N);
    case PLM_OP_GATHER: ARGS(gather, in, in, out, rows, N);
    case PLM_OP_COPY: ARGS(copy, in, out, N);
    case PLM_OP_FILL: ARGS(fill, out, N, 0, 0);
    case PLM_OP_VERIFY: ARGS(verify, in, N, out, 0, 0);
    case PLM_OP_QKV:
        ARGS(qkv, in, in, in, 0, 0, 0, in, out, in, at, in, 0, rows, N, ld,
             PLM_PAIR(heads, KV_HEADS), PLM_PAIR(dim, dim),
             PLM_KINDS(type, act, (uint32_t)PLM_ROPE_NORM, (uint32_t)PLM_TYPE_F16));
    case PLM_OP_GLU: ARGS(glu, in, in, 0, 0, in, 0, out, type, act, rows, N, N_OUT, 0);
    case PLM_OP_ATTENTION_SPLIT:
        ARGS(attention_split, in, out, in, in, at, 0, 1, rows, ld, heads, KV_HEADS, dim, type, 1,
             1.0f, 0);
    case PLM_OP_ATTENTION_MERGE: ARGS(attention_merge, in, in, 0, out, rows, heads, dim, 1);
    case PLM_OP_ARGMAX: ARGS(argmax, in, out, rows, N);
    case PLM_OPS: break;
    }
#undef ARGS
}

// The smallest arguments that the kernel runs; false: none of those that are tried.
static bool find_args(const struct warm *w, const struct plm_gpu_kernel *k, union args *ret)
{
    for (size_t d = 0; d < sizeof(dims_tried) / sizeof(dims_tried[0]); d++) {
        for (size_t g = 0; g < sizeof(groups_tried) / sizeof(groups_tried[0]); g++) {
            for (size_t r = 0; r < sizeof(rows_tried) / sizeof(rows_tried[0]); r++) {
                const struct shape s = {rows_tried[r], groups_tried[g], dims_tried[d]};
                fill_args(w, k, &s, ret);
                if (k->when(ret))
                    return true;
            }
        }
    }
    return false;
}

// KV is written where the addresses point: into the part for results.
static int prepare(struct warm *w)
{
    uint64_t addresses[ADDRESSES];
    static const unsigned char zeros[64 << 10];
    int rc = plm_gpu_alloc(w->dev, PLM_SLAB_DEVICE, SCRATCH_BYTES, NULL, &w->slab);
    if (rc != PLM_OK)
        return rc;
    w->zeros = w->slab.addr;
    w->out = w->zeros + PART_BYTES;
    w->addresses = w->out + PART_BYTES;
    for (uint32_t i = 0; i < ADDRESSES; i++)
        addresses[i] = w->out;
    for (uint64_t at = 0; at < 2 * PART_BYTES && rc == PLM_OK; at += sizeof(zeros))
        rc = plm_gpu_copy_in(w->dev, w->zeros + at, zeros, sizeof(zeros));
    return rc == PLM_OK ? plm_gpu_copy_in(w->dev, w->addresses, addresses, sizeof(addresses)) : rc;
}

static int run(void *ctx, const struct plm_gpu_kernel *kernel)
{
    struct warm *w = ctx;
    union args args;
    uint64_t value;
    int rc = find_args(w, kernel, &args) ? plm_gpu_append(w->dev, kernel, &args) : PLM_ERR_INTERNAL;
    if (rc == PLM_OK)
        rc = plm_gpu_submit(w->dev, &value);
    if (rc == PLM_OK)
        rc = plm_gpu_wait(w->dev, value, RUN_NS);
    if (rc == PLM_OK)
        return rc;
    plm_gpu_discard(w->dev);
    return plm_fail(w->err, rc, "%s: %s: the kernel %s did not run: %s", w->dev->driver->name,
                    w->dev->caps.name, kernel->symbol, plm_strstatus(rc));
}

int plm_gpu_warm_up(struct plm_backend_device *dev, const struct plm_kernel_needs *needs,
                    struct plm_error *err)
{
    struct warm w = {.dev = dev, .err = err};
    uint64_t before;
    int rc = plm_gpu_enter(dev, &before);
    if (rc != PLM_OK)
        return plm_fail(err, rc, "%s: %s: the device is lost", dev->driver->name, dev->caps.name);
    rc = plm_gpu_modules_load(dev, needs, err);
    plm_gpu_leave(dev, before);
    if (rc != PLM_OK)
        return rc;
    rc = prepare(&w);
    if (rc == PLM_OK)
        rc = plm_gpu_kernels_each(needs, run, &w);
    else
        plm_fail(err, rc, "%s: %s: no room to run the kernels once: %s", dev->driver->name,
                 dev->caps.name, plm_strstatus(rc));
    if (w.slab.addr != 0)
        plm_gpu_free(dev, &w.slab);
    return rc;
}
