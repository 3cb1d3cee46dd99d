// SPDX-License-Identifier: Apache-2.0
// The fault layer alone, in front of a bare client: each rule does what README.md says, and without
// a rule nothing differs.
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client.h"
#include "layer_control.h"
#include "tests/support/suite.h"

#ifndef LAYER
#error "the build names the shared object of the layer"
#endif

#define MIB (UINT64_C(1) << 20)
#define MS  UINT64_C(1000000)

static struct client c;
static struct layer_control layer;

static void set(const char *rules)
{
    char error[512] = "";
    ck_assert_msg(layer.set(rules, error, sizeof(error)), "%s: %s", rules, error);
}

static uint64_t count(const char *counter)
{
    uint64_t n = layer.count(counter);
    ck_assert_msg(n != UINT64_MAX, "no counter %s", counter);
    return n;
}

// A client as far as a device, under these rules.
static void open_device(const char *rules)
{
    set(rules);
    ck_assert_int_eq(client_instance(&c), VK_SUCCESS);
    ck_assert_ptr_nonnull(c.physical);
    ck_assert_int_eq(client_device(&c, NULL, NULL), VK_SUCCESS);
}

static void begin(void)
{
    ck_assert(client_loader(&c));
    ck_assert(layer_control_open(&layer, LAYER));
}

// Every kind of object that a test creates is gone again.
static void end(void)
{
    static const char *const KINDS[] = {
        "instances", "devices",          "buffers",    "shader_modules",
        "pipelines", "pipeline_layouts", "semaphores", "command_pools",
    };
    char name[64];
    client_close(&c);
    for (size_t i = 0; i < sizeof(KINDS) / sizeof(KINDS[0]); i++) {
        snprintf(name, sizeof(name), "%s_created", KINDS[i]);
        uint64_t created = count(name);
        snprintf(name, sizeof(name), "%s_destroyed", KINDS[i]);
        ck_assert_uint_eq(created, count(name));
    }
    ck_assert_uint_eq(count("memory_allocated"), count("memory_freed"));
    ck_assert_uint_eq(count("memory_leaked"), 0);
    ck_assert_uint_eq(count("live_bytes"), 0);
    ck_assert_uint_eq(count("command_buffers_allocated"), count("command_buffers_freed"));
}

static bool lists(const char *extension)
{
    static VkExtensionProperties list[512];
    uint32_t n = 512;
    ck_assert_int_eq(c.EnumerateDeviceExtensionProperties(c.physical, NULL, &n, list), VK_SUCCESS);
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(list[i].extensionName, extension) == 0) {
            return true;
        }
    }
    return false;
}

static VkPhysicalDeviceMemoryProperties memory(VkPhysicalDeviceMemoryBudgetPropertiesEXT *budget)
{
    VkPhysicalDeviceMemoryProperties2 all = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2, .pNext = budget};
    if (budget != NULL) {
        budget->sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT;
        budget->pNext = NULL;
    }
    c.GetPhysicalDeviceMemoryProperties2(c.physical, &all);
    return all.memoryProperties;
}

START_TEST(without_rules_work_is_counted_and_nothing_fails)
{
    VkDeviceMemory m = VK_NULL_HANDLE;
    open_device("");
    ck_assert_int_eq(client_commands(&c), VK_SUCCESS);
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert_int_eq(client_submit(&c), VK_SUCCESS);
        ck_assert_int_eq(client_wait(&c, UINT64_MAX), VK_SUCCESS);
    }
    ck_assert_int_eq(client_allocate(&c, MIB, 0, &m), VK_SUCCESS);
    ck_assert_uint_eq(count("live_bytes"), MIB);
    c.FreeMemory(c.device, m, NULL);
    ck_assert_uint_eq(count("live_bytes"), 0);
    ck_assert_uint_eq(count("high_bytes"), MIB);
    ck_assert_uint_eq(count("recordings"), 1);
    ck_assert_uint_eq(count("commands_recorded"), 3);
    ck_assert_uint_eq(count("submits"), 3);
    ck_assert_uint_eq(count("dispatches_run"), 3); // recorded once, run three times
    ck_assert_uint_eq(count("barriers_run"), 3);
    ck_assert_uint_eq(count("commands_run"), 9);
    ck_assert_uint_eq(count("waits"), 3);
    ck_assert_uint_eq(count("faults") + count("refusals") + count("misuses"), 0);
    ck_assert(layer.count("no such counter") == UINT64_MAX);
    end();
}
END_TEST

