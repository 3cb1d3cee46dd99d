// SPDX-License-Identifier: Apache-2.0
// The terminal side of a chat: questions and Ctrl-C. Questions are read from the descriptor,
// because a stdio stream can not be waited for together with a signal.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/line_draw.h"
#include "tools/line_edit.h"
#include "tools/run.h"
#include "tools/run_history.h"
#include "tools/run_tty.h"

// One question; more is pasted by mistake.
#define QUESTION_MAX_BYTES (16 * 1024 * 1024)

volatile sig_atomic_t plm_run_interrupted;

// Carries Ctrl-C (and the return from Ctrl-Z) to the poll in next_byte(): the signal may be
// delivered to a thread of the engine, and then it would not interrupt a read of this one.
static int interrupt_pipe[2] = {-1, -1};

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    int saved = errno;
    plm_run_interrupted = 1;
    ssize_t r = write(interrupt_pipe[1], "C", 1);
    (void)r; // full: there is one to see already
    errno = saved;
}

bool plm_run_catch_interrupt(void)
{
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    if (pipe2(interrupt_pipe, O_NONBLOCK | O_CLOEXEC) == 0 && sigaction(SIGINT, &action, NULL) == 0)
        return true;
    fprintf(stderr, "plimsoll run: %s\n", strerror(errno));
    return false;
}

#define END         (-1)
#define INTERRUPTED (-2) // by Ctrl-C
#define RESUMED     (-3) // after Ctrl-Z

// What the signals since the last call say: INTERRUPTED, RESUMED or 0.
static int take_interrupt(void)
{
    char bytes[64];
    int result = 0;
    ssize_t n;
    while ((n = read(interrupt_pipe[0], bytes, sizeof(bytes))) > 0) {
        if (memchr(bytes, 'C', (size_t)n) != NULL)
            result = INTERRUPTED;
        else if (result == 0)
            result = RESUMED;
    }
    plm_run_interrupted = 0;
    return result;
}

struct line {
    char *text;
    size_t len, cap;
};

static bool line_append(struct line *line, char c)
{
    if (line->len + 1 >= line->cap) {
        size_t cap = line->cap > 0 ? 2 * line->cap : 256;
        char *larger = cap <= QUESTION_MAX_BYTES ? realloc(line->text, cap) : NULL;
        if (larger == NULL) {
            fprintf(stderr, "plimsoll run: the question is longer than %d MiB\n",
                    QUESTION_MAX_BYTES / 1024 / 1024);
            return false;
        }
        line->text = larger;
        line->cap = cap;
    }
    line->text[line->len++] = c;
    return true;
}

static struct {
    char bytes[4096];
    size_t at, have;
} input;

// The next byte of stdin, or END, INTERRUPTED, RESUMED.
static int next_byte(void)
{
    while (input.at == input.have) {
        struct pollfd fds[] = {{STDIN_FILENO, POLLIN, 0}, {interrupt_pipe[0], POLLIN, 0}};
        if (poll(fds, 2, -1) < 0 && errno == EINTR)
            continue;
        int signalled = fds[1].revents != 0 ? take_interrupt() : 0;
        if (signalled != 0)
            return signalled;
        ssize_t n = read(STDIN_FILENO, input.bytes, sizeof(input.bytes));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return END;
        input.have = (size_t)n;
        input.at = 0;
    }
    return (unsigned char)input.bytes[input.at++];
}

static void show(bool terminal, const char *text)
{
    if (!terminal)
        return;
    fputs(text, stdout);
    fflush(stdout);
}

// Handles one byte of a line. Returns whether the line goes on.
static bool take_byte(struct line *line, char c, bool terminal, bool *ret_failed)
{
    if (c == '\n' && line->len > 0 && line->text[line->len - 1] == '\\') {
        line->text[line->len - 1] = '\n';
        show(terminal, ". ");
        return true;
    }
    if (c == '\n')
        return false;
    // A NUL would end the text early; nobody types one.
    *ret_failed = c != '\0' && !line_append(line, c);
    return !*ret_failed;
}

