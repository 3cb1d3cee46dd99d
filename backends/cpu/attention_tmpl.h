// SPDX-License-Identifier: Apache-2.0
// attention over the vectors of a vec_*.h, which is included before. Query heads that share a KV
// head, of neighbouring rows of one sequence, form a tile: K and V are loaded and converted once
// for all of it. What is computed per query is the reference's order exactly.
#include "backends/cpu/fn.h"
#include "backends/cpu/rows.h"

#define AT_BLOCK   PLM_KV_BLOCK_TOKENS
#define AT_PARTS   (AT_BLOCK / VL) // vectors of scores of one block
#define AT_QUERIES 12              // query heads of a tile; a multiple of every VEC_QUERIES
#define AT_CHUNK   4               // vectors of the head dimension accumulated at once
#define AT_MAX_DIM 256

struct at_query {
    const float *q;
    float *dst;
    uint32_t pos;
};

// Lives in the worker's scratch.
struct at_tile {
    float out[AT_QUERIES][AT_MAX_DIM];
    float sums[AT_QUERIES][AT_BLOCK];
    float score[AT_QUERIES][AT_BLOCK]; // scores, then probabilities
    float top[AT_QUERIES];
    float scale[AT_QUERIES]; // what the sums so far are multiplied by in this block
    struct at_query query[AT_QUERIES];
    uint32_t n[AT_QUERIES]; // tokens of this block that the query sees
    uint32_t queries;
};
_Static_assert(sizeof(struct at_tile) <= PLM_CPU_SCRATCH_BYTES,
               "attention tile beyond the scratch");

VEC_FN vf at_load(const uint8_t *base, uint64_t i, const bool f16)
{
    return f16 ? vf_load_f16(base + i * 2) : vf_load(base + i * 4);
}

// Raw scores of `count` queries from `first` on.
VEC_FN void at_scores(struct at_tile *t, uint32_t first, const int count, const uint8_t *k,
                      uint32_t head_dim, const bool f16)
{
    vf acc[VEC_QUERIES][AT_PARTS];
    VEC_UNROLL for (int i = 0; i < count; i++)
        VEC_UNROLL for (int part = 0; part < AT_PARTS; part++) acc[i][part] = vf_set1(0.0f);
    for (uint32_t d = 0; d < head_dim; d++)
        VEC_UNROLL for (int part = 0; part < AT_PARTS; part++)
        {
            vf kv = at_load(k, d * AT_BLOCK + part * VL, f16);
            VEC_UNROLL for (int i = 0; i < count; i++) acc[i][part] =
                vf_fma(vf_set1(t->query[first + i].q[d]), kv, acc[i][part]);
        }
    VEC_UNROLL for (int i = 0; i < count; i++)
        VEC_UNROLL for (int part = 0; part < AT_PARTS; part++)
            vf_store(&t->score[first + i][part * VL], acc[i][part]);
}

// Scores to probabilities, and the running maximum and sums.
VEC_FN void at_softmax(struct at_tile *t, uint32_t i, float scale)
{
    const int n = (int)t->n[i];
    vf s[AT_PARTS], low = vf_set1(-INFINITY);
    float top = t->top[i];
    VEC_UNROLL for (int part = 0; part < AT_PARTS; part++)
    {
        int seen = n - part * VL < 0 ? 0 : n - part * VL > VL ? VL : n - part * VL;
        s[part] = vf_mul(vf_load(&t->score[i][part * VL]), vf_set1(scale));
        s[part] = vf_first(s[part], low, seen);
        float most = vf_top(s[part]);
        top = most > top ? most : top;
    }
    t->scale[i] = plm_expf(t->top[i] - top);
    t->top[i] = top;
    VEC_UNROLL for (int part = 0; part < AT_PARTS; part++)
    {
        int seen = n - part * VL < 0 ? 0 : n - part * VL > VL ? VL : n - part * VL;
        vf p = vf_first(vf_exp(vf_sub(s[part], vf_set1(top))), vf_set1(0.0f), seen);
        vf_store(&t->score[i][part * VL], p);
        float *sums = &t->sums[i][part * VL];
        vf_store(sums, vf_fma(vf_load(sums), vf_set1(t->scale[i]), p));
    }
}

