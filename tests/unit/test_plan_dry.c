// SPDX-License-Identifier: Apache-2.0
// Plans from headers of real shapes: what a dry run says is what a simulated device of the same
// kind holds after a real start, to the byte; or both refuse in the same words.
#include <check.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/sim/sim.h"
#include "core/engine/engine.h"
#include "core/engine/opts.h"
#include "core/engine/plan.h"
#include "core/plan/dry.h"
#include "tests/support/gguf_shapes.h"
#include "tests/support/suite.h"

#define GIB (UINT64_C(1) << 30)
// Pure mixes, which follow these, say nothing new of a plan.
#define PLANNED_SHAPES 3 // of gguf_shapes: those of which plans are made
#define PLANNED_MIXES  (GGUF_MIX_Q4_K_M + 1)

static char dir[] = "/tmp/plan_dry.XXXXXX";
static char path[512];

static const char *shape_path(size_t shape, enum gguf_mix mix)
{
    snprintf(path, sizeof(path), "%s/%s-%s.gguf", dir, gguf_shapes[shape].name,
             gguf_mix_names[mix]);
    return path;
}

static void write_shapes(void)
{
    ck_assert_ptr_nonnull(mkdtemp(dir));
    for (size_t s = 0; s < PLANNED_SHAPES; s++)
        for (int m = 0; m < PLANNED_MIXES; m++)
            ck_assert(gguf_shape_save(&gguf_shapes[s], (enum gguf_mix)m,
                                      shape_path(s, (enum gguf_mix)m)));
}

static void remove_shapes(void)
{
    for (size_t s = 0; s < PLANNED_SHAPES; s++)
        for (int m = 0; m < PLANNED_MIXES; m++)
            unlink(shape_path(s, (enum gguf_mix)m));
    rmdir(dir);
}

// ---- a device of a kind, simulated ----

struct rig {
    struct plm_sim_clock time;
    struct plm_clock clock;
    struct plm_sim_world world;
    struct plm_sim_opts script;
    struct plm_engine_env env;
};

static void rig_init(struct rig *rig, const struct plm_dry_kind *kind, uint64_t device_bytes)
{
    struct plm_caps caps;
    plm_dry_caps(kind, device_bytes, &caps);
    memset(rig, 0, sizeof(*rig));
    plm_sim_clock_init(&rig->time);
    rig->clock = plm_sim_clock_source(&rig->time);
    rig->script = (struct plm_sim_opts){.world = &rig->world,
                                        .panels = strcmp(kind->layout, "cpu") == 0,
                                        .capacity_bytes = device_bytes,
                                        .granularity_bytes = caps.granularity_bytes,
                                        .max_slab_bytes = caps.max_slab_bytes,
                                        .max_slabs = caps.max_slabs,
                                        .context_bytes = caps.context_bytes,
                                        .unavailable_bytes = caps.unavailable_bytes,
                                        .commit = caps.commit,
                                        .unified = caps.unified,
                                        .hides_process_use = !caps.reports_process_use,
                                        .prefers = caps.prefers,
                                        .few_rows = caps.few_rows};
    rig->env = (struct plm_engine_env){.host = plm_host_create(0),
                                       .clock = &rig->clock,
                                       .backend = &plm_sim_backend,
                                       .backend_opts = &rig->script,
                                       .seed = 1};
}

static plim_engine_opts options(const char *device)
{
    plim_engine_opts opts;
    plim_engine_opts_init(&opts);
    opts.model_path = path;
    opts.device = device;
    opts.manual_step = 1;
    opts.monitor_ms = 0;
    return opts;
}

typedef int engine_text(const plim_engine *engine, char *out, size_t cap, size_t *need);

static json_object *engine_json(const plim_engine *engine, engine_text *get)
{
    size_t need = 0;
    get(engine, NULL, 0, &need);
    char *text = malloc(need + 1);
    ck_assert_int_eq(get(engine, text, need + 1, &need), PLIM_OK);
    json_object *object = json_tokener_parse(text);
    free(text);
    ck_assert_ptr_nonnull(object);
    return object;
}

