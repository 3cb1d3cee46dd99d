// SPDX-License-Identifier: Apache-2.0
// An open device behind checked wrappers: arguments are validated, readings clamped, allocations
// counted, and after the seal refused. The only file that calls a backend.
#ifndef PLM_DEVICE_H
#define PLM_DEVICE_H

#include "core/backend.h"

struct plm_device;

struct plm_device_counters {
    uint64_t allocs; // successful
    uint64_t frees;
    uint64_t allocs_refused; // because of the seal
    uint64_t allocs_in_step; // attempted between plm_device_step_begin and _end; must stay 0
    uint64_t dispatches;
    uint64_t submits;
    uint64_t resizes; // slabs taken or given back with the resizer's key
};

// Finds the backend by name in `id` ("cpu", "cuda:1", "sim:FILE"; NULL: "cpu") and opens it.
int plm_device_open(const char *id, const struct plm_device_opts *opts, struct plm_device **ret,
                    struct plm_error *err);
// Judges an id as plm_device_open() would, and opens nothing: also that of a card whose backend is
// not in this build.
int plm_device_check_id(struct plm_host *host, const char *id, struct plm_error *err);
// Opens a given backend (tests; the simulated device).
int plm_device_open_backend(const struct plm_backend *backend, const struct plm_device_opts *opts,
                            struct plm_device **ret, struct plm_error *err);
// Every slab must have been freed; returns the number that were not (a defect of the caller).
size_t plm_device_close(struct plm_device *device);
// Declares a device lost that does not end what it runs.
void plm_device_lose(struct plm_device *device);
// How long a wait without a limit of its own may take; 0 (at first): for ever. After it the wait is
// TIMEOUT, and the device is lost. From the thread that waits.
void plm_device_set_patience(struct plm_device *device, int64_t ns);
// Closes a lost device and opens it again, unsealed, in place: handles stay valid, counters
// go on, and query_free, status and caps may be called from other threads all the while. Every slab
// must have been freed (INVALID). On failure it stays lost; may be called again. What open returns;
// LOST: what answers now is not the device that it was.
int plm_device_reopen(struct plm_device *device, struct plm_error *err);
const struct plm_caps *plm_device_caps(const struct plm_device *device);
void plm_device_counters(const struct plm_device *device, struct plm_device_counters *ret);

// Seals: from here plm_device_alloc returns PLM_ERR_SEALED. Unsealing is for reopening and wake.
void plm_device_seal(struct plm_device *device, bool sealed);
bool plm_device_sealed(const struct plm_device *device);
// The engine brackets every step, so that an allocation inside one is counted.
void plm_device_step_begin(struct plm_device *device);
void plm_device_step_end(struct plm_device *device);

int plm_device_alloc(struct plm_device *device, enum plm_slab_kind kind, uint64_t bytes,
                     struct plm_slab *ret);
// The resizer's key: KV slabs (elastic) between steps, also when sealed; counted apart. Inside a
// step it refuses with PLM_ERR_SEALED.
int plm_device_alloc_resize(struct plm_device *device, uint64_t bytes, struct plm_slab *ret);
void plm_device_free(struct plm_device *device, struct plm_slab *slab); // zeroes *slab
// A clamped reading: free <= total, process use <= total, budget <= total.
int plm_device_query_free(struct plm_device *device, struct plm_mem_info *ret);
int plm_device_empty_cache(struct plm_device *device, uint64_t *ret_released,
                           struct plm_mem_info *ret_info);
int plm_device_weight_layout(const struct plm_device *device, enum plm_type type, uint32_t n_in,
                             uint32_t n_out, struct plm_weight_layout *ret);
// The same of a backend by its name, without a device. NOT_FOUND: not in this build.
int plm_backend_weight_layout(const char *backend, enum plm_type type, uint32_t n_in,
                              uint32_t n_out, struct plm_weight_layout *ret);
void plm_device_weight_pack(const struct plm_device *device, enum plm_type type, uint32_t n_in,
                            uint32_t n_out, uint32_t first, uint32_t rows, const void *src,
                            void *dst);
int plm_device_warm_up(struct plm_device *device, const struct plm_kernel_needs *needs,
                       struct plm_error *err);

// Typed launch: the units follow from the arguments (ops.def), e.g. plm_launch_matmul(dev, &args).
// No units: PLM_OK and nothing is appended. PLM_ERR_LIMIT: the list is full, or 2^32 - 1 units
// and more.
#define PLM_OP(NAME, name, units, tolerance)                                                       \
    int plm_launch_##name(struct plm_device *device, const struct plm_##name##_args *a);
#include "kernels/ops.def"
#undef PLM_OP
// Variants of an op (backend.h); a device without any has one of each, and nothing to choose.
uint32_t plm_device_variants(const struct plm_device *device, enum plm_op op, const void *args,
                             char name[PLM_TUNING_NAME_BYTES]);
const char *plm_device_variant_name(const struct plm_device *device, enum plm_op op,
                                    uint32_t index);
int plm_device_choose(struct plm_device *device, enum plm_op op, const void *args, uint32_t index);
int plm_device_barrier(struct plm_device *device);
// PLM_ERR_OUT_OF_DEVICE: nothing ran and the list is still open; submit it again or discard it.
int plm_device_submit(struct plm_device *device, uint64_t *ret_value);
void plm_device_discard(struct plm_device *device); // empties the open list
// Makes a graph of the open list (backend.h: capture). UNSUPPORTED where caps.graphs is false,
// SEALED after the seal.
int plm_device_capture(struct plm_device *device);
// value: one that submit returned; timeout_ns < 0: no limit but the patience.
int plm_device_wait(struct plm_device *device, uint64_t value, int64_t timeout_ns);
// Submits what `appended` (the status of appending it) left in the list, and waits for its end. On
// failure the list is empty: what it names may be freed before the next submit.
int plm_device_run(struct plm_device *device, int appended);
// The range must lie within one slab; PLM_ERR_INVALID otherwise.
int plm_device_copy_in(struct plm_device *device, uint64_t dst, const void *src, uint64_t bytes);
// Several ranges of the host in one transfer where the backend has it (backend.h: copy_in_parts).
// From dst to the end of the last part must lie within one slab.
int plm_device_copy_in_parts(struct plm_device *device, uint64_t dst,
                             const struct plm_copy_part *parts, uint32_t n);
int plm_device_copy_out(struct plm_device *device, void *dst, uint64_t src, uint64_t bytes);
int plm_device_status(const struct plm_device *device);
// Tells the backend where the engine stands (backend.h: mark); step is 0 outside PLM_PHASE_SERVE.
void plm_device_mark(struct plm_device *device, enum plm_phase phase, uint64_t step);

#endif
