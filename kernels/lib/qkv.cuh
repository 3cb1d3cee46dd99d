// SPDX-License-Identifier: Apache-2.0
// The frames of qkv: products of q, k and v, whose results are rotated and go to q and to the
// cache. S is a product of two panels. plm_qkv takes two panels of a head that hold both elements
// of all their pairs; plm_qkv_full_heads takes a head of any shape, two panels after two, and is for heads
// with norms, too.
#ifndef PLM_KERNELS_QKV_CUH
#define PLM_KERNELS_QKV_CUH

#include "kernels/lib/kv.cuh"
#include "kernels/lib/product.cuh"
#include "kernels/lib/rope.cuh"

#define PLM_HEAD_MAX 256u // elements of a head (kernels/abi.h)

// A head of one of the three products.
struct plm_qkv_head {
    uint64_t weight, bias;
    uint32_t head; // of its product
    bool q, v;     // neither: of k
};

// Head `index` of those of q, k and v, as far as their weights are there.
PLM_FN plm_qkv_head plm_qkv_locate(const struct plm_qkv_args &a, uint32_t index)
{
    const uint32_t n_q = a.weight_q != 0 ? PLM_LOW(a.heads) : 0;
    const uint32_t n_k = a.weight_k != 0 ? PLM_HIGH(a.heads) : 0;
    const uint64_t w_q = a.weight_q, w_k = a.weight_k, w_v = a.weight_v;
    const uint64_t b_q = a.bias_q, b_k = a.bias_k, b_v = a.bias_v;
    const bool q = index < n_q, k = !q && index < n_q + n_k;
    return {q   ? w_q
            : k ? w_k
                : w_v,
            q   ? b_q
            : k ? b_k
                : b_v,
            q   ? index
            : k ? index - n_q
                : index - n_q - n_k,
            q, !q && !k};
}

// The product's result for element d of a head: its sum and the bias.
PLM_FN float plm_qkv_result(const struct plm_qkv_args &a, const plm_qkv_head &h, uint32_t d,
                            float sum)
{
    if (h.bias == 0)
        return sum;
    return sum + ((const float *)h.bias)[h.head * PLM_LOW(a.head_dim) + d];
}

// Whether the head is stored by groups of elements that share a scale.
PLM_FN bool plm_qkv_groups(const struct plm_qkv_args &a, const plm_qkv_head &h)
{
    return !h.q && PLM_KIND(a.kinds, 3) == PLM_TYPE_Q8_0;
}

// Where a row of a head of k or v goes.
PLM_FN plm_kv_row plm_qkv_row(const struct plm_qkv_args &a, const plm_qkv_head &h, uint32_t row)
{
    const uint64_t layer = ((const uint64_t *)a.slots)[row] + a.layer_offset;
    const uint32_t t = (uint32_t)((const int32_t *)a.pos)[row] % PLM_KV_BLOCK_TOKENS;
    return plm_kv_row_of(layer, h.v, h.head, t, PLM_HIGH(a.heads), PLM_LOW(a.head_dim),
                         PLM_KIND(a.kinds, 3));
}

// Stores element d of a head, which is rotated if it is to be.
PLM_FN void plm_qkv_store(const struct plm_qkv_args &a, const plm_qkv_head &h, uint32_t row,
                          uint32_t d, float x)
{
    if (h.q)
        ((float *)a.q)[(uint64_t)row * a.ld_q + h.head * PLM_LOW(a.head_dim) + d] = x;
    else
        plm_kv_store(plm_qkv_row(a, h, row), d, x);
}

PLM_FN const float *plm_qkv_angles(const struct plm_qkv_args &a, uint32_t row)
{
    return (const float *)a.table + (uint64_t)row * PLM_HIGH(a.head_dim);
}

