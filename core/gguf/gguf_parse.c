// SPDX-License-Identifier: Apache-2.0
// The header of one GGUF file. Every count and length is compared with the bytes that are left
// before memory is taken for it, and memory grows with what was really read, never with what a
// number in the file promises.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/text.h"
#include "core/base/utf8.h"
#include "core/gguf/gguf_impl.h"
#include "core/gguf/types.h"

#define BUFFER_BYTES      65536ull // one read of the file; headers are read front to back
#define DEFAULT_ALIGNMENT 32ull    // of the specification
#define MIN_ALIGNMENT     8ull     // of the specification: a multiple of 8
#define MIN_KEY_BYTES     14ull    // empty-most key: length, one letter, type, one byte
#define MIN_TENSOR_BYTES  33ull    // length, one letter, n_dims, one dimension, type, offset
#define FIRST_ITEMS       16ull    // of arrays that grow as they are read

struct parser {
    struct plm_gguf *gguf;
    struct plm_gguf_keys *keys;
    const struct plm_gguf_file *file;
    uint32_t file_index;
    uint64_t pos;
    uint64_t end; // of what may be header
    unsigned char *buf;
    uint64_t buf_cap;
    uint64_t buf_from; // position of buf[0] in the file
    uint64_t buf_len;
    const char *kind; // what is being read, for messages: "key", "tensor"; NULL: the file's head
    uint64_t number;
    struct plm_slice name; // once it is known
    struct plm_error *err;
};

__attribute__((format(printf, 3, 4))) static int bad(struct parser *p, int status, const char *fmt,
                                                     ...)
{
    char detail[PLM_ERROR_MSG_BYTES / 2];
    char name[PLM_GGUF_QUOTE_BYTES];
    va_list ap;
    va_start(ap, fmt);
    plm_vsnprintf(detail, sizeof(detail), fmt, ap);
    va_end(ap);
    unsigned long long at = p->pos, number = p->number;
    if (p->kind == NULL)
        return plm_fail(p->err, status, "%s (at byte %llu)", detail, at);
    if (p->name.len == 0)
        return plm_fail(p->err, status, "%s number %llu %s (at byte %llu)", p->kind, number, detail,
                        at);
    return plm_fail(p->err, status, "%s \"%s\" %s (at byte %llu)", p->kind,
                    plm_gguf_quote(p->name, name), detail, at);
}

static int no_memory(struct parser *p)
{
    return bad(p, PLM_ERR_NOMEM_HOST, "finds no host memory");
}

// Checks that n items of size bytes can still lie in the header; what says what they are.
static int need(struct parser *p, uint64_t n, uint64_t size, const char *what)
{
    if (n <= (p->end - p->pos) / size)
        return PLM_OK;
    uint64_t left = p->file->size - p->pos;
    if (n <= left / size)
        return bad(p, PLM_ERR_LIMIT, "makes the header longer than %llu MiB: %llu %s",
                   PLM_GGUF_MAX_HEADER_BYTES >> 20, (unsigned long long)n, what);
    return bad(p, PLM_ERR_FORMAT,
               "is truncated: %llu %s cannot lie in the %llu bytes that are left",
               (unsigned long long)n, what, (unsigned long long)left);
}

// Copies the next n bytes, which need() has allowed.
static int take(struct parser *p, void *dst, uint64_t n)
{
    unsigned char *to = dst;
    while (n > 0) {
        uint64_t skip = p->pos - p->buf_from;
        uint64_t have = skip < p->buf_len ? p->buf_len - skip : 0;
        uint64_t step = n < have ? n : have;
        int status = PLM_OK;
        if (have > 0) {
            memcpy(to, p->buf + skip, step);
        } else if (n >= p->buf_cap) {
            step = n;
            status = plm_gguf_file_read(p->file, p->pos, to, n, p->err);
        } else {
            step = 0;
            p->buf_len = p->end - p->pos < p->buf_cap ? p->end - p->pos : p->buf_cap;
            p->buf_from = p->pos;
            status = plm_gguf_file_read(p->file, p->pos, p->buf, p->buf_len, p->err);
        }
        if (status != PLM_OK)
            return status;
        to += step;
        p->pos += step;
        n -= step;
    }
    return PLM_OK;
}

