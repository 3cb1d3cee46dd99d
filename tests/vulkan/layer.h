// SPDX-License-Identifier: Apache-2.0
// The layer's own records of instances and devices, with the functions of whatever stands below:
// another layer or the driver. The wrappers stand in tables, one per file; layer.c hands them to
// the loader. A function that is in no table goes past the layer.
#ifndef PLM_VK_LAYER_H
#define PLM_VK_LAYER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <vulkan/vk_layer.h>
#include <vulkan/vulkan.h>

#define HANG_SIGNALS 4u

struct null_script;
struct null_device;

struct layer_instance {
    struct layer_instance *next;
    const void *key; // the loader's table, by which all of its handles are known
    VkInstance handle;
    PFN_vkGetInstanceProcAddr GetInstanceProcAddr;
    PFN_GetPhysicalDeviceProcAddr GetPhysicalDeviceProcAddr; // may be NULL
    const struct null_script *null;                          // NULL: the driver's own devices
#define INSTANCE(name, alias) PFN_vk##name name;
#include "functions.def"
};

// A submit whose end is hidden from the application until a time.
struct layer_hang {
    int64_t until_ns;
    VkSemaphore semaphores[HANG_SIGNALS]; // timeline semaphores and the values it signals
    uint64_t values[HANG_SIGNALS];
    uint32_t n;
    VkFence fence;
};

struct layer_device {
    struct layer_device *next;
    const void *key;
    VkDevice handle;
    VkPhysicalDevice physical;
    const struct layer_instance *instance;
    PFN_vkGetDeviceProcAddr GetDeviceProcAddr;
    atomic_bool lost; // sticky, as in a driver
    pthread_mutex_t lock;
    struct layer_hang hang; // with the lock held
    struct null_device *null;
#define DEVICE(name, alias) PFN_vk##name name;
#include "functions.def"
};

struct layer_wrapper {
    const char *name;
    PFN_vkVoidFunction function;
};
#define WRAPPER(name, function)                                                                    \
    {                                                                                              \
        name, (PFN_vkVoidFunction)function                                                         \
    }

// Ended by a NULL name.
extern const struct layer_wrapper view_wrappers[];     // physical devices
extern const struct layer_wrapper memory_wrappers[];   // device memory and buffers
extern const struct layer_wrapper object_wrappers[];   // what else is created
extern const struct layer_wrapper commands_wrappers[]; // pools, recording
extern const struct layer_wrapper queue_wrappers[];    // submits and waits
extern const struct layer_wrapper null_wrappers[];     // what a scripted device needs beside

// The record of any dispatchable handle of an instance or a physical device; of a device, a queue
// or a command buffer.
struct layer_instance *layer_instance_of(const void *handle);
struct layer_device *layer_device_of(const void *handle);

// What of an application's VkDeviceCreateInfo the world shown refuses, or VK_SUCCESS (view.c).
VkResult view_check_device(const VkDeviceCreateInfo *info);
// Whether only the layer lists this extension: it is not handed down.
bool view_pretends(const struct layer_instance *instance, VkPhysicalDevice physical,
                   const char *extension);

// Lets the driver end what a rule makes hang (queue.c).
void queue_settle(struct layer_device *device);

// null.c: put a scripted device below the wrappers, where one is set; the functions of the driver
// are in their places already.
void null_instance(struct layer_instance *instance);
VkResult null_device(struct layer_device *device);
void null_device_gone(struct layer_device *device);

#endif
