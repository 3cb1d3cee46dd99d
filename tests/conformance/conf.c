// SPDX-License-Identifier: Apache-2.0
// Cases: buffers, sentinels, comparison.
#include "tests/conformance/conf.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/kernels.h"
#include "backends/cpu/refs.h"
#include "backends/panel/layout.h"
#include "backends/panel/pack.h"

#if defined(__SANITIZE_ADDRESS__)
#define CONF_ASAN
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CONF_ASAN
#endif
#endif
#ifdef CONF_ASAN
#include <sanitizer/asan_interface.h>
#endif

#define GUARD_BYTES 256u
#define GUARD       0x5au
#define POISON      0xffu // as float32 and float16 a NaN, as an address out of range

uint32_t conf_u32(struct conf_rng *rng)
{
    // splitmix64: small and good enough to draw shapes and values.
    uint64_t z = rng->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)(z ^ z >> 31);
}

uint32_t conf_below(struct conf_rng *rng, uint32_t n)
{
    return (uint32_t)((uint64_t)conf_u32(rng) * n >> 32);
}

uint32_t conf_range(struct conf_rng *rng, uint32_t lo, uint32_t hi)
{
    return lo + conf_below(rng, hi - lo + 1);
}

float conf_normal(struct conf_rng *rng)
{
    double sum = -6.0;
    for (int i = 0; i < 12; i++)
        sum += conf_u32(rng) / 4294967296.0;
    return (float)sum;
}

static void *must(void *p)
{
    if (p == NULL) {
        fprintf(stderr, "conformance: out of memory\n");
        exit(1);
    }
    return p;
}

static struct conf_buf *add_buf(struct conf_case *c, size_t field, uint64_t bytes)
{
    if (c->n_bufs == CONF_BUFFERS)
        must(NULL);
    struct conf_buf *b = &c->buf[c->n_bufs++];
    uint64_t total = (bytes + 2 * GUARD_BYTES + 63) / 64 * 64;
    *b = (struct conf_buf){.bytes = bytes, .field = (uint32_t)field, .reloc = -1};
    b->block = must(aligned_alloc(64, total));
    b->data = b->block + GUARD_BYTES;
    memset(b->block, GUARD, total);
    b->initial = must(malloc(bytes + 1));
    return b;
}

void conf_begin(struct conf_case *c, enum plm_op op, size_t args_bytes)
{
    memset(c, 0, sizeof *c);
    c->op = op;
    c->args_bytes = args_bytes;
}

void *conf_input(struct conf_case *c, size_t field, uint64_t bytes)
{
    return add_buf(c, field, bytes)->data;
}

void *conf_output(struct conf_case *c, size_t field, uint64_t bytes)
{
    struct conf_buf *b = add_buf(c, field, bytes);
    b->out = true;
    memset(b->data, POISON, bytes);
    return b->data;
}

void *conf_inout(struct conf_case *c, size_t field, uint64_t bytes)
{
    struct conf_buf *b = add_buf(c, field, bytes);
    b->out = true;
    return b->data;
}

void *conf_output_q8(struct conf_case *c, size_t field, uint32_t rows, uint32_t n)
{
    void *data = conf_output(c, field, PLM_ACT_Q8_ROW_BYTES(n) * rows);
    c->buf[c->n_bufs - 1].kind = CONF_Q8;
    c->buf[c->n_bufs - 1].n = n;
    return data;
}

struct conf_buf *conf_at(struct conf_case *c, size_t field)
{
    for (int i = 0; i < c->n_bufs; i++)
        if (c->buf[i].field == field)
            return &c->buf[i];
    return NULL;
}

uint64_t *conf_addresses(struct conf_case *c, size_t field, uint64_t count, int into)
{
    struct conf_buf *b = add_buf(c, field, count * 8);
    b->reloc = into;
    return (uint64_t *)(void *)b->data;
}

uint64_t conf_file_bytes(enum plm_type type, uint64_t values)
{
    const struct plm_panel_type t = plm_panel_type(type);
    return t.block != 0 ? values / t.block * t.file_bytes : 0;
}

uint64_t conf_types(uint8_t backends)
{
    uint64_t types = 0;
    for (uint32_t t = 0; t < 64; t++)
        if ((plm_panel_type(t).backends & backends) != 0)
            types |= UINT64_C(1) << t;
    return types;
}

static void put_f16(uint8_t *p, float v)
{
    uint16_t h = plm_f32_to_f16(v);
    memcpy(p, &h, 2);
}

