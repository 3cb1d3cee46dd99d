// SPDX-License-Identifier: Apache-2.0
// The backend contract: everything the core knows about a device. A backend is one const struct
// plm_backend; only core/device calls through it, after checking the arguments, so backends do
// not check again.
//
// Rules for every entry:
//  - Results are PLM_OK or a code of core/base/status.h. LOST is sticky: after it every entry but
//    close, free and status returns PLM_ERR_LOST until the device is reopened.
//  - Nothing retries, falls back to another kind of memory, evicts, prints, reads the environment
//    or keeps global state. Host memory comes from the plm_host given at open.
//  - One thread, the engine's, drives a device. query_free and status may be called from any thread
//    at any time.
//  - Device memory is taken by alloc alone. After open and warm_up nothing else may take any, and
//    launch, barrier, submit, wait and the copies take no host memory either.
#ifndef PLM_BACKEND_H
#define PLM_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/status.h"
#include "kernels/abi.h"

enum plm_op {
#define PLM_OP(NAME, name, units, tolerance) PLM_OP_##NAME,
#include "kernels/ops.def"
#undef PLM_OP
    PLM_OPS,
};

// Kinds of slabs. DEVICE: fast memory of the device. ELASTIC: the same, but grown and shrunk while
// kernels run (virtual-memory calls where the driver has them, else as DEVICE). PINNED: host memory
// that the device reads, and where caps.async writes. IMPORTED: the caller's host memory, given to
// the device.
enum plm_slab_kind { PLM_SLAB_DEVICE, PLM_SLAB_ELASTIC, PLM_SLAB_PINNED, PLM_SLAB_IMPORTED };

struct plm_slab {
    uint64_t addr;        // device address of the first byte, aligned to caps.align_bytes
    uint64_t bytes;       // as asked for
    uint64_t taken_bytes; // as the driver took them: a multiple of caps.granularity_bytes
    void *host;           // the same bytes for the host, or NULL where they are not host-visible
    enum plm_slab_kind kind;
    void *impl; // the backend's own
};

// Whether another process can take memory that we hold.
enum plm_commit { PLM_COMMIT_HARD, PLM_COMMIT_SOFT };

// What the engine is doing. Peaks are kept per phase, so that a load's peak is not charged to
// serving; a backend may name its ranges in a profiler's trace by them.
#define PLM_PHASE_LIST(X)                                                                          \
    X(LOAD, "load")                                                                                \
    X(TUNE, "tune")                                                                                \
    X(CAPTURE, "capture") /* of graphs */                                                          \
    X(PROBE, "probe")     /* the workspace and the first, small pool are taken */                  \
    X(ENCODE, "encode")   /* stress: encoders' worst case */                                       \
    X(PREFILL, "prefill") /* stress: steps with prompt rows */                                     \
    X(DECODE, "decode")   /* stress: steps of decode rows only */                                  \
    X(SAMPLE, "sample")   /* stress: the heaviest sampler */                                       \
    X(RESIZE, "resize")                                                                            \
    X(VALIDATE, "validate")                                                                        \
    X(SERVE, "serve")                                                                              \
    X(SLEEP, "sleep")

enum plm_phase {
#define X(NAME, name) PLM_PHASE_##NAME,
    PLM_PHASE_LIST(X)
#undef X
        PLM_PHASES,
};