START_TEST(allocations_fail_by_number_and_size)
{
    VkDeviceMemory m[4];
    open_device("fail allocate oom-device nth=2 times=2; fail allocate oom-host min=4MiB");
    ck_assert_int_eq(client_allocate(&c, MIB, 0, &m[0]), VK_SUCCESS);
    ck_assert_int_eq(client_allocate(&c, MIB, 0, &m[1]), VK_ERROR_OUT_OF_DEVICE_MEMORY);
    ck_assert_int_eq(client_allocate(&c, MIB, 0, &m[1]), VK_ERROR_OUT_OF_DEVICE_MEMORY);
    ck_assert_int_eq(client_allocate(&c, 4 * MIB, 0, &m[1]), VK_ERROR_OUT_OF_HOST_MEMORY);
    ck_assert_int_eq(client_allocate(&c, 4 * MIB, 0, &m[1]), VK_SUCCESS);
    ck_assert_uint_eq(count("faults"), 3);
    ck_assert_uint_eq(count("memory_allocated"), 2);
    c.FreeMemory(c.device, m[0], NULL);
    c.FreeMemory(c.device, m[1], NULL);
    end();
}
END_TEST

START_TEST(a_heap_has_a_size_a_capacity_and_a_neighbour)
{
    VkDeviceMemory m[2];
    open_device("heap 0 size=64MiB");
    ck_assert_uint_eq(memory(NULL).memoryHeaps[0].size, 64 * MIB);
    ck_assert_int_eq(client_allocate(&c, 60 * MIB, 0, &m[0]), VK_SUCCESS);
    ck_assert_int_eq(client_allocate(&c, 5 * MIB, 0, &m[1]), VK_ERROR_OUT_OF_DEVICE_MEMORY);
    ck_assert_int_eq(client_allocate(&c, 4 * MIB, 0, &m[1]), VK_SUCCESS);
    c.FreeMemory(c.device, m[1], NULL);
    set("heap 0 size=64MiB neighbour=4MiB");
    ck_assert_int_eq(client_allocate(&c, MIB, 0, &m[1]), VK_ERROR_OUT_OF_DEVICE_MEMORY);
    set("heap 0 capacity=61MiB");
    ck_assert_uint_gt(memory(NULL).memoryHeaps[0].size, 64 * MIB);
    ck_assert_int_eq(client_allocate(&c, 2 * MIB, 0, &m[1]), VK_ERROR_OUT_OF_DEVICE_MEMORY);
    ck_assert_int_eq(client_allocate(&c, MIB, 0, &m[1]), VK_SUCCESS);
    ck_assert_uint_eq(count("refusals"), 3);
    c.FreeMemory(c.device, m[0], NULL);
    c.FreeMemory(c.device, m[1], NULL);
    end();
}
END_TEST

START_TEST(a_budget_tells_the_truth_or_lies)
{
    VkPhysicalDeviceMemoryBudgetPropertiesEXT b = {.pNext = NULL};
    VkDeviceMemory m = VK_NULL_HANDLE;
    set("heap 0 size=1GiB; budget none");
    ck_assert_int_eq(client_instance(&c), VK_SUCCESS);
    ck_assert(!lists(VK_EXT_MEMORY_BUDGET_EXTENSION_NAME));
    set("heap 0 size=1GiB neighbour=100MiB; budget true");
    ck_assert(lists(VK_EXT_MEMORY_BUDGET_EXTENSION_NAME));
    ck_assert_int_eq(client_device(&c, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME, NULL), VK_SUCCESS);
    ck_assert_int_eq(client_allocate(&c, 7 * MIB, 0, &m), VK_SUCCESS);
    memory(&b);
    ck_assert_uint_eq(b.heapBudget[0], 924 * MIB);
    ck_assert_uint_eq(b.heapUsage[0], 7 * MIB);
    ck_assert_uint_eq(b.heapBudget[1], 0);
    set("heap 0 size=1GiB; budget double");
    memory(&b);
    ck_assert_uint_eq(b.heapBudget[0], 2048 * MIB);
    set("budget zero");
    memory(&b);
    ck_assert_uint_eq(b.heapBudget[0] + b.heapUsage[0], 0);
    set("budget max");
    memory(&b);
    ck_assert_uint_eq(b.heapBudget[0], UINT64_MAX);
    set("budget 5MiB");
    memory(&b);
    ck_assert_uint_eq(b.heapBudget[0], 5 * MIB);
    set("heap 0 size=1GiB; budget stale");
    memory(&b);
    ck_assert_uint_eq(b.heapUsage[0], 7 * MIB);
    c.FreeMemory(c.device, m, NULL);
    memory(&b);
    ck_assert_uint_eq(b.heapUsage[0], 7 * MIB);
    end();
}
END_TEST

