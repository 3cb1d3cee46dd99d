// SPDX-License-Identifier: Apache-2.0
// Values to text: as Python's repr() and str() print them, and as JSON (`tojson`). Both write the
// same structure, in other words.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/template/filters.h"

struct writer {
    struct plm_trun *r;
    struct plm_tbuf *buf;
    bool json;
    bool ascii;                    // JSON: nothing else
    bool sort;                     // JSON: members by their names
    const struct plm_tstr *indent; // JSON: of each level, on lines of their own; NULL: on one line
    struct plm_slice item_sep;
    struct plm_slice key_sep;
    bool user_seps; // they are the conversation's
    size_t level;
};

static bool put(struct writer *w, const char *s, uint32_t origin)
{
    return plm_tbuf_addz(w->r, w->buf, s, origin);
}

static bool put_sep(struct writer *w, struct plm_slice s, bool user)
{
    return plm_tbuf_add(w->r, w->buf, s.ptr, s.len, user || w->user_seps);
}

static bool new_line(struct writer *w, uint32_t origin)
{
    if (w->indent == NULL)
        return true;
    if (!put(w, "\n", origin))
        return false;
    for (size_t i = 0; i < w->level; i++)
        if (!plm_tbuf_add_str(w->r, w->buf, w->indent))
            return false;
    return true;
}

// Python's choice: single quotes unless the text has some and no double ones.
static char quote_of(const struct writer *w, const struct plm_tstr *s)
{
    const char *p = plm_tstr_ptr(s);
    const bool single = s->len > 0 && memchr(p, '\'', s->len) != NULL;
    return w->json || (single && memchr(p, '"', s->len) == NULL) ? '"' : '\'';
}

// Whether a character is written as an escape, which goes to out.
static bool escaped(const struct writer *w, uint32_t cp, char quote, char out[16])
{
    static const char from[] = "\\\n\r\t\b\f";
    static const char to[] = "\\nrtbf"; // the last two are JSON's
    const bool plain = w->json ? cp >= 0x20 && (cp < 0x7F || !w->ascii) : plm_cp_is_printable(cp);
    if (plain && cp != '\\' && cp != (uint32_t)quote)
        return false;
    const char *hit = cp < 0x80 ? memchr(from, (int)cp, w->json ? 6 : 4) : NULL;
    if (hit != NULL || cp == (uint32_t)quote)
        snprintf(out, 16, "\\%c", hit != NULL ? to[hit - from] : quote);
    else if (!w->json && cp <= 0xFF)
        snprintf(out, 16, "\\x%02x", (unsigned)cp);
    else if (cp < 0x10000)
        snprintf(out, 16, "\\u%04x", (unsigned)cp);
    else if (!w->json)
        snprintf(out, 16, "\\U%08x", (unsigned)cp);
    else
        snprintf(out, 16, "\\u%04x\\u%04x", 0xD800 + (unsigned)((cp - 0x10000) >> 10),
                 0xDC00 + (unsigned)((cp - 0x10000) & 0x3FF));
    return true;
}

static bool put_string(struct writer *w, const struct plm_tstr *s, bool user)
{
    const char quote[2] = {quote_of(w, s), '\0'};
    const bool markup = s->markup && !w->json;
    size_t from = 0;
    user = user || plm_tstr_any_user(s);
    if ((markup && !put(w, "Markup(", user)) || !put(w, quote, user))
        return false;
    for (size_t i = 0; i < s->len;) {
        const char *p = plm_tstr_ptr(s);
        uint32_t cp = (unsigned char)p[i];
        const size_t n = cp < 0x80 ? 1 : plm_tstr_next(p + i, p + s->len, &cp);
        char out[16];
        if (escaped(w, cp, quote[0], out)) {
            if (!plm_tbuf_add_part(w->r, w->buf, s, from, i - from) ||
                !put(w, out, plm_tstr_origin_at(s, i)))
                return false;
            from = i + n;
        }
        i += n;
    }
    return plm_tbuf_add_part(w->r, w->buf, s, from, s->len - from) && put(w, quote, user) &&
           (!markup || put(w, ")", user));
}

