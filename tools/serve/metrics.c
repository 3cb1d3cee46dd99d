// SPDX-License-Identifier: Apache-2.0
// GET /metrics in the Prometheus text format. Names end as vLLM's and llama-server's do, so that
// dashboards need a new prefix only.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tools/serve/log.h"
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
    const struct {
        const char *reason;
        uint64_t n;
    } finished[] = {{"stop", m->finished_stop},
                    {"length", m->finished_length},
                    {"abort", m->finished_cancelled},
                    {"error", m->finished_error}};
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
    for (size_t i = 0; i < sizeof(finished) / sizeof(finished[0]); i++)
        sample(w, "request_success_total", "finished_reason", finished[i].reason,
               (double)finished[i].n);
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
    const struct {
        const char *kind;
        int64_t bytes;
    } held[] = {{"weights", m->weights_bytes}, {"kv", m->kv_bytes},
                {"state", m->state_bytes},     {"workspace", m->workspace_bytes},
                {"encoder", m->encoder_bytes}, {"graph", m->graph_bytes},
                {"staging", m->staging_bytes}, {"ballast", m->ballast_bytes},
                {"other", m->other_bytes}};
    head(w, "device_memory_bytes", "gauge", "Device memory held, by class");
    for (size_t i = 0; i < sizeof(held) / sizeof(held[0]); i++)
        sample(w, "device_memory_bytes", "kind", held[i].kind, (double)held[i].bytes);
    // Below the line, what is not held now.
    const int64_t free_bytes = m->limit_bytes - m->used_bytes;
    sample(w, "device_memory_bytes", "kind", "free", free_bytes > 0 ? (double)free_bytes : 0);
    gauge(w, "device_memory_limit_bytes", "The load line", (double)m->limit_bytes);
    gauge(w, "device_memory_used_bytes", "Device memory held", (double)m->used_bytes);
    gauge(w, "device_memory_high_water_bytes", "The most that was ever held",
          (double)m->high_water_bytes);
    gauge(w, "device_memory_margin_bytes", "Measured head-room kept free", (double)m->margin_bytes);
    gauge(w, "device_memory_foreign_bytes", "What others hold of the device, as last read",
          (double)m->foreign_bytes);
    gauge(w, "device_memory_largest_free_bytes", "What the device has free, as last read",
          (double)m->largest_free_bytes);
    gauge(w, "host_memory_used_bytes", "Host budget in use", (double)m->host_used_bytes);
    gauge(w, "host_memory_limit_bytes", "Host budget", (double)m->host_limit_bytes);
    gauge(w, "host_memory_idle_bytes", "Of the host budget, what the engine itself uses",
          (double)m->host_idle_bytes);
    head(w, "kv_blocks", "gauge", "Blocks of the KV cache");
    sample(w, "kv_blocks", "state", "used", (double)m->blocks_used);
    sample(w, "kv_blocks", "state", "cached", (double)m->blocks_cached);
    sample(w, "kv_blocks", "state", "free", (double)m->blocks_free);
    counter(w, "plan_shrinks_total", "Times the start tried again with a smaller plan",
            (double)m->plan_shrinks);
    gauge(w, "canary_last_result", "1: the last validation of the plan passed",
          m->validated_blocks > 0);
    gauge(w, "canary_validated_blocks", "KV blocks that it proved", (double)m->validated_blocks);
    counter(w, "kv_slabs_released_total", "Given back for neighbours or sleep", (double)m->shrinks);
    counter(w, "kv_slabs_retaken_total", "Taken again", (double)m->grows);
    counter(w, "ledger_mismatches_total", "Times that the driver said otherwise than our account",
            (double)m->ledger_mismatches);
    gauge(w, "asleep", "1: the KV cache was given back", m->asleep);
    gauge(w, "last_sleep_seconds", "How long going to sleep took", m->last_sleep_s);
    gauge(w, "last_wake_seconds", "How long waking took", m->last_wake_s);
}

