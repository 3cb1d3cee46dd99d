// SPDX-License-Identifier: Apache-2.0
// An engine under mixed load for as long as one likes, through the public API and with its own
// thread: texts, tokens, chats, shared beginnings, several choices, clients that leave, bad and too
// large requests, bursts beyond the queue. Once a minute the clients pause, the quiet engine is
// read, and a row of the table is printed. At the end the rows are judged (judge() below): what
// must not grow did not, and what went in came out.
//
//   soak --minutes 60                the tiny model of tests/data
//   soak --minutes 60 -m MODEL       another one
//   soak --seconds 10 --out FILE     also writes the table as Markdown
//
// Exit status: 0 all held, 1 something did not, 2 it could not run.
#include <inttypes.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "tests/soak/soak.h"

#ifndef TEST_MODELS
#error "the build names the folder of the tiny models"
#endif

#define MIB ((double)(1 << 20))

// Of the process's resident size between quiet moments. The engine trims after it freed 4 MiB, so
// as much may stay; as much again for the pages at the edges of what malloc keeps.
#define RSS_TOLERANCE_BYTES (INT64_C(8) << 20)

// The engine's buffer for the text of one token grows to the longest one that it met.
#define TEXT_BUFFER_BYTES (INT64_C(4) << 10)

// Two rows of a minute each; a shared machine may take a second of a short run away.
#define STALL_S 121

#define ROWS_MAX  1024
#define SAMPLE_NS 20000000 // between readings within a row: peaks of resident and host memory

struct args {
    double seconds;
    const char *model; // NULL: the tiny one
    const char *out;
    uint64_t seed;
    uint32_t ctx;
    uint32_t queue_ms; // longest wait in the queue; few should wait so long, but some
};

#define SLEEP_ROWS 3 // rows from one sleep to the next

struct row {
    double at_s;
    plim_metrics m;
    struct soak_tally tally;
    int64_t rss, rss_peak; // quiet, and the highest since the row before
    int64_t host_peak;
};

struct table {
    struct row rows[ROWS_MAX];
    uint32_t sleeps;  // and wakes
    uint32_t n, warm; // rows before `warm` are the first minutes
    FILE *out;
    bool held;
};

static int64_t resident(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%*s %ld", &pages) != 1)
        pages = 0;
    if (file != NULL)
        fclose(file);
    return (int64_t)pages * sysconf(_SC_PAGESIZE);
}

static int64_t now(void)
{
    return plm_now(plm_clock_system());
}

static void pause_ns(int64_t ns)
{
    const struct plm_clock *clock = plm_clock_system();
    clock->sleep_ns(clock->ctx, ns);
}

static void both(struct table *t, const char *line)
{
    puts(line);
    fflush(stdout);
    if (t->out != NULL)
        fprintf(t->out, "%s\n", line);
}

// ---- rows ----

static uint64_t sum(const uint64_t *v, size_t n)
{
    uint64_t s = 0;
    for (size_t i = 0; i < n; i++)
        s += v[i];
    return s;
}

static void print_head(struct table *t)
{
    both(t,
         "| s | in | stop | length | left | failed | now | never | context | queue | bad | "
         "device MiB | high MiB | host KiB | host peak MiB | RSS MiB | RSS peak MiB | "
         "blocks used+cached/all | steps | tokens | preempted | prefix hits | in step | audit |");
    both(t, "|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
            "--:|--:|--:|");
}

static void print_row(struct table *t, const struct row *r)
{
    const struct soak_tally *y = &r->tally;
    const plim_metrics *m = &r->m;
    char line[512];
    snprintf(
        line, sizeof(line),
        "| %.0f | %" PRIu64 " | %" PRIu64 " | %" PRIu64 " | %" PRIu64 " | %" PRIu64 " | %" PRIu64
        " | %" PRIu64 " | %" PRIu64 " | %" PRIu64 " | %" PRIu64
        " | %.2f | %.2f | %.1f | %.2f | %.1f | %.1f | %" PRIu64 "+%" PRIu64 "/%" PRIu64
        " | %" PRIu64 " | %" PRIu64 " | %" PRIu64 " | %.0f %% | %" PRIu64 " | %" PRIu64 " |",
        r->at_s, y->in, y->ended[PLIM_FINISH_STOP], y->ended[PLIM_FINISH_LENGTH],
        y->left + y->ended[PLIM_FINISH_CANCELLED], y->ended[PLIM_FINISH_ERROR], m->rejected_now,
        m->rejected_never, m->rejected_context, m->rejected_queue,
        y->refused[-PLIM_ERR_INVALID] + y->refused[-PLIM_ERR_FORMAT], (double)m->used_bytes / MIB,
        (double)m->high_water_bytes / MIB, (double)m->host_used_bytes / 1024,
        (double)r->host_peak / MIB, (double)r->rss / MIB, (double)r->rss_peak / MIB, m->blocks_used,
        m->blocks_cached, m->blocks_total, m->steps, m->generated_tokens, m->preemptions,
        m->prefix_queries > 0 ? 100.0 * (double)m->prefix_hits / (double)m->prefix_queries : 0.0,
        m->allocations_in_step, m->audit_excess);
    both(t, line);
}

