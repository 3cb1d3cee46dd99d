/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plimsoll.h - the public C API of Plimsoll, an inference engine that plans its memory, proves the
 * plan, and refuses a request before the forward that would cross it.
 *
 * Life of a program: fill plim_engine_opts, plim_engine_create() (loads, stresses, sizes, proves,
 * seals; then the engine is READY), plim_request_submit(), plim_request_next() until DONE,
 * plim_request_free(), plim_engine_free().
 *
 * Threads: an engine may be used from any number of threads. A request handle belongs to one thread
 * at a time, except plim_request_cancel(), which any thread may call at any time before
 * plim_request_free(). Log and progress callbacks run on the thread that has something to say; they
 * must not block and must not call back into the library. The engine runs its own thread unless
 * manual_step is set. fork() after plim_engine_create() is not supported.
 *
 * Sizes: a program and the library may be of different versions, so structs grow at their end only,
 * and whoever owns the memory says how much of it there is. Structs that the caller owns begin with
 * struct_size, the caller's own sizeof: PLIM_INIT(plim_event) initialises one with it and zeros,
 * plim_x_opts_init() sets it and the defaults (in options zero is a value like any other: to get a
 * default, leave what _init wrote). The library reads and writes no byte beyond it; what is newer
 * than the library stays as it is, and newer options that are not zero are refused (UNSUPPORTED). A
 * struct_size that does not even cover a first field (below 8, or above PLIM_STRUCT_MAX, which no
 * struct comes near) is a slip: INVALID, and nothing was written or done; a plim_error has a rule
 * of its own. Arrays take the size of their elements. Numbers of elements in a struct never change.
 * plim_text, plim_logit_bias, plim_logprob, plim_metric and plim_histogram are final. What the
 * library hands out by pointer (plim_progress, plim_event.error) may be longer than a program
 * knows.
 *
 * Results: PLIM_OK or a negative plim_status. Where a function takes a plim_error it may be NULL;
 * it is filled on failure only, and always with a sentence. A pointer that is NULL where it is not
 * said that it may be is INVALID with error.param naming the argument, or no effect where there is
 * no result; results (*ret) stay as they are on failure, but for those that create: NULL.
 * Refusals for memory are ordinary results. The library does not abort, exit, print, read the
 * environment, change the locale or install signal handlers.
 *
 * Host memory comes from malloc, within a budget. When an engine becomes idle after it freed some
 * MiB, or freed many while requests run, it asks glibc to give free pages back (malloc_trim, for
 * the whole process). Beside that the process's allocator is left alone. glibc keeps one arena per
 * thread and raises its threshold for mmap with every large block that is freed, so that bursts of
 * large requests can hold more than the budget resident: where that matters, call before any thread
 * starts mallopt(M_MMAP_THRESHOLD, ...), which fixes it, and mallopt(M_ARENA_MAX, ...), or link
 * another allocator.
 *
 * Strings: UTF-8 with explicit lengths where they may hold NUL. Functions that return text write
 * into the caller's buffer: at most cap bytes, the full length into *need (no terminating NUL is
 * counted, one is written where it fits); with need > cap the text is cut and the result is
 * PLIM_ERR_LIMIT. out may be NULL when cap is 0.
 */
#ifndef PLIMSOLL_H
#define PLIMSOLL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define PLIM_API __attribute__((visibility("default")))
#else
#define PLIM_API
#endif

#define PLIM_VERSION_MAJOR 0
#define PLIM_VERSION_MINOR 1
#define PLIM_VERSION_PATCH 0
/* Of the header; plim_version_number() is that of the library. They compare as numbers. */
#define PLIM_VERSION_NUMBER                                                                        \
    (PLIM_VERSION_MAJOR * 1000000 + PLIM_VERSION_MINOR * 1000 + PLIM_VERSION_PATCH)

#define PLIM_STRUCT_MAX 65536 /* bytes: no struct_size is larger */

