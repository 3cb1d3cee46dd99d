// SPDX-License-Identifier: Apache-2.0
// The host code that CUDA and HIP share. Its files, from the driver upwards:
//   driver.h     what a driver does, as a table; backends/cuda and backends/hip fill it
//   images.h     the device code that the build embeds (generated)
//   kernels.[ch] which kernel runs an op, and its grid: pure
//   select.c     which card is meant (its options: backends/shared/card_opts.h)
//   cards.c      the cards there are, described and checked
//   device.c     what all that follow use of an opened device: results, contexts, the timeline
//   readings.c   what is free
//   staging.c    rings of pinned memory that copies go through
//   slabs.c      slabs; copies into them and out of them
//   modules.c    the embedded images, loaded; the kernels of a plan
//   variants.c   which of several kernels of the same bits an op runs
//   list.c       the open list: launches that are appended
//   graphs.c     lists captured at the start and replayed
//   submit.c     gives the open list to the stream
//   warm.c       warm-up: every kernel is run once
//   open.c       opens and closes all of it; capabilities
//   backend.c    the entries of the contract
#ifndef PLM_GPUDRV_IMPL_H
#define PLM_GPUDRV_IMPL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "backends/gpudrv/driver.h"
#include "backends/gpudrv/kernels.h"
#include "backends/hostmem/hostmem.h"
#include "backends/shared/card_opts.h"
#include "backends/shared/choices.h"
#include "backends/shared/which.h"
#include "core/backend.h"

// ---- select.c ----

// The card that the options name. NOT_FOUND: the error lists what there is. An unusable one counts
// in the index and is refused by name.
int plm_gpu_select(const char *backend, const struct plm_gpu_opts *opts,
                   const struct plm_gpu_card *cards, uint32_t n, uint32_t *ret,
                   struct plm_error *err);

// ---- cards.c ----

#define PLM_GPU_CARDS_MAX 64 // more than any one machine has

// Text of 16 bytes that name a card: 8-4-4-4-12 hexadecimal digits, or the bytes themselves where
// they are text (HIP).
void plm_gpu_uuid_text(const char bytes[16], char ret[40]);
// The caller frees *ret. NOT_FOUND: there is no card.
int plm_gpu_cards(const struct plm_gpu_driver *driver, struct plm_gpu_library *lib,
                  struct plm_host *host, struct plm_gpu_card **ret, uint32_t *ret_n,
                  struct plm_error *err);
// The entry enumerate of struct plm_backend.
int plm_gpu_enumerate(const struct plm_gpu_driver *driver, struct plm_host *host,
                      struct plm_device_desc *out, size_t cap, size_t *ret_n,
                      struct plm_error *err);

// ---- the device ----

// Events behind the timeline: value v is reached when event v % EVENTS is, or a later one. A caller
// that is more lists ahead waits for the oldest that is kept, which is later than what it asked.
#define PLM_GPU_EVENTS 64u

struct plm_gpu_staging; // staging.c
struct plm_gpu_modules; // modules.c
struct plm_gpu_list;    // list.c
struct plm_gpu_graphs;  // graphs.c
struct plm_gpu_slab;    // slabs.c

// Live slabs by address, for copies.
struct plm_gpu_slabs {
    struct plm_gpu_slab **at;
    size_t n, cap;
};

// What the lists did, for tests.
struct plm_gpu_counters {
    uint64_t captured; // graphs
    uint64_t replayed; // submits of a list as a graph
    uint64_t set;      // kernels of graphs whose arguments were changed for it
    uint64_t launched; // kernels that were launched one by one
};

struct plm_backend_device {
    struct plm_host *host;
    const struct plm_clock *clock;
    const struct plm_log *log;
    const struct plm_gpu_driver *driver;
    struct plm_gpu_library *lib;
    struct plm_gpu_opts opts;
    struct plm_gpu_card card;
    uint32_t ordinal; // the driver's number of the card
    struct plm_caps caps;
    void *context;
    void *stream; // lists and copies, in order
    void *events[PLM_GPU_EVENTS];
    void *settled;    // the event of plm_gpu_settle
    uint64_t value;   // of the timeline, as last submitted
    uint64_t reached; // as last seen
    bool mapped;      // elastic slabs are mapped
    bool early;       // kernels may begin before their predecessor has ended, where it helps
    struct plm_gpu_counters counters;
    atomic_bool lost;
    struct plm_hostmem machine; // where unified
    struct plm_gpu_slabs slabs;
    uint64_t taken_bytes; // of the card's memory, by slabs
    // Slabs were freed since the cache was emptied; what was used beside ours before that, and when
    // the last one was freed.
    bool freed;
    uint64_t beside;
    int64_t freed_ns;
    struct plm_gpu_slab *left; // freed after a loss: their mapped memory is still taken
    struct plm_choices choices;
    struct plm_gpu_staging *staging;
    struct plm_gpu_modules *modules;
    struct plm_gpu_list *list;
    struct plm_gpu_graphs *graphs;
};

// ---- device.c ----

