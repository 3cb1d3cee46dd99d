// SPDX-License-Identifier: Apache-2.0
// A device driver over host memory: what libcuda and libamdhip64 share of it. Device addresses are
// host addresses; work that is handed over runs when somebody waits for it, at the latest moment
// that a driver allows, on the thread that waits. Front ends (cuda.c, hip.c) give it their names.
// Results are enum fake_result, which are the numbers of both. Any thread: one lock.
#ifndef PLM_FAKE_FAKE_H
#define PLM_FAKE_FAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/gpudrv/kernels.h"
#include "rules.h"
#include "tests/support/null_script.h"

#define FAKE_EXPORT     __attribute__((visibility("default")))
#define FAKE_ARGS_BYTES 128u

// ---- for programs that have the driver in their own process (control.h) ----

FAKE_EXPORT bool plm_fake_gpu_set(const char *rules, char *error, size_t error_size);
FAKE_EXPORT uint64_t plm_fake_gpu_count(const char *counter);
FAKE_EXPORT null_set_fn plm_fake_gpu_null;

// ---- the front end ----

struct fake_ctx;

struct fake_front {
    const char *name; // "cuda"
    const char *device_name;
    const char *arch;
    uint64_t driver;                     // version
    uint32_t (*lanes)(const char *arch); // of a wave
    // The context that the calling thread works in. With the lock held.
    int (*current)(struct fake_ctx **ret);
    // All contexts are gone.
    void (*forget)(void);
    // FAKE_OK where an image holds code for the architecture; `symbols` gets where its names lie.
    int (*image)(const void *image, const char *arch, const char **symbols, size_t *bytes);
};
extern const struct fake_front fake_front;

// ---- objects, each known by its address; contexts own the others ----

enum fake_kind {
    FAKE_CTX,
    FAKE_STREAM,
    FAKE_EVENT,
    FAKE_MODULE,
    FAKE_FUNCTION,
    FAKE_GRAPH,
    FAKE_EXEC,
    FAKE_MEMORY, // physical, of no context
};

struct fake_object {
    struct fake_object *next;
    enum fake_kind kind;
    struct fake_ctx *ctx;
};

struct fake_ctx {
    struct fake_object object;
    int device;
    _Atomic int32_t lost;  // the result that every call gives from now on; 0: usable
    uint64_t driver_bytes; // of code and graphs
};

struct fake_module {
    struct fake_object object;
    const char *symbols; // of the caller's image
    size_t symbols_bytes;
    uint64_t bytes;
};

struct fake_function {
    struct fake_object object;
    struct fake_module *module;
    const struct plm_gpu_kernel *kernel;
    bool waits; // for what came before, in every thread
};

struct fake_launch {
    struct fake_function *function;
    uint32_t grid[3];
    uint32_t block[3];
    uint32_t shared_bytes;
    bool early; // may begin before its predecessor has ended
    uint32_t args_bytes;
    _Alignas(16) uint8_t args[FAKE_ARGS_BYTES];
};

struct fake_event {
    struct fake_object object;
    uint64_t recorded, reached; // equal: what it was recorded behind has run
    struct fake_stream *stream;
};

struct fake_node {
    struct fake_launch launch;
};

struct fake_graph {
    struct fake_object object;
    struct fake_node **nodes; // their addresses are the nodes' handles
    uint32_t n, cap;
};

struct fake_exec {
    struct fake_object object;
    const struct fake_graph *graph; // NULL once it is destroyed
    struct fake_node **handles;     // of the graph's nodes, as they were
    struct fake_launch *launches;
    uint32_t n;
    uint64_t bytes;
    bool uploaded;
};

// NULL: there is no memory.
void *fake_object_new(enum fake_kind kind, struct fake_ctx *ctx, size_t bytes);
// Whether a handle is a living object of that kind.
bool fake_object_is(const void *handle, enum fake_kind kind);
// The first object after `after` of a context and kind, or NULL.
void *fake_object_next(const struct fake_ctx *ctx, enum fake_kind kind, const void *after);
void fake_object_free(void *object);

void fake_lock(void);
void fake_unlock(void);

// ---- context.c ----

int fake_init(void);
// What is shown; NOT_INITIALIZED before fake_init.
int fake_world(struct world *ret);
// The current context, which must be usable.
int fake_here(struct fake_ctx **ret);
// The same; a fault at the place may strike it.
int fake_begin(struct fake_ctx **ret, enum fake_place place, uint64_t bytes);
// The same where the caller tells a hang apart: *ret_hang_ms.
int fake_begin_work(struct fake_ctx **ret, enum fake_place place, int64_t *ret_hang_ms);
// From now on every call gives this result; nothing of what is queued runs.
void fake_lose(struct fake_ctx *ctx, const struct fault *fault);
int fake_ctx_create(int device, struct fake_ctx **ret);
int fake_ctx_destroy(struct fake_ctx *ctx);

// ---- memory.c ----

