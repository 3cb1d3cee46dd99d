// SPDX-License-Identifier: Apache-2.0
// Filters on text, numbers and single values, and the table of all filters.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <utf8proc.h>

#include "core/template/filters.h"

bool plm_tpl_given(const struct plm_tval *v)
{
    return v->kind != PLM_T_UNSET && v->kind != PLM_T_NONE;
}

static bool f_casing(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tstr *s;
    if (!plm_tval_str(r, &c->self, &s) ||
        !plm_tpl_casing(r, s, (enum plm_tcasing)c->func->aux, c->ret))
        return false;
    c->ret->str->markup = s->markup;
    return true;
}

// Jinja's own idea of a title: a word starts after white space and some brackets.
static bool f_title(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tstr *s;
    struct plm_tbuf *buf = plm_tbuf_new(r);
    if (buf == NULL || !plm_tval_str(r, &c->self, &s))
        return false;
    bool starts = true;
    for (size_t i = 0; i < s->len;) {
        const char *p = plm_tstr_ptr(s);
        uint32_t cp;
        size_t n = plm_tstr_next(p + i, p + s->len, &cp);
        size_t end = i + n;
        bool divides = plm_cp_is_space(cp) || (cp < 0x80 && strchr("-({[<", (int)cp) != NULL);
        while (!starts && !divides && end < s->len) { // the rest of a word at once
            n = plm_tstr_next(p + end, p + s->len, &cp);
            if (plm_cp_is_space(cp) || (cp < 0x80 && strchr("-({[<", (int)cp) != NULL))
                break;
            end += n;
        }
        struct plm_tstr *piece = plm_tstr_sub(r, s, i, end - i);
        struct plm_tval v;
        if (piece == NULL ||
            !plm_tpl_casing(r, piece, starts ? PLM_CASE_UPPER : PLM_CASE_LOWER, &v) ||
            !plm_tbuf_add_str(r, buf, v.str))
            return false;
        starts = divides;
        i = end;
    }
    return plm_tbuf_value(r, buf, c->ret);
}

static bool f_trim(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tstr *s;
    return plm_tval_str(r, &c->self, &s) && plm_tpl_strip(r, s, &c->a[0], 3, c->ret);
}

static bool f_replace(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tstr *s, *old, *new;
    int64_t count;
    return plm_tval_str(r, &c->self, &s) && plm_tval_str(r, &c->a[0], &old) &&
           plm_tval_str(r, &c->a[1], &new) && plm_tpl_arg_int(r, &c->a[2], -1, &count) &&
           plm_tpl_replace(r, s, old, new, count, c->ret);
}

static bool f_string(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tstr *s;
    return plm_tval_str(r, &c->self, &s) && plm_tstr_val(s, c->ret);
}

static bool f_safe(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tstr *s;
    if (!plm_tval_str(r, &c->self, &s))
        return false;
    s = plm_tstr_sub(r, s, 0, s->len);
    if (s != NULL)
        s->markup = true;
    return plm_tstr_val(s, c->ret);
}

static bool f_escape(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tstr *s;
    struct plm_tbuf *buf = plm_tbuf_new(r);
    if (buf == NULL || !plm_tval_str(r, &c->self, &s))
        return false;
    if (s->markup && c->func->aux == 0)
        return plm_tstr_val(s, c->ret);
    if (!plm_tbuf_add_escaped(r, buf, s) || !plm_tbuf_value(r, buf, c->ret))
        return false;
    c->ret->str->markup = true;
    return true;
}

static bool f_indent(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tstr *s, *pad;
    struct plm_tlist *lines;
    struct plm_tval v;
    struct plm_tbuf *buf = plm_tbuf_new(r);
    struct plm_tstr *newline = plm_tstr_copyz(r, "\n", false);
    if (buf == NULL || newline == NULL || !plm_tpl_arg_str(r, &c->self, &s))
        return false;
    if (c->a[0].kind == PLM_T_STR) {
        pad = c->a[0].str;
    } else {
        int64_t width;
        struct plm_tstr *empty = plm_tstr_copyz(r, "", false);
        if (empty == NULL || !plm_tpl_arg_int(r, &c->a[0], 4, &width) ||
            !plm_tpl_pad(r, empty, width, NULL, '<', &v))
            return false;
        pad = v.str;
    }
    bool first = plm_tval_truth(&c->a[1]);
    bool blank = plm_tval_truth(&c->a[2]);
    // With one more newline, so that a text that ends in one keeps it.
    if (!plm_tstr_concat(r, s, newline, &v) || !plm_tpl_splitlines(r, v.str, false, &lines))
        return false;
    for (size_t i = 0; i < lines->n; i++) {
        const struct plm_tstr *line = lines->v[i].str;
        bool padded = i == 0 ? first : blank || line->len > 0;
        if ((i > 0 && !plm_tbuf_add_str(r, buf, newline)) ||
            (padded && !plm_tbuf_add_str(r, buf, pad)) || !plm_tbuf_add_str(r, buf, line))
            return false;
    }
    return plm_tbuf_value(r, buf, c->ret);
}

