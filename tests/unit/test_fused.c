// SPDX-License-Identifier: Apache-2.0
// A forward of fused ops is the forward: on the CPU's reference kernels, whose fused ops have the
// bits of what they stand for, logits are the same bit by bit.
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/runner.h"
#include "tests/support/suite.h"

#define ROWS 64 // of all steps together: one split, in which the CPU adds in the same order

static struct runner *open_model(const char *name, const struct plm_backend *backend, bool strict)
{
    char path[512];
    struct plm_error err = {0};
    struct runner *r = NULL;
    const struct runner_opts opts = {
        .backend = backend, .strict = strict, .reference = true, .threads = 2, .max_tokens = ROWS};
    snprintf(path, sizeof(path), "%s/%s.gguf", TEST_MODELS, name);
    ck_assert_msg(runner_open(path, &opts, &r, &err) == PLM_OK, "%s: %s", name, err.msg);
    return r;
}

static void step(struct runner *r, uint32_t first, uint32_t n, float *logits)
{
    int32_t tokens[ROWS];
    struct plm_error err = {0};
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (int32_t)((first + i) * 7 % runner_facts(r)->n_vocab);
    ck_assert_msg(runner_step(r, tokens, n, n, logits, &err) == PLM_OK, "%s", err.msg);
}

// Steps of one row, of the most that count as few, and of more.
static void compare(const char *name, bool strict)
{
    static const uint32_t sizes[] = {5, 1, 1, PLM_VULKAN_FEW_ROWS, PLM_VULKAN_FEW_ROWS + 1, 20};
    struct runner *apart = open_model(name, NULL, strict);
    struct runner *fused = open_model(name, runner_fused_cpu(PLM_GPU_PREFERS), strict);
    const size_t bytes = sizeof(float) * runner_facts(apart)->n_vocab * ROWS;
    float *a = malloc(bytes), *b = malloc(bytes);
    ck_assert(a != NULL && b != NULL);
    for (uint32_t i = 0, first = 0; i < sizeof(sizes) / sizeof(sizes[0]); first += sizes[i++]) {
        const size_t n = sizeof(float) * runner_facts(apart)->n_vocab * sizes[i];
        step(apart, first, sizes[i], a);
        step(fused, first, sizes[i], b);
        ck_assert_msg(memcmp(a, b, n) == 0, "%s differs in a step of %u rows", name, sizes[i]);
        if (sizes[i] <= PLM_VULKAN_FEW_ROWS)
            ck_assert_uint_lt(runner_dispatches(fused), runner_dispatches(apart));
    }
    free(a);
    free(b);
    ck_assert_int_eq(runner_close(apart), 0);
    ck_assert_int_eq(runner_close(fused), 0);
}

static const char *const models[] = {
    "llama-rope3-q8_0",  "llama-k256-q4_k_m",  "llama-tied-bf16",    "qwen2-tied-q8_0",
    "qwen2-untied-q4_1", "mistral-window-f32", "phi3-longrope-q8_0", "qwen3-tied-q8_0",
    "gemma3-q8_0",       "smollm3-q8_0",       "mistral3-q8_0"};

START_TEST(fused_steps_have_the_bits_of_plain_ones)
{
    compare(models[_i], false);
}
END_TEST

START_TEST(so_they_have_with_float_activations)
{
    compare(models[_i], true);
}
END_TEST

// Embedding, angles, gather, norm, head and argmax beside the layers.
#define FRAME 6

// Two norms more where they also stand after the blocks; angles of each rope.
START_TEST(a_layer_of_one_type_is_eight_dispatches)
{
    static const struct {
        const char *name;
        uint32_t layer, ropes;
    } layers[] = {{"llama-rope3-q8_0", 8, 1}, {"phi3-longrope-q8_0", 8, 1},
                  {"qwen3-tied-q8_0", 8, 1},  {"gemma3-q8_0", 10, 2},
                  {"smollm3-q8_0", 8, 1},     {"mistral3-q8_0", 9, 2}}; // q has a rope of its own
    struct runner *r = open_model(layers[_i].name, runner_fused_cpu(PLM_GPU_PREFERS), false);
    float *logits = malloc(sizeof(float) * runner_facts(r)->n_vocab);
    step(r, 0, 1, logits);
    ck_assert_uint_eq(runner_dispatches(r),
                      layers[_i].layer * runner_facts(r)->n_layer + FRAME + layers[_i].ropes - 1);
    free(logits);
    ck_assert_int_eq(runner_close(r), 0);
}
END_TEST

int main(void)
{
    const int n = sizeof(models) / sizeof(models[0]);
    Suite *suite = suite_create("fused");
    TCase *tcase = tcase_create("fused");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, fused_steps_have_the_bits_of_plain_ones, 0, n);
    tcase_add_loop_test(tcase, so_they_have_with_float_activations, 0, n);
    tcase_add_loop_test(tcase, a_layer_of_one_type_is_eight_dispatches, 0, 6);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