static int take_uint(struct parser *p, uint32_t bytes, const char *what, uint64_t *ret)
{
    unsigned char raw[8];
    int status = need(p, bytes, 1, what);
    if (status == PLM_OK)
        status = take(p, raw, bytes);
    if (status != PLM_OK)
        return status;
    uint64_t value = 0;
    for (uint32_t i = 0; i < bytes; i++)
        value |= (uint64_t)raw[i] << (8 * i);
    *ret = value;
    return PLM_OK;
}

static int take_bytes(struct parser *p, struct plm_gguf_pool *pool, uint64_t n, unsigned char **ret)
{
    unsigned char *at = plm_gguf_pool_alloc(pool, p->gguf->host, n);
    if (at == NULL)
        return no_memory(p);
    *ret = at;
    return take(p, at, n);
}

static int take_str(struct parser *p, struct plm_gguf_pool *pool, uint64_t max_len,
                    const char *what, struct plm_slice *ret)
{
    uint64_t len;
    unsigned char *at = NULL;
    int status = take_uint(p, 8, "bytes of a length", &len);
    if (status == PLM_OK)
        status = need(p, len, 1, what);
    if (status == PLM_OK && len > max_len)
        status = bad(p, PLM_ERR_FORMAT, "has a name of %llu bytes; the format allows %llu",
                     (unsigned long long)len, (unsigned long long)max_len);
    if (status == PLM_OK)
        status = take_bytes(p, pool, len, &at);
    if (status == PLM_OK)
        *ret = (struct plm_slice){(const char *)at, len};
    return status;
}

// Names are printed, compared as C strings and found in logs: they must be UTF-8 and printable.
static int take_name(struct parser *p, struct plm_gguf_pool *pool, uint64_t max_len)
{
    struct plm_slice name;
    int status = take_str(p, pool, max_len, "bytes of its name", &name);
    if (status != PLM_OK)
        return status;
    if (name.len == 0)
        return bad(p, PLM_ERR_FORMAT, "has an empty name");
    p->name = name;
    if (plm_utf8_valid_prefix(name.ptr, name.len) != name.len)
        return bad(p, PLM_ERR_FORMAT, "has a name that is not UTF-8");
    for (size_t i = 0; i < name.len; i++) {
        if ((unsigned char)name.ptr[i] < 0x20 || name.ptr[i] == 0x7F)
            return bad(p, PLM_ERR_FORMAT, "has a control character in its name");
    }
    return PLM_OK;
}

static int index_name(struct parser *p, struct plm_name_index *index, const void *base,
                      size_t stride, uint64_t i)
{
    int status = plm_name_index_add(index, p->gguf->host, base, stride, (uint32_t)i);
    if (status == PLM_ERR_INVALID)
        return bad(p, PLM_ERR_FORMAT, "occurs twice");
    if (status == PLM_ERR_LIMIT)
        return bad(p, PLM_ERR_LIMIT, "has a name that was made to slow the look-up down");
    return status == PLM_OK ? PLM_OK : no_memory(p);
}

// Makes room for one more element of size bytes; *cap doubles.
static int grow(struct parser *p, void **items, uint64_t n, uint64_t *cap, size_t size)
{
    if (n < *cap)
        return PLM_OK;
    uint64_t more = *cap == 0 ? FIRST_ITEMS : *cap * 2;
    void *moved = plm_realloc(p->gguf->host, PLM_HOST_MODEL, *items, more * size);
    if (moved == NULL)
        return no_memory(p);
    *items = moved;
    *cap = more;
    return PLM_OK;
}

