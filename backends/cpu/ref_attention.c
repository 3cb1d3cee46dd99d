// SPDX-License-Identifier: Apache-2.0
// Reference: attention, attention_split, attention_merge.
#include "backends/cpu/refs.h"
#include "backends/cpu/rows.h"

#define BLOCK PLM_KV_BLOCK_TOKENS

// Element i of a head's part of a block. scale_i: the scale that it has in Q8_0.
static float kv_load(const uint8_t *part, uint64_t i, uint64_t scale_i, uint32_t head_dim,
                     uint32_t kv_type)
{
    if (kv_type == PLM_TYPE_Q8_0) {
        const void *scales = part + PLM_KV_HEAD_ELEMENTS(head_dim);
        return plm_f16_to_f32(((const uint16_t *)scales)[scale_i]) * (float)(int8_t)part[i];
    }
    if (kv_type == PLM_TYPE_F16)
        return plm_f16_to_f32(((const uint16_t *)(const void *)part)[i]);
    return ((const float *)(const void *)part)[i];
}

// Element d of the token at place j: of K and of V.
static float k_load(const uint8_t *k, uint32_t j, uint32_t d, uint32_t head_dim, uint32_t kv_type)
{
    return kv_load(k, d * BLOCK + j, d / PLM_KV_Q8_BLOCK * BLOCK + j, head_dim, kv_type);
}

static float v_load(const uint8_t *v, uint32_t j, uint32_t d, uint32_t head_dim, uint32_t kv_type)
{
    return kv_load(v, j * head_dim + d, (j * head_dim + d) / PLM_KV_Q8_BLOCK, head_dim, kv_type);
}

// What one row sees of the cache.
struct view {
    const uint64_t *table; // of its sequence
    uint64_t layer_offset;
    uint32_t first, end; // positions
    uint32_t kv_heads, head_dim, kv_type;
    float scale;
};

// Row r's of an array of positions or sequences.
static uint32_t row_of(uint64_t array, uint32_t r)
{
    return (uint32_t)PLM_PTR(const int32_t, array)[r];
}

// The view of row r. Both ops' arguments have these fields.
#define VIEW_OF(a, r)                                                                              \
    ((struct view){.table = PLM_PTR(const uint64_t, (a)->tables) +                                 \
                            (uint64_t)row_of((a)->seq, r) * (a)->table_stride,                     \
                   .layer_offset = (a)->layer_offset,                                              \
                   .first = PLM_ATTN_FIRST(row_of((a)->pos, r), (a)->window),                      \
                   .end = row_of((a)->pos, r) + 1,                                                 \
                   .kv_heads = (a)->kv_heads,                                                      \
                   .head_dim = (a)->head_dim,                                                      \
                   .kv_type = (a)->kv_type,                                                        \
                   .scale = (a)->scale})

// Softmax state of one query head over the blocks seen so far.
struct state {
    float top;
    float sums[BLOCK];
    float *out; // [head_dim]
};

// Adds the tokens [from, n) of a block. k and v point to the head's parts.
static void attend_block(struct state *s, const float *q, const uint8_t *k, const uint8_t *v,
                         uint32_t from, uint32_t n, const struct view *a)
{
    float score[BLOCK], p[BLOCK] = {0};
    float top = s->top;
    for (uint32_t j = from; j < n; j++) {
        float dot = 0.0f;
        for (uint32_t d = 0; d < a->head_dim; d++)
            dot = fmaf(q[d], k_load(k, j, d, a->head_dim, a->kv_type), dot);
        score[j] = dot * a->scale;
        top = score[j] > top ? score[j] : top;
    }
    float c = plm_expf(s->top - top);
    for (uint32_t j = from; j < n; j++)
        p[j] = plm_expf(score[j] - top);
    for (uint32_t j = 0; j < BLOCK; j++)
        s->sums[j] = fmaf(s->sums[j], c, p[j]);
    for (uint32_t d = 0; d < a->head_dim; d++) {
        float o = s->out[d] * c;
        for (uint32_t j = from; j < n; j++)
            o = fmaf(p[j], v_load(v, j, d, a->head_dim, a->kv_type), o);
        s->out[d] = o;
    }
    s->top = top;
}

// What the row sees of positions [begin, end) of one KV head, begun from scratch; out is not
// divided by the sum. begin is a multiple of BLOCK.
static struct state attend(const float *q, float *out, const struct view *a, uint32_t kv_head,
                           uint32_t begin, uint32_t end)
{
    const uint64_t head_bytes = PLM_KV_HEAD_BYTES(a->kv_type, a->head_dim);
    struct state s = {-INFINITY, {0}, out};
    memset(out, 0, (uint64_t)a->head_dim * 4);
    begin = begin > a->first ? begin : a->first / BLOCK * BLOCK;
    end = end < a->end ? end : a->end;
    for (uint32_t at = begin; at < end; at += BLOCK) {
        const uint8_t *k =
            PLM_PTR(const uint8_t, a->table[at / BLOCK] + a->layer_offset) + kv_head * head_bytes;
        const uint32_t from = a->first > at ? a->first - at : 0;
        const uint32_t n = end - at < BLOCK ? end - at : BLOCK;
        attend_block(&s, q, k, k + a->kv_heads * head_bytes, from, n, a);
    }
    return s;
}