// Block x has unit x % units of a head, block y rows S::rows * y ... head_dim is a multiple of 32
// and, where pairs lie half the rotated elements apart, so are those; then no groups of k are stored.
template <class S> PLM_FN void plm_qkv(const struct plm_qkv_args &a, uint8_t *shared)
{
    static_assert(S::panels == 2, "a pair of panels");
    typedef typename S::exchange exchange;
    const uint32_t head_dim = PLM_LOW(a.head_dim), dims = PLM_HIGH(a.head_dim);
    const uint32_t units = head_dim / 32, unit = blockIdx.x % units;
    const plm_qkv_head h = plm_qkv_locate(a, blockIdx.x / units);
    // Panels of the head: unit and its partners, or two neighbours.
    const bool apart = !h.v && PLM_KIND(a.kinds, 2) == PLM_ROPE_NEOX && unit < dims / 32;
    const uint32_t panel[2] = {apart ? unit : 2 * unit, apart ? unit + dims / 32 : 2 * unit + 1};
    plm_operands<2> in;
#pragma unroll
    for (uint32_t p = 0; p < 2; p++)
        in.panel[p] = h.weight + (h.head * (head_dim / PLM_PANEL_ROWS) + panel[p]) *
                                     plm_panel_bytes<S::math::type>(a.n_in);
    in.x = a.x;
    in.first = blockIdx.y * S::rows;
    in.rows = a.rows;
    in.n_in = a.n_in;
    S self;
    S::walk(self, shared, in, true);
    // A warp has a row, a lane an output; its pair's other element is another lane's.
    float *sums = (float *)shared;
    const uint32_t r = threadIdx.x / PLM_WARP, o = threadIdx.x % PLM_WARP;
    const uint32_t d =
        (o < PLM_PANEL_ROWS ? panel[0] : panel[1]) * PLM_PANEL_ROWS + o % PLM_PANEL_ROWS;
    const bool neox = PLM_KIND(a.kinds, 2) == PLM_ROPE_NEOX;
    const bool high = apart ? o >= PLM_PANEL_ROWS : o % 2 != 0;
    const uint32_t pair = neox ? d - (high ? dims / 2 : 0) : d / 2;
#pragma unroll
    for (uint32_t t = 0; t < S::rounds; t++) {
        const uint32_t row = in.first + t * S::round_rows + r;
        if (row - r >= a.rows)
            continue;
        __syncthreads();
        S::spread(self, sums, t);
        __syncthreads();
        if (r >= S::round_rows || row >= a.rows)
            continue;
        float x = plm_qkv_result(a, h, d, exchange::sum(sums, r, o));
        const float other = plm_shuffle_xor(x, apart ? (int)PLM_PANEL_ROWS : 1);
        if (!h.v && d < dims) {
            float lo = high ? other : x, hi = high ? x : other;
            plm_rope_rotate(lo, hi, plm_qkv_angles(a, row), pair);
            x = high ? hi : lo;
        }
        if (plm_qkv_groups(a, h))
            plm_kv_store_group(plm_qkv_row(a, h, row), unit * PLM_KV_Q8_BLOCK, x);
        else
            plm_qkv_store(a, h, row, d, x);
    }
}

