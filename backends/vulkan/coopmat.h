// SPDX-License-Identifier: Apache-2.0
// KHR cooperative matrices: what a driver lists, against what the shaders are written for. The
// extension is younger than the headers of Debian 12, so that its few structs stand here where the
// headers lack them.
#ifndef PLM_VULKAN_COOPMAT_H
#define PLM_VULKAN_COOPMAT_H

#include "backends/vulkan/instance.h"

#ifndef VK_KHR_cooperative_matrix
#define VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR                          \
    ((VkStructureType)1000506000)
#define VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR ((VkStructureType)1000506001)

typedef enum VkComponentTypeKHR {
    VK_COMPONENT_TYPE_FLOAT16_KHR = 0,
    VK_COMPONENT_TYPE_FLOAT32_KHR = 1,
    VK_COMPONENT_TYPE_SINT8_KHR = 3,
    VK_COMPONENT_TYPE_SINT32_KHR = 5,
    VK_COMPONENT_TYPE_MAX_ENUM_KHR = 0x7FFFFFFF
} VkComponentTypeKHR;

typedef enum VkScopeKHR {
    VK_SCOPE_SUBGROUP_KHR = 3,
    VK_SCOPE_MAX_ENUM_KHR = 0x7FFFFFFF
} VkScopeKHR;

typedef struct VkCooperativeMatrixPropertiesKHR {
    VkStructureType sType;
    void *pNext;
    uint32_t MSize;
    uint32_t NSize;
    uint32_t KSize;
    VkComponentTypeKHR AType;
    VkComponentTypeKHR BType;
    VkComponentTypeKHR CType;
    VkComponentTypeKHR ResultType;
    VkBool32 saturatingAccumulation;
    VkScopeKHR scope;
} VkCooperativeMatrixPropertiesKHR;

typedef VkResult(VKAPI_PTR *PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR)(
    VkPhysicalDevice physicalDevice, uint32_t *pPropertyCount,
    VkCooperativeMatrixPropertiesKHR *pProperties);
#endif

#define PLM_VK_COOPMAT_EXTENSION "VK_KHR_cooperative_matrix"

// VkPhysicalDeviceCooperativeMatrixFeaturesKHR, which older headers lack.
struct plm_vk_coopmat_features {
    VkStructureType sType;
    void *pNext;
    VkBool32 matrix, robust_access;
};
void plm_vk_coopmat_features_init(struct plm_vk_coopmat_features *ret);
// Those of enum plm_vk_needs whose shapes a device with the extension lists.
uint32_t plm_vk_coopmat_needs_met(const struct plm_vk_instance *instance, VkPhysicalDevice device);

#endif
