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

#include "tools/cmd.h"
#include "tools/files.h"
#include "tools/opts.h"
#include "tools/term.h"

#define REPETITIONS_MAX 1000
#define USERS_MAX       4096

// What an NVIDIA H100 80GB HBM3 reads when it does nothing else (measured; 3,352 on paper).
#define READ_GB_PER_S 3197.0

struct flags {
    uint32_t prompt; // tokens; 0: skip the case
    uint32_t predict;
    uint32_t users;
    uint32_t depth; // tokens before the first decoded one
    uint32_t repetitions;
    double gb_per_s; // --explain
    bool explain;
    bool json;
};

static const struct plm_opt table[] = {
    PLM_OPT_IN("-p, --n-prompt", "N", "tokens of the prompt; 0: skip (default 512)", PLM_OPT_U32,
               offsetof(struct flags, prompt), 0, 1e6),
    PLM_OPT_IN("-n, --n-gen", "N", "tokens to decode; 0: skip (default 128)", PLM_OPT_U32,
               offsetof(struct flags, predict), 0, 1e6),
    PLM_OPT_IN("--users", "N", "sequences that decode together; 0: skip (default 8)", PLM_OPT_U32,
               offsetof(struct flags, users), 0, USERS_MAX),
    PLM_OPT_IN("-d, --n-depth", "N", "tokens of context before decoding (default 1)", PLM_OPT_U32,
               offsetof(struct flags, depth), 1, 1e6),
    PLM_OPT_IN("-r, --repetitions", "N",
               "measured runs of each case, after one that is not\n"
               "(default 5); the median counts",
               PLM_OPT_U32, offsetof(struct flags, repetitions), 1, REPETITIONS_MAX),
    PLM_OPT("--explain", NULL,
            "run nothing: count what one decode step asks of a device that\nneed not be there, by "
            "layer and by op: dispatches, barriers,\nbytes read, and the time that reading takes; "
            "needs the model's\nheader alone; --device is cpu, cuda, hip or vulkan, -c the tokens "
            "of\nthe sequence (default 1024)",
            PLM_OPT_FLAG, offsetof(struct flags, explain)),
    PLM_OPT_IN("--bandwidth", "GB/S",
               "with --explain: what the device reads, in 10^9 bytes a second\n(default 3197: "
               "measured on an NVIDIA H100)",
               PLM_OPT_DOUBLE, offsetof(struct flags, gb_per_s), 0.001, 1e6),
    PLM_OPT("--json", NULL, "print JSON instead of a table", PLM_OPT_FLAG,
            offsetof(struct flags, json)),
    PLM_OPT_END,
};

// One measured thing: users requests of prompt tokens each that generate predict tokens.
struct bench_case {
    const char *name;
    uint32_t prompt, predict, users;
    bool decode;      // what counts is decoding, not the prompt
    uint32_t n;       // measured runs so far
    double *seconds;  // each run
    double per_token; // tokens that one run's seconds stand for
};

struct bench {
    plim_engine *engine;
    plim_model_info model;
    uint64_t random; // state of the token generator
    int32_t *tokens; // of one prompt
};

// Ids without meaning: speed does not depend on them. The same in every run (Knuth's MMIX numbers).
static void random_tokens(struct bench *bench, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        bench->random =
            bench->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        bench->tokens[i] = (int32_t)((bench->random >> 33) % bench->model.n_vocab);
    }
}

// One request of a run, with its times relative to the start of the run.
struct user {
    plim_request *request;
    double submitted_s, first_s, last_s, prefill_s;
};

static int submit(struct bench *bench, const struct bench_case *what, struct user *user,
                  plim_error *err)
{
    plim_request_opts ask;
    plim_request_opts_init(&ask);
    random_tokens(bench, what->prompt);
    ask.tokens = bench->tokens;
    ask.n_tokens = what->prompt;
    ask.max_tokens = what->predict + 1; // the first one belongs to the prompt
    ask.ignore_eos = 1;
    ask.temperature = 0;
    ask.cache_prompt = 0;
    return plim_request_submit(bench->engine, &ask, &user->request, err);
}

static int wait_done(struct user *user, uint32_t tokens, plim_error *err)
{
    plim_event event = {.struct_size = sizeof(event)};
    int r;
    while ((r = plim_request_next(user->request, -1, &event)) == PLIM_OK &&
           event.type != PLIM_EVENT_DONE)
        ;
    if (r != PLIM_OK)
        return r;
    if (event.status != PLIM_OK) {
        if (event.error != NULL)
            *err = *event.error;
        return event.status;
    }
    if (event.completion_tokens != tokens) {
        snprintf(err->message, sizeof(err->message), "a request ended after %u of %u tokens",
                 event.completion_tokens, tokens);
        return PLIM_ERR_INTERNAL;
    }
    user->prefill_s = event.prefill_s;
    user->first_s = user->submitted_s + event.queue_s + event.prefill_s;
    user->last_s = user->first_s + event.decode_s;
    return PLIM_OK;
}

