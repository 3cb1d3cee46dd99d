// SPDX-License-Identifier: Apache-2.0
// Inside of the model module: constants of a model, its weights and layers, and what architectures
// and kinds of blocks supply. decoder.c runs what this describes.
#ifndef PLM_MODEL_ARCH_H
#define PLM_MODEL_ARCH_H

#include "core/gguf/types.h"
#include "core/model/layer.h"

// What stands around the layers, and what layers start from.
struct plm_hparams {
    uint32_t n_vocab;
    uint32_t n_ctx_train;
    uint32_t n_embd;
    uint32_t n_layer;
    float rms_eps;
    float embd_scale;         // of the embeddings of tokens
    float logit_soft_cap;     // 0: none
    uint32_t head, head_bias; // enum plm_need; without a head the embedding is it
    uint32_t full_every;      // one layer of so many has no window; 0: all are alike
    uint32_t n_ropes;
    struct plm_rope_spec ropes[PLM_ROPES_MAX];
    struct plm_layer_spec layer; // of all layers, but for what an architecture changes in each
};

// A weight of the model. Absent ones have no elements.
struct plm_weight {
    const struct plm_weight_decl *decl;
    const struct plm_layer *layer;        // NULL: around the layers
    const struct plm_gguf_tensor *tensor; // NULL: absent, or made without a tensor
    uint32_t first;                       // row (of a vector: element) of the tensor it begins at
    uint32_t n_in;                        // of a record: bytes
    uint32_t n_out;                       // 1 for all but matrices
    uint64_t addr;                        // after load; 0: absent
};

struct plm_layer {
    struct plm_layer_spec spec;
    struct plm_weight *mixer, *feed_forward; // as the blocks' lists number them
    uint32_t group;                          // KV group
    uint64_t kv_offset;                      // of this layer's K and V within a block, bytes
    bool first_of_kind; // no layer before it has the same spec and the same types of weights
};

