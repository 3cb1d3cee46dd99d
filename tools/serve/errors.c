// SPDX-License-Identifier: Apache-2.0
#include "tools/serve/errors.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void set_message(struct plm_api_error *error, const char *fmt, va_list ap)
{
    vsnprintf(error->message, sizeof(error->message), fmt, ap);
}

void plm_api_error_invalid(struct plm_api_error *ret, const char *param, const char *fmt, ...)
{
    *ret = (struct plm_api_error){.http = 400, .type = "invalid_request_error"};
    if (param != NULL)
        snprintf(ret->param, sizeof(ret->param), "%s", param);
    va_list ap;
    va_start(ap, fmt);
    set_message(ret, fmt, ap);
    va_end(ap);
}

void plm_api_error_set(struct plm_api_error *ret, int http, const char *type, const char *code,
                       const char *fmt, ...)
{
    *ret = (struct plm_api_error){.http = http, .type = type, .code = code};
    va_list ap;
    va_start(ap, fmt);
    set_message(ret, fmt, ap);
    va_end(ap);
}

void plm_api_error_host(struct plm_api_error *ret)
{
    plm_api_error_set(ret, 503, "overloaded_error", "insufficient_memory",
                      "the server has no host memory left for this request right now");
    ret->retry_after_s = 1;
}

// How a result of the engine is presented. SDKs retry every 5xx, so that what can never succeed
// has to be a 4xx, and what may succeed later says when.
static const struct {
    int status;
    int http; // 0: the overload status
    const char *type;
    const char *code;
    bool never_retry;
    int retry_after_s; // at least
} table[] = {
    {PLIM_ERR_INVALID, 400, "invalid_request_error", NULL, false, 0},
    {PLIM_ERR_FORMAT, 400, "invalid_request_error", NULL, false, 0},
    {PLIM_ERR_LIMIT, 400, "invalid_request_error", NULL, false, 0},
    {PLIM_ERR_UNSUPPORTED, 400, "invalid_request_error", "unsupported", false, 0},
    {PLIM_ERR_CONTEXT, 400, "invalid_request_error", "context_length_exceeded", false, 0},
    {PLIM_ERR_NOMEM_NEVER, 400, "invalid_request_error", "memory_budget_exceeded", true, 0},
    {PLIM_ERR_NOMEM_NOW, 0, "overloaded_error", "insufficient_memory", false, 1},
    {PLIM_ERR_NOMEM_HOST, 0, "overloaded_error", "insufficient_memory", false, 1},
    {PLIM_ERR_TIMEOUT, 0, "overloaded_error", "insufficient_memory", false, 1},
    {PLIM_ERR_QUEUE_FULL, 0, "overloaded_error", "queue_full", false, 1},
    {PLIM_ERR_CLOSED, 503, "unavailable_error", "draining", false, 5},
    {PLIM_ERR_CANCELLED, 503, "unavailable_error", "cancelled", false, 5},
    {PLIM_ERR_LOST, 500, "server_error", "backend_error", false, 0},
    {PLIM_ERR_OUT_OF_DEVICE, 500, "server_error", "backend_error", false, 0},
    {PLIM_ERR_NUMERIC, 500, "server_error", "backend_error", false, 0},
};

void plm_api_error_from_engine(struct plm_api_error *ret, int status,
                               const plim_error *engine_error, int overload_status)
{
    *ret = (struct plm_api_error){.http = 500, .type = "server_error", .code = "internal_error"};
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        if (table[i].status != status)
            continue;
        ret->http = table[i].http != 0 ? table[i].http : overload_status;
        ret->type = table[i].type;
        ret->code = table[i].code;
        ret->never_retry = table[i].never_retry;
        ret->retry_after_s = table[i].retry_after_s;
        break;
    }
    ret->close = status == PLIM_ERR_CLOSED;
    if (engine_error != NULL)
        ret->numbers = *engine_error;
    if (ret->retry_after_s > 0 && ret->numbers.retry_after_s > ret->retry_after_s)
        ret->retry_after_s = ret->numbers.retry_after_s;
    ret->has_context = status == PLIM_ERR_CONTEXT;
    ret->has_queue = status == PLIM_ERR_QUEUE_FULL;
    ret->has_memory = status == PLIM_ERR_NOMEM_NEVER || status == PLIM_ERR_NOMEM_NOW ||
                      (status == PLIM_ERR_NOMEM_HOST && ret->numbers.limit_bytes > 0);
    snprintf(ret->param, sizeof(ret->param), "%s", ret->numbers.param);
    const char *text =
        ret->numbers.message[0] != '\0' ? ret->numbers.message : plim_strstatus(status);
    // Clients recognise an overflow by these words.
    if (ret->has_context && strstr(text, "maximum context length") == NULL)
        snprintf(ret->message, sizeof(ret->message),
                 "This model's maximum context length is %" PRId64 " tokens: %s",
                 ret->numbers.n_ctx, text);
    else
        snprintf(ret->message, sizeof(ret->message), "%s", text);
}

void plm_api_error_host_for(struct plm_api_error *ret, const plim_engine *engine, int64_t bytes)
{
    plim_metrics m = PLIM_INIT(plim_metrics);
    plim_engine_metrics(engine, &m);
    plim_error e = {.needed_bytes = m.host_idle_bytes + bytes,
                    .limit_bytes = m.host_limit_bytes,
                    .term = "host"};
    if (m.host_limit_bytes == 0 || e.needed_bytes <= e.limit_bytes) {
        plm_api_error_host(ret);
        return;
    }
    snprintf(e.message, sizeof(e.message),
             "with this request the server would need %" PRId64 " bytes of host memory, and the "
             "limit is %" PRId64,
             e.needed_bytes, e.limit_bytes);
    plm_api_error_from_engine(ret, PLIM_ERR_NOMEM_NEVER, &e, 0);
}

// What was asked for and the limit, as the binding term counts them, and what would be let in now.
static void refusal_json(const struct plm_api_error *error, struct plm_out *out)
{
    const plim_error *n = &error->numbers;
    const char *unit = error->has_memory ? "_bytes" : "";
    plm_out_printf(out, ",\"needed%s\":%" PRId64 ",\"limit%s\":%" PRId64 ",\"term\":", unit,
                   n->needed_bytes, unit, n->limit_bytes);
    plm_out_json_str(out, n->term);
    plm_out_printf(out,
                   ",\"n_prompt_tokens\":%" PRId64 ",\"offer\":{\"prompt_tokens\":%" PRId64
                   ",\"max_tokens\":%" PRId64 ",\"n\":%" PRId64 "}",
                   n->n_prompt_tokens, n->offer_prompt_tokens, n->offer_max_tokens, n->offer_n);
}

void plm_api_error_json(const struct plm_api_error *error, struct plm_out *out)
{
    plm_out_str(out, "{\"error\":{\"message\":");
    plm_out_json_str(out, error->message);
    plm_out_str(out, ",\"type\":");
    plm_out_json_str(out, error->type);
    plm_out_str(out, ",\"param\":");
    if (error->param[0] != '\0')
        plm_out_json_str(out, error->param);
    else
        plm_out_str(out, "null");
    plm_out_str(out, ",\"code\":");
    if (error->code != NULL)
        plm_out_json_str(out, error->code);
    else
        plm_out_str(out, "null");
    if (error->has_memory || error->has_queue)
        refusal_json(error, out);
    if (error->has_context)
        plm_out_printf(out, ",\"n_prompt_tokens\":%" PRId64 ",\"n_ctx\":%" PRId64,
                       error->numbers.n_prompt_tokens, error->numbers.n_ctx);
    plm_out_str(out, "}}");
}
