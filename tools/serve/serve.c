// SPDX-License-Identifier: Apache-2.0
// plimsoll serve: start, the loop of the I/O thread, and the end.
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tools/cmd.h"
#include "tools/files.h"
#include "tools/serve/connections.h"
#include "tools/serve/fields.h"
#include "tools/serve/listen.h"
#include "tools/serve/log.h"
#include "tools/serve/server.h"
#include "tools/serve/signals.h"
#include "tools/term.h"

// Descriptors that the model's files, threads and epoll sets still need after the count.
#define FD_RESERVE 24
// Bodies that wait for a worker. Each holds its bytes of the host budget.
#define JOBS_MAX 1024
// Operators: one sleep that waits, a wake that takes it back, and whoever is told of a conflict.
#define OPERATOR_THREADS  2
#define OPERATOR_JOBS_MAX 16
// A body, its copy for the engine, and the engine's prompt and tokens must fit the host budget
// together, with room for a second request beside it.
#define BODY_PART_OF_HOST 8
// All bodies that arrive or wait for a worker together: the other half is for what requests that
// were admitted still need. A body beyond it is answered 503 rather than left in the kernel's
// buffer, since bodies that wait half received would wait for each other.
#define BODIES_PART_OF_HOST 2
// After a forced end, answers that are still being written get so long.
#define LAST_WRITES_MS 2000
#define EVENTS_MAX     64
// And then so many runs, each of some milliseconds, for what the sockets take at once.
#define LAST_RUNS 100
// New connections between two looks at what the others say: at half of the places for probes, each
// of these gets a look before it could be given to somebody else.
#define ACCEPTS_MAX (PLM_HTTP_PROBE_PLACES / 2)
// Lines that nobody reads do not hold the end up for longer.
#define LOG_END_MS 1000

// The loop's own state.
struct loop {
    struct plm_server srv;
    int epoll_fd;
    int listen_fd;
    int spare_fd; // given up for a moment when accept() finds no descriptor
    int signal_fd;
    int load_fd;
    bool hangup_drains; // what SIGHUP means
    bool is_unix;
    bool clients_wait; // to be accepted
    char url[512];
    pthread_t loader;
    bool loader_runs;
    int load_status;
    plim_error load_error;
    plim_engine *loaded;
    int64_t stop_ms; // draining: when running requests are cancelled; then: when all ends
    bool cancelled;
    bool stop;
    int exit_status;
};

// ---- loading ----

static void *load(void *arg)
{
    struct loop *l = arg;
    plm_plan_cache_load(&l->srv.plan_cache, &l->srv.engine_flags.opts);
    l->load_error = (plim_error)PLIM_INIT(plim_error);
    l->load_status = plim_engine_create(&l->srv.engine_flags.opts, &l->loaded, &l->load_error);
    if (l->load_status == PLIM_OK)
        plm_plan_cache_store(&l->srv.plan_cache, l->loaded, "serve");
    plm_plan_cache_finish(&l->srv.plan_cache);
    uint64_t one = 1;
    ssize_t r = write(l->load_fd, &one, sizeof(one));
    (void)r;
    return NULL;
}

// The served name is the first alias, or the file's name without its ending: what people call a
// model is more often in there than in its metadata. Requests may say any of them.
static bool collect_names(struct plm_server *srv)
{
    const struct plm_opt_list *aliases = &srv->flags.aliases;
    const char *path = srv->engine_flags.opts.model_path;
    const char *slash = strrchr(path, '/');
    srv->model_file = strdup(slash != NULL ? slash + 1 : path);
    srv->model_stem = srv->model_file != NULL ? strdup(srv->model_file) : NULL;
    if (srv->model_stem == NULL)
        return false;
    char *dot = strrchr(srv->model_stem, '.');
    if (dot != NULL && dot != srv->model_stem)
        *dot = '\0';
    for (size_t i = 0; i < aliases->n; i++)
        srv->model_names[srv->n_model_names++] = aliases->items[i];
    srv->model_names[srv->n_model_names++] = srv->model_stem;
    srv->model_names[srv->n_model_names++] = srv->model_file;
    srv->model_names[srv->n_model_names++] = srv->model.name;
    return true;
}

typedef int plan_text(const plim_engine *engine, char *out, size_t cap, size_t *need);

