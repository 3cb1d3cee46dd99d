// SPDX-License-Identifier: Apache-2.0
#include "core/base/json_tree.h"

#include <json-c/json.h>
#include <string.h>

#include "core/base/json.h"
#include "core/base/work.h"

// What json-c 0.16 takes on 64 bits, measured with glibc's malloc: each of its blocks with the 8
// bytes before it, the rounding to 16, and the 16 that malloc leaves with a block where what is
// over is too little for another. test_json_tree holds these against the allocations of a parse.
enum {
    VALUE_BYTES = 80,       // a number, a boolean; an object or array without what it holds
    NUMBER_TEXT_BYTES = 48, // beside the digits: a number with a point keeps its text
    STRING_BYTES = 96,      // beside the bytes of a string
    NAME_BYTES = 48,        // beside the bytes of a member's name
    TABLE_BYTES = 128,      // of an object, without its entries
    ENTRY_BYTES = 40,       // of one place in it
    ENTRIES_MIN = 16,       // places of a new table; it doubles when two thirds are taken
    LIST_BYTES = 112,       // of an array, without its elements
    ELEMENTS_MIN = 32,      // places of a new array; it doubles when all are taken
    PARSER_BYTES = 1024,    // of a parser with its first buffer
    LEVEL_BYTES = 32,       // of each level that it can go down
};

// Bytes of an object of n members without their names and values. While a table grows, the old one
// stands beside the new one, of twice its size.
static int64_t object_bytes(size_t n)
{
    int64_t places = ENTRIES_MIN;
    // json-c compares with 0.66; five eighths are safely below.
    while ((int64_t)n * 8 >= places * 5)
        places *= 2;
    int64_t growing = places > ENTRIES_MIN ? places / 2 : 0;
    return VALUE_BYTES + TABLE_BYTES + (places + growing) * ENTRY_BYTES;
}

static int64_t array_bytes(size_t n)
{
    int64_t places = ELEMENTS_MIN;
    while ((int64_t)n >= places)
        places *= 2;
    int64_t growing = places > ELEMENTS_MIN ? places / 2 : 0;
    return VALUE_BYTES + LIST_BYTES + (places + growing) * (int64_t)sizeof(void *);
}

// ---- what a text can become ----

struct measure {
    struct plm_slice text;
    size_t at;
    struct plm_json_cost cost;
    uint32_t nodes_max;
    size_t longest; // string or number
    // The containers that are open.
    size_t depth;
    struct {
        bool object;
        size_t commas;
    } open[PLM_JSON_TREE_DEPTH_MAX];
    struct plm_error *err;
};

static int too_many(const struct measure *m, const char *what, unsigned max)
{
    return plm_fail(m->err, PLM_ERR_LIMIT, "JSON at byte %zu: more than %u %s", m->at, max, what);
}

static int add_node(struct measure *m, int64_t bytes)
{
    if (m->cost.nodes == m->nodes_max)
        return too_many(m, "values", m->nodes_max);
    m->cost.nodes++;
    m->cost.tree_bytes += bytes;
    return PLM_OK;
}

static void close_container(struct measure *m)
{
    if (m->depth == 0)
        return; // json-c says what is wrong
    m->depth--;
    const size_t n = m->open[m->depth].commas + 1;
    m->cost.tree_bytes += m->open[m->depth].object ? object_bytes(n) : array_bytes(n);
}

static int open_container(struct measure *m, bool object)
{
    if (m->depth == PLM_JSON_TREE_DEPTH_MAX)
        return too_many(m, "levels", PLM_JSON_TREE_DEPTH_MAX);
    m->open[m->depth].object = object;
    m->open[m->depth++].commas = 0;
    m->at++;
    return add_node(m, 0);
}

// A string from its first quote to behind its last one, or to the end of the text.
static int measure_string(struct measure *m)
{
    const char *p = m->text.ptr;
    const size_t from = m->at++;
    while (m->at < m->text.len && p[m->at] != '"')
        m->at += p[m->at] == '\\' ? 2 : 1;
    m->at = m->at < m->text.len ? m->at + 1 : m->text.len;
    // No escape is shorter than what it spells.
    const size_t len = m->at - from;
    m->longest = len > m->longest ? len : m->longest;
    return add_node(m, STRING_BYTES + (int64_t)len);
}

static bool is_word(char c)
{
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c == '-' ||
           c == '+' || c == '.';
}

// A number, or true, false, null.
static int measure_word(struct measure *m)
{
    const size_t from = m->at;
    bool keeps_text = false;
    for (; m->at < m->text.len && is_word(m->text.ptr[m->at]); m->at++)
        keeps_text |= m->text.ptr[m->at] == '.' || (m->text.ptr[m->at] | 0x20) == 'e';
    const size_t len = m->at - from;
    m->longest = len > m->longest ? len : m->longest;
    return add_node(m, VALUE_BYTES + (keeps_text ? NUMBER_TEXT_BYTES + (int64_t)len : 0));
}

