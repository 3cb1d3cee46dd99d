// SPDX-License-Identifier: Apache-2.0
// Inside the HIP backend: the table of backends/gpudrv/driver.h over libamdhip64.
//   loader.c   libamdhip64 opened at run time
//   card.c     cards, described and checked
//   driver.c   the table
//   backend.c  the table of the contract
#ifndef PLM_HIP_IMPL_H
#define PLM_HIP_IMPL_H

#include <stdatomic.h>

#include "backends/gpudrv/driver.h"
#include "backends/hip/api.h"

// An opened and started driver.
struct plm_gpu_library {
    void *handle; // of dlopen
    struct plm_hip_fns hip;
    int version;      // 60226015 is 6.2.26015
    atomic_uint last; // the last result that was not good; any thread
};

extern const struct plm_gpu_driver plm_hip_driver;
extern const char *const plm_hip_loader_names[]; // tried in this order; ended by NULL

// ---- loader.c ----

int plm_hip_load(struct plm_host *host, struct plm_gpu_library **ret, struct plm_error *err);
void plm_hip_unload(struct plm_host *host, struct plm_gpu_library *lib);
// The driver's name of a result.
const char *plm_hip_error_name(const struct plm_gpu_library *lib, plm_hip_result result);
// What a result means to us; one that is not good is remembered.
plm_gpu_r plm_hip_meaning(struct plm_gpu_library *lib, plm_hip_result result);

// ---- card.c ----

plm_gpu_r plm_hip_count(struct plm_gpu_library *lib, uint32_t *ret);
plm_gpu_r plm_hip_describe(struct plm_gpu_library *lib, uint32_t card, struct plm_gpu_card *ret);

#endif
