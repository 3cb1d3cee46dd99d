// SPDX-License-Identifier: Apache-2.0
// Prints the table of kernels, one a line: entry point, threads of a block, bytes of the argument.
#include <inttypes.h>
#include <stdio.h>

#include "backends/gpudrv/kernels.h"

int main(void)
{
    for (size_t i = 0; i < PLM_GPU_KERNELS; i++)
        printf("%s %" PRIu32 " %" PRIu32 "\n", plm_gpu_kernels[i].symbol,
               plm_gpu_kernels[i].threads, plm_gpu_kernels[i].args_bytes);
    return 0;
}
