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

#include "tools/run.h"

// One question; more is pasted by mistake.
#define QUESTION_MAX_BYTES (16 * 1024 * 1024)

volatile sig_atomic_t plm_run_interrupted;

// Carries Ctrl-C to the poll in next_byte(): the signal may be delivered to a thread of the engine,
// and then it would not interrupt a read of this one.
static int interrupt_pipe[2] = {-1, -1};

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    int saved = errno;
    plm_run_interrupted = 1;
    ssize_t r = write(interrupt_pipe[1], "", 1);
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

static bool take_interrupt(void)
{
    char bytes[64];
    bool any = false;
    while (read(interrupt_pipe[0], bytes, sizeof(bytes)) > 0)
        any = true;
    plm_run_interrupted = 0;
    return any;
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

#define INTERRUPTED (-2) // by Ctrl-C

// The next byte of stdin; -1: the end.
static int next_byte(void)
{
    static char buffer[4096];
    static size_t at, have;
    if (at == have) {
        struct pollfd fds[] = {{STDIN_FILENO, POLLIN, 0}, {interrupt_pipe[0], POLLIN, 0}};
        while (poll(fds, 2, -1) < 0 && errno == EINTR)
            ;
        if (fds[1].revents != 0 && take_interrupt())
            return INTERRUPTED;
        ssize_t n = read(STDIN_FILENO, buffer, sizeof(buffer));
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
    take_interrupt(); // one that stopped the answer before
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
