// SPDX-License-Identifier: Apache-2.0
// The Vulkan backend on devices that are not as it wishes: old drivers, features and queues that
// are missing, small or odd heaps, budgets that lie. What it can not use it names.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

// Opening fails and says so with all of the words.
static void refused(const char *text, int status, const char *word, const char *other)
{
    struct plm_device *device = NULL;
    ck_assert_msg(open_device("vulkan", text, &device) == status, "%s: %s", text, error.msg);
    ck_assert_msg(strstr(error.msg, word) != NULL, "%s: no '%s' in: %s", text, word, error.msg);
    ck_assert_msg(strstr(error.msg, other) != NULL, "%s: no '%s' in: %s", text, other, error.msg);
}

START_TEST(each_missing_feature_is_named)
{
    static const char *const NEEDED[] = {
        "shaderInt16",       "shaderInt64",       "storageBuffer16BitAccess",
        "shaderInt8",        "scalarBlockLayout", "storageBuffer8BitAccess",
        "timelineSemaphore", "maintenance4",      "bufferDeviceAddress",
        "synchronization2",
    };
    char text[1024];
    char all[1024] = "";
    for (size_t i = 0; i < sizeof(NEEDED) / sizeof(NEEDED[0]); i++) {
        snprintf(text, sizeof(text), "hide feature %s", NEEDED[i]);
        refused(text, PLM_ERR_NOT_FOUND, NEEDED[i], "llvmpipe");
        strcat(strcat(all, text), ";");
    }
    // All at once: the first and the last are said.
    refused(all, PLM_ERR_NOT_FOUND, "shaderInt16", "maintenance4");
    fixture_end();
}
END_TEST

START_TEST(old_drivers_and_devices_without_compute_are_named)
{
    refused("api 1.2", PLM_ERR_NOT_FOUND, "1.3", "1.2");
    refused("hide compute", PLM_ERR_NOT_FOUND, "compute", "llvmpipe");
    refused("hide devices", PLM_ERR_NOT_FOUND, "driver", "vulkan");
    refused("fail instance no-driver", PLM_ERR_NOT_FOUND, "driver", "vulkan");
    refused("fail instance oom-host", PLM_ERR_NOMEM_HOST, "host memory", "vulkan");
    refused("fail device init-failed", PLM_ERR_LOST, "vkCreateDevice", "llvmpipe");
    refused("fail device oom-device", PLM_ERR_OUT_OF_DEVICE, "vkCreateDevice", "llvmpipe");
    refused("fail semaphore oom-host", PLM_ERR_NOMEM_HOST, "timeline", "llvmpipe");
    fixture_end();
}
END_TEST

START_TEST(devices_are_found_by_index_name_and_uuid)
{
    struct plm_device *device = NULL;
    const char *identity = "identity name=Big_Card uuid=7";
    static const char *const GOOD[] = {"vulkan", "vulkan:0", "vulkan:big",
                                       "vulkan:00000000-0000-0000-0000-000000000007"};
    static const char *const BAD[] = {"vulkan:1", "vulkan:small",
                                      "vulkan:00000000-0000-0000-0000-000000000008"};
    for (size_t i = 0; i < sizeof(GOOD) / sizeof(GOOD[0]); i++) {
        ck_assert_msg(open_device(GOOD[i], identity, &device) == PLM_OK, "%s", error.msg);
        ck_assert_str_eq(plm_device_caps(device)->name, "Big Card");
        ck_assert_uint_eq(plm_device_close(device), 0);
    }
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++) {
        ck_assert_int_eq(open_device(BAD[i], identity, &device), PLM_ERR_NOT_FOUND);
        ck_assert_ptr_nonnull(strstr(error.msg, "Big Card"));
    }
    fixture_end();
}
END_TEST

