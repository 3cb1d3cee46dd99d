// SPDX-License-Identifier: Apache-2.0
#include "tools/line_edit.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

// Questions that Up finds again, and their bytes in all: pastes may be long.
#define HISTORY_MAX       1000
#define HISTORY_MAX_BYTES (64 * 1024 * 1024)

// Parameters of a key's sequence: the longest known is "200".
#define PARAMS_MAX_BYTES 8

#define ESC          0x1B
#define DEL          0x7F
#define CTRL(letter) ((letter) - 'A' + 1)

// What a terminal puts around a paste, behind CSI: "200~" and "201~".
static const char paste_end[] = "\x1b[201~";

struct text {
    char *at;
    size_t len, cap;
};

enum state {
    STATE_TEXT,
    STATE_ESCAPE, // after ESC
    STATE_CSI,    // after ESC [
    STATE_SS3,    // after ESC O
    STATE_PASTE,
};

struct plm_line_edit {
    struct text text;
    size_t cursor;
    size_t max_bytes;
    bool too_long; // since the last event

    enum state state;
    unsigned char utf8[4]; // a character of which bytes are missing
    size_t n_utf8;
    char params[PARAMS_MAX_BYTES];
    size_t n_params;
    struct text paste;
    size_t n_paste_end;   // how much of paste_end the last bytes are
    bool after_return;    // the last byte of a paste was CR
    struct text killed;   // by Ctrl-K, -U, -W; Ctrl-Y inserts it
    struct text *history; // the oldest first
    size_t n_history, at; // at: which one is shown; n_history: none
    size_t history_bytes;
    struct text own; // what was typed before Up
};

// ---- texts ----

static bool reserve(struct text *text, size_t len)
{
    if (len < text->cap)
        return true;
    const size_t cap = len < 128 ? 256 : 2 * len;
    char *larger = realloc(text->at, cap);
    if (larger == NULL)
        return false;
    text->at = larger;
    text->cap = cap;
    return true;
}

static bool set(struct text *text, const char *from, size_t len)
{
    if (!reserve(text, len))
        return false;
    memmove(text->at, from, len);
    text->at[len] = '\0';
    text->len = len;
    return true;
}

static bool insert(struct plm_line_edit *e, const char *from, size_t len)
{
    struct text *t = &e->text;
    if (len > e->max_bytes - t->len || !reserve(t, t->len + len)) {
        e->too_long = true;
        return false;
    }
    memmove(t->at + e->cursor + len, t->at + e->cursor, t->len - e->cursor + 1);
    memcpy(t->at + e->cursor, from, len);
    t->len += len;
    e->cursor += len;
    return true;
}

static void cut(struct plm_line_edit *e, size_t from, size_t to)
{
    memmove(e->text.at + from, e->text.at + to, e->text.len - to + 1);
    e->text.len -= to - from;
    e->cursor = from;
}

static void kill_range(struct plm_line_edit *e, size_t from, size_t to)
{
    if (to > from && set(&e->killed, e->text.at + from, to - from))
        cut(e, from, to);
}

// ---- places in the text ----

// The character at `at`, of which there is one. Returns its bytes.
static size_t character(const struct plm_line_edit *e, size_t at, utf8proc_int32_t *ret)
{
    const utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)e->text.at + at,
                                                (utf8proc_ssize_t)(e->text.len - at), ret);
    return n > 0 ? (size_t)n : 1;
}

static size_t next(const struct plm_line_edit *e, size_t at)
{
    if (at >= e->text.len)
        return e->text.len;
    utf8proc_int32_t a, b, state = 0;
    at += character(e, at, &a);
    while (at < e->text.len) {
        const size_t n = character(e, at, &b);
        if (utf8proc_grapheme_break_stateful(a, b, &state))
            break;
        a = b;
        at += n;
    }
    return at;
}

static size_t line_begin(const struct plm_line_edit *e, size_t at)
{
    while (at > 0 && e->text.at[at - 1] != '\n')
        at--;
    return at;
}

static size_t line_end(const struct plm_line_edit *e, size_t at)
{
    while (at < e->text.len && e->text.at[at] != '\n')
        at++;
    return at;
}

// Clusters are found from the left; a line feed is always one of its own.
static size_t previous(const struct plm_line_edit *e, size_t at)
{
    if (at == 0)
        return 0;
    size_t from = line_begin(e, at - 1);
    for (size_t to = next(e, from); to < at; to = next(e, from))
        from = to;
    return from;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t';
}

