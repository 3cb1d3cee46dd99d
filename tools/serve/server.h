// SPDX-License-Identifier: Apache-2.0
// What the parts of the server share. Everything in it belongs to the I/O thread, except what is
// set before the workers get their first job.
#ifndef PLM_SERVE_SERVER_H
#define PLM_SERVE_SERVER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/plimsoll.h"
#include "tools/plan_cache.h"
#include "tools/serve/access.h"
#include "tools/serve/errors.h"
#include "tools/serve/flags.h"
#include "tools/serve/http.h"
#include "tools/serve/openai_request.h"
#include "tools/serve/openai_response.h"
#include "tools/serve/workers.h"

#define PLM_MODEL_NAMES_MAX (PLM_OPT_LIST_MAX + 3)

struct plm_call;

struct plm_server {
    struct plm_serve_flags flags;
    struct plm_engine_flags engine_flags;
    struct plm_plan_cache plan_cache;
    struct plm_access access;
    struct plm_peers trusted_proxies;
    struct plm_share bodies; // outlives connections and workers
    struct plm_http *http;
    struct plm_workers *workers;
    struct plm_workers *operators; // for endpoints of operators, which wait for no user's request
    plim_engine *engine;           // NULL: still loading
    plim_model_info model;
    plim_request_opts defaults; // of requests
    const char *model_names[PLM_MODEL_NAMES_MAX];
    size_t n_model_names;
    char *model_file; // base name of the file, and without its ending
    char *model_stem;
    int64_t started_s;
    size_t max_body_bytes;
    bool draining;
    struct {
        pthread_mutex_t lock;
        // Whose sleep is under way on a worker, or NULL; written under the lock.
        _Atomic(struct plm_call *) call;
    } sleeper;
    struct plm_call *calls; // all that are open
    unsigned n_calls;
    uint64_t responses[6]; // by first digit of the status
};

// A line of endpoints.def.
struct plm_route {
    const char *method;
    const char *path;
    enum plm_role role;
    bool early;   // answered before the model is loaded
    bool no_body; // its body may be empty
    bool probe;   // an answer of 200 is not logged
    void (*get)(struct plm_server *srv, struct plm_exchange *x);
    // On a worker: fills call->reply, or call->request, or call->error.
    void (*work)(struct plm_call *call, const struct plm_json_doc *doc);
};

// Events are left with the engine while a client has so much unread: memory stays bounded by it,
// and a stream of short events is still written in large pieces.
#define PLM_CALL_BACKLOG_BYTES (32 * 1024)

// One POST: from its complete body to the last byte of its answer.
struct plm_call {
    struct plm_job job;
    struct plm_server *srv;
    struct plm_exchange *x; // NULL: the client has left
    const struct plm_route *route;
    struct plm_call *prev, *next;
    int key_index;
    bool in_worker;   // the fields below belong to the worker
    atomic_bool gone; // the client has left; the worker need not begin
    struct plm_out body;
    struct plm_api_error error; // http != 0: failed
    struct plm_out reply;
    plim_request *request;
    struct plm_openai_request parsed;
    struct plm_out echo;
    bool has_echo;
    struct plm_answer answer;
    struct plm_purse *purse; // what the host budget has for the answer; NULL before it is admitted
    uint32_t prompt_tokens, cached_tokens, output_tokens; // of a request that ended
    double queue_s, prefill_s, decode_s;
    bool admitted;
    bool done; // its answer, or the end of its stream, was handed over: nothing may follow it
};

// access_flags.c: fills srv->access and wipes keys out of the command line. False with a sentence
// on stderr.
bool plm_serve_apply_access(struct plm_server *srv);

// routes.c
void plm_routes_handler(struct plm_server *srv, struct plm_http_handler *ret);

// reply.c
void plm_reply(struct plm_server *srv, struct plm_exchange *x, int status, const char *content_type,
               const struct plm_http_header *extra, size_t n_extra, bool close,
               struct plm_out *body);
void plm_reply_error(struct plm_server *srv, struct plm_exchange *x,
                     const struct plm_api_error *error);
void plm_reply_json(struct plm_server *srv, struct plm_exchange *x, int status,
                    struct plm_out *body);

// get.c: what GET answers.
void plm_get_health(struct plm_server *srv, struct plm_exchange *x);
void plm_get_livez(struct plm_server *srv, struct plm_exchange *x);
void plm_get_readyz(struct plm_server *srv, struct plm_exchange *x);
void plm_get_models(struct plm_server *srv, struct plm_exchange *x);
void plm_get_root(struct plm_server *srv, struct plm_exchange *x);
void plm_get_model(struct plm_server *srv, struct plm_exchange *x);
void plm_get_metrics(struct plm_server *srv, struct plm_exchange *x);
void plm_get_memory(struct plm_server *srv, struct plm_exchange *x);

// call.c
void plm_call_start(struct plm_server *srv, struct plm_exchange *x, const struct plm_route *route,
                    int key_index);
// The exchange is closed.
void plm_call_closed(struct plm_call *call);
// A worker has finished it.
void plm_call_finished(struct plm_job *job);
// Events may be there.
void plm_call_pump(struct plm_call *call);
// Keep-alive comments for all streams that have been silent.
void plm_calls_ping(struct plm_server *srv, int64_t now_ms);
// Cancels whatever still runs; each ends with its own error.
void plm_calls_cancel(struct plm_server *srv);
// Ends what is still open with that error, whether the engine answers or not.
void plm_calls_fail(struct plm_server *srv);

// work.c: what workers do for the POST routes.
void plm_work_chat(struct plm_call *call, const struct plm_json_doc *doc);
void plm_work_completion(struct plm_call *call, const struct plm_json_doc *doc);
void plm_work_tokenize(struct plm_call *call, const struct plm_json_doc *doc);
void plm_work_detokenize(struct plm_call *call, const struct plm_json_doc *doc);
void plm_work_apply_template(struct plm_call *call, const struct plm_json_doc *doc);

// sleep.c
void plm_work_sleep(struct plm_call *call, const struct plm_json_doc *doc);
void plm_work_wake(struct plm_call *call, const struct plm_json_doc *doc);
// Whether the engine sleeps, or is about to: it refuses new requests from the first moment on.
bool plm_sleeps(const struct plm_server *srv, const plim_metrics *m);
// Once a second: takes back a sleep that waits for running requests when its caller has left or the
// server is to end.
void plm_sleep_tick(struct plm_server *srv);

// metrics.c
void plm_metrics_text(struct plm_server *srv, struct plm_out *out);

static inline int plm_overload_status(const struct plm_server *srv)
{
    return srv->flags.overload == 1 ? 429 : 503;
}

#endif