// With a line feed at its end; freed by the caller. NULL: no memory.
static char *plan_of(const plim_engine *engine, plan_text *text, size_t *ret_len)
{
    size_t need = 0;
    text(engine, NULL, 0, &need);
    char *data = malloc(need + 2);
    if (data == NULL || text(engine, data, need + 1, &need) != PLIM_OK) {
        free(data);
        return NULL;
    }
    data[need] = '\n';
    *ret_len = need + 1;
    return data;
}

static void print_plan(const plim_engine *engine)
{
    size_t len = 0;
    char *text = plan_of(engine, plim_engine_plan_table, &len);
    if (text != NULL)
        plm_log_result(text, len);
    free(text);
}

// For requests that do not say.
static void settle_sampling(struct plm_server *srv)
{
    char text[256];
    plm_sampling_settle(&srv->flags.sampling, &srv->model);
    plim_request_opts_init(&srv->defaults);
    plm_sampling_apply(&srv->flags.sampling, &srv->defaults);
    plm_sampling_text(&srv->flags.sampling, text, sizeof(text) - 1);
    const size_t len = strlen(text);
    text[len] = '\n'; // over the NUL: there is room for one more
    plm_log_result(text, len + 1);
}

static bool write_plan(struct plm_server *srv)
{
    size_t len = 0;
    if (srv->flags.plan_out == NULL)
        return true;
    char *text = plan_of(srv->engine, plim_engine_plan_json, &len);
    bool ok = text != NULL && plm_file_write("serve", srv->flags.plan_out, text, len);
    free(text);
    return ok;
}

static void watch(struct loop *l, int fd, void *tag)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = tag};
    epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

// Tags of the loop's own descriptors: their addresses only. Everything else is a client.
static char tag_listen, tag_signal, tag_load, tag_jobs, tag_operators, tag_engine;

static void on_loaded(struct loop *l)
{
    struct plm_server *srv = &l->srv;
    uint64_t count;
    ssize_t r = read(l->load_fd, &count, sizeof(count));
    (void)r;
    pthread_join(l->loader, NULL);
    l->loader_runs = false;
    plm_term_progress_end();
    if (l->load_status != PLIM_OK) {
        plm_term_error("serve", l->load_status, &l->load_error);
        l->exit_status = 1;
        l->stop = true;
        return;
    }
    srv->engine = l->loaded;
    srv->model = (plim_model_info)PLIM_INIT(plim_model_info);
    plim_engine_model(srv->engine, &srv->model);
    plim_metrics m = PLIM_INIT(plim_metrics);
    plim_engine_metrics(srv->engine, &m);
    srv->max_body_bytes = srv->flags.max_body_bytes;
    size_t part = (size_t)(m.host_limit_bytes / BODY_PART_OF_HOST);
    if (part > 0 && part < srv->max_body_bytes)
        srv->max_body_bytes = part;
    srv->bodies.limit_bytes = m.host_limit_bytes / BODIES_PART_OF_HOST;
    watch(l, plim_engine_poll_fd(srv->engine), &tag_engine);
    print_plan(srv->engine);
    settle_sampling(srv);
    if (!collect_names(srv) || !write_plan(srv)) {
        l->exit_status = 1;
        l->stop = true;
        return;
    }
    char ready[1024];
    const int n = snprintf(ready, sizeof(ready), "READY: %s at %s\n", srv->model_names[0], l->url);
    plm_log_result(ready, n < (int)sizeof(ready) ? (size_t)n : sizeof(ready) - 1);
}

// ---- the end ----

static void close_listener(struct loop *l)
{
    if (l->listen_fd < 0)
        return;
    close(l->listen_fd);
    l->listen_fd = -1;
    if (l->is_unix)
        unlink(l->srv.flags.host);
}

// The listener stays open, so that whoever comes now is told so, and load balancers see /readyz.
static void begin_drain(struct loop *l)
{
    l->srv.draining = true;
    l->stop_ms = plm_now_ms() + (int64_t)(l->srv.flags.shutdown_s * 1000);
    if (l->srv.n_calls > 0)
        plm_log("shutting down; running requests (%u) may take %g s, a second signal ends them now",
                l->srv.n_calls, l->srv.flags.shutdown_s);
    else
        plm_log("shutting down");
    if (l->srv.engine != NULL)
        plim_engine_drain(l->srv.engine, 0);
}

