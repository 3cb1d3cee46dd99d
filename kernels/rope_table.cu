// SPDX-License-Identifier: Apache-2.0
// rope_table: a thread per pair; row r has dims / 2 of them, of which block b takes part b % parts
// of row b / parts. Without float64, which most cards run slowly: the product in 64-bit integers is
// exact, the nearest quarter turn is taken off it, and only what is left, at most pi/4, becomes a
// float32.
#include "kernels/lib/vec.cuh"

struct cos_sin {
    float c, s;
};

// Of an angle of at most pi/4: polynomials fitted for the least absolute error, 2e-9; rounding
// makes it 1.2e-7.
PLM_FN cos_sin cos_sin_of(float angle)
{
    const float z = angle * angle;
    const float c = fmaf(fmaf(2.44384519e-5f, z, -1.38873677e-3f), z, 4.16666456e-2f);
    const float s = fmaf(fmaf(-1.94956359e-4f, z, 8.33197869e-3f), z, -1.66666508e-1f);
    return {fmaf(c, z * z, 1.0f - 0.5f * z), fmaf(s, angle * z, angle)};
}

PLM_KERNEL(plm_rope_table, 256, 4, plm_rope_table_args)
{
    const uint32_t pairs = a.dims / 2, parts = plm_parts(pairs), r = blockIdx.x / parts;
    const uint32_t i = blockIdx.x % parts * PLM_ROW_THREADS + threadIdx.x;
    plm_release();
    plm_await();
    if (i >= pairs)
        return;
    const int64_t pos = ((const int32_t *)a.pos)[r];
    const uint64_t turn = (uint64_t)pos * ((const uint64_t *)a.increments)[i];
    const uint32_t quarter = (uint32_t)((turn + 0x2000000000000000u) >> 62);
    // In 2^-64 of a turn, at most 2^61; a float32 of it keeps small angles' digits.
    const int64_t rest = (int64_t)(turn - ((uint64_t)quarter << 62));
    const float radians = 3.40612158e-19f; // of 2^-64 of a turn: 2 pi / 2^64
    const cos_sin x = cos_sin_of((float)rest * radians);
    const float c = (quarter & 1) != 0 ? -x.s : x.c, s = (quarter & 1) != 0 ? x.c : x.s;
    float scale = a.scale != 0.0f ? a.scale : 1.0f;
    if (a.scales != 0)
        scale *= ((const float *)a.scales)[(uint32_t)pos / a.scale_span];
    float *dst = (float *)a.dst + ((uint64_t)r * pairs + i) * 2;
    dst[0] = ((quarter & 2) != 0 ? -c : c) * scale;
    dst[1] = ((quarter & 2) != 0 ? -s : s) * scale;
}
