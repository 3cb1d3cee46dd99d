// SPDX-License-Identifier: Apache-2.0
// Values of keys: typed getters and their readable form.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "core/base/utf8.h"
#include "core/gguf/gguf_impl.h"

#define TEXT_STR_BYTES 120 // of a string value in its readable form
#define TEXT_ELEMENTS  8   // arrays up to this many elements are written out

static const struct {
    const char *name;
    uint32_t bytes;
} types[] = {
    [PLM_GGUF_U8] = {"u8", 1},   [PLM_GGUF_I8] = {"i8", 1},       [PLM_GGUF_U16] = {"u16", 2},
    [PLM_GGUF_I16] = {"i16", 2}, [PLM_GGUF_U32] = {"u32", 4},     [PLM_GGUF_I32] = {"i32", 4},
    [PLM_GGUF_F32] = {"f32", 4}, [PLM_GGUF_BOOL] = {"bool", 1},   [PLM_GGUF_STRING] = {"string", 0},
    [PLM_GGUF_U64] = {"u64", 8}, [PLM_GGUF_ARRAY] = {"array", 0}, [PLM_GGUF_I64] = {"i64", 8},
    [PLM_GGUF_F64] = {"f64", 8},
};

#define N_TYPES (sizeof(types) / sizeof(types[0]))

uint32_t plm_gguf_type_bytes(uint32_t type)
{
    return type < N_TYPES ? types[type].bytes : 0;
}

const char *plm_gguf_type_name(uint32_t type)
{
    return type < N_TYPES ? types[type].name : NULL;
}

static bool is_unsigned(enum plm_gguf_type type)
{
    return type == PLM_GGUF_U8 || type == PLM_GGUF_U16 || type == PLM_GGUF_U32 ||
           type == PLM_GGUF_U64;
}

static bool is_signed(enum plm_gguf_type type)
{
    return type == PLM_GGUF_I8 || type == PLM_GGUF_I16 || type == PLM_GGUF_I32 ||
           type == PLM_GGUF_I64;
}

static bool is_float(enum plm_gguf_type type)
{
    return type == PLM_GGUF_F32 || type == PLM_GGUF_F64;
}

void plm_gguf_decode(enum plm_gguf_type type, const unsigned char *bytes, uint64_t *ret_u,
                     double *ret_f)
{
    uint32_t n = plm_gguf_type_bytes(type);
    uint64_t u = 0;
    for (uint32_t i = 0; i < n; i++)
        u |= (uint64_t)bytes[i] << (8 * i);
    if (type == PLM_GGUF_F32) {
        uint32_t bits = (uint32_t)u;
        float f;
        memcpy(&f, &bits, sizeof(f));
        *ret_f = (double)f;
    } else if (type == PLM_GGUF_F64) {
        memcpy(ret_f, &u, sizeof(*ret_f));
    } else {
        if (is_signed(type) && n < 8 && u >> (8 * n - 1) != 0)
            u |= ~0ull << (8 * n);
        *ret_u = u;
    }
}

const char *plm_gguf_quote(struct plm_slice name, char out[PLM_GGUF_QUOTE_BYTES])
{
    size_t room = PLM_GGUF_QUOTE_BYTES - 4;
    size_t n = name.len < room ? name.len : room;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)name.ptr[i];
        out[i] = c >= 0x20 && c < 0x7F ? (char)c : '?';
    }
    memcpy(out + n, name.len > room ? "..." : "", name.len > room ? 4 : 1);
    return out;
}

void plm_gguf_keys_finish(struct plm_gguf_keys *keys, struct plm_host *host)
{
    for (uint64_t i = 0; i < keys->n; i++) {
        if (keys->items[i].type == PLM_GGUF_ARRAY)
            plm_free(host, (void *)keys->items[i].as.array.strs);
    }
    plm_free(host, keys->items);
    plm_name_index_finish(&keys->index, host);
    plm_gguf_pool_finish(&keys->pool, host);
    *keys = (struct plm_gguf_keys){0};
}

const struct plm_gguf_key *plm_gguf_keys_find(const struct plm_gguf_keys *keys, const char *name)
{
    struct plm_slice slice = {name, strlen(name)};
    int64_t i = plm_name_index_find(&keys->index, keys->items, sizeof(*keys->items), slice);
    return i < 0 ? NULL : &keys->items[i];
}

static int find(const struct plm_gguf_keys *keys, const char *name, const struct plm_gguf_key **ret,
                struct plm_error *err)
{
    *ret = plm_gguf_keys_find(keys, name);
    if (*ret == NULL)
        return plm_fail(err, PLM_ERR_NOT_FOUND, "key \"%s\" is missing", name);
    return PLM_OK;
}

