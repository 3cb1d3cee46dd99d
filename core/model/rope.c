// SPDX-License-Identifier: Apache-2.0
#include <math.h>

#include "core/base/checked.h"
#include "core/model/arch.h"

static int read_scaling(const struct plm_keys *keys, struct plm_rope_spec *rope,
                        struct plm_error *err)
{
    char key[PLM_KEY_BYTES];
    struct plm_slice type = PLM_SLICE("none");
    plm_key_name(keys, "rope.scaling.type", key);
    int r = plm_gguf_str(keys->gguf, key, &type, err);
    if (r != PLM_OK && r != PLM_ERR_NOT_FOUND)
        return r;
    bool linear = plm_slice_eq_str(type, "linear");
    if (!linear && !plm_slice_eq_str(type, "none"))
        return plm_fail(err, PLM_ERR_UNSUPPORTED,
                        "key %s: rope scaling \"%.*s\" is not supported (there are: linear, none)",
                        key, (int)plm_min_i64((int64_t)type.len, 40), type.ptr);
    float factor = 1.0f;
    // Old converters wrote scale_linear and no type.
    r = plm_keys_float(keys, "rope.scale_linear", &factor, err);
    if (r == PLM_OK && linear)
        r = plm_keys_float(keys, "rope.scaling.factor", &factor, err);
    if (r == PLM_OK)
        rope->freq_scale = 1.0f / factor;
    return r;
}

int plm_rope_read(const struct plm_keys *keys, uint32_t head_dim, struct plm_rope_spec *ret,
                  struct plm_error *err)
{
    static const struct plm_int_key dims = {"rope.dimension_count",
                                            offsetof(struct plm_rope_spec, dims), 2,
                                            2 * PLM_ROPE_PAIRS_MAX, PLM_OPTIONAL};
    struct plm_rope_spec rope = {.dims = head_dim, .base = 10000.0f};
    int r = plm_keys_ints(keys, &dims, 1, &rope, err);
    if (r != PLM_OK)
        return r;
    if (rope.dims % 2 != 0 || rope.dims > head_dim)
        return plm_fail(err, PLM_ERR_FORMAT, "%s.rope.dimension_count is %u for heads of %u",
                        keys->arch, rope.dims, head_dim);
    if ((r = plm_keys_float(keys, "rope.freq_base", &rope.base, err)) ||
        (r = read_scaling(keys, &rope, err)))
        return r;
    *ret = rope;
    return PLM_OK;
}

// Fractions of a turn in units of 2^-64: whole turns drop out of the product with a position by
// themselves, so a device needs no float64 to find an exact angle far into a text.
bool plm_rope_increments(const struct plm_rope_spec *rope, const float *factors, uint64_t *ret)
{
    const double two_pi = 6.283185307179586476925;
    for (uint32_t i = 0; i < rope->dims / 2; i++) {
        double turns = pow((double)rope->base, -2.0 * i / rope->dims) * (double)rope->freq_scale /
                       (factors != NULL ? (double)factors[i] : 1.0) / two_pi;
        if (!isfinite(turns))
            return false;
        turns -= floor(turns);
        ret[i] = turns < 1.0 ? (uint64_t)ldexp(turns, 64) : 0; // just below 0 rounds to a whole one
    }
    return true;
}
