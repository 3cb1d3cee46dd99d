// SPDX-License-Identifier: Apache-2.0
// Reference: rope_table, rope_kv.
#include "backends/cpu/fn.h"
#include "backends/cpu/rows.h"

// 2 pi / 2^64: radians of one unit of a product of a position and a phase increment.
#define ROPE_UNIT 0x1.921fb54442d18p-62

void PLM_CPU_FN(rope_table)(const void *args, uint32_t begin, uint32_t end, void *scratch)
{
    (void)scratch;
    const struct plm_rope_table_args *a = args;
    const uint64_t *increments = PLM_PTR(const uint64_t, a->increments);
    const uint32_t pairs = a->dims / 2;
    for (uint32_t r = begin; r < end; r++) {
        const uint64_t pos = (uint64_t)(int64_t)PLM_PTR(const int32_t, a->pos)[r];
        double scale = a->scale != 0.0f ? (double)a->scale : 1.0;
        if (a->scales != 0)
            scale *= (double)PLM_PTR(const float, a->scales)[pos / a->scale_span];
        float *dst = PLM_PTR(float, a->dst) + (uint64_t)r * pairs * 2;
        for (uint32_t i = 0; i < pairs; i++) {
            const double angle = (double)(int64_t)(pos * increments[i]) * ROPE_UNIT;
            dst[i * 2] = (float)(cos(angle) * scale);
            dst[i * 2 + 1] = (float)(sin(angle) * scale);
        }
    }
}

// Rotates the heads of one row; table is the row's (cos, sin) pairs.
static void rope_row(float *x, const float *table, uint32_t heads, uint32_t head_dim, uint32_t dims,
                     uint32_t mode)
{
    for (uint32_t h = 0; h < heads; h++)
        plm_rope_head(x + (uint64_t)h * head_dim, table, dims, mode);
}

// Stores one token's K (transposed) and V; block points to its layer in the KV block.
static void kv_store(uint8_t *block, uint32_t place, const float *k, const float *v,
                     uint32_t kv_heads, uint32_t head_dim, uint32_t kv_type)
{
    for (uint32_t h = 0; h < kv_heads; h++) {
        plm_k_store(block, h, place, k + (uint64_t)h * head_dim, head_dim, kv_type);
        plm_v_store(block, kv_heads, h, place, v + (uint64_t)h * head_dim, head_dim, kv_type);
    }
}

void PLM_CPU_FN(rope_kv)(const void *args, uint32_t begin, uint32_t end, void *scratch)
{
    (void)scratch;
    const struct plm_rope_kv_args *a = args;
    for (uint32_t r = begin; r < end; r++) {
        const float *table = PLM_PTR(const float, a->table) + (uint64_t)r * a->dims;
        float *q = PLM_PTR(float, a->q) + (uint64_t)r * a->ld;
        float *k = PLM_PTR(float, a->k) + (uint64_t)r * a->ld;
        for (uint32_t h = 0; h < a->heads; h++)
            plm_norm_head(q + (uint64_t)h * a->head_dim, a->head_dim, a->norms, false);
        for (uint32_t h = 0; h < a->kv_heads; h++)
            plm_norm_head(k + (uint64_t)h * a->head_dim, a->head_dim, a->norms, true);
        rope_row(q, table, a->heads, a->head_dim, a->dims, a->mode);
        rope_row(k, table, a->kv_heads, a->head_dim, a->dims, a->mode);
        uint64_t block = PLM_PTR(const uint64_t, a->slots)[r] + a->layer_offset;
        uint32_t place = (uint32_t)PLM_PTR(const int32_t, a->pos)[r] % PLM_KV_BLOCK_TOKENS;
        kv_store(PLM_PTR(uint8_t, block), place, k,
                 PLM_PTR(const float, a->v) + (uint64_t)r * a->ld, a->kv_heads, a->head_dim,
                 a->kv_type);
    }
}
