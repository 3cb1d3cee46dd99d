// SPDX-License-Identifier: Apache-2.0
#include "tests/support/heap.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>

// glibc's own, which a symbol of the same name in the program does not hide.
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t n, size_t bytes);
extern void *__libc_realloc(void *ptr, size_t bytes);
extern void __libc_free(void *ptr);

#ifdef __SANITIZE_ADDRESS__
extern void *__interceptor_malloc(size_t bytes);
extern void *__interceptor_calloc(size_t n, size_t bytes);
extern void *__interceptor_realloc(void *ptr, size_t bytes);
extern void __interceptor_free(void *ptr);
#define NEXT(name) __interceptor_##name
#else
#define NEXT(name) __libc_##name
#endif

// Libraries see what the program exports.
#define EXPORT __attribute__((visibility("default")))

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

static void *taken(void *ptr)
{
    if (ptr == NULL)
        return NULL;
    const size_t held = now += malloc_usable_size(ptr) + HEAD_BYTES;
    size_t most = peak;
    while (held > most && !atomic_compare_exchange_weak(&peak, &most, held))
        ;
    return ptr;
}

static void given(void *ptr)
{
    if (ptr != NULL)
        now -= malloc_usable_size(ptr) + HEAD_BYTES;
}

EXPORT void *malloc(size_t bytes)
{
    return taken(NEXT(malloc)(bytes));
}

EXPORT void *calloc(size_t n, size_t bytes)
{
    return taken(NEXT(calloc)(n, bytes));
}

// A block that grows may stand twice while it is copied; whether it does is malloc's to choose, so
// the test counts it always.
EXPORT void *realloc(void *ptr, size_t bytes)
{
    const size_t old = ptr != NULL ? malloc_usable_size(ptr) + HEAD_BYTES : 0;
    void *moved = NEXT(realloc)(ptr, bytes);
    if (moved == NULL)
        return NULL;
    taken(moved);
    now -= old;
    return moved;
}

EXPORT void free(void *ptr)
{
    given(ptr);
    NEXT(free)(ptr);
}
