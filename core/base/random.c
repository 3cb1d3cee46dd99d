// SPDX-License-Identifier: Apache-2.0
#include "core/base/random.h"

#include <sys/random.h>
#include <time.h>

void plm_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    // Multipliers and Weyl increments of the paper, table 2 and section 4.
    const uint32_t m0 = 0xD2511F53u, m1 = 0xCD9E8D57u, w0 = 0x9E3779B9u, w1 = 0xBB67AE85u;
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)m0 * c0, p1 = (uint64_t)m1 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += w0;
        k1 += w1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

float plm_random_uniform(uint64_t seed, uint32_t stream, uint64_t position, uint32_t lane)
{
    const uint32_t counter[4] = {(uint32_t)position, (uint32_t)(position >> 32), stream, lane / 4};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t out[4];
    plm_philox4x32(counter, key, out);
    return (float)(out[lane % 4] >> 8) * 0x1p-24f;
}

uint64_t plm_random_bits(uint64_t seed, uint32_t stream, uint64_t position)
{
    const uint32_t counter[4] = {(uint32_t)position, (uint32_t)(position >> 32), stream, 0};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t out[4];
    plm_philox4x32(counter, key, out);
    return (uint64_t)out[0] << 32 | out[1];
}

uint64_t plm_random_seed(void)
{
    uint64_t seed;
    if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) == (ssize_t)sizeof(seed))
        return seed;
    // Early boot without entropy: the clock is enough, since seeds need to differ, not to hide.
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (uint64_t)ts.tv_nsec * 0x9E3779B97F4A7C15u ^ (uint64_t)ts.tv_sec;
}
