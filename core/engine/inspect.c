// SPDX-License-Identifier: Apache-2.0
// What a model file says of itself, from its header alone, and whether it can be loaded here.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/utf8.h"
#include "core/engine/core.h"
#include "core/engine/env.h"
#include "core/engine/error.h"
#include "core/engine/text_out.h"
#include "core/gguf/types.h"

#define VALUE_BYTES_MAX 4096 // of one value in the output; longer ones are cut with a mark

// How far a start gets with it.
struct loadable {
    bool yes;
    struct plm_error why;                 // not
    char chat_fault[PLM_ERROR_MSG_BYTES]; // why its chat template can not be used, or ""
};

static void append_cut(struct plm_buf *buf, struct plm_slice text)
{
    size_t n = text.len < VALUE_BYTES_MAX ? text.len : VALUE_BYTES_MAX;
    n = plm_utf8_valid_prefix(text.ptr, n); // cuts no character in two
    plm_buf_append(buf, text.ptr, n);
    if (n < text.len)
        plm_buf_append_str(buf, "...");
}

static bool is_number(enum plm_gguf_type type)
{
    return type != PLM_GGUF_STRING && type != PLM_GGUF_ARRAY && type != PLM_GGUF_BOOL;
}

// A scalar as JSON knows it; what is no JSON number (NaN, infinity) and arrays as text.
static void append_key_json(struct plm_buf *buf, const struct plm_gguf *gguf, uint64_t i,
                            struct plm_buf *scratch)
{
    enum plm_gguf_type type = plm_gguf_key_type(gguf, i);
    struct plm_slice name = plm_gguf_key_name(gguf, i), value;
    char key[256];
    snprintf(key, sizeof(key), "%.*s", (int)(name.len < 255 ? name.len : 255), name.ptr);
    plm_buf_append_json(buf, name);
    plm_buf_append_str(buf, ": ");
    if (type == PLM_GGUF_STRING && plm_gguf_str(gguf, key, &value, NULL) == PLM_OK) {
        plm_buf_append_json(buf, value);
        return;
    }
    plm_buf_clear(scratch);
    plm_gguf_key_text(gguf, i, scratch);
    value = (struct plm_slice){scratch->data != NULL ? scratch->data : "", scratch->len};
    bool plain = type == PLM_GGUF_BOOL || (is_number(type) && value.len > 0 &&
                                           strspn(value.ptr, "0123456789+-.eE") == value.len);
    if (plain)
        plm_buf_append_slice(buf, value);
    else
        plm_buf_append_json(buf, value);
}

static void append_shape(struct plm_buf *buf, const struct plm_gguf_tensor *t, const char *between)
{
    for (uint32_t d = 0; d < t->n_dims; d++)
        plm_buf_printf(buf, "%s%" PRIu64, d > 0 ? between : "", t->ne[d]);
}

static const char *type_of(const struct plm_gguf_tensor *t)
{
    const char *name = plm_type_name((uint32_t)t->type);
    return name != NULL ? name : "?";
}

static void append_string(struct plm_buf *buf, const char *text)
{
    plm_buf_append_json(buf, (struct plm_slice){text, strlen(text)});
}

static void write_json(struct plm_buf *buf, const struct plm_gguf *gguf,
                       const struct loadable *loadable)
{
    struct plm_buf scratch;
    plm_buf_init(&scratch, buf->host, buf->owner);
    plm_buf_printf(buf, "{\"version\": %u, \"file_bytes\": %" PRIu64 ", \"keys\": {",
                   plm_gguf_version(gguf), plm_gguf_file_bytes(gguf));
    for (uint64_t i = 0; i < plm_gguf_n_keys(gguf); i++) {
        plm_buf_append_str(buf, i > 0 ? ", " : "");
        append_key_json(buf, gguf, i, &scratch);
    }
    plm_buf_append_str(buf, "}, \"tensors\": [");
    for (uint64_t i = 0; i < plm_gguf_n_tensors(gguf); i++) {
        const struct plm_gguf_tensor *t = plm_gguf_tensor_at(gguf, i);
        plm_buf_append_str(buf, i > 0 ? ", {\"name\": " : "{\"name\": ");
        plm_buf_append_json(buf, t->name);
        plm_buf_printf(buf, ", \"type\": \"%s\", \"shape\": [", type_of(t));
        append_shape(buf, t, ", ");
        plm_buf_printf(buf, "], \"bytes\": %" PRIu64 ", \"file\": %u, \"offset\": %" PRIu64 "}",
                       t->bytes, t->file, t->offset);
    }
    plm_buf_printf(buf, "], \"loadable\": %s", loadable->yes ? "true" : "false");
    if (!loadable->yes) {
        plm_buf_append_str(buf, ", \"reason\": ");
        append_string(buf, loadable->why.msg);
    }
    if (loadable->chat_fault[0] != '\0') {
        plm_buf_append_str(buf, ", \"chat_template_error\": ");
        append_string(buf, loadable->chat_fault);
    }
    plm_buf_append_char(buf, '}');
    if (scratch.failed)
        buf->failed = true;
    plm_buf_finish(&scratch);
}

