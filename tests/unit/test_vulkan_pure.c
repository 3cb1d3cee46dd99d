// SPDX-License-Identifier: Apache-2.0
// What the Vulkan backend decides without a driver: options, devices, memory types, readings.
#include <check.h>
#include <string.h>

#include "backends/vulkan/coopmat.h"
#include "backends/vulkan/instance.h"
#include "backends/vulkan/loader.h"
#include "backends/vulkan/readings.h"
#include "backends/vulkan/select.h"
#include "backends/vulkan/shaders.h"
#include "backends/vulkan/types.h"
#include "core/backend.h"
#include "tests/support/suite.h"

#define MIB (1ull << 20)
#define GIB (1ull << 30)

// ---- options ----

static struct plm_vk_opts parse(const char *text)
{
    struct plm_vk_opts o;
    struct plm_error err = {0};
    ck_assert_msg(plm_vk_opts_parse(text, &o, &err) == PLM_OK, "%s: %s", text, err.msg);
    return o;
}

START_TEST(options_name_a_device_and_its_use)
{
    struct plm_vk_opts o = parse("1");
    ck_assert_uint_eq(o.which.index, 1);
    ck_assert(o.dot && o.coopmat && o.host_visible && !o.f16_math && !o.gpu_kernels);
    ck_assert_uint_eq(o.submit_ms, 0);
    o = parse("llvmpipe,math=f16,dot=off,coopmat=off,kernels=gpu,host_visible=off,submit_ms=250,"
              "cache=/x/y=z");
    ck_assert_str_eq(o.which.name, "llvmpipe");
    ck_assert_str_eq(o.which.uuid, "");
    ck_assert(o.f16_math && !o.dot && !o.coopmat && o.gpu_kernels && !o.host_visible);
    ck_assert_uint_eq(o.submit_ms, 250);
    ck_assert_str_eq(o.cache_path, "/x/y=z");
    o = parse("6d657361-3232-2e33-2E36-000000000000");
    ck_assert_str_eq(o.which.uuid, "6d657361-3232-2e33-2E36-000000000000");
    ck_assert_str_eq(o.which.name, "");
    o = parse("host_visible=off");
    ck_assert_uint_eq(o.which.index, 0);
    ck_assert_str_eq(parse("RTX 4090").which.name, "RTX 4090");
    ck_assert_str_eq(parse("4090 D").which.name, "4090 D");
}
END_TEST

START_TEST(bad_options_are_refused_by_name)
{
    static const struct {
        const char *text;
        const char *says; // NULL: anything
    } bad[] = {
        {"", "empty"},
        {",", "empty"},
        {"0,", "empty"},
        {"0,,dot=on", "empty"},
        {"0,1", "'1'"},
        {"dot=on,0", "'0'"},
        {"dot=yes", "'yes'"},
        {"dot=", "on or off"},
        {"math=f64", "f16 or f32"},
        {"=on", "no option ''"},
        {"watts=3", "'watts'"},
        {"submit_ms=-1", "submit_ms"},
        {"submit_ms=600001", "submit_ms"},
        {"submit_ms=99999999999999999999", "submit_ms"},
        {"submit_ms=1s", "'1s'"},
        {"cache=", "cache"},
        {"65536", "index"},
        {"99999999999999999999", "index"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct plm_vk_opts o = {.which = {.index = 7}};
        struct plm_error err = {0};
        ck_assert_msg(plm_vk_opts_parse(bad[i].text, &o, &err) == PLM_ERR_INVALID, "'%s'",
                      bad[i].text);
        ck_assert_msg(strstr(err.msg, bad[i].says) != NULL, "'%s': %s", bad[i].text, err.msg);
        ck_assert_uint_eq(o.which.index, 7);
    }
    static char path[8192];
    memset(path, 'x', sizeof(path) - 1);
    memcpy(path, "cache=", 6);
    struct plm_vk_opts o;
    ck_assert_int_eq(plm_vk_opts_parse(path, &o, NULL), PLM_ERR_INVALID);
    ck_assert_int_eq(plm_vk_opts_parse(path + 6, &o, NULL), PLM_ERR_INVALID); // a long name
}
END_TEST

static struct plm_vk_described judged(const char *name, const char *uuid, const char *missing)
{
    struct plm_vk_described j = {0};
    strcpy(j.physical.name, name);
    strcpy(j.physical.uuid, uuid);
    strcpy(j.missing, missing);
    return j;
}

START_TEST(a_device_is_found_by_index_name_and_uuid)
{
    const struct plm_vk_described list[] = {
        judged("Arc A770", "aaaaaaaa-0000-0000-0000-000000000000", ""),
        judged("Radeon 780M", "bbbbbbbb-0000-0000-0000-000000000000", ""),
        judged("Old One", "cccccccc-0000-0000-0000-000000000000", "Vulkan 1.3, shaderInt8"),
    };
    static const struct {
        const char *text;
        uint32_t at;
    } good[] = {{"0", 0},
                {"1", 1},
                {"radeon", 1},
                {"arc a", 0},
                {"BBBBBBBB-0000-0000-0000-000000000000", 1}};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        uint32_t at = 9;
        const struct plm_vk_opts o = parse(good[i].text);
        ck_assert_int_eq(plm_vk_select(&o, list, 3, &at, NULL), PLM_OK);
        ck_assert_uint_eq(at, good[i].at);
    }
    static const char *const none[] = {"2", "3", "old", "geforce",
                                       "cccccccc-0000-0000-0000-000000000000"};
    for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
        uint32_t at = 9;
        struct plm_error err = {0};
        const struct plm_vk_opts o = parse(none[i]);
        ck_assert_int_eq(plm_vk_select(&o, list, 3, &at, &err), PLM_ERR_NOT_FOUND);
        ck_assert_ptr_nonnull(strstr(err.msg, "vulkan:1 Radeon 780M"));
        ck_assert_ptr_nonnull(strstr(err.msg, "Old One, which lacks Vulkan 1.3, shaderInt8"));
        ck_assert_uint_eq(at, 9);
    }
}
END_TEST

