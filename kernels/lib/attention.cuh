// SPDX-License-Identifier: Apache-2.0
// Attention of a tile over paged K and V, the arithmetic of attention and attention_split.
//
// A *tile* is up to 8 * NT queries, each a row and a query head, of one sequence and one KV head:
// they share what is read. A block of four warps goes over a split in chunks of 64 tokens, begun
// from scratch, with an online softmax. Both products have the cache on their first side and the
// queries on their second: scores^T[token][query] = K^T q^T, out^T[dim][query] += V^T p^T, in steps
// of 16. With halves in the cache that is plm_mma_f16, q and p being the sum of two halves each
// (plm_attn_put); with floats plm_mma_tf32, all four in two parts; codes of one byte become halves
// (attention_q8.cuh). In a chunk a warp has the scores of a block of 16 tokens, and then a quarter
// of the dimensions of all 64 tokens. So a query has columns of its own: its result depends on no
// other, and on no place in the tile. What it does not see is added as exact zeros, and chunks that
// no query of a tile sees are passed over.
//
// Each warp streams what it alone needs through a ring of its own (attention_stream.cuh). The block
// meets twice a chunk, for the largest scores and for the weights.
//
// ELEM: bytes of a cached element (1: codes of PLM_TYPE_Q8_0, 2: binary16, 4: float). D: 64, 128 or
// 256, at least head_dim.
#ifndef PLM_KERNELS_ATTENTION_CUH
#define PLM_KERNELS_ATTENTION_CUH

#include "kernels/lib/attention_q8.cuh"
#include "kernels/lib/splits.cuh"

#define PLM_ATTN_SPLIT_CHUNKS (PLM_ATTN_SPLIT_TOKENS / PLM_ATTN_CHUNK)

#define PLM_ATTN_TEMPLATE template <int ELEM, int D, int NT, int SLOTS>

// The type of a cache whose elements have ELEM bytes.
template <int ELEM>
constexpr uint32_t plm_attn_type = ELEM == 1   ? PLM_TYPE_Q8_0
                                   : ELEM == 2 ? PLM_TYPE_F16
                                               : PLM_TYPE_F32;

// The tokens that a query sees; end 0: there is no such query.
struct alignas(8) plm_attn_view {
    int first, end;
};

PLM_FN bool plm_attn_sees(const plm_attn_view &v, int token)
{
    return token >= v.first && token < v.end;
}

// The block's memory.
PLM_ATTN_TEMPLATE struct plm_attn_shared {
    uint4 q[D / 16 * NT * PLM_WARP], p[PLM_ATTN_WARPS * NT * PLM_WARP]; // see plm_attn_place
    plm_attn_view view[NT * 8];
    float scale[NT * 8];                                              // of the scores
    float top[NT * 8], sum[NT * 8];                                   // of the split so far
    float tops[PLM_ATTN_WARPS][NT * 8], sums[PLM_ATTN_WARPS][NT * 8]; // of the chunk
    uint32_t ring[PLM_ATTN_WARPS][SLOTS][plm_attn_piece<ELEM, D>::words];
};

// ---- products ----

// x = hi + lo, but for what lies 2^-24 below it.
PLM_FN void plm_attn_tf32(uint32_t &hi, uint32_t &lo, float x)
{
    hi = plm_tf32(x);
    lo = plm_tf32(x - plm_float(hi));
}

// Elements of a step of 16 on the second side, in 16 bytes a lane: lane 4 * (query % 8) + e % 4 has
// elements e, e + 4, e + 8 and e + 12 of its query. Pairs e, e + 8 are neighbours, pair e / 4 % 2
// of the lane. Of halves its words are the upper parts of pairs 0 and 1 and their lower parts. Which
// dimensions or tokens a pair is: plm_attn_nth.
PLM_FN int plm_attn_place(int step, int nt, int query, int e)
{
    return (step * nt + query / 8) * PLM_WARP + query % 8 * 4 + e % 4;
}

// x and y are nearly hi + lo: halves, x in the low bits. 22 bits are kept of |x| from 2^-3 on.
PLM_FN void plm_attn_halves(uint32_t &hi, uint32_t &lo, float x, float y)
{
    const uint16_t a = plm_half_bits(x), b = plm_half_bits(y);
    hi = a | (uint32_t)b << 16;
    lo = plm_half_bits(x - plm_half(a)) | (uint32_t)plm_half_bits(y - plm_half(b)) << 16;
}

