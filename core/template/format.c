// SPDX-License-Identifier: Apache-2.0
// '%d' % value and '{:d}'.format(value).
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/utf8.h"
#include "core/template/run.h"

enum {
    PRECISION_MAX = 1000, // digits; Python has no bound, a template has no need
};

struct spec {
    char fill[5]; // one character, NUL-terminated
    char align;   // '<' '>' '^' '=' or 0
    char sign;    // '+' ' ' or '-'
    bool alt;
    char group; // ',' '_' or 0
    int64_t width;
    int64_t precision; // -1: not given
    char type;         // or 0
};

// Pads and appends text, of which `sign_n` bytes stand before '=' padding.
static bool put_padded(struct plm_trun *r, struct plm_tbuf *buf, const struct spec *spec,
                       struct plm_tstr *s, size_t sign_n, char align)
{
    struct plm_tstr *fill = plm_tstr_copyz(r, spec->fill, false);
    struct plm_tstr *sign = plm_tstr_sub(r, s, 0, sign_n);
    struct plm_tstr *rest = plm_tstr_sub(r, s, sign_n, s->len - sign_n);
    struct plm_tval v;
    if (fill == NULL || sign == NULL || rest == NULL)
        return false;
    if (align != '=')
        return plm_tpl_pad(r, s, spec->width, fill, align, &v) && plm_tbuf_add_str(r, buf, v.str);
    return plm_tbuf_add_str(r, buf, sign) &&
           plm_tpl_pad(r, rest, spec->width - (int64_t)sign_n, fill, '>', &v) &&
           plm_tbuf_add_str(r, buf, v.str);
}

static bool put_text(struct plm_trun *r, struct plm_tbuf *buf, const struct spec *spec,
                     struct plm_tstr *s)
{
    if (spec->precision >= 0 && (uint64_t)spec->precision < plm_tstr_chars(s)) {
        size_t cut;
        if (!plm_tstr_offset(r, s, (size_t)spec->precision, &cut))
            return false;
        s = plm_tstr_sub(r, s, 0, cut);
        if (s == NULL)
            return false;
    }
    char align = spec->align != '\0' && spec->align != '=' ? spec->align : '<';
    return put_padded(r, buf, spec, s, 0, align);
}

// Digits of an integer in base 2, 8, 10 or 16, with neither sign nor prefix.
static bool int_digits(struct plm_trun *r, const struct plm_tval *v, unsigned base, bool upper,
                       struct plm_tbuf *buf)
{
    if (v->kind == PLM_T_BIG) {
        if (base != 10)
            return plm_tpl_fail(r, "integers beyond 64 bits print in base 10 only");
        struct plm_tval zero = plm_tval_int(0);
        struct plm_tval positive = *v;
        if (plm_tbig_negative(v) && !plm_tbig_add(r, &zero, v, true, &positive))
            return false;
        return plm_tval_repr(r, buf, &positive, false);
    }
    int64_t i = plm_tval_small(v);
    uint64_t m = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    char text[65];
    size_t at = sizeof(text);
    do {
        text[--at] = (upper ? "0123456789ABCDEF" : "0123456789abcdef")[m % base];
        m /= base;
    } while (m > 0);
    return plm_tbuf_add(r, buf, text + at, sizeof(text) - at, false);
}

// Text of |d|.
static bool float_digits(struct plm_trun *r, double d, const struct spec *spec,
                         struct plm_tbuf *buf)
{
    char text[PRECISION_MAX + 400];
    char type = spec->type;
    d = fabs(d);
    bool upper = type >= 'A' && type <= 'Z';
    if (!isfinite(d)) {
        const char *word = isnan(d) ? upper ? "NAN" : "nan" : upper ? "INF" : "inf";
        return plm_tbuf_addz(r, buf, word, false) &&
               (type != '%' || plm_tbuf_addz(r, buf, "%", false));
    }
    if (type == '\0' && spec->precision < 0) {
        plm_tnum_repr(d, text);
        return plm_tbuf_addz(r, buf, text, false);
    }
    int precision = spec->precision < 0 ? 6 : (int)spec->precision;
    char conv = type == '%' ? 'f' : type == '\0' || type == 'n' ? 'g' : type;
    plm_tnum_printf(text, sizeof(text) - 4, conv, spec->alt, precision, type == '%' ? d * 100 : d);
    if (type == '\0' && strpbrk(text, ".e") == NULL)
        strcat(text, ".0");
    if (type == '%')
        strcat(text, "%");
    return plm_tbuf_addz(r, buf, text, false);
}

