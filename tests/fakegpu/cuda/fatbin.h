// SPDX-License-Identifier: Apache-2.0
// A fat binary as nvcc writes it: a header, then entries one after the other, each of PTX or of
// machine code for one architecture.
#ifndef PLM_FAKE_FATBIN_H
#define PLM_FAKE_FATBIN_H

#include <stddef.h>

// FAKE_OK where the image holds code that runs on the architecture ("9.0"); *symbols and *bytes:
// where the names of its kernels lie.
int fatbin_look(const void *data, const char *arch, const char **symbols, size_t *bytes);

#endif