static int wrong_kind(const struct plm_gguf_key *key, const char *want, struct plm_error *err)
{
    char name[PLM_GGUF_QUOTE_BYTES];
    return plm_fail(err, PLM_ERR_FORMAT, "key \"%s\" at byte %llu is of type %s; expected %s",
                    plm_gguf_quote(key->name, name), (unsigned long long)key->offset,
                    plm_gguf_type_name(key->type), want);
}

static int out_of_range(const struct plm_gguf_key *key, const char *want, struct plm_error *err)
{
    char name[PLM_GGUF_QUOTE_BYTES];
    return plm_fail(err, PLM_ERR_FORMAT, "key \"%s\" at byte %llu has a value that is no %s",
                    plm_gguf_quote(key->name, name), (unsigned long long)key->offset, want);
}

static int get_unsigned(const struct plm_gguf_keys *keys, const char *name, uint64_t max,
                        const char *want, uint64_t *ret, struct plm_error *err)
{
    const struct plm_gguf_key *key;
    int status = find(keys, name, &key, err);
    if (status != PLM_OK)
        return status;
    if (!is_unsigned(key->type) && !is_signed(key->type))
        return wrong_kind(key, "an integer", err);
    if ((is_signed(key->type) && key->as.i64 < 0) || key->as.u64 > max)
        return out_of_range(key, want, err);
    *ret = key->as.u64;
    return PLM_OK;
}

int plm_gguf_keys_u64(const struct plm_gguf_keys *keys, const char *name, uint64_t *ret,
                      struct plm_error *err)
{
    return get_unsigned(keys, name, UINT64_MAX, "unsigned 64-bit integer", ret, err);
}

int plm_gguf_u32(const struct plm_gguf *gguf, const char *key, uint32_t *ret, struct plm_error *err)
{
    uint64_t value = 0;
    int status = get_unsigned(&gguf->keys, key, UINT32_MAX, "unsigned 32-bit integer", &value, err);
    if (status == PLM_OK)
        *ret = (uint32_t)value;
    return status;
}

int plm_gguf_u64(const struct plm_gguf *gguf, const char *key, uint64_t *ret, struct plm_error *err)
{
    return plm_gguf_keys_u64(&gguf->keys, key, ret, err);
}

// False where a finite double becomes infinite as float.
static bool to_float(double value, float *ret)
{
    float f = (float)value;
    if (isinf(f) && !isinf(value))
        return false;
    *ret = f;
    return true;
}

int plm_gguf_f32(const struct plm_gguf *gguf, const char *key, float *ret, struct plm_error *err)
{
    const struct plm_gguf_key *found;
    int status = find(&gguf->keys, key, &found, err);
    if (status != PLM_OK)
        return status;
    if (!is_float(found->type))
        return wrong_kind(found, "f32", err);
    if (!to_float(found->as.f64, ret))
        return out_of_range(found, "32-bit float", err);
    return PLM_OK;
}

int plm_gguf_bool(const struct plm_gguf *gguf, const char *key, bool *ret, struct plm_error *err)
{
    const struct plm_gguf_key *found;
    int status = find(&gguf->keys, key, &found, err);
    if (status != PLM_OK)
        return status;
    if (found->type != PLM_GGUF_BOOL)
        return wrong_kind(found, "bool", err);
    *ret = found->as.flag;
    return PLM_OK;
}

int plm_gguf_str(const struct plm_gguf *gguf, const char *key, struct plm_slice *ret,
                 struct plm_error *err)
{
    const struct plm_gguf_key *found;
    int status = find(&gguf->keys, key, &found, err);
    if (status != PLM_OK)
        return status;
    if (found->type != PLM_GGUF_STRING)
        return wrong_kind(found, "string", err);
    *ret = found->as.str;
    return PLM_OK;
}

int plm_gguf_array(const struct plm_gguf *gguf, const char *key, struct plm_gguf_array *ret,
                   struct plm_error *err)
{
    const struct plm_gguf_key *found;
    int status = find(&gguf->keys, key, &found, err);
    if (status != PLM_OK)
        return status;
    if (found->type != PLM_GGUF_ARRAY)
        return wrong_kind(found, "array", err);
    *ret = found->as.array;
    return PLM_OK;
}