// Clients that still wait get an error of their own, and a moment to read it.
static void cancel_running(struct loop *l, int64_t now)
{
    plm_log("cancelling running requests (%u)", l->srv.n_calls);
    plm_calls_cancel(&l->srv);
    l->cancelled = true;
    l->stop_ms = now + LAST_WRITES_MS;
}

static void on_signal(struct loop *l)
{
    struct signalfd_siginfo info;
    while (read(l->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGHUP && !l->hangup_drains) {
            plm_log("SIGHUP: there is nothing to read again");
        } else if (l->srv.engine == NULL) {
            // What was asked for did not come to be: as the shell says of a signal.
            plm_log("ended while the model was loading");
            l->exit_status = 128 + (int)info.ssi_signo;
            l->stop = true;
        } else if (!l->srv.draining) {
            begin_drain(l);
        } else if (!l->cancelled) {
            cancel_running(l, plm_now_ms()); // the second one means now,
        } else {
            l->stop = true; // and the third at once
        }
    }
}

static void drain_tick(struct loop *l, int64_t now)
{
    if (!l->srv.draining || l->stop)
        return;
    if (l->srv.n_calls == 0) {
        l->stop = true;
    } else if (now >= l->stop_ms && !l->cancelled) {
        cancel_running(l, now);
    } else if (now >= l->stop_ms) {
        l->stop = true;
    }
}

// An engine whose device is gone for good has ended what it held: somebody else must start anew.
static void lost_tick(struct loop *l)
{
    plim_metrics m = PLIM_INIT(plim_metrics);
    if (l->srv.engine == NULL || l->srv.draining)
        return;
    plim_engine_metrics(l->srv.engine, &m);
    if (!m.lost)
        return;
    plm_log("the device was lost for good");
    l->exit_status = 1;
    begin_drain(l);
}

// ---- the loop ----

static void accept_some(struct loop *l)
{
    for (int i = 0; i < ACCEPTS_MAX && l->listen_fd >= 0; i++) {
        int fd = accept4(l->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            plm_http_add(l->srv.http, fd);
            continue;
        }
        if (errno != EMFILE && errno != ENFILE)
            return;
        // No descriptor is left: answer with the spare one, so that the client does not hang.
        close(l->spare_fd);
        fd = accept4(l->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0)
            plm_http_turn_away(l->srv.http, fd);
        l->spare_fd = eventfd(0, EFD_CLOEXEC);
        if (fd < 0)
            return;
    }
}

static void take_jobs(struct plm_workers *workers)
{
    struct plm_job *job = plm_workers_finished(workers);
    while (job != NULL) {
        struct plm_job *next = job->next;
        plm_call_finished(job);
        job = next;
    }
}

static void take_events(struct loop *l)
{
    plim_request *request;
    while ((request = plim_engine_next_ready(l->srv.engine)) != NULL)
        plm_call_pump(plim_request_user(request));
}

static void dispatch(struct loop *l, const struct epoll_event *event)
{
    void *tag = event->data.ptr;
    if (tag == &tag_listen)
        l->clients_wait = true;
    else if (tag == &tag_signal)
        on_signal(l);
    else if (tag == &tag_load)
        on_loaded(l);
    else if (tag == &tag_jobs)
        take_jobs(l->srv.workers);
    else if (tag == &tag_operators)
        take_jobs(l->srv.operators);
    else if (tag == &tag_engine)
        take_events(l);
    else
        plm_http_ready(tag, event->events);
}

// Until when the loop may sleep.
static int sleep_ms(const struct loop *l, int64_t now, int64_t tick_ms)
{
    int64_t ms = plm_http_is_due(l->srv.http) ? 0 : -1;
    // With an engine always: it may lose its device.
    bool ticks = plm_http_connections(l->srv.http) > 0 || l->srv.draining || l->srv.engine != NULL;
    if (ticks && (ms < 0 || ms > tick_ms - now))
        ms = tick_ms > now ? tick_ms - now : 0;
    return (int)ms;
}

