// SPDX-License-Identifier: Apache-2.0
// What a warp of attention (attention.cuh) streams from the KV cache into shared memory: *pieces*,
// its block of K in parts of the dimensions, then its quarter of the dimensions of V in parts of the
// chunk's blocks.
#ifndef PLM_KERNELS_ATTENTION_STREAM_CUH
#define PLM_KERNELS_ATTENTION_STREAM_CUH

#include "kernels/lib/port.cuh"

#define PLM_ATTN_WARPS   4
#define PLM_ATTN_THREADS (PLM_ATTN_WARPS * PLM_WARP)
#define PLM_ATTN_CHUNK   (PLM_ATTN_WARPS * PLM_KV_BLOCK_TOKENS)

// The shape of pieces. Eight a chunk, of 16 tokens by a quarter of the dimensions; of codes, where
// that is less than 1 KiB, four of twice the size.
template <int ELEM, int D> struct plm_attn_piece {
    static constexpr int parts = ELEM == 1 && D < 256 ? 2 : 4; // pieces of K, and as many of V
    static constexpr int pieces = 2 * parts;                   // of a chunk
    static constexpr int dims = D / parts;                     // that one of K has
    static constexpr int blocks = 4 / parts;                   // that one of V has
    static constexpr int elements = dims * PLM_KV_BLOCK_TOKENS * ELEM / 4; // words
    static constexpr int copies = elements / 4 / PLM_WARP; // of 16 bytes, per lane
    // Scales of codes: of K [dims / 32][16] halves; of V a word per token and group of 32 dimensions,
    // one of whose halves it is.
    static constexpr int groups = PLM_WARP / (blocks * PLM_KV_BLOCK_TOKENS); // of V
    static constexpr int words = elements + (ELEM == 1 ? PLM_WARP : 0);
};

struct plm_attn_stream {
    const uint64_t *table; // of the sequence
    uint64_t k;            // bytes from a block's start to the K of the KV head
    uint32_t v;            // bytes from there to its V
    int head_dim;
    int first, tokens;  // what the queries of the tile see together: [first, tokens)
    uint32_t low, high; // address of block 32 * held + lane
    int held;           // -1: none yet
    int next, end;      // the next piece to begin, counted from position 0
    int out;            // slot of the next piece to use; one begins in the slot before it
};

PLM_FN int plm_attn_warp()
{
    return (int)threadIdx.x / PLM_WARP;
}
PLM_FN int plm_attn_lane()
{
    return (int)threadIdx.x % PLM_WARP;
}

// Dimensions that part i of a head has, of parts of N.
template <int N> PLM_FN int plm_attn_dims(int head_dim, int i)
{
    const int left = head_dim - i * N;
    return left < N ? left : N;
}

// Word of a piece where 16 bytes `unit` of a row begin, UNITS of them a row. What a warp loads at
// once lies in different banks: of codes 16 bytes each of rows r to r + 7, of halves those of rows
// 0, 8, 1, 9, 2, 10, 3, 11 or those plus 4, of floats 8 words each of rows r to r + 3.
template <int ELEM, int UNITS> PLM_FN int plm_attn_word(int row, int unit)
{
    const int turn = ELEM == 1    ? (row & 7) * UNITS / 8
                     : ELEM == 2  ? ((row & 3) + (row & 8) / 2) * UNITS / 8
                     : UNITS == 4 ? row & 2
                                  : (row & 3) * 2;
    return (row * UNITS + (unit ^ turn)) * 4;
}

// Dimensions that a head lacks become zeros: a step may reach beyond them.
template <int ELEM, int D>
PLM_FN void plm_attn_copy_k(const plm_attn_stream &s, uint32_t *slot, uint64_t k, int part)
{
    typedef plm_attn_piece<ELEM, D> piece;
    const int dims = plm_attn_dims<piece::dims>(s.head_dim, part), units = dims * ELEM;
    const uint64_t from = k + (uint64_t)part * (piece::dims * ELEM * 16);
#pragma unroll
    for (int i = 0; i < piece::copies; i++) {
        const int u = i * PLM_WARP + plm_attn_lane();
        uint32_t *to = slot + plm_attn_word<ELEM, ELEM>(u / ELEM, u % ELEM);
        if (u < units)
            plm_copy16(to, (const void *)(from + u * 16));
        else
            *(uint4 *)to = make_uint4(0, 0, 0, 0);
    }
    if (ELEM == 1 && plm_attn_lane() < dims / 16) // 16 tokens' scales of 32 dimensions are 32 bytes
        plm_copy16(slot + piece::elements + plm_attn_lane() * 4,
                   (const void *)(k + s.head_dim * 16 + part * piece::dims + plm_attn_lane() * 16));
}

// The group of 32 dimensions with dimension 32 * i of a warp's quarter.
template <int D> PLM_FN int plm_attn_group(int i)
{
    return plm_attn_warp() * D / 128 + i;
}