// Adds tokens [from, to) times V to the outputs of `count` queries, `vecs` vectors from dimension
// d0 on; with rescale the old sums are scaled first.
VEC_FN void at_values(struct at_tile *t, uint32_t first, const int count, uint32_t d0,
                      const int vecs, uint32_t from, uint32_t to, bool rescale, const uint8_t *v,
                      uint32_t head_dim, const bool f16)
{
    vf acc[VEC_QUERIES][AT_CHUNK];
    VEC_UNROLL for (int i = 0; i < count; i++)
    {
        vf c = vf_set1(t->scale[first + i]);
        VEC_UNROLL for (int w = 0; w < vecs; w++)
        {
            acc[i][w] = vf_load(&t->out[first + i][d0 + w * VL]);
            if (rescale)
                acc[i][w] = vf_mul(acc[i][w], c);
        }
    }
    for (uint32_t j = from; j < to; j++) {
        vf row[AT_CHUNK];
        VEC_UNROLL for (int w = 0; w < vecs; w++) row[w] =
            at_load(v, (uint64_t)j * head_dim + d0 + w * VL, f16);
        VEC_UNROLL for (int i = 0; i < count; i++)
        {
            vf p = vf_set1(t->score[first + i][j]);
            VEC_UNROLL for (int w = 0; w < vecs; w++) acc[i][w] = vf_fma(p, row[w], acc[i][w]);
        }
    }
    VEC_UNROLL for (int i = 0; i < count; i++) VEC_UNROLL for (int w = 0; w < vecs; w++)
        vf_store(&t->out[first + i][d0 + w * VL], acc[i][w]);
}

// All dimensions of `count` queries.
VEC_FN void at_values_all(struct at_tile *t, uint32_t first, const int count, uint32_t from,
                          uint32_t to, bool rescale, const uint8_t *v, uint32_t head_dim,
                          const bool f16)
{
    uint32_t d = 0;
    for (; d + AT_CHUNK * VL <= head_dim; d += AT_CHUNK * VL)
        at_values(t, first, count, d, AT_CHUNK, from, to, rescale, v, head_dim, f16);
    for (; d < head_dim; d += VL)
        at_values(t, first, count, d, 1, from, to, rescale, v, head_dim, f16);
}

// One block for queries [first, first + count), all of which see at least one of its tokens.
VEC_FN void at_group(struct at_tile *t, uint32_t first, const int count, const uint8_t *k,
                     const uint8_t *v, const struct plm_attention_args *a, const bool f16)
{
    uint32_t least = AT_BLOCK, most = 0;
    at_scores(t, first, count, k, a->head_dim, f16);
    VEC_UNROLL for (int i = 0; i < count; i++)
    {
        uint32_t n = t->n[first + i];
        at_softmax(t, first + i, a->scale);
        least = n < least ? n : least;
        most = n > most ? n : most;
    }
    at_values_all(t, first, count, 0, least, true, v, a->head_dim, f16);
    if (least == most)
        return;
    // Tokens that only some of the queries see must not touch the others, not even times zero.
    VEC_UNROLL for (int i = 0; i < count; i++) if (t->n[first + i] > least)
        at_values_all(t, first + i, 1, least, t->n[first + i], false, v, a->head_dim, f16);
}

static __attribute__((noinline)) void at_block_f16(struct at_tile *t, uint32_t first, uint32_t end,
                                                   const uint8_t *k, const uint8_t *v,
                                                   const struct plm_attention_args *a)
{
    for (; end - first >= VEC_QUERIES; first += VEC_QUERIES)
        at_group(t, first, VEC_QUERIES, k, v, a, true);
#if VEC_QUERIES > 3
    for (; end - first >= 3; first += 3)
        at_group(t, first, 3, k, v, a, true);
#endif
    for (; first < end; first++)
        at_group(t, first, 1, k, v, a, true);
}