START_TEST(a_card_with_its_own_memory_computes_through_rings)
{
    struct plm_device *device = ready_device("vulkan", DISCRETE "budget true");
    struct plm_slab slab;
    struct plm_mem_info before;
    struct plm_mem_info info;
    ck_assert(!plm_device_caps(device)->unified);
    ck_assert_int_eq(plm_device_query_free(device, &before), PLM_OK);
    ck_assert_uint_eq(before.total_bytes, 512 * MIB); // the large heap, not the first
    ck_assert_int_eq(plm_device_alloc(device, PLM_SLAB_DEVICE, 100 * MIB, &slab), PLM_OK);
    ck_assert_ptr_null(slab.host);
    ck_assert_int_eq(plm_device_query_free(device, &info), PLM_OK);
    ck_assert_uint_eq(before.free_bytes - info.free_bytes, 100 * MIB);
    plm_device_free(device, &slab);
    ck_assert_int_eq(plm_device_alloc(device, PLM_SLAB_PINNED, MIB, &slab), PLM_OK);
    ck_assert_ptr_nonnull(slab.host);
    plm_device_free(device, &slab);
    ck_assert_int_eq(work(device), PLM_OK);
    ck_assert_uint_eq(plm_device_close(device), 0);
    fixture_end(); // with no misuse: nothing invisible was mapped
}
END_TEST

START_TEST(a_small_window_is_not_taken_for_the_card)
{
    // All of the card's memory can be mapped: still not through the window that stands first.
    struct plm_device *device = ready_device(
        "vulkan", "heap 0 size=16MiB device-local=1; heap 1 size=512MiB device-local=1;"
                  "heap 2 size=512MiB; memtype 0 DVC; memtype 1 DVC; memtype 2 VCK;"
                  "identity type=discrete");
    struct plm_mem_info info;
    ck_assert_int_eq(plm_device_query_free(device, &info), PLM_OK);
    ck_assert_uint_eq(info.total_bytes, 512 * MIB);
    ck_assert_int_eq(work(device), PLM_OK);
    ck_assert_uint_eq(plm_device_close(device), 0);
    fixture_end();
}
END_TEST

START_TEST(budgets_that_lie_are_bounded)
{
    static const struct {
        const char *lie;
        uint64_t most; // free bytes that may be believed
        uint64_t least;
        enum plm_confidence confidence;
    } CASES[] = {
        {"budget true", 512 * MIB, 490 * MIB, PLM_CONFIDENCE_MEDIUM},
        {"budget none", 512 * MIB, 1, PLM_CONFIDENCE_LOW},
        {"budget double", 512 * MIB, 1, PLM_CONFIDENCE_LOW},
        {"budget max", 512 * MIB, 1, PLM_CONFIDENCE_LOW},
        {"budget zero", 512 * MIB, 0, PLM_CONFIDENCE_LOW},
        {"budget 100MiB", 100 * MIB, 50 * MIB, PLM_CONFIDENCE_MEDIUM},
        {"budget true; heap 0 neighbour=400MiB", 112 * MIB, 80 * MIB, PLM_CONFIDENCE_MEDIUM},
        {"budget true; heap 0 neighbour=600MiB", 1, 0, PLM_CONFIDENCE_MEDIUM},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        char text[512];
        struct plm_device *device = NULL;
        struct plm_mem_info info;
        // The rings are there before the neighbour comes.
        const char *begin =
            strcmp(CASES[i].lie, "budget none") == 0 ? "budget none" : "budget true";
        snprintf(text, sizeof(text), DISCRETE "%s", begin);
        ck_assert_msg(open_device("vulkan", text, &device) == PLM_OK, "%s", error.msg);
        snprintf(text, sizeof(text), DISCRETE "%s", CASES[i].lie);
        rules(text);
        ck_assert_int_eq(plm_device_query_free(device, &info), PLM_OK);
        ck_assert_uint_eq(info.total_bytes, 512 * MIB);
        ck_assert_msg(info.free_bytes <= CASES[i].most && info.free_bytes >= CASES[i].least,
                      "%s: %" PRIu64 " bytes free", CASES[i].lie, info.free_bytes);
        ck_assert_msg(info.confidence == CASES[i].confidence, "%s: confidence %d", CASES[i].lie,
                      (int)info.confidence);
        ck_assert_uint_eq(plm_device_close(device), 0);
    }
    fixture_end();
}
END_TEST