// What went wrong and was overcome.
static void fault_set(const struct writer *w, const plim_metrics *m)
{
    counter(w, "device_losses_total", "Times the device was lost", (double)m->losses);
    counter(w, "device_reopened_total", "Times it came back", (double)m->reopened);
    counter(w, "step_replays_total", "Steps run again to find whose fault a failure was",
            (double)m->replays);
    counter(w, "requests_poisoned_total", "Requests that were found so", (double)m->poisoned);
    counter(w, "step_resubmits_total", "Steps that a refused submit delayed", (double)m->resubmits);
    counter(w, "stalls_total", "Times there was work and no progress", (double)m->stalls);
    counter(w, "slow_steps_total", "Steps that took far longer than when the plan was proved",
            (double)m->slow_steps);
    counter(w, "slowdowns_total", "Times that several steps in a row did", (double)m->slowdowns);
    gauge(w, "slow", "1: they do; memory may have been pushed out of the device", m->slow);
    counter(w, "incidents_total", "World files handed out", (double)m->incidents);
    counter(w, "log_lines_dropped_total", "Lines of the log that nobody took",
            (double)plm_log_dropped());
    counter(w, "allocations_in_step_total", "Device allocations inside a step; 0 is the promise",
            (double)m->allocations_in_step);
    counter(w, "kv_resizes_total", "Changes of the KV cache's size", (double)m->resizes);
    counter(w, "audit_excess_total", "Steps that took more than their computed cost",
            (double)m->audit_excess);
}

// When the last step ended, as dashboards want it: seconds since 1970. The engine says it on the
// monotonic clock; 0 before the first step.
static double last_step_s(const plim_metrics *m)
{
    struct timespec mono, wall;
    if (m->last_step_time_ns == 0)
        return 0;
    clock_gettime(CLOCK_MONOTONIC, &mono);
    clock_gettime(CLOCK_REALTIME, &wall);
    const double age_s =
        (double)mono.tv_sec + (double)mono.tv_nsec / 1e9 - (double)m->last_step_time_ns / 1e9;
    return (double)wall.tv_sec + (double)wall.tv_nsec / 1e9 - (age_s > 0 ? age_s : 0);
}

static void health_set(const struct writer *w, const plim_metrics *m, const struct plm_server *srv)
{
    static const char *const classes[6] = {"0xx", "1xx", "2xx", "3xx", "4xx", "5xx"};
    head(w, "admission_rejected_total", "counter", "Requests refused, by reason");
    sample(w, "admission_rejected_total", "reason", "never", (double)m->rejected_never);
    sample(w, "admission_rejected_total", "reason", "now", (double)m->rejected_now);
    sample(w, "admission_rejected_total", "reason", "queue", (double)m->rejected_queue);
    sample(w, "admission_rejected_total", "reason", "context", (double)m->rejected_context);
    gauge(w, "scheduler_last_step_timestamp_seconds", "When the last step ended, since 1970",
          last_step_s(m));
    gauge(w, "scheduler_last_step_age_seconds", "Since a step finished while there is work",
          (double)m->last_step_age_ns / 1e9);
    gauge(w, "num_requests_preempted", "Of the waiting, those to be computed again", m->preempted);
    gauge(w, "ready", "1: requests are taken", m->ready && !plm_sleeps(srv, m) && !srv->draining);
    head(w, "http_responses_total", "counter", "HTTP responses, by class");
    for (int i = 2; i < 6; i++)
        sample(w, "http_responses_total", "code", classes[i], (double)srv->responses[i]);
    gauge(w, "http_connections", "Open connections", plm_http_connections(srv->http));
    counter(w, "http_turned_away_total", "Connections answered 503 for want of a place",
            (double)plm_http_turned_away(srv->http));
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
    plim_metrics m = PLIM_INIT(plim_metrics);
    plim_engine_metrics(srv->engine, &m);
    struct writer w = {.out = out, .prefix = "plimsoll"};
    set_model(&w, srv->model_names[0]);
    vllm_set(&w, &m);
    llama_set(&w, &m);
    memory_set(&w, &m);
    fault_set(&w, &m);
    health_set(&w, &m, srv);
    if (srv->flags.metrics_alias == 1) {
        w.prefix = "vllm";
        vllm_set(&w, &m);
    }
}
