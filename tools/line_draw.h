// SPDX-License-Identifier: Apache-2.0
// Shows a text that is being edited on a terminal: which bytes turn what is on the screen into what
// should be. It writes nothing itself.
#ifndef PLM_TOOLS_LINE_DRAW_H
#define PLM_TOOLS_LINE_DRAW_H

#include <stdbool.h>
#include <stddef.h>

// What is on the screen. All zero: nothing yet, the terminal's cursor in the first column.
struct plm_line_view {
    char *shown; // rows from the prompt on, as they were written
    size_t n_shown, cap_shown;
    char *bytes; // of the last plm_line_draw()
    size_t n_bytes, cap_bytes;
    size_t cursor_row; // of the terminal's cursor, from the first row shown
    bool at_end;       // the terminal's cursor is behind what is shown
    bool failed;       // out of memory
};

// Bytes to write for this text (valid UTF-8), with the cursor before its byte `cursor`, behind the
// prompt "> " (". " before further lines), on a terminal of so many columns and rows. Rows that do
// not fit are left out around the cursor. A row ends in a line feed, which the terminal makes CR LF
// (ONLCR, as everywhere). Valid until the next call. NULL: out of memory.
const char *plm_line_draw(struct plm_line_view *view, const char *text, size_t len, size_t cursor,
                          size_t columns, size_t rows, size_t *ret_len);
// Forgets what is on the screen: the next draw begins where the terminal's cursor is.
void plm_line_view_reset(struct plm_line_view *view);
void plm_line_view_finish(struct plm_line_view *view);

#endif