// Makes the scales of a block of random bytes such that its values are near v; plain types: v.
static void random_scales(enum plm_type type, uint8_t scales, float v, uint8_t *p,
                          struct conf_rng *rng)
{
    const uint16_t bfloat = (uint16_t)(plm_f32_bits(v) >> 16);
    // Where the file has d.
    uint8_t *d = p + (type == PLM_TYPE_Q6_K   ? 208
                      : type == PLM_TYPE_Q3_K ? 108
                      : type == PLM_TYPE_Q2_K ? 80
                                              : 0);
    switch (scales) {
    case PLM_SCALES_NONE:
        if (type == PLM_TYPE_F32)
            memcpy(p, &v, 4);
        else if (type == PLM_TYPE_F16)
            put_f16(p, v);
        else
            memcpy(p, &bfloat, 2);
        break;
    case PLM_SCALES_E8M0: // now and then a power that is a subnormal float
        p[0] = (uint8_t)(conf_below(rng, 50) == 0 ? conf_below(rng, 3) : conf_range(rng, 110, 126));
        break;
    case PLM_SCALES_D_SUB:
    case PLM_SCALES_D_HALVES: put_f16(d, v * 0.01f); break;
    case PLM_SCALES_D_M:
        put_f16(d + 2, conf_normal(rng) * 0.5f);
        put_f16(d, v);
        break;
    case PLM_SCALES_D_M_SUB:
    case PLM_SCALES_D_M_HALVES:
        put_f16(d + 2, conf_normal(rng) * 0.01f);
        put_f16(d, v);
        break;
    default: put_f16(d, v); break;
    }
}

uint64_t conf_random_blocks(enum plm_type type, uint64_t values, uint8_t *out, struct conf_rng *rng)
{
    uint64_t bytes = conf_file_bytes(type, values);
    const struct plm_panel_type t = plm_panel_type(type);
    for (uint64_t i = 0; i < bytes; i++)
        out[i] = (uint8_t)conf_u32(rng);
    for (uint64_t b = 0; b < values / t.block; b++) {
        float v = conf_normal(rng) * 0.05f;
        if (conf_below(rng, 50) == 0)
            v *= 1e-6f; // a subnormal half
        random_scales(type, t.scales, v, out + b * t.file_bytes, rng);
    }
    return bytes;
}

const uint8_t *conf_weight(struct conf_case *c, size_t field, enum plm_type type, uint32_t n_in,
                           uint32_t n_out, struct conf_rng *rng)
{
    struct plm_weight_layout layout;
    if (plm_panel_weight_layout(type, n_in, n_out, &layout) != PLM_OK)
        must(NULL);
    struct conf_buf *b = add_buf(c, field, layout.bytes);
    free(b->initial);
    b->weight = true;
    b->initial = must(malloc((uint64_t)layout.row_bytes_in * n_out));
    conf_random_blocks(type, (uint64_t)n_in * n_out, b->initial, rng);
    memset(b->data, POISON, layout.bytes);
    for (uint32_t row = 0; row < n_out;) { // in uneven steps, as a loader might
        uint32_t rows = PLM_PANEL_ROWS * conf_range(rng, 1, 3);
        rows = rows < n_out - row ? rows : n_out - row;
        plm_panel_weight_pack(type, n_in, n_out, row, rows,
                              b->initial + (uint64_t)row * layout.row_bytes_in,
                              (char *)b->data + row / layout.row_step * layout.step_bytes);
        row += rows;
    }
    return b->initial;
}

void conf_ready(struct conf_case *c)
{
    for (int i = 0; i < c->n_bufs; i++)
        if (!c->buf[i].weight)
            memcpy(c->buf[i].initial, c->buf[i].data, c->buf[i].bytes);
}

void conf_end(struct conf_case *c)
{
    for (int i = 0; i < c->n_bufs; i++) {
        free(c->buf[i].block);
        free(c->buf[i].initial);
    }
    c->n_bufs = 0;
}

uint32_t conf_units(enum plm_op op, const void *args)
{
    switch (op) {
#define PLM_OP(NAME, name, units, tolerance)                                                       \
    case PLM_OP_##NAME: {                                                                          \
        const struct plm_##name##_args *a = args;                                                  \
        return units;                                                                              \
    }
#include "kernels/ops.def"
#undef PLM_OP
    default: return 0;
    }
}

double conf_tolerance(enum plm_op op)
{
    static const double list[] = {
#define PLM_OP(NAME, name, units, tolerance) tolerance,
#include "kernels/ops.def"
#undef PLM_OP
    };
    return list[op];
}