static bool f_center(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tstr *s;
    int64_t width;
    return plm_tval_str(r, &c->self, &s) && plm_tpl_arg_int(r, &c->a[0], 80, &width) &&
           plm_tpl_pad(r, s, width, NULL, 0, c->ret);
}

static bool f_format(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tstr *s;
    struct plm_tval arg = {.kind = PLM_T_TUPLE, .list = plm_tlist_new(r, 0)};
    const struct plm_targs *args = c->args;
    if (arg.list == NULL || !plm_tval_str(r, &c->self, &s))
        return false;
    if (args->n_pos > 0 && args->n_kw > 0)
        return plm_tpl_fail(r, "format takes either positions or names");
    for (size_t i = 0; i < args->n_pos; i++)
        if (!plm_tlist_add(r, arg.list, args->pos[i]))
            return false;
    if (args->n_kw > 0) {
        arg = (struct plm_tval){.kind = PLM_T_DICT, .dict = plm_tdict_new(r)};
        for (size_t i = 0; i < args->n_kw; i++) {
            struct plm_tval key;
            if (arg.dict == NULL ||
                !plm_tstr_val(plm_tstr_view(r, args->kw_names[i].ptr, args->kw_names[i].len, true),
                              &key) ||
                !plm_tdict_set(r, arg.dict, key, args->kw[i]))
                return false;
        }
    }
    return plm_tpl_printf_format(r, s, &arg, c->ret);
}

static bool f_wordcount(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tstr *s;
    if (!plm_tval_str(r, &c->self, &s) || !plm_tpl_work(r, s->len))
        return false;
    const char *p = plm_tstr_ptr(s);
    int64_t n = 0;
    bool in_word = false;
    for (size_t i = 0; i < s->len;) {
        uint32_t cp;
        i += plm_tstr_next(p + i, p + s->len, &cp);
        utf8proc_category_t cat = utf8proc_category((utf8proc_int32_t)cp);
        bool word = cp == '_' || (cat >= UTF8PROC_CATEGORY_LU && cat <= UTF8PROC_CATEGORY_LO) ||
                    (cat >= UTF8PROC_CATEGORY_ND && cat <= UTF8PROC_CATEGORY_NO);
        n += word && !in_word;
        in_word = word;
    }
    *c->ret = plm_tval_int(n);
    return true;
}

static bool f_truncate(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tstr *s, *end;
    int64_t length, leeway;
    if (c->self.kind == PLM_T_UNDEF) { // nothing is short enough
        *c->ret = c->self;
        return true;
    }
    if (!plm_tpl_arg_str(r, &c->self, &s) || !plm_tpl_arg_int(r, &c->a[0], 255, &length) ||
        !plm_tpl_arg_int(r, &c->a[3], 5, &leeway))
        return false;
    end = c->a[2].kind == PLM_T_UNSET ? plm_tstr_copyz(r, "...", false) : NULL;
    if (end == NULL && !plm_tpl_arg_str(r, &c->a[2], &end))
        return false;
    int64_t keep = length - (int64_t)plm_tstr_chars(end);
    if (keep < 0 || leeway < 0)
        return plm_tpl_fail(r, "truncate: length or leeway too small");
    if ((int64_t)plm_tstr_chars(s) <= length + leeway)
        return plm_tstr_val(s, c->ret);
    size_t cut;
    if (!plm_tstr_offset(r, s, (size_t)keep, &cut))
        return false;
    struct plm_tstr *head = plm_tstr_sub(r, s, 0, cut);
    if (head == NULL)
        return false;
    if (!plm_tval_truth(&c->a[1])) {
        const char *space = memrchr(plm_tstr_ptr(head), ' ', head->len);
        if (space != NULL)
            head = plm_tstr_sub(r, head, 0, (size_t)(space - plm_tstr_ptr(head)));
    }
    return head != NULL && plm_tstr_concat(r, head, end, c->ret);
}

