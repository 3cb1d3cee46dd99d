// SPDX-License-Identifier: Apache-2.0
// The line editor of `plimsoll run`: keys as bytes in, a text with a cursor out, and what a small
// pretended screen shows of it.
#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/suite.h"
#include "tools/line_draw.h"
#include "tools/line_edit.h"

#define UP    "\x1b[A"
#define DOWN  "\x1b[B"
#define RIGHT "\x1b[C"
#define LEFT  "\x1b[D"

#define MAX_BYTES 4096

static enum plm_line_event type(struct plm_line_edit *e, const char *keys)
{
    enum plm_line_event event = PLM_LINE_GOES_ON;
    for (; *keys != '\0'; keys++)
        event = plm_line_edit_take(e, (unsigned char)*keys);
    return event;
}

// The text with a '|' at the cursor.
static const char *look(const struct plm_line_edit *e)
{
    static char out[2 * MAX_BYTES];
    size_t len, at = plm_line_edit_cursor(e);
    const char *text = plm_line_edit_text(e, &len);
    snprintf(out, sizeof(out), "%.*s|%s", (int)at, text, text + at);
    return out;
}

START_TEST(keys_edit_the_text)
{
    static const struct {
        const char *keys, *want;
    } cases[] = {
        {"abc", "abc|"},
        {"abc" LEFT LEFT "x", "ax|bc"},
        {"abc\x1b[Hx", "x|abc"},
        {"abc\x1b[1~x", "x|abc"},
        {"abc\x1bOHx", "x|abc"},
        {"abc\x01x\x05y", "xabcy|"},
        {"abc\x01\x1b[4~y", "abcy|"},
        {"abc\x01\x1bOFy", "abcy|"},
        {"abc\x7f", "ab|"},
        {"abc\x08", "ab|"},
        {"\x7f" LEFT RIGHT UP DOWN, "|"},
        {"abc\x01\x1b[3~", "|bc"},
        {"abc\x01\x04", "|bc"},
        {"abc" LEFT "\x0b", "ab|"},
        {"abc" LEFT "\x15", "|c"},
        {"one two-three\x17", "one |"},
        {"one two-three\x1b\x7f", "one two-|"},
        {"one two\x17\x01\x19 ", "two |one "},
        {"one two\x01\x1b[1;5C", "one| two"},
        {"one two\x1b[1;5D", "one |two"},
        {"one two\x1b"
         "b\x1b"
         "d",
         "one |"},
        {"one two\x01\x1b"
         "f",
         "one| two"},
        {"ab\x02\x02\x06x", "ax|b"},
        // Lines: Alt-Enter, and Enter behind a backslash.
        {"one\x1b\rtwo" UP "x", "onex|\ntwo"},
        {"one\\\rtwo\x01" UP DOWN "x", "one\nx|two"},
        {"long line\\\rx" UP "y" DOWN "z", "lyong line\nxz|"},
        // What has no meaning leaves nothing: F5, a mouse, an unknown Alt.
        {"a\x1b[15~\x1b[<0;1;2M\x1bqb", "ab|"},
        {"a\x1b[99999999999999999999~b", "ab|"},
    };
    struct plm_line_edit *e = plm_line_edit_create(MAX_BYTES);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        plm_line_edit_begin(e);
        type(e, cases[i].keys);
        ck_assert_msg(strcmp(look(e), cases[i].want) == 0, "case %zu: '%s', not '%s'", i, look(e),
                      cases[i].want);
    }
    plm_line_edit_destroy(e);
}
END_TEST

START_TEST(the_cursor_moves_by_what_people_see)
{
    struct plm_line_edit *e = plm_line_edit_create(MAX_BYTES);
    plm_line_edit_begin(e);
    // e and an accent; a family of four code points with joiners; a flag of two.
    type(e, "e\xCC\x81"
            "\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7"
            "\xF0\x9F\x87\xA9\xF0\x9F\x87\xAA");
    type(e, "\x7f");
    ck_assert_str_eq(look(e), "e\xCC\x81"
                              "\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7|");
    type(e, LEFT LEFT "x");
    ck_assert_str_eq(look(e), "x|e\xCC\x81"
                              "\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7");
    type(e, "\x04\x04\x04");
    ck_assert_str_eq(look(e), "x|");
    plm_line_edit_destroy(e);
}
END_TEST