static int take_strings(struct parser *p, struct plm_gguf_array *array, uint64_t count)
{
    int status = need(p, count, 8, "strings");
    uint64_t cap = 0;
    struct plm_slice *strs = NULL;
    for (uint64_t i = 0; status == PLM_OK && i < count; i++) {
        void *items = strs;
        status = grow(p, &items, i, &cap, sizeof(*strs));
        array->strs = strs = items; // freed with the key, also when the array stays unfinished
        if (status == PLM_OK)
            status = take_str(p, &p->keys->pool, UINT64_MAX, "bytes of a string", &strs[i]);
    }
    if (status == PLM_OK)
        array->count = count;
    return status;
}

static int check_bools(struct parser *p, const unsigned char *data, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        if (data[i] > 1)
            return bad(p, PLM_ERR_FORMAT, "has a bool of value %u", data[i]);
    }
    return PLM_OK;
}

static int take_array(struct parser *p, struct plm_gguf_array *array)
{
    uint64_t type = 0, count = 0;
    int status = take_uint(p, 4, "bytes of a type", &type);
    if (status == PLM_OK)
        status = take_uint(p, 8, "bytes of a count", &count);
    if (status != PLM_OK)
        return status;
    if (type == PLM_GGUF_ARRAY)
        return bad(p, PLM_ERR_UNSUPPORTED, "is an array of arrays");
    if (plm_gguf_type_name((uint32_t)type) == NULL)
        return bad(p, PLM_ERR_FORMAT, "is an array of the unknown type %llu",
                   (unsigned long long)type);
    array->type = (enum plm_gguf_type)type;
    if (type == PLM_GGUF_STRING)
        return take_strings(p, array, count);
    uint32_t size = plm_gguf_type_bytes((uint32_t)type);
    unsigned char *data = NULL;
    status = need(p, count, size, "array elements");
    if (status == PLM_OK)
        status = take_bytes(p, &p->keys->pool, count * size, &data);
    if (status == PLM_OK && type == PLM_GGUF_BOOL)
        status = check_bools(p, data, count);
    if (status != PLM_OK)
        return status;
    array->data = data;
    array->count = count;
    return PLM_OK;
}

static int take_value(struct parser *p, struct plm_gguf_key *key)
{
    uint64_t type = 0;
    int status = take_uint(p, 4, "bytes of a type", &type);
    if (status != PLM_OK)
        return status;
    if (plm_gguf_type_name((uint32_t)type) == NULL)
        return bad(p, PLM_ERR_FORMAT, "has the unknown value type %llu", (unsigned long long)type);
    key->type = (enum plm_gguf_type)type;
    key->offset = p->pos;
    if (type == PLM_GGUF_STRING)
        return take_str(p, &p->keys->pool, UINT64_MAX, "bytes of a string", &key->as.str);
    if (type == PLM_GGUF_ARRAY)
        return take_array(p, &key->as.array);
    unsigned char raw[8];
    uint32_t bytes = plm_gguf_type_bytes((uint32_t)type);
    status = need(p, bytes, 1, "bytes of its value");
    if (status == PLM_OK)
        status = take(p, raw, bytes);
    if (status == PLM_OK && type == PLM_GGUF_BOOL)
        status = check_bools(p, raw, 1);
    if (status != PLM_OK)
        return status;
    uint64_t u = 0;
    double f = 0;
    plm_gguf_decode(key->type, raw, &u, &f);
    if (type == PLM_GGUF_BOOL)
        key->as.flag = u != 0;
    else if (type == PLM_GGUF_F32 || type == PLM_GGUF_F64)
        key->as.f64 = f;
    else
        key->as.u64 = u;
    return PLM_OK;
}

