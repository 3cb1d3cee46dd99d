// SPDX-License-Identifier: Apache-2.0
#include "core/base/thread.h"

#include <signal.h>
#include <sys/resource.h>

bool plm_thread_start(pthread_t *ret, size_t stack_bytes, void *(*run)(void *), void *arg)
{
    pthread_attr_t attr;
    if (pthread_attr_init(&attr) != 0)
        return false;
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    bool ok = (stack_bytes == 0 || pthread_attr_setstacksize(&attr, stack_bytes) == 0) &&
              pthread_sigmask(SIG_BLOCK, &all, &before) == 0;
    if (ok) {
        ok = pthread_create(ret, &attr, run, arg) == 0;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    pthread_attr_destroy(&attr);
    return ok;
}

int plm_thread_fail(struct plm_error *err, const char *whose)
{
    struct rlimit limit;
    const bool known = getrlimit(RLIMIT_NPROC, &limit) == 0;
    if (!known || limit.rlim_cur == RLIM_INFINITY)
        return plm_fail(
            err, PLM_ERR_IO,
            "the system gives no thread for %s: a limit of threads is reached (pids.max "
            "of the control group, or kernel.threads-max)",
            whose);
    return plm_fail(
        err, PLM_ERR_IO,
        "the system gives no thread for %s: a limit of threads is reached (%llu processes "
        "and threads of this user by ulimit -u, or pids.max of the control group)",
        whose, (unsigned long long)limit.rlim_cur);
}
