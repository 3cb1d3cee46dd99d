// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/choice.h"

#include <inttypes.h>
#include <stdio.h>

// Ranges of rows that share a choice: a decode alone, a few sequences, a chunk of a prompt.
enum { ROWS_ONE, ROWS_FEW, ROWS_MANY };
#define FEW_ROWS 32u // up to here a step is a decode of several

static const char *const range_names[] = {"one", "few", "many"};

static uint64_t range_of(uint32_t rows)
{
    return rows <= 1 ? ROWS_ONE : rows <= FEW_ROWS ? ROWS_FEW : ROWS_MANY;
}

// Everything that a choice holds for, packed; never 0. Sizes are bounded by the model's reader
// (n_in below 2^21, heads below 2^13, head_dim below 2^9), types of the file format below 2^6.
static uint64_t key_of(enum plm_op op, const void *args)
{
    if (op == PLM_OP_MATMUL) {
        const struct plm_matmul_args *a = args;
        return (uint64_t)a->n_out << 32 | (uint64_t)(a->n_in & 0x1FFFFF) << 11 |
               (uint64_t)(a->type & 63) << 5 | (uint64_t)(a->act & 3) << 3 |
               range_of(a->rows) << 1 | 1;
    }
    const struct plm_attention_args *a = args;
    return (uint64_t)(a->heads & 0x1FFF) << 32 | (uint64_t)(a->kv_heads & 0x1FFF) << 19 |
           (uint64_t)(a->head_dim & 0x1FF) << 9 | (uint64_t)(a->kv_type & 63) << 3 |
           range_of(a->rows) << 1;
}

static bool is_tuned(enum plm_op op)
{
    return op == PLM_OP_MATMUL || op == PLM_OP_ATTENTION;
}

// Where the key is, or would be put.
static uint32_t slot_of(const struct plm_cpu_choices *c, uint64_t key)
{
    uint32_t i = (uint32_t)((key * UINT64_C(0x9E3779B97F4A7C15)) >> 40) % PLM_CPU_CHOICES;
    while (c->slots[i].key != 0 && c->slots[i].key != key)
        i = (i + 1) % PLM_CPU_CHOICES;
    return i;
}

void plm_cpu_choices_init(struct plm_cpu_choices *choices, const struct plm_cpu_kernels *kernels)
{
    *choices = (struct plm_cpu_choices){.kernels = kernels};
}

uint32_t plm_cpu_choices_variants(const struct plm_cpu_choices *choices, enum plm_op op,
                                  const void *args, char name[PLM_TUNING_NAME_BYTES])
{
    struct plm_cpu_variant variants[PLM_CPU_VARIANTS];
    if (op == PLM_OP_MATMUL) {
        const struct plm_matmul_args *a = args;
        snprintf(name, PLM_TUNING_NAME_BYTES,
                 "matmul t%" PRIu32 "/a%" PRIu32 " %" PRIu32 "x%" PRIu32 " %s", a->type, a->act,
                 a->n_in, a->n_out, range_names[range_of(a->rows)]);
    } else if (op == PLM_OP_ATTENTION) {
        const struct plm_attention_args *a = args;
        snprintf(name, PLM_TUNING_NAME_BYTES,
                 "attention t%" PRIu32 " %" PRIu32 "/%" PRIu32 "x%" PRIu32 " %s", a->kv_type,
                 a->heads, a->kv_heads, a->head_dim, range_names[range_of(a->rows)]);
    }
    return plm_cpu_variants(choices->kernels, op, variants);
}

const char *plm_cpu_choices_name(const struct plm_cpu_choices *choices, enum plm_op op,
                                 uint32_t index)
{
    struct plm_cpu_variant variants[PLM_CPU_VARIANTS];
    return index < plm_cpu_variants(choices->kernels, op, variants) ? variants[index].name : NULL;
}

int plm_cpu_choices_set(struct plm_cpu_choices *choices, enum plm_op op, const void *args,
                        uint32_t index)
{
    struct plm_cpu_variant variants[PLM_CPU_VARIANTS];
    plm_cpu_variants(choices->kernels, op, variants);
    if (!is_tuned(op))
        return PLM_OK; // there is one variant
    const uint64_t key = key_of(op, args);
    const uint32_t i = slot_of(choices, key);
    if (choices->slots[i].key == 0) {
        if (choices->n == PLM_CPU_CHOICES / 2)
            return PLM_ERR_LIMIT;
        choices->n++;
        choices->slots[i].key = key;
    }
    choices->slots[i].fn = variants[index].fn;
    return PLM_OK;
}

plm_cpu_kernel *plm_cpu_choices_find(const struct plm_cpu_choices *choices, enum plm_op op,
                                     const void *args)
{
    if (choices->n > 0 && is_tuned(op)) {
        const uint32_t i = slot_of(choices, key_of(op, args));
        if (choices->slots[i].key != 0)
            return choices->slots[i].fn;
    }
    return choices->kernels->fn[op];
}
