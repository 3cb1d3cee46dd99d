// SPDX-License-Identifier: Apache-2.0
// Filters on text, numbers and single values, and the table of all filters.
#include "core/template/filters.h"

#include <math.h>
#include <string.h>

#include "core/template/text.h"

static bool f_string(struct plm_trun *r, struct plm_tcall *c)
{
    (void)r;
    *c->ret = c->self; // the spec has made it a text
    return true;
}

static bool f_safe(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tstr *s = plm_tstr_sub(r, c->self.str, 0, c->self.str->len);
    if (s != NULL)
        s->markup = true;
    return plm_tstr_val(s, c->ret);
}

static bool f_escape(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tbuf *buf = plm_tbuf_new(r);
    if (c->self.str->markup)
        return plm_tstr_val(c->self.str, c->ret);
    if (buf == NULL || !plm_tbuf_add_escaped(r, buf, c->self.str) ||
        !plm_tbuf_value(r, buf, c->ret))
        return false;
    c->ret->str->markup = true;
    return true;
}

bool plm_tpl_indent_of(struct plm_trun *r, const struct plm_tval *v, int64_t fallback,
                       struct plm_tstr **ret)
{
    struct plm_tval pad;
    struct plm_tstr *empty = plm_tstr_copyz(r, "", PLM_ORIGIN_TEMPLATE);
    if (v->kind == PLM_T_STR) {
        *ret = v->str;
        return true;
    }
    if (v->kind != PLM_T_UNSET && !plm_tval_is_int(v))
        return plm_tpl_fail(r, "an indent is an integer or a string, not %s", plm_tval_type(v));
    if (v->kind == PLM_T_UINT)
        return plm_tpl_fail_limit(r, "output bytes");
    if (empty == NULL ||
        !plm_tpl_pad(r, empty, v->kind == PLM_T_UNSET ? fallback : plm_tval_small(v), NULL, '<',
                     &pad))
        return false;
    *ret = pad.str;
    return true;
}