// Ctrl-W kills up to white space; the other word keys also stop at punctuation.
static bool is_word(char c, bool by_space)
{
    const unsigned char u = (unsigned char)c;
    if (by_space)
        return !is_space(c);
    return u >= 0x80 || (u >= '0' && u <= '9') || ((u | 0x20) >= 'a' && (u | 0x20) <= 'z');
}

static size_t word_begin(const struct plm_line_edit *e, bool by_space)
{
    size_t at = e->cursor;
    while (at > 0 && !is_word(e->text.at[at - 1], by_space))
        at--;
    while (at > 0 && is_word(e->text.at[at - 1], by_space))
        at--;
    return at;
}

static size_t word_end(const struct plm_line_edit *e)
{
    size_t at = e->cursor;
    while (at < e->text.len && !is_word(e->text.at[at], false))
        at++;
    while (at < e->text.len && is_word(e->text.at[at], false))
        at++;
    return at;
}

// ---- history ----

static void show(struct plm_line_edit *e, size_t at)
{
    if (e->at == e->n_history && !set(&e->own, e->text.at, e->text.len))
        return;
    const struct text *from = at == e->n_history ? &e->own : &e->history[at];
    if (!set(&e->text, from->at, from->len))
        return;
    e->at = at;
    e->cursor = e->text.len;
}

// As many clusters into the line that begins at `begin` as the cursor is into its own.
static size_t same_column(const struct plm_line_edit *e, size_t begin)
{
    const size_t end = line_end(e, begin);
    for (size_t at = line_begin(e, e->cursor); at < e->cursor && begin < end; at = next(e, at))
        begin = next(e, begin);
    return begin;
}

static void up(struct plm_line_edit *e)
{
    const size_t begin = line_begin(e, e->cursor);
    if (begin > 0)
        e->cursor = same_column(e, line_begin(e, begin - 1));
    else if (e->at > 0)
        show(e, e->at - 1);
}

static void down(struct plm_line_edit *e)
{
    const size_t end = line_end(e, e->cursor);
    if (end < e->text.len)
        e->cursor = same_column(e, end + 1);
    else if (e->at < e->n_history)
        show(e, e->at + 1);
}

static void forget_oldest(struct plm_line_edit *e)
{
    e->history_bytes -= e->history[0].len;
    free(e->history[0].at);
    e->n_history--;
    memmove(e->history, e->history + 1, e->n_history * sizeof(*e->history));
}

void plm_line_edit_remember(struct plm_line_edit *e)
{
    const struct text *last = e->n_history > 0 ? &e->history[e->n_history - 1] : NULL;
    if (e->text.len == 0 || e->text.len > HISTORY_MAX_BYTES ||
        (last != NULL && last->len == e->text.len &&
         memcmp(last->at, e->text.at, e->text.len) == 0))
        return;
    while (e->n_history > 0 &&
           (e->n_history == HISTORY_MAX || e->history_bytes > HISTORY_MAX_BYTES - e->text.len))
        forget_oldest(e);
    struct text copy = {0};
    if (!set(&copy, e->text.at, e->text.len))
        return; // it is not found again, no more
    e->history[e->n_history++] = copy;
    e->history_bytes += copy.len;
}

// ---- keys ----

static void move_or_cut(struct plm_line_edit *e, unsigned char byte)
{
    switch (byte) {
    case CTRL('A'): e->cursor = line_begin(e, e->cursor); break;
    case CTRL('E'): e->cursor = line_end(e, e->cursor); break;
    case CTRL('B'): e->cursor = previous(e, e->cursor); break;
    case CTRL('F'): e->cursor = next(e, e->cursor); break;
    case CTRL('P'): up(e); break;
    case CTRL('N'): down(e); break;
    case CTRL('D'): cut(e, e->cursor, next(e, e->cursor)); break;
    case CTRL('H'):
    case DEL: cut(e, previous(e, e->cursor), e->cursor); break;
    case CTRL('K'): kill_range(e, e->cursor, line_end(e, e->cursor)); break;
    case CTRL('U'): kill_range(e, line_begin(e, e->cursor), e->cursor); break;
    case CTRL('W'): kill_range(e, word_begin(e, true), e->cursor); break;
    case CTRL('Y'): insert(e, e->killed.at, e->killed.len); break;
    case '\t': insert(e, "\t", 1); break;
    default: break; // a key without a meaning here
    }
}

