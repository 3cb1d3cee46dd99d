// SPDX-License-Identifier: Apache-2.0
// The Vulkan backend's host side on this machine's first Vulkan device; exit 77 where there is
// none. Every case runs with slabs that the host sees, where it can, and through the rings.
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/vulkan/device.h"
#include "backends/vulkan/list.h"
#include "backends/vulkan/slabs.h"
#include "backends/vulkan/vulkan.h"
#include "backends/vulkan/warm.h"
#include "core/device.h"
#include "tests/support/suite.h"
#include "tests/support/vulkan.h"

#define MIB (1ull << 20)

static const char *const ids[] = {"vulkan:0", "vulkan:0,host_visible=off"};
#define IDS ((int)(sizeof(ids) / sizeof(ids[0])))

static struct plm_host *host;
static struct plm_device *device;

static void open_device(int i)
{
    struct plm_error err = {0};
    host = plm_host_create(0);
    const struct plm_device_opts opts = {.host = host, .max_dispatches = 64};
    ck_assert_msg(plm_device_open(ids[i], &opts, &device, &err) == PLM_OK, "%s", err.msg);
}

static void close_device(void)
{
    ck_assert_uint_eq(plm_device_close(device), 0);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}

static struct plm_slab slab_of(uint64_t bytes)
{
    struct plm_slab slab;
    ck_assert_int_eq(plm_device_alloc(device, PLM_SLAB_DEVICE, bytes, &slab), PLM_OK);
    return slab;
}

static unsigned char *pattern(uint64_t bytes, unsigned char seed)
{
    unsigned char *p = malloc(bytes);
    ck_assert_ptr_nonnull(p);
    for (uint64_t i = 0; i < bytes; i++)
        p[i] = (unsigned char)(i * 7 + (i >> 8) * 13 + seed);
    return p;
}

START_TEST(capabilities_are_those_of_the_device)
{
    open_device(_i);
    const struct plm_caps *caps = plm_device_caps(device);
    ck_assert(caps->name[0] != '\0');
    ck_assert_uint_eq(strlen(caps->uuid), 36);
    ck_assert_str_eq(caps->device_class, "vulkan-p16");
    ck_assert_uint_eq(caps->max_slab_bytes % caps->granularity_bytes, 0);
    ck_assert_int_eq(caps->commit, PLM_COMMIT_SOFT);
    ck_assert_uint_eq(caps->few_rows, 8);
    // By the name's first word and by the UUID it is the same one.
    char id[96], uuid[40];
    strcpy(uuid, caps->uuid);
    close_device();
    host = plm_host_create(0);
    const struct plm_device_opts opts = {.host = host, .max_dispatches = 64};
    snprintf(id, sizeof(id), "vulkan:%s", uuid);
    ck_assert_int_eq(plm_device_open(id, &opts, &device, NULL), PLM_OK);
    ck_assert_str_eq(plm_device_caps(device)->uuid, uuid);
    close_device();
}
END_TEST

START_TEST(what_is_copied_in_comes_out)
{
    open_device(_i);
    const uint64_t bytes = 40 * MIB + 123;
    struct plm_slab slab = slab_of(bytes);
    unsigned char *in = pattern(bytes, 1), *out = malloc(bytes);
    // Through the load ring, in pieces, and after empty_cache through the serving ring.
    for (int round = 0; round < 2; round++) {
        memset(out, 0, bytes);
        in[5]++;
        ck_assert_int_eq(plm_device_copy_in(device, slab.addr, in, bytes), PLM_OK);
        ck_assert_int_eq(plm_device_copy_out(device, out, slab.addr, bytes), PLM_OK);
        ck_assert_int_eq(memcmp(in, out, bytes), 0);
        uint64_t released = 0;
        ck_assert_int_eq(plm_device_empty_cache(device, &released, NULL), PLM_OK);
        ck_assert_uint_eq(released, round == 0 && slab.host == NULL ? 64 * MIB : 0);
    }
    ck_assert_int_eq(plm_device_copy_in(device, slab.addr + bytes - 4, in, 5), PLM_ERR_INVALID);
    plm_device_free(device, &slab);
    free(in);
    free(out);
    close_device();
}
END_TEST