START_TEST(cards_come_before_cpu_drivers_and_usable_devices_first)
{
    struct plm_vk_described list[] = {judged("old card", "", "Vulkan 1.3"), judged("cpu", "", ""),
                                      judged("card", "", ""), judged("old cpu", "", "shaderInt8"),
                                      judged("apu", "", "")};
    for (int i = 0; i < 5; i++)
        list[i].physical.type = VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
    list[1].physical.type = list[3].physical.type = VK_PHYSICAL_DEVICE_TYPE_CPU;
    list[4].physical.type = VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU;
    plm_vk_physical_sort(list, 5);
    static const char *const want[] = {"card", "apu", "cpu", "old card", "old cpu"};
    for (int i = 0; i < 5; i++)
        ck_assert_str_eq(list[i].physical.name, want[i]);
}
END_TEST

START_TEST(a_missing_loader_is_named)
{
    static const char *const names[] = {"libplimsoll-no-such.so.1", "libplimsoll-no-such.so", NULL};
    void *library = NULL;
    struct plm_vk_fns fns;
    struct plm_error err = {0};
    ck_assert_int_eq(plm_vk_loader_open(names, &library, &fns, &err), PLM_ERR_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(err.msg, names[0]));
    ck_assert_ptr_nonnull(strstr(err.msg, names[1]));
    ck_assert_ptr_nonnull(strstr(err.msg, "libvulkan1"));
    // A library that is no loader.
    static const char *const other[] = {"libm.so.6", NULL};
    ck_assert_int_eq(plm_vk_loader_open(other, &library, &fns, &err), PLM_ERR_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(err.msg, "vkGetInstanceProcAddr"));
    ck_assert_ptr_null(library);
}
END_TEST

// ---- memory types ----

#define LOCAL    VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT
#define VISIBLE  (VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT)
#define CACHED   (VISIBLE | VK_MEMORY_PROPERTY_HOST_CACHED_BIT)
#define UNCACHED VK_MEMORY_PROPERTY_DEVICE_UNCACHED_BIT_AMD

struct layout {
    const char *name;
    bool unified;
    VkPhysicalDeviceMemoryProperties memory;
    struct plm_vk_types want;
};

#define TYPES(...)                                                                                 \
    .memoryTypeCount = sizeof((VkMemoryType[]){__VA_ARGS__}) / sizeof(VkMemoryType),               \
    .memoryTypes = {__VA_ARGS__}
#define HEAPS(...)                                                                                 \
    .memoryHeapCount = sizeof((VkMemoryHeap[]){__VA_ARGS__}) / sizeof(VkMemoryHeap),               \
    .memoryHeaps = {__VA_ARGS__}

