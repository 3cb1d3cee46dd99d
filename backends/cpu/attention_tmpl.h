// SPDX-License-Identifier: Apache-2.0
// attention over the vectors of a vec_*.h, which is included before. Query heads that share a KV
// head, of neighbouring rows of one sequence, form a tile: K and V are loaded and converted once
// for all of it. What is computed per query is the reference's order exactly.
#include "backends/cpu/fn.h"
#include "backends/cpu/rows.h"

#define AT_BLOCK   PLM_KV_BLOCK_TOKENS
#define AT_PARTS   (AT_BLOCK / VL) // vectors of scores of one block
#define AT_QUERIES 24              // query heads of a tile
#define AT_CHUNK   4               // vectors of the head dimension accumulated at once
#define AT_AHEAD   4               // blocks whose scores one token's few queries compute together
#define AT_MAX_DIM 256

struct at_query {
    const float *q;
    float *dst;
    uint32_t first, pos; // positions: the first that it sees, and its own
};

// Lives in the worker's scratch.
struct at_tile {
    float out[AT_QUERIES][AT_MAX_DIM];
    float sums[AT_QUERIES][AT_BLOCK];
    float score[AT_QUERIES][AT_BLOCK]; // scores, then probabilities
    float k[AT_BLOCK * AT_MAX_DIM];    // of the block as floats
    float v[AT_BLOCK * AT_MAX_DIM];
    float v_scale[AT_BLOCK * AT_MAX_DIM / PLM_KV_Q8_BLOCK]; // of V in Q8_0
    float top[AT_QUERIES];
    float scale[AT_QUERIES]; // what the sums so far are multiplied by in this block
    struct at_query query[AT_QUERIES];
    uint32_t from[AT_QUERIES], n[AT_QUERIES]; // tokens of this block that the query sees: [from, n)
    uint32_t queries;
};
_Static_assert(sizeof(struct at_tile) <= PLM_CPU_SCRATCH_BYTES,
               "attention tile beyond the scratch");

// One block of one KV head: its parts of K and V.
struct at_kv {
    const uint8_t *k, *v;
    uint32_t head_dim;
    float scale;
};

// Elements from i on; of Q8_0 the codes alone. Types are constants where functions are inlined.
VEC_FN vf at_load(const uint8_t *part, uint64_t i, const uint32_t type)
{
    return type == PLM_TYPE_Q8_0  ? vf_load_i8(part + i)
           : type == PLM_TYPE_F16 ? vf_load_f16(part + i * 2)
                                  : vf_load(part + i * 4);
}

// Scales from i on in a part of Q8_0.
VEC_FN vf at_load_scales(const uint8_t *part, uint32_t head_dim, uint64_t i)
{
    return vf_load_f16(part + PLM_KV_HEAD_ELEMENTS(head_dim) + i * 2);
}

VEC_FN void at_load_v_scales(struct at_tile *t, const struct at_kv *kv)
{
    for (uint32_t i = 0; i < AT_BLOCK * kv->head_dim / PLM_KV_Q8_BLOCK; i += VL)
        vf_store(t->v_scale + i, at_load_scales(kv->v, kv->head_dim, i));
}

