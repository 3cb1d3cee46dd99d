// SPDX-License-Identifier: Apache-2.0
// Limits that contradict each other: one message names both fields with their values, before
// anything is loaded.
#include <check.h>
#include <string.h>

#include "core/engine/opts.h"
#include "tests/support/suite.h"

#define MIB (UINT64_C(1) << 20)

static plim_engine_opts plain(void)
{
    plim_engine_opts o;
    plim_engine_opts_init(&o);
    o.model_path = TEST_MODELS "/llama-tied-q4_0.gguf";
    o.manual_step = 1;
    return o;
}

static void contradict(const plim_engine_opts *o, const char *param, const char *const words[4])
{
    plim_engine *engine;
    plim_error err = PLIM_INIT(plim_error);
    int r = plim_engine_create(o, &engine, &err);
    ck_assert_msg(r == PLIM_ERR_INVALID, "%s: %d %s", words[0], r, err.message);
    if (param != NULL)
        ck_assert_str_eq(err.param, param);
    for (int i = 0; i < 4; i++)
        ck_assert_msg(strstr(err.message, words[i]) != NULL, "no %s: %s", words[i], err.message);
}

START_TEST(both_are_named_with_their_values)
{
    plim_engine_opts o = plain();
    o.batch_max_tokens = 4;
    o.max_sequences = 5;
    contradict(&o, "batch_max_tokens",
               (const char *const[]){"batch_max_tokens", "4", "max_sequences", "5"});
    o = plain();
    o.ctx_size = 256;
    o.max_total_tokens = 128;
    contradict(&o, "ctx_size", (const char *const[]){"ctx_size", "256", "max_total_tokens", "128"});
    o = plain();
    o.memory_limit_bytes = 300 * MIB;
    o.kv_min_bytes = 300 * MIB + 1;
    contradict(
        &o, "kv_min_bytes",
        (const char *const[]){"kv_min_bytes", "314572801", "memory_limit_bytes", "314572800"});
    o = plain();
    o.kv_min_bytes = 77;
    o.neighbours = PLIM_NEIGHBOURS_HOLD;
    contradict(&o, "kv_min_bytes",
               (const char *const[]){"kv_min_bytes", "77", "neighbours", "hold"});
    o = plain();
    o.neighbours = PLIM_NEIGHBOURS_YIELD;
    o.monitor_ms = 0;
    contradict(&o, "monitor_ms", (const char *const[]){"monitor_ms", "0", "neighbours", "yield"});
    o = plain();
    o.kv_type = PLIM_KV_Q8_0;
    o.kv_f32 = 1;
    contradict(&o, "kv_type", (const char *const[]){"kv_type", "1", "kv_f32", "float32"});
    // Those that need the device and the model.
    o = plain();
    o.memory_limit_bytes = 300 * MIB;
    o.host_limit_bytes = 400 * MIB;
    contradict(
        &o, NULL,
        (const char *const[]){"host_limit_bytes", "419430400", "memory_limit_bytes", "314572800"});
    o.host_limit_bytes = 0;
    o.host_caller_bytes = 320 * MIB;
    contradict(
        &o, NULL,
        (const char *const[]){"host_caller_bytes", "335544320", "memory_limit_bytes", "314572800"});
    o = plain();
    o.max_total_tokens = 512;
    o.kv_min_bytes = MIB;
    contradict(&o, NULL,
               (const char *const[]){"kv_min_bytes", "1048576", "max_total_tokens", "512"});
}
END_TEST

// Blocks of 4096 bytes.
static const struct plm_kv_group whole = {
    .n_layers = 1, .kv_heads = 1, .head_dim = 64, .type = PLM_TYPE_F16};

START_TEST(the_edge_of_each_is_no_contradiction)
{
    plim_engine_opts o = plain(), read;
    struct plm_error err;
    o.batch_max_tokens = o.max_sequences = 8;
    o.ctx_size = o.max_total_tokens = 256;
    o.memory_limit_bytes = o.kv_min_bytes = 300 * MIB;
    o.neighbours = PLIM_NEIGHBOURS_YIELD;
    o.monitor_ms = 1;
    ck_assert_int_eq(plm_opts_read(&o, &read, NULL), PLIM_OK);
    o.host_limit_bytes = 300 * MIB - 1;
    o.kv_min_bytes = 16 * 4096;
    ck_assert_int_eq(plm_opts_check(&o, true, &whole, &err), PLM_OK); // 16 blocks, and 16 pinned
    o.kv_min_bytes = 17 * 4096;
    ck_assert_int_eq(plm_opts_check(&o, true, &whole, &err), PLM_ERR_INVALID);
    o.kv_min_bytes = 0;
    o.host_limit_bytes = 300 * MIB;
    ck_assert_int_eq(plm_opts_check(&o, true, &whole, &err), PLM_ERR_INVALID);
    ck_assert_int_eq(plm_opts_check(&o, false, &whole, &err), PLM_OK); // host memory is apart
    o.host_limit_bytes = 200 * MIB - 1;
    o.host_caller_bytes = 100 * MIB;
    ck_assert_int_eq(plm_opts_check(&o, true, &whole, &err), PLM_OK);
    o.host_caller_bytes++;
    ck_assert_int_eq(plm_opts_check(&o, true, &whole, &err), PLM_ERR_INVALID); // together
}
END_TEST

