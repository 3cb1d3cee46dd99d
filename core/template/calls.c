// SPDX-License-Identifier: Apache-2.0
// Calls: binding of arguments, the global functions, and what can be called.
#include <stdlib.h>
#include <string.h>

#include "core/base/utf8.h"
#include "core/template/run.h"

enum {
    RANGE_MAX = 100000, // items of a range(), the same bound that Jinja's sandbox has
};

const struct plm_tfunc *plm_tpl_find_func(const struct plm_tfunc *table, size_t n,
                                          struct plm_slice name)
{
    for (size_t i = 0; i < n; i++)
        if (plm_slice_eq_str(name, table[i].name))
            return &table[i];
    return NULL;
}

// One parameter of a spec (run.h).
struct param {
    struct plm_slice name;
    char type; // '\0': any value
    bool optional;
    int64_t fallback; // of an integer
};

// The parameters of a spec, one after the other. Returns false at the end.
static bool next_param(const char **spec, struct param *ret)
{
    const char *p = *spec + (**spec == ',');
    if (*p == '\0')
        return false;
    size_t n = strcspn(p, ":=,");
    *ret = (struct param){.name = {p, n}};
    p += n;
    if (*p == ':') {
        ret->type = p[1];
        p += 2;
    }
    if (*p == '=') {
        char *end;
        ret->optional = true;
        ret->fallback = strtoll(p + 1, &end, 10);
        p = end;
    }
    *spec = p;
    return true;
}

// Gives an argument the type of its parameter.
static bool convert(struct plm_trun *r, const struct plm_tfunc *func, const struct param *param,
                    struct plm_tval *v)
{
    if (v->kind == PLM_T_UNSET) {
        if (param->type == 'i')
            *v = plm_tval_int(param->fallback);
        return param->optional || plm_tpl_fail(r, "%s() needs '%.*s'", func->name,
                                               (int)param->name.len, param->name.ptr);
    }
    if (param->optional && param->type == 's' && v->kind == PLM_T_NONE) {
        *v = (struct plm_tval){.kind = PLM_T_UNSET};
        return true;
    }
    if (param->type == 't')
        return plm_tval_text(r, v);
    if (param->type == '\0' || (param->type == 's' && v->kind == PLM_T_STR) ||
        (param->type == 'i' && v->kind == PLM_T_INT))
        return true;
    if (param->type == 'i' && v->kind == PLM_T_BOOL) {
        *v = plm_tval_int(v->b);
        return true;
    }
    if (v->kind == PLM_T_UNDEF)
        return plm_tpl_fail_undef(r, v);
    return plm_tpl_fail(r, "%s() needs %s as '%.*s', not %s", func->name,
                        param->type == 'i' ? "an integer" : "a string", (int)param->name.len,
                        param->name.ptr, plm_tval_type(v));
}

static bool bind(struct plm_trun *r, const struct plm_tfunc *func, const char *spec,
                 const struct plm_targs *args, struct plm_tval slots[PLM_TCALL_SLOTS])
{
    const bool by_name = *spec != '/';
    size_t used = 0;
    size_t i = 0;
    struct param param;
    for (spec += !by_name; next_param(&spec, &param); i++) {
        slots[i] = (struct plm_tval){.kind = PLM_T_UNSET};
        if (i < args->n_pos)
            slots[i] = args->pos[i];
        for (size_t k = 0; by_name && k < args->n_kw; k++) {
            if (!plm_slice_eq(args->kw_names[k], param.name))
                continue;
            if (slots[i].kind != PLM_T_UNSET)
                return plm_tpl_fail(r, "%s() got '%.*s' twice", func->name, (int)param.name.len,
                                    param.name.ptr);
            slots[i] = args->kw[k];
            used++;
        }
        if (!convert(r, func, &param, &slots[i]))
            return false;
    }
    for (size_t k = i; k < PLM_TCALL_SLOTS; k++)
        slots[k] = (struct plm_tval){.kind = PLM_T_UNSET};
    if (args->n_pos > i)
        return plm_tpl_fail(r, "%s() takes at most %zu arguments, not %zu", func->name, i,
                            args->n_pos);
    return used == args->n_kw ||
           plm_tpl_fail(r, "%s() got a named argument that it does not know", func->name);
}

