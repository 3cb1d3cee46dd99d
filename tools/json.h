// SPDX-License-Identifier: Apache-2.0
// JSON texts of others: request bodies, and the answers of a hub. One bounded scan judges the whole
// text by the letter of RFC 8259 and finds the members of the top-level object; values are decoded
// one by one when somebody asks for them, so that a long conversation is never held as a tree.
// Refused besides bad syntax: single quotes, NaN, duplicate keys, NUL in a key, lone surrogates,
// bad UTF-8, too deep, too many values.
#ifndef PLM_TOOLS_JSON_H
#define PLM_TOOLS_JSON_H

#include <json-c/json_object.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/plimsoll.h"
#include "tools/out.h"

#define PLM_JSON_DEPTH_MAX 64
// Values and keys of one body. A prompt of token ids for the longest contexts fits.
#define PLM_JSON_NODES_MAX 262144
// Members of the top-level object. The API knows about 60 fields.
#define PLM_JSON_MEMBERS_MAX 256

enum plm_json_type {
    PLM_JSON_NULL,
    PLM_JSON_BOOL,
    PLM_JSON_NUMBER,
    PLM_JSON_STRING,
    PLM_JSON_ARRAY,
    PLM_JSON_OBJECT,
};

// A slice of the body.
struct plm_json_value {
    const char *ptr;
    size_t len;
    enum plm_json_type type;
    uint32_t nodes;
    int64_t tree_bytes; // what plm_json_tree() takes for it
};

struct plm_json_member {
    const char *key; // between the quotes, escapes as written
    size_t key_len;
    struct plm_json_value value;
};

struct plm_json_doc {
    struct plm_json_member members[PLM_JSON_MEMBERS_MAX];
    size_t n;
};

// Scans len bytes. On failure writes one sentence to message and returns INVALID, LIMIT or
// NOMEM_HOST. The document points into text. engine pays for the list of keys while it scans.
int plm_json_scan(const char *text, size_t len, plim_engine *engine, struct plm_json_doc *ret,
                  char *message, size_t message_cap);

// A member by name, or NULL when it is absent or null.
const struct plm_json_value *plm_json_get(const struct plm_json_doc *doc, const char *name);
// Whether that is a member's name, however it is spelled.
bool plm_json_key_is(const struct plm_json_member *member, const char *name);
const char *plm_json_type_name(enum plm_json_type type);

bool plm_json_is_true(const struct plm_json_value *value);
// A number that is an integer within int64 (also written 1.0 or 1e3). False when it is not.
bool plm_json_int(const struct plm_json_value *value, int64_t *ret);
bool plm_json_u64(const struct plm_json_value *value, uint64_t *ret);
double plm_json_double(const struct plm_json_value *value);
// Appends the decoded text of a string value.
void plm_json_text(const struct plm_json_value *value, struct plm_out *out);
// The value as a tree; NULL when host memory is short. *ret_charged is what the engine is charged
// for it, or would be; give both to plm_json_release().
struct json_object *plm_json_tree(const struct plm_json_value *value, plim_engine *engine,
                                  int64_t *ret_charged);
void plm_json_release(struct json_object *tree, plim_engine *engine, int64_t charged);

#endif
