// SPDX-License-Identifier: Apache-2.0
// Reference: qkv and glu, products together with what is done to them, and argmax.
#include "backends/cpu/ref_dot.h"
#include "backends/cpu/refs.h"

// One head of one of the three products.
struct head {
    struct plm_ref_weight weight;
    uint64_t bias;
    uint32_t index; // among the heads of its product
};

// The head's elements of row r.
static void multiply(const struct plm_qkv_args *a, const struct head *h, uint32_t r, float *out)
{
    const uint32_t dim = PLM_LOW(a->head_dim);
    for (uint32_t d = 0; d < dim; d++)
        out[d] = plm_ref_dot(&h->weight, a->x, r, h->index * dim + d, h->bias);
}

static void run_q(const struct plm_qkv_args *a, const struct head *h)
{
    const uint32_t dim = PLM_LOW(a->head_dim), dims = PLM_HIGH(a->head_dim);
    for (uint32_t r = 0; r < a->rows; r++) {
        float *q = PLM_PTR(float, a->q) + (uint64_t)r * a->ld_q + (uint64_t)h->index * dim;
        multiply(a, h, r, q);
        plm_norm_head(q, dim, a->norms, false);
        plm_rope_head(q, PLM_PTR(const float, a->table) + (uint64_t)r * dims, dims,
                      PLM_KIND(a->kinds, 2));
    }
}

static void run_kv(const struct plm_qkv_args *a, const struct head *h, bool is_k, float *x)
{
    const uint32_t dim = PLM_LOW(a->head_dim), dims = PLM_HIGH(a->head_dim);
    const uint32_t kv_type = PLM_KIND(a->kinds, 3);
    for (uint32_t r = 0; r < a->rows; r++) {
        uint8_t *block = PLM_PTR(uint8_t, PLM_PTR(const uint64_t, a->slots)[r] + a->layer_offset);
        uint32_t place = (uint32_t)PLM_PTR(const int32_t, a->pos)[r] % PLM_KV_BLOCK_TOKENS;
        multiply(a, h, r, x);
        if (is_k) {
            plm_norm_head(x, dim, a->norms, true);
            plm_rope_head(x, PLM_PTR(const float, a->table) + (uint64_t)r * dims, dims,
                          PLM_KIND(a->kinds, 2));
            plm_k_store(block, h->index, place, x, dim, kv_type);
        } else {
            plm_v_store(block, PLM_HIGH(a->heads), h->index, place, x, dim, kv_type);
        }
    }
}

void plm_ref_qkv(const void *args, uint32_t begin, uint32_t end, void *scratch)
{
    const struct plm_qkv_args *a = args;
    const uint32_t heads = PLM_LOW(a->heads), kv_heads = PLM_HIGH(a->heads);
    for (uint32_t u = begin; u < end; u++) {
        const bool is_q = u < heads, is_k = !is_q && u < heads + kv_heads;
        const uint64_t weight = is_q ? a->weight_q : is_k ? a->weight_k : a->weight_v;
        if (weight == 0)
            continue;
        const struct head h = {
            plm_ref_weight_of(weight, PLM_KIND(a->kinds, 0), PLM_KIND(a->kinds, 1), a->n_in),
            is_q   ? a->bias_q
            : is_k ? a->bias_k
                   : a->bias_v,
            is_q ? u : (u - heads) % kv_heads};
        if (is_q)
            run_q(a, &h);
        else
            run_kv(a, &h, is_k, scratch);
    }
}

#define GLU_UNIT 32u // outputs of a unit: one block of 8-bit activations

void plm_ref_glu(const void *args, uint32_t begin, uint32_t end, void *scratch)
{
    (void)scratch;
    const struct plm_glu_args *a = args;
    const struct plm_ref_weight gate = plm_ref_weight_of(a->weight_gate, a->type, a->act, a->n_in);
    const struct plm_ref_weight up = plm_ref_weight_of(a->weight_up, a->type, a->act, a->n_in);
    for (uint32_t u = begin; u < end; u++) {
        const uint32_t first = u * GLU_UNIT;
        const uint32_t n = a->n_out - first < GLU_UNIT ? a->n_out - first : GLU_UNIT;
        for (uint32_t r = 0; r < a->rows; r++) {
            float y[GLU_UNIT];
            for (uint32_t i = 0; i < n; i++)
                y[i] = plm_gate_mul(plm_ref_dot(&gate, a->x, r, first + i, a->bias_gate),
                                    plm_ref_dot(&up, a->x, r, first + i, a->bias_up), a->gate_fn);
            if (a->dst_f32 != 0)
                memcpy(PLM_PTR(float, a->dst_f32) + (uint64_t)r * a->n_out + first, y,
                       (uint64_t)n * 4);
            if (a->dst_q8 != 0)
                plm_q8_store(PLM_PTR(uint8_t, a->dst_q8) + r * PLM_ACT_Q8_ROW_BYTES(a->n_out) +
                                 u * PLM_ACT_Q8_BLOCK_BYTES,
                             y);
        }
    }
}

void plm_ref_argmax(const void *args, uint32_t begin, uint32_t end, void *scratch)
{
    (void)scratch;
    const struct plm_argmax_args *a = args;
    for (uint32_t r = begin; r < end; r++) {
        const float *x = PLM_PTR(const float, a->x) + (uint64_t)r * a->n;
        struct plm_argmax_record best = {.index = 0, .top = x[0]};
        for (uint32_t i = 0; i < a->n; i++) {
            best.n_wrong += !isfinite(x[i]);
            if (x[i] > best.top) {
                best.top = x[i];
                best.index = (int32_t)i;
            }
        }
        PLM_PTR(struct plm_argmax_record, a->dst)[r] = best;
    }
}
