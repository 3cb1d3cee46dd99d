// SPDX-License-Identifier: Apache-2.0
#include <check.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/refs.h"
#include "core/base/random.h"
#include "core/sched/sample.h"
#include "kernels/sampling.h"
#include "tests/support/suite.h"

#define VOCAB 1000u

static struct plm_host *host;
static struct plm_sampler *sampler;
static float logits[VOCAB];
static struct plm_sample_params params;
static struct plm_sample_in in;
static struct plm_sample_out out;

static void setup(void)
{
    host = plm_host_create(0);
    ck_assert_int_eq(plm_sampler_create(host, VOCAB, &sampler), PLM_OK);
    for (uint32_t i = 0; i < VOCAB; i++)
        logits[i] = 6.0f * plm_random_uniform(1, 2, i, 0) - 3.0f;
    memset(&params, 0, sizeof(params));
    params.temperature = 1.0f;
    params.top_p = 1.0f;
    params.repeat_penalty = 1.0f;
    memset(&in, 0, sizeof(in));
    in.logits = logits;
    in.params = &params;
}

static void teardown(void)
{
    plm_sampler_destroy(sampler);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}

static int32_t draw(void)
{
    ck_assert_int_eq(plm_sampler_draw(sampler, &in, &out), PLM_OK);
    return out.token;
}

// ---- an oracle in double precision, by sorting everything ----

struct item {
    double x;
    uint32_t id;
};

static int by_x(const void *a, const void *b)
{
    const struct item *p = a, *q = b;
    if (p->x != q->x)
        return p->x < q->x ? 1 : -1;
    return p->id < q->id ? -1 : 1;
}

static void oracle(double *ret_p)
{
    static struct item items[VOCAB];
    for (uint32_t i = 0; i < VOCAB; i++)
        items[i] = (struct item){(double)logits[i] / (double)params.temperature, i};
    qsort(items, VOCAB, sizeof(items[0]), by_x);
    uint32_t n = 0;
    while (n < VOCAB &&
           (params.min_p <= 0.0f || items[n].x >= items[0].x + log((double)params.min_p)))
        n++;
    if (params.top_k > 0 && n > params.top_k)
        n = params.top_k;
    double total = 0, kept = 0;
    for (uint32_t i = 0; i < n; i++)
        total += exp(items[i].x - items[0].x);
    uint32_t end = 0;
    while (end < n && (end == 0 || kept < (double)params.top_p * total))
        kept += exp(items[end++].x - items[0].x);
    memset(ret_p, 0, VOCAB * sizeof(*ret_p));
    for (uint32_t i = 0; i < end; i++)
        ret_p[items[i].id] = exp(items[i].x - items[0].x) / kept;
}

// Draws often and compares with the oracle: nothing outside the allowed set, and chi-square over
// the tokens with enough expectation within 5 standard deviations of its mean (the seeds are fixed,
// so this either always holds or never).
static void check_distribution(void)
{
    static double p[VOCAB];
    static uint32_t count[VOCAB];
    const uint32_t draws = 40000;
    oracle(p);
    memset(count, 0, sizeof(count));
    for (uint32_t i = 0; i < draws; i++) {
        in.n_prompt = i;
        count[draw()]++;
    }
    double chi = 0, rest_p = 0, rest_n = 0;
    uint32_t cells = 0;
    for (uint32_t i = 0; i < VOCAB; i++) {
        if (p[i] <= 0.0 && count[i] > 0)
            ck_abort_msg("token %u was cut but drawn %u times", i, count[i]);
        double want = p[i] * draws;
        if (want < 5) {
            rest_p += want;
            rest_n += count[i];
            continue;
        }
        chi += (count[i] - want) * (count[i] - want) / want;
        cells++;
    }
    if (rest_p >= 5) {
        chi += (rest_n - rest_p) * (rest_n - rest_p) / rest_p;
        cells++;
    }
    double mean = cells - 1.0, sd = sqrt(2 * mean);
    if (chi > mean + 5 * sd + 1e-9)
        ck_abort_msg("chi-square %f over %u cells", chi, cells);
}