static bool url_quote(struct plm_trun *r, struct plm_tbuf *buf, const struct plm_tval *v,
                      bool query)
{
    struct plm_tstr *s;
    if (!plm_tval_str(r, v, &s))
        return false;
    for (size_t i = 0; i < s->len; i++) {
        unsigned char b = (unsigned char)plm_tstr_ptr(s)[i];
        bool plain = (b >= '0' && b <= '9') || ((b | 0x20) >= 'a' && (b | 0x20) <= 'z') ||
                     (b != '\0' && strchr("_.-~", b) != NULL) || (b == '/' && !query);
        char text[8];
        if (plain || (query && b == ' '))
            snprintf(text, sizeof(text), "%c", plain ? b : '+');
        else
            snprintf(text, sizeof(text), "%%%02X", b);
        if (!plm_tbuf_addz(r, buf, text, plm_tstr_origin_at(s, i)))
            return false;
    }
    return true;
}

static bool f_urlencode(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tbuf *buf = plm_tbuf_new(r);
    struct plm_tval over = c->self;
    struct plm_tlist *items;
    if (buf == NULL)
        return false;
    if (over.kind == PLM_T_STR || !plm_tpl_iterable(&over))
        return url_quote(r, buf, &over, false) && plm_tbuf_value(r, buf, c->ret);
    struct plm_tview view = {over.dict, PLM_T_ITEMS};
    if (over.kind == PLM_T_DICT)
        over = (struct plm_tval){.kind = PLM_T_VIEW, .view = &view};
    if (!plm_tpl_to_list(r, &over, &items))
        return false;
    for (size_t i = 0; i < items->n; i++) {
        struct plm_tlist *pair;
        if (!plm_tpl_to_list(r, &items->v[i], &pair))
            return false;
        if (pair->n != 2)
            return plm_tpl_fail(r, "urlencode needs pairs");
        if ((i > 0 && !plm_tbuf_addz(r, buf, "&", false)) ||
            !url_quote(r, buf, &pair->v[0], true) || !plm_tbuf_addz(r, buf, "=", false) ||
            !url_quote(r, buf, &pair->v[1], true))
            return false;
    }
    return plm_tbuf_value(r, buf, c->ret);
}

static bool to_double(const struct plm_tval *v, double *ret)
{
    if (v->kind == PLM_T_STR)
        return plm_tnum_float_text(plm_tstr_slice(v->str), ret);
    if (!plm_tval_is_number(v))
        return false;
    *ret = plm_tnum_double(v);
    return true;
}

