// SPDX-License-Identifier: Apache-2.0
// '{:d}'.format(value), as far as templates use it. What Python has beyond this fails by its name.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/template/text.h"

enum {
    PRECISION_MAX = 100,                  // digits; Python has no bound, a template has no need
    FLOAT_TEXT_MAX = PRECISION_MAX + 400, // the largest float has 309 digits before the point
    WIDTH_DIGITS_MAX = 10,
};

// How a value is to be written.
struct spec {
    char fill[5]; // one character, NUL-terminated
    char align;   // '<' '>' '^' '=' (between sign and digits) or 0
    char sign;    // '+' ' ' or 0, before what is not negative
    char group;   // ',' '_' between groups of three digits, or 0
    int64_t width;
    int64_t precision; // -1: not given
    char type;         // or 0
};

static bool digits_of(const char **p, const char *end, int64_t *ret)
{
    const char *begin = *p;
    for (*ret = 0; *p < end && **p >= '0' && **p <= '9'; ++*p)
        if (*p - begin < WIDTH_DIGITS_MAX)
            *ret = *ret * 10 + **p - '0';
    return *p > begin;
}

// Appends a text of which sign_n bytes stand before '=' padding.
static bool put_padded(struct plm_trun *r, struct plm_tbuf *buf, const struct spec *spec,
                       struct plm_tstr *s, size_t sign_n)
{
    struct plm_tstr *fill = plm_tstr_copyz(r, spec->fill, PLM_ORIGIN_TEMPLATE);
    struct plm_tstr *rest = plm_tstr_sub(r, s, sign_n, s->len - sign_n);
    struct plm_tval v;
    if (fill == NULL || rest == NULL)
        return false;
    if (spec->align != '=')
        return plm_tpl_pad(r, s, spec->width, fill, spec->align, &v) &&
               plm_tbuf_add_str(r, buf, v.str);
    return plm_tbuf_add_part(r, buf, s, 0, sign_n) &&
           plm_tpl_pad(r, rest, spec->width - (int64_t)sign_n, fill, '>', &v) &&
           plm_tbuf_add_str(r, buf, v.str);
}

static bool put_text(struct plm_trun *r, struct plm_tbuf *buf, const struct spec *spec,
                     struct plm_tstr *s)
{
    size_t cut = s->len;
    if (spec->precision >= 0 && (uint64_t)spec->precision < plm_tstr_chars(s) &&
        !plm_tstr_offset(r, s, (size_t)spec->precision, &cut))
        return false;
    s = plm_tstr_sub(r, s, 0, cut);
    return s != NULL && put_padded(r, buf, spec, s, 0);
}

static bool is_float_type(char type)
{
    return type != '\0' && strchr("eEfFgG%", type) != NULL;
}

// The text of a number without its sign.
static void number_text(const struct spec *spec, const struct plm_tval *v, bool is_float,
                        char text[FLOAT_TEXT_MAX])
{
    if (!is_float) {
        const __int128 i = plm_tnum_whole(v);
        snprintf(text, FLOAT_TEXT_MAX,
                 spec->type == 'x'   ? "%llx"
                 : spec->type == 'X' ? "%llX"
                                     : "%llu",
                 (unsigned long long)(i < 0 ? -i : i));
        return;
    }
    const double d = fabs(plm_tnum_double(v));
    if (spec->type == '\0') {
        plm_tnum_repr(d, text);
        return;
    }
    const bool percent = spec->type == '%';
    const size_t n =
        plm_tnum_printf(text, FLOAT_TEXT_MAX - 1, percent ? 'f' : spec->type,
                        spec->precision < 0 ? 6 : (int)spec->precision, percent ? d * 100 : d);
    if (percent)
        strcpy(text + n, "%");
}