enum plim_status {
    PLIM_OK = 0,
    PLIM_ERR_INVALID = -1,       /* an argument or field is out of range; error.param names it */
    PLIM_ERR_FORMAT = -2,        /* malformed file, JSON, template or UTF-8 */
    PLIM_ERR_UNSUPPORTED = -3,   /* well-formed, but not something this build can do */
    PLIM_ERR_NOT_FOUND = -4,     /* no such file, device, key */
    PLIM_ERR_IO = -5,            /* the operating system refused */
    PLIM_ERR_NOMEM_HOST = -6,    /* the host budget is exhausted */
    PLIM_ERR_NOMEM_NEVER = -7,   /* refusal: can not fit even on an idle engine */
    PLIM_ERR_NOMEM_NOW = -8,     /* refusal: does not fit beside what runs now */
    PLIM_ERR_OUT_OF_DEVICE = -9, /* the device has no room (start only) */
    PLIM_ERR_TOO_LARGE = -10,    /* larger than the device can ever give (start only) */
    PLIM_ERR_LOST = -11,         /* the device is gone */
    PLIM_ERR_SEALED = -12,       /* an allocation after the plan was sealed (a defect) */
    PLIM_ERR_QUEUE_FULL = -13,   /* the bounded queue is full */
    PLIM_ERR_CONTEXT = -14,      /* prompt plus output beyond the context */
    PLIM_ERR_CANCELLED = -15,    /* plim_..._cancel(), or a start that progress stopped */
    PLIM_ERR_TIMEOUT = -16,      /* nothing happened in time */
    PLIM_ERR_LIMIT = -17,        /* a limit on foreign input, or the caller's buffer is small */
    PLIM_ERR_CLOSED = -18,       /* draining or closed */
    PLIM_ERR_NUMERIC = -19,      /* NaN or infinite logits; this request only */
    PLIM_ERR_INTERNAL = -20,     /* a defect of ours */
    PLIM_ERR_BUSY = -21          /* plim_engine_free(): requests are still held */
};

/* An initialiser: plim_event event = PLIM_INIT(plim_event); its struct_size, all else zero. */
#ifdef __cplusplus
#define PLIM_INIT(type) plim_sized<type>()
#else
#define PLIM_INIT(type)                                                                            \
    {                                                                                              \
        .struct_size = sizeof(type)                                                                \
    }
#endif

/* Initialise it with PLIM_INIT(plim_error). A struct_size of 0, as in a plim_error that was only
 * zeroed, stands for the fields up to message, which every version has; numbers are not told then.
 * From 1 to 7: nothing is written, the result is the same. */
typedef struct plim_error {
    uint32_t struct_size;
    int32_t status;
    char term[32];         /* refusals: the binding term ("kv", "host", "context", "queue") */
    char param[64];        /* the argument or field that it is about, if one ("ctx_size",
                              "messages[2].role") */
    char message[512];     /* one sentence for people */
    int32_t retry_after_s; /* NOMEM_NOW, QUEUE_FULL: forecast, at least 1; else 0 */
    int32_t reserved;
    int64_t needed_bytes;        /* refusals: what the request needs */
    int64_t limit_bytes;         /* refusals: what there is */
    int64_t alone_bytes;         /* NOMEM_HOST: of it, what an idle engine would need; else 0 */
    int64_t n_prompt_tokens;     /* CONTEXT and refusals: the prompt's length, else 0 */
    int64_t n_ctx;               /* CONTEXT: the context, else 0 */
    int64_t offer_prompt_tokens; /* refusals: what would be admitted now; 0: nothing */
    int64_t offer_max_tokens;
    int64_t offer_n;
} plim_error;

typedef struct plim_engine plim_engine;
typedef struct plim_request plim_request;
typedef struct plim_plan plim_plan;

/* Constant text of a status; never NULL. */
PLIM_API const char *plim_strstatus(int status);
/* "0.1.0", the same as a number, and the backends and compiler of this build. */
PLIM_API const char *plim_version(void);
PLIM_API uint32_t plim_version_number(void); /* see PLIM_VERSION_NUMBER */
PLIM_API const char *plim_build_info(void);

enum plim_log_level { PLIM_LOG_ERROR, PLIM_LOG_WARN, PLIM_LOG_INFO, PLIM_LOG_DEBUG };

/* What plim_engine_create() is doing; done/total in units of the stage (bytes, passes). */
typedef struct plim_progress {
    const char *stage; /* "load", "kernels", "probe", "stress", "resize", "validate", "ready" */
    uint64_t done;
    uint64_t total;
} plim_progress;

/* ---- devices ---- */

typedef struct plim_device_info {
    char id[32]; /* what plim_engine_opts.device takes: "cpu", "vulkan:0" */
    char name[64];
    uint64_t total_bytes;
} plim_device_info;

/* Stores at most cap devices (out may be NULL when cap is 0), and in *n the number there are.
 * element_bytes is the caller's sizeof(plim_device_info), as the macro passes it: so far the
 * elements are apart, and what is newer than the library is zero in them. INVALID, NOMEM_HOST. */
PLIM_API int plim_device_list_sized(plim_device_info *out, size_t element_bytes, size_t cap,
                                    size_t *n);
#define plim_device_list(out, cap, n)                                                              \
    plim_device_list_sized((out), sizeof(plim_device_info), (cap), (n))
/* What this machine lacks for backends of this build to offer a device, or a device of theirs to be
 * used: a line each, for people; no text where nothing is missing. OK, LIMIT or NOMEM_HOST. */
PLIM_API int plim_device_missing(char *out, size_t cap, size_t *need);

/* ---- engine ---- */

