// SPDX-License-Identifier: Apache-2.0
// What the server says, on stderr and stdout. Whoever reads them may have stopped (a full pipe, a
// terminal on hold), may be gone, or its disk be full: no request waits for that or fails of it.
// Lines go into a ring of fixed size, which a thread of its own writes; what finds no room, or is
// refused by the system, is dropped and counted. The descriptors may be shared with other programs,
// so that they are left as they are.
#ifndef PLM_SERVE_LOG_H
#define PLM_SERVE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Before it, and when no thread can be had, lines are written at once. From here on plm_term_say()
// and what the engine says go through it, too.
void plm_log_start(void);
// Waits at most limit_ms for what is still in the ring. Afterwards nothing more is written.
void plm_log_finish(int64_t limit_ms);
// A line of the log on stderr: "2026-11-28T12:00:00.000Z plimsoll serve: ...". Any thread.
void plm_log(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
// A result, as it is, on stdout.
void plm_log_result(const char *text, size_t len);
// Lines and results that nobody got.
uint64_t plm_log_dropped(void);

#endif
