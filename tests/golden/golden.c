// SPDX-License-Identifier: Apache-2.0
// Holds the forward against logits that an independent implementation computed in float32 from the
// decoded weights of the same file. Usage: golden [--device ID | --fused] [--only GLOB] DIR...; a
// folder holds NAME.gguf, NAME.ref.json and raw logits, or real-NAME.ref.json for models that lie
// under $PLIMSOLL_TEST_MODELS.
//
// Two readings of every model. Strict: reference kernels, float activations, float32 KV; it tells a
// wrong bit from rounding. As served: fast kernels, 8-bit activations for quantised weights,
// float16 KV, chunks of 32.
//
// --device ID: on that device (a device has no reference kernels; strict means the formats alone).
// --fused: on the CPU, with every optional op.
// --kv-type q8_0: what a KV cache in 8 bits costs. The second reading of the tiny models has one,
// and float activations, so that nothing else differs; models whose heads do not fit are skipped.
// --only GLOB: models whose names fit alone.
#include <dirent.h>
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/golden/reference.h"
#include "tests/support/runner.h"

// Largest differences, in units of the spread of the model's logits. They are those of the README
// beside the references.
#define STRICT_MAX      1e-4
#define SERVED_F16_MAX  0.03 // float weights: what a float16 KV cache costs
#define SERVED_Q8_MAX   0.25 // 8-bit activations
#define SERVED_Q8_RMS   0.04
#define KV_Q8_MAX       0.15  // what a KV cache in 8 bits costs; measured: 0.12
#define KV_Q8_RMS       0.016 // 0.0123
#define REAL_TOP_SERVED 0.3   // log-probability of the ten best, 8-bit activations
#define REAL_TOP_STRICT 5e-4  // the references are rounded to 1e-5; measured: 4.4e-5

#define SERVED_CHUNK 32
// Larger models take minutes when weights are decoded for every token; only their first two cases
// are read strictly.
#define LARGE_BYTES (300ull << 20)
#define LARGE_CASES 2

// Where the models run.
static const char *device;
static bool kv_q8_0;
static const struct plm_backend *backend;
static const char *only = "*"; // names of models

struct tally {
    int passed, failed, skipped;
    int steps, flipped; // of greedy continuations as served
};

static void verdict(struct tally *t, bool ok, const char *model, const char *what, double got,
                    double limit)
{
    if (ok)
        t->passed++;
    else
        t->failed++;
    if (!ok || getenv("GOLDEN_VERBOSE") != NULL)
        printf("%s %s: %s: %.3g (limit %.3g)\n", ok ? "ok  " : "FAIL", model, what, got, limit);
}

static void fail(struct tally *t, const char *model, const struct plm_error *err)
{
    t->failed++;
    printf("FAIL %s: %s\n", model, err->msg);
}

// Feeds all tokens in steps of `chunk` and returns the logits of rows first.. (malloc), or NULL.
static float *run_tokens(struct runner *r, const struct ref_tokens *tokens, uint32_t first,
                         uint32_t chunk, struct plm_error *err)
{
    const uint32_t n_vocab = runner_facts(r)->n_vocab;
    float *out = malloc(sizeof(float) * n_vocab * (tokens->n - first));
    runner_reset(r);
    runner_set_context(r, tokens->n); // as the references have it: each case at its own length
    for (uint32_t at = 0; out != NULL && at < tokens->n; at += chunk) {
        uint32_t n = tokens->n - at < chunk ? tokens->n - at : chunk;
        uint32_t end = at + n;
        uint32_t wanted = end <= first ? 0 : end - (at > first ? at : first);
        float *dst = out + (size_t)n_vocab * (end - wanted >= first ? end - wanted - first : 0);
        if (runner_step(r, tokens->ids + at, n, wanted, dst, err) != PLM_OK) {
            free(out);
            return NULL;
        }
    }
    return out;
}

struct distance {
    double max, sum_sq;
    size_t n;
};

static void measure(struct distance *d, const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double diff = fabs((double)a[i] - (double)b[i]);
        if (!(diff <= d->max)) // also takes NaN
            d->max = diff;
        d->sum_sq += diff * diff;
    }
    d->n += n;
}

static int argmax(const float *x, uint32_t n)
{
    int best = 0;
    for (uint32_t i = 1; i < n; i++)
        best = x[i] > x[best] ? (int)i : best;
    return best;
}

static double gap_of(const float *x, uint32_t n)
{
    int best = argmax(x, n);
    double second = -INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        if ((int)i != best && x[i] > second)
            second = x[i];
    }
    return x[best] - second;
}

