// SPDX-License-Identifier: Apache-2.0
#include "backends/gpudrv/kernels.h"

#include <string.h>

#include "backends/panel/layout.h"

// ---- the table ----

// Conditions and grids as functions over the arguments, which not every expression reads.
#define PLM_GPU_KERNEL(symbol, OP, op, type, act, when, threads, gx, gy, gz)                       \
    static bool when_##symbol(const void *args)                                                    \
    {                                                                                              \
        const struct plm_##op##_args *a = args;                                                    \
        (void)a;                                                                                   \
        return when;                                                                               \
    }                                                                                              \
    static struct plm_gpu_grid grid_##symbol(const void *args)                                     \
    {                                                                                              \
        const struct plm_##op##_args *a = args;                                                    \
        (void)a;                                                                                   \
        return (struct plm_gpu_grid){(gx), (gy), (gz)};                                            \
    }
#include "kernels/kernels.def"
#undef PLM_GPU_KERNEL

const struct plm_gpu_kernel plm_gpu_kernels[PLM_GPU_KERNELS] = {
#define PLM_GPU_KERNEL(symbol, OP, op, type, act, when, threads, gx, gy, gz)                       \
    {#symbol,       PLM_OP_##OP,  type, act, threads, sizeof(struct plm_##op##_args),              \
     when_##symbol, grid_##symbol},
#include "kernels/kernels.def"
#undef PLM_GPU_KERNEL
};

// The ops alone, side by side: launches look for theirs here.
static const uint8_t ops[PLM_GPU_KERNELS] = {
#define PLM_GPU_KERNEL(symbol, OP, op, type, act, when, threads, gx, gy, gz) PLM_OP_##OP,
#include "kernels/kernels.def"
#undef PLM_GPU_KERNEL
};
_Static_assert(PLM_OPS <= UINT8_MAX, "an op fits in a byte");

// ---- choosing ----

// What of an op's arguments kernels are built for.
struct built_for {
    uint32_t type, act;
};

static struct built_for facts_of(enum plm_op op, const void *args)
{
// The fields of an op's struct that say so.
#define FACTS(name, t, x)                                                                          \
    {                                                                                              \
        const struct plm_##name##_args *a = args;                                                  \
        return (struct built_for){t, x};                                                           \
    }
    switch (op) {
    case PLM_OP_GET_ROWS: FACTS(get_rows, a->type, PLM_ANY_ACT)
    case PLM_OP_MATMUL: FACTS(matmul, a->type, a->act)
    case PLM_OP_QKV: FACTS(qkv, PLM_KIND(a->kinds, 0), PLM_KIND(a->kinds, 1))
    case PLM_OP_GLU: FACTS(glu, a->type, a->act)
    case PLM_OP_ROPE_KV: FACTS(rope_kv, a->kv_type, PLM_ANY_ACT)
    case PLM_OP_ATTENTION: FACTS(attention, a->kv_type, PLM_ANY_ACT)
    case PLM_OP_ATTENTION_SPLIT: FACTS(attention_split, a->kv_type, PLM_ANY_ACT)
    default: return (struct built_for){PLM_ANY_TYPE, PLM_ANY_ACT};
    }
#undef FACTS
}

static bool fits(const struct plm_gpu_kernel *k, struct built_for f, const void *args)
{
    return (k->type == PLM_ANY_TYPE || k->type == f.type) &&
           (k->act == PLM_ANY_ACT || k->act == f.act) && k->when(args);
}

const struct plm_gpu_kernel *plm_gpu_kernel_of(enum plm_op op, const void *args, uint32_t index)
{
    const struct built_for f = facts_of(op, args);
    for (size_t i = 0; i < PLM_GPU_KERNELS; i++) {
        const uint8_t *next = memchr(ops + i, (int)op, PLM_GPU_KERNELS - i);
        if (next == NULL)
            break;
        i = (size_t)(next - ops);
        if (fits(&plm_gpu_kernels[i], f, args) && index-- == 0)
            return &plm_gpu_kernels[i];
    }
    return NULL;
}

int plm_gpu_kernel_grid(const struct plm_gpu_kernel *kernel, const void *args,
                        struct plm_gpu_grid *ret)
{
    *ret = kernel->grid(args);
    return ret->x <= PLM_GPU_GRID_X_MAX && ret->y <= PLM_GPU_GRID_YZ_MAX &&
                   ret->z <= PLM_GPU_GRID_YZ_MAX
               ? PLM_OK
               : PLM_ERR_LIMIT;
}

uint32_t plm_gpu_product_rows(enum plm_op op, const void *args)
{
    switch (op) {
    case PLM_OP_MATMUL: return ((const struct plm_matmul_args *)args)->rows;
    case PLM_OP_QKV: return ((const struct plm_qkv_args *)args)->rows;
    case PLM_OP_GLU: return ((const struct plm_glu_args *)args)->rows;
    default: return 0;
    }
}

const struct plm_gpu_kernel *plm_gpu_kernel_named(const char *symbol)
{
    for (size_t i = 0; i < PLM_GPU_KERNELS; i++)
        if (strcmp(plm_gpu_kernels[i].symbol, symbol) == 0)
            return &plm_gpu_kernels[i];
    return NULL;
}

// ---- all of a plan ----

bool plm_gpu_typed_by_kv(enum plm_op op)
{
    return op == PLM_OP_ROPE_KV || op == PLM_OP_ATTENTION || op == PLM_OP_ATTENTION_SPLIT;
}

static bool needed(const struct plm_gpu_kernel *k, const struct plm_kernel_needs *needs)
{
    // Plain types have no 8-bit products; the others have float ones only where they are asked for.
    const bool plain = plm_panel_type(k->type).codes == PLM_CODES_ELEMENTS;
    if (k->type == PLM_ANY_TYPE)
        return true;
    if (k->act == PLM_ACT_F32 && !plain && !needs->float_acts)
        return false;
    return ((plm_gpu_typed_by_kv(k->op) ? needs->kv_types : needs->weight_types) >> k->type & 1) !=
           0;
}

int plm_gpu_kernels_each(const struct plm_kernel_needs *needs, plm_gpu_kernel_visit *visit,
                         void *ctx)
{
    int r = PLM_OK;
    for (size_t i = 0; i < PLM_GPU_KERNELS && r == PLM_OK; i++)
        if (needed(&plm_gpu_kernels[i], needs))
            r = visit(ctx, &plm_gpu_kernels[i]);
    return r;
}

uint64_t plm_gpu_kernels_ops(void)
{
    uint64_t mask = 0;
    for (size_t i = 0; i < PLM_GPU_KERNELS; i++)
        mask |= UINT64_C(1) << ops[i];
    return mask;
}
