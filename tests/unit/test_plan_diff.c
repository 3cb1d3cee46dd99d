// SPDX-License-Identifier: Apache-2.0
// Plans compared field by field, and the reader of JSON texts below it.
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "core/plan/report.h"
#include "core/plimsoll.h"
#include "tests/support/suite.h"

// ---- the reader ----

static int note(void *ctx, const char *path, const struct plm_json_value *value)
{
    static const char kinds[] = "SINB0E";
    plm_buf_printf(ctx, "%s=%c:", path, kinds[value->kind]);
    plm_buf_append_slice(ctx, value->text);
    plm_buf_append_char(ctx, ' ');
    return PLM_OK;
}

static const struct {
    const char *text, *leaves;
} good[] = {
    {"{\"a\":1,\"b\":{\"c\":[true,null,{\"d\":\"x\"}]}}",
     "a=I:1 b.c[0]=B:true b.c[1]=0:null b.c[2].d=S:x "},
    {" [ ] ", "=E:[ ] "},
    {"{\"a\":{},\"b\":[[]]}", "a=E:{ } b[0]=E:[ ] "},
    {"[-9223372036854775808,9223372036854775807]",
     "[0]=I:-9223372036854775808 [1]=I:9223372036854775807 "},
    {"[9223372036854775808,-0,0.5,1e9,-1E-2]",
     "[0]=N:9223372036854775808 [1]=I:0 [2]=N:0.5 [3]=N:1e9 [4]=N:-1E-2 "},
    {"\"\\u00e9\\ud83d\\ude00\\\\\\/\"", "=S:\xC3\xA9\xF0\x9F\x98\x80\\/ "},
};

START_TEST(json_names_every_leaf)
{
    struct plm_host *host = plm_host_create(0);
    struct plm_buf leaves;
    struct plm_error err = {0};
    plm_buf_init(&leaves, host, PLM_HOST_OTHER);
    ck_assert_int_eq(plm_json_walk(good[_i].text, strlen(good[_i].text), note, &leaves, &err),
                     PLM_OK);
    ck_assert_str_eq(leaves.data, good[_i].leaves);
    plm_buf_finish(&leaves);
    plm_host_destroy(host);
}
END_TEST

static const struct {
    const char *text;
    int status;
    const char *what;
} bad[] = {
    {"", PLM_ERR_FORMAT, "byte 0"},
    {"{\"a\":1,}", PLM_ERR_FORMAT, "byte 7"},
    {"{\"a\" 1}", PLM_ERR_FORMAT, "byte 5"},
    {"[1 2]", PLM_ERR_FORMAT, "byte 3"},
    {"[1]x", PLM_ERR_FORMAT, "byte 3"},
    {"[1] /* no */", PLM_ERR_FORMAT, "byte 4"},
    {"[+1]", PLM_ERR_FORMAT, "byte 1"},
    {"[nul]", PLM_ERR_FORMAT, "byte 4"},
    {"\"\xFF\"", PLM_ERR_FORMAT, "byte 1 is no UTF-8"},
    {"\"\\q\"", PLM_ERR_FORMAT, "byte 2"},
    {"\"abc", PLM_ERR_FORMAT, "byte 4"},
    {"[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]", PLM_ERR_LIMIT, "byte 16"},
};

START_TEST(json_names_the_byte_that_is_wrong)
{
    struct plm_host *host = plm_host_create(0);
    struct plm_buf leaves;
    struct plm_error err = {0};
    plm_buf_init(&leaves, host, PLM_HOST_OTHER);
    ck_assert_int_eq(plm_json_walk(bad[_i].text, strlen(bad[_i].text), note, &leaves, &err),
                     bad[_i].status);
    ck_assert_msg(strstr(err.msg, bad[_i].what) != NULL, "\"%s\" lacks \"%s\"", err.msg,
                  bad[_i].what);
    plm_buf_finish(&leaves);
    plm_host_destroy(host);
}
END_TEST

START_TEST(json_is_bounded)
{
    struct plm_host *host = plm_host_create(0);
    struct plm_buf leaves;
    struct plm_error err = {0};
    const size_t n = PLM_JSON_BYTES_MAX + 1;
    char *text = malloc(n);
    plm_buf_init(&leaves, host, PLM_HOST_OTHER);
    memset(text, ' ', n);
    ck_assert_int_eq(plm_json_walk(text, n, note, &leaves, &err), PLM_ERR_LIMIT);
    // Four names of 63 bytes make a path that is too long by its dots.
    char *at = text;
    for (int i = 0; i < 4; i++)
        at += sprintf(at, "{\"%063d\":", i);
    at += sprintf(at, "1}}}}");
    ck_assert_int_eq(plm_json_walk(text, (size_t)(at - text), note, &leaves, &err), PLM_OK);
    memmove(text + 1, text, (size_t)(at - text));
    text[0] = '[';
    at[1] = ']';
    ck_assert_int_eq(plm_json_walk(text, (size_t)(at - text) + 2, note, &leaves, &err),
                     PLM_ERR_LIMIT);
    free(text);
    plm_buf_finish(&leaves);
    plm_host_destroy(host);
}
END_TEST

// ---- differences ----

static char *diff(const char *a, const char *b, int status, plim_error *err)
{
    static char out[8192];
    size_t need = 0;
    memset(err, 0, sizeof(*err));
    out[0] = '\0';
    ck_assert_int_eq(plim_plan_diff(a, strlen(a), b, strlen(b), out, sizeof(out), &need, err),
                     status);
    return out;
}

