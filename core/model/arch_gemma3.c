// SPDX-License-Identifier: Apache-2.0
// gemma3: norms before and after both blocks and of each head of q and k; GELU; embeddings times
// the root of their length; five layers with a window for one without, each kind with a rope of its
// own, of which the scaling is that of layers without a window; perhaps a soft cap of the logits.
#include <math.h>

#include "core/model/arch.h"

enum { FULL, WINDOWED }; // ropes

// Layers of the model of 27 billion parameters, whose scores are scaled by the embedding's share of
// a head, not by the head's own length. No key says so.
#define LAYERS_27B 62

static int read_window(const struct plm_keys *keys, struct plm_hparams *hp, struct plm_error *err)
{
    static const struct plm_int_key pattern = {"attention.sliding_window_pattern",
                                               offsetof(struct plm_hparams, full_every), 1, 1024,
                                               PLM_OPTIONAL};
    hp->full_every = 6;
    int r = plm_attention_read_window(keys, &hp->layer.window, err);
    return r == PLM_OK ? plm_keys_ints(keys, &pattern, 1, hp, err) : r;
}

static int describe(const struct plm_keys *keys, struct plm_hparams *hp, struct plm_error *err)
{
    struct plm_layer_spec *s = &hp->layer;
    hp->embd_scale = sqrtf((float)hp->n_embd);
    hp->ropes[FULL].mode = PLM_ROPE_NEOX;
    hp->ropes[WINDOWED] = (struct plm_rope_spec){.dims = hp->ropes[FULL].dims,
                                                 .mode = PLM_ROPE_NEOX,
                                                 .base = 10000.0f,
                                                 .freq_scale = 1.0f,
                                                 .magnitude = 1.0f};
    hp->n_ropes = 2;
    s->head_norms = PLM_REQUIRED;
    s->attn_norm_after = s->ff_norm_after = PLM_REQUIRED;
    s->activation = PLM_GATE_GELU;
    if (hp->n_layer == LAYERS_27B)
        s->attn_scale = 1.0f / sqrtf((float)hp->n_embd / (float)s->n_head);
    int r; // the block read the scale before the rule above: a key counts more
    if ((r = plm_keys_float(keys, "rope.freq_base_swa", &hp->ropes[WINDOWED].base, err)) ||
        (r = plm_keys_float(keys, "attention.scale", &s->attn_scale, err)) ||
        (r = plm_keys_float(keys, "final_logit_softcapping", &hp->logit_soft_cap, err)))
        return r;
    return read_window(keys, hp, err);
}

static void layer(const struct plm_hparams *hp, uint32_t il, struct plm_layer_spec *spec)
{
    const bool full = (il + 1) % hp->full_every == 0;
    spec->rope = full ? FULL : WINDOWED;
    spec->window = full ? 0 : hp->layer.window;
}

const struct plm_arch plm_arch_gemma3 = {.name = "gemma3", .describe = describe, .layer = layer};