static json_object *plan_json(const plim_plan *plan)
{
    size_t need = 0;
    plim_plan_json(plan, NULL, 0, &need);
    char *text = malloc(need + 1);
    ck_assert_int_eq(plim_plan_json(plan, text, need + 1, &need), PLIM_OK);
    json_object *object = json_tokener_parse(text);
    free(text);
    ck_assert_ptr_nonnull(object);
    return object;
}

// Fields of two objects, by name; every one must be there.
static void same_fields(json_object *a, json_object *b, const char *group, const char *const *names)
{
    json_object *x, *y, *v, *w;
    ck_assert(json_object_object_get_ex(a, group, &x) && json_object_object_get_ex(b, group, &y));
    for (; *names != NULL; names++) {
        ck_assert_msg(json_object_object_get_ex(x, *names, &v) &&
                          json_object_object_get_ex(y, *names, &w),
                      "%s.%s is not there", group, *names);
        ck_assert_msg(json_object_equal(v, w), "%s: %s.%s: dry %s, real %s", path, group, *names,
                      json_object_get_string(v), json_object_get_string(w));
    }
}

static int64_t field(json_object *object, const char *group, const char *name)
{
    json_object *x, *v;
    ck_assert(json_object_object_get_ex(object, group, &x) &&
              json_object_object_get_ex(x, name, &v));
    return json_object_get_int64(v);
}

// All of the formula but the snapshot itself, in which a real start has its probe.
static const char *const formula[] = {"T",
                                      "foreign",
                                      "own_drv",
                                      "room",
                                      "room_binds",
                                      "resident",
                                      "growth",
                                      "U",
                                      "withheld",
                                      "margin",
                                      "ballast",
                                      "host_limit",
                                      "host_caller",
                                      "host",
                                      "budget",
                                      "max_sequences",
                                      "max_context",
                                      "max_blocks",
                                      "batch_max_tokens",
                                      "block_bytes",
                                      "prefix_cache_blocks",
                                      "blocks_cap",
                                      "blocks",
                                      "blocks_bind",
                                      "slab_blocks",
                                      "slab_bytes",
                                      "slabs",
                                      "kv_bytes",
                                      "line",
                                      NULL};
static const char *const held[] = {"weights", "kv",      "state", "workspace", "encoder",
                                   "graph",   "staging", "other", NULL};
static const char *const uses[] = {"token_embd", "attention", "feed_forward",
                                   "head",       "vectors",   NULL};

// The real start succeeded: its plan, its ledger and the device itself agree with the dry run.
static void check_started(const struct rig *rig, const plim_engine *engine, const plim_plan *dry)
{
    json_object *a = plan_json(dry), *b = engine_json(engine, plim_engine_plan_json);
    same_fields(a, b, "plan", formula);
    same_fields(a, b, "by_class", held);
    same_fields(a, b, "weights", uses);
    const int64_t line = field(a, "plan", "line"), g = field(a, "plan", "g");
    const int64_t ballast = (field(a, "plan", "ballast") + g - 1) / g * g;
    const int64_t kept = field(b, "by_class", "ballast"); // soft commit may keep it
    ck_assert_int_eq((int64_t)atomic_load(&rig->world.taken_bytes), line + kept);
    ck_assert(kept == 0 || kept == ballast);
    // At its highest the start held the line and the ballast, which is the margin, and no more.
    ck_assert_int_eq((int64_t)atomic_load(&rig->world.peak_taken_bytes), line + ballast);
    json_object_put(a);
    json_object_put(b);
}

static unsigned n_started, n_refused;

