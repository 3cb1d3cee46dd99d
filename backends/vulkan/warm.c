// SPDX-License-Identifier: Apache-2.0
// Drivers take memory for code and registers when a kernel first runs. So each runs once before
// anything is measured, with small arguments over a scratch slab: zeros to read, a part to write,
// and addresses of the zeros where an op reads addresses.
#include "backends/vulkan/impl.h"

// Of each part of the slab: more than any of the arguments below spans.
#define PART_BYTES    (UINT64_C(256) << 10)
#define ADDRESSES     512
#define SCRATCH_BYTES (2 * PART_BYTES + ADDRESSES * 8)
// A kernel of this size is done in far less; a device that takes longer hangs. A CPU driver
// compiles here, for half a minute where a kernel unrolls much and the machine is busy.
#define RUN_NS INT64_C(300000000000)

// Sizes that every type and op accepts.
#define N        256
#define N_OUT    32
#define HEADS    4
#define KV_HEADS 2
#define HEAD_DIM 64

union args {
    struct plm_get_rows_args get_rows;
    struct plm_rms_norm_args rms_norm;
    struct plm_quantize_args quantize;
    struct plm_matmul_args matmul;
    struct plm_rope_table_args rope_table;
    struct plm_rope_args rope;
    struct plm_kv_write_args kv_write;
    struct plm_rope_kv_args rope_kv;
    struct plm_attention_args attention;
    struct plm_silu_mul_args silu_mul;
    struct plm_add_args add;
    struct plm_gather_args gather;
    struct plm_copy_args copy;
    struct plm_fill_args fill;
    struct plm_verify_args verify;
    struct plm_qkv_args qkv;
    struct plm_glu_args glu;
    struct plm_attention_split_args attention_split;
    struct plm_attention_merge_args attention_merge;
    struct plm_argmax_args argmax;
};

struct warm {
    struct plm_backend_device *dev;
    struct plm_error *err;
    struct plm_slab slab;
    uint64_t zeros, out, addresses;
};