static bool put_number(struct plm_trun *r, struct plm_tbuf *buf, const struct spec *spec,
                       const struct plm_tval *v)
{
    const bool is_float = v->kind == PLM_T_FLOAT || is_float_type(spec->type);
    const bool negative = is_float ? signbit(plm_tnum_double(v)) && !isnan(plm_tnum_double(v))
                                   : plm_tnum_whole(v) < 0;
    const char sign[2] = {negative ? '-' : spec->sign, '\0'};
    struct plm_tbuf *whole = plm_tbuf_new(r);
    struct plm_tval s;
    char text[FLOAT_TEXT_MAX];
    if (is_float && spec->type == '\0' && spec->precision >= 0)
        return plm_tpl_fail(r, "a float of limited precision needs a format type, such as 'f'");
    if (spec->group != '\0' && (spec->type == 'x' || spec->type == 'X'))
        return plm_tpl_fail(r, "groups in a format are not supported for type '%c'", spec->type);
    number_text(spec, v, is_float, text);
    if (whole == NULL || !plm_tbuf_addz(r, whole, sign, PLM_ORIGIN_TEMPLATE))
        return false;
    const size_t sign_n = whole->len, digits = strspn(text, "0123456789");
    for (size_t i = 0; spec->group != '\0' && i < digits; i++)
        if ((i > 0 && (digits - i) % 3 == 0 &&
             !plm_tbuf_add(r, whole, &spec->group, 1, PLM_ORIGIN_TEMPLATE)) ||
            !plm_tbuf_add(r, whole, text + i, 1, PLM_ORIGIN_TEMPLATE))
            return false;
    return plm_tbuf_addz(r, whole, text + (spec->group != '\0' ? digits : 0),
                         PLM_ORIGIN_TEMPLATE) &&
           plm_tbuf_value(r, whole, &s) && put_padded(r, buf, spec, s.str, sign_n);
}

// Writes a value of a type that is one of `types`.
static bool put_value(struct plm_trun *r, struct plm_tbuf *buf, struct spec *spec,
                      const struct plm_tval *v)
{
    const bool is_int = plm_tval_is_int(v);
    if (v->kind != PLM_T_STR && !plm_tval_is_number(v))
        return plm_tpl_fail(r, "a format does not take %s", plm_tval_type(v));
    const char *types = v->kind == PLM_T_STR ? "s" : is_int ? "dxXeEfFgG%" : "eEfFgG%";
    if (spec->type != '\0' && strchr(types, spec->type) == NULL)
        return plm_tpl_fail(r, "format type '%c' is not supported for %s", spec->type,
                            plm_tval_type(v));
    if (spec->precision > PRECISION_MAX)
        return plm_tpl_fail_limit(r, "digits of a format");
    if (spec->align == '\0')
        spec->align = v->kind == PLM_T_STR ? '<' : '>';
    return v->kind == PLM_T_STR ? put_text(r, buf, spec, v->str) : put_number(r, buf, spec, v);
}

// What Python's repr() gives, as a string.
static bool repr_value(struct plm_trun *r, struct plm_tval *v)
{
    struct plm_tbuf *buf = plm_tbuf_new(r);
    return buf != NULL && plm_tval_repr(r, buf, v) && plm_tbuf_value(r, buf, v);
}

// The part of a field after ':'.
static bool parse_spec(struct plm_trun *r, struct plm_slice s, struct spec *spec)
{
    const char *p = s.ptr;
    const char *end = s.ptr + s.len;
    uint32_t cp;
    *spec = (struct spec){.fill = " ", .precision = -1};
    const size_t n = p < end ? plm_tstr_next(p, end, &cp) : 0;
    if (p + n < end && memchr("<>^=", p[n], 4) != NULL) {
        memcpy(spec->fill, p, n);
        spec->fill[n] = '\0';
        spec->align = p[n];
        p += n + 1;
    } else if (p < end && memchr("<>^=", *p, 4) != NULL) {
        spec->align = *p++;
    }
    if (p < end && (*p == '+' || *p == '-' || *p == ' ')) {
        spec->sign = *p == '-' ? '\0' : *p;
        p++;
    }
    if (p < end && *p == '0' && spec->align == '\0') {
        spec->align = '=';
        strcpy(spec->fill, "0");
    }
    digits_of(&p, end, &spec->width);
    if (p < end && (*p == ',' || *p == '_'))
        spec->group = *p++;
    bool ok = true;
    if (p < end && *p == '.') {
        p++;
        ok = digits_of(&p, end, &spec->precision);
    }
    if (p < end)
        spec->type = *p++;
    return (ok && p == end) || plm_tpl_fail(r, "format '%.*s' is malformed or not supported",
                                            (int)(s.len < 60 ? s.len : 60), s.ptr);
}

struct fields {
    const struct plm_targs *args;
    size_t next; // of those without a number
    bool numbered;
};

