// SPDX-License-Identifier: Apache-2.0
// plimsoll bench: how fast a model answers on this machine. Prompts are token ids, so tokenizing is
// not in the figures; the prefix cache is off and the model may not end an answer early. What is
// measured is what a client of the API gets: sampling and the engine's thread included. With
// --explain nothing runs: what a decode step asks of a device is counted.
#include <inttypes.h>
#include <json-c/json.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/bench_measure.h"
#include "tools/cmd.h"
#include "tools/files.h"
#include "tools/opts.h"
#include "tools/term.h"

#define REPETITIONS_MAX 1000
#define USERS_MAX       4096
#define TOKENS_MAX      1000000
#define LIST_MAX        8 // numbers of one option
#define CASES_MAX       (3 * LIST_MAX + 2)
#define BATCH_DEFAULT   512 // as plim_engine_opts says

// For CUDA alone: what an NVIDIA H100 80GB HBM3 reads when it does nothing else (measured; 3,352 on
// paper).
#define READ_GB_PER_S 3197.0

struct flags {
    const char *prompts; // lists of numbers
    const char *users;
    const char *sampled;
    uint32_t predict; // tokens; 0: skip the cases
    uint32_t depth;   // tokens before the first decoded one
    uint32_t mixed;
    uint32_t repetitions;
    double seconds;  // 0: as long as it takes
    double gb_per_s; // --explain; 0: not given
    bool explain;
    bool json;
};

static const struct plm_opt table[] = {
    PLM_OPT("-p, --n-prompt", "N,...", "tokens of the prompt, a case each; 0: skip (default 512)",
            PLM_OPT_STRING, offsetof(struct flags, prompts)),
    PLM_OPT_IN("-n, --n-gen", "N", "tokens to decode; 0: skip (default 128)", PLM_OPT_U32,
               offsetof(struct flags, predict), 0, 1e6),
    PLM_OPT("--users", "N,...", "sequences that decode together, a case each; 0: skip\n(default 8)",
            PLM_OPT_STRING, offsetof(struct flags, users)),
    PLM_OPT("--sampled", "N,...", "the same at temperature 1, a case each; 0: skip (default 0)",
            PLM_OPT_STRING, offsetof(struct flags, sampled)),
    PLM_OPT_IN(
        "--mixed", "N",
        "requests at once, of prompts up to the depth and answers up to\n-n in eight steps of "
        "length; 0: skip (default 0)",
        PLM_OPT_U32, offsetof(struct flags, mixed), 0, USERS_MAX),
    PLM_OPT_IN("-d, --n-depth", "N", "tokens of context before decoding (default 1)", PLM_OPT_U32,
               offsetof(struct flags, depth), 1, 1e6),
    PLM_OPT_IN("-r, --repetitions", "N",
               "measured runs of each case, after one that is not\n"
               "(default 5); the median counts",
               PLM_OPT_U32, offsetof(struct flags, repetitions), 1, REPETITIONS_MAX),
    PLM_OPT_IN("--seconds", "S",
               "for all runs together: each case has an even share of what is\nleft, and at least "
               "one run; 0: as long as it takes (default 0)",
               PLM_OPT_DOUBLE, offsetof(struct flags, seconds), 0, 1e6),
    PLM_OPT("--explain", NULL,
            "run nothing: count what one decode step asks of a device that\nneed not be there, by "
            "layer and by op: dispatches, barriers,\nbytes read, and the time that reading takes; "
            "needs the model's\nheader alone; --device is cpu, cuda, hip or vulkan, -c the tokens "
            "of\nthe sequence (default 1024)",
            PLM_OPT_FLAG, offsetof(struct flags, explain)),
    PLM_OPT_IN("--bandwidth", "GB/S",
               "with --explain: what the device reads, in 10^9 bytes a second\n(default, for cuda: "
               "3197, measured on an NVIDIA H100; others have none)",
               PLM_OPT_DOUBLE, offsetof(struct flags, gb_per_s), 0.001, 1e6),
    PLM_OPT("--json", NULL, "print JSON instead of a table", PLM_OPT_FLAG,
            offsetof(struct flags, json)),
    PLM_OPT_END,
};

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct rates {
    double median, min, max; // tokens per second
};

