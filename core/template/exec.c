// SPDX-License-Identifier: Apache-2.0
// Statements, scopes, loops and macros.
#include "core/template/run.h"

#include <string.h>

struct plm_tscope *plm_tscope_new(struct plm_trun *r, struct plm_tscope *parent)
{
    struct plm_tscope *scope = plm_tpl_alloc(r, sizeof(*scope));
    if (scope != NULL)
        scope->parent = parent;
    return scope;
}

bool plm_tscope_set(struct plm_trun *r, struct plm_tscope *scope, uint32_t sym, struct plm_tval v)
{
    for (size_t i = 0; i < scope->n; i++)
        if (scope->vars[i].sym == sym) {
            scope->vars[i].value = v;
            return true;
        }
    struct plm_tvar *vars =
        plm_tarena_more(&r->arena, scope->vars, scope->n, &scope->cap, sizeof(*vars));
    if (vars == NULL)
        return plm_tpl_fail_memory(r);
    scope->vars = vars;
    scope->vars[scope->n++] = (struct plm_tvar){sym, v};
    return true;
}

static bool assign_attr(struct plm_trun *r, const struct plm_tnode *target,
                        const struct plm_tval *v)
{
    struct plm_tnode name = {.kind = PLM_N_NAME, .sym = target->sym, .line = target->line};
    struct plm_tval space;
    if (!plm_tpl_eval(r, &name, &space))
        return false;
    if (space.kind != PLM_T_SPACE)
        return plm_tpl_fail(r, "'%.*s' is no namespace, its members can not be set",
                            (int)r->tmpl->syms[target->sym].len, r->tmpl->syms[target->sym].ptr);
    if (target->name.ptr[0] == '_')
        return plm_tpl_fail(r, "names in a namespace may not start with an underscore");
    struct plm_tval key;
    return plm_tstr_val(plm_tstr_view(r, target->name.ptr, target->name.len, false), &key) &&
           plm_tdict_set(r, space.dict, key, *v);
}

bool plm_tpl_assign(struct plm_trun *r, const struct plm_tnode *target, const struct plm_tval *v)
{
    struct plm_tlist *list;
    switch (target->kind) {
    case PLM_N_NAME: return plm_tscope_set(r, r->scope, target->sym, *v);
    case PLM_N_NSREF: return assign_attr(r, target, v);
    default: break;
    }
    if (!plm_tpl_as_list(r, v, &list))
        return false;
    if (list->n != target->n)
        return plm_tpl_fail(r, "%zu values for %u names", list->n, (unsigned)target->n);
    for (uint32_t i = 0; i < target->n; i++)
        if (!plm_tpl_assign(r, target->list[i], &list->v[i]))
            return false;
    return true;
}

static enum plm_tflow exec(struct plm_trun *r, const struct plm_tnode *node);

enum plm_tflow plm_tpl_exec_list(struct plm_trun *r, struct plm_tnode *const *list, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        enum plm_tflow flow = exec(r, list[i]);
        if (flow != PLM_FLOW_NEXT)
            return flow;
    }
    return PLM_FLOW_NEXT;
}

// Runs a body in a new scope.
static enum plm_tflow exec_scoped(struct plm_trun *r, const struct plm_tnode *body)
{
    struct plm_tscope *outer = r->scope;
    r->scope = plm_tscope_new(r, outer);
    if (r->scope == NULL)
        return PLM_FLOW_FAIL;
    enum plm_tflow flow = plm_tpl_exec_list(r, body->list, body->n);
    r->scope = outer;
    return flow;
}

static enum plm_tflow exec_output(struct plm_trun *r, const struct plm_tnode *node)
{
    for (uint32_t i = 0; i < node->n; i++) {
        const struct plm_tnode *item = node->list[i];
        struct plm_tval v;
        if (item->kind == PLM_N_CONST && item->value.kind == PLM_T_UNSET) {
            if (!plm_tbuf_add(r, r->out, item->name.ptr, item->name.len, false))
                return PLM_FLOW_FAIL;
        } else if (!plm_tpl_eval(r, item, &v) || !plm_tval_print(r, r->out, &v)) {
            return PLM_FLOW_FAIL;
        }
    }
    return PLM_FLOW_NEXT;
}

