// SPDX-License-Identifier: Apache-2.0
// Weights come to lie the same, byte by byte, whether the host sees the device's memory or not, the
// load takes no more host memory than its stages' buffers, and the phase increments of rope follow
// the file.
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/cpu/cpu.h"
#include "backends/sim/sim.h"
#include "core/base/clock.h"
#include "core/model/chunks.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/runner.h"
#include "tests/support/suite.h"

#define MIB (1ll << 20)

// Workers, each with buffers of before and after a chunk is re-laid, and what they are charged
// beside; the arena's list of ranges while it is moved into a larger one.
#define STAGING_BYTES                                                                              \
    (PLM_CHUNK_WORKERS * 2 * ((int64_t)PLM_CHUNK_BYTES + PLM_HOST_HEAD_BYTES) + 16384)

static const char *const models[] = {
    "llama-k256-q4_k_m", "llama-rope3-q8_0",   "llama-tied-bf16",    "llama-tied-q4_0",
    "llama-tied-q4_1",   "mistral-window-f32", "phi3-longrope-q8_0", "qwen2-tied-q8_0",
    "qwen2-untied-q4_1", "qwen3-tied-q8_0",    "gemma3-q8_0",        "smollm3-q8_0",
    "mistral3-q8_0",     "qwen3-yarn-q8_0",    "gemma3-cap-q8_0",
};
#define N_MODELS (sizeof(models) / sizeof(models[0]))

// The CPU's memory as a card of its own would have it.
static const struct plm_sim_opts hidden = {
    .inner = &plm_cpu_backend, .capacity_bytes = 256 * MIB, .hides_slabs = true};

// ---- weights ----

struct loaded {
    struct plm_host *host;
    struct plm_gguf *gguf;
    struct plm_model *model;
    struct plm_device *device;
    struct plm_ledger *ledger;
    struct plm_arena *weights;
};

static void load(const char *path, const char *device, const struct plm_sim_opts *sim,
                 struct loaded *ret)
{
    struct loaded *l = ret;
    struct plm_error err = {0};
    l->host = plm_host_create(0);
    const struct plm_device_opts opts = {.host = l->host,
                                         .clock = plm_clock_system(),
                                         .threads = 1,
                                         .max_dispatches = 64,
                                         .backend_opts = sim};
    l->ledger = plm_ledger_create(l->host);
    ck_assert_msg(plm_gguf_open(l->host, path, &l->gguf, &err) == PLM_OK, "%s", err.msg);
    ck_assert_msg(plm_model_create(l->host, l->gguf,
                                   &(struct plm_model_opts){.kv_type = PLM_TYPE_F16}, &l->model,
                                   &err) == PLM_OK,
                  "%s", err.msg);
    ck_assert_msg(plm_device_open(device, &opts, &l->device, &err) == PLM_OK, "%s", err.msg);
    ck_assert_int_eq(
        plm_arena_create(l->host, l->device, l->ledger, PLM_MEM_WEIGHTS, 0, &l->weights), PLM_OK);
    struct plm_host_stats before, after;
    plm_host_read(l->host, &before);
    ck_assert_msg(plm_model_load(l->model, l->device, l->weights, NULL, &err) == PLM_OK, "%s",
                  err.msg);
    plm_host_read(l->host, &after);
    // What stays is the arena's account of its slabs and ranges.
    ck_assert_int_le(after.peak_bytes, after.used_bytes + STAGING_BYTES);
    ck_assert_int_le(after.used_bytes, before.used_bytes + MIB);
}

static void unload(struct loaded *l)
{
    plm_arena_destroy(l->weights);
    plm_ledger_destroy(l->ledger);
    plm_model_destroy(l->model);
    plm_device_close(l->device);
    plm_gguf_close(l->gguf);
    ck_assert_int_eq(plm_host_destroy(l->host), 0);
}

struct compared {
    const struct loaded *on[2];
    const struct plm_weight *weights[2][256];
    size_t n[2];
    int side;
};

static int list_weight(void *ctx, struct plm_weight *w)
{
    struct compared *c = ctx;
    ck_assert_uint_lt(c->n[c->side], 256);
    c->weights[c->side][c->n[c->side]++] = w;
    return PLM_OK;
}

