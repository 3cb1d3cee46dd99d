// SPDX-License-Identifier: Apache-2.0
#include <math.h>

#include "core/model/arch.h"

// Fractions of a turn in units of 2^-64: whole turns drop out of the product with a position by
// themselves, so a device needs no float64 to find an exact angle far into a text.
bool plm_rope_increments(const struct plm_hparams *hp, const float *factors, uint64_t *ret)
{
    const double two_pi = 6.283185307179586476925;
    for (uint32_t i = 0; i < hp->rope_dims / 2; i++) {
        double turns = pow((double)hp->rope_base, -2.0 * i / hp->rope_dims) *
                       (double)hp->rope_freq_scale / (factors != NULL ? (double)factors[i] : 1.0) /
                       two_pi;
        if (!isfinite(turns))
            return false;
        turns -= floor(turns);
        ret[i] = turns < 1.0 ? (uint64_t)ldexp(turns, 64) : 0; // just below 0 rounds to a whole one
    }
    return true;
}