static int take_keys(struct parser *p, uint64_t n)
{
    struct plm_gguf_keys *keys = p->keys;
    int status = PLM_OK;
    p->kind = "key";
    for (uint64_t i = 0; status == PLM_OK && i < n; i++) {
        void *items = keys->items;
        p->number = i;
        p->name = (struct plm_slice){0};
        status = take_name(p, &keys->pool, PLM_GGUF_MAX_KEY_LEN);
        if (status == PLM_OK)
            status = grow(p, &items, keys->n, &keys->cap, sizeof(*keys->items));
        keys->items = items;
        if (status != PLM_OK)
            break;
        struct plm_gguf_key *key = &keys->items[keys->n++];
        *key = (struct plm_gguf_key){.name = p->name};
        status = index_name(p, &keys->index, keys->items, sizeof(*key), i);
        if (status == PLM_OK)
            status = take_value(p, key);
    }
    p->kind = NULL;
    return status;
}

static int read_alignment(struct parser *p, uint64_t *ret)
{
    const struct plm_gguf_key *key = plm_gguf_keys_find(p->keys, "general.alignment");
    *ret = DEFAULT_ALIGNMENT;
    if (key == NULL)
        return PLM_OK;
    if (key->type != PLM_GGUF_U32)
        return bad(p, PLM_ERR_FORMAT, "key \"general.alignment\" is of type %s; expected u32",
                   plm_gguf_type_name(key->type));
    uint64_t value = key->as.u64;
    if (value < MIN_ALIGNMENT || (value & (value - 1)) != 0)
        return bad(p, PLM_ERR_FORMAT,
                   "key \"general.alignment\" is %llu; expected a power of two from %llu",
                   (unsigned long long)value, MIN_ALIGNMENT);
    *ret = value;
    return PLM_OK;
}

static int take_dims(struct parser *p, struct plm_gguf_tensor *tensor)
{
    uint64_t n_dims = 0, elems = 1;
    int status = take_uint(p, 4, "bytes of a count", &n_dims);
    if (status == PLM_OK && (n_dims < 1 || n_dims > 4))
        status = bad(p, PLM_ERR_FORMAT, "has %llu dimensions; expected 1 to 4",
                     (unsigned long long)n_dims);
    for (uint64_t d = 0; d < 4; d++)
        tensor->ne[d] = 1;
    for (uint64_t d = 0; status == PLM_OK && d < n_dims; d++) {
        status = take_uint(p, 8, "bytes of a dimension", &tensor->ne[d]);
        if (status != PLM_OK)
            break;
        if (tensor->ne[d] == 0)
            return bad(p, PLM_ERR_FORMAT, "has a dimension of 0");
        if (tensor->ne[d] > INT64_MAX || !plm_mul_u64(elems, tensor->ne[d], &elems) ||
            elems > INT64_MAX)
            return bad(p, PLM_ERR_FORMAT, "has more than 2^63 elements");
    }
    tensor->n_dims = (uint32_t)n_dims;
    return status;
}

static int take_type(struct parser *p, struct plm_gguf_tensor *tensor)
{
    uint64_t id = 0;
    int status = take_uint(p, 4, "bytes of a type", &id);
    if (status != PLM_OK)
        return status;
    const struct plm_type_traits *traits = plm_type_traits((uint32_t)id);
    const char *name = plm_type_name((uint32_t)id);
    char names[PLM_TYPE_NAMES_BYTES];
    plm_type_names(false, names);
    if (traits == NULL && name != NULL)
        return bad(p, PLM_ERR_UNSUPPORTED,
                   "has type %s (id %llu), which is not supported (there are: %s)", name,
                   (unsigned long long)id, names);
    if (traits == NULL)
        return bad(p, PLM_ERR_UNSUPPORTED, "has type id %llu, which is unknown (there are: %s)",
                   (unsigned long long)id, names);
    tensor->type = (enum plm_type)id;
    if (tensor->ne[0] % traits->block_elems != 0)
        return bad(p, PLM_ERR_FORMAT, "has rows of %llu elements, not a multiple of the %u of %s",
                   (unsigned long long)tensor->ne[0], traits->block_elems, traits->name);
    uint64_t bytes;
    bool fits = plm_type_row_bytes((uint32_t)id, tensor->ne[0], &bytes);
    for (int d = 1; fits && d < 4; d++)
        fits = plm_mul_u64(bytes, tensor->ne[d], &bytes);
    if (!fits || bytes > INT64_MAX)
        return bad(p, PLM_ERR_FORMAT, "has more than 2^63 bytes");
    tensor->bytes = bytes;
    return PLM_OK;
}