// Maps a result to a status; a loss becomes sticky and is logged.
int plm_gpu_status(struct plm_backend_device *dev, enum plm_gpu_result result);
// The context, current on this thread until leave. LOST where it is not to be had.
int plm_gpu_enter(struct plm_backend_device *dev, uint64_t *ret_before);
void plm_gpu_leave(struct plm_backend_device *dev, uint64_t before);
// All that follow are called inside.

// Marks the end of what was submitted as the next value of the timeline.
int plm_gpu_advance(struct plm_backend_device *dev);
// PLM_OK, TIMEOUT, LOST; timeout_ns < 0: no limit.
int plm_gpu_wait_event(struct plm_backend_device *dev, void *event, int64_t timeout_ns);
int plm_gpu_wait_value(struct plm_backend_device *dev, uint64_t value, int64_t timeout_ns);
// Waits for the event with the longest time that anything takes: a device that does not end it is
// lost.
int plm_gpu_finish(struct plm_backend_device *dev, void *event);
int plm_gpu_finish_value(struct plm_backend_device *dev, uint64_t value);
// Waits so for all that was given to the stream.
int plm_gpu_settle(struct plm_backend_device *dev);

// ---- readings.c ----

int plm_gpu_query_free(struct plm_backend_device *dev, struct plm_mem_info *ret);
int plm_gpu_empty_cache(struct plm_backend_device *dev, uint64_t *ret_released,
                        struct plm_mem_info *ret_info);
// Inside, before a slab is freed.
void plm_gpu_note_free(struct plm_backend_device *dev);
// Bounds the reading of a device in the host's memory by the machine's.
void plm_gpu_read_unified(const struct plm_mem_info *machine, struct plm_mem_info *info);

// ---- staging.c ----

int plm_gpu_staging_create(struct plm_backend_device *dev, struct plm_gpu_staging **ret);
// Nothing is in flight, or the device is lost. NULL is allowed.
void plm_gpu_staging_destroy(struct plm_backend_device *dev, struct plm_gpu_staging *staging);
// Gives back the load ring for good (empty_cache); returns its bytes.
uint64_t plm_gpu_staging_trim(struct plm_backend_device *dev);
// Puts the copy into the stream: the parts' memory may be reused when it returns. Parts that fit
// into a segment together are one transfer.
int plm_gpu_staging_in(struct plm_backend_device *dev, uint64_t dst,
                       const struct plm_copy_part *parts, uint32_t n);
// Waits for the bytes.
int plm_gpu_staging_out(struct plm_backend_device *dev, void *dst, uint64_t src, uint64_t bytes);

// ---- slabs.c ----

int plm_gpu_alloc(struct plm_backend_device *dev, enum plm_slab_kind kind, uint64_t bytes,
                  void *import_ptr, struct plm_slab *ret);
void plm_gpu_free(struct plm_backend_device *dev, struct plm_slab *slab);
// Gives back what was mapped when the device was lost, once its context is gone.
void plm_gpu_unmap_left(struct plm_backend_device *dev);
int plm_gpu_copy_in(struct plm_backend_device *dev, uint64_t dst, const void *src, uint64_t bytes);
int plm_gpu_copy_in_parts(struct plm_backend_device *dev, uint64_t dst,
                          const struct plm_copy_part *parts, uint32_t n);
int plm_gpu_copy_out(struct plm_backend_device *dev, void *dst, uint64_t src, uint64_t bytes);

// ---- modules.c ----

int plm_gpu_modules_create(struct plm_backend_device *dev, struct plm_gpu_modules **ret);
// NULL is allowed.
void plm_gpu_modules_destroy(struct plm_backend_device *dev, struct plm_gpu_modules *modules);
// Loads every image, and of it every kernel that the needs name. UNSUPPORTED: the error names image
// and kernel and what is wrong.
int plm_gpu_modules_load(struct plm_backend_device *dev, const struct plm_kernel_needs *needs,
                         struct plm_error *err);
// NULL: not among those that were loaded.
void *plm_gpu_function(const struct plm_gpu_modules *modules, const struct plm_gpu_kernel *kernel);

// ---- variants.c ----

uint32_t plm_gpu_variants(const struct plm_backend_device *dev, enum plm_op op, const void *args,
                          char name[PLM_TUNING_NAME_BYTES]);
const char *plm_gpu_variant_name(const struct plm_backend_device *dev, enum plm_op op,
                                 uint32_t index);
int plm_gpu_choose(struct plm_backend_device *dev, enum plm_op op, const void *args,
                   uint32_t index);
// What was chosen for these arguments, 0 where nothing was.
uint32_t plm_gpu_chosen(const struct plm_choices *choices, enum plm_op op, const void *args);

// ---- list.c ----

// One launch of a list, with its own copy of the arguments.
struct plm_gpu_dispatch {
    void *function;
    uint32_t grid[3];
    uint32_t threads;
    uint32_t args_bytes;
    uint32_t pad; // compared by its bytes
    unsigned char args[PLM_GPU_ARGS_MAX];
};