// Norms, rotates and stores ROWS rows of a head from `first` on. staged: [ROWS][PLM_HEAD_MAX], the
// results of its products, which all threads have written; factors: [ROWS].
template <uint32_t ROWS>
PLM_FN void plm_qkv_finish(const struct plm_qkv_args &a, const plm_qkv_head &h, uint32_t first,
                           float *staged, float *factors)
{
    const uint32_t head_dim = PLM_LOW(a.head_dim), dims = PLM_HIGH(a.head_dim);
    const uint32_t pairs = (head_dim + 1) / 2, mode = PLM_KIND(a.kinds, 2);
    plm_head_norm norm = {nullptr, 0.0f};
    if (!h.v)
        norm = plm_head_norm_of(a.norms, !h.q);
    if (norm.weight != nullptr) {
        for (uint32_t r = threadIdx.x / PLM_WARP; r < ROWS; r += PLM_PRODUCT_THREADS / PLM_WARP) {
            const float factor = plm_head_factor(staged + r * PLM_HEAD_MAX, head_dim, norm.eps);
            if (threadIdx.x % PLM_WARP == 0)
                factors[r] = factor;
        }
        __syncthreads();
    }
    const bool groups = plm_qkv_groups(a, h);
    for (uint32_t i = threadIdx.x; i < ROWS * pairs; i += PLM_PRODUCT_THREADS) {
        const uint32_t row = first + i / pairs, p = i % pairs;
        if (row >= a.rows)
            break;
        const plm_pair at = plm_rope_pair(p, dims, mode);
        float *x = staged + i / pairs * PLM_HEAD_MAX;
        float lo = x[at.lo], hi = at.hi < head_dim ? x[at.hi] : 0.0f;
        if (norm.weight != nullptr) {
            const float factor = factors[i / pairs];
            lo = lo * factor * norm.weight[at.lo];
            hi = at.hi < head_dim ? hi * factor * norm.weight[at.hi] : 0.0f;
        }
        if (!h.v && p < dims / 2)
            plm_rope_rotate(lo, hi, plm_qkv_angles(a, row), p);
        if (groups) { // a pair is one thread's
            x[at.lo] = lo;
            x[at.hi] = hi;
            continue;
        }
        plm_qkv_store(a, h, row, at.lo, lo);
        if (at.hi < head_dim)
            plm_qkv_store(a, h, row, at.hi, hi);
    }
    if (!groups)
        return;
    __syncthreads();
    const uint32_t per_row = head_dim / PLM_KV_Q8_BLOCK;
    for (uint32_t i = threadIdx.x / PLM_WARP; i < ROWS * per_row;
         i += PLM_PRODUCT_THREADS / PLM_WARP) {
        const uint32_t r = i / per_row, d = i % per_row * PLM_KV_Q8_BLOCK;
        if (first + r >= a.rows)
            break;
        plm_kv_store_group(plm_qkv_row(a, h, first + r), d,
                           staged[r * PLM_HEAD_MAX + d + threadIdx.x % PLM_WARP]);
    }
}

// Block x has a head, block y rows S::rows * y ... staged: [S::rows][PLM_HEAD_MAX], the results of
// the head's products.
template <class S>
PLM_FN void plm_qkv_full_heads(const struct plm_qkv_args &a, uint8_t *shared, float *staged)
{
    static_assert(S::panels == 2, "two panels at once");
    typedef typename S::exchange exchange;
    constexpr uint32_t outs = 2 * PLM_PANEL_ROWS;
    const uint32_t head_dim = PLM_LOW(a.head_dim);
    const plm_qkv_head h = plm_qkv_locate(a, blockIdx.x);
    const uint32_t begin = h.head * head_dim, last = (begin + head_dim - 1) / PLM_PANEL_ROWS;
    plm_operands<2> in;
    in.x = a.x;
    in.first = blockIdx.y * S::rows;
    in.rows = a.rows;
    in.n_in = a.n_in;
    float *sums = (float *)shared;
    bool await = true;
    for (uint32_t panel = begin / PLM_PANEL_ROWS; panel <= last; panel += 2) {
#pragma unroll
        for (uint32_t p = 0; p < 2; p++)
            in.panel[p] = h.weight + (panel + p < last ? panel + p : last) *
                                         plm_panel_bytes<S::math::type>(a.n_in);
        S self;
        S::walk(self, shared, in, await);
        await = false;
#pragma unroll
        for (uint32_t t = 0; t < S::rounds; t++) {
            __syncthreads();
            S::spread(self, sums, t);
            __syncthreads();
            for (uint32_t i = threadIdx.x; i < S::round_rows * outs; i += PLM_PRODUCT_THREADS) {
                const uint32_t r = i / outs, o = i % outs;
                const uint32_t d = panel * PLM_PANEL_ROWS + o - begin; // wraps below the head
                if (d < head_dim)
                    staged[(t * S::round_rows + r) * PLM_HEAD_MAX + d] =
                        plm_qkv_result(a, h, d, exchange::sum(sums, r, o));
            }
        }
        __syncthreads();
    }
    plm_qkv_finish<S::rows>(a, h, in.first, staged, sums);
}

#endif