void plm_ref_attention(const void *args, uint32_t begin, uint32_t end, void *scratch)
{
    (void)scratch;
    const struct plm_attention_args *a = args;
    const uint32_t group = a->heads / a->kv_heads;
    for (uint32_t u = begin; u < end; u++) {
        uint32_t kv_head = u / a->rows, r = u % a->rows;
        const struct view view = VIEW_OF(a, r);
        for (uint32_t h = kv_head * group; h < (kv_head + 1) * group; h++) {
            const float *q =
                PLM_PTR(const float, a->q) + (uint64_t)r * a->ld_q + (uint64_t)h * a->head_dim;
            float *out = PLM_PTR(float, a->dst) + ((uint64_t)r * a->heads + h) * a->head_dim;
            struct state s = attend(q, out, &view, kv_head, 0, view.end);
            float sum = plm_sum16(s.sums);
            for (uint32_t d = 0; d < a->head_dim; d++)
                out[d] /= sum;
        }
    }
}

void plm_ref_attention_split(const void *args, uint32_t begin, uint32_t end, void *scratch)
{
    (void)scratch;
    const struct plm_attention_split_args *a = args;
    const uint32_t group = a->heads / a->kv_heads;
    for (uint32_t u = begin; u < end; u++) {
        uint32_t r = u / a->splits, split = u % a->splits;
        const struct view view = VIEW_OF(a, r);
        const uint32_t at = (view.first / PLM_ATTN_SPLIT_TOKENS + split) * PLM_ATTN_SPLIT_TOKENS;
        for (uint32_t h = 0; at < view.end && h < a->heads; h++) {
            const float *q =
                PLM_PTR(const float, a->q) + (uint64_t)r * a->ld_q + (uint64_t)h * a->head_dim;
            float *record = PLM_PTR(float, a->partial) +
                            (((uint64_t)r * a->heads + h) * a->splits + split) * (a->head_dim + 2);
            struct state s =
                attend(q, record + 2, &view, h / group, at, at + PLM_ATTN_SPLIT_TOKENS);
            record[0] = s.top;
            record[1] = plm_sum16(s.sums);
        }
    }
}

// Merges the records of one head into out.
static void merge_head(const struct plm_attention_merge_args *a, const float *record,
                       uint32_t splits, float *out)
{
    float top = record[0], sum = record[1];
    memcpy(out, record + 2, (uint64_t)a->head_dim * 4);
    for (uint32_t s = 1; s < splits; s++) {
        record += a->head_dim + 2;
        float both = record[0] > top ? record[0] : top;
        float old = plm_expf(top - both), fresh = plm_expf(record[0] - both);
        sum = sum * old + record[1] * fresh;
        for (uint32_t d = 0; d < a->head_dim; d++)
            out[d] = out[d] * old + record[2 + d] * fresh;
        top = both;
    }
    for (uint32_t d = 0; d < a->head_dim; d++)
        out[d] /= sum;
}

// Merges one row's heads [h, h + n) into out.
static void merge_heads(const struct plm_attention_merge_args *a, uint32_t r, uint32_t h,
                        uint32_t n, float *out)
{
    const uint32_t pos = row_of(a->pos, r);
    const uint32_t splits =
        pos / PLM_ATTN_SPLIT_TOKENS - PLM_ATTN_FIRST(pos, a->window) / PLM_ATTN_SPLIT_TOKENS + 1;
    for (uint32_t i = 0; i < n; i++)
        merge_head(a,
                   PLM_PTR(const float, a->partial) +
                       ((uint64_t)r * a->heads + h + i) * a->splits * (a->head_dim + 2),
                   splits, out + (uint64_t)i * a->head_dim);
}

void plm_ref_attention_merge(const void *args, uint32_t begin, uint32_t end, void *scratch)
{
    const struct plm_attention_merge_args *a = args;
    const uint64_t n = (uint64_t)a->heads * a->head_dim;
    // Heads are merged in groups that fill whole blocks of 8-bit activations: head_dim is a
    // multiple of 8.
    float *part = scratch;
    const uint32_t group = a->head_dim % 32 == 0 ? 1 : a->head_dim % 16 == 0 ? 2 : 4;
    for (uint32_t r = begin; r < end; r++)
        for (uint32_t h = 0; h < a->heads; h += group) {
            const uint32_t heads = a->heads - h < group ? a->heads - h : group;
            const uint64_t at = (uint64_t)h * a->head_dim;
            merge_heads(a, r, h, heads, part);
            if (a->dst_f32 != 0)
                memcpy(PLM_PTR(float, a->dst_f32) + r * n + at, part,
                       (uint64_t)heads * a->head_dim * 4);
            for (uint32_t b = 0; a->dst_q8 != 0 && b < heads * a->head_dim / 32; b++)
                plm_q8_store(PLM_PTR(uint8_t, a->dst_q8) + r * PLM_ACT_Q8_ROW_BYTES(n) +
                                 (at / 32 + b) * PLM_ACT_Q8_BLOCK_BYTES,
                             part + b * 32);
        }
}