START_TEST(creations_and_mapping_fail)
{
    static const struct {
        const char *rule;
        VkResult result;
    } CASES[] = {
        {"fail shader oom-host", VK_ERROR_OUT_OF_HOST_MEMORY},
        {"fail pipeline-layout oom-host", VK_ERROR_OUT_OF_HOST_MEMORY},
        {"fail pipeline oom-device", VK_ERROR_OUT_OF_DEVICE_MEMORY},
        {"fail command-pool oom-device", VK_ERROR_OUT_OF_DEVICE_MEMORY},
        {"fail commands oom-host", VK_ERROR_OUT_OF_HOST_MEMORY},
        {"fail record oom-device", VK_ERROR_OUT_OF_DEVICE_MEMORY},
    };
    void *at = NULL;
    VkDeviceMemory m = VK_NULL_HANDLE;
    set("");
    ck_assert_int_eq(client_instance(&c), VK_SUCCESS);
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        set("");
        ck_assert_int_eq(client_device(&c, NULL, NULL), VK_SUCCESS);
        set(CASES[i].rule);
        ck_assert_int_eq(client_commands(&c), CASES[i].result);
        client_close_device(&c);
    }
    set("fail device oom-device");
    ck_assert_int_eq(client_device(&c, NULL, NULL), VK_ERROR_OUT_OF_DEVICE_MEMORY);
    set("fail semaphore oom-host");
    ck_assert_int_eq(client_device(&c, NULL, NULL), VK_ERROR_OUT_OF_HOST_MEMORY);
    client_close_device(&c);
    set("fail map map-failed");
    ck_assert_int_eq(client_device(&c, NULL, NULL), VK_SUCCESS);
    ck_assert_int_eq(client_allocate(&c, MIB, 0, &m), VK_SUCCESS);
    ck_assert_int_eq(c.MapMemory(c.device, m, 0, MIB, 0, &at), VK_ERROR_MEMORY_MAP_FAILED);
    ck_assert_int_eq(c.MapMemory(c.device, m, 0, MIB, 0, &at), VK_SUCCESS);
    c.FreeMemory(c.device, m, NULL);
    client_close(&c);
    set("fail instance no-driver");
    ck_assert_int_eq(client_instance(&c), VK_ERROR_INCOMPATIBLE_DRIVER);
    c.instance = VK_NULL_HANDLE;
    end();
}
END_TEST

START_TEST(a_submit_is_refused_and_taken_again)
{
    open_device("fail submit oom-device nth=2 times=2");
    ck_assert_int_eq(client_commands(&c), VK_SUCCESS);
    ck_assert_int_eq(client_submit(&c), VK_SUCCESS);
    ck_assert_int_eq(client_submit(&c), VK_ERROR_OUT_OF_DEVICE_MEMORY);
    ck_assert_int_eq(client_submit(&c), VK_ERROR_OUT_OF_DEVICE_MEMORY);
    ck_assert_int_eq(client_submit(&c), VK_SUCCESS);
    ck_assert_int_eq(client_wait(&c, UINT64_MAX), VK_SUCCESS);
    ck_assert_uint_eq(count("submits"), 2);
    end();
}
END_TEST