// Puts the elements e and e + 8, e being of the first half.
template <int ELEM> PLM_FN void plm_attn_put(uint4 &place, int e, float x, float y)
{
    uint32_t *words = (uint32_t *)&place;
    if (ELEM != 4)
        plm_attn_halves(words[e / 4], words[2 + e / 4], x, y);
    else
        *(float2 *)(words + e / 4 * 2) = {x, y};
}

// The sums of 16 products each of the first side, rows 0 to 15 and elements m to m + 15 of a piece
// from its word 0 on, with the second side; NT times.
template <int ELEM, int UNITS, int NT>
PLM_FN void plm_attn_mma(float (&d)[NT][4], const uint32_t *piece, int row, int m,
                         const uint4 (&b)[NT])
{
    const int lane = plm_attn_lane();
    if (ELEM == 2) {
        // Matrix i has rows 4 * (i / 2) + 0, 8, 1, 9, ... and eight elements from m + 8 * (i % 2).
        const int matrix = lane / 8, r = row + matrix / 2 * 4 + lane % 8 / 2 + lane % 2 * 8;
        uint32_t a[4];
        plm_matrices_transposed(a, piece + plm_attn_word<ELEM, UNITS>(r, m / 8 + matrix % 2));
#pragma unroll
        for (int n = 0; n < NT; n++) {
            const uint32_t hi[2] = {b[n].x, b[n].y}, lo[2] = {b[n].z, b[n].w};
            plm_mma_f16(d[n], a, hi);
            plm_mma_f16(d[n], a, lo);
        }
    } else {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t hi[4], lo[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int r = row + half * 4 + lane % 4 + i / 2 * 8, e = m + lane / 4 + i % 2 * 8;
                const uint32_t *at = piece + plm_attn_word<ELEM, UNITS>(r, e / 4) + e % 4;
                plm_attn_tf32(hi[i], lo[i], plm_float(*at));
            }
#pragma unroll
            for (int n = 0; n < NT; n++) {
                uint32_t x[2], y[2];
                plm_attn_tf32(x[0], y[0], plm_float(half == 0 ? b[n].x : b[n].z));
                plm_attn_tf32(x[1], y[1], plm_float(half == 0 ? b[n].y : b[n].w));
                plm_mma_tf32(d[n], hi, x);
                plm_mma_tf32(d[n], hi, y);
                plm_mma_tf32(d[n], lo, x);
            }
        }
    }
}

// ---- softmax ----

// What a weight of 1 is in the product with V: halves then keep 22 bits of weights from 2^-17 on.
#define PLM_ATTN_UNIT 16384.0f

// The query of a lane's column c of eight queries n.
PLM_FN int plm_attn_query(int n, int c)
{
    return n * 8 + plm_attn_lane() % 4 * 2 + c;
}

// The dimension of an output of the lane: of pair g of the sixteen m the first or the second.
template <int ELEM, int D> PLM_FN int plm_attn_dim(int m, int half)
{
    return plm_attn_warp() * (D / 4) + m * 16 + plm_attn_nth<ELEM>(plm_attn_lane() / 4, half);
}

// Begins a split.
PLM_ATTN_TEMPLATE
PLM_FN void plm_attn_clear(plm_attn_shared<ELEM, D, NT, SLOTS> &shared, PLM_ATTN_OUTPUTS)
{
    if (threadIdx.x < NT * 8) {
        shared.top[threadIdx.x] = plm_float(0xff800000u);
        shared.sum[threadIdx.x] = 0.0f;
    }
#pragma unroll
    for (int m = 0; m < D / 64; m++)
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                o[m][n][i] = 0.0f;
}

// Largest visible scores of the warp's block, to the other warps. The lane has `token` and the
// other one of its pair.
PLM_ATTN_TEMPLATE
PLM_FN void plm_attn_tops(plm_attn_shared<ELEM, D, NT, SLOTS> &shared, const float (&score)[NT][4],
                          int token)
{
#pragma unroll
    for (int n = 0; n < NT; n++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
            const int query = plm_attn_query(n, c);
            const plm_attn_view view = shared.view[query];
            float top = plm_float(0xff800000u);
            if (plm_attn_sees(view, token))
                top = fmaxf(top, score[n][c]);
            if (plm_attn_sees(view, token + plm_attn_nth<ELEM>(0, 1)))
                top = fmaxf(top, score[n][c + 2]);
#pragma unroll
            for (int mask = 4; mask < PLM_WARP; mask *= 2)
                top = fmaxf(top, plm_shuffle_xor(top, mask));
            if (plm_attn_lane() < 4)
                shared.tops[plm_attn_warp()][query] = top;
        }
}

