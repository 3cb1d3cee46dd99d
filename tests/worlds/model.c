// SPDX-License-Identifier: Apache-2.0
#include "tests/worlds/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/base/checked.h"
#include "core/gguf/types.h"
#include "tests/support/gguf_writer.h"

#define SHAPES_MAX 64 // files kept open; worlds draw from fewer shapes

struct shape_file {
    struct plm_world_model model;
    int fd;
    char path[64];
};

static struct shape_file files[SHAPES_MAX];
static unsigned n_files;

static void info(struct gguf_writer *w, const char *name, enum plm_type type, uint64_t n_in,
                 uint64_t n_out)
{
    const uint64_t ne[2] = {n_in, n_out};
    const uint32_t n_dims = n_out > 0 ? 2 : 1;
    uint64_t bytes = 0;
    plm_type_row_bytes(type, n_in, &bytes);
    gguf_writer_info(w, (struct plm_slice){name, strlen(name)}, n_dims, ne, n_dims, type,
                     w->next_offset);
    w->next_offset = plm_round_up(w->next_offset + bytes * (n_out > 0 ? n_out : 1), w->alignment);
}

// A vocabulary without merges: worlds give tokens, not text. All are spelled equally long, so that
// the size of an event does not hang on the token.
static void vocabulary(struct gguf_writer *w, uint32_t n)
{
    char(*text)[12] = calloc(n, sizeof(*text));
    const char **tokens = calloc(n, sizeof(*tokens));
    int32_t *type = calloc(n, sizeof(*type));
    float *score = calloc(n, sizeof(*score));
    if (text == NULL || tokens == NULL || type == NULL || score == NULL)
        abort();
    for (uint32_t i = 0; i < n; i++) {
        snprintf(text[i], sizeof(text[i]), "%07x", i);
        tokens[i] = text[i];
        type[i] = i == 0 ? 2 : i < 3 ? 3 : 1; // unknown, control, normal
    }
    gguf_writer_str(w, "tokenizer.ggml.model", "llama");
    gguf_writer_strs(w, "tokenizer.ggml.tokens", tokens, n);
    gguf_writer_array(w, "tokenizer.ggml.token_type", PLM_GGUF_I32, type, n);
    gguf_writer_array(w, "tokenizer.ggml.scores", PLM_GGUF_F32, score, n);
    gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", 2);
    free(text);
    free(tokens);
    free(type);
    free(score);
}

static void keys(struct gguf_writer *w, const struct plm_world_model *m)
{
    const char *arch = m->full_every > 0 ? "gemma3" : "llama";
    const struct {
        const char *suffix;
        uint32_t value;
    } numbers[] = {
        {"context_length", m->n_ctx},
        {"embedding_length", m->n_embd},
        {"block_count", m->n_layer},
        {"feed_forward_length", m->n_ff},
        {"attention.head_count", m->n_head},
        {"attention.head_count_kv", m->n_head_kv},
        {"attention.sliding_window", m->window},
        {"attention.sliding_window_pattern", m->full_every},
    };
    char key[64];
    gguf_writer_str(w, "general.architecture", arch);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        snprintf(key, sizeof(key), "%s.%s", arch, numbers[i].suffix);
        if (numbers[i].value > 0)
            gguf_writer_u32(w, key, numbers[i].value);
    }
    snprintf(key, sizeof(key), "%s.attention.layer_norm_rms_epsilon", arch);
    gguf_writer_f32(w, key, 1e-5f);
    vocabulary(w, m->n_vocab);
}

static void layer(struct gguf_writer *w, const struct plm_world_model *m, uint32_t il)
{
    const uint64_t head = m->n_embd / m->n_head, kv = head * m->n_head_kv;
    const struct {
        const char *name;
        uint64_t n_in, n_out;
    } tensors[] = {
        {"attn_norm", m->n_embd, 0},
        {"attn_q", m->n_embd, m->n_embd},
        {"attn_k", m->n_embd, kv},
        {"attn_v", m->n_embd, kv},
        {"attn_output", m->n_embd, m->n_embd},
        {"ffn_norm", m->n_embd, 0},
        {"ffn_gate", m->n_embd, m->n_ff},
        {"ffn_up", m->n_embd, m->n_ff},
        {"ffn_down", m->n_ff, m->n_embd},
        {"attn_q_norm", head, 0}, // from here on gemma3's alone
        {"attn_k_norm", head, 0},
        {"post_attention_norm", m->n_embd, 0},
        {"post_ffw_norm", m->n_embd, 0},
    };
    const size_t n = sizeof(tensors) / sizeof(tensors[0]) - (m->full_every > 0 ? 0 : 4);
    for (size_t i = 0; i < n; i++) {
        char name[64];
        snprintf(name, sizeof(name), "blk.%u.%s.weight", il, tensors[i].name);
        info(w, name, tensors[i].n_out > 0 ? m->type : PLM_TYPE_F32, tensors[i].n_in,
             tensors[i].n_out);
    }
}

// The header, and a hole where the weights lie.
static bool write_file(int fd, const struct plm_world_model *m)
{
    struct gguf_writer w;
    size_t n;
    gguf_writer_init(&w);
    keys(&w, m);
    info(&w, "token_embd.weight", m->type, m->n_embd, m->n_vocab);
    for (uint32_t il = 0; il < m->n_layer; il++)
        layer(&w, m, il);
    info(&w, "output_norm.weight", PLM_TYPE_F32, m->n_embd, 0);
    const unsigned char *bytes = gguf_writer_bytes(&w, &n);
    const uint64_t size = plm_round_up(n, w.alignment) + w.next_offset;
    const bool ok = write(fd, bytes, n) == (ssize_t)n && ftruncate(fd, (off_t)size) == 0;
    gguf_writer_finish(&w);
    return ok;
}

const char *model_path(const struct plm_world_model *model)
{
    if (model->file[0] != '\0')
        return model->file;
    for (unsigned i = 0; i < n_files; i++) {
        if (memcmp(&files[i].model, model, sizeof(*model)) == 0)
            return files[i].path;
    }
    if (n_files == SHAPES_MAX)
        model_forget();
    struct shape_file *file = &files[n_files];
    file->fd = memfd_create("world-model", MFD_CLOEXEC);
    if (file->fd < 0)
        return NULL;
    if (!write_file(file->fd, model)) {
        close(file->fd);
        return NULL;
    }
    file->model = *model;
    snprintf(file->path, sizeof(file->path), "/proc/self/fd/%d", file->fd);
    n_files++;
    return file->path;
}

void model_forget(void)
{
    while (n_files > 0)
        close(files[--n_files].fd);
}