START_TEST(a_loss_is_sticky_and_ends_with_its_device)
{
    uint64_t value = 0;
    open_device("fail submit lost nth=2");
    ck_assert_int_eq(client_commands(&c), VK_SUCCESS);
    ck_assert_int_eq(client_submit(&c), VK_SUCCESS);
    ck_assert_int_eq(client_submit(&c), VK_ERROR_DEVICE_LOST);
    ck_assert_int_eq(client_submit(&c), VK_ERROR_DEVICE_LOST);
    ck_assert_int_eq(client_wait(&c, UINT64_MAX), VK_ERROR_DEVICE_LOST);
    ck_assert_int_eq(c.GetSemaphoreCounterValue(c.device, c.timeline, &value),
                     VK_ERROR_DEVICE_LOST);
    ck_assert_int_eq(c.DeviceWaitIdle(c.device), VK_ERROR_DEVICE_LOST);
    client_close_device(&c);
    ck_assert_int_eq(client_device(&c, NULL, NULL), VK_SUCCESS);
    ck_assert_int_eq(client_commands(&c), VK_SUCCESS);
    ck_assert_int_eq(client_submit(&c), VK_SUCCESS);
    set("fail wait lost");
    ck_assert_int_eq(client_wait(&c, UINT64_MAX), VK_ERROR_DEVICE_LOST);
    end();
}
END_TEST

static void identity(char name[VK_MAX_PHYSICAL_DEVICE_NAME_SIZE], uint8_t uuid[VK_UUID_SIZE])
{
    VkPhysicalDeviceIDProperties id = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES};
    VkPhysicalDeviceProperties2 all = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                       .pNext = &id};
    c.GetPhysicalDeviceProperties2(c.physical, &all);
    memcpy(name, all.properties.deviceName, VK_MAX_PHYSICAL_DEVICE_NAME_SIZE);
    memcpy(uuid, id.deviceUUID, VK_UUID_SIZE);
}

START_TEST(after_a_loss_comes_what_the_rule_says)
{
    char name[2][VK_MAX_PHYSICAL_DEVICE_NAME_SIZE];
    uint8_t uuid[2][VK_UUID_SIZE];
    const struct timespec back = {.tv_nsec = 300 * 1000000};
    uint32_t n = 7;
    open_device("fail submit lost then=other");
    identity(name[0], uuid[0]);
    ck_assert_int_eq(client_submit(&c), VK_ERROR_DEVICE_LOST);
    client_close_device(&c);
    identity(name[1], uuid[1]);
    ck_assert_str_ne(name[0], name[1]);
    ck_assert(memcmp(uuid[0], uuid[1], VK_UUID_SIZE) != 0);
    set("fail submit lost then=broken");
    ck_assert_int_eq(client_device(&c, NULL, NULL), VK_SUCCESS);
    ck_assert_int_eq(client_submit(&c), VK_ERROR_DEVICE_LOST);
    client_close_device(&c);
    ck_assert_int_eq(client_device(&c, NULL, NULL), VK_ERROR_DEVICE_LOST);
    set("fail submit lost then=gone then-ms=250");
    ck_assert_int_eq(client_device(&c, NULL, NULL), VK_SUCCESS);
    ck_assert_int_eq(client_submit(&c), VK_ERROR_DEVICE_LOST);
    client_close(&c);
    ck_assert_int_eq(client_instance(&c), VK_SUCCESS);
    ck_assert_ptr_null(c.physical);
    nanosleep(&back, NULL);
    ck_assert_int_eq(c.EnumeratePhysicalDevices(c.instance, &n, NULL), VK_SUCCESS);
    ck_assert_uint_eq(n, 1);
    end();
}
END_TEST

START_TEST(a_hang_hides_the_end_for_its_time)
{
    uint64_t value = 7;
    open_device("fail submit hang nth=2 ms=200");
    ck_assert_int_eq(client_commands(&c), VK_SUCCESS);
    ck_assert_int_eq(client_submit(&c), VK_SUCCESS);
    ck_assert_int_eq(client_wait(&c, UINT64_MAX), VK_SUCCESS);
    ck_assert_int_eq(client_submit(&c), VK_SUCCESS);
    ck_assert_int_eq(client_wait(&c, 0), VK_TIMEOUT);
    ck_assert_int_eq(client_wait(&c, 20 * MS), VK_TIMEOUT);
    ck_assert_int_eq(c.GetSemaphoreCounterValue(c.device, c.timeline, &value), VK_SUCCESS);
    ck_assert_uint_eq(value, 1);
    ck_assert_int_eq(client_wait(&c, UINT64_MAX), VK_SUCCESS);
    ck_assert_int_eq(c.GetSemaphoreCounterValue(c.device, c.timeline, &value), VK_SUCCESS);
    ck_assert_uint_eq(value, 2);
    end();
}
END_TEST