typedef struct plim_engine_opts {
    uint32_t struct_size;
    uint32_t threads;            /* CPU workers; 0: one per usable core (default) */
    const char *model_path;      /* GGUF; required */
    const char *device;          /* "cpu" (default), "vulkan:0", "sim:FILE" (docs/worlds.md) */
    uint32_t ctx_size;           /* tokens per request; 0 (default): as trained, but at most 8192
                                    where device memory is the machine's */
    uint32_t batch_max_tokens;   /* rows of one step; 0: 512 (default) */
    uint32_t max_sequences;      /* sequences in one step; 0: 8 (default) */
    uint32_t prove_full;         /* 1: stress and validate the whole model (default 0) */
    uint64_t memory_limit_bytes; /* operator's limit of the device; 0: none (default) */
    uint64_t host_limit_bytes;   /* host budget from READY on; 0: U/16 in 64..256 MiB (default) */
    uint64_t max_total_tokens;   /* pins the KV size; 0 (default): measured, and at most a quarter
                                    of what is free where device memory is the machine's and no
                                    limit, fraction, or context and sequences are given */
    double memory_fraction;      /* 0 < f <= 1 of the budget; default 1.0 */
    uint32_t queue_max;          /* waiting requests, default 256 */
    uint32_t queue_timeout_ms;   /* longest wait for admission, default 600000; 0: for ever. What
                                    the forecast says would wait longer is refused at once */
    uint64_t queue_max_tokens;   /* prompt tokens waiting in all; 0: no limit (default) */
    const char *chat_template;   /* NULL: the model's own (default); else template source */
    uint32_t prefix_cache;       /* 1: on (default) */
    uint32_t manual_step;        /* 1: no thread, the caller calls plim_engine_step() */
    uint32_t log_level;          /* enum plim_log_level, default INFO */
    uint32_t prefill_chunk;      /* rows of one prompt per step; 0: batch_max_tokens (default) */
    void (*log)(void *ctx, int level, const char *line); /* NULL: silent (default) */
    void *log_ctx;
    /* Returns whether to go on: false stops the start, which frees all it took and ends with
     * CANCELLED. NULL (default). */
    bool (*progress)(void *ctx, const plim_progress *progress);
    void *progress_ctx;
    /* For tests: the plain C kernels, float activations and a float32 KV cache, which together
     * meet the strict tolerance; slow. */
    uint32_t reference_kernels;
    uint32_t float_activations;
    uint32_t kv_f32;
    uint32_t neighbours;   /* enum plim_neighbours, default AUTO */
    uint64_t kv_min_bytes; /* the floor of the KV cache under a neighbour's growth; it is never
                              lower than the blocks of one request of the whole context and one for
                              each sequence, which is the default (0) */
    uint32_t monitor_ms;   /* time between readings after READY, default 1000; 0: none */
    uint32_t watchdog_ms;  /* a step that takes longer is treated as hung; 0: never (default). A
                              step of the start may take ten times as long, by default ten minutes
                              (an hour with prove_full): then the start ends with TIMEOUT */
    uint32_t autotune;     /* 1: time kernel variants before the stress (default) */
    uint32_t reserved;
    const char *certificate; /* of an earlier start under the same key; NULL (default) */
    size_t certificate_len;
    const char *tuning; /* results of an earlier autotune; what does not fit this device, build or
                           model is tuned anew; NULL (default) */
    size_t tuning_len;
    /* Called on the engine's thread at a streak of refusals, a lost device or an audit excess, with
     * what led to it as a world file (docs/worlds.md). It may write it somewhere; it must not call
     * back into the library. NULL (default). */
    void (*incident)(void *ctx, const char *reason, const char *world, size_t len);
    void *incident_ctx;
    /* Host bytes that the program around the engine takes beside host_limit_bytes, at its most (a
     * server's connections). The plan leaves them out of the KV cache where host memory is the
     * device's. 0 (default). */
    uint64_t host_caller_bytes;
    uint32_t kv_type; /* enum plim_kv_type, default F16. UNSUPPORTED where the device has no kernels
                         for it, or the model's heads do not fit */
    uint32_t reserved2;
} plim_engine_opts;

/* What the KV cache holds. Q8_0 takes 17 bytes where F16 takes 32: 8-bit codes with a scale for
 * each 32 elements of a head, whose size must be a multiple of 32. */
enum plim_kv_type { PLIM_KV_F16, PLIM_KV_Q8_0 };

/* What a neighbour's growth on the device means for the KV cache after READY. */
enum plim_neighbours {
    PLIM_NEIGHBOURS_AUTO, /* HOLD where nobody can take what we hold, else YIELD */
    PLIM_NEIGHBOURS_HOLD, /* keep what the plan holds, only stop growing */
    PLIM_NEIGHBOURS_YIELD /* give KV blocks back, down to the floor; take them again later */
};

