// SPDX-License-Identifier: Apache-2.0
#include "tools/term.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define REDRAW_S    0.1 // ten times a second looks fluent and costs nothing
#define PLAIN_S     10  // a log that grows by a line every ten seconds shows life and stays short
#define SHORT_S     0.5 // quiet: stages shorter than this are not worth a line
#define BAR_COLUMNS 24  // with all the rest the line stays under 80 columns
#define RATE_S      1   // before that a rate says nothing

// There is one stderr, so there is one of this. Log lines and progress come from several threads.
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct {
    bool quiet;
    bool bar_is_up; // on the last line of the terminal
    bool running;   // a stage has begun and not ended
    char stage[32];
    uint64_t done, total;
    uint64_t first;   // what was done when the stage began
    double started_s; // of the stage, monotonic
    double drawn_s;   // when something was last written about it
} state;

double plm_term_now_s(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static bool has_bars(void)
{
    const char *term = getenv("TERM");
    return isatty(STDERR_FILENO) && term != NULL && term[0] != '\0' && strcmp(term, "dumb") != 0;
}

static void to_stderr(const char *text)
{
    fprintf(stderr, "%s\n", text);
}

static void bar_to_stderr(const char *text, size_t len)
{
    fwrite(text, 1, len, stderr);
}

static struct plm_term_sink sink = {to_stderr, bar_to_stderr};

void plm_term_redirect(const struct plm_term_sink *to)
{
    pthread_mutex_lock(&mutex);
    sink = *to;
    pthread_mutex_unlock(&mutex);
}

static void clear_bar(void)
{
    if (state.bar_is_up)
        sink.bar("\r\033[K", 4);
    state.bar_is_up = false;
}

void plm_term_say(const char *fmt, ...)
{
    char text[PLM_TERM_LINE_BYTES];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    pthread_mutex_lock(&mutex);
    clear_bar();
    sink.line(text);
    pthread_mutex_unlock(&mutex);
}

// ", 98.7 MiB/s, 3:05 left" of a stage that counts bytes, once there is a rate.
static void rate_text(char *out, size_t cap, double now)
{
    const double seconds = now - state.started_s, mib = 1024.0 * 1024.0;
    const double rate = seconds > 0 ? (double)(state.done - state.first) / seconds : 0;
    out[0] = '\0';
    if (state.total < 1024 * 1024 || seconds < RATE_S || state.done < state.first || rate < 1)
        return;
    const double left = (double)(state.total - state.done) / rate;
    int n = snprintf(out, cap, "  %.1f MiB/s", rate / mib);
    if (state.done < state.total && left < 360000 && n > 0 && (size_t)n < cap)
        snprintf(out + n, cap - (size_t)n, "  %.0f:%02.0f left", floor(left / 60),
                 floor(fmod(left, 60)));
}

// Loading counts bytes; the other stages count passes, of which there are few.
static void amount_text(char *out, size_t cap)
{
    const double mib = 1024.0 * 1024.0;
    if (state.total == 0)
        out[0] = '\0';
    else if (state.total >= 1024 * 1024)
        snprintf(out, cap, "%.0f of %.0f MiB", (double)state.done / mib, (double)state.total / mib);
    else
        snprintf(out, cap, "%" PRIu64 " of %" PRIu64, state.done, state.total);
}

static void draw_bar(double now)
{
    char bar[BAR_COLUMNS + 1], amount[48], rate[48], text[200];
    double part = state.total > 0 ? (double)state.done / (double)state.total : 0;
    int full = (int)((part < 1 ? part : 1) * BAR_COLUMNS);
    memset(bar, '.', BAR_COLUMNS);
    memset(bar, '#', (size_t)full);
    bar[BAR_COLUMNS] = '\0';
    amount_text(amount, sizeof(amount));
    rate_text(rate, sizeof(rate), now);
    if (rate[0] == '\0')
        snprintf(rate, sizeof(rate), "  %.1f s", now - state.started_s);
    int n =
        snprintf(text, sizeof(text), "\r\033[K%-9.12s [%s] %s%s", state.stage, bar, amount, rate);
    sink.bar(text, n < (int)sizeof(text) ? (size_t)n : sizeof(text) - 1);
    state.bar_is_up = true;
    state.drawn_s = now;
}

static void plain_line(double now)
{
    char amount[48], rate[48], text[176];
    amount_text(amount, sizeof(amount));
    rate_text(rate, sizeof(rate), now);
    snprintf(text, sizeof(text), "%s: %s%safter %.1f s%s", state.stage, amount,
             amount[0] != '\0' ? " " : "", now - state.started_s, rate);
    sink.line(text);
    state.drawn_s = now;
}

static void end_stage(double now)
{
    double lasted = now - state.started_s;
    char text[80];
    snprintf(text, sizeof(text), "%s: done in %.1f s", state.stage, lasted);
    if (state.running && !has_bars() && (!state.quiet || lasted >= SHORT_S))
        sink.line(text);
    state.running = false;
}

static void begin_stage(const char *stage, double now)
{
    snprintf(state.stage, sizeof(state.stage), "%s", stage);
    state.started_s = now;
    state.drawn_s = has_bars() ? 0 : now;
    state.running = true;
}

bool plm_term_progress(void *ctx, const plim_progress *progress)
{
    (void)ctx;
    double now = plm_term_now_s();
    pthread_mutex_lock(&mutex);
    if (!state.running || strncmp(state.stage, progress->stage, sizeof(state.stage) - 1) != 0) {
        end_stage(now);
        begin_stage(progress->stage, now);
        state.first = progress->done;
    }
    state.done = progress->done;
    state.total = progress->total;
    if (strcmp(progress->stage, "ready") == 0) {
        // Whoever called says what comes next.
        state.running = false;
        clear_bar();
    } else if (has_bars()) {
        bool last = progress->total > 0 && progress->done >= progress->total;
        if (last || now - state.drawn_s >= REDRAW_S)
            draw_bar(now);
    } else if (now - state.drawn_s >= PLAIN_S) {
        plain_line(now);
    }
    pthread_mutex_unlock(&mutex);
    return true;
}

void plm_term_log(void *ctx, int level, const char *line)
{
    (void)ctx;
    static const char *const names[] = {"error: ", "warning: ", "", ""};
    plm_term_say("%s%s", level >= 0 && level < 4 ? names[level] : "", line);
}

void plm_term_attach(plim_engine_opts *opts, bool verbose)
{
    opts->log = plm_term_log;
    opts->progress = plm_term_progress;
    if (!verbose)
        opts->log_level = PLIM_LOG_WARN;
    state.quiet = !verbose;
}

void plm_term_progress_end(void)
{
    pthread_mutex_lock(&mutex);
    clear_bar();
    state.running = false;
    pthread_mutex_unlock(&mutex);
}

// Fields of plim_engine_opts by the flags that set them: users of the command know only those.
static const struct {
    const char *field, *flag;
} flags[] = {
    {"batch_max_tokens", "-b"},
    {"ctx_size", "-c"},
    {"host_limit_bytes", "--host-limit"},
    {"kv_min_bytes", "--kv-min"},
    {"kv_type", "--kv-type"},
    {"max_sequences", "-np"},
    {"max_total_tokens", "--max-total-tokens"},
    {"memory_fraction", "--memory-fraction"},
    {"memory_limit_bytes", "--memory-limit"},
    {"model_path", "-m"},
    {"prefill_chunk", "--prefill-chunk"},
    {"queue_max", "--queue-max"},
};

// Appends text to out, which has cap bytes.
static void append(char *out, size_t cap, const char *text, size_t n)
{
    const size_t at = strlen(out);
    snprintf(out + at, cap - at, "%.*s", (int)n, text);
}

static void append_with_flags(char *out, size_t cap, const char *text)
{
    static const char word[] = "abcdefghijklmnopqrstuvwxyz_";
    while (*text != '\0') {
        size_t len = strspn(text, word);
        const char *shown = text;
        size_t n = len > 0 ? len : strcspn(text, word);
        text += n;
        for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]) && len > 0; i++) {
            if (strlen(flags[i].field) == len && memcmp(shown, flags[i].field, len) == 0) {
                shown = flags[i].flag;
                n = strlen(shown);
                break;
            }
        }
        append(out, cap, shown, n);
    }
}

void plm_term_error(const char *command, int status, const plim_error *error)
{
    char line[PLM_TERM_LINE_BYTES] = "";
    plm_term_progress_end();
    append_with_flags(line, sizeof(line),
                      error->message[0] != '\0' ? error->message : plim_strstatus(status));
    // What a context or a queue lacks is not bytes, and its message says it.
    bool bytes = status != PLIM_ERR_CONTEXT && status != PLIM_ERR_QUEUE_FULL;
    if (bytes && error->needed_bytes > 0) {
        const size_t at = strlen(line);
        snprintf(line + at, sizeof(line) - at, " (needs %" PRId64 " bytes, there are %" PRId64 ")",
                 error->needed_bytes, error->limit_bytes > 0 ? error->limit_bytes : 0);
    }
    plm_term_say("plimsoll %s: %s", command, line);
}
