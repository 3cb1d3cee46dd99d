// SPDX-License-Identifier: Apache-2.0
#include "tests/support/heap.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>

#define HEAD_BYTES 8 // glibc's, before each block

static _Atomic size_t now, peak;

size_t heap_bytes(void)
{
    return now;
}

size_t heap_peak(void)
{
    return atomic_exchange(&peak, now);
}

static void take(size_t bytes)
{
    const size_t held = atomic_fetch_add(&now, bytes) + bytes;
    size_t most = atomic_load(&peak);
    while (held > most && !atomic_compare_exchange_weak(&peak, &most, held))
        ;
}

#ifdef __SANITIZE_ADDRESS__
// gcc ships the functions and not their header.
extern int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void *,
                                                                       size_t),
                                                     void (*on_free)(const volatile void *));
extern int __sanitizer_get_ownership(const volatile void *ptr);
extern size_t __sanitizer_get_allocated_size(const volatile void *ptr);

// The sanitizer has malloc's place, and tells of each block.
static void on_malloc(const volatile void *ptr, size_t bytes)
{
    (void)ptr;
    take(bytes + HEAD_BYTES);
}

static void on_free(const volatile void *ptr)
{
    if (ptr != NULL && __sanitizer_get_ownership(ptr))
        now -= __sanitizer_get_allocated_size(ptr) + HEAD_BYTES;
}

__attribute__((constructor)) static void begin(void)
{
    __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
}
#else
// glibc's own, which a symbol of the same name in the program does not hide.
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t n, size_t bytes);
extern void *__libc_realloc(void *ptr, size_t bytes);
extern void __libc_free(void *ptr);

// Libraries see what the program exports.
#define EXPORT __attribute__((visibility("default")))

static size_t bytes_of(void *ptr)
{
    return ptr != NULL ? malloc_usable_size(ptr) + HEAD_BYTES : 0;
}

static void *taken(void *ptr)
{
    take(bytes_of(ptr));
    return ptr;
}

EXPORT void *malloc(size_t bytes)
{
    return taken(__libc_malloc(bytes));
}

EXPORT void *calloc(size_t n, size_t bytes)
{
    return taken(__libc_calloc(n, bytes));
}

// A block that grows may stand twice while it is copied; whether it does is malloc's to choose, so
// it counts always.
EXPORT void *realloc(void *ptr, size_t bytes)
{
    const size_t old = bytes_of(ptr);
    void *moved = __libc_realloc(ptr, bytes);
    if (moved != NULL) {
        taken(moved);
        now -= old;
    }
    return moved;
}

EXPORT void free(void *ptr)
{
    now -= bytes_of(ptr);
    __libc_free(ptr);
}
#endif