static struct rates rates_of(const struct plm_bench_case *what)
{
    double sorted[REPETITIONS_MAX];
    for (uint32_t i = 0; i < what->n; i++)
        sorted[i] = what->tokens[i] / what->seconds[i];
    qsort(sorted, what->n, sizeof(sorted[0]), compare);
    return (struct rates){(sorted[(what->n - 1) / 2] + sorted[what->n / 2]) / 2, sorted[0],
                          sorted[what->n - 1]};
}

// The memory report of the engine as it serves.
static json_object *memory_json(const struct plm_bench *bench)
{
    size_t need = 0;
    plim_engine_memory_json(bench->engine, NULL, 0, &need);
    char *text = malloc(need + 1);
    json_object *out = NULL;
    if (text != NULL && plim_engine_memory_json(bench->engine, text, need + 1, &need) == PLIM_OK)
        out = json_tokener_parse(text);
    free(text);
    return out;
}

static json_object *member(json_object *from, const char *name)
{
    json_object *value = NULL;
    json_object_object_get_ex(from, name, &value);
    return value;
}

// The device of a memory report; NULL: there is none.
static json_object *device_of(json_object *memory)
{
    json_object *devices = member(memory, "devices");
    return json_object_is_type(devices, json_type_array) ? json_object_array_get_idx(devices, 0)
                                                         : NULL;
}

// What the figures depend on beside the model: device, threads, sizes and limits.
static void print_setting(const struct plm_bench *bench, const plim_engine_opts *opts)
{
    const double mib = 1024.0 * 1024;
    json_object *memory = memory_json(bench);
    json_object *device = device_of(memory);
    const int64_t workers = json_object_get_int64(member(device, "workers"));
    if (device == NULL) {
        json_object_put(memory);
        return;
    }
    printf("device %s (%s)", json_object_get_string(member(device, "id")),
           json_object_get_string(member(device, "name")));
    if (workers > 0)
        printf(", %lld threads", (long long)workers);
    printf("; context %u, %u sequences, batch %u; load line %.0f MiB of %.0f", bench->model.n_ctx,
           opts->max_sequences, opts->batch_max_tokens,
           (double)json_object_get_int64(member(device, "limit_bytes")) / mib,
           (double)json_object_get_int64(member(device, "total_bytes")) / mib);
    if (opts->memory_limit_bytes > 0)
        printf(", memory limit %.0f MiB", (double)opts->memory_limit_bytes / mib);
    if (opts->host_limit_bytes > 0)
        printf(", host limit %.0f MiB", (double)opts->host_limit_bytes / mib);
    printf("\n");
    json_object_put(memory);
}

static void print_table(const struct plm_bench *bench, const plim_engine_opts *opts,
                        const struct plm_bench_case *cases, size_t n)
{
    printf("plimsoll %s, %s (%s, %s, %.1f M parameters)\n", plim_version(), bench->model.name,
           bench->model.arch, bench->model.type, (double)bench->model.n_params / 1e6);
    print_setting(bench, opts);
    printf("%-8s %8s %8s %6s %12s %12s %12s %10s\n", "case", "prompt", "decoded", "users",
           "tokens/s", "slowest", "fastest", "ms/step");
    for (size_t i = 0; i < n && cases[i].n > 0; i++) {
        const struct plm_bench_case *what = &cases[i];
        struct rates rates = rates_of(what);
        printf("%-8s %8u %8u %6u %12.2f %12.2f %12.2f", what->name, what->prompt, what->predict,
               what->users, rates.median, rates.min, rates.max);
        if (what->kind == PLM_BENCH_DECODE || what->kind == PLM_BENCH_USERS)
            printf(" %10.2f\n", 1000.0 * what->users / rates.median);
        else
            printf(" %10s\n", "");
    }
}

static json_object *case_json(const struct plm_bench_case *what)
{
    struct rates rates = rates_of(what);
    json_object *out = json_object_new_object(), *seconds = json_object_new_array();
    json_object_object_add(out, "name", json_object_new_string(what->name));
    json_object_object_add(out, "prompt_tokens", json_object_new_int64(what->prompt));
    json_object_object_add(out, "decoded_tokens", json_object_new_int64(what->predict));
    json_object_object_add(out, "users", json_object_new_int64(what->users));
    json_object_object_add(out, "tokens_per_second", json_object_new_double(rates.median));
    json_object_object_add(out, "tokens_per_second_min", json_object_new_double(rates.min));
    json_object_object_add(out, "tokens_per_second_max", json_object_new_double(rates.max));
    for (uint32_t i = 0; i < what->n; i++)
        json_object_array_add(seconds, json_object_new_double(what->seconds[i]));
    json_object_object_add(out, "seconds", seconds);
    if (what->kind == PLM_BENCH_MIXED) {
        json_object_object_add(
            out, "prompt_tokens_per_second",
            json_object_new_double(what->prompts_n / what->seconds[what->n - 1]));
        json_object_object_add(out, "first_token_seconds", json_object_new_double(what->first_s));
    }
    return out;
}