static bool f_filesizeformat(struct plm_trun *r, struct plm_tcall *c)
{
    static const char *const units[2][8] = {
        {"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"},
        {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"}};
    bool binary = plm_tval_truth(&c->a[0]);
    double base = binary ? 1024 : 1000;
    double d;
    char text[400];
    if (!to_double(&c->self, &d) || !isfinite(d))
        return plm_tpl_fail(r, "filesizeformat needs a number");
    if (d == 1)
        return plm_tstr_valz(r, "1 Byte", c->ret);
    if (d < base) {
        size_t n = plm_tnum_printf(text, sizeof(text) - 8, 'f', false, 0, trunc(d));
        strcpy(text + n, " Bytes");
        return plm_tstr_valz(r, text, c->ret);
    }
    double unit = base;
    int i = 0;
    for (;; i++) {
        unit *= base;
        if (d < unit || i == 7)
            break;
    }
    size_t n = plm_tnum_printf(text, sizeof(text) - 8, 'f', false, 1, base * d / unit);
    snprintf(text + n, 8, " %s", units[binary][i]);
    return plm_tstr_valz(r, text, c->ret);
}

static bool f_int(struct plm_trun *r, struct plm_tcall *c)
{
    int64_t base;
    double d;
    if (c->self.kind == PLM_T_UNDEF)
        return plm_tpl_fail_undef(r, &c->self);
    if (!plm_tpl_arg_int(r, &c->a[1], 10, &base))
        return false;
    if (plm_tval_is_int(&c->self)) {
        *c->ret = c->self.kind == PLM_T_BOOL ? plm_tval_int(c->self.b) : c->self;
        return true;
    }
    if (c->self.kind == PLM_T_STR && base >= 0 && base <= 36 &&
        plm_tnum_int_text(r, plm_tstr_slice(c->self.str), (unsigned)base, c->ret))
        return true;
    if (r->status != PLM_OK)
        return false;
    bool is_float = c->self.kind == PLM_T_FLOAT;
    if (to_double(&c->self, &d) && (isfinite(d) || is_float))
        return plm_tbig_from_double(r, d, c->ret);
    *c->ret = c->a[0].kind == PLM_T_UNSET ? plm_tval_int(0) : c->a[0];
    return true;
}

static bool f_float(struct plm_trun *r, struct plm_tcall *c)
{
    double d;
    if (c->self.kind == PLM_T_UNDEF)
        return plm_tpl_fail_undef(r, &c->self);
    if (to_double(&c->self, &d))
        *c->ret = plm_tval_float(d);
    else
        *c->ret = c->a[0].kind == PLM_T_UNSET ? plm_tval_float(0.0) : c->a[0];
    return true;
}

static bool f_abs(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tval zero = plm_tval_int(0);
    if (c->self.kind == PLM_T_UNDEF)
        return plm_tpl_fail_undef(r, &c->self);
    if (!plm_tval_is_number(&c->self))
        return plm_tpl_fail(r, "abs needs a number, not %s", plm_tval_type(&c->self));
    if (c->self.kind == PLM_T_FLOAT) {
        *c->ret = plm_tval_float(fabs(c->self.d));
        return true;
    }
    bool negative = plm_tbig_negative(&c->self);
    return plm_tnum_binary(r, negative ? PLM_OP_SUB : PLM_OP_ADD, &zero, &c->self, c->ret);
}

static bool f_round(struct plm_trun *r, struct plm_tcall *c)
{
    int64_t digits;
    struct plm_tstr *method = NULL;
    if (c->self.kind == PLM_T_UNDEF)
        return plm_tpl_fail_undef(r, &c->self);
    if (!plm_tval_is_number(&c->self))
        return plm_tpl_fail(r, "round needs a number, not %s", plm_tval_type(&c->self));
    if (!plm_tpl_arg_int(r, &c->a[0], 0, &digits) ||
        (c->a[1].kind != PLM_T_UNSET && !plm_tpl_arg_str(r, &c->a[1], &method)))
        return false;
    if (method == NULL || plm_tstr_is(method, "common"))
        return plm_tnum_round(r, &c->self, digits, c->ret);
    bool up = plm_tstr_is(method, "ceil");
    if (!up && !plm_tstr_is(method, "floor"))
        return plm_tpl_fail(r, "round: method must be common, ceil or floor");
    double unit = pow(10.0, (double)digits);
    double d = plm_tnum_double(&c->self) * unit;
    *c->ret = plm_tval_float((up ? ceil(d) : floor(d)) / unit);
    return true;
}

static bool f_default(struct plm_trun *r, struct plm_tcall *c)
{
    bool absent =
        c->self.kind == PLM_T_UNDEF || (plm_tval_truth(&c->a[1]) && !plm_tval_truth(&c->self));
    if (absent && c->a[0].kind == PLM_T_UNSET)
        return plm_tstr_valz(r, "", c->ret);
    *c->ret = absent ? c->a[0] : c->self;
    return true;
}

static bool f_attr(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tstr *name;
    if (!plm_tpl_arg_str(r, &c->a[0], &name))
        return false;
    const struct plm_slice *kept = plm_tpl_keep(r, plm_tstr_slice(name));
    if (kept == NULL)
        return false;
    // Members only, no keys.
    if (c->self.kind == PLM_T_DICT && plm_tpl_method(&c->self, *kept) == NULL) {
        *c->ret = plm_tval_undef(kept);
        return true;
    }
    return plm_tpl_getattr(r, &c->self, kept, c->ret);
}

static const struct plm_tfunc text_filters[] = {
    {"abs", "", f_abs, 0},
    {"attr", "name", f_attr, 0},
    {"capitalize", "", f_casing, PLM_CASE_CAPITALIZE},
    {"center", "|width", f_center, 0},
    {"d", "|default_value,boolean", f_default, 0},
    {"default", "|default_value,boolean", f_default, 0},
    {"e", "", f_escape, 0},
    {"escape", "", f_escape, 0},
    {"filesizeformat", "|binary", f_filesizeformat, 0},
    {"float", "|default", f_float, 0},
    {"forceescape", "", f_escape, 1},
    {"format", "*", f_format, 0},
    {"from_json", "", plm_tpl_from_json, 0},
    {"indent", "|width,first,blank", f_indent, 0},
    {"int", "|default,base", f_int, 0},
    {"lower", "", f_casing, PLM_CASE_LOWER},
    {"replace", "old,new|count", f_replace, 0},
    {"round", "|precision,method", f_round, 0},
    {"safe", "", f_safe, 0},
    {"string", "", f_string, 0},
    {"title", "", f_title, 0},
    {"tojson", "|ensure_ascii,indent,separators,sort_keys", plm_tpl_tojson, 0},
    {"trim", "|chars", f_trim, 0},
    {"truncate", "|length,killwords,end,leeway", f_truncate, 0},
    {"upper", "", f_casing, PLM_CASE_UPPER},
    {"urlencode", "", f_urlencode, 0},
    {"wordcount", "", f_wordcount, 0},
};

const struct plm_tfunc *plm_tpl_filter(struct plm_slice name)
{
    const struct plm_tfunc *func =
        plm_tpl_find_func(text_filters, sizeof(text_filters) / sizeof(text_filters[0]), name);
    return func != NULL ? func : plm_tpl_sequence_filter(name);
}
