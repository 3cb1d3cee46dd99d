// SPDX-License-Identifier: Apache-2.0
// The comparison of outputs itself: what it lets pass, and what it does not.
#include <check.h>
#include <math.h>
#include <string.h>

#include "backends/cpu/rows.h"
#include "tests/conformance/conf.h"
#include "tests/support/suite.h"

#define ROWS  8u
#define N     64u
#define LIMIT 1e-5

static const struct conf_case label = {.label = "compare"};
static _Alignas(4) uint8_t want[4096], got[sizeof(want)];
static const struct conf_buf q8 = {
    .bytes = PLM_ACT_Q8_ROW_BYTES(N) * ROWS, .kind = CONF_Q8, .n = N};

static bool same(const struct conf_buf *b)
{
    return conf_same(&label, b, want, got, LIMIT, "the target");
}

// Records of values, times a factor, and rounded down where asked.
static void quantize(uint8_t *out, float factor, bool down)
{
    uint32_t state = 7;
    memset(out, 0xff, q8.bytes);
    for (uint32_t b = 0; b < ROWS * N / 32; b++) {
        uint8_t *record =
            out + b / (N / 32) * PLM_ACT_Q8_ROW_BYTES(N) + b % (N / 32) * PLM_ACT_Q8_BLOCK_BYTES;
        float x[32], top = 0.0f;
        for (int i = 0; i < 32; i++) {
            state = state * 1664525u + 1013904223u;
            x[i] = ((float)(state >> 8) * 0x1p-23f - 1.0f) * factor;
            top = fmaxf(top, fabsf(x[i]));
        }
        for (int i = 0; down && i < 32; i++)
            if (fabsf(x[i]) < top)
                x[i] -= 0.49f * top / 127.0f;
        plm_q8_store(record, x);
    }
}

START_TEST(records_may_differ_by_rounding)
{
    quantize(want, 1.0f, false);
    quantize(got, 1.0f, false);
    ck_assert(same(&q8));
    quantize(got, 1.0f + 2e-6f, false);
    ck_assert(same(&q8));
    ck_assert(!conf_same(&label, &q8, want, got, -1.0, "the same class"));
}
END_TEST

START_TEST(records_may_not_be_wrong)
{
    quantize(want, 1.0f, false);
    quantize(got, 1.0f, true); // within a code each, but too many
    ck_assert(!same(&q8));
    quantize(got, 1.001f, false); // another scale
    ck_assert(!same(&q8));
    static const uint32_t places[] = {3, PLM_ACT_Q8_S, PLM_ACT_Q8_DS + 3,
                                      2 * 44}; // the last: between
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        quantize(got, 1.0f, false);
        got[places[i]] ^= 4;
        ck_assert_msg(!same(&q8), "byte %u", places[i]);
    }
}
END_TEST

START_TEST(what_the_reference_leaves_stays)
{
    const struct conf_buf floats = {.bytes = 16, .kind = CONF_FLOATS};
    const struct conf_buf halves = {.bytes = 16, .kind = CONF_HALVES};
    memset(want, 0xff, 16);
    memcpy(got, want, 16);
    ck_assert(same(&floats) && same(&halves));
    const float nan = NAN;
    memcpy(got + 4, &nan, 4);
    ck_assert(!same(&floats));
    const uint16_t half_nan = 0x7e00;
    memcpy(got, want, 16);
    memcpy(got + 6, &half_nan, 2);
    ck_assert(!same(&halves));
}
END_TEST

START_TEST(halves_may_round_to_the_neighbour)
{
    const struct conf_buf halves = {.bytes = 8, .kind = CONF_HALVES};
    const uint16_t a[] = {0x3c00, 0x3c01, 0x0001, 0xbc00}, two_off[] = {0x3c02, 0x3c01, 1, 0xbc00};
    const uint16_t one_off[] = {0x3c01, 0x3c00, 0x0002, 0xbc01};
    memcpy(want, a, 8);
    memcpy(got, one_off, 8);
    ck_assert(same(&halves));
    memcpy(got, two_off, 8);
    ck_assert(!same(&halves));
}
END_TEST

