// SPDX-License-Identifier: Apache-2.0
// Small arguments with which a kernel of any op runs, for backends that run each kernel once before
// anything is measured: drivers take memory for code and registers when a kernel first runs. They
// read and write a scratch slab of three parts: zeros to read, results, and addresses of results
// where an op reads addresses.
#ifndef PLM_SHARED_WARM_H
#define PLM_SHARED_WARM_H

#include <stddef.h>
#include <stdint.h>

#include "core/backend.h"

struct plm_warm_memory {
    struct plm_slab slab; // addr 0: not taken
    uint64_t zeros, results, addresses;
};

// Takes and fills the slab by a backend's own entries; part_bytes, for zeros and for results: more
// than the arguments of any kernel span. The caller frees the slab, also after a failure.
int plm_warm_prepare(struct plm_backend_device *dev,
                     int (*alloc)(struct plm_backend_device *dev, enum plm_slab_kind kind,
                                  uint64_t bytes, void *import_ptr, struct plm_slab *ret),
                     int (*copy_in)(struct plm_backend_device *dev, uint64_t dst, const void *src,
                                    uint64_t bytes),
                     uint64_t part_bytes, struct plm_warm_memory *ret);

// What kernels are built for, and what their conditions ask about. Other sizes are such that every
// type and op accepts them.
struct plm_warm_shape {
    uint32_t type; // of weights
    uint32_t act;
    uint32_t kv_type;
    uint32_t rows;
    uint32_t group; // query heads that share a KV head
    uint32_t head_dim;
};

union plm_op_args {
#define PLM_OP(NAME, name, units, tolerance) struct plm_##name##_args name;
#include "kernels/ops.def"
#undef PLM_OP
};

// Fills ret; returns the bytes of the op's struct.
size_t plm_warm_args(enum plm_op op, const struct plm_warm_memory *memory,
                     const struct plm_warm_shape *shape, union plm_op_args *ret);

#endif