static void run(struct loop *l)
{
    struct epoll_event events[EVENTS_MAX];
    int64_t tick_ms = plm_now_ms();
    while (!l->stop) {
        int64_t now = plm_now_ms();
        int n = epoll_wait(l->epoll_fd, events, EVENTS_MAX, sleep_ms(l, now, tick_ms));
        for (int i = 0; i < n; i++)
            dispatch(l, &events[i]);
        now = plm_now_ms();
        if (now >= tick_ms) {
            plm_calls_ping(&l->srv, now);
            plm_http_sweep(l->srv.http, now);
            plm_sleep_tick(&l->srv);
            lost_tick(l);
            // Pings and time-outs are whole seconds; the end should not wait for them.
            tick_ms = now + (l->srv.draining ? 50 : 1000);
        }
        plm_http_run(l->srv.http);
        // Behind what clients that are here have said: a newcomer may take the place of a silent
        // one.
        if (l->clients_wait)
            accept_some(l);
        l->clients_wait = false;
        drain_tick(l, now);
    }
    // Whoever still waits hears it, if only its socket takes it.
    plm_calls_fail(&l->srv);
    for (int i = 0; i < LAST_RUNS && plm_http_is_due(l->srv.http); i++)
        plm_http_run(l->srv.http);
}

// ---- start ----

// Their bytes are known before they come, and the plan leaves them out of what it gives away.
static void limit_connections(struct plm_server *srv, struct plm_http_config *config)
{
    static const char *const probes[] = {"/health", "/livez", "/readyz", NULL};
    plim_engine_opts *opts = &srv->engine_flags.opts;
    const unsigned fit = plm_connections_that_fit(FD_RESERVE + PLM_HTTP_PROBE_PLACES);
    unsigned n = srv->flags.max_connections;
    if (n == 0)
        n = plm_connections_by_budget(opts->host_limit_bytes);
    n = n < fit ? n : fit;
    config->max_connections = n;
    config->max_per_peer = srv->flags.max_per_peer > 0 ? srv->flags.max_per_peer : (n + 1) / 2;
    config->trusted = &srv->trusted_proxies;
    config->probes = probes;
    config->bodies = &srv->bodies;
    plm_connections_plan(opts, n);
    plm_log("at most %u connections of %zu KiB each; %u from the same address whose request or "
            "reading is awaited; "
            "%d more for probes",
            n, plm_http_connection_bytes() / 1024, config->max_per_peer, PLM_HTTP_PROBE_PLACES);
}

static void say_no_thread(void)
{
    plm_log("the system gives no thread for the server itself: a limit of threads is reached "
            "(ulimit -u, or pids.max of the control group)");
}

static bool start_io(struct loop *l)
{
    struct plm_server *srv = &l->srv;
    char message[512];
    l->listen_fd = plm_listen(srv->flags.host, srv->flags.port, l->url, sizeof(l->url), message,
                              sizeof(message));
    if (l->listen_fd < 0) {
        plm_log("%s", message);
        return false;
    }
    l->is_unix = strncmp(l->url, "unix:", 5) == 0;
    l->signal_fd = plm_signals_start(&l->hangup_drains);
    l->load_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    l->spare_fd = eventfd(0, EFD_CLOEXEC);
    l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    bool no_thread = false;
    srv->workers = plm_workers_create(srv->flags.http_threads, JOBS_MAX, &no_thread);
    srv->operators = plm_workers_create(OPERATOR_THREADS, OPERATOR_JOBS_MAX, &no_thread);
    struct plm_http_config config = {.epoll_fd = l->epoll_fd, .timeout_s = srv->flags.timeout_s};
    struct plm_http_handler handler;
    limit_connections(srv, &config);
    plm_routes_handler(srv, &handler);
    if (l->epoll_fd >= 0 && l->signal_fd >= 0 && l->load_fd >= 0)
        srv->http = plm_http_create(&config, &handler);
    if (no_thread) {
        say_no_thread();
        return false;
    }
    if (srv->http == NULL || srv->workers == NULL || srv->operators == NULL) {
        plm_log("no descriptors or memory for the server itself");
        return false;
    }
    watch(l, l->listen_fd, &tag_listen);
    watch(l, l->signal_fd, &tag_signal);
    watch(l, l->load_fd, &tag_load);
    watch(l, plm_workers_fd(srv->workers), &tag_jobs);
    watch(l, plm_workers_fd(srv->operators), &tag_operators);
    return true;
}

