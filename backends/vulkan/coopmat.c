// SPDX-License-Identifier: Apache-2.0

#include "backends/vulkan/coopmat.h"

#include <string.h>

#include "backends/vulkan/instance.h"
#include "backends/vulkan/shaders.h"

// Drivers list some dozens of shapes; the plain ones are among the first.
#define SHAPES 128

struct shape {
    uint32_t m, n, k;
    VkComponentTypeKHR in, out;
    uint32_t need;
};

// What the shaders are written for (shaders.h).
static const struct shape shapes[] = {
    {16, 16, 32, VK_COMPONENT_TYPE_SINT8_KHR, VK_COMPONENT_TYPE_SINT32_KHR,
     PLM_VK_NEEDS_COOPMAT_S8},
};

static bool is(const VkCooperativeMatrixPropertiesKHR *p, const struct shape *s)
{
    return p->MSize == s->m && p->NSize == s->n && p->KSize == s->k && p->AType == s->in &&
           p->BType == s->in && p->CType == s->out && p->ResultType == s->out &&
           !p->saturatingAccumulation && p->scope == VK_SCOPE_SUBGROUP_KHR;
}

uint32_t plm_vk_coopmat_needs_met(const struct plm_vk_instance *instance, VkPhysicalDevice device)
{
    PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR get =
        (PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR)instance->vk.GetInstanceProcAddr(
            instance->handle, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR");
    struct plm_vk_coopmat_features matrix;
    plm_vk_coopmat_features_init(&matrix);
    VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                          .pNext = &matrix};
    instance->vk.GetPhysicalDeviceFeatures2(device, &features);
    if (get == NULL || !matrix.matrix)
        return 0;
    VkCooperativeMatrixPropertiesKHR listed[SHAPES];
    memset(listed, 0, sizeof(listed));
    for (uint32_t i = 0; i < SHAPES; i++)
        listed[i].sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR;
    uint32_t n = SHAPES, met = 0;
    VkResult r = get(device, &n, listed);
    for (uint32_t i = 0; (r == VK_SUCCESS || r == VK_INCOMPLETE) && i < n; i++) {
        for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++)
            met |= is(&listed[i], &shapes[s]) ? shapes[s].need : 0;
    }
    return met;
}

void plm_vk_coopmat_features_init(struct plm_vk_coopmat_features *ret)
{
    *ret = (struct plm_vk_coopmat_features){
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR};
}
