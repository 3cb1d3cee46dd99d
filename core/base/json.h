// SPDX-License-Identifier: Apache-2.0
// The small JSON texts that we write ourselves and get back as foreign bytes: plans, certificates,
// tuning results. One walk names every leaf by its path ("plan.room", "evidence.passes[3].ns").
// Strict and bounded: UTF-8, no comments, no trailing commas, nothing behind the value.
#ifndef PLM_BASE_JSON_H
#define PLM_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/buf.h"
#include "core/base/status.h"

#define PLM_JSON_BYTES_MAX (1u << 20) // of a text
#define PLM_JSON_DEPTH_MAX 16         // of objects and arrays in each other
#define PLM_JSON_PATH_MAX  256        // bytes of a path, NUL included

enum plm_json_kind {
    PLM_JSON_STRING,
    PLM_JSON_INTEGER, // fits int64_t
    PLM_JSON_NUMBER,  // any other
    PLM_JSON_BOOL,
    PLM_JSON_NULL,
    PLM_JSON_EMPTY, // {} or []
};

struct plm_json_value {
    enum plm_json_kind kind;
    struct plm_slice text; // STRING: decoded, may hold NUL; else as JSON writes it
    int64_t integer;       // INTEGER; BOOL: 0 or 1
};

// Called for every leaf in order; path and text are valid for the call. Anything but PLM_OK ends
// the walk with that result.
typedef int plm_json_leaf(void *ctx, const char *path, const struct plm_json_value *value);

struct json_object;

// The value as json-c's, for those who ask for fields by their names; *ret (NULL: null) is the
// caller's, to json_object_put(). PLM_OK; FORMAT or LIMIT, with the byte at which the text went
// wrong; NOMEM_HOST.
int plm_json_parse(const char *text, size_t len, struct json_object **ret, struct plm_error *err);

// The same of up to INT32_MAX bytes, nested depth_max deep. What json-c takes for it is the
// caller's to charge: foreign texts go through plm_json_tree_parse().
int plm_json_parse_deep(const char *text, size_t len, unsigned depth_max, struct json_object **ret,
                        struct plm_error *err);

// Results as of plm_json_parse(), or what leaf returned. Of a name that occurs twice in an object
// the last value counts.
int plm_json_walk(const char *text, size_t len, plm_json_leaf *leaf, void *ctx,
                  struct plm_error *err);

// json-c 0.16 corrupts escaped surrogate pairs of characters whose low 16 bits are themselves in
// the range of surrogates (U+1D800 to U+1DFFF, U+2D800 to U+2DFFF, ..). So foreign text goes
// through these before json-c sees it: whether it may hold escaped pairs, and writing each of them
// as the character's UTF-8, in place. Returns the new length, at most len. What is malformed stays.
bool plm_json_has_pairs(const char *text, size_t len);
size_t plm_json_join_pairs(char *text, size_t len);

#endif