/* Sets struct_size and the defaults, within the caller's sizeof(plim_engine_opts), which the macro
 * passes. No effect with NULL or a size outside 8 to PLIM_STRUCT_MAX. */
PLIM_API void plim_engine_opts_init_sized(plim_engine_opts *opts, size_t opts_bytes);
#define plim_engine_opts_init(opts) plim_engine_opts_init_sized((opts), sizeof(plim_engine_opts))

/* Loads the model, stresses it, sizes and proves the KV cache, seals. Blocks until READY; *ret is
 * the caller's then. On failure nothing is left behind and err names what to change (each suggested
 * value was re-planned). The options and their strings are not needed afterwards. Results: INVALID,
 * NOT_FOUND, IO, FORMAT, UNSUPPORTED, NOMEM_*, OUT_OF_DEVICE, TOO_LARGE, LOST, CANCELLED,
 * TIMEOUT (a step of the start hangs). */
PLIM_API int plim_engine_create(const plim_engine_opts *opts, plim_engine **ret, plim_error *err);
/* Stops the thread, ends what runs without a word, frees all. BUSY where a request was not freed:
 * nothing has happened then, and the engine goes on; free the requests and call it again. No other
 * call may be under way. NULL is allowed. OK, BUSY. */
PLIM_API int plim_engine_free(plim_engine *engine);
/* Refuses new requests from now (CLOSED) and waits until none runs or timeout_ms passed (TIMEOUT;
 * what still runs goes on). -1: no limit. May be called again. */
PLIM_API int plim_engine_drain(plim_engine *engine, int64_t timeout_ms);
/* manual_step: admits what waits and runs one step; from one thread at a time. *worked: whether
 * there was anything to do. INVALID without manual_step. */
PLIM_API int plim_engine_step(plim_engine *engine, bool *worked);
/* A descriptor that polls readable while any request has events; owned by the engine. Read nothing
 * from it: plim_engine_next_ready() clears it. */
PLIM_API int plim_engine_poll_fd(plim_engine *engine);
/* Takes one request that has unread events from the ready list, or NULL. A request appears once
 * per batch of events: call plim_request_next(request, 0, ...) until it says TIMEOUT. It may also
 * appear with nothing left to read, but never after plim_request_free(). For programs with one
 * event loop; those that block in plim_request_next() need not call it. */
PLIM_API plim_request *plim_engine_next_ready(plim_engine *engine);

/* Gives the KV cache back to the system: waits up to timeout_ms (-1: no limit) for running requests
 * to end, refuses new ones meanwhile and until the wake (NOMEM_NOW, term "asleep"), then releases
 * every KV slab. Requests that wait stay queued. Weights stay. TIMEOUT: still awake. Any thread but
 * one that steps; with manual_step the caller goes on stepping from another thread, or timeout_ms
 * is 0 and the engine must be idle. Asleep already: OK. CANCELLED: a wake or the call below took it
 * back. */
PLIM_API int plim_engine_sleep(plim_engine *engine, int64_t timeout_ms, plim_error *err);
/* Takes back a plim_engine_sleep() of another thread that still waits for running requests: the
 * engine stays awake. What has begun to give memory back goes on; no effect where none sleeps.
 * Does not block. INVALID: there is no engine. */
PLIM_API int plim_engine_sleep_cancel(plim_engine *engine);
/* Takes the KV cache again as planned, as much as the device gives now, and validates it; blocks.
 * OUT_OF_DEVICE: less than the floor was there; still asleep. Awake already: OK. */
PLIM_API int plim_engine_wake(plim_engine *engine, plim_error *err);
/* What was measured and proven as a certificate for a later start, which plans from it with the
 * room that there is then (plim_engine_opts.certificate; no text where the model has no
 * fingerprint), and what autotune found (plim_engine_opts.tuning; no text where nothing was tuned):
 * JSON. OK, LIMIT, NOMEM_HOST. */
PLIM_API int plim_engine_certificate(const plim_engine *engine, char *out, size_t cap,
                                     size_t *need);
PLIM_API int plim_engine_tuning(const plim_engine *engine, char *out, size_t cap, size_t *need);

typedef struct plim_model_info {
    uint32_t struct_size; /* set by the caller: PLIM_INIT(plim_model_info) */
    uint32_t n_vocab;
    char name[128]; /* general.name, or the file's */
    char arch[32];
    char type[32]; /* most frequent weight type */
    uint64_t n_params;
    uint64_t file_bytes;
    uint32_t n_embd;
    uint32_t n_layer;
    uint32_t n_ctx_train;
    uint32_t n_ctx; /* per request, as planned */
    bool has_chat_template;
    bool adds_bos;
    int32_t bos; /* -1: none */
    int32_t eos;
    /* What the file's author advises for sampling (general.sampling.*), as it stands there; NaN,
     * and for top_k -1, where he says nothing. Requests do not take it by themselves. */
    float temperature;
    float top_p;
    float min_p;
    float repeat_penalty;
    int32_t top_k;
} plim_model_info;

