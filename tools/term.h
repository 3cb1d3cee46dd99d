// SPDX-License-Identifier: Apache-2.0
// What long work says while it lasts: on a terminal one bar that redraws itself, elsewhere plain
// lines (a stage when it ends, and every few seconds while it lasts). All goes to stderr, so that
// stdout stays for results. Log lines go through here too: they never land in the middle of a bar.
//
// Any thread may call; a lock orders them.
#ifndef PLM_TOOLS_TERM_H
#define PLM_TOOLS_TERM_H

#include <stdbool.h>

#include "core/plimsoll.h"

// Of a line with its NUL: longer ones are cut. The engine's have 1,024 at most.
#define PLM_TERM_LINE_BYTES 1280

// For plim_engine_opts.log and .progress; ctx is unused.
void plm_term_log(void *ctx, int level, const char *line);
bool plm_term_progress(void *ctx, const plim_progress *progress);
// Sets both in opts. Not verbose, for commands whose result is what people wait for: warnings and
// errors only, and plain lines only for stages that last.
void plm_term_attach(plim_engine_opts *opts, bool verbose);
// Takes the bar away, before anything else is printed.
void plm_term_progress_end(void);
// One line for people, without its end.
void plm_term_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
// "plimsoll COMMAND: why": a failed call, for people.
void plm_term_error(const char *command, int status, const plim_error *error);

// Who takes lines (without their end) and what draws or removes a bar, in place of stderr. Called
// under the lock.
struct plm_term_sink {
    void (*line)(const char *text);
    void (*bar)(const char *text, size_t len);
};
void plm_term_redirect(const struct plm_term_sink *sink);

// Seconds on the monotonic clock, for what is timed at the terminal.
double plm_term_now_s(void);

#endif
