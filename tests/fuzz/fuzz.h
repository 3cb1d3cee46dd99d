// SPDX-License-Identifier: Apache-2.0
// The one entry of every fuzz target. libFuzzer calls it with inputs of its own making, driver.c
// with the files of a corpus.
#ifndef PLM_TESTS_FUZZ_H
#define PLM_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

// Runs the target on n bytes; aborts (or trips a sanitizer) on a defect. Always returns 0.
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

#endif
