// SPDX-License-Identifier: Apache-2.0
#include <inttypes.h>
#include <stdio.h>

#include "backends/gpudrv/impl.h"

// Ranges of rows within which the same kernels fit, so that an index means one of them: a decode
// alone; up to one and two m16n8 products wide (where kernels/kernels.def ends what is for few rows
// of float and of 8-bit activations); as many as still go without tiles; a chunk of a prompt.
static const uint32_t range_ends[] = {1, 8, 16, PLM_CUDA_FEW_ROWS, UINT32_MAX};
static const char *const range_names[] = {"one", "few", "some", "batch", "many"};

static uint64_t range_of(uint32_t rows)
{
    uint64_t i = 0;
    while (rows > range_ends[i])
        i++;
    return i;
}

// What a choice holds for.
struct product {
    uint32_t type, act, n_in, n_out, rows;
};

// False: there is nothing to choose for this op.
static bool product_of(enum plm_op op, const void *args, struct product *ret)
{
    if (op == PLM_OP_MATMUL) {
        const struct plm_matmul_args *a = args;
        *ret = (struct product){a->type, a->act, a->n_in, a->n_out, a->rows};
    } else if (op == PLM_OP_GLU) {
        const struct plm_glu_args *a = args;
        *ret = (struct product){a->type, a->act, a->n_in, a->n_out, a->rows};
    } else if (op == PLM_OP_QKV) {
        const struct plm_qkv_args *a = args;
        const uint32_t heads = PLM_LOW(a->heads) + 2 * PLM_HIGH(a->heads);
        *ret = (struct product){PLM_KIND(a->kinds, 0), PLM_KIND(a->kinds, 1), a->n_in,
                                heads * PLM_LOW(a->head_dim), a->rows};
    } else {
        return false;
    }
    return true;
}

// All of it packed; 0: there is nothing to choose for this op. Sizes are bounded by the model's
// reader (n_in below 2^21), types of the file format below 2^6.
static uint64_t key_of(enum plm_op op, const void *args)
{
    struct product p;
    if (!product_of(op, args, &p))
        return 0;
    const uint64_t kind = op == PLM_OP_MATMUL ? 1 : op == PLM_OP_GLU ? 2 : 3;
    return (uint64_t)p.n_out << 34 | (uint64_t)(p.n_in & 0x1FFFFF) << 13 |
           (uint64_t)(p.type & 63) << 7 | (uint64_t)(p.act & 3) << 5 | range_of(p.rows) << 2 | kind;
}

uint32_t plm_gpu_chosen(const struct plm_choices *choices, enum plm_op op, const void *args)
{
    return choices->n > 0 ? plm_choices_get(choices, key_of(op, args)) : 0;
}

uint32_t plm_gpu_variants(const struct plm_backend_device *dev, enum plm_op op, const void *args,
                          char name[PLM_TUNING_NAME_BYTES])
{
    static const char *const ops[] = {"matmul", "glu", "qkv"};
    struct product p;
    uint32_t n = 1;
    (void)dev;
    if (!product_of(op, args, &p))
        return n;
    snprintf(name, PLM_TUNING_NAME_BYTES, "%s t%" PRIu32 "/a%" PRIu32 " %" PRIu32 "x%" PRIu32 " %s",
             ops[op == PLM_OP_MATMUL ? 0
                 : op == PLM_OP_GLU  ? 1
                                     : 2],
             p.type, p.act, p.n_in, p.n_out, range_names[range_of(p.rows)]);
    while (plm_gpu_kernel_of(op, args, n) != NULL)
        n++;
    return n;
}

// Which kernel an index means depends on type and rows; they are counted as kernels.def orders
// them.
const char *plm_gpu_variant_name(const struct plm_backend_device *dev, enum plm_op op,
                                 uint32_t index)
{
    static const char *const names[] = {"first", "second", "third", "fourth", "fifth", "sixth"};
    (void)dev;
    const bool several = op == PLM_OP_MATMUL || op == PLM_OP_GLU || op == PLM_OP_QKV;
    const uint32_t n = several ? sizeof(names) / sizeof(names[0]) : 1;
    return index < n ? names[index] : NULL;
}

int plm_gpu_choose(struct plm_backend_device *dev, enum plm_op op, const void *args, uint32_t index)
{
    const uint64_t key = key_of(op, args);
    return key != 0 ? plm_choices_set(&dev->choices, key, index)
                    : PLM_OK; // 0: there is one variant
}