// Indices into the cost table: every buffer of the workspace. First those that kernels write, then
// those that the host writes with one copy before each step; the guard is the first of these.
enum plm_buffer {
    PLM_BUF_CHAINED, // tokens that the step before found, on devices that run ahead
    PLM_BUF_ROPE,    // angles of each rope
    PLM_BUF_ROPE_LAST = PLM_BUF_ROPE + PLM_ROPES_MAX - 1,
    PLM_BUF_X,       // the residual stream
    PLM_BUF_SCRATCH, // q, k and v side by side; later gate and up, or their activation
    PLM_BUF_ATTN,    // what attention returns
    PLM_BUF_ACT_Q8,  // input of the next product in 8 bits
    PLM_BUF_ACT_F32, // the same in float32
    PLM_BUF_BRANCH,  // what a block adds, before the norm after it
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

// How forwards run on the model's device: plm_model_specialize.
struct plm_specialization {
    uint64_t prefers;  // optional ops that forwards use
    uint32_t few_rows; // rows of the largest step that uses them
    uint32_t partials; // pairs of a row and a split of attention that the workspace has room for
    bool ahead;        // steps take their tokens from the one before on the device
};

// The weights around the layers, as plm_outer_weights declares them.
enum plm_outer_weight {
    PLM_OUTER_TOKEN_EMBD,
    PLM_OUTER_NORM,
    PLM_OUTER_HEAD, // absent: tied to the embedding
    PLM_OUTER_HEAD_BIAS,
    PLM_OUTER_WEIGHTS,
};

struct plm_arch;

struct plm_model {
    struct plm_host *host;
    const struct plm_gguf *gguf;
    const struct plm_arch *arch;
    struct plm_model_opts opts;
    struct plm_model_facts facts;
    struct plm_hparams hp;
    struct plm_cost_table cost;
    struct plm_specialization on;
    uint32_t context;         // of plm_model_set_context
    struct plm_layer *layers; // [hp.n_layer]
    uint32_t n_weights;
    // All of them: those of ropes, those around the layers, those of layer after layer.
    struct plm_weight *weights;
    struct plm_weight *ropes;      // [hp.n_ropes]
    struct plm_weight *long_ropes; // [hp.n_ropes], absent where there are no long factors
    struct plm_weight *outer;      // [PLM_OUTER_WEIGHTS]
};

// ---- keys (keys.c, hparams.c) ----

// Keys "NAME.suffix" of a file, NAME being the architecture. Each is held against the range in
// which the arithmetic of this engine is defined.
struct plm_keys {
    const struct plm_gguf *gguf;
    const char *arch;
};

#define PLM_KEY_BYTES 128 // of a key: an architecture's name and any suffix stay far under it
void plm_key_name(const struct plm_keys *keys, const char *suffix, char ret[PLM_KEY_BYTES]);

// Integers as a table, so that none is read without its limits.
struct plm_int_key {
    const char *suffix;
    size_t offset; // of the uint32_t in the struct that is filled
    uint32_t min, max;
    enum plm_need need; // OPTIONAL: without the key what stands there stays
};
int plm_keys_ints(const struct plm_keys *keys, const struct plm_int_key *table, size_t n, void *ret,
                  struct plm_error *err);
// A positive finite float; without the key *ret stays.
int plm_keys_float(const struct plm_keys *keys, const char *suffix, float *ret,
                   struct plm_error *err);
// PLM_ERR_UNSUPPORTED naming the key when it is there with a value above zero (for strings: at
// all).
int plm_keys_refuse(const struct plm_keys *keys, const char *suffix, const char *what,
                    struct plm_error *err);
// What architectures refuse a window with whose configurations give it to some layers only, which
// GGUF has no key for.
#define PLM_WINDOW_OF_SOME_LAYERS "a window, where no key says which layers have it,"
// What all architectures share: sizes, the first rope, the spec that layers start from.
int plm_hparams_read(const struct plm_keys *keys, struct plm_hparams *ret, struct plm_error *err);

// ---- architectures (arch_*.c) ----

struct plm_arch {
    const char *name; // general.architecture
    // Completes what plm_hparams_read read. Refuses keys that would change the arithmetic in a way
    // that no spec says.
    int (*describe)(const struct plm_keys *keys, struct plm_hparams *hp, struct plm_error *err);
    // What is different in layer il, whose spec is that of all layers. NULL: nothing.
    void (*layer)(const struct plm_hparams *hp, uint32_t il, struct plm_layer_spec *spec);
};

// All of them; the one list, besides that of files.
#define PLM_ARCHS(X) X(gemma3) X(llama) X(mistral3) X(phi3) X(qwen2) X(qwen3) X(smollm3)
#define X(name)      extern const struct plm_arch plm_arch_##name;
PLM_ARCHS(X)
#undef X

// ---- kinds of blocks (blocks/*.c) ----

struct plm_pass;

struct plm_block_kind {
    const struct plm_weight_decl *weights;
    uint32_t n_weights;
    // Reads its keys into the spec that layers start from.
    int (*read)(const struct plm_keys *keys, const struct plm_hparams *hp,
                struct plm_layer_spec *ret, struct plm_error *err);
    // Grows the buffers that a layer of this spec writes (plm_cost_grow).
    void (*buffers)(const struct plm_model *model, const struct plm_layer_spec *spec,
                    struct plm_cost_buffer *buffers);
    // Appends its launches. What it reads was written before; the next block reads what it adds to
    // the residual stream.
    void (*append)(struct plm_pass *pass, const struct plm_layer *layer);
};

extern const struct plm_block_kind plm_block_attention;
extern const struct plm_block_kind plm_block_gated;

// Key attention.sliding_window: positions that a row sees, its own included; 0, or no key: all.
int plm_attention_read_window(const struct plm_keys *keys, uint32_t *ret, struct plm_error *err);

// Pieces in which a row of the layer attends, where it attends in splits, over so many tokens. A
// window that begins within a split sees part of one more than a context of its length has, but of
// no more than there are.
static inline uint64_t plm_attention_splits(const struct plm_layer_spec *spec, uint64_t context)
{
    const uint64_t all = PLM_ATTN_SPANNED(PLM_ATTN_SPLIT_TOKENS, context, 0);
    const uint64_t seen = PLM_ATTN_SPANNED(PLM_ATTN_SPLIT_TOKENS, context, spec->window);
    return seen < all ? seen : all;
}

const struct plm_block_kind *plm_mixer_of(const struct plm_layer_spec *spec);
const struct plm_block_kind *plm_feed_forward_of(const struct plm_layer_spec *spec);

// A buffer has at least these bytes a row.
static inline void plm_cost_grow(struct plm_cost_buffer *buffer, uint64_t per_row)
{
    buffer->per_row = per_row > buffer->per_row ? per_row : buffer->per_row;
}

// ---- ropes (rope.c) ----

// Reads the keys of the rope that all architectures have.
int plm_rope_read(const struct plm_keys *keys, uint32_t head_dim, struct plm_rope_spec *ret,
                  struct plm_error *err);
// Reads what longrope has beside: two sets of factors, where the file has them.
int plm_rope_read_long(const struct plm_keys *keys, struct plm_rope_spec *rope,
                       struct plm_error *err);
// The weight with the phase increments of rope i: those of the planned context.
const struct plm_weight *plm_rope_weight(const struct plm_model *model, uint32_t i);
// Phase increments of each pair of a head, for plm_rope_table. factors (may be NULL) divide them.
// False where one is not finite.
bool plm_rope_increments(const struct plm_rope_spec *rope, const float *factors, uint64_t *ret);
// By how much q grows in each span of positions. They lie behind the increments.
void plm_rope_scales(const struct plm_rope_spec *rope, float *ret);
static inline uint64_t plm_rope_increments_bytes(const struct plm_rope_spec *rope)
{
    return sizeof(uint64_t) * (rope->dims / 2);
}

// ---- weights (weights.c) ----

// Finds every weight that the specs declare, by its exact name and shape. A tensor that no weight
// names is an error: ignoring it would give wrong answers silently. Types are checked: matrices any
// of those that kernels multiply, vectors F32, F16 or BF16.
int plm_bind_weights(struct plm_model *model, struct plm_error *err);
// Calls fn for every weight that is there; stops at the first result that is not PLM_OK.
int plm_each_weight(const struct plm_model *model, int (*fn)(void *ctx, struct plm_weight *weight),
                    void *ctx);

static inline bool plm_weight_there(const struct plm_weight *weight)
{
    return weight->n_in != 0;
}

static inline bool plm_weight_is_matrix(const struct plm_weight *weight)
{
    return weight->decl->kind == PLM_WEIGHT_MATRIX;
}

// For messages: of the tensor, or of what is made.
struct plm_slice plm_weight_name(const struct plm_weight *weight);

// The activations that a product with weights of this type reads, as served.
static inline enum plm_act plm_act_of(enum plm_type type)
{
    return plm_type_is_supported((uint32_t)type, true) ? PLM_ACT_F32 : PLM_ACT_Q8;
}

// ---- around the layers (decoder.c, cost.c) ----

// Weights around the layers.
extern const struct plm_weight_decl plm_outer_weights[PLM_OUTER_WEIGHTS];
// The head's matrix, which may be the embedding's.
const struct plm_weight *plm_model_head(const struct plm_model *model);
// The workspace of a step, as cost table.
void plm_model_fill_cost(struct plm_model *model);

#endif
