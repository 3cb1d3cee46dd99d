// SPDX-License-Identifier: Apache-2.0
// Autotune: what it may never hold or move, what it chooses, and what a later start takes over.
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/sim/sim.h"
#include "core/engine/engine.h"
#include "core/engine/forward.h"
#include "core/engine/load.h"
#include "core/engine/opts.h"
#include "core/engine/stress.h"
#include "core/plan/tuning.h"
#include "tests/support/gguf_shapes.h"
#include "tests/support/suite.h"

#define MIB (UINT64_C(1) << 20)
#define MS  INT64_C(1000000)

// A small model whose vocabulary is far wider than its rows, as of a real one.
static const struct gguf_shape shape = {.name = "tuned",
                                        .arch = "llama",
                                        .pre = "llama-bpe",
                                        .n_layer = 4,
                                        .n_embd = 256,
                                        .n_head = 4,
                                        .n_head_kv = 2,
                                        .n_ff = 512,
                                        .n_vocab = 16384,
                                        .n_ctx = 1024,
                                        .rope_base = 10000.0f};
static char path[] = "/tmp/tune.XXXXXX";

static void write_model(void)
{
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    close(fd);
    ck_assert(gguf_shape_save(&shape, GGUF_MIX_F16, path));
}

static void remove_model(void)
{
    unlink(path);
}

// ---- a watched device ----

// What was seen in the phase of tuning.
static struct {
    enum plm_phase phase;
    uint32_t launches, submits, head_launches, head_rows_max;
    uint64_t largest_slab;
} seen;

static void watch_mark(struct plm_backend_device *dev, enum plm_phase phase, uint64_t step)
{
    seen.phase = phase;
    plm_sim_backend.mark(dev, phase, step);
}

static int watch_alloc(struct plm_backend_device *dev, enum plm_slab_kind kind, uint64_t bytes,
                       void *import_ptr, struct plm_slab *ret)
{
    if (seen.phase == PLM_PHASE_TUNE && bytes > seen.largest_slab)
        seen.largest_slab = bytes;
    return plm_sim_backend.alloc(dev, kind, bytes, import_ptr, ret);
}

static int watch_launch(struct plm_backend_device *dev, enum plm_op op, uint32_t units,
                        const void *args, size_t args_bytes)
{
    const struct plm_matmul_args *a = args;
    seen.launches += seen.phase == PLM_PHASE_TUNE;
    if (seen.phase == PLM_PHASE_TUNE && op == PLM_OP_MATMUL && a->n_out == shape.n_vocab) {
        seen.head_launches++;
        seen.head_rows_max = a->rows > seen.head_rows_max ? a->rows : seen.head_rows_max;
    }
    return plm_sim_backend.launch(dev, op, units, args, args_bytes);
}

static int watch_submit(struct plm_backend_device *dev, uint64_t *ret_value)
{
    seen.submits += seen.phase == PLM_PHASE_TUNE;
    return plm_sim_backend.submit(dev, ret_value);
}

struct rig {
    struct plm_sim_clock time;
    struct plm_clock clock;
    struct plm_sim_world world;
    struct plm_sim_opts script;
    struct plm_backend backend;
    struct plm_engine_env env;
    plim_engine_opts opts;
    char log[4096];
};

static void take_log(void *ctx, int level, const char *line)
{
    struct rig *rig = ctx;
    const size_t n = strlen(rig->log);
    (void)level;
    snprintf(rig->log + n, sizeof(rig->log) - n, "%s\n", line);
}

