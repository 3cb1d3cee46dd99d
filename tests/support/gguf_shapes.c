// SPDX-License-Identifier: Apache-2.0
#include "tests/support/gguf_shapes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "core/base/alloc.h"
#include "core/base/checked.h"
#include "core/base/utf8.h"
#include "core/gguf/gguf.h"
#include "core/gguf/types.h"
#include "tests/support/gguf_weights.h"
#include "tests/support/gguf_writer.h"

// From the configurations that the publishers give with the models (config.json).
const struct gguf_shape gguf_shapes[] = {
    {.name = "llama-3.1-8b",
     .arch = "llama",
     .pre = "llama-bpe",
     .n_layer = 32,
     .n_embd = 4096,
     .n_head = 32,
     .n_head_kv = 8,
     .n_ff = 14336,
     .n_vocab = 128256,
     .n_ctx = 131072,
     .rope_base = 500000.0f,
     .rope_freqs = true},
    {.name = "qwen2.5-32b",
     .arch = "qwen2",
     .pre = "qwen2",
     .n_layer = 64,
     .n_embd = 5120,
     .n_head = 40,
     .n_head_kv = 8,
     .n_ff = 27648,
     .n_vocab = 152064,
     .n_ctx = 131072,
     .rope_base = 1000000.0f,
     .qkv_bias = true},
    {.name = "llama-3-70b",
     .arch = "llama",
     .pre = "llama-bpe",
     .n_layer = 80,
     .n_embd = 8192,
     .n_head = 64,
     .n_head_kv = 8,
     .n_ff = 28672,
     .n_vocab = 128256,
     .n_ctx = 8192,
     .rope_base = 500000.0f},
    {.name = "smollm2-135m",
     .arch = "llama",
     .pre = "smollm",
     .n_layer = 30,
     .n_embd = 576,
     .n_head = 9,
     .n_head_kv = 3,
     .n_ff = 1536,
     .n_vocab = 49152,
     .n_ctx = 8192,
     .rope_base = 100000.0f,
     .tied = true},
    // Models with SPM vocabularies have one of their size that is generated as the others are.
    {.name = "gemma-3-27b",
     .arch = "gemma3",
     .pre = "llama-bpe",
     .n_layer = 62,
     .n_embd = 5376,
     .n_head = 32,
     .n_head_kv = 16,
     .n_ff = 21504,
     .n_vocab = 262208,
     .n_ctx = 131072,
     .rope_base = 1000000.0f,
     .tied = true,
     .head_dim = 128,
     .window = 1024,
     .full_every = 6,
     .head_norms = true,
     .norms_after = true,
     .rope_scaling = "linear",
     .rope_factor = 8.0f},
    {.name = "qwen3-8b",
     .arch = "qwen3",
     .pre = "qwen2",
     .n_layer = 36,
     .n_embd = 4096,
     .n_head = 32,
     .n_head_kv = 8,
     .n_ff = 12288,
     .n_vocab = 151936,
     .n_ctx = 40960,
     .rope_base = 1000000.0f,
     .head_dim = 128,
     .head_norms = true},
    {.name = "mistral-7b-v0.1",
     .arch = "llama",
     .pre = "llama-bpe",
     .n_layer = 32,
     .n_embd = 4096,
     .n_head = 32,
     .n_head_kv = 8,
     .n_ff = 14336,
     .n_vocab = 32000,
     .n_ctx = 32768,
     .rope_base = 10000.0f,
     .window = 4096},
    {.name = "ministral-3-8b",
     .arch = "mistral3",
     .pre = "tekken",
     .n_layer = 34,
     .n_embd = 4096,
     .n_head = 32,
     .n_head_kv = 8,
     .n_ff = 14336,
     .n_vocab = 131072,
     .n_ctx = 262144,
     .rope_base = 1000000.0f,
     .head_dim = 128,
     .rope_scaling = "yarn",
     .rope_factor = 16.0f,
     .original_ctx = 16384,
     .temperature = 0.1f},
    {.name = "phi-3-mini-4k",
     .arch = "phi3",
     .pre = "llama-bpe",
     .n_layer = 32,
     .n_embd = 3072,
     .n_head = 32,
     .n_head_kv = 32,
     .n_ff = 8192,
     .n_vocab = 32064,
     .n_ctx = 4096,
     .rope_base = 10000.0f,
     .window = 2047,
     .fused = true},
    {.name = "smollm3-3b",
     .arch = "smollm3",
     .pre = "smaug-bpe",
     .n_layer = 36,
     .n_embd = 2048,
     .n_head = 16,
     .n_head_kv = 4,
     .n_ff = 11008,
     .n_vocab = 128256,
     .n_ctx = 65536,
     .rope_base = 5000000.0f,
     .tied = true},
    // As few layers of an 8B model's proportions as tell one device from another: for devices that
    // compute slowly.
    {.name = "small",
     .arch = "llama",
     .pre = "llama-bpe",
     .n_layer = 2,
     .n_embd = 512,
     .n_head = 8,
     .n_head_kv = 2,
     .n_ff = 1024,
     .n_vocab = 1024,
     .n_ctx = 8192,
     .rope_base = 500000.0f},
};
const size_t gguf_n_shapes = sizeof(gguf_shapes) / sizeof(gguf_shapes[0]);
const char *const gguf_mix_names[GGUF_MIXES] = {"f16", "q4_k_m", "q4_k", "q8_0", "q4_0", "bf16"};

