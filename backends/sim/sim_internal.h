// SPDX-License-Identifier: Apache-2.0
#ifndef PLM_SIM_INTERNAL_H
#define PLM_SIM_INTERNAL_H

#include "backends/sim/sim.h"

struct plm_backend_device {
    struct plm_host *host;
    struct plm_sim_opts script;
    struct plm_sim_world *world;
    struct plm_sim_world own_world;
    struct plm_caps caps;
    struct plm_backend_device *inner; // with script.inner
    uint64_t next_addr;               // without
    uint64_t driver_bytes;            // context and code of this open device
    uint64_t timeline;
    uint32_t open_dispatches;
    bool loaded[PLM_OPS]; // kernels that have taken their bytes
    atomic_bool lost;
    atomic_flag stale_lock;    // guards stale: queries come from any thread
    struct plm_mem_info stale; // the last honest reading
};

// memory.c
int plm_sim_alloc(struct plm_backend_device *dev, enum plm_slab_kind kind, uint64_t bytes,
                  void *import_ptr, struct plm_slab *ret);
void plm_sim_free(struct plm_backend_device *dev, struct plm_slab *slab);
int plm_sim_query_free(struct plm_backend_device *dev, struct plm_mem_info *ret);
int plm_sim_empty_cache(struct plm_backend_device *dev, uint64_t *ret_released,
                        struct plm_mem_info *ret_info);
// Bytes that the driver itself takes; PLM_OK or PLM_ERR_OUT_OF_DEVICE.
int plm_sim_driver_take(struct plm_backend_device *dev, uint64_t bytes);

// layout.c: without an inner backend; sizes are those of the file's types, in panels of 16 rows.
int plm_sim_weight_layout(enum plm_type type, uint32_t n_in, uint32_t n_out,
                          struct plm_weight_layout *ret);

// True when the device is lost, now or since before.
bool plm_sim_is_lost(struct plm_backend_device *dev);

#endif
