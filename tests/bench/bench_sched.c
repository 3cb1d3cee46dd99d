// SPDX-License-Identifier: Apache-2.0
// What the scheduler and the block tables of a rank cost: nanoseconds per running request and step,
// on a simulated device that takes no time. Every request decodes; blocks grow, full blocks go to
// the prefix index, and one request in 64 steps ends and is replaced, as in serving.
//
//   sched             1, 100, 1,000 and 10,000 running requests, of models whose layers see all,
//                     of which some have a window, and which all have one
//   sched --max NS    fails above so many nanoseconds
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backends/sim/sim.h"
#include "core/base/clock.h"
#include "core/engine/block_tables.h"

#define CONTEXT 2048u
#define WINDOW  128u // a request lives for CONTEXT / 4 tokens and leaves most of them behind
#define PROMPT  40u
#define ROUNDS  9 // medians
#define STEPS   64u

// The windows of each model's KV groups.
static const struct {
    const char *name;
    uint32_t n_groups, windows[2];
} models[] = {{"no window", 1, {0}}, {"some layers", 2, {0, WINDOW}}, {"all layers", 1, {WINDOW}}};
#define MODELS (sizeof(models) / sizeof(models[0]))

struct bench {
    struct plm_host *host;
    struct plm_device *device;
    struct plm_ledger *ledger;
    struct plm_prefix *prefix;
    struct plm_sched *sched;
    struct plm_kv_set kv;
    struct plm_block_tables tables;
    struct plm_seq *seqs;
    uint64_t orders;
};

static void must(int r, const char *what)
{
    if (r == PLM_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, plm_strstatus(r));
    exit(EXIT_FAILURE);
}

static void start_seq(struct bench *b, struct plm_seq *seq)
{
    int32_t *tokens = seq->tokens;
    memset(seq, 0, sizeof(*seq));
    seq->tokens = tokens;
    seq->order = b->orders++;
    // Prompts differ, so nothing is shared.
    for (uint32_t i = 0; i < PROMPT; i++)
        tokens[i] = (int32_t)(seq->order * 7919 + i);
    seq->n_tokens = seq->n_prompt = PROMPT;
    seq->root = plm_prefix_root(b->prefix, NULL, 0);
    seq->use_cache = true;
    plm_sched_add(b->sched, seq);
}

// As many blocks as the requests have in the middle of their lives, or as their windows need.
static uint32_t pool_blocks(uint32_t window, uint32_t n)
{
    return window == 0
               ? n * (CONTEXT / PLM_KV_BLOCK_TOKENS) / 4 + 64
               : (uint32_t)plm_kv_windows_need(n, plm_kv_sequence_blocks(window, CONTEXT), n + 512);
}

// Pools get their size when the index knows them.
static void create_cache(struct bench *b, size_t model, uint32_t n)
{
    b->kv.n_groups = models[model].n_groups;
    for (uint32_t g = 0; g < b->kv.n_groups; g++) {
        b->kv.windows[g] = models[model].windows[g];
        must(plm_kv_pool_create(b->host, b->device, b->ledger, 4096, true, &b->kv.pools[g]),
             "pool");
    }
    must(plm_prefix_create(b->host, &b->kv, 1, 0, &b->prefix), "prefix");
    for (uint32_t g = 0; g < b->kv.n_groups; g++) {
        const uint32_t blocks = pool_blocks(b->kv.windows[g], n);
        must(plm_kv_pool_format(b->kv.pools[g], blocks / 64 + 1, blocks), "format");
        must(plm_kv_pool_resize(b->kv.pools[g], blocks, NULL), "resize");
    }
}