// ---- the vocabulary ----

#define N_PAIRS  65536u
#define SPECIALS 256u

// The printable form of a byte: bytes stand for themselves or count up from U+0100.
static size_t put_byte(uint32_t byte, char *out)
{
    uint32_t next = 0x100;
    for (uint32_t b = 0; b < byte; b++)
        next += !((b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE);
    const bool plain =
        (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    return plm_utf8_encode(plain ? byte : next, out);
}

static void put_token(uint32_t id, uint32_t n_vocab, char out[32])
{
    size_t n = 0;
    if (id >= n_vocab - SPECIALS) {
        snprintf(out, 32, "<|special_%u|>", id - (n_vocab - SPECIALS));
        return;
    }
    if (id >= 256 + N_PAIRS) { // a pair and a byte
        const uint32_t pair = (id - 256 - N_PAIRS) / 256;
        n += put_byte(pair / 256, out + n);
        n += put_byte(pair % 256, out + n);
    } else if (id >= 256) {
        n += put_byte((id - 256) / 256, out + n);
    }
    n += put_byte(id % 256, out + n);
    out[n] = '\0';
}

// The merge that makes a pair.
static void put_merge(uint32_t id, char out[32])
{
    size_t n = put_byte((id - 256) / 256, out);
    out[n++] = ' ';
    n += put_byte(id % 256, out + n);
    out[n] = '\0';
}

static void vocabulary(struct gguf_writer *w, const struct gguf_shape *s)
{
    char(*text)[32] = calloc(s->n_vocab, sizeof(*text));
    const char **ptr = calloc(s->n_vocab, sizeof(*ptr));
    int32_t *type = calloc(s->n_vocab, sizeof(*type));
    if (text == NULL || ptr == NULL || type == NULL)
        abort();
    for (uint32_t id = 0; id < s->n_vocab; id++) {
        put_token(id, s->n_vocab, text[id]);
        ptr[id] = text[id];
        type[id] = id >= s->n_vocab - SPECIALS ? 3 : 1; // control, normal
    }
    gguf_writer_str(w, "tokenizer.ggml.model", "gpt2");
    gguf_writer_str(w, "tokenizer.ggml.pre", s->pre);
    gguf_writer_strs(w, "tokenizer.ggml.tokens", ptr, s->n_vocab);
    gguf_writer_array(w, "tokenizer.ggml.token_type", PLM_GGUF_I32, type, s->n_vocab);
    const uint32_t room = s->n_vocab - 256 - SPECIALS;
    const uint32_t n_merges = room < N_PAIRS ? room : N_PAIRS;
    for (uint32_t i = 0; i < n_merges; i++)
        put_merge(256 + i, text[i]);
    gguf_writer_strs(w, "tokenizer.ggml.merges", ptr, n_merges);
    gguf_writer_u32(w, "tokenizer.ggml.bos_token_id", s->n_vocab - SPECIALS);
    gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", s->n_vocab - SPECIALS + 1);
    free(text);
    free(ptr);
    free(type);
}

// ---- tensors ----

static void entry(struct gguf_writer *w, const char *name, enum plm_type type, uint64_t n_in,
                  uint64_t n_out)
{
    const uint64_t ne[2] = {n_in, n_out};
    const uint32_t n_dims = n_out > 0 ? 2 : 1; // 0: a vector
    uint64_t row;
    if (!plm_type_row_bytes(type, n_in, &row))
        abort();
    gguf_writer_info(w, (struct plm_slice){name, strlen(name)}, n_dims, ne, n_dims, type,
                     w->next_offset);
    w->next_offset = plm_round_up(w->next_offset + row * (n_out > 0 ? n_out : 1), w->alignment);
}

static void block_entry(struct gguf_writer *w, uint32_t il, const char *name, enum plm_type type,
                        uint64_t n_in, uint64_t n_out)
{
    char full[64];
    snprintf(full, sizeof(full), "blk.%u.%s", il, name);
    entry(w, full, type, n_in, n_out);
}

static enum plm_type base_type(enum gguf_mix mix)
{
    static const enum plm_type types[GGUF_MIXES] = {
        [GGUF_MIX_F16] = PLM_TYPE_F16,   [GGUF_MIX_Q4_K_M] = PLM_TYPE_Q4_K,
        [GGUF_MIX_Q4_K] = PLM_TYPE_Q4_K, [GGUF_MIX_Q8_0] = PLM_TYPE_Q8_0,
        [GGUF_MIX_Q4_0] = PLM_TYPE_Q4_0, [GGUF_MIX_BF16] = PLM_TYPE_BF16};
    return types[mix];
}

// Q4_K_M gives attn_v and ffn_down more bits in the first and last eighth of the layers and in
// every third one between.
static bool more_bits(uint32_t il, uint32_t n)
{
    return il < n / 8 || il >= 7 * n / 8 || (il - n / 8) % 3 == 2;
}

static uint64_t head_dim(const struct gguf_shape *s)
{
    return s->head_dim > 0 ? s->head_dim : s->n_embd / s->n_head;
}

static void attention(struct gguf_writer *w, const struct gguf_shape *s, enum plm_type base,
                      enum plm_type more, uint32_t il)
{
    const uint64_t q = head_dim(s) * s->n_head, kv = head_dim(s) * s->n_head_kv;
    block_entry(w, il, "attn_norm.weight", PLM_TYPE_F32, s->n_embd, 0);
    if (s->fused) {
        block_entry(w, il, "attn_qkv.weight", base, s->n_embd, q + 2 * kv);
    } else {
        block_entry(w, il, "attn_q.weight", base, s->n_embd, q);
        block_entry(w, il, "attn_k.weight", base, s->n_embd, kv);
        block_entry(w, il, "attn_v.weight", more, s->n_embd, kv);
    }
    if (s->qkv_bias) {
        block_entry(w, il, "attn_q.bias", PLM_TYPE_F32, q, 0);
        block_entry(w, il, "attn_k.bias", PLM_TYPE_F32, kv, 0);
        block_entry(w, il, "attn_v.bias", PLM_TYPE_F32, kv, 0);
    }
    if (s->head_norms) {
        block_entry(w, il, "attn_q_norm.weight", PLM_TYPE_F32, head_dim(s), 0);
        block_entry(w, il, "attn_k_norm.weight", PLM_TYPE_F32, head_dim(s), 0);
    }
    block_entry(w, il, "attn_output.weight", base, q, s->n_embd);
    if (s->norms_after)
        block_entry(w, il, "post_attention_norm.weight", PLM_TYPE_F32, s->n_embd, 0);
}

static void layer(struct gguf_writer *w, const struct gguf_shape *s, enum gguf_mix mix, uint32_t il)
{
    const enum plm_type base = base_type(mix);
    const enum plm_type more =
        mix == GGUF_MIX_Q4_K_M && more_bits(il, s->n_layer) ? PLM_TYPE_Q6_K : base;
    attention(w, s, base, more, il);
    block_entry(w, il, "ffn_norm.weight", PLM_TYPE_F32, s->n_embd, 0);
    if (!s->fused)
        block_entry(w, il, "ffn_gate.weight", base, s->n_embd, s->n_ff);
    block_entry(w, il, "ffn_up.weight", base, s->n_embd, (s->fused ? 2 : 1) * (uint64_t)s->n_ff);
    block_entry(w, il, "ffn_down.weight", more, s->n_ff, s->n_embd);
    if (s->norms_after)
        block_entry(w, il, "post_ffw_norm.weight", PLM_TYPE_F32, s->n_embd, 0);
}

// Keys that are 0 are not there.
static void key_u32(struct gguf_writer *w, const struct gguf_shape *s, const char *suffix,
                    uint32_t value)
{
    char key[64];
    snprintf(key, sizeof(key), "%s.%s", s->arch, suffix);
    if (value > 0)
        gguf_writer_u32(w, key, value);
}

static void key_f32(struct gguf_writer *w, const struct gguf_shape *s, const char *suffix,
                    float value)
{
    char key[64];
    snprintf(key, sizeof(key), "%s.%s", s->arch, suffix);
    if (value > 0)
        gguf_writer_f32(w, key, value);
}

static void keys(struct gguf_writer *w, const struct gguf_shape *s)
{
    char key[64];
    gguf_writer_str(w, "general.architecture", s->arch);
    gguf_writer_str(w, "general.name", s->name);
    key_u32(w, s, "block_count", s->n_layer);
    key_u32(w, s, "context_length", s->n_ctx);
    key_u32(w, s, "embedding_length", s->n_embd);
    key_u32(w, s, "feed_forward_length", s->n_ff);
    key_u32(w, s, "attention.head_count", s->n_head);
    key_u32(w, s, "attention.head_count_kv", s->n_head_kv);
    key_u32(w, s, "attention.key_length", s->head_dim);
    key_u32(w, s, "attention.value_length", s->head_dim);
    key_u32(w, s, "attention.sliding_window", s->window);
    key_u32(w, s, "attention.sliding_window_pattern", s->full_every);
    key_f32(w, s, "attention.temperature_scale", s->temperature);
    key_f32(w, s, "attention.layer_norm_rms_epsilon", 1e-5f);
    key_f32(w, s, "rope.freq_base", s->rope_base);
    snprintf(key, sizeof(key), "%s.rope.scaling.type", s->arch);
    if (s->rope_scaling != NULL)
        gguf_writer_str(w, key, s->rope_scaling);
    key_f32(w, s, "rope.scaling.factor", s->rope_factor);
    key_u32(w, s, "rope.scaling.original_context_length", s->original_ctx);
    vocabulary(w, s);
}

static void describe(struct gguf_writer *w, const struct gguf_shape *s, enum gguf_mix mix)
{
    gguf_writer_init(w);
    keys(w, s);
    entry(w, "token_embd.weight", base_type(mix), s->n_embd, s->n_vocab);
    if (s->rope_freqs)
        entry(w, "rope_freqs.weight", PLM_TYPE_F32, head_dim(s) / 2, 0);
    for (uint32_t il = 0; il < s->n_layer; il++)
        layer(w, s, mix, il);
    entry(w, "output_norm.weight", PLM_TYPE_F32, s->n_embd, 0);
    if (!s->tied)
        entry(w, "output.weight", mix == GGUF_MIX_Q4_K_M ? PLM_TYPE_Q6_K : base_type(mix),
              s->n_embd, s->n_vocab);
}

bool gguf_shape_save(const struct gguf_shape *shape, enum gguf_mix mix, const char *path)
{
    struct gguf_writer w;
    describe(&w, shape, mix);
    const bool ok = gguf_writer_save(&w, path);
    gguf_writer_finish(&w);
    return ok;
}

// ---- weights ----

// The data of every tensor, in the order of the file's own table.
static bool append_weights(const char *path, struct plm_host *host)
{
    struct plm_gguf *gguf = NULL;
    struct plm_error err = {0};
    if (plm_gguf_open_header(host, path, &gguf, &err) != PLM_OK)
        return false;
    FILE *file = fopen(path, "r+b");
    bool ok = file != NULL;
    for (uint64_t i = 0; ok && i < plm_gguf_n_tensors(gguf); i++) {
        const struct plm_gguf_tensor *t = plm_gguf_tensor_at(gguf, i);
        ok = fseeko(file, (off_t)t->offset, SEEK_SET) == 0 &&
             gguf_weights_write(file, t->type, (uint32_t)t->ne[0], t->ne[0] * t->ne[1], i);
    }
    ok = file != NULL && fclose(file) == 0 && ok;
    plm_gguf_close(gguf);
    return ok;
}

bool gguf_shape_save_weights(const struct gguf_shape *shape, enum gguf_mix mix, const char *path)
{
    struct plm_host *host = plm_host_create(0);
    const bool ok = host != NULL && gguf_shape_save(shape, mix, path) && append_weights(path, host);
    plm_host_destroy(host);
    return ok;
}
