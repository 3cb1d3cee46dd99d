// SPDX-License-Identifier: Apache-2.0
// For tests that need a Vulkan device.
#ifndef PLM_TESTS_VULKAN_H
#define PLM_TESTS_VULKAN_H

#include <stdbool.h>

// Whether the backend lists one that it can use.
bool vulkan_there_is_a_device(void);

#endif