START_TEST(distributions_match_the_oracle)
{
    static const struct {
        float temperature, top_p, min_p;
        uint32_t top_k;
    } cases[] = {
        {1.0f, 1.0f, 0, 0},      {0.7f, 1.0f, 0, 0},      {1.5f, 1.0f, 0, 0},
        {1.0f, 0.5f, 0, 0},      {1.0f, 0.9f, 0, 0},      {1.0f, 0.001f, 0, 0},
        {1.0f, 1.0f, 0, 5},      {1.0f, 1.0f, 0, 200},    {0.8f, 0.8f, 0, 40},
        {1.0f, 1.0f, 0.3f, 0},   {1.0f, 0.7f, 0.2f, 0},   {1.0f, 0.7f, 0.1f, 100},
        {1.0f, 1.0f, 1.0f, 0},   {1.0f, 1.0f, 0, 999},    {1.0f, 1.0f, 0, 100000},
        {0.05f, 0.95f, 0.0f, 0}, {3.0f, 0.99f, 0.01f, 0},
    };
    params.temperature = cases[_i].temperature;
    params.top_p = cases[_i].top_p;
    params.min_p = cases[_i].min_p;
    params.top_k = cases[_i].top_k;
    params.seed = 77 + (uint64_t)_i;
    check_distribution();
}
END_TEST

START_TEST(greedy_takes_the_lowest_of_the_best)
{
    params.temperature = 0;
    logits[7] = logits[500] = logits[999] = 10.0f;
    ck_assert_int_eq(draw(), 7);
    params.temperature = 9.9e-6f;
    ck_assert_int_eq(draw(), 7);
    params.temperature = 1.0f;
    params.top_k = 1; // ties go to the lowest id here too
    for (in.n_prompt = 0; in.n_prompt < 50; in.n_prompt++)
        ck_assert_int_eq(draw(), 7);
}
END_TEST

START_TEST(draws_depend_on_seed_choice_and_position_alone)
{
    int32_t first[64];
    bool seed_differs = false, choice_differs = false;
    params.seed = 5;
    for (uint32_t i = 0; i < 64; i++) {
        in.n_prompt = 10;
        in.n_output = i;
        int32_t none[64] = {0};
        in.output = none;
        first[i] = draw();
    }
    for (uint32_t k = 64; k-- > 0;) { // another order, other work in between
        params.top_k = 3;
        in.n_output = 0;
        draw();
        params.top_k = 0;
        in.n_prompt = 10 + k; // the position counts, not how it splits
        ck_assert_int_eq(draw(), first[k]);
        in.choice = 1;
        choice_differs |= draw() != first[k];
        in.choice = 0;
        params.seed = 6;
        seed_differs |= draw() != first[k];
        params.seed = 5;
    }
    ck_assert(seed_differs && choice_differs);
}
END_TEST

START_TEST(bias_comes_before_temperature_and_filters)
{
    const struct plm_sample_bias bias[] = {{3, 50.0f}, {4, -100.0f}};
    params.bias = bias;
    params.n_bias = 2;
    params.temperature = 2.0f;
    params.top_k = 1;
    ck_assert_int_eq(draw(), 3);
    logits[4] = 60.0f;
    ck_assert_int_eq(draw(), 3);
    params.n_bias = 0;
    ck_assert_int_eq(draw(), 4);
}
END_TEST

START_TEST(penalties_follow_their_scopes)
{
    const int32_t prompt[] = {10, 10, 11}, output[] = {12, 12, 13};
    params.temperature = 0;
    in.prompt = prompt;
    in.n_prompt = 3;
    in.output = output;
    in.n_output = 3;
    memset(logits, 0, sizeof(logits));
    logits[10] = 8.0f;
    logits[12] = 7.0f;
    logits[13] = 6.5f;
    logits[20] = 6.0f;
    ck_assert_int_eq(draw(), 10);
    params.frequency_penalty = 0.4f; // the prompt does not count: 12 loses 0.8, 13 loses 0.4
    ck_assert_int_eq(draw(), 10);
    logits[10] = 0;
    ck_assert_int_eq(draw(), 12);
    params.frequency_penalty = 0.6f; // 12 at 5.8, 13 at 5.9
    ck_assert_int_eq(draw(), 20);
    params.frequency_penalty = 0;
    params.presence_penalty = 0.6f; // 12 at 6.4, 13 at 5.9
    ck_assert_int_eq(draw(), 12);
    params.presence_penalty = 1.1f;
    ck_assert_int_eq(draw(), 20);
    params.presence_penalty = 0;
    logits[10] = 8.0f;
    params.repeat_penalty = 1.5f; // prompt and output: 10 at 5.3, 12 at 4.7
    ck_assert_int_eq(draw(), 20);
    params.repeat_penalty = 1.2f; // 10 at 6.67
    ck_assert_int_eq(draw(), 10);
    params.repeat_penalty = 2.0f; // negative logits are multiplied
    for (uint32_t i = 0; i < VOCAB; i++)
        logits[i] = -4.0f;
    logits[10] = -3.0f;
    logits[21] = -3.5f;
    ck_assert_int_eq(draw(), 21);
    params.repeat_penalty = 1.0f; // the scratch was wiped
    ck_assert_int_eq(draw(), 10);
}
END_TEST