static uint64_t bytes_of(const struct loaded *l, const struct plm_weight *w)
{
    struct plm_weight_layout lay = {.bytes = 4ull * w->n_in};
    if (w->decl->kind == PLM_WEIGHT_PHASES)
        return 8ull * w->n_in;
    if (plm_weight_is_matrix(w))
        ck_assert_int_eq(
            plm_device_weight_layout(l->device, w->tensor->type, w->n_in, w->n_out, &lay), PLM_OK);
    return lay.bytes;
}

// A record holds addresses, which are each device's own.
static void check_record(const struct loaded *l, const struct plm_weight *w)
{
    char loaded[256], filled[256] = {0};
    ck_assert_uint_le(w->n_in, sizeof(loaded));
    ck_assert_int_eq(plm_device_copy_out(l->device, loaded, w->addr, w->n_in), PLM_OK);
    ck_assert(w->decl->record(w->layer, filled));
    ck_assert_int_eq(memcmp(loaded, filled, w->n_in), 0);
}

static void compare(const struct loaded *a, const struct loaded *b)
{
    static struct compared c;
    c = (struct compared){.on = {a, b}};
    for (c.side = 0; c.side < 2; c.side++)
        ck_assert_int_eq(plm_each_weight(c.on[c.side]->model, list_weight, &c), PLM_OK);
    ck_assert_uint_gt(c.n[0], 0);
    ck_assert_uint_eq(c.n[0], c.n[1]);
    for (size_t i = 0; i < c.n[0]; i++) {
        if (c.weights[0][i]->decl->kind == PLM_WEIGHT_RECORD) {
            for (int side = 0; side < 2; side++)
                check_record(c.on[side], c.weights[side][i]);
            continue;
        }
        const uint64_t n = bytes_of(a, c.weights[0][i]);
        ck_assert_uint_eq(n, bytes_of(b, c.weights[1][i]));
        char *bytes = malloc(2 * n);
        for (int side = 0; side < 2; side++)
            ck_assert_int_eq(plm_device_copy_out(c.on[side]->device, bytes + side * n,
                                                 c.weights[side][i]->addr, n),
                             PLM_OK);
        const struct plm_slice name = plm_weight_name(c.weights[0][i]);
        ck_assert_msg(memcmp(bytes, bytes + n, n) == 0, "%.*s differs", (int)name.len, name.ptr);
        free(bytes);
    }
}

static void compare_paths(const char *path)
{
    struct loaded visible, copied;
    load(path, "cpu", NULL, &visible);
    load(path, "sim", &hidden, &copied);
    ck_assert_ptr_nonnull(
        plm_arena_host(visible.weights, visible.model->outer[PLM_OUTER_TOKEN_EMBD].addr));
    ck_assert_ptr_null(
        plm_arena_host(copied.weights, copied.model->outer[PLM_OUTER_TOKEN_EMBD].addr));
    compare(&visible, &copied);
    unload(&visible);
    unload(&copied);
}

START_TEST(every_type_lies_the_same)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s.gguf", TEST_MODELS, models[_i]);
    compare_paths(path);
}
END_TEST

