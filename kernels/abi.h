// SPDX-License-Identifier: Apache-2.0
// What host code, CPU kernels, CUDA/HIP kernels and shaders must agree on: tensor types, the layout
// of quantised activations and the argument structs of the ops of ops.def. Includes nothing but
// fixed-width integers and lists. Every argument struct is at most 128 bytes (the push constants
// that Vulkan guarantees), naturally aligned, 64-bit device addresses first. Shaders include this
// file too, with PLM_SHADER defined: GLSL knows the structs and the fixed-width types, but no
// enums.
//
// Conventions: matrices are row-major; "rows" are tokens of the step; a weight has n_out rows of
// n_in elements and is multiplied as dst[r][o] = sum_i w[o][i] * x[r][i]. Addresses of 0 mean "not
// there" where a field says optional. Activations and results are float32 unless stated.
#ifndef PLM_KERNELS_ABI_H
#define PLM_KERNELS_ABI_H

#include "kernels/types.h"

#ifdef PLM_SHADER
#define PLM_ENUM(name)
#define PLM_VALUE(name, value) const uint32_t name = value;
#define PLM_ENUM_END
#define PLM_U64(n) uint64_t(n)
#else
#include <stdint.h>
// clang-format off
#define PLM_ENUM(name) enum name {
#define PLM_VALUE(name, value) name = value,
#define PLM_ENUM_END };
// clang-format on
#define PLM_U64(n) ((uint64_t)(n))
#endif

