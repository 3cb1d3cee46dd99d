// SPDX-License-Identifier: Apache-2.0
// What a model is made of, as data. A layer is a mixer and a feed-forward, each with its norms;
// struct plm_layer_spec says which, with which constants. An architecture (arch_*.c) turns the keys
// of a file into specs. A kind of block (blocks/*.c) declares its weights, and everything that the
// engine must know of a model is derived from specs and declarations.
#ifndef PLM_MODEL_LAYER_H
#define PLM_MODEL_LAYER_H

#include <stddef.h>

#include "core/model/model.h"

// Whether a file has a tensor: never, perhaps, always.
enum plm_need { PLM_ABSENT, PLM_OPTIONAL, PLM_REQUIRED };

// ---- rope ----

#define PLM_ROPES_MAX       4   // different rotations within one model
#define PLM_ROPE_PAIRS_MAX  128 // rope.c keeps the rotated elements of a head below twice of it
#define PLM_ROPE_NONE       PLM_ROPES_MAX // of a layer that rotates nothing
#define PLM_ROPE_SCALES_MAX 1024          // load.c keeps those of a rope on its stack

// One rotation: the phase increments of its pairs follow from these.
struct plm_rope_spec {
    uint32_t dims; // rotated elements of a head, even
    uint32_t mode; // enum plm_rope_mode
    float base;
    float freq_scale; // 1 / scaling factor
    float magnitude;  // of cosine and sine, that is of q and k each
    // Of q alone: it grows by 1 + temperature * ln(1 + n) where n whole spans of scale_span
    // positions lie before it. n_scales spans are the trained context; 0: it does not grow.
    float temperature;
    uint32_t scale_span, n_scales;
    // yarn: pairs up to `keep` keep their increments, those from `scale` on are scaled, those
    // between are blended. Both 0: all are scaled.
    float keep, scale;
    // Tensors that divide the increments, one factor for each pair; NULL, or not in the file: none.
    // Where planned contexts are longer than `short_context`, long_factors take their place.
    const char *factors, *long_factors;
    uint32_t short_context;
};

// ---- layers ----

enum plm_mixer { PLM_MIXER_ATTENTION };
enum plm_feed_forward { PLM_FEED_FORWARD_GATED };

// Every field has 4 bytes, so that equal specs have equal bytes. Needs are enum plm_need.
struct plm_layer_spec {
    uint32_t mixer; // enum plm_mixer
    // attention
    uint32_t n_head, n_kv_head;
    uint32_t head_dim;
    uint32_t rope;                  // number of the model's rope, or PLM_ROPE_NONE
    uint32_t q_rope;                // of q, where it is another one than of k; 0: the same
    uint32_t window;                // positions that a row sees, its own included; 0: all
    uint32_t kv_layer;              // 0: its own K and V; n: those of the layer n before it
    uint32_t v_is_k;                // 1: K before its rope is V, too
    uint32_t output_gate;           // 1: the query's product also makes a gate of the output
    uint32_t qkv_bias, output_bias; // needs
    uint32_t head_norms;            // need of the RMS norms of each head of q and k
    uint32_t sinks;                 // need
    float norm_eps;                 // of these norms
    float attn_scale;               // of q.k
    float attn_soft_cap;            // of scores; 0: none
    uint32_t attn_norm_before, attn_norm_after; // needs
    // feed-forward
    uint32_t feed_forward; // enum plm_feed_forward
    uint32_t n_ff;
    uint32_t activation;                    // enum plm_gate_fn
    uint32_t ff_bias;                       // need
    uint32_t ff_norm_before, ff_norm_after; // needs
    // both
    float residual_scale;       // of what a block adds to the residual stream
    float output_scale;         // of the residual stream after the layer
    uint32_t n_layer_embedding; // elements of each token's embedding of this layer; 0: none
};

// A spec that says nothing: a norm before each block, no scales (hparams.c).
extern const struct plm_layer_spec plm_layer_spec_plain;
// Fields that no block computes yet must be as in that spec. UNSUPPORTED names the architecture
// and what it asks for (model.c).
int plm_layer_spec_check(const struct plm_layer_spec *spec, const char *arch,
                         struct plm_error *err);

// ---- weights ----

enum plm_weight_kind {
    PLM_WEIGHT_MATRIX, // laid out anew by the device
    PLM_WEIGHT_VECTOR, // float32
    PLM_WEIGHT_PHASES, // uint64 for each pair of a rope, made of its spec and optional factors
    PLM_WEIGHT_RECORD, // a struct of kernels/abi.h, made of addresses and constants of a layer
};

// Lengths as the names of what they count.
enum plm_dim {
    PLM_DIM_EMBD,
    PLM_DIM_VOCAB,
    PLM_DIM_HEAD, // elements of a head
    PLM_DIM_Q,    // of all query heads
    PLM_DIM_KV,   // of all heads of K
    PLM_DIM_FF,
};

struct plm_layer;

// A weight as a kind of block declares it: the one place that names it.
struct plm_weight_decl {
    const char *name; // of the tensor, with %u for the layer
    // A tensor that may stand for several weights of a list, rows after rows in the list's order:
    // it does where the file lacks the first of them. May be NULL.
    const char *fused;
    enum plm_weight_kind kind;
    enum plm_weight_class weight_class;
    enum plm_dim n_in, n_out; // of a vector: n_in
    // Of the field of the spec that holds an enum plm_need, as offsetof; 0: required.
    size_t need;
    // Records: bytes, and a function that says whether the layer needs one. With ret it fills that,
    // at load, when all weights before it in the list have addresses.
    uint32_t record_bytes;
    bool (*record)(const struct plm_layer *layer, void *ret);
};

#endif
