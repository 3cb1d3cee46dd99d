// SPDX-License-Identifier: Apache-2.0
// Randomness is counter-based: a draw is a pure function of its key, so that it does not depend on
// how many draws others made. Philox4x32-10, Salmon et al., "Parallel Random Numbers: As Easy as
// 1, 2, 3", SC 2011.
#ifndef PLM_BASE_RANDOM_H
#define PLM_BASE_RANDOM_H

#include <stdint.h>

void plm_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

// Uniform in [0, 1) with 24 bits, keyed by (seed, stream, position, lane).
float plm_random_uniform(uint64_t seed, uint32_t stream, uint64_t position, uint32_t lane);

// 64 bits, keyed by (seed, stream, position).
uint64_t plm_random_bits(uint64_t seed, uint32_t stream, uint64_t position);

// A seed from the operating system, for requests that name none.
uint64_t plm_random_seed(void);

#endif
