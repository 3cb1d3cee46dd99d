// SPDX-License-Identifier: Apache-2.0
// Evaluation: what the parts of a render call of each other.
#ifndef PLM_TEMPLATE_RUN_H
#define PLM_TEMPLATE_RUN_H

#include "core/template/ast.h"
#include "core/template/value.h"

// Arguments of a call, evaluated.
struct plm_targs {
    struct plm_tval *pos;
    size_t n_pos;
    struct plm_slice *kw_names;
    struct plm_tval *kw;
    size_t n_kw;
};

enum { PLM_TCALL_SLOTS = 6 };

struct plm_tcall {
    struct plm_tval self; // what is filtered or tested, or whose method it is
    const struct plm_tfunc *func;
    const struct plm_targs *args;       // as given
    struct plm_tval a[PLM_TCALL_SLOTS]; // bound to the names of the spec; UNSET: not given
    struct plm_tval *ret;
};

// A function, filter, test or method. spec lists its parameters: "name" takes any value, "name:s" a
// string, "name:i" an integer, "name:t" what str() makes of a value; "=" behind it says that it may
// be left out (UNSET, or the integer that follows, or 0). Before them "$": self is taken as a text;
// "/": by position only; "*": the function looks at args itself. fn NULL: Python has it, we do not.
struct plm_tfunc {
    const char *name;
    const char *spec;
    bool (*fn)(struct plm_trun *r, struct plm_tcall *c);
    int aux;
};

const struct plm_tfunc *plm_tpl_filter(struct plm_slice name);
const struct plm_tfunc *plm_tpl_test(struct plm_slice name);
const struct plm_tfunc *plm_tpl_global(struct plm_slice name);
// NULL: no such method.
const struct plm_tfunc *plm_tpl_method(const struct plm_tval *self, struct plm_slice name);
const struct plm_tfunc *plm_tpl_str_method(struct plm_slice name);
const struct plm_tfunc *plm_tpl_find_func(const struct plm_tfunc *table, size_t n,
                                          struct plm_slice name);
#define PLM_FIND_FUNC(table, name)                                                                 \
    plm_tpl_find_func(table, sizeof(table) / sizeof((table)[0]), name)
// Adds the named arguments of a call to an object.
bool plm_tdict_add_named(struct plm_trun *r, struct plm_tdict *dict, const struct plm_targs *args);

bool plm_tpl_invoke(struct plm_trun *r, const struct plm_tfunc *func, const struct plm_tval *self,
                    const struct plm_targs *args, struct plm_tval *ret);
bool plm_tpl_call(struct plm_trun *r, const struct plm_tval *callee, const struct plm_targs *args,
                  struct plm_tval *ret);
bool plm_tpl_call_macro(struct plm_trun *r, const struct plm_tmacro *macro,
                        const struct plm_targs *args, struct plm_tval *ret);

// fail.c
bool plm_tpl_fail_undef(struct plm_trun *r, const struct plm_tval *v);
bool plm_tpl_enter(struct plm_trun *r); // a level of nesting; leave with r->depth--

// render.c: a render whose variables come from the caller, who may look at its end at what was
// written, and cut it. Results as those of plm_template_render().
struct plm_trender {
    void *ctx;
    bool (*prepare)(struct plm_trun *r, void *ctx); // fills r->context
    bool (*check)(struct plm_trun *r, void *ctx);   // sees r->out; may be NULL
    uint64_t steps;                                 // that the render took
};
int plm_template_run(const struct plm_template *tmpl, const struct plm_render_opts *opts,
                     struct plm_trender *render, struct plm_render *ret, struct plm_error *err);
// Sets a member; name outlives the render.
bool plm_tpl_put(struct plm_trun *r, struct plm_tdict *dict, const char *name,
                 struct plm_tval value);

// eval.c
bool plm_tpl_eval(struct plm_trun *r, const struct plm_tnode *node, struct plm_tval *ret);
bool plm_tpl_eval_args(struct plm_trun *r, const struct plm_tcall_args *call,
                       struct plm_targs *ret);
bool plm_tpl_binary(struct plm_trun *r, int op, const struct plm_tval *a, const struct plm_tval *b,
                    struct plm_tval *ret);
bool plm_tpl_compare(struct plm_trun *r, int op, const struct plm_tval *a, const struct plm_tval *b,
                     bool *ret);

// access.c
// name outlives the render, or is plm_tpl_keep()t.
bool plm_tpl_getattr(struct plm_trun *r, const struct plm_tval *obj, const struct plm_slice *name,
                     struct plm_tval *ret);