// A plan as the library writes it.
static const char *plan_text(struct plm_buf *buf, int64_t total)
{
    const struct plm_report_head head = {
        .model = "m.gguf", .device_id = "cuda", .device_name = "a"};
    const struct plm_plan_input in = {
        .g = 1 << 21,
        .T = total,
        .F = total,
        .process_use = PLM_PLAN_UNKNOWN,
        .memory_fraction = 1,
        .limits = {.batch_max_tokens = 512, .max_sequences = 8, .max_context = 4096},
        .block_bytes = 1 << 20,
        .prefix_cache_blocks = PLM_PLAN_UNKNOWN};
    struct plm_plan plan;
    ck_assert_int_eq(plm_plan_compute(&in, &plan, NULL), PLM_OK);
    plm_report_plan_json(buf, &head, &plan, NULL);
    return buf->data;
}

START_TEST(diff_of_plans)
{
    struct plm_host *host = plm_host_create(0);
    struct plm_buf a, b;
    plim_error err = PLIM_INIT(plim_error);
    plm_buf_init(&a, host, PLM_HOST_OTHER);
    plm_buf_init(&b, host, PLM_HOST_OTHER);
    plan_text(&a, INT64_C(1) << 30);
    plan_text(&b, (INT64_C(1) << 30) - (INT64_C(64) << 20));
    ck_assert_str_eq(diff(a.data, a.data, PLIM_OK, &err), "no difference\n");
    const char *out = diff(a.data, b.data, PLIM_OK, &err);
    ck_assert_ptr_nonnull(strstr(out, "plan.T                           1024.0 MiB (1073741824) -> "
                                      "960.0 MiB (1006632960)  -64.0 MiB (-67108864)\n"));
    ck_assert_ptr_nonnull(strstr(out, "plan.blocks                      992 -> 928  -64\n"));
    ck_assert_ptr_null(strstr(out, "plan.margin ")); // the same in both
    ck_assert_ptr_null(strstr(out, "model"));
    plm_buf_finish(&a);
    plm_buf_finish(&b);
    plm_host_destroy(host);
}
END_TEST

START_TEST(diff_of_fields_in_one_text)
{
    plim_error err = PLIM_INIT(plim_error);
    const char *out =
        diff("{\"object\":\"plan\",\"plan\":{\"line\":1048576,\"old\":\"x\",\"t_ns\":1}}",
             "{\"plan\":{\"line\":null,\"new\":[1]},\"object\":\"plan\",\"x\":{\"ns\":2}}", PLIM_OK,
             &err);
    ck_assert_str_eq(out, "plan.line                        1.0 MiB (1048576) -> null\n"
                          "plan.old                         \"x\" -> (not there)\n"
                          "plan.new[0]                      (not there) -> 1\n");
}
END_TEST

START_TEST(small_changes_are_bytes)
{
    plim_error err = PLIM_INIT(plim_error);
    ck_assert_str_eq(diff("{\"object\":\"plan\",\"plan\":{\"line\":2097152}}",
                          "{\"object\":\"plan\",\"plan\":{\"line\":2097140}}", PLIM_OK, &err),
                     "plan.line                        2.0 MiB (2097152) -> 2.0 MiB (2097140)  "
                     "-12 bytes\n");
}
END_TEST

START_TEST(diff_says_what_is_wrong)
{
    plim_error err = PLIM_INIT(plim_error);
    const char *plan = "{\"object\":\"plan\"}", *certificate = "{\"object\":\"certificate\"}";
    diff("{", plan, PLIM_ERR_FORMAT, &err);
    ck_assert_ptr_nonnull(strstr(err.message, "the first text: JSON at byte 1"));
    diff(plan, "[1]", PLIM_ERR_FORMAT, &err);
    ck_assert_ptr_nonnull(strstr(err.message, "the second text is no plan and no certificate"));
    diff(plan, certificate, PLIM_ERR_FORMAT, &err);
    ck_assert_ptr_nonnull(strstr(err.message, "a plan can not be compared with a certificate"));
    diff(certificate, "{\"object\":\"certificate\",\"a\":{\"b\":1},\"a.b\":2}", PLIM_ERR_FORMAT,
         &err);
    ck_assert_ptr_nonnull(strstr(err.message, "the second text has a.b twice"));
    ck_assert_str_eq(diff(certificate, certificate, PLIM_OK, &err), "no difference\n");
    ck_assert_int_eq(plim_plan_diff(NULL, 0, plan, 4, NULL, 0, NULL, &err), PLIM_ERR_INVALID);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("plan_diff");
    TCase *tc = tcase_create("plan_diff");
    suite_add_tcase(suite, tc);
    tcase_add_loop_test(tc, json_names_every_leaf, 0, sizeof(good) / sizeof(good[0]));
    tcase_add_loop_test(tc, json_names_the_byte_that_is_wrong, 0, sizeof(bad) / sizeof(bad[0]));
    tcase_add_test(tc, json_is_bounded);
    tcase_add_test(tc, diff_of_plans);
    tcase_add_test(tc, diff_of_fields_in_one_text);
    tcase_add_test(tc, small_changes_are_bytes);
    tcase_add_test(tc, diff_says_what_is_wrong);
    return suite_run(suite);
}
