// SPDX-License-Identifier: Apache-2.0
// The forward sets every barrier that the contract asks for (dispatches without one between them
// may overlap), in steps of few and of many rows, fused and unfused; and it sets none in vain: each
// one that is taken out leaves two dispatches that may not overlap.
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/cpu.h"
#include "tests/support/barriers.h"
#include "tests/support/runner.h"
#include "tests/support/spans.h"
#include "tests/support/suite.h"

#define TOKENS 400u // more than one split of attention

// few_rows of a device whose kernels share one read of a weight among many rows.
#define MANY_FEW_ROWS 64u

static struct plm_caps wide;

static const struct plm_caps *wide_caps(const struct plm_backend_device *dev)
{
    wide = *runner_fused_cpu(PLM_GPU_PREFERS)->caps(dev);
    wide.few_rows = MANY_FEW_ROWS;
    return &wide;
}

static const struct plm_backend *backend_of(int mode)
{
    static struct plm_backend backend;
    if (mode == 0)
        return &plm_cpu_backend;
    backend = *runner_fused_cpu(PLM_GPU_PREFERS);
    if (mode == 2)
        backend.caps = wide_caps;
    return &backend;
}

static const char *const modes[] = {"unfused", "fused up to 8 rows", "fused up to 64 rows"};

// Steps of one row, of a few, of many, and one row with more than one split before it.
static struct barriers_seen play(const char *path, int mode, uint32_t drop, bool strict)
{
    static const uint32_t sizes[] = {1, 5, 8, 9, 64, 65, 200, 1, 2};
    struct plm_error err = {0};
    struct runner *r = NULL;
    const struct runner_opts opts = {.backend = barriers_watch(backend_of(mode), drop),
                                     .strict = strict,
                                     .threads = 2,
                                     .max_tokens = TOKENS};
    const int s = runner_open(path, &opts, &r, &err);
    if (s == PLM_ERR_UNSUPPORTED)
        return (struct barriers_seen){0};
    ck_assert_msg(s == PLM_OK, "%s: %s", path, err.msg);
    float *logits = malloc(sizeof(float) * runner_facts(r)->n_vocab * 8);
    ck_assert_ptr_nonnull(logits);
    for (uint32_t i = 0, at = 0; i < sizeof(sizes) / sizeof(sizes[0]); at += sizes[i++]) {
        int32_t tokens[200];
        for (uint32_t k = 0; k < sizes[i]; k++)
            tokens[k] = (int32_t)((at + k) * 7 % runner_facts(r)->n_vocab);
        const uint32_t wanted = sizes[i] < 8 ? sizes[i] : 1;
        ck_assert_msg(runner_step(r, tokens, sizes[i], wanted, logits, &err) == PLM_OK, "%s: %s",
                      path, err.msg);
    }
    free(logits);
    ck_assert_int_eq(runner_close(r), 0);
    return barriers_seen();
}

// Columns of one matrix lie between each other and do not touch.
START_TEST(pieces_touch_where_bytes_are_the_same)
{
    const struct span q = {.address = 1000, .bytes = 40, .rows = 5, .stride = 100};
    struct span k = {.address = 1040, .bytes = 60, .rows = 5, .stride = 100};
    ck_assert(!span_overlaps(&q, &k) && !span_overlaps(&k, &q));
    k.bytes = 61; // into the next row's first byte
    ck_assert(span_overlaps(&q, &k) && span_overlaps(&k, &q));
    k = (struct span){.address = 1439, .bytes = 1, .rows = 1};
    ck_assert(span_overlaps(&q, &k) && span_overlaps(&k, &q));
    k.address = 1440;
    ck_assert(!span_overlaps(&q, &k) && !span_overlaps(&k, &q));
    k = (struct span){.address = 1340, .bytes = 60, .rows = 3, .stride = 100}; // begins later
    ck_assert(!span_overlaps(&q, &k) && !span_overlaps(&k, &q));
    k.address = 1339;
    ck_assert(span_overlaps(&q, &k) && span_overlaps(&k, &q));
}
END_TEST

START_TEST(no_forward_lacks_a_barrier)
{
    DIR *folder = opendir(TEST_MODELS);
    uint64_t lists = 0, barriers = 0, models = 0;
    ck_assert_ptr_nonnull(folder);
    for (const struct dirent *e; (e = readdir(folder)) != NULL;) {
        char path[512];
        const char *end = strstr(e->d_name, ".gguf");
        if (end == NULL || end[5] != '\0')
            continue;
        snprintf(path, sizeof(path), "%s/%s", TEST_MODELS, e->d_name);
        for (int mode = 0; mode < 6; mode++) {
            const struct barriers_seen seen = play(path, mode / 2, BARRIERS_NONE, mode % 2);
            ck_assert_msg(seen.missing == 0, "%s, %s: %s", e->d_name, modes[mode / 2], seen.first);
            lists += seen.lists;
            barriers += seen.barriers;
            models += mode == 0 && seen.lists > 0;
        }
    }
    closedir(folder);
    ck_assert_uint_gt(models, 5);
    printf("%d models: %d lists, %d barriers, none missing\n", (int)models, (int)lists,
           (int)barriers);
}
END_TEST

START_TEST(each_barrier_is_missed)
{
    const int mode = _i;
    const char *path = TEST_MODELS "/llama-k256-q4_k_m.gguf";
    const struct barriers_seen whole = play(path, mode, BARRIERS_NONE, false);
    ck_assert_uint_gt(whole.in_one_list, 10);
    for (uint32_t drop = 0; drop < whole.in_one_list; drop++) {
        const struct barriers_seen seen = play(path, mode, drop, false);
        ck_assert_msg(seen.missing > 0, "%s: barrier %u is not missed", modes[mode], drop);
        if (drop == 0)
            printf("%s, barrier 0 taken out: %s\n", modes[mode], seen.first);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("barriers");
    TCase *tcase = tcase_create("barriers");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, pieces_touch_where_bytes_are_the_same);
    tcase_add_test(tcase, no_forward_lacks_a_barrier);
    tcase_add_loop_test(tcase, each_barrier_is_missed, 0, 3);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