START_TEST(bytes_that_are_no_utf8_are_replaced)
{
    struct plm_line_edit *e = plm_line_edit_create(MAX_BYTES);
    plm_line_edit_begin(e);
    type(e, "a\xC3"
            "b\xFF"
            "c\x80"
            "d\xED\xA0\x80"
            "e\xC3\x01");
    ck_assert_str_eq(look(e), "|a\xEF\xBF\xBD"
                              "b\xEF\xBF\xBD"
                              "c\xEF\xBF\xBD"
                              "d\xEF\xBF\xBD"
                              "e\xEF\xBF\xBD");
    plm_line_edit_begin(e);
    type(e, "\x1b[200~a\xC3"
            "b\x1b[201~");
    ck_assert_str_eq(look(e), "a\xEF\xBF\xBD"
                              "b|");
    plm_line_edit_destroy(e);
}
END_TEST

START_TEST(a_paste_is_text_whatever_is_in_it)
{
    struct plm_line_edit *e = plm_line_edit_create(MAX_BYTES);
    plm_line_edit_begin(e);
    ck_assert_int_eq(type(e, "\x1b[200~one\rtwo\r\nthree\nfour\x04\t\x1b[A\x1b[20"),
                     PLM_LINE_GOES_ON);
    ck_assert_int_eq(type(e, "1;\x1b[201~"), PLM_LINE_GOES_ON);
    ck_assert_str_eq(look(e), "one\ntwo\nthree\nfour\x04\t\x1b[A\x1b[201;|");
    ck_assert_int_eq(type(e, "\r"), PLM_LINE_ENTERED);
    // A mark begun twice, and a paste into the middle.
    plm_line_edit_begin(e);
    type(e, "ad" LEFT "\x1b[200~b\x1b\x1b[201~c");
    ck_assert_str_eq(look(e), "ab\x1b"
                              "c|d");
    plm_line_edit_destroy(e);
}
END_TEST

START_TEST(what_does_not_fit_is_not_taken)
{
    struct plm_line_edit *e = plm_line_edit_create(8);
    plm_line_edit_begin(e);
    ck_assert_int_eq(type(e, "12345678"), PLM_LINE_GOES_ON);
    ck_assert_int_eq(type(e, "9"), PLM_LINE_TOO_LONG);
    ck_assert_str_eq(look(e), "12345678|");
    plm_line_edit_begin(e);
    ck_assert_int_eq(type(e, "ab\x1b[200~1234567"), PLM_LINE_GOES_ON);
    ck_assert_int_eq(type(e, "\x1b[201~"), PLM_LINE_TOO_LONG);
    ck_assert_int_eq(type(e, "c"), PLM_LINE_GOES_ON);
    ck_assert_str_eq(look(e), "abc|");
    plm_line_edit_begin(e);
    ck_assert_int_eq(type(e, "\x1b[200~123456789"), PLM_LINE_GOES_ON);
    ck_assert_int_eq(type(e, "\x1b[201~"), PLM_LINE_TOO_LONG);
    ck_assert_str_eq(look(e), "|");
    plm_line_edit_destroy(e);
}
END_TEST

static void ask(struct plm_line_edit *e, const char *text)
{
    plm_line_edit_begin(e);
    ck_assert_int_eq(type(e, text), PLM_LINE_GOES_ON);
    ck_assert_int_eq(type(e, "\r"), PLM_LINE_ENTERED);
    plm_line_edit_remember(e);
}

START_TEST(earlier_questions_come_back)
{
    struct plm_line_edit *e = plm_line_edit_create(MAX_BYTES);
    ask(e, "one");
    ask(e, "two\x1b\rlines");
    ask(e, "two\x1b\rlines");
    ask(e, "");
    plm_line_edit_begin(e);
    ck_assert_int_eq(type(e, "\x04"), PLM_LINE_END);
    type(e, "own" UP);
    ck_assert_str_eq(look(e), "two\nlines|");
    type(e, UP UP);
    ck_assert_str_eq(look(e), "one|");
    type(e, UP DOWN DOWN);
    ck_assert_str_eq(look(e), "own|");
    type(e, DOWN);
    ck_assert_str_eq(look(e), "own|");
    for (int i = 0; i < 1100; i++) {
        char text[16];
        snprintf(text, sizeof(text), "q%d", i);
        ask(e, text);
    }
    plm_line_edit_begin(e);
    for (int i = 0; i < 1200; i++)
        type(e, "\x10"); // Ctrl-P
    ck_assert_str_eq(look(e), "q100|");
    plm_line_edit_destroy(e);
}
END_TEST