// Immutable facts about an open device.
struct plm_caps {
    char name[64];         // "cpu", "NVIDIA H100 80GB HBM3"
    char uuid[40];         // stable across processes; text
    char driver[64];       // and its version, where there is one: a plan holds for it alone
    char isa[32];          // kernels chosen at run time ("avx512-vnni")
    char device_class[16]; // with the type it fixes a weight's layout ("cpu-p16")
    enum plm_commit commit;
    bool unified; // device memory is host memory: the host term of the plan applies
    bool reports_process_use;
    bool tunes;  // ops have variants to choose among
    bool graphs; // lists can be captured
    // submit returns while the list runs, copy_in waits for nothing that runs, and kernels write to
    // PINNED slabs: the host may look at one list's results while the next one runs.
    bool async;
    bool addresses_only;        // has no bytes behind its addresses: weights are not read for it
    uint64_t granularity_bytes; // g of the plan; the CPU says 16 MiB
    uint64_t context_bytes;     // driver's cost of an open device, where process use is unknown
    uint64_t unavailable_bytes; // reported free, never given
    uint64_t max_slab_bytes;
    uint32_t max_slabs;
    uint32_t align_bytes;
    uint32_t max_submit_ms; // longest list a watchdog tolerates; 0: no watchdog
    uint32_t workers;       // CPU: threads that walk a list
    // Optional ops (kernels/ops.def: QKV, GLU, ATTENTION_SPLIT with _MERGE, ARGMAX, SAMPLE) that
    // are faster here than what they stand for, as a mask of 1 << PLM_OP_x. A forward uses QKV, GLU
    // and the splits for steps of at most few_rows rows, and SAMPLE in place of ARGMAX. On the CPU
    // none is.
    uint64_t prefers;
    uint32_t few_rows;
    uint64_t kv_types; // types that K and V can have in the cache, as a mask of 1 << enum plm_type
};

// Floats alone, and 8 bits, too.
#define PLM_KV_TYPES_FLOAT (UINT64_C(1) << PLM_TYPE_F16 | UINT64_C(1) << PLM_TYPE_F32)
#define PLM_KV_TYPES_ALL   (PLM_KV_TYPES_FLOAT | UINT64_C(1) << PLM_TYPE_Q8_0)

// What GPUs prefer: every optional op, but SAMPLE only with CUDA and HIP, since Vulkan has no
// kernel for it; in steps of as many rows as share one read of a weight without a tile. Stated here
// for backends and for plans without a device.
#define PLM_GPU_PREFERS                                                                            \
    (UINT64_C(1) << PLM_OP_QKV | UINT64_C(1) << PLM_OP_GLU |                                       \
     UINT64_C(1) << PLM_OP_ATTENTION_SPLIT | UINT64_C(1) << PLM_OP_ATTENTION_MERGE |               \
     UINT64_C(1) << PLM_OP_ARGMAX)
#define PLM_CUDA_PREFERS    (PLM_GPU_PREFERS | UINT64_C(1) << PLM_OP_SAMPLE) // HIP's, too
#define PLM_VULKAN_FEW_ROWS 8u
#define PLM_CUDA_FEW_ROWS   64u // of CUDA and HIP, whose products of few rows use matrix instructions

// Where a reading comes from and how far to believe it.
enum plm_confidence {
    PLM_CONFIDENCE_NONE,
    PLM_CONFIDENCE_LOW,
    PLM_CONFIDENCE_MEDIUM,
    PLM_CONFIDENCE_HIGH
};

#define PLM_CGROUP_LEVELS 8 // deepest nesting that is read; deeper ones keep the tightest levels

// One level of the memory controller above this process.
struct plm_cgroup {
    uint64_t limit_bytes; // only levels that have a limit are listed
    uint64_t current_bytes;
    uint64_t reclaimable_bytes; // inactive_file + active_file - dirty - writeback, at least 0
};

// A reading of the driver. Unclamped: core/device/readings.c clamps it.
struct plm_mem_info {
    uint64_t total_bytes;
    uint64_t free_bytes;
    uint64_t process_use_bytes; // this process's, where caps.reports_process_use
    uint64_t budget_bytes;      // what the driver advises; 0: nothing
    const char *source;         // static text: "/proc/meminfo", "cuMemGetInfo"
    enum plm_confidence confidence;
    uint32_t n_cgroups;
    struct plm_cgroup cgroups[PLM_CGROUP_LEVELS];
};

// How a weight lies on this device: row_step rows are re-laid together, and such steps follow each
// other, so that a tensor can be loaded piece by piece.
struct plm_weight_layout {
    uint64_t bytes;        // of the whole re-laid tensor: whole steps
    uint64_t step_bytes;   // of row_step re-laid rows: row r lies in the step r / row_step
    uint32_t row_step;     // pack takes rows in multiples of this, but for the last ones
    uint32_t row_bytes_in; // bytes of one row in the file
};

// What a plan launches, so that a backend need not load what nobody runs.
struct plm_kernel_needs {
    uint64_t weight_types; // 1 << enum plm_type of each matrix there is
    uint64_t kv_types;     // 1 << enum plm_type of each KV group
    uint64_t head_groups;  // 1 << query heads that share a KV head (63: as many or more)
    bool float_acts;       // products of PLM_ACT_F32 also with types that have 8-bit ones
};

