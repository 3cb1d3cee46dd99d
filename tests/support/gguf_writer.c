// SPDX-License-Identifier: Apache-2.0
#include "tests/support/gguf_writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/gguf/types.h"

static struct plm_slice slice(const char *s)
{
    return (struct plm_slice){s, strlen(s)};
}

void gguf_put(struct gguf_bytes *to, const void *bytes, size_t n)
{
    if (to->cap - to->len < n) {
        to->cap = (to->len + n) * 2;
        to->ptr = realloc(to->ptr, to->cap);
        if (to->ptr == NULL)
            abort();
    }
    if (n > 0)
        memcpy(to->ptr + to->len, bytes, n);
    to->len += n;
}

void gguf_put_uint(struct gguf_bytes *to, uint64_t value, unsigned bytes)
{
    unsigned char raw[8];
    for (unsigned i = 0; i < bytes; i++)
        raw[i] = (unsigned char)(value >> (8 * i));
    gguf_put(to, raw, bytes);
}

void gguf_put_str(struct gguf_bytes *to, struct plm_slice s)
{
    gguf_put_uint(to, s.len, 8);
    gguf_put(to, s.ptr, s.len);
}

void gguf_writer_init(struct gguf_writer *w)
{
    *w = (struct gguf_writer){
        .magic = {'G', 'G', 'U', 'F'}, .version = 3, .alignment = 32, .pad_last = true};
}

void gguf_writer_finish(struct gguf_writer *w)
{
    free(w->keys.ptr);
    free(w->infos.ptr);
    free(w->data.ptr);
    free(w->file.ptr);
    gguf_writer_init(w);
}

void gguf_writer_key(struct gguf_writer *w, struct plm_slice key, uint32_t type)
{
    gguf_put_str(&w->keys, key);
    gguf_put_uint(&w->keys, type, 4);
    w->n_keys++;
}

static unsigned int_bytes(enum plm_gguf_type type)
{
    switch (type) {
    case PLM_GGUF_U8:
    case PLM_GGUF_I8:
    case PLM_GGUF_BOOL: return 1;
    case PLM_GGUF_U16:
    case PLM_GGUF_I16: return 2;
    case PLM_GGUF_U32:
    case PLM_GGUF_I32:
    case PLM_GGUF_F32: return 4;
    case PLM_GGUF_U64:
    case PLM_GGUF_I64:
    case PLM_GGUF_F64: return 8;
    default: abort();
    }
}

void gguf_writer_int(struct gguf_writer *w, const char *key, enum plm_gguf_type type,
                     uint64_t value)
{
    gguf_writer_key(w, slice(key), type);
    gguf_put_uint(&w->keys, value, int_bytes(type));
}

void gguf_writer_u32(struct gguf_writer *w, const char *key, uint32_t value)
{
    gguf_writer_int(w, key, PLM_GGUF_U32, value);
}

void gguf_writer_f32(struct gguf_writer *w, const char *key, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    gguf_writer_int(w, key, PLM_GGUF_F32, bits);
}

void gguf_writer_bool(struct gguf_writer *w, const char *key, bool value)
{
    gguf_writer_int(w, key, PLM_GGUF_BOOL, value);
}

void gguf_writer_str(struct gguf_writer *w, const char *key, const char *value)
{
    gguf_writer_key(w, slice(key), PLM_GGUF_STRING);
    gguf_put_str(&w->keys, slice(value));
}

void gguf_writer_array(struct gguf_writer *w, const char *key, enum plm_gguf_type type,
                       const void *data, uint64_t n)
{
    gguf_writer_key(w, slice(key), PLM_GGUF_ARRAY);
    gguf_put_uint(&w->keys, type, 4);
    gguf_put_uint(&w->keys, n, 8);
    gguf_put(&w->keys, data, n * int_bytes(type));
}

void gguf_writer_strs(struct gguf_writer *w, const char *key, const char *const *strs, uint64_t n)
{
    gguf_writer_key(w, slice(key), PLM_GGUF_ARRAY);
    gguf_put_uint(&w->keys, PLM_GGUF_STRING, 4);
    gguf_put_uint(&w->keys, n, 8);
    for (uint64_t i = 0; i < n; i++)
        gguf_put_str(&w->keys, slice(strs[i]));
}

void gguf_writer_info(struct gguf_writer *w, struct plm_slice name, uint32_t n_dims,
                      const uint64_t *ne, uint32_t n_written, uint32_t type, uint64_t offset)
{
    gguf_put_str(&w->infos, name);
    gguf_put_uint(&w->infos, n_dims, 4);
    for (uint32_t d = 0; d < n_written; d++)
        gguf_put_uint(&w->infos, ne[d], 8);
    gguf_put_uint(&w->infos, type, 4);
    gguf_put_uint(&w->infos, offset, 8);
    w->n_tensors++;
}

static void pad(struct gguf_bytes *to, size_t alignment)
{
    while (to->len % alignment != 0)
        gguf_put_uint(to, 0, 1);
}

