// SPDX-License-Identifier: Apache-2.0
// worlds FILE...: plays world files. worlds --count N --seed S: plays N random ones.
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/fault_seed.h"
#include "tests/worlds/model.h"
#include "tests/worlds/play.h"
#include "tests/worlds/random.h"
#include "tests/worlds/scripted.h"

#define JOBS_MAX  64
#define TOLD_MAX  5 // failing worlds that a job describes; it goes on counting
#define HISTOGRAM 128

#ifdef PLM_FAULT_SEEDS
enum plm_fault_seed plm_fault_seeded;
#endif

struct args {
    uint64_t count, seed, world;
    bool has_world, print, verbose, twice, replay;
    const char *backend;
    unsigned jobs;
    const char *incident;   // file for the last incident's world
    const char *fault_seed; // the seeded fault that must show; NULL: none
    enum invariant shows_as;
};

// What the jobs report, in memory that they share.
struct tally {
    uint64_t worlds, failed, not_started, steps, tokens, requests, finished, refused, offers;
    uint64_t incidents, shown; // worlds with one, and those whose own world shows it again
    uint64_t caught_at;        // number of the world that showed a seeded fault
    uint64_t faults[FAULTS];
    uint64_t n_requests[HISTOGRAM]; // worlds with so many
    uint64_t n_events[HISTOGRAM];
};

// ---- one world ----

static void tell(const struct run *run, const char *name)
{
    if (run->lacks != NULL)
        printf("n/a   %s: %s\n", name, run->lacks);
    else if (run->fault == NO_FAULT)
        printf("ok    %s: %s%s, %" PRIu64 " steps, %u of %u requests finished, %u refused, "
               "hash %016" PRIx64 "\n",
               name, run->ready ? "ready" : "no start: ", run->start_error.message, run->step,
               run->n_finished, run->world->n_requests, run->n_refused, run->hash);
    else
        printf("FAIL  %s: %s (%s): %s\n", name, invariant_name(run->fault),
               invariant_text(run->fault), run->fault_text);
}

// Plays the world as text, too: the same must come of it, byte for byte.
static void play_text(struct run *run, const struct plm_world *world)
{
    struct plm_host *host = plm_host_create(0);
    struct plm_world *parsed = NULL;
    struct plm_buf text;
    struct plm_error err = {0};
    struct run other = {0};
    const struct play_opts quiet = {.backend = run->backend};
    plm_buf_init(&text, host, PLM_HOST_OTHER);
    plm_world_write(world, &text);
    if (text.failed || plm_world_parse(host, text.data, text.len, &parsed, &err) != PLM_OK) {
        fault(run, FAULT_WORLD, "the written world is not read: %s", err.msg);
    } else {
        play(&other, parsed, &quiet);
        if (other.hash != run->hash || other.fault != run->fault)
            fault(run, FAULT_WORLD, "hash %016" PRIx64 " as a struct, %016" PRIx64 " as text",
                  run->hash, other.hash);
    }
    run_finish(&other);
    plm_world_free(parsed);
    plm_buf_finish(&text);
    plm_host_destroy(host);
}

// An incident's world, which the engine wrote: all must hold in it, too. Returns whether it shows
// the same incident, which it may not where the device lied to the engine or took its time.
static bool play_incident(struct run *run, const struct plm_buf *text)
{
    struct plm_host *host = plm_host_create(0);
    struct plm_world *parsed = NULL;
    struct plm_error err = {0};
    struct run other = {0};
    const struct play_opts quiet = {.backend = run->backend};
    if (run->incidents == 0)
        fault(run, FAULT_WORLD, "there was no incident");
    else if (plm_world_parse(host, text->data, text->len, &parsed, &err) != PLM_OK)
        fault(run, FAULT_WORLD, "the incident's world is not read: %s", err.msg);
    else
        play(&other, parsed, &quiet);
    if (other.fault != NO_FAULT && other.fault != FAULT_WANT && other.fault != FAULT_START)
        fault(run, other.fault, "in the incident's world: %s", other.fault_text);
    const bool same = strcmp(other.reason, run->reason) == 0;
    run_finish(&other);
    plm_world_free(parsed);
    plm_host_destroy(host);
    return same;
}

static void add(struct tally *t, const struct run *run)
{
    const struct plm_world *w = run->world;
    t->worlds++;
    t->failed += run->fault != NO_FAULT;
    t->incidents += run->incidents > 0;
    t->faults[run->fault]++;
    t->not_started += !run->ready;
    t->steps += run->step;
    t->tokens += run->n_tokens;
    t->requests += w->n_requests;
    t->finished += run->n_finished;
    t->refused += run->n_refused;
    t->offers += run->n_offers_taken;
    t->n_requests[w->n_requests < HISTOGRAM ? w->n_requests : HISTOGRAM - 1]++;
    t->n_events[w->device.n_events < HISTOGRAM ? w->device.n_events : HISTOGRAM - 1]++;
}

