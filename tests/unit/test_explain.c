// SPDX-License-Identifier: Apache-2.0
// What is said of a decode step without a device: against the figures that a Llama layer promises,
// against sizes that are known otherwise, and against what an engine really appends.
#include <check.h>
#include <json-c/json.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/cpu/cpu.h"
#include "core/engine/engine.h"
#include "core/engine/opts.h"
#include "core/model/explain.h"
#include "core/plan/dry.h"
#include "tests/support/gguf_shapes.h"
#include "tests/support/suite.h"

#define H100_READS 3.197e12 // bytes per second

// ---- reading an explanation ----

static json_object *explain(const char *model, const char *device, uint32_t ctx)
{
    plim_engine_opts opts;
    plim_error err = PLIM_INIT(plim_error);
    size_t need = 0;
    plim_engine_opts_init(&opts);
    opts.model_path = model;
    opts.device = device;
    opts.ctx_size = ctx;
    int r = plim_explain(&opts, H100_READS, true, NULL, 0, &need, &err);
    if (r != PLIM_ERR_LIMIT)
        ck_abort_msg("explain: %d %s", r, err.message);
    char *text = malloc(need + 1);
    ck_assert_int_eq(plim_explain(&opts, H100_READS, true, text, need + 1, &need, &err), PLIM_OK);
    json_object *object = json_tokener_parse(text);
    ck_assert_ptr_nonnull(object);
    free(text);
    return object;
}

static json_object *member(json_object *object, const char *name)
{
    json_object *value;
    if (!json_object_object_get_ex(object, name, &value))
        ck_abort_msg("there is no %s", name);
    return value;
}

static int64_t number(json_object *object, const char *name)
{
    return json_object_get_int64(member(object, name));
}

// ---- headers of real shapes ----

static char path[] = "/tmp/explain.XXXXXX";

static void save_shape(enum gguf_mix mix)
{
    strcpy(path + strlen(path) - 6, "XXXXXX");
    const int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    close(fd);
    ck_assert_str_eq(gguf_shapes[0].name, "llama-3.1-8b");
    ck_assert(gguf_shape_save(&gguf_shapes[0], mix, path));
}

// Layers 0 to 31 of the object; fewest and most dispatches.
static void layer_range(json_object *object, int64_t *ret_least, int64_t *ret_most)
{
    json_object *parts = member(object, "parts");
    ck_assert_uint_eq(json_object_array_length(parts), 34);
    *ret_least = INT64_MAX;
    *ret_most = 0;
    for (size_t i = 1; i <= 32; i++) {
        char name[32];
        json_object *part = json_object_array_get_idx(parts, i);
        snprintf(name, sizeof(name), "layer %zu", i - 1);
        ck_assert_str_eq(json_object_get_string(member(part, "part")), name);
        const int64_t n = number(part, "dispatches");
        *ret_least = n < *ret_least ? n : *ret_least;
        *ret_most = n > *ret_most ? n : *ret_most;
    }
}

static const char *const gpus[] = {"vulkan", "cuda", "hip"};
enum { GPUS = sizeof(gpus) / sizeof(gpus[0]) };

// norm, q and k and v, attention in two, output, norm, gate and up, down.
START_TEST(a_layer_of_one_type_takes_eight_dispatches)
{
    static const enum gguf_mix mixes[] = {GGUF_MIX_Q4_K, GGUF_MIX_Q8_0, GGUF_MIX_BF16};
    int64_t least, most;
    save_shape(mixes[_i / GPUS]);
    json_object *object = explain(path, gpus[_i % GPUS], 1024);
    layer_range(object, &least, &most);
    ck_assert_int_le(most, 8);
    ck_assert_int_eq(least, most);
    // Each needs what the one before wrote, and no more than that.
    json_object *layer = json_object_array_get_idx(member(object, "parts"), 2);
    ck_assert_int_eq(number(layer, "barriers"), number(layer, "dispatches"));
    json_object_put(object);
    unlink(path);
}
END_TEST

START_TEST(a_layer_of_mixed_types_takes_at_most_ten)
{
    int64_t least, most;
    save_shape(GGUF_MIX_Q4_K_M);
    json_object *object = explain(path, gpus[_i], 1024);
    layer_range(object, &least, &most);
    ck_assert_int_le(least, 8);
    ck_assert_int_gt(most, least); // where attn_v has more bits
    ck_assert_int_le(most, 10);
    json_object_put(object);
    unlink(path);
}
END_TEST

