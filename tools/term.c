// SPDX-License-Identifier: Apache-2.0
#include "tools/term.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// Log lines and progress come from several threads and share one screen line.
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char stage[32];    // the stage shown last
static int percent = -1;  // of that stage
static bool line_is_open; // the cursor stands behind a progress line

static void end_line(void)
{
    if (line_is_open)
        fputc('\n', stderr);
    line_is_open = false;
}

void plm_term_log(void *ctx, int level, const char *line)
{
    (void)ctx;
    static const char *const names[] = {"error: ", "warning: ", "", ""};
    pthread_mutex_lock(&mutex);
    end_line();
    fprintf(stderr, "%s%s\n", level >= 0 && level < 4 ? names[level] : "", line);
    pthread_mutex_unlock(&mutex);
}

void plm_term_progress(void *ctx, const plim_progress *p)
{
    (void)ctx;
    int now = p->total > 0 ? (int)((double)p->done / (double)p->total * 100) : 0;
    pthread_mutex_lock(&mutex);
    bool new_stage = strcmp(stage, p->stage) != 0;
    if (isatty(STDERR_FILENO)) {
        if (new_stage || now != percent) {
            fprintf(stderr, "\r%-10s %3d %%\x1b[K", p->stage, now);
            line_is_open = true;
        }
    } else if (new_stage) {
        fprintf(stderr, "%s\n", p->stage);
    }
    snprintf(stage, sizeof(stage), "%s", p->stage);
    percent = now;
    pthread_mutex_unlock(&mutex);
}

void plm_term_progress_end(void)
{
    pthread_mutex_lock(&mutex);
    end_line();
    stage[0] = '\0';
    percent = -1;
    pthread_mutex_unlock(&mutex);
}

void plm_term_error(const char *command, int status, const plim_error *error)
{
    plm_term_progress_end();
    fprintf(stderr, "plimsoll %s: %s", command,
            error->message[0] != '\0' ? error->message : plim_strstatus(status));
    if (error->needed_bytes > 0)
        fprintf(stderr, " (needs %" PRId64 " bytes, there are %" PRId64 ")", error->needed_bytes,
                error->limit_bytes);
    fputc('\n', stderr);
}