static void rig_init(struct rig *rig)
{
    memset(rig, 0, sizeof(*rig));
    memset(&seen, 0, sizeof(seen));
    plm_sim_clock_init(&rig->time);
    rig->clock = plm_sim_clock_source(&rig->time);
    rig->script = (struct plm_sim_opts){.world = &rig->world,
                                        .capacity_bytes = 1024 * MIB,
                                        .granularity_bytes = 64 << 10,
                                        .dispatch_ns = 1000,
                                        .n_variants = 3,
                                        .variant_ns = {3000, 1000, 2000}};
    rig->backend = plm_sim_backend;
    rig->backend.mark = watch_mark;
    rig->backend.alloc = watch_alloc;
    rig->backend.launch = watch_launch;
    rig->backend.submit = watch_submit;
    rig->env = (struct plm_engine_env){.host = plm_host_create(0),
                                       .clock = &rig->clock,
                                       .backend = &rig->backend,
                                       .backend_opts = &rig->script,
                                       .seed = 1};
    plim_engine_opts o;
    plim_engine_opts_init(&o);
    o.model_path = path;
    o.batch_max_tokens = 512;
    o.max_sequences = 4;
    o.manual_step = 1;
    o.monitor_ms = 0;
    o.log = take_log;
    o.log_ctx = rig;
    ck_assert_int_eq(plm_opts_read(&o, &rig->opts, NULL), PLIM_OK);
}

static plim_engine *start(struct rig *rig)
{
    plim_engine *engine = NULL;
    plim_error err = PLIM_INIT(plim_error);
    if (plm_engine_create_in(&rig->env, &rig->opts, &engine, &err) != PLIM_OK)
        ck_abort_msg("%s", err.message);
    return engine;
}

static char *tuning_text(const plim_engine *engine)
{
    size_t need = 0;
    plim_engine_tuning(engine, NULL, 0, &need);
    char *text = malloc(need + 1);
    ck_assert_int_eq(plim_engine_tuning(engine, text, need + 1, &need), PLIM_OK);
    return text;
}

static struct plm_tuning *tuning_of(const plim_engine *engine)
{
    char *text = tuning_text(engine);
    struct plm_tuning *t = malloc(sizeof(*t));
    struct plm_error err = {0};
    ck_assert_msg(plm_tuning_read(text, strlen(text), t, &err) == PLM_OK, "%s", err.msg);
    free(text);
    return t;
}

// ---- no rows x vocabulary ----

// Bytes of logits for the longest step: what no tuning may ever hold.
static uint64_t rows_by_vocabulary(const struct rig *rig)
{
    return 4ull * rig->opts.batch_max_tokens * shape.n_vocab;
}

// Whether what was seen, and what the ledger kept of the phase, is free of such a buffer.
static bool is_clean(const struct rig *rig, const plim_engine *engine)
{
    struct plm_ledger_stats ledger;
    plm_ledger_read(engine->core->rank.ledger, &ledger);
    const int64_t beside =
        ledger.phase_peak_bytes[PLM_PHASE_TUNE] - ledger.by_class[PLM_MEM_WEIGHTS].held_bytes;
    return seen.head_rows_max <= rig->opts.max_sequences &&
           seen.largest_slab < rows_by_vocabulary(rig) && beside < (int64_t)rows_by_vocabulary(rig);
}

START_TEST(tuning_never_holds_rows_by_vocabulary)
{
    struct rig rig;
    rig_init(&rig);
    plim_engine *engine = start(&rig);
    ck_assert_uint_gt(seen.launches, 100);
    ck_assert(is_clean(&rig, engine));
    // The head was tuned all the same: alone, at the rows of serving.
    ck_assert_uint_gt(seen.head_launches, 0);
    ck_assert_uint_eq(seen.head_rows_max, rig.opts.max_sequences);
    plim_engine_free(engine);
}
END_TEST

static int launch_it(void *ctx, enum plm_op op, const void *args)
{
    return op == PLM_OP_MATMUL ? plm_launch_matmul(ctx, args) : plm_launch_attention(ctx, args);
}