static enum plm_line_event enter(struct plm_line_edit *e)
{
    if (e->cursor == 0 || e->cursor < e->text.len || e->text.at[e->cursor - 1] != '\\')
        return PLM_LINE_ENTERED;
    e->text.at[e->cursor - 1] = '\n';
    return PLM_LINE_GOES_ON;
}

// The last byte of ESC [ PARAMS LETTER or ESC O LETTER. Of parameters the first one is the key
// where the letter is '~'; ";5" behind it is Ctrl, ";3" Alt.
static void sequence(struct plm_line_edit *e, unsigned char letter)
{
    e->params[e->n_params < PARAMS_MAX_BYTES ? e->n_params : PARAMS_MAX_BYTES - 1] = '\0';
    const char *modifier = strchr(e->params, ';');
    const bool by_word = modifier != NULL && (modifier[1] == '5' || modifier[1] == '3');
    const int key = letter == '~' ? atoi(e->params) : 0;
    e->state = STATE_TEXT;
    if (letter == 'A')
        up(e);
    else if (letter == 'B')
        down(e);
    else if (letter == 'C')
        e->cursor = by_word ? word_end(e) : next(e, e->cursor);
    else if (letter == 'D')
        e->cursor = by_word ? word_begin(e, false) : previous(e, e->cursor);
    else if (letter == 'H' || key == 1 || key == 7)
        e->cursor = line_begin(e, e->cursor);
    else if (letter == 'F' || key == 4 || key == 8)
        e->cursor = line_end(e, e->cursor);
    else if (key == 3)
        cut(e, e->cursor, next(e, e->cursor));
    else if (key == 200) {
        e->state = STATE_PASTE;
        e->paste.len = e->n_paste_end = 0;
        e->after_return = false;
    }
}

// Alt and a key come as ESC and the key.
static void escaped(struct plm_line_edit *e, unsigned char byte)
{
    e->n_params = 0;
    e->state = byte == '[' ? STATE_CSI : byte == 'O' ? STATE_SS3 : STATE_TEXT;
    switch (byte) {
    case 'b': e->cursor = word_begin(e, false); break;
    case 'f': e->cursor = word_end(e); break;
    case 'd': kill_range(e, e->cursor, word_end(e)); break;
    case CTRL('H'):
    case DEL: kill_range(e, word_begin(e, false), e->cursor); break;
    case '\r':
    case '\n': insert(e, "\n", 1); break;
    case ESC: e->state = STATE_ESCAPE; break;
    default: break;
    }
}

// Collects a character; what is no UTF-8 becomes U+FFFD.
static void typed(struct plm_line_edit *e, unsigned char byte)
{
    if (e->n_utf8 > 0 && (byte & 0xC0) != 0x80) {
        insert(e, "\xEF\xBF\xBD", 3);
        e->n_utf8 = 0;
    }
    e->utf8[e->n_utf8++] = byte;
    const size_t want = e->utf8[0] < 0x80 ? 1 : e->utf8[0] < 0xE0 ? 2 : e->utf8[0] < 0xF0 ? 3 : 4;
    if (e->utf8[0] >= 0x80 && e->utf8[0] < 0xC0) {
        insert(e, "\xEF\xBF\xBD", 3);
        e->n_utf8 = 0;
    } else if (e->n_utf8 == want) {
        utf8proc_int32_t c;
        if (utf8proc_iterate(e->utf8, (utf8proc_ssize_t)want, &c) > 0)
            insert(e, (const char *)e->utf8, want);
        else
            insert(e, "\xEF\xBF\xBD", 3);
        e->n_utf8 = 0;
    }
}

// ---- pastes ----

static void pasted_byte(struct plm_line_edit *e, unsigned char byte)
{
    // Terminals send a line feed as CR; CR LF is one, too. A NUL would end the text early.
    const bool second = byte == '\n' && e->after_return;
    e->after_return = byte == '\r';
    if (second || byte == '\0')
        return;
    if (e->paste.len >= e->max_bytes || !reserve(&e->paste, e->paste.len + 1)) {
        e->too_long = true;
        return;
    }
    e->paste.at[e->paste.len++] = byte == '\r' ? '\n' : (char)byte;
}