START_TEST(a_device_is_shown_as_told)
{
    VkPhysicalDeviceVulkan13Properties v13 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES};
    VkPhysicalDeviceVulkan11Properties v11 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES, .pNext = &v13};
    VkPhysicalDeviceProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                     .pNext = &v11};
    VkQueueFamilyProperties2 queue = {.sType = VK_STRUCTURE_TYPE_QUEUE_FAMILY_PROPERTIES_2};
    VkDeviceMemory m = VK_NULL_HANDLE;
    uint32_t n = 1;
    open_device("api 1.2; identity type=discrete name=Big_Card uuid=258; hide compute;"
                "limit max-allocation=8MiB max-buffer=4MiB");
    c.GetPhysicalDeviceProperties2(c.physical, &p);
    ck_assert_uint_eq(p.properties.apiVersion, VK_API_VERSION_1_2);
    ck_assert_int_eq(p.properties.deviceType, VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU);
    ck_assert_str_eq(p.properties.deviceName, "Big Card");
    ck_assert_uint_eq(v11.deviceUUID[14], 1);
    ck_assert_uint_eq(v11.deviceUUID[15], 2);
    ck_assert_uint_eq(v11.maxMemoryAllocationSize, 8 * MIB);
    ck_assert_uint_eq(v13.maxBufferSize, 4 * MIB);
    c.GetPhysicalDeviceQueueFamilyProperties2(c.physical, &n, &queue);
    ck_assert_uint_eq(queue.queueFamilyProperties.queueFlags & VK_QUEUE_COMPUTE_BIT, 0);
    ck_assert_int_eq(client_allocate(&c, 9 * MIB, 0, &m), VK_ERROR_OUT_OF_DEVICE_MEMORY);
    ck_assert_uint_eq(count("misuses"), 1);
    set("hide devices");
    ck_assert_int_eq(c.EnumeratePhysicalDevices(c.instance, &n, NULL), VK_SUCCESS);
    ck_assert_uint_eq(n, 0);
    end();
}
END_TEST

START_TEST(features_and_extensions_are_hidden)
{
    VkPhysicalDeviceVulkan12Features v12 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES};
    VkPhysicalDeviceFeatures2 f = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                   .pNext = &v12};
    VkPhysicalDeviceFeatures core;
    set("");
    ck_assert_int_eq(client_instance(&c), VK_SUCCESS);
    ck_assert(lists("VK_EXT_external_memory_host"));
    c.GetPhysicalDeviceFeatures2(c.physical, &f);
    ck_assert(v12.timelineSemaphore && v12.bufferDeviceAddress && f.features.shaderInt64);
    set("hide feature timelineSemaphore; hide feature shaderInt64;"
        "hide extension VK_EXT_external_memory_host;"
        "show extension VK_AMD_memory_overallocation_behavior");
    c.GetPhysicalDeviceFeatures2(c.physical, &f);
    c.GetPhysicalDeviceFeatures(c.physical, &core);
    ck_assert(!v12.timelineSemaphore && v12.bufferDeviceAddress);
    ck_assert(!f.features.shaderInt64 && !core.shaderInt64);
    ck_assert(!lists("VK_EXT_external_memory_host"));
    ck_assert_int_eq(client_device(&c, NULL, NULL), VK_ERROR_FEATURE_NOT_PRESENT);
    ck_assert_int_eq(client_device(&c, "VK_EXT_external_memory_host", NULL),
                     VK_ERROR_EXTENSION_NOT_PRESENT);
    ck_assert_uint_eq(count("misuses"), 1); // that of an extension is the loader's to refuse
    set("show extension VK_AMD_memory_overallocation_behavior");
    VkDeviceMemoryOverallocationCreateInfoAMD over = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_MEMORY_OVERALLOCATION_CREATE_INFO_AMD,
        .overallocationBehavior = VK_MEMORY_OVERALLOCATION_BEHAVIOR_DISALLOWED_AMD};
    ck_assert(lists("VK_AMD_memory_overallocation_behavior"));
    ck_assert_int_eq(client_device(&c, "VK_AMD_memory_overallocation_behavior", &over), VK_SUCCESS);
    ck_assert_uint_eq(count("pretended_enabled"), 1);
    ck_assert_uint_eq(count("overallocation_disallowed"), 1);
    end();
}
END_TEST