// The same watch over a tuning run that does what must not be: the head over all dummy rows.
START_TEST(the_watch_sees_a_head_over_all_rows)
{
    struct rig rig;
    struct plm_core *core;
    struct plm_stress_ops ops;
    struct plm_forward_out out;
    rig_init(&rig);
    rig.opts.autotune = 0;
    plim_engine *engine = start(&rig);
    core = engine->core;
    ck_assert(is_clean(&rig, engine));
    const struct plm_tuner tuner = {core->rank.device, launch_it};
    const uint32_t rows = rig.opts.batch_max_tokens;
    const struct plm_plan_limits limits = {
        .batch_max_tokens = rows, .max_sequences = rows, .max_context = 1024};
    const struct plm_stress_step step = {
        .shape = {.rows = rows, .seqs = 1, .logits_rows = rows, .ctx = 1024}};
    plm_device_seal(core->rank.device, false);
    plm_core_phase(core, PLM_PHASE_TUNE);
    plm_core_stress_ops(core, &ops);
    ck_assert_int_eq(ops.set_limits(core, &limits), PLM_OK);
    ck_assert_int_eq(plm_core_dummy_step(core, &step, PLM_FORWARD_TUNING, &tuner, &out, NULL),
                     PLM_OK);
    ck_assert(!is_clean(&rig, engine));
    ck_assert_uint_eq(seen.head_rows_max, rows);
    ck_assert_uint_ge(seen.largest_slab, rows_by_vocabulary(&rig));
    plim_engine_free(engine);
}
END_TEST

// ---- the two flags of a forward ----

struct offers {
    struct plm_device *device;
    uint32_t all, head;
};

static int count_offer(void *ctx, enum plm_op op, const void *args)
{
    struct offers *o = ctx;
    o->all++;
    o->head +=
        op == PLM_OP_MATMUL && ((const struct plm_matmul_args *)args)->n_out == shape.n_vocab;
    return launch_it(o->device, op, args);
}

START_TEST(tuning_and_the_head_are_two_flags)
{
    // Seven products and the attention of each layer; the last layer without logits ends early.
    static const struct {
        unsigned flags;
        uint32_t all, head;
    } want[] = {{0, 0, 0},
                {PLM_FORWARD_SKIP_HEAD, 0, 0},
                {PLM_FORWARD_TUNING, 4 * 8 + 1, 1},
                {PLM_FORWARD_TUNING | PLM_FORWARD_SKIP_HEAD, 4 * 8 - 3, 0}};
    struct rig rig;
    rig_init(&rig);
    rig.opts.autotune = 0;
    plim_engine *engine = start(&rig);
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        struct offers offers = {.device = engine->core->rank.device};
        const struct plm_tuner tuner = {&offers, count_offer};
        const struct plm_stress_step step = {
            .shape = {.rows = 8, .seqs = 1, .logits_rows = 1, .ctx = 64}};
        struct plm_forward_out out = {.logits = 1};
        ck_assert_int_eq(
            plm_core_dummy_step(engine->core, &step, want[i].flags, &tuner, &out, NULL), PLM_OK);
        ck_assert_uint_eq(offers.all, want[i].all);
        ck_assert_uint_eq(offers.head, want[i].head);
        ck_assert(((want[i].flags & PLM_FORWARD_SKIP_HEAD) == 0) == (out.logits != 0));
    }
    plim_engine_free(engine);
}
END_TEST

// ---- choices ----

START_TEST(the_fastest_variant_is_chosen)
{
    struct rig rig;
    rig_init(&rig);
    plim_engine *engine = start(&rig);
    struct plm_tuning *t = tuning_of(engine);
    // q and o, k and v, gate and up, down, head and attention; at one row, few, and many.
    ck_assert_uint_eq(t->n, 3 * 5 + 2);
    for (uint32_t i = 0; i < t->n; i++)
        ck_assert_str_eq(t->entries[i].variant, "b");
    free(t);
    plim_engine_free(engine);
}
END_TEST

static char *plan_of(struct rig *rig)
{
    plim_engine *engine = start(rig);
    size_t need = 0;
    plim_engine_plan_json(engine, NULL, 0, &need);
    char *text = malloc(need + 1);
    ck_assert_int_eq(plim_engine_plan_json(engine, text, need + 1, &need), PLIM_OK);
    plim_engine_free(engine);
    // The phases' peaks and the times of passes come behind the formula.
    char *end = strstr(text, "\"by_class\"");
    ck_assert_ptr_nonnull(end);
    *end = '\0';
    return text;
}

