// SPDX-License-Identifier: Apache-2.0
#include "backends/vulkan/variants.h"

#include <inttypes.h>
#include <stdio.h>

#include "backends/vulkan/device.h"
#include "backends/vulkan/kernels.h"
#include "backends/vulkan/pipelines.h"

// Ranges of rows within which the same rows of the table fit, and walk alike: a decode alone, a few
// sequences, a chunk of a prompt.
enum { ROWS_ONE, ROWS_FEW, ROWS_MANY };
static const char *const range_names[] = {"one", "few", "many"};

static uint64_t range_of(uint32_t rows)
{
    return rows <= 1 ? ROWS_ONE : rows <= PLM_VULKAN_FEW_ROWS ? ROWS_FEW : ROWS_MANY;
}

// Everything that a choice holds for, packed; 0: there is nothing to choose for this op. Sizes are
// bounded by the model's reader (n_in below 2^21), types of the file format below 2^6.
static uint64_t key_of(enum plm_op op, const void *args)
{
    if (op != PLM_OP_MATMUL)
        return 0;
    const struct plm_matmul_args *a = args;
    return (uint64_t)a->n_out << 32 | (uint64_t)(a->n_in & 0x1FFFFF) << 11 |
           (uint64_t)(a->type & 63) << 5 | (uint64_t)(a->act & 3) << 3 | range_of(a->rows) << 1 | 1;
}

uint32_t plm_vk_chosen(const struct plm_choices *choices, enum plm_op op, const void *args)
{
    return choices->n > 0 ? plm_choices_get(choices, key_of(op, args)) : 0;
}

uint32_t plm_vk_variants(const struct plm_backend_device *dev, enum plm_op op, const void *args,
                         char name[PLM_TUNING_NAME_BYTES])
{
    struct plm_vk_kernel kernel;
    uint32_t n = 1;
    if (key_of(op, args) == 0)
        return n;
    const struct plm_matmul_args *a = args;
    snprintf(name, PLM_TUNING_NAME_BYTES,
             "matmul t%" PRIu32 "/a%" PRIu32 " %" PRIu32 "x%" PRIu32 " %s", a->type, a->act,
             a->n_in, a->n_out, range_names[range_of(a->rows)]);
    while (plm_vk_kernel_of(&dev->pipelines->kernels, op, args, n, &kernel) == PLM_OK)
        n++;
    return n;
}

// Which kernel an index means depends on type and rows; they are counted as kernels.c orders them.
const char *plm_vk_variant_name(const struct plm_backend_device *dev, enum plm_op op,
                                uint32_t index)
{
    static const char *const names[] = {"first", "second", "third", "fourth", "fifth", "sixth"};
    (void)dev;
    const uint32_t n = op == PLM_OP_MATMUL ? sizeof(names) / sizeof(names[0]) : 1;
    return index < n ? names[index] : NULL;
}

int plm_vk_choose(struct plm_backend_device *dev, enum plm_op op, const void *args, uint32_t index)
{
    const uint64_t key = key_of(op, args);
    if (key == 0)
        return PLM_OK; // there is one variant
    return plm_choices_set(&dev->pipelines->choices, key, index);
}