bool plm_tpl_invoke(struct plm_trun *r, const struct plm_tfunc *func, const struct plm_tval *self,
                    const struct plm_targs *args, struct plm_tval *ret)
{
    struct plm_tval result = plm_tval_none();
    struct plm_tcall c = {.self = *self, .func = func, .args = args, .ret = &result};
    const char *spec = func->spec;
    if (func->fn == NULL)
        return plm_tpl_fail(r, "%s() is not supported", func->name);
    if (*spec == '$') {
        if (!plm_tval_text(r, &c.self))
            return false;
        spec++;
    }
    if (*spec != '*' && !bind(r, func, spec, args, c.a))
        return false;
    if (!func->fn(r, &c))
        return false;
    *ret = result;
    return true;
}

// What methods of an escaped string give is escaped as well.
static bool keep_markup(struct plm_trun *r, const struct plm_tval *self, struct plm_tval *v)
{
    if (self->kind != PLM_T_STR || !self->str->markup)
        return true;
    size_t n = v->kind == PLM_T_LIST || v->kind == PLM_T_TUPLE ? v->list->n : 0;
    for (size_t i = 0; i < n; i++)
        if (!keep_markup(r, self, &v->list->v[i]))
            return false;
    if (v->kind != PLM_T_STR)
        return true;
    struct plm_tstr *s = plm_tstr_sub(r, v->str, 0, v->str->len);
    if (s != NULL)
        s->markup = true;
    return plm_tstr_val(s, v);
}

bool plm_tpl_call(struct plm_trun *r, const struct plm_tval *callee, const struct plm_targs *args,
                  struct plm_tval *ret)
{
    struct plm_tval none = plm_tval_none();
    switch (callee->kind) {
    case PLM_T_UNDEF: return plm_tpl_fail_undef(r, callee);
    case PLM_T_FUNC: return plm_tpl_invoke(r, callee->func, &none, args, ret);
    case PLM_T_METHOD:
        return plm_tpl_invoke(r, callee->method->func, &callee->method->self, args, ret) &&
               keep_markup(r, &callee->method->self, ret);
    case PLM_T_MACRO: return plm_tpl_call_macro(r, callee->macro, args, ret);
    default: return plm_tpl_fail(r, "%s can not be called", plm_tval_type(callee));
    }
}

static bool fn_range(struct plm_trun *r, struct plm_tcall *c)
{
    int64_t v[3] = {c->a[0].i, c->a[1].i, c->a[2].i};
    if (c->args->n_pos == 1) {
        v[1] = v[0];
        v[0] = 0;
    }
    if (v[2] == 0)
        return plm_tpl_fail(r, "step of range() is zero");
    unsigned __int128 n = 0;
    if (v[2] > 0 && v[1] > v[0])
        n = ((unsigned __int128)((__int128)v[1] - v[0]) - 1) / (uint64_t)v[2] + 1;
    else if (v[2] < 0 && v[0] > v[1])
        n = ((unsigned __int128)((__int128)v[0] - v[1]) - 1) / (0 - (uint64_t)v[2]) + 1;
    if (n > RANGE_MAX)
        return plm_tpl_fail_limit(r, "items of range()");
    struct plm_trange *range = plm_tpl_alloc(r, sizeof(*range));
    if (range == NULL)
        return false;
    *range = (struct plm_trange){v[0], v[1], v[2], (int64_t)n};
    *c->ret = (struct plm_tval){.kind = PLM_T_RANGE, .range = range};
    return true;
}

