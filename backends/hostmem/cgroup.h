// SPDX-License-Identifier: Apache-2.0
// The control groups above this process, v1 and v2. What cannot be read is "no limit known" rather
// than an error, since a container may hide any of these files. Takes no memory; any thread.
#ifndef PLM_HOSTMEM_CGROUP_H
#define PLM_HOSTMEM_CGROUP_H

#include <stdint.h>

#include "core/backend.h"

// The memory limits above this process, from its own group up to the mount; returns how many were
// stored. memory.high counts as a limit like memory.max: above it the kernel stalls every
// allocation. With more than cap limits those with the least room are kept.
uint32_t plm_cgroup_memory(const char *root, struct plm_cgroup *out, uint32_t cap);

// Processors that this process may use: its affinity, cut by the CPU quotas of its groups; at
// least 1.
uint32_t plm_cgroup_cpus(const char *root);

#endif
