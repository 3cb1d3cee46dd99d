// SPDX-License-Identifier: Apache-2.0
// Checks that are not "target equals reference": the reference against double precision, rows alone
// and together, golden blocks.
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/kernels.h"
#include "backends/cpu/rows.h"
#include "backends/panel/layout.h"
#include "backends/panel/pack.h"
#include "tests/conformance/conf.h"

#define DATA(type, op, name)                                                                       \
    (conf_at(c, offsetof(struct plm_##op##_args, name)) == NULL                                    \
         ? NULL                                                                                    \
         : (type *)(void *)conf_at(c, offsetof(struct plm_##op##_args, name))->data)
#define INITIAL(type, op, name)                                                                    \
    ((type *)(void *)conf_at(c, offsetof(struct plm_##op##_args, name))->initial)

// Element of the packed weight, from the decoder that the golden blocks check.
static double weight_at(const struct plm_matmul_args *a, const uint8_t *w, uint32_t o, uint32_t i)
{
    struct plm_panel p = plm_panel_of(a->type, a->n_in);
    float v;
    plm_panel_decode(a->type, &p, w + o / PLM_PANEL_ROWS * p.panel_bytes, o % PLM_PANEL_ROWS, i, 1,
                     &v);
    return (double)v;
}

static double act_at(const struct plm_matmul_args *a, const uint8_t *x, uint32_t r, uint32_t i)
{
    const uint8_t *row = x + r * PLM_ACT_ROW_BYTES(a->act, a->n_in);
    float v;
    if (a->act == PLM_ACT_F32) {
        memcpy(&v, row + (uint64_t)i * 4, 4);
        return (double)v;
    }
    row += i / 32 * PLM_ACT_Q8_BLOCK_BYTES;
    memcpy(&v, row + PLM_ACT_Q8_D, 4);
    return (double)v * (double)(int8_t)row[i % 32];
}

// The bound grows with the terms: n additions of rounded products, each within 2^-24 of the sum of
// magnitudes.
static bool matmul_near(struct conf_case *c)
{
    const struct plm_matmul_args *a = (const void *)c->args;
    const uint8_t *w = DATA(uint8_t, matmul, weight), *x = DATA(uint8_t, matmul, x);
    const float *got = DATA(float, matmul, dst), *old = INITIAL(float, matmul, dst);
    const float *bias = DATA(float, matmul, bias);
    for (uint32_t r = 0; r < a->rows && r < 4; r++)
        for (uint32_t o = 0; o < a->n_out; o++) {
            double sum = 0, size = 0;
            for (uint32_t i = 0; i < a->n_in; i++) {
                double term = weight_at(a, w, o, i) * act_at(a, x, r, i);
                sum += term;
                size += fabs(term);
            }
            sum += bias != NULL ? (double)bias[o] : 0.0;
            sum += a->add ? (double)old[(uint64_t)r * a->ld_dst + o] : 0.0;
            double diff = fabs(sum - (double)got[(uint64_t)r * a->ld_dst + o]);
            // A Q4_1 block adds m * ds, which may be large against the sum of decoded products.
            if (!(diff <= 3e-6 * size + 1e-6 * fabs(sum) + 1e-5)) {
                printf("FAIL %s: [%u][%u] off by %g of %g\n", c->label, r, o, diff, size);
                return false;
            }
        }
    return true;
}

static bool norm_near(struct conf_case *c)
{
    const struct plm_rms_norm_args *a = (const void *)c->args;
    const float *x = INITIAL(float, rms_norm, x), *add = DATA(float, rms_norm, residual);
    const float *w = DATA(float, rms_norm, weight), *got = DATA(float, rms_norm, dst_f32);
    const float *old = a->add ? INITIAL(float, rms_norm, dst_f32) : NULL;
    for (uint32_t r = 0; got != NULL && r < a->rows; r++) {
        double sum = 0;
        uint64_t base = (uint64_t)r * a->n;
        for (uint32_t i = 0; i < a->n; i++) {
            double v = (double)x[base + i] + (add != NULL ? (double)add[base + i] : 0.0);
            sum += v * v;
        }
        double factor = 1.0 / sqrt(sum / a->n + (double)a->eps);
        for (uint32_t i = 0; i < a->n; i++) {
            double v = (double)x[base + i] + (add != NULL ? (double)add[base + i] : 0.0);
            double want = v * factor * (double)w[i] + (old != NULL ? (double)old[base + i] : 0.0);
            if (!(fabs(want - (double)got[base + i]) <= 1e-6 * fabs(want) + 1e-6)) {
                printf("FAIL %s: [%u][%u] %g, not %g\n", c->label, r, i, (double)got[base + i],
                       want);
                return false;
            }
        }
    }
    return true;
}

static bool gate_near(struct conf_case *c)
{
    const struct plm_gate_mul_args *a = (const void *)c->args;
    const float *gate = DATA(float, gate_mul, gate), *up = DATA(float, gate_mul, up);
    const float *got = DATA(float, gate_mul, dst_f32);
    for (uint64_t i = 0; got != NULL && i < (uint64_t)a->rows * a->n; i++) {
        uint64_t k = i / a->n * a->ld + i % a->n;
        const double g = (double)gate[k], root = 0.79788456080286535588; // sqrt(2 / pi)
        const double share = a->gate_fn == PLM_GATE_GELU
                                 ? 0.5 * (1.0 + tanh(root * (g + 0.044715 * g * g * g)))
                                 : 1.0 / (1.0 + exp(-g));
        const double want = g * share * (double)up[k];
        // exp is clamped below -80; below -4 few digits are left of 1 + tanh, even in double.
        if (isnan(want) || fabs(want) > (double)FLT_MAX ||
            g < (a->gate_fn == PLM_GATE_GELU ? -4.0 : -80.0))
            continue;
        const double limit = a->gate_fn == PLM_GATE_GELU ? 4e-6 : 1e-6;
        if (!(fabs(want - (double)got[i]) <= limit * fabs(want) + 1e-37)) {
            printf("FAIL %s: gate %u of %g times %g = %g, not %g\n", c->label, a->gate_fn, g,
                   (double)up[k], (double)got[i], want);
            return false;
        }
    }
    return true;
}

static bool quantize_near(struct conf_case *c)
{
    const struct plm_quantize_args *a = (const void *)c->args;
    const float *x = DATA(float, quantize, x);
    const uint8_t *q = DATA(uint8_t, quantize, dst);
    for (uint64_t i = 0; i < (uint64_t)a->rows * a->n; i++) {
        const uint8_t *row = q + i / a->n * PLM_ACT_Q8_ROW_BYTES(a->n);
        uint32_t k = (uint32_t)(i % a->n), b = k / 32;
        const uint8_t *record = row + b * PLM_ACT_Q8_BLOCK_BYTES;
        const float *block = x + i / a->n * a->n + (uint64_t)b * 32;
        float d, ds, top = 0;
        int16_t s[2];
        bool bad = false;
        int32_t sum[2] = {0, 0};
        for (int j = 0; j < 32; j++) {
            bad = bad || !isfinite(block[j]);
            top = fabsf(block[j]) > top ? fabsf(block[j]) : top;
            sum[j / 16] += (int8_t)record[j];
        }
        memcpy(&d, record + PLM_ACT_Q8_D, 4);
        memcpy(s, record + PLM_ACT_Q8_S, 4);
        memcpy(&ds, record + PLM_ACT_Q8_DS, 4);
        double near = fabs((double)d * (int8_t)record[k % 32] - (double)x[i]);
        double step = top < 1e-30f ? 1e-30 : (double)top / 127.0 * 0.50001;
        bool ok = s[0] == sum[0] && s[1] == sum[1];
        ok = ok && (bad ? isnan(d) && isnan(ds) : near <= step && ds == d * (float)(s[0] + s[1]));
        if (!ok) {
            printf("FAIL %s: element %llu, %g as %d * %g, sums %d %d\n", c->label,
                   (unsigned long long)i, (double)x[i], (int8_t)record[k % 32], (double)d, s[0],
                   s[1]);
            return false;
        }
    }
    return true;
}

// An element of the token at `place` in a head's part of a block, K or V.
static double kv_at(const uint8_t *part, bool is_v, uint32_t place, uint32_t d, uint32_t dim,
                    uint32_t type)
{
    const uint64_t i = is_v ? (uint64_t)place * dim + d : (uint64_t)d * 16 + place;
    const uint64_t scale = is_v ? i / 32 : (uint64_t)d / 32 * 16 + place;
    if (type == PLM_TYPE_F32)
        return (double)((const float *)(const void *)part)[i];
    if (type == PLM_TYPE_F16)
        return (double)plm_f16_to_f32(((const uint16_t *)(const void *)part)[i]);
    const uint16_t *scales = (const uint16_t *)(const void *)(part + (uint64_t)dim * 16);
    return (double)plm_f16_to_f32(scales[scale]) * (int8_t)part[i];
}

// Softmax over all positions at once, in double.
static bool attention_near(struct conf_case *c)
{
    const struct plm_attention_args *a = (const void *)c->args;
    const int32_t *pos = DATA(int32_t, attention, pos), *seq = DATA(int32_t, attention, seq);
    const uint64_t *tables = DATA(uint64_t, attention, tables);
    const float *q = DATA(float, attention, q), *got = DATA(float, attention, dst);
    const uint32_t dim = a->head_dim, group = a->heads / a->kv_heads;
    for (uint32_t u = 0; u < a->rows * a->heads; u++) {
        uint32_t r = u / a->heads, h = u % a->heads, kvh = h / group;
        double p[CONF_CONTEXT_MAX], out[256] = {0}, top = -INFINITY, sum = 0;
        for (int phase = 0; phase < 2; phase++)
            for (uint32_t t = PLM_ATTN_FIRST((uint32_t)pos[r], a->window); t <= (uint32_t)pos[r];
                 t++) {
                const uint8_t *layer =
                    PLM_PTR(const uint8_t,
                            tables[(uint32_t)seq[r] * a->table_stride + t / 16] + a->layer_offset);
                const uint64_t part = PLM_KV_HEAD_BYTES(a->kv_type, dim);
                const uint8_t *k = layer + kvh * part, *v = k + a->kv_heads * part;
                if (phase == 0) {
                    p[t] = 0;
                    for (uint32_t d = 0; d < dim; d++)
                        p[t] += (double)q[(uint64_t)r * a->ld_q + h * dim + d] *
                                kv_at(k, false, t % 16, d, dim, a->kv_type);
                    p[t] *= (double)a->scale;
                    top = p[t] > top ? p[t] : top;
                    continue;
                }
                double e = exp(p[t] - top);
                sum += e;
                for (uint32_t d = 0; d < dim; d++)
                    out[d] += e * kv_at(v, true, t % 16, d, dim, a->kv_type);
            }
        for (uint32_t d = 0; d < dim; d++) {
            double want = out[d] / sum, v = (double)got[(uint64_t)u * dim + d];
            if (!(fabs(want - v) <= 5e-6 * fabs(want) + 2e-5)) {
                printf("FAIL %s: row %u head %u dim %u: %g, not %g\n", c->label, r, h, d, v, want);
                return false;
            }
        }
    }
    return true;
}

// What the norm multiplies element e of a row of heads with.
static double norm_share(const float *row, uint32_t e, uint32_t dim, const float *weight, float eps)
{
    double sum = 0;
    for (uint32_t d = 0; weight != NULL && d < dim; d++) {
        double x = (double)row[e / dim * dim + d];
        sum += x * x;
    }
    return weight == NULL ? 1.0 : (double)weight[e % dim] / sqrt(sum / dim + (double)eps);
}

// Heads of q or k before and after: norm, then rope.
static bool heads_near(struct conf_case *c, const float *x, const float *got, uint32_t heads,
                       const float *weight, float eps)
{
    const struct plm_rope_kv_args *a = (const void *)c->args;
    const float *table = DATA(float, rope_kv, table);
    const uint32_t dim = a->head_dim, half = a->dims / 2;
    for (uint32_t r = 0; r < a->rows; r++)
        for (uint32_t e = 0; e < heads * dim; e++) {
            const float *row = x + (uint64_t)r * a->ld;
            const bool neox = a->mode == PLM_ROPE_NEOX;
            const uint32_t d = e % dim;
            const bool second = neox ? d >= half : d % 2;
            double want = (double)row[e] * norm_share(row, e, dim, weight, eps);
            if (d < a->dims) {
                const uint32_t step = neox ? half : 1, i = neox ? d % half : d / 2;
                const uint32_t other = second ? e - step : e + step;
                const float *angle = table + (uint64_t)r * a->dims + (uint64_t)i * 2;
                want = want * (double)angle[0] + (second ? 1 : -1) * (double)row[other] *
                                                     norm_share(row, other, dim, weight, eps) *
                                                     (double)angle[1];
            }
            if (!(fabs(want - (double)got[(uint64_t)r * a->ld + e]) <= 3e-6 * (1 + fabs(want)))) {
                printf("FAIL %s: row %u element %u\n", c->label, r, e);
                return false;
            }
        }
    return true;
}

// Whether the cache's element is element d of one head's K or V of a token, as far as the type
// holds it.
static bool kv_holds(double got, const float *x, uint32_t d, uint32_t type)
{
    const double diff = fabs(got - (double)x[d]), size = fabs((double)x[d]);
    float top = 0.0f;
    bool bad = false;
    if (type == PLM_TYPE_F32)
        return diff <= 0.0;
    if (type == PLM_TYPE_F16)
        return diff <= size * 0x1p-11 + 0x1p-25;
    for (uint32_t i = d / 32 * 32; i < d / 32 * 32 + 32; i++) {
        bad = bad || !isfinite(x[i]);
        top = fabsf(x[i]) > top ? fabsf(x[i]) : top;
    }
    if (bad)
        return isnan(got);
    if (top / 127.0f >= 65520.0f) // the scale is an infinity
        return !isfinite(got);
    // Half a code, and half a unit of the last place of the scale, times the code.
    return diff <= (double)top / 127.0 * 0.50001 + (double)top * 0x1p-11 + 127 * 0x1p-25;
}

// The cache holds K as it was left rotated, and V; bytes of other tokens stay as they were.
static bool kv_near(struct conf_case *c)
{
    const struct plm_rope_kv_args *a = (const void *)c->args;
    const uint32_t dim = a->head_dim, n = a->kv_heads * dim;
    const uint64_t part = PLM_KV_HEAD_BYTES(a->kv_type, dim);
    const uint64_t *slots = DATA(uint64_t, rope_kv, slots);
    const int32_t *pos = DATA(int32_t, rope_kv, pos);
    uint64_t written = 0;
    for (uint32_t i = 0; i < 2 * a->rows * n; i++) {
        const bool is_v = i >= a->rows * n;
        const uint32_t r = i / n % a->rows, h = i % n / dim, d = i % dim;
        const float *x = (is_v ? DATA(float, rope_kv, v) : DATA(float, rope_kv, k)) +
                         (uint64_t)r * a->ld + (uint64_t)h * dim;
        const uint8_t *at = PLM_PTR(const uint8_t, slots[r] + a->layer_offset) +
                            (h + (is_v ? a->kv_heads : 0)) * part;
        const double got = kv_at(at, is_v, (uint32_t)pos[r] % 16, d, dim, a->kv_type);
        if (!kv_holds(got, x, d, a->kv_type)) {
            printf("FAIL %s: %c of row %u head %u dim %u: %g, not %g\n", c->label, is_v ? 'v' : 'k',
                   r, h, d, got, (double)x[d]);
            return false;
        }
    }
    // Places of untouched tokens are all poison. (Codes may be, too, so that fewer are counted.)
    for (uint64_t i = 0; i < c->buf[0].bytes; i++)
        written += c->buf[0].data[i] != 0xff;
    if (written > 2 * (uint64_t)a->rows * a->kv_heads * part / 16) {
        printf("FAIL %s: %llu bytes of the cache changed\n", c->label, (unsigned long long)written);
        return false;
    }
    return true;
}

static bool rope_near(struct conf_case *c)
{
    const struct plm_rope_kv_args *a = (const void *)c->args;
    const struct plm_head_norms *norms = DATA(struct plm_head_norms, rope_kv, norms);
    const float *norm_q = norms == NULL ? NULL : PLM_PTR(const float, norms->norm_q);
    const float *norm_k = norms == NULL ? NULL : PLM_PTR(const float, norms->norm_k);
    const float eps = norms == NULL ? 0.0f : norms->eps;
    return heads_near(c, INITIAL(float, rope_kv, q), DATA(float, rope_kv, q), a->heads, norm_q,
                      eps) &&
           heads_near(c, INITIAL(float, rope_kv, k), DATA(float, rope_kv, k), a->kv_heads, norm_k,
                      eps) &&
           kv_near(c);
}

static bool cap_near(struct conf_case *c)
{
    const struct plm_soft_cap_args *a = (const void *)c->args;
    const float *x = INITIAL(float, soft_cap, x), *got = DATA(float, soft_cap, x);
    for (uint64_t i = 0; i < (uint64_t)a->rows * a->n; i++) {
        const double want = (double)a->cap * tanh((double)x[i] / (double)a->cap);
        const bool ok = !isfinite(x[i]) ? isnan(got[i])
                                        : fabs(want - (double)got[i]) <= 4e-7 * fabs(want) + 1e-38;
        if (!ok) {
            printf("FAIL %s: %g becomes %g, not %g\n", c->label, (double)x[i], (double)got[i],
                   want);
            return false;
        }
    }
    return true;
}

static bool table_near(struct conf_case *c)
{
    const struct plm_rope_table_args *a = (const void *)c->args;
    const int32_t *pos = DATA(int32_t, rope_table, pos);
    const uint64_t *increments = DATA(uint64_t, rope_table, increments);
    const float *got = DATA(float, rope_table, dst);
    const float *scales = DATA(float, rope_table, scales);
    for (uint32_t i = 0; i < a->rows * a->dims / 2; i++) {
        uint32_t k = i % (a->dims / 2);
        // Both halves' products are exact, and no integer wraps.
        const long double p = pos[i / (a->dims / 2)];
        const long double high = p * (uint32_t)(increments[k] >> 32) * 0x1p-32L;
        const long double low = p * (uint32_t)increments[k] * 0x1p-64L;
        const double angle = (double)((fmodl(high, 1) + low) * 6.283185307179586476925L);
        double scale = a->scale != 0.0f ? (double)a->scale : 1.0;
        if (scales != NULL)
            scale *= (double)scales[pos[i / (a->dims / 2)] / (int32_t)a->scale_span];
        const double tolerance = 2e-7 * fmax(1, fabs(scale));
        if (!(fabs(cos(angle) * scale - (double)got[i * 2]) < tolerance) ||
            !(fabs(sin(angle) * scale - (double)got[i * 2 + 1]) < tolerance)) {
            printf("FAIL %s: entry %u\n", c->label, i);
            return false;
        }
    }
    return true;
}

// exp within 1.5 units of the last place over its whole range.
static bool exp_near(void)
{
    double worst = 0;
    for (float x = -87.0f; x <= 88.0f; x += 0.00037f) {
        double want = exp((double)x), diff = fabs((double)plm_expf(x) - want);
        double ulp = ldexp(1.0, ilogb(want) - 23);
        worst = diff / ulp > worst ? diff / ulp : worst;
    }
    bool ok = worst < 1.5 && plm_expf(0.0f) == 1.0f && isnan(plm_expf(NAN)) &&
              plm_expf(-INFINITY) > 0.0f && plm_expf(-INFINITY) < 2e-38f;
    if (!ok)
        printf("FAIL exp: %g units of the last place\n", worst);
    return ok;
}

// All 65,536 halves there and back, and halfway points.
static bool half_near(void)
{
    for (uint32_t h = 0; h < 65536; h++) {
        float f = plm_f16_to_f32((uint16_t)h), next = plm_f16_to_f32((uint16_t)(h + 1));
        uint16_t back = plm_f32_to_f16(f);
        bool nan = (h & 0x7fff) > 0x7c00;
        if (nan ? !isnan(f) || (back & 0x7fff) <= 0x7c00 : back != h)
            goto wrong;
        if ((h & 0x7fff) >= 0x7bff)
            continue;
        // Halfway goes to the even neighbour, a little beyond it away from zero.
        float mid = f + (next - f) / 2;
        uint16_t beyond = plm_f32_to_f16(nextafterf(mid, mid < 0 ? -INFINITY : INFINITY));
        if (plm_f32_to_f16(mid) != (h % 2 == 0 ? h : h + 1) || beyond != h + 1)
            goto wrong;
        continue;
    wrong:
        printf("FAIL half %#x\n", h);
        return false;
    }
    return plm_f32_to_f16(65519.99f) == 0x7bff && plm_f32_to_f16(65520.0f) == 0x7c00;
}

int conf_doubles(struct conf_rng *rng, int rounds)
{
    static const struct {
        enum plm_op op;
        bool (*near)(struct conf_case *c);
    } list[] = {
        {PLM_OP_MATMUL, matmul_near},       {PLM_OP_RMS_NORM, norm_near},
        {PLM_OP_GATE_MUL, gate_near},       {PLM_OP_QUANTIZE, quantize_near},
        {PLM_OP_ATTENTION, attention_near}, {PLM_OP_ROPE_KV, rope_near},
        {PLM_OP_ROPE_TABLE, table_near},    {PLM_OP_SOFT_CAP, cap_near},
    };
    struct conf_target reference;
    int failures = !exp_near() + !half_near();
    if (conf_target_open("reference", &reference) != 0)
        return 1;
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        for (int n = 0; n < rounds; n++) {
            struct conf_case c;
            conf_make(&c, list[i].op, rng);
            bool ok = reference.run(&reference, &c, rng) == 0 && list[i].near(&c);
            conf_end(&c);
            failures += !ok;
            if (!ok)
                break;
        }
    return failures;
}

// What a row has of a buffer.
struct row_part {
    size_t field;
    uint64_t bytes;
};

// The rows of a case together against each row alone. The last of the parts is the result.
static bool rows_agree(struct conf_target *t, struct conf_case *c, size_t rows_field,
                       const struct row_part *parts, int n, struct conf_rng *rng)
{
    const uint32_t one = 1;
    const struct row_part *out = &parts[n - 1];
    const struct conf_buf *dst = conf_at(c, out->field);
    uint32_t rows;
    uint8_t *all = malloc(dst->bytes);
    bool ok = all != NULL && t->run(t, c, rng) == 0;
    if (ok)
        memcpy(all, dst->data, dst->bytes);
    memcpy(&rows, c->args + rows_field, 4);
    memcpy(c->args + rows_field, &one, 4);
    for (uint32_t r = 0; ok && r < rows; r++) {
        conf_reset(c);
        for (int i = 0; i < n; i++) {
            const struct conf_buf *b = conf_at(c, parts[i].field);
            memcpy(b->data, b->initial + r * parts[i].bytes, parts[i].bytes);
        }
        ok = t->run(t, c, rng) == 0 && memcmp(dst->data, all + r * out->bytes, out->bytes) == 0;
        if (!ok)
            printf("FAIL %s: row %u of %u alone differs on %s\n", c->label, r, rows, t->name);
    }
    free(all);
    return ok;
}

#define FIELD(op, name) offsetof(struct plm_##op##_args, name)

static bool product_rows_agree(struct conf_target *t, struct conf_case *c, struct conf_rng *rng)
{
    const struct plm_matmul_args *a = (const void *)c->args;
    const struct row_part parts[] = {{FIELD(matmul, x), PLM_ACT_ROW_BYTES(a->act, a->n_in)},
                                     {FIELD(matmul, dst), (uint64_t)a->ld_dst * 4}};
    return rows_agree(t, c, FIELD(matmul, rows), parts, 2, rng);
}

static bool attention_rows_agree(struct conf_target *t, struct conf_case *c, struct conf_rng *rng)
{
    const struct plm_attention_args *a = (const void *)c->args;
    const struct row_part parts[] = {{FIELD(attention, pos), 4},
                                     {FIELD(attention, seq), 4},
                                     {FIELD(attention, q), (uint64_t)a->ld_q * 4},
                                     {FIELD(attention, dst), (uint64_t)a->heads * a->head_dim * 4}};
    return rows_agree(t, c, FIELD(attention, rows), parts, 4, rng);
}

int conf_rows(struct conf_target *t, enum plm_op op, struct conf_rng *rng)
{
    const bool product = op == PLM_OP_MATMUL;
    int failures = 0;
    for (int i = 0; i < (product ? 60 : 15); i++) {
        struct conf_case c;
        conf_make(&c, op, rng);
        failures += !(product ? product_rows_agree(t, &c, rng) : attention_rows_agree(t, &c, rng));
        conf_end(&c);
    }
    return failures;
}

int conf_fill(struct conf_target *t, struct conf_rng *rng)
{
    int failures = 0;
    for (int i = 0; i < 6; i++) {
        const uint64_t words = i == 0 ? 1 : conf_range(rng, 1, 700000);
        const uint32_t seed = conf_u32(rng), flips = conf_below(rng, 4);
        struct plm_fill_args fill = {.n_words = words, .seed = seed};
        struct plm_verify_args verify = {.n_words = words, .seed = seed};
        struct conf_case c;
        conf_begin(&c, PLM_OP_FILL, sizeof fill);
        uint32_t *data = conf_output(&c, offsetof(struct plm_fill_args, dst), words * 4);
        memcpy(c.args, &fill, sizeof fill);
        snprintf(c.label, sizeof c.label, "fill words %llu", (unsigned long long)words);
        conf_ready(&c);
        bool ok = t->run(t, &c, rng) == 0;
        uint32_t flipped = 0;
        for (uint32_t k = 0; k < flips; k++) { // words at both ends and one in between
            uint64_t at = k == 0 ? 0 : k == 1 ? words - 1 : words / 2;
            if (k > 0 && words < 4)
                break;
            data[at] ^= 1u << conf_below(rng, 32);
            flipped++;
        }
        // The same buffer first, so that it lies at the same address again.
        uint32_t *count = conf_inout(&c, offsetof(struct plm_verify_args, count), 4);
        *count = 0;
        c.op = PLM_OP_VERIFY;
        c.args_bytes = sizeof verify;
        memcpy(c.args, &verify, sizeof verify);
        c.buf[0].field = offsetof(struct plm_verify_args, src);
        ok = ok && t->run(t, &c, rng) == 0 && *count == flipped;
        if (!ok)
            printf("FAIL fill of %llu words and verify on %s: %u wrong, not %u\n",
                   (unsigned long long)words, t->name, *count, flipped);
        failures += !ok;
        conf_end(&c);
    }
    return failures;
}

static bool read_file(const char *folder, const char *name, const char *ext, void *out,
                      size_t bytes)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.%s", folder, name, ext);
    FILE *f = fopen(path, "rb");
    bool ok = f != NULL && fread(out, 1, bytes, f) == bytes && fgetc(f) == EOF;
    if (f != NULL)
        fclose(f);
    if (!ok)
        printf("FAIL %s: not %zu bytes\n", path, bytes);
    return ok;
}

#define GOLDEN_BLOCKS 64u

// The blocks as a matrix of `rows` rows, packed and read back by get_rows.
static bool quants_agree(struct conf_target *t, const char *name, enum plm_type type,
                         uint32_t per_block, const char *folder, uint32_t rows)
{
    uint32_t n_in = per_block * GOLDEN_BLOCKS / rows;
    uint64_t file_bytes = conf_file_bytes(type, (uint64_t)per_block * GOLDEN_BLOCKS);
    struct plm_get_rows_args a = {
        .type = type, .rows = rows, .n_in = n_in, .n_out = rows, .scale = 1.0f};
    struct conf_rng rng = {rows};
    struct conf_case c;
    static float want[256 * GOLDEN_BLOCKS];
    conf_begin(&c, PLM_OP_GET_ROWS, sizeof a);
    uint8_t *raw = (uint8_t *)(uintptr_t)conf_weight(&c, offsetof(struct plm_get_rows_args, weight),
                                                     type, n_in, rows, &rng);
    bool ok = read_file(folder, name, "blk", raw, file_bytes) &&
              read_file(folder, name, "f32", want, (size_t)per_block * GOLDEN_BLOCKS * 4);
    plm_panel_weight_pack(type, n_in, rows, 0, rows, raw, c.buf[0].data);
    int32_t *tokens =
        conf_input(&c, offsetof(struct plm_get_rows_args, tokens), (uint64_t)rows * 4);
    for (uint32_t i = 0; i < rows; i++)
        tokens[i] = (int32_t)i;
    float *dst =
        conf_output(&c, offsetof(struct plm_get_rows_args, dst), (uint64_t)rows * n_in * 4);
    memcpy(c.args, &a, sizeof a);
    conf_ready(&c);
    ok = ok && t->run(t, &c, &rng) == 0;
    if (ok && memcmp(dst, want, (size_t)per_block * GOLDEN_BLOCKS * 4) != 0) {
        printf("FAIL quants: %s as %u rows differs from its decoded values on %s\n", name, rows,
               t->name);
        ok = false;
    }
    conf_end(&c);
    return ok;
}

int conf_quants(struct conf_target *t, const char *folder)
{
    static const struct {
        const char *name;
        enum plm_type type;
        uint32_t block;
    } list[] = {
#define PLM_TENSOR_TYPE(NAME, name, id, block, bytes, CODES, VALUES, zero, SCALES, BACKENDS)       \
    PLM_WITH_KERNELS_##BACKENDS({#name, PLM_TYPE_##NAME, block == 1 ? 32 : block}, )
#include "kernels/types.def"
    };
    int failures = 0, run = 0, n = 0;
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        if ((t->types >> list[i].type & 1) == 0)
            continue;
        n++;
        for (uint32_t rows = 1; rows <= GOLDEN_BLOCKS; rows *= 2, run++)
            failures += !quants_agree(t, list[i].name, list[i].type, list[i].block, folder, rows);
    }
    printf("quants: %d shapes of %d types, %d failed\n", run, n, failures);
    return failures;
}