START_TEST(heaps_of_a_discrete_card)
{
    const VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                                     .size = MIB,
                                     .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT};
    VkMemoryRequirements2 need = {.sType = VK_STRUCTURE_TYPE_MEMORY_REQUIREMENTS_2};
    VkBufferMemoryRequirementsInfo2 of = {.sType =
                                              VK_STRUCTURE_TYPE_BUFFER_MEMORY_REQUIREMENTS_INFO_2};
    VkDeviceMemory m[3];
    void *at = NULL;
    open_device("heap 0 size=64MiB device-local=1; heap 1 size=32MiB;"
                "heap 2 size=8MiB device-local=1; memtype 0 D; memtype 1 VC; memtype 2 DVC");
    VkPhysicalDeviceMemoryProperties p = memory(NULL);
    ck_assert_uint_eq(p.memoryHeapCount, 3);
    ck_assert_uint_eq(p.memoryTypeCount, 3);
    ck_assert_uint_eq(p.memoryHeaps[0].flags, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT);
    ck_assert_uint_eq(p.memoryHeaps[1].flags, 0);
    ck_assert_uint_eq(p.memoryTypes[0].propertyFlags, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT);
    ck_assert_int_eq(c.CreateBuffer(c.device, &info, NULL, &of.buffer), VK_SUCCESS);
    c.GetBufferMemoryRequirements2(c.device, &of, &need);
    ck_assert_uint_eq(need.memoryRequirements.memoryTypeBits, 7);
    ck_assert_int_eq(client_allocate(&c, 40 * MIB, 0, &m[0]), VK_SUCCESS);
    ck_assert_int_eq(client_allocate(&c, 40 * MIB, 1, &m[1]), VK_ERROR_OUT_OF_DEVICE_MEMORY);
    ck_assert_int_eq(client_allocate(&c, 8 * MIB, 1, &m[1]), VK_SUCCESS);
    ck_assert_int_eq(client_allocate(&c, 8 * MIB, 2, &m[2]), VK_SUCCESS);
    ck_assert_int_eq(c.MapMemory(c.device, m[1], 0, MIB, 0, &at), VK_SUCCESS);
    ck_assert_int_eq(c.MapMemory(c.device, m[2], 0, MIB, 0, &at), VK_SUCCESS);
    ck_assert_uint_eq(count("misuses"), 0);
    ck_assert_int_eq(c.MapMemory(c.device, m[0], 0, MIB, 0, &at), VK_ERROR_MEMORY_MAP_FAILED);
    ck_assert_uint_eq(count("misuses"), 1);
    for (uint32_t i = 0; i < 3; i++) {
        c.FreeMemory(c.device, m[i], NULL);
    }
    c.DestroyBuffer(c.device, of.buffer, NULL);
    end();
}
END_TEST

START_TEST(wrong_rules_are_named)
{
    static const char *const WRONG[] = {
        "fial allocate lost",
        "fail allocate",
        "fail nowhere lost",
        "fail allocate oom-device nth=0",
        "fail allocate oom-device nth=x",
        "fail allocate oom-device often=3",
        "fail submit hang",
        "fail wait hang ms=5",
        "heap 16 size=1MiB",
        "heap 0 size=1MB",
        "memtype 0 D", // no heap
        "hide feature noSuchFeature",
        "budget much",
        "api 13",
        "identity type=huge",
        "limit",
        "show devices",
    };
    char error[512];
    for (size_t i = 0; i < sizeof(WRONG) / sizeof(WRONG[0]); i++) {
        error[0] = '\0';
        ck_assert_msg(!layer.set(WRONG[i], error, sizeof(error)), "%s", WRONG[i]);
        ck_assert_ptr_nonnull(strstr(error, WRONG[i]));
    }
    end();
}
END_TEST

