// SPDX-License-Identifier: Apache-2.0
// attention_split: a block has a split of a row for the query heads of a KV head, or a part of
// them; neighbouring blocks have neighbouring KV heads, which lie side by side in memory. Blocks of
// splits that a row does not reach end at once: the grid has those of the longest row.
#include "kernels/lib/attention.cuh"

PLM_ATTN_TEMPLATE
PLM_FN void run(const plm_attention_split_args &a, plm_attn_shared<ELEM, D, NT, SLOTS> &shared)
{
    const uint32_t tiles = a.kv_heads * plm_attn_parts(a.heads / a.kv_heads, NT * 8);
    const uint32_t split = blockIdx.y; // of those of the row
    plm_attn_tile tile = plm_attn_heads<NT>(a.heads, a.kv_heads, blockIdx.x % tiles);
    tile.row = blockIdx.x / tiles;
    tile.rows = 1;
    plm_release();
    plm_await();
    const int at = (plm_attn_first(a, tile.row) / PLM_ATTN_SPLIT_TOKENS + (int)split) *
                   PLM_ATTN_SPLIT_TOKENS;
    if (at > ((const int32_t *)a.pos)[tile.row])
        return;
    float o[D / 64][NT][4];
    const int begin = at / PLM_ATTN_CHUNK;
    plm_attn_stream stream = plm_attn_open(a, tile, shared, begin, begin + PLM_ATTN_SPLIT_CHUNKS);
    plm_attn_clear(shared, o);
    for (int chunk = plm_attn_first_chunk(stream, begin); chunk * plm_attn_piece<ELEM, D>::pieces < stream.end;
         chunk++)
        plm_attn_chunk(shared, stream, o, chunk);

    const uint64_t ld = (uint64_t)a.splits * (a.head_dim + 2); // from one head to the next
    float *record = (float *)a.partial + ((uint64_t)tile.row * a.heads + tile.head) * ld +
                    split * (a.head_dim + 2);
    if ((int)threadIdx.x < tile.heads)
        *(float2 *)(record + threadIdx.x * ld) = {shared.top[threadIdx.x], shared.sum[threadIdx.x]};
#pragma unroll
    for (int m = 0; m < D / 64; m++)
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int head = plm_attn_query(n, i % 2), dim = plm_attn_dim<ELEM, D>(m, i / 2);
                if (head < tile.heads && dim < (int)a.head_dim)
                    record[(uint64_t)head * ld + 2 + dim] = plm_attn_output(o[m][n][i]);
            }
}

// Slots of up to 8 KiB of ring a warp.
#define SPLIT(symbol, blocks, elem, d, nt)                                                         \
    PLM_KERNEL(symbol, PLM_ATTN_THREADS, blocks, plm_attention_split_args)                         \
    {                                                                                              \
        typedef plm_attn_shared<elem, d, nt, 2048 / plm_attn_piece<elem, d>::words> block;         \
        PLM_SHARED(block, shared, 1);                                                              \
        run(a, shared[0]);                                                                         \
    }

SPLIT(plm_attention_split_f16_64, 4, 2, 64, 1)
SPLIT(plm_attention_split_f16_128, 4, 2, 128, 1)
SPLIT(plm_attention_split_f16_256, 4, 2, 256, 1)
SPLIT(plm_attention_split_f32_64, 4, 4, 64, 1)
SPLIT(plm_attention_split_f32_128, 4, 4, 128, 1)
SPLIT(plm_attention_split_f32_256, 3, 4, 256, 1)
SPLIT(plm_attention_split_q8_0_64, 4, 1, 64, 1)
SPLIT(plm_attention_split_q8_0_128, 4, 1, 128, 1)
SPLIT(plm_attention_split_q8_0_256, 4, 1, 256, 1)
// Groups of more than 8 heads. With 256 dimensions they take several tiles of 8.
SPLIT(plm_attention_split_f16_64_wide, 4, 2, 64, 2)
SPLIT(plm_attention_split_f16_128_wide, 4, 2, 128, 2)
SPLIT(plm_attention_split_f32_64_wide, 4, 4, 64, 2)
SPLIT(plm_attention_split_f32_128_wide, 3, 4, 128, 2)
SPLIT(plm_attention_split_q8_0_64_wide, 4, 1, 64, 2)
SPLIT(plm_attention_split_q8_0_128_wide, 4, 1, 128, 2)
