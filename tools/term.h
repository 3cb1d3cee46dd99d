// SPDX-License-Identifier: Apache-2.0
// What long work says while it lasts: a line that moves on a terminal, plain lines elsewhere. Both
// write to stderr, so that stdout stays for results.
#ifndef PLM_TOOLS_TERM_H
#define PLM_TOOLS_TERM_H

#include "core/plimsoll.h"

// For plim_engine_opts.log and .progress; ctx is unused.
void plm_term_log(void *ctx, int level, const char *line);
void plm_term_progress(void *ctx, const plim_progress *progress);
// Ends a line that plm_term_progress() left open.
void plm_term_progress_end(void);
// A failed plim_engine_create() or plim_plan_create(), for people.
void plm_term_error(const char *command, int status, const plim_error *error);

#endif
