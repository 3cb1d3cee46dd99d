// SPDX-License-Identifier: Apache-2.0
// malloc, calloc and realloc of the whole program, libraries included: they take the place of the C
// library's (or of a sanitizer's) and pass on to them.
#include <errno.h>
#include <json.h>
#include <stddef.h>
#include <stdlib.h>

#include "tests/torture/life.h"

// glibc's own, which a symbol of the same name in the program does not hide.
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t n, size_t bytes);
extern void *__libc_realloc(void *ptr, size_t bytes);

#ifdef __SANITIZE_ADDRESS__
extern void *__interceptor_malloc(size_t bytes);
extern void *__interceptor_calloc(size_t n, size_t bytes);
extern void *__interceptor_realloc(void *ptr, size_t bytes);
#define NEXT(name) __interceptor_##name
#else
#define NEXT(name) __libc_##name
#endif

// Libraries see what the program exports.
#define EXPORT __attribute__((visibility("default")))

// Of the thread that lives the life; a sanitizer needs memory of its own to begin another one.
static _Thread_local bool armed, in_tokener;
static _Thread_local uint64_t calls, fail_at;

void torture_malloc_arm(uint64_t fail_nth)
{
    calls = 0;
    fail_at = fail_nth;
    armed = true;
}

uint64_t torture_malloc_disarm(void)
{
    armed = false;
    return calls;
}

static bool fails(void)
{
    if (in_tokener || !armed || ++calls != fail_at)
        return false;
    errno = ENOMEM;
    return true;
}

EXPORT void *malloc(size_t bytes)
{
    return fails() ? NULL : NEXT(malloc)(bytes);
}

EXPORT void *calloc(size_t n, size_t bytes)
{
    return fails() ? NULL : NEXT(calloc)(n, bytes);
}

EXPORT void *realloc(void *ptr, size_t bytes)
{
    return fails() ? NULL : NEXT(realloc)(ptr, bytes);
}

// json-c up to 0.17 does not check the allocations of its tokener: a key that can not be copied
// crashes it, a value that can not be made becomes null. What a parse may take is charged to the
// host budget before it begins; beyond that nothing can be done from outside, so they do not fail.
extern struct json_object *__real_json_tokener_parse_ex(struct json_tokener *tok, const char *str,
                                                        int len);
extern struct json_object *__wrap_json_tokener_parse_ex(struct json_tokener *tok, const char *str,
                                                        int len);

struct json_object *__wrap_json_tokener_parse_ex(struct json_tokener *tok, const char *str, int len)
{
    in_tokener = true;
    struct json_object *object = __real_json_tokener_parse_ex(tok, str, len);
    in_tokener = false;
    return object;
}