static const struct layout layouts[] = {
    // One heap, one type.
    {"cpu", true, {TYPES({LOCAL | CACHED, 0}), HEAPS({2 * GIB, LOCAL})}, {0, 0, true, 0}},
    // A card with a window of 256 MiB into its memory.
    {"window",
     false,
     {TYPES({0, 1}, {LOCAL, 0}, {VISIBLE, 1}, {CACHED, 1}, {LOCAL | VISIBLE, 2}),
      HEAPS({80 * GIB, LOCAL}, {120 * GIB, 0}, {256 * MIB, LOCAL})},
     {0, 1, false, 3}},
    // The window first.
    {"window first",
     false,
     {TYPES({LOCAL | VISIBLE, 0}, {LOCAL, 2}, {VISIBLE, 1}),
      HEAPS({16 * MIB, LOCAL}, {120 * GIB, 0}, {8 * GIB, LOCAL})},
     {2, 1, false, 2}},
    // All of a card's memory is seen by the host, past its caches.
    {"whole",
     false,
     {TYPES({LOCAL | VISIBLE, 0}, {LOCAL, 0}, {CACHED, 1}, {VISIBLE, 1}),
      HEAPS({16 * GIB, LOCAL}, {64 * GIB, 0})},
     {0, 1, false, 2}},
    // The same without a type of its own for what the host need not see.
    {"whole only",
     false,
     {TYPES({LOCAL | VISIBLE, 0}, {CACHED, 1}), HEAPS({16 * GIB, LOCAL}, {64 * GIB, 0})},
     {0, 0, false, 1}},
    // An APU whose carve-out is smaller than what else it may use.
    {"carve-out",
     true,
     {TYPES({LOCAL, 0}, {LOCAL | VISIBLE, 0}, {VISIBLE, 1}, {CACHED, 1}),
      HEAPS({512 * MIB, LOCAL}, {15 * GIB, 0})},
     {1, 3, true, 3}},
    // An APU where both heaps are called local.
    {"apu",
     true,
     {TYPES({LOCAL, 0}, {VISIBLE, 1}, {LOCAL | VISIBLE, 0}, {CACHED, 1}, {LOCAL | CACHED, 0}),
      HEAPS({20 * GIB, LOCAL}, {10 * GIB, 0})},
     {0, 4, true, 3}},
    // Types that would be slow or are for protected content come first in the list.
    {"unfit first",
     false,
     {TYPES({LOCAL | UNCACHED, 0}, {LOCAL | VK_MEMORY_PROPERTY_PROTECTED_BIT, 0}, {LOCAL, 0},
            {CACHED | UNCACHED, 1}, {VISIBLE, 1}),
      HEAPS({8 * GIB, LOCAL}, {8 * GIB, 0})},
     {0, 2, false, 4}},
};

START_TEST(slabs_lie_on_the_large_heap)
{
    const struct layout *l = &layouts[_i];
    struct plm_vk_types got;
    ck_assert_msg(plm_vk_choose_types(&l->memory, UINT32_MAX, l->unified, &got), "%s", l->name);
    ck_assert_msg(got.heap == l->want.heap, "%s: heap %u", l->name, got.heap);
    ck_assert_msg(got.slab == l->want.slab, "%s: slab %u", l->name, got.slab);
    ck_assert_msg(got.slab_cached == l->want.slab_cached, "%s", l->name);
    ck_assert_msg(got.pinned == l->want.pinned, "%s: pinned %u", l->name, got.pinned);
}
END_TEST

START_TEST(types_that_buffers_may_not_use_are_passed_over)
{
    const VkPhysicalDeviceMemoryProperties *memory = &layouts[3].memory;
    struct plm_vk_types got = {.heap = 9};
    ck_assert(plm_vk_choose_types(memory, 1u << 0 | 1u << 3, false, &got));
    ck_assert_uint_eq(got.slab, 0);
    ck_assert_uint_eq(got.pinned, 3);
    got.heap = 9;
    ck_assert(!plm_vk_choose_types(memory, 1u << 1, false, &got)); // nothing the host can write
    ck_assert(!plm_vk_choose_types(memory, 0, false, &got));
    ck_assert_uint_eq(got.heap, 9);
}
END_TEST

// ---- cooperative matrices ----