static void write_file(const char *path, const char *text)
{
    char next[160];
    snprintf(next, sizeof(next), "%s.next", path);
    FILE *file = fopen(next, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
    ck_assert_int_eq(rename(next, path), 0);
}

START_TEST(the_environment_and_a_control_file_rule_too)
{
    char folder[] = "/tmp/plimsoll-layer-XXXXXX";
    char control[96];
    char account[96];
    char rules[320];
    uint64_t first[3] = {0};
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(control, sizeof(control), "%s/control", folder);
    snprintf(account, sizeof(account), "%s/account", folder);
    snprintf(rules, sizeof(rules), "heap 0 size=1GiB; control %s; account %s", control, account);
    setenv("PLM_VK_FAULTS", rules, 1);
    ck_assert_int_eq(client_instance(&c), VK_SUCCESS);
    ck_assert_int_eq(client_device(&c, NULL, NULL), VK_SUCCESS);
    ck_assert_uint_eq(memory(NULL).memoryHeaps[0].size, 1024 * MIB);
    ck_assert_int_eq(client_submit(&c), VK_SUCCESS);
    write_file(control, "# a comment\nfail submit oom-device nth=2\nheap 0 neighbour=1MiB\n");
    ck_assert_int_eq(client_submit(&c), VK_SUCCESS);
    // The rule that stays goes on counting.
    write_file(control, "fail submit oom-device nth=2\nhide compute\n");
    ck_assert_int_eq(client_submit(&c), VK_ERROR_OUT_OF_DEVICE_MEMORY);
    write_file(control, "nonsense\n");
    ck_assert_int_eq(client_submit(&c), VK_SUCCESS);
    ck_assert_uint_eq(count("bad_rules"), 1);
    FILE *file = fopen(account, "rb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fread(first, sizeof(first[0]), 3, file), 3);
    fclose(file);
    ck_assert_uint_eq(first[0], 1); // instances created, destroyed, devices created
    ck_assert_uint_eq(first[1], 0);
    ck_assert_uint_eq(first[2], 1);
    end();
    unlink(control);
    unlink(account);
    rmdir(folder);
}
END_TEST

START_TEST(an_environment_that_is_not_understood_opens_nothing)
{
    setenv("PLM_VK_FAULTS", "heap zero", 1);
    ck_assert_int_ne(client_instance(&c), VK_SUCCESS);
    c.instance = VK_NULL_HANDLE;
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fault layer");
    TCase *cases = tcase_create("rules");
    if (!client_can_run()) {
        printf(
            "skipped: no Vulkan loader or no driver (Debian: libvulkan1, mesa-vulkan-drivers)\n");
        return 77;
    }
    tcase_add_checked_fixture(cases, begin, NULL);
    tcase_add_test(cases, without_rules_work_is_counted_and_nothing_fails);
    tcase_add_test(cases, allocations_fail_by_number_and_size);
    tcase_add_test(cases, a_heap_has_a_size_a_capacity_and_a_neighbour);
    tcase_add_test(cases, a_budget_tells_the_truth_or_lies);
    tcase_add_test(cases, creations_and_mapping_fail);
    tcase_add_test(cases, a_submit_is_refused_and_taken_again);
    tcase_add_test(cases, a_loss_is_sticky_and_ends_with_its_device);
    tcase_add_test(cases, after_a_loss_comes_what_the_rule_says);
    tcase_add_test(cases, a_hang_hides_the_end_for_its_time);
    tcase_add_test(cases, a_device_is_shown_as_told);
    tcase_add_test(cases, features_and_extensions_are_hidden);
    tcase_add_test(cases, heaps_of_a_discrete_card);
    tcase_add_test(cases, wrong_rules_are_named);
    tcase_add_test(cases, the_environment_and_a_control_file_rule_too);
    tcase_add_test(cases, an_environment_that_is_not_understood_opens_nothing);
    tcase_set_timeout(cases, 60);
    suite_add_tcase(suite, cases);
    return suite_run(suite);
}