// Raw scores of `count` queries against `blocks` blocks; block b's go to score[b * count + i].
VEC_FN void at_scores(const struct at_query *query, const int count, const uint8_t *const *k,
                      const int blocks, uint32_t head_dim, const uint32_t type,
                      float (*score)[AT_BLOCK])
{
    const uint32_t same = type == PLM_TYPE_Q8_0 ? PLM_KV_Q8_BLOCK : head_dim; // have one scale
    vf acc[AT_AHEAD][VEC_SCORES][AT_PARTS];
    VEC_UNROLL for (int b = 0; b < blocks; b++) VEC_UNROLL for (int i = 0; i < count; i++)
        VEC_UNROLL for (int part = 0; part < AT_PARTS; part++) acc[b][i][part] = vf_set1(0.0f);
    for (uint32_t d0 = 0; d0 < head_dim; d0 += same) {
        vf scale[AT_AHEAD][AT_PARTS];
        if (type == PLM_TYPE_Q8_0)
            VEC_UNROLL for (int b = 0; b < blocks; b++)
                VEC_UNROLL for (int part = 0; part < AT_PARTS; part++) scale[b][part] =
                    at_load_scales(k[b], head_dim,
                                   d0 / PLM_KV_Q8_BLOCK * AT_BLOCK + (uint32_t)(part * VL));
        for (uint32_t d = d0; d < d0 + same; d++)
            VEC_UNROLL for (int b = 0; b < blocks; b++)
                VEC_UNROLL for (int part = 0; part < AT_PARTS; part++)
            {
                vf kv = at_load(k[b], d * AT_BLOCK + (uint32_t)(part * VL), type);
                if (type == PLM_TYPE_Q8_0)
                    kv = vf_mul(kv, scale[b][part]);
                VEC_UNROLL for (int i = 0; i < count; i++) acc[b][i][part] =
                    vf_fma(vf_set1(query[i].q[d]), kv, acc[b][i][part]);
            }
    }
    VEC_UNROLL for (int b = 0; b < blocks; b++) VEC_UNROLL for (int i = 0; i < count; i++)
        VEC_UNROLL for (int part = 0; part < AT_PARTS; part++)
            vf_store(&score[b * count + i][part * VL], acc[b][i][part]);
}

// Scores of query i, at `score`, to probabilities, and the running maximum and sums.
VEC_FN void at_softmax(struct at_tile *t, uint32_t i, float *score, float scale)
{
    const int from = (int)t->from[i], n = (int)t->n[i];
    const vf low = vf_set1(-INFINITY);
    vf s[AT_PARTS], most = low;
    VEC_UNROLL for (int part = 0; part < AT_PARTS; part++)
    {
        s[part] = vf_mul(vf_load(score + part * VL), vf_set1(scale));
        if (n < AT_BLOCK)
            s[part] = vf_first(s[part], low, n - part * VL);
        if (from > 0)
            s[part] = vf_first(low, s[part], from - part * VL);
        most = vf_max(s[part], most);
    }
    float top = vf_top(most);
    top = top > t->top[i] ? top : t->top[i];
    // exp(0) is 1 exactly.
    t->scale[i] = top == t->top[i] ? 1.0f : plm_expf(t->top[i] - top);
    t->top[i] = top;
    VEC_UNROLL for (int part = 0; part < AT_PARTS; part++)
    {
        vf p = vf_exp(vf_sub(s[part], vf_set1(top)));
        if (n < AT_BLOCK)
            p = vf_first(p, vf_set1(0.0f), n - part * VL);
        if (from > 0)
            p = vf_first(vf_set1(0.0f), p, from - part * VL);
        vf_store(score + part * VL, p);
        float *sums = &t->sums[i][part * VL];
        vf_store(sums, vf_fma(vf_load(sums), vf_set1(t->scale[i]), p));
    }
}

// Adds tokens [from, to) times V to the outputs of `count` queries, `vecs` vectors from dimension
// d0 on; with rescale the old sums are scaled first.
VEC_FN void at_values(struct at_tile *t, uint32_t first, const int count,
                      const float (*p)[AT_BLOCK], uint32_t d0, const int vecs, uint32_t from,
                      uint32_t to, bool rescale, const struct at_kv *kv, const uint32_t type)
{
    vf acc[VEC_QUERIES][AT_CHUNK];
    VEC_UNROLL for (int i = 0; i < count; i++)
    {
        vf c = vf_set1(t->scale[first + (uint32_t)i]);
        VEC_UNROLL for (int w = 0; w < vecs; w++)
        {
            acc[i][w] = vf_load(&t->out[first + (uint32_t)i][d0 + (uint32_t)(w * VL)]);
            if (rescale)
                acc[i][w] = vf_mul(acc[i][w], c);
        }
    }
    for (uint32_t j = from; j < to; j++) {
        vf row[AT_CHUNK];
        VEC_UNROLL for (int w = 0; w < vecs; w++)
        {
            const uint32_t e = j * kv->head_dim + d0 + (uint32_t)(w * VL);
            row[w] = at_load(kv->v, e, type);
            if (type == PLM_TYPE_Q8_0)
                row[w] = vf_mul(row[w], vf_set1(t->v_scale[e / PLM_KV_Q8_BLOCK]));
        }
        VEC_UNROLL for (int i = 0; i < count; i++)
        {
            vf pj = vf_set1(p[i][j]);
            VEC_UNROLL for (int w = 0; w < vecs; w++) acc[i][w] = vf_fma(pj, row[w], acc[i][w]);
        }
    }
    VEC_UNROLL for (int i = 0; i < count; i++) VEC_UNROLL for (int w = 0; w < vecs; w++)
        vf_store(&t->out[first + (uint32_t)i][d0 + (uint32_t)(w * VL)], acc[i][w]);
}

