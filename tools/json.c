// SPDX-License-Identifier: Apache-2.0
#include "tools/json.h"

#include <errno.h>
#include <json-c/json_tokener.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct key {
    const char *ptr;
    size_t len;
};

struct scan {
    const char *text;
    size_t len;
    size_t at;
    size_t depth;
    uint32_t nodes;
    int64_t tree_bytes;  // of all values so far
    struct plm_out keys; // struct key of every open object, innermost last
    struct plm_json_doc *doc;
    char *message;
    size_t message_cap;
    int status;
};

__attribute__((format(printf, 3, 4))) static bool bad(struct scan *s, int status, const char *fmt,
                                                      ...)
{
    char what[160];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    snprintf(s->message, s->message_cap, "the body is not acceptable JSON: %s at byte %zu", what,
             s->at);
    s->status = status;
    return false;
}

// What json-c takes for a value, malloc's share included: the figures of core/base/json_tree.c,
// which measures them, for those who know the public API alone. An object has a table of 16 places
// that doubles when two thirds are taken, an array one of 32 that doubles when it is full; while
// one grows, the old one stands beside it.
#define VALUE_BYTES  128 // a number with its text, or the rest of an object, array, string or key
#define TABLE_BYTES  128
#define ENTRY_BYTES  40
#define ENTRIES_MIN  16
#define LIST_BYTES   112
#define ELEMENTS_MIN 32

static int64_t object_bytes(size_t n)
{
    int64_t places = ENTRIES_MIN;
    while ((int64_t)n * 8 >= places * 5)
        places *= 2;
    return TABLE_BYTES + (places > ENTRIES_MIN ? places + places / 2 : places) * ENTRY_BYTES;
}

static int64_t array_bytes(size_t n)
{
    int64_t places = ELEMENTS_MIN;
    while ((int64_t)n >= places)
        places *= 2;
    return LIST_BYTES +
           (places > ELEMENTS_MIN ? places + places / 2 : places) * (int64_t)sizeof(void *);
}

static int peek(const struct scan *s)
{
    return s->at < s->len ? (unsigned char)s->text[s->at] : -1;
}

static void skip_blanks(struct scan *s)
{
    while (s->at < s->len && s->text[s->at] != '\0' && strchr(" \t\r\n", s->text[s->at]) != NULL)
        s->at++;
}

