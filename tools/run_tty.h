// SPDX-License-Identifier: Apache-2.0
// The terminal while a question is edited: keys come one by one and unechoed, pastes are marked.
// Whatever ends or stops the program meanwhile leaves the terminal as it was.
#ifndef PLM_TOOLS_RUN_TTY_H
#define PLM_TOOLS_RUN_TTY_H

#include <stdbool.h>
#include <stddef.h>

// Written to the descriptor given to plm_run_tty_begin() when the program goes on after a stop
// (Ctrl-Z, fg): the screen shows something else by then.
#define PLM_RUN_TTY_RESUMED 'R'

// False where stdin and stdout are no terminal that knows cursor movements: nothing was changed.
bool plm_run_tty_begin(int wake_fd);
void plm_run_tty_end(void);
void plm_run_tty_size(size_t *ret_columns, size_t *ret_rows);

#endif
