// SPDX-License-Identifier: Apache-2.0
#include "tests/support/counters.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

static _Atomic uint64_t own[COUNTERS_MAX];
static _Atomic uint64_t *counters = own;

bool counters_share(const char *path, uint32_t n)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) {
        return false;
    }
    void *at = MAP_FAILED;
    if (ftruncate(fd, (off_t)(n * sizeof(own[0]))) == 0) {
        at = mmap(NULL, sizeof(own), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    close(fd);
    if (at == MAP_FAILED) {
        return false;
    }
    counters = at;
    return true;
}

uint64_t counters_add(uint32_t counter, int64_t n)
{
    return atomic_fetch_add(&counters[counter], (uint64_t)n) + (uint64_t)n;
}

void counters_raise(uint32_t counter, uint64_t to)
{
    uint64_t now = atomic_load(&counters[counter]);
    while (now < to && !atomic_compare_exchange_weak(&counters[counter], &now, to)) {
    }
}

uint64_t counters_read(uint32_t counter)
{
    return atomic_load(&counters[counter]);
}