START_TEST(the_plan_does_not_move_with_what_is_chosen)
{
    static const int64_t times[3][3] = {{1000, 9000, 9000}, {9000, 1000, 9000}, {9000, 9000, 1000}};
    struct rig rig;
    rig_init(&rig);
    rig.opts.autotune = 0;
    char *untuned = plan_of(&rig);
    ck_assert_ptr_null(strstr(rig.log, "autotune"));
    for (int i = 0; i < 3; i++) {
        rig_init(&rig);
        memcpy(rig.script.variant_ns, times[i], sizeof(times[i]));
        char *tuned = plan_of(&rig);
        ck_assert_str_eq(tuned, untuned);
        ck_assert_ptr_nonnull(strstr(rig.log, "autotune: 17 ops, 17 of them timed"));
        ck_assert_ptr_null(strstr(rig.log, "the time ran out"));
        free(tuned);
    }
    free(untuned);
}
END_TEST

START_TEST(time_is_bounded)
{
    struct rig rig;
    rig_init(&rig);
    // Each run of a variant takes 20 ms: only the first ops are reached.
    for (int i = 0; i < 3; i++)
        rig.script.variant_ns[i] = 20 * MS;
    rig.opts.batch_max_tokens = 16;
    rig.opts.prefill_chunk = 16;
    plim_engine *engine = start(&rig);
    ck_assert_ptr_nonnull(strstr(rig.log, "autotune: 1 ops, 1 of them timed"));
    ck_assert_ptr_nonnull(strstr(rig.log, "the time ran out before others"));
    plim_engine_free(engine);
}
END_TEST

START_TEST(without_autotune_there_is_nothing)
{
    struct rig rig;
    rig_init(&rig);
    rig.opts.autotune = 0;
    plim_engine *engine = start(&rig);
    ck_assert_uint_eq(seen.launches, 0);
    char *text = tuning_text(engine);
    ck_assert_str_eq(text, "");
    free(text);
    plim_engine_free(engine);
}
END_TEST

// The device is opened again: what it runs is what was chosen.
START_TEST(choices_outlive_a_reopened_device)
{
    struct rig rig;
    struct plm_stress_ops ops;
    uint32_t blocks;
    int64_t failed, took[2];
    struct plm_forward_out out;
    rig_init(&rig);
    plim_engine *engine = start(&rig);
    struct plm_core *core = engine->core;
    const struct plm_stress_step step = {.shape = {.rows = 1, .seqs = 1, .ctx = 16}};
    plm_core_stress_ops(core, &ops);
    for (int i = 0; i < 2; i++) {
        const int64_t from = plm_now(core->clock);
        ck_assert_int_eq(plm_core_dummy_step(core, &step, PLM_FORWARD_SKIP_HEAD, NULL, &out, NULL),
                         PLM_OK);
        took[i] = plm_now(core->clock) - from;
        plm_device_seal(core->rank.device, false);
        ck_assert_int_eq(ops.kv_resize(core, 0, &blocks, &failed), PLM_OK);
        ck_assert_int_eq(plm_core_reopen(core, NULL), PLM_OK);
        ck_assert_int_eq(ops.set_limits(core, &core->profile.plan.in.limits), PLM_OK);
        ck_assert_int_eq(ops.kv_resize(core, 16, &blocks, &failed), PLM_OK);
    }
    ck_assert_int_gt(took[0], 0);
    ck_assert_int_eq(took[0], took[1]);
    plim_engine_free(engine);
}
END_TEST

// ---- what a later start takes ----

// A second start with a text; returns its log's line.
static const char *restart(struct rig *rig, const char *text)
{
    rig_init(rig);
    rig->opts.tuning = text;
    rig->opts.tuning_len = strlen(text);
    plim_engine *engine = start(rig);
    plim_engine_free(engine);
    return rig->log;
}

