// SPDX-License-Identifier: Apache-2.0
// Arithmetic and the text of numbers, as Python has them and whatever the locale is.
#include "core/template/value.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/text.h"
#include "core/template/run.h"

enum {
    NUMBER_TEXT_MAX = 400, // longest text of a float that is read
};

size_t plm_tnum_printf(char *out, size_t cap, char conv, int precision, double d)
{
    char fmt[16];
    snprintf(fmt, sizeof(fmt), "%%.*%c", conv);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    int n = plm_snprintf(out, cap, fmt, precision, d);
#pragma GCC diagnostic pop
    return n < 0 ? cap : (size_t)n;
}

bool plm_tnum_parse_double(const char *s, size_t n, double *ret)
{
    char text[NUMBER_TEXT_MAX + 1];
    char *end;
    if (n == 0 || n > NUMBER_TEXT_MAX)
        return false;
    memcpy(text, s, n);
    text[n] = '\0';
    double d = plm_strtod(text, &end);
    if (end != text + n)
        return false;
    *ret = d;
    return true;
}

void plm_tnum_repr(double d, char out[40])
{
    if (isnan(d) || isinf(d)) {
        strcpy(out, isnan(d) ? "nan" : d < 0 ? "-inf" : "inf");
        return;
    }
    char sci[40] = "";
    for (int precision = 0; precision < 17; precision++) {
        double back;
        plm_tnum_printf(sci, sizeof(sci), 'e', precision, d);
        if (plm_tnum_parse_double(sci, strlen(sci), &back) && back == d)
            break;
    }
    char *e = strchr(sci, 'e');
    int exp = atoi(e + 1);
    *e = '\0';
    char digits[20]; // at most 17
    size_t n = 0;
    for (const char *p = sci; n < sizeof(digits) - 1 && *p != '\0'; p++)
        if (*p >= '0' && *p <= '9')
            digits[n++] = *p;
    digits[n] = '\0';
    const char *sign = signbit(d) ? "-" : "";
    if (exp < -4 || exp >= 16) {
        snprintf(out, 40, "%s%c%s%se%c%02d", sign, digits[0], n > 1 ? "." : "", digits + 1,
                 exp < 0 ? '-' : '+', abs(exp));
    } else if (exp < 0) {
        snprintf(out, 40, "%s0.%.*s%s", sign, -exp - 1, "0000", digits);
    } else if ((int)n <= exp + 1) {
        snprintf(out, 40, "%s%.17s%.*s.0", sign, digits, exp + 1 - (int)n, "0000000000000000");
    } else {
        snprintf(out, 40, "%s%.*s.%.17s", sign, exp + 1, digits, digits + exp + 1);
    }
}

__int128 plm_tnum_whole(const struct plm_tval *v)
{
    return v->kind == PLM_T_BOOL ? v->b : v->kind == PLM_T_UINT ? (__int128)v->u : v->i;
}

double plm_tnum_double(const struct plm_tval *v)
{
    return v->kind == PLM_T_FLOAT ? v->d : (double)plm_tnum_whole(v);
}

bool plm_tnum_fits(__int128 i, struct plm_tval *ret)
{
    if (i < INT64_MIN || i > UINT64_MAX)
        return false;
    *ret = i > INT64_MAX ? (struct plm_tval){.kind = PLM_T_UINT, .u = (uint64_t)i}
                         : plm_tval_int((int64_t)i);
    return true;
}

bool plm_tnum_fail_beyond(struct plm_trun *r)
{
    return plm_tpl_fail(r, "integers beyond 64 bits are not supported");
}

bool plm_tnum_from_double(struct plm_trun *r, double d, struct plm_tval *ret)
{
    if (!isfinite(d))
        return plm_tpl_fail(r, "%s is no integer", isnan(d) ? "nan" : "inf");
    if (d < -0x1p63 || d >= 0x1p64 || !plm_tnum_fits((__int128)d, ret))
        return plm_tnum_fail_beyond(r);
    return true;
}

// Copies a number's text without the white space around it and without underscores between
// digits. Returns false where Python would not read it.
static bool clean_number(struct plm_slice s, char *out, size_t cap, size_t *ret_n)
{
    const char *p = s.ptr;
    const char *end = s.ptr + s.len;
    uint32_t cp;
    while (p < end && plm_tstr_next(p, end, &cp) > 0 && plm_cp_is_space(cp))
        p += plm_tstr_next(p, end, &cp);
    while (end > p) {
        size_t n = plm_tstr_prev(p, end, &cp);
        if (!plm_cp_is_space(cp))
            break;
        end -= n;
    }
    size_t n = 0;
    for (; p < end; p++) {
        if (*p == '_') {
            bool inside = n > 0 && out[n - 1] != '_' && p + 1 < end && p[1] != '_' &&
                          strchr("+-.eE", out[n - 1]) == NULL && strchr("+-.eE", p[1]) == NULL;
            if (!inside)
                return false;
            continue;
        }
        if (n + 1 >= cap)
            return false;
        out[n++] = *p;
    }
    out[n] = '\0';
    *ret_n = n;
    return n > 0;
}