static int measure_next(struct measure *m)
{
    const char c = m->text.ptr[m->at];
    switch (c) {
    case '{':
    case '[': return open_container(m, c == '{');
    case '}':
    case ']': close_container(m); break;
    case '"': return measure_string(m);
    case ',':
        if (m->depth > 0)
            m->open[m->depth - 1].commas++;
        break;
    case ':':
    case ' ':
    case '\t':
    case '\r':
    case '\n': break;
    default:
        if (is_word(c))
            return measure_word(m);
        return plm_fail(m->err, PLM_ERR_FORMAT, "JSON at byte %zu: not the start of a value",
                        m->at);
    }
    m->at++;
    return PLM_OK;
}

int plm_json_measure(struct plm_slice text, uint32_t nodes_max, struct plm_json_cost *ret,
                     struct plm_error *err)
{
    struct measure m = {.text = text, .nodes_max = nodes_max, .err = err};
    while (m.at < text.len) {
        int r = measure_next(&m);
        if (r != PLM_OK)
            return r;
    }
    while (m.depth > 0) // the text ends too early, but what it opened was made
        close_container(&m);
    // The parser gathers a string in a buffer that doubles, the old one beside the new one.
    m.cost.parse_bytes =
        PARSER_BYTES + (PLM_JSON_TREE_DEPTH_MAX + 2) * LEVEL_BYTES + 3 * (int64_t)m.longest;
    *ret = m.cost;
    return PLM_OK;
}

// ---- trees ----

void plm_json_tree_init(struct plm_json_tree *tree, struct plm_host *host,
                        enum plm_host_owner owner)
{
    *tree =
        (struct plm_json_tree){.host = host, .owner = owner, .nodes_left = PLM_JSON_TREE_NODES_MAX};
}

void plm_json_tree_finish(struct plm_json_tree *tree)
{
    json_object_put(tree->root);
    plm_host_discharge(tree->host, tree->owner, tree->bytes);
    tree->root = NULL;
    tree->bytes = 0;
}

// False: the budget has no room.
static bool charge(struct plm_json_tree *tree, int64_t bytes)
{
    if (plm_host_charge(tree->host, tree->owner, bytes) != PLM_OK)
        return false;
    tree->bytes += bytes;
    return true;
}

static int no_memory(struct plm_error *err)
{
    return plm_fail(err, PLM_ERR_NOMEM_HOST, "no host memory to read JSON");
}

// The scan has judged the depth; json-c counts one level more, for what stands in the innermost.
#define PARSER_DEPTH (PLM_JSON_TREE_DEPTH_MAX + 1)

// The same of a copy whose surrogate pairs are joined.
static int parse_joined(const struct plm_json_tree *tree, struct plm_slice text,
                        struct json_object **ret, struct plm_error *err)
{
    char *joined = plm_malloc(tree->host, tree->owner, text.len);
    if (joined == NULL)
        return no_memory(err);
    memcpy(joined, text.ptr, text.len);
    const size_t len = plm_json_join_pairs(joined, text.len);
    int r = plm_json_parse_deep(joined, len, PARSER_DEPTH, ret, err);
    plm_free(tree->host, joined);
    return r;
}

int plm_json_tree_parse(struct plm_json_tree *tree, struct plm_slice text, struct json_object **ret,
                        struct plm_error *err)
{
    struct plm_json_cost cost;
    if (text.len > INT32_MAX)
        return plm_fail(err, PLM_ERR_LIMIT, "a JSON text of %zu bytes; the longest is %d", text.len,
                        INT32_MAX);
    int r = plm_work_check(text.len / PLM_WORK_BYTES_PER_TOKEN, "reading JSON", err);
    if (r == PLM_OK)
        r = plm_json_measure(text, tree->nodes_left, &cost, err);
    if (r != PLM_OK)
        return r;
    if (!charge(tree, cost.tree_bytes))
        return no_memory(err);
    if (plm_host_charge(tree->host, tree->owner, cost.parse_bytes) != PLM_OK) {
        r = no_memory(err);
    } else {
        r = plm_json_has_pairs(text.ptr, text.len)
                ? parse_joined(tree, text, ret, err)
                : plm_json_parse_deep(text.ptr, text.len, PARSER_DEPTH, ret, err);
        plm_host_discharge(tree->host, tree->owner, cost.parse_bytes);
    }
    if (r == PLM_OK) {
        tree->nodes_left -= cost.nodes;
        return PLM_OK;
    }
    plm_host_discharge(tree->host, tree->owner, cost.tree_bytes);
    tree->bytes -= cost.tree_bytes;
    return r;
}
