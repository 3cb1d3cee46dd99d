// SPDX-License-Identifier: Apache-2.0
// strftime_now(): a time in UTC, with the names of the C locale.
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/base/text.h"
#include "core/template/run.h"

enum {
    DAY_S = 86400,
    ERA_DAYS = 146097, // of 400 years
    PIECE_BYTES = 64,  // of one conversion; the longest, %c, has 24
};

// The calendar of a time; gmtime_r() would read the zone of the process.
static bool calendar(int64_t now_s, struct tm *ret)
{
    static const int before_month[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    int64_t days = now_s / DAY_S - (now_s % DAY_S < 0);
    const int second = (int)(now_s - days * DAY_S);
    const int weekday = (int)(((days + 4) % 7 + 7) % 7); // 1970 began on a Thursday
    // Years that begin in March end with the day that leap years have more.
    days += 719468; // from 0000-03-01 to 1970-01-01
    const int64_t era = days / ERA_DAYS - (days % ERA_DAYS < 0);
    const int64_t day = days - era * ERA_DAYS; // of the era
    const int64_t year = (day - day / 1460 + day / 36524 - day / 146096) / 365;
    const int yday = (int)(day - (365 * year + year / 4 - year / 100)); // from March
    const int month = (5 * yday + 2) / 153;                             // from March
    const int64_t ad = era * 400 + year + (month >= 10);
    const bool leap = (ad % 4 == 0 && ad % 100 != 0) || ad % 400 == 0;
    if (ad < 0 || ad > 9999)
        return false;
    *ret = (struct tm){.tm_sec = second % 60,
                       .tm_min = second / 60 % 60,
                       .tm_hour = second / 3600,
                       .tm_mday = yday - (153 * month + 2) / 5 + 1,
                       .tm_mon = month < 10 ? month + 2 : month - 10,
                       .tm_year = (int)ad - 1900,
                       .tm_wday = weekday};
    ret->tm_yday = before_month[ret->tm_mon] + ret->tm_mday - 1 + (leap && ret->tm_mon > 1);
    return true;
}

// What Python's datetime.now() gives for a conversion that looks at the zone or at less than a
// second; NULL for all others.
static const char *zoneless(char conversion)
{
    switch (conversion) {
    case 'f': return "000000";
    case 'z':
    case 'Z': return "";
    default: return NULL;
    }
}

bool plm_tpl_strftime(struct plm_trun *r, struct plm_tstr *fmt, int64_t now_s, struct plm_tval *ret)
{
    struct tm tm;
    struct plm_tbuf *buf = plm_tbuf_new(r);
    if (buf == NULL)
        return false;
    if (!calendar(now_s, &tm))
        return plm_tpl_fail(r, "strftime_now: the clock shows no year of four digits");
    const char *p = plm_tstr_ptr(fmt);
    for (size_t i = 0; i < fmt->len;) {
        if (p[i] != '%' || i + 1 == fmt->len) {
            if (!plm_tbuf_add_part(r, buf, fmt, i++, 1))
                return false;
            continue;
        }
        // One conversion: '%', a flag of the C library, a letter.
        const size_t n = memchr("-_0^#", p[i + 1], 5) != NULL && i + 2 < fmt->len ? 3 : 2;
        const char letter = p[i + n - 1];
        char piece[PIECE_BYTES], one[5];
        const char *text = zoneless(letter);
        if (letter == 's' || letter == 'E' || letter == 'O' || letter == '+' || letter == '\0' ||
            (unsigned char)letter >= 0x80 || (letter >= '0' && letter <= '9'))
            return plm_tpl_fail(r, "strftime_now: conversion '%.*s' is not supported", (int)n,
                                p + i);
        if (text == NULL) {
            snprintf(one, sizeof(one), "%.*s", (int)n, p + i);
            piece[plm_strftime(piece, sizeof(piece) - 1, one, &tm)] = '\0';
            text = piece;
        }
        if (!plm_tpl_step(r, 1) || !plm_tbuf_addz(r, buf, text, PLM_ORIGIN_TEMPLATE))
            return false;
        i += n;
    }
    return plm_tbuf_value(r, buf, ret);
}