// Inserts the whole paste, valid UTF-8 or mended, at once: byte by byte in front of a long text
// would move that text for each.
static void end_paste(struct plm_line_edit *e)
{
    e->state = STATE_TEXT;
    struct text mended = {0};
    size_t at = 0;
    while (at < e->paste.len && !e->too_long) {
        utf8proc_int32_t c;
        utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)e->paste.at + at,
                                              (utf8proc_ssize_t)(e->paste.len - at), &c);
        const char *from = n > 0 ? e->paste.at + at : "\xEF\xBF\xBD";
        const size_t len = n > 0 ? (size_t)n : 3;
        if (!reserve(&mended, mended.len + len)) {
            e->too_long = true;
            break;
        }
        memcpy(mended.at + mended.len, from, len);
        mended.len += len;
        at += n > 0 ? (size_t)n : 1;
    }
    if (!e->too_long && mended.len > 0)
        insert(e, mended.at, mended.len);
    free(mended.at);
}

static void pasted(struct plm_line_edit *e, unsigned char byte)
{
    if (byte != (unsigned char)paste_end[e->n_paste_end]) {
        for (size_t i = 0; i < e->n_paste_end; i++)
            pasted_byte(e, (unsigned char)paste_end[i]);
        e->n_paste_end = 0;
    }
    if (byte != (unsigned char)paste_end[e->n_paste_end])
        pasted_byte(e, byte);
    else if (paste_end[++e->n_paste_end] == '\0')
        end_paste(e);
}

// ---- the whole ----

static enum plm_line_event take_text(struct plm_line_edit *e, unsigned char byte)
{
    if (byte >= 0x20 && byte != DEL) {
        typed(e, byte);
        return PLM_LINE_GOES_ON;
    }
    if (e->n_utf8 > 0) {
        insert(e, "\xEF\xBF\xBD", 3);
        e->n_utf8 = 0;
    }
    if (byte == '\r' || byte == '\n')
        return enter(e);
    if (byte == CTRL('D') && e->text.len == 0)
        return PLM_LINE_END;
    if (byte == CTRL('L'))
        return PLM_LINE_CLEAR_SCREEN;
    if (byte == ESC)
        e->state = STATE_ESCAPE;
    else
        move_or_cut(e, byte);
    return PLM_LINE_GOES_ON;
}

enum plm_line_event plm_line_edit_take(struct plm_line_edit *e, unsigned char byte)
{
    enum plm_line_event event = PLM_LINE_GOES_ON;
    switch (e->state) {
    case STATE_TEXT: event = take_text(e, byte); break;
    case STATE_ESCAPE: escaped(e, byte); break;
    case STATE_CSI:
        if (byte >= 0x40)
            sequence(e, byte);
        else if (e->n_params < PARAMS_MAX_BYTES - 1)
            e->params[e->n_params++] = (char)byte;
        break;
    case STATE_SS3: sequence(e, byte); break;
    case STATE_PASTE: pasted(e, byte); break;
    }
    if (!e->too_long || e->state == STATE_PASTE)
        return event;
    e->too_long = false;
    return PLM_LINE_TOO_LONG;
}

struct plm_line_edit *plm_line_edit_create(size_t max_bytes)
{
    struct plm_line_edit *e = calloc(1, sizeof(*e));
    if (e == NULL)
        return NULL;
    e->max_bytes = max_bytes;
    e->history = calloc(HISTORY_MAX, sizeof(*e->history));
    if (e->history != NULL && set(&e->text, "", 0) && set(&e->killed, "", 0) && set(&e->own, "", 0))
        return e;
    plm_line_edit_destroy(e);
    return NULL;
}

void plm_line_edit_destroy(struct plm_line_edit *e)
{
    if (e == NULL)
        return;
    for (size_t i = 0; i < e->n_history; i++)
        free(e->history[i].at);
    free(e->history);
    free(e->text.at);
    free(e->paste.at);
    free(e->killed.at);
    free(e->own.at);
    free(e);
}

void plm_line_edit_begin(struct plm_line_edit *e)
{
    e->text.len = e->cursor = e->n_utf8 = 0;
    e->text.at[0] = '\0';
    e->state = STATE_TEXT;
    e->too_long = false;
    e->at = e->n_history;
}

const char *plm_line_edit_text(const struct plm_line_edit *e, size_t *ret_len)
{
    *ret_len = e->text.len;
    return e->text.at;
}

size_t plm_line_edit_cursor(const struct plm_line_edit *e)
{
    return e->cursor;
}

void plm_line_edit_to_end(struct plm_line_edit *e)
{
    e->cursor = e->text.len;
}