// A question as its lines come: from a pipe, or a terminal that can not move its cursor.
static bool read_lines(bool terminal, char **ret, size_t *ret_len)
{
    struct line line = {0};
    bool failed = false, at_end = false;
    show(terminal, "> ");
    for (;;) {
        int c = next_byte();
        if (c == RESUMED || (c == INTERRUPTED && terminal)) {
            line.len = c == INTERRUPTED ? 0 : line.len;
            show(terminal, c == INTERRUPTED ? "\n> " : "");
            continue;
        }
        at_end = c < 0;
        if (at_end || !take_byte(&line, (char)c, terminal, &failed))
            break;
    }
    if (at_end && line.len == 0) {
        show(terminal, "\n");
        failed = true;
    }
    // Lines of other systems end in CR LF.
    if (line.len > 0 && line.text[line.len - 1] == '\r')
        line.len--;
    size_t len = line.len;
    if (failed || !line_append(&line, '\0')) {
        free(line.text);
        return false;
    }
    *ret = line.text;
    *ret_len = len;
    return true;
}

// ---- editing ----

static struct plm_line_edit *editor; // made at the first question of a terminal
static struct plm_line_view view;
static bool keeps_history;

void plm_run_input_history(bool on)
{
    keeps_history = on;
}

static void take_all(const char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        plm_line_edit_take(editor, (unsigned char)bytes[i]);
}

// A question from the file is as foreign as a paste, and comes in as one.
static void recall(const char *text, size_t len)
{
    plm_line_edit_begin(editor);
    take_all("\x1b[200~", 6);
    take_all(text, len);
    take_all("\x1b[201~", 6);
    plm_line_edit_remember(editor);
}

static bool draw(void)
{
    size_t len, n, columns, rows;
    const char *text = plm_line_edit_text(editor, &len);
    plm_run_tty_size(&columns, &rows);
    const char *bytes =
        plm_line_draw(&view, text, len, plm_line_edit_cursor(editor), columns, rows, &n);
    if (bytes == NULL)
        return false;
    fwrite(bytes, 1, n, stdout);
    return fflush(stdout) == 0;
}

// Leaves what is shown behind, and begins a row with `more`.
static bool leave(const char *more)
{
    plm_line_edit_to_end(editor);
    const bool ok = draw();
    plm_line_view_reset(&view);
    show(true, more);
    return ok;
}

// Takes what next_byte() returned. Returns whether the question goes on; *ret_failed: it is none.
static bool take_key(int c, bool *ret_failed)
{
    enum plm_line_event event = PLM_LINE_GOES_ON;
    if (c == INTERRUPTED) {
        *ret_failed = !leave("^C\n");
        plm_line_edit_begin(editor);
    } else if (c == RESUMED) {
        plm_line_view_reset(&view);
    } else {
        event = c == END ? PLM_LINE_END : plm_line_edit_take(editor, (unsigned char)c);
    }
    if (event == PLM_LINE_TOO_LONG) {
        *ret_failed = !leave("\n");
        fprintf(stderr, "[longer than %d MiB: it was not taken]\n",
                QUESTION_MAX_BYTES / 1024 / 1024);
    } else if (event == PLM_LINE_CLEAR_SCREEN) {
        show(true, "\x1b[H\x1b[2J");
        plm_line_view_reset(&view);
    }
    *ret_failed = *ret_failed || event == PLM_LINE_END;
    return !*ret_failed && event != PLM_LINE_ENTERED;
}

// A question as keys make it, on a terminal that plm_run_tty_begin() took.
static bool edit_question(char **ret, size_t *ret_len)
{
    bool failed = false;
    plm_line_edit_begin(editor);
    plm_line_view_reset(&view);
    do {
        // A paste is shown when it is there, not byte by byte.
        if (input.at == input.have)
            failed = !draw();
    } while (!failed && take_key(next_byte(), &failed));
    leave("");
    if (failed)
        return false;
    plm_line_edit_remember(editor);
    const char *text = plm_line_edit_text(editor, ret_len);
    if (keeps_history)
        plm_run_history_add(text, *ret_len);
    *ret = malloc(*ret_len + 1);
    if (*ret != NULL)
        memcpy(*ret, text, *ret_len + 1);
    return *ret != NULL;
}

bool plm_run_read_question(bool terminal, char **ret, size_t *ret_len)
{
    take_interrupt(); // one that stopped the answer before
    if (terminal && editor == NULL) {
        editor = plm_line_edit_create(QUESTION_MAX_BYTES);
        if (editor != NULL && keeps_history)
            plm_run_history_read(recall);
    }
    if (!terminal || editor == NULL || !plm_run_tty_begin(interrupt_pipe[1]))
        return read_lines(terminal, ret, ret_len);
    const bool ok = edit_question(ret, ret_len);
    plm_run_tty_end();
    show(true, "\n");
    return ok;
}

void plm_run_input_finish(void)
{
    plm_line_edit_destroy(editor);
    plm_line_view_finish(&view);
    editor = NULL;
}