// The ring is given back while what went through it may still travel.
START_TEST(empty_cache_loses_no_copy)
{
    open_device(1);
    const uint64_t bytes = 64 * MIB;
    struct plm_slab slab = slab_of(bytes);
    unsigned char *in = pattern(bytes, 3), *out = malloc(bytes);
    ck_assert_int_eq(plm_device_copy_in(device, slab.addr, in, bytes), PLM_OK);
    uint64_t released = 0;
    ck_assert_int_eq(plm_device_empty_cache(device, &released, NULL), PLM_OK);
    ck_assert_uint_eq(released, 64 * MIB);
    ck_assert_int_eq(plm_device_copy_out(device, out, slab.addr, bytes), PLM_OK);
    ck_assert_int_eq(memcmp(in, out, bytes), 0);
    plm_device_free(device, &slab);
    free(in);
    free(out);
    close_device();
}
END_TEST

// A copy that waits for a slab that is freed leaves the whole of its segment to the next ones.
START_TEST(a_forgotten_copy_leaves_its_room)
{
    open_device(1);
    const uint64_t bytes = 8 * MIB;
    struct plm_slab gone = slab_of(4096), slab = slab_of(bytes);
    unsigned char *in = pattern(bytes, 5), *out = malloc(bytes);
    ck_assert_int_eq(plm_device_empty_cache(device, &(uint64_t){0}, NULL), PLM_OK);
    ck_assert_int_eq(plm_device_copy_in(device, gone.addr, in, 4096), PLM_OK);
    plm_device_free(device, &gone);
    ck_assert_int_eq(plm_device_copy_in(device, slab.addr, in, bytes), PLM_OK);
    ck_assert_int_eq(plm_device_copy_out(device, out, slab.addr, bytes), PLM_OK);
    ck_assert_int_eq(memcmp(in, out, bytes), 0);
    plm_device_free(device, &slab);
    free(in);
    free(out);
    close_device();
}
END_TEST

START_TEST(many_small_copies_keep_their_order)
{
    open_device(_i);
    const uint64_t bytes = 64 * 1024;
    struct plm_slab slab = slab_of(bytes);
    unsigned char *want = pattern(bytes, 0), *out = malloc(bytes);
    ck_assert_int_eq(plm_device_copy_in(device, slab.addr, want, bytes), PLM_OK);
    // Overlapping pieces of odd sizes, far more than a segment holds copies or bytes.
    uint64_t state = 1;
    for (int i = 0; i < 3000; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const uint64_t at = (state >> 33) % (bytes - 4096), n = 1 + (state >> 20) % 4095;
        memset(want + at, i, n);
        ck_assert_int_eq(plm_device_copy_in(device, slab.addr + at, want + at, n), PLM_OK);
    }
    ck_assert_int_eq(plm_device_copy_out(device, out, slab.addr, bytes), PLM_OK);
    ck_assert_int_eq(memcmp(want, out, bytes), 0);
    plm_device_free(device, &slab);
    free(want);
    free(out);
    close_device();
}
END_TEST

START_TEST(copies_stand_between_the_lists_around_them)
{
    open_device(_i);
    struct plm_error err = {0};
    const struct plm_kernel_needs needs = {.weight_types = 1u << PLM_TYPE_F32,
                                           .kv_types = 1u << PLM_TYPE_F16};
    ck_assert_msg(plm_device_warm_up(device, &needs, &err) == PLM_OK, "%s", err.msg);
    struct plm_slab slab = slab_of(2 * MIB);
    uint64_t value = 0;
    uint32_t out = 0;
    for (uint32_t i = 0; i < 50; i++) {
        // A list copies one word to another; its source is written before, its result read after.
        const struct plm_copy_args copy = {.dst = slab.addr + 256, .src = slab.addr, .n_words = 1};
        ck_assert_int_eq(plm_device_copy_in(device, slab.addr, &i, sizeof(i)), PLM_OK);
        ck_assert_int_eq(plm_launch_copy(device, &copy), PLM_OK);
        ck_assert_int_eq(plm_device_submit(device, &value), PLM_OK);
        if (i % 3 != 0)
            continue; // the next round's copy is the first to wait for this list
        ck_assert_int_eq(plm_device_copy_out(device, &out, slab.addr + 256, 4), PLM_OK);
        ck_assert_uint_eq(out, i);
    }
    ck_assert_int_eq(plm_device_wait(device, value, -1), PLM_OK);
    ck_assert_int_eq(plm_device_copy_out(device, &out, slab.addr + 256, 4), PLM_OK);
    ck_assert_uint_eq(out, 49);
    plm_device_free(device, &slab);
    close_device();
}
END_TEST