static int hex(int c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

// Four hexadecimal digits at p, or -1.
static int32_t hex4(const char *p, size_t n)
{
    if (n < 4)
        return -1;
    int32_t v = 0;
    for (int i = 0; i < 4; i++) {
        int d = hex((unsigned char)p[i]);
        if (d < 0)
            return -1;
        v = v * 16 + d;
    }
    return v;
}

// Reads one character or escape of a string and stores its code point. Returns the bytes read, 0
// when it is malformed. n > 0 bytes are there.
static size_t read_char(const char *p, size_t n, uint32_t *ret)
{
    if (*p != '\\') {
        size_t len = plm_utf8_len(p, n);
        if (len == 0)
            return 0;
        static const unsigned char lead[5] = {0, 0x7F, 0x1F, 0x0F, 0x07};
        uint32_t cp = (unsigned char)p[0] & lead[len];
        for (size_t i = 1; i < len; i++)
            cp = cp << 6 | ((unsigned char)p[i] & 0x3F);
        *ret = cp;
        return len;
    }
    if (n < 2)
        return 0;
    static const char names[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
    const char *simple = p[1] != '\0' ? strchr(names, p[1]) : NULL;
    if (simple != NULL) {
        *ret = (unsigned char)means[simple - names];
        return 2;
    }
    int32_t hi = p[1] == 'u' ? hex4(p + 2, n - 2) : -1;
    if (hi < 0 || (hi >= 0xDC00 && hi < 0xE000))
        return 0;
    *ret = (uint32_t)hi;
    if (hi < 0xD800 || hi >= 0xE000)
        return 6;
    int32_t lo = n >= 8 && p[6] == '\\' && p[7] == 'u' ? hex4(p + 8, n - 8) : -1;
    if (lo < 0xDC00 || lo >= 0xE000)
        return 0;
    *ret = 0x10000 + (((uint32_t)hi - 0xD800) << 10) + ((uint32_t)lo - 0xDC00);
    return 12;
}

static bool scan_string(struct scan *s)
{
    s->at++;
    for (;;) {
        int c = peek(s);
        if (c < 0)
            return bad(s, PLIM_ERR_INVALID, "a string does not end");
        if (c == '"') {
            s->at++;
            return true;
        }
        if (c < 0x20)
            return bad(s, PLIM_ERR_INVALID, "a control character in a string");
        if (c < 0x80 && c != '\\') {
            s->at++;
            continue;
        }
        uint32_t cp;
        size_t n = read_char(s->text + s->at, s->len - s->at, &cp);
        if (n == 0)
            return bad(s, PLIM_ERR_INVALID,
                       c == '\\' ? "a bad escape or lone surrogate" : "bytes that are not UTF-8");
        s->at += n;
    }
}

static size_t scan_digits(struct scan *s)
{
    size_t from = s->at;
    while (peek(s) >= '0' && peek(s) <= '9')
        s->at++;
    return s->at - from;
}

static bool scan_number(struct scan *s)
{
    if (peek(s) == '-')
        s->at++;
    bool zero = peek(s) == '0';
    size_t whole = scan_digits(s);
    if (whole == 0 || (zero && whole > 1))
        return bad(s, PLIM_ERR_INVALID, "a malformed number");
    if (peek(s) == '.') {
        s->at++;
        if (scan_digits(s) == 0)
            return bad(s, PLIM_ERR_INVALID, "a malformed number");
    }
    if (peek(s) == 'e' || peek(s) == 'E') {
        s->at++;
        if (peek(s) == '+' || peek(s) == '-')
            s->at++;
        if (scan_digits(s) == 0)
            return bad(s, PLIM_ERR_INVALID, "a malformed number");
    }
    return true;
}

static bool scan_word(struct scan *s, const char *word)
{
    size_t n = strlen(word);
    if (s->len - s->at < n || memcmp(s->text + s->at, word, n) != 0)
        return bad(s, PLIM_ERR_INVALID, "an unknown word");
    s->at += n;
    return true;
}

// Orders keys by what they mean, so that "a" and "\u0061" are the same.
static int compare_keys(const void *left, const void *right)
{
    const struct key *a = left, *b = right;
    size_t i = 0, j = 0;
    while (i < a->len && j < b->len) {
        uint32_t x = 0, y = 0;
        i += read_char(a->ptr + i, a->len - i, &x);
        j += read_char(b->ptr + j, b->len - j, &y);
        if (x != y)
            return x < y ? -1 : 1;
    }
    return (i < a->len) - (j < b->len);
}

// Sorts the keys of the object that ends here (an order of n log n, whatever the keys are) and
// looks for equal neighbours.
static bool check_duplicates(struct scan *s, size_t first)
{
    struct key *keys = (struct key *)(void *)s->keys.data;
    size_t n = s->keys.len / sizeof(struct key) - first;
    if (n > 1)
        qsort(keys + first, n, sizeof(*keys), compare_keys);
    for (size_t i = 1; i < n; i++) {
        const struct key *k = &keys[first + i];
        if (compare_keys(k - 1, k) == 0) {
            s->at = (size_t)(k->ptr - s->text);
            return bad(s, PLIM_ERR_INVALID, "the key \"%.*s\" occurs twice",
                       (int)(k->len < 40 ? k->len : 40), k->ptr);
        }
    }
    s->keys.len = first * sizeof(struct key);
    return true;
}

static bool scan_value(struct scan *s, struct plm_json_value *ret);

static bool count_node(struct scan *s)
{
    if (++s->nodes > PLM_JSON_NODES_MAX)
        return bad(s, PLIM_ERR_LIMIT, "more than %d values", PLM_JSON_NODES_MAX);
    s->tree_bytes += VALUE_BYTES;
    return true;
}

// JSON allows NUL in a key, but json-c ends the key there: "5\u0000x" would become "5".
static bool has_nul(const struct key *key)
{
    uint32_t cp = 1;
    for (size_t i = 0; i < key->len && cp != 0;)
        i += read_char(key->ptr + i, key->len - i, &cp);
    return cp == 0;
}

static bool scan_key(struct scan *s, struct key *ret)
{
    skip_blanks(s);
    if (peek(s) != '"')
        return bad(s, PLIM_ERR_INVALID, "a key in double quotes is missing");
    size_t from = s->at + 1;
    if (!count_node(s) || !scan_string(s))
        return false;
    *ret = (struct key){s->text + from, s->at - 1 - from};
    if (has_nul(ret))
        return bad(s, PLIM_ERR_INVALID, "a key that holds a NUL character");
    plm_out_bytes(&s->keys, ret, sizeof(*ret));
    if (s->keys.failed)
        return bad(s, PLIM_ERR_NOMEM_HOST, "no host memory for its keys");
    skip_blanks(s);
    if (peek(s) != ':')
        return bad(s, PLIM_ERR_INVALID, "a colon is missing");
    s->at++;
    return true;
}

static bool keep_member(struct scan *s, const struct key *key, const struct plm_json_value *value)
{
    if (s->doc->n == PLM_JSON_MEMBERS_MAX)
        return bad(s, PLIM_ERR_LIMIT, "more than %d fields", PLM_JSON_MEMBERS_MAX);
    s->doc->members[s->doc->n++] = (struct plm_json_member){key->ptr, key->len, *value};
    return true;
}

// After an element: true and *more set when a comma or the closing bracket follows.
static bool scan_comma(struct scan *s, int closing, bool *more)
{
    skip_blanks(s);
    int c = peek(s);
    if (c != ',' && c != closing)
        return bad(s, PLIM_ERR_INVALID, "a comma or closing bracket is missing");
    s->at++;
    *more = c == ',';
    return true;
}

static bool scan_object(struct scan *s)
{
    size_t first = s->keys.len / sizeof(struct key);
    s->at++;
    skip_blanks(s);
    bool more = peek(s) != '}';
    if (!more)
        s->at++;
    while (more) {
        struct key key;
        struct plm_json_value value;
        if (!scan_key(s, &key) || !scan_value(s, &value))
            return false;
        if (s->depth == 1 && !keep_member(s, &key, &value))
            return false;
        if (!scan_comma(s, '}', &more))
            return false;
    }
    s->tree_bytes += object_bytes(s->keys.len / sizeof(struct key) - first);
    return check_duplicates(s, first);
}

static bool scan_array(struct scan *s)
{
    s->at++;
    skip_blanks(s);
    bool more = peek(s) != ']';
    if (!more)
        s->at++;
    size_t n = 0;
    for (; more; n++) {
        struct plm_json_value value;
        if (!scan_value(s, &value) || !scan_comma(s, ']', &more))
            return false;
    }
    s->tree_bytes += array_bytes(n);
    return true;
}

static bool scan_nested(struct scan *s, bool object)
{
    if (s->depth == PLM_JSON_DEPTH_MAX)
        return bad(s, PLIM_ERR_LIMIT, "nested more than %d deep", PLM_JSON_DEPTH_MAX);
    s->depth++;
    bool ok = object ? scan_object(s) : scan_array(s);
    s->depth--;
    return ok;
}

static bool scan_value(struct scan *s, struct plm_json_value *ret)
{
    skip_blanks(s);
    size_t from = s->at;
    const uint32_t nodes = s->nodes;
    const int64_t tree_bytes = s->tree_bytes;
    if (!count_node(s))
        return false;
    bool ok;
    int c = peek(s);
    switch (c) {
    case '{':
        ret->type = PLM_JSON_OBJECT;
        ok = scan_nested(s, true);
        break;
    case '[':
        ret->type = PLM_JSON_ARRAY;
        ok = scan_nested(s, false);
        break;
    case '"':
        ret->type = PLM_JSON_STRING;
        ok = scan_string(s);
        break;
    case 't':
    case 'f':
        ret->type = PLM_JSON_BOOL;
        ok = scan_word(s, c == 't' ? "true" : "false");
        break;
    case 'n':
        ret->type = PLM_JSON_NULL;
        ok = scan_word(s, "null");
        break;
    case -1: return bad(s, PLIM_ERR_INVALID, "it ends too early");
    default:
        if (c != '-' && (c < '0' || c > '9'))
            return bad(s, PLIM_ERR_INVALID, "a value is missing");
        ret->type = PLM_JSON_NUMBER;
        ok = scan_number(s);
    }
    ret->ptr = s->text + from;
    ret->len = s->at - from;
    ret->nodes = s->nodes - nodes;
    ret->tree_bytes = s->tree_bytes - tree_bytes;
    return ok;
}

int plm_json_scan(const char *text, size_t len, plim_engine *engine, struct plm_json_doc *ret,
                  char *message, size_t message_cap)
{
    struct scan s = {.text = text, .len = len, .doc = ret};
    s.message = message;
    s.message_cap = message_cap;
    plm_out_init(&s.keys, engine);
    ret->n = 0;
    struct plm_json_value value;
    bool ok = scan_value(&s, &value);
    if (ok) {
        skip_blanks(&s);
        if (s.at != len)
            ok = bad(&s, PLIM_ERR_INVALID, "something follows the value");
        else if (value.type != PLM_JSON_OBJECT)
            ok = bad(&s, PLIM_ERR_INVALID, "it is not an object");
    }
    plm_out_finish(&s.keys);
    return ok ? PLIM_OK : s.status;
}

bool plm_json_key_is(const struct plm_json_member *member, const char *name)
{
    return compare_keys(&(struct key){name, strlen(name)},
                        &(struct key){member->key, member->key_len}) == 0;
}

const struct plm_json_value *plm_json_get(const struct plm_json_doc *doc, const char *name)
{
    for (size_t i = 0; i < doc->n; i++) {
        const struct plm_json_member *m = &doc->members[i];
        if (plm_json_key_is(m, name))
            return m->value.type == PLM_JSON_NULL ? NULL : &m->value;
    }
    return NULL;
}

const char *plm_json_type_name(enum plm_json_type type)
{
    static const char *const names[] = {"null",     "a boolean", "a number",
                                        "a string", "an array",  "an object"};
    return names[type];
}

bool plm_json_is_true(const struct plm_json_value *value)
{
    return value->type == PLM_JSON_BOOL && value->ptr[0] == 't';
}

// Numbers are copied out, because strtod needs their end; longer ones are not numbers anybody
// means.
#define NUMBER_CHARS 64

static bool number_text(const struct plm_json_value *value, char out[NUMBER_CHARS])
{
    if (value->type != PLM_JSON_NUMBER || value->len >= NUMBER_CHARS)
        return false;
    memcpy(out, value->ptr, value->len);
    out[value->len] = '\0';
    return true;
}

double plm_json_double(const struct plm_json_value *value)
{
    char text[NUMBER_CHARS];
    return number_text(value, text) ? strtod(text, NULL) : (double)NAN;
}

bool plm_json_int(const struct plm_json_value *value, int64_t *ret)
{
    char text[NUMBER_CHARS];
    if (!number_text(value, text))
        return false;
    if (text[strcspn(text, ".eE")] == '\0') {
        errno = 0;
        long long n = strtoll(text, NULL, 10);
        if (errno != 0)
            return false;
        *ret = n;
        return true;
    }
    double d = strtod(text, NULL);
    // Beyond 2^53 a double does not tell neighbours apart.
    if (!(fabs(d) <= 9007199254740992.0) || d != floor(d))
        return false;
    *ret = (int64_t)d;
    return true;
}

bool plm_json_u64(const struct plm_json_value *value, uint64_t *ret)
{
    char text[NUMBER_CHARS];
    if (!number_text(value, text) || text[strspn(text, "0123456789")] != '\0')
        return false;
    errno = 0;
    unsigned long long n = strtoull(text, NULL, 10);
    if (errno != 0)
        return false;
    *ret = n;
    return true;
}

static size_t encode(uint32_t cp, char out[4])
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    size_t n = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    static const unsigned char lead[5] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = n - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (cp & 0x3F));
        cp >>= 6;
    }
    out[0] = (char)(lead[n] | cp);
    return n;
}

