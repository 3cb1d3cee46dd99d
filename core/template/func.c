// SPDX-License-Identifier: Apache-2.0
// Calls: binding of arguments, the global functions, and what can be called.
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

// Names of a spec, one after the other. Returns false at the end.
static bool next_name(const char **spec, struct plm_slice *ret, bool *optional)
{
    const char *p = *spec;
    if (*p == ',')
        p++;
    if (*p == '|') {
        *optional = true;
        p++;
    }
    if (*p == '\0')
        return false;
    size_t n = strcspn(p, ",|");
    *ret = (struct plm_slice){p, n};
    *spec = p + n;
    return true;
}

static bool bind(struct plm_trun *r, const struct plm_tfunc *func, const struct plm_targs *args,
                 struct plm_tval slots[PLM_TCALL_SLOTS])
{
    const char *spec = func->spec;
    bool by_name = *spec != '/';
    if (!by_name)
        spec++;
    bool optional = false;
    size_t used = 0;
    size_t i = 0;
    struct plm_slice name;
    for (; next_name(&spec, &name, &optional); i++) {
        slots[i] = (struct plm_tval){.kind = PLM_T_UNSET};
        if (i < args->n_pos)
            slots[i] = args->pos[i];
        for (size_t k = 0; by_name && k < args->n_kw; k++) {
            if (!plm_slice_eq(args->kw_names[k], name))
                continue;
            if (slots[i].kind != PLM_T_UNSET)
                return plm_tpl_fail(r, "%s() got '%.*s' twice", func->name, (int)name.len,
                                    name.ptr);
            slots[i] = args->kw[k];
            used++;
        }
        if (slots[i].kind == PLM_T_UNSET && !optional)
            return plm_tpl_fail(r, "%s() needs '%.*s'", func->name, (int)name.len, name.ptr);
    }
    for (size_t k = i; k < PLM_TCALL_SLOTS; k++)
        slots[k] = (struct plm_tval){.kind = PLM_T_UNSET};
    if (args->n_pos > i)
        return plm_tpl_fail(r, "%s() takes at most %zu arguments, not %zu", func->name, i,
                            args->n_pos);
    if (used != args->n_kw)
        return plm_tpl_fail(r, "%s() got a named argument that it does not know", func->name);
    return true;
}

bool plm_tpl_invoke(struct plm_trun *r, const struct plm_tfunc *func, const struct plm_tval *self,
                    const struct plm_targs *args, struct plm_tval *ret)
{
    struct plm_tval result = plm_tval_none();
    struct plm_tcall c = {.self = *self, .func = func, .args = args, .ret = &result};
    if (func->spec[0] != '*' && !bind(r, func, args, c.a))
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

static bool call_cycler(struct plm_trun *r, struct plm_tcycler *joiner, struct plm_tval *ret)
{
    if (joiner->at++ > 0) {
        *ret = joiner->sep;
        return true;
    }
    return plm_tstr_valz(r, "", ret);
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
    case PLM_T_LOOP:
        if (args->n_pos != 1 || args->n_kw != 0)
            return plm_tpl_fail(r, "loop() needs one argument");
        return plm_tpl_loop_call(r, callee->loop, &args->pos[0], ret);
    case PLM_T_JOINER: return call_cycler(r, callee->cycler, ret);
    default: return plm_tpl_fail(r, "%s can not be called", plm_tval_type(callee));
    }
}

bool plm_tpl_arg_int(struct plm_trun *r, const struct plm_tval *v, int64_t fallback, int64_t *ret)
{
    if (v->kind == PLM_T_UNSET || v->kind == PLM_T_NONE) {
        *ret = fallback;
        return true;
    }
    if (v->kind == PLM_T_UNDEF)
        return plm_tpl_fail_undef(r, v);
    if (v->kind != PLM_T_INT && v->kind != PLM_T_BOOL)
        return plm_tpl_fail(r, "an integer is needed, not %s", plm_tval_type(v));
    *ret = plm_tval_small(v);
    return true;
}

bool plm_tpl_arg_str(struct plm_trun *r, const struct plm_tval *v, struct plm_tstr **ret)
{
    if (v->kind == PLM_T_UNDEF)
        return plm_tpl_fail_undef(r, v);
    if (v->kind != PLM_T_STR)
        return plm_tpl_fail(r, "a string is needed, not %s", plm_tval_type(v));
    *ret = v->str;
    return true;
}

