// SPDX-License-Identifier: Apache-2.0
// Pages of device memory. Fresh ones hold all ones (NaN to whoever reads them too early) without
// taking memory: a file of such bytes is mapped there privately, again and again.
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fake.h"

#define POISON_BYTES (UINT64_C(16) << 20)

static int poison_file(void)
{
    static int fd = -1;
    if (fd < 0) {
        fd = memfd_create("fake driver", MFD_CLOEXEC);
        void *at = MAP_FAILED;
        if (fd >= 0 && ftruncate(fd, (off_t)POISON_BYTES) == 0)
            at = mmap(NULL, POISON_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (at != MAP_FAILED) {
            memset(at, 0xff, POISON_BYTES);
            munmap(at, POISON_BYTES);
        }
    }
    return fd;
}

bool fake_pages_poison(uint64_t address, uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += POISON_BYTES) {
        const uint64_t n = bytes - at < POISON_BYTES ? bytes - at : POISON_BYTES;
        if (mmap((void *)(uintptr_t)(address + at), n, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, poison_file(), 0) == MAP_FAILED)
            return false;
    }
    return true;
}

uint64_t fake_pages_reserve(uint64_t bytes, uint64_t align)
{
    void *at =
        mmap(NULL, bytes + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return 0;
    const uint64_t first = (uint64_t)(uintptr_t)at;
    const uint64_t address = (first + align - 1) / align * align;
    if (address > first)
        munmap(at, address - first);
    munmap((void *)(uintptr_t)(address + bytes), first + align - address);
    return address;
}

void fake_pages_free(uint64_t address, uint64_t bytes)
{
    munmap((void *)(uintptr_t)address, bytes);
}
