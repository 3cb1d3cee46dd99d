// SPDX-License-Identifier: Apache-2.0
// What the files of the simulated device share. One lock guards the numbers, since readings come
// from any thread; it is never held while time passes or the inner backend works.
#ifndef PLM_SIM_INTERNAL_H
#define PLM_SIM_INTERNAL_H

#include "backends/sim/sim.h"

#define PLM_SIM_PENDING 32  // frees on their way; beyond them the oldest is back early
#define PLM_SIM_HISTORY 64  // changes that a late reading can look back on
#define PLM_SIM_NOTES   16  // ranges of the host's copies: a step has seven and its guard
#define PLM_SIM_BYTES   256 // of a range that reads back: the guard of a workspace is the longest

// Bytes that are freed, but not back yet.
struct plm_sim_pending {
    int64_t due_ns;
    uint64_t bytes;
    uint32_t heap;
};

// What was true from a time on.
struct plm_sim_sample {
    int64_t at_ns;
    uint64_t free_bytes, use_bytes, foreign_bytes;
};

// A range that the host copied in.
struct plm_sim_note {
    uint64_t addr, bytes;
    bool poison;                       // holds the poison token
    unsigned char data[PLM_SIM_BYTES]; // where it is no longer than this
};

#define PLM_SIM_CHOICES 64
#define PLM_SIM_GRAPHS  32

struct sim_slab; // memory.c

struct plm_sim_choice {
    char name[PLM_TUNING_NAME_BYTES];
    uint32_t index;
};

struct plm_backend_device {
    struct plm_host *host;
    const struct plm_clock *clock; // NULL: no time passes
    struct plm_sim_opts script;
    struct plm_sim_world *world;
    struct plm_sim_world own_world;
    struct plm_caps caps;
    struct plm_backend_device *inner; // with script.inner
    uint64_t next_addr;               // without
    atomic_flag lock;
    atomic_bool lost;

    uint64_t heap_bytes[PLM_SIM_HEAPS_MAX];
    uint64_t heap_used[PLM_SIM_HEAPS_MAX]; // slabs, and what is freed but not back yet
    uint32_t n_heaps;
    uint64_t driver_bytes; // context, code and growth of this open device
    uint64_t freed_bytes;  // since the cache was emptied
    uint64_t kept[PLM_SIM_HEAPS_MAX];
    struct plm_sim_pending pending[PLM_SIM_PENDING]; // ascending by due_ns
    uint32_t n_pending;
    struct sim_slab *spilled; // slabs in slow memory

    struct plm_mem_info stale;                      // the last honest reading
    struct plm_sim_sample history[PLM_SIM_HISTORY]; // a ring
    uint64_t n_history;

    uint64_t timeline;
    int64_t busy_from, busy_until; // of the last list that was submitted
    uint32_t open_dispatches;
    bool open_slow;  // they use what lies in slow memory
    int64_t open_ns; // that the variants of the open list's dispatches take beside
    struct plm_sim_choice choices[PLM_SIM_CHOICES];
    uint32_t n_choices;
    uint64_t open_kernels;           // a digest of the open list's ops in their order
    uint64_t graphs[PLM_SIM_GRAPHS]; // of lists that were captured
    uint32_t n_graphs;
    bool loaded[PLM_OPS];                     // kernels that have taken their bytes
    struct plm_sim_note notes[PLM_SIM_NOTES]; // a ring
    uint64_t n_notes;
    struct plm_sim_note guard;     // the last range that looks like one
    struct plm_matmul_args logits; // of the open list's last one
    struct plm_argmax_args best;   // what was found of them; rows is 0: nothing
    uint64_t best_copy;            // where it is copied to in the list; 0: nowhere
    bool poisoned;                 // the open list has the token in it
    bool nan;                      // the list before had
};

// room.c. All but the first four: under the lock.
void plm_sim_lock(struct plm_backend_device *dev);
void plm_sim_unlock(struct plm_backend_device *dev);
int64_t plm_sim_now(const struct plm_backend_device *dev);
// True when the device is lost, now or since before.
bool plm_sim_is_lost(struct plm_backend_device *dev);
uint64_t plm_sim_own_bytes(const struct plm_backend_device *dev);
uint64_t plm_sim_foreign_bytes(const struct plm_backend_device *dev);
// What slabs have to leave room for: the driver's bytes and foreign ones.
uint64_t plm_sim_outside(const struct plm_backend_device *dev);
// What the host's view leaves, on unified memory.
uint64_t plm_sim_host_room(const struct plm_backend_device *dev);
// What each heap has left when `eaten` more bytes lie in the first ones that have room. Returns
// what found none.
uint64_t plm_sim_heap_rooms(const struct plm_backend_device *dev, uint64_t eaten,
                            uint64_t rooms[PLM_SIM_HEAPS_MAX]);
