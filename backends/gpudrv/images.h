// SPDX-License-Identifier: Apache-2.0
// The device code that this build embeds, one image per source file in kernels/: for CUDA a fat
// binary, for HIP a bundle of code objects, each with every architecture of the build. The driver
// picks from it. The tables are generated (backends/embed.py) and sorted by name. A backend that is
// not built has no table.
#ifndef PLM_GPUDRV_IMAGES_H
#define PLM_GPUDRV_IMAGES_H

#include <stddef.h>

struct plm_gpu_image {
    const char *name; // of the source file, without .cu
    const void *data; // aligned to 64 bytes
    size_t bytes;
};

extern const struct plm_gpu_image plm_cuda_images[];
extern const size_t plm_cuda_n_images;
extern const struct plm_gpu_image plm_hip_images[];
extern const size_t plm_hip_n_images;

#endif
