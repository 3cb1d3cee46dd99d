// SPDX-License-Identifier: Apache-2.0
// What follows from the description of a model: rows of fused tensors become the weights that they
// stand for, the layers that a stress runs, the dispatches of the longest step.
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/random.h"
#include "core/model/arch.h"
#include "tests/support/gguf_shapes.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/runner.h"
#include "tests/support/suite.h"

enum { N_VOCAB = 40, N_EMBD = 64, N_HEAD = 4, N_KV = 2, HEAD_DIM = 16, N_FF = 96, LAYERS_MAX = 6 };
enum { N_Q = N_HEAD * HEAD_DIM, N_K = N_KV * HEAD_DIM };

// ---- files ----

struct file {
    uint32_t n_layer;
    bool fused; // q, k and v in one tensor, their biases in one, gate and up in one
    enum plm_type down[LAYERS_MAX];      // type of each layer's down product
    const char *arch;                    // NULL: llama
    void (*more)(struct gguf_writer *w); // writes what a test is about
    struct gguf_writer w;
};

static char path[] = "/tmp/plm_model_XXXXXX";

static void new_path(void)
{
    strcpy(path + strlen(path) - 6, "XXXXXX");
    const int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    close(fd);
}

// Numbers that follow from name and place alone, so that a fused file holds the same ones.
static void fill(float *ret, const char *name, uint32_t il, uint64_t n)
{
    uint64_t seed = il;
    for (const char *c = name; *c != '\0'; c++)
        seed = seed * 131 + (unsigned char)*c;
    for (uint64_t i = 0; i < n; i++)
        ret[i] = (plm_random_uniform(seed, 0, i, 0) - 0.5f) * 0.3f;
}

// One tensor of the pieces' rows, one piece after the other.
static void put(struct file *f, const char *name, uint32_t il, uint32_t n_in,
                const char *const *pieces, const uint32_t *rows, uint32_t n)
{
    char full[64];
    float *data = malloc(sizeof(float) * N_EMBD * 8 * N_FF);
    uint64_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        fill(data + at, pieces[i], il, (uint64_t)n_in * rows[i]);
        at += (uint64_t)n_in * rows[i];
    }
    const uint64_t matrix[2] = {n_in, at / n_in}, vector[1] = {at};
    snprintf(full, sizeof(full), name, il);
    gguf_writer_tensor(&f->w, full, PLM_TYPE_F32, n_in > 1 ? 2 : 1, n_in > 1 ? matrix : vector,
                       data);
    free(data);
}

static void put_one(struct file *f, const char *name, uint32_t il, uint32_t n_in, uint32_t rows)
{
    put(f, name, il, n_in, &name, &rows, 1);
}

static void put_attention(struct file *f, uint32_t il)
{
    static const char *const weights[] = {"blk.%u.attn_q.weight", "blk.%u.attn_k.weight",
                                          "blk.%u.attn_v.weight"};
    static const char *const biases[] = {"blk.%u.attn_q.bias", "blk.%u.attn_k.bias",
                                         "blk.%u.attn_v.bias"};
    static const uint32_t rows[] = {N_Q, N_K, N_K};
    put_one(f, "blk.%u.attn_norm.weight", il, 1, N_EMBD);
    for (int i = 0; i < 3 && !f->fused; i++) {
        put_one(f, weights[i], il, N_EMBD, rows[i]);
        put_one(f, biases[i], il, 1, rows[i]);
    }
    if (f->fused) {
        put(f, "blk.%u.attn_qkv.weight", il, N_EMBD, weights, rows, 3);
        put(f, "blk.%u.attn_qkv.bias", il, 1, biases, rows, 3);
    }
    put_one(f, "blk.%u.attn_output.weight", il, N_Q, N_EMBD);
}

static void put_feed_forward(struct file *f, uint32_t il)
{
    static const char *const weights[] = {"blk.%u.ffn_gate.weight", "blk.%u.ffn_up.weight"};
    static const uint32_t rows[] = {N_FF, N_FF};
    char name[64];
    const uint64_t down[2] = {N_FF, N_EMBD};
    put_one(f, "blk.%u.ffn_norm.weight", il, 1, N_EMBD);
    if (f->fused)
        put(f, weights[1], il, N_EMBD, weights, rows, 2);
    for (int i = 0; i < 2 && !f->fused; i++)
        put_one(f, weights[i], il, N_EMBD, rows[i]);
    snprintf(name, sizeof(name), "blk.%u.ffn_down.weight", il);
    if (f->down[il] == PLM_TYPE_F32)
        put_one(f, "blk.%u.ffn_down.weight", il, N_FF, N_EMBD);
    else
        gguf_writer_tensor(&f->w, name, f->down[il], 2, down, NULL);
}