// How long the start took.
struct start {
    bool (*progress)(void *ctx, const plim_progress *progress); // whom else to tell
    void *progress_ctx;
    double begin_s, loaded_s, ready_s;
};

static bool note_progress(void *ctx, const plim_progress *progress)
{
    struct start *start = ctx;
    if (strcmp(progress->stage, "load") == 0)
        start->loaded_s = plm_term_now_s();
    return start->progress == NULL || start->progress(start->progress_ctx, progress);
}

static void print_json(const struct plm_bench *bench, const plim_engine_opts *opts,
                       const struct start *start, const struct plm_bench_case *cases, size_t n)
{
    json_object *out = json_object_new_object(), *model = json_object_new_object();
    json_object *memory = memory_json(bench);
    json_object *list = json_object_new_array();
    json_object_object_add(out, "object", json_object_new_string("bench"));
    json_object_object_add(out, "version", json_object_new_string(plim_version()));
    json_object_object_add(out, "build", json_object_new_string(plim_build_info()));
    json_object_object_add(out, "device", json_object_new_string(opts->device));
    json_object_object_add(out, "threads", json_object_get(member(device_of(memory), "workers")));
    json_object_object_add(out, "context", json_object_new_int64(bench->model.n_ctx));
    json_object_object_add(out, "sequences", json_object_new_int64(opts->max_sequences));
    json_object_object_add(out, "batch", json_object_new_int64(opts->batch_max_tokens));
    json_object_object_add(out, "memory_limit_bytes",
                           json_object_new_uint64(opts->memory_limit_bytes));
    json_object_object_add(out, "host_limit_bytes", json_object_new_uint64(opts->host_limit_bytes));
    json_object_object_add(model, "path", json_object_new_string(opts->model_path));
    json_object_object_add(model, "name", json_object_new_string(bench->model.name));
    json_object_object_add(model, "arch", json_object_new_string(bench->model.arch));
    json_object_object_add(model, "type", json_object_new_string(bench->model.type));
    json_object_object_add(model, "parameters", json_object_new_uint64(bench->model.n_params));
    json_object_object_add(model, "file_bytes", json_object_new_uint64(bench->model.file_bytes));
    json_object_object_add(out, "model", model);
    json_object_object_add(out, "load_seconds",
                           json_object_new_double(start->loaded_s - start->begin_s));
    json_object_object_add(out, "ready_seconds",
                           json_object_new_double(start->ready_s - start->begin_s));
    json_object_object_add(out, "memory", memory);
    for (size_t i = 0; i < n && cases[i].n > 0; i++)
        json_object_array_add(list, case_json(&cases[i]));
    json_object_object_add(out, "cases", list);
    puts(json_object_to_json_string_ext(out,
                                        JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE));
    json_object_put(out);
}

// "512,4096"; a list of nothing but 0 is empty. False, and a message, where it is no such list.
static bool read_list(const char *option, const char *text, uint32_t max, uint32_t out[LIST_MAX],
                      size_t *ret_n)
{
    *ret_n = 0;
    if (strcmp(text, "0") == 0)
        return true;
    for (;; text++) {
        char *end;
        const unsigned long long value =
            *text >= '0' && *text <= '9' ? strtoull(text, &end, 10) : 0;
        if (value == 0 || value > max || *ret_n == LIST_MAX || (*end != ',' && *end != '\0')) {
            fprintf(stderr,
                    "plimsoll bench: %s takes up to %d numbers from 1 to %u, with commas between "
                    "them, or 0\n",
                    option, LIST_MAX, max);
            return false;
        }
        out[(*ret_n)++] = (uint32_t)value;
        text = end;
        if (*text == '\0')
            return true;
    }
}

