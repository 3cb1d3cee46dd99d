// SPDX-License-Identifier: Apache-2.0
// What malloc holds for the calling thread's program, libraries included: every block with its
// bookkeeping. For tests of what a budget is charged. Link heap.c into the test program itself.
#ifndef TESTS_SUPPORT_HEAP_H
#define TESTS_SUPPORT_HEAP_H

#include <stddef.h>

// Bytes of all blocks now.
size_t heap_bytes(void);
// The most that there were since the last call of this, which begins a new count.
size_t heap_peak(void);

#endif
