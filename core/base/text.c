// SPDX-License-Identifier: Apache-2.0
#include "core/base/text.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// What enter_c() left behind, for leave_c().
struct locales {
    locale_t c, before;
};

// The C locale is part of the C library: making it takes no memory in glibc and musl. Were it not
// to be had, 0 would leave the locale as it is.
static struct locales enter_c(void)
{
    struct locales l = {.c = newlocale(LC_ALL_MASK, "C", (locale_t)0)};
    l.before = uselocale(l.c);
    return l;
}

static void leave_c(const struct locales *l)
{
    uselocale(l->before);
    if (l->c != (locale_t)0)
        freelocale(l->c);
}

int plm_vsnprintf(char *out, size_t cap, const char *fmt, va_list ap)
{
    const struct locales l = enter_c();
    int n = vsnprintf(out, cap, fmt, ap);
    leave_c(&l);
    return n;
}

int plm_snprintf(char *out, size_t cap, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = plm_vsnprintf(out, cap, fmt, ap);
    va_end(ap);
    return n;
}

double plm_strtod(const char *text, char **ret_end)
{
    const struct locales l = enter_c();
    double value = strtod(text, ret_end);
    leave_c(&l);
    return value;
}

size_t plm_strftime(char *out, size_t cap, const char *fmt, const struct tm *tm)
{
    const struct locales l = enter_c();
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    size_t n = strftime(out, cap, fmt, tm);
#pragma GCC diagnostic pop
    leave_c(&l);
    return n;
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

bool plm_ascii_same(const char *a, const char *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (lower(a[i]) != lower(b[i]))
            return false;
        if (a[i] == '\0')
            break;
    }
    return true;
}

void plm_text_list(char *out, size_t cap, size_t *used, const char *item)
{
    const size_t n = strlen(item), comma = *used > 0 ? 2 : 0;
    if (n + comma >= cap - *used)
        return;
    memcpy(out + *used, ", ", comma);
    memcpy(out + *used + comma, item, n + 1);
    *used += comma + n;
}