enum plm_kernel_choice {
    PLM_KERNELS_AUTO,      // the fastest variants that the device runs
    PLM_KERNELS_REFERENCE, // CPU: the plain C functions that specify the ops
};

struct plm_device_opts {
    struct plm_host *host;
    const struct plm_clock *clock;
    const struct plm_log *log;
    uint32_t index;   // among the backend's devices
    uint32_t threads; // CPU workers; 0: one per usable core
    uint32_t isa_max; // CPU: cap on the variants, for tests; 0: none (backends/cpu/isa.h)
    enum plm_kernel_choice kernels;
    uint32_t max_dispatches;     // capacity of the open list, fixed at open
    uint64_t memory_limit_bytes; // CPU: the operator's limit, as one more level; 0: none
    // sim: struct plm_sim_opts; cpu: struct plm_cpu_opts or NULL. Valid as long as the device,
    // which may be opened again with them.
    const void *backend_opts;
};

// One of several ranges of the host that are copied in together: to dst + at.
struct plm_copy_part {
    const void *src;
    uint64_t at;
    uint64_t bytes;
};

struct plm_device_desc {
    char id[32]; // "cpu", "sim", "cuda:0"
    char name[64];
    uint64_t total_bytes;
};

struct plm_backend_device; // each backend's own

#define PLM_TUNING_NAME_BYTES 64 // of what a choice of a variant holds for

struct plm_backend {
    const char *name;

    // Lists devices without opening a context. Stores at most cap and the number there are. Where a
    // device cannot be used, err says why, also when the result is PLM_OK.
    int (*enumerate)(struct plm_host *host, struct plm_device_desc *out, size_t cap, size_t *ret_n,
                     struct plm_error *err);
    // May block, may take device memory (the driver's context). On failure nothing stays open.
    int (*open)(const struct plm_device_opts *opts, struct plm_backend_device **ret,
                struct plm_error *err);
    // All slabs must have been freed. Works on a lost device. NULL is allowed.
    void (*close)(struct plm_backend_device *dev);
    const struct plm_caps *(*caps)(const struct plm_backend_device *dev);

    // One slab; bytes > 0. PLM_OK, OUT_OF_DEVICE (no room now), TOO_LARGE (can never fit),
    // NOMEM_HOST, LOST. When it returns PLM_OK the memory is really there: a soft-commit backend
    // touches it. import_ptr: for PLM_SLAB_IMPORTED, else NULL. May block.
    int (*alloc)(struct plm_backend_device *dev, enum plm_slab_kind kind, uint64_t bytes,
                 void *import_ptr, struct plm_slab *ret);
    // Nothing in flight uses the slab. When it returns, the memory is back at the driver.
    void (*free)(struct plm_backend_device *dev, struct plm_slab *slab);
    // A reading. May be slow; never called by the engine thread inside a step. Any thread.
    int (*query_free)(struct plm_backend_device *dev, struct plm_mem_info *ret);
    // Nothing in flight. Waits for pending frees, drops every cache of driver and backend, and
    // returns the bytes released and a fresh reading.
    int (*empty_cache)(struct plm_backend_device *dev, uint64_t *ret_released,
                       struct plm_mem_info *ret_info);

    // Layout of a weight [n_out, n_in] of a type; pure. PLM_ERR_UNSUPPORTED for other types. dev
    // may be NULL: as a device of this backend has it that is not open (plans without one).
    int (*weight_layout)(const struct plm_backend_device *dev, enum plm_type type, uint32_t n_in,
                         uint32_t n_out, struct plm_weight_layout *ret);
    // Re-lays rows [first, first + rows) from file bytes at src into dst, the place of row first on
    // the host. Writes whole steps: what rows do not fill is zero. first is a multiple of row_step.
    // Pure but for dst; any thread.
    void (*weight_pack)(const struct plm_backend_device *dev, enum plm_type type, uint32_t n_in,
                        uint32_t n_out, uint32_t first, uint32_t rows, const void *src, void *dst);