static void compare(const struct plm_dry_kind *kind, uint64_t device_bytes)
{
    struct rig rig;
    plim_plan *plan = NULL;
    plim_engine *engine = NULL;
    plim_error dry_err = PLIM_INIT(plim_error), err = PLIM_INIT(plim_error);
    const plim_engine_opts opts = options(kind->name);
    rig_init(&rig, kind, device_bytes);
    const int dry = plim_plan_dry(&opts, device_bytes, &plan, &dry_err);
    plim_engine_opts o;
    ck_assert_int_eq(plm_opts_read(&opts, &o, NULL), PLIM_OK);
    const int real = plm_engine_create_in(&rig.env, &o, &engine, &err);
    ck_assert_msg(dry == real, "%s on %s with %llu bytes: dry %s (%s), real %s (%s)", path,
                  kind->name, (unsigned long long)device_bytes, plim_strstatus(dry),
                  dry_err.message, plim_strstatus(real), err.message);
    if (real == PLIM_OK) {
        check_started(&rig, engine, plan);
        plim_plan_free(plan);
        plim_engine_free(engine);
        n_started++;
        return;
    }
    ck_assert_str_eq(dry_err.message, err.message);
    ck_assert_int_eq(dry_err.needed_bytes, err.needed_bytes);
    ck_assert_int_eq(dry_err.limit_bytes, err.limit_bytes);
    ck_assert_int_eq(atomic_load(&rig.world.taken_bytes), 0);
    ck_assert_int_eq(plm_host_destroy(rig.env.host), 0);
    n_refused++;
}

// ---- tests ----

// 8B always starts; 32B in 4 bits everywhere and in 16 bits at 80 GiB; 70B in 4 bits at 80. The
// last kinds have figures that were compared before, so that three starts are enough.
static const struct {
    const char *name;
    bool f16, large;
    unsigned started, refused;
} kinds[] = {{"cuda", true, true, 8, 4},
             {"vulkan", false, true, 5, 1},
             {"hip", false, false, 2, 1},
             {"sim", false, false, 2, 1}};

START_TEST(dry_run_is_what_a_start_holds)
{
    const struct plm_dry_kind *kind = plm_dry_kind(kinds[_i].name);
    n_started = n_refused = 0;
    for (size_t s = 0; s < PLANNED_SHAPES; s++) {
        for (int m = kinds[_i].f16 ? GGUF_MIX_F16 : GGUF_MIX_Q4_K_M; m < PLANNED_MIXES; m++) {
            shape_path(s, (enum gguf_mix)m);
            compare(kind, 24 * GIB);
            if (kinds[_i].large)
                compare(kind, 80 * GIB);
        }
    }
    ck_assert_uint_eq(n_started, kinds[_i].started);
    ck_assert_uint_eq(n_refused, kinds[_i].refused);
}
END_TEST

// Sizes at which the context is lowered, and just below what starts at all.
START_TEST(dry_run_lowers_the_context_as_a_start_does)
{
    const struct plm_dry_kind *kind = plm_dry_kind("cuda");
    shape_path(0, GGUF_MIX_Q4_K_M);
    n_started = n_refused = 0;
    for (uint64_t mib = 5300; mib <= 5800; mib += 100)
        compare(kind, mib << 20);
    ck_assert_uint_ge(n_started, 2);
    ck_assert_uint_ge(n_refused, 1);
}
END_TEST

// ---- what nobody asked for ----

static json_object *dry_json(const plim_engine_opts *opts, uint64_t bytes, char *table, size_t cap)
{
    plim_plan *plan = NULL;
    plim_error err = PLIM_INIT(plim_error);
    size_t need;
    int r = plim_plan_dry(opts, bytes, &plan, &err);
    ck_assert_msg(r == PLIM_OK, "%s", err.message);
    ck_assert_int_eq(plim_plan_table(plan, table, cap, &need), PLIM_OK);
    json_object *json = plan_json(plan);
    plim_plan_free(plan);
    return json;
}

// The fields that are asked about; -1: null.
struct choice {
    int64_t context, max_blocks;
    const char *bind;
};

static void expect_choice(const plim_engine_opts *opts, const struct choice *want, const char *line)
{
    char table[4096];
    json_object *json = dry_json(opts, 24 * GIB, table, sizeof(table)), *plan, *v;
    ck_assert(json_object_object_get_ex(json, "plan", &plan));
    ck_assert_int_eq(field(json, "plan", "max_context"), want->context);
    ck_assert(json_object_object_get_ex(plan, "max_blocks", &v));
    ck_assert_int_eq(v == NULL ? -1 : json_object_get_int64(v), want->max_blocks);
    ck_assert(json_object_object_get_ex(plan, "blocks_bind", &v));
    ck_assert_str_eq(json_object_get_string(v), want->bind);
    const char *by = strstr(table, "  by default: ");
    if (line == NULL)
        ck_assert_ptr_null(by);
    else
        ck_assert_msg(by != NULL && strstr(by, line) != NULL, "\"%s\" lacks \"%s\"", table, line);
    json_object_put(json);
}

