// SPDX-License-Identifier: Apache-2.0
#include "tests/support/vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/utf8.h"

#define TEXT_BYTES 128

struct list {
    char text[VOCAB_MAX][TEXT_BYTES];
    const char *ptr[VOCAB_MAX];
    int32_t type[VOCAB_MAX];
    float score[VOCAB_MAX];
    size_t n;
};

static struct list *list_create(void)
{
    struct list *list = calloc(1, sizeof(*list));
    if (list == NULL)
        abort();
    return list;
}

static void add(struct list *list, const char *text, int32_t type, float score)
{
    if (list->n == VOCAB_MAX || strlen(text) >= TEXT_BYTES)
        abort();
    strcpy(list->text[list->n], text);
    list->ptr[list->n] = list->text[list->n];
    list->type[list->n] = type;
    list->score[list->n] = score;
    list->n++;
}

// The published construction: printable bytes stand for themselves, the others count up from
// U+0100.
static void byte_level(const char *bytes, size_t n, char out[TEXT_BYTES])
{
    uint32_t alphabet[256];
    uint32_t next = 0x100;
    for (uint32_t b = 0; b < 256; b++) {
        bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        alphabet[b] = printable ? b : next++;
    }
    size_t len = 0;
    for (size_t i = 0; i < n; i++)
        len += plm_utf8_encode(alphabet[(unsigned char)bytes[i]], out + len);
    out[len] = '\0';
}

static bool has(const struct list *list, const char *text)
{
    for (size_t i = 0; i < list->n; i++)
        if (strcmp(list->text[i], text) == 0)
            return true;
    return false;
}

int32_t vocab_bpe_write(struct gguf_writer *w, const struct vocab_bpe *vocab)
{
    struct list *list = list_create();
    struct list *merges = list_create();
    for (int byte = 0; byte < 256; byte++) {
        char c = (char)byte;
        char text[TEXT_BYTES];
        byte_level(&c, 1, text);
        add(list, byte == vocab->missing_byte ? "(missing)" : text, 1, 0);
    }
    for (size_t i = 0; i < vocab->n_merges; i++) {
        char left[TEXT_BYTES], right[TEXT_BYTES], text[2 * TEXT_BYTES + 1];
        byte_level(vocab->merges[i].left, strlen(vocab->merges[i].left), left);
        byte_level(vocab->merges[i].right, strlen(vocab->merges[i].right), right);
        snprintf(text, sizeof(text), "%s %s", left, right);
        add(merges, text, 0, 0);
        snprintf(text, sizeof(text), "%s%s", left, right);
        if (!has(list, text))
            add(list, text, 1, 0);
    }
    int32_t first = (int32_t)list->n;
    char filler[32];
    snprintf(filler, sizeof(filler), "[PAD%d]", first + VOCAB_BPE_FILLER);
    add(list, "<|im_start|>", 3, 0);
    add(list, "<|im_end|>", 3, 0);
    add(list, "<|im_end|><|x|>", 3, 0);
    add(list, "<tool>", 4, 0);
    add(list, "    ", 4, 0);
    add(list, filler, 4, 0);
    gguf_writer_str(w, "tokenizer.ggml.model", "gpt2");
    if (vocab->pre != NULL)
        gguf_writer_str(w, "tokenizer.ggml.pre", vocab->pre);
    gguf_writer_strs(w, "tokenizer.ggml.tokens", list->ptr, list->n);
    gguf_writer_array(w, "tokenizer.ggml.token_type", PLM_GGUF_I32, list->type, list->n);
    gguf_writer_strs(w, "tokenizer.ggml.merges", merges->ptr, merges->n);
    gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", (uint32_t)first);
    free(list);
    free(merges);
    return first;
}

int32_t vocab_spm_write(struct gguf_writer *w, const struct vocab_spm *vocab)
{
    struct list *list = list_create();
    add(list, "<unk>", 2, 0);
    add(list, "<s>", 3, 0);
    add(list, "</s>", 3, 0);
    for (int byte = 0; byte < 256; byte++) {
        char text[32];
        snprintf(text, sizeof(text), vocab->no_bytes ? "(byte %02X)" : "<0x%02X>", byte);
        add(list, text, 6, 0);
    }
    for (size_t i = 0; i < vocab->n_pieces; i++)
        add(list, vocab->pieces[i].text, 1, vocab->pieces[i].score);
    int32_t first = (int32_t)list->n;
    add(list, "<|user|>", 3, 0);
    add(list, "<tool>", 4, 0);
    for (size_t i = 0; i < vocab->n_added; i++)
        add(list, vocab->added[i], 4, 0);
    gguf_writer_str(w, "general.architecture", vocab->architecture);
    if (vocab->no_prefix)
        gguf_writer_bool(w, "tokenizer.ggml.add_space_prefix", false);
    gguf_writer_str(w, "tokenizer.ggml.model", "llama");
    gguf_writer_str(w, "tokenizer.ggml.pre", "default");
    gguf_writer_strs(w, "tokenizer.ggml.tokens", list->ptr, list->n);
    gguf_writer_array(w, "tokenizer.ggml.token_type", PLM_GGUF_I32, list->type, list->n);
    gguf_writer_array(w, "tokenizer.ggml.scores", PLM_GGUF_F32, list->score, list->n);
    free(list);
    return first;
}
