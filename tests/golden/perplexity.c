// SPDX-License-Identifier: Apache-2.0
// What a KV cache in 8 bits costs: the perplexity of a text with it, against the one with a KV
// cache in half precision.
//
//     perplexity [--device ID] [--threads N] [--tokens N] [--context N] [--limit PERCENT] MODEL
//     TEXT...
//
// The first N tokens (20,000) of the files, one after the other, are cut into pieces of `context`
// tokens (2,048), each of which begins anew; every token of a piece but its first is predicted from
// those before it. Exit 1 where the perplexities differ by more than `limit` percent (0.5), 77
// where the model's heads do not fit.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/gguf/gguf.h"
#include "core/tokenizer/tokenizer.h"
#include "tests/support/runner.h"

#define CHUNK     256u // tokens of a step; their logits are in memory at once
#define TEXT_MAX  (8u << 20)
#define LIST_MAX  64
#define TYPES     2
#define TOKEN_MIN 64 // fewer say nothing

struct job {
    struct runner_opts runner;
    const char *model;
    const char *texts[LIST_MAX];
    int n_texts;
    uint32_t tokens, context;
    double limit; // percent
};

static char *read_texts(const struct job *job, size_t *ret_len)
{
    char *text = malloc(TEXT_MAX);
    *ret_len = 0;
    for (int i = 0; text != NULL && i < job->n_texts; i++) {
        FILE *file = fopen(job->texts[i], "rb");
        if (file == NULL) {
            printf("perplexity: cannot read %s\n", job->texts[i]);
            free(text);
            return NULL;
        }
        *ret_len += fread(text + *ret_len, 1, TEXT_MAX - *ret_len, file);
        fclose(file);
    }
    return text;
}

static int encode(const struct job *job, struct plm_host *host, struct plm_tokens *ret,
                  struct plm_error *err)
{
    struct plm_gguf *gguf = NULL;
    struct plm_tokenizer *tokenizer = NULL;
    size_t len;
    char *text = read_texts(job, &len);
    if (text == NULL)
        return plm_fail(err, PLM_ERR_IO, "there is no text");
    int r = plm_gguf_open_header(host, job->model, &gguf, err);
    if (r == PLM_OK)
        r = plm_tokenizer_create(host, gguf, &tokenizer, err);
    if (r == PLM_OK)
        r = plm_tokenizer_encode(tokenizer, (struct plm_slice){text, len}, 0, ret, err);
    plm_tokenizer_destroy(tokenizer);
    plm_gguf_close(gguf);
    free(text);
    return r;
}

// Adds what the tokens of one piece cost.
static int score(struct runner *r, const int32_t *ids, uint32_t n, float *logits, double *sum,
                 struct plm_error *err)
{
    const uint32_t n_vocab = runner_facts(r)->n_vocab;
    runner_reset(r);
    for (uint32_t at = 0; at < n; at += CHUNK) {
        const uint32_t rows = n - at < CHUNK ? n - at : CHUNK;
        const int status = runner_step(r, ids + at, rows, rows, logits, err);
        if (status != PLM_OK)
            return status;
        for (uint32_t i = 0; i < rows && at + i + 1 < n; i++)
            *sum -= runner_logprob(logits + (size_t)i * n_vocab, n_vocab, ids[at + i + 1]);
    }
    return PLM_OK;
}

// The perplexity of the tokens with one type of KV cache.
static int perplexity(const struct job *job, bool q8_0, const int32_t *ids, uint32_t n, double *ret,
                      struct plm_error *err)
{
    struct runner *r;
    struct runner_opts opts = job->runner;
    double sum = 0;
    uint32_t predicted = 0;
    opts.kv_q8_0 = q8_0;
    opts.max_tokens = job->context;
    int status = runner_open(job->model, &opts, &r, err);
    if (status != PLM_OK)
        return status;
    float *logits = malloc((size_t)CHUNK * runner_facts(r)->n_vocab * sizeof(*logits));
    if (logits == NULL)
        status = plm_fail(err, PLM_ERR_NOMEM_HOST, "no memory for logits");
    runner_set_context(r, job->context);
    for (uint32_t at = 0; status == PLM_OK && at + 1 < n; at += job->context) {
        const uint32_t piece = n - at < job->context ? n - at : job->context;
        status = score(r, ids + at, piece, logits, &sum, err);
        predicted += piece - 1;
        printf("  %s: %u of %u tokens, %.5f\n", q8_0 ? "q8_0" : "f16", at + piece, n,
               exp(sum / predicted));
    }
    free(logits);
    *ret = exp(sum / predicted);
    if (runner_close(r) != 0 && status == PLM_OK)
        status = plm_fail(err, PLM_ERR_INVALID, "host memory was not given back");
    return status;
}

static int compare(const struct job *job, const struct plm_tokens *tokens)
{
    struct plm_error err = {0};
    double got[TYPES];
    const uint32_t n = tokens->n < job->tokens ? (uint32_t)tokens->n : job->tokens;
    if (n < TOKEN_MIN) {
        printf("perplexity: %u tokens are too few\n", n);
        return 1;
    }
    for (int q8_0 = TYPES - 1; q8_0 >= 0; q8_0--) {
        const int r = perplexity(job, q8_0 != 0, tokens->ids, n, &got[q8_0], &err);
        if (r != PLM_OK) {
            printf("perplexity: %s\n", err.msg);
            return r == PLM_ERR_UNSUPPORTED && q8_0 != 0 ? 77 : 1;
        }
    }
    const double percent = (got[1] / got[0] - 1) * 100;
    const bool ok = fabs(percent) <= job->limit; // not with a NaN
    printf("%s: %u tokens in pieces of %u: f16 %.5f, q8_0 %.5f: %+.4f %% (limit %g %%)%s\n",
           job->model, n, job->context, got[0], got[1], percent, job->limit, ok ? "" : ": FAIL");
    return !ok;
}

static bool parse(struct job *job, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (arg[0] != '-') {
            if (job->model == NULL)
                job->model = arg;
            else if (job->n_texts < LIST_MAX)
                job->texts[job->n_texts++] = arg;
            continue;
        }
        i++;
        if (value == NULL)
            return false;
        if (strcmp(arg, "--device") == 0)
            job->runner.device = value;
        else if (strcmp(arg, "--threads") == 0)
            job->runner.threads = (uint32_t)strtoul(value, NULL, 10);
        else if (strcmp(arg, "--tokens") == 0)
            job->tokens = (uint32_t)strtoul(value, NULL, 10);
        else if (strcmp(arg, "--context") == 0)
            job->context = (uint32_t)strtoul(value, NULL, 10);
        else if (strcmp(arg, "--limit") == 0)
            job->limit = strtod(value, NULL);
        else
            return false;
    }
    return job->n_texts > 0 && job->tokens > 0 && job->context > 1;
}

int main(int argc, char **argv)
{
    struct job job = {.tokens = 20000, .context = 2048, .limit = 0.5};
    struct plm_error err = {0};
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!parse(&job, argc, argv)) {
        fprintf(stderr, "usage: perplexity [--device ID] [--threads N] [--tokens N] [--context N] "
                        "[--limit PERCENT] MODEL TEXT...\n");
        return 2;
    }
    struct plm_host *host = plm_host_create(0);
    struct plm_tokens tokens;
    plm_tokens_init(&tokens, host);
    int rc = 1;
    if (encode(&job, host, &tokens, &err) == PLM_OK)
        rc = compare(&job, &tokens);
    else
        printf("perplexity: %s\n", err.msg);
    plm_tokens_finish(&tokens);
    return plm_host_destroy(host) != 0 ? 1 : rc;
}