const struct plm_slice *plm_tpl_keep(struct plm_trun *r, struct plm_slice s); // NULL: no memory
bool plm_tpl_getitem(struct plm_trun *r, const struct plm_tval *obj, const struct plm_tval *key,
                     struct plm_tval *ret);
// bound[i] may be UNSET or none.
bool plm_tpl_getslice(struct plm_trun *r, const struct plm_tval *obj,
                      const struct plm_tval bound[3], struct plm_tval *ret);
bool plm_tpl_contains(struct plm_trun *r, const struct plm_tval *item, const struct plm_tval *in,
                      bool *ret);
// Replaces v by what the keys of path (NULL: none) lead to in it; fallback (or NULL) stands in for
// what is undefined on the way.
bool plm_tpl_follow(struct plm_trun *r, const struct plm_tlist *path,
                    const struct plm_tval *fallback, struct plm_tval *v);
// PLM_T_UNSET when the loop has no such member.
bool plm_tpl_loop_attr(struct plm_trun *r, struct plm_tloop *loop, struct plm_slice name,
                       struct plm_tval *ret);

// Iteration (iter.c).
struct plm_titer {
    struct plm_tval over;
    size_t at; // of a string: bytes; of an object: entries
    bool reversed;
    // map, select and their kin: from an item of source to one of theirs; NULL elsewhere.
    bool (*step)(struct plm_trun *r, struct plm_titer *it, struct plm_tval item, bool *keep,
                 struct plm_tval *ret);
    struct plm_titer *source;
    const struct plm_tfunc *func;
    struct plm_targs args;
    struct plm_tlist *path; // attribute to look up first, or NULL
    struct plm_tval fallback;
    bool negate;
};

bool plm_titer_init(struct plm_trun *r, const struct plm_tval *over, struct plm_titer **ret);
// False at the end, and where it fails, which r->status tells apart.
bool plm_titer_next(struct plm_trun *r, struct plm_titer *it, struct plm_tval *ret);
bool plm_tpl_iterable(const struct plm_tval *v);
// Python's list(v). Never the list of v itself.
bool plm_tpl_to_list(struct plm_trun *r, const struct plm_tval *v, struct plm_tlist **ret);
// The same to read only: of a list or tuple the list itself.
bool plm_tpl_as_list(struct plm_trun *r, const struct plm_tval *v, struct plm_tlist **ret);
bool plm_tpl_len(const struct plm_tval *v, size_t *ret); // false: it has none

// Statements (exec.c).
enum plm_tflow { PLM_FLOW_NEXT, PLM_FLOW_BREAK, PLM_FLOW_CONTINUE, PLM_FLOW_FAIL };

struct plm_tloop {
    const struct plm_tnode *node;
    struct plm_tscope *scope; // around the loop
    struct plm_titer *iter;
    struct plm_tval over;
    int64_t index0;
    bool has_after;
    bool ended;
    struct plm_tval current;
    struct plm_tval before;
    struct plm_tval after;
    size_t length; // SIZE_MAX: not known yet
};

enum plm_tflow plm_tpl_exec_list(struct plm_trun *r, struct plm_tnode *const *list, uint32_t n);
bool plm_tpl_assign(struct plm_trun *r, const struct plm_tnode *target, const struct plm_tval *v);
struct plm_tscope *plm_tscope_new(struct plm_trun *r, struct plm_tscope *parent);
bool plm_tscope_set(struct plm_trun *r, struct plm_tscope *scope, uint32_t sym, struct plm_tval v);

// Texts (format.c, json.c, strftime.c).
bool plm_tpl_brace_format(struct plm_trun *r, struct plm_tstr *fmt, const struct plm_targs *args,
                          struct plm_tval *ret);
bool plm_tpl_tojson(struct plm_trun *r, struct plm_tcall *c);
bool plm_tpl_from_json(struct plm_trun *r, struct plm_tcall *c);
// What a text says in JSON, if ret_why->status is PLM_OK; else *ret_why says what is wrong with it.
bool plm_tpl_parse_json(struct plm_trun *r, const struct plm_tstr *text, struct plm_tval *ret,
                        struct plm_error *ret_why);
bool plm_tpl_from_object(struct plm_trun *r, struct json_object *obj, uint32_t origin,
                         struct plm_tval *ret);
bool plm_tpl_strftime(struct plm_trun *r, struct plm_tstr *fmt, int64_t now_s,
                      struct plm_tval *ret);

#endif
