// SPDX-License-Identifier: Apache-2.0
// What the files of the stub share: gpu_stub.c has library, contexts, memory and code,
// gpu_stub_stream.c the stream and its graphs.
#ifndef PLM_TESTS_GPU_STUB_IMPL_H
#define PLM_TESTS_GPU_STUB_IMPL_H

#include "gpu_stub.h"

// What the script says of a call of the driver's function of this name.
plm_gpu_r stub_called(const char *name);
#define CALLED                                                                                     \
    do {                                                                                           \
        const plm_gpu_r scripted = stub_called(__func__);                                          \
        if (scripted != PLM_GPU_OK)                                                                \
            return scripted;                                                                       \
    } while (0)

// Memory and objects, which are counted.
void *stub_take(size_t bytes);
void stub_give(void *p);

// Empties the stream and sets its functions in the driver's table.
void stub_stream_add(struct plm_gpu_driver *driver);
// The stream is gone with its context.
void stub_stream_forget(void);

#endif
