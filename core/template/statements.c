// SPDX-License-Identifier: Apache-2.0
// Statements and template text.
#include <string.h>

#include "core/base/text.h"
#include "core/template/ast.h"
#include "core/template/run.h"

// Statements up to one of the tags in `ends` (NULL-terminated, or NULL: up to the end of the
// template). The end tag's name is the current token afterwards.
static bool parse_until(struct plm_tload *p, const char *const *ends, struct plm_tnodes *ret);

static bool expect_block_end(struct plm_tload *p)
{
    if (plm_tload_tok(p)->type != PLM_TOK_BLOCK_END)
        return plm_tload_unexpected(p, "'%}'");
    plm_tload_next(p);
    return true;
}

static bool set_body(struct plm_tnode *node, const struct plm_tnodes *body)
{
    node->list = body->v;
    node->n = (uint32_t)body->n;
    return true;
}

// `%}` body `{% end` ; the end tag is consumed, its `%}` is left.
static bool parse_body(struct plm_tload *p, const char *end, struct plm_tnode *node)
{
    const char *const ends[] = {end, NULL};
    struct plm_tnodes body = {0};
    plm_tload_skip_op(p, ":");
    if (!expect_block_end(p) || !parse_until(p, ends, &body))
        return false;
    plm_tload_next(p);
    return set_body(node, &body);
}

// The body of something that Jinja compiles to a block of its own: filters in it are looked up at
// load again, even inside of an `if`.
static bool parse_inner(struct plm_tload *p, const char *end, struct plm_tnode *node)
{
    uint32_t in_branch = p->in_branch;
    p->in_branch = 0;
    bool ok = parse_body(p, end, node);
    p->in_branch = in_branch;
    return ok;
}

// Like parse_inner, of something that Jinja compiles to a function: loops outside of it are out of
// reach for break and continue.
static bool parse_function(struct plm_tload *p, const char *end, struct plm_tnode *node)
{
    uint32_t loops = p->loops;
    p->loops = 0;
    bool ok = parse_inner(p, end, node);
    p->loops = loops;
    return ok;
}

static bool parse_if(struct plm_tload *p, struct plm_tnode *node)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    p->in_branch++;
    for (;;) {
        struct plm_tnodes body = {0};
        if (!plm_tload_tuple(p, false, false, NULL, &node->a))
            return false;
        plm_tload_skip_op(p, ":");
        if (!expect_block_end(p) || !parse_until(p, ends, &body) || !set_body(node, &body))
            return false;
        if (!plm_tload_is_name(p, "elif"))
            break;
        node->b = plm_tload_node(p, PLM_N_IF, plm_tload_tok(p)->line);
        node = node->b;
        if (node == NULL)
            return false;
        plm_tload_next(p);
    }
    if (plm_tload_skip_name(p, "else")) {
        node->b = plm_tload_node(p, PLM_N_BODY, plm_tload_tok(p)->line);
        if (node->b == NULL || !parse_body(p, "endif", node->b))
            return false;
    } else {
        plm_tload_next(p);
    }
    p->in_branch--;
    return true;
}

static bool parse_for(struct plm_tload *p, struct plm_tnode *node)
{
    static const char *const ends[] = {"endfor", "else", NULL};
    struct plm_tnodes body = {0};
    if (!plm_tload_target(p, false, "in", &node->a))
        return false;
    if (!plm_tload_skip_name(p, "in"))
        return plm_tload_unexpected(p, "'in'");
    if (!plm_tload_tuple(p, false, false, "recursive", &node->b))
        return false;
    uint32_t in_branch = p->in_branch;
    p->in_branch = 0;
    if (plm_tload_skip_name(p, "if") && !plm_tload_expression(p, true, &node->c))
        return false;
    if (plm_tload_is_name(p, "recursive"))
        return plm_tload_fail(p, PLM_ERR_UNSUPPORTED, node->line,
                              "recursive loops are not supported");
    plm_tload_skip_op(p, ":");
    p->loops++;
    if (!expect_block_end(p) || !parse_until(p, ends, &body) || !set_body(node, &body))
        return false;
    p->loops--;
    p->in_branch = in_branch;
    if (!plm_tload_skip_name(p, "else")) {
        plm_tload_next(p);
        return true;
    }
    node->d = plm_tload_node(p, PLM_N_BODY, plm_tload_tok(p)->line);
    return node->d != NULL && parse_inner(p, "endfor", node->d);
}

// The filters of a block, which belong to the inside of it.
static bool parse_block_filters(struct plm_tload *p, struct plm_tnode *node, bool start_inline)
{
    uint32_t in_branch = p->in_branch;
    struct plm_tnode *hole = plm_tload_node(p, PLM_N_HOLE, node->line);
    p->in_branch = 0;
    bool ok = hole != NULL && plm_tload_filters(p, hole, start_inline, &node->b);
    p->in_branch = in_branch;
    return ok;
}