int fake_mem_info(uint64_t *ret_free, uint64_t *ret_total);
int fake_alloc(uint64_t bytes, uint64_t *ret);
int fake_free(uint64_t address);
int fake_host_alloc(uint64_t bytes, void **ret);
int fake_host_free(void *ptr);
int fake_host_register(void *ptr, uint64_t bytes);
int fake_host_unregister(void *ptr);
int fake_host_address(void *ptr, uint64_t *ret);
int fake_reserve(uint64_t bytes, uint64_t *ret);
int fake_reserve_free(uint64_t address, uint64_t bytes);
int fake_create(int device, uint64_t bytes, uint64_t *ret_handle);
int fake_release(uint64_t handle);
int fake_map(uint64_t address, uint64_t bytes, uint64_t handle);
int fake_unmap(uint64_t address, uint64_t bytes);
int fake_access(uint64_t address, uint64_t bytes);
// Bytes that the driver itself takes of a device, or gives back. OOM where there is no room.
int fake_driver_bytes(struct fake_ctx *ctx, int64_t bytes);
// Whether all bytes lie in one living allocation that kernels of the context may touch; pinned:
// that copies may run from or to.
bool fake_is_live(const struct fake_ctx *ctx, uint64_t address, uint64_t bytes);
bool fake_is_pinned(const void *ptr, uint64_t bytes);
// What a context that goes still has.
void fake_memory_gone(struct fake_ctx *ctx);
// ---- pages.c ----

// Addresses without memory, aligned; 0: there are none.
uint64_t fake_pages_reserve(uint64_t bytes, uint64_t align);
// Lays poison over reserved addresses. False: there is no host memory.
bool fake_pages_poison(uint64_t address, uint64_t bytes);
void fake_pages_free(uint64_t address, uint64_t bytes);

// ---- script.c ----

// Whose bytes there are none of: a script plays the device.
const struct null_script *fake_script(void);
int fake_script_result(enum null_result result);
// The same, which loses the device where the script says so.
int fake_script_lost(struct fake_ctx *ctx, enum null_result result);

// ---- module.c ----

int fake_module_load(const void *image, struct fake_module **ret);
int fake_module_unload(struct fake_module *module);
int fake_module_function(struct fake_module *module, const char *name, struct fake_function **ret);
// Whether a launch fits its kernel: size of the arguments, block, grid, type.
bool fake_launch_fits(const struct fake_launch *launch);

// ---- stream.c ----

struct fake_stream;
int fake_stream_create(struct fake_stream **ret);
int fake_stream_destroy(struct fake_stream *stream);
int fake_event_create(struct fake_event **ret);
int fake_event_destroy(struct fake_event *event);
int fake_event_record(struct fake_event *event, struct fake_stream *stream);
int fake_event_query(struct fake_event *event);
int fake_copy(struct fake_stream *stream, void *to, const void *from, uint64_t bytes, bool in);
int fake_launch_kernel(struct fake_stream *stream, const struct fake_launch *launch);
int fake_capture_begin(struct fake_stream *stream);
int fake_capture_end(struct fake_stream *stream, struct fake_graph **ret);
// The node that was captured last, or NULL; false: nothing is being captured.
bool fake_capture_last(struct fake_stream *stream, struct fake_node **ret);
int fake_graph_instantiate(struct fake_graph *graph, struct fake_exec **ret);
int fake_graph_upload(struct fake_exec *exec, struct fake_stream *stream);
int fake_graph_launch(struct fake_exec *exec, struct fake_stream *stream);
int fake_graph_set(struct fake_exec *exec, const struct fake_node *node,
                   const struct fake_launch *launch);
int fake_graph_destroy(struct fake_graph *graph);
int fake_exec_destroy(struct fake_exec *exec);
void fake_graph_release(struct fake_graph *graph); // and all of it, unchecked
void fake_exec_release(struct fake_exec *exec);
void fake_stream_release(struct fake_stream *stream);
// Runs what is queued, as far as nothing hangs. Returns FAKE_OK, NOT_READY or the loss.
int fake_run_all(struct fake_ctx *ctx);
void fake_drop_all(struct fake_ctx *ctx);
// Whether somebody saw that something hangs.
bool fake_hangs(const struct fake_ctx *ctx);
bool fake_stream_uses(const struct fake_ctx *ctx, const struct fake_module *module);

// ---- exec.c: false: the device is lost, and stderr says why ----

struct fake_order; // what of a stream may still be running (order.c)
bool fake_run_launch(struct fake_ctx *ctx, struct fake_order *order,
                     const struct fake_launch *launch);
// Room for worker threads and the like, with the first context.
bool fake_exec_start(void);

// ---- order.c ----

struct fake_order *fake_order_new(void);
void fake_order_free(struct fake_order *order);
// Everything before has ended.
void fake_order_clear(struct fake_order *order);
// One more launch, whose memory is all there: false where something may still be running that it
// must come after.
bool fake_order_launch(struct fake_order *order, const struct fake_launch *launch);

#endif