static __attribute__((noinline)) void at_block_f32(struct at_tile *t, uint32_t first, uint32_t end,
                                                   const uint8_t *k, const uint8_t *v,
                                                   const struct plm_attention_args *a)
{
    for (; end - first >= VEC_QUERIES; first += VEC_QUERIES)
        at_group(t, first, VEC_QUERIES, k, v, a, false);
    for (; first < end; first++)
        at_group(t, first, 1, k, v, a, false);
}

// Runs a tile whose queries are ordered by position and belong to one sequence and KV head.
static void at_run(struct at_tile *t, const struct plm_attention_args *a, const uint64_t *table,
                   uint32_t kv_head)
{
    const uint64_t elem = a->kv_type == PLM_TYPE_F16 ? 2 : 4;
    const uint64_t head_bytes = (uint64_t)AT_BLOCK * a->head_dim * elem;
    uint32_t first = 0; // queries before it do not reach the block
    for (uint32_t i = 0; i < t->queries; i++) {
        t->top[i] = -INFINITY;
        memset(t->out[i], 0, sizeof t->out[i]);
        memset(t->sums[i], 0, sizeof t->sums[i]);
    }
    for (uint32_t b = 0;; b++) {
        for (; first < t->queries && t->query[first].pos / AT_BLOCK < b; first++)
            ;
        if (first == t->queries)
            break;
        for (uint32_t i = first; i < t->queries; i++) {
            uint32_t n = t->query[i].pos + 1 - b * AT_BLOCK;
            t->n[i] = n < AT_BLOCK ? n : AT_BLOCK;
        }
        const uint8_t *k =
            PLM_PTR(const uint8_t, table[b] + a->layer_offset) + kv_head * head_bytes;
        const uint8_t *v = k + a->kv_heads * head_bytes;
        if (a->kv_type == PLM_TYPE_F16)
            at_block_f16(t, first, t->queries, k, v, a);
        else
            at_block_f32(t, first, t->queries, k, v, a);
    }
    for (uint32_t i = 0; i < t->queries; i++) {
        vf sum = vf_set1(plm_sum16(t->sums[i]));
        for (uint32_t d = 0; d < a->head_dim; d += VL)
            vf_store(&t->query[i].dst[d], vf_div(vf_load(&t->out[i][d]), sum));
    }
}

void PLM_CPU_FN(attention)(const void *args, uint32_t begin, uint32_t end, void *scratch)
{
    const struct plm_attention_args *a = args;
    struct at_tile *t = scratch;
    const uint32_t group = a->heads / a->kv_heads;
    const int32_t *pos = PLM_PTR(const int32_t, a->pos), *seq = PLM_PTR(const int32_t, a->seq);
    if (a->head_dim % VL != 0) {
        AT_FALLBACK(args, begin, end, scratch);
        return;
    }
    uint32_t u = begin;
    while (u < end) {
        // Rows r .. r + n - 1 of one KV head and one sequence, at rising positions.
        uint32_t kv_head = u / a->rows, r = u % a->rows, n = 1;
        uint32_t most = group < AT_QUERIES ? AT_QUERIES / group : 1;
        most = most < end - u ? most : end - u;
        most = most < a->rows - r ? most : a->rows - r;
        while (n < most && seq[r + n] == seq[r] && pos[r + n] >= pos[r + n - 1])
            n++;
        const uint64_t *table =
            PLM_PTR(const uint64_t, a->tables) + (uint64_t)(uint32_t)seq[r] * a->table_stride;
        for (uint32_t h0 = 0; h0 < group; h0 += AT_QUERIES) {
            uint32_t heads = group - h0 < AT_QUERIES ? group - h0 : AT_QUERIES;
            t->queries = 0;
            for (uint32_t i = r; i < r + n; i++)
                for (uint32_t h = 0; h < heads; h++) {
                    uint64_t head = (uint64_t)kv_head * group + h0 + h;
                    t->query[t->queries++] = (struct at_query){
                        PLM_PTR(const float, a->q) + (uint64_t)i * a->ld_q + head * a->head_dim,
                        PLM_PTR(float, a->dst) + ((uint64_t)i * a->heads + head) * a->head_dim,
                        (uint32_t)pos[i]};
                }
            at_run(t, a, table, kv_head);
        }
        u += n;
    }
}