// ---- files ----

static char *read_file(const char *path, size_t *ret_n)
{
    FILE *f = fopen(path, "rb");
    char *text = malloc(PLM_WORLD_BYTES_MAX + 1);
    if (f == NULL || text == NULL) {
        fprintf(stderr, "worlds: %s: %s\n", path, strerror(errno));
        free(text);
        if (f != NULL)
            fclose(f);
        return NULL;
    }
    *ret_n = fread(text, 1, PLM_WORLD_BYTES_MAX + 1, f);
    fclose(f);
    return text;
}

static void replay_file(struct run *run, const struct plm_buf *incident)
{
    if (!play_incident(run, incident))
        fault(run, FAULT_WORLD, "the incident's world does not show \"%s\"", run->reason);
}

static bool play_file(const char *path, const struct args *args, struct run *run,
                      struct plm_buf *incident)
{
    struct plm_host *host = plm_host_create(0);
    struct plm_world *world = NULL;
    struct plm_error err = {0};
    size_t n;
    char *text = read_file(path, &n);
    bool good = false;
    if (text != NULL && plm_world_parse(host, text, n, &world, &err) != PLM_OK) {
        printf("FAIL  %s: %s\n", path, err.msg);
    } else if (text != NULL) {
        const struct play_opts opts = {.trace = args->verbose ? stdout : NULL,
                                       .incident = incident,
                                       .path = path,
                                       .backend = args->backend};
        play(run, world, &opts);
        if (args->twice && run->lacks == NULL && run->fault == NO_FAULT)
            play_text(run, world);
        if (args->replay && run->lacks == NULL && run->fault == NO_FAULT)
            replay_file(run, incident);
        tell(run, path);
        good = run->fault == NO_FAULT;
    }
    plm_world_free(world);
    free(text);
    plm_host_destroy(host);
    return good;
}

static bool save(const char *path, const struct plm_buf *text)
{
    FILE *f = fopen(path, "wb");
    bool ok = f != NULL && fwrite(text->data, 1, text->len, f) == text->len;
    if (f != NULL)
        ok = fclose(f) == 0 && ok;
    return ok;
}

static int play_files(char **paths, int n, const struct args *args)
{
    struct run run = {0};
    struct plm_host *host = plm_host_create(0);
    struct plm_buf incident;
    int bad = 0;
    plm_buf_init(&incident, host, PLM_HOST_OTHER);
    for (int i = 0; i < n; i++)
        bad += !play_file(paths[i], args, &run, &incident);
    if (args->incident != NULL && incident.len > 0 && !save(args->incident, &incident))
        bad++;
    if (args->incident != NULL && incident.len == 0) {
        printf("FAIL  no incident was told of\n");
        bad++;
    }
    run_finish(&run);
    plm_buf_finish(&incident);
    plm_host_destroy(host);
    return bad > 0;
}

// ---- random worlds ----

static int play_one(const struct args *args)
{
    static struct random_world random;
    struct run run = {0};
    random_world(args->world, &random);
    if (args->print) {
        struct plm_host *host = plm_host_create(0);
        struct plm_buf text;
        plm_buf_init(&text, host, PLM_HOST_OTHER);
        plm_world_write(&random.world, &text);
        fwrite(text.data, 1, text.len, stdout);
        plm_buf_finish(&text);
        plm_host_destroy(host);
        return 0;
    }
    const struct play_opts opts = {.trace = args->verbose ? stdout : NULL};
    char name[64];
    snprintf(name, sizeof(name), "--world %" PRIu64, args->world);
    play(&run, &random.world, &opts);
    if (args->twice && run.fault == NO_FAULT)
        play_text(&run, &random.world);
    tell(&run, name);
    const int bad = run.fault != NO_FAULT;
    run_finish(&run);
    return bad;
}

