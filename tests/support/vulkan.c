// SPDX-License-Identifier: Apache-2.0
#include "tests/support/vulkan.h"

#include "backends/vulkan/vulkan.h"

bool vulkan_there_is_a_device(void)
{
    struct plm_device_desc desc;
    size_t n = 0;
    struct plm_host *h = plm_host_create(0);
    bool found = plm_vulkan_backend.enumerate(h, &desc, 1, &n, NULL) == PLM_OK && n > 0;
    plm_host_destroy(h);
    return found;
}