// All dimensions of `count` queries.
VEC_FN void at_values_all(struct at_tile *t, uint32_t first, const int count,
                          const float (*p)[AT_BLOCK], uint32_t from, uint32_t to, bool rescale,
                          const struct at_kv *kv, const uint32_t type)
{
    uint32_t d = 0;
    for (; d + AT_CHUNK * VL <= kv->head_dim; d += AT_CHUNK * VL)
        at_values(t, first, count, p, d, AT_CHUNK, from, to, rescale, kv, type);
    for (; d < kv->head_dim; d += VL)
        at_values(t, first, count, p, d, 1, from, to, rescale, kv, type);
}

// Softmax and values of queries [first, first + count), whose scores are at p.
VEC_FN void at_finish(struct at_tile *t, uint32_t first, const int count, float (*p)[AT_BLOCK],
                      const struct at_kv *kv, const uint32_t type)
{
    const uint32_t from = t->from[first];
    uint32_t least = AT_BLOCK, most = 0;
    bool ragged = false; // windows that begin at different tokens
    for (int i = 0; i < count; i++) {
        uint32_t n = t->n[first + (uint32_t)i];
        at_softmax(t, first + (uint32_t)i, p[i], kv->scale);
        least = n < least ? n : least;
        most = n > most ? n : most;
        ragged = ragged || t->from[first + (uint32_t)i] != from;
    }
    const float(*probability)[AT_BLOCK] = (const float(*)[AT_BLOCK])p;
    // Tokens that only some of the queries see must not touch the others, not even times zero.
    if (!ragged)
        at_values_all(t, first, count, probability, from, least, true, kv, type);
    if (!ragged && least == most)
        return;
    for (int i = 0; i < count; i++) {
        uint32_t q = first + (uint32_t)i, begin = ragged ? t->from[q] : least;
        if (t->n[q] > begin)
            at_values_all(t, q, 1, probability + i, begin, t->n[q], ragged, kv, type);
    }
}

// Softmax and values of queries [first, end); query i's scores are at p[i - first].
VEC_FN void at_finish_all(struct at_tile *t, uint32_t first, uint32_t end, float (*p)[AT_BLOCK],
                          const struct at_kv *kv, const uint32_t type)
{
    if (type == PLM_TYPE_Q8_0)
        at_load_v_scales(t, kv);
    for (; end - first >= VEC_QUERIES; first += VEC_QUERIES, p += VEC_QUERIES)
        at_finish(t, first, VEC_QUERIES, p, kv, type);
#if VEC_QUERIES > 3
    for (; end - first >= 3; first += 3, p += 3)
        at_finish(t, first, 3, p, kv, type);
#endif
#if VEC_QUERIES > 1
    for (; first < end; first++, p++)
        at_finish(t, first, 1, p, kv, type);
#endif
}

