// SPDX-License-Identifier: Apache-2.0
#include <math.h>

#include "core/base/checked.h"
#include "core/model/arch.h"

#define TWO_PI 6.283185307179586476925

// yarn (arXiv 2309.00071): pairs that turn often within the original context keep their increments,
// those that turn less than once are scaled. The defaults are the paper's: pairs of 32 turns are
// the last to be kept, those of one the first to be scaled, q and k grow by 0.1 ln(factor) + 1.
// A log multiplier m takes 0.1 m ln(factor) + 1 of that back.
static int read_yarn(const struct plm_keys *keys, float factor, struct plm_rope_spec *rope,
                     struct plm_error *err)
{
    static const struct plm_int_key original = {"rope.scaling.original_context_length", 0, 1,
                                                1u << 24, PLM_REQUIRED};
    float fast = 32.0f, slow = 1.0f, attention = 1.0f, log_multiplier = 0;
    uint32_t context = 0;
    int r;
    if ((r = plm_keys_ints(keys, &original, 1, &context, err)) ||
        (r = plm_keys_float(keys, "rope.scaling.yarn_beta_fast", &fast, err)) ||
        (r = plm_keys_float(keys, "rope.scaling.yarn_beta_slow", &slow, err)) ||
        (r = plm_keys_float(keys, "rope.scaling.attn_factor", &attention, err)) ||
        (r = plm_keys_float(keys, "rope.scaling.yarn_log_multiplier", &log_multiplier, err)))
        return r;
    if (rope->base <= 1.0f || fast < slow)
        return plm_fail(err, PLM_ERR_FORMAT,
                        "%s: yarn with the rope base %g and %g to %g turns has no meaning",
                        keys->arch, (double)rope->base, (double)slow, (double)fast);
    // The pair that turns n times within the original context.
    const double per_log = rope->dims / (2 * log((double)rope->base));
    const double keep = per_log * log(context / (TWO_PI * (double)fast));
    const double scale = per_log * log(context / (TWO_PI * (double)slow));
    rope->keep = (float)fmax(floor(keep), 0);
    rope->scale = (float)fmin(ceil(scale), rope->dims - 1.0);
    if (rope->scale <= rope->keep)
        rope->scale = rope->keep + 0.001f; // a step
    const float grown = factor > 1 ? 0.1f * logf(factor) : 0;
    rope->magnitude = attention * (grown + 1.0f) / (log_multiplier * grown + 1.0f);
    return PLM_OK;
}

static int read_scaling(const struct plm_keys *keys, struct plm_rope_spec *rope,
                        struct plm_error *err)
{
    char key[PLM_KEY_BYTES];
    struct plm_slice type = PLM_SLICE("none");
    plm_key_name(keys, "rope.scaling.type", key);
    int r = plm_gguf_str(keys->gguf, key, &type, err);
    if (r != PLM_OK && r != PLM_ERR_NOT_FOUND)
        return r;
    const bool yarn = plm_slice_eq_str(type, "yarn");
    const bool linear = plm_slice_eq_str(type, "linear");
    if (!linear && !yarn && !plm_slice_eq_str(type, "none"))
        return plm_fail(err, PLM_ERR_UNSUPPORTED,
                        "key %s: rope scaling \"%.*s\" is not supported (there are: linear, none, "
                        "yarn)",
                        key, (int)plm_min_i64((int64_t)type.len, 40), type.ptr);
    float factor = 1.0f;
    // Old converters wrote scale_linear and no type.
    r = plm_keys_float(keys, "rope.scale_linear", &factor, err);
    if (r == PLM_OK && (linear || yarn))
        r = plm_keys_float(keys, "rope.scaling.factor", &factor, err);
    if (r == PLM_OK && yarn)
        r = read_yarn(keys, factor, rope, err);
    if (r == PLM_OK)
        rope->freq_scale = 1.0f / factor;
    return r;
}

int plm_rope_read_long(const struct plm_keys *keys, struct plm_rope_spec *rope,
                       struct plm_error *err)
{
    static const struct plm_int_key original = {"rope.scaling.original_context_length",
                                                offsetof(struct plm_rope_spec, short_context), 1,
                                                1u << 24, PLM_REQUIRED};
    rope->factors = "rope_factors_short.weight";
    rope->long_factors = "rope_factors_long.weight";
    const bool is_short = plm_gguf_tensor_find(keys->gguf, rope->factors) != NULL;
    const bool is_long = plm_gguf_tensor_find(keys->gguf, rope->long_factors) != NULL;
    if (is_short != is_long)
        return plm_fail(err, PLM_ERR_FORMAT, "tensor %s is missing beside %s",
                        is_short ? rope->long_factors : rope->factors,
                        is_short ? rope->factors : rope->long_factors);
    if (!is_long)
        return PLM_OK;
    int r = plm_keys_ints(keys, &original, 1, rope, err);
    return r == PLM_OK ? plm_keys_float(keys, "rope.scaling.attn_factor", &rope->magnitude, err)
                       : r;
}

int plm_rope_read(const struct plm_keys *keys, uint32_t head_dim, struct plm_rope_spec *ret,
                  struct plm_error *err)
{
    static const struct plm_int_key dims = {"rope.dimension_count",
                                            offsetof(struct plm_rope_spec, dims), 2,
                                            2 * PLM_ROPE_PAIRS_MAX, PLM_OPTIONAL};
    struct plm_rope_spec rope = {.dims = head_dim, .base = 10000.0f, .magnitude = 1.0f};
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

const struct plm_weight *plm_rope_weight(const struct plm_model *model, uint32_t i)
{
    const bool is_long = plm_weight_there(&model->long_ropes[i]) &&
                         model->context > model->hp.ropes[i].short_context;
    return is_long ? &model->long_ropes[i] : &model->ropes[i];
}

// What the increment of pair i is multiplied with.
static double scale_of(const struct plm_rope_spec *rope, uint32_t i)
{
    const double scale = (double)rope->freq_scale, keep = (double)rope->keep;
    if (rope->scale == 0)
        return scale;
    const double scaled = fmin(fmax((i - keep) / ((double)rope->scale - keep), 0), 1);
    return scale * scaled + (1 - scaled);
}

void plm_rope_scales(const struct plm_rope_spec *rope, float *ret)
{
    for (uint32_t n = 0; n < rope->n_scales; n++)
        ret[n] = (float)(1 + (double)rope->temperature * log1p(n));
}

// Fractions of a turn in units of 2^-64: whole turns drop out of the product with a position by
// themselves, so a device needs no float64 to find an exact angle far into a text.
bool plm_rope_increments(const struct plm_rope_spec *rope, const float *factors, uint64_t *ret)
{
    for (uint32_t i = 0; i < rope->dims / 2; i++) {
        double turns = pow((double)rope->base, -2.0 * i / rope->dims) * scale_of(rope, i) /
                       (factors != NULL ? (double)factors[i] : 1.0) / TWO_PI;
        if (!isfinite(turns))
            return false;
        turns -= floor(turns);
        ret[i] = turns < 1.0 ? (uint64_t)ldexp(turns, 64) : 0; // just below 0 rounds to a whole one
    }
    return true;
}
