// SPDX-License-Identifier: Apache-2.0
// Values of a render. They live in the arena of the render and are never freed one by one. What
// they do follows Python, since templates are written against Python's Jinja.
#ifndef PLM_TEMPLATE_VALUE_H
#define PLM_TEMPLATE_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/status.h"
#include "core/template/arena.h"
#include "core/template/template.h"

struct plm_tnode;
struct plm_tfunc;

enum plm_tkind {
    PLM_T_UNSET, // no value at all: an argument that was not given
    PLM_T_UNDEF,
    PLM_T_NONE,
    PLM_T_BOOL,
    PLM_T_INT,
    PLM_T_UINT, // an integer above INT64_MAX
    PLM_T_FLOAT,
    PLM_T_STR,
    PLM_T_LIST,
    PLM_T_TUPLE,
    PLM_T_DICT,
    PLM_T_VIEW, // keys, values or items of an object
    PLM_T_RANGE,
    PLM_T_ITER, // a lazy sequence, consumed once
    PLM_T_FUNC,
    PLM_T_METHOD,
    PLM_T_MACRO,
    PLM_T_SPACE, // namespace()
    PLM_T_LOOP,
};

struct plm_tval {
    enum plm_tkind kind;
    union {
        bool b;
        int64_t i;
        uint64_t u; // UINT
        double d;
        const struct plm_slice *name; // UNDEF: what was looked up, or NULL
        struct plm_tstr *str;
        struct plm_tlist *list; // LIST and TUPLE
        struct plm_tdict *dict; // DICT and SPACE
        struct plm_tview *view;
        struct plm_trange *range;
        struct plm_titer *iter;
        const struct plm_tfunc *func;
        struct plm_tmethod *method;
        struct plm_tmacro *macro;
        struct plm_tloop *loop;
    };
};

// Where bytes come from. Every origin but the template is the conversation; from TEXT on each is a
// text that whoever renders numbered, to see what became of it. A bool that says whether bytes are
// the user's is one of the first two.
enum { PLM_ORIGIN_TEMPLATE, PLM_ORIGIN_USER, PLM_ORIGIN_TEXT };

// Where a stretch of bytes ends, and its origin.
struct plm_torigin {
    size_t end;
    uint32_t origin;
};

// Bytes with their origins. Strings are views of such a buffer; whoever holds the view at its end
// may append, which leaves all other views as they are, so that s = s + t in a loop is linear.
struct plm_tbuf {
    char *data;
    size_t len;
    size_t cap; // 0: somebody else's bytes, never written
    struct plm_torigin *runs;
    size_t n_runs;
    size_t cap_runs;
    struct plm_torigin one; // storage of the first run
};

struct plm_tstr {
    struct plm_tbuf *buf;
    size_t off;
    size_t len;
    size_t n_chars; // SIZE_MAX: not counted yet
    bool markup;    // came from `safe` or `escape`: + escapes the other side
};

struct plm_tlist {
    struct plm_tval *v;
    size_t n;
    size_t cap;
    bool user;  // came with the conversation
    bool parts; // the content of a message, given as parts
};

struct plm_tentry {
    struct plm_tval key; // UNSET: removed
    struct plm_tval value;
    uint64_t hash;
};

// Keeps the order of insertion.
struct plm_tdict {
    struct plm_tentry *entries;
    size_t n; // entries in use, removed ones included
    size_t cap;
    size_t live;
    uint32_t *index; // open addressing, entry number + 1; NULL while the object is small
    size_t index_cap;
    bool user;
    bool args; // the arguments of a tool call
};

enum plm_tview_what { PLM_T_KEYS, PLM_T_VALUES, PLM_T_ITEMS };

struct plm_tview {
    struct plm_tdict *dict;
    enum plm_tview_what what;
};

struct plm_trange {
    int64_t start;
    int64_t stop;
    int64_t step;
    int64_t n;
};

struct plm_tmethod {
    struct plm_tval self;
    const struct plm_tfunc *func;
};

struct plm_tmacro {
    const struct plm_tnode *node;
    struct plm_tscope *scope; // where it was defined
};

// Variables of one block; looked up from the inside out.
struct plm_tvar {
    uint32_t sym;
    struct plm_tval value;
};

struct plm_tscope {
    struct plm_tscope *parent;
    struct plm_tvar *vars;
    size_t n;
    size_t cap;
    bool captured; // a macro holds it
};

// Where the last search for a character ended.
struct plm_tseek {
    const struct plm_tstr *str;
    size_t chars;
    size_t bytes;
};

// One render.
struct plm_trun {
    struct plm_tarena arena;
    const struct plm_template *tmpl;
    struct plm_render_limits limits;
    int64_t now_s;
    uint64_t steps;
    uint64_t told_steps; // of them, what the thread's work knows of
    uint32_t depth;
    uint32_t line; // of what is being evaluated
    int status;    // of the first failure
    struct plm_error *err;
    struct plm_tbuf *out; // where output goes
    struct plm_tdict *context;
    struct plm_tscope *scope;
    struct plm_tseek seek;
    struct plm_tval hole; // input of the filter of a filter block
    bool printed_parts;   // parts of a message, or arguments of a call, as they stand in memory
    bool printed_args;
};

