// SPDX-License-Identifier: Apache-2.0
// The public face: load, render, limits.
#include "core/template/template.h"

#include <json.h>
#include <string.h>

#include "core/base/text.h"
#include "core/base/utf8.h"
#include "core/template/run.h"

enum {
    SOURCE_BYTES_MAX = 1 << 20, // the largest published template has about 40 KB
};

#define LOAD_MEMORY_MAX ((uint64_t)64 << 20) // tokens and tree of the largest source

// Jinja reads CR and CRLF as LF, and drops one newline at the end.
static bool normalize(struct plm_tload *p, struct plm_slice source)
{
    char *out = plm_tload_alloc(p, source.len + 1, 1);
    size_t n = 0;
    if (out == NULL)
        return false;
    for (size_t i = 0; i < source.len; i++) {
        char c = source.ptr[i];
        if (c == '\r') {
            c = '\n';
            if (i + 1 < source.len && source.ptr[i + 1] == '\n')
                i++;
        }
        out[n++] = c;
    }
    if (n > 0 && out[n - 1] == '\n')
        n--;
    p->source = (struct plm_slice){out, n};
    return true;
}

int plm_template_create(struct plm_host *host, struct plm_slice source, struct plm_template **ret,
                        struct plm_error *err)
{
    if (source.len > SOURCE_BYTES_MAX)
        return plm_fail(err, PLM_ERR_LIMIT, "chat template of %zu bytes, at most %d are read",
                        source.len, SOURCE_BYTES_MAX);
    size_t valid = plm_utf8_valid_prefix(source.ptr, source.len);
    if (valid != source.len)
        return plm_fail(err, PLM_ERR_FORMAT, "chat template: no UTF-8 at byte %zu", valid);
    struct plm_template *tmpl = plm_calloc(host, PLM_HOST_TEMPLATE, 1, sizeof(*tmpl));
    if (tmpl == NULL)
        return plm_fail(err, PLM_ERR_NOMEM_HOST, "no host memory to load the chat template");
    tmpl->host = host;
    plm_tarena_init(&tmpl->arena, host, LOAD_MEMORY_MAX);
    struct plm_tload p = {.tmpl = tmpl, .err = err};
    if (!normalize(&p, source) || !plm_tload_lex(&p) || !plm_tload_body(&p)) {
        plm_template_destroy(tmpl);
        return p.status;
    }
    *ret = tmpl;
    return PLM_OK;
}

void plm_template_destroy(struct plm_template *tmpl)
{
    if (tmpl == NULL)
        return;
    plm_tarena_finish(&tmpl->arena);
    plm_free(tmpl->host, tmpl);
}

void plm_render_opts_init(struct plm_render_opts *opts)
{
    *opts = (struct plm_render_opts){
        .limits =
            {
                .steps = 10000000, // a known template takes below 100,000 on a long chat
                .depth = 1000,     // about 230 macro calls deep; below 256 KiB of C stack
                .output_bytes = (uint64_t)64 << 20,
                .memory_bytes = (uint64_t)256 << 20,
            },
    };
}

void plm_render_finish(struct plm_render *render)
{
    if (render->host == NULL)
        return;
    plm_buf_finish(&render->text);
    plm_free(render->host, render->spans);
    *render = (struct plm_render){0};
}

bool plm_tpl_put(struct plm_trun *r, struct plm_tdict *dict, const char *name,
                 struct plm_tval value)
{
    struct plm_tval key;
    return plm_tstr_val(plm_tstr_view(r, name, strlen(name), PLM_ORIGIN_USER), &key) &&
           plm_tdict_set(r, dict, key, value);
}

// Spans are of one owner, whichever of the user's texts its bytes are of.
static int take_result(struct plm_trun *r, struct plm_host *host, struct plm_render *ret,
                       struct plm_error *err)
{
    struct plm_render out = {.host = host};
    const struct plm_tbuf *buf = r->out;
    size_t n_spans = 0;
    for (size_t i = 0; i < buf->n_runs; i++)
        n_spans += i == 0 || (buf->runs[i].origin == PLM_ORIGIN_TEMPLATE) !=
                                 (buf->runs[i - 1].origin == PLM_ORIGIN_TEMPLATE);
    plm_buf_init(&out.text, host, PLM_HOST_TEMPLATE);
    plm_buf_append(&out.text, buf->data, buf->len);
    out.spans = plm_calloc(host, PLM_HOST_TEMPLATE, n_spans + 1, sizeof(*out.spans));
    if (out.text.failed || out.spans == NULL) {
        plm_render_finish(&out);
        return plm_fail(err, PLM_ERR_NOMEM_HOST, "no host memory for the rendered text");
    }
    size_t at = 0;
    for (size_t i = 0; i < buf->n_runs; i++) {
        const bool trusted = buf->runs[i].origin == PLM_ORIGIN_TEMPLATE;
        if (out.n_spans == 0 || out.spans[out.n_spans - 1].trusted != trusted)
            out.spans[out.n_spans++] = (struct plm_span){.begin = at, .trusted = trusted};
        at = out.spans[out.n_spans - 1].end = buf->runs[i].end;
    }
    *ret = out;
    return PLM_OK;
}

int plm_template_run(const struct plm_template *tmpl, const struct plm_render_opts *opts,
                     struct plm_trender *render, struct plm_render *ret, struct plm_error *err)
{
    struct plm_trun r = {
        .tmpl = tmpl, .limits = opts->limits, .now_s = opts->now_s, .err = err, .line = 1};
    plm_tarena_init(&r.arena, tmpl->host, opts->limits.memory_bytes);
    r.out = plm_tbuf_new(&r);
    r.context = plm_tdict_new(&r);
    bool ok = r.out != NULL && r.context != NULL && render->prepare(&r, render->ctx);
    if (ok) {
        r.scope = plm_tscope_new(&r, NULL);
        ok = r.scope != NULL &&
             plm_tpl_exec_list(&r, tmpl->body->list, tmpl->body->n) != PLM_FLOW_FAIL;
    }
    ok = ok && (render->check == NULL || render->check(&r, render->ctx)) && plm_tpl_tell_steps(&r);
    int status = ok ? take_result(&r, tmpl->host, ret, err) : r.status;
    render->steps = r.steps;
    plm_tarena_finish(&r.arena);
    return status;
}

static bool take_context(struct plm_trun *r, void *ctx)
{
    struct json_object *context = ctx;
    if (json_object_get_type(context) != json_type_object)
        return plm_tpl_fail(r, "the context is no object");
    struct json_object_iterator it = json_object_iter_begin(context);
    struct json_object_iterator end = json_object_iter_end(context);
    for (; !json_object_iter_equal(&it, &end); json_object_iter_next(&it)) {
        const char *name = json_object_iter_peek_name(&it);
        bool user = strcmp(name, "bos_token") != 0 && strcmp(name, "eos_token") != 0;
        struct plm_tval value;
        if (!plm_tpl_from_object(r, json_object_iter_peek_value(&it), user, &value) ||
            !plm_tpl_put(r, r->context, name, value))
            return false;
    }
    return true;
}

int plm_template_render(const struct plm_template *tmpl, struct json_object *context,
                        const struct plm_render_opts *opts, struct plm_render *ret,
                        struct plm_error *err)
{
    struct plm_trender render = {.ctx = context, .prepare = take_context};
    return plm_template_run(tmpl, opts, &render, ret, err);
}