// Puts a separator between groups of the digits before the point.
static bool grouped(struct plm_trun *r, const struct plm_tstr *s, char group, size_t size,
                    struct plm_tbuf *out)
{
    const char *p = plm_tstr_ptr(s);
    size_t n = 0;
    while (n < s->len && ((p[n] >= '0' && p[n] <= '9') ||
                          (size == 4 && ((p[n] | 0x20) >= 'a' && (p[n] | 0x20) <= 'f'))))
        n++;
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && (n - i) % size == 0 && !plm_tbuf_add(r, out, &group, 1, false))
            return false;
        if (!plm_tbuf_add(r, out, plm_tstr_ptr(s) + i, 1, false))
            return false;
    }
    return plm_tbuf_add_part(r, out, s, n, s->len - n);
}

static bool put_number(struct plm_trun *r, struct plm_tbuf *buf, const struct spec *spec,
                       const struct plm_tval *v)
{
    struct plm_tbuf *digits = plm_tbuf_new(r);
    struct plm_tbuf *whole = plm_tbuf_new(r);
    struct plm_tval s;
    bool is_float =
        v->kind == PLM_T_FLOAT || (spec->type != '\0' && strchr("eEfFgG%", spec->type) != NULL);
    unsigned base = spec->type == 'b'            ? 2
                    : spec->type == 'o'          ? 8
                    : (spec->type | 0x20) == 'x' ? 16
                                                 : 10;
    double d = is_float ? plm_tnum_double(v) : 0.0;
    bool negative = is_float ? signbit(d) && !isnan(d) : plm_tbig_negative(v);
    if (digits == NULL || whole == NULL)
        return false;
    if (!(is_float ? float_digits(r, d, spec, digits)
                   : int_digits(r, v, base, spec->type == 'X', digits)) ||
        !plm_tbuf_value(r, digits, &s))
        return false;
    const char sign[2] = {negative ? '-' : spec->sign == '-' ? '\0' : spec->sign, '\0'};
    if (!plm_tbuf_addz(r, whole, sign, false))
        return false;
    if (spec->alt && base != 10) {
        const char prefix[3] = {'0', spec->type, '\0'};
        if (!plm_tbuf_addz(r, whole, prefix, false))
            return false;
    }
    size_t sign_n = whole->len;
    if (!(spec->group != '\0' ? grouped(r, s.str, spec->group, base == 10 ? 3 : 4, whole)
                              : plm_tbuf_add_str(r, whole, s.str)) ||
        !plm_tbuf_value(r, whole, &s))
        return false;
    return put_padded(r, buf, spec, s.str, sign_n, spec->align != '\0' ? spec->align : '>');
}

static bool put_char(struct plm_trun *r, struct plm_tbuf *buf, const struct spec *spec,
                     const struct plm_tval *v)
{
    char text[5] = "";
    int64_t cp;
    if (v->kind == PLM_T_STR && plm_tstr_chars(v->str) == 1)
        return put_text(r, buf, spec, v->str);
    if (v->kind == PLM_T_STR || !plm_tpl_arg_int(r, v, -1, &cp) || cp < 0 || cp > 0x10FFFF ||
        (cp >= 0xD800 && cp <= 0xDFFF))
        return plm_tpl_fail(r, "format 'c' needs a character");
    size_t n = plm_utf8_encode((uint32_t)cp, text);
    struct plm_tbuf *one = plm_tbuf_new(r);
    struct plm_tval s;
    // The character may come from the user, whose number it is.
    return one != NULL && plm_tbuf_add(r, one, text, n, true) && plm_tbuf_value(r, one, &s) &&
           put_text(r, buf, spec, s.str);
}