static bool put_number(struct writer *w, const struct plm_tval *v, bool user)
{
    char text[40];
    if (v->kind == PLM_T_UINT)
        snprintf(text, sizeof(text), "%llu", (unsigned long long)v->u);
    else if (v->kind == PLM_T_INT)
        snprintf(text, sizeof(text), "%lld", (long long)v->i);
    else if (w->json && !isfinite(v->d))
        strcpy(text, isnan(v->d) ? "NaN" : v->d < 0 ? "-Infinity" : "Infinity");
    else
        plm_tnum_repr(v->d, text);
    return put(w, text, user);
}

static bool put_value(struct writer *w, const struct plm_tval *v, bool user);

static bool put_list(struct writer *w, const struct plm_tlist *list, bool tuple)
{
    const bool user = list->user;
    if (list->parts)
        w->r->printed_parts = true;
    if (!put(w, tuple ? "(" : "[", user))
        return false;
    w->level++;
    for (size_t i = 0; i < list->n; i++)
        if ((i > 0 && !put_sep(w, w->item_sep, user)) || !new_line(w, user) ||
            !put_value(w, &list->v[i], user))
            return false;
    w->level--;
    return (list->n == 0 || new_line(w, user)) && (!tuple || list->n != 1 || put(w, ",", user)) &&
           put(w, tuple ? ")" : "]", user);
}

static bool put_key(struct writer *w, const struct plm_tval *key, bool user)
{
    if (!w->json || key->kind == PLM_T_STR)
        return put_value(w, key, user);
    if (key->kind != PLM_T_NONE && !plm_tval_is_number(key))
        return plm_tpl_fail(w->r, "tojson: %s can not be a key", plm_tval_type(key));
    return put(w, "\"", user) && put_value(w, key, user) && put(w, "\"", user);
}

static bool put_dict(struct writer *w, const struct plm_tdict *dict)
{
    struct plm_tval *keys = plm_tpl_array(w->r, dict->live + 1, sizeof(*keys));
    struct plm_tval *values = plm_tpl_array(w->r, dict->live + 1, sizeof(*values));
    const bool user = dict->user;
    size_t n = 0;
    if (keys == NULL || values == NULL)
        return false;
    for (size_t i = 0; i < dict->n; i++)
        if (dict->entries[i].key.kind != PLM_T_UNSET) {
            keys[n] = dict->entries[i].key;
            values[n++] = dict->entries[i].value;
        }
    if (dict->args && !w->json)
        w->r->printed_args = true;
    if ((w->sort && !plm_tlist_sort(w->r, values, keys, n, false)) || !put(w, "{", user))
        return false;
    w->level++;
    for (size_t i = 0; i < n; i++)
        if ((i > 0 && !put_sep(w, w->item_sep, user)) || !new_line(w, user) ||
            !put_key(w, &keys[i], user) || !put_sep(w, w->key_sep, user) ||
            !put_value(w, &values[i], user))
            return false;
    w->level--;
    return (n == 0 || new_line(w, user)) && put(w, "}", user);
}

static bool put_view(struct writer *w, const struct plm_tval *v)
{
    static const char *const names[] = {"dict_keys(", "dict_values(", "dict_items("};
    struct plm_tlist *list;
    return plm_tpl_to_list(w->r, v, &list) && put(w, names[v->view->what], list->user) &&
           put_list(w, list, false) && put(w, ")", list->user);
}

// What Python prints and JSON does not know.
static bool put_other(struct writer *w, const struct plm_tval *v, bool user)
{
    char text[96];
    const struct plm_trange *range = v->range;
    if (w->json && v->kind == PLM_T_UNDEF)
        return plm_tpl_fail_undef(w->r, v);
    if (w->json)
        return plm_tpl_fail(w->r, "tojson: %s has no JSON form", plm_tval_type(v));
    if (v->kind == PLM_T_VIEW)
        return put_view(w, v);
    if (v->kind == PLM_T_RANGE && range->step == 1)
        snprintf(text, sizeof(text), "range(%lld, %lld)", (long long)range->start,
                 (long long)range->stop);
    else if (v->kind == PLM_T_RANGE)
        snprintf(text, sizeof(text), "range(%lld, %lld, %lld)", (long long)range->start,
                 (long long)range->stop, (long long)range->step);
    else if (v->kind == PLM_T_UNDEF)
        strcpy(text, "Undefined");
    else
        snprintf(text, sizeof(text), "<%s>", plm_tval_type(v));
    return put(w, text, user);
}