void plm_json_text(const struct plm_json_value *value, struct plm_out *out)
{
    if (value->type != PLM_JSON_STRING)
        return;
    const char *p = value->ptr + 1, *end = value->ptr + value->len - 1;
    while (p < end && !out->failed) {
        const char *escape = memchr(p, '\\', (size_t)(end - p));
        const char *stop = escape != NULL ? escape : end;
        plm_out_bytes(out, p, (size_t)(stop - p));
        p = stop;
        if (p == end)
            break;
        uint32_t cp = 0;
        char utf8[4];
        // The scan has been here: it is well-formed.
        p += read_char(p, (size_t)(end - p), &cp);
        plm_out_bytes(out, utf8, encode(cp, utf8));
    }
}

// json-c 0.16 corrupts escaped surrogate pairs of some characters (U+2D800, say), so that it gets
// them as UTF-8. A copy in which they are, no longer than the value and freed by the caller; the
// scan has been here. NULL: no memory.
static char *join_pairs(const struct plm_json_value *value, size_t *ret_len)
{
    char *out = malloc(value->len > 0 ? value->len : 1);
    size_t n = 0;
    for (size_t at = 0; out != NULL && at < value->len;) {
        uint32_t cp = 0;
        // Outside of strings there are neither backslashes nor bytes beyond ASCII.
        size_t len = read_char(value->ptr + at, value->len - at, &cp);
        if (len == 12)
            n += encode(cp, out + n);
        else
            memcpy(out + n, value->ptr + at, len);
        n += len == 12 ? 0 : len;
        at += len;
    }
    *ret_len = n;
    return out;
}