// ---- the screen ----

#define ROWS    6
#define COLUMNS 12

// Understands what the drawing uses: line feeds, CR, ESC [ n A, ESC [ n C, ESC [ J; a wide
// character takes two cells.
struct screen {
    char cells[ROWS][COLUMNS][8];
    size_t row, column;
};

static void screen_feed(struct screen *s, const char *at, size_t len)
{
    for (const char *end = at + len; at < end;) {
        char letter = 0;
        unsigned n = 0;
        int used = 0;
        if (*at == '\n') {
            ck_assert_uint_lt(++s->row, ROWS);
            s->column = 0;
            at++;
        } else if (*at == '\r') {
            s->column = 0;
            at++;
        } else if (strncmp(at, "\x1b[J", 3) == 0) {
            for (size_t i = s->row * COLUMNS + s->column; i < ROWS * COLUMNS; i++)
                s->cells[i / COLUMNS][i % COLUMNS][0] = '\0';
            at += 3;
        } else if (sscanf(at, "\x1b[%u%c%n", &n, &letter, &used) == 2) {
            ck_assert(letter == 'A' || letter == 'C');
            ck_assert(letter == 'C' || n <= s->row);
            s->row -= letter == 'A' ? n : 0;
            s->column += letter == 'C' ? n : 0;
            at += used;
        } else {
            const unsigned char c = (unsigned char)*at;
            const size_t bytes = c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
            ck_assert_uint_lt(s->column, COLUMNS);
            memcpy(s->cells[s->row][s->column], at, bytes);
            s->cells[s->row][s->column][bytes] = '\0';
            // The tests' wide characters have three bytes; so has U+FFFD, which is narrow.
            s->column += bytes == 3 && c != 0xEF ? 2 : 1;
            at += bytes;
        }
    }
}

// The rows with '/' between them, and '|' at the cursor.
static const char *screen_text(const struct screen *s)
{
    static char out[1024];
    size_t n = 0;
    for (size_t row = 0; row < ROWS; row++) {
        for (size_t column = 0; column < COLUMNS; column++) {
            if (row == s->row && column == s->column)
                out[n++] = '|';
            n += (size_t)sprintf(out + n, "%s", s->cells[row][column]);
        }
        out[n++] = '/';
    }
    while (n > 0 && out[n - 1] == '/')
        n--;
    out[n] = '\0';
    return out;
}

START_TEST(the_screen_shows_the_text)
{
    static const struct {
        const char *keys, *want; // the keys go on from the case before
    } cases[] = {
        {"", "> |"},
        {"abc", "> abc|"},
        {LEFT LEFT, "> a|bc"},
        {"x", "> ax|bc"},
        {"\x05"
         "12345",
         "> axbc12345|"},
        {"6", "> axbc123456/|"}, // a full row begins the next one
        {"7", "> axbc123456/7|"},
        {"\x01", "> |axbc123456/7"},
        {"\x0b", "> |"},
        {"one\x1b\rtwo", "> one/. two|"},
        {UP, "> one|/. two"},
        {DOWN "\x15" UP "\x0b", "> |/. "},
        {"\x05\x7f" DOWN "\x7f", "> |"},
        {"\xE6\xBC\xA2\xE6\xBC\xA2\xE6\xBC\xA2\xE6\xBC\xA2"
         "a\xE6\xBC\xA2",
         "> \xE6\xBC\xA2\xE6\xBC\xA2\xE6\xBC\xA2\xE6\xBC\xA2"
         "a/\xE6\xBC\xA2|"}, // no half of one
        {"\x01\x0b"
         "a\tb",
         "> a     b|"}, // stops at every eighth column
        {"\x15\x1b[200~\x1b\x7f\x1b[201~", "> ^[^?|"},
        // Nine lines on six rows: those around the cursor.
        {"\x15\x1b[200~1\r2\r3\r4\r5\r6\r7\r8\r9\x1b[201~", ". 4/. 5/. 6/. 7/. 8/. 9|"},
        {UP UP UP UP UP UP UP UP, "> 1|/. 2/. 3/. 4/. 5/. 6"},
    };
    struct plm_line_edit *e = plm_line_edit_create(MAX_BYTES);
    struct plm_line_view view = {0};
    struct screen screen = {0};
    plm_line_edit_begin(e);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        size_t len, n;
        type(e, cases[i].keys);
        const char *text = plm_line_edit_text(e, &len);
        const char *bytes =
            plm_line_draw(&view, text, len, plm_line_edit_cursor(e), COLUMNS, ROWS, &n);
        screen_feed(&screen, bytes, n);
        ck_assert_msg(strcmp(screen_text(&screen), cases[i].want) == 0, "case %zu: '%s', not '%s'",
                      i, screen_text(&screen), cases[i].want);
    }
    plm_line_view_finish(&view);
    plm_line_edit_destroy(e);
}
END_TEST