START_TEST(results_are_taken_over)
{
    struct rig rig;
    rig_init(&rig);
    plim_engine *engine = start(&rig);
    char *text = tuning_text(engine);
    const uint32_t cold = seen.submits;
    plim_engine_free(engine);
    ck_assert_ptr_nonnull(strstr(restart(&rig, text), "autotune: 17 ops, 0 of them timed, 17 not"));
    ck_assert_uint_lt(seen.submits, 10); // one for each dummy step
    ck_assert_uint_gt(cold, 100);

    // One entry is gone and one names a variant that is no more: these two are timed again.
    char *gone = strstr(text, ",{\"name\"");
    char *behind = strstr(gone + 1, ",{\"name\"");
    memmove(gone, behind, strlen(behind) + 1);
    char *variant = strstr(text, "\"b\"");
    variant[1] = 'x';
    ck_assert_ptr_nonnull(strstr(restart(&rig, text), "autotune: 17 ops, 2 of them timed, 17 not"));
    free(text);
}
END_TEST

START_TEST(stale_and_damaged_results_are_ignored)
{
    static const struct {
        const char *from, *to, *log;
    } edits[] = {
        {"sim-1073741824", "sim-1073741825", "the tuning results are of another device"},
        {"\"isa\":\"none\"", "\"isa\":\"nine\"",
         "the tuning results are of another driver or instruction set"},
        {"\"build\":\"0.", "\"build\":\"9.", "the tuning results are of another build"},
        {"\"object\":\"tuning\"", "\"object\":\"tuninG\"",
         "the tuning results are not usable: its \"object\" is not \"tuning\""},
        {"\"choices\":[{", "\"choices\":[}", "the tuning results are not usable: JSON at byte"},
        {"\"variant\":\"b\"", "\"variant\":123", "the tuning results are not usable: choices[0]"},
    };
    struct rig rig;
    rig_init(&rig);
    plim_engine *engine = start(&rig);
    char *text = tuning_text(engine);
    plim_engine_free(engine);
    char *edited = strdup(text);
    char *at = strstr(edited, edits[_i].from);
    ck_assert_ptr_nonnull(at);
    memcpy(at, edits[_i].to, strlen(edits[_i].to));
    const char *log = restart(&rig, edited);
    ck_assert_msg(strstr(log, edits[_i].log) != NULL, "\"%s\" lacks \"%s\"", log, edits[_i].log);
    ck_assert_ptr_nonnull(strstr(log, "17 of them timed"));
    free(edited);
    free(text);
}
END_TEST

// ---- variants of the CPU give the same bits ----

#define N_TOKENS 12

struct generated {
    int32_t token[N_TOKENS];
    float logprob[N_TOKENS];
};

// A tiny model on the CPU, whose time stands still: no start is short of it.
static plim_engine *start_tiny(const char *model, const struct plm_buf *tuning)
{
    static struct plm_sim_clock time;
    static struct plm_clock clock;
    static char file[512];
    plim_engine_opts o, read;
    plim_engine *engine = NULL;
    plim_error err = PLIM_INIT(plim_error);
    plm_sim_clock_init(&time);
    clock = plm_sim_clock_source(&time);
    const struct plm_engine_env env = {.host = plm_host_create(0), .clock = &clock, .seed = 1};
    plim_engine_opts_init(&o);
    snprintf(file, sizeof(file), "%s/%s", TEST_MODELS, model);
    o.model_path = file;
    o.threads = 2;
    o.ctx_size = 128;
    o.batch_max_tokens = 64;
    o.manual_step = 1;
    o.monitor_ms = 0;
    o.memory_limit_bytes = 512 * MIB;
    o.tuning = tuning != NULL ? tuning->data : NULL;
    o.tuning_len = tuning != NULL ? tuning->len : 0;
    ck_assert_int_eq(plm_opts_read(&o, &read, NULL), PLM_OK);
    if (plm_engine_create_in(&env, &read, &engine, &err) != PLIM_OK)
        ck_abort_msg("%s", err.message);
    return engine;
}

