// SPDX-License-Identifier: Apache-2.0
// strftime in UTC with the names of the C locale, whatever locale the process has.
#include <stdio.h>
#include <string.h>

#include "core/template/run.h"

static const char *const days[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                   "Thursday", "Friday", "Saturday"};
static const char *const months[] = {"January",   "February", "March",    "April",
                                     "May",       "June",     "July",     "August",
                                     "September", "October",  "November", "December"};

struct moment {
    int64_t epoch;
    int64_t year;
    int month; // 1..12
    int day;
    int hour, minute, second;
    int weekday; // 0: Sunday
    int yearday; // 0: first of January
};

static bool is_leap(int64_t y)
{
    return (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
}

static void moment_of(int64_t t, struct moment *ret)
{
    int64_t d = t / 86400;
    int64_t s = t % 86400;
    if (s < 0) {
        s += 86400;
        d--;
    }
    ret->epoch = t;
    ret->hour = (int)(s / 3600);
    ret->minute = (int)(s / 60 % 60);
    ret->second = (int)(s % 60);
    ret->weekday = (int)(((d + 4) % 7 + 7) % 7);  // 1970 began on a Thursday
    int64_t eras = d / 146097 - (d % 146097 < 0); // 400 years are 146,097 days
    d -= eras * 146097;
    int64_t y = 1970 + eras * 400;
    while (d >= (is_leap(y) ? 366 : 365)) {
        d -= is_leap(y) ? 366 : 365;
        y++;
    }
    static const int lengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    ret->year = y;
    ret->yearday = (int)d;
    ret->month = 1;
    for (int i = 0; i < 12; i++) {
        int n = lengths[i] + (i == 1 && is_leap(y));
        if (d < n)
            break;
        d -= n;
        ret->month++;
    }
    ret->day = (int)d + 1;
}

// Week of ISO 8601 and the year that it belongs to.
static int iso_week(const struct moment *m, int64_t *ret_year)
{
    int monday0 = (m->weekday + 6) % 7;
    int week = (m->yearday - monday0 + 10) / 7;
    *ret_year = m->year;
    if (week < 1) {
        *ret_year = m->year - 1;
        int last = m->yearday + (is_leap(m->year - 1) ? 366 : 365);
        return (last - monday0 + 10) / 7;
    }
    if (week == 53) {
        int left = (is_leap(m->year) ? 366 : 365) - m->yearday; // days of this year still to come
        if (left <= 3 - monday0) {
            *ret_year = m->year + 1;
            return 1;
        }
    }
    return week;
}

static const char *composite(char c)
{
    switch (c) {
    case 'c': return "%a %b %e %H:%M:%S %Y";
    case 'D':
    case 'x': return "%m/%d/%y";
    case 'F': return "%Y-%m-%d";
    case 'R': return "%H:%M";
    case 'r': return "%I:%M:%S %p";
    case 'T':
    case 'X': return "%H:%M:%S";
    default: return NULL;
    }
}

static const char *name_of(const struct moment *m, char c, char text[40])
{
    switch (c) {
    case 'a': snprintf(text, 40, "%.3s", days[m->weekday]); return text;
    case 'A': return days[m->weekday];
    case 'b':
    case 'h': snprintf(text, 40, "%.3s", months[m->month - 1]); return text;
    case 'B': return months[m->month - 1];
    case 'p': return m->hour < 12 ? "AM" : "PM";
    case 'P': return m->hour < 12 ? "am" : "pm";
    case 'n': return "\n";
    case 't': return "\t";
    case 'z': // a time without a zone, as Python's datetime.now() gives it
    case 'Z': return "";
    case '%': return "%";
    default: return NULL;
    }
}

// The number of a conversion, its width and what it is padded with.
static bool number_of(const struct moment *m, char c, int64_t *ret, int *width, char *pad)
{
    int64_t iso_year;
    int week = iso_week(m, &iso_year);
    int hour12 = m->hour % 12 == 0 ? 12 : m->hour % 12;
    *width = 2;
    *pad = strchr("ekl", c) != NULL ? ' ' : '0';
    switch (c) {
    case 'C': *ret = m->year / 100; return true;
    case 'd':
    case 'e': *ret = m->day; return true;
    case 'f':
        *ret = 0;
        *width = 6;
        return true;
    case 'g': *ret = iso_year % 100; return true;
    case 'G':
        *ret = iso_year;
        *width = 4;
        return true;
    case 'H':
    case 'k': *ret = m->hour; return true;
    case 'I':
    case 'l': *ret = hour12; return true;
    case 'j':
        *ret = m->yearday + 1;
        *width = 3;
        return true;
    case 'm': *ret = m->month; return true;
    case 'M': *ret = m->minute; return true;
    case 's':
        *ret = m->epoch;
        *width = 1;
        return true;
    case 'S': *ret = m->second; return true;
    case 'u':
        *ret = m->weekday == 0 ? 7 : m->weekday;
        *width = 1;
        return true;
    case 'U': *ret = (m->yearday + 7 - m->weekday) / 7; return true;
    case 'V': *ret = week; return true;
    case 'w':
        *ret = m->weekday;
        *width = 1;
        return true;
    case 'W': *ret = (m->yearday + 7 - (m->weekday + 6) % 7) / 7; return true;
    case 'y': *ret = m->year % 100; return true;
    case 'Y':
        *ret = m->year;
        *width = 1;
        return true;
    default: return false;
    }
}

static bool convert(struct plm_trun *r, struct plm_tbuf *buf, const struct moment *m, char flag,
                    char c)
{
    char text[40];
    int64_t value;
    int width;
    char pad;
    const char *inner = composite(c);
    if (inner != NULL) {
        for (const char *p = inner; *p != '\0'; p++) {
            bool ok =
                *p == '%' ? convert(r, buf, m, '\0', *++p) : plm_tbuf_add(r, buf, p, 1, false);
            if (!ok)
                return false;
        }
        return true;
    }
    const char *name = name_of(m, c, text);
    if (name == NULL && number_of(m, c, &value, &width, &pad)) {
        if (flag == '-')
            width = 1;
        if (flag == '_' || flag == '0')
            pad = flag == '_' ? ' ' : '0';
        snprintf(text, sizeof(text), pad == '0' ? "%0*lld" : "%*lld", width, (long long)value);
        name = text;
    }
    if (name == NULL) { // an unknown conversion stays as it is
        const char raw[3] = {'%', flag != '\0' ? flag : c, flag != '\0' ? c : '\0'};
        return plm_tbuf_add(r, buf, raw, flag != '\0' ? 3 : 2, false);
    }
    char shouted[40];
    if (flag == '^') {
        size_t n = strlen(name);
        for (size_t i = 0; i <= n; i++)
            shouted[i] = (char)(name[i] >= 'a' && name[i] <= 'z' ? name[i] - 32 : name[i]);
        name = shouted;
    }
    return plm_tbuf_addz(r, buf, name, false);
}

bool plm_tpl_strftime(struct plm_trun *r, struct plm_tstr *fmt, int64_t now_s, struct plm_tval *ret)
{
    struct moment m;
    struct plm_tbuf *buf = plm_tbuf_new(r);
    if (buf == NULL)
        return false;
    moment_of(now_s, &m);
    for (size_t i = 0; i < fmt->len; i++) {
        const char *p = plm_tstr_ptr(fmt);
        if (p[i] != '%' || i + 1 == fmt->len) {
            if (!plm_tbuf_add_part(r, buf, fmt, i, 1))
                return false;
            continue;
        }
        char flag = strchr("-_0^", p[i + 1]) != NULL && i + 2 < fmt->len ? p[++i] : '\0';
        if (!plm_tpl_step(r, 1) || !convert(r, buf, &m, flag, p[++i]))
            return false;
    }
    return plm_tbuf_value(r, buf, ret);
}