START_TEST(on_the_machines_memory_a_start_is_modest)
{
    // 128 KiB a token, so a block has 2 MiB; a quarter of 24 GiB.
    const int64_t block = 2 << 20, quarter = (int64_t)(6 * GIB) / block;
    shape_path(0, GGUF_MIX_Q4_K_M);
    plim_engine_opts opts = options("cpu");
    expect_choice(&opts, &(struct choice){8192, quarter, "default"},
                  "8192 tokens a request of the 131072 as trained (-c), at most 6144 MiB of KV "
                  "cache, a quarter of what is free (--max-total-tokens, --memory-limit)\n");
    opts.max_sequences = 2; // they can use less
    expect_choice(&opts, &(struct choice){8192, quarter, "cap"}, "8192 tokens");
    opts.max_sequences = 0;
    opts.ctx_size = 65536; // more than a quarter: one request of it always finishes
    expect_choice(&opts, &(struct choice){65536, 65536 / 16, "default"}, "at most 8192 MiB");
    opts.max_sequences = 1; // a size was asked for
    expect_choice(&opts, &(struct choice){65536, -1, "cap"}, NULL);
    opts = options("cpu");
    opts.memory_limit_bytes = 16 * GIB;
    expect_choice(&opts, &(struct choice){8192, -1, "cap"},
                  "by default: 8192 tokens a request of the 131072 as trained (-c)\n");
    opts = options("cpu");
    opts.max_total_tokens = 16384;
    opts.ctx_size = 4096;
    expect_choice(&opts, &(struct choice){4096, -1, "pinned"}, NULL);
    opts = options("cuda"); // a card's memory is for the model
    expect_choice(&opts, &(struct choice){131072, -1, "budget"}, NULL);
}
END_TEST

START_TEST(a_start_on_the_machines_memory_chooses_as_the_dry_run)
{
    n_started = n_refused = 0;
    shape_path(0, GGUF_MIX_Q4_K_M);
    compare(plm_dry_kind("cpu"), 24 * GIB);
    ck_assert_uint_eq(n_started, 1);
}
END_TEST

// The pools of windows are KV in the ledger, too, beside the full group's and in its place.
START_TEST(windows_are_held_as_planned)
{
    char table[4096];
    n_started = n_refused = 0;
    snprintf(path, sizeof(path), "%s", TEST_MODELS "/mistral-window-f32.gguf");
    compare(plm_dry_kind("cuda"), GIB);
    snprintf(path, sizeof(path), "%s", TEST_MODELS "/gemma3-q8_0.gguf");
    compare(plm_dry_kind("cuda"), GIB);
    ck_assert_uint_eq(n_started, 2);
    const plim_engine_opts opts = options("cuda");
    json_object *json = dry_json(&opts, GIB, table, sizeof(table));
    ck_assert_int_gt(field(json, "by_class", "kv"), field(json, "plan", "kv_bytes"));
    json_object_put(json);
}
END_TEST

// The other shapes, each with its own form of attention: heads wider than the embedding's share,
// tensors that hold several weights, windows.
static const struct {
    const char *name;
    int64_t window;       // of the pools beside the main one; 0: there is none
    int64_t window_block; // bytes of a block of it
    int64_t main_window, block_bytes;
} others[] = {
    // 52 layers with a window and 10 without, 16 heads of 128 for K and V: a sequence's window is
    // 64
    // blocks of 6.5 MiB, 416 MiB.
    {"gemma-3-27b", 1024, INT64_C(52) * 16 * 8192, 0, INT64_C(10) * 16 * 8192},
    {"qwen3-8b", 0, 0, 0, INT64_C(36) * 16 * 4096},
    {"mistral-7b-v0.1", 0, 0, 4096, INT64_C(32) * 16 * 4096},
    {"ministral-3-8b", 0, 0, 0, INT64_C(34) * 16 * 4096},
    {"phi-3-mini-4k", 0, 0, 2047, INT64_C(32) * 16 * 12288},
    {"smollm3-3b", 0, 0, 0, INT64_C(36) * 16 * 2048},
};