// K and V of 16 tokens of one head, of which `tokens` are there.
static void fill_kv(uint8_t *out, float factor, bool down, uint32_t tokens)
{
    uint32_t state = 7;
    memset(out, 0xff, 2 * PLM_KV_HEAD_BYTES(PLM_TYPE_Q8_0, N));
    for (uint32_t t = 0; t < tokens; t++) {
        float x[N];
        for (uint32_t i = 0; i < N; i++) {
            state = state * 1664525u + 1013904223u;
            x[i] = ((float)(state >> 8) * 0x1p-23f - 1.0f) * factor;
            x[i] = i % 32 == 0 ? factor : down ? x[i] - 0.3f / 127.0f : x[i];
        }
        plm_k_store(out, 0, t, x, N, PLM_TYPE_Q8_0);
        plm_v_store(out, 1, 0, t, x, N, PLM_TYPE_Q8_0);
    }
}

START_TEST(kv_in_8_bits_may_differ_by_rounding_alone)
{
    const uint64_t part = PLM_KV_HEAD_BYTES(PLM_TYPE_Q8_0, N);
    const struct conf_buf kv = {.bytes = 2 * part, .kind = CONF_KV_Q8, .n = N, .kv_heads = 1};
    fill_kv(want, 1.0f, false, 3);
    fill_kv(got, 1.0f + 2e-6f, false, 3);
    ck_assert(same(&kv));
    fill_kv(got, 1.0f, true, 3); // within a code each, but too many
    ck_assert(!same(&kv));
    fill_kv(got, 1.01f, false, 3); // another scale
    ck_assert(!same(&kv));
    fill_kv(got, 1.0f, false, 4); // another token
    ck_assert(!same(&kv));
    // A code of K and of V of a token, and codes and scales that nobody may write.
    const uint64_t places[] = {5 * 16 + 2,   part + N + 9,   5 * 16 + 3,
                               part + 3 * N, N * 16 + 3 * 2, part + N * 16 + 3 * (N / 32) * 2};
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        fill_kv(got, 1.0f, false, 3);
        got[places[i]] ^= 4;
        ck_assert_msg(!same(&kv), "byte %u", (unsigned)places[i]);
    }
    fill_kv(got, 1.0f + 2e-6f, false, 3);
    ck_assert(conf_same(&label, &kv, want, want, -1.0, "the same class"));
    got[5 * 16 + 2]++;
    ck_assert(!conf_same(&label, &kv, want, got, -1.0, "the same class"));
}
END_TEST

START_TEST(an_index_counts_where_all_numbers_are_finite)
{
    const struct conf_buf best = {.bytes = 32, .kind = CONF_ARGMAX};
    struct plm_argmax_record a[2] = {{5, 1.5f, 0, 0}, {0, 0.0f, 3, 0}}, b[2];
    memcpy(want, a, sizeof(a));
    memcpy(b, a, sizeof(a));
    b[1].index = 9;
    memcpy(got, b, sizeof(b));
    ck_assert(same(&best));
    b[0].index = 6;
    memcpy(got, b, sizeof(b));
    ck_assert(!same(&best));
    memcpy(b, a, sizeof(a));
    b[1].n_wrong = 2;
    memcpy(got, b, sizeof(b));
    ck_assert(!same(&best));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("compare");
    TCase *tcase = tcase_create("compare");
    tcase_add_test(tcase, records_may_differ_by_rounding);
    tcase_add_test(tcase, records_may_not_be_wrong);
    tcase_add_test(tcase, what_the_reference_leaves_stays);
    tcase_add_test(tcase, halves_may_round_to_the_neighbour);
    tcase_add_test(tcase, kv_in_8_bits_may_differ_by_rounding_alone);
    tcase_add_test(tcase, an_index_counts_where_all_numbers_are_finite);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