#define S8  VK_COMPONENT_TYPE_SINT8_KHR
#define S32 VK_COMPONENT_TYPE_SINT32_KHR
#define F16 VK_COMPONENT_TYPE_FLOAT16_KHR
#define F32 VK_COMPONENT_TYPE_FLOAT32_KHR

static VkCooperativeMatrixPropertiesKHR driver_shapes[8];
static uint32_t n_driver_shapes;
static bool driver_has_matrix, driver_has_list;

static VkResult VKAPI_CALL list_shapes(VkPhysicalDevice device, uint32_t *n,
                                       VkCooperativeMatrixPropertiesKHR *out)
{
    (void)device;
    for (uint32_t i = 0; i < n_driver_shapes; i++) {
        ck_assert_int_eq(out[i].sType, VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR);
        out[i] = driver_shapes[i];
    }
    *n = n_driver_shapes;
    return VK_SUCCESS;
}

static PFN_vkVoidFunction VKAPI_CALL find_function(VkInstance instance, const char *name)
{
    (void)instance;
    ck_assert_str_eq(name, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR");
    return driver_has_list ? (PFN_vkVoidFunction)list_shapes : NULL;
}

static void VKAPI_CALL give_features(VkPhysicalDevice device, VkPhysicalDeviceFeatures2 *features)
{
    (void)device;
    struct plm_vk_coopmat_features *matrix = features->pNext;
    ck_assert_int_eq(matrix->sType, 1000506000);
    matrix->matrix = driver_has_matrix;
}

static uint32_t met(uint32_t n, const VkCooperativeMatrixPropertiesKHR *listed)
{
    const struct plm_vk_instance instance = {
        .vk = {.GetInstanceProcAddr = find_function, .GetPhysicalDeviceFeatures2 = give_features}};
    memcpy(driver_shapes, listed, n * sizeof(*listed));
    n_driver_shapes = n;
    return plm_vk_coopmat_needs_met(&instance, VK_NULL_HANDLE);
}

#define SHAPE(m, n, k, in, out, saturates, scope_)                                                 \
    {                                                                                              \
        .MSize = m, .NSize = n, .KSize = k, .AType = in, .BType = in, .CType = out,                \
        .ResultType = out, .saturatingAccumulation = saturates, .scope = scope_                    \
    }

START_TEST(only_listed_shapes_are_used)
{
    const VkCooperativeMatrixPropertiesKHR both[] = {
        SHAPE(16, 8, 32, S8, S32, 0, VK_SCOPE_SUBGROUP_KHR),
        SHAPE(16, 16, 16, F16, F32, 0, VK_SCOPE_SUBGROUP_KHR),
        SHAPE(16, 16, 32, S8, S32, 0, VK_SCOPE_SUBGROUP_KHR)};
    const VkCooperativeMatrixPropertiesKHR other[] = {
        SHAPE(16, 16, 16, S8, S32, 0, VK_SCOPE_SUBGROUP_KHR),
        SHAPE(16, 16, 32, S8, S32, 1, VK_SCOPE_SUBGROUP_KHR),
        SHAPE(16, 16, 16, F16, F16, 0, VK_SCOPE_SUBGROUP_KHR),
        SHAPE(16, 16, 32, S8, S32, 0, (VkScopeKHR)2)}; // of a workgroup
    driver_has_matrix = driver_has_list = true;
    ck_assert_uint_eq(met(3, both), PLM_VK_NEEDS_COOPMAT_S8);
    ck_assert_uint_eq(met(2, both), 0);
    ck_assert_uint_eq(met(4, other), 0);
    ck_assert_uint_eq(met(0, both), 0);
    driver_has_list = false;
    ck_assert_uint_eq(met(3, both), 0);
    driver_has_list = true;
    driver_has_matrix = false;
    ck_assert_uint_eq(met(3, both), 0);
}
END_TEST

// ---- readings ----

START_TEST(readings_are_bounded_by_what_can_be)
{
    static const struct {
        struct plm_vk_heap heap;
        uint64_t free_bytes, use;
        uint64_t budget; // below the use: what is beyond it is pushed out, or will be
        enum plm_confidence confidence;
    } rows[] = {
        // {bytes, has_budget, budget, usage, own}
        {{100, true, 90, 30, 20}, 60, 30, 90, PLM_CONFIDENCE_MEDIUM},
        {{100, false, 0, 0, 20}, 80, 20, 0, PLM_CONFIDENCE_LOW},
        {{100, true, 0, 30, 20}, 70, 30, 100, PLM_CONFIDENCE_LOW},          // no budget
        {{100, true, 130, 30, 20}, 70, 30, 100, PLM_CONFIDENCE_LOW},        // above the heap
        {{100, true, UINT64_MAX, 30, 20}, 70, 30, 100, PLM_CONFIDENCE_LOW}, // 16 EiB
        {{100, true, 90, 0, 20}, 70, 20, 90, PLM_CONFIDENCE_MEDIUM},        // forgets our own
        {{100, true, 90, 10, 20}, 80, 10, 90, PLM_CONFIDENCE_MEDIUM}, // of before our last slab
        {{100, true, 90, UINT64_MAX, 20}, 70, 20, 90, PLM_CONFIDENCE_LOW}, // underflowed
        {{100, true, 20, 60, 60}, 0, 60, 20, PLM_CONFIDENCE_MEDIUM},       // others took it
        {{100, true, 40, 40, 60}, 0, 60, 40, PLM_CONFIDENCE_MEDIUM},       // and pushed us out
        {{100, false, 0, 0, 120}, 0, 100, 0, PLM_CONFIDENCE_LOW},          // granules beyond it
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct plm_mem_info info;
        plm_vk_read_heap(&rows[i].heap, &info);
        ck_assert_msg(info.total_bytes == 100, "row %zu", i);
        ck_assert_msg(info.free_bytes == rows[i].free_bytes, "row %zu: free %llu", i,
                      (unsigned long long)info.free_bytes);
        ck_assert_msg(info.process_use_bytes == rows[i].use, "row %zu: use %llu", i,
                      (unsigned long long)info.process_use_bytes);
        ck_assert_msg(info.budget_bytes == rows[i].budget, "row %zu: budget %llu", i,
                      (unsigned long long)info.budget_bytes);
        ck_assert_msg(info.confidence == rows[i].confidence, "row %zu", i);
        ck_assert_ptr_nonnull(info.source);
    }
}
END_TEST

START_TEST(a_device_in_host_memory_has_no_more_than_the_host)
{
    const struct plm_vk_heap heap = {.bytes = 100, .own = 10};
    struct plm_mem_info machine = {.total_bytes = 80,
                                   .free_bytes = 50,
                                   .process_use_bytes = 25,
                                   .source = "host",
                                   .confidence = PLM_CONFIDENCE_MEDIUM,
                                   .n_cgroups = 1,
                                   .cgroups = {{60, 40, 5}}};
    struct plm_mem_info info;
    plm_vk_read_heap(&heap, &info);
    plm_vk_read_unified(&machine, true, &info);
    ck_assert_uint_eq(info.total_bytes, 80);
    ck_assert_uint_eq(info.free_bytes, 50);
    ck_assert_uint_eq(info.process_use_bytes, 25);
    ck_assert_str_eq(info.source, "host");
    ck_assert_uint_eq(info.n_cgroups, 1);
    ck_assert_uint_eq(info.cgroups[0].limit_bytes, 60);
    // The device has less.
    machine.free_bytes = 500;
    machine.total_bytes = 800;
    plm_vk_read_heap(&heap, &info);
    plm_vk_read_unified(&machine, false, &info);
    ck_assert_uint_eq(info.total_bytes, 100);
    ck_assert_uint_eq(info.free_bytes, 90);
    ck_assert_uint_eq(info.process_use_bytes, 10);
    ck_assert_int_eq(info.confidence, PLM_CONFIDENCE_LOW);
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("all");
    tcase_add_test(tc, options_name_a_device_and_its_use);
    tcase_add_test(tc, bad_options_are_refused_by_name);
    tcase_add_test(tc, a_device_is_found_by_index_name_and_uuid);
    tcase_add_test(tc, cards_come_before_cpu_drivers_and_usable_devices_first);
    tcase_add_test(tc, a_missing_loader_is_named);
    tcase_add_loop_test(tc, slabs_lie_on_the_large_heap, 0, sizeof(layouts) / sizeof(layouts[0]));
    tcase_add_test(tc, types_that_buffers_may_not_use_are_passed_over);
    tcase_add_test(tc, only_listed_shapes_are_used);
    tcase_add_test(tc, readings_are_bounded_by_what_can_be);
    tcase_add_test(tc, a_device_in_host_memory_has_no_more_than_the_host);
    Suite *suite = suite_create("vulkan_pure");
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
