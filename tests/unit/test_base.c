// SPDX-License-Identifier: Apache-2.0
#include <check.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/buf.h"
#include "core/base/checked.h"
#include "core/base/clock.h"
#include "core/base/json.h"
#include "core/base/random.h"
#include "core/base/status.h"
#include "core/base/utf8.h"
#include "tests/support/suite.h"

START_TEST(budget_is_charged_before_malloc)
{
    struct plm_host *host = plm_host_create(1000);
    void *a = plm_malloc(host, PLM_HOST_MODEL, 500);
    ck_assert_ptr_nonnull(a);
    ck_assert_ptr_null(plm_malloc(host, PLM_HOST_MODEL, 500));
    struct plm_host_stats stats;
    plm_host_read(host, &stats);
    ck_assert_int_eq(stats.used_bytes, 528);
    ck_assert_int_eq(stats.owner_bytes[PLM_HOST_MODEL], 528);
    a = plm_realloc(host, PLM_HOST_OTHER, a, 10);
    plm_host_read(host, &stats);
    ck_assert_int_eq(stats.owner_bytes[PLM_HOST_MODEL], 48);
    ck_assert_ptr_null(plm_calloc(host, PLM_HOST_OTHER, SIZE_MAX / 2, 3));
    plm_free(host, a);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}
END_TEST

// What was freed may still be resident: a charge that would pass the limit together with it has it
// given back first, and one that would not leaves it.
START_TEST(freed_bytes_are_given_back_before_the_limit)
{
    enum { BLOCKS = 600 }; // of 10,000 bytes: 6 MB, more than the 4 MiB below which nothing is done
    const int64_t limit = 16 << 20;
    struct plm_host *host = plm_host_create(limit);
    static void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++)
        ck_assert_ptr_nonnull(blocks[i] = plm_malloc(host, PLM_HOST_OTHER, 10000));
    for (int i = 0; i < BLOCKS; i++)
        plm_free(host, blocks[i]);
    struct plm_host_stats stats;
    plm_host_read(host, &stats);
    const uint64_t freed = stats.kept_bytes;
    ck_assert_uint_ge(freed, 6000000);
    ck_assert_int_eq(plm_host_charge(host, PLM_HOST_OTHER, limit - (int64_t)freed), PLM_OK);
    plm_host_read(host, &stats);
    ck_assert_uint_eq(stats.kept_bytes, freed);
    ck_assert_int_eq(plm_host_charge(host, PLM_HOST_OTHER, 1), PLM_OK);
    plm_host_read(host, &stats);
    ck_assert_uint_eq(stats.kept_bytes, 0);
    plm_host_discharge(host, PLM_HOST_OTHER, limit - (int64_t)freed + 1);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}
END_TEST

START_TEST(nth_allocation_fails)
{
    struct plm_host *host = plm_host_create(0);
    plm_host_fail_nth(host, 2, 0);
    void *a = plm_malloc(host, PLM_HOST_OTHER, 1);
    ck_assert_ptr_nonnull(a);
    ck_assert_ptr_null(plm_malloc(host, PLM_HOST_OTHER, 1));
    void *b = plm_malloc(host, PLM_HOST_OTHER, 1);
    ck_assert_ptr_nonnull(b);
    plm_free(host, a);
    plm_free(host, b);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}
END_TEST

START_TEST(a_failed_buffer_stays_failed)
{
    struct plm_host *host = plm_host_create(0);
    struct plm_buf buf;
    plm_buf_init(&buf, host, PLM_HOST_OTHER);
    buf.max = 8;
    ck_assert(plm_buf_printf(&buf, "%d", 1234));
    ck_assert(!plm_buf_append_str(&buf, "too long"));
    ck_assert(!plm_buf_append_char(&buf, 'x'));
    ck_assert_str_eq(buf.data, "1234");
    plm_buf_finish(&buf);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}
END_TEST

START_TEST(utf8_is_strict)
{
    uint32_t cp;
    char out[4];
    for (uint32_t c = 0; c < 0x110000; c++) {
        if (c >= 0xD800 && c < 0xE000)
            continue;
        size_t len = plm_utf8_encode(c, out);
        if (plm_utf8_decode(out, len, &cp) != len || cp != c)
            ck_abort_msg("U+%04X does not survive", (unsigned)c);
        for (size_t cut = 1; cut < len; cut++) {
            if (plm_utf8_decode(out, cut, &cp) != 0)
                ck_abort_msg("U+%04X cut to %zu bytes", (unsigned)c, cut);
        }
    }
    ck_assert_uint_eq(plm_utf8_decode("\xC0\x80", 2, &cp), 0);         // overlong
    ck_assert_uint_eq(plm_utf8_decode("\xED\xA0\x80", 3, &cp), 0);     // surrogate
    ck_assert_uint_eq(plm_utf8_decode("\xF4\x90\x80\x80", 4, &cp), 0); // above U+10FFFF
    ck_assert_uint_eq(plm_utf8_valid_prefix("ab\xFF", 3), 2);
}
END_TEST

