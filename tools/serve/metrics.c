// SPDX-License-Identifier: Apache-2.0
// GET /metrics in the Prometheus text format. Names end as vLLM's and llama-server's do, so that
// dashboards need a new prefix only.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/serve/server.h"

#define BLOCK_TOKENS 16 // of the KV cache

struct writer {
    struct plm_out *out;
    const char *prefix; // "plimsoll"
    char model[300];    // model_name="..."
};

static void head(const struct writer *w, const char *name, const char *type, const char *help)
{
    plm_out_printf(w->out, "# HELP %s:%s %s\n# TYPE %s:%s %s\n", w->prefix, name, help, w->prefix,
                   name, type);
}

static void gauge(const struct writer *w, const char *name, const char *help, double value)
{
    head(w, name, "gauge", help);
    plm_out_printf(w->out, "%s:%s{%s} %.15g\n", w->prefix, name, w->model, value);
}

static void counter(const struct writer *w, const char *name, const char *help, double value)
{
    head(w, name, "counter", help);
    plm_out_printf(w->out, "%s:%s{%s} %.15g\n", w->prefix, name, w->model, value);
}

static void sample(const struct writer *w, const char *name, const char *label, const char *value,
                   double number)
{
    plm_out_printf(w->out, "%s:%s{%s,%s=\"%s\"} %.15g\n", w->prefix, name, w->model, label, value,
                   number);
}

static void histogram(const struct writer *w, const char *name, const char *help,
                      const plim_histogram *h)
{
    head(w, name, "histogram", help);
    uint64_t below = 0;
    for (int i = 0; i < PLIM_HISTOGRAM_BUCKETS; i++) {
        below += h->count[i];
        plm_out_printf(w->out, "%s:%s_bucket{%s,le=\"%.9g\"} %" PRIu64 "\n", w->prefix, name,
                       w->model, h->bound_s[i], below);
    }
    below += h->count[PLIM_HISTOGRAM_BUCKETS];
    plm_out_printf(w->out, "%s:%s_bucket{%s,le=\"+Inf\"} %" PRIu64 "\n", w->prefix, name, w->model,
                   below);
    plm_out_printf(w->out, "%s:%s_sum{%s} %.9g\n%s:%s_count{%s} %" PRIu64 "\n", w->prefix, name,
                   w->model, h->sum_s, w->prefix, name, w->model, below);
}

// The set that vLLM has, by its names.
static void vllm_set(const struct writer *w, const plim_metrics *m)
{
    static const char *const reasons[PLIM_FINISH_REASONS] = {NULL, "stop", "length", "abort",
                                                             "error"};
    gauge(w, "num_requests_running", "Requests with KV blocks", m->running);
    gauge(w, "num_requests_waiting", "Requests in the queue", m->waiting);
    gauge(w, "kv_cache_usage_perc", "Used part of the KV cache, 1 is all", m->kv_usage);
    counter(w, "prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache",
            (double)m->prefix_queries);
    counter(w, "prefix_cache_hits_total", "Prompt tokens found in the prefix cache",
            (double)m->prefix_hits);
    counter(w, "num_preemptions_total", "Requests set back to be computed again",
            (double)m->preemptions);
    counter(w, "prompt_tokens_total", "Prompt tokens", (double)m->prompt_tokens);
    counter(w, "generation_tokens_total", "Generated tokens", (double)m->generated_tokens);
    head(w, "request_success_total", "counter", "Requests that ended, by reason");
    for (int i = PLIM_FINISH_STOP; i < PLIM_FINISH_REASONS; i++)
        sample(w, "request_success_total", "finished_reason", reasons[i], (double)m->finished[i]);
    histogram(w, "time_to_first_token_seconds", "Submit to first token", &m->time_to_first_token);
    histogram(w, "inter_token_latency_seconds", "Between two tokens", &m->inter_token);
    histogram(w, "e2e_request_latency_seconds", "Submit to end", &m->e2e);
    histogram(w, "request_queue_time_seconds", "Submit to admission", &m->queue);
    histogram(w, "request_prefill_time_seconds", "Admission to first token", &m->prefill);
    histogram(w, "request_decode_time_seconds", "First to last token", &m->decode);
}

static double rate(double n, double seconds)
{
    return seconds > 0 ? n / seconds : 0;
}