static bool parse_set(struct plm_tload *p, struct plm_tnode *node)
{
    if (!plm_tload_target(p, true, NULL, &node->a))
        return false;
    if (plm_tload_skip_op(p, "="))
        return plm_tload_tuple(p, true, false, NULL, &node->b);
    node->kind = PLM_N_SET_BLOCK;
    if (plm_tload_is_op(p, "|")) {
        if (!parse_block_filters(p, node, false))
            return false;
    }
    return parse_inner(p, "endset", node);
}

static struct plm_tparam *add_param(struct plm_tload *p, struct plm_tnode *node)
{
    if (node->n_params % 8 == 0) {
        const size_t bytes = node->n_params * sizeof(*node->params);
        node->params = plm_tarena_grow(&p->tmpl->arena, node->params, bytes,
                                       bytes + 8 * sizeof(*node->params));
        if (node->params == NULL) {
            plm_tload_nomem(p);
            return NULL;
        }
    }
    node->params[node->n_params] = (struct plm_tparam){0};
    return &node->params[node->n_params++];
}

static bool parse_signature(struct plm_tload *p, struct plm_tnode *node)
{
    bool defaults = false;
    if (!plm_tload_expect_op(p, "("))
        return false;
    while (!plm_tload_is_op(p, ")")) {
        if (node->n_params > 0 && !plm_tload_expect_op(p, ","))
            return false;
        struct plm_tparam *param = add_param(p, node);
        if (param == NULL || !plm_tload_expect_name(p, &param->name) ||
            !plm_tload_sym(p, param->name, &param->sym))
            return false;
        if (plm_tload_skip_op(p, "=")) {
            defaults = true;
            if (!plm_tload_expression(p, true, &param->value))
                return false;
        } else if (defaults) {
            return plm_tload_fail(p, PLM_ERR_FORMAT, node->line,
                                  "parameter without default after one with default");
        }
    }
    plm_tload_next(p);
    return true;
}

// The body of a macro, or of what a call block gives to a macro.
static bool parse_macro_body(struct plm_tload *p, const char *end, struct plm_tnode *macro)
{
    p->macros++;
    const bool ok = parse_function(p, end, macro);
    p->macros--;
    return ok;
}

static bool parse_macro(struct plm_tload *p, struct plm_tnode *node)
{
    return plm_tload_expect_name(p, &node->name) && plm_tload_sym(p, node->name, &node->sym) &&
           parse_signature(p, node) && parse_macro_body(p, "endmacro", node);
}

static bool parse_call_block(struct plm_tload *p, struct plm_tnode *node)
{
    node->b = plm_tload_node(p, PLM_N_MACRO, node->line);
    if (node->b == NULL)
        return false;
    node->b->name = PLM_SLICE("caller");
    if ((plm_tload_is_op(p, "(") && !parse_signature(p, node->b)) ||
        !plm_tload_expression(p, true, &node->a))
        return false;
    if (node->a->kind != PLM_N_CALL)
        return plm_tload_fail(p, PLM_ERR_FORMAT, node->line, "'call' needs a call");
    return parse_macro_body(p, "endcall", node->b);
}

static bool parse_filter_block(struct plm_tload *p, struct plm_tnode *node)
{
    return parse_block_filters(p, node, true) && parse_inner(p, "endfilter", node);
}

static bool parse_with(struct plm_tload *p, struct plm_tnode *node)
{
    while (plm_tload_tok(p)->type != PLM_TOK_BLOCK_END) {
        if (node->n_params > 0 && !plm_tload_expect_op(p, ","))
            return false;
        struct plm_tparam *param = add_param(p, node);
        if (param == NULL || !plm_tload_target(p, false, NULL, &param->target) ||
            !plm_tload_expect_op(p, "=") || !plm_tload_expression(p, true, &param->value))
            return false;
    }
    return parse_inner(p, "endwith", node);
}

static bool parse_flow(struct plm_tload *p, struct plm_tnode *node)
{
    return p->loops > 0 || plm_tload_fail(p, PLM_ERR_FORMAT, node->line, "'%s' outside of a loop",
                                          node->kind == PLM_N_BREAK ? "break" : "continue");
}

static bool parse_generation(struct plm_tload *p, struct plm_tnode *node)
{
    return parse_function(p, "endgeneration", node);
}

