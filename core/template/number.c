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
    POW_BITS_MAX = 40000,  // size of the result of ** on integers, about 12,000 digits
};

size_t plm_tnum_printf(char *out, size_t cap, char conv, bool alt, int precision, double d)
{
    char fmt[16];
    snprintf(fmt, sizeof(fmt), alt ? "%%#.*%c" : "%%.*%c", conv);
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
        plm_tnum_printf(sci, sizeof(sci), 'e', false, precision, d);
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

double plm_tnum_double(const struct plm_tval *v)
{
    switch (v->kind) {
    case PLM_T_FLOAT: return v->d;
    case PLM_T_BIG: return plm_tbig_double(v);
    default: return (double)plm_tval_small(v);
    }
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

static unsigned digit_of(char c)
{
    if (c >= '0' && c <= '9')
        return (unsigned)(c - '0');
    if (c >= 'a' && c <= 'z')
        return (unsigned)(c - 'a') + 10;
    if (c >= 'A' && c <= 'Z')
        return (unsigned)(c - 'A') + 10;
    return 99;
}

bool plm_tnum_int_text(struct plm_trun *r, struct plm_slice s, unsigned base, struct plm_tval *ret)
{
    char text[NUMBER_TEXT_MAX * 4];
    size_t n;
    if ((base != 0 && (base < 2 || base > 36)) || !clean_number(s, text, sizeof(text), &n))
        return false;
    const char *p = text;
    bool negative = *p == '-';
    if (*p == '-' || *p == '+')
        p++;
    if (p[0] == '0' && p[1] != '\0') {
        char c = (char)(p[1] | 0x20);
        unsigned prefix = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 0;
        if (prefix != 0 && (base == 0 || base == prefix)) {
            base = prefix;
            p += 2;
        }
    }
    if (base == 0)
        base = 10;
    size_t digits = strlen(p);
    for (size_t i = 0; i < digits; i++)
        if (digit_of(p[i]) >= base)
            return false;
    return digits > 0 && plm_tbig_parse(r, p, digits, base, negative, ret);
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

static bool int_binary(struct plm_trun *r, int op, const struct plm_tval *a,
                       const struct plm_tval *b, struct plm_tval *ret)
{
    bool big = a->kind == PLM_T_BIG || b->kind == PLM_T_BIG;
    int64_t x = big ? 0 : plm_tval_small(a);
    int64_t y = big ? 0 : plm_tval_small(b);
    int64_t z;
    switch (op) {
    case PLM_OP_ADD:
        if (big || __builtin_add_overflow(x, y, &z))
            return plm_tbig_add(r, a, b, false, ret);
        break;
    case PLM_OP_SUB:
        if (big || __builtin_sub_overflow(x, y, &z))
            return plm_tbig_add(r, a, b, true, ret);
        break;
    case PLM_OP_MUL:
        if (big || __builtin_mul_overflow(x, y, &z))
            return plm_tbig_mul(r, a, b, ret);
        break;
    default: // floor division and modulo
        if (!big && y == 0)
            return plm_tpl_fail(r, "division by zero");
        if (big || (x == INT64_MIN && y == -1))
            return plm_tbig_divmod(r, a, b, op == PLM_OP_FLOORDIV ? ret : NULL,
                                   op == PLM_OP_MOD ? ret : NULL);
        z = x / y;
        int64_t rest = x % y;
        if (rest != 0 && (rest < 0) != (y < 0)) {
            z--;
            rest += y;
        }
        if (op == PLM_OP_MOD)
            z = rest;
        break;
    }
    *ret = plm_tval_int(z);
    return true;
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

static bool int_pow(struct plm_trun *r, const struct plm_tval *a, int64_t exp, struct plm_tval *ret)
{
    int bits = 0;
    if (a->kind != PLM_T_BIG)
        for (uint64_t m = (uint64_t)llabs((long long)plm_tval_small(a)); m > 0; m >>= 1)
            bits++;
    else
        bits = (int)fmin(ceil(log2(fabs(plm_tbig_double(a)))) + 1, POW_BITS_MAX);
    if (bits > 1 && exp > POW_BITS_MAX / bits)
        return plm_tpl_fail_limit(r, "size of an integer");
    struct plm_tval result = plm_tval_int(1);
    struct plm_tval square = *a;
    if (square.kind == PLM_T_BOOL)
        square = plm_tval_int(square.b);
    for (; exp > 0; exp >>= 1) {
        if ((exp & 1) && !int_binary(r, PLM_OP_MUL, &result, &square, &result))
            return false;
        if (exp > 1 && !int_binary(r, PLM_OP_MUL, &square, &square, &square))
            return false;
    }
    *ret = result;
    return true;
}

static bool power(struct plm_trun *r, const struct plm_tval *a, const struct plm_tval *b,
                  struct plm_tval *ret)
{
    if (plm_tval_is_int(a) && plm_tval_is_int(b) && b->kind != PLM_T_BIG && plm_tval_small(b) >= 0)
        return int_pow(r, a, plm_tval_small(b), ret);
    double x = plm_tnum_double(a);
    double y = plm_tnum_double(b);
    if (x == 0.0 && y < 0)
        return plm_tpl_fail(r, "zero can not be raised to a negative power");
    double z = pow(x, y);
    if (isnan(z) && !isnan(x) && !isnan(y))
        return plm_tpl_fail(r, "complex numbers are not supported");
    if (isinf(z) && !isinf(x) && !isinf(y))
        return plm_tpl_fail(r, "result of ** is too large");
    *ret = plm_tval_float(z);
    return true;
}

bool plm_tnum_binary(struct plm_trun *r, int op, const struct plm_tval *a, const struct plm_tval *b,
                     struct plm_tval *ret)
{
    if (op == PLM_OP_POW)
        return power(r, a, b, ret);
    if (op != PLM_OP_DIV && plm_tval_is_int(a) && plm_tval_is_int(b))
        return int_binary(r, op, a, b, ret);
    return float_binary(r, op, plm_tnum_double(a), plm_tnum_double(b), ret);
}

bool plm_tnum_round(struct plm_trun *r, const struct plm_tval *v, int64_t digits,
                    struct plm_tval *ret)
{
    if (plm_tval_is_int(v)) {
        if (digits >= 0) {
            *ret = v->kind == PLM_T_BOOL ? plm_tval_int(v->b) : *v;
            return true;
        }
        struct plm_tval unit, rest, twice;
        if (digits < -POW_BITS_MAX)
            return plm_tpl_fail_limit(r, "digits of a number");
        struct plm_tval ten = plm_tval_int(10);
        if (!int_pow(r, &ten, -digits, &unit) || !int_binary(r, PLM_OP_MOD, v, &unit, &rest) ||
            !int_binary(r, PLM_OP_SUB, v, &rest, ret) ||
            !int_binary(r, PLM_OP_ADD, &rest, &rest, &twice))
            return false;
        struct plm_tval quot, odd, two = plm_tval_int(2);
        if (!int_binary(r, PLM_OP_FLOORDIV, ret, &unit, &quot) ||
            !int_binary(r, PLM_OP_MOD, &quot, &two, &odd))
            return false;
        int c = plm_tbig_cmp(&twice, &unit);
        bool up = c > 0 || (c == 0 && plm_tval_truth(&odd));
        return !up || int_binary(r, PLM_OP_ADD, ret, &unit, ret);
    }
    double d = v->d;
    if (!isfinite(d) || digits > 22) {
        *ret = *v;
        return true;
    }
    if (digits < -308) {
        *ret = plm_tval_float(copysign(0.0, d));
        return true;
    }
    if (digits < 0) {
        double unit = pow(10.0, (double)-digits);
        *ret = plm_tval_float(nearbyint(d / unit) * unit);
        return true;
    }
    char text[400];
    if (plm_tnum_printf(text, sizeof(text), 'f', false, (int)digits, d) >= sizeof(text) ||
        !plm_tnum_parse_double(text, strlen(text), &d))
        return plm_tpl_fail(r, "number can not be rounded");
    *ret = plm_tval_float(d);
    return true;
}