// A step reads every weight once, but for the embedding, of which it reads a row; and K and V of
// the context, in blocks.
START_TEST(a_step_reads_the_model_and_the_cache)
{
    enum { CTX = 1000, BLOCKS = 63, LAYERS = 32, KV_ROW = 2 * 8 * 128 * 2 };
    const uint64_t embedding = 128256ull * 4096 / 32 * 34, vectors = (65ull * 4096 + 128) * 4;
    const uint64_t layer = (2ull * 4096 * 4096 + 2ull * 4096 * 1024 + 3ull * 4096 * 14336);
    const uint64_t matrices = LAYERS * layer / 32 * 34 + embedding; // with a head of that size
    save_shape(GGUF_MIX_Q8_0);
    json_object *object = explain(path, "vulkan", CTX), *step = member(object, "step");
    ck_assert_int_eq(number(step, "weight_bytes"),
                     (int64_t)(matrices + vectors + embedding / 128256));
    ck_assert_int_eq(number(step, "kv_bytes"), (int64_t)BLOCKS * 16 * LAYERS * KV_ROW);
    const int64_t all = number(step, "bytes");
    ck_assert_int_eq(all, number(step, "weight_bytes") + number(step, "kv_bytes") +
                              number(step, "activation_bytes"));
    ck_assert(fabs(json_object_get_double(member(step, "seconds")) - (double)all / H100_READS) <
              1e-9);
    json_object_put(object);
    unlink(path);
}
END_TEST

// Parts and ops are two cuts through the same step.
START_TEST(parts_and_ops_add_up)
{
    static const char *const fields[] = {"dispatches", "weight_bytes", "kv_bytes",
                                         "activation_bytes"};
    json_object *object = explain(TEST_MODELS "/llama-k256-q4_k_m.gguf", "vulkan", 100);
    json_object *step = member(object, "step");
    int64_t barriers = 0;
    for (size_t f = 0; f < 4; f++) {
        int64_t by_part = 0, by_op = 0;
        json_object *parts = member(object, "parts"), *ops = member(object, "ops");
        for (size_t i = 0; i < json_object_array_length(parts); i++)
            by_part += number(json_object_array_get_idx(parts, i), fields[f]);
        for (size_t i = 0; i < json_object_array_length(ops); i++)
            by_op += number(json_object_array_get_idx(ops, i), fields[f]);
        ck_assert_int_eq(by_part, number(step, fields[f]));
        ck_assert_int_eq(by_op, number(step, fields[f]));
        for (size_t i = 0; f == 0 && i < json_object_array_length(parts); i++)
            barriers += number(json_object_array_get_idx(parts, i), "barriers");
    }
    ck_assert_int_eq(barriers, number(step, "barriers"));
    json_object_put(object);
}
END_TEST

// ---- what one op reads ----

static int sixteen_bytes(const void *ctx, enum plm_type type, uint32_t n_in, uint32_t n_out,
                         struct plm_weight_layout *ret)
{
    (void)ctx, (void)n_in;
    if (type != PLM_TYPE_Q8_0)
        return PLM_ERR_UNSUPPORTED;
    *ret = (struct plm_weight_layout){.bytes = 16ull * n_out};
    return PLM_OK;
}

static struct plm_reads reads_of(enum plm_op op, const void *args, uint32_t context)
{
    struct plm_reads reads;
    ck_assert_int_eq(plm_op_reads(op, args, context, sixteen_bytes, NULL, &reads), PLM_OK);
    return reads;
}

static void reads_are(struct plm_reads got, uint64_t weights, uint64_t kv, uint64_t acts)
{
    ck_assert_uint_eq(got.weight_bytes, weights);
    ck_assert_uint_eq(got.kv_bytes, kv);
    ck_assert_uint_eq(got.act_bytes, acts);
}

// 64 inputs in 8 bits are two records of 44 bytes in a row of 128.
START_TEST(products_read_weights_and_rows)
{
    struct plm_matmul_args a = {.weight = 1,
                                .x = 1,
                                .dst = 1,
                                .type = PLM_TYPE_Q8_0,
                                .act = PLM_ACT_Q8,
                                .rows = 3,
                                .n_in = 64,
                                .n_out = 10};
    reads_are(reads_of(PLM_OP_MATMUL, &a, 1), 160, 0, 3 * 128);
    a.bias = 1;
    a.add = 1;
    reads_are(reads_of(PLM_OP_MATMUL, &a, 1), 160 + 40, 0, 3 * 128 + 3 * 40);
    a.type = PLM_TYPE_Q6_K;
    struct plm_reads reads;
    ck_assert_int_eq(plm_op_reads(PLM_OP_MATMUL, &a, 1, sixteen_bytes, NULL, &reads),
                     PLM_ERR_UNSUPPORTED);
    const struct plm_glu_args glu = {.weight_gate = 1,
                                     .weight_up = 2,
                                     .x = 1,
                                     .type = PLM_TYPE_Q8_0,
                                     .act = PLM_ACT_F32,
                                     .rows = 1,
                                     .n_in = 64,
                                     .n_out = 32};
    reads_are(reads_of(PLM_OP_GLU, &glu, 1), 2 * 512, 0, 256);
}
END_TEST