// Tokens that nobody sees become zeros: their bytes may be anything.
template <int ELEM, int D>
PLM_FN void plm_attn_copy_v(const plm_attn_stream &s, uint32_t *slot,
                            const uint64_t (&v)[plm_attn_piece<ELEM, D>::blocks], int first,
                            int tokens)
{
    typedef plm_attn_piece<ELEM, D> piece;
    constexpr int units = D / 4 * ELEM / 16, last = piece::blocks - 1; // units of a row
    const uint64_t quarter = (uint64_t)plm_attn_warp() * (D / 4 * ELEM);
    const int bytes = plm_attn_dims<D / 4>(s.head_dim, plm_attn_warp()) * ELEM;
#pragma unroll
    for (int i = 0; i < piece::copies; i++) {
        const int u = i * PLM_WARP + plm_attn_lane();
        const int row = u / units, unit = u % units;
        const int token = last == 0 ? row : row % PLM_KV_BLOCK_TOKENS;
        const uint64_t from = row < PLM_KV_BLOCK_TOKENS ? v[0] + quarter : v[last] + quarter;
        uint32_t *to = slot + plm_attn_word<ELEM, units>(row, unit);
        if (row < first || row >= tokens)
            *(uint4 *)to = make_uint4(0, 0, 0, 0);
        else if (unit * 16 < bytes)
            plm_copy16(to, (const void *)(from + (uint64_t)token * (s.head_dim * ELEM) + unit * 16));
    }
    if (ELEM == 1) {
        const int row = plm_attn_lane() / piece::groups, i = plm_attn_lane() % piece::groups;
        const int scale =
            row % PLM_KV_BLOCK_TOKENS * (s.head_dim / 32) + plm_attn_group<D>(i); // of the block
        const uint64_t from = (row < PLM_KV_BLOCK_TOKENS ? v[0] : v[last]) + s.head_dim * 16;
        uint32_t *to = slot + piece::elements + plm_attn_lane();
        if (row < first || row >= tokens)
            *to = 0;
        else if (i * 32 < bytes)
            plm_copy4(to, (const void *)(from + scale / 2 * 4));
    }
}

// The address of a block that some query sees part of.
PLM_FN uint64_t plm_attn_block(plm_attn_stream &s, int block)
{
    if (block / PLM_WARP != s.held) {
        s.held = block / PLM_WARP;
        const int mine = s.held * PLM_WARP + plm_attn_lane();
        const bool seen =
            mine >= s.first / PLM_KV_BLOCK_TOKENS && mine * PLM_KV_BLOCK_TOKENS < s.tokens;
        const uint64_t at = seen ? s.table[mine] : 0;
        s.low = (uint32_t)at;
        s.high = (uint32_t)(at >> 32);
    }
    return (uint64_t)plm_shuffle(s.high, block % PLM_WARP) << 32 |
           plm_shuffle(s.low, block % PLM_WARP);
}

// Begins the copy of the next piece into a slot; a group of copies even where there is none.
template <int ELEM, int D> PLM_FN void plm_attn_begin(plm_attn_stream &s, uint32_t *slot)
{
    typedef plm_attn_piece<ELEM, D> piece;
    const int part = s.next & (piece::parts - 1), chunk = s.next / piece::pieces;
    const bool is_k = (s.next & piece::parts) == 0;
    const int block = chunk * PLM_ATTN_WARPS +
                      (is_k ? plm_attn_warp() : part * piece::blocks);
    const int first = s.first - block * PLM_KV_BLOCK_TOKENS;
    const int tokens = s.tokens - block * PLM_KV_BLOCK_TOKENS;
    if (s.next < s.end && first < (is_k ? 1 : piece::blocks) * PLM_KV_BLOCK_TOKENS && tokens > 0) {
        if (is_k) {
            plm_attn_copy_k<ELEM, D>(s, slot, plm_attn_block(s, block) + s.k, part);
        } else {
            const uint64_t to_v = s.k + s.v;
            uint64_t v[piece::blocks];
#pragma unroll
            for (int i = 0; i < piece::blocks; i++)
                v[i] = plm_attn_block(s, block + i) + to_v;
            plm_attn_copy_v<ELEM, D>(s, slot, v, first, tokens);
        }
    }
    plm_copy_commit();
    s.next++;
}

// Waits for the next piece, and begins one in the slot that was used before it.
template <int ELEM, int D, int SLOTS>
PLM_FN const uint32_t *plm_attn_next(plm_attn_stream &s,
                                     uint32_t (*ring)[plm_attn_piece<ELEM, D>::words])
{
    const uint32_t *piece = ring[s.out];
    plm_copy_wait<SLOTS - 2>();
    plm_warp_sync();
    plm_attn_begin<ELEM, D>(s, ring[s.out > 0 ? s.out - 1 : SLOTS - 1]);
    s.out = s.out + 1 < SLOTS ? s.out + 1 : 0;
    return piece;
}

#endif
