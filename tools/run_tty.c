// SPDX-License-Identifier: Apache-2.0
#include "tools/run_tty.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

// xterm's bracketed paste, which all terminals in use have; others ignore it.
static const char paste_on[] = "\x1b[?2004h", paste_off[] = "\x1b[?2004l";

// What would end or stop the program while the terminal is ours. Ctrl-C has a handler of its own.
static const int signals[] = {SIGTERM, SIGHUP, SIGQUIT, SIGTSTP};
#define N_SIGNALS (sizeof(signals) / sizeof(signals[0]))

static struct termios before, ours;
static struct sigaction handled_before[N_SIGNALS];
static int wake;

static void tell(const char *text, size_t len)
{
    ssize_t r = write(STDOUT_FILENO, text, len);
    (void)r; // a terminal that is gone
}

static void set_ours(void)
{
    tcsetattr(STDIN_FILENO, TCSADRAIN, &ours);
    tell(paste_on, sizeof(paste_on) - 1);
}

static void set_before(void)
{
    tell(paste_off, sizeof(paste_off) - 1);
    tcsetattr(STDIN_FILENO, TCSADRAIN, &before);
}

static void on_signal(int number)
{
    const int saved = errno;
    set_before();
    if (number == SIGTSTP) {
        raise(SIGSTOP); // until fg
        set_ours();
        ssize_t r = write(wake, &(char){PLM_RUN_TTY_RESUMED}, 1);
        (void)r; // full: something wakes the reader already
    } else {
        signal(number, SIG_DFL);
        raise(number); // pending until this handler returns
    }
    errno = saved;
}

bool plm_run_tty_begin(int wake_fd)
{
    const char *term = getenv("TERM");
    if (term == NULL || term[0] == '\0' || strcmp(term, "dumb") == 0 || !isatty(STDOUT_FILENO) ||
        tcgetattr(STDIN_FILENO, &before) != 0)
        return false;
    ours = before;
    // Signals stay keys. CR is not made a line feed, so that CR LF in a paste is seen as one.
    ours.c_lflag &= ~(tcflag_t)(ICANON | ECHO | IEXTEN);
    ours.c_iflag &= ~(tcflag_t)(ICRNL | INLCR | IGNCR | IXON | ISTRIP);
    ours.c_cc[VMIN] = 1;
    ours.c_cc[VTIME] = 0;
    wake = wake_fd;
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < N_SIGNALS; i++) {
        sigaction(signals[i], NULL, &handled_before[i]);
        if (handled_before[i].sa_handler != SIG_IGN) // as by nohup
            sigaction(signals[i], &action, NULL);
    }
    set_ours();
    return true;
}

void plm_run_tty_end(void)
{
    set_before();
    for (size_t i = 0; i < N_SIGNALS; i++)
        sigaction(signals[i], &handled_before[i], NULL);
}

// 80 by 24 where the terminal does not know.
void plm_run_tty_size(size_t *ret_columns, size_t *ret_rows)
{
    struct winsize size = {0};
    ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    *ret_columns = size.ws_col > 0 ? size.ws_col : 80;
    *ret_rows = size.ws_row > 0 ? size.ws_row : 24;
}