/* The same for the life of the engine. OK or INVALID. */
PLIM_API int plim_engine_model(const plim_engine *engine, plim_model_info *ret);

/* ---- plan and memory ---- */

/* Loads, stresses and sizes as plim_engine_create() does, with its results, but keeps only the
 * plan, which is the caller's. */
PLIM_API int plim_plan_create(const plim_engine_opts *opts, plim_plan **ret, plim_error *err);
/* The plan that a start would make, from the file's header alone and without the device:
 * opts->device names its kind ("cuda"), device_bytes its total memory. Nothing is loaded or
 * measured; what the driver itself takes is this version's figure for the kind. */
PLIM_API int plim_plan_dry(const plim_engine_opts *opts, uint64_t device_bytes, plim_plan **ret,
                           plim_error *err);
PLIM_API void plim_plan_free(plim_plan *plan); /* NULL is allowed */
/* What differs between two plans or certificates (JSON, as the calls above and below write them),
 * field by field, as a table for people. OK, LIMIT, FORMAT, NOMEM_HOST. */
PLIM_API int plim_plan_diff(const char *a, size_t a_len, const char *b, size_t b_len, char *out,
                            size_t cap, size_t *need, plim_error *err);
/* The plan as JSON and as a table for people. OK or LIMIT. In JSON every field of the formula has
 * its name: g granularity of the device, T its total, F its free bytes, O our bytes on it, K of
 * them the probe's KV cache, U the least of T and all limits (from which margins are derived). */
PLIM_API int plim_plan_json(const plim_plan *plan, char *out, size_t cap, size_t *need);
PLIM_API int plim_plan_table(const plim_plan *plan, char *out, size_t cap, size_t *need);
/* The same of a running engine; also NOMEM_HOST. */
PLIM_API int plim_engine_plan_json(const plim_engine *engine, char *out, size_t cap, size_t *need);
PLIM_API int plim_engine_plan_table(const plim_engine *engine, char *out, size_t cap, size_t *need);
/* What the start chose where nothing was asked for, and the flags that change it: one line for
 * people, which the table has, too; no text where nothing was chosen. OK, LIMIT or NOMEM_HOST. */
PLIM_API int plim_engine_defaults(const plim_engine *engine, char *out, size_t cap, size_t *need);
/* What one decode step of one sequence asks of a kind of device (opts->device, "vulkan"):
 * dispatches and barriers of the model's own forward there, the bytes that they read, by layer and
 * by op, and the time that reading them takes at bytes_per_second; as a table, or as JSON. From the
 * file's header alone and without the device. Of the other options only ctx_size counts, the tokens
 * of the sequence (0: 1024, or as trained where that is less), and what tests set of formats.
 * INVALID, NOT_FOUND, IO, FORMAT, UNSUPPORTED, NOMEM_HOST, LIMIT. */
PLIM_API int plim_explain(const plim_engine_opts *opts, double bytes_per_second, bool json,
                          char *out, size_t cap, size_t *need, plim_error *err);
/* Live ledger, plan, refusals: what GET /v1/memory answers. From a snapshot; never waits for the
 * engine's thread. OK, LIMIT or NOMEM_HOST. */
PLIM_API int plim_engine_memory_json(const plim_engine *engine, char *out, size_t cap,
                                     size_t *need);
/* Charges or returns host bytes that the caller holds for requests (bodies, output buffers)
 * against the engine's host budget. NOMEM_HOST: nothing was charged. */
PLIM_API int plim_engine_host_charge(plim_engine *engine, int64_t bytes);
PLIM_API void plim_engine_host_discharge(plim_engine *engine, int64_t bytes);

#define PLIM_HISTOGRAM_BUCKETS 16

/* Counts per bucket (not cumulative; the last one is beyond the largest bound), their bounds in
 * seconds, and the sum. Final: other buckets would be another struct. */
typedef struct plim_histogram {
    double bound_s[PLIM_HISTOGRAM_BUCKETS];
    uint64_t count[PLIM_HISTOGRAM_BUCKETS + 1];
    double sum_s;
} plim_histogram;

enum plim_finish {
    PLIM_FINISH_NONE,
    PLIM_FINISH_STOP,   /* end-of-generation token or stop string */
    PLIM_FINISH_LENGTH, /* max_tokens or the context */
    PLIM_FINISH_CANCELLED,
    PLIM_FINISH_ERROR
};

/* A snapshot; reading it never waits for the engine's thread. There is one field per finish reason
 * and per class of memory, not an array of each: more of them come at the end. */