// Tensor types with the numbers of the GGUF format.
PLM_ENUM(plm_type)
#define PLM_TENSOR_TYPE(NAME, name, id, block, bytes, CODES, VALUES, zero, SCALES, BACKENDS)       \
    PLM_VALUE(PLM_TYPE_##NAME, id)
#include "kernels/types.def"
PLM_ENUM_END

// The KV cache. A block holds 16 tokens: per layer of its group, K of all KV heads and then V of
// all of them, each head's part
//   K: elements [head_dim][16], transposed so that the scores of the 16 tokens are 16 lanes
//   V: elements [16][head_dim]
// in kv_type. F16 and F32 are plain elements. Q8_0 (head_dim is a multiple of 32): the elements are
// int8 codes, and behind those of a head's part lie its float16 scales, one per token and 32
// elements of the head: K [head_dim/32][16], V [16][head_dim/32]. An element is d * q, exact in
// float32. With a = max|x| of the 32: q = x / (a / 127) in float32, rounded to nearest, ties away
// from zero, and d is a / 127 rounded to float16. Where a < 1e-30 all is zero; where x has an
// infinity or a NaN, d is a NaN and q = 0, so that it cannot pass unnoticed. No scale spans tokens:
// a write touches the bytes of its own token alone and may be repeated.
#define PLM_KV_BLOCK_TOKENS 16
#define PLM_KV_Q8_BLOCK     32
// Elements of one head's part of a block, and its bytes, scales among them.
#define PLM_KV_HEAD_ELEMENTS(head_dim) (PLM_U64(head_dim) * PLM_KV_BLOCK_TOKENS)
#define PLM_KV_HEAD_BYTES(kv_type, head_dim)                                                       \
    ((kv_type) == PLM_TYPE_F16    ? PLM_KV_HEAD_ELEMENTS(head_dim) * 2                             \
     : (kv_type) == PLM_TYPE_Q8_0 ? PLM_KV_HEAD_ELEMENTS(head_dim) / PLM_KV_Q8_BLOCK * 34          \
                                  : PLM_KV_HEAD_ELEMENTS(head_dim) * 4)

// Format of the activations that a matrix product reads.
PLM_ENUM(plm_act)
PLM_VALUE(PLM_ACT_F32, 0) // float32 [rows, n_in]
PLM_VALUE(PLM_ACT_Q8, 1)  // see below
PLM_ENUM_END

// Activations in 8 bits, blocks of 32: x[i] ~ d[i/32] * q[i]. One row is n_in/32 records of 44
// bytes
//   int8 q[32], float32 d, int16 s[2], float32 ds
// at a stride of PLM_ACT_Q8_ROW_BYTES. With a = max|x| over the block: d = a / 127 and
// q = x * (127 / a) rounded to nearest, ties to even, so |q| <= 127; s = sums of q over the two
// halves of 16, which turn unsigned dot products into signed ones exactly; ds = d * (s[0] + s[1]),
// for weights with an offset. A block with a < 1e-30 is all zero; one with an infinity or a NaN has
// d = ds = NaN and q = s = 0, so that it cannot pass unnoticed. n_in is a multiple of 32; rows
// start 64-byte aligned. (One record per block, because a product needs one pointer per row then.)
#define PLM_ACT_Q8_BLOCK           32
#define PLM_ACT_Q8_BLOCK_BYTES     44
#define PLM_ACT_Q8_D               32 // byte offset of d in a record
#define PLM_ACT_Q8_S               36
#define PLM_ACT_Q8_DS              40
#define PLM_ACT_Q8_ROW_BYTES(n_in) (((PLM_U64(n_in) / 32 * 44) + 63) / 64 * 64)
#define PLM_ACT_ROW_BYTES(act, n_in)                                                               \
    ((act) == PLM_ACT_Q8 ? PLM_ACT_Q8_ROW_BYTES(n_in) : PLM_U64(n_in) * 4)

// dst[r] = row tokens[r] of a re-laid weight, decoded to float32, times scale.
struct plm_get_rows_args {
    uint64_t weight;
    uint64_t tokens; // int32 [rows], each in 0 .. n_out-1 (the engine checks)
    uint64_t dst;    // float32 [rows, n_in]
    uint32_t type;   // enum plm_type of the weight
    uint32_t rows;
    uint32_t n_in;
    uint32_t n_out;
    float scale;
    uint32_t pad;
};

// y = (x * (1 / sqrt(mean(x^2) + eps))) * weight. With residual, x is first replaced by x +
// residual, and that sum is stored back to x. Sums run over 16 lanes with fmaf (element i in lane
// i % 16), lanes are then added in pairs (l and l + 8, + 4, + 2, + 1): the order that all variants
// share. With add, y is added to what dst_f32 holds; dst_q8 is of y alone.
struct plm_rms_norm_args {
    uint64_t x;        // float32 [rows, n]; written when residual is there
    uint64_t residual; // optional float32 [rows, n]
    uint64_t weight;   // float32 [n]
    uint64_t dst_f32;  // optional float32 [rows, n]
    uint64_t dst_q8;   // optional PLM_ACT_Q8 [rows, n]: the fused quantisation
    uint32_t rows;
    uint32_t n;
    float eps;
    uint32_t add; // 1: dst_f32 += y
};

// float32 to PLM_ACT_Q8.
struct plm_quantize_args {
    uint64_t x;   // float32 [rows, n]
    uint64_t dst; // PLM_ACT_Q8 [rows, n]
    uint32_t rows;
    uint32_t n;
};

// dst[r][o] = sum_i w[o][i] * x[r][i] + bias[o] + (add ? dst[r][o] before : 0).
// Numerics class "lanes across output rows": one accumulator per output element; with PLM_ACT_Q8,
// per block of 32 in ascending order, an exact integer dot product and then
//   acc = fmaf((float)dot, dw * dx, acc)  and, for types with an offset, acc = fmaf(mw, ds, acc)
// (layout.md beside this file gives dot, dw and mw per type); with PLM_ACT_F32 acc = fmaf(w, x,
// acc) in ascending i, w being the decoded weight. Bias and the old dst are added at the end, in
// this order.
struct plm_matmul_args {
    uint64_t weight; // re-laid
    uint64_t x;      // act [rows, n_in]
    uint64_t dst;    // float32, row stride ld_dst elements
    uint64_t bias;   // optional float32 [n_out]
    uint32_t type;   // enum plm_type
    uint32_t act;    // enum plm_act
    uint32_t rows;
    uint32_t n_in;
    uint32_t n_out;
    uint32_t ld_dst; // at least n_out
    uint32_t add;    // 1: accumulate onto dst
    uint32_t pad;
};

// Angles of a step: table[r][i] = (cos, sin) * scale of pos[r] * increments[i] / 2^64 turns,
// i < dims/2, where there are scales also times scales[pos[r] / scale_span]. The product wraps at
// 2^64, which drops whole turns exactly; as an int64 it is the angle between minus and plus half a
// turn. The CPU computes in double and rounds.
struct plm_rope_table_args {
    uint64_t pos;        // int32 [rows]
    uint64_t increments; // uint64 [dims/2]: phase per position, in units of 2^-64 of a turn
    uint64_t dst;        // float32 [rows, dims/2, 2]
    uint64_t scales;     // optional float32: of each scale_span positions
    uint32_t rows;
    uint32_t dims;       // rotated elements of a head, even
    float scale;         // the magnitude that yarn and longrope give to q and k; 0: 1
    uint32_t scale_span; // not 0 where there are scales
};

PLM_ENUM(plm_rope_mode)
PLM_VALUE(PLM_ROPE_NORM, 0) // pairs (2i, 2i+1): llama
PLM_VALUE(PLM_ROPE_NEOX, 1) // pairs (i, i + dims/2): qwen2
PLM_ENUM_END

// RMS norms of each head of q and of k, before rope: what does not fit into the arguments of a
// launch, kept in device memory and written at load. A head x becomes (x * (1 / sqrt(mean(x^2) +
// eps))) * weight. The CPU sums squares as rms_norm does; the others over 32 lanes with fmaf
// (element i in lane i % 32), which are then added in pairs (l and l + 16, + 8, + 4, + 2, + 1).
struct plm_head_norms {
    uint64_t norm_q; // optional float32 [head_dim]: weights
    uint64_t norm_k;
    float eps;
    uint32_t pad;
};

// Norms of heads and rope on q and k, both in place, and the write of k and v to the cache. Where
// heads is 0, q is left alone, where kv_heads is 0 k, v and the cache. Rope
// rotates the first dims elements of every head; none where dims is 0, and the table is not read
// then. slots[r] is the address of the block that token r goes to, pos[r] % 16 its place in it.
// layer_offset and slots are multiples of 64.
struct plm_rope_kv_args {
    uint64_t q;            // float32 [rows, ld]
    uint64_t k;            // float32 [rows, ld]
    uint64_t v;            // float32 [rows, ld]
    uint64_t table;        // from plm_rope_table
    uint64_t slots;        // uint64 [rows]
    uint64_t pos;          // int32 [rows]
    uint64_t norms;        // optional struct plm_head_norms
    uint64_t layer_offset; // bytes from the start of a block
    uint32_t rows;
    uint32_t ld; // common row stride in elements
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t head_dim;
    uint32_t dims;
    uint32_t mode;    // enum plm_rope_mode
    uint32_t kv_type; // PLM_TYPE_F16, PLM_TYPE_F32 or PLM_TYPE_Q8_0
};

// The products of q, k and v, norms and rope of their heads, and the KV write in one dispatch: what
// matmul (bias and all) and rope_kv give in turn, q written to q, k and v to the cache alone. A
// product whose weight is 0 is not this launch's: weights of different types take a launch each.
struct plm_qkv_args {
    uint64_t weight_q; // re-laid [heads * head_dim, n_in]
    uint64_t weight_k; // re-laid [kv_heads * head_dim, n_in]
    uint64_t weight_v;
    uint64_t bias_q; // optional float32, as long as the weight has rows
    uint64_t bias_k;
    uint64_t bias_v;
    uint64_t x;     // act [rows, n_in]
    uint64_t q;     // float32 [rows, ld_q]
    uint64_t table; // from plm_rope_table
    uint64_t slots; // uint64 [rows], as in plm_rope_kv
    uint64_t pos;   // int32 [rows]
    uint64_t norms; // optional struct plm_head_norms
    uint64_t layer_offset;
    uint32_t rows;
    uint32_t n_in;
    uint32_t ld_q;
    uint32_t heads;    // of q | of k and v << 16: PLM_PAIR
    uint32_t head_dim; // elements of a head | rotated ones << 16: PLM_PAIR
    uint32_t kinds;    // weight type | act << 8 | rope mode << 16 | kv_type << 24: PLM_KINDS
};
#define PLM_PAIR(low, high)     ((low) | (high) << 16)
#define PLM_LOW(pair)           ((pair)&0xffffu)
#define PLM_HIGH(pair)          ((pair) >> 16)
#define PLM_KINDS(w, act, m, c) ((w) | (act) << 8 | (m) << 16 | (c) << 24)
#define PLM_KIND(kinds, i)      ((kinds) >> (8 * (i)) & 0xffu) // i: 0 type, 1 act, 2 mode, 3 kv_type

// What a gate is multiplied with before its up product: 1 / (1 + exp(-z)). SiLU: z = gate. GELU in
// its tanh form, where 0.5 * (1 + tanh(z / 2)) is the same: z = gate * fmaf(gate * gate,
// PLM_GELU_CUBIC, PLM_GELU_LINEAR).
PLM_ENUM(plm_gate_fn)
PLM_VALUE(PLM_GATE_SILU, 0)
PLM_VALUE(PLM_GATE_GELU, 1)
PLM_ENUM_END
#define PLM_GELU_LINEAR 1.59576912f   // 2 * sqrt(2 / pi)
#define PLM_GELU_CUBIC  0.0713548163f // 0.044715 of it

// Gate and up products and their activation in one dispatch: gate_mul(matmul(gate), matmul(up)).
struct plm_glu_args {
    uint64_t weight_gate; // re-laid [n_out, n_in]
    uint64_t weight_up;
    uint64_t bias_gate; // optional float32 [n_out]
    uint64_t bias_up;
    uint64_t x;       // act [rows, n_in]
    uint64_t dst_f32; // optional float32 [rows, n_out]
    uint64_t dst_q8;  // optional PLM_ACT_Q8 [rows, n_out]; n_out is a multiple of 32 then
    uint32_t type;    // of both weights
    uint32_t act;
    uint32_t rows;
    uint32_t n_in;
    uint32_t n_out;
    uint32_t gate_fn; // enum plm_gate_fn
};

// The first position that a row at pos sees: with a window the last `window` positions up to its
// own, 0: all.
#define PLM_ATTN_FIRST(pos, window)                                                                \
    ((window) != 0u && (pos) >= (window) ? (pos) - (window) + 1u : 0u)

// Causal attention over paged K and V: token r at pos[r] of sequence seq[r] sees positions
// PLM_ATTN_FIRST(pos[r], window) .. pos[r]. tables[seq * table_stride + p/16] is the address of the
// block with position p; neither blocks nor entries are read that no row sees part of. Query head h
// uses KV head h / (heads / kv_heads). Unit u is row u % rows of KV head u / rows, so that
// neighbouring units share K and V. Online softmax over the blocks of 16 tokens in ascending order,
// from the one with the first position that the row sees, so the result depends on q, pos, window
// and the cached rows that it sees alone. Per block, j being the tokens that the row sees: s[j] =
// scale * (q.k_j by fmaf in ascending dimension); m' = max(m, s); c = exp(m - m'); p[j] = exp(s[j]
// - m'), 0 for the others; lane sums l[j] = fmaf(l[j], c, p[j]); o[d] = o[d] * c, then fmaf(p[j],
// v[j][d], o[d]) in ascending j. At the end o[d] / (the lanes of l added in pairs as in rms_norm).
// exp is the polynomial of backends/cpu/arith.h. (The CPU's class; others cut the positions into
// splits, see below, and are bit-equal to attention_split and attention_merge.)
struct plm_attention_args {
    uint64_t q;      // float32 [rows, ld_q]
    uint64_t dst;    // float32 [rows, heads * head_dim]
    uint64_t pos;    // int32 [rows]
    uint64_t seq;    // int32 [rows]
    uint64_t tables; // uint64 [sequences, table_stride]
    uint64_t layer_offset;
    uint32_t table_stride;
    uint32_t rows;
    uint32_t ld_q;
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t head_dim; // multiple of 8, at most 256
    uint32_t kv_type;
    float scale;
    uint32_t window; // 0: none
    uint32_t pad;
};

// Few rows over long contexts: one independent piece of work per split of this many tokens. Splits
// begin at multiples of it, whatever the step, so that a row's result does not depend on the batch.
// 256: decode attention on an H100 read at 83 to 94 % of the bandwidth with 256 to 512, at 52 to
// 62 % with 64.
#define PLM_ATTN_SPLIT_TOKENS 256

// Pieces of `tokens` tokens, at multiples of it, that a row sees part of at most: in a context of
// so many tokens, through a window (0: none).
#define PLM_ATTN_SPANNED(tokens, context, window)                                                  \
    ((window) == 0 || (context) <= (window) ? (PLM_U64(context) + (tokens)-1) / (tokens)           \
                                            : (PLM_U64(window) + (tokens)-2) / (tokens) + 1)

// Attention over one split each. The splits of a row are those that it sees part of, from the one
// with its first position on: for s below their number, partial[r][h][s] = (top, sum,
// out[head_dim]) as attention has them after the blocks of that split alone, begun from scratch
// and not divided by the sum (whose lanes are added). Records beyond are not written. Unit u is
// split u % splits of row u / splits.
struct plm_attention_split_args {
    uint64_t q;       // float32 [rows, ld_q]
    uint64_t partial; // float32 [rows, heads, splits, head_dim + 2]
    uint64_t pos;
    uint64_t seq;
    uint64_t tables;
    uint64_t layer_offset;
    uint32_t table_stride;
    uint32_t rows;
    uint32_t ld_q;
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t head_dim;
    uint32_t kv_type;
    uint32_t splits; // at least those of any row
    float scale;
    uint32_t window; // 0: none
};

// Merges the splits of a row in ascending order, beginning with the first one: t' = max(t, top);
// a = exp(t - t'); b = exp(top - t'); l = l * a + sum * b; o[d] = o[d] * a + out[d] * b; at the end
// o[d] / l.
struct plm_attention_merge_args {
    uint64_t partial;
    uint64_t pos;
    uint64_t dst_f32; // optional float32 [rows, heads * head_dim]
    uint64_t dst_q8;  // optional PLM_ACT_Q8 of the same rows
    uint32_t rows;
    uint32_t heads;
    uint32_t head_dim;
    uint32_t splits;
    uint32_t window; // that of attention_split
    uint32_t pad;
};

// (gate / (1 + exp(-z))) * up, z being the gate function's.
struct plm_gate_mul_args {
    uint64_t gate;    // float32 [rows, ld]
    uint64_t up;      // float32 [rows, ld]
    uint64_t dst_f32; // optional float32 [rows, n]
    uint64_t dst_q8;  // optional PLM_ACT_Q8 [rows, n]
    uint32_t rows;
    uint32_t n;
    uint32_t ld;
    uint32_t gate_fn; // enum plm_gate_fn
};

// dst[r] = a[r] + b[r]; dst may be a or b.
struct plm_add_args {
    uint64_t a;
    uint64_t b;
    uint64_t dst;
    uint32_t rows;
    uint32_t n;
};

// dst[r] = src[index[r]]: the rows that need logits.
struct plm_gather_args {
    uint64_t src;   // float32 [any, n]
    uint64_t index; // int32 [rows]
    uint64_t dst;   // float32 [rows, n]
    uint32_t rows;
    uint32_t n;
};

// x = cap * tanh(x / cap) in place: logits that are kept below a cap. With u = x * (1 / cap):
// tanh(u) = u + u * u^2 * P(u^2) below 0.625, P of degree 4 being fitted for the least relative
// error (0.07 units of the last place before rounding), beyond it 1 - 2 / (1 + exp(2 |u|)) with the
// sign of u. An infinity becomes a NaN, so that it cannot pass unnoticed.
struct plm_soft_cap_args {
    uint64_t x; // float32 [rows, n]
    uint32_t rows;
    uint32_t n;
    float cap; // above 0
    uint32_t pad;
};
#define PLM_TANH_NEAR 0.625f // |u| below which the polynomial serves
#define PLM_TANH_P0   (-0.333332807f)
#define PLM_TANH_P1   0.133314416f
#define PLM_TANH_P2   (-0.0537397154f)
#define PLM_TANH_P3   0.0206390899f
#define PLM_TANH_P4   (-0.00570498966f)

// What sampling needs of a row of logits without reading it: the largest value, the lowest index
// that has it, and how many are not finite.
struct plm_argmax_record {
    int32_t index;
    float top;
    uint32_t n_wrong; // infinities and NaNs; index and top mean nothing unless it is 0, but index
                      // is in 0 .. n-1 whatever the row holds: the next step may read it as a token
    uint32_t pad;
};
struct plm_argmax_args {
    uint64_t x;   // float32 [rows, n]
    uint64_t dst; // struct plm_argmax_record [rows]
    uint32_t rows;
    uint32_t n;
};

// A token of each row of logits, drawn by rows[r]. With the distances and weights of
// kernels/sampling.h: of the tokens with distance <= cut the top_k nearest by (distance, id); of
// those the fewest nearest whose weights reach top_p of the mass, at least one; of those, walked in
// the order of ids, the first at which the running sum of weights exceeds u / 2^64 of their mass.
// All of it is integers, so every backend gives the same token. dst as argmax has it, index being
// the token.
struct plm_sample_row {
    uint64_t u;     // 64 random bits
    float scale;    // 1 / temperature; 0: the lowest index of the largest value, nothing is drawn
    float cut;      // -log(min_p), at least 0; PLM_SAMPLE_NO_CUT: min_p is off
    float top_p;    // above 0; 1: off
    uint32_t top_k; // 0: off
};
#define PLM_SAMPLE_NO_CUT    3.0e38f    // below infinity, where banned tokens lie
#define PLM_SAMPLE_VOCAB_MAX (1u << 20) // so that sums of weights fit
struct plm_sample_args {
    uint64_t x;      // float32 [rows, n]
    uint64_t params; // struct plm_sample_row [rows]
    uint64_t dst;    // struct plm_argmax_record [rows]
    uint32_t rows;
    uint32_t n; // at most PLM_SAMPLE_VOCAB_MAX
};

// dst[i] = src[i] for words of 32 bits; the ranges do not overlap. Moves KV blocks between slabs.
struct plm_copy_args {
    uint64_t src;
    uint64_t dst;
    uint64_t n_words;
};

// Writes words of 32 bits that depend on their address, and checks them: how validation touches
// every slab. verify adds the number of wrong words to *count.
struct plm_fill_args {
    uint64_t dst;
    uint64_t n_words;
    uint32_t seed;
    uint32_t pad;
};

struct plm_verify_args {
    uint64_t src;
    uint64_t n_words;
    uint64_t count; // uint32 [1], zeroed by the caller
    uint32_t seed;
    uint32_t pad;
};

#endif