// The endings that llama-server has.
static void llama_set(const struct writer *w, const plim_metrics *m)
{
    gauge(w, "requests_processing", "Requests with KV blocks", m->running);
    gauge(w, "requests_deferred", "Requests in the queue", m->waiting);
    gauge(w, "kv_cache_usage_ratio", "Used part of the KV cache, 1 is all", m->kv_usage);
    gauge(w, "kv_cache_tokens", "Tokens that the used KV blocks hold",
          (double)m->blocks_used * BLOCK_TOKENS);
    gauge(w, "prompt_tokens_seconds", "Mean prompt tokens per second",
          rate((double)(m->prompt_tokens - m->cached_tokens), m->prefill.sum_s));
    gauge(w, "predicted_tokens_seconds", "Mean generated tokens per second and request",
          rate((double)m->generated_tokens, m->decode.sum_s));
    counter(w, "tokens_predicted_total", "Generated tokens", (double)m->generated_tokens);
    counter(w, "n_decode_total", "Steps of the engine", (double)m->steps);
}

static void memory_set(const struct writer *w, const plim_metrics *m)
{
    static const char *const kinds[9] = {"weights", "kv",      "state",   "workspace", "encoder",
                                         "graph",   "staging", "ballast", "other"};
    head(w, "device_memory_bytes", "gauge", "Device memory held, by class");
    for (int i = 0; i < 9; i++)
        sample(w, "device_memory_bytes", "kind", kinds[i], (double)m->memory_bytes[i]);
    gauge(w, "device_memory_limit_bytes", "The load line", (double)m->limit_bytes);
    gauge(w, "device_memory_used_bytes", "Device memory held", (double)m->used_bytes);
    gauge(w, "device_memory_high_water_bytes", "The most that was ever held",
          (double)m->high_water_bytes);
    gauge(w, "device_memory_margin_bytes", "Measured head-room kept free", (double)m->margin_bytes);
    gauge(w, "host_memory_used_bytes", "Host budget in use", (double)m->host_used_bytes);
    gauge(w, "host_memory_limit_bytes", "Host budget", (double)m->host_limit_bytes);
    head(w, "kv_blocks", "gauge", "Blocks of the KV cache");
    sample(w, "kv_blocks", "state", "used", (double)m->blocks_used);
    sample(w, "kv_blocks", "state", "cached", (double)m->blocks_cached);
    sample(w, "kv_blocks", "state", "free", (double)m->blocks_free);
}

static void health_set(const struct writer *w, const plim_metrics *m, const struct plm_server *srv)
{
    static const char *const classes[6] = {"0xx", "1xx", "2xx", "3xx", "4xx", "5xx"};
    head(w, "admission_rejected_total", "counter", "Requests refused, by reason");
    sample(w, "admission_rejected_total", "reason", "never", (double)m->rejected_never);
    sample(w, "admission_rejected_total", "reason", "now", (double)m->rejected_now);
    sample(w, "admission_rejected_total", "reason", "queue", (double)m->rejected_queue);
    sample(w, "admission_rejected_total", "reason", "context", (double)m->rejected_context);
    counter(w, "allocations_in_step_total", "Device allocations inside a step; 0 is the promise",
            (double)m->allocations_in_step);
    counter(w, "kv_resizes_total", "Changes of the KV cache's size", (double)m->resizes);
    counter(w, "audit_excess_total", "Steps that took more than their computed cost",
            (double)m->audit_excess);
    gauge(w, "scheduler_last_step_age_seconds", "Since a step finished while there is work",
          (double)m->last_step_age_ns / 1e9);
    gauge(w, "ready", "1: requests are taken", m->ready && !srv->draining);
    head(w, "http_responses_total", "counter", "HTTP responses, by class");
    for (int i = 2; i < 6; i++)
        sample(w, "http_responses_total", "code", classes[i], (double)srv->responses[i]);
    gauge(w, "http_connections", "Open connections", plm_http_connections(srv->http));
}

// A label value: backslash, quote and line feed are escaped, as the format wants.
static void set_model(struct writer *w, const char *name)
{
    size_t at = (size_t)snprintf(w->model, sizeof(w->model), "model_name=\"");
    for (; *name != '\0' && at + 4 < sizeof(w->model); name++) {
        if (*name == '\\' || *name == '"')
            w->model[at++] = '\\';
        w->model[at++] = *name == '\n' ? ' ' : *name;
    }
    w->model[at++] = '"';
    w->model[at] = '\0';
}

void plm_metrics_text(struct plm_server *srv, struct plm_out *out)
{
    plim_metrics m = {.struct_size = sizeof(m)};
    plim_engine_metrics(srv->engine, &m);
    struct writer w = {.out = out, .prefix = "plimsoll"};
    set_model(&w, srv->model_names[0]);
    vllm_set(&w, &m);
    llama_set(&w, &m);
    memory_set(&w, &m);
    health_set(&w, &m, srv);
    if (srv->flags.metrics_alias == 1) {
        w.prefix = "vllm";
        vllm_set(&w, &m);
    }
}
