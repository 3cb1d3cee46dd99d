// SPDX-License-Identifier: Apache-2.0
// Random shapes, values, activations and KV blocks, that cases are made of.
#ifndef PLM_TESTS_DRAW_H
#define PLM_TESTS_DRAW_H

#include "tests/conformance/conf.h"

#define FIELD(op, name) offsetof(struct plm_##op##_args, name)

void conf_set_args(struct conf_case *c, const void *args);
// Few rows mostly, sometimes many; never a nice number only.
uint32_t conf_draw_rows(struct conf_rng *rng);
// Which types of weights, and of K and V, are drawn, as bits; before the first draw.
void conf_draw_types(uint64_t types, uint64_t kv_types);
// A type of weights that is multiplied with activations of this format.
enum plm_type conf_draw_type(uint32_t act, struct conf_rng *rng);
uint32_t conf_draw_n_in(enum plm_type type, struct conf_rng *rng);
// Rotated elements of a head: all, some or none.
uint32_t conf_draw_rope_dims(uint32_t head_dim, struct conf_rng *rng);

void conf_fill_normal(float *x, uint64_t n, float scale, struct conf_rng *rng);
// Values of very different size, now and then with zeros, infinities and NaNs.
void conf_fill_wild(float *x, uint64_t n, struct conf_rng *rng);
// Random rows of PLM_ACT_Q8.
void conf_fill_q8(uint8_t *dst, uint32_t rows, uint32_t n, struct conf_rng *rng);
// The input `x` of a product.
void conf_draw_acts(struct conf_case *c, size_t field, uint32_t act, uint32_t rows, uint32_t n_in,
                    struct conf_rng *rng);

// Blocks of a KV slab with `layers` layers.
struct conf_kv_shape {
    uint32_t kv_heads, head_dim, kv_type, layers;
    uint64_t layer_bytes, block_bytes;
};
struct conf_kv_shape conf_draw_kv(struct conf_rng *rng);
// Says of the case's first buffer that it is such a slab.
void conf_slab(struct conf_case *c, const struct conf_kv_shape *s);
// Norms of the heads of q, of k, of both or, half the time, none; written to the field of both ops.
void conf_draw_norms(struct conf_case *c, size_t field, uint32_t head_dim, struct conf_rng *rng);
// Tokens at distinct places of the slab in buffer `slab`, in blocks in random order.
void conf_fill_slots(struct conf_case *c, size_t slots_field, size_t pos_field, int slab,
                     uint32_t rows, const struct conf_kv_shape *s, struct conf_rng *rng);
// K and V of the tokens [begin, end) of a sequence. What rows may not see stays as it is.
void conf_fill_history(uint8_t *slab, const struct conf_kv_shape *s, const uint64_t *table,
                       uint64_t layer_offset, uint32_t begin, uint32_t end, struct conf_rng *rng);

// The cases of the optional ops, and of attention (fused_cases.c), which the others are in cases.c.
void conf_make_attention(struct conf_case *c, struct conf_rng *rng);
void conf_make_qkv(struct conf_case *c, struct conf_rng *rng);
void conf_make_glu(struct conf_case *c, struct conf_rng *rng);
void conf_make_attention_split(struct conf_case *c, struct conf_rng *rng);
void conf_make_attention_merge(struct conf_case *c, struct conf_rng *rng);
void conf_make_argmax(struct conf_case *c, struct conf_rng *rng);
void conf_make_sample(struct conf_case *c, struct conf_rng *rng);

#endif
