// SPDX-License-Identifier: Apache-2.0
// Numbers to text and back as in the C locale, whatever the program around us has set: under a
// decimal comma 0.5 would be written 0,5, which no JSON parser takes, and "0.5" read as 0. The
// locale of the calling thread is switched for the length of one call; nobody else sees it. The
// style check holds the library to these.
#ifndef PLM_BASE_TEXT_H
#define PLM_BASE_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

// As vsnprintf(), snprintf() and strtod().
int plm_vsnprintf(char *out, size_t cap, const char *fmt, va_list ap)
    __attribute__((format(printf, 3, 0)));
int plm_snprintf(char *out, size_t cap, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
double plm_strtod(const char *text, char **ret_end);
struct tm;
// As strftime(), of a time without a zone: the conversions s, z and Z, which look at the zone of
// the process, are not for this.
size_t plm_strftime(char *out, size_t cap, const char *fmt, const struct tm *tm);
// Whether both are the same, in their first n bytes where they are longer, but for the case of
// ASCII letters.
bool plm_ascii_same(const char *a, const char *b, size_t n);
// Appends ", item" (the first one without the comma) to the text of *used bytes in out, a string of
// less than cap bytes: lists of what there is, in messages. Items without room are left out.
void plm_text_list(char *out, size_t cap, size_t *used, const char *item);

#endif