static void key_u32(struct file *f, const char *suffix, uint32_t value)
{
    char key[128];
    snprintf(key, sizeof(key), "%s.%s", f->arch, suffix);
    gguf_writer_u32(&f->w, key, value);
}

static void save(struct file *f)
{
    char key[128];
    f->arch = f->arch != NULL ? f->arch : "llama";
    gguf_writer_init(&f->w);
    gguf_writer_str(&f->w, "general.architecture", f->arch);
    key_u32(f, "block_count", f->n_layer);
    key_u32(f, "context_length", 256);
    key_u32(f, "embedding_length", N_EMBD);
    key_u32(f, "feed_forward_length", N_FF);
    key_u32(f, "attention.head_count", N_HEAD);
    key_u32(f, "attention.head_count_kv", N_KV);
    snprintf(key, sizeof(key), "%s.attention.layer_norm_rms_epsilon", f->arch);
    gguf_writer_f32(&f->w, key, 1e-5f);
    if (f->more != NULL)
        f->more(&f->w);
    put_one(f, "token_embd.weight", 0, N_EMBD, N_VOCAB);
    put_one(f, "output_norm.weight", 0, 1, N_EMBD);
    for (uint32_t il = 0; il < f->n_layer; il++) {
        put_attention(f, il);
        put_feed_forward(f, il);
    }
    new_path();
    ck_assert(gguf_writer_save(&f->w, path));
    gguf_writer_finish(&f->w);
}

// ---- fused tensors ----

static void logits_of(bool fused, const struct runner_opts *opts, float *ret)
{
    static const int32_t prompt[] = {1, 17, 5, 39, 0, 7, 23, 3, 11};
    const uint32_t n = sizeof(prompt) / sizeof(prompt[0]);
    struct file f = {.n_layer = 2, .fused = fused};
    struct runner *r;
    struct plm_error err = {0};
    save(&f);
    ck_assert_msg(runner_open(path, opts, &r, &err) == PLM_OK, "%s", err.msg);
    ck_assert_int_eq(runner_step(r, prompt, n, n, ret, &err), PLM_OK);
    ck_assert_int_eq(runner_step(r, prompt, 1, 1, ret + (size_t)n * N_VOCAB, &err), PLM_OK);
    ck_assert_int_eq(runner_close(r), 0);
    unlink(path);
}

START_TEST(fused_tensors_are_the_weights_they_hold)
{
    enum { N = 10 * N_VOCAB };
    struct runner_opts opts = {.threads = 1, .max_tokens = 64};
    float apart[N], fused[N];
    if (_i == 1)
        opts.backend = runner_fused_cpu(PLM_GPU_PREFERS);
    logits_of(false, &opts, apart);
    logits_of(true, &opts, fused);
    ck_assert_float_ne(apart[0], apart[1]);
    ck_assert_int_eq(memcmp(apart, fused, sizeof(apart)), 0);
}
END_TEST

// ---- a model without a device ----

struct opened {
    struct plm_host *host;
    struct plm_gguf *gguf;
    struct plm_model *model;
};

static int open_model(const char *file, struct opened *ret, struct plm_error *err)
{
    ret->model = NULL;
    ret->host = plm_host_create(0);
    ck_assert_msg(plm_gguf_open(ret->host, file, &ret->gguf, err) == PLM_OK, "%s", err->msg);
    return plm_model_create(ret->host, ret->gguf, &(struct plm_model_opts){.kv_type = PLM_TYPE_F16},
                            &ret->model, err);
}

static void close_model(struct opened *o)
{
    plm_model_destroy(o->model);
    plm_gguf_close(o->gguf);
    ck_assert_int_eq(plm_host_destroy(o->host), 0);
}

