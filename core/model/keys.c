// SPDX-License-Identifier: Apache-2.0
// Keys of a file, each held against the range in which the arithmetic of this engine is defined.
#include <math.h>
#include <stdio.h>

#include "core/model/arch.h"

void plm_key_name(const struct plm_keys *keys, const char *suffix, char ret[PLM_KEY_BYTES])
{
    snprintf(ret, PLM_KEY_BYTES, "%s.%s", keys->arch, suffix);
}

static int read_int(const struct plm_keys *keys, const struct plm_int_key *k, uint32_t *ret,
                    struct plm_error *err)
{
    char key[PLM_KEY_BYTES];
    uint32_t value;
    plm_key_name(keys, k->suffix, key);
    int r = plm_gguf_u32(keys->gguf, key, &value, err);
    if (r == PLM_ERR_NOT_FOUND)
        return k->need == PLM_REQUIRED ? plm_fail(err, PLM_ERR_FORMAT, "key %s is missing", key)
                                       : PLM_OK;
    if (r != PLM_OK)
        return r;
    if (value < k->min || value > k->max)
        return plm_fail(err, PLM_ERR_FORMAT, "key %s is %u, outside %u to %u", key, value, k->min,
                        k->max);
    *ret = value;
    return PLM_OK;
}

int plm_keys_ints(const struct plm_keys *keys, const struct plm_int_key *table, size_t n, void *ret,
                  struct plm_error *err)
{
    int r = PLM_OK;
    for (size_t i = 0; r == PLM_OK && i < n; i++)
        r = read_int(keys, &table[i], (uint32_t *)((char *)ret + table[i].offset), err);
    return r;
}

int plm_keys_float(const struct plm_keys *keys, const char *suffix, float *ret,
                   struct plm_error *err)
{
    char key[PLM_KEY_BYTES];
    float value;
    plm_key_name(keys, suffix, key);
    int r = plm_gguf_f32(keys->gguf, key, &value, err);
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

int plm_keys_refuse(const struct plm_keys *keys, const char *suffix, const char *what,
                    struct plm_error *err)
{
    char key[PLM_KEY_BYTES];
    uint64_t value;
    plm_key_name(keys, suffix, key);
    int r = plm_gguf_u64(keys->gguf, key, &value, NULL);
    if (r == PLM_ERR_NOT_FOUND || (r == PLM_OK && value == 0))
        return PLM_OK;
    return plm_fail(err, PLM_ERR_UNSUPPORTED, "key %s: %s is not supported", key, what);
}