START_TEST(banned_tokens_never_come)
{
    const int32_t banned[] = {7, 8};
    logits[7] = 30.0f;
    logits[8] = 29.0f;
    in.banned = banned;
    in.n_banned = 2;
    for (int mode = 0; mode < 4; mode++) {
        params.temperature = mode == 0 ? 0.0f : 1.0f;
        params.top_k = mode == 2 ? VOCAB - 1 : 0;
        params.top_p = mode == 3 ? 0.999999f : 1.0f;
        for (in.n_prompt = 0; in.n_prompt < 200; in.n_prompt++)
            ck_assert(draw() != 7 && out.token != 8);
    }
    static int32_t all[VOCAB];
    for (int32_t i = 0; i < (int32_t)VOCAB; i++)
        all[i] = i;
    in.banned = all;
    in.n_banned = VOCAB;
    ck_assert_int_eq(plm_sampler_draw(sampler, &in, &out), PLM_ERR_NUMERIC);
}
END_TEST

// The last token of a sequence comes only where the output does not end with the others.
START_TEST(bad_sequences_are_not_completed)
{
    static const int32_t bad[] = {1, 7, 3, 4, 5, 8, 2, 6, 9};
    static const struct {
        int32_t output[3];
        uint32_t n;
        int32_t best;
    } cases[] = {{{0}, 0, 8},       {{4}, 1, 8},       {{4, 5}, 2, 9}, {{1, 4, 5}, 3, 9},
                 {{4, 5, 6}, 3, 8}, {{5, 4, 5}, 3, 9}, {{5, 4}, 2, 8}};
    logits[7] = 40.0f; // never: its sequence is complete with it
    logits[8] = 30.0f;
    logits[9] = 20.0f;
    params.temperature = 0.0f;
    params.bad = bad;
    params.n_bad = sizeof(bad) / sizeof(bad[0]);
    ck_assert(!plm_sample_is_plain(&in) && !plm_sample_is_argmax(&in));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        in.output = cases[i].output;
        in.n_output = cases[i].n;
        ck_assert_int_eq(draw(), cases[i].best);
    }
    const int32_t six[] = {6};
    in.output = six;
    in.n_output = 1;
    logits[8] = 0.0f;
    ck_assert_int_ne(draw(), 9);
}
END_TEST

START_TEST(logprobs_are_the_models_own)
{
    const struct plm_sample_bias bias[] = {{3, 50.0f}};
    double sum = 0, max = -1e9;
    for (uint32_t i = 0; i < VOCAB; i++)
        max = fmax(max, (double)logits[i]);
    for (uint32_t i = 0; i < VOCAB; i++)
        sum += exp((double)logits[i] - max);
    double lse = max + log(sum);
    params.bias = bias;
    params.n_bias = 1;
    params.temperature = 0.5f;
    params.logprobs = true;
    params.top_logprobs = PLM_SAMPLE_TOP_MAX;
    ck_assert_int_eq(draw(), 3);
    ck_assert_double_eq_tol((double)out.logprob, (double)logits[3] - lse, 1e-5);
    ck_assert_uint_eq(out.n_top, PLM_SAMPLE_TOP_MAX);
    for (uint32_t i = 0; i < out.n_top; i++) {
        uint32_t better = 0;
        float x = logits[out.top[i].token];
        for (uint32_t k = 0; k < VOCAB; k++)
            better += logits[k] > x;
        ck_assert_uint_eq(better, i);
        ck_assert_double_eq_tol((double)out.top[i].logprob, (double)x - lse, 1e-5);
    }
    params.top_logprobs = 0;
    draw();
    ck_assert_uint_eq(out.n_top, 0);
}
END_TEST

START_TEST(bad_logits_are_told)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    static const uint32_t where[] = {0, 5, 17, VOCAB - 1};
    for (uint32_t b = 0; b < 3; b++) {
        for (uint32_t w = 0; w < 4; w++) {
            float keep = logits[where[w]];
            logits[where[w]] = bad[b];
            out.token = -7;
            ck_assert(!plm_sample_finite(logits, VOCAB));
            ck_assert_int_eq(plm_sampler_draw(sampler, &in, &out), PLM_ERR_NUMERIC);
            ck_assert_int_eq(out.token, -7);
            logits[where[w]] = keep;
        }
    }
    ck_assert(plm_sample_finite(logits, VOCAB));
    const float extreme[] = {FLT_MAX, -FLT_MAX, FLT_MIN / 2, -0.0f};
    ck_assert(plm_sample_finite(extreme, 4));
    draw();
}
END_TEST

