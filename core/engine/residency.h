// SPDX-License-Identifier: Apache-2.0
// Whether what we hold lies on the device, by the time that reading it takes (residency.c).
#ifndef PLM_ENGINE_RESIDENCY_H
#define PLM_ENGINE_RESIDENCY_H

#include <stdbool.h>
#include <stdint.h>

struct plm_caps;

// Bytes of ours that read as if they were slow memory, not the device's; 0 where
// nothing could be told. The `slow_bytes` of struct plm_stress_ops; ctx is the core, whose
// workspace is overwritten.
int plm_core_slow_bytes(void *ctx, int64_t *ret_bytes);
// Whether others can take what such a device gave us: what is in host memory is not the question.
bool plm_core_may_lose_memory(const struct plm_caps *caps);

#endif