// What is free; *ret_missing (may be NULL): held beyond what there is.
uint64_t plm_sim_free_bytes(const struct plm_backend_device *dev, uint64_t *ret_missing);
// What is true now, for late readings.
void plm_sim_remember(struct plm_backend_device *dev, int64_t at_ns);
// Bytes that the driver itself takes; PLM_OK or PLM_ERR_OUT_OF_DEVICE.
int plm_sim_driver_take(struct plm_backend_device *dev, uint64_t bytes);
void plm_sim_driver_return(struct plm_backend_device *dev, uint64_t bytes);
// Freed bytes are back in their heap.
void plm_sim_give_back(struct plm_backend_device *dev, uint32_t heap, uint64_t bytes);
// So are all whose time has come.
void plm_sim_settle(struct plm_backend_device *dev, int64_t now_ns);

// events.c
// Under the lock: what is to happen at the at-th of its kind, and before that at any time up to
// now.
void plm_sim_happen(struct plm_backend_device *dev, enum plm_sim_when when, uint64_t at);
void plm_sim_mark(struct plm_backend_device *dev, enum plm_phase phase, uint64_t step);

// readings.c
int plm_sim_query_free(struct plm_backend_device *dev, struct plm_mem_info *ret);

// memory.c: a slab and where it lies.
int plm_sim_alloc(struct plm_backend_device *dev, enum plm_slab_kind kind, uint64_t bytes,
                  void *import_ptr, struct plm_slab *ret);
void plm_sim_free(struct plm_backend_device *dev, struct plm_slab *slab);
// Whether an address lies in slow memory. The engine's thread.
bool plm_sim_is_spilled(const struct plm_backend_device *dev, uint64_t addr);
int plm_sim_empty_cache(struct plm_backend_device *dev, uint64_t *ret_released,
                        struct plm_mem_info *ret_info);

// variants.c
uint32_t plm_sim_variants(const struct plm_backend_device *dev, enum plm_op op, const void *args,
                          char name[PLM_TUNING_NAME_BYTES]);
const char *plm_sim_variant_name(const struct plm_backend_device *dev, enum plm_op op,
                                 uint32_t index);
int plm_sim_choose(struct plm_backend_device *dev, enum plm_op op, const void *args,
                   uint32_t index);
// What a dispatch takes beside dispatch_ns.
int64_t plm_sim_variant_ns(const struct plm_backend_device *dev, enum plm_op op, const void *args);

// lists.c
int plm_sim_warm_up(struct plm_backend_device *dev, const struct plm_kernel_needs *needs,
                    struct plm_error *err);
int plm_sim_launch(struct plm_backend_device *dev, enum plm_op op, uint32_t units, const void *args,
                   size_t args_bytes);
int plm_sim_barrier(struct plm_backend_device *dev);
void plm_sim_discard(struct plm_backend_device *dev);
int plm_sim_capture(struct plm_backend_device *dev);
int plm_sim_submit(struct plm_backend_device *dev, uint64_t *ret_value);
int plm_sim_wait(struct plm_backend_device *dev, uint64_t value, int64_t timeout_ns);
int plm_sim_copy_in(struct plm_backend_device *dev, uint64_t dst, const void *src, uint64_t bytes);
int plm_sim_copy_out(struct plm_backend_device *dev, void *dst, uint64_t src, uint64_t bytes);

// layout.c: without an inner backend; sizes are those of the file's types, in panels of 16 rows.
int plm_sim_weight_layout(enum plm_type type, uint32_t n_in, uint32_t n_out,
                          struct plm_weight_layout *ret);

// world_file.c: the device part of the world file that "sim:FILE" names.
int plm_sim_configure(struct plm_host *host, const char *argument, const void **ret_opts,
                      struct plm_error *err);
void plm_sim_release(struct plm_host *host, const void *opts);

static inline uint64_t plm_sim_sub(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static inline uint64_t plm_sim_add(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

#endif
