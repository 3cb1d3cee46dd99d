// SPDX-License-Identifier: Apache-2.0
#include "core/plan/dry.h"

#include <stdio.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/text.h"
#include "core/device.h"

#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)
#define GIB (MIB * KIB)

// Slabs of the kinds whose driver has no limit of its own: the default of the simulated device.
#define MANY_SLABS 65536u

// Measured: a context takes 526 MiB, which the driver does not say itself; use moves in 2 MiB; all
// but 2.2 MiB can be had, which is 4 in granules.
#define CUDA_CAPS                                                                                  \
    {                                                                                              \
        .commit = PLM_COMMIT_HARD, .granularity_bytes = 2 * MIB, .context_bytes = 526 * MIB,       \
        .unavailable_bytes = 4 * MIB, .max_slabs = MANY_SLABS, .align_bytes = 256, .async = true,  \
        .prefers = PLM_CUDA_PREFERS, .few_rows = PLM_CUDA_FEW_ROWS, .kv_types = PLM_KV_TYPES_ALL   \
    }

// What the driver of each kind takes and how it gives memory. Figures that were measured: NVIDIA
// H100 80GB HBM3, driver 580.159.04, CUDA 13.0, Vulkan 1.4.312 on the same card, 2026-11.
static const struct plm_dry_kind kinds[] = {
    // backends/cpu: memory is taken in steps of 16 MiB, and the process itself is in the host term.
    {.name = "cpu",
     .layout = "cpu",
     .backends = PLM_BACKENDS_CPU,
     .caps = {.commit = PLM_COMMIT_SOFT,
              .unified = true,
              .reports_process_use = true,
              .granularity_bytes = 16 * MIB,
              .max_slabs = 16384,
              .align_bytes = 4096,
              .kv_types = PLM_KV_TYPES_ALL}},
    // GPUs have the panels of the CPU.
    {.name = "cuda", .layout = "cpu", .backends = PLM_BACKENDS_GPU, .caps = CUDA_CAPS},
    // Not measured: the figures of CUDA.
    {.name = "hip", .layout = "cpu", .backends = PLM_BACKENDS_GPU, .caps = CUDA_CAPS},
    // The simulated device's defaults: it holds what its script says, by default nothing.
    {.name = "sim",
     .layout = "sim",
     .backends = PLM_BACKENDS_EVERY,
     .caps = {.commit = PLM_COMMIT_HARD,
              .reports_process_use = true,
              .granularity_bytes = 2 * MIB,
              .max_slabs = MANY_SLABS,
              .align_bytes = 256,
              .kv_types = PLM_KV_TYPES_ALL}},
    // Measured: instance and device take 29 MiB (in granules: 30), the largest allocation is
    // 4,292,870,144 bytes, and the last 72 MiB of the budget are not given, 80 with a slab's rest.
    // maxMemoryAllocationCount is 4,096 at least by the specification, and no driver of note gives
    // more on every system. Use is counted in granules of 2 MiB, as the same card's memory moves.
    {.name = "vulkan",
     .layout = "cpu",
     .backends = PLM_BACKENDS_VULKAN,
     .caps = {.commit = PLM_COMMIT_SOFT,
              .reports_process_use = true,
              .granularity_bytes = 2 * MIB,
              .context_bytes = 30 * MIB,
              .unavailable_bytes = 80 * MIB,
              .max_slab_bytes = UINT64_C(4292870144),
              .max_slabs = 4096,
              .align_bytes = 256,
              .prefers = PLM_GPU_PREFERS,
              .few_rows = PLM_VULKAN_FEW_ROWS,
              .kv_types = PLM_KV_TYPES_ALL}},
};

const struct plm_dry_kind *plm_dry_kind(const char *id)
{
    if (id == NULL)
        return &kinds[0];
    const size_t len = strcspn(id, ":");
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strlen(kinds[i].name) == len && memcmp(kinds[i].name, id, len) == 0)
            return &kinds[i];
    }
    return NULL;
}

const char *plm_dry_kind_names(void)
{
    return "cpu, cuda, hip, sim, vulkan";
}

void plm_dry_caps(const struct plm_dry_kind *kind, uint64_t device_bytes, struct plm_caps *ret)
{
    *ret = kind->caps;
    plm_snprintf(ret->name, sizeof(ret->name), "%s, %.1f GiB, not opened", kind->name,
                 (double)device_bytes / (double)GIB);
    if (ret->max_slab_bytes == 0 || ret->max_slab_bytes > device_bytes)
        ret->max_slab_bytes = device_bytes;
}

void plm_dry_reading(const struct plm_caps *caps, uint64_t device_bytes,
                     struct plm_stress_reading *ret)
{
    const int64_t total = (int64_t)device_bytes, driver = (int64_t)caps->context_bytes;
    *ret = (struct plm_stress_reading){
        .T = total,
        .F = plm_max_i64(0, total - driver),
        .process_use = caps->reports_process_use ? plm_min_i64(total, driver) : PLM_PLAN_UNKNOWN};
}

// By type, PLM_BACKENDS_x of the backends that have kernels for it.
static const uint8_t backends_with[] = {
#define PLM_TENSOR_TYPE(NAME, name, id, block, bytes, CODES, VALUES, zero, SCALES, BACKENDS)       \
    [id] = PLM_BACKENDS_##BACKENDS,
#include "kernels/types.def"
};

int plm_dry_layout(const void *kind, enum plm_type type, uint32_t n_in, uint32_t n_out,
                   struct plm_weight_layout *ret)
{
    const struct plm_dry_kind *of = kind;
    if ((size_t)type >= sizeof(backends_with) || (backends_with[type] & of->backends) == 0)
        return PLM_ERR_UNSUPPORTED;
    return plm_backend_weight_layout(of->layout, type, n_in, n_out, ret);
}

int plm_plan_dry(const struct plm_profile_opts *opts, const struct plm_stress_reading *reading,
                 int64_t weight_bytes, struct plm_plan *ret, struct plm_error *err)
{
    struct plm_plan_input in = opts->in;
    struct plm_plan plan;
    int r = plm_profile_preflight(opts, reading, weight_bytes, err);
    if (r != PLM_OK)
        return r;
    in.T = reading->T;
    in.F = reading->F;
    in.process_use = reading->process_use;
    plm_plan_estimate(&in, opts->cost, &(struct plm_plan_estimate){.weight_bytes = weight_bytes});
    r = plm_plan_compute(&in, &plan, err);
    if (r != PLM_OK)
        return r;
    // The loop lowers the limits to those with which one request finishes.
    if (!plm_plan_enough(&plan, NULL) || !plm_plan_one_finishes(&plan)) {
        struct plm_plan_limits limits;
        if (!plm_plan_fit_limits(&in, opts->cost, &limits))
            return plm_profile_fail(opts, &in, err);
        r = plm_plan_replan(&in, opts->cost, &limits, &plan, err);
    }
    if (r == PLM_OK)
        *ret = plan;
    return r;
}