// Fills ret for one kernel; returns the bytes of its op's struct.
static size_t fill_args(const struct warm *w, const struct plm_vk_kernel *k, union args *ret)
{
    const uint64_t in = w->zeros, out = w->out, at = w->addresses;
    const uint32_t rows = plm_vk_kernel_rows(k);
#define ARGS(name, ...)                                                                            \
    ret->name = (struct plm_##name##_args){__VA_ARGS__};                                           \
    return sizeof(ret->name)
    switch (plm_vk_kernel_op(k)) {
    case PLM_OP_GET_ROWS: ARGS(get_rows, in, in, out, k->type, rows, N, N_OUT, 1.0f, 0);
    case PLM_OP_RMS_NORM: ARGS(rms_norm, out, in, in, 0, out, rows, N, 1e-5f, 0);
    case PLM_OP_QUANTIZE: ARGS(quantize, in, out, rows, N);
    case PLM_OP_MATMUL:
        ARGS(matmul, in, in, out, 0, k->type, plm_vk_kernel_act(k), rows, N, N_OUT, N_OUT, 0, 0);
    case PLM_OP_ROPE_TABLE: ARGS(rope_table, in, in, out, rows, HEAD_DIM);
    case PLM_OP_ROPE: ARGS(rope, out, in, rows, N, HEADS, HEAD_DIM, HEAD_DIM, PLM_ROPE_NORM);
    case PLM_OP_KV_WRITE:
        ARGS(kv_write, in, in, at, in, 0, rows, N, N, KV_HEADS, HEAD_DIM, PLM_TYPE_F16);
    case PLM_OP_ROPE_KV:
        ARGS(rope_kv, out, out, in, in, at, in, 0, rows, N, HEADS, KV_HEADS, HEAD_DIM, HEAD_DIM,
             PLM_ROPE_NORM, PLM_TYPE_F16);
    case PLM_OP_ATTENTION:
        ARGS(attention, in, out, in, in, at, 0, 1, rows, N, HEADS, KV_HEADS, HEAD_DIM, PLM_TYPE_F16,
             1.0f);
    case PLM_OP_SILU_MUL: ARGS(silu_mul, in, in, 0, out, rows, N, N, 0);
    case PLM_OP_ADD: ARGS(add, in, in, out, rows, N);
    case PLM_OP_GATHER: ARGS(gather, in, in, out, rows, N);
    case PLM_OP_COPY: ARGS(copy, in, out, N);
    case PLM_OP_FILL: ARGS(fill, out, N, 0, 0);
    case PLM_OP_VERIFY: ARGS(verify, in, N, out, 0, 0);
    case PLM_OP_QKV:
        ARGS(qkv, in, in, in, 0, 0, 0, in, out, in, at, in, 0, rows, N, HEADS * HEAD_DIM,
             PLM_PAIR(HEADS, KV_HEADS), PLM_PAIR(HEAD_DIM, HEAD_DIM),
             PLM_KINDS(k->type, (uint32_t)plm_vk_kernel_act(k), (uint32_t)PLM_ROPE_NORM,
                       (uint32_t)PLM_TYPE_F16));
    case PLM_OP_GLU:
        ARGS(glu, in, in, 0, 0, in, 0, out, k->type, plm_vk_kernel_act(k), rows, N, N_OUT, 0);
    case PLM_OP_ATTENTION_SPLIT:
        ARGS(attention_split, in, out, in, in, at, 0, 1, rows, N, HEADS, KV_HEADS, HEAD_DIM,
             PLM_TYPE_F16, 1, 1.0f, 0);
    case PLM_OP_ATTENTION_MERGE: ARGS(attention_merge, in, in, 0, out, rows, HEADS, HEAD_DIM, 1);
    case PLM_OP_ARGMAX: ARGS(argmax, in, out, rows, N);
    case PLM_OPS: break;
    }
#undef ARGS
    return 0;
}

// KV is written where the addresses point: into the part for results.
static int prepare(struct warm *w)
{
    uint64_t addresses[ADDRESSES];
    static const unsigned char zeros[4096];
    int r = plm_vk_alloc(w->dev, PLM_SLAB_DEVICE, SCRATCH_BYTES, NULL, &w->slab);
    if (r != PLM_OK)
        return r;
    w->zeros = w->slab.addr;
    w->out = w->zeros + PART_BYTES;
    w->addresses = w->out + PART_BYTES;
    for (uint32_t i = 0; i < ADDRESSES; i++)
        addresses[i] = w->out;
    for (uint64_t at = 0; at < 2 * PART_BYTES && r == PLM_OK; at += sizeof(zeros))
        r = plm_vk_copy_in(w->dev, w->zeros + at, zeros, sizeof(zeros));
    return r == PLM_OK ? plm_vk_copy_in(w->dev, w->addresses, addresses, sizeof(addresses)) : r;
}

static int run(void *ctx, const struct plm_vk_kernel *kernel)
{
    struct warm *w = ctx;
    union args args;
    uint64_t value;
    const size_t bytes = fill_args(w, kernel, &args);
    int r = plm_vk_append(w->dev, kernel, &args, bytes);
    if (r == PLM_OK)
        r = plm_vk_submit(w->dev, &value);
    if (r == PLM_OK)
        r = plm_vk_wait(w->dev, value, RUN_NS);
    if (r == PLM_OK)
        return r;
    char name[PLM_VK_KERNEL_NAME_BYTES];
    plm_vk_kernel_name(kernel, name);
    plm_vk_discard(w->dev);
    return plm_fail(w->err, r, "%s: the kernel %s did not run: %s", w->dev->caps.name, name,
                    plm_strstatus(r));
}

int plm_vk_warm_up(struct plm_backend_device *dev, const struct plm_kernel_needs *needs,
                   struct plm_error *err)
{
    struct warm w = {.dev = dev, .err = err};
    int r = plm_vk_pipelines_make(dev, needs, err);
    if (r != PLM_OK)
        return r;
    r = prepare(&w);
    if (r == PLM_OK)
        r = plm_vk_kernels_each(&dev->pipelines->kernels, needs, run, &w);
    else
        plm_fail(err, r, "%s: no room to run the kernels once: %s", dev->caps.name,
                 plm_strstatus(r));
    if (w.slab.addr != 0)
        plm_vk_free(dev, &w.slab);
    if (r == PLM_OK) {
        plm_vk_cache_save(dev, dev->pipelines->cache);
        r = plm_vk_list_warm_up(dev);
        if (r != PLM_OK)
            plm_fail(err, r, "%s: no room to record the longest list: %s", dev->caps.name,
                     plm_strstatus(r));
    }
    return r;
}