// Two query heads and one of the cache, 8 elements each, 4 of them rotated.
START_TEST(a_part_of_qkv_reads_its_own)
{
    struct plm_qkv_args a = {.weight_q = 1,
                             .weight_k = 2,
                             .weight_v = 3,
                             .bias_v = 4,
                             .x = 1,
                             .q = 1,
                             .table = 1,
                             .slots = 1,
                             .pos = 1,
                             .rows = 1,
                             .n_in = 64,
                             .heads = PLM_PAIR(2u, 1u),
                             .head_dim = PLM_PAIR(8u, 4u),
                             .kinds =
                                 PLM_KINDS(PLM_TYPE_Q8_0, PLM_ACT_Q8, PLM_ROPE_NORM, PLM_TYPE_F16)};
    reads_are(reads_of(PLM_OP_QKV, &a, 1), 16 * (16 + 8 + 8) + 4 * 8, 0, 128 + 4 * 4 + 12);
    a.weight_q = a.weight_k = 0;
    reads_are(reads_of(PLM_OP_QKV, &a, 1), 16 * 8 + 4 * 8, 0, 128 + 12);
    a.weight_q = 1;
    a.weight_v = a.bias_v = 0;
    reads_are(reads_of(PLM_OP_QKV, &a, 1), 16 * 16, 0, 128 + 4 * 4);
}
END_TEST

// 257 tokens: 17 blocks of 2 * 2 * 16 * 8 * 2 bytes, 2 splits.
START_TEST(attention_reads_whole_blocks)
{
    const struct plm_attention_args whole = {.q = 1,
                                             .dst = 1,
                                             .pos = 1,
                                             .seq = 1,
                                             .tables = 1,
                                             .rows = 1,
                                             .heads = 4,
                                             .kv_heads = 2,
                                             .head_dim = 8,
                                             .kv_type = PLM_TYPE_F16};
    const struct plm_attention_split_args split = {.q = 1,
                                                   .partial = 1,
                                                   .pos = 1,
                                                   .seq = 1,
                                                   .tables = 1,
                                                   .rows = 1,
                                                   .heads = 4,
                                                   .kv_heads = 2,
                                                   .head_dim = 8,
                                                   .kv_type = PLM_TYPE_F16,
                                                   .splits = 9};
    const struct plm_attention_merge_args merge = {
        .partial = 1, .pos = 1, .dst_f32 = 1, .rows = 1, .heads = 4, .head_dim = 8, .splits = 2};
    reads_are(reads_of(PLM_OP_ATTENTION, &whole, 257), 0, 17 * 1024, 128 + 8 + 17 * 8);
    reads_are(reads_of(PLM_OP_ATTENTION_SPLIT, &split, 257), 0, 17 * 1024, 128 + 8 + 17 * 8);
    reads_are(reads_of(PLM_OP_ATTENTION_MERGE, &merge, 257), 0, 0, 4 * 2 * 10 * 4 + 4);
}
END_TEST

// ---- what an engine appends ----

// The CPU, as a device that prefers what the explained one prefers; counts.
static struct {
    struct plm_caps caps;
    uint64_t dispatches, barriers;
} seen;

static int seen_open(const struct plm_device_opts *opts, struct plm_backend_device **ret,
                     struct plm_error *err)
{
    const struct plm_caps *kind = &plm_dry_kind("vulkan")->caps;
    const int r = plm_cpu_backend.open(opts, ret, err);
    if (r != PLM_OK)
        return r;
    seen.caps = *plm_cpu_backend.caps(*ret);
    seen.caps.prefers = kind->prefers;
    seen.caps.few_rows = kind->few_rows;
    return PLM_OK;
}

static const struct plm_caps *seen_caps(const struct plm_backend_device *dev)
{
    (void)dev;
    return &seen.caps;
}

static int seen_launch(struct plm_backend_device *dev, enum plm_op op, uint32_t units,
                       const void *args, size_t args_bytes)
{
    seen.dispatches++;
    return plm_cpu_backend.launch(dev, op, units, args, args_bytes);
}

static int seen_barrier(struct plm_backend_device *dev)
{
    seen.barriers++;
    return plm_cpu_backend.barrier(dev);
}