// Continuations, teacher-forced. Strict: no exception. As served: a step may differ where its gap
// is below twice the error measured at that step; how many may is judged over all models.
static void check_greedy(struct tally *t, const struct reference *ref, const float *strict,
                         const float *served, uint32_t n_vocab)
{
    int wrong_strict = 0, wrong_served = 0;
    for (uint32_t i = 0; i < ref->greedy.n; i++) {
        const float *a = strict + (size_t)n_vocab * i, *b = served + (size_t)n_vocab * i;
        struct distance d = {0};
        measure(&d, a, b, n_vocab);
        wrong_strict += argmax(a, n_vocab) != ref->greedy.ids[i];
        t->steps++;
        if (argmax(b, n_vocab) != ref->greedy.ids[i]) {
            t->flipped++;
            wrong_served += gap_of(a, n_vocab) >= 2 * d.max;
        }
    }
    verdict(t, wrong_strict == 0, ref->name, "greedy steps wrong, strict", wrong_strict, 0);
    verdict(t, wrong_served == 0, ref->name, "greedy steps wrong beyond rounding, as served",
            wrong_served, 0);
}

// Prompt and continuation as one sequence; the logits that chose each token of the continuation.
static float *run_greedy(struct runner *r, const struct ref_tokens *prompt,
                         const struct ref_tokens *greedy, uint32_t chunk, struct plm_error *err)
{
    struct ref_tokens all = {.n = prompt->n + greedy->n - 1};
    all.ids = malloc(sizeof(int32_t) * (all.n + 1));
    memcpy(all.ids, prompt->ids, sizeof(int32_t) * prompt->n);
    memcpy(all.ids + prompt->n, greedy->ids, sizeof(int32_t) * greedy->n);
    float *out = run_tokens(r, &all, prompt->n - 1, chunk, err);
    free(all.ids);
    return out;
}

static bool check_cases(struct tally *t, struct runner *r, const struct reference *ref,
                        uint32_t chunk, struct distance *ret, struct plm_error *err)
{
    const uint32_t n_vocab = runner_facts(r)->n_vocab;
    for (uint32_t i = 0; i < ref->n_cases; i++) {
        const struct ref_case *c = &ref->cases[i];
        float *got = run_tokens(r, &c->tokens, c->first_row, chunk, err);
        if (got == NULL) {
            fail(t, ref->name, err);
            return false;
        }
        measure(ret, got, c->logits, (size_t)n_vocab * (c->tokens.n - c->first_row));
        free(got);
    }
    return true;
}

static bool is_float(enum plm_type type)
{
    return type == PLM_TYPE_F32 || type == PLM_TYPE_F16 || type == PLM_TYPE_BF16;
}

static struct runner_opts options(bool strict)
{
    return (struct runner_opts){
        .device = device, .backend = backend, .strict = strict, .threads = 2, .max_tokens = 512};
}

static void check_tiny(struct tally *t, const char *path, const struct reference *ref)
{
    struct plm_error err = {0};
    struct runner *strict = NULL, *served = NULL;
    struct runner_opts strict_opts = options(true), served_opts = options(kv_q8_0);
    strict_opts.reference = true;
    served_opts.kv_q8_0 = kv_q8_0;
    int s = runner_open(path, &strict_opts, &strict, &err);
    if (s == PLM_ERR_UNSUPPORTED || (device != NULL && s == PLM_ERR_NOT_FOUND)) {
        printf("skip %s: %s\n", ref->name, err.msg);
        t->skipped++;
        return;
    }
    if (s == PLM_OK)
        s = runner_open(path, &served_opts, &served, &err);
    if (s == PLM_ERR_UNSUPPORTED && kv_q8_0) {
        printf("skip %s: %s\n", ref->name, err.msg);
        t->skipped++;
        goto end;
    }
    if (s != PLM_OK) {
        fail(t, ref->name, &err);
        goto end;
    }
    struct distance a = {0}, b = {0};
    const double unit = ref->logits_std;
    if (check_cases(t, strict, ref, 512, &a, &err))
        verdict(t, a.max <= STRICT_MAX * unit, ref->name, "strict, largest", a.max / unit,
                STRICT_MAX);
    if (check_cases(t, served, ref, SERVED_CHUNK, &b, &err)) {
        bool plain = is_float(runner_facts(served)->main_type);
        double limit = kv_q8_0 ? KV_Q8_MAX : plain ? SERVED_F16_MAX : SERVED_Q8_MAX;
        double rms = sqrt(b.sum_sq / (double)b.n) / unit;
        verdict(t, b.max <= limit * unit, ref->name, "as served, largest", b.max / unit, limit);
        limit = kv_q8_0 ? KV_Q8_RMS : SERVED_Q8_RMS;
        if (!plain || kv_q8_0)
            verdict(t, rms <= limit, ref->name, "as served, rms", rms, limit);
    }
    float *x = run_greedy(strict, &ref->prompt, &ref->greedy, 512, &err);
    float *y = run_greedy(served, &ref->prompt, &ref->greedy, 1, &err);
    if (x != NULL && y != NULL)
        check_greedy(t, ref, x, y, runner_facts(strict)->n_vocab);
    else
        fail(t, ref->name, &err);
    free(x);
    free(y);
end:
    if (served != NULL)
        verdict(t, runner_close(served) == 0, ref->name, "leaked host bytes", 0, 0);
    if (strict != NULL)
        verdict(t, runner_close(strict) == 0, ref->name, "leaked host bytes", 0, 0);
}

