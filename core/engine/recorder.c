// SPDX-License-Identifier: Apache-2.0

#include "core/engine/recorder.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/engine/engine.h"
#include "core/engine/request.h"
#include "core/gguf/types.h"

// The step's time follows within about twenty steps.
#define STEP_SHARE 20

struct plm_recorder {
    struct plm_host *host;
    pthread_mutex_t lock;
    _Atomic uint64_t step;
    int64_t step_ns;    // when it began
    int64_t typical_ns; // time of a step that had work
    uint64_t n;         // records ever made
    struct plm_record records[PLM_RECORDER_RECORDS];
};

// ---- recording ----

int plm_recorder_create(struct plm_host *host, struct plm_recorder **ret)
{
    // Not zeroed: a record is written before it is read.
    struct plm_recorder *recorder = plm_malloc(host, PLM_HOST_OTHER, sizeof(*recorder));
    if (recorder == NULL)
        return PLM_ERR_NOMEM_HOST;
    if (pthread_mutex_init(&recorder->lock, NULL) != 0) {
        plm_free(host, recorder);
        return PLM_ERR_NOMEM_HOST;
    }
    recorder->host = host;
    atomic_init(&recorder->step, 0);
    recorder->step_ns = recorder->typical_ns = 0;
    recorder->n = 0;
    *ret = recorder;
    return PLM_OK;
}

void plm_recorder_destroy(struct plm_recorder *recorder)
{
    if (recorder == NULL)
        return;
    pthread_mutex_destroy(&recorder->lock);
    plm_free(recorder->host, recorder);
}

void plm_recorder_step(struct plm_recorder *recorder, uint64_t step, int64_t now_ns)
{
    const int64_t took = now_ns - recorder->step_ns;
    if (recorder->step_ns > 0 && took > 0)
        recorder->typical_ns +=
            (took - recorder->typical_ns) / (recorder->typical_ns > 0 ? STEP_SHARE : 1);
    recorder->step_ns = now_ns;
    atomic_store_explicit(&recorder->step, step, memory_order_relaxed);
}

uint64_t plm_recorder_put(struct plm_recorder *recorder, const struct plm_record *record)
{
    pthread_mutex_lock(&recorder->lock);
    struct plm_record *to = &recorder->records[recorder->n % PLM_RECORDER_RECORDS];
    *to = *record;
    to->step = atomic_load_explicit(&recorder->step, memory_order_relaxed);
    to->id = ++recorder->n;
    const uint64_t id = to->id;
    pthread_mutex_unlock(&recorder->lock);
    return id;
}

// ---- the world's text ----

static const struct plm_record *oldest(const struct plm_recorder *recorder, uint64_t *ret_n)
{
    *ret_n = recorder->n < PLM_RECORDER_RECORDS ? recorder->n : PLM_RECORDER_RECORDS;
    return &recorder->records[(recorder->n - *ret_n) % PLM_RECORDER_RECORDS];
}

static const struct plm_record *at(const struct plm_recorder *recorder, uint64_t i)
{
    uint64_t n;
    oldest(recorder, &n);
    return &recorder->records[(recorder->n - n + i) % PLM_RECORDER_RECORDS];
}

// What became of a request, looked for behind its submit; NULL: it is still there.
static const struct plm_record *end_of(const struct plm_recorder *recorder, uint64_t from,
                                       uint64_t n, uint64_t id)
{
    for (uint64_t i = from; i < n; i++) {
        const struct plm_record *r = at(recorder, i);
        // The request's id stands in value, since id numbers the record.
        if (r->kind == PLM_RECORD_END && (uint64_t)r->value == id)
            return r;
    }
    return NULL;
}

static void write_device(const struct plim_engine *engine, struct plm_buf *buf)
{
    const struct plm_caps *caps = plm_device_caps(engine->core->rank.device);
    const struct plm_plan *plan = &engine->core->profile.plan;
    plm_buf_printf(buf, "device capacity %" PRId64 "B\ndevice granularity %" PRIu64 "B\n",
                   plan->in.T, caps->granularity_bytes);
    plm_buf_printf(buf, "device max_slab %" PRIu64 "B\ndevice max_slabs %" PRIu32 "\n",
                   caps->max_slab_bytes, caps->max_slabs);
    plm_buf_printf(buf, "device context %" PRId64 "B\ndevice withheld %" PRId64 "B\n",
                   plan->own_drv, plan->in.withheld);
    plm_buf_printf(buf, "device commit %s\n", caps->commit == PLM_COMMIT_SOFT ? "soft" : "hard");
    if (!caps->reports_process_use)
        plm_buf_printf(buf, "device hides_process_use yes\ndevice shown_context %" PRId64 "B\n",
                       plan->own_drv);
    if (engine->recorder->typical_ns > 0)
        plm_buf_printf(buf, "device submit_time %" PRId64 "ns\n", engine->recorder->typical_ns);
    // The driver overhead in what others hold is the context above.
    const int64_t others = plan->foreign - plan->own_drv;
    if (others > 0)
        plm_buf_printf(buf, "at query 1 foreign %" PRId64 "B\n", others);
}

