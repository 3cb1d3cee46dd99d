// SPDX-License-Identifier: Apache-2.0
// Hyper-parameters of a file, each held against the range in which the arithmetic of this engine is
// defined. One table for the integers, so that no key is read without its limits.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/model/arch.h"

// Of a key: an architecture's name and the longest suffix below stay far under it.
#define KEY_BYTES 128

static void make_key(char out[KEY_BYTES], const struct plm_arch *arch, const char *suffix)
{
    snprintf(out, KEY_BYTES, "%s.%s", arch->name, suffix);
}

// Limits: far above any published model, low enough that no product of two of them leaves 32 bits
// where the kernels use 32 bits, nor one of three 64 bits anywhere.
struct int_key {
    const char *suffix;
    size_t offset; // in struct plm_hparams
    uint32_t min;
    uint32_t max;
    bool required;
};

#define FIELD(name) offsetof(struct plm_hparams, name)

static const struct int_key int_keys[] = {
    {"context_length", FIELD(n_ctx_train), 1, 1u << 24, true},
    {"embedding_length", FIELD(n_embd), 1, 1u << 17, true},
    {"block_count", FIELD(n_layer), 1, 1024, true},
    {"feed_forward_length", FIELD(n_ff), 1, 1u << 20, true},
    {"attention.head_count", FIELD(n_head), 1, 4096, true},
    {"attention.head_count_kv", FIELD(n_kv_head), 1, 4096, false},
    {"attention.key_length", FIELD(head_dim), 1, 256, false},
    {"rope.dimension_count", FIELD(rope_dims), 2, 256, false},
};

static int read_ints(const struct plm_gguf *gguf, const struct plm_arch *arch,
                     struct plm_hparams *hp, struct plm_error *err)
{
    for (size_t i = 0; i < sizeof(int_keys) / sizeof(int_keys[0]); i++) {
        const struct int_key *k = &int_keys[i];
        uint32_t *field = (uint32_t *)((char *)hp + k->offset);
        char key[KEY_BYTES];
        make_key(key, arch, k->suffix);
        uint32_t value;
        int r = plm_gguf_u32(gguf, key, &value, err);
        if (r == PLM_ERR_NOT_FOUND && !k->required)
            continue; // the default that the caller set stays
        if (r != PLM_OK)
            return r == PLM_ERR_NOT_FOUND ? plm_fail(err, PLM_ERR_FORMAT, "key %s is missing", key)
                                          : r;
        if (value < k->min || value > k->max)
            return plm_fail(err, PLM_ERR_FORMAT, "key %s is %u, outside %u to %u", key, value,
                            k->min, k->max);
        *field = value;
    }
    return PLM_OK;
}

// A positive finite float; without the key the default in *ret stays.
static int read_float(const struct plm_gguf *gguf, const struct plm_arch *arch, const char *suffix,
                      float *ret, struct plm_error *err)
{
    char key[KEY_BYTES];
    make_key(key, arch, suffix);
    float value;
    int r = plm_gguf_f32(gguf, key, &value, err);
    if (r == PLM_ERR_NOT_FOUND)
        return PLM_OK;
    if (r != PLM_OK)
        return r;
    if (!isfinite(value) || value <= 0)
        return plm_fail(err, PLM_ERR_FORMAT, "key %s is %g, not a positive number", key,
                        (double)value);
    *ret = value;
    return PLM_OK;
}

static int read_rope_scaling(const struct plm_gguf *gguf, const struct plm_arch *arch,
                             struct plm_hparams *hp, struct plm_error *err)
{
    char key[KEY_BYTES];
    struct plm_slice type = PLM_SLICE("none");
    make_key(key, arch, "rope.scaling.type");
    int r = plm_gguf_str(gguf, key, &type, err);
    if (r != PLM_OK && r != PLM_ERR_NOT_FOUND)
        return r;
    bool linear = plm_slice_eq_str(type, "linear");
    if (!linear && !plm_slice_eq_str(type, "none"))
        return plm_fail(err, PLM_ERR_UNSUPPORTED,
                        "key %s: rope scaling \"%.*s\" is not supported (there are: linear, none)",
                        key, (int)plm_min_i64((int64_t)type.len, 40), type.ptr);
    float factor = 1.0f;
    // Old converters wrote scale_linear and no type.
    r = read_float(gguf, arch, "rope.scale_linear", &factor, err);
    if (r == PLM_OK && linear)
        r = read_float(gguf, arch, "rope.scaling.factor", &factor, err);
    if (r == PLM_OK)
        hp->rope_freq_scale = 1.0f / factor;
    return r;
}