static plim_engine *start(const char *model)
{
    static struct plm_backend backend;
    plim_engine_opts opts, read;
    plim_engine *engine = NULL;
    plim_error err = PLIM_INIT(plim_error);
    backend = plm_cpu_backend;
    backend.open = seen_open;
    backend.caps = seen_caps;
    backend.launch = seen_launch;
    backend.barrier = seen_barrier;
    plim_engine_opts_init(&opts);
    opts.model_path = model;
    opts.threads = 1;
    opts.ctx_size = 512;
    opts.batch_max_tokens = 64;
    opts.max_sequences = 1;
    opts.max_total_tokens = 1024;
    opts.manual_step = 1;
    opts.monitor_ms = 0;
    opts.autotune = 0;
    ck_assert_int_eq(plm_opts_read(&opts, &read, NULL), PLIM_OK);
    const struct plm_engine_env env = {.host = plm_host_create(0), .backend = &backend, .seed = 1};
    const int r = plm_engine_create_in(&env, &read, &engine, &err);
    if (r != PLIM_OK)
        ck_abort_msg("create: %d %s", r, err.message);
    return engine;
}

static const char *const real_models[] = {
    TEST_MODELS "/llama-rope3-q8_0.gguf",   TEST_MODELS "/llama-k256-q4_k_m.gguf",
    TEST_MODELS "/llama-tied-bf16.gguf",    TEST_MODELS "/qwen2-untied-q4_1.gguf",
    TEST_MODELS "/mistral-window-f32.gguf", TEST_MODELS "/phi3-longrope-q8_0.gguf",
    TEST_MODELS "/qwen3-tied-q8_0.gguf",    TEST_MODELS "/gemma3-q8_0.gguf"};

START_TEST(a_real_decode_step_appends_what_is_explained)
{
    json_object *object = explain(real_models[_i], "vulkan", 300);
    json_object *step = member(object, "step");
    plim_engine *engine = start(real_models[_i]);
    plim_request *request = NULL;
    plim_request_opts ask;
    const int32_t tokens[5] = {1, 2, 3, 4, 5};
    plim_request_opts_init(&ask);
    ask.tokens = tokens;
    ask.n_tokens = 5;
    ask.max_tokens = 6;
    ask.ignore_eos = 1;
    ask.temperature = 0;
    ck_assert_int_eq(plim_request_submit(engine, &ask, &request, NULL), PLIM_OK);
    ck_assert_int_eq(plim_engine_step(engine, NULL), PLIM_OK); // the prompt
    for (int i = 0; i < 3; i++) {
        seen.dispatches = seen.barriers = 0;
        ck_assert_int_eq(plim_engine_step(engine, NULL), PLIM_OK);
        ck_assert_int_eq((int64_t)seen.dispatches, number(step, "dispatches"));
        ck_assert_int_eq((int64_t)seen.barriers, number(step, "barriers"));
    }
    plim_request_free(request);
    plim_engine_free(engine);
    json_object_put(object);
}
END_TEST

// ---- what can not be explained ----

static void refuses(const plim_engine_opts *opts, double rate, int status, const char *says)
{
    plim_error err = PLIM_INIT(plim_error);
    size_t need = 0;
    ck_assert_int_eq(plim_explain(opts, rate, false, NULL, 0, &need, &err), status);
    ck_assert_msg(strstr(err.message, says) != NULL, "\"%s\" lacks \"%s\"", err.message, says);
}

START_TEST(wrong_questions_are_refused)
{
    plim_engine_opts opts;
    plim_engine_opts_init(&opts);
    opts.model_path = TEST_MODELS "/llama-tied-q4_0.gguf";
    opts.device = "abacus";
    refuses(&opts, H100_READS, PLIM_ERR_INVALID, "abacus");
    opts.device = "vulkan";
    refuses(&opts, 0, PLIM_ERR_INVALID, "bytes a second");
    refuses(&opts, NAN, PLIM_ERR_INVALID, "bytes a second");
    opts.ctx_size = 1u << 30;
    refuses(&opts, H100_READS, PLIM_ERR_INVALID, "was trained for");
    opts.ctx_size = 0;
    opts.model_path = TEST_MODELS "/README.md";
    refuses(&opts, H100_READS, PLIM_ERR_FORMAT, "");
    opts.model_path = "/nonexistent";
    refuses(&opts, H100_READS, PLIM_ERR_NOT_FOUND, "");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("explain");
    TCase *tc = tcase_create("explain");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, a_layer_of_one_type_takes_eight_dispatches, 0, 3 * GPUS);
    tcase_add_loop_test(tc, a_layer_of_mixed_types_takes_at_most_ten, 0, GPUS);
    tcase_add_test(tc, a_step_reads_the_model_and_the_cache);
    tcase_add_test(tc, parts_and_ops_add_up);
    tcase_add_test(tc, products_read_weights_and_rows);
    tcase_add_test(tc, a_part_of_qkv_reads_its_own);
    tcase_add_test(tc, attention_reads_whole_blocks);
    tcase_add_loop_test(tc, a_real_decode_step_appends_what_is_explained, 0,
                        sizeof(real_models) / sizeof(real_models[0]));
    tcase_add_test(tc, wrong_questions_are_refused);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