// One run. Several users: from the first token of the first to the last token of the last, so what
// the others still read of their prompts is in the time and not in the tokens.
static int run_once(struct bench *bench, const struct bench_case *what, struct user *users,
                    double *ret_s, plim_error *err)
{
    int r = PLIM_OK;
    uint32_t n = 0;
    double start = plm_term_now_s(), first = INFINITY, last = 0;
    for (; n < what->users && r == PLIM_OK; n += r == PLIM_OK) {
        users[n].submitted_s = plm_term_now_s() - start;
        r = submit(bench, what, &users[n], err);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (r == PLIM_OK)
            r = wait_done(&users[i], what->predict + 1, err);
        plim_request_free(users[i].request);
        first = fmin(first, users[i].first_s);
        last = fmax(last, users[i].last_s);
    }
    *ret_s = what->decode ? last - first : users[0].prefill_s;
    return r;
}

static int measure(struct bench *bench, struct bench_case *what, uint32_t repetitions,
                   plim_error *err)
{
    struct user *users = calloc(what->users, sizeof(*users));
    what->seconds = calloc(repetitions, sizeof(*what->seconds));
    int r = users != NULL && what->seconds != NULL ? PLIM_OK : PLIM_ERR_NOMEM_HOST;
    for (uint32_t i = 0; i <= repetitions && r == PLIM_OK; i++) {
        double seconds;
        r = run_once(bench, what, users, &seconds, err);
        if (r == PLIM_OK && i > 0) // the first run warms up
            what->seconds[what->n++] = seconds;
    }
    what->per_token = what->decode ? (double)what->predict * what->users : what->prompt;
    free(users);
    return r;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct rates {
    double median, min, max; // tokens per second
};

static struct rates rates_of(const struct bench_case *what)
{
    double sorted[REPETITIONS_MAX];
    memcpy(sorted, what->seconds, what->n * sizeof(sorted[0]));
    qsort(sorted, what->n, sizeof(sorted[0]), compare);
    double middle = (sorted[(what->n - 1) / 2] + sorted[what->n / 2]) / 2;
    return (struct rates){what->per_token / middle, what->per_token / sorted[what->n - 1],
                          what->per_token / sorted[0]};
}

static void print_table(const struct bench *bench, const struct bench_case *cases, size_t n)
{
    printf("plimsoll %s, %s (%s, %s, %.1f M parameters)\n", plim_version(), bench->model.name,
           bench->model.arch, bench->model.type, (double)bench->model.n_params / 1e6);
    printf("%-8s %8s %8s %6s %12s %12s %12s %10s\n", "case", "prompt", "decoded", "users",
           "tokens/s", "slowest", "fastest", "ms/step");
    for (size_t i = 0; i < n; i++) {
        const struct bench_case *what = &cases[i];
        struct rates rates = rates_of(what);
        printf("%-8s %8u %8u %6u %12.2f %12.2f %12.2f", what->name, what->prompt, what->predict,
               what->users, rates.median, rates.min, rates.max);
        if (what->decode)
            printf(" %10.2f\n", 1000.0 * what->users / rates.median);
        else
            printf(" %10s\n", "");
    }
}

static json_object *case_json(const struct bench_case *what)
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
    return out;
}

static void print_json(const struct bench *bench, const plim_engine_opts *opts,
                       const struct bench_case *cases, size_t n)
{
    json_object *out = json_object_new_object(), *model = json_object_new_object();
    json_object *list = json_object_new_array();
    json_object_object_add(out, "object", json_object_new_string("bench"));
    json_object_object_add(out, "version", json_object_new_string(plim_version()));
    json_object_object_add(out, "build", json_object_new_string(plim_build_info()));
    json_object_object_add(out, "device", json_object_new_string(opts->device));
    json_object_object_add(out, "threads", json_object_new_int64(opts->threads));
    json_object_object_add(model, "path", json_object_new_string(opts->model_path));
    json_object_object_add(model, "name", json_object_new_string(bench->model.name));
    json_object_object_add(model, "arch", json_object_new_string(bench->model.arch));
    json_object_object_add(model, "type", json_object_new_string(bench->model.type));
    json_object_object_add(model, "parameters", json_object_new_uint64(bench->model.n_params));
    json_object_object_add(model, "file_bytes", json_object_new_uint64(bench->model.file_bytes));
    json_object_object_add(out, "model", model);
    for (size_t i = 0; i < n; i++)
        json_object_array_add(list, case_json(&cases[i]));
    json_object_object_add(out, "cases", list);
    puts(json_object_to_json_string_ext(out,
                                        JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE));
    json_object_put(out);
}