VEC_FN void at_block(struct at_tile *t, uint32_t first, uint32_t end, const struct at_kv *kv,
                     const uint32_t type)
{
    uint32_t i = first;
    for (; end - i >= VEC_SCORES; i += VEC_SCORES)
        at_scores(t->query + i, VEC_SCORES, &kv->k, 1, kv->head_dim, type, t->score + i);
    for (; end - i >= 3; i += 3)
        at_scores(t->query + i, 3, &kv->k, 1, kv->head_dim, type, t->score + i);
    for (; i < end; i++)
        at_scores(t->query + i, 1, &kv->k, 1, kv->head_dim, type, t->score + i);
    at_finish_all(t, first, end, t->score + first, kv, type);
}

#define AT_AHEAD_QUERIES 4
_Static_assert(AT_AHEAD *AT_AHEAD_QUERIES <= AT_QUERIES && AT_AHEAD_QUERIES <= VEC_SCORES,
               "scores ahead need their rows");

// Scores of few queries against AT_AHEAD blocks: enough independent sums to keep the units busy.
VEC_FN void at_ahead(struct at_tile *t, const uint8_t *const k[AT_AHEAD], uint32_t head_dim,
                     const uint32_t type)
{
    switch (t->queries) {
    case 1: at_scores(t->query, 1, k, AT_AHEAD, head_dim, type, t->score); break;
    case 2: at_scores(t->query, 2, k, AT_AHEAD, head_dim, type, t->score); break;
    case 3: at_scores(t->query, 3, k, AT_AHEAD, head_dim, type, t->score); break;
    case AT_AHEAD_QUERIES: at_scores(t->query, 4, k, AT_AHEAD, head_dim, type, t->score); break;
    default: break;
    }
}

// One function per storage type, so that each instance is compiled once.
#define AT_TYPED(suffix, type)                                                                     \
    static __attribute__((noinline)) void at_block_##suffix(struct at_tile *t, uint32_t first,     \
                                                            uint32_t end, const struct at_kv *kv)  \
    {                                                                                              \
        at_block(t, first, end, kv, type);                                                         \
    }                                                                                              \
    static __attribute__((noinline)) void at_ahead_##suffix(                                       \
        struct at_tile *t, const uint8_t *const k[AT_AHEAD], uint32_t head_dim)                    \
    {                                                                                              \
        at_ahead(t, k, head_dim, type);                                                            \
    }                                                                                              \
    static __attribute__((noinline)) void at_finish_##suffix(                                      \
        struct at_tile *t, float(*p)[AT_BLOCK], const struct at_kv *kv)                            \
    {                                                                                              \
        at_finish_all(t, 0, t->queries, p, kv, type);                                              \
    }
AT_TYPED(f16, PLM_TYPE_F16)
AT_TYPED(f32, PLM_TYPE_F32)
AT_TYPED(q8_0, PLM_TYPE_Q8_0)

// What computes with K and V of a type as they lie.
struct at_typed {
    void (*block)(struct at_tile *t, uint32_t first, uint32_t end, const struct at_kv *kv);
    void (*ahead)(struct at_tile *t, const uint8_t *const k[AT_AHEAD], uint32_t head_dim);
    void (*finish)(struct at_tile *t, float (*p)[AT_BLOCK], const struct at_kv *kv);
};

static const struct at_typed *at_typed_of(uint32_t type)
{
    static const struct at_typed f16 = {at_block_f16, at_ahead_f16, at_finish_f16};
    static const struct at_typed f32 = {at_block_f32, at_ahead_f32, at_finish_f32};
    static const struct at_typed q8_0 = {at_block_q8_0, at_ahead_q8_0, at_finish_q8_0};
    return type == PLM_TYPE_Q8_0 ? &q8_0 : type == PLM_TYPE_F16 ? &f16 : &f32;
}

static void at_decode_f16(struct at_tile *t, const struct at_kv *kv)
{
    for (uint32_t i = 0; i < AT_BLOCK * kv->head_dim; i += VL) {
        vf_store(t->k + i, vf_load_f16(kv->k + (uint64_t)i * 2));
        vf_store(t->v + i, vf_load_f16(kv->v + (uint64_t)i * 2));
    }
}