static bool repr_value(struct plm_trun *r, const struct plm_tval *v, struct plm_tstr **ret)
{
    struct plm_tbuf *buf = plm_tbuf_new(r);
    struct plm_tval s;
    if (buf == NULL || !plm_tval_repr(r, buf, v, false) || !plm_tbuf_value(r, buf, &s))
        return false;
    *ret = s.str;
    return true;
}

// Where the conversions of a % format take their values from.
struct source {
    const struct plm_tval *arg;
    size_t used;
    bool by_name;
};

static bool next_value(struct plm_trun *r, struct source *src, struct plm_tval *ret)
{
    size_t n = src->arg->kind == PLM_T_TUPLE ? src->arg->list->n : 1;
    if (src->used >= n)
        return plm_tpl_fail(r, "too few values for the format");
    *ret = src->arg->kind == PLM_T_TUPLE ? src->arg->list->v[src->used] : *src->arg;
    src->used++;
    return true;
}

static bool number_or_star(struct plm_trun *r, struct source *src, const char **p, const char *end,
                           int64_t *ret)
{
    struct plm_tval v;
    *ret = 0;
    if (*p < end && **p == '*') {
        (*p)++;
        return next_value(r, src, &v) && plm_tpl_arg_int(r, &v, 0, ret);
    }
    while (*p < end && **p >= '0' && **p <= '9' && *ret < INT32_MAX)
        *ret = *ret * 10 + *(*p)++ - '0';
    return true;
}

static bool percent_value(struct plm_trun *r, struct plm_tbuf *buf, struct spec *spec,
                          struct plm_tval v)
{
    struct plm_tstr *s;
    switch (spec->type) {
    case 's': return plm_tval_str(r, &v, &s) && put_text(r, buf, spec, s);
    case 'r':
    case 'a': return repr_value(r, &v, &s) && put_text(r, buf, spec, s);
    case 'c': return put_char(r, buf, spec, &v);
    case 'i':
    case 'u': spec->type = 'd'; break;
    case 'd':
    case 'o':
    case 'x':
    case 'X':
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G': break;
    default: return plm_tpl_fail(r, "unknown conversion '%%%c' in a format", spec->type);
    }
    if (!plm_tval_is_number(&v))
        return plm_tpl_fail(r, "format '%%%c' needs a number, not %s", spec->type,
                            plm_tval_type(&v));
    if (spec->type == 'd' && v.kind == PLM_T_FLOAT && !plm_tbig_from_double(r, v.d, &v))
        return false;
    if (strchr("oxX", spec->type) != NULL && v.kind == PLM_T_FLOAT)
        return plm_tpl_fail(r, "format '%%%c' needs an integer", spec->type);
    if (strchr("doxX", spec->type) != NULL)
        spec->precision = -1;
    return put_number(r, buf, spec, &v);
}