// Decoding first: of a run that is cut short it says the most.
static bool choose_cases(const struct flags *flags, struct plm_bench_case cases[CASES_MAX],
                         size_t *ret_n)
{
    uint32_t prompts[LIST_MAX], users[LIST_MAX], sampled[LIST_MAX];
    size_t n_prompts, n_users, n_sampled, n = 0;
    if (!read_list("-p", flags->prompts, TOKENS_MAX, prompts, &n_prompts) ||
        !read_list("--users", flags->users, USERS_MAX, users, &n_users) ||
        !read_list("--sampled", flags->sampled, USERS_MAX, sampled, &n_sampled))
        return false;
    const struct plm_bench_case decode = {.kind = PLM_BENCH_DECODE,
                                          .name = "decode",
                                          .prompt = flags->depth,
                                          .predict = flags->predict,
                                          .users = 1};
    if (flags->predict > 0)
        cases[n++] = decode;
    for (size_t i = 0; i < n_users + n_sampled && flags->predict > 0; i++) {
        const bool greedy = i < n_users;
        cases[n] = decode;
        cases[n].kind = PLM_BENCH_USERS;
        cases[n].name = greedy ? "users" : "sampled";
        cases[n].temperature = greedy ? 0 : 1;
        cases[n++].users = greedy ? users[i] : sampled[i - n_users];
    }
    for (size_t i = 0; i < n_prompts; i++)
        cases[n++] = (struct plm_bench_case){
            .kind = PLM_BENCH_PROMPT, .name = "prompt", .prompt = prompts[i], .users = 1};
    if (flags->mixed > 0 && flags->predict > 0) {
        cases[n] = decode;
        cases[n].kind = PLM_BENCH_MIXED;
        cases[n].name = "mixed";
        cases[n++].users = flags->mixed;
    }
    *ret_n = n;
    return true;
}

// What the cases need and the command line did not say. Returns the longest prompt.
static uint32_t set_sizes(plim_engine_opts *opts, const struct plm_bench_case *cases, size_t n)
{
    const uint32_t batch = opts->batch_max_tokens > 0 ? opts->batch_max_tokens : BATCH_DEFAULT;
    uint32_t context = 0, sequences = 1, longest = 1;
    for (size_t i = 0; i < n; i++) {
        const uint32_t c = plm_bench_context(&cases[i], batch);
        context = c > context ? c : context;
        sequences = cases[i].users > sequences ? cases[i].users : sequences;
        longest = cases[i].prompt > longest ? cases[i].prompt : longest;
    }
    if (opts->ctx_size == 0)
        opts->ctx_size = context;
    if (opts->max_sequences == 0)
        opts->max_sequences = sequences;
    opts->batch_max_tokens = batch > opts->max_sequences ? batch : opts->max_sequences;
    return longest;
}

static int create(struct plm_bench *bench, plim_engine_opts *opts, struct start *start,
                  plim_error *err)
{
    *start = (struct start){.progress = opts->progress, .progress_ctx = opts->progress_ctx};
    opts->progress = note_progress;
    opts->progress_ctx = start;
    start->begin_s = start->loaded_s = plm_term_now_s();
    const int r = plim_engine_create(opts, &bench->engine, err);
    start->ready_s = plm_term_now_s();
    plm_term_progress_end();
    return r;
}

static int measure(struct plm_bench *bench, const struct flags *flags, struct plm_bench_case *cases,
                   size_t n, plim_error *err)
{
    const double end_s = flags->seconds > 0 ? plm_term_now_s() + flags->seconds : INFINITY;
    int r = PLIM_OK;
    for (size_t i = 0; i < n && r == PLIM_OK; i++) {
        const double now_s = plm_term_now_s();
        const double until_s = now_s + (end_s - now_s) / (double)(n - i);
        r = plm_bench_measure(bench, &cases[i], flags->repetitions, until_s, err);
    }
    return r;
}

static int bench(plim_engine_opts *opts, const struct flags *flags, struct plm_bench_case *cases,
                 size_t n)
{
    const uint32_t longest = set_sizes(opts, cases, n);
    struct plm_bench state = {.random = 1, .batch_max_tokens = opts->batch_max_tokens};
    struct start start;
    plim_error err = PLIM_INIT(plim_error);
    int r = create(&state, opts, &start, &err);
    if (r != PLIM_OK) {
        plm_term_error("bench", r, &err);
        return 1;
    }
    state.model = (plim_model_info)PLIM_INIT(plim_model_info);
    plim_engine_model(state.engine, &state.model);
    state.tokens = calloc(longest, sizeof(*state.tokens));
    r = state.tokens != NULL ? PLIM_OK : PLIM_ERR_NOMEM_HOST;
    if (r == PLIM_OK)
        r = measure(&state, flags, cases, n, &err);
    if (r != PLIM_OK)
        plm_term_error("bench", r, &err);
    // What was measured before a failure holds all the same.
    if (cases[0].n > 0 && flags->json)
        print_json(&state, opts, &start, cases, n);
    else if (cases[0].n > 0)
        print_table(&state, opts, cases, n);
    for (size_t i = 0; i < n; i++) {
        free(cases[i].seconds);
        free(cases[i].tokens);
    }
    free(state.tokens);
    plim_engine_free(state.engine);
    return r == PLIM_OK && plm_stdout_finish("bench") ? 0 : 1;
}