static bool put_inner(struct writer *w, const struct plm_tval *v, bool user)
{
    struct plm_tlist *list;
    switch (v->kind) {
    case PLM_T_NONE: return put(w, w->json ? "null" : "None", user);
    case PLM_T_BOOL:
        if (w->json)
            return put(w, v->b ? "true" : "false", user);
        return put(w, v->b ? "True" : "False", user);
    case PLM_T_INT:
    case PLM_T_UINT:
    case PLM_T_FLOAT: return put_number(w, v, user);
    case PLM_T_STR: return put_string(w, v->str, user);
    case PLM_T_LIST: return put_list(w, v->list, false);
    case PLM_T_TUPLE: return put_list(w, v->list, !w->json);
    case PLM_T_DICT: return put_dict(w, v->dict);
    case PLM_T_ITER: // some templates count on it
        if (w->json)
            return plm_tpl_to_list(w->r, v, &list) && put_list(w, list, false);
        return put_other(w, v, user);
    default: return put_other(w, v, user);
    }
}

static bool put_value(struct writer *w, const struct plm_tval *v, bool user)
{
    if (!plm_tpl_enter(w->r) || !put_inner(w, v, user))
        return false;
    w->r->depth--;
    return true;
}

bool plm_tval_repr(struct plm_trun *r, struct plm_tbuf *buf, const struct plm_tval *v)
{
    struct writer w = {.r = r, .buf = buf, .item_sep = PLM_SLICE(", "), .key_sep = PLM_SLICE(": ")};
    return put_value(&w, v, false);
}

bool plm_tval_print(struct plm_trun *r, struct plm_tbuf *buf, const struct plm_tval *v)
{
    if (v->kind == PLM_T_STR)
        return plm_tbuf_add_str(r, buf, v->str);
    return v->kind == PLM_T_UNDEF || plm_tval_repr(r, buf, v);
}

bool plm_tval_text(struct plm_trun *r, struct plm_tval *v)
{
    if (v->kind == PLM_T_STR)
        return true;
    struct plm_tbuf *buf = plm_tbuf_new(r);
    return buf != NULL && plm_tval_print(r, buf, v) && plm_tbuf_value(r, buf, v);
}

static bool given(const struct plm_tval *v)
{
    return v->kind != PLM_T_UNSET && v->kind != PLM_T_NONE;
}

bool plm_tpl_tojson(struct plm_trun *r, struct plm_tcall *c)
{
    struct writer w = {.r = r, .buf = plm_tbuf_new(r), .json = true};
    struct plm_tstr *indent = NULL;
    w.ascii = plm_tval_truth(&c->a[0]);
    w.sort = plm_tval_truth(&c->a[3]);
    if (w.buf == NULL || (given(&c->a[1]) && !plm_tpl_indent_of(r, &c->a[1], 0, &indent)))
        return false;
    w.indent = indent;
    w.item_sep = indent != NULL ? PLM_SLICE(",") : PLM_SLICE(", ");
    w.key_sep = PLM_SLICE(": ");
    if (given(&c->a[2])) {
        struct plm_tlist *seps;
        if (!plm_tpl_as_list(r, &c->a[2], &seps))
            return false;
        if (seps->n != 2 || seps->v[0].kind != PLM_T_STR || seps->v[1].kind != PLM_T_STR)
            return plm_tpl_fail(r, "tojson: separators must be two strings");
        w.item_sep = plm_tstr_slice(seps->v[0].str);
        w.key_sep = plm_tstr_slice(seps->v[1].str);
        w.user_seps = plm_tstr_any_user(seps->v[0].str) || plm_tstr_any_user(seps->v[1].str);
    }
    return put_value(&w, &c->self, false) && plm_tbuf_value(r, w.buf, c->ret);
}