bool plm_tdict_add_named(struct plm_trun *r, struct plm_tdict *dict, const struct plm_targs *args)
{
    for (size_t i = 0; i < args->n_kw; i++) {
        struct plm_tval key;
        if (!plm_tstr_val(
                plm_tstr_view(r, args->kw_names[i].ptr, args->kw_names[i].len, PLM_ORIGIN_TEMPLATE),
                &key) ||
            !plm_tdict_set(r, dict, key, args->kw[i]))
            return false;
    }
    return true;
}

// dict() and namespace(): an object or pairs, then names.
static bool fill_dict(struct plm_trun *r, struct plm_tcall *c, struct plm_tdict *dict)
{
    const struct plm_targs *args = c->args;
    if (args->n_pos > 1)
        return plm_tpl_fail(r, "%s() takes at most one argument by position", c->func->name);
    if (args->n_pos == 1 && args->pos[0].kind == PLM_T_DICT) {
        if (!plm_tdict_merge(r, dict, args->pos[0].dict))
            return false;
    } else if (args->n_pos == 1) {
        struct plm_tlist *pairs;
        struct plm_tlist *pair;
        if (!plm_tpl_to_list(r, &args->pos[0], &pairs))
            return false;
        for (size_t i = 0; i < pairs->n; i++) {
            if (!plm_tpl_to_list(r, &pairs->v[i], &pair))
                return false;
            if (pair->n != 2)
                return plm_tpl_fail(r, "%s() needs pairs", c->func->name);
            if (!plm_tdict_set(r, dict, pair->v[0], pair->v[1]))
                return false;
        }
    }
    return plm_tdict_add_named(r, dict, args);
}

static bool fn_dict(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tdict *dict = plm_tdict_new(r);
    if (dict == NULL || !fill_dict(r, c, dict))
        return false;
    *c->ret = (struct plm_tval){.kind = PLM_T_DICT, .dict = dict};
    return true;
}

static bool fn_namespace(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tdict *dict = plm_tdict_new(r);
    if (dict == NULL || !fill_dict(r, c, dict))
        return false;
    for (size_t i = 0; i < dict->n; i++) {
        const struct plm_tval *key = &dict->entries[i].key;
        if (key->kind == PLM_T_STR && key->str->len > 0 && plm_tstr_ptr(key->str)[0] == '_')
            return plm_tpl_fail(r, "names in a namespace may not start with an underscore");
    }
    *c->ret = (struct plm_tval){.kind = PLM_T_SPACE, .dict = dict};
    return true;
}

static bool fn_raise(struct plm_trun *r, struct plm_tcall *c)
{
    // The template's own words, without a place: they are meant for who sent the messages.
    const struct plm_tstr *text = c->a[0].str;
    if (r->status == PLM_OK)
        r->status = plm_fail(r->err, PLM_ERR_INVALID, "%.*s",
                             (int)(text->len < 2000 ? text->len : 2000), plm_tstr_ptr(text));
    if (r->err != NULL) // not cut in the middle of a character
        r->err->msg[plm_utf8_valid_prefix(r->err->msg, strlen(r->err->msg))] = '\0';
    return false;
}

static bool fn_strftime(struct plm_trun *r, struct plm_tcall *c)
{
    return plm_tpl_strftime(r, c->a[0].str, r->now_s, c->ret);
}

static const struct plm_tfunc globals[] = {
    {"cycler", "*", NULL, 0},
    {"dict", "*", fn_dict, 0},
    {"joiner", "*", NULL, 0},
    {"namespace", "*", fn_namespace, 0},
    {"raise_exception", "message:t", fn_raise, 0},
    {"range", "/start:i,stop:i=,step:i=1", fn_range, 0},
    {"strftime_now", "format:s", fn_strftime, 0},
};

const struct plm_tfunc *plm_tpl_global(struct plm_slice name)
{
    return PLM_FIND_FUNC(globals, name);
}
