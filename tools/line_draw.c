// SPDX-License-Identifier: Apache-2.0
#include "tools/line_draw.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define TAB_COLUMNS 8

// Less can not hold a prompt and a wide character.
#define MIN_COLUMNS 8

static void put(struct plm_line_view *v, char **at, size_t *n, size_t *cap, const char *text,
                size_t len)
{
    if (v->failed)
        return;
    if (*n + len > *cap) {
        const size_t larger_cap = 2 * (*n + len) + 256;
        char *larger = realloc(*at, larger_cap);
        v->failed = larger == NULL;
        if (v->failed)
            return;
        *at = larger;
        *cap = larger_cap;
    }
    memcpy(*at + *n, text, len);
    *n += len;
}

static void emit(struct plm_line_view *v, const char *text, size_t len)
{
    put(v, &v->bytes, &v->n_bytes, &v->cap_bytes, text, len);
}

// CSI, a number, a letter; nothing where the number is 0.
static void emit_move(struct plm_line_view *v, size_t n, char letter)
{
    char text[32];
    const int len = snprintf(text, sizeof(text), "\x1b[%zu%c", n, letter);
    if (n > 0)
        emit(v, text, (size_t)len);
}

// ---- where everything goes ----

struct layout {
    struct plm_line_view *view; // NULL: only measures
    size_t columns;
    size_t first, last; // rows that are written
    size_t row, column;
    size_t cursor_row, cursor_column;
};

static void cell(struct layout *l, const char *text, size_t len)
{
    if (l->view != NULL && l->row >= l->first && l->row <= l->last)
        put(l->view, &l->view->shown, &l->view->n_shown, &l->view->cap_shown, text, len);
}

static void new_row(struct layout *l)
{
    if (l->row < l->last)
        cell(l, "\n", 1);
    l->row++;
    l->column = 0;
}

// Begins a row as soon as one is full: terminals differ in where the cursor is then.
static void place(struct layout *l, const char *text, size_t len, size_t width)
{
    if (l->column + width > l->columns)
        new_row(l);
    cell(l, text, len);
    l->column += width;
    if (l->column == l->columns)
        new_row(l);
}

// One character. Controls look like ^X, a tab like the spaces up to the next stop.
static void place_character(struct layout *l, utf8proc_int32_t c, const char *text, size_t len)
{
    const char caret[2] = {'^', (char)(c == 0x7F ? '?' : c + '@')};
    if (c == '\n') {
        new_row(l);
        place(l, ". ", 2, 2);
    } else if (c == '\t') {
        for (size_t n = TAB_COLUMNS - l->column % TAB_COLUMNS; n > 0; n--)
            place(l, " ", 1, 1);
    } else if (c < 0x20 || c == 0x7F) {
        place(l, caret, 2, 2);
    } else if (c >= 0x80 && c < 0xA0) {
        place(l, "\xEF\xBF\xBD", 3, 1);
    } else {
        place(l, text, len, (size_t)utf8proc_charwidth(c));
    }
}

static void lay_out(struct layout *l, const char *text, size_t len, size_t cursor)
{
    place(l, "> ", 2, 2);
    for (size_t at = 0;;) {
        if (at == cursor) {
            l->cursor_row = l->row;
            l->cursor_column = l->column;
        }
        if (at >= len)
            return;
        utf8proc_int32_t c;
        utf8proc_ssize_t n =
            utf8proc_iterate((const utf8proc_uint8_t *)text + at, (utf8proc_ssize_t)(len - at), &c);
        if (n <= 0) {
            n = 1;
            c = 0xFFFD;
        }
        place_character(l, c, text + at, (size_t)n);
        at += (size_t)n;
    }
}

// ---- the screen ----

// The rows to show: all, or as many as there are around the cursor.
static void choose_rows(struct layout *l, const struct layout *measured, size_t rows)
{
    l->first = 0;
    l->last = measured->row;
    if (measured->row < rows)
        return;
    l->first = measured->cursor_row < rows ? 0 : measured->cursor_row - rows + 1;
    l->last = l->first + rows - 1;
}

const char *plm_line_draw(struct plm_line_view *v, const char *text, size_t len, size_t cursor,
                          size_t columns, size_t rows, size_t *ret_len)
{
    struct layout l = {.columns = columns < MIN_COLUMNS ? MIN_COLUMNS : columns};
    lay_out(&l, text, len, cursor);
    struct layout drawn = {.view = v, .columns = l.columns};
    choose_rows(&drawn, &l, rows > 0 ? rows : 1);
    const size_t n_before = v->n_shown;
    char *before = v->shown;
    v->shown = NULL;
    v->n_shown = v->cap_shown = v->n_bytes = 0;
    lay_out(&drawn, text, len, cursor);
    const bool at_end = cursor == len;
    const bool appended = before != NULL && !v->failed && v->at_end && at_end &&
                          v->n_shown >= n_before && memcmp(v->shown, before, n_before) == 0;
    if (!v->failed && appended) {
        emit(v, v->shown + n_before, v->n_shown - n_before);
    } else if (!v->failed) {
        if (before != NULL) {
            emit_move(v, v->cursor_row, 'A');
            emit(v, "\r\x1b[J", 4);
        }
        emit(v, v->shown, v->n_shown);
        const size_t end_row = l.row < drawn.last ? l.row : drawn.last;
        if (!at_end) {
            emit_move(v, end_row - l.cursor_row, 'A');
            emit(v, "\r", 1);
            emit_move(v, l.cursor_column, 'C');
        }
    }
    free(before);
    v->at_end = at_end;
    v->cursor_row = l.cursor_row - drawn.first;
    *ret_len = v->n_bytes;
    return v->failed ? NULL : v->bytes != NULL ? v->bytes : "";
}

void plm_line_view_reset(struct plm_line_view *v)
{
    free(v->shown);
    v->shown = NULL;
    v->n_shown = v->cap_shown = v->cursor_row = 0;
    v->at_end = v->failed = false;
}

void plm_line_view_finish(struct plm_line_view *v)
{
    plm_line_view_reset(v);
    free(v->bytes);
    *v = (struct plm_line_view){0};
}