// Its embedding and head take three reads each, and their last panels are not full.
static void write_long_model(const char *path)
{
    const uint32_t n_vocab = 33333, n_embd = 256, n_ff = 512;
    static const struct {
        const char *name;
        enum plm_type type;
        uint32_t n_in, n_out;
    } tensors[] = {
        {"token_embd.weight", PLM_TYPE_Q8_0, n_embd, n_vocab},
        {"output_norm.weight", PLM_TYPE_F32, n_embd, 0},
        {"output.weight", PLM_TYPE_Q6_K, n_embd, n_vocab},
        {"blk.0.attn_norm.weight", PLM_TYPE_F16, n_embd, 0},
        {"blk.0.attn_q.weight", PLM_TYPE_Q4_K, n_embd, n_embd},
        {"blk.0.attn_k.weight", PLM_TYPE_Q4_0, n_embd, n_embd},
        {"blk.0.attn_v.weight", PLM_TYPE_F16, n_embd, n_embd},
        {"blk.0.attn_output.weight", PLM_TYPE_Q4_1, n_embd, n_embd},
        {"blk.0.ffn_norm.weight", PLM_TYPE_BF16, n_embd, 0},
        {"blk.0.ffn_gate.weight", PLM_TYPE_F32, n_embd, n_ff},
        {"blk.0.ffn_up.weight", PLM_TYPE_BF16, n_embd, n_ff},
        {"blk.0.ffn_down.weight", PLM_TYPE_Q8_0, n_ff, n_embd},
    };
    struct gguf_writer w;
    gguf_writer_init(&w);
    gguf_writer_str(&w, "general.architecture", "llama");
    gguf_writer_u32(&w, "llama.block_count", 1);
    gguf_writer_u32(&w, "llama.context_length", 256);
    gguf_writer_u32(&w, "llama.embedding_length", n_embd);
    gguf_writer_u32(&w, "llama.feed_forward_length", n_ff);
    gguf_writer_u32(&w, "llama.attention.head_count", 4);
    gguf_writer_f32(&w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    for (size_t i = 0; i < sizeof(tensors) / sizeof(tensors[0]); i++) {
        const uint64_t ne[2] = {tensors[i].n_in, tensors[i].n_out};
        gguf_writer_tensor(&w, tensors[i].name, tensors[i].type, ne[1] > 0 ? 2 : 1, ne, NULL);
    }
    ck_assert(gguf_writer_save(&w, path));
    gguf_writer_finish(&w);
}

START_TEST(long_tensors_are_copied_in_pieces)
{
    char path[] = "/tmp/plm_load_XXXXXX";
    const int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    close(fd);
    write_long_model(path);
    compare_paths(path);
    unlink(path);
}
END_TEST

// ---- rope ----

// Factors of the file, where it has some.
static void read_factors(const struct loaded *l, float *ret)
{
    const struct plm_gguf_tensor *t = l->model->ropes[0].tensor;
    struct plm_error err = {0};
    for (uint32_t i = 0; i < l->model->hp.ropes[0].dims / 2; i++)
        ret[i] = 1.0f;
    if (t != NULL)
        ck_assert_int_eq(plm_gguf_read(l->gguf, t, 0, ret, t->bytes, &err), PLM_OK);
}

START_TEST(increments_follow_the_file)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s.gguf", TEST_MODELS, models[_i]);
    struct loaded l;
    load(path, "cpu", NULL, &l);
    const struct plm_rope_spec *rope = &l.model->hp.ropes[0];
    uint64_t increments[PLM_ROPE_PAIRS_MAX];
    float factors[PLM_ROPE_PAIRS_MAX];
    ck_assert_int_eq(
        plm_device_copy_out(l.device, increments, l.model->ropes[0].addr, 4ull * rope->dims),
        PLM_OK);
    read_factors(&l, factors);
    for (uint32_t i = 0; i < rope->dims / 2; i++) {
        // Of yarn: the share of pair i that is scaled.
        const long double share =
            rope->scale == 0 ? 1 : ((long double)i - rope->keep) / (rope->scale - rope->keep);
        const long double scaled = fminl(fmaxl(share, 0), 1);
        const long double radians = powl(rope->base, -2.0L * i / rope->dims) *
                                    (scaled * rope->freq_scale + 1 - scaled) /
                                    (long double)factors[i];
        for (uint32_t pos = 1; pos < 1u << 24; pos = pos * 3 + 1) {
            const double got = ldexp((double)(pos * increments[i]), -64) * 2 * acos(-1.0);
            ck_assert_double_eq_tol(cos(got), (double)cosl(pos * radians), 1e-7);
            ck_assert_double_eq_tol(sin(got), (double)sinl(pos * radians), 1e-7);
        }
    }
    unload(&l);
}
END_TEST

START_TEST(increments_of_any_keys_are_in_range)
{
    struct plm_rope_spec rope = {.dims = 4, .base = 10000.0f, .freq_scale = 1.0f};
    uint64_t increments[2];
    ck_assert(plm_rope_increments(&rope, (float[]){1.0f, 1e30f}, increments));
    ck_assert_uint_eq(increments[1], 0);
    // Whole turns drop out, and a step backwards is a long one forwards.
    ck_assert(plm_rope_increments(&rope, (float[]){0x1p-40f, -1.0f}, increments));
    ck_assert_uint_gt(increments[1], UINT64_MAX / 2);
    ck_assert(plm_rope_increments(&rope, (float[]){1.0f, -1e30f}, increments));
    ck_assert_uint_eq(increments[1], 0);
    ck_assert(!plm_rope_increments(&rope, (float[]){1.0f, 0.0f}, increments));
    ck_assert(!plm_rope_increments(&rope, (float[]){1.0f, NAN}, increments));
    rope.freq_scale = INFINITY;
    ck_assert(!plm_rope_increments(&rope, NULL, increments));
}
END_TEST

