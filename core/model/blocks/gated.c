// SPDX-License-Identifier: Apache-2.0
// The gated feed-forward: down(activation(gate(x)) * up(x)). In steps of few rows, where the device
// prefers it, gate, up and activation are one dispatch.
#include "core/model/pass.h"

enum { NORM, GATE, UP, DOWN, GATE_BIAS, UP_BIAS, DOWN_BIAS, NORM_AFTER, N_WEIGHTS };

#define MATRIX      .kind = PLM_WEIGHT_MATRIX, .weight_class = PLM_WEIGHT_FEED_FORWARD
#define VECTOR      .kind = PLM_WEIGHT_VECTOR, .weight_class = PLM_WEIGHT_VECTORS
#define NEED(field) .need = offsetof(struct plm_layer_spec, field)

static const struct plm_weight_decl weights[N_WEIGHTS] = {
    [NORM] = {"blk.%u.ffn_norm.weight", VECTOR, .n_in = PLM_DIM_EMBD, NEED(ff_norm_before)},
    // Fused files keep the rows of gate before those of up, under the name of up.
    [GATE] = {"blk.%u.ffn_gate.weight", .fused = "blk.%u.ffn_up.weight", MATRIX,
              .n_in = PLM_DIM_EMBD, .n_out = PLM_DIM_FF},
    [UP] = {"blk.%u.ffn_up.weight", .fused = "blk.%u.ffn_up.weight", MATRIX, .n_in = PLM_DIM_EMBD,
            .n_out = PLM_DIM_FF},
    [DOWN] = {"blk.%u.ffn_down.weight", MATRIX, .n_in = PLM_DIM_FF, .n_out = PLM_DIM_EMBD},
    [GATE_BIAS] = {"blk.%u.ffn_gate.bias", VECTOR, .n_in = PLM_DIM_FF, NEED(ff_bias)},
    [UP_BIAS] = {"blk.%u.ffn_up.bias", VECTOR, .n_in = PLM_DIM_FF, NEED(ff_bias)},
    [DOWN_BIAS] = {"blk.%u.ffn_down.bias", VECTOR, .n_in = PLM_DIM_EMBD, NEED(ff_bias)},
    [NORM_AFTER] = {"blk.%u.post_ffw_norm.weight", VECTOR, .n_in = PLM_DIM_EMBD,
                    NEED(ff_norm_after)},
};

static int read_keys(const struct plm_keys *keys, const struct plm_hparams *hp,
                     struct plm_layer_spec *ret, struct plm_error *err)
{
    static const struct plm_int_key ints[] = {
        {"feed_forward_length", offsetof(struct plm_layer_spec, n_ff), 1, 1u << 20, PLM_REQUIRED},
    };
    (void)hp;
    return plm_keys_ints(keys, ints, sizeof(ints) / sizeof(ints[0]), ret, err);
}

static void buffers(const struct plm_model *model, const struct plm_layer_spec *spec,
                    struct plm_cost_buffer *ret)
{
    plm_cost_grow(&ret[PLM_BUF_SCRATCH], 2 * 4ull * spec->n_ff);
    if (spec->ff_norm_after != PLM_ABSENT)
        plm_cost_grow(&ret[PLM_BUF_BRANCH], 4ull * model->hp.n_embd);
}

// Gate and up side by side in the scratch, and their activation where the down product finds it,
// which is returned.
static uint64_t activate_apart(struct plm_pass *p, const struct plm_layer *layer)
{
    const struct plm_weight *w = layer->feed_forward;
    const uint32_t n_ff = layer->spec.n_ff;
    const bool q8 = plm_pass_act(p, &w[DOWN]) == PLM_ACT_Q8;
    const uint64_t dst = plm_pass_input(p, &w[DOWN]);
    const struct plm_gate_mul_args a = {.gate = p->at[PLM_BUF_SCRATCH],
                                        .up = p->at[PLM_BUF_SCRATCH] + 4ull * n_ff,
                                        .dst_f32 = q8 ? 0 : dst,
                                        .dst_q8 = q8 ? dst : 0,
                                        .rows = p->rows,
                                        .n = n_ff,
                                        .ld = 2 * n_ff,
                                        .gate_fn = layer->spec.activation};
    plm_pass_product(p, &w[GATE], &w[GATE_BIAS], plm_pass_input(p, &w[GATE]), a.gate, a.ld, false);
    plm_pass_product(p, &w[UP], &w[UP_BIAS], plm_pass_input(p, &w[UP]), a.up, a.ld, false);
    plm_pass_barrier(p);
    PLM_LAUNCH(p, gate_mul, &a);
    return dst;
}

// The same in one launch. Its units read all of their input while others write, so the result lies
// in the scratch, which is larger than either format of it.
static uint64_t activate_fused(struct plm_pass *p, const struct plm_layer *layer)
{
    const struct plm_weight *w = layer->feed_forward;
    const bool q8 = plm_pass_act(p, &w[DOWN]) == PLM_ACT_Q8;
    const uint64_t dst = p->at[PLM_BUF_SCRATCH];
    const struct plm_glu_args a = {.weight_gate = w[GATE].addr,
                                   .weight_up = w[UP].addr,
                                   .bias_gate = w[GATE_BIAS].addr,
                                   .bias_up = w[UP_BIAS].addr,
                                   .x = plm_pass_input(p, &w[GATE]),
                                   .dst_f32 = q8 ? 0 : dst,
                                   .dst_q8 = q8 ? dst : 0,
                                   .type = w[GATE].tensor->type,
                                   .act = plm_pass_act(p, &w[GATE]),
                                   .rows = p->rows,
                                   .n_in = w[GATE].n_in,
                                   .n_out = w[GATE].n_out,
                                   .gate_fn = layer->spec.activation};
    PLM_LAUNCH(p, glu, &a);
    return dst;
}

static void append(struct plm_pass *p, const struct plm_layer *layer)
{
    const struct plm_weight *w = layer->feed_forward;
    const struct plm_weight *const readers[] = {&w[GATE], &w[UP]};
    const bool fused = plm_pass_uses(p, PLM_OP_GLU) && w[GATE].tensor->type == w[UP].tensor->type;
    plm_pass_norm(p, &w[NORM], readers, 2);
    const uint64_t x = fused ? activate_fused(p, layer) : activate_apart(p, layer);
    plm_pass_barrier(p);
    plm_pass_output(p, &w[DOWN], &w[DOWN_BIAS], &w[NORM_AFTER], x);
}

const struct plm_block_kind plm_block_gated = {.weights = weights,
                                               .n_weights = N_WEIGHTS,
                                               .read = read_keys,
                                               .buffers = buffers,
                                               .append = append};