START_TEST(slabs_are_counted_and_bounded)
{
    open_device(_i);
    const struct plm_caps *caps = plm_device_caps(device);
    struct plm_mem_info before, during, after;
    ck_assert_int_eq(plm_device_query_free(device, &before), PLM_OK);
    struct plm_slab slab = slab_of(64 * MIB), none;
    ck_assert_int_eq(plm_device_query_free(device, &during), PLM_OK);
    ck_assert_uint_ge(slab.taken_bytes, 64 * MIB);
    ck_assert_uint_le(during.free_bytes, before.free_bytes - 60 * MIB);
    ck_assert_uint_ge(during.process_use_bytes, before.process_use_bytes + 60 * MIB);
    plm_device_free(device, &slab);
    ck_assert_int_eq(plm_device_query_free(device, &after), PLM_OK);
    ck_assert_uint_ge(after.free_bytes, during.free_bytes + 60 * MIB);
#ifndef __SANITIZE_ADDRESS__ // which keeps what a CPU driver freed, to catch whoever uses it
    ck_assert_uint_le(after.process_use_bytes, during.process_use_bytes - 60 * MIB);
#endif
    ck_assert_int_eq(plm_device_alloc(device, PLM_SLAB_DEVICE, caps->max_slab_bytes + 1, &none),
                     PLM_ERR_TOO_LARGE);
    struct plm_slab pinned;
    ck_assert_int_eq(plm_device_alloc(device, PLM_SLAB_PINNED, 1000, &pinned), PLM_OK);
    ck_assert_ptr_nonnull(pinned.host);
    memset(pinned.host, 1, 1000);
    plm_device_free(device, &pinned);
    close_device();
}
END_TEST

// The backend's own device, whose slabs the host does not see.
static struct plm_backend_device *open_rings(void)
{
    static struct plm_vk_opts how; // valid as long as the device
    struct plm_backend_device *dev = NULL;
    host = plm_host_create(0);
    ck_assert_int_eq(plm_vk_opts_parse("0,host_visible=off", &how, NULL), PLM_OK);
    const struct plm_device_opts opts = {
        .host = host, .clock = plm_clock_system(), .max_dispatches = 64, .backend_opts = &how};
    ck_assert_int_eq(plm_vulkan_backend.open(&opts, &dev, NULL), PLM_OK);
    return dev;
}

// Memory of the host is given to a device that shares it, and to no other.
START_TEST(host_memory_is_imported)
{
    struct plm_backend_device *dev = open_rings();
    const bool can = dev->physical.unified && dev->physical.host_import;
    const uint64_t bytes = MIB;
    unsigned char *mine = aligned_alloc(bytes, 2 * bytes), *want = pattern(bytes, 9);
    const uint64_t taken = atomic_load(&dev->taken_bytes);
    struct plm_slab slab, other;
    ck_assert_int_eq(plm_vk_alloc(dev, PLM_SLAB_IMPORTED, bytes, mine, &slab),
                     can ? PLM_OK : PLM_ERR_UNSUPPORTED);
    if (can) {
        ck_assert_ptr_eq(slab.host, mine);
        ck_assert_uint_eq(slab.taken_bytes, 0);
        ck_assert_uint_eq(atomic_load(&dev->taken_bytes), taken);
        ck_assert_int_eq(plm_vk_alloc(dev, PLM_SLAB_IMPORTED, bytes, mine + 1, &other),
                         PLM_ERR_INVALID);
        ck_assert_int_eq(plm_vk_alloc(dev, PLM_SLAB_IMPORTED, bytes - 1, mine, &other),
                         PLM_ERR_INVALID);
        // The device reads what the host wrote.
        const struct plm_kernel_needs needs = {.weight_types = 1u << PLM_TYPE_F32,
                                               .kv_types = 1u << PLM_TYPE_F16};
        ck_assert_int_eq(plm_vk_warm_up(dev, &needs, NULL), PLM_OK);
        ck_assert_int_eq(plm_vk_alloc(dev, PLM_SLAB_DEVICE, bytes, NULL, &other), PLM_OK);
        memcpy(mine, want, bytes);
        const struct plm_copy_args copy = {
            .dst = other.addr, .src = slab.addr, .n_words = bytes / 4};
        uint64_t value;
        ck_assert_int_eq(plm_vk_launch(dev, PLM_OP_COPY, 1, &copy, sizeof(copy)), PLM_OK);
        ck_assert_int_eq(plm_vk_submit(dev, &value), PLM_OK);
        memset(want, 0, bytes);
        ck_assert_int_eq(plm_vk_copy_out(dev, want, other.addr, bytes), PLM_OK);
        ck_assert_int_eq(memcmp(want, mine, bytes), 0);
        plm_vk_free(dev, &slab);
        plm_vk_free(dev, &other);
    }
    dev->physical.unified = false;
    ck_assert_int_eq(plm_vk_alloc(dev, PLM_SLAB_IMPORTED, bytes, mine, &slab), PLM_ERR_UNSUPPORTED);
    plm_vulkan_backend.close(dev);
    ck_assert_int_eq(plm_host_destroy(host), 0);
    free(mine);
    free(want);
}
END_TEST

