// SPDX-License-Identifier: Apache-2.0
// Hand-made good and bad GGUF files: the unit test opens each, and the fuzzer starts from them.
#ifndef PLM_TESTS_GGUF_CASES_H
#define PLM_TESTS_GGUF_CASES_H

#include "tests/support/gguf_writer.h"

struct gguf_case {
    const char *name;
    int status;                           // PLM_OK: opens
    const char *says;                     // part of the message; NULL for good files
    void (*build)(struct gguf_writer *w); // w is initialised
};

extern const struct gguf_case gguf_cases[];
extern const size_t n_gguf_cases;

#endif