START_TEST(a_type_of_kv_without_kernels_is_refused)
{
    const struct plm_caps floats = {.kv_types = PLM_KV_TYPES_FLOAT};
    const struct plm_caps all = {.kv_types = PLM_KV_TYPES_ALL};
    plim_engine_opts o = plain(), read;
    plim_error said = PLIM_INIT(plim_error);
    struct plm_error err = {0};
    ck_assert_int_eq(plm_opts_kv_type(&o), PLM_TYPE_F16);
    ck_assert_int_eq(plm_opts_check_kv_type(&o, &floats, "card:0", &err), PLM_OK);
    o.kv_type = PLIM_KV_Q8_0;
    ck_assert_int_eq(plm_opts_kv_type(&o), PLM_TYPE_Q8_0);
    ck_assert_int_eq(plm_opts_check_kv_type(&o, &all, "card:0", &err), PLM_OK);
    ck_assert_int_eq(plm_opts_check_kv_type(&o, &floats, "card:0", &err), PLM_ERR_UNSUPPORTED);
    ck_assert_str_eq(err.param, "kv_type");
    ck_assert_ptr_nonnull(strstr(err.msg, "kv_type is q8_0, but card:0 has no kernels"));
    o.kv_type = PLIM_KV_F16;
    o.kv_f32 = 1;
    ck_assert_int_eq(plm_opts_kv_type(&o), PLM_TYPE_F32);
    ck_assert_int_eq(plm_opts_check_kv_type(&o, &floats, "card:0", &err), PLM_OK);
    o = plain();
    o.kv_type = PLIM_KV_Q8_0 + 1;
    ck_assert_int_eq(plm_opts_read(&o, &read, &said), PLIM_ERR_INVALID);
    ck_assert_str_eq(said.param, "kv_type");
}
END_TEST

// A window of 33 tokens: a request has 4 blocks of it and one for a step of 16 rows, however long
// it gets.
START_TEST(a_pinned_window_holds_a_long_context)
{
    struct plm_kv_group window = whole;
    plim_engine_opts o = plain();
    struct plm_error err = {0};
    window.window = 33;
    o.batch_max_tokens = 16;
    o.max_sequences = 2;
    o.ctx_size = 1024;
    o.max_total_tokens = 6 * 16;
    const int64_t least = plm_kv_windows_need(1, plm_kv_sequence_blocks(33, 1024), 16);
    ck_assert_int_eq(plm_opts_check(&o, true, &whole, &err), PLM_ERR_INVALID);
    ck_assert_str_eq(err.param, "ctx_size");
    ck_assert_ptr_nonnull(strstr(err.msg, "needs 1024"));
    o.max_total_tokens = (uint64_t)least * 16;
    ck_assert_int_eq(plm_opts_check(&o, true, &window, &err), PLM_OK);
    o.max_total_tokens -= 16;
    ck_assert_int_eq(plm_opts_check(&o, true, &window, &err), PLM_ERR_INVALID);
    ck_assert_ptr_nonnull(strstr(err.msg, "needs 80"));
    // And it serves.
    plim_engine *engine;
    plim_error said = PLIM_INIT(plim_error);
    o.model_path = TEST_MODELS "/mistral-window-f32.gguf";
    o.max_total_tokens = 8 * 16;
    ck_assert_msg(plim_engine_create(&o, &engine, &said) == PLIM_OK, "%s", said.message);
    plim_engine_free(engine);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("limits");
    TCase *tc = tcase_create("all");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, both_are_named_with_their_values);
    tcase_add_test(tc, the_edge_of_each_is_no_contradiction);
    tcase_add_test(tc, a_pinned_window_holds_a_long_context);
    tcase_add_test(tc, a_type_of_kv_without_kernels_is_refused);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
