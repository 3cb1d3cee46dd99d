// SPDX-License-Identifier: Apache-2.0
// Weights without meaning, to measure speed with: random, valid, and of such a size that the
// activations of a forward stay near 1.
#ifndef PLM_TESTS_GGUF_WEIGHTS_H
#define PLM_TESTS_GGUF_WEIGHTS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "kernels/abi.h"

// Appends the data of a tensor of n_values in rows of n_in: one chunk with a prime number of
// blocks, again and again, so that no two rows are equal and it is written as fast as the disk
// takes it. Of F32, which are vectors, all values are 1. False: an error of the system, or a type
// that it does not make.
bool gguf_weights_write(FILE *file, enum plm_type type, uint32_t n_in, uint64_t n_values,
                        uint64_t seed);

#endif