static void generate(plim_engine *engine, struct generated *ret)
{
    int32_t prompt[48];
    plim_request_opts r;
    plim_request *request = NULL;
    plim_request_opts_init(&r);
    for (int i = 0; i < 48; i++)
        prompt[i] = 3 + i * 5 % 60;
    r.tokens = prompt;
    r.n_tokens = 48;
    r.max_tokens = N_TOKENS;
    r.ignore_eos = 1;
    r.temperature = 0;
    r.logprobs = 1;
    ck_assert_int_eq(plim_request_submit(engine, &r, &request, NULL), PLIM_OK);
    for (uint32_t n = 0; n < N_TOKENS;) {
        plim_event e = PLIM_INIT(plim_event);
        if (plim_request_next(request, 0, &e) == PLIM_ERR_TIMEOUT) {
            ck_assert_int_eq(plim_engine_step(engine, NULL), PLIM_OK);
        } else if (e.type == PLIM_EVENT_TOKEN) {
            ret->token[n] = e.token;
            ret->logprob[n++] = e.logprob;
        }
    }
    plim_request_free(request);
}

// Generates with every op in its variant of this kind. False: the machine has no such variant.
static bool generate_with(const char *model, const struct plm_tuning *base, uint32_t kind,
                          struct generated *ret)
{
    static const char *const suffixes[] = {"", " small-cache", " long-runs"};
    struct plm_tuning *t = malloc(sizeof(*t));
    struct plm_host *host = plm_host_create(0);
    struct plm_buf text;
    *t = *base;
    for (uint32_t i = 0; i < t->n; i++) {
        const bool product = strncmp(t->entries[i].name, "matmul", 6) == 0;
        snprintf(t->entries[i].variant, sizeof(t->entries[i].variant), "%s%s",
                 kind == 3 ? "avx2" : t->key.isa, kind < 3 && product ? suffixes[kind] : "");
    }
    plm_buf_init(&text, host, PLM_HOST_OTHER);
    plm_tuning_write(t, &text);
    plim_engine *engine = start_tiny(model, &text);
    struct plm_tuning *used = tuning_of(engine);
    bool all = true;
    ck_assert_uint_eq(used->n, t->n);
    for (uint32_t i = 0; i < t->n; i++)
        all = all && strcmp(plm_tuning_find(used, t->entries[i].name), t->entries[i].variant) == 0;
    generate(engine, ret);
    plim_engine_free(engine);
    plm_buf_finish(&text);
    plm_host_destroy(host);
    free(used);
    free(t);
    return all;
}

START_TEST(variants_of_the_cpu_give_the_same_bits)
{
    static const char *const models[] = {"llama-k256-q4_k_m.gguf", "llama-tied-bf16.gguf",
                                         "qwen2-untied-q4_1.gguf", "llama-rope3-q8_0.gguf",
                                         "llama-tied-q4_0.gguf"};
    struct generated first, other;
    plim_engine *engine = start_tiny(models[_i], NULL);
    struct plm_tuning *base = tuning_of(engine);
    plim_engine_free(engine);
    ck_assert_uint_gt(base->n, 10);
    ck_assert(generate_with(models[_i], base, 0, &first));
    for (uint32_t kind = 1; kind < 4; kind++) {
        // Where AVX2 is the widest there is, it is no variant of its own.
        ck_assert(generate_with(models[_i], base, kind, &other) || kind == 3);
        ck_assert_mem_eq(&first, &other, sizeof(first));
    }
    free(base);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tune");
    TCase *tc = tcase_create("tune");
    suite_add_tcase(suite, tc);
    tcase_set_timeout(tc, 60);
    tcase_add_unchecked_fixture(tc, write_model, remove_model);
    tcase_add_test(tc, tuning_never_holds_rows_by_vocabulary);
    tcase_add_test(tc, the_watch_sees_a_head_over_all_rows);
    tcase_add_test(tc, tuning_and_the_head_are_two_flags);
    tcase_add_test(tc, the_fastest_variant_is_chosen);
    tcase_add_test(tc, the_plan_does_not_move_with_what_is_chosen);
    tcase_add_test(tc, time_is_bounded);
    tcase_add_test(tc, without_autotune_there_is_nothing);
    tcase_add_test(tc, choices_outlive_a_reopened_device);
    tcase_add_test(tc, results_are_taken_over);
    tcase_add_loop_test(tc, stale_and_damaged_results_are_ignored, 0, 6);
    tcase_add_loop_test(tc, variants_of_the_cpu_give_the_same_bits, 0, 5);
    return suite_run(suite);
}
