// SPDX-License-Identifier: Apache-2.0
// A file of questions from earlier chats in the terminal, which Up finds again: a line each, in
// which "\n" is a line feed and "\\" a backslash; the user's alone (mode 0600) and bounded. It lies
// in plimsoll/history under $XDG_STATE_HOME or ~/.local/state. It is a convenience: where it can
// not be read or written, nothing is said.
#ifndef PLM_TOOLS_RUN_HISTORY_H
#define PLM_TOOLS_RUN_HISTORY_H

#include <stddef.h>

// Calls `each` for every question that is kept, the oldest first. Drops the oldest of too many.
void plm_run_history_read(void (*each)(const char *text, size_t len));
// Keeps one more, unless it is longer than somebody types.
void plm_run_history_add(const char *text, size_t len);

#endif
