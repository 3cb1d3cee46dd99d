// SPDX-License-Identifier: Apache-2.0
// Rows of activations, shared by the reference kernels and, recompiled for other
// instruction sets, by the fast ones.
#ifndef PLM_CPU_ROWS_H
#define PLM_CPU_ROWS_H

#include "backends/cpu/arith.h"
#include "kernels/abi.h"

#define PLM_PTR(type, address) ((type *)(uintptr_t)(address))

// Writes one record of PLM_ACT_Q8 from 32 floats.
static inline void plm_q8_store(uint8_t *record, const float x[32])
{
    // Bit patterns of magnitudes order like the magnitudes, with infinities and NaNs on top.
    uint32_t top = 0;
    for (int i = 0; i < 32; i++) {
        uint32_t mag = plm_f32_bits(x[i]) & 0x7fffffffu;
        top = mag > top ? mag : top;
    }
    float a = plm_bits_f32(top), d = 0.0f, inverse = 0.0f;
    if (top >= 0x7f800000u) {
        d = plm_bits_f32(0x7fc00000u);
    } else if (a >= 1e-30f) {
        d = a / 127.0f;
        inverse = 127.0f / a;
    }
    int8_t *q = (int8_t *)record;
    int32_t sum[2] = {0, 0};
    if (inverse != 0.0f) {
        for (int h = 0; h < 2; h++)
            for (int i = h * 16; i < h * 16 + 16; i++) {
                // Rounded by magic: the low bits of the sum are the integer.
                uint32_t u = plm_f32_bits(x[i] * inverse + PLM_ROUND_MAGIC);
                int32_t v = (int32_t)(u - 0x4b400000u);
                q[i] = (int8_t)v;
                sum[h] += v;
            }
    } else {
        memset(q, 0, 32);
    }
    memcpy(record + PLM_ACT_Q8_D, &d, 4);
    int16_t s[2] = {(int16_t)sum[0], (int16_t)sum[1]};
    memcpy(record + PLM_ACT_Q8_S, s, 4);
    float ds = d * (float)(sum[0] + sum[1]);
    memcpy(record + PLM_ACT_Q8_DS, &ds, 4);
}

#endif
