// SPDX-License-Identifier: Apache-2.0
// attention: a block has a tile of neighbouring rows of one sequence and goes over their splits in
// ascending order, merging as attention_merge does. With a window the rows of a tile stand at
// positions one after the other, so that what they see together has no gaps.
//
// There is a block per row, part of the heads and KV head. Those of a row that begins a run of rows
// of one sequence, or a multiple of the rows that a tile holds, take the rows up to the next such
// row; the others end at once. So sequences never share a tile, however the rows of a step are
// mixed, and each has blocks of its own. Blocks of later rows, which see more, come first.
#include "kernels/lib/attention.cuh"

// Whether row r can be of the tile of the row before it.
PLM_FN bool joins(const plm_attention_args &a, uint32_t r)
{
    const int32_t *seq = (const int32_t *)a.seq, *pos = (const int32_t *)a.pos;
    return seq[r - 1] == seq[r] && (a.window == 0 || pos[r - 1] + 1 == pos[r]);
}

// The rows of the tile that begins at row r; 0 if none does.
PLM_FN int rows_of(const plm_attention_args &a, uint32_t r, uint32_t most)
{
    if (r % most != 0 && joins(a, r))
        return 0;
    uint32_t end = r / most * most + most;
    end = end < a.rows ? end : a.rows;
    uint32_t n = 1;
    while (r + n < end && joins(a, r + n))
        n++;
    return (int)n;
}

// What the queries have after the splits so far, and the factors of the last merge.
template <int NT> struct merged {
    float top[NT * 8], sum[NT * 8];
    plm_split_factors factors[NT * 8];
};

// Where the first split begins that a query sees part of.
PLM_FN int first_split(const plm_attn_view &v)
{
    return v.first / PLM_ATTN_SPLIT_TOKENS * PLM_ATTN_SPLIT_TOKENS;
}

// Merges the split of tokens from `at` on, o, into all. A query's first one is taken as it is, and
// one that it does not see changes nothing.
PLM_ATTN_TEMPLATE
PLM_FN void merge(merged<NT> &m, float (&all)[D / 64][NT][4],
                  const plm_attn_shared<ELEM, D, NT, SLOTS> &split, const PLM_ATTN_OUTPUTS,
                  int at)
{
    const uint32_t i = threadIdx.x;
    if (i < NT * 8 && at == first_split(split.view[i])) {
        m.top[i] = split.top[i];
        m.sum[i] = split.sum[i];
    } else if (i < NT * 8 && plm_attn_sees(split.view[i], at)) {
        m.factors[i] = plm_merge_split(m.top[i], m.sum[i], split.top[i], split.sum[i]);
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < NT; n++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
            const int query = plm_attn_query(n, c);
            const bool is_first = at == first_split(split.view[query]);
            if (!is_first && !plm_attn_sees(split.view[query], at))
                continue;
            const plm_split_factors f = m.factors[query];
#pragma unroll
            for (int d = 0; d < D / 64; d++)
#pragma unroll
                for (int j = c; j < 4; j += 2) {
                    const float fresh = plm_attn_output(o[d][n][j]);
                    all[d][n][j] = is_first ? fresh : plm_merge_output(all[d][n][j], fresh, f);
                }
        }
}

PLM_ATTN_TEMPLATE
PLM_FN void run(const plm_attention_args &a, plm_attn_shared<ELEM, D, NT, SLOTS> &shared,
                merged<NT> &m)
{
    const uint32_t tiles = a.kv_heads * plm_attn_parts(a.heads / a.kv_heads, NT * 8);
    plm_attn_tile tile = plm_attn_heads<NT>(a.heads, a.kv_heads, blockIdx.x % tiles);
    tile.row = a.rows - 1 - blockIdx.x / tiles;
    plm_release();
    plm_await();
    tile.rows = rows_of(a, tile.row, NT * 8 / tile.heads);
    if (tile.rows == 0)
        return;
    float all[D / 64][NT][4], o[D / 64][NT][4];
    plm_attn_stream stream = plm_attn_open(a, tile, shared, 0, 0x7fffffff / PLM_ATTN_CHUNK);
#pragma unroll 1
    for (int split = stream.first / PLM_ATTN_SPLIT_TOKENS;
         split * PLM_ATTN_SPLIT_TOKENS < stream.tokens; split++) {
        const int begin = split * PLM_ATTN_SPLIT_CHUNKS;
        plm_attn_clear(shared, o);
#pragma unroll 1
        for (int chunk = plm_attn_first_chunk(stream, begin);
             chunk < begin + PLM_ATTN_SPLIT_CHUNKS && chunk * plm_attn_piece<ELEM, D>::pieces < stream.end; chunk++)
            plm_attn_chunk(shared, stream, o, chunk);
        merge(m, all, shared, o, split * PLM_ATTN_SPLIT_TOKENS);
    }

#pragma unroll
    for (int n = 0; n < NT; n++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
            const int query = plm_attn_query(n, c), row = query / tile.heads;
            if (row >= tile.rows)
                continue;
            float *dst = (float *)a.dst +
                         ((uint64_t)(tile.row + row) * a.heads + tile.head + query % tile.heads) *
                             a.head_dim;
            const float sum = m.sum[query];
#pragma unroll
            for (int d = 0; d < D / 64; d++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const int dim = plm_attn_dim<ELEM, D>(d, h);
                    if (dim < (int)a.head_dim)
                        dst[dim] = all[d][n][c + 2 * h] / sum;
                }
        }
}

#define ATTENTION(symbol, blocks, elem, d, nt, slots)                                              \
    PLM_KERNEL(symbol, PLM_ATTN_THREADS, blocks, plm_attention_args)                               \
    {                                                                                              \
        typedef plm_attn_shared<elem, d, nt, slots> block;                                         \
        PLM_SHARED(block, shared, 1);                                                              \
        PLM_SHARED(merged<nt>, all, 1);                                                            \
        run(a, shared[0], all[0]);                                                                 \
    }

ATTENTION(plm_attention_f16_64, 3, 2, 64, 4, 8)
ATTENTION(plm_attention_f16_128, 3, 2, 128, 4, 4)
ATTENTION(plm_attention_f16_256, 2, 2, 256, 2, 3)
ATTENTION(plm_attention_f32_64, 3, 4, 64, 4, 4)
ATTENTION(plm_attention_f32_128, 3, 4, 128, 2, 4)
ATTENTION(plm_attention_f32_256, 2, 4, 256, 1, 2)
ATTENTION(plm_attention_q8_0_64, 3, 1, 64, 3, 6)
ATTENTION(plm_attention_q8_0_128, 3, 1, 128, 4, 4)
ATTENTION(plm_attention_q8_0_256, 2, 1, 256, 2, 5)
