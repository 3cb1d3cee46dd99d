// SPDX-License-Identifier: Apache-2.0
// Reference: attention.
#include "backends/cpu/refs.h"
#include "backends/cpu/rows.h"

#define BLOCK PLM_KV_BLOCK_TOKENS

static float kv_load(const uint8_t *base, uint64_t i, uint32_t kv_type)
{
    if (kv_type == PLM_TYPE_F16)
        return plm_f16_to_f32(((const uint16_t *)(const void *)base)[i]);
    return ((const float *)(const void *)base)[i];
}

// Softmax state of one query head over the blocks seen so far.
struct state {
    float top;
    float sums[BLOCK];
    float *out; // [head_dim]
};

// Adds the first n tokens of a block. k and v point to the head's [head_dim][16] and
// [16][head_dim].
static void attend_block(struct state *s, const float *q, const uint8_t *k, const uint8_t *v,
                         uint32_t n, const struct plm_attention_args *a)
{
    float score[BLOCK], p[BLOCK] = {0};
    float top = s->top;
    for (uint32_t j = 0; j < n; j++) {
        float dot = 0.0f;
        for (uint32_t d = 0; d < a->head_dim; d++)
            dot = fmaf(q[d], kv_load(k, d * BLOCK + j, a->kv_type), dot);
        score[j] = dot * a->scale;
        top = score[j] > top ? score[j] : top;
    }
    float c = plm_expf(s->top - top);
    for (uint32_t j = 0; j < n; j++)
        p[j] = plm_expf(score[j] - top);
    for (uint32_t j = 0; j < BLOCK; j++)
        s->sums[j] = fmaf(s->sums[j], c, p[j]);
    for (uint32_t d = 0; d < a->head_dim; d++) {
        float o = s->out[d] * c;
        for (uint32_t j = 0; j < n; j++)
            o = fmaf(p[j], kv_load(v, (uint64_t)j * a->head_dim + d, a->kv_type), o);
        s->out[d] = o;
    }
    s->top = top;
}

void plm_ref_attention(const void *args, uint32_t begin, uint32_t end, void *scratch)
{
    (void)scratch;
    const struct plm_attention_args *a = args;
    const uint32_t group = a->heads / a->kv_heads;
    const uint64_t elem = a->kv_type == PLM_TYPE_F16 ? 2 : 4;
    const uint64_t head_bytes = (uint64_t)BLOCK * a->head_dim * elem;
    for (uint32_t u = begin; u < end; u++) {
        uint32_t kv_head = u / a->rows, r = u % a->rows;
        uint32_t pos = (uint32_t)PLM_PTR(const int32_t, a->pos)[r];
        uint64_t seq = (uint32_t)PLM_PTR(const int32_t, a->seq)[r];
        const uint64_t *table = PLM_PTR(const uint64_t, a->tables) + seq * a->table_stride;
        for (uint32_t h = kv_head * group; h < (kv_head + 1) * group; h++) {
            const float *q =
                PLM_PTR(const float, a->q) + (uint64_t)r * a->ld_q + (uint64_t)h * a->head_dim;
            float *out = PLM_PTR(float, a->dst) + ((uint64_t)r * a->heads + h) * a->head_dim;
            struct state s = {-INFINITY, {0}, out};
            memset(out, 0, (uint64_t)a->head_dim * 4);
            for (uint32_t b = 0; b <= pos / BLOCK; b++) {
                const uint8_t *k =
                    PLM_PTR(const uint8_t, table[b] + a->layer_offset) + kv_head * head_bytes;
                uint32_t n = pos + 1 - b * BLOCK < BLOCK ? pos + 1 - b * BLOCK : BLOCK;
                attend_block(&s, q, k, k + a->kv_heads * head_bytes, n, a);
            }
            float sum = plm_sum16(s.sums);
            for (uint32_t d = 0; d < a->head_dim; d++)
                out[d] /= sum;
        }
    }
}