static int check_shape(const struct plm_arch *arch, const struct plm_hparams *hp,
                       struct plm_error *err)
{
    if (hp->n_head % hp->n_kv_head != 0)
        return plm_fail(err, PLM_ERR_FORMAT,
                        "%s.attention.head_count is %u, no multiple of head_count_kv %u",
                        arch->name, hp->n_head, hp->n_kv_head);
    if (hp->head_dim == 0 || hp->head_dim % 8 != 0 || hp->head_dim > 256)
        return plm_fail(err, PLM_ERR_UNSUPPORTED,
                        "%s: heads of %u elements (a multiple of 8 up to 256 is supported)",
                        arch->name, hp->head_dim);
    if (hp->rope_dims % 2 != 0 || hp->rope_dims > hp->head_dim)
        return plm_fail(err, PLM_ERR_FORMAT, "%s.rope.dimension_count is %u for heads of %u",
                        arch->name, hp->rope_dims, hp->head_dim);
    return PLM_OK;
}

int plm_hparams_read(const struct plm_gguf *gguf, const struct plm_arch *arch,
                     struct plm_hparams *ret, struct plm_error *err)
{
    struct plm_hparams hp = {.rope_base = 10000.0f, .rope_mode = arch->rope_mode};
    int r = read_ints(gguf, arch, &hp, err);
    if (r != PLM_OK)
        return r;
    if (hp.n_kv_head == 0)
        hp.n_kv_head = hp.n_head;
    if (hp.head_dim == 0) {
        if (hp.n_embd % hp.n_head != 0)
            return plm_fail(err, PLM_ERR_FORMAT,
                            "%s.embedding_length %u is no multiple of %u heads", arch->name,
                            hp.n_embd, hp.n_head);
        hp.head_dim = hp.n_embd / hp.n_head;
    }
    uint32_t value_length = hp.head_dim;
    char key[KEY_BYTES];
    make_key(key, arch, "attention.value_length");
    r = plm_gguf_u32(gguf, key, &value_length, err);
    if (r != PLM_OK && r != PLM_ERR_NOT_FOUND)
        return r;
    if (value_length != hp.head_dim)
        return plm_fail(err, PLM_ERR_UNSUPPORTED, "key %s is %u, but keys have %u elements", key,
                        value_length, hp.head_dim);
    if (hp.rope_dims == 0)
        hp.rope_dims = hp.head_dim;
    r = check_shape(arch, &hp, err);
    if (r != PLM_OK)
        return r;
    hp.attn_scale = 1.0f / sqrtf((float)hp.head_dim);
    if ((r = read_float(gguf, arch, "attention.layer_norm_rms_epsilon", &hp.rms_eps, err)) ||
        (r = read_float(gguf, arch, "rope.freq_base", &hp.rope_base, err)) ||
        (r = read_float(gguf, arch, "attention.scale", &hp.attn_scale, err)) ||
        (r = read_rope_scaling(gguf, arch, &hp, err)))
        return r;
    if (hp.rms_eps == 0)
        return plm_fail(err, PLM_ERR_FORMAT, "key %s.attention.layer_norm_rms_epsilon is missing",
                        arch->name);
    *ret = hp;
    return PLM_OK;
}

int plm_refuse_key(const struct plm_gguf *gguf, const char *key, const char *what,
                   struct plm_error *err)
{
    uint64_t value;
    int r = plm_gguf_u64(gguf, key, &value, NULL);
    if (r == PLM_ERR_NOT_FOUND || (r == PLM_OK && value == 0))
        return PLM_OK;
    return plm_fail(err, PLM_ERR_UNSUPPORTED, "key %s: %s is not supported", key, what);
}
