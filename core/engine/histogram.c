// SPDX-License-Identifier: Apache-2.0
// Times for the metrics, in seconds.
#include "core/engine/histogram.h"

#include <string.h>

void plm_histogram_init(plim_histogram *h, bool tokens)
{
    // Seconds. Requests: from 10 ms to minutes; tokens: from 1 ms to seconds.
    static const double request[PLIM_HISTOGRAM_BUCKETS] = {
        0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0};
    static const double token[PLIM_HISTOGRAM_BUCKETS] = {0.001, 0.0025, 0.005, 0.0075, 0.01, 0.025,
                                                         0.05,  0.075,  0.1,   0.15,   0.2,  0.3,
                                                         0.4,   0.5,    1.0,   2.5};
    memcpy(h->bound_s, tokens ? token : request, sizeof(h->bound_s));
}

void plm_histogram_add(plim_histogram *h, double seconds)
{
    int b = 0;
    while (b < PLIM_HISTOGRAM_BUCKETS && seconds > h->bound_s[b])
        b++;
    h->count[b]++;
    h->sum_s += seconds;
}

double plm_seconds(int64_t from_ns, int64_t to_ns)
{
    return from_ns > 0 && to_ns > from_ns ? (double)(to_ns - from_ns) * 1e-9 : 0.0;
}