    // Loads and runs every kernel that the needs name once, so that lazy code and local memory are
    // resident. Kernels beyond them are refused by launch (UNSUPPORTED). May block.
    int (*warm_up)(struct plm_backend_device *dev, const struct plm_kernel_needs *needs,
                   struct plm_error *err);

    // Appends one dispatch to the open list, after those appended since the last barrier, with
    // which it may overlap. units: independent pieces of work (ops.def). args is copied. The
    // caller keeps within max_dispatches. Does not block, allocates nothing, runs nothing.
    int (*launch)(struct plm_backend_device *dev, enum plm_op op, uint32_t units, const void *args,
                  size_t args_bytes);
    // What is appended later sees what was appended before.
    int (*barrier)(struct plm_backend_device *dev);
    // Runs the open list, empties it, and returns the timeline value that its end will reach.
    // Values grow by one. May block (the CPU runs the list here). OUT_OF_DEVICE: nothing ran, and
    // the list is still open: submit again, or discard it.
    int (*submit)(struct plm_backend_device *dev, uint64_t *ret_value);
    // Empties the open list without running it.
    void (*discard)(struct plm_backend_device *dev);
    // Optional, where caps.graphs: makes a graph of the open list, which stays open as it is, and
    // takes the memory of its replays. A later list of the same kernels may run as a replay of it;
    // what runs is the same. A graph that is there stays: PLM_OK. OUT_OF_DEVICE, and LIMIT where
    // no more are kept or the driver makes none of this list: none was made, nothing is lost. Not
    // after the seal. May block.
    int (*capture)(struct plm_backend_device *dev);
    // Waits until the timeline reached value: PLM_OK, TIMEOUT, LOST.
    int (*wait)(struct plm_backend_device *dev, uint64_t value, int64_t timeout_ns);
    // Ordered after all that was submitted before; complete when they return.
    int (*copy_in)(struct plm_backend_device *dev, uint64_t dst, const void *src, uint64_t bytes);
    int (*copy_out)(struct plm_backend_device *dev, void *dst, uint64_t src, uint64_t bytes);
    // Optional: copy_in of n parts, ascending and without overlap, in as few transfers as the
    // backend can. The bytes between parts are the caller's, too: what they hold afterwards is
    // open.
    int (*copy_in_parts)(struct plm_backend_device *dev, uint64_t dst,
                         const struct plm_copy_part *parts, uint32_t n);
    // PLM_OK or PLM_ERR_LOST. Any thread, never blocks.
    int (*status)(const struct plm_backend_device *dev);
    // Optional, all three or none: variants of an op. They give the same bits and take the same
    // memory, so that a choice moves neither a text nor a plan; only time differs. variants: how
    // many there are for these arguments (at least 1; their addresses do not count), and a name of
    // what the choice holds for ("matmul q4_0/q8 4096x4096 few"), stable over builds. variant_name:
    // static text, NULL beyond the last one. choose: launches whose arguments have the same name
    // run this variant from now on; before, and where LIMIT says that no more are kept, variant 0.
    uint32_t (*variants)(const struct plm_backend_device *dev, enum plm_op op, const void *args,
                         char name[PLM_TUNING_NAME_BYTES]);
    const char *(*variant_name)(const struct plm_backend_device *dev, enum plm_op op,
                                uint32_t index);
    int (*choose)(struct plm_backend_device *dev, enum plm_op op, const void *args, uint32_t index);
    // Optional: the engine entered a phase, or begins its step-th step after READY (1, 2, ...) in
    // PLM_PHASE_SERVE. For traces, and for the timeline of a simulated device. Never blocks.
    void (*mark)(struct plm_backend_device *dev, enum plm_phase phase, uint64_t step);

    // Optional, both. What follows ':' in an id ("sim:FILE") becomes backend_opts, which one device
    // keeps over its reopens and releases after the last close. Without them it is an index.
    int (*configure)(struct plm_host *host, const char *argument, const void **ret_opts,
                     struct plm_error *err);
    void (*release)(struct plm_host *host, const void *opts);
};

// The backends of this build, ended by NULL (backends/list.c).
extern const struct plm_backend *const plm_backends[];
// Judges what follows ':' in an id of a kind of cards, whether its backend is in this build or not.
// INVALID: the error names the option and those that there are. OK for other kinds.
int plm_backend_check_options(const char *backend, const char *text, struct plm_error *err);

#endif