static void sample(struct soak *s, struct row *r)
{
    plim_metrics m = PLIM_INIT(plim_metrics);
    plim_engine_metrics(s->engine, &m);
    const int64_t rss = resident();
    r->rss_peak = rss > r->rss_peak ? rss : r->rss_peak;
    r->host_peak = m.host_used_bytes > r->host_peak ? m.host_used_bytes : r->host_peak;
}

// Clients end what they have and wait.
static void park(struct soak *s)
{
    pthread_mutex_lock(&s->lock);
    s->park = true;
    while (s->parked < SOAK_CLIENTS)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

static void unpark(struct soak *s)
{
    pthread_mutex_lock(&s->lock);
    s->park = false;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

// Reads the engine when nothing runs. False: a client or the engine did not come to rest.
static bool read_quiet(struct soak *s, struct row *r)
{
    const int64_t until = now() + INT64_C(30000000000);
    r->m.struct_size = sizeof(r->m);
    do {
        pause_ns(SAMPLE_NS);
        plim_engine_metrics(s->engine, &r->m);
        if (now() > until)
            return false;
    } while (r->m.running + r->m.waiting > 0 || r->m.last_step_age_ns > 0);
    pause_ns(SAMPLE_NS); // the engine gives free pages back once it is idle
    plim_engine_metrics(s->engine, &r->m);
    r->rss = resident();
    pthread_mutex_lock(&s->lock);
    r->tally = s->tally;
    pthread_mutex_unlock(&s->lock);
    return true;
}

// ---- judgement ----

static void check(struct table *t, bool ok, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static void check(struct table *t, bool ok, const char *fmt, ...)
{
    char what[400], line[440];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof(what), fmt, args);
    va_end(args);
    snprintf(line, sizeof(line), "- %s: %s", ok ? "held" : "NOT HELD", what);
    both(t, line);
    t->held = t->held && ok;
}

// What went in and what came out, by the clients' count and by the engine's.
static void judge_counts(struct table *t, const struct row *last)
{
    const struct soak_tally *y = &last->tally;
    const plim_metrics *m = &last->m;
    const uint64_t refused = sum(y->refused, SOAK_STATUSES);
    const uint64_t ended = sum(y->ended, SOAK_FINISHES) + y->left;
    const uint64_t engine =
        m->finished_stop + m->finished_length + m->finished_cancelled + m->finished_error;
    check(t, y->in == refused + ended,
          "%" PRIu64 " requests in = %" PRIu64 " refused + %" PRIu64 " ended", y->in, refused,
          ended);
    check(t, engine == ended, "the engine counts %" PRIu64 " ends, its clients %" PRIu64, engine,
          ended);
    const uint64_t counted =
        m->rejected_context + m->rejected_never + m->rejected_now + m->rejected_queue;
    // One that waited too long in the queue is refused as well, heard or not: its client may have
    // left it.
    const uint64_t unheard = m->finished_error - y->ended[PLIM_FINISH_ERROR];
    const uint64_t seen = refused - y->refused[-PLIM_ERR_INVALID] - y->refused[-PLIM_ERR_FORMAT] +
                          y->failed[-PLIM_ERR_NOMEM_NOW] + unheard;
    check(t, counted == seen, "the engine counts %" PRIu64 " refusals, its clients %" PRIu64,
          counted, seen);
    check(t, y->wrong == 0, "%" PRIu64 " results that no request of its kind may get%s%s", y->wrong,
          y->wrong > 0 ? "; the first: " : "", y->first_wrong);
    check(t, y->probes > 0, "%" PRIu64 " repeats of %d requests gave the same tokens", y->probes,
          SOAK_PROBES);
}

static void judge_memory(struct table *t, const struct row *first, const struct row *last)
{
    const plim_metrics *a = &first->m, *b = &last->m;
    int64_t host = 0, rss_warm = 0, rss = 0;
    uint32_t idle_rows = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        const struct row *r = &t->rows[i];
        if (i < t->warm)
            rss_warm = r->rss > rss_warm ? r->rss : rss_warm;
        else
            rss = r->rss > rss ? r->rss : rss;
        host = r->m.host_used_bytes > host ? r->m.host_used_bytes : host;
        idle_rows +=
            r->m.blocks_used == 0 && r->m.blocks_free + r->m.blocks_cached == r->m.blocks_total;
    }
    check(t, a->high_water_bytes == b->high_water_bytes && a->used_bytes == b->used_bytes,
          "device high-water mark %" PRId64 " bytes at the first row and %" PRId64 " at the last",
          a->high_water_bytes, b->high_water_bytes);
    check(t, b->used_bytes <= b->limit_bytes,
          "%" PRId64 " bytes are held, within the line of %" PRId64, b->used_bytes, b->limit_bytes);
    check(t, b->allocations_in_step == 0 && b->audit_excess == 0,
          "%" PRIu64 " allocations within a step, %" PRIu64 " forwards beyond their cost",
          b->allocations_in_step, b->audit_excess);
    check(t, idle_rows == t->n, "no block in use in %u of %u quiet moments", idle_rows, t->n);
    check(t, host <= b->host_idle_bytes + TEXT_BUFFER_BYTES,
          "host budget back at its baseline of %" PRId64 " bytes in every quiet moment (%" PRId64
          " above it at most)",
          b->host_idle_bytes, host - b->host_idle_bytes);
#ifdef __SANITIZE_ADDRESS__
    (void)rss; // freed memory stays in its quarantine
    (void)rss_warm;
#else
    check(t, rss <= rss_warm + RSS_TOLERANCE_BYTES,
          "resident size %.1f MiB at most after the first %u rows, %.1f in them (tolerance %.0f)",
          (double)rss / MIB, t->warm, (double)rss_warm / MIB, RSS_TOLERANCE_BYTES / MIB);
#endif
}

static void judge(struct table *t)
{
    const struct row *last = &t->rows[t->n - 1];
    both(t, "");
    judge_counts(t, last);
    judge_memory(t, &t->rows[0], last);
    check(t, t->sleeps >= t->n / SLEEP_ROWS,
          "%u sleeps gave every block back, and as many wakes took them again", t->sleeps);
    double busy_s = 0, longest_s = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        const struct row *r = &t->rows[i];
        longest_s = r->at_s - busy_s > longest_s ? r->at_s - busy_s : longest_s;
        if (r->m.steps > (i > 0 ? t->rows[i - 1].m.steps : 0))
            busy_s = r->at_s;
    }
    check(t, longest_s <= STALL_S, "steps were made in every %.0f s (%d at most)", longest_s,
          STALL_S);
}

