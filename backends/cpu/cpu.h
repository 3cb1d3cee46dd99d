// SPDX-License-Identifier: Apache-2.0
// The CPU backend: the default device, and the reference for all others. Its timeline is always up
// to date: submit runs the list and returns when it is done.
//
// Files: backend.c (the table), mem.c (slabs), list.c (dispatches of one submit), pool.c (the
// workers that walk a list), kernels.h (the border to the ops).
#ifndef PLM_CPU_CPU_H
#define PLM_CPU_CPU_H

#include "core/backend.h"

extern const struct plm_backend plm_cpu_backend;

// plm_device_opts.backend_opts; NULL means the real machine.
struct plm_cpu_opts {
    // Put before /proc and before every mount point that is read there, so that a test can build a
    // machine of its own out of files; "" or NULL is the real one.
    const char *root;
};

#endif