// Reads one tensor; *sum is the padded size of those before it and grows by this one.
static int take_tensor(struct parser *p, uint64_t alignment, uint64_t *sum)
{
    struct plm_gguf *gguf = p->gguf;
    p->name = (struct plm_slice){0};
    int status = take_name(p, &gguf->pool, PLM_GGUF_MAX_NAME_LEN);
    void *items = gguf->tensors;
    if (status == PLM_OK)
        status = grow(p, &items, gguf->n_tensors, &gguf->cap_tensors, sizeof(*gguf->tensors));
    gguf->tensors = items;
    if (status != PLM_OK)
        return status;
    struct plm_gguf_tensor *tensor = &gguf->tensors[gguf->n_tensors];
    *tensor = (struct plm_gguf_tensor){.name = p->name, .file = p->file_index};
    status = index_name(p, &gguf->tensor_index, gguf->tensors, sizeof(*tensor), gguf->n_tensors);
    if (status != PLM_OK)
        return status;
    gguf->n_tensors++;
    status = take_dims(p, tensor);
    if (status == PLM_OK)
        status = take_type(p, tensor);
    if (status == PLM_OK)
        status = take_uint(p, 8, "bytes of an offset", &tensor->offset);
    if (status != PLM_OK)
        return status;
    if (tensor->offset != *sum)
        return bad(p, PLM_ERR_FORMAT, "has the data offset %llu; expected %llu",
                   (unsigned long long)tensor->offset, (unsigned long long)*sum);
    uint64_t end;
    if (!plm_add_u64(*sum, tensor->bytes, &end) || end > INT64_MAX - alignment)
        return bad(p, PLM_ERR_FORMAT, "makes the data longer than 2^63 bytes");
    *sum = plm_round_up(end, alignment);
    return PLM_OK;
}

// Turns the offsets of this file's tensors into positions.
static int place_tensors(struct parser *p, uint64_t first, uint64_t alignment)
{
    struct plm_gguf *gguf = p->gguf;
    uint64_t data_start = plm_round_up(p->pos, alignment); // pos and alignment are far from 2^63
    p->kind = "tensor";
    for (uint64_t i = first; i < gguf->n_tensors; i++) {
        struct plm_gguf_tensor *tensor = &gguf->tensors[i];
        uint64_t end;
        p->name = tensor->name;
        if (!plm_add_u64(tensor->offset, data_start, &tensor->offset) ||
            !plm_add_u64(tensor->offset, tensor->bytes, &end))
            return bad(p, PLM_ERR_FORMAT, "ends beyond 2^64");
    }
    p->kind = NULL;
    return PLM_OK;
}

// What lies under the name of a model when a download or a clone went wrong, by its first four
// bytes.
static const struct {
    char magic[5];
    const char *kind;
} strangers[] = {
    {"vers", ", as a pointer of Git LFS does (git lfs pull fetches the file itself)"},
    {"<!DO", ", as a web page does"},
    {"<!do", ", as a web page does"},
    {"<htm", ", as a web page does"},
    {"PK\3\4", ", as a zip archive and a PyTorch checkpoint do"},
    {"lmgg", ", as a model of GGUF's predecessors does (convert the original anew)"},
    {"fmgg", ", as a model of GGUF's predecessors does (convert the original anew)"},
    {"tjgg", ", as a model of GGUF's predecessors does (convert the original anew)"},
};

