// SPDX-License-Identifier: Apache-2.0
// Reads questions from the terminal. It reads the descriptor itself, because a stdio stream that a
// signal interrupts loses what it had.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/run.h"

// One question; more is pasted by mistake.
#define QUESTION_MAX_BYTES (16 * 1024 * 1024)

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

#define INTERRUPTED (-2) // by Ctrl-C

// The next byte of stdin; -1: the end.
static int next_byte(void)
{
    static char buffer[4096];
    static size_t at, have;
    if (at == have) {
        ssize_t n = read(STDIN_FILENO, buffer, sizeof(buffer));
        if (n < 0 && errno == EINTR)
            return INTERRUPTED;
        if (n <= 0)
            return -1;
        have = (size_t)n;
        at = 0;
    }
    return (unsigned char)buffer[at++];
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

bool plm_run_read_question(bool terminal, char **ret, size_t *ret_len)
{
    struct line line = {0};
    bool failed = false, at_end = false;
    show(terminal, "> ");
    for (;;) {
        int c = next_byte();
        if (c == INTERRUPTED && terminal) {
            line.len = 0;
            show(terminal, "\n> ");
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
