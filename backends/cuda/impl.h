// SPDX-License-Identifier: Apache-2.0
// Inside the CUDA backend: the table of backends/gpudrv/driver.h over libcuda.
//   loader.c   libcuda opened at run time, its entry points by version
//   card.c     cards, described and checked
//   driver.c   the table
//   backend.c  the table of the contract
#ifndef PLM_CUDA_IMPL_H
#define PLM_CUDA_IMPL_H

#include <stdatomic.h>

#include "backends/cuda/api.h"
#include "backends/gpudrv/driver.h"

// An opened and started driver.
struct plm_gpu_library {
    void *handle; // of dlopen
    struct plm_cu_fns cu;
    int version;      // CUDA's, 13020 is 13.2
    atomic_uint last; // the last result that was not good; any thread
};

extern const struct plm_gpu_driver plm_cuda_driver;
extern const char *const plm_cuda_loader_names[]; // tried in this order; ended by NULL

// ---- loader.c ----

int plm_cuda_load(struct plm_host *host, struct plm_gpu_library **ret, struct plm_error *err);
void plm_cuda_unload(struct plm_host *host, struct plm_gpu_library *lib);
// The driver's name of a result.
const char *plm_cuda_error_name(const struct plm_gpu_library *lib, plm_cu_result result);
// What a result means to us; one that is not good is remembered.
plm_gpu_r plm_cuda_meaning(struct plm_gpu_library *lib, plm_cu_result result);

// ---- card.c ----

plm_gpu_r plm_cuda_count(struct plm_gpu_library *lib, uint32_t *ret);
plm_gpu_r plm_cuda_describe(struct plm_gpu_library *lib, uint32_t card, struct plm_gpu_card *ret);

#endif