START_TEST(typing_at_the_end_writes_what_is_typed)
{
    struct plm_line_view view = {0};
    size_t n;
    const char *bytes = plm_line_draw(&view, "", 0, 0, 80, 24, &n);
    ck_assert(n == 2 && memcmp(bytes, "> ", 2) == 0);
    bytes = plm_line_draw(&view, "ab", 2, 2, 80, 24, &n);
    ck_assert(n == 2 && memcmp(bytes, "ab", 2) == 0);
    plm_line_draw(&view, "ab", 2, 2, 80, 24, &n);
    ck_assert_uint_eq(n, 0);
    plm_line_view_finish(&view);
}
END_TEST

// Whatever is typed, the cursor stays in the text and the terminal's on the screen (screen_feed()
// checks that), and drawing anew shows the same as drawing what changed.
START_TEST(any_keys_keep_text_and_screen_whole)
{
    static const char *const keys[] = {
        UP,     DOWN,           LEFT,   RIGHT,  "\x1b[200~", "\x1b[201~", "\x1b\r", "a",
        "b ",   "\xE6\xBC\xA2", "\x01", "\x05", "\x0b",      "\x15",      "\x17",   "\x19",
        "\x7f", "\x04",         "\t",   "\\\r", "word",      "\xFF",      "\x1b",   "["};
    struct plm_line_edit *e = plm_line_edit_create(100);
    struct plm_line_view view = {0};
    struct screen screen = {0};
    uint64_t random = 1;
    plm_line_edit_begin(e);
    for (int i = 0; i < 1500; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        const enum plm_line_event event =
            type(e, keys[(random >> 33) % (sizeof(keys) / sizeof(keys[0]))]);
        if (event == PLM_LINE_ENTERED)
            plm_line_edit_remember(e);
        size_t len, n;
        const char *text = plm_line_edit_text(e, &len);
        const size_t cursor = plm_line_edit_cursor(e);
        ck_assert(len <= 100 && cursor <= len && strlen(text) == len);
        const char *bytes = plm_line_draw(&view, text, len, cursor, COLUMNS, ROWS, &n);
        screen_feed(&screen, bytes, n);
        struct plm_line_view fresh = {0};
        struct screen once = {0};
        bytes = plm_line_draw(&fresh, text, len, cursor, COLUMNS, ROWS, &n);
        screen_feed(&once, bytes, n);
        const char *shown = screen_text(&screen);
        char copy[1024];
        snprintf(copy, sizeof(copy), "%s", shown);
        ck_assert_str_eq(copy, screen_text(&once));
        plm_line_view_finish(&fresh);
    }
    plm_line_view_finish(&view);
    plm_line_edit_destroy(e);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("line_edit");
    TCase *tc = tcase_create("all");
    tcase_add_test(tc, keys_edit_the_text);
    tcase_add_test(tc, the_cursor_moves_by_what_people_see);
    tcase_add_test(tc, bytes_that_are_no_utf8_are_replaced);
    tcase_add_test(tc, a_paste_is_text_whatever_is_in_it);
    tcase_add_test(tc, what_does_not_fit_is_not_taken);
    tcase_add_test(tc, earlier_questions_come_back);
    tcase_add_test(tc, the_screen_shows_the_text);
    tcase_add_test(tc, typing_at_the_end_writes_what_is_typed);
    tcase_add_test(tc, any_keys_keep_text_and_screen_whole);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