enum plm_tint plm_tnum_int_text(struct plm_slice s, struct plm_tval *ret)
{
    char text[NUMBER_TEXT_MAX * 4];
    size_t n;
    if (!clean_number(s, text, sizeof(text), &n))
        return PLM_TINT_NONE;
    const char *p = text + (text[0] == '-' || text[0] == '+');
    __int128 value = 0;
    bool beyond = false;
    if (*p == '\0')
        return PLM_TINT_NONE;
    for (; *p != '\0'; p++) {
        if (*p < '0' || *p > '9')
            return PLM_TINT_NONE;
        if (!beyond)
            value = value * 10 + (*p - '0');
        beyond = beyond || value > UINT64_MAX;
    }
    return !beyond && plm_tnum_fits(text[0] == '-' ? -value : value, ret) ? PLM_TINT_OK
                                                                          : PLM_TINT_BEYOND;
}

bool plm_tnum_float_text(struct plm_slice s, double *ret)
{
    char text[NUMBER_TEXT_MAX];
    size_t n;
    if (!clean_number(s, text, sizeof(text), &n))
        return false;
    const char *p = text + (text[0] == '+' || text[0] == '-');
    if ((p[0] | 0x20) == 'i' || (p[0] | 0x20) == 'n') {
        static const char *const words[] = {"inf", "infinity", "nan"};
        for (int i = 0; i < 3; i++)
            if (plm_ascii_same(p, words[i], SIZE_MAX)) {
                *ret = i == 2 ? NAN : text[0] == '-' ? -INFINITY : INFINITY;
                return true;
            }
        return false;
    }
    for (const char *q = p; *q != '\0'; q++)
        if (strchr("0123456789.eE+-", *q) == NULL)
            return false;
    return plm_tnum_parse_double(text, n, ret);
}

static bool int_binary(struct plm_trun *r, int op, __int128 x, __int128 y, struct plm_tval *ret)
{
    __int128 z = 0;
    bool beyond = false;
    switch (op) {
    case PLM_OP_ADD: z = x + y; break;
    case PLM_OP_SUB: z = x - y; break;
    case PLM_OP_MUL: beyond = __builtin_mul_overflow(x, y, &z); break;
    default: // floor division and modulo
        if (y == 0)
            return plm_tpl_fail(r, "division by zero");
        z = op == PLM_OP_MOD ? x % y : x / y;
        if (x % y != 0 && (x % y < 0) != (y < 0))
            z += op == PLM_OP_MOD ? y : -1;
        break;
    }
    return (!beyond && plm_tnum_fits(z, ret)) || plm_tnum_fail_beyond(r);
}

static bool float_binary(struct plm_trun *r, int op, double x, double y, struct plm_tval *ret)
{
    double z;
    switch (op) {
    case PLM_OP_ADD: z = x + y; break;
    case PLM_OP_SUB: z = x - y; break;
    case PLM_OP_MUL: z = x * y; break;
    default:
        if (y == 0.0)
            return plm_tpl_fail(r, "division by zero");
        if (op == PLM_OP_DIV) {
            z = x / y;
            break;
        }
        double rest = fmod(x, y);
        if (rest != 0.0 && (rest < 0) != (y < 0))
            rest += y;
        if (op == PLM_OP_MOD) {
            z = rest == 0.0 ? copysign(0.0, y) : rest;
            break;
        }
        z = (x - rest) / y;
        z = z == 0.0 ? copysign(0.0, x / y) : floor(z + 0.5);
        break;
    }
    *ret = plm_tval_float(z);
    return true;
}

bool plm_tnum_binary(struct plm_trun *r, int op, const struct plm_tval *a, const struct plm_tval *b,
                     struct plm_tval *ret)
{
    if (op != PLM_OP_DIV && plm_tval_is_int(a) && plm_tval_is_int(b))
        return int_binary(r, op, plm_tnum_whole(a), plm_tnum_whole(b), ret);
    return float_binary(r, op, plm_tnum_double(a), plm_tnum_double(b), ret);
}

bool plm_tnum_round(struct plm_trun *r, const struct plm_tval *v, int64_t digits,
                    struct plm_tval *ret)
{
    if (plm_tval_is_int(v)) {
        *ret = v->kind == PLM_T_BOOL ? plm_tval_int(v->b) : *v;
        return digits >= 0 || plm_tpl_fail(r, "round to fewer than no digits is not supported");
    }
    double d = v->d;
    char text[NUMBER_TEXT_MAX];
    if (digits < 0)
        return plm_tpl_fail(r, "round to fewer than no digits is not supported");
    // Beyond 22 digits a double of a size that matters has none to lose.
    if (isfinite(d) && digits <= 22) {
        plm_tnum_printf(text, sizeof(text), 'f', (int)digits, d);
        if (!plm_tnum_parse_double(text, strlen(text), &d))
            return plm_tpl_fail(r, "number can not be rounded");
    }
    *ret = plm_tval_float(d);
    return true;
}