const char *conf_op_name(enum plm_op op)
{
    static const char *const list[] = {
#define PLM_OP(NAME, name, units, tolerance) #name,
#include "kernels/ops.def"
#undef PLM_OP
    };
    return list[op];
}

void conf_reset(struct conf_case *c)
{
    for (int i = 0; i < c->n_bufs; i++)
        if (!c->buf[i].weight)
            memcpy(c->buf[i].data, c->buf[i].initial, c->buf[i].bytes);
}

void conf_relocate(struct conf_buf *b, uint64_t address)
{
    uint64_t *words = (uint64_t *)(void *)b->data;
    for (uint64_t k = 0; k < (b->relocs != 0 ? b->relocs : b->bytes / 8); k++)
        if (b->relocs == 0 || words[k] != 0)
            words[k] += address;
}

void conf_bind(struct conf_case *c, void *ret_args)
{
    uint8_t *args = ret_args;
    memcpy(args, c->args, sizeof c->args);
    for (int i = 0; i < c->n_bufs; i++) {
        const uint64_t address = (uint64_t)(uintptr_t)c->buf[i].data;
        if (c->buf[i].field != UINT32_MAX)
            memcpy(args + c->buf[i].field, &address, 8);
        if (c->buf[i].reloc >= 0)
            conf_relocate(&c->buf[i], (uint64_t)(uintptr_t)c->buf[c->buf[i].reloc].data);
    }
}

void conf_forbid_guards(const struct conf_case *c, bool forbid)
{
#ifdef CONF_ASAN
    for (int i = 0; i < c->n_bufs; i++) {
        uint8_t *const at[2] = {c->buf[i].block, c->buf[i].data + c->buf[i].bytes};
        for (int k = 0; k < 2; k++)
            if (forbid)
                __asan_poison_memory_region(at[k], GUARD_BYTES);
            else
                __asan_unpoison_memory_region(at[k], GUARD_BYTES);
    }
#else
    (void)c;
    (void)forbid;
#endif
}

static bool guards_hold(const struct conf_case *c, const char *who)
{
    for (int i = 0; i < c->n_bufs; i++) {
        const struct conf_buf *b = &c->buf[i];
        for (uint32_t g = 0; g < GUARD_BYTES; g++)
            if (b->block[g] != GUARD || b->data[b->bytes + g] != GUARD) {
                printf("FAIL %s: %s wrote outside buffer %d (field %u)\n", c->label, who, i,
                       b->field);
                return false;
            }
        if (!b->out && !b->weight && b->reloc < 0 && memcmp(b->data, b->initial, b->bytes) != 0) {
            printf("FAIL %s: %s changed its input %d\n", c->label, who, i);
            return false;
        }
    }
    return true;
}

// Negative: bit-equal. A sum of 32 products in half precision is rounded 32 times by up to 2^-11 of
// its size: 1e-3 of the largest result was seen, a wrong element is off by far more than ten times
// that.
static double limit_of(const struct conf_target *t, enum plm_op op)
{
    const bool product = op == PLM_OP_MATMUL || op == PLM_OP_QKV || op == PLM_OP_GLU;
    if (t->bit_equal)
        return -1.0;
    return t->half_math && product ? 1e-2 : conf_tolerance(op);
}

bool conf_check(struct conf_target *t, struct conf_case *c, struct conf_rng *rng)
{
    struct conf_target reference;
    uint8_t *want[CONF_BUFFERS] = {NULL};
    bool ok = conf_target_open("reference", &reference) == 0;
    conf_reset(c);
    ok = ok && reference.run(&reference, c, rng) == 0 && guards_hold(c, "the reference");
    for (int i = 0; i < c->n_bufs; i++)
        if (c->buf[i].out) {
            want[i] = must(malloc(c->buf[i].bytes));
            memcpy(want[i], c->buf[i].data, c->buf[i].bytes);
        }
    conf_reset(c);
    if (ok && t->run(t, c, rng) != 0) {
        printf("FAIL %s: %s could not run it\n", c->label, t->name);
        ok = false;
    }
    ok = ok && guards_hold(c, t->name);
    for (int i = 0; i < c->n_bufs; i++) {
        if (c->buf[i].out)
            ok = conf_same(c, &c->buf[i], want[i], c->buf[i].data, limit_of(t, c->op), t->name) &&
                 ok;
        free(want[i]);
    }
    return ok;
}