static enum plm_tflow exec_if(struct plm_trun *r, const struct plm_tnode *node)
{
    for (; node != NULL; node = node->b) {
        struct plm_tval cond = plm_tval_bool(true);
        if (node->kind == PLM_N_IF && !plm_tpl_eval(r, node->a, &cond))
            return PLM_FLOW_FAIL;
        if (plm_tval_truth(&cond))
            return plm_tpl_exec_list(r, node->list, node->n);
    }
    return PLM_FLOW_NEXT;
}

// The next item that passes the loop's condition. False: there is none, or r->status says why not.
static bool next_item(struct plm_trun *r, struct plm_tloop *loop, struct plm_tval *ret)
{
    while (plm_titer_next(r, loop->iter, ret)) {
        struct plm_tscope *outer = r->scope;
        struct plm_tval pass;
        if (loop->node->c == NULL)
            return true;
        r->scope = plm_tscope_new(r, loop->scope);
        if (r->scope == NULL || !plm_tpl_assign(r, loop->node->a, ret) ||
            !plm_tpl_eval(r, loop->node->c, &pass))
            return false;
        r->scope = outer;
        if (plm_tval_truth(&pass))
            return true;
    }
    return false;
}

// Draws the item after the current one, if there is one.
static bool loop_peek(struct plm_trun *r, struct plm_tloop *loop)
{
    if (!loop->has_after && !loop->ended) {
        loop->has_after = next_item(r, loop, &loop->after);
        loop->ended = !loop->has_after;
    }
    return r->status == PLM_OK;
}

static bool loop_length(struct plm_trun *r, struct plm_tloop *loop, int64_t *ret)
{
    if (loop->length == SIZE_MAX &&
        (loop->node->c != NULL || !plm_tpl_len(&loop->over, &loop->length))) {
        // No length of its own: what is left is drawn and counted.
        struct plm_tlist *rest = plm_tlist_new(r, 0);
        struct plm_tval v;
        if (rest == NULL)
            return false;
        while (!loop->ended && next_item(r, loop, &v))
            if (!plm_tlist_add(r, rest, v))
                return false;
        if (r->status != PLM_OK)
            return false;
        struct plm_titer *it = plm_tpl_alloc(r, sizeof(*it));
        struct plm_tnode *unfiltered = plm_tpl_alloc(r, sizeof(*unfiltered));
        if (it == NULL || unfiltered == NULL)
            return false;
        *it = (struct plm_titer){.over = {.kind = PLM_T_LIST, .list = rest}};
        *unfiltered = *loop->node;
        unfiltered->c = NULL; // the rest has passed the condition already
        loop->node = unfiltered;
        loop->iter = it;
        loop->length = rest->n + (size_t)loop->index0 + 1 + loop->has_after;
    }
    *ret = (int64_t)loop->length;
    return true;
}

bool plm_tpl_loop_attr(struct plm_trun *r, struct plm_tloop *loop, struct plm_slice name,
                       struct plm_tval *ret)
{
    enum { INDEX, INDEX0, FIRST, LAST, LENGTH, REVINDEX, REVINDEX0, PREVITEM, NEXTITEM, MEMBERS };
    static const char *const names[MEMBERS] = {"index",     "index0",   "first",
                                               "last",      "length",   "revindex",
                                               "revindex0", "previtem", "nextitem"};
    int64_t length = 0;
    int which = 0;
    while (which < MEMBERS && !plm_slice_eq_str(name, names[which]))
        which++;
    if ((which == LAST || which == NEXTITEM) && !loop_peek(r, loop))
        return false;
    if (which >= LENGTH && which <= REVINDEX0 && !loop_length(r, loop, &length))
        return false;
    switch (which) {
    case INDEX: *ret = plm_tval_int(loop->index0 + 1); break;
    case INDEX0: *ret = plm_tval_int(loop->index0); break;
    case FIRST: *ret = plm_tval_bool(loop->index0 == 0); break;
    case LAST: *ret = plm_tval_bool(!loop->has_after); break;
    case LENGTH: *ret = plm_tval_int(length); break;
    case REVINDEX: *ret = plm_tval_int(length - loop->index0); break;
    case REVINDEX0: *ret = plm_tval_int(length - loop->index0 - 1); break;
    case PREVITEM: *ret = loop->index0 == 0 ? plm_tval_undef(NULL) : loop->before; break;
    case NEXTITEM: *ret = loop->has_after ? loop->after : plm_tval_undef(NULL); break;
    default: break;
    }
    return true;
}

