// SPDX-License-Identifier: Apache-2.0
// The capture of graphs (graphs.c).
#ifndef PLM_ENGINE_GRAPHS_H
#define PLM_ENGINE_GRAPHS_H

struct plm_error;

// Captures graphs of the decodes that the workspace is for; the pool has a block. The `capture` of
// struct plm_stress_ops, where the device makes graphs; ctx is the core.
int plm_core_capture(void *ctx, struct plm_error *err);

#endif
