// SPDX-License-Identifier: Apache-2.0
#include "core/base/json.h"

#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "core/base/utf8.h"

struct walk {
    plm_json_leaf *leaf;
    void *ctx;
    struct plm_error *err;
    char path[PLM_JSON_PATH_MAX];
    size_t path_len;
};

static int walk_value(struct walk *w, struct json_object *value);

static int walk_leaf(struct walk *w, struct json_object *value)
{
    struct plm_json_value v = {.kind = PLM_JSON_NULL, .text = PLM_SLICE("null")};
    if (value != NULL) {
        const char *text = json_object_get_string(value);
        if (text == NULL)
            return plm_fail(w->err, PLM_ERR_NOMEM_HOST, "no host memory to read JSON");
        v.text = (struct plm_slice){text, strlen(text)};
    }
    switch (json_object_get_type(value)) {
    case json_type_null: break;
    case json_type_boolean:
        v.kind = PLM_JSON_BOOL;
        v.integer = json_object_get_boolean(value);
        break;
    case json_type_int:
        // Saturates: what does not fit stays a number that has its text alone.
        v.integer = json_object_get_int64(value);
        v.kind = json_object_get_uint64(value) > INT64_MAX ? PLM_JSON_NUMBER : PLM_JSON_INTEGER;
        break;
    case json_type_double: v.kind = PLM_JSON_NUMBER; break;
    case json_type_string:
        v.kind = PLM_JSON_STRING;
        v.text.len = (size_t)json_object_get_string_len(value);
        break;
    default: v.kind = PLM_JSON_EMPTY; break;
    }
    return w->leaf(w->ctx, w->path, &v);
}

// Goes to a child whose step in the path is `step`, and comes back.
static int walk_child(struct walk *w, const char *step, struct json_object *value)
{
    const size_t n = strlen(step), before = w->path_len;
    if (n >= sizeof(w->path) - before)
        return plm_fail(w->err, PLM_ERR_LIMIT, "JSON: the path behind %.64s is too long", w->path);
    memcpy(w->path + before, step, n + 1);
    w->path_len += n;
    int r = walk_value(w, value);
    w->path_len = before;
    w->path[before] = '\0';
    return r;
}

static int walk_value(struct walk *w, struct json_object *value)
{
    char step[PLM_JSON_PATH_MAX + 1]; // longer ones are cut, and too long in any case
    int r = PLM_OK;
    if (json_object_is_type(value, json_type_object) && json_object_object_length(value) > 0) {
        json_object_object_foreach(value, name, member)
        {
            snprintf(step, sizeof(step), "%s%s", w->path_len > 0 ? "." : "", name);
            if ((r = walk_child(w, step, member)) != PLM_OK)
                break;
        }
        return r;
    }
    if (json_object_is_type(value, json_type_array) && json_object_array_length(value) > 0) {
        for (size_t i = 0; r == PLM_OK && i < json_object_array_length(value); i++) {
            snprintf(step, sizeof(step), "[%zu]", i);
            r = walk_child(w, step, json_object_array_get_idx(value, i));
        }
        return r;
    }
    return walk_leaf(w, value);
}

int plm_json_parse(const char *text, size_t len, struct json_object **ret, struct plm_error *err)
{
    if (len > PLM_JSON_BYTES_MAX)
        return plm_fail(err, PLM_ERR_LIMIT, "a JSON text of %zu bytes; the longest is %u", len,
                        PLM_JSON_BYTES_MAX);
    return plm_json_parse_deep(text, len, PLM_JSON_DEPTH_MAX, ret, err);
}

int plm_json_parse_deep(const char *text, size_t len, unsigned depth_max, struct json_object **ret,
                        struct plm_error *err)
{
    const size_t valid = plm_utf8_valid_prefix(text, len);
    if (valid < len || memchr(text, '\0', len) != NULL)
        return plm_fail(err, PLM_ERR_FORMAT, "JSON: not a text: byte %zu is no UTF-8 or NUL",
                        valid < len ? valid : strlen(text));
    struct json_tokener *tok = json_tokener_new_ex((int)depth_max);
    if (tok == NULL)
        return plm_fail(err, PLM_ERR_NOMEM_HOST, "no host memory to read JSON");
    json_tokener_set_flags(tok, JSON_TOKENER_STRICT);
    struct json_object *value = json_tokener_parse_ex(tok, text, (int)len);
    size_t end = json_tokener_get_parse_end(tok);
    if (json_tokener_get_error(tok) == json_tokener_continue) // a number may go on: end the text
        value = json_tokener_parse_ex(tok, "", -1);
    const enum json_tokener_error error = json_tokener_get_error(tok);
    json_tokener_free(tok);
    while (error == json_tokener_success && end < len && strchr(" \t\r\n", text[end]) != NULL)
        end++;
    if (error == json_tokener_success && end == len) {
        *ret = value;
        return PLM_OK;
    }
    json_object_put(value);
    return plm_fail(err, error == json_tokener_error_depth ? PLM_ERR_LIMIT : PLM_ERR_FORMAT,
                    "JSON at byte %zu: %s", end,
                    error == json_tokener_success ? "something stands behind the value"
                                                  : json_tokener_error_desc(error));
}

int plm_json_walk(const char *text, size_t len, plm_json_leaf *leaf, void *ctx,
                  struct plm_error *err)
{
    struct walk w = {.leaf = leaf, .ctx = ctx, .err = err};
    struct json_object *value = NULL;
    int r = plm_json_parse(text, len, &value, err);
    if (r != PLM_OK)
        return r;
    r = walk_value(&w, value);
    json_object_put(value);
    return r;
}

// ---- surrogate pairs ----

bool plm_json_has_pairs(const char *text, size_t len)
{
    for (const char *at = text, *end = text + len; (size_t)(end - at) > 2; at++) {
        at = memchr(at, '\\', (size_t)(end - at) - 2);
        if (at == NULL)
            return false;
        if (at[1] == 'u' && (at[2] | 0x20) == 'd')
            return true;
    }
    return false;
}

// The code unit that \uXXXX at `at` spells, or -1.
static int32_t unit_at(const char *at, const char *end)
{
    int32_t unit = 0;
    if (end - at < 6 || at[0] != '\\' || at[1] != 'u')
        return -1;
    for (int i = 2; i < 6; i++) {
        const char c = at[i];
        const int32_t digit = c >= '0' && c <= '9'                     ? c - '0'
                              : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                                       : -1;
        if (digit < 0)
            return -1;
        unit = unit * 16 + digit;
    }
    return unit;
}

size_t plm_json_join_pairs(char *text, size_t len)
{
    const char *at = text, *end = text + len;
    char *out = text;
    while (at < end) {
        const int32_t hi = unit_at(at, end), lo = hi >= 0 ? unit_at(at + 6, end) : -1;
        if (hi >= 0xD800 && hi < 0xDC00 && lo >= 0xDC00 && lo < 0xE000) {
            const uint32_t cp = 0x10000 + (((uint32_t)hi - 0xD800) << 10) + ((uint32_t)lo - 0xDC00);
            *out++ = (char)(0xF0 | cp >> 18);
            *out++ = (char)(0x80 | (cp >> 12 & 0x3F));
            *out++ = (char)(0x80 | (cp >> 6 & 0x3F));
            *out++ = (char)(0x80 | (cp & 0x3F));
            at += 12;
            continue;
        }
        // An escaped backslash is no escape's beginning.
        if (*at == '\\' && end - at > 1)
            *out++ = *at++;
        *out++ = *at++;
    }
    return (size_t)(out - text);
}