static void job(const struct args *args, unsigned index, struct tally *tally)
{
    static struct random_world random;
    struct run run = {0};
    struct plm_host *host = plm_host_create(0);
    struct plm_buf incident;
    plm_buf_init(&incident, host, PLM_HOST_OTHER);
    const struct play_opts quiet = {.incident = args->replay ? &incident : NULL};
    for (uint64_t i = index; i < args->count && tally->caught_at == 0; i += args->jobs) {
        const uint64_t seed = random_seed(args->seed, i);
        random_world(seed, &random);
        play(&run, &random.world, &quiet);
        if (args->twice && run.fault == NO_FAULT)
            play_text(&run, &random.world);
        if (args->replay && run.fault == NO_FAULT && run.incidents > 0)
            tally->shown += play_incident(&run, &incident);
        add(tally, &run);
        if (args->fault_seed != NULL && run.fault == args->shows_as)
            tally->caught_at = i + 1;
        if (args->verbose || (run.fault != NO_FAULT && tally->failed <= TOLD_MAX)) {
            char name[64];
            snprintf(name, sizeof(name), "--world %" PRIu64, seed);
            tell(&run, name);
            fflush(stdout);
        }
    }
    run_finish(&run);
    plm_buf_finish(&incident);
    plm_host_destroy(host);
    model_forget();
}

static uint32_t median(const uint64_t *histogram, uint64_t n)
{
    uint64_t seen = 0;
    for (uint32_t i = 0; i < HISTOGRAM; i++) {
        seen += histogram[i];
        if (seen * 2 >= n)
            return i;
    }
    return HISTOGRAM - 1;
}

// A seeded fault must show: that is what this run is for.
static int report_fault_seed(const struct tally *jobs, unsigned n, const char *fault_seed)
{
    for (unsigned j = 0; j < n; j++) {
        if (jobs[j].caught_at == 0)
            continue;
        printf("fault seed %s: world %" PRIu64 " shows it\n", fault_seed, jobs[j].caught_at);
        return 0;
    }
    printf("FAIL  fault seed %s: no world shows it\n", fault_seed);
    return 1;
}

static int report(const struct tally *jobs, unsigned n)
{
    struct tally t = {0};
    for (unsigned j = 0; j < n; j++) {
        const uint64_t *from = (const uint64_t *)(const void *)&jobs[j];
        uint64_t *to = (uint64_t *)(void *)&t;
        for (size_t i = 0; i < sizeof(t) / sizeof(*to); i++)
            to[i] += from[i];
    }
    printf("%" PRIu64 " worlds, %" PRIu64 " failed; %" PRIu64 " did not start; requests %" PRIu64
           " (median %u a world), finished %" PRIu64 ", refused %" PRIu64 ", offers taken %" PRIu64
           "; events median %u; steps %" PRIu64 ", tokens %" PRIu64 "\n",
           t.worlds, t.failed, t.not_started, t.requests, median(t.n_requests, t.worlds),
           t.finished, t.refused, t.offers, median(t.n_events, t.worlds), t.steps, t.tokens);
    if (t.shown > 0)
        printf("  worlds with an incident %" PRIu64 ", of which again as written %" PRIu64 "\n",
               t.incidents, t.shown);
    for (int i = NO_FAULT + 1; i < FAULTS; i++) {
        if (t.faults[i] > 0)
            printf("  %s: %" PRIu64 "\n", invariant_name((enum invariant)i), t.faults[i]);
    }
    return t.failed > 0;
}