static void create(struct bench *b, size_t model, uint32_t n)
{
    const struct plm_sched_opts opts = {.max_sequences = n,
                                        .batch_max_tokens = n + 512,
                                        .prefill_chunk = 512,
                                        .max_context = CONTEXT};
    const struct plm_sim_opts sim = {.capacity_bytes = UINT64_C(1) << 40};
    *b = (struct bench){.host = plm_host_create(0)};
    const struct plm_device_opts dev = {
        .host = b->host, .clock = plm_clock_system(), .max_dispatches = 16, .backend_opts = &sim};
    must(plm_device_open_backend(&plm_sim_backend, &dev, &b->device, NULL), "open");
    b->ledger = plm_ledger_create(b->host);
    create_cache(b, model, n);
    must(plm_sched_create(b->host, &opts, &b->kv, b->prefix, &b->sched), "sched");
    must(plm_block_tables_init(&b->tables, b->host, &opts, b->kv.n_groups), "tables");
    b->seqs = calloc(n, sizeof(*b->seqs));
    for (uint32_t i = 0; i < n; i++) {
        b->seqs[i].tokens = calloc(CONTEXT, sizeof(int32_t));
        start_seq(b, &b->seqs[i]);
    }
}

static void destroy(struct bench *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        plm_sched_remove(b->sched, &b->seqs[i]);
        free(b->seqs[i].tokens);
    }
    free(b->seqs);
    plm_sched_destroy(b->sched);
    plm_block_tables_finish(&b->tables);
    plm_prefix_destroy(b->prefix);
    for (uint32_t g = 0; g < b->kv.n_groups; g++)
        plm_kv_pool_destroy(b->kv.pools[g]);
    plm_ledger_destroy(b->ledger);
    plm_device_close(b->device);
    plm_host_destroy(b->host);
}

// One step; returns the tokens that came of it.
static uint32_t step(struct bench *b, uint32_t ends_at)
{
    struct plm_batch batch;
    plm_sched_form(b->sched, 0, NULL, &batch);
    plm_block_tables_fill(&b->tables, &b->kv, &batch);
    plm_sched_commit(b->sched);
    for (uint32_t i = 0; i < batch.shape.logits_rows; i++) {
        struct plm_seq *seq = batch.logits_seqs[i];
        if (i == ends_at || seq->n_tokens >= CONTEXT / 4) {
            plm_sched_remove(b->sched, seq);
            start_seq(b, seq);
        } else {
            plm_sched_push(b->sched, seq, (int32_t)(seq->n_tokens + seq->order));
        }
    }
    return batch.shape.logits_rows;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Processor time, so that other programs on the machine do not count.
static double now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

static double measure(size_t model, uint32_t n)
{
    struct bench b;
    double ns[ROUNDS];
    struct plm_sched_stats stats;
    create(&b, model, n);
    do {
        step(&b, UINT32_MAX);
        plm_sched_read(b.sched, &stats);
    } while (stats.running < n);
    for (uint32_t i = 0; i < STEPS; i++)
        step(&b, UINT32_MAX);
    const uint32_t steps = n < 1000 ? STEPS * 1000 / n : STEPS;
    for (int r = 0; r < ROUNDS; r++) {
        uint64_t tokens = 0;
        double from = now_ns();
        for (uint32_t i = 0; i < steps; i++)
            tokens += step(&b, i % 64 == 0 ? i % n : UINT32_MAX);
        ns[r] = (now_ns() - from) / (double)tokens;
    }
    destroy(&b, n);
    qsort(ns, ROUNDS, sizeof(ns[0]), by_value);
    return ns[ROUNDS / 2];
}

int main(int argc, char **argv)
{
    static const uint32_t counts[] = {1, 100, 1000, 10000};
    double max = argc == 3 && strcmp(argv[1], "--max") == 0 ? atof(argv[2]) : 0, worst = 0;
    printf("ns per request and step, by the layers that have a window\n%10s", "running");
    for (size_t m = 0; m < MODELS; m++)
        printf(" %12s", models[m].name);
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        printf("\n%10u", counts[i]);
        for (size_t m = 0; m < MODELS; m++) {
            const double ns = measure(m, counts[i]);
            worst = ns > worst ? ns : worst;
            printf(" %12.1f", ns);
        }
    }
    putchar('\n');
    return max > 0 && worst > max ? EXIT_FAILURE : EXIT_SUCCESS;
}