// Rows of a fused tensor are those of all its weights, neither more nor fewer.
START_TEST(a_fused_tensor_of_another_length_is_refused)
{
    struct file f = {.n_layer = 1, .fused = true};
    struct opened o;
    struct plm_error err = {0};
    save(&f);
    FILE *file = fopen(path, "r+b");
    ck_assert_ptr_nonnull(file);
    static char bytes[1 << 16];
    const size_t n = fread(bytes, 1, sizeof(bytes), file);
    // The count of heads of K, which decides what a fused tensor's rows are.
    static const char key[] = "llama.attention.head_count_kv";
    char *at = memmem(bytes, n, key, sizeof(key) - 1);
    ck_assert_ptr_nonnull(at);
    at[sizeof(key) - 1 + 4] = 1;
    rewind(file);
    ck_assert_uint_eq(fwrite(bytes, 1, n, file), n);
    fclose(file);
    ck_assert_int_eq(open_model(path, &o, &err), PLM_ERR_FORMAT);
    ck_assert_msg(strstr(err.msg, "tensor blk.0.attn_qkv.weight has the shape [64, 128, 1, 1], "
                                  "not [64, 96]") != NULL,
                  "%s", err.msg);
    close_model(&o);
    unlink(path);
}
END_TEST

// Layers 0, 2 and 3 have other types than those before them; 5 is the last.
START_TEST(a_layer_of_each_kind_is_marked)
{
    static const bool first[LAYERS_MAX] = {true, false, true, true, false, false};
    struct file f = {.n_layer = LAYERS_MAX,
                     .down = {PLM_TYPE_F32, PLM_TYPE_F32, PLM_TYPE_Q8_0, PLM_TYPE_F16,
                              PLM_TYPE_Q8_0, PLM_TYPE_F32}};
    struct opened o;
    struct plm_error err = {0};
    save(&f);
    ck_assert_msg(open_model(path, &o, &err) == PLM_OK, "%s", err.msg);
    for (uint32_t il = 0; il < LAYERS_MAX; il++)
        ck_assert_int_eq(o.model->layers[il].first_of_kind, first[il]);
    close_model(&o);
    unlink(path);
}
END_TEST

// Apart: two norms, q, k, v, rope with the cache, attention, its 8-bit form where the weights want
// it, output, gate, up, activation, down; around the layers chained tokens, embedding, angles,
// rows, norm, head, token, results.
// Of a gemma3 of four layers: a pattern or a window that leaves one kind of layers out leaves no
// group of them.
START_TEST(a_group_has_layers)
{
    static const struct {
        uint32_t full_every, window, n_groups, windows[2], n_layers[2];
    } cases[] = {{2, 24, 2, {0, 24}, {2, 2}}, {4, 24, 2, {0, 24}, {1, 3}}, {1, 24, 1, {0}, {4}},
                 {5, 24, 1, {24}, {4}},       {2, 256, 1, {0}, {4}},       {2, 0, 1, {0}, {4}}};
    struct gguf_shape shape = {.name = "groups",
                               .arch = "gemma3",
                               .pre = "llama-bpe",
                               .n_layer = 4,
                               .n_embd = N_EMBD,
                               .n_head = N_HEAD,
                               .n_head_kv = N_KV,
                               .n_ff = N_FF,
                               .n_vocab = 600,
                               .n_ctx = 256,
                               .rope_base = 10000.0f,
                               .tied = true,
                               .head_norms = true,
                               .norms_after = true};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct opened o;
        struct plm_error err = {0};
        shape.full_every = cases[i].full_every;
        shape.window = cases[i].window;
        new_path();
        ck_assert(gguf_shape_save_weights(&shape, GGUF_MIX_F16, path));
        ck_assert_msg(open_model(path, &o, &err) == PLM_OK, "%s", err.msg);
        const struct plm_model_facts *f = plm_model_facts(o.model);
        ck_assert_uint_eq(f->n_groups, cases[i].n_groups);
        for (uint32_t g = 0; g < f->n_groups; g++) {
            ck_assert_uint_eq(f->groups[g].window, cases[i].windows[g]);
            ck_assert_uint_eq(f->groups[g].n_layers, cases[i].n_layers[g]);
        }
        close_model(&o);
        unlink(path);
    }
}
END_TEST

START_TEST(the_longest_step_is_counted)
{
    static const struct {
        const char *name;
        uint32_t per_layer;
    } models[] = {
        {"llama-tied-bf16", 13},
        {"llama-tied-q4_0", 13},
        {"llama-k256-q4_k_m", 13},
        {"qwen2-untied-q4_1", 13},
    };
    char file[512];
    struct opened o;
    struct plm_error err = {0};
    snprintf(file, sizeof(file), "%s/%s.gguf", TEST_MODELS, models[_i].name);
    ck_assert_msg(open_model(file, &o, &err) == PLM_OK, "%s", err.msg);
    ck_assert_uint_eq(plm_model_max_dispatches(o.model),
                      models[_i].per_layer * plm_model_facts(o.model)->n_layer + 8);
    close_model(&o);
}
END_TEST

