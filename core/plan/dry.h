// SPDX-License-Identifier: Apache-2.0
// A plan without a device: what a start would plan, from a model's numbers and this version's
// figures for a kind of device. The same formula and code as a real start; what only a measurement
// can tell (a driver that grows, kernels that it loads late) counts as none, and the margin is
// there for it.
#ifndef PLM_PLAN_DRY_H
#define PLM_PLAN_DRY_H

#include <stdint.h>

#include "core/backend.h"
#include "core/plan/profile.h"

// A kind of device, named as --device names it ("cuda", "cuda:0").
struct plm_dry_kind {
    const char *name;
    const char *layout;   // the backend whose weight layout it has
    uint8_t backends;     // PLM_BACKENDS_x: kernels for a type in one of these are its kernels
    struct plm_caps caps; // without name, uuid, isa and what depends on the size
};

// NULL: not one of them. NULL as id: the CPU.
const struct plm_dry_kind *plm_dry_kind(const char *id);
// "cpu, cuda, hip, sim, vulkan": for messages.
const char *plm_dry_kind_names(void);
// The capabilities of a device of this kind with so much memory.
void plm_dry_caps(const struct plm_dry_kind *kind, uint64_t device_bytes, struct plm_caps *ret);
// A reading of it before anything of ours is there, when nobody else uses it.
void plm_dry_reading(const struct plm_caps *caps, uint64_t device_bytes,
                     struct plm_stress_reading *ret);
// The layout of a weight on a device of this kind (a plm_layout_fn, kind: struct plm_dry_kind).
// UNSUPPORTED where a start there refuses the type.
int plm_dry_layout(const void *kind, enum plm_type type, uint32_t n_in, uint32_t n_out,
                   struct plm_weight_layout *ret);

// The plan that the loop ends with on such a device, where every forward keeps to its cost.
// weight_bytes: as held. PLM_OK, or what plm_profile_preflight and the loop say: INVALID,
// OUT_OF_DEVICE.
int plm_plan_dry(const struct plm_profile_opts *opts, const struct plm_stress_reading *reading,
                 int64_t weight_bytes, struct plm_plan *ret, struct plm_error *err);

#endif