// Makes the next item the current one. False at the end, or where r->status says why.
static bool advance(struct plm_trun *r, struct plm_tloop *loop)
{
    if (!loop_peek(r, loop) || !loop->has_after)
        return false;
    loop->has_after = false;
    loop->index0++;
    loop->before = loop->current;
    loop->current = loop->after;
    return true;
}

static enum plm_tflow exec_for(struct plm_trun *r, const struct plm_tnode *node)
{
    struct plm_tloop *loop = plm_tpl_alloc(r, sizeof(*loop));
    struct plm_tscope *outer = r->scope;
    struct plm_tscope *inner = plm_tscope_new(r, outer);
    bool ran_through = false; // some body reached its end
    if (loop == NULL || inner == NULL)
        return PLM_FLOW_FAIL;
    *loop = (struct plm_tloop){.node = node, .scope = outer, .index0 = -1, .length = SIZE_MAX};
    struct plm_tval self = {.kind = PLM_T_LOOP, .loop = loop};
    if (!plm_tpl_eval(r, node->b, &loop->over) || !plm_titer_init(r, &loop->over, &loop->iter))
        return PLM_FLOW_FAIL;
    for (;;) {
        r->scope = outer;
        if (!advance(r, loop))
            break;
        if (inner->captured && (inner = plm_tscope_new(r, outer)) == NULL)
            return PLM_FLOW_FAIL;
        inner->n = 0;
        r->scope = inner;
        if (!plm_tscope_set(r, inner, PLM_SYM_LOOP, self) ||
            !plm_tpl_assign(r, node->a, &loop->current))
            return PLM_FLOW_FAIL;
        enum plm_tflow flow = plm_tpl_exec_list(r, node->list, node->n);
        if (flow == PLM_FLOW_FAIL)
            return flow;
        if (flow == PLM_FLOW_BREAK)
            break;
        ran_through |= flow == PLM_FLOW_NEXT;
    }
    r->scope = outer;
    enum plm_tflow flow = r->status == PLM_OK ? PLM_FLOW_NEXT : PLM_FLOW_FAIL;
    if (flow == PLM_FLOW_NEXT && !ran_through && node->d != NULL)
        flow = exec_scoped(r, node->d);
    r->scope = outer;
    return flow;
}

// Runs a body with its output going to a new buffer, and gives that as a string.
static enum plm_tflow capture(struct plm_trun *r, const struct plm_tnode *body,
                              struct plm_tval *ret)
{
    struct plm_tbuf *outer = r->out;
    struct plm_tbuf *buf = plm_tbuf_new(r);
    if (buf == NULL)
        return PLM_FLOW_FAIL;
    r->out = buf;
    enum plm_tflow flow = exec_scoped(r, body);
    r->out = outer;
    if (flow == PLM_FLOW_NEXT && !plm_tbuf_value(r, buf, ret))
        return PLM_FLOW_FAIL;
    return flow;
}