static int play_many(const struct args *args)
{
    struct tally *tallies = mmap(NULL, JOBS_MAX * sizeof(*tallies), PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pids[JOBS_MAX];
    int bad = 0;
    if (tallies == MAP_FAILED)
        return 2;
    fflush(stdout);
    for (unsigned j = 0; j < args->jobs; j++) {
        pids[j] = args->jobs > 1 ? fork() : 0;
        if (pids[j] == 0) {
            job(args, j, &tallies[j]);
            if (args->jobs > 1)
                exit(0);
        }
    }
    for (unsigned j = 0; j < args->jobs && args->jobs > 1; j++) {
        int status;
        if (pids[j] < 0 || waitpid(pids[j], &status, 0) != pids[j] || status != 0) {
            printf("FAIL  job %u died\n", j);
            bad = 1;
        }
    }
    if (args->fault_seed != NULL)
        return report_fault_seed(tallies, args->jobs, args->fault_seed) || bad;
    return report(tallies, args->jobs) || bad;
}

// ---- arguments ----

static int usage(void)
{
    fputs("usage: worlds [--device vulkan|cuda|hip] [--verbose] [--twice] [--replay] [--incident "
          "OUT] "
          "FILE...\n"
          "       worlds --count N [--seed S] [--jobs J] [--twice] [--replay]   random worlds\n"
          "       worlds --fault-seed NAME --count N [--seed S]           until a seeded fault "
          "shows\n"
          "       worlds --world SEED [--verbose] [--twice]          one of them\n"
          "       worlds --print SEED                                its text\n",
          stderr);
    return 2;
}

static bool take_number(char **argv, int argc, int *i, uint64_t *ret)
{
    char *end;
    if (*i + 1 >= argc)
        return false;
    errno = 0;
    *ret = strtoull(argv[++*i], &end, 10);
    return errno == 0 && *end == '\0' && end != argv[*i];
}

// Arms a seeded fault, and says which check must find it.
static bool arm(const char *name, enum invariant *ret_shows_as)
{
#ifdef PLM_FAULT_SEEDS
    static const struct {
        const char *name;
        enum plm_fault_seed seed;
        enum invariant shows_as;
    } seeds[] = {
        {"margin", PLM_FAULT_SEED_MARGIN, FAULT_MARGIN},
        {"leak", PLM_FAULT_SEED_LEAK, FAULT_BLOCKS},
        {"alloc", PLM_FAULT_SEED_ALLOC, FAULT_ALLOC},
        {"keep", PLM_FAULT_SEED_KEEP, FAULT_BALANCE},
        {"twice", PLM_FAULT_SEED_TWICE, FAULT_ONCE},
        {"peak", PLM_FAULT_SEED_PEAK, FAULT_PEAK},
        {"offer", PLM_FAULT_SEED_OFFER, FAULT_OFFER},
        {"lane", PLM_FAULT_SEED_LANE, FAULT_LANE},
    };
    for (size_t i = 0; i < sizeof(seeds) / sizeof(seeds[0]); i++) {
        if (strcmp(name, seeds[i].name) != 0)
            continue;
        plm_fault_seeded = seeds[i].seed;
        *ret_shows_as = seeds[i].shows_as;
        return true;
    }
#endif
    (void)name, (void)ret_shows_as;
    return false;
}

// Seeded faults are built into the program beside this one, which goes on with the same arguments.
static void become_seeded(char **argv)
{
#ifndef PLM_FAULT_SEEDS
    char path[4096];
    for (char **arg = argv + 1; *arg != NULL; arg++) {
        const int n = snprintf(path, sizeof(path), "%s-seeded", argv[0]);
        if (strcmp(*arg, "--fault-seed") == 0 && n > 0 && (size_t)n < sizeof(path))
            execv(path, argv);
    }
#else
    (void)argv;
#endif
}

static int parse(int argc, char **argv, struct args *a)
{
    uint64_t jobs = 1;
    int i = 1;
    *a = (struct args){.seed = 1};
    for (; i < argc && strncmp(argv[i], "--", 2) == 0; i++) {
        bool ok = true;
        if (strcmp(argv[i], "--count") == 0)
            ok = take_number(argv, argc, &i, &a->count);
        else if (strcmp(argv[i], "--seed") == 0)
            ok = take_number(argv, argc, &i, &a->seed);
        else if (strcmp(argv[i], "--jobs") == 0)
            ok = take_number(argv, argc, &i, &jobs) && jobs >= 1 && jobs <= JOBS_MAX;
        else if (strcmp(argv[i], "--world") == 0)
            a->has_world = ok = take_number(argv, argc, &i, &a->world);
        else if (strcmp(argv[i], "--print") == 0)
            a->print = a->has_world = ok = take_number(argv, argc, &i, &a->world);
        else if (strcmp(argv[i], "--verbose") == 0)
            a->verbose = true;
        else if (strcmp(argv[i], "--twice") == 0)
            a->twice = true;
        else if (strcmp(argv[i], "--replay") == 0)
            a->replay = true;
        else if (strcmp(argv[i], "--device") == 0 && i + 1 < argc)
            a->backend = argv[++i];
        else if (strcmp(argv[i], "--incident") == 0 && i + 1 < argc)
            a->incident = argv[++i];
        else if (strcmp(argv[i], "--fault-seed") == 0 && i + 1 < argc)
            ok = arm(a->fault_seed = argv[++i], &a->shows_as);
        else
            ok = false;
        if (!ok)
            return -1;
    }
    a->jobs = (unsigned)jobs;
    return i;
}

// 0: it is there; else the exit status: 77 where the machine lacks it.
static int no_backend(const char *name)
{
    char why[512];
    const enum scripted_there there = scripted_prepare(name, why);
    if (there == SCRIPTED_READY)
        return 0;
    fprintf(stderr, "%s\n", why);
    return there == SCRIPTED_ABSENT ? 77 : 2;
}

int main(int argc, char **argv)
{
    struct args args;
    become_seeded(argv);
    const int first = parse(argc, argv, &args);
    if (first < 0 || (first == argc && args.count == 0 && !args.has_world))
        return usage();
    int bad;
    if (args.backend != NULL && (bad = no_backend(args.backend)) != 0)
        return bad;
    if (args.has_world)
        bad = play_one(&args);
    else if (args.count > 0)
        bad = play_many(&args);
    else
        bad = play_files(argv + first, argc - first, &args);
    model_forget();
    return bad;
}