static bool start_load(struct loop *l)
{
    plim_engine_opts *opts = &l->srv.engine_flags.opts;
    opts->log = plm_term_log;
    opts->progress = plm_term_progress;
    l->loader_runs = pthread_create(&l->loader, NULL, load, l) == 0;
    if (!l->loader_runs)
        say_no_thread();
    return l->loader_runs;
}

static void end_workers(struct plm_workers *workers)
{
    if (workers == NULL)
        return;
    plm_workers_join(workers);
    take_jobs(workers);
    plm_workers_destroy(workers);
}

static void close_fd(int fd)
{
    if (fd >= 0)
        close(fd);
}

static void finish(struct loop *l)
{
    struct plm_server *srv = &l->srv;
    close_listener(l);
    if (l->loader_runs) {
        // A load cannot be interrupted, and nothing depends on its end.
        plm_log_finish(LOG_END_MS);
        _exit(l->exit_status);
    }
    plm_http_destroy(srv->http);
    end_workers(srv->operators);
    end_workers(srv->workers);
    plim_engine_free(srv->engine);
    plm_auth_finish(&srv->access.auth);
    plm_engine_flags_finish(&srv->engine_flags);
    free(srv->model_file);
    free(srv->model_stem);
    close_fd(l->signal_fd);
    close_fd(l->load_fd);
    close_fd(l->spare_fd);
    close_fd(l->epoll_fd);
    plm_log_finish(LOG_END_MS);
}

static enum plm_opts_result parse_flags(struct plm_server *srv, int argc, char **argv,
                                        const char **ret_file)
{
    plm_serve_flags_init(&srv->flags);
    plm_engine_flags_init(&srv->engine_flags);
    const struct plm_opt_group groups[] = {
        plm_engine_flags_group(&srv->engine_flags),
        plm_plan_cache_group(&srv->plan_cache),
        plm_serve_flags_group(&srv->flags),
        plm_sampling_group(&srv->flags.sampling),
        plm_noted_flags_group(),
    };
    const struct plm_opt_command cmd = {
        .name = "serve",
        .operands = "[FILE]",
        .max_operands = 1,
        .summary = "Serves one model over HTTP, compatible with the OpenAI API.",
        .groups = groups,
        .n_groups = 5,
    };
    return plm_opts_parse(&cmd, argc, argv, ret_file, NULL);
}

static void on_ignored(const char *name, bool known)
{
    plm_log("the field \"%s\" is %signored", name, known ? "" : "not known and is ");
}

int plim_cmd_serve(int argc, char **argv)
{
    static struct loop l; // large, and there is one
    l = (struct loop){.epoll_fd = -1, .listen_fd = -1, .spare_fd = -1, .signal_fd = -1};
    l.load_fd = -1;
    struct plm_server *srv = &l.srv;
    pthread_mutex_init(&srv->sleeper.lock, NULL);
    const char *file = NULL;
    enum plm_opts_result r = parse_flags(srv, argc, argv, &file);
    if (r != PLM_OPTS_OK)
        return r == PLM_OPTS_EXIT ? 0 : 2;
    // Keys first: the list of processes shows them until they are read.
    if (!plm_serve_apply_access(srv) ||
        !plm_engine_flags_operand(&srv->engine_flags, "serve", file) ||
        !plm_engine_flags_apply(&srv->engine_flags, "serve")) {
        plm_auth_finish(&srv->access.auth);
        plm_engine_flags_finish(&srv->engine_flags);
        return 2;
    }
    int status =
        srv->flags.plan_out == NULL || plm_file_writable("serve", srv->flags.plan_out) ? 0 : 1;
    if (status == 0)
        status = plm_engine_flags_fetch(&srv->engine_flags, "serve");
    if (status != 0) {
        plm_auth_finish(&srv->access.auth);
        plm_engine_flags_finish(&srv->engine_flags);
        return status;
    }
    srv->started_s = (int64_t)time(NULL);
    l.exit_status = 0;
    plm_fields_on_ignored(on_ignored);
    plm_log_start();
    if (start_io(&l) && start_load(&l))
        run(&l);
    else
        l.exit_status = 1;
    finish(&l);
    return l.exit_status;
}