// One conversion after its '%'; *p is left behind it.
static bool percent_one(struct plm_trun *r, struct plm_tbuf *buf, struct source *src,
                        const char **p, const char *end)
{
    struct spec spec = {.fill = " ", .sign = '-', .precision = -1};
    struct plm_tval v = {.kind = PLM_T_UNSET};
    bool zero = false;
    if (*p < end && **p == '(') {
        const char *close = memchr(*p, ')', (size_t)(end - *p));
        if (close == NULL || src->arg->kind != PLM_T_DICT)
            return plm_tpl_fail(r, "format with names needs an object");
        const struct plm_tval *item =
            plm_tdict_find(src->arg->dict, (struct plm_slice){*p + 1, (size_t)(close - *p - 1)});
        if (item == NULL)
            return plm_tpl_fail(r, "format names a key that is not there");
        v = *item;
        src->by_name = true;
        *p = close + 1;
    }
    for (; *p < end && strchr("#0- +", **p) != NULL && **p != '\0'; (*p)++) {
        spec.alt |= **p == '#';
        zero |= **p == '0';
        if (**p == '-')
            spec.align = '<';
        if (**p == '+' || (**p == ' ' && spec.sign == '-'))
            spec.sign = **p;
    }
    if (!number_or_star(r, src, p, end, &spec.width))
        return false;
    if (spec.width < 0) {
        spec.width = -spec.width;
        spec.align = '<';
    }
    if (*p < end && **p == '.') {
        (*p)++;
        if (!number_or_star(r, src, p, end, &spec.precision))
            return false;
    }
    while (*p < end && (**p == 'h' || **p == 'l' || **p == 'L'))
        (*p)++;
    if (*p == end || spec.precision > PRECISION_MAX)
        return plm_tpl_fail(r, "incomplete or oversized format");
    spec.type = *(*p)++;
    if (spec.type == '%')
        return plm_tbuf_addz(r, buf, "%", false);
    bool text = strchr("srac", spec.type) != NULL;
    if (text && spec.align == '\0')
        spec.align = '>';
    if (zero && !text && spec.align == '\0') {
        spec.fill[0] = '0';
        spec.align = '=';
    }
    return (v.kind != PLM_T_UNSET || next_value(r, src, &v)) && percent_value(r, buf, &spec, v);
}

bool plm_tpl_printf_format(struct plm_trun *r, struct plm_tstr *fmt, const struct plm_tval *arg,
                           struct plm_tval *ret)
{
    struct source src = {.arg = arg};
    struct plm_tbuf *buf = plm_tbuf_new(r);
    if (buf == NULL || !plm_tpl_work(r, fmt->len))
        return false;
    for (size_t i = 0; i < fmt->len;) {
        const char *begin = plm_tstr_ptr(fmt);
        const char *hit = memchr(begin + i, '%', fmt->len - i);
        size_t to = hit == NULL ? fmt->len : (size_t)(hit - begin);
        if (!plm_tpl_step(r, 1) || !plm_tbuf_add_part(r, buf, fmt, i, to - i))
            return false;
        i = to;
        if (hit == NULL)
            break;
        const char *p = hit + 1;
        if (!percent_one(r, buf, &src, &p, begin + fmt->len))
            return false;
        i = (size_t)(p - begin);
    }
    size_t n = arg->kind == PLM_T_TUPLE ? arg->list->n : 1;
    if (src.used < n && arg->kind != PLM_T_DICT)
        return plm_tpl_fail(r, "more values than the format takes");
    return plm_tbuf_value(r, buf, ret);
}

// The part of a brace field after ':'.
static bool parse_spec(struct plm_trun *r, struct plm_slice s, struct spec *spec)
{
    const char *p = s.ptr;
    const char *end = s.ptr + s.len;
    uint32_t cp;
    *spec = (struct spec){.fill = " ", .sign = '-', .precision = -1};
    size_t n = p < end ? plm_tstr_next(p, end, &cp) : 0;
    if (n > 0 && p + n < end && strchr("<>^=", p[n]) != NULL && p[n] != '\0') {
        memcpy(spec->fill, p, n);
        spec->fill[n] = '\0';
        spec->align = p[n];
        p += n + 1;
    } else if (p < end && strchr("<>^=", *p) != NULL && *p != '\0') {
        spec->align = *p++;
    }
    if (p < end && (*p == '+' || *p == '-' || *p == ' '))
        spec->sign = *p++;
    if (p < end && *p == '#') {
        spec->alt = true;
        p++;
    }
    if (p < end && *p == '0') {
        if (spec->align == '\0') {
            spec->align = '=';
            strcpy(spec->fill, "0");
        }
        p++;
    }
    while (p < end && *p >= '0' && *p <= '9' && spec->width < INT32_MAX)
        spec->width = spec->width * 10 + *p++ - '0';
    if (p < end && (*p == ',' || *p == '_'))
        spec->group = *p++;
    if (p < end && *p == '.') {
        p++;
        for (spec->precision = 0; p < end && *p >= '0' && *p <= '9' && spec->precision < INT32_MAX;)
            spec->precision = spec->precision * 10 + *p++ - '0';
    }
    if (p < end)
        spec->type = *p++;
    if (p != end || spec->precision > PRECISION_MAX)
        return plm_tpl_fail(r, "malformed format '%.*s'", (int)(s.len < 60 ? s.len : 60), s.ptr);
    return true;
}

