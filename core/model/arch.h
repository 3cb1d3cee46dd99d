// SPDX-License-Identifier: Apache-2.0
// Inside of the model module: hyper-parameters, weights and what an architecture must supply. One
// file per architecture reads its keys and names its tensors; decoder.c runs what they share.
#ifndef PLM_MODEL_ARCH_H
#define PLM_MODEL_ARCH_H

#include "core/model/model.h"

struct plm_hparams {
    uint32_t n_vocab;
    uint32_t n_ctx_train;
    uint32_t n_embd;
    uint32_t n_layer;
    uint32_t n_head;
    uint32_t n_kv_head;
    uint32_t head_dim;
    uint32_t n_ff;
    uint32_t rope_dims; // rotated elements of a head, even
    float rope_base;
    float rope_freq_scale; // 1 / linear scaling factor
    uint32_t rope_mode;    // enum plm_rope_mode
    float rms_eps;
    float attn_scale; // of q.k
};

// A tensor of the model. Matrices are re-laid by the device; vectors are kept as float32, but for
// the phase increments of rope, which are made from keys and always there.
struct plm_weight {
    const struct plm_gguf_tensor *tensor; // NULL: optional and not in the file
    uint64_t addr;                        // after load
    uint32_t n_in;
    uint32_t n_out; // 1 for a vector
    bool vector;
};

struct plm_layer {
    struct plm_weight attn_norm;
    struct plm_weight attn_q, attn_k, attn_v, attn_output;
    struct plm_weight attn_q_bias, attn_k_bias, attn_v_bias, attn_output_bias; // optional
    struct plm_weight ffn_norm;
    struct plm_weight ffn_gate, ffn_up, ffn_down;
    struct plm_weight ffn_gate_bias, ffn_up_bias, ffn_down_bias; // optional
};

// Indices into the cost table: every buffer of the workspace. First those that kernels write, then
// those that the host writes with one copy before each step; the guard is the first of these.
enum plm_buffer {
    PLM_BUF_CHAINED, // tokens that the step before found, on devices that run ahead
    PLM_BUF_ROPE,
    PLM_BUF_X,       // the residual stream
    PLM_BUF_WIDE,    // q, k and v side by side; later gate and up, or their activation
    PLM_BUF_ATTN,    // what attention returns
    PLM_BUF_ACT_Q8,  // input of the next product in 8 bits
    PLM_BUF_ACT_F32, // the same in float32
    PLM_BUF_PARTIAL, // attention of splits, where the device prefers them
    PLM_BUF_SELECTED,
    PLM_BUF_LOGITS,
    PLM_BUF_BEST, // struct plm_argmax_record of each row of logits, where the device finds or draws
    PLM_BUF_GUARD,  // no kernel may write it; the audit after a step looks
    PLM_BUF_TOKENS, // or, where tokens are chained, where the step before left them
    PLM_BUF_POS,
    PLM_BUF_SEQ,
    PLM_BUF_SLOTS,
    PLM_BUF_LOGITS_ROWS,
    PLM_BUF_SAMPLING, // struct plm_sample_row of each row of logits, where the device draws
    PLM_BUF_TABLES,
    PLM_BUFFERS,
};

struct plm_model {
    struct plm_host *host;
    const struct plm_gguf *gguf;
    const struct plm_arch *arch;
    struct plm_model_opts opts;
    struct plm_model_facts facts;
    struct plm_hparams hp;
    struct plm_cost_table cost;
    // From plm_model_specialize: optional ops to take, in steps of so many rows at most, and the
    // pairs of a row and a split of attention that the workspace has room for.
    uint64_t prefers;
    uint32_t few_rows;
    uint32_t partials;
    bool ahead; // steps take their tokens from the one before on the device
    struct plm_weight token_embd;
    struct plm_weight output_norm;
    struct plm_weight output;      // absent: tied to token_embd
    struct plm_weight output_bias; // optional
    struct plm_weight rope;   // phase increments, uint64 [rope_dims / 2]; tensor: optional factors
    struct plm_layer *layers; // [n_layer]
};

// One architecture.
struct plm_arch {
    const char *name; // general.architecture
    uint32_t rope_mode;
    // Refuses keys that would change the arithmetic in a way this file does not do.
    int (*check)(const struct plm_gguf *gguf, struct plm_error *err);
    // Fills tensors of the model and of layer `il` by plm_take_*.
    int (*tensors)(struct plm_model *model, struct plm_error *err);
    int (*layer_tensors)(struct plm_model *model, uint32_t il, struct plm_error *err);
};

extern const struct plm_arch plm_arch_llama;
extern const struct plm_arch plm_arch_qwen2;

// model.c: the workspace of a step, as cost table.
void plm_model_fill_cost(struct plm_model *model);
// hparams.c
int plm_hparams_read(const struct plm_gguf *gguf, const struct plm_arch *arch,
                     struct plm_hparams *ret, struct plm_error *err);
// PLM_ERR_UNSUPPORTED naming the key when it is there with a value above zero (for strings: at
// all).
int plm_refuse_key(const struct plm_gguf *gguf, const char *key, const char *what,
                   struct plm_error *err);

#define PLM_ROPE_PAIRS_MAX 128 // hparams.c keeps rope_dims below

// rope.c: phase increments of each pair of a head, for plm_rope_table. factors (may be NULL)
// divide them. False where one is not finite.
bool plm_rope_increments(const struct plm_hparams *hp, const float *factors, uint64_t *ret);

// tensors.c: take a tensor of this exact name and shape. `il` is the layer for names with a %u,
// else ignored. Types are checked: matrices any of those that kernels multiply, vectors F32, F16 or
// BF16.
enum plm_need { PLM_REQUIRED, PLM_OPTIONAL };
int plm_take_matrix(struct plm_model *model, const char *name, uint32_t il, uint32_t n_in,
                    uint32_t n_out, enum plm_need need, struct plm_weight *ret,
                    struct plm_error *err);
int plm_take_vector(struct plm_model *model, const char *name, uint32_t il, uint32_t n,
                    enum plm_need need, struct plm_weight *ret, struct plm_error *err);
// Calls fn for every weight that is in the file, and for the phase increments of rope; stops at the
// first result that is not PLM_OK.
int plm_each_weight(struct plm_model *model, int (*fn)(void *ctx, struct plm_weight *weight),
                    void *ctx);
// What llama and qwen2 share: norms, q/k/v/output and the gated feed-forward, without biases.
int plm_take_block(struct plm_model *model, uint32_t il, struct plm_error *err);
int plm_take_frame(struct plm_model *model, struct plm_error *err); // embedding, norm, head

// The activations that a product with weights of this type reads, as served.
static inline enum plm_act plm_act_of(enum plm_type type)
{
    bool plain = type == PLM_TYPE_F32 || type == PLM_TYPE_F16 || type == PLM_TYPE_BF16;
    return plain ? PLM_ACT_F32 : PLM_ACT_Q8;
}

static inline bool plm_weight_there(const struct plm_weight *weight)
{
    return weight->tensor != NULL;
}

#endif
