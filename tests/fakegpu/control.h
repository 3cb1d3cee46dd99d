// SPDX-License-Identifier: Apache-2.0
// A fake driver, as a test program steers it in its own process.
#ifndef PLM_FAKE_CONTROL_H
#define PLM_FAKE_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/support/null_script.h"

struct fake_control {
    // Puts these rules in place of those that were set before, after the environment's, and forgets
    // losses.
    bool (*set)(const char *rules, char *error, size_t error_size);
    // A counter of account.def; UINT64_MAX: there is none of that name.
    uint64_t (*count)(const char *counter);
    null_set_fn *null;
};

// Loads the library of that name, the same that the backend will find. False: it is no fake.
bool fake_control_open(struct fake_control *ret, const char *library);

#endif