// The op's reference, which knows neither sorting nor buckets, draws what the sampler draws.
START_TEST(the_op_draws_the_same)
{
    static const float top_p[] = {1.0f, 1e-30f, 0.3f, 0.9f, 0.99999994f};
    static const float min_p[] = {0.0f, 0.0f, 1e-6f, 0.1f, 1.0f};
    static const uint32_t top_k[] = {0, 0, 1, 30, VOCAB - 1, VOCAB, 5000};
    struct plm_argmax_record record;
    struct plm_sample_row row;
    const struct plm_sample_args args = {.x = (uintptr_t)logits,
                                         .params = (uintptr_t)&row,
                                         .dst = (uintptr_t)&record,
                                         .rows = 1,
                                         .n = VOCAB};
    for (uint32_t i = 0; i < 3000; i++) {
        const float spread = i % 3 == 0 ? 0.5f : i % 3 == 1 ? 6.0f : 40.0f;
        for (uint32_t t = 0; t < VOCAB; t++)
            logits[t] = spread * plm_random_uniform(4, i, t, 0);
        for (uint32_t t = 0; i % 5 == 0 && t < VOCAB; t++)
            logits[t] = i % 10 == 0 ? 0.0f * (float)((int)(t % 3) - 1) : floorf(logits[t]);
        params.seed = i;
        params.temperature = i % 11 == 0 ? 0.0f : 0.1f + 3.0f * plm_random_uniform(5, i, 0, 0);
        params.top_p = top_p[i / 7 % 5];
        params.min_p = min_p[i / 3 % 5];
        params.top_k = top_k[i % 7];
        in.n_output = i % 13;
        in.choice = i % 4;
        row = plm_sample_row_of(&in, VOCAB);
        plm_ref_sample(&args, 0, 1, NULL);
        ck_assert_uint_eq(record.n_wrong, 0);
        ck_assert_msg(draw() == record.index, "row %u: %d, and the op %d", i, out.token,
                      record.index);
    }
}
END_TEST

START_TEST(weights_are_those_of_the_distance)
{
    ck_assert_uint_eq(plm_sample_weight(0.0f), UINT64_C(1) << 40);
    ck_assert_uint_eq(plm_sample_weight(INFINITY), 0);
    for (uint32_t i = 0; i < 40000; i++) {
        const float distance = (float)i * 0.001f;
        const double exact = exp(-(double)distance) * 0x1p40;
        ck_assert_double_eq_tol((double)plm_sample_weight(distance), exact, 0.5 + exact * 3e-7);
    }
    ck_assert_uint_eq(plm_sample_mul_high(UINT64_MAX, UINT64_MAX), UINT64_MAX - 1);
    ck_assert_uint_eq(plm_sample_mul_high(UINT64_C(1) << 63, 9), 4);
    ck_assert_uint_eq(plm_sample_mul_high(UINT64_C(0x123456789ABCDEF0), UINT64_C(1) << 40),
                      UINT64_C(0x123456789A));
}
END_TEST

START_TEST(creation_survives_every_failed_allocation)
{
    for (uint64_t n = 1;; n++) {
        struct plm_sampler *s = NULL;
        plm_host_fail_nth(host, n, 0);
        int rc = plm_sampler_create(host, 64, &s);
        plm_host_fail_nth(host, 0, 0);
        if (rc == PLM_OK) {
            plm_sampler_destroy(s);
            ck_assert_uint_gt(n, 5);
            return;
        }
        ck_assert_int_eq(rc, PLM_ERR_NOMEM_HOST);
        ck_assert_ptr_null(s);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sample");
    TCase *tc = tcase_create("sample");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, distributions_match_the_oracle, 0, 17);
    tcase_add_test(tc, greedy_takes_the_lowest_of_the_best);
    tcase_add_test(tc, draws_depend_on_seed_choice_and_position_alone);
    tcase_add_test(tc, bias_comes_before_temperature_and_filters);
    tcase_add_test(tc, penalties_follow_their_scopes);
    tcase_add_test(tc, banned_tokens_never_come);
    tcase_add_test(tc, bad_sequences_are_not_completed);
    tcase_add_test(tc, logprobs_are_the_models_own);
    tcase_add_test(tc, bad_logits_are_told);
    tcase_add_test(tc, the_op_draws_the_same);
    tcase_add_test(tc, weights_are_those_of_the_distance);
    tcase_add_test(tc, creation_survives_every_failed_allocation);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