static VkResult no_end(VkDevice handle, const VkSemaphoreWaitInfo *info, uint64_t timeout)
{
    (void)handle, (void)info, (void)timeout;
    return VK_TIMEOUT;
}

static VkResult stands_still(VkDevice handle, VkSemaphore semaphore, uint64_t *value)
{
    (void)handle, (void)semaphore;
    *value = 0;
    return VK_SUCCESS;
}

static VkResult never_idle(VkDevice handle)
{
    (void)handle;
    ck_abort_msg("a hanging device is waited for");
    return VK_SUCCESS;
}

// A device that does not end what it runs is given up once, not at every slab, and closes.
START_TEST(a_hanging_device_is_given_up)
{
    struct plm_backend_device *dev = open_rings();
    struct plm_slab slab;
    uint64_t value;
    uint32_t word = 1;
    ck_assert_int_eq(plm_vk_alloc(dev, PLM_SLAB_DEVICE, MIB, NULL, &slab), PLM_OK);
    ck_assert_int_eq(plm_vk_copy_in(dev, slab.addr, &word, 4), PLM_OK);
    ck_assert_int_eq(plm_vk_submit(dev, &value), PLM_OK);
    ck_assert_int_eq(plm_vk_wait(dev, value, -1), PLM_OK);
    dev->vk->WaitSemaphores = no_end;
    dev->vk->GetSemaphoreCounterValue = stands_still;
    ck_assert_int_eq(plm_vk_wait(dev, value, 1000), PLM_ERR_TIMEOUT);
    ck_assert_int_eq(plm_vulkan_backend.status(dev), PLM_OK); // whoever waits decides
    plm_vk_free(dev, &slab);
    ck_assert_int_eq(plm_vulkan_backend.status(dev), PLM_ERR_LOST);
    ck_assert_int_eq(plm_vk_wait(dev, value, -1), PLM_ERR_LOST);
    ck_assert_uint_eq(dev->slabs.n, 0);
    dev->vk->DeviceWaitIdle = never_idle;
    plm_vulkan_backend.close(dev);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}
END_TEST

static char label[80];

static void catch_label(VkQueue queue, const VkDebugUtilsLabelEXT *info)
{
    (void)queue;
    strncpy(label, info->pLabelName, sizeof(label) - 1);
}

// A profiler's trace tells phases and steps apart.
START_TEST(the_queue_is_labelled)
{
    host = plm_host_create(0);
    struct plm_backend_device *dev;
    const struct plm_device_opts opts = {
        .host = host, .clock = plm_clock_system(), .max_dispatches = 64};
    ck_assert_int_eq(plm_vulkan_backend.open(&opts, &dev, NULL), PLM_OK);
    plm_vulkan_backend.mark(dev, PLM_PHASE_LOAD, 0); // the driver's own function
    dev->vk->QueueInsertDebugUtilsLabelEXT = catch_label;
    plm_vulkan_backend.mark(dev, PLM_PHASE_LOAD, 0);
    ck_assert_str_eq(label, "plimsoll: load");
    plm_vulkan_backend.mark(dev, PLM_PHASE_SERVE, 0);
    ck_assert_str_eq(label, "plimsoll: serve");
    plm_vulkan_backend.mark(dev, PLM_PHASE_SLEEP, 0);
    ck_assert_str_eq(label, "plimsoll: sleep");
    plm_vulkan_backend.mark(dev, PLM_PHASE_SERVE, 17);
    ck_assert_str_eq(label, "plimsoll: step 17");
    dev->vk->QueueInsertDebugUtilsLabelEXT = NULL; // without the extension
    plm_vulkan_backend.mark(dev, PLM_PHASE_SERVE, 18);
    ck_assert_str_eq(label, "plimsoll: step 17");
    plm_vulkan_backend.close(dev);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}