typedef struct plim_metrics {
    uint32_t struct_size; /* set by the caller: PLIM_INIT(plim_metrics) */
    /* In sequences: a request of n choices counts n once it began, as its choices run alone. */
    uint32_t running; /* with blocks */
    uint32_t waiting; /* requests in the queue, and sequences that wait after their request began */
    uint32_t preempted; /* of the waiting: began before, to be recomputed */
    double kv_usage;    /* blocks of running requests / all; cached blocks do not count */
    uint64_t blocks_total, blocks_used, blocks_cached, blocks_free;
    uint64_t prompt_tokens, cached_tokens, generated_tokens;
    uint64_t prefix_queries, prefix_hits;                                        /* in tokens */
    uint64_t finished_stop, finished_length, finished_cancelled, finished_error; /* requests */
    uint64_t rejected_never, rejected_now, rejected_queue, rejected_context;
    uint64_t preemptions, steps;
    uint64_t allocations_in_step, resizes, audit_excess;
    int64_t last_step_age_ns; /* since a step completed while there is work; 0 when idle */
    /* What the engine holds on the device, by class. */
    int64_t weights_bytes, kv_bytes, state_bytes, workspace_bytes, encoder_bytes, graph_bytes;
    int64_t staging_bytes, ballast_bytes, other_bytes;
    int64_t limit_bytes, used_bytes, high_water_bytes, margin_bytes; /* high water of serving */
    int64_t host_used_bytes, host_limit_bytes;
    bool ready; /* false while a lost device is being reopened, and once it is lost for good */
    bool sealed, draining;
    bool lost; /* for good: the engine takes and runs nothing any more */
    plim_histogram time_to_first_token, inter_token, e2e, queue, prefill, decode;
    int64_t host_idle_bytes; /* of the host budget, what the engine itself uses */
    bool asleep;
    int64_t foreign_bytes;            /* as of the last reading */
    int64_t largest_free_bytes;       /* of the device as the driver says, as of the last reading */
    uint64_t shrinks, grows;          /* resizes because of neighbours or sleep, in slabs */
    uint64_t plan_shrinks;            /* retries of the start */
    uint64_t validated_blocks;        /* that the last validation proved */
    uint64_t losses, reopened;        /* of the device */
    uint64_t replays;                 /* steps run again to find whose fault it was */
    uint64_t poisoned;                /* requests that were found so */
    uint64_t resubmits;               /* steps that a refused submit delayed */
    uint64_t stalls;                  /* no progress although there was work */
    uint64_t incidents;               /* that opts.incident was told of */
    double last_sleep_s, last_wake_s; /* how long the last ones took */
    int64_t last_step_time_ns;        /* monotonic clock; 0: none yet */
    uint64_t ledger_mismatches;       /* times that the driver said otherwise than our account */
    uint64_t slow_steps;              /* that took far longer than when the plan was proved */
    uint64_t slowdowns;               /* times that several in a row did */
    bool slow;                        /* they do: memory may have been pushed out of the device */
} plim_metrics;

PLIM_API int plim_engine_metrics(const plim_engine *engine, plim_metrics *ret); /* OK, INVALID */

/* The same by name and value, for programs that are not C or that meet several versions: names are
 * those of the fields of plim_metrics, and of a histogram x x_count and x_sum_s. A name keeps its
 * meaning for good; more come at the end. Text lives as long as the library. */
typedef struct plim_metric {
    const char *name;
    double value;
} plim_metric;

/* Stores at most cap of one snapshot (out may be NULL when cap is 0), and in *n the number there
 * are. OK, LIMIT when there are more than cap, INVALID. */
PLIM_API int plim_engine_metric_list(const plim_engine *engine, plim_metric *out, size_t cap,
                                     size_t *n);

/* ---- text and tokens ---- */

/* For a caller whose own client may leave: from here on, while a call of plim_request_submit(),
 * plim_chat_render() or plim_tokenize() works on this thread, `cancelled` is asked every few
 * milliseconds, and true ends the call with CANCELLED. It must not block and must not call back
 * into the library. NULL: nobody is asked. Such a call ends in any case: with LIMIT after about two
 * seconds of one core. */
PLIM_API void plim_thread_cancellable(bool (*cancelled)(void *ctx), void *ctx);
/* add_special: what the vocabulary wants around a prompt. parse_special: text that spells a control
 * token becomes that token. At most cap ids are stored, the number there are in *n (LIMIT when
 * more than cap). */
PLIM_API int plim_tokenize(const plim_engine *engine, const char *text, size_t len,
                           bool add_special, bool parse_special, int32_t *ids, size_t cap,
                           size_t *n, plim_error *err);
/* The text of ids, valid UTF-8 (U+FFFD for bytes that are none). INVALID for ids out of range. */
PLIM_API int plim_detokenize(const plim_engine *engine, const int32_t *ids, size_t n, char *out,
                             size_t cap, size_t *need, plim_error *err);
