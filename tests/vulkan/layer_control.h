// SPDX-License-Identifier: Apache-2.0
// The fault layer, as a test program steers it in its own process.
#ifndef PLM_VK_LAYER_CONTROL_H
#define PLM_VK_LAYER_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/support/null_script.h"

struct layer_control {
    bool (*set)(const char *rules, char *error, size_t error_size);
    uint64_t (*count)(const char *counter);
    null_set_fn *null;
};

// Loads the layer's shared object, the same that the loader will take by its manifest.
bool layer_control_open(struct layer_control *ret, const char *path);

#endif