END_TEST

// A heap is never taken beyond its size, whatever the driver would give.
START_TEST(the_heap_ends)
{
    host = plm_host_create(0);
    struct plm_backend_device *dev;
    const struct plm_device_opts opts = {
        .host = host, .clock = plm_clock_system(), .max_dispatches = 64};
    ck_assert_int_eq(plm_vulkan_backend.open(&opts, &dev, NULL), PLM_OK);
    struct plm_slab a, b;
    dev->physical.heap_bytes = 4 * dev->caps.granularity_bytes;
    const uint64_t taken = atomic_load(&dev->taken_bytes);
    ck_assert_int_eq(plm_vk_alloc(dev, PLM_SLAB_DEVICE, dev->physical.heap_bytes + 1, NULL, &a),
                     PLM_ERR_TOO_LARGE);
    if (taken == 0) {
        ck_assert_int_eq(
            plm_vk_alloc(dev, PLM_SLAB_DEVICE, 3 * dev->caps.granularity_bytes, NULL, &a), PLM_OK);
        ck_assert_int_eq(
            plm_vk_alloc(dev, PLM_SLAB_ELASTIC, 2 * dev->caps.granularity_bytes, NULL, &b),
            PLM_ERR_OUT_OF_DEVICE);
        plm_vk_free(dev, &a);
    }
    ck_assert_uint_eq(atomic_load(&dev->taken_bytes), taken);
    plm_vulkan_backend.close(dev);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}
END_TEST

START_TEST(a_lost_device_opens_again)
{
    open_device(_i);
    struct plm_slab slab = slab_of(MIB);
    plm_device_lose(device);
    ck_assert_int_eq(plm_device_status(device), PLM_ERR_LOST);
    plm_device_free(device, &slab);
    struct plm_error err = {0};
    ck_assert_msg(plm_device_reopen(device, &err) == PLM_OK, "%s", err.msg);
    slab = slab_of(MIB);
    uint32_t word = 7, out = 0;
    ck_assert_int_eq(plm_device_copy_in(device, slab.addr, &word, 4), PLM_OK);
    ck_assert_int_eq(plm_device_copy_out(device, &out, slab.addr, 4), PLM_OK);
    ck_assert_uint_eq(out, 7);
    plm_device_free(device, &slab);
    close_device();
}
END_TEST

static bool fails_cleanly(uint64_t nth)
{
    struct plm_error err = {0};
    struct plm_device *d;
    host = plm_host_create(0);
    const struct plm_device_opts opts = {.host = host, .max_dispatches = 64};
    plm_host_fail_nth(host, nth, 0);
    int rc = plm_device_open(ids[1], &opts, &d, &err);
    ck_assert_msg(rc == PLM_OK || (rc == PLM_ERR_NOMEM_HOST && err.msg[0] != '\0'), "%d: %s", rc,
                  err.msg);
    if (rc == PLM_OK)
        plm_device_close(d);
    ck_assert_int_eq(plm_host_destroy(host), 0);
    return rc != PLM_OK;
}

START_TEST(opening_survives_lost_allocations)
{
    uint64_t n = 1;
    while (fails_cleanly(n))
        n++;
    ck_assert_uint_gt(n, 8);
}
END_TEST

int main(void)
{
    if (!vulkan_there_is_a_device())
        return 77;
    TCase *tc = tcase_create("all");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, capabilities_are_those_of_the_device, 0, IDS);
    tcase_add_loop_test(tc, what_is_copied_in_comes_out, 0, IDS);
    tcase_add_test(tc, empty_cache_loses_no_copy);
    tcase_add_test(tc, a_forgotten_copy_leaves_its_room);
    tcase_add_loop_test(tc, many_small_copies_keep_their_order, 0, IDS);
    tcase_add_loop_test(tc, copies_stand_between_the_lists_around_them, 0, IDS);
    tcase_add_loop_test(tc, slabs_are_counted_and_bounded, 0, IDS);
    tcase_add_test(tc, host_memory_is_imported);
    tcase_add_test(tc, a_hanging_device_is_given_up);
    tcase_add_test(tc, the_queue_is_labelled);
    tcase_add_test(tc, the_heap_ends);
    tcase_add_loop_test(tc, a_lost_device_opens_again, 0, IDS);
    tcase_add_test(tc, opening_survives_lost_allocations);
    Suite *suite = suite_create("vulkan_device");
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
