// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <stddef.h>
#include <time.h>

#include "tools/pull/client.h"

static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
#define N_SIGNALS (sizeof(signals) / sizeof(signals[0]))

static struct sigaction before[N_SIGNALS];
static volatile sig_atomic_t wanted;

static void on_signal(int number)
{
    wanted = number;
}

void plm_stop_catch(void)
{
    // Without SA_RESTART: who waits for a lock or a socket is to hear it.
    struct sigaction action = {.sa_handler = on_signal};
    sigemptyset(&action.sa_mask);
    wanted = 0;
    for (size_t i = 0; i < N_SIGNALS; i++) {
        sigaction(signals[i], NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN) // as by nohup
            sigaction(signals[i], &action, NULL);
    }
}

void plm_stop_release(void)
{
    for (size_t i = 0; i < N_SIGNALS; i++)
        sigaction(signals[i], &before[i], NULL);
}

int plm_stop_is_wanted(void)
{
    return wanted;
}

#define SLICE_S 0.1 // a signal that came between a look and a sleep waits no longer

bool plm_stop_sleep(double seconds)
{
    for (; seconds > 0 && wanted == 0; seconds -= SLICE_S)
        nanosleep(&(struct timespec){.tv_nsec = (long)(SLICE_S * 1e9)}, NULL);
    return wanted == 0;
}
