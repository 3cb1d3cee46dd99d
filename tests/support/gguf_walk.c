// SPDX-License-Identifier: Apache-2.0
#include "tests/support/gguf_walk.h"

#include <string.h>

static unsigned long touch(const void *bytes, size_t n)
{
    unsigned long sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += ((const unsigned char *)bytes)[i];
    return sum;
}

static void walk_array(const struct plm_gguf *gguf, const char *key)
{
    struct plm_gguf_array array;
    if (plm_gguf_array(gguf, key, &array, NULL) != PLM_OK)
        return;
    volatile unsigned long sum = 0;
    for (uint64_t i = 0; i < array.count; i++) {
        int64_t integer;
        float real;
        if (array.strs != NULL)
            sum += touch(array.strs[i].ptr, array.strs[i].len);
        else if (plm_gguf_array_i64(&array, i, &integer))
            sum += (unsigned long)integer;
        else if (plm_gguf_array_f32(&array, i, &real))
            sum += touch(&real, sizeof(real));
    }
    (void)sum;
}

// True where exactly the getters of the key's kind answer.
static bool walk_key(const struct plm_gguf *gguf, uint64_t i, struct plm_host *host)
{
    struct plm_slice name = plm_gguf_key_name(gguf, i);
    char *key = plm_strndup(host, PLM_HOST_OTHER, name.ptr, name.len);
    struct plm_error err;
    struct plm_buf text;
    struct plm_slice s = {0};
    uint64_t u64;
    uint32_t u32;
    float f32;
    bool flag;
    if (key == NULL)
        return true;
    bool is_u64 = plm_gguf_u64(gguf, key, &u64, &err) == PLM_OK;
    bool is_u32 = plm_gguf_u32(gguf, key, &u32, &err) == PLM_OK;
    bool is_f32 = plm_gguf_f32(gguf, key, &f32, &err) == PLM_OK;
    bool is_bool = plm_gguf_bool(gguf, key, &flag, &err) == PLM_OK;
    bool is_str = plm_gguf_str(gguf, key, &s, &err) == PLM_OK;
    volatile unsigned long sum = is_str ? touch(s.ptr, s.len) : 0;
    (void)sum;
    walk_array(gguf, key);
    plm_free(host, key);
    plm_buf_init(&text, host, PLM_HOST_OTHER);
    plm_gguf_key_text(gguf, i, &text);
    // Eight strings of 120 bytes, each byte four characters at worst.
    bool bounded = text.failed || (text.len > 0 && text.len < 8 * 4 * 160);
    plm_buf_finish(&text);
    return bounded && is_u64 + is_f32 + is_bool + is_str <= 1 && (!is_u32 || is_u64) &&
           is_bool == (plm_gguf_key_type(gguf, i) == PLM_GGUF_BOOL) &&
           is_str == (plm_gguf_key_type(gguf, i) == PLM_GGUF_STRING);
}

static bool walk_tensor(const struct plm_gguf *gguf, const struct plm_gguf_tensor *tensor)
{
    unsigned char ends[64];
    char name[64];
    if (tensor->name.len >= sizeof(name) || tensor->bytes == 0 || tensor->n_dims < 1)
        return false;
    memcpy(name, tensor->name.ptr, tensor->name.len);
    name[tensor->name.len] = '\0';
    uint64_t n = tensor->bytes < sizeof(ends) ? tensor->bytes : sizeof(ends);
    int first = plm_gguf_read(gguf, tensor, 0, ends, n, NULL);
    int last = plm_gguf_read(gguf, tensor, tensor->bytes - n, ends, n, NULL);
    return (first == PLM_OK || first == PLM_ERR_IO) && (last == PLM_OK || last == PLM_ERR_IO) &&
           plm_gguf_read(gguf, tensor, tensor->bytes, ends, 1, NULL) == PLM_ERR_INVALID &&
           plm_gguf_tensor_find(gguf, name) == tensor;
}

bool gguf_walk(const struct plm_gguf *gguf, struct plm_host *host)
{
    bool ok = plm_gguf_version(gguf) == 2 || plm_gguf_version(gguf) == 3;
    for (uint64_t i = 0; i < plm_gguf_n_keys(gguf); i++)
        ok = walk_key(gguf, i, host) && ok;
    for (uint64_t i = 0; i < plm_gguf_n_tensors(gguf); i++)
        ok = walk_tensor(gguf, plm_gguf_tensor_at(gguf, i)) && ok;
    return ok;
}
