// SPDX-License-Identifier: Apache-2.0
// A hostile chat template with a hostile conversation. The first line is the context in JSON (no
// object: an empty one), the rest the template.
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/alloc.h"
#include "core/base/utf8.h"
#include "core/chat/chat.h"
#include "core/template/template.h"
#include "tests/fuzz/fuzz.h"

static void check(const struct plm_render *render)
{
    size_t at = 0;
    for (size_t i = 0; i < render->n_spans; i++) {
        const struct plm_span *span = &render->spans[i];
        if (span->begin != at || span->end <= at || span->end > render->text.len)
            abort();
        if (i > 0 && span->trusted == render->spans[i - 1].trusted)
            abort();
        at = span->end;
    }
    if (at != render->text.len)
        abort();
}

static void check_status(int status, const struct plm_error *err)
{
    if (status != PLM_OK && status != PLM_ERR_INVALID && status != PLM_ERR_LIMIT)
        abort();
    if (status != PLM_OK && (err->status != status ||
                             plm_utf8_valid_prefix(err->msg, strlen(err->msg)) != strlen(err->msg)))
        abort();
}

static void render_all(const struct plm_template *tmpl, struct json_object *context)
{
    struct plm_render render;
    struct plm_error err = {0};
    struct plm_chat_opts opts;
    plm_chat_opts_init(&opts);
    opts.render.limits = (struct plm_render_limits){
        .steps = 20000, .depth = 300, .output_bytes = 1 << 20, .memory_bytes = 8 << 20};
    int status = plm_template_render(tmpl, context, &opts.render, &render, &err);
    check_status(status, &err);
    if (status == PLM_OK) {
        check(&render);
        plm_render_finish(&render);
    }
    json_object_object_get_ex(context, "messages", &opts.messages);
    json_object_object_get_ex(context, "tools", &opts.tools);
    opts.kwargs = context;
    opts.bos_token = PLM_SLICE("<s>");
    struct plm_chat_form form;
    if (plm_chat_probe(tmpl, &opts, &form, &err) != PLM_OK)
        abort();
    char param[PLM_CHAT_PARAM_BYTES];
    opts.param = param;
    for (int way = 0; way < 16; way++) {
        opts.continue_final_message = way & 1;
        opts.normalize = way & 2;
        opts.strict = way & 4;
        opts.form = way & 8 ? &form : NULL;
        status = plm_chat_render(tmpl, &opts, &render, &err);
        check_status(status, &err);
        if (status == PLM_OK) {
            check(&render);
            plm_render_finish(&render);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    const char *text = (const char *)bytes;
    const char *lf = n == 0 ? NULL : memchr(text, '\n', n);
    if (lf == NULL || n > 8192)
        return 0;
    struct json_tokener *tok = json_tokener_new();
    struct json_object *context = json_tokener_parse_ex(tok, text, (int)(lf - text));
    json_tokener_free(tok);
    if (!json_object_is_type(context, json_type_object)) {
        json_object_put(context);
        context = json_object_new_object();
    }
    struct plm_host *host = plm_host_create(0);
    struct plm_template *tmpl = NULL;
    struct plm_error err = {0};
    struct plm_slice source = {lf + 1, n - (size_t)(lf + 1 - text)};
    int status = plm_template_create(host, source, &tmpl, &err);
    if ((status == PLM_OK) != (tmpl != NULL))
        abort();
    if (status == PLM_OK)
        render_all(tmpl, context);
    else if (status != PLM_ERR_FORMAT && status != PLM_ERR_UNSUPPORTED && status != PLM_ERR_LIMIT)
        abort();
    plm_template_destroy(tmpl);
    json_object_put(context);
    if (plm_host_destroy(host) != 0)
        abort();
    return 0;
}
