// SPDX-License-Identifier: Apache-2.0
// The histograms of the public metrics, and the seconds that go into them.
#ifndef PLM_ENGINE_HISTOGRAM_H
#define PLM_ENGINE_HISTOGRAM_H

#include <stdbool.h>
#include <stdint.h>

#include "core/plimsoll.h"

// Between two times; 0 where one of them was never reached.
double plm_seconds(int64_t from_ns, int64_t to_ns);
void plm_histogram_init(plim_histogram *h, bool tokens);
void plm_histogram_add(plim_histogram *h, double seconds);

#endif