static bool brace_value(struct plm_trun *r, struct plm_tbuf *buf, const struct plm_tval *v,
                        struct plm_slice text)
{
    struct spec spec;
    if (text.len == 0)
        return plm_tval_print(r, buf, v);
    if (!parse_spec(r, text, &spec))
        return false;
    if (v->kind == PLM_T_STR) {
        if ((spec.type != '\0' && spec.type != 's') || spec.align == '=')
            return plm_tpl_fail(r, "format does not take a string");
        return put_text(r, buf, &spec, v->str);
    }
    if (!plm_tval_is_number(v))
        return plm_tpl_fail(r, "format does not take %s", plm_tval_type(v));
    const char *types = v->kind == PLM_T_FLOAT ? "eEfFgGn%" : "bcdoxXneEfFgG%";
    if (spec.type != '\0' && strchr(types, spec.type) == NULL)
        return plm_tpl_fail(r, "unknown format type '%c' for %s", spec.type, plm_tval_type(v));
    if (spec.type == 'c')
        return put_char(r, buf, &spec, v);
    return put_number(r, buf, &spec, v);
}

struct braces {
    struct plm_trun *r;
    const struct plm_targs *args;
    size_t next_auto;
    bool automatic;
    bool manual;
};

// The value that a field names: "", "0", "name", with .member and [item] after it.
static bool field_value(struct braces *b, struct plm_slice name, struct plm_tval *ret)
{
    struct plm_trun *r = b->r;
    size_t n = 0;
    while (n < name.len && name.ptr[n] != '.' && name.ptr[n] != '[')
        n++;
    bool digits = true;
    size_t index = 0;
    for (size_t i = 0; i < n; i++) {
        digits = digits && name.ptr[i] >= '0' && name.ptr[i] <= '9';
        index = digits && index < 100000 ? index * 10 + (size_t)(name.ptr[i] - '0') : index;
    }
    if (n == 0)
        index = b->next_auto++;
    b->automatic |= n == 0;
    b->manual |= n > 0 && digits;
    if (b->automatic && b->manual)
        return plm_tpl_fail(r, "format mixes numbered and automatic fields");
    if (digits) {
        if (index >= b->args->n_pos)
            return plm_tpl_fail(r, "format asks for value %zu of %zu", index, b->args->n_pos);
        *ret = b->args->pos[index];
    } else {
        size_t k = 0;
        while (k < b->args->n_kw &&
               !plm_slice_eq(b->args->kw_names[k], (struct plm_slice){name.ptr, n}))
            k++;
        if (k == b->args->n_kw)
            return plm_tpl_fail(r, "format names a value that was not given");
        *ret = b->args->kw[k];
    }
    while (n < name.len) {
        bool item = name.ptr[n++] == '[';
        size_t from = n;
        while (n < name.len &&
               (item ? name.ptr[n] != ']' : name.ptr[n] != '.' && name.ptr[n] != '['))
            n++;
        const struct plm_slice *key =
            plm_tpl_keep(r, (struct plm_slice){name.ptr + from, n - from});
        struct plm_tval k, parsed;
        if (key == NULL || !plm_tstr_val(plm_tstr_view(r, key->ptr, key->len, false), &k))
            return false;
        if (item && plm_tnum_int_text(r, *key, 10, &parsed))
            k = parsed;
        if (!(item ? plm_tpl_getitem(r, ret, &k, ret) : plm_tpl_getattr(r, ret, key, ret)))
            return false;
        n += item && n < name.len;
    }
    return true;
}

