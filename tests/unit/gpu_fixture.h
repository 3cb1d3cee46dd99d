// SPDX-License-Identifier: Apache-2.0
// A device of backends/gpudrv above the stub, for one test at a time: begin, try_open, end.
#ifndef PLM_TESTS_GPU_FIXTURE_H
#define PLM_TESTS_GPU_FIXTURE_H

#include "gpu_stub.h"

#define MIB     (1ull << 20)
#define WAIT_NS INT64_C(1000000000)

extern struct plm_host *host;
extern struct plm_gpu_opts opts;
extern struct plm_backend_device *dev;
extern char log_text[2048]; // warnings and errors
extern const struct plm_kernel_needs no_weights;

void begin(void);
int try_open(struct plm_error *err);
void open_device(void); // both
void warm_up(void);     // without weights; nothing is counted before it
struct plm_slab take(enum plm_slab_kind kind, uint64_t bytes);
void end(void); // closes it: nothing is left anywhere

#endif