// ---- keys ----

static void experts(struct gguf_writer *w)
{
    gguf_writer_u32(w, "qwen3.expert_count", 8);
}

static void negative_window(struct gguf_writer *w)
{
    gguf_writer_int(w, "llama.attention.sliding_window", PLM_GGUF_I32, (uint64_t)-1);
}

static void real_window(struct gguf_writer *w)
{
    gguf_writer_f32(w, "llama.attention.sliding_window", 24.5f);
}

static void window_of_qwen2(struct gguf_writer *w)
{
    gguf_writer_u32(w, "qwen2.attention.sliding_window", 24);
}

static void window_of_qwen3(struct gguf_writer *w)
{
    gguf_writer_u32(w, "qwen3.attention.sliding_window", 24);
}

static void window_of_smollm3(struct gguf_writer *w)
{
    gguf_writer_u32(w, "smollm3.attention.sliding_window", 24);
}

static void unknown_scaling(struct gguf_writer *w)
{
    gguf_writer_str(w, "llama.rope.scaling.type", "spiral");
}

static void yarn_of_nothing(struct gguf_writer *w)
{
    gguf_writer_str(w, "llama.rope.scaling.type", "yarn");
    gguf_writer_f32(w, "llama.rope.scaling.factor", 4.0f);
}

static void yarn_backwards(struct gguf_writer *w)
{
    yarn_of_nothing(w);
    gguf_writer_u32(w, "llama.rope.scaling.original_context_length", 64);
    gguf_writer_f32(w, "llama.rope.scaling.yarn_beta_fast", 1.0f);
    gguf_writer_f32(w, "llama.rope.scaling.yarn_beta_slow", 32.0f);
}

static void factors(struct gguf_writer *w, const char *name, uint64_t n)
{
    const float ones[2 * HEAD_DIM] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    gguf_writer_tensor(w, name, PLM_TYPE_F32, 1, &n, ones);
}

static void long_factors_alone(struct gguf_writer *w)
{
    factors(w, "rope_factors_long.weight", HEAD_DIM / 2);
}

static void factors_without_length(struct gguf_writer *w)
{
    factors(w, "rope_factors_long.weight", HEAD_DIM / 2);
    factors(w, "rope_factors_short.weight", HEAD_DIM / 2);
}

static void too_many_factors(struct gguf_writer *w)
{
    gguf_writer_u32(w, "phi3.rope.scaling.original_context_length", 64);
    factors(w, "rope_factors_long.weight", HEAD_DIM / 2);
    factors(w, "rope_factors_short.weight", HEAD_DIM / 2 + 1);
}

static void temperature_of_nothing(struct gguf_writer *w)
{
    gguf_writer_f32(w, "mistral3.attention.temperature_scale", 0.1f);
}

static void temperature_of_a_part(struct gguf_writer *w)
{
    temperature_of_nothing(w);
    gguf_writer_u32(w, "mistral3.rope.scaling.original_context_length", 64);
    gguf_writer_u32(w, "mistral3.rope.dimension_count", HEAD_DIM / 2);
}

static void temperature_below_zero(struct gguf_writer *w)
{
    gguf_writer_f32(w, "mistral3.attention.temperature_scale", -0.1f);
}

static void nobodys_tensor(struct gguf_writer *w)
{
    factors(w, "blk.0.attn_sinks.weight", N_HEAD);
}