static void at_decode_q8_0(struct at_tile *t, const struct at_kv *kv)
{
    const uint32_t run = PLM_KV_Q8_BLOCK * AT_BLOCK; // elements of K with the same 16 scales
    at_load_v_scales(t, kv);
    for (uint32_t i = 0; i < AT_BLOCK * kv->head_dim; i += VL) {
        const vf k_scale = at_load_scales(kv->k, kv->head_dim, i / run * AT_BLOCK + i % AT_BLOCK);
        const vf v_scale = vf_set1(t->v_scale[i / PLM_KV_Q8_BLOCK]);
        vf_store(t->k + i, vf_mul(vf_load_i8(kv->k + i), k_scale));
        vf_store(t->v + i, vf_mul(vf_load_i8(kv->v + i), v_scale));
    }
}

// A block for many queries: made floats once.
static void at_block_decoded(struct at_tile *t, uint32_t first, uint32_t end,
                             const struct at_kv *kv, uint32_t type)
{
    struct at_kv f = *kv;
    if (type == PLM_TYPE_Q8_0)
        at_decode_q8_0(t, kv);
    else
        at_decode_f16(t, kv);
    f.k = (const uint8_t *)t->k;
    f.v = (const uint8_t *)t->v;
    at_block_f32(t, first, end, &f);
}

// After the first block that a tile of one token sees.
static void at_whole_blocks(struct at_tile *t)
{
    memset(t->from, 0, t->queries * sizeof t->from[0]);
}

// The sequence's block table and where a KV head's data lies in a block.
struct at_source {
    const uint64_t *table;
    uint64_t k_offset, v_offset;
};

static struct at_kv at_open(const struct plm_attention_args *a, const struct at_source *s,
                            uint32_t b)
{
    const uint8_t *block = PLM_PTR(const uint8_t, s->table[b]);
    return (struct at_kv){block + s->k_offset, block + s->v_offset, a->head_dim, a->scale};
}

// The blocks up to ret of a tile of few queries of one token, as far as they are full.
static uint32_t at_run_few(struct at_tile *t, const struct plm_attention_args *a,
                           const struct at_source *s)
{
    const struct at_typed *typed = at_typed_of(a->kv_type);
    const uint32_t full = (t->query[0].pos + 1) / AT_BLOCK;
    uint32_t b = t->query[0].first / AT_BLOCK;
    if (t->queries > AT_AHEAD_QUERIES || t->query[0].pos != t->query[t->queries - 1].pos)
        return b;
    for (uint32_t i = 0; i < t->queries; i++) {
        t->from[i] = t->query[0].first % AT_BLOCK;
        t->n[i] = AT_BLOCK;
    }
    for (; b + AT_AHEAD <= full; b += AT_AHEAD) {
        const uint8_t *k[AT_AHEAD];
        struct at_kv kv[AT_AHEAD];
        for (uint32_t i = 0; i < AT_AHEAD; i++) {
            kv[i] = at_open(a, s, b + i);
            k[i] = kv[i].k;
        }
        typed->ahead(t, k, a->head_dim);
        for (uint32_t i = 0; i < AT_AHEAD; i++, at_whole_blocks(t))
            typed->finish(t, t->score + i * t->queries, &kv[i]);
    }
    return b;
}

// Which queries of a tile see part of block b: [*first, *end), and which tokens of it.
static void at_see(struct at_tile *t, uint32_t b, uint32_t first, uint32_t *end)
{
    while (*end < t->queries && t->query[*end].first / AT_BLOCK <= b)
        ++*end;
    for (uint32_t i = first; i < *end; i++) {
        const uint32_t at = b * AT_BLOCK, n = t->query[i].pos + 1 - at;
        t->from[i] = t->query[i].first > at ? t->query[i].first - at : 0;
        t->n[i] = n < AT_BLOCK ? n : AT_BLOCK;
    }
}