START_TEST(a_stale_budget_does_not_hide_our_own_slabs)
{
    struct plm_device *device = NULL;
    struct plm_slab slab;
    struct plm_mem_info before;
    struct plm_mem_info after;
    ck_assert_int_eq(open_device("vulkan", DISCRETE "budget stale", &device), PLM_OK);
    ck_assert_int_eq(plm_device_query_free(device, &before), PLM_OK);
    ck_assert_int_eq(plm_device_alloc(device, PLM_SLAB_DEVICE, 64 * MIB, &slab), PLM_OK);
    ck_assert_int_eq(plm_device_query_free(device, &after), PLM_OK);
    ck_assert_uint_ge(before.free_bytes, after.free_bytes + 64 * MIB);
    plm_device_free(device, &slab);
    ck_assert_uint_eq(plm_device_close(device), 0);
    fixture_end();
}
END_TEST

START_TEST(slabs_keep_within_each_limit)
{
    struct plm_device *device =
        ready_device("vulkan", DISCRETE "limit max-allocation=96MiB max-buffer=64MiB");
    struct plm_slab slab;
    ck_assert_uint_le(plm_device_caps(device)->max_slab_bytes, 64 * MIB);
    ck_assert_uint_ge(plm_device_caps(device)->max_slab_bytes, 62 * MIB);
    ck_assert_int_eq(plm_device_alloc(device, PLM_SLAB_DEVICE, 128 * MIB, &slab),
                     PLM_ERR_TOO_LARGE);
    ck_assert_int_eq(
        plm_device_alloc(device, PLM_SLAB_DEVICE, plm_device_caps(device)->max_slab_bytes, &slab),
        PLM_OK);
    plm_device_free(device, &slab);
    ck_assert_uint_eq(plm_device_close(device), 0);
    fixture_end();
}
END_TEST

START_TEST(over_allocation_is_forbidden_where_it_can_be_and_paging_never_asked_for)
{
    struct plm_device *device = NULL;
    ck_assert_int_eq(open_device("vulkan",
                                 DISCRETE "show extension VK_AMD_memory_overallocation_behavior;"
                                          "show extension VK_EXT_pageable_device_local_memory;"
                                          "show extension VK_EXT_memory_priority",
                                 &device),
                     PLM_OK);
    ck_assert_uint_eq(count("overallocation_disallowed"), 1);
    ck_assert_uint_eq(count("pretended_enabled"), 1); // that one alone
    ck_assert_uint_eq(plm_device_close(device), 0);
    ck_assert_int_eq(open_device("vulkan", DISCRETE, &device), PLM_OK);
    ck_assert_uint_eq(count("overallocation_disallowed"), 1);
    ck_assert_uint_eq(plm_device_close(device), 0);
    fixture_end();
}
END_TEST

START_TEST(a_device_with_little_memory_opens_or_says_why)
{
    struct plm_device *device = NULL;
    struct plm_slab slab;
    struct plm_mem_info info;
    // 64 MiB of the card are free.
    int rc = open_device("vulkan", DISCRETE "budget true; heap 0 neighbour=448MiB", &device);
    ck_assert_msg(rc == PLM_OK, "%s", error.msg);
    ck_assert_int_eq(plm_device_query_free(device, &info), PLM_OK);
    ck_assert_uint_le(info.free_bytes, 64 * MIB);
    ck_assert_int_eq(plm_device_alloc(device, PLM_SLAB_DEVICE, 65 * MIB, &slab),
                     PLM_ERR_OUT_OF_DEVICE);
    ck_assert_int_eq(work(device), PLM_ERR_UNSUPPORTED); // no kernel was warmed up
    ck_assert_int_eq(warm_up(device), PLM_OK);
    ck_assert_int_eq(work(device), PLM_OK);
    ck_assert_uint_eq(plm_device_close(device), 0);
    fixture_end();
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("view");
    tcase_add_test(cases, each_missing_feature_is_named);
    tcase_add_test(cases, old_drivers_and_devices_without_compute_are_named);
    tcase_add_test(cases, devices_are_found_by_index_name_and_uuid);
    tcase_add_test(cases, a_card_with_its_own_memory_computes_through_rings);
    tcase_add_test(cases, a_small_window_is_not_taken_for_the_card);
    tcase_add_test(cases, budgets_that_lie_are_bounded);
    tcase_add_test(cases, a_stale_budget_does_not_hide_our_own_slabs);
    tcase_add_test(cases, slabs_keep_within_each_limit);
    tcase_add_test(cases, over_allocation_is_forbidden_where_it_can_be_and_paging_never_asked_for);
    tcase_add_test(cases, a_device_with_little_memory_opens_or_says_why);
    return fixture_main(cases);
}
