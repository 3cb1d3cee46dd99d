// SPDX-License-Identifier: Apache-2.0
// Whether what we hold lies on the device, by the time that reading it takes (residency.c).
#ifndef PLM_ENGINE_RESIDENCY_H
#define PLM_ENGINE_RESIDENCY_H

#include <stdbool.h>
#include <stdint.h>

struct plm_caps;

// Measures how many bytes of ours read like slow memory, not the device's; 0 where that can not be
// told. The `slow_bytes` of struct plm_stress_ops; ctx is the core, whose
// workspace is overwritten.
int plm_core_slow_bytes(void *ctx, int64_t *ret_bytes);
// Whether the driver of such a device may push our memory out. Unified memory is not pushed out.
bool plm_core_may_lose_memory(const struct plm_caps *caps);

#endif