static void write_model(const struct plim_engine *engine, struct plm_buf *buf)
{
    const struct plm_model_facts *f = plm_model_facts(engine->core->model);
    const char *type = plm_type_name(f->main_type);
    plm_buf_printf(buf,
                   "model layers %" PRIu32 " embd %" PRIu32 " heads %" PRIu32 " kv_heads %" PRIu32
                   " ff %" PRIu32 " vocab %" PRIu32 " ctx %" PRIu32 " type ",
                   f->n_layer, f->n_embd, f->n_head, f->groups[0].kv_heads, f->n_ff, f->n_vocab,
                   f->n_ctx_train);
    for (; *type != '\0'; type++)
        plm_buf_append_char(buf, *type >= 'A' && *type <= 'Z' ? (char)(*type + 32) : *type);
    // The last group has a window if any has one. The main group's layers have none, or all have
    // it.
    const struct plm_kv_group *last = &f->groups[f->n_groups - 1];
    if (last->window > 0)
        plm_buf_printf(buf, " window %" PRIu32, last->window);
    if (f->n_groups > 1)
        plm_buf_printf(buf, " full_every %" PRIu32, f->n_layer / f->groups[0].n_layers);
    plm_buf_append_char(buf, '\n');
}

static void write_options(const struct plim_engine *engine, struct plm_buf *buf)
{
    static const char *const neighbours[] = {"auto", "hold", "yield"};
    const plim_engine_opts *o = &engine->core->opts;
    const struct {
        const char *name;
        uint64_t value;
    } options[] = {
        {"ctx_size", o->ctx_size},
        {"batch_max_tokens", o->batch_max_tokens},
        {"max_sequences", o->max_sequences},
        {"memory_limit_bytes", o->memory_limit_bytes},
        {"host_limit_bytes", o->host_limit_bytes},
        {"host_caller_bytes", o->host_caller_bytes},
        {"max_total_tokens", o->max_total_tokens},
        {"queue_max", o->queue_max},
        {"queue_timeout_ms", o->queue_timeout_ms},
        {"queue_max_tokens", o->queue_max_tokens},
        {"prefix_cache", o->prefix_cache},
        {"prefill_chunk", o->prefill_chunk},
        {"kv_min_bytes", o->kv_min_bytes},
        {"kv_type", o->kv_type},
        {"monitor_ms", o->monitor_ms},
        {"watchdog_ms", o->watchdog_ms},
    };
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
        plm_buf_printf(buf, "engine %s %" PRIu64 "\n", options[i].name, options[i].value);
    plm_buf_printf(buf, "engine memory_fraction %.9g\n", o->memory_fraction);
    plm_buf_printf(buf, "engine neighbours %s\n", neighbours[o->neighbours % 3]);
    plm_buf_append_str(buf, "engine player.offers no\n"); // what clients did then is below
}

// A request as the world's clients send it. end: NULL where it is not over.
static void write_request(uint64_t step, const struct plm_record *r, const struct plm_record *end,
                          uint64_t base, struct plm_buf *buf)
{
    // One that ended well asks for what it got: its end may have been the model's word.
    const uint32_t max = end != NULL && end->status == PLM_OK && end->a > 0 ? end->a : r->b;
    plm_buf_printf(buf, "request step %" PRIu64 " prompt %" PRIu32 " max %" PRIu32, step, r->a,
                   max);
    plm_buf_printf(buf, " n %u seed %" PRIu64, r->n, (uint64_t)r->value);
    if (end != NULL && end->status == PLM_ERR_CANCELLED) {
        const uint64_t left = end->step > base ? end->step - base : 1;
        plm_buf_printf(buf, " leave_step %" PRIu64, left);
    }
    if (end != NULL && end->status == PLM_ERR_NUMERIC)
        plm_buf_append_str(buf, " poison");
    plm_buf_append_char(buf, '\n');
}

// Those whose submit the recorder has forgotten run from the start.
static void write_running(const struct plim_engine *engine, uint64_t first_id, uint64_t base,
                          struct plm_buf *buf)
{
    const struct plim_request *last = engine->requests;
    while (last != NULL && last->next != NULL)
        last = last->next; // the list has the newest first
    for (const struct plim_request *q = last; q != NULL; q = q->prev) {
        const struct plm_record r = {.a = q->n_prompt,
                                     .b = q->choices[0].max_output,
                                     .n = (uint16_t)q->n,
                                     .value = (int64_t)q->params.seed};
        if (q->record_id < first_id)
            write_request(0, &r, NULL, base, buf);
    }
}