/* The raw bytes of one token, maybe part of a character. */
PLIM_API int plim_token_bytes(const plim_engine *engine, int32_t id, char *out, size_t cap,
                              size_t *need);
/* Renders a chat body {"messages": [...], "tools": [...], "add_generation_prompt": true,
 * "continue_final_message": false, "chat_template_kwargs": {...}} (the last four optional) to the
 * prompt text. Chat templates disagree about the form of what they read; the engine finds out at
 * the start what the model's reads, and brings the chat into it. So one conversation gives one
 * prompt in all its spellings: a text, or a list of it alone; content that is null, "", [] or
 * absent; tool calls null or []; their arguments "", null, absent or {}. And nothing vanishes: of
 * every part that is not blank and of every tool there are bytes in the prompt, or the result is
 * INVALID and `param` names what the template leaves out ("messages[0].content", "tools"). Not held
 * against it: white space, names, ids, calls of tools where it writes none, and an assistant's
 * earlier reasoning. A developer's message becomes the system's where the template knows no
 * developer. INVALID names the message and field. */
PLIM_API int plim_chat_render(const plim_engine *engine, const char *chat_json, size_t len,
                              char *out, size_t cap, size_t *need, plim_error *err);

/* ---- requests ---- */

typedef struct plim_logit_bias {
    int32_t token;
    float bias;
} plim_logit_bias;

typedef struct plim_text {
    const char *ptr;
    size_t len;
} plim_text;

typedef struct plim_request_opts {
    uint32_t struct_size;
    uint32_t n; /* choices, default 1, at most PLIM_N_MAX; they share one prefill */
    /* Exactly one of: chat_json (see plim_chat_render), prompt, tokens. */
    const char *chat_json;
    size_t chat_json_len;
    const char *prompt;
    size_t prompt_len;
    const int32_t *tokens;
    size_t n_tokens;
    uint32_t prompt_parse_special; /* prompt: control tokens may be spelled; default 1 */
    uint32_t max_tokens;           /* per choice; 0: to the end of the context (default) */
    uint32_t min_tokens;           /* end-of-generation is masked before; default 0 */
    uint32_t ignore_eos;           /* default 0 */
    /* Sampling, in this order: logit_bias, penalties, temperature, min_p, top_k, top_p. */
    float temperature;       /* default 1.0; below 1e-5: greedy */
    float top_p;             /* default 1.0 */
    float min_p;             /* default 0 */
    uint32_t top_k;          /* default 0: all */
    float repeat_penalty;    /* default 1.0; prompt and output */
    float frequency_penalty; /* default 0; output only */
    float presence_penalty;  /* default 0; output only */
    uint32_t has_seed;       /* 0: a random one (default) */
    uint64_t seed;
    const plim_logit_bias *logit_bias;
    size_t n_logit_bias;
    const plim_text *stop; /* at most PLIM_STOP_MAX, none empty; copied */
    size_t n_stop;
    uint32_t logprobs;     /* 1: of each chosen token; default 0 */
    uint32_t top_logprobs; /* 0 to PLIM_TOP_LOGPROBS_MAX alternatives */
    uint32_t cache_prompt; /* 1: may use and feed the prefix cache (default) */
    uint32_t reserved;
    const char *cache_salt; /* prompts of different salts never share blocks; NULL: none */
    void *user;             /* returned by plim_request_user() */
    /* Of what plim_engine_host_charge() was told, the bytes that the caller holds for this request
     * while it submits: they count where the question is whether it can ever fit. Default 0. */
    uint64_t host_charged_bytes;
    /* Whose request it is (0, the default, is somebody, too). Where not all can run at once,
     * sequences are shared by tenant and then by request: who has fewest running goes first, and
     * the further choices of a request, or requests of a tenant, give way to the first of another.
     */
    uint64_t tenant;
    /* Tokens that end a choice as the end-of-generation token does, and that min_tokens masks as it
     * does that one; ignore_eos leaves them. At most PLIM_STOP_TOKENS_MAX; copied. Default: none.
     */
    const int32_t *stop_tokens;
    size_t n_stop_tokens;
    uint32_t include_stop; /* 1: the stop string or stop token is part of the text; default 0 */
    uint32_t reserved2;
    /* Host bytes that the caller will need for the answer while it collects or writes it: in all,
     * and for each token of each choice. They are charged with the request, which is refused where
     * they are not there, so that nobody else can take them while it runs. Default 0. See
     * plim_request_take_reserved(). */
    uint64_t host_answer_bytes;
    uint64_t host_token_bytes;
    /* Only the last so many tokens of the prompt are read; 0, the default: all. Of a text, what the
     * tokenizer puts before it (BOS) stays, and counts. */
    uint32_t truncate_prompt;
    uint32_t reserved3;
    /* Words that no choice completes: where the output ends with all tokens of a word but its last,
     * that one is not chosen. A word is encoded without the spaces before it, and also with one
     * where that makes as many tokens with another first one. At most PLIM_BAD_WORDS_MAX, none
     * empty; copied. Default: none. */
    const plim_text *bad_words;
    size_t n_bad_words;
} plim_request_opts;