START_TEST(models_of_other_forms_are_held_as_planned)
{
    char table[4096];
    size_t s = 0;
    json_object *plan, *windows;
    while (strcmp(gguf_shapes[s].name, others[_i].name) != 0)
        ck_assert_uint_lt(++s, gguf_n_shapes);
    shape_path(s, GGUF_MIX_Q4_K_M);
    ck_assert(gguf_shape_save(&gguf_shapes[s], GGUF_MIX_Q4_K_M, path));
    n_started = n_refused = 0;
    compare(plm_dry_kind("cuda"), 24 * GIB);
    ck_assert_uint_eq(n_started, 1);
    const plim_engine_opts opts = options("cuda");
    json_object *json = dry_json(&opts, 24 * GIB, table, sizeof(table));
    ck_assert(json_object_object_get_ex(json, "plan", &plan) &&
              json_object_object_get_ex(plan, "windows", &windows));
    ck_assert_int_eq(field(json, "plan", "block_bytes"), others[_i].block_bytes);
    ck_assert_int_eq(field(json, "plan", "window"), others[_i].main_window);
    ck_assert_uint_eq(json_object_array_length(windows), others[_i].window > 0);
    if (others[_i].window > 0) {
        json_object *pool = json_object_array_get_idx(windows, 0), *v;
        ck_assert(json_object_object_get_ex(pool, "window", &v));
        ck_assert_int_eq(json_object_get_int64(v), others[_i].window);
        ck_assert(json_object_object_get_ex(pool, "block_bytes", &v));
        ck_assert_int_eq(json_object_get_int64(v), others[_i].window_block);
    }
    json_object_put(json);
    unlink(path);
}
END_TEST

static void expect_dry(const plim_engine_opts *opts, uint64_t bytes, int status, const char *what)
{
    plim_plan *plan = NULL;
    plim_error err = PLIM_INIT(plim_error);
    ck_assert_int_eq(plim_plan_dry(opts, bytes, &plan, &err), status);
    ck_assert_msg(strstr(err.message, what) != NULL, "\"%s\" lacks \"%s\"", err.message, what);
    ck_assert_ptr_null(plan);
}

START_TEST(dry_run_refuses_what_it_can_not_know)
{
    shape_path(0, GGUF_MIX_F16);
    plim_engine_opts opts = options("metal");
    expect_dry(&opts, GIB, PLIM_ERR_INVALID, "there are for: cpu, cuda, hip, sim, vulkan");
    opts.device = "cuda";
    expect_dry(&opts, 0, PLIM_ERR_INVALID, "0 bytes");
    expect_dry(&opts, UINT64_MAX, PLIM_ERR_INVALID, "can not be planned");
    // The largest matrix has to lie in one allocation.
    opts.device = "vulkan";
    expect_dry(&opts, UINT64_C(1000) << 20, PLIM_ERR_TOO_LARGE, "token_embd.weight takes");
    // A type with few variants of kernels is planned for like others.
    static const char *const devices[] = {"cpu", "cuda", "hip", "vulkan"};
    char table[4096];
    opts.model_path = TEST_MODELS "/llama-tied-q5_0.gguf";
    for (size_t i = 0; i < sizeof(devices) / sizeof(devices[0]); i++) {
        opts.device = devices[i];
        json_object_put(dry_json(&opts, 24 * GIB, table, sizeof(table)));
    }
    opts.model_path = "/nonexistent.gguf";
    expect_dry(&opts, GIB, PLIM_ERR_NOT_FOUND, "nonexistent");
}
END_TEST