static bool parse_statement(struct plm_tload *p, struct plm_tnode **ret)
{
    static const struct {
        const char *tag;
        enum plm_tnode_kind kind;
        bool (*parse)(struct plm_tload *p, struct plm_tnode *node); // NULL: known, unsupported
    } tags[] = {
        {"autoescape", 0, NULL},
        {"block", 0, NULL},
        {"break", PLM_N_BREAK, parse_flow},
        {"call", PLM_N_CALL_BLOCK, parse_call_block},
        {"continue", PLM_N_CONTINUE, parse_flow},
        {"extends", 0, NULL},
        {"filter", PLM_N_FILTER_BLOCK, parse_filter_block},
        {"for", PLM_N_FOR, parse_for},
        {"from", 0, NULL},
        {"generation", PLM_N_BODY, parse_generation},
        {"if", PLM_N_IF, parse_if},
        {"import", 0, NULL},
        {"include", 0, NULL},
        {"macro", PLM_N_MACRO, parse_macro},
        {"print", 0, NULL},
        {"set", PLM_N_SET, parse_set},
        {"with", PLM_N_WITH, parse_with},
    };
    const struct plm_ttoken *t = plm_tload_tok(p);
    if (t->type != PLM_TOK_NAME)
        return plm_tload_unexpected(p, "the name of a tag");
    for (size_t i = 0; i < sizeof(tags) / sizeof(tags[0]); i++) {
        if (!plm_slice_eq_str(t->text, tags[i].tag))
            continue;
        if (tags[i].parse == NULL)
            return plm_tload_fail(p, PLM_ERR_UNSUPPORTED, t->line, "tag '%s' is not supported",
                                  tags[i].tag);
        *ret = plm_tload_node(p, tags[i].kind, t->line);
        plm_tload_next(p);
        if (*ret == NULL || !plm_tload_enter(p) || !tags[i].parse(p, *ret))
            return false;
        p->depth--;
        return true;
    }
    return plm_tload_fail(p, PLM_ERR_FORMAT, t->line, "unknown or misplaced tag '%.*s'",
                          (int)(t->text.len < 40 ? t->text.len : 40), t->text.ptr);
}

static bool is_end(struct plm_tload *p, const char *const *ends)
{
    for (; ends != NULL && *ends != NULL; ends++)
        if (plm_tload_is_name(p, *ends))
            return true;
    return false;
}

// One piece of text or one {{ }}, as an expression.
static bool parse_output(struct plm_tload *p, struct plm_tnode **ret)
{
    struct plm_ttoken *t = plm_tload_tok(p);
    plm_tload_next(p);
    if (t->type == PLM_TOK_DATA) {
        *ret = plm_tload_node(p, PLM_N_CONST, t->line);
        if (*ret == NULL)
            return false;
        (*ret)->name = t->text; // written as it stands
        return true;
    }
    if (!plm_tload_tuple(p, true, false, NULL, ret))
        return false;
    if (plm_tload_tok(p)->type != PLM_TOK_VAR_END)
        return plm_tload_unexpected(p, "'}}'");
    plm_tload_next(p);
    return true;
}

static bool parse_until(struct plm_tload *p, const char *const *ends, struct plm_tnodes *ret)
{
    for (;;) {
        struct plm_ttoken *t = plm_tload_tok(p);
        struct plm_tnode *node = NULL;
        switch (t->type) {
        case PLM_TOK_EOF:
            return ends == NULL || plm_tload_fail(p, PLM_ERR_FORMAT, t->line,
                                                  "template ends where '%s' is missing", ends[0]);
        case PLM_TOK_BLOCK_BEGIN:
            plm_tload_next(p);
            if (is_end(p, ends))
                return true;
            if (!parse_statement(p, &node) || !expect_block_end(p))
                return false;
            break;
        default: {
            struct plm_tnodes items = {0};
            node = plm_tload_node(p, PLM_N_OUTPUT, t->line);
            if (node == NULL)
                return false;
            while (plm_tload_tok(p)->type == PLM_TOK_DATA ||
                   plm_tload_tok(p)->type == PLM_TOK_VAR_BEGIN) {
                struct plm_tnode *item;
                if (!parse_output(p, &item) || !plm_tload_push(p, &items, item))
                    return false;
            }
            set_body(node, &items);
            break;
        }
        }
        if (!plm_tload_push(p, ret, node))
            return false;
    }
}

bool plm_tload_body(struct plm_tload *p)
{
    static const char *const fixed[PLM_SYM_FIXED] = {"loop", "caller"};
    struct plm_tnodes body = {0};
    for (uint32_t i = 0; i < PLM_SYM_FIXED; i++) {
        uint32_t sym;
        if (!plm_tload_sym(p, (struct plm_slice){fixed[i], strlen(fixed[i])}, &sym))
            return false;
    }
    p->tmpl->body = plm_tload_node(p, PLM_N_BODY, 1);
    if (p->tmpl->body == NULL || !parse_until(p, NULL, &body))
        return false;
    if (p->unknown.ptr != NULL)
        return plm_tload_fail(p, PLM_ERR_UNSUPPORTED, p->unknown_line, "%s '%.*s'", p->unknown_what,
                              (int)(p->unknown.len < 60 ? p->unknown.len : 60), p->unknown.ptr);
    return set_body(p->tmpl->body, &body);
}