static bool expand(struct braces *b, struct plm_tstr *fmt, struct plm_tbuf *buf, int level);

// The inside of one pair of braces.
static bool put_field(struct braces *b, struct plm_tstr *field, struct plm_tbuf *buf, int level)
{
    struct plm_trun *r = b->r;
    const char *p = plm_tstr_ptr(field);
    size_t n = 0;
    bool in_item = false;
    for (; n < field->len && (in_item || (p[n] != '!' && p[n] != ':')); n++)
        in_item = p[n] == '[' || (in_item && p[n] != ']');
    struct plm_tval v, text;
    struct plm_tstr *s;
    if (!field_value(b, (struct plm_slice){p, n}, &v))
        return false;
    p = plm_tstr_ptr(field);
    if (n < field->len && p[n] == '!') {
        char conv = n + 1 < field->len ? p[n + 1] : '\0';
        n += 2;
        bool ok = conv == 's' ? plm_tval_str(r, &v, &s)
                              : (conv == 'r' || conv == 'a') && repr_value(r, &v, &s);
        if (!ok)
            return plm_tpl_fail(r, "unknown conversion in a format");
        v = (struct plm_tval){.kind = PLM_T_STR, .str = s};
    }
    if (n >= field->len)
        return brace_value(r, buf, &v, (struct plm_slice){"", 0});
    if (plm_tstr_ptr(field)[n] != ':')
        return plm_tpl_fail(r, "malformed field in a format");
    struct plm_tstr *rest = plm_tstr_sub(r, field, n + 1, field->len - n - 1);
    struct plm_tbuf *spec = plm_tbuf_new(r);
    return rest != NULL && spec != NULL && expand(b, rest, spec, level + 1) &&
           plm_tbuf_value(r, spec, &text) && brace_value(r, buf, &v, plm_tstr_slice(text.str));
}

static bool expand(struct braces *b, struct plm_tstr *fmt, struct plm_tbuf *buf, int level)
{
    struct plm_trun *r = b->r;
    if (level > 2)
        return plm_tpl_fail(r, "format nested too deeply");
    for (size_t i = 0; i < fmt->len;) {
        const char *p = plm_tstr_ptr(fmt);
        if (p[i] != '{' && p[i] != '}') {
            size_t n = 1;
            while (i + n < fmt->len && p[i + n] != '{' && p[i + n] != '}')
                n++;
            if (!plm_tbuf_add_part(r, buf, fmt, i, n))
                return false;
            i += n;
            continue;
        }
        if (!plm_tpl_step(r, 1))
            return false;
        if (level == 0 && i + 1 < fmt->len && p[i + 1] == p[i]) {
            if (!plm_tbuf_add_part(r, buf, fmt, i, 1))
                return false;
            i += 2;
            continue;
        }
        size_t end = i + 1;
        for (int open = 1; p[i] == '{' && end < fmt->len; end++) {
            open += p[end] == '{' ? 1 : p[end] == '}' ? -1 : 0;
            if (open == 0)
                break;
        }
        if (p[i] == '}' || end >= fmt->len)
            return plm_tpl_fail(r, "brace without its pair in a format");
        struct plm_tstr *field = plm_tstr_sub(r, fmt, i + 1, end - i - 1);
        if (field == NULL || !put_field(b, field, buf, level))
            return false;
        i = end + 1;
    }
    return true;
}

bool plm_tpl_brace_format(struct plm_trun *r, struct plm_tstr *fmt, const struct plm_targs *args,
                          struct plm_tval *ret)
{
    struct braces b = {.r = r, .args = args};
    struct plm_tbuf *buf = plm_tbuf_new(r);
    return buf != NULL && plm_tpl_work(r, fmt->len) && expand(&b, fmt, buf, 0) &&
           plm_tbuf_value(r, buf, ret);
}