static bool f_indent(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tstr *pad;
    struct plm_tlist *lines;
    struct plm_tval v;
    struct plm_tbuf *buf = plm_tbuf_new(r);
    struct plm_tstr *newline = plm_tstr_copyz(r, "\n", PLM_ORIGIN_TEMPLATE);
    if (c->self.kind != PLM_T_STR)
        return c->self.kind == PLM_T_UNDEF
                   ? plm_tpl_fail_undef(r, &c->self)
                   : plm_tpl_fail(r, "indent needs a string, not %s", plm_tval_type(&c->self));
    if (buf == NULL || newline == NULL || !plm_tpl_indent_of(r, &c->a[0], 4, &pad))
        return false;
    const bool first = plm_tval_truth(&c->a[1]);
    const bool blank = plm_tval_truth(&c->a[2]);
    // With one more newline, so that a text that ends in one keeps it.
    if (!plm_tstr_concat(r, c->self.str, newline, &v) ||
        !plm_tpl_splitlines(r, v.str, false, &lines))
        return false;
    for (size_t i = 0; i < lines->n; i++) {
        const struct plm_tstr *line = lines->v[i].str;
        const bool padded = i == 0 ? first : blank || line->len > 0;
        if ((i > 0 && !plm_tbuf_add_str(r, buf, newline)) ||
            (padded && !plm_tbuf_add_str(r, buf, pad)) || !plm_tbuf_add_str(r, buf, line))
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

static bool f_int(struct plm_trun *r, struct plm_tcall *c)
{
    double d;
    if (c->self.kind == PLM_T_UNDEF)
        return plm_tpl_fail_undef(r, &c->self);
    if (plm_tval_is_int(&c->self))
        return plm_tnum_fits(plm_tnum_whole(&c->self), c->ret);
    if (c->self.kind == PLM_T_STR) {
        const enum plm_tint found = plm_tnum_int_text(plm_tstr_slice(c->self.str), c->ret);
        if (found != PLM_TINT_NONE)
            return found == PLM_TINT_OK || plm_tnum_fail_beyond(r);
    }
    if (to_double(&c->self, &d) && (isfinite(d) || c->self.kind == PLM_T_FLOAT))
        return plm_tnum_from_double(r, d, c->ret);
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

static bool need_number(struct plm_trun *r, const struct plm_tcall *c)
{
    if (c->self.kind == PLM_T_UNDEF)
        return plm_tpl_fail_undef(r, &c->self);
    return plm_tval_is_number(&c->self) ||
           plm_tpl_fail(r, "%s needs a number, not %s", c->func->name, plm_tval_type(&c->self));
}

static bool f_abs(struct plm_trun *r, struct plm_tcall *c)
{
    if (!need_number(r, c))
        return false;
    if (c->self.kind == PLM_T_FLOAT) {
        *c->ret = plm_tval_float(fabs(c->self.d));
        return true;
    }
    const __int128 i = plm_tnum_whole(&c->self);
    return plm_tnum_fits(i < 0 ? -i : i, c->ret);
}

static bool f_round(struct plm_trun *r, struct plm_tcall *c)
{
    if (c->a[1].kind == PLM_T_STR && !plm_tstr_is(c->a[1].str, "common"))
        return plm_tpl_fail(r, "round: only the method 'common' is supported");
    return need_number(r, c) && plm_tnum_round(r, &c->self, c->a[0].i, c->ret);
}

static bool f_default(struct plm_trun *r, struct plm_tcall *c)
{
    const bool absent =
        c->self.kind == PLM_T_UNDEF || (plm_tval_truth(&c->a[1]) && !plm_tval_truth(&c->self));
    if (absent && c->a[0].kind == PLM_T_UNSET)
        return plm_tstr_valz(r, "", c->ret);
    *c->ret = absent ? c->a[0] : c->self;
    return true;
}

static const struct plm_tfunc filters[] = {
    {"abs", "", f_abs, 0},
    {"attr", "*", NULL, 0},
    {"batch", "*", NULL, 0},
    {"capitalize", "$", plm_text_casing, PLM_CASE_CAPITALIZE},
    {"center", "$width:i=80", plm_text_pad, 0},
    {"d", "default_value=,boolean=", f_default, 0},
    {"default", "default_value=,boolean=", f_default, 0},
    {"e", "$", f_escape, 0},
    {"escape", "$", f_escape, 0},
    {"filesizeformat", "*", NULL, 0},
    {"float", "default=", f_float, 0},
    {"forceescape", "*", NULL, 0},
    {"format", "*", NULL, 0},
    {"from_json", "", plm_tpl_from_json, 0},
    {"groupby", "*", NULL, 0},
    {"indent", "width=,first=,blank=", f_indent, 0},
    {"int", "default=", f_int, 0},
    {"lower", "$", plm_text_casing, PLM_CASE_LOWER},
    {"pprint", "*", NULL, 0},
    {"random", "*", NULL, 0},
    {"replace", "$old:t,new:t,count:i=-1", plm_text_replace, 0},
    {"round", "precision:i=0,method:s=", f_round, 0},
    {"safe", "$", f_safe, 0},
    {"slice", "*", NULL, 0},
    {"string", "$", f_string, 0},
    {"striptags", "*", NULL, 0},
    {"title", "$", plm_text_casing, PLM_CASE_WORDS},
    {"tojson", "ensure_ascii=,indent=,separators=,sort_keys=", plm_tpl_tojson, 0},
    {"trim", "$chars:s=", plm_text_strip, 3},
    {"truncate", "*", NULL, 0},
    {"upper", "$", plm_text_casing, PLM_CASE_UPPER},
    {"urlencode", "*", NULL, 0},
    {"urlize", "*", NULL, 0},
    {"wordcount", "*", NULL, 0},
    {"wordwrap", "*", NULL, 0},
    {"xmlattr", "*", NULL, 0},
};

const struct plm_tfunc *plm_tpl_filter(struct plm_slice name)
{
    const struct plm_tfunc *func = PLM_FIND_FUNC(filters, name);
    return func != NULL ? func : plm_tpl_sequence_filter(name);
}