// The top of a query after this chunk, and what came before is multiplied with.
PLM_ATTN_TEMPLATE
PLM_FN float plm_attn_top(const plm_attn_shared<ELEM, D, NT, SLOTS> &shared, int query,
                          float &factor)
{
    const float before = shared.top[query];
    float top = before;
    for (int w = 0; w < PLM_ATTN_WARPS; w++)
        top = fmaxf(top, shared.tops[w][query]);
    factor = before == top ? 1.0f : plm_exp(before - top); // equal ones may both be infinite
    return top;
}

// Weights of the warp's tokens, and their sums, to the other warps. `tops` and `factors` of a lane
// are those of query lane % (NT * 8); factor gets what the lane's outputs are multiplied with.
PLM_ATTN_TEMPLATE
PLM_FN void plm_attn_weigh(plm_attn_shared<ELEM, D, NT, SLOTS> &shared, const float (&score)[NT][4],
                           int token, float tops, float factors, float (&factor)[NT][2])
{
    const int g = plm_attn_lane() / 4;
#pragma unroll
    for (int n = 0; n < NT; n++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
            const int query = plm_attn_query(n, c);
            const plm_attn_view view = shared.view[query];
            const float top = plm_shuffle(tops, query);
            const float x = plm_attn_sees(view, token) ? plm_exp(score[n][c] - top) : 0.0f;
            const float y = plm_attn_sees(view, token + plm_attn_nth<ELEM>(0, 1))
                                ? plm_exp(score[n][c + 2] - top)
                                : 0.0f;
            float sum = x + y;
            factor[n][c] = plm_shuffle(factors, query);
            plm_attn_put<ELEM>(shared.p[plm_attn_place(plm_attn_warp(), NT, query, g)], g,
                               x * PLM_ATTN_UNIT, y * PLM_ATTN_UNIT);
#pragma unroll
            for (int mask = 4; mask < PLM_WARP; mask *= 2)
                sum += plm_shuffle_xor(sum, mask);
            if (plm_attn_lane() < 4)
                shared.sums[plm_attn_warp()][query] = sum;
        }
}

// An output after a split, with one sign of zero: chunks that a query does not see add zeros, and
// whether there are such depends on its tile.
PLM_FN float plm_attn_output(float o)
{
    return o * (1.0f / PLM_ATTN_UNIT) + 0.0f;
}

// ---- a chunk ----