static const struct {
    const char *arch;
    void (*more)(struct gguf_writer *w);
    int status;
    const char *says;
} refused[] = {
    {"qwen3", experts, PLM_ERR_UNSUPPORTED, "key qwen3.expert_count: a mixture of experts"},
    {"llama", negative_window, PLM_ERR_FORMAT, "llama.attention.sliding_window"},
    {"llama", real_window, PLM_ERR_FORMAT, "llama.attention.sliding_window"},
    {"qwen2", window_of_qwen2, PLM_ERR_UNSUPPORTED,
     "key qwen2.attention.sliding_window: a window, where no key says which layers have it, is not "
     "supported"},
    {"qwen3", window_of_qwen3, PLM_ERR_UNSUPPORTED,
     "key qwen3.attention.sliding_window: a window, where no key says which layers have it,"},
    {"smollm3", window_of_smollm3, PLM_ERR_UNSUPPORTED,
     "key smollm3.attention.sliding_window: a window, where no key says which layers have it,"},
    {"llama", unknown_scaling, PLM_ERR_UNSUPPORTED, "\"spiral\" is not supported"},
    {"llama", yarn_of_nothing, PLM_ERR_FORMAT,
     "key llama.rope.scaling.original_context_length is missing"},
    {"llama", yarn_backwards, PLM_ERR_FORMAT, "32 to 1 turns has no meaning"},
    {"phi3", long_factors_alone, PLM_ERR_FORMAT,
     "tensor rope_factors_short.weight is missing beside rope_factors_long.weight"},
    {"phi3", factors_without_length, PLM_ERR_FORMAT,
     "key phi3.rope.scaling.original_context_length is missing"},
    {"phi3", too_many_factors, PLM_ERR_FORMAT,
     "tensor rope_factors_short.weight has the shape [9, 1, 1, 1], not [8, 1]"},
    {"mistral3", temperature_of_nothing, PLM_ERR_FORMAT,
     "key mistral3.rope.scaling.original_context_length is missing"},
    {"mistral3", temperature_of_a_part, PLM_ERR_UNSUPPORTED,
     "a temperature of attention with 8 of 16 elements rotated is not supported"},
    {"mistral3", temperature_below_zero, PLM_ERR_FORMAT,
     "key mistral3.attention.temperature_scale is -0.1, not a positive number"},
    {"llama", nobodys_tensor, PLM_ERR_UNSUPPORTED,
     "tensor blk.0.attn_sinks.weight is not part of the architecture llama"},
    {"mamba", NULL, PLM_ERR_UNSUPPORTED, "architecture \"mamba\" is not supported (there are: "},
};

START_TEST(what_the_arithmetic_can_not_do_is_refused)
{
    struct file f = {.n_layer = 1,
                     .fused = strcmp(refused[_i].arch, "phi3") == 0,
                     .arch = refused[_i].arch,
                     .more = refused[_i].more};
    struct opened o;
    struct plm_error err = {0};
    save(&f);
    ck_assert_int_eq(open_model(path, &o, &err), refused[_i].status);
    ck_assert_msg(strstr(err.msg, refused[_i].says) != NULL, "%s", err.msg);
    close_model(&o);
    unlink(path);
}
END_TEST

// What a spec can say, and no block computes: each is refused by its name.
START_TEST(what_is_not_built_is_refused)
{
    static const struct {
        size_t field;
        const char *what;
        uint32_t bits;
    } cases[] = {
#define CASE(name, what, bits) {offsetof(struct plm_layer_spec, name), what, bits}
        CASE(kv_layer, "K and V of another layer", 1),
        CASE(v_is_k, "V that is K", 1),
        CASE(output_gate, "a gate of attention's output", 1),
        CASE(sinks, "attention sinks", PLM_OPTIONAL),
        CASE(attn_soft_cap, "a soft cap of attention's scores", 0x42480000), // 50.0f
        CASE(attn_norm_before, "attention without a norm before it", PLM_ABSENT),
        CASE(ff_norm_before, "a feed-forward without a norm before it", PLM_ABSENT),
        CASE(residual_scale, "a scale of what a block adds", 0x3f000000), // 0.5f
        CASE(output_scale, "a scale of a layer's output", 0x3f000000),
        CASE(n_layer_embedding, "an embedding of each layer", 256),
#undef CASE
    };
    struct plm_layer_spec spec = plm_layer_spec_plain;
    struct plm_error err;
    char want[128];
    ck_assert_int_eq(plm_layer_spec_check(&spec, "gemma4", &err), PLM_OK);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        spec = plm_layer_spec_plain;
        memcpy((char *)&spec + cases[i].field, &cases[i].bits, sizeof(cases[i].bits));
        ck_assert_int_eq(plm_layer_spec_check(&spec, "gemma4", &err), PLM_ERR_UNSUPPORTED);
        snprintf(want, sizeof(want), "gemma4: %s is not supported", cases[i].what);
        ck_assert_str_eq(err.msg, want);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("model");
    TCase *tc = tcase_create("model");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, fused_tensors_are_the_weights_they_hold, 0, 2);
    tcase_add_test(tc, a_fused_tensor_of_another_length_is_refused);
    tcase_add_test(tc, a_layer_of_each_kind_is_marked);
    tcase_add_test(tc, a_group_has_layers);
    tcase_add_test(tc, what_is_not_built_is_refused);
    tcase_add_loop_test(tc, the_longest_step_is_counted, 0, 4);
    tcase_add_loop_test(tc, what_the_arithmetic_can_not_do_is_refused, 0,
                        sizeof(refused) / sizeof(refused[0]));
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