// A set block or filter block: the captured text goes through the filters.
static enum plm_tflow exec_filtered(struct plm_trun *r, const struct plm_tnode *node)
{
    struct plm_tval text;
    enum plm_tflow flow = capture(r, node, &text);
    if (flow != PLM_FLOW_NEXT)
        return flow;
    if (node->b != NULL) {
        struct plm_tval outer = r->hole;
        r->hole = text;
        if (!plm_tpl_eval(r, node->b, &text))
            return PLM_FLOW_FAIL;
        r->hole = outer;
    }
    bool ok = node->kind == PLM_N_SET_BLOCK ? plm_tpl_assign(r, node->a, &text)
                                            : plm_tval_print(r, r->out, &text);
    return ok ? PLM_FLOW_NEXT : PLM_FLOW_FAIL;
}

static struct plm_tmacro *make_macro(struct plm_trun *r, const struct plm_tnode *node)
{
    struct plm_tmacro *macro = plm_tpl_alloc(r, sizeof(*macro));
    if (macro == NULL)
        return NULL;
    *macro = (struct plm_tmacro){node, r->scope};
    for (struct plm_tscope *s = r->scope; s != NULL && !s->captured; s = s->parent)
        s->captured = true;
    return macro;
}

static bool exec_call_block(struct plm_trun *r, const struct plm_tnode *node)
{
    struct plm_tmacro *caller = make_macro(r, node->b);
    struct plm_tval callee, result;
    struct plm_targs args;
    if (caller == NULL || !plm_tpl_eval(r, node->a->a, &callee) ||
        !plm_tpl_eval_args(r, node->a->call, &args))
        return false;
    struct plm_slice *names = plm_tpl_array(r, args.n_kw + 1, sizeof(*names));
    struct plm_tval *kw = plm_tpl_array(r, args.n_kw + 1, sizeof(*kw));
    if (names == NULL || kw == NULL)
        return false;
    names[0] = PLM_SLICE("caller");
    kw[0] = (struct plm_tval){.kind = PLM_T_MACRO, .macro = caller};
    for (size_t i = 0; i < args.n_kw; i++) {
        names[i + 1] = args.kw_names[i];
        kw[i + 1] = args.kw[i];
    }
    args = (struct plm_targs){args.pos, args.n_pos, names, kw, args.n_kw + 1};
    return plm_tpl_call(r, &callee, &args, &result) && plm_tval_print(r, r->out, &result);
}

static enum plm_tflow exec_with(struct plm_trun *r, const struct plm_tnode *node)
{
    struct plm_tscope *outer = r->scope;
    struct plm_tval *v = plm_tpl_array(r, node->n_params, sizeof(*v));
    if (v == NULL)
        return PLM_FLOW_FAIL;
    for (uint32_t i = 0; i < node->n_params; i++)
        if (!plm_tpl_eval(r, node->params[i].value, &v[i]))
            return PLM_FLOW_FAIL;
    r->scope = plm_tscope_new(r, outer);
    if (r->scope == NULL)
        return PLM_FLOW_FAIL;
    for (uint32_t i = 0; i < node->n_params; i++)
        if (!plm_tpl_assign(r, node->params[i].target, &v[i]))
            return PLM_FLOW_FAIL;
    enum plm_tflow flow = plm_tpl_exec_list(r, node->list, node->n);
    r->scope = outer;
    return flow;
}

static bool exec_set(struct plm_trun *r, const struct plm_tnode *node)
{
    struct plm_tval v;
    return plm_tpl_eval(r, node->b, &v) && plm_tpl_assign(r, node->a, &v);
}

static bool exec_macro(struct plm_trun *r, const struct plm_tnode *node)
{
    struct plm_tval v = {.kind = PLM_T_MACRO, .macro = make_macro(r, node)};
    return v.macro != NULL && plm_tscope_set(r, r->scope, node->sym, v);
}