// ---- the run ----

// Sleeps and wakes while the clients wait: the cache is given back whole, and comes back as it was.
static void sleep_and_wake(struct soak *s, struct table *t)
{
    plim_metrics before = PLIM_INIT(plim_metrics), asleep = before, after = before;
    plim_error err = PLIM_INIT(plim_error);
    plim_engine_metrics(s->engine, &before);
    int r = plim_engine_sleep(s->engine, -1, &err);
    plim_engine_metrics(s->engine, &asleep);
    if (r == PLIM_OK)
        r = plim_engine_wake(s->engine, &err);
    plim_engine_metrics(s->engine, &after);
    if (r != PLIM_OK)
        check(t, false, "sleep and wake: %s", err.message);
    else if (asleep.blocks_total != 0 || after.blocks_total != before.blocks_total)
        check(t, false, "%" PRIu64 " blocks before a sleep, %" PRIu64 " in it, %" PRIu64 " after",
              before.blocks_total, asleep.blocks_total, after.blocks_total);
    t->sleeps++;
}

static void run_rows(struct soak *s, struct table *t, const struct args *args)
{
    // A row a minute, or ten in all where the whole is shorter; at most what the table holds.
    double each = args->seconds / 10 < 60 ? args->seconds / 10 : 60;
    each = each < args->seconds / ROWS_MAX ? args->seconds / ROWS_MAX : each;
    const uint32_t n = (uint32_t)(args->seconds / each + 0.5);
    t->warm = n / 10 < 2 ? 2 : n / 10 > 5 ? 5 : n / 10;
    const int64_t from = now();
    for (uint32_t i = 0; i < n && t->held; i++) {
        struct row *r = &t->rows[t->n++];
        const int64_t until = from + (int64_t)((i + 1) * each * 1e9);
        do {
            sample(s, r);
            pause_ns(SAMPLE_NS);
        } while (now() < until);
        park(s);
        r->at_s = (double)(now() - from) * 1e-9;
        if (!read_quiet(s, r))
            check(t, false, "the engine was not idle 30 s after its last client paused");
        print_row(t, r);
        t->held = t->held && r->tally.wrong == 0; // no hour for a lost cause
        if (i % SLEEP_ROWS == SLEEP_ROWS - 1)
            sleep_and_wake(s, t);
        unpark(s);
    }
}

