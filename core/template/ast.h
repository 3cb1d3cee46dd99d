// SPDX-License-Identifier: Apache-2.0
// Tokens and syntax tree of a template. All of it lies in the template's arena and never changes
// after the load, so that any number of renders may share it.
#ifndef PLM_TEMPLATE_AST_H
#define PLM_TEMPLATE_AST_H

#include "core/template/value.h"

enum plm_ttoken_type {
    PLM_TOK_EOF,
    PLM_TOK_DATA,
    PLM_TOK_VAR_BEGIN,
    PLM_TOK_VAR_END,
    PLM_TOK_BLOCK_BEGIN,
    PLM_TOK_BLOCK_END,
    PLM_TOK_NAME,
    PLM_TOK_STRING,
    PLM_TOK_INT,
    PLM_TOK_FLOAT,
    PLM_TOK_OP,
};

struct plm_ttoken {
    enum plm_ttoken_type type;
    uint32_t line;
    struct plm_slice text; // of a string: without quotes and escapes
};

enum plm_tbinary {
    PLM_OP_ADD,
    PLM_OP_SUB,
    PLM_OP_MUL,
    PLM_OP_DIV,
    PLM_OP_FLOORDIV,
    PLM_OP_MOD,
};

enum plm_tcompare {
    PLM_CMP_EQ,
    PLM_CMP_NE,
    PLM_CMP_LT,
    PLM_CMP_LE,
    PLM_CMP_GT,
    PLM_CMP_GE,
    PLM_CMP_IN,
    PLM_CMP_NOT_IN
};

enum plm_tnode_kind {
    // Expressions.
    PLM_N_CONST,   // value
    PLM_N_NAME,    // sym
    PLM_N_LIST,    // list
    PLM_N_TUPLE,   // list
    PLM_N_DICT,    // list: key, value, key, value
    PLM_N_ATTR,    // a . name
    PLM_N_ITEM,    // a [ b ]
    PLM_N_SLICE,   // a [ list[0] : list[1] : list[2] ], each may be NULL
    PLM_N_CALL,    // a ( call )
    PLM_N_FILTER,  // a | func ( call )
    PLM_N_TEST,    // a is func ( call )
    PLM_N_NOT,     // a
    PLM_N_AND,     // list
    PLM_N_OR,      // list
    PLM_N_COND,    // a if b else c (may be NULL)
    PLM_N_COMPARE, // list[0] ops[0] list[1] ops[1] list[2]
    PLM_N_BINARY,  // the same, left to right
    PLM_N_CONCAT,  // list
    PLM_N_NEG,     // a
    PLM_N_POS,     // a
    PLM_N_HOLE,    // the text that a filter block filters
    PLM_N_NSREF,   // target: sym . name
    // Statements. `list` is a body unless said otherwise.
    PLM_N_OUTPUT,       // list: expressions
    PLM_N_IF,           // a: condition, list, b: the next IF, or a BODY, or NULL
    PLM_N_FOR,          // a: target, b: sequence, c: condition, list, d: else BODY
    PLM_N_SET,          // a: target, b: expression
    PLM_N_SET_BLOCK,    // a: target, b: filters over HOLE or NULL, list
    PLM_N_MACRO,        // sym, name, params, list
    PLM_N_CALL_BLOCK,   // a: CALL, b: MACRO (the caller)
    PLM_N_FILTER_BLOCK, // b: filters over HOLE, list
    PLM_N_WITH,         // params (names and values), list
    PLM_N_BODY,         // list: in a scope of its own
    PLM_N_BREAK,
    PLM_N_CONTINUE,
};

struct plm_tcall_args {
    struct plm_tnode **pos;
    size_t n_pos;
    struct plm_slice *kw_names;
    struct plm_tnode **kw;
    size_t n_kw;
};

struct plm_tparam {
    struct plm_tnode *target; // with: what is set. NULL in macros
    uint32_t sym;
    struct plm_slice name;
    struct plm_tnode *value; // default, or NULL
};