static size_t choose_cases(const struct flags *flags, struct bench_case cases[3])
{
    size_t n = 0;
    if (flags->prompt > 0)
        cases[n++] = (struct bench_case){"prompt", .prompt = flags->prompt, .users = 1};
    if (flags->predict > 0)
        cases[n++] = (struct bench_case){"decode", .prompt = flags->depth,
                                         .predict = flags->predict, .users = 1, .decode = true};
    if (flags->predict > 0 && flags->users > 0)
        cases[n++] = (struct bench_case){"users", .prompt = flags->depth, .predict = flags->predict,
                                         .users = flags->users, .decode = true};
    return n;
}

// What the cases need and the command line did not say.
static void set_sizes(plim_engine_opts *opts, const struct flags *flags)
{
    uint32_t decode = flags->depth + flags->predict + 1;
    uint32_t prompt = flags->prompt + 1;
    if (opts->ctx_size == 0)
        opts->ctx_size = decode > prompt ? decode : prompt;
    if (opts->max_sequences == 0)
        opts->max_sequences = flags->users > 0 ? flags->users : 1;
}

static int bench(plim_engine_opts *opts, const struct flags *flags)
{
    struct bench_case cases[3];
    size_t n = choose_cases(flags, cases);
    struct bench state = {.random = 1};
    plim_error err = {0};
    set_sizes(opts, flags);
    int r = plim_engine_create(opts, &state.engine, &err);
    plm_term_progress_end();
    if (r != PLIM_OK) {
        plm_term_error("bench", r, &err);
        return 1;
    }
    plim_engine_model(state.engine, &state.model);
    uint32_t longest = flags->prompt > flags->depth ? flags->prompt : flags->depth;
    state.tokens = calloc(longest, sizeof(*state.tokens));
    r = state.tokens != NULL ? PLIM_OK : PLIM_ERR_NOMEM_HOST;
    for (size_t i = 0; i < n && r == PLIM_OK; i++)
        r = measure(&state, &cases[i], flags->repetitions, &err);
    if (r != PLIM_OK)
        plm_term_error("bench", r, &err);
    else if (flags->json)
        print_json(&state, opts, cases, n);
    else
        print_table(&state, cases, n);
    for (size_t i = 0; i < n; i++)
        free(cases[i].seconds);
    free(state.tokens);
    plim_engine_free(state.engine);
    return r == PLIM_OK && plm_stdout_finish("bench") ? 0 : 1;
}

static int explain(const plim_engine_opts *opts, const struct flags *flags)
{
    const double bytes_per_second = flags->gb_per_s * 1e9;
    plim_error err = {0};
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
    struct flags flags = {.prompt = 512,
                          .predict = 128,
                          .users = 8,
                          .depth = 1,
                          .repetitions = 5,
                          .gb_per_s = READ_GB_PER_S};
    plm_engine_flags_init(&engine_flags);
    engine_flags.opts.prefix_cache = 0;
    engine_flags.opts.queue_max = USERS_MAX;
    const struct plm_opt_group groups[] = {{"what to measure", table, &flags},
                                           plm_engine_flags_group(&engine_flags)};
    const struct plm_opt_command cmd = {
        .name = "bench",
        .summary = "Measures reading a prompt, decoding alone and decoding for several users.\n"
                   "-c and -np are what the cases need unless given; the prefix cache is off.\n"
                   "With --explain counts what a decode step asks of a device, and runs nothing.",
        .groups = groups,
        .n_groups = 2,
    };
    enum plm_opts_result parsed = plm_opts_parse(&cmd, argc, argv, NULL, NULL);
    if (parsed != PLM_OPTS_OK)
        return parsed == PLM_OPTS_EXIT ? 0 : 2;
    if (flags.prompt == 0 && flags.predict == 0) {
        fprintf(stderr, "plimsoll bench: nothing to measure: -p and -n are both 0\n");
        return 2;
    }
    int status = 2;
    if (!plm_engine_flags_apply(&engine_flags, "bench"))
        return status;
    plm_term_attach(&engine_flags.opts, engine_flags.verbose);
    status =
        flags.explain ? explain(&engine_flags.opts, &flags) : bench(&engine_flags.opts, &flags);
    plm_engine_flags_finish(&engine_flags);
    return status;
}