// Scores of the warp's block of tokens, not scaled yet.
PLM_ATTN_TEMPLATE
PLM_FN void plm_attn_score(plm_attn_shared<ELEM, D, NT, SLOTS> &shared, plm_attn_stream &stream,
                           float (&score)[NT][4])
{
    typedef plm_attn_piece<ELEM, D> shape;
    const int lane = plm_attn_lane();
#pragma unroll
    for (int n = 0; n < NT; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            score[n][i] = 0.0f;
#pragma unroll 1
    for (int part = 0; part < shape::parts; part++) {
        const uint32_t *piece = plm_attn_next<ELEM, D, SLOTS>(stream, shared.ring[plm_attn_warp()]);
        const int dims = plm_attn_dims<shape::dims>(stream.head_dim, part);
        const uint4 *q = shared.q + part * (shape::dims / 16 * NT * PLM_WARP) + lane;
        if constexpr (ELEM == 1) {
            plm_attn_score_codes<D, NT>(score, piece, q, dims);
        } else {
#pragma unroll
            for (int step = 0; step < shape::dims / 16; step++)
                if (step * 16 < dims) {
                    uint4 b[NT];
#pragma unroll
                    for (int n = 0; n < NT; n++)
                        b[n] = q[(step * NT + n) * PLM_WARP];
                    plm_attn_mma<ELEM, ELEM, NT>(score, piece, step * 16, 0, b);
                }
        }
    }
}

// Adds the chunk's weighted V to the warp's quarter of the outputs.
PLM_ATTN_TEMPLATE
PLM_FN void plm_attn_gather(plm_attn_shared<ELEM, D, NT, SLOTS> &shared, plm_attn_stream &stream,
                            PLM_ATTN_OUTPUTS, int chunk)
{
    constexpr int blocks = plm_attn_piece<ELEM, D>::blocks;
    const int dims = plm_attn_dims<D / 4>(stream.head_dim, plm_attn_warp());
    const uint32_t *piece = nullptr;
#pragma unroll 1
    for (int block = 0; block < 4; block++) {
        if (block % blocks == 0)
            piece = plm_attn_next<ELEM, D, SLOTS>(stream, shared.ring[plm_attn_warp()]);
        const int at = chunk * PLM_ATTN_CHUNK + block * PLM_KV_BLOCK_TOKENS;
        if (at + PLM_KV_BLOCK_TOKENS <= stream.first || at >= stream.tokens)
            continue;
        const uint4 *p = shared.p + block * (NT * PLM_WARP) + plm_attn_lane();
        if constexpr (ELEM == 1) {
            plm_attn_gather_codes<D, NT>(o, piece, block % blocks, stream.head_dim, dims, p);
        } else {
            uint4 b[NT];
#pragma unroll
            for (int n = 0; n < NT; n++)
                b[n] = p[n * PLM_WARP];
#pragma unroll
            for (int m = 0; m < D / 64; m++)
                if (m * 16 < dims)
                    plm_attn_mma<ELEM, D / 4 * ELEM / 16, NT>(o[m], piece, 0, m * 16, b);
        }
    }
}

PLM_ATTN_TEMPLATE
PLM_FN void plm_attn_chunk(plm_attn_shared<ELEM, D, NT, SLOTS> &shared, plm_attn_stream &stream,
                           PLM_ATTN_OUTPUTS, int chunk)
{
    float score[NT][4], factor[NT][2], before;
    const int token = chunk * PLM_ATTN_CHUNK + plm_attn_warp() * PLM_KV_BLOCK_TOKENS +
                      plm_attn_nth<ELEM>(plm_attn_lane() / 4, 0);
    const int mine = plm_attn_lane() % (NT * 8);
    plm_attn_score(shared, stream, score);
#pragma unroll
    for (int n = 0; n < NT; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            score[n][i] *= shared.scale[plm_attn_query(n, i % 2)];
    plm_attn_tops(shared, score, token);
    __syncthreads(); // also: all have used the weights of the chunk before
    const float top = plm_attn_top(shared, mine, before);
    plm_attn_weigh(shared, score, token, top, before, factor);
    __syncthreads();
    if (threadIdx.x < NT * 8) {
        shared.top[mine] = top;
        shared.sum[mine] =
            shared.sum[mine] * before + ((shared.sums[0][mine] + shared.sums[2][mine]) +
                                         (shared.sums[1][mine] + shared.sums[3][mine]));
    }
#pragma unroll
    for (int m = 0; m < D / 64; m++)
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                o[m][n][i] *= factor[n][i % 2];
    plm_attn_gather(shared, stream, o, chunk);
}

// ---- tiles ----

// Queries of a tile: `heads` heads from `head` on of `rows` rows from `row` on.
struct plm_attn_tile {
    uint32_t row, head, kv_head;
    int rows, heads;
};

// Tiles that the heads of a KV head are cut into, and heads of a tile: all alike, but for the last.
PLM_FN uint32_t plm_attn_parts(uint32_t group, uint32_t most)
{
    return (group + most - 1) / most;
}

// The tile `i` of kv_heads * parts, without its rows.
template <int NT> PLM_FN plm_attn_tile plm_attn_heads(uint32_t heads, uint32_t kv_heads, uint32_t i)
{
    const uint32_t group = heads / kv_heads, parts = plm_attn_parts(group, NT * 8);
    const uint32_t most = (group + parts - 1) / parts, begin = i % parts * most;
    plm_attn_tile t = {};
    t.kv_head = i / parts;
    t.head = t.kv_head * group + begin;
    t.heads = (int)(begin + most < group ? most : group - begin);
    return t;
}

// Reads the queries into the block's memory, a warp each; absent ones and dimensions become zeros.
// For halves a query is multiplied by a power of two that takes its largest element to 2^14 ..
// 2^15, which its scores' scale takes back.
PLM_ATTN_TEMPLATE
PLM_FN void plm_attn_load_q(plm_attn_shared<ELEM, D, NT, SLOTS> &shared, const plm_attn_tile &tile,
                            const float *q, uint32_t ld_q, int head_dim, float scale)
{
    // Lanes have pair lane % 8 of step i * 4 + lane / 8.
    const int lane = plm_attn_lane(), e = lane % 8;
    for (int query = plm_attn_warp(); query < NT * 8; query += PLM_ATTN_WARPS) {
        const int row = query / tile.heads;
        const float *from = q + (uint64_t)(tile.row + row) * ld_q +
                            (uint64_t)(tile.head + query % tile.heads) * head_dim;
        float x[D / 64][2], up = 1.0f, down = 1.0f;
        uint32_t top = 0;
#pragma unroll
        for (int i = 0; i < D / 64; i++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int dim = (i * 4 + lane / 8) * 16 + plm_attn_nth<ELEM>(e, h);
                x[i][h] = row < tile.rows && dim < head_dim ? from[dim] : 0.0f;
                const uint32_t magnitude = plm_bits(x[i][h]) & 0x7fffffffu;
                top = magnitude > top ? magnitude : top;
            }
        if (ELEM != 4) {
#pragma unroll
            for (int mask = 1; mask < PLM_WARP; mask *= 2) {
                const uint32_t other = plm_shuffle_xor(top, mask);
                top = other > top ? other : top;
            }
            const uint32_t exponent = top >> 23 < 15 ? 15 : top >> 23; // biased
            up = plm_float((268 - exponent) << 23);
            down = plm_float((exponent - 14) << 23);
        }
#pragma unroll
        for (int i = 0; i < D / 64; i++)
            plm_attn_put<ELEM>(shared.q[plm_attn_place(i * 4 + lane / 8, NT, query, e)], e,
                               x[i][0] * up, x[i][1] * up);
        if (lane == 0)
            shared.scale[query] = scale * down;
    }
}

// The first token that row r sees.
template <class Args> PLM_FN int plm_attn_first(const Args &a, uint32_t r)
{
    const uint32_t pos = (uint32_t)((const int32_t *)a.pos)[r];
    return (int)PLM_ATTN_FIRST(pos, a.window);
}

// `begin`, or the chunk with the tile's first token, whichever is later.
PLM_FN int plm_attn_first_chunk(const plm_attn_stream &s, int begin)
{
    const int first = s.first / PLM_ATTN_CHUNK;
    return begin > first ? begin : first;
}

// Begins a tile over the chunks [begin, end), as far as it sees them: what the queries see, and
// themselves, in the block's memory, and the first pieces on their way.
template <class Args, int ELEM, int D, int NT, int SLOTS>
PLM_FN plm_attn_stream plm_attn_open(const Args &a, const plm_attn_tile &tile,
                                     plm_attn_shared<ELEM, D, NT, SLOTS> &shared, int begin,
                                     int end)
{
    const int32_t *pos = (const int32_t *)a.pos + tile.row;
    plm_attn_stream s = {};
    s.first = plm_attn_first(a, tile.row);
    for (int r = 0; r < tile.rows; r++) {
        const int first = plm_attn_first(a, tile.row + r);
        s.first = first < s.first ? first : s.first;
        s.tokens = pos[r] + 1 > s.tokens ? pos[r] + 1 : s.tokens;
    }
    const int chunks = (s.tokens + PLM_ATTN_CHUNK - 1) / PLM_ATTN_CHUNK;
    const uint64_t head_bytes = PLM_KV_HEAD_BYTES(plm_attn_type<ELEM>, a.head_dim);
    s.table = (const uint64_t *)a.tables +
              (uint64_t)(uint32_t)((const int32_t *)a.seq)[tile.row] * a.table_stride;
    s.k = a.layer_offset + tile.kv_head * head_bytes;
    s.v = (uint32_t)(a.kv_heads * head_bytes);
    s.head_dim = (int)a.head_dim;
    s.held = -1;
    s.next = plm_attn_first_chunk(s, begin) * plm_attn_piece<ELEM, D>::pieces;
    s.end = (end < chunks ? end : chunks) * plm_attn_piece<ELEM, D>::pieces;
    for (int i = 0; i < SLOTS - 1; i++)
        plm_attn_begin<ELEM, D>(s, shared.ring[plm_attn_warp()][i]);
    plm_attn_load_q(shared, tile, (const float *)a.q, a.ld_q, s.head_dim, a.scale);
    if (threadIdx.x < NT * 8) {
        const int row = (int)threadIdx.x / tile.heads;
        plm_attn_view view = {0, 0};
        if (row < tile.rows)
            view = {plm_attn_first(a, tile.row + row), pos[row] + 1};
        shared.view[threadIdx.x] = view;
    }
    __syncthreads();
    return s;
}

#endif