// What the device reads, in bytes a second. False: a message was printed.
static bool choose_bandwidth(const char *device, const struct flags *flags, double *ret)
{
    const bool is_cuda = device != NULL && strncmp(device, "cuda", 4) == 0 &&
                         (device[4] == '\0' || device[4] == ':');
    *ret = 1e9 * (flags->gb_per_s > 0 ? flags->gb_per_s : READ_GB_PER_S);
    if (flags->gb_per_s > 0 || is_cuda)
        return true;
    fprintf(stderr,
            "plimsoll bench: --explain for --device %s needs --bandwidth GB/S: what it reads is "
            "known here for cuda alone\n",
            device != NULL ? device : "cpu");
    return false;
}

static int explain(const plim_engine_opts *opts, const struct flags *flags)
{
    double bytes_per_second;
    if (!choose_bandwidth(opts->device, flags, &bytes_per_second))
        return 2;
    plim_error err = PLIM_INIT(plim_error);
    size_t need = 0;
    char *text = NULL;
    int r = plim_explain(opts, bytes_per_second, flags->json, NULL, 0, &need, &err);
    if (r == PLIM_OK || (r == PLIM_ERR_LIMIT && need > 0)) {
        text = malloc(need + 1);
        r = text != NULL
                ? plim_explain(opts, bytes_per_second, flags->json, text, need + 1, &need, &err)
                : PLIM_ERR_NOMEM_HOST;
    }
    if (r == PLIM_OK)
        fwrite(text, 1, need, stdout);
    else
        plm_term_error("bench", r, &err);
    free(text);
    return r == PLIM_OK && plm_stdout_finish("bench") ? 0 : 1;
}

int plim_cmd_bench(int argc, char **argv)
{
    struct plm_engine_flags engine_flags;
    struct flags flags = {.prompts = "512",
                          .predict = 128,
                          .users = "8",
                          .sampled = "0",
                          .depth = 1,
                          .repetitions = 5};
    const char *file = NULL;
    plm_engine_flags_init(&engine_flags);
    engine_flags.opts.prefix_cache = 0;
    engine_flags.opts.queue_max = USERS_MAX;
    const struct plm_opt_group groups[] = {{"what to measure", table, &flags},
                                           plm_engine_flags_group(&engine_flags),
                                           plm_noted_flags_group()};
    const struct plm_opt_command cmd = {
        .name = "bench",
        .operands = "[FILE]",
        .max_operands = 1,
        .summary = "Measures reading prompts, decoding alone, for several users, and mixed loads.\n"
                   "-c and -np are what the cases need unless given; the prefix cache is off.\n"
                   "With --explain counts what a decode step asks of a device, and runs nothing.",
        .groups = groups,
        .n_groups = 3,
    };
    enum plm_opts_result parsed = plm_opts_parse(&cmd, argc, argv, &file, NULL);
    if (parsed != PLM_OPTS_OK)
        return parsed == PLM_OPTS_EXIT ? 0 : 2;
    struct plm_bench_case cases[CASES_MAX] = {0};
    size_t n = 0;
    int status = 2;
    if (!choose_cases(&flags, cases, &n))
        return status;
    if (n == 0) {
        fprintf(stderr, "plimsoll bench: nothing to measure: -p and -n are both 0\n");
        return status;
    }
    if (!plm_engine_flags_operand(&engine_flags, "bench", file) ||
        !plm_engine_flags_apply(&engine_flags, "bench"))
        return status;
    status = plm_engine_flags_fetch(&engine_flags, "bench");
    plm_term_attach(&engine_flags.opts, engine_flags.verbose);
    if (status == 0)
        status = flags.explain ? explain(&engine_flags.opts, &flags)
                               : bench(&engine_flags.opts, &flags, cases, n);
    plm_engine_flags_finish(&engine_flags);
    return status;
}