#define PLIM_N_MAX            128
#define PLIM_STOP_MAX         16
#define PLIM_STOP_TOKENS_MAX  64
#define PLIM_BAD_WORDS_MAX    64
#define PLIM_TOP_LOGPROBS_MAX 20

/* As plim_engine_opts_init(). */
PLIM_API void plim_request_opts_init_sized(plim_request_opts *opts, size_t opts_bytes);
#define plim_request_opts_init(opts) plim_request_opts_init_sized((opts), sizeof(plim_request_opts))

/* Validates, renders and tokenizes on the calling thread, judges whether the request can ever fit,
 * and queues it. Everything that the options point to is copied (but user). *ret is the caller's,
 * to plim_request_free(). The result is known before any header need be sent: INVALID, FORMAT,
 * LIMIT (a chat of too many values), CONTEXT, NOMEM_NEVER (never), QUEUE_FULL, NOMEM_NOW,
 * NOMEM_HOST (now), CLOSED. */
PLIM_API int plim_request_submit(plim_engine *engine, const plim_request_opts *opts,
                                 plim_request **ret, plim_error *err);
/* The user pointer of its options. */
PLIM_API void *plim_request_user(const plim_request *request);
/* The host bytes that were charged for the caller (host_answer_bytes, host_token_bytes); from now
 * on they are its own, to plim_engine_host_discharge(). What is not taken is returned when the
 * request is freed. The reader's thread; 0 at a second call. */
PLIM_API int64_t plim_request_take_reserved(plim_request *request);
/* Frees the request's blocks at the next step; its last event is DONE with finish CANCELLED. Any
 * thread; idempotent. */
PLIM_API void plim_request_cancel(plim_request *request);
/* Cancels if need be and frees. NULL is allowed. */
PLIM_API void plim_request_free(plim_request *request);

enum plim_event_type {
    PLIM_EVENT_ADMITTED, /* first event: has blocks, headers may be sent */
    PLIM_EVENT_TOKEN,    /* one token of one choice, and the text it completes (maybe none); the
                            end-of-generation token gives a FINISH and no TOKEN */
    PLIM_EVENT_FINISH,   /* one choice ended; text that was held back comes with it */
    PLIM_EVENT_DONE      /* last event: all choices ended, or the request failed */
};

typedef struct plim_logprob {
    int32_t token;
    float logprob;
} plim_logprob;

/* Pointers are valid until the next call of plim_request_next() or _free() on this request. */
typedef struct plim_event {
    uint32_t struct_size; /* set by the caller: PLIM_INIT(plim_event) */
    int32_t type;         /* enum plim_event_type */
    uint32_t choice;
    int32_t finish;   /* FINISH, DONE: enum plim_finish */
    int32_t status;   /* DONE: PLIM_OK, or why the request failed */
    int32_t token;    /* TOKEN */
    const char *text; /* TOKEN, FINISH: valid UTF-8; stop strings are cut off, and so is a
                         character whose last bytes never came */
    size_t text_len;
    float logprob; /* TOKEN with logprobs: the model's own, before bias, penalties, temperature */
    uint32_t n_top;
    const plim_logprob *top; /* TOKEN with top_logprobs, best first */
    const plim_error *error; /* DONE with status != OK */
    /* DONE: */
    uint32_t prompt_tokens;
    uint32_t cached_tokens;
    uint32_t completion_tokens; /* of all choices */
    double queue_s;             /* submit to admission */
    double prefill_s;           /* admission to first token */
    double decode_s;            /* first to last token */
} plim_event;

/* Takes the next event. timeout_ms 0: does not block; -1: no limit. TIMEOUT: none yet. After DONE:
 * CLOSED. INVALID takes none: the next call gets it. */
PLIM_API int plim_request_next(plim_request *request, int64_t timeout_ms, plim_event *event);

/* ---- files ---- */

/* What a model file says of itself: keys and tensors, as text, or as JSON, and whether a start
 * could load it ("loadable", with "reason" where not). Reads the header only. INVALID, NOT_FOUND,
 * IO, FORMAT, UNSUPPORTED, NOMEM_HOST, LIMIT. */
PLIM_API int plim_inspect(const char *path, bool json, char *out, size_t cap, size_t *need,
                          plim_error *err);

#ifdef __cplusplus
}

template <typename T> inline T plim_sized()
{
    T sized = T();
    sized.struct_size = sizeof(T);
    return sized;
}
#endif

#endif