// Failures (fail.c). All return false, so that callers write `return plm_tpl_fail(...)`.
bool plm_tpl_fail(struct plm_trun *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool plm_tpl_fail_as(struct plm_trun *r, const char *msg); // INVALID, in these words alone
bool plm_tpl_fail_memory(struct plm_trun *r);
bool plm_tpl_fail_limit(struct plm_trun *r, const char *what);
// Counts work; n is in units of about one evaluated node.
bool plm_tpl_step(struct plm_trun *r, uint64_t n);
// Reports what was not reported yet to the work of the thread (core/base/work.h), which may end it.
bool plm_tpl_tell_steps(struct plm_trun *r);
// Counts work on bytes.
bool plm_tpl_work(struct plm_trun *r, size_t bytes);
void *plm_tpl_alloc(struct plm_trun *r, size_t bytes);
void *plm_tpl_array(struct plm_trun *r, size_t n, size_t size);

// Strings (string.c).
struct plm_tbuf *plm_tbuf_new(struct plm_trun *r);
bool plm_tbuf_reserve(struct plm_trun *r, struct plm_tbuf *buf, size_t n);
bool plm_tbuf_add(struct plm_trun *r, struct plm_tbuf *buf, const char *p, size_t n,
                  uint32_t origin);
bool plm_tbuf_add_str(struct plm_trun *r, struct plm_tbuf *buf, const struct plm_tstr *s);
bool plm_tbuf_add_part(struct plm_trun *r, struct plm_tbuf *buf, const struct plm_tstr *s,
                       size_t off, size_t len);
// With & < > and quotes as HTML entities.
bool plm_tbuf_add_escaped(struct plm_trun *r, struct plm_tbuf *buf, const struct plm_tstr *s);
bool plm_tbuf_addz(struct plm_trun *r, struct plm_tbuf *buf, const char *s, uint32_t origin);
// The whole buffer as a string.
bool plm_tbuf_value(struct plm_trun *r, struct plm_tbuf *buf, struct plm_tval *ret);
// View of bytes that outlive the render.
struct plm_tstr *plm_tstr_view(struct plm_trun *r, const char *p, size_t n, uint32_t origin);
struct plm_tstr *plm_tstr_sub(struct plm_trun *r, const struct plm_tstr *s, size_t off, size_t len);
struct plm_tstr *plm_tstr_copyz(struct plm_trun *r, const char *s, bool user);
bool plm_tstr_valz(struct plm_trun *r, const char *s, struct plm_tval *ret);
bool plm_tstr_val(struct plm_tstr *s, struct plm_tval *ret); // false when s is NULL
bool plm_tstr_concat(struct plm_trun *r, const struct plm_tstr *a, const struct plm_tstr *b,
                     struct plm_tval *ret);
static inline const char *plm_tstr_ptr(const struct plm_tstr *s)
{
    return s->buf->data + s->off;
}
static inline struct plm_slice plm_tstr_slice(const struct plm_tstr *s)
{
    return (struct plm_slice){plm_tstr_ptr(s), s->len};
}
bool plm_tstr_is(const struct plm_tstr *s, const char *z);
uint32_t plm_tstr_origin_at(const struct plm_tstr *s, size_t off);
// The first origin that is not the template, or that.
uint32_t plm_tstr_origin(const struct plm_tstr *s);
bool plm_tstr_any_user(const struct plm_tstr *s);
size_t plm_tstr_chars(struct plm_tstr *s);
// Byte offset of character i (i <= number of characters).
bool plm_tstr_offset(struct plm_trun *r, struct plm_tstr *s, size_t i, size_t *ret);
// Length of the character at p (at least 1, for malformed bytes too) and its code point.
size_t plm_tstr_next(const char *p, const char *end, uint32_t *ret_cp);
size_t plm_tstr_prev(const char *begin, const char *p, uint32_t *ret_cp);
int plm_tstr_cmp(const struct plm_tstr *a, const struct plm_tstr *b);
bool plm_cp_is_space(uint32_t cp);
bool plm_cp_is_printable(uint32_t cp);
// Finds needle in s from byte offset `from`; SIZE_MAX when it is not there.
size_t plm_tstr_find(const struct plm_tstr *s, struct plm_slice needle, size_t from);
// Finds the last needle that ends at or before byte `to`.
bool plm_tstr_rfind(struct plm_trun *r, const struct plm_tstr *s, struct plm_slice needle,
                    size_t to, size_t *ret);

// Values (value.c).
const char *plm_tval_type(const struct plm_tval *v); // Python's name of the type
bool plm_tval_truth(const struct plm_tval *v);
bool plm_tval_eq(struct plm_trun *r, const struct plm_tval *a, const struct plm_tval *b, bool *ret);
// Order of a and b as -1, 0, 1; fails for types without one. *ret_nan when a NaN was seen.
bool plm_tval_cmp(struct plm_trun *r, const struct plm_tval *a, const struct plm_tval *b, int *ret,
                  bool *ret_nan, const char *op);
bool plm_tval_hash(struct plm_trun *r, const struct plm_tval *v, uint64_t *ret);
bool plm_tval_hashable(const struct plm_tval *v);
// Python's str() and repr(), appended (print.c).
bool plm_tval_print(struct plm_trun *r, struct plm_tbuf *buf, const struct plm_tval *v);
bool plm_tval_repr(struct plm_trun *r, struct plm_tbuf *buf, const struct plm_tval *v);
// Replaces a value by the string that str() makes of it.
bool plm_tval_text(struct plm_trun *r, struct plm_tval *v);

static inline struct plm_tval plm_tval_bool(bool b)
{
    return (struct plm_tval){.kind = PLM_T_BOOL, .b = b};
}
static inline struct plm_tval plm_tval_int(int64_t i)
{
    return (struct plm_tval){.kind = PLM_T_INT, .i = i};
}
static inline struct plm_tval plm_tval_float(double d)
{
    return (struct plm_tval){.kind = PLM_T_FLOAT, .d = d};
}
static inline struct plm_tval plm_tval_none(void)
{
    return (struct plm_tval){.kind = PLM_T_NONE};
}
static inline struct plm_tval plm_tval_undef(const struct plm_slice *name)
{
    return (struct plm_tval){.kind = PLM_T_UNDEF, .name = name};
}
static inline bool plm_tval_is_int(const struct plm_tval *v) // bool counts
{
    return v->kind == PLM_T_INT || v->kind == PLM_T_BOOL || v->kind == PLM_T_UINT;
}
static inline bool plm_tval_is_number(const struct plm_tval *v)
{
    return plm_tval_is_int(v) || v->kind == PLM_T_FLOAT;
}
// Of BOOL and INT.
static inline int64_t plm_tval_small(const struct plm_tval *v)
{
    return v->kind == PLM_T_BOOL ? v->b : v->i;
}

// Lists and objects (collection.c).
struct plm_tlist *plm_tlist_new(struct plm_trun *r, size_t cap);
bool plm_tlist_add(struct plm_trun *r, struct plm_tlist *list, struct plm_tval v);
bool plm_tlist_val(struct plm_tlist *list, enum plm_tkind kind, struct plm_tval *ret);
struct plm_tdict *plm_tdict_new(struct plm_trun *r);
bool plm_tdict_set(struct plm_trun *r, struct plm_tdict *dict, struct plm_tval key,
                   struct plm_tval value);
// NULL value when the key is not there; fails only for what can not be hashed.
bool plm_tdict_get(struct plm_trun *r, const struct plm_tdict *dict, const struct plm_tval *key,
                   struct plm_tval **ret);
bool plm_tdict_merge(struct plm_trun *r, struct plm_tdict *into, const struct plm_tdict *from);
struct plm_tval *plm_tdict_find(const struct plm_tdict *dict, struct plm_slice name);
void plm_tdict_remove(struct plm_tdict *dict, struct plm_tval *value);
uint64_t plm_tstr_hash(struct plm_slice s);
void plm_tlist_reverse(struct plm_tlist *list);
// Stable sort of n values by keys (both are permuted).
bool plm_tlist_sort(struct plm_trun *r, struct plm_tval *values, struct plm_tval *keys, size_t n,
                    bool reverse);

// Numbers (number.c). Independent of the locale.
double plm_tnum_double(const struct plm_tval *v);  // of any number
__int128 plm_tnum_whole(const struct plm_tval *v); // of any integer
// False where i is below INT64_MIN or above UINT64_MAX, which no value holds.
bool plm_tnum_fits(__int128 i, struct plm_tval *ret);
bool plm_tnum_fail_beyond(struct plm_trun *r);
// Without its fraction.
bool plm_tnum_from_double(struct plm_trun *r, double d, struct plm_tval *ret);
void plm_tnum_repr(double d, char out[40]); // shortest text that reads back as d
// printf of one double, with '.' as the point. Returns the length that was needed.
size_t plm_tnum_printf(char *out, size_t cap, char conv, int precision, double d);
bool plm_tnum_parse_double(const char *s, size_t n, double *ret);
// Python's int(text) and float(text).
enum plm_tint { PLM_TINT_OK, PLM_TINT_NONE, PLM_TINT_BEYOND }; // no integer; beyond 64 bits
enum plm_tint plm_tnum_int_text(struct plm_slice s, struct plm_tval *ret);
bool plm_tnum_float_text(struct plm_slice s, double *ret);
bool plm_tnum_binary(struct plm_trun *r, int op, const struct plm_tval *a, const struct plm_tval *b,
                     struct plm_tval *ret);
bool plm_tnum_round(struct plm_trun *r, const struct plm_tval *v, int64_t digits,
                    struct plm_tval *ret);

#endif