static bool fn_range(struct plm_trun *r, struct plm_tcall *c)
{
    int64_t v[3];
    for (int i = 0; i < 3; i++)
        if (c->a[i].kind == PLM_T_NONE || !plm_tpl_arg_int(r, &c->a[i], i == 2, &v[i]))
            return plm_tpl_fail(r, "range() needs integers");
    if (c->a[1].kind == PLM_T_UNSET) {
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

// dict() and namespace(): an object or pairs, then names.
static bool fill_dict(struct plm_trun *r, struct plm_tcall *c, struct plm_tdict *dict)
{
    const struct plm_targs *args = c->args;
    if (args->n_pos > 1)
        return plm_tpl_fail(r, "%s() takes at most one argument by position", c->func->name);
    if (args->n_pos == 1 && args->pos[0].kind == PLM_T_DICT) {
        const struct plm_tdict *from = args->pos[0].dict;
        dict->user = from->user;
        for (size_t i = 0; i < from->n; i++)
            if (from->entries[i].key.kind != PLM_T_UNSET &&
                !plm_tdict_set(r, dict, from->entries[i].key, from->entries[i].value))
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
    for (size_t i = 0; i < args->n_kw; i++) {
        struct plm_tval key;
        if (!plm_tstr_val(plm_tstr_view(r, args->kw_names[i].ptr, args->kw_names[i].len, false),
                          &key) ||
            !plm_tdict_set(r, dict, key, args->kw[i]))
            return false;
    }
    return true;
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
    struct plm_tstr *text;
    if (!plm_tval_str(r, &c->a[0], &text))
        return false;
    // The template's own words, without a place: they are meant for who sent the messages.
    if (r->status == PLM_OK)
        r->status = plm_fail(r->err, PLM_ERR_INVALID, "%.*s",
                             (int)(text->len < 2000 ? text->len : 2000), plm_tstr_ptr(text));
    if (r->err != NULL) // not cut in the middle of a character
        r->err->msg[plm_utf8_valid_prefix(r->err->msg, strlen(r->err->msg))] = '\0';
    return false;
}

static bool fn_strftime(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tstr *fmt = NULL;
    return plm_tpl_arg_str(r, &c->a[0], &fmt) && plm_tpl_strftime(r, fmt, r->now_s, c->ret);
}

static bool fn_cycler(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tcycler *cycler = plm_tpl_alloc(r, sizeof(*cycler));
    if (cycler == NULL)
        return false;
    if (c->args->n_pos == 0 || c->args->n_kw > 0)
        return plm_tpl_fail(r, "cycler() needs items");
    cycler->items = plm_tlist_new(r, c->args->n_pos);
    if (cycler->items == NULL)
        return false;
    memcpy(cycler->items->v, c->args->pos, c->args->n_pos * sizeof(*c->args->pos));
    cycler->items->n = c->args->n_pos;
    *c->ret = (struct plm_tval){.kind = PLM_T_CYCLER, .cycler = cycler};
    return true;
}

static bool fn_joiner(struct plm_trun *r, struct plm_tcall *c)
{
    struct plm_tcycler *joiner = plm_tpl_alloc(r, sizeof(*joiner));
    if (joiner == NULL)
        return false;
    joiner->sep = c->a[0];
    if (joiner->sep.kind == PLM_T_UNSET && !plm_tstr_valz(r, ", ", &joiner->sep))
        return false;
    *c->ret = (struct plm_tval){.kind = PLM_T_JOINER, .cycler = joiner};
    return true;
}

static const struct plm_tfunc globals[] = {
    {"cycler", "*", fn_cycler, 0},
    {"dict", "*", fn_dict, 0},
    {"joiner", "|sep", fn_joiner, 0},
    {"namespace", "*", fn_namespace, 0},
    {"raise_exception", "message", fn_raise, 0},
    {"range", "/start|stop,step", fn_range, 0},
    {"strftime_now", "format", fn_strftime, 0},
};

const struct plm_tfunc *plm_tpl_global(struct plm_slice name)
{
    return plm_tpl_find_func(globals, sizeof(globals) / sizeof(globals[0]), name);
}