static enum plm_tflow exec_inner(struct plm_trun *r, const struct plm_tnode *node)
{
    bool ok = true;
    switch (node->kind) {
    case PLM_N_OUTPUT: return exec_output(r, node);
    case PLM_N_IF: return exec_if(r, node);
    case PLM_N_FOR: return exec_for(r, node);
    case PLM_N_SET: ok = exec_set(r, node); break;
    case PLM_N_SET_BLOCK:
    case PLM_N_FILTER_BLOCK: return exec_filtered(r, node);
    case PLM_N_MACRO: ok = exec_macro(r, node); break;
    case PLM_N_CALL_BLOCK: ok = exec_call_block(r, node); break;
    case PLM_N_WITH: return exec_with(r, node);
    case PLM_N_BODY: return exec_scoped(r, node);
    case PLM_N_BREAK: return PLM_FLOW_BREAK;
    case PLM_N_CONTINUE: return PLM_FLOW_CONTINUE;
    default: ok = plm_tpl_fail(r, "this is no statement"); break;
    }
    return ok ? PLM_FLOW_NEXT : PLM_FLOW_FAIL;
}

static enum plm_tflow exec(struct plm_trun *r, const struct plm_tnode *node)
{
    r->line = node->line;
    if (!plm_tpl_enter(r))
        return PLM_FLOW_FAIL;
    enum plm_tflow flow = exec_inner(r, node);
    r->depth--;
    return flow;
}

// Value of parameter i of a macro: by position, by name, or unset.
static bool macro_arg(struct plm_trun *r, const struct plm_tparam *param, size_t i,
                      const struct plm_targs *args, bool *kw_used, struct plm_tval *ret)
{
    *ret = (struct plm_tval){.kind = PLM_T_UNSET};
    if (i < args->n_pos)
        *ret = args->pos[i];
    for (size_t k = 0; k < args->n_kw; k++) {
        if (kw_used[k] || !plm_slice_eq(args->kw_names[k], param->name))
            continue;
        if (i < args->n_pos)
            break; // given twice: left over, and refused as an unknown name
        *ret = args->kw[k];
        kw_used[k] = true;
    }
    if (ret->kind != PLM_T_UNSET)
        return true;
    if (param->value != NULL)
        return plm_tpl_eval(r, param->value, ret);
    *ret = plm_tval_undef(&param->name);
    return true;
}

// What is left of the arguments may be the caller.
static bool macro_rest(struct plm_trun *r, const struct plm_tnode *node,
                       const struct plm_targs *args, const bool *kw_used)
{
    static const struct plm_slice caller_name = {"caller", 6};
    struct plm_tval caller = plm_tval_undef(&caller_name);
    for (size_t k = 0; k < args->n_kw; k++) {
        if (kw_used[k])
            continue;
        if (!plm_slice_eq(args->kw_names[k], caller_name))
            return plm_tpl_fail(r, "macro '%.*s' has no parameter '%.*s'", (int)node->name.len,
                                node->name.ptr, (int)args->kw_names[k].len, args->kw_names[k].ptr);
        caller = args->kw[k];
    }
    if (args->n_pos > node->n_params)
        return plm_tpl_fail(r, "macro '%.*s' takes at most %u arguments", (int)node->name.len,
                            node->name.ptr, (unsigned)node->n_params);
    return plm_tscope_set(r, r->scope, PLM_SYM_CALLER, caller);
}

bool plm_tpl_call_macro(struct plm_trun *r, const struct plm_tmacro *macro,
                        const struct plm_targs *args, struct plm_tval *ret)
{
    const struct plm_tnode *node = macro->node;
    struct plm_tscope *outer = r->scope;
    bool *kw_used = plm_tpl_array(r, args->n_kw, sizeof(bool));
    if (kw_used == NULL || !plm_tpl_enter(r))
        return false;
    r->scope = plm_tscope_new(r, macro->scope);
    if (r->scope == NULL)
        return false;
    for (uint32_t i = 0; i < node->n_params; i++) {
        struct plm_tval v;
        if (!macro_arg(r, &node->params[i], i, args, kw_used, &v) ||
            !plm_tscope_set(r, r->scope, node->params[i].sym, v))
            return false;
    }
    if (!macro_rest(r, node, args, kw_used) || capture(r, node, ret) == PLM_FLOW_FAIL)
        return false;
    r->scope = outer;
    r->depth--;
    return true;
}
