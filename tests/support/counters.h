// SPDX-License-Identifier: Apache-2.0
// Counters that may lie in a mapped file, so that another process reads them while they move. Any
// thread, but for counters_share.
#ifndef PLM_TESTS_COUNTERS_H
#define PLM_TESTS_COUNTERS_H

#include <stdbool.h>
#include <stdint.h>

#define COUNTERS_MAX 96u

// Moves the first n counters into a file, which is created. Before anything is counted. False: it
// can not be had.
bool counters_share(const char *path, uint32_t n);
// Returns the counter's new value.
uint64_t counters_add(uint32_t counter, int64_t n);
void counters_raise(uint32_t counter, uint64_t to); // where it is below
uint64_t counters_read(uint32_t counter);

#endif