static int refuse_magic(struct parser *p, const unsigned char magic[4])
{
    const char *kind = "";
    for (size_t i = 0; i < sizeof(strangers) / sizeof(strangers[0]); i++) {
        if (memcmp(magic, strangers[i].magic, 4) == 0)
            kind = strangers[i].kind;
    }
    return bad(p, PLM_ERR_FORMAT, "is not a GGUF file: it starts with %02x %02x %02x %02x%s",
               magic[0], magic[1], magic[2], magic[3], kind);
}

static int take_version(struct parser *p, uint64_t *ret)
{
    unsigned char magic[4];
    if (p->file->size == 0)
        return bad(p, PLM_ERR_FORMAT, "is empty");
    int status = need(p, sizeof(magic), 1, "bytes of the magic number");
    if (status == PLM_OK)
        status = take(p, magic, sizeof(magic));
    if (status != PLM_OK)
        return status;
    if (memcmp(magic, "GGUF", sizeof(magic)) != 0)
        return refuse_magic(p, magic);
    status = take_uint(p, 4, "bytes of the version", ret);
    if (status != PLM_OK)
        return status;
    if (*ret != 0 && (*ret & 0xFFFF) == 0)
        return bad(p, PLM_ERR_UNSUPPORTED,
                   "is a big-endian file; only little-endian ones are read");
    if (*ret == 0)
        return bad(p, PLM_ERR_FORMAT, "has version 0");
    if (*ret != 2 && *ret != 3)
        return bad(p, PLM_ERR_UNSUPPORTED, "has GGUF version %llu; 2 and 3 are read",
                   (unsigned long long)*ret);
    return PLM_OK;
}

static int take_count(struct parser *p, uint64_t min_bytes, uint64_t max, const char *what,
                      uint64_t *ret)
{
    int status = take_uint(p, 8, "bytes of a count", ret);
    if (status == PLM_OK)
        status = need(p, *ret, min_bytes, what);
    if (status == PLM_OK && *ret > max)
        status = bad(p, PLM_ERR_LIMIT, "has %llu %s; at most %llu are read",
                     (unsigned long long)*ret, what, (unsigned long long)max);
    return status;
}

static int parse(struct parser *p)
{
    struct plm_gguf *gguf = p->gguf;
    uint64_t version = 0, n_tensors = 0, n_keys = 0, alignment = 0, sum = 0;
    uint64_t first = gguf->n_tensors;
    int status = take_version(p, &version);
    if (status == PLM_OK)
        status =
            take_count(p, MIN_TENSOR_BYTES, PLM_GGUF_MAX_TENSORS - first, "tensors", &n_tensors);
    if (status == PLM_OK)
        status = take_count(p, MIN_KEY_BYTES, PLM_GGUF_MAX_KEYS, "keys", &n_keys);
    if (status == PLM_OK)
        status = take_keys(p, n_keys);
    if (status == PLM_OK)
        status = read_alignment(p, &alignment);
    if (status != PLM_OK)
        return status;
    p->kind = "tensor";
    for (uint64_t i = 0; status == PLM_OK && i < n_tensors; i++) {
        p->number = i;
        status = take_tensor(p, alignment, &sum);
    }
    p->kind = NULL;
    if (p->file_index == 0)
        gguf->version = (uint32_t)version;
    return status == PLM_OK ? place_tensors(p, first, alignment) : status;
}

int plm_gguf_parse(struct plm_gguf *gguf, uint32_t file, struct plm_gguf_keys *keys,
                   struct plm_error *err)
{
    struct parser p = {
        .gguf = gguf, .keys = keys, .file = &gguf->files[file], .file_index = file, .err = err};
    p.end = p.file->size < PLM_GGUF_MAX_HEADER_BYTES ? p.file->size : PLM_GGUF_MAX_HEADER_BYTES;
    p.buf_cap = p.end < BUFFER_BYTES ? p.end : BUFFER_BYTES;
    p.buf = plm_malloc(gguf->host, PLM_HOST_MODEL, p.buf_cap);
    if (p.buf == NULL)
        return no_memory(&p);
    int status = parse(&p);
    plm_free(gguf->host, p.buf);
    return status;
}