// Of 8-bit K and V a block takes 17 bytes where 16-bit ones take 32.
START_TEST(kv_in_8_bits_is_priced)
{
    char table[4096];
    shape_path(0, GGUF_MIX_Q4_K_M);
    plim_engine_opts opts = options("cpu");
    json_object *f16 = dry_json(&opts, 24 * GIB, table, sizeof(table)), *type;
    ck_assert_ptr_nonnull(strstr(table, " bytes each, f16)"));
    opts.kv_type = PLIM_KV_Q8_0;
    json_object *q8_0 = dry_json(&opts, 24 * GIB, table, sizeof(table));
    ck_assert_ptr_nonnull(strstr(table, " bytes each, q8_0)"));
    ck_assert_int_eq(field(q8_0, "plan", "block_bytes") * 32,
                     field(f16, "plan", "block_bytes") * 17);
    ck_assert(json_object_object_get_ex(q8_0, "kv_type", &type));
    ck_assert_str_eq(json_object_get_string(type), "q8_0");
    json_object_put(f16);
    json_object_put(q8_0);
    opts.model_path = TEST_MODELS "/llama-tied-q4_0.gguf";
    expect_dry(&opts, 24 * GIB, PLIM_ERR_UNSUPPORTED,
               "kv_type q8_0 takes heads of a multiple of 32 elements, but a layer of this model "
               "has head_dim 16");
}
END_TEST

// A real device refuses a file that ends after its header; the CPU's dry run plans from it.
START_TEST(header_alone_does_not_start_the_cpu)
{
    plim_error err = PLIM_INIT(plim_error);
    plim_engine *engine = NULL;
    plim_plan *plan = NULL;
    shape_path(0, GGUF_MIX_Q4_K_M);
    plim_engine_opts opts = options("cpu");
    ck_assert_int_eq(plim_engine_create(&opts, &engine, &err), PLIM_ERR_FORMAT);
    ck_assert_ptr_nonnull(strstr(err.message, "the file is truncated"));
    ck_assert_int_eq(plim_plan_dry(&opts, 16 * GIB, &plan, &err), PLIM_OK);
    json_object *json = plan_json(plan);
    ck_assert_int_gt(field(json, "plan", "host"), 0); // unified memory pays for the host
    ck_assert_int_eq(field(json, "plan", "g"), 16 << 20);
    json_object_put(json);
    plim_plan_free(plan);
}
END_TEST

START_TEST(measured_plan_in_an_environment)
{
    struct rig rig;
    plim_plan *plan = NULL;
    shape_path(0, GGUF_MIX_Q4_K_M);
    plim_engine_opts opts = options("cuda"), o;
    rig_init(&rig, plm_dry_kind("cuda"), 24 * GIB);
    ck_assert_int_eq(plm_opts_read(&opts, &o, NULL), PLIM_OK);
    ck_assert_int_eq(plm_plan_create_in(&rig.env, &o, &plan, NULL), PLIM_OK);
    json_object *json = plan_json(plan), *dry;
    ck_assert(json_object_object_get_ex(json, "dry", &dry) && !json_object_get_boolean(dry));
    ck_assert_int_eq(atomic_load(&rig.world.taken_bytes), 0); // the core is gone
    json_object_put(json);
    plim_plan_free(plan);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("plan_dry");
    TCase *tc = tcase_create("plan_dry");
    suite_add_tcase(suite, tc);
    tcase_set_timeout(tc, 120);
    tcase_add_unchecked_fixture(tc, write_shapes, remove_shapes);
    tcase_add_loop_test(tc, dry_run_is_what_a_start_holds, 0, sizeof(kinds) / sizeof(kinds[0]));
    tcase_add_test(tc, dry_run_lowers_the_context_as_a_start_does);
    tcase_add_test(tc, on_the_machines_memory_a_start_is_modest);
    tcase_add_test(tc, a_start_on_the_machines_memory_chooses_as_the_dry_run);
    tcase_add_test(tc, windows_are_held_as_planned);
    tcase_add_loop_test(tc, models_of_other_forms_are_held_as_planned, 0,
                        sizeof(others) / sizeof(others[0]));
    tcase_add_test(tc, dry_run_refuses_what_it_can_not_know);
    tcase_add_test(tc, kv_in_8_bits_is_priced);
    tcase_add_test(tc, header_alone_does_not_start_the_cpu);
    tcase_add_test(tc, measured_plan_in_an_environment);
    return suite_run(suite);
}