// The launch that a dispatch is; it points into it.
static inline struct plm_gpu_launch plm_gpu_dispatch_launch(const struct plm_gpu_dispatch *d)
{
    return (struct plm_gpu_launch){.function = d->function,
                                   .grid = {d->grid[0], d->grid[1], d->grid[2]},
                                   .threads = d->threads,
                                   .args_bytes = d->args_bytes,
                                   .args = d->args};
}

struct plm_gpu_list {
    uint32_t cap, n;
    uint32_t done; // of the n: given to the stream by a submit that then had no memory
    uint32_t rows; // most of any product
    struct plm_gpu_dispatch *dispatches;
};

int plm_gpu_list_create(struct plm_backend_device *dev, uint32_t max_dispatches,
                        struct plm_gpu_list **ret);
// Nothing is in flight. NULL is allowed.
void plm_gpu_list_destroy(struct plm_backend_device *dev, struct plm_gpu_list *list);
int plm_gpu_launch(struct plm_backend_device *dev, enum plm_op op, uint32_t units, const void *args,
                   size_t args_bytes);
// Appends a kernel of the caller's choice.
int plm_gpu_append(struct plm_backend_device *dev, const struct plm_gpu_kernel *kernel,
                   const void *args);
int plm_gpu_barrier(struct plm_backend_device *dev);
void plm_gpu_discard(struct plm_backend_device *dev);
// Whether the kernels of the open list may begin before their predecessor has ended.
bool plm_gpu_list_is_early(const struct plm_backend_device *dev);

// ---- graphs.c ----

// A decode step in seven ranges of rows, over short and long contexts, with tokens of the host and
// of the step before, and some more. One of 500 launches takes 1.3 MiB (measured: H100).
#define PLM_GPU_GRAPHS_MAX 40u

int plm_gpu_graphs_create(struct plm_backend_device *dev, struct plm_gpu_graphs **ret);
// NULL is allowed.
void plm_gpu_graphs_destroy(struct plm_backend_device *dev, struct plm_gpu_graphs *graphs);
// The entry capture of struct plm_backend.
int plm_gpu_capture(struct plm_backend_device *dev);
// Runs the open list as a replay. False: there is no graph of it, or it cannot be used now; nothing
// was run. *ret_result: how the replay went.
bool plm_gpu_replay(struct plm_backend_device *dev, int *ret_result);
void plm_gpu_counters(const struct plm_backend_device *dev, struct plm_gpu_counters *ret);

// ---- submit.c ----

int plm_gpu_submit(struct plm_backend_device *dev, uint64_t *ret_value);
int plm_gpu_wait(struct plm_backend_device *dev, uint64_t value, int64_t timeout_ns);

// ---- warm.c ----

int plm_gpu_warm_up(struct plm_backend_device *dev, const struct plm_kernel_needs *needs,
                    struct plm_error *err);

// ---- open.c ----

int plm_gpu_open(const struct plm_gpu_driver *driver, const struct plm_device_opts *opts,
                 struct plm_backend_device **ret, struct plm_error *err);
void plm_gpu_close(struct plm_backend_device *dev);

// ---- backend.c ----

const struct plm_caps *plm_gpu_caps(const struct plm_backend_device *dev);
int plm_gpu_weight_layout(const struct plm_backend_device *dev, enum plm_type type, uint32_t n_in,
                          uint32_t n_out, struct plm_weight_layout *ret);
void plm_gpu_weight_pack(const struct plm_backend_device *dev, enum plm_type type, uint32_t n_in,
                         uint32_t n_out, uint32_t first, uint32_t rows, const void *src, void *dst);
int plm_gpu_device_status(const struct plm_backend_device *dev);
int plm_gpu_configure(const char *backend, struct plm_host *host, const char *argument,
                      const void **ret_opts, struct plm_error *err);
void plm_gpu_release(struct plm_host *host, const void *opts);

// The entries that both backends have in common.
#define PLM_GPU_ENTRIES                                                                            \
    .close = plm_gpu_close, .caps = plm_gpu_caps, .alloc = plm_gpu_alloc, .free = plm_gpu_free,    \
    .query_free = plm_gpu_query_free, .empty_cache = plm_gpu_empty_cache,                          \
    .weight_layout = plm_gpu_weight_layout, .weight_pack = plm_gpu_weight_pack,                    \
    .warm_up = plm_gpu_warm_up, .launch = plm_gpu_launch, .barrier = plm_gpu_barrier,              \
    .submit = plm_gpu_submit, .discard = plm_gpu_discard, .wait = plm_gpu_wait,                    \
    .copy_in = plm_gpu_copy_in, .copy_in_parts = plm_gpu_copy_in_parts,                            \
    .copy_out = plm_gpu_copy_out, .status = plm_gpu_device_status, .variants = plm_gpu_variants,   \
    .variant_name = plm_gpu_variant_name, .choose = plm_gpu_choose, .capture = plm_gpu_capture,    \
    .release = plm_gpu_release

#endif
