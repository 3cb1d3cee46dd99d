// SPDX-License-Identifier: Apache-2.0
// A line editor as a state machine: bytes from a terminal go in, a text with a cursor comes out. It
// reads and writes nothing, so it needs no terminal to be tested and its caller can wait for bytes
// together with anything else. line_draw.h shows the text.
//
// Keys are those of readline's Emacs mode; a text may have several lines (a paste, Alt-Enter, a
// backslash before Enter). The cursor moves by grapheme clusters; the text is always valid UTF-8.
#ifndef PLM_TOOLS_LINE_EDIT_H
#define PLM_TOOLS_LINE_EDIT_H

#include <stdbool.h>
#include <stddef.h>

struct plm_line_edit;

enum plm_line_event {
    PLM_LINE_GOES_ON,
    PLM_LINE_ENTERED,      // Enter: the text is ready
    PLM_LINE_END,          // Ctrl-D in an empty line
    PLM_LINE_CLEAR_SCREEN, // Ctrl-L
    PLM_LINE_TOO_LONG,     // what was typed or pasted does not fit, and was not taken
};

// A text has max_bytes at most. NULL: out of memory.
struct plm_line_edit *plm_line_edit_create(size_t max_bytes);
void plm_line_edit_destroy(struct plm_line_edit *edit);

// Begins with an empty text. What was killed and the history stay.
void plm_line_edit_begin(struct plm_line_edit *edit);
// Takes the next byte that the terminal sent.
enum plm_line_event plm_line_edit_take(struct plm_line_edit *edit, unsigned char byte);
// The text, with a NUL behind it; valid until the next call.
const char *plm_line_edit_text(const struct plm_line_edit *edit, size_t *ret_len);
// Of the cursor, from 0 to the text's length.
size_t plm_line_edit_cursor(const struct plm_line_edit *edit);
// Puts the cursor behind the text, where output goes on.
void plm_line_edit_to_end(struct plm_line_edit *edit);
// Keeps the text for Up, unless it is empty or the last one again. The oldest go first.
void plm_line_edit_remember(struct plm_line_edit *edit);

#endif