void gguf_writer_tensor(struct gguf_writer *w, const char *name, enum plm_type type,
                        uint32_t n_dims, const uint64_t *ne, const void *data)
{
    uint64_t bytes;
    if (!plm_type_row_bytes(type, ne[0], &bytes))
        abort();
    for (uint32_t d = 1; d < n_dims; d++)
        bytes *= ne[d];
    gguf_writer_info(w, slice(name), n_dims, ne, n_dims, type, w->next_offset);
    pad(&w->data, w->alignment);
    for (uint64_t i = 0; data == NULL && i < bytes; i++)
        gguf_put_uint(&w->data, (i * 7 + w->n_tensors) & 0x7F, 1);
    if (data != NULL)
        gguf_put(&w->data, data, bytes);
    w->next_offset = plm_round_up(w->next_offset + bytes, w->alignment);
}

const unsigned char *gguf_writer_bytes(struct gguf_writer *w, size_t *ret_n)
{
    struct gguf_bytes *file = &w->file;
    file->len = 0;
    gguf_put(file, w->magic, sizeof(w->magic));
    gguf_put_uint(file, w->version, 4);
    gguf_put_uint(file, w->n_tensors, 8);
    gguf_put_uint(file, w->n_keys, 8);
    gguf_put(file, w->keys.ptr, w->keys.len);
    gguf_put(file, w->infos.ptr, w->infos.len);
    if (w->data.len > 0) {
        pad(file, w->alignment);
        gguf_put(file, w->data.ptr, w->data.len);
        if (w->pad_last)
            pad(file, w->alignment);
    }
    file->len = w->cut < file->len ? file->len - w->cut : 0;
    *ret_n = file->len;
    return file->ptr;
}

bool gguf_writer_save(struct gguf_writer *w, const char *path)
{
    size_t n;
    const unsigned char *bytes = gguf_writer_bytes(w, &n);
    FILE *f = fopen(path, "wb");
    if (f == NULL)
        return false;
    bool ok = fwrite(bytes, 1, n, f) == n;
    return fclose(f) == 0 && ok;
}

void gguf_writer_sample(struct gguf_writer *w)
{
    static const int32_t token_type[12] = {1, 1, 3, -1};
    static const double halves[2] = {0.5, -1e300};
    static const unsigned char flags[3] = {1, 0, 1};
    static const char *const tokens[9] = {"a",  "",  "\xC3\xA9", "\xFF", "two\nlines",
                                          "\"", "7", "8",        "9"};
    static const enum plm_type types[] = {
        PLM_TYPE_F32,  PLM_TYPE_F16,  PLM_TYPE_Q4_0,  PLM_TYPE_Q4_1,  PLM_TYPE_Q5_0, PLM_TYPE_Q5_1,
        PLM_TYPE_Q8_0, PLM_TYPE_Q2_K, PLM_TYPE_Q3_K,  PLM_TYPE_Q4_K,  PLM_TYPE_Q5_K, PLM_TYPE_Q6_K,
        PLM_TYPE_I32,  PLM_TYPE_BF16, PLM_TYPE_MXFP4, PLM_TYPE_IQ4_NL};
    gguf_writer_init(w);
    gguf_writer_str(w, "general.architecture", "llama");
    gguf_writer_int(w, "k.u8", PLM_GGUF_U8, 200);
    gguf_writer_int(w, "k.i8", PLM_GGUF_I8, (uint64_t)-100);
    gguf_writer_int(w, "k.u16", PLM_GGUF_U16, 60000);
    gguf_writer_int(w, "k.i16", PLM_GGUF_I16, (uint64_t)-30000);
    gguf_writer_u32(w, "k.u32", 4000000000u);
    gguf_writer_int(w, "k.i32", PLM_GGUF_I32, (uint64_t)-2000000000);
    gguf_writer_int(w, "k.u64", PLM_GGUF_U64, UINT64_MAX);
    gguf_writer_int(w, "k.i64", PLM_GGUF_I64, (uint64_t)INT64_MIN);
    gguf_writer_f32(w, "k.f32", 0.1f);
    gguf_writer_int(w, "k.f64", PLM_GGUF_F64, 0x3FD0000000000000); // 0.25
    gguf_writer_bool(w, "k.bool", true);
    gguf_writer_strs(w, "a.str", tokens, 9);
    gguf_writer_array(w, "a.i32", PLM_GGUF_I32, token_type, 12);
    gguf_writer_array(w, "a.f64", PLM_GGUF_F64, halves, 2);
    gguf_writer_array(w, "a.bool", PLM_GGUF_BOOL, flags, 3);
    gguf_writer_array(w, "a.empty", PLM_GGUF_U16, NULL, 0);
    gguf_writer_strs(w, "a.no_str", NULL, 0);
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        char name[32];
        snprintf(name, sizeof(name), "blk.%zu.weight", i);
        gguf_writer_tensor(w, name, types[i], 1 + (uint32_t)(i % 4),
                           (const uint64_t[4]){256, 1 + i % 2, 1, 2}, NULL);
    }
}
