// SPDX-License-Identifier: Apache-2.0
// A GPU driver as the shared host code sees it: CUDA's driver API and the HIP runtime do the same
// things under different names. backends/cuda and backends/hip implement this table, tests a third
// one of their own. Every function works on the calling thread's current context, which enter and
// leave set; none retries, falls back or keeps state beyond what it returns.
#ifndef PLM_GPUDRV_DRIVER_H
#define PLM_GPUDRV_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/gpudrv/images.h"
#include "core/backend.h"

// What a driver's result means to us.
enum plm_gpu_result {
    PLM_GPU_OK,
    PLM_GPU_OUT_OF_MEMORY,
    PLM_GPU_NOT_READY, // an event that was not reached yet
    PLM_GPU_LOST,    // sticky: illegal address, failed launch, ECC, a card or context that is gone
    PLM_GPU_INVALID, // an argument is wrong: a defect of ours
    PLM_GPU_NOT_FOUND,   // no such symbol
    PLM_GPU_NO_IMAGE,    // the image has no code for this card
    PLM_GPU_BAD_IMAGE,   // the image is corrupt
    PLM_GPU_BAD_PTX,     // its PTX is newer than the driver's compiler, or there is no compiler
    PLM_GPU_UNSUPPORTED, // not something that this driver does
    PLM_GPU_UNAVAILABLE, // the card is another process's alone, or its service (MPS) does not
                         // answer
    PLM_GPU_UNKNOWN,     // whatever else; nothing that follows can be relied on
};

#define PLM_GPU_ARGS_MAX                                                                           \
    128 // bytes of a kernel's argument (core/device/lists.c asserts it of every op)

// A card as far as it matters before it is opened.
struct plm_gpu_card {
    char name[64];
    char uuid[40];
    char driver[64]; // and its version
    char arch[32];   // "sm_90", "gfx90a"
    uint64_t total_bytes;
    bool unified;         // its memory is the host's
    bool spills;          // its driver may move memory to the host without an error (WSL)
    bool sees_itself;     // its readings may count what this process holds, and no other
    bool shared_service;  // contexts are shared by MPS: a fault of one process is everybody's
    bool virtual_memory;  // slabs can be mapped, so that their release waits for nothing
    bool programmatic;    // launches may begin before their predecessor has ended
    bool graphs;          // lists can be captured
    bool graphs_settable; // and the arguments of a graph's kernels changed
    char missing[256];    // what a card that cannot be used lacks; "" where it can be used
};

// Memory mapped into a reservation of addresses.
struct plm_gpu_mapping {
    uint64_t addr, bytes, memory;
    bool unmapped; // how far unmap came: then memory becomes 0, and the addresses go last
};

// One launch: the argument is one struct by value.
struct plm_gpu_launch {
    void *function;
    uint32_t grid[3];
    uint32_t threads; // of a block
    uint32_t args_bytes;
    const void *args;
};

struct plm_gpu_library; // an opened driver: each implementation's own

typedef enum plm_gpu_result plm_gpu_r;

struct plm_gpu_driver {
    const char *name;               // of the backend: "cuda"
    const char *device_class;       // "cuda-p16"
    const char *source;             // of readings: "cuMemGetInfo"
    enum plm_confidence confidence; // in them, where nobody can take memory that we hold
    const struct plm_gpu_image *images;
    const size_t *n_images;
    uint64_t context_bytes;     // what an open device costs
    uint64_t unavailable_bytes; // reported free, never given

    // Opens the driver and starts it. NOT_FOUND: there is none; UNSUPPORTED: it is too old or lacks
    // something. The error names what was tried and what is needed.
    int (*load)(struct plm_host *host, struct plm_gpu_library **ret, struct plm_error *err);
    // NULL is allowed.
    void (*unload)(struct plm_host *host, struct plm_gpu_library *lib);
    // The driver's own name of the last result that was not good ("CUDA_ERROR_ILLEGAL_ADDRESS").
    const char *(*last_error)(const struct plm_gpu_library *lib);

    // Cards, without a context.
    plm_gpu_r (*count)(struct plm_gpu_library *lib, uint32_t *ret);
    plm_gpu_r (*describe)(struct plm_gpu_library *lib, uint32_t card, struct plm_gpu_card *ret);

    // A context of our own on a card, not current afterwards.
    plm_gpu_r (*context_create)(struct plm_gpu_library *lib, uint32_t card, void **ret);
    // Also of a lost one: a context created afterwards works, where the card does.
    void (*context_destroy)(struct plm_gpu_library *lib, void *context, bool lost);
    // Makes it current on the calling thread until leave.
    plm_gpu_r (*enter)(struct plm_gpu_library *lib, void *context, uint64_t *ret_before);
    void (*leave)(struct plm_gpu_library *lib, uint64_t before);