// Four of yarn's kinds of pairs: those that turn often within the original context keep their
// increments, the slow ones are divided, two are blended in thirds.
START_TEST(yarn_scales_slow_pairs)
{
    const struct plm_rope_spec plain = {.dims = 12, .base = 100.0f, .freq_scale = 1.0f};
    struct plm_rope_spec yarn = plain;
    static const double scales[6] = {1, 1, 1 - 0.75 / 3, 1 - 0.75 * 2 / 3, 0.25, 0.25};
    uint64_t before[6], after[6];
    yarn.freq_scale = 0.25f;
    yarn.keep = 1;
    yarn.scale = 4;
    ck_assert(plm_rope_increments(&plain, NULL, before));
    ck_assert(plm_rope_increments(&yarn, NULL, after));
    for (int i = 0; i < 6; i++)
        ck_assert_double_eq_tol((double)after[i] / (double)before[i], scales[i], 1e-12);
}
END_TEST

// ---- logits ----

START_TEST(logits_are_the_same)
{
    static const int32_t prompt[] = {1, 17, 5, 99, 42, 7, 23, 3};
    const uint32_t n = sizeof(prompt) / sizeof(prompt[0]);
    char path[512];
    snprintf(path, sizeof(path), "%s/%s.gguf", TEST_MODELS, models[_i]);
    float *logits[2];
    uint32_t n_vocab = 0;
    for (int side = 0; side < 2; side++) {
        struct runner_opts opts = {.threads = 1, .max_tokens = 64};
        if (side == 1) {
            opts.device = "sim";
            opts.backend_opts = &hidden;
        }
        struct runner *r;
        struct plm_error err = {0};
        ck_assert_msg(runner_open(path, &opts, &r, &err) == PLM_OK, "%s", err.msg);
        n_vocab = runner_facts(r)->n_vocab;
        logits[side] = calloc((size_t)n * n_vocab, sizeof(float));
        ck_assert_int_eq(runner_step(r, prompt, n, n, logits[side], &err), PLM_OK);
        ck_assert_int_eq(runner_close(r), 0);
    }
    ck_assert_int_eq(memcmp(logits[0], logits[1], (size_t)n * n_vocab * sizeof(float)), 0);
    free(logits[0]);
    free(logits[1]);
}
END_TEST

// A device that has kernels for two types alone.
static int two_types(const void *ctx, enum plm_type type, uint32_t n_in, uint32_t n_out,
                     struct plm_weight_layout *ret)
{
    if (type != PLM_TYPE_F32 && type != PLM_TYPE_Q4_0)
        return PLM_ERR_UNSUPPORTED;
    return plm_device_weight_layout(ctx, type, n_in, n_out, ret);
}

START_TEST(a_type_that_the_device_lacks_is_named)
{
    struct loaded l;
    struct plm_weight_sizes sizes;
    struct plm_error err;
    load(TEST_MODELS "/llama-tied-q5_0.gguf", "cpu", NULL, &l);
    ck_assert_int_eq(plm_model_weight_sizes(l.model, plm_device_caps(l.device), two_types, l.device,
                                            &sizes, &err),
                     PLM_ERR_UNSUPPORTED);
    const char *says = strstr(err.msg, " has the type Q5_0, which the device ");
    ck_assert_msg(strncmp(err.msg, "tensor token_embd.weight has", 28) == 0 && says != NULL, "%s",
                  err.msg);
    ck_assert_ptr_nonnull(strstr(says, plm_device_caps(l.device)->name));
    ck_assert_ptr_nonnull(strstr(says, " does not take (it takes: F32, Q4_0)"));
    unload(&l);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("load");
    TCase *tc = tcase_create("load");
    tcase_set_timeout(tc, 120); // sanitizers take their time
    tcase_add_loop_test(tc, every_type_lies_the_same, 0, N_MODELS);
    tcase_add_test(tc, a_type_that_the_device_lacks_is_named);
    tcase_add_test(tc, long_tensors_are_copied_in_pieces);
    tcase_add_loop_test(tc, increments_follow_the_file, 0, N_MODELS);
    tcase_add_test(tc, increments_of_any_keys_are_in_range);
    tcase_add_test(tc, yarn_scales_slow_pairs);
    tcase_add_loop_test(tc, logits_are_the_same, 0, N_MODELS);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