bool plm_gguf_array_i64(const struct plm_gguf_array *array, uint64_t i, int64_t *ret)
{
    uint64_t u = 0;
    double f;
    if (!is_unsigned(array->type) && !is_signed(array->type))
        return false;
    plm_gguf_decode(array->type, array->data + i * plm_gguf_type_bytes(array->type), &u, &f);
    if (is_unsigned(array->type) && u > INT64_MAX)
        return false;
    *ret = (int64_t)u;
    return true;
}

bool plm_gguf_array_f32(const struct plm_gguf_array *array, uint64_t i, float *ret)
{
    uint64_t u;
    double f = 0;
    if (!is_float(array->type))
        return false;
    plm_gguf_decode(array->type, array->data + i * plm_gguf_type_bytes(array->type), &u, &f);
    return to_float(f, ret);
}

static void text_str(struct plm_slice s, struct plm_buf *out)
{
    plm_buf_append_char(out, '"');
    size_t i = 0;
    while (i < s.len && i < TEXT_STR_BYTES) {
        uint32_t cp;
        size_t n = plm_utf8_decode(s.ptr + i, s.len - i, &cp);
        if (n == 0 || cp < 0x20 || (cp >= 0x7F && cp < 0xA0)) {
            if (s.ptr[i] == '\n')
                plm_buf_append_str(out, "\\n");
            else
                plm_buf_printf(out, "\\x%02x", (unsigned char)s.ptr[i]);
            i++;
            continue;
        }
        if (cp == '"' || cp == '\\')
            plm_buf_append_char(out, '\\');
        plm_buf_append(out, s.ptr + i, n);
        i += n;
    }
    plm_buf_append_char(out, '"');
    if (i < s.len)
        plm_buf_printf(out, "... (%zu bytes)", s.len);
}

// The shortest digits that read back as the same value.
static void text_float(double value, bool single, struct plm_buf *out)
{
    char text[40];
    for (int digits = single ? 6 : 15; digits <= (single ? 9 : 17); digits++) {
        plm_snprintf(text, sizeof(text), "%.*g", digits, value);
        double back = plm_strtod(text, NULL);
        if (single ? (float)back == (float)value : back == value)
            break;
    }
    plm_buf_append_str(out, text);
}

static void text_number(enum plm_gguf_type type, uint64_t u, double f, struct plm_buf *out)
{
    if (is_float(type))
        text_float(f, type == PLM_GGUF_F32, out);
    else if (type == PLM_GGUF_BOOL)
        plm_buf_append_str(out, u != 0 ? "true" : "false");
    else if (is_signed(type))
        plm_buf_printf(out, "%lld", (long long)(int64_t)u);
    else
        plm_buf_printf(out, "%llu", (unsigned long long)u);
}

static void text_array(const struct plm_gguf_array *array, struct plm_buf *out)
{
    if (array->count > TEXT_ELEMENTS) {
        plm_buf_printf(out, "[%s x %llu]", plm_gguf_type_name(array->type),
                       (unsigned long long)array->count);
        return;
    }
    plm_buf_append_char(out, '[');
    for (uint64_t i = 0; i < array->count; i++) {
        if (i > 0)
            plm_buf_append_str(out, ", ");
        if (array->type == PLM_GGUF_STRING) {
            text_str(array->strs[i], out);
            continue;
        }
        uint64_t u = 0;
        double f = 0;
        plm_gguf_decode(array->type, array->data + i * plm_gguf_type_bytes(array->type), &u, &f);
        text_number(array->type, u, f, out);
    }
    plm_buf_append_char(out, ']');
}

void plm_gguf_key_text(const struct plm_gguf *gguf, uint64_t i, struct plm_buf *out)
{
    const struct plm_gguf_key *key = &gguf->keys.items[i];
    switch (key->type) {
    case PLM_GGUF_STRING: text_str(key->as.str, out); break;
    case PLM_GGUF_ARRAY: text_array(&key->as.array, out); break;
    case PLM_GGUF_F32:
    case PLM_GGUF_F64: text_number(key->type, 0, key->as.f64, out); break;
    case PLM_GGUF_BOOL: text_number(key->type, key->as.flag, 0, out); break;
    default: text_number(key->type, key->as.u64, 0, out); break;
    }
}

uint64_t plm_gguf_n_keys(const struct plm_gguf *gguf)
{
    return gguf->keys.n;
}

struct plm_slice plm_gguf_key_name(const struct plm_gguf *gguf, uint64_t i)
{
    return gguf->keys.items[i].name;
}

enum plm_gguf_type plm_gguf_key_type(const struct plm_gguf *gguf, uint64_t i)
{
    return gguf->keys.items[i].type;
}