static void write_text(struct plm_buf *buf, const struct plm_gguf *gguf,
                       const struct loadable *loadable)
{
    struct plm_buf scratch;
    plm_buf_init(&scratch, buf->host, buf->owner);
    plm_buf_printf(buf,
                   "GGUF version %u, %" PRIu64 " bytes, %" PRIu64 " keys, %" PRIu64 " tensors\n\n",
                   plm_gguf_version(gguf), plm_gguf_file_bytes(gguf), plm_gguf_n_keys(gguf),
                   plm_gguf_n_tensors(gguf));
    for (uint64_t i = 0; i < plm_gguf_n_keys(gguf); i++) {
        struct plm_slice name = plm_gguf_key_name(gguf, i);
        plm_buf_clear(&scratch);
        plm_gguf_key_text(gguf, i, &scratch);
        append_cut(buf, name);
        plm_buf_append_str(buf, " = ");
        append_cut(buf, (struct plm_slice){scratch.data != NULL ? scratch.data : "", scratch.len});
        plm_buf_append_char(buf, '\n');
    }
    plm_buf_append_char(buf, '\n');
    for (uint64_t i = 0; i < plm_gguf_n_tensors(gguf); i++) {
        const struct plm_gguf_tensor *t = plm_gguf_tensor_at(gguf, i);
        append_cut(buf, t->name);
        plm_buf_printf(buf, "  %s  ", type_of(t));
        append_shape(buf, t, " x ");
        plm_buf_printf(buf, "  %" PRIu64 " bytes\n", t->bytes);
    }
    if (loadable->chat_fault[0] != '\0')
        plm_buf_printf(buf, "\nchat template: cannot be used: %s", loadable->chat_fault);
    if (loadable->yes)
        plm_buf_append_str(buf, "\nloads here: yes\n");
    else
        plm_buf_printf(buf, "\nloads here: no: %s\n", loadable->why.msg);
    if (scratch.failed)
        buf->failed = true;
    plm_buf_finish(&scratch);
}

// Does what a start does before it opens a device. Returns PLM_ERR_NOMEM_HOST where there is too
// little memory to say, else PLM_OK.
static int try_load(struct plm_host *host, const char *path, struct loadable *ret,
                    struct plm_error *err)
{
    const struct plm_engine_env env = {.host = host};
    struct plm_core *core;
    plim_engine_opts opts;
    plim_engine_opts_init(&opts);
    opts.model_path = path;
    *ret = (struct loadable){.yes = false};
    int r = plm_core_open(&env, &opts, &core, &ret->why);
    if (r == PLM_OK) {
        memcpy(ret->chat_fault, core->chat_fault, sizeof(ret->chat_fault));
        r = plm_gguf_check_data(core->gguf, &ret->why);
        plm_core_destroy(core);
    }
    ret->yes = r == PLM_OK;
    return r == PLM_ERR_NOMEM_HOST ? plm_fail(err, r, "%s", ret->why.msg) : PLM_OK;
}

static int inspect(const char *path, bool json, char *out, size_t cap, size_t *need,
                   plim_error *err)
{
    struct plm_error why = {0};
    struct plm_gguf *gguf;
    if (path == NULL)
        return plm_error_null(err, "path");
    if (plm_error_place(out, cap, err) != PLIM_OK)
        return PLIM_ERR_INVALID;
    struct plm_host *host = plm_host_create(0);
    if (host == NULL)
        return plm_error_set(err, PLIM_ERR_NOMEM_HOST, NULL, "no host memory");
    // A truncated file still says what it should be.
    int r = plm_gguf_open_header(host, path, &gguf, &why);
    struct loadable loadable;
    if (r == PLM_OK) {
        r = try_load(host, path, &loadable, &why);
        if (r != PLM_OK)
            plm_gguf_close(gguf);
    }
    if (r != PLM_OK) {
        plm_host_destroy(host);
        return plm_error_out(err, plm_fail_about(&why, r, "path"), &why);
    }
    struct plm_buf buf;
    plm_buf_init(&buf, host, PLM_HOST_OTHER);
    if (json)
        write_json(&buf, gguf, &loadable);
    else
        write_text(&buf, gguf, &loadable);
    if (buf.failed)
        r = plm_error_set(err, PLIM_ERR_NOMEM_HOST, NULL, "no host memory for the text");
    else
        r = plm_text_out(buf.data, buf.len, out, cap, need);
    plm_buf_finish(&buf);
    plm_gguf_close(gguf);
    plm_host_destroy(host);
    return r;
}

int plim_inspect(const char *path, bool json, char *out, size_t cap, size_t *need, plim_error *err)
{
    plim_error error = PLIM_INIT(plim_error);
    return plm_error_give(err, inspect(path, json, out, cap, need, &error), &error);
}