// Runs a tile whose queries are ordered by position and belong to one sequence and KV head.
static void at_run(struct at_tile *t, const struct plm_attention_args *a, const struct at_source *s)
{
    const struct at_typed *typed = at_typed_of(a->kv_type);
    uint32_t first = 0, end = 0; // queries before `first` and from `end` on do not see the block
    for (uint32_t i = 0; i < t->queries; i++) {
        t->top[i] = -INFINITY;
        memset(t->out[i], 0, (uint64_t)a->head_dim * 4);
        memset(t->sums[i], 0, sizeof t->sums[i]);
    }
    for (uint32_t b = at_run_few(t, a, s);; b++) {
        while (first < t->queries && t->query[first].pos / AT_BLOCK < b)
            first++;
        if (first == t->queries)
            break;
        if (t->query[first].first / AT_BLOCK > b)
            b = t->query[first].first / AT_BLOCK; // nobody sees what lies between
        at_see(t, b, first, &end);
        struct at_kv kv = at_open(a, s, b);
        if (a->kv_type != PLM_TYPE_F32 && end - first >= 2 * VEC_QUERIES)
            at_block_decoded(t, first, end, &kv, a->kv_type);
        else
            typed->block(t, first, end, &kv);
    }
    for (uint32_t i = 0; i < t->queries; i++) {
        vf sum = vf_set1(plm_sum16(t->sums[i]));
        for (uint32_t d = 0; d < a->head_dim; d += VL)
            vf_store(&t->query[i].dst[d], vf_div(vf_load(&t->out[i][d]), sum));
    }
}

// Fills the tile with heads [h, h + heads) of rows [r, r + n).
static void at_gather(struct at_tile *t, const struct plm_attention_args *a, uint32_t r, uint32_t n,
                      uint32_t h, uint32_t heads)
{
    const int32_t *pos = PLM_PTR(const int32_t, a->pos);
    t->queries = 0;
    for (uint32_t i = r; i < r + n; i++)
        for (uint64_t k = h; k < h + heads; k++)
            t->query[t->queries++] = (struct at_query){
                PLM_PTR(const float, a->q) + (uint64_t)i * a->ld_q + k * a->head_dim,
                PLM_PTR(float, a->dst) + ((uint64_t)i * a->heads + k) * a->head_dim,
                PLM_ATTN_FIRST((uint32_t)pos[i], a->window), (uint32_t)pos[i]};
}

void PLM_CPU_FN(attention)(const void *args, uint32_t begin, uint32_t end, void *scratch)
{
    const struct plm_attention_args *a = args;
    const uint32_t group = a->heads / a->kv_heads;
    const int32_t *pos = PLM_PTR(const int32_t, a->pos), *seq = PLM_PTR(const int32_t, a->seq);
    const uint64_t head_bytes = PLM_KV_HEAD_BYTES(a->kv_type, a->head_dim);
    if (a->head_dim % VL != 0) {
        AT_FALLBACK(args, begin, end, scratch);
        return;
    }
    for (uint32_t u = begin, n; u < end; u += n) {
        // Rows r .. r + n - 1 of one KV head and one sequence, at rising positions.
        uint32_t kv_head = u / a->rows, r = u % a->rows;
        uint32_t most = group < AT_QUERIES ? AT_QUERIES / group : 1;
        most = most < end - u ? most : end - u;
        most = most < a->rows - r ? most : a->rows - r;
        for (n = 1; n < most && seq[r + n] == seq[r] && pos[r + n] >= pos[r + n - 1];)
            n++;
        const struct at_source source = {PLM_PTR(const uint64_t, a->tables) +
                                             (uint64_t)(uint32_t)seq[r] * a->table_stride,
                                         a->layer_offset + kv_head * head_bytes,
                                         a->layer_offset + (a->kv_heads + kv_head) * head_bytes};
        for (uint32_t h = 0; h < group; h += AT_QUERIES) {
            at_gather(scratch, a, r, n, kv_head * group + h,
                      group - h < AT_QUERIES ? group - h : AT_QUERIES);
            at_run(scratch, a, &source);
        }
    }
}
