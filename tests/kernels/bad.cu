// SPDX-License-Identifier: Apache-2.0
// Kernels with what resources.py must find. Never part of a build's images.
#include <assert.h>
#include <stdio.h>

#include "kernels/lib/port.cuh"

// An array that no compiler can keep in registers.
PLM_KERNEL(plm_bad_array, 256, 1, plm_add_args)
{
    const float *x = (const float *)a.a;
    float *dst = (float *)a.dst;
    float words[200];
    plm_await();
    plm_release();
    for (int i = 0; i < 200; i++)
        words[i] = x[i * a.n];
    for (uint32_t i = 0; i < a.rows; i++)
        dst[i] = words[(i * 7 + threadIdx.x) % 200];
}

PLM_KERNEL(plm_bad_print, 256, 1, plm_add_args)
{
    plm_await();
    plm_release();
    printf("%u\n", a.n);
}

PLM_KERNEL(plm_bad_assert, 256, 1, plm_add_args)
{
    plm_await();
    plm_release();
    assert(a.n > 3);
}

PLM_KERNEL(plm_bad_size, 256, 1, plm_add_args)
{
    plm_await();
    plm_release();
    *(float *)a.dst = 0;
}
