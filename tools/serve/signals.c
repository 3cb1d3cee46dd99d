// SPDX-License-Identifier: Apache-2.0
#include "tools/serve/signals.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/signalfd.h>
#include <unistd.h>

// One of our own descriptors is a terminal, or the process has one that controls it: the kernel
// sends SIGHUP when it goes, wherever the output is sent to.
static bool has_terminal(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (isatty(fd))
            return true;
    }
    const int fd = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

int plm_signals_start(bool *ret_hangup_drains)
{
    struct sigaction before = {.sa_handler = SIG_DFL};
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaction(SIGHUP, NULL, &before);
    if (before.sa_handler != SIG_IGN)
        sigaddset(&signals, SIGHUP);
    *ret_hangup_drains = has_terminal();
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    return signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
}
