// SPDX-License-Identifier: Apache-2.0
#include "core/plan/tuning.h"

#include <string.h>

#include "core/base/json.h"

struct reading {
    struct plm_tuning *tuning;
    struct plm_error *err;
    bool is_tuning; // "object" says so
};

// Stores a string of the text where it fits.
static int store(const struct reading *r, const char *path, const struct plm_json_value *value,
                 char *ret, size_t cap)
{
    if (value->kind != PLM_JSON_STRING || value->text.len == 0 || value->text.len >= cap ||
        memchr(value->text.ptr, '\0', value->text.len) != NULL)
        return plm_fail(r->err, PLM_ERR_FORMAT, "%s is no string of 1 to %zu bytes", path, cap - 1);
    memcpy(ret, value->text.ptr, value->text.len);
    ret[value->text.len] = '\0';
    return PLM_OK;
}

// "choices[12].name": the index, and what follows it; false for another path.
static bool parse_choice(const char *path, uint32_t *ret_index, const char **ret_field)
{
    static const char prefix[] = "choices[";
    uint32_t index = 0;
    if (strncmp(path, prefix, sizeof(prefix) - 1) != 0)
        return false;
    for (path += sizeof(prefix) - 1; *path >= '0' && *path <= '9' && index < 1000000; path++)
        index = index * 10 + (uint32_t)(*path - '0');
    if (path[0] != ']' || path[1] != '.')
        return false;
    *ret_index = index;
    *ret_field = path + 2;
    return true;
}

static int take_choice(struct reading *r, const char *path, uint32_t index, const char *field,
                       const struct plm_json_value *value)
{
    struct plm_tuning *t = r->tuning;
    if (index >= PLM_TUNING_ENTRIES_MAX)
        return plm_fail(r->err, PLM_ERR_LIMIT, "more than %d choices", PLM_TUNING_ENTRIES_MAX);
    if (index >= t->n) {
        t->entries[index] = (struct plm_tuning_entry){{0}, {0}};
        t->n = index + 1;
    }
    if (strcmp(field, "name") == 0)
        return store(r, path, value, t->entries[index].name, sizeof(t->entries[index].name));
    if (strcmp(field, "variant") == 0)
        return store(r, path, value, t->entries[index].variant, sizeof(t->entries[index].variant));
    return PLM_OK; // of a later version
}

static int take(void *ctx, const char *path, const struct plm_json_value *value)
{
    struct reading *r = ctx;
    struct plm_tuning_key *key = &r->tuning->key;
    uint32_t index;
    const char *field;
    if (parse_choice(path, &index, &field))
        return take_choice(r, path, index, field, value);
    if (strcmp(path, "object") == 0) {
        r->is_tuning =
            value->kind == PLM_JSON_STRING && plm_slice_eq(value->text, PLM_SLICE("tuning"));
        return PLM_OK;
    }
    if (strcmp(path, "build") == 0)
        return store(r, path, value, key->build, sizeof(key->build));
    if (strcmp(path, "device_uuid") == 0)
        return store(r, path, value, key->device_uuid, sizeof(key->device_uuid));
    if (strcmp(path, "isa") == 0)
        return store(r, path, value, key->isa, sizeof(key->isa));
    return PLM_OK;
}

int plm_tuning_read(const char *text, size_t len, struct plm_tuning *ret, struct plm_error *err)
{
    struct reading r = {.tuning = ret, .err = err};
    ret->key = (struct plm_tuning_key){{0}, {0}, {0}};
    ret->n = 0;
    int status = plm_json_walk(text, len, take, &r, err);
    if (status != PLM_OK)
        return status;
    if (!r.is_tuning)
        return plm_fail(err, PLM_ERR_FORMAT, "its \"object\" is not \"tuning\"");
    if (ret->key.build[0] == '\0' || ret->key.device_uuid[0] == '\0' || ret->key.isa[0] == '\0')
        return plm_fail(err, PLM_ERR_FORMAT, "build, device_uuid or isa is missing");
    for (uint32_t i = 0; i < ret->n; i++) {
        if (ret->entries[i].name[0] == '\0' || ret->entries[i].variant[0] == '\0')
            return plm_fail(err, PLM_ERR_FORMAT, "choices[%u] lacks its name or variant", i);
    }
    return PLM_OK;
}

static void put_string(struct plm_buf *buf, const char *name, const char *value)
{
    plm_buf_printf(buf, "\"%s\":", name);
    plm_buf_append_json(buf, (struct plm_slice){value, strlen(value)});
}

void plm_tuning_write(const struct plm_tuning *tuning, struct plm_buf *buf)
{
    plm_buf_append_str(buf, "{\"object\":\"tuning\",");
    put_string(buf, "build", tuning->key.build);
    plm_buf_append_char(buf, ',');
    put_string(buf, "device_uuid", tuning->key.device_uuid);
    plm_buf_append_char(buf, ',');
    put_string(buf, "isa", tuning->key.isa);
    plm_buf_append_str(buf, ",\"choices\":[");
    for (uint32_t i = 0; i < tuning->n; i++) {
        plm_buf_append_str(buf, i > 0 ? ",{" : "{");
        put_string(buf, "name", tuning->entries[i].name);
        plm_buf_append_char(buf, ',');
        put_string(buf, "variant", tuning->entries[i].variant);
        plm_buf_append_char(buf, '}');
    }
    plm_buf_append_str(buf, "]}");
}

const char *plm_tuning_find(const struct plm_tuning *tuning, const char *name)
{
    for (uint32_t i = 0; i < tuning->n; i++) {
        if (strcmp(tuning->entries[i].name, name) == 0)
            return tuning->entries[i].variant;
    }
    return NULL;
}

const char *plm_tuning_differs(const struct plm_tuning_key *a, const struct plm_tuning_key *b)
{
    if (strcmp(a->build, b->build) != 0)
        return "build";
    if (strcmp(a->device_uuid, b->device_uuid) != 0)
        return "device";
    return strcmp(a->isa, b->isa) != 0 ? "driver or instruction set" : NULL;
}