// Of the tokener with its levels, while it works.
#define PARSER_BYTES (4 << 10)

struct json_object *plm_json_tree(const struct plm_json_value *value, plim_engine *engine,
                                  int64_t *ret_charged)
{
    // The text is in the tree, in a copy, and in the tokener's buffer, which doubles.
    int64_t cost = value->tree_bytes + PARSER_BYTES + 5 * (int64_t)value->len;
    if (value->len > INT32_MAX / 4)
        return NULL;
    *ret_charged = cost;
    if (engine != NULL && plim_engine_host_charge(engine, cost) != PLIM_OK)
        return NULL;
    struct json_tokener *tok = json_tokener_new_ex(PLM_JSON_DEPTH_MAX);
    struct json_object *tree = NULL;
    size_t len = 0;
    char *text = join_pairs(value, &len);
    if (tok != NULL && text != NULL) {
        json_tokener_set_flags(tok, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
        tree = json_tokener_parse_ex(tok, text, (int)len);
        // A number has no end of its own: the tokener waits for one more byte.
        if (tree == NULL && json_tokener_get_error(tok) == json_tokener_continue)
            tree = json_tokener_parse_ex(tok, " ", 1);
    }
    free(text);
    if (tok != NULL)
        json_tokener_free(tok);
    if (tree == NULL && engine != NULL)
        plim_engine_host_discharge(engine, cost);
    return tree;
}

void plm_json_release(struct json_object *tree, plim_engine *engine, int64_t charged)
{
    if (tree == NULL)
        return;
    json_object_put(tree);
    if (engine != NULL)
        plim_engine_host_discharge(engine, charged);
}