static void start_clients(struct soak *s, struct soak_client *clients)
{
    for (uint32_t i = 0; i < SOAK_CLIENTS; i++) {
        clients[i] = (struct soak_client){.soak = s, .index = i};
        if (pthread_create(&clients[i].thread, NULL, soak_client_run, &clients[i]) != 0)
            abort();
    }
}

static void stop_clients(struct soak *s, struct soak_client *clients)
{
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    for (uint32_t i = 0; i < SOAK_CLIENTS; i++)
        pthread_join(clients[i].thread, NULL);
}

static plim_engine *create(const struct args *args)
{
    plim_engine_opts o;
    plim_engine *engine = NULL;
    plim_error err = PLIM_INIT(plim_error);
    plim_engine_opts_init(&o);
    o.model_path = args->model;
    if (args->model == NULL) {
        o.model_path = TEST_MODELS "/llama-tied-q4_1.gguf";
        o.chat_template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
    }
    o.ctx_size = args->ctx;
    o.batch_max_tokens = 128;
    o.max_sequences = 8;
    // One context and a quarter for eight sequences: blocks run out, so requests are preempted.
    o.max_total_tokens = 5 * (uint64_t)args->ctx / 4;
    o.queue_max = 32;
    o.queue_timeout_ms = args->queue_ms;
    o.host_limit_bytes = UINT64_C(64) << 20;
    if (plim_engine_create(&o, &engine, &err) != PLIM_OK)
        fprintf(stderr, "soak: %s\n", err.message);
    return engine;
}

static bool parse(int argc, char **argv, struct args *args)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        if (strcmp(name, "--minutes") == 0)
            args->seconds = 60 * atof(value);
        else if (strcmp(name, "--seconds") == 0)
            args->seconds = atof(value);
        else if (strcmp(name, "-m") == 0)
            args->model = value;
        else if (strcmp(name, "--out") == 0)
            args->out = value;
        else if (strcmp(name, "--seed") == 0)
            args->seed = strtoull(value, NULL, 10);
        else if (strcmp(name, "--ctx-size") == 0)
            args->ctx = (uint32_t)strtoul(value, NULL, 10);
        else if (strcmp(name, "--queue-ms") == 0)
            args->queue_ms = (uint32_t)strtoul(value, NULL, 10);
        else
            return false;
    }
    return argc % 2 == 1 && args->seconds >= 2 && args->ctx >= 64;
}

// As the bundled server does: else glibc keeps what bursts freed.
static void bound_free_memory(void)
{
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 128 * 1024);
    mallopt(M_TRIM_THRESHOLD, 128 * 1024);
    mallopt(M_ARENA_MAX, 2);
#endif
}

int main(int argc, char **argv)
{
    static struct table t = {.held = true};
    static struct soak s = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    struct args args = {.seconds = 3600, .seed = 1, .ctx = 512, .queue_ms = 100};
    struct soak_client clients[SOAK_CLIENTS];
    if (!parse(argc, argv, &args)) {
        fprintf(stderr, "usage: soak [--minutes N | --seconds N] [-m MODEL] [--ctx-size N] "
                        "[--queue-ms N] [--seed N] [--out FILE]\n");
        return 2;
    }
    if (args.out != NULL && (t.out = fopen(args.out, "w")) == NULL) {
        perror(args.out);
        return 2;
    }
    bound_free_memory();
    s.seed = args.seed;
    s.engine = create(&args);
    if (s.engine == NULL)
        return 2;
    s.model = (plim_model_info)PLIM_INIT(plim_model_info);
    plim_engine_model(s.engine, &s.model);
    s.chat = args.model == NULL || s.model.has_chat_template;
    char line[256];
    snprintf(line, sizeof(line), "%s (%s %s), context %u, seed %" PRIu64 "; %s\n", s.model.name,
             s.model.arch, s.model.type, s.model.n_ctx, args.seed, plim_build_info());
    both(&t, line);
    print_head(&t);
    start_clients(&s, clients);
    run_rows(&s, &t, &args);
    stop_clients(&s, clients);
    judge(&t);
    plim_engine_free(s.engine);
    both(&t, t.held ? "\nAll held." : "\nSOMETHING DID NOT HOLD.");
    if (t.out != NULL && fclose(t.out) != 0)
        t.held = false;
    return t.held ? 0 : 1;
}