static double top_distance(const float *x, uint32_t n_vocab, const struct ref_case *c)
{
    double worst = 0;
    for (uint32_t i = 0; i < 10 && i < c->n_top; i++) {
        double diff = fabs(runner_logprob(x, n_vocab, c->top_ids[i]) - c->top_logprobs[i]);
        worst = diff <= worst ? worst : diff;
    }
    return worst;
}

static void check_real_case(struct tally *t, struct runner *r, const struct reference *ref,
                            const struct ref_case *c, bool strict, double limit)
{
    struct plm_error err = {0};
    const uint32_t n_vocab = runner_facts(r)->n_vocab;
    float *x = run_greedy(r, &c->tokens, &c->greedy, strict ? 512 : SERVED_CHUNK, &err);
    if (x == NULL) {
        fail(t, ref->name, &err);
        return;
    }
    double worst = top_distance(x, n_vocab, c);
    verdict(t, worst <= limit, ref->name, strict ? "top 10, strict" : "top 10, as served", worst,
            limit);
    int wrong = 0;
    for (uint32_t i = 0; i < c->greedy.n; i++) {
        bool same = argmax(x + (size_t)n_vocab * i, n_vocab) == c->greedy.ids[i];
        if (!strict) {
            t->steps++;
            t->flipped += !same;
        }
        wrong += !same && c->gap[i] >= 2 * limit;
    }
    verdict(t, wrong == 0, ref->name, "greedy steps wrong beyond rounding", wrong, 0);
    free(x);
}

// Strict here means float activations and a float32 KV cache on the fast kernels: they are
// bit-equal to the plain C ones (the conformance suite), which would take minutes.
static void check_real(struct tally *t, const char *path, const struct reference *ref)
{
    struct plm_error err = {0};
    for (int strict = 0; strict <= 1; strict++) {
        struct runner *r = NULL;
        struct runner_opts opts = options(strict);
        if (runner_open(path, &opts, &r, &err) != PLM_OK) {
            fail(t, ref->name, &err);
            return;
        }
        const double limit = strict ? REAL_TOP_STRICT : REAL_TOP_SERVED;
        bool large = strict && runner_facts(r)->file_bytes > LARGE_BYTES;
        for (uint32_t i = 0; i < ref->n_cases && !(large && i == LARGE_CASES); i++)
            check_real_case(t, r, ref, &ref->cases[i], strict, limit);
        runner_close(r);
    }
}

static void check_one(struct tally *t, const char *dir, const char *file)
{
    struct reference ref;
    char error[256];
    if (!reference_read(dir, file, &ref, error, sizeof(error))) {
        t->failed++;
        printf("FAIL %s: %s\n", file, error);
        return;
    }
    char path[4096];
    if (ref.real && kv_q8_0) {
        t->skipped++;
    } else if (!ref.real) {
        snprintf(path, sizeof(path), "%s/%s.gguf", dir, ref.name);
        check_tiny(t, path, &ref);
    } else if (reference_find_model(&ref, path, sizeof(path))) {
        check_real(t, path, &ref);
    } else {
        printf("skip %s: no such model under $PLIMSOLL_TEST_MODELS\n", ref.name);
        t->skipped++;
    }
    reference_finish(&ref);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_reference(const struct dirent *e)
{
    const char *end = strstr(e->d_name, ".ref.json");
    char name[256];
    if (end == NULL || strcmp(end, ".ref.json") != 0)
        return 0;
    snprintf(name, sizeof(name), "%.*s", (int)(end - e->d_name), e->d_name);
    return fnmatch(only, name, 0) == 0;
}

int main(int argc, char **argv)
{
    struct tally t = {0};
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 1; i < argc; i++) {
        struct dirent **names;
        if (strcmp(argv[i], "--fused") == 0) {
            backend = runner_fused_cpu(PLM_GPU_PREFERS);
            continue;
        }
        if (strcmp(argv[i], "--device") == 0 && i + 1 < argc) {
            device = argv[++i];
            continue;
        }
        if (strcmp(argv[i], "--kv-type") == 0 && i + 1 < argc) {
            kv_q8_0 = strcmp(argv[++i], "q8_0") == 0;
            continue;
        }
        if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
            only = argv[++i];
            continue;
        }
        int n = scandir(argv[i], &names, is_reference, by_name);
        if (n < 0) {
            printf("no folder %s\n", argv[i]);
            continue;
        }
        for (int j = 0; j < n; j++) {
            check_one(&t, argv[i], names[j]->d_name);
            free(names[j]);
        }
        free(names);
    }
    // At most 2 % of the steps may flip where rounding decides.
    if (t.steps > 0)
        verdict(&t, t.flipped <= t.steps * 0.02, "all models", "share of greedy steps that flipped",
                (double)t.flipped / t.steps, 0.02);
    printf("%d passed, %d failed, %d skipped\n", t.passed, t.failed, t.skipped);
    return t.failed > 0 ? EXIT_FAILURE : t.passed > 0 ? EXIT_SUCCESS : 77;
}
