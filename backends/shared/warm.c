// SPDX-License-Identifier: Apache-2.0
#include "backends/shared/warm.h"

#define ADDRESSES 512u

// Sizes that every type accepts.
#define N        256
#define N_OUT    32
#define KV_HEADS 2

int plm_warm_prepare(struct plm_backend_device *dev,
                     int (*alloc)(struct plm_backend_device *dev, enum plm_slab_kind kind,
                                  uint64_t bytes, void *import_ptr, struct plm_slab *ret),
                     int (*copy_in)(struct plm_backend_device *dev, uint64_t dst, const void *src,
                                    uint64_t bytes),
                     uint64_t part_bytes, struct plm_warm_memory *ret)
{
    static const unsigned char zeros[64 << 10];
    uint64_t addresses[ADDRESSES];
    *ret = (struct plm_warm_memory){0};
    int r = alloc(dev, PLM_SLAB_DEVICE, 2 * part_bytes + sizeof(addresses), NULL, &ret->slab);
    if (r != PLM_OK)
        return r;
    ret->zeros = ret->slab.addr;
    ret->results = ret->zeros + part_bytes;
    ret->addresses = ret->results + part_bytes;
    for (uint32_t i = 0; i < ADDRESSES; i++)
        addresses[i] = ret->results;
    for (uint64_t at = 0; at < 2 * part_bytes && r == PLM_OK; at += sizeof(zeros))
        r = copy_in(dev, ret->zeros + at, zeros, sizeof(zeros));
    return r == PLM_OK ? copy_in(dev, ret->addresses, addresses, sizeof(addresses)) : r;
}

size_t plm_warm_args(enum plm_op op, const struct plm_warm_memory *memory,
                     const struct plm_warm_shape *shape, union plm_op_args *ret)
{
    const uint64_t in = memory->zeros, out = memory->results, at = memory->addresses;
    const uint32_t rows = shape->rows, dim = shape->head_dim, heads = KV_HEADS * shape->group;
    const uint32_t type = shape->type, act = shape->act, kv_type = shape->kv_type;
    const uint32_t ld = heads * dim;
#define ARGS(name, ...)                                                                            \
    ret->name = (struct plm_##name##_args){__VA_ARGS__};                                           \
    return sizeof(ret->name)
    switch (op) {
    case PLM_OP_GET_ROWS: ARGS(get_rows, in, in, out, type, rows, N, N_OUT, 1.0f, 0);
    case PLM_OP_RMS_NORM: ARGS(rms_norm, out, in, in, 0, out, rows, N, 1e-5f, 0);
    case PLM_OP_QUANTIZE: ARGS(quantize, in, out, rows, N);
    case PLM_OP_MATMUL: ARGS(matmul, in, in, out, 0, type, act, rows, N, N_OUT, N_OUT, 0, 0);
    case PLM_OP_ROPE_TABLE: ARGS(rope_table, in, in, out, in, rows, dim, 0, 1);
    case PLM_OP_ROPE_KV:
        ARGS(rope_kv, out, out, in, in, at, in, 0, 0, rows, ld, heads, KV_HEADS, dim, dim,
             PLM_ROPE_NORM, kv_type);
    case PLM_OP_ATTENTION:
        ARGS(attention, in, out, in, in, at, 0, 1, rows, ld, heads, KV_HEADS, dim, kv_type, 1.0f, 0,
             0);
    case PLM_OP_GATE_MUL: ARGS(gate_mul, in, in, 0, out, rows, N, N, 0);
    case PLM_OP_ADD: ARGS(add, in, in, out, rows, N);
    case PLM_OP_GATHER: ARGS(gather, in, in, out, rows, N);
    case PLM_OP_SOFT_CAP: ARGS(soft_cap, out, rows, N, 1.0f, 0);
    case PLM_OP_COPY: ARGS(copy, in, out, N);
    case PLM_OP_FILL: ARGS(fill, out, N, 0, 0);
    case PLM_OP_VERIFY: ARGS(verify, in, N, out, 0, 0);
    case PLM_OP_QKV:
        ARGS(qkv, in, in, in, 0, 0, 0, in, out, in, at, in, 0, 0, rows, N, ld,
             PLM_PAIR(heads, KV_HEADS), PLM_PAIR(dim, dim),
             PLM_KINDS(type, act, (uint32_t)PLM_ROPE_NORM, kv_type));
    case PLM_OP_GLU: ARGS(glu, in, in, 0, 0, in, 0, out, type, act, rows, N, N_OUT, 0);
    case PLM_OP_ATTENTION_SPLIT:
        ARGS(attention_split, in, out, in, in, at, 0, 1, rows, ld, heads, KV_HEADS, dim, kv_type, 1,
             1.0f, 0);
    case PLM_OP_ATTENTION_MERGE: ARGS(attention_merge, in, in, 0, out, rows, heads, dim, 1, 0, 0);
    case PLM_OP_ARGMAX: ARGS(argmax, in, out, rows, N);
    case PLM_OP_SAMPLE: ARGS(sample, in, in, out, rows, N);
    case PLM_OPS: break;
    }
#undef ARGS
    return 0;
}