struct plm_tnode {
    uint8_t kind;
    uint32_t line;
    uint32_t sym;
    uint32_t n;
    struct plm_tnode *a;
    struct plm_tnode *b;
    struct plm_tnode *c;
    struct plm_tnode *d;
    struct plm_tnode **list;
    uint8_t *ops;
    struct plm_slice name;
    const struct plm_tfunc *func; // NULL: unknown, fails when it runs
    struct plm_tcall_args *call;
    struct plm_tparam *params;
    uint32_t n_params;
    struct plm_tval value;
};

// Names with a meaning of their own.
enum { PLM_SYM_LOOP, PLM_SYM_CALLER, PLM_SYM_FIXED };

struct plm_template {
    struct plm_host *host;
    struct plm_tarena arena;
    struct plm_tnode *body;
    struct plm_slice *syms;
    uint32_t n_syms;
    uint32_t cap_syms;
    uint32_t *sym_index; // open addressing, number + 1
    uint32_t sym_index_cap;
};

// State of a load.
struct plm_tload {
    struct plm_template *tmpl;
    struct plm_error *err;
    int status;
    struct plm_slice source; // normalized
    struct plm_ttoken *tokens;
    size_t n_tokens;
    size_t cap_tokens;
    size_t at;
    uint32_t depth;
    uint32_t in_branch;       // inside a branch: unknown filters fail only when they run
    struct plm_slice unknown; // the first unknown filter or test outside of branches
    uint32_t unknown_line;
    const char *unknown_what;
    uint32_t loops;  // open loops of this function
    uint32_t macros; // open ones
};

// symbols.c. All return false after plm_tload_fail.
bool plm_tload_fail(struct plm_tload *p, int status, uint32_t line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
bool plm_tload_nomem(struct plm_tload *p);
void *plm_tload_alloc(struct plm_tload *p, size_t n, size_t size);
bool plm_tload_sym(struct plm_tload *p, struct plm_slice name, uint32_t *ret);

// lexer.c: fills p->tokens.
bool plm_tload_lex(struct plm_tload *p);

// tokens.c
struct plm_ttoken *plm_tload_tok(struct plm_tload *p);
struct plm_ttoken *plm_tload_look(struct plm_tload *p);
void plm_tload_next(struct plm_tload *p);
bool plm_tload_is_op(struct plm_tload *p, const char *op);
bool plm_tload_is_name(struct plm_tload *p, const char *name);
bool plm_tload_skip_op(struct plm_tload *p, const char *op);
bool plm_tload_skip_name(struct plm_tload *p, const char *name);
bool plm_tload_expect_op(struct plm_tload *p, const char *op);
bool plm_tload_expect_name(struct plm_tload *p, struct plm_slice *ret);
bool plm_tload_unexpected(struct plm_tload *p, const char *wanted);
bool plm_tload_enter(struct plm_tload *p);
struct plm_tnode *plm_tload_node(struct plm_tload *p, enum plm_tnode_kind kind, uint32_t line);
// A list of nodes that grows while it is parsed.
struct plm_tnodes {
    struct plm_tnode **v;
    size_t n;
    size_t cap;
};
bool plm_tload_push(struct plm_tload *p, struct plm_tnodes *list, struct plm_tnode *node);
// A node with that list.
bool plm_tload_list(struct plm_tload *p, enum plm_tnode_kind kind, uint32_t line,
                    const struct plm_tnodes *list, struct plm_tnode **ret);
bool plm_ttoken_is(const struct plm_ttoken *t, enum plm_ttoken_type type, const char *text);

// operators.c and parser.c
bool plm_tload_expression(struct plm_tload *p, bool with_cond, struct plm_tnode **ret);
bool plm_tload_unary(struct plm_tload *p, bool with_filter, struct plm_tnode **ret);
bool plm_tload_tuple(struct plm_tload *p, bool with_cond, bool parens, const char *end_name,
                     struct plm_tnode **ret);
bool plm_tload_target(struct plm_tload *p, bool with_namespace, const char *end_name,
                      struct plm_tnode **ret);
// Filters after HOLE, or *ret NULL when there are none. With start_inline the first has no `|`.
bool plm_tload_filters(struct plm_tload *p, struct plm_tnode *input, bool start_inline,
                       struct plm_tnode **ret);

// statements.c: the whole template into p->tmpl->body.
bool plm_tload_body(struct plm_tload *p);

#endif