    plm_gpu_r (*memory_info)(struct plm_gpu_library *lib, uint64_t *ret_free, uint64_t *ret_total);
    plm_gpu_r (*memory_alloc)(struct plm_gpu_library *lib, uint64_t bytes, uint64_t *ret_addr);
    plm_gpu_r (*memory_free)(struct plm_gpu_library *lib, uint64_t addr);
    // Where card.virtual_memory, else NULL. bytes: whole steps of granularity. On failure of map
    // nothing is left; where unmap failed it can be called again, in any context, and goes on.
    plm_gpu_r (*map_granularity)(struct plm_gpu_library *lib, uint32_t card, uint64_t *ret);
    plm_gpu_r (*map)(struct plm_gpu_library *lib, uint32_t card, uint64_t bytes,
                     struct plm_gpu_mapping *ret);
    plm_gpu_r (*unmap)(struct plm_gpu_library *lib, struct plm_gpu_mapping *mapping);
    // Host memory that the device reads at *ret_addr.
    plm_gpu_r (*host_alloc)(struct plm_gpu_library *lib, uint64_t bytes, void **ret,
                            uint64_t *ret_addr);
    plm_gpu_r (*host_free)(struct plm_gpu_library *lib, void *host);
    plm_gpu_r (*host_register)(struct plm_gpu_library *lib, void *host, uint64_t bytes,
                               uint64_t *ret_addr);
    plm_gpu_r (*host_unregister)(struct plm_gpu_library *lib, void *host);

    plm_gpu_r (*stream_create)(struct plm_gpu_library *lib, void **ret);
    void (*stream_destroy)(struct plm_gpu_library *lib, void *stream);
    plm_gpu_r (*event_create)(struct plm_gpu_library *lib, void **ret);
    void (*event_destroy)(struct plm_gpu_library *lib, void *event);
    plm_gpu_r (*event_record)(struct plm_gpu_library *lib, void *event, void *stream);
    plm_gpu_r (*event_query)(struct plm_gpu_library *lib, void *event);
    // Between the device and pinned memory, in the order of the stream.
    plm_gpu_r (*copy_in)(struct plm_gpu_library *lib, void *stream, uint64_t dst, const void *src,
                         uint64_t bytes);
    plm_gpu_r (*copy_out)(struct plm_gpu_library *lib, void *stream, void *dst, uint64_t src,
                          uint64_t bytes);

    plm_gpu_r (*module_load)(struct plm_gpu_library *lib, const void *image, void **ret);
    void (*module_unload)(struct plm_gpu_library *lib, void *module);
    plm_gpu_r (*module_function)(struct plm_gpu_library *lib, void *module, const char *symbol,
                                 void **ret);
    // Bytes of local memory (CUDA) or scratch (HIP) that a thread of the kernel takes.
    plm_gpu_r (*function_local)(struct plm_gpu_library *lib, void *function, uint64_t *ret);

    // early: the kernel may begin before what was launched before it has ended, where the card does
    // that; it waits by itself before it reads anything that changes.
    plm_gpu_r (*launch)(struct plm_gpu_library *lib, void *stream, bool early,
                        const struct plm_gpu_launch *launch);

    // Graphs, where card.graphs: launches between begin and end are captured, not run. end ends the
    // capture whatever went wrong and stores NULL where there is no graph. graph_instantiate takes
    // all memory that replays need and leaves the graph to be destroyed. Where
    // card.graphs_settable, else NULL: capture_node, after a launch, gives its node; graph_set
    // changes what that runs in replays to come, as long as the graph that it is a node of is
    // there.
    plm_gpu_r (*capture_begin)(struct plm_gpu_library *lib, void *stream);
    plm_gpu_r (*capture_node)(struct plm_gpu_library *lib, void *stream, void **ret);
    plm_gpu_r (*capture_end)(struct plm_gpu_library *lib, void *stream, void **ret_graph);
    void (*graph_destroy)(struct plm_gpu_library *lib, void *graph);
    plm_gpu_r (*graph_instantiate)(struct plm_gpu_library *lib, void *graph, void *stream,
                                   void **ret);
    void (*graph_exec_destroy)(struct plm_gpu_library *lib, void *exec);
    plm_gpu_r (*graph_set)(struct plm_gpu_library *lib, void *exec, void *node,
                           const struct plm_gpu_launch *launch);
    plm_gpu_r (*graph_launch)(struct plm_gpu_library *lib, void *exec, void *stream);
};

#endif