START_TEST(json_strings_are_valid_whatever_the_bytes)
{
    static const char bytes[] = "a\"\\\n\x7f\xC3\xA9\xFF\xC3";
    struct plm_host *host = plm_host_create(0);
    struct plm_buf buf;
    plm_buf_init(&buf, host, PLM_HOST_OTHER);
    ck_assert(plm_buf_append_json(&buf, PLM_SLICE(bytes)));
    ck_assert_str_eq(buf.data, "\"a\\\"\\\\\\u000a\\u007f\xC3\xA9\xEF\xBF\xBD\xEF\xBF\xBD\"");
    plm_buf_clear(&buf);
    ck_assert(plm_buf_append_json(&buf, (struct plm_slice){NULL, 0}));
    ck_assert_str_eq(buf.data, "\"\"");
    plm_buf_finish(&buf);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}
END_TEST

static int64_t half_past(void *ctx)
{
    (void)ctx;
    return 1700000000;
}

START_TEST(deadlines_carry_and_stay_in_range)
{
    const struct plm_clock clock = {.now_ns = half_past};
    struct timespec at = plm_deadline(&clock, 1400);
    ck_assert(at.tv_sec == 3 && at.tv_nsec == 100000000);
    at = plm_deadline(&clock, INT64_MAX);
    ck_assert(at.tv_sec == 365 * 24 * 3600 + 1 && at.tv_nsec == 700000000);
}
END_TEST

START_TEST(philox_matches_the_published_vector)
{
    // Known-answer vectors of the Random123 distribution, philox4x32-10.
    const uint32_t zero[4] = {0}, ones[4] = {~0u, ~0u, ~0u, ~0u};
    const uint32_t want0[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    const uint32_t want1[4] = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
    uint32_t out[4];
    plm_philox4x32(zero, zero, out);
    ck_assert_mem_eq(out, want0, sizeof(out));
    plm_philox4x32(ones, ones, out);
    ck_assert_mem_eq(out, want1, sizeof(out));
}
END_TEST

START_TEST(checked_arithmetic_refuses_to_wrap)
{
    uint64_t r = 7;
    ck_assert(!plm_add_u64(UINT64_MAX, 1, &r) && r == 7);
    ck_assert(!plm_mul_u64(UINT64_MAX, 2, &r) && r == 7);
    ck_assert(plm_mul_u64(3, 4, &r) && r == 12);
    ck_assert_uint_eq(plm_round_up(17, 16), 32);
    ck_assert_uint_eq(plm_div_ceil(33, 16), 3);
}
END_TEST

// What json-c makes of an escaped pair after it was joined: every character beyond the BMP.
START_TEST(json_pairs_are_what_they_spell)
{
    char text[64], want[8];
    for (uint32_t cp = 0x10000; cp < 0x110000; cp += 61) {
        const uint32_t v = cp - 0x10000;
        int len = snprintf(text, sizeof(text), "[\"\\\\ud83d\\u%04X\\u%04x\"]", 0xD800 + (v >> 10),
                           0xDC00 + (v & 0x3FF));
        ck_assert(plm_json_has_pairs(text, (size_t)len));
        text[plm_json_join_pairs(text, (size_t)len)] = '\0';
        want[plm_utf8_encode(cp, want)] = '\0';
        struct json_object *list = json_tokener_parse(text);
        const char *got = json_object_get_string(json_object_array_get_idx(list, 0));
        ck_assert_int_eq(memcmp(got, "\\ud83d", 6), 0); // an escaped backslash, and letters
        ck_assert_str_eq(got + 6, want);
        json_object_put(list);
    }
}
END_TEST

START_TEST(json_that_has_no_pairs_stays)
{
    static const char *const texts[] = {
        "",
        "\\",
        "\\u",
        "\\ud83",
        "\\ud83d",
        "\\ud83d\\u",
        "\\ud83d\\ud83d",
        "\\udc00\\ud83d",
        "\\ud83d\\udxyz",
        "\\\\ud83d\\\\udc00",
        "\\u0041",
        "\xC3\xA9 \\ud83d-\\udc00",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        const size_t len = strlen(texts[i]);
        char *copy = strdup(texts[i]); // exact, for the sanitizer
        ck_assert_uint_eq(plm_json_join_pairs(copy, len), len);
        ck_assert_str_eq(copy, texts[i]);
        free(copy);
    }
    ck_assert(!plm_json_has_pairs("plain \\n \\u0041", 14));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("base");
    TCase *tc = tcase_create("base");
    tcase_add_test(tc, budget_is_charged_before_malloc);
    tcase_add_test(tc, freed_bytes_are_given_back_before_the_limit);
    tcase_add_test(tc, nth_allocation_fails);
    tcase_add_test(tc, a_failed_buffer_stays_failed);
    tcase_add_test(tc, utf8_is_strict);
    tcase_add_test(tc, json_strings_are_valid_whatever_the_bytes);
    tcase_add_test(tc, json_pairs_are_what_they_spell);
    tcase_add_test(tc, json_that_has_no_pairs_stays);
    tcase_add_test(tc, deadlines_carry_and_stay_in_range);
    tcase_add_test(tc, philox_matches_the_published_vector);
    tcase_add_test(tc, checked_arithmetic_refuses_to_wrap);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
