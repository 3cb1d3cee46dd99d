// SPDX-License-Identifier: Apache-2.0
// One answer of `plimsoll run`: asks, writes the text as it comes, says why it ended.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/run.h"

// How long a Ctrl-C may go unnoticed while no token comes.
#define LOOK_MS 50

// The oldest turns of a chat go until an answer of a quarter of the context fits.
#define ROOM_PART 4

struct answer {
    char *text; // what came so far; NULL when nothing has to be kept
    size_t len, cap;
    int finish;
    bool cancelled;
    bool output_failed;
};

static bool keep(struct answer *answer, const char *text, size_t len)
{
    if (answer->len + len > answer->cap) {
        size_t cap = 2 * (answer->len + len) + 1024;
        char *larger = realloc(answer->text, cap);
        if (larger == NULL)
            return false;
        answer->text = larger;
        answer->cap = cap;
    }
    memcpy(answer->text + answer->len, text, len);
    answer->len += len;
    return true;
}

// A model can be talked into terminal escapes; on a terminal controls other than line feed and tab
// are shown as U+FFFD. Text is valid UTF-8, so the C1 controls are C2 80 to C2 9F.
static void write_harmless(const char *text, size_t len)
{
    size_t from = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        bool c1 = c == 0xC2 && i + 1 < len && (unsigned char)text[i + 1] < 0xA0;
        if (!c1 && (c >= 0x20 || c == '\n' || c == '\t') && c != 0x7F)
            continue;
        fwrite(text + from, 1, i - from, stdout);
        fputs("\xEF\xBF\xBD", stdout);
        i += c1;
        from = i + 1;
    }
    fwrite(text + from, 1, len - from, stdout);
}

static void take_text(struct plm_run *run, struct answer *answer, const plim_event *event)
{
    if (event->text_len == 0 || answer->cancelled)
        return;
    if (run->out_terminal)
        write_harmless(event->text, event->text_len);
    else
        fwrite(event->text, 1, event->text_len, stdout);
    if (fflush(stdout) != 0)
        answer->output_failed = true;
    if (!keep(answer, event->text, event->text_len))
        answer->output_failed = true;
}

static void fill(const struct plm_run *run, const char *prompt, size_t prompt_len,
                 plim_text stop[PLIM_STOP_MAX], plim_request_opts *ask)
{
    const struct plm_run_flags *flags = run->flags;
    plim_request_opts_init(ask);
    ask->prompt = prompt; // a chat is put in its place at the submit
    ask->prompt_len = prompt_len;
    ask->max_tokens = flags->predict < 0 ? 0 : (uint32_t)flags->predict;
    ask->ignore_eos = flags->ignore_eos;
    plm_sampling_apply(&flags->sampling, ask);
    for (size_t i = 0; i < flags->stop.n; i++)
        stop[i] = (plim_text){flags->stop.items[i], strlen(flags->stop.items[i])};
    ask->stop = stop;
    ask->n_stop = flags->stop.n;
}

// Takes events until the last one, which stays in *event.
static int follow(struct plm_run *run, plim_request *request, struct answer *answer,
                  plim_event *event)
{
    for (;;) {
        event->struct_size = sizeof(*event);
        int r = plim_request_next(request, LOOK_MS, event);
        if (r != PLIM_OK && r != PLIM_ERR_TIMEOUT)
            return r;
        if (r == PLIM_OK && event->type == PLIM_EVENT_DONE)
            return PLIM_OK;
        if (r == PLIM_OK && (event->type == PLIM_EVENT_TOKEN || event->type == PLIM_EVENT_FINISH))
            take_text(run, answer, event);
        if (r == PLIM_OK && event->type == PLIM_EVENT_FINISH)
            answer->finish = event->finish;
        if ((plm_run_interrupted || answer->output_failed) && !answer->cancelled) {
            answer->cancelled = true;
            plim_request_cancel(request);
        }
    }
}

static double rate(double tokens, double seconds)
{
    return seconds > 0 ? tokens / seconds : 0;
}

static void print_end(const struct plm_run *run, const struct answer *answer,
                      const plim_event *done)
{
    if (answer->len == 0 || answer->text[answer->len - 1] != '\n' || run->chatting)
        fputs("\n", stdout);
    if (answer->output_failed || fflush(stdout) != 0)
        return;
    if (run->chatting && !answer->cancelled && answer->finish == PLIM_FINISH_LENGTH)
        fprintf(stderr, "[cut: as long as -n or the context allows]\n");
    if (!run->flags->timings || done->status != PLIM_OK)
        return;
    uint32_t fresh = done->prompt_tokens - done->cached_tokens;
    fprintf(stderr,
            "[prompt: %u tokens, %u of them cached, %.1f tokens/s; answer: %u tokens, "
            "%.1f tokens/s]\n",
            done->prompt_tokens, done->cached_tokens, rate(fresh, done->prefill_s),
            done->completion_tokens, rate(done->completion_tokens - 1.0, done->decode_s));
}