static void write_event(const struct plm_record *r, uint64_t step, struct plm_buf *buf)
{
    switch ((enum plm_record_kind)r->kind) {
    case PLM_RECORD_OTHERS:
        plm_buf_printf(buf, "at step %" PRIu64 " foreign %" PRId64 "B\n", step, r->value);
        break;
    case PLM_RECORD_NO_ROOM:
        plm_buf_printf(buf, "at step %" PRIu64 " fail_submits 1\n", step);
        break;
    case PLM_RECORD_LOST: plm_buf_printf(buf, "at step %" PRIu64 " lost\n", step); break;
    case PLM_RECORD_HANG:
        plm_buf_printf(buf, "at step %" PRIu64 " hang %" PRId64 "ns\n", step, r->value);
        break;
    case PLM_RECORD_OVERRUN:
        plm_buf_printf(buf, "at step %" PRIu64 " overrun %" PRId64 "B\n", step, r->value);
        break;
    case PLM_RECORD_SLEEP: plm_buf_printf(buf, "action step %" PRIu64 " sleep\n", step); break;
    case PLM_RECORD_WAKE: plm_buf_printf(buf, "action step %" PRIu64 " wake\n", step); break;
    case PLM_RECORD_DRAIN: plm_buf_printf(buf, "action step %" PRIu64 " drain\n", step); break;
    case PLM_RECORD_ADMIT:
        plm_buf_printf(buf, "# step %" PRIu64 ": the request of record %" PRId64 " is admitted\n",
                       step, r->value);
        break;
    case PLM_RECORD_RESIZE:
        plm_buf_printf(buf, "# step %" PRIu64 ": the KV cache has %" PRIu32 " blocks\n", step,
                       r->a);
        break;
    case PLM_RECORD_SUBMIT:
    case PLM_RECORD_REFUSE:
    case PLM_RECORD_END: break;
    }
}

static void write_records(const struct plm_recorder *recorder, uint64_t base, struct plm_buf *buf)
{
    uint64_t n;
    oldest(recorder, &n);
    for (uint64_t i = 0; i < n; i++) {
        const struct plm_record *r = at(recorder, i);
        const uint64_t step = r->step - base;
        if (r->kind == PLM_RECORD_SUBMIT) {
            plm_buf_printf(buf, "# record %" PRIu64 ":\n", r->id);
            write_request(step, r, end_of(recorder, i, n, r->id), base, buf);
        } else if (r->kind == PLM_RECORD_REFUSE) {
            plm_buf_printf(buf, "# refused: %s\n", plm_strstatus(r->status));
            write_request(step, r, NULL, base, buf);
        } else {
            write_event(r, step, buf);
        }
    }
}

static bool any_poison(const struct plm_recorder *recorder)
{
    uint64_t n;
    oldest(recorder, &n);
    for (uint64_t i = 0; i < n; i++) {
        if (at(recorder, i)->kind == PLM_RECORD_END && at(recorder, i)->status == PLM_ERR_NUMERIC)
            return true;
    }
    return false;
}

// The world that the recorder remembers. buf->failed: no host memory.
static void write_world(struct plim_engine *engine, const char *reason, struct plm_buf *buf)
{
    struct plm_recorder *recorder = engine->recorder;
    uint64_t n;
    pthread_mutex_lock(&recorder->lock);
    const struct plm_record *first = oldest(recorder, &n);
    // Steps count from the first one that is remembered whole.
    const uint64_t base = recorder->n > n && first->step > 0 ? first->step - 1 : 0;
    plm_buf_printf(buf, "plimsoll-world 1\n# %s, at step %" PRIu64 " of the engine\n", reason,
                   engine->n_marks);
    if (base > 0)
        plm_buf_printf(buf, "# the first %" PRIu64 " steps are forgotten\n", base);
    write_device(engine, buf);
    if (any_poison(recorder))
        plm_buf_append_str(buf, "device poison 0 nan\n");
    write_model(engine, buf);
    write_options(engine, buf);
    write_running(engine, n > 0 ? first->id : 0, base, buf);
    write_records(recorder, base, buf);
    plm_buf_append_str(buf, "want incidents >= 1\n");
    pthread_mutex_unlock(&recorder->lock);
}

// ---- telling ----

void plm_incident(struct plim_engine *engine, const char *reason)
{
    if (engine->incident == NULL) // of several in one step the first led to the others
        engine->incident = reason;
}

void plm_incident_tell(struct plim_engine *engine)
{
    const plim_engine_opts *o = &engine->core->opts;
    const char *reason = engine->incident;
    struct plm_buf text;
    engine->incident = NULL;
    if (reason == NULL || o->incident == NULL)
        return;
    plm_buf_init(&text, engine->core->host, PLM_HOST_OTHER);
    write_world(engine, reason, &text);
    if (text.failed) {
        plm_logf(&engine->core->log, PLM_LOG_WARN,
                 "no host memory to write what led to an incident (%s)", reason);
    } else {
        engine->counts.incidents++;
        o->incident(o->incident_ctx, reason, text.data, text.len);
    }
    plm_buf_finish(&text);
}