// The value that a field names: "", "0" or "name".
static bool field_value(struct plm_trun *r, struct fields *f, struct plm_slice name,
                        struct plm_tval *ret)
{
    const char *p = name.ptr;
    int64_t index;
    if (memchr(name.ptr, '.', name.len) != NULL || memchr(name.ptr, '[', name.len) != NULL)
        return plm_tpl_fail(r, "members in a format are not supported: '%.*s'",
                            (int)(name.len < 60 ? name.len : 60), name.ptr);
    const bool numbered = digits_of(&p, name.ptr + name.len, &index) && p == name.ptr + name.len;
    if (numbered || name.len == 0) {
        if (numbered ? f->next > 0 : f->numbered)
            return plm_tpl_fail(r, "a format mixes numbered and automatic fields");
        f->numbered = f->numbered || numbered;
        const size_t i = numbered ? (size_t)index : f->next++;
        if (i >= f->args->n_pos)
            return plm_tpl_fail(r, "a format asks for value %zu of %zu", i, f->args->n_pos);
        *ret = f->args->pos[i];
        return true;
    }
    for (size_t k = 0; k < f->args->n_kw; k++)
        if (plm_slice_eq(f->args->kw_names[k], name)) {
            *ret = f->args->kw[k];
            return true;
        }
    return plm_tpl_fail(r, "a format names a value that was not given: '%.*s'",
                        (int)(name.len < 60 ? name.len : 60), name.ptr);
}

// The inside of one pair of braces: name, "!r" or "!s", ":" and a spec.
static bool put_field(struct plm_trun *r, struct fields *f, struct plm_slice s,
                      struct plm_tbuf *buf)
{
    const char *end = s.ptr + s.len;
    const char *colon = memchr(s.ptr, ':', s.len);
    const char *name_end = colon != NULL ? colon : end;
    const char *conversion = memchr(s.ptr, '!', (size_t)(name_end - s.ptr));
    struct spec spec;
    struct plm_tval v;
    if (memchr(s.ptr, '{', s.len) != NULL)
        return plm_tpl_fail(r, "fields in a field of a format are not supported");
    if (!field_value(r, f,
                     (struct plm_slice){
                         s.ptr, (size_t)((conversion != NULL ? conversion : name_end) - s.ptr)},
                     &v))
        return false;
    if (conversion != NULL) {
        const char type = name_end - conversion == 2 ? conversion[1] : '\0';
        if (type != 'r' && type != 's')
            return plm_tpl_fail(r, "a format knows the conversions !r and !s only");
        if (!(type == 'r' ? repr_value(r, &v) : plm_tval_text(r, &v)))
            return false;
    }
    if (colon == NULL || colon + 1 == end)
        return plm_tval_print(r, buf, &v);
    return parse_spec(r, (struct plm_slice){colon + 1, (size_t)(end - colon - 1)}, &spec) &&
           (v.kind != PLM_T_STR || spec.align != '=' ||
            plm_tpl_fail(r, "a format pads numbers, not strings, after the sign")) &&
           put_value(r, buf, &spec, &v);
}

bool plm_tpl_brace_format(struct plm_trun *r, struct plm_tstr *fmt, const struct plm_targs *args,
                          struct plm_tval *ret)
{
    struct fields f = {.args = args};
    struct plm_tbuf *buf = plm_tbuf_new(r);
    if (buf == NULL || !plm_tpl_work(r, fmt->len))
        return false;
    // The bytes of fmt stay where they are: nothing is added to its buffer meanwhile.
    const char *p = plm_tstr_ptr(fmt), *end = p + fmt->len;
    for (size_t i = 0; i < fmt->len;) {
        size_t n = 0;
        while (i + n < fmt->len && p[i + n] != '{' && p[i + n] != '}')
            n++;
        const bool twice = i + n + 1 < fmt->len && p[i + n] == p[i + n + 1];
        if (!plm_tpl_step(r, 1) || !plm_tbuf_add_part(r, buf, fmt, i, n + twice))
            return false;
        i += n;
        if (i == fmt->len)
            break;
        if (twice) {
            i += 2;
            continue;
        }
        const char *close = p[i] == '{' ? memchr(p + i, '}', (size_t)(end - p) - i) : NULL;
        if (close == NULL)
            return plm_tpl_fail(r, "brace without its pair in a format");
        if (!put_field(r, &f, (struct plm_slice){p + i + 1, (size_t)(close - p) - i - 1}, buf))
            return false;
        i = (size_t)(close - p) + 1;
    }
    return plm_tbuf_value(r, buf, ret);
}