static void print_refusal(const struct plm_run *run, int status, const plim_error *err)
{
    fprintf(stderr, "plimsoll run: %s\n",
            err->message[0] != '\0' ? err->message : plim_strstatus(status));
    if (run->chatting && status == PLIM_ERR_CONTEXT)
        fprintf(stderr, "[this question alone is too long for the context]\n");
}

static enum plm_answer conclude(struct plm_run *run, int status, const struct answer *answer,
                                const plim_event *done)
{
    print_end(run, answer, done);
    if (answer->output_failed)
        return PLM_ANSWER_OUTPUT;
    if (!answer->cancelled && (status != PLIM_OK || done->status != PLIM_OK)) {
        static const plim_error none;
        print_refusal(run, status != PLIM_OK ? status : done->status,
                      status == PLIM_OK && done->error != NULL ? done->error : &none);
        if (run->chat != NULL)
            plm_run_chat_drop_last(run->chat);
        return PLM_ANSWER_FAILED;
    }
    // Templates want question and answer in turn: one without a word takes its question along.
    if (run->chat != NULL && answer->len == 0)
        plm_run_chat_drop_last(run->chat);
    else if (run->chat != NULL &&
             !plm_run_chat_add(run->chat, "assistant", answer->text, answer->len))
        return PLM_ANSWER_FAILED;
    return answer->cancelled ? PLM_ANSWER_STOPPED : PLM_ANSWER_DONE;
}

static int submit_without(struct plm_run *run, plim_request_opts *ask, size_t n_left_out,
                          plim_request **ret, plim_error *err)
{
    if (run->chat != NULL) {
        ask->prompt = NULL;
        ask->prompt_len = 0;
        ask->chat_json = plm_run_chat_json(run->chat, n_left_out, &ask->chat_json_len);
        if (ask->chat_json == NULL)
            return PLIM_ERR_NOMEM_HOST;
    }
    return plim_request_submit(run->engine, ask, ret, err);
}

// A chat that became longer than the context goes on without its oldest turns, each a question and
// its answer. They are forgotten only where that helps: a question that is too long by itself is
// refused, and the conversation stays as it was.
static int submit(struct plm_run *run, plim_request_opts *ask, plim_request **ret, plim_error *err)
{
    int r = submit_without(run, ask, 0, ret, err);
    if (r != PLIM_ERR_CONTEXT || run->chat == NULL || !run->chatting)
        return r;
    const uint32_t max_tokens = ask->max_tokens;
    const size_t n_before = plm_run_chat_length(run->chat) - 1; // without the question
    size_t n_left_out = 0;
    // Without -n an answer may take what is left, be it one token: make room for a real one.
    if (max_tokens == 0 && err->n_ctx >= ROOM_PART)
        ask->max_tokens = (uint32_t)(err->n_ctx / ROOM_PART);
    while (r == PLIM_ERR_CONTEXT && n_left_out + 2 <= n_before) {
        n_left_out += 2;
        *err = (plim_error)PLIM_INIT(plim_error);
        r = submit_without(run, ask, n_left_out, ret, err);
    }
    if (r == PLIM_ERR_CONTEXT && ask->max_tokens != max_tokens && n_left_out > 0) {
        ask->max_tokens = max_tokens;
        r = submit_without(run, ask, n_left_out, ret, err);
    }
    if (r != PLIM_OK || n_left_out == 0)
        return r;
    plm_run_chat_drop_oldest(run->chat, n_left_out);
    if (n_left_out == 2)
        fprintf(stderr, "[the oldest turn is dropped: the context is full]\n");
    else
        fprintf(stderr, "[the oldest %zu turns are dropped: the context is full]\n",
                n_left_out / 2);
    return r;
}

enum plm_answer plm_run_answer(struct plm_run *run, const char *prompt, size_t prompt_len)
{
    plim_text stop[PLIM_STOP_MAX];
    plim_request_opts ask;
    fill(run, prompt, prompt_len, stop, &ask);
    plm_run_interrupted = 0;
    plim_error err = PLIM_INIT(plim_error);
    plim_request *request;
    int r = submit(run, &ask, &request, &err);
    if (r != PLIM_OK) {
        if (run->chat != NULL)
            plm_run_chat_drop_last(run->chat);
        print_refusal(run, r, &err);
        return PLM_ANSWER_REFUSED;
    }
    struct answer answer = {0};
    plim_event done = PLIM_INIT(plim_event);
    r = follow(run, request, &answer, &done);
    enum plm_answer result = conclude(run, r, &answer, &done);
    plim_request_free(request);
    free(answer.text);
    return result;
}
