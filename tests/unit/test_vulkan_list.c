// SPDX-License-Identifier: Apache-2.0
// Lists of the Vulkan backend on this machine's first Vulkan device; exit 77 where there is none:
// what is recorded and what is submitted again, watchdogs, failing submits, the pipeline cache.
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/vulkan/device.h"
#include "backends/vulkan/list.h"
#include "backends/vulkan/slabs.h"
#include "backends/vulkan/vulkan.h"
#include "backends/vulkan/warm.h"
#include "tests/support/suite.h"
#include "tests/support/vulkan.h"

#define WORDS   (1u << 20)
#define WAIT_NS INT64_C(30000000000)

static struct plm_host *host;
static const void *opts_of_device;
static struct plm_backend_device *dev;
static struct plm_slab slab; // three areas of WORDS words
static char warning[512];    // the last one

static const struct plm_kernel_needs no_weights = {0};

static void keep_warning(void *ctx, int level, const char *line)
{
    (void)ctx;
    if (level == PLM_LOG_WARN)
        snprintf(warning, sizeof(warning), "%s", line);
}
static const struct plm_log watched = {.write = keep_warning, .level = PLM_LOG_WARN};

static void open_device(const char *options)
{
    struct plm_error err = {0};
    warning[0] = '\0';
    host = plm_host_create(0);
    ck_assert_msg(plm_vulkan_backend.configure(host, options, &opts_of_device, &err) == PLM_OK,
                  "%s", err.msg);
    const struct plm_device_opts opts = {.host = host,
                                         .clock = plm_clock_system(),
                                         .log = &watched,
                                         .max_dispatches = 64,
                                         .backend_opts = opts_of_device};
    ck_assert_msg(plm_vulkan_backend.open(&opts, &dev, &err) == PLM_OK, "%s", err.msg);
    ck_assert_msg(plm_vk_warm_up(dev, &no_weights, &err) == PLM_OK, "%s", err.msg);
    ck_assert_int_eq(plm_vk_alloc(dev, PLM_SLAB_DEVICE, 3 * WORDS * 4, NULL, &slab), PLM_OK);
}

static void close_device(void)
{
    plm_vk_free(dev, &slab);
    plm_vulkan_backend.close(dev);
    plm_vulkan_backend.release(host, opts_of_device);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}

static uint64_t area(uint32_t i)
{
    return slab.addr + (uint64_t)i * WORDS * 4;
}

static void copy(uint32_t from, uint32_t to, uint64_t words)
{
    const struct plm_copy_args a = {area(from), area(to), words};
    ck_assert_int_eq(plm_vk_launch(dev, PLM_OP_COPY, 1, &a, sizeof(a)), PLM_OK);
}

static void fill(uint32_t to, uint32_t seed)
{
    const struct plm_fill_args a = {.dst = area(to), .n_words = WORDS, .seed = seed};
    ck_assert_int_eq(plm_vk_launch(dev, PLM_OP_FILL, 1, &a, sizeof(a)), PLM_OK);
}

static void finish(void)
{
    uint64_t value;
    ck_assert_int_eq(plm_vk_submit(dev, &value), PLM_OK);
    ck_assert_uint_eq(value, dev->timeline.value);
    ck_assert_int_eq(plm_vk_wait(dev, value, WAIT_NS), PLM_OK);
}

// What the list did since the last call.
static struct plm_vk_list_counters counted(void)
{
    static struct plm_vk_list_counters last;
    struct plm_vk_list_counters now, ret;
    plm_vk_list_counters(dev, &now);
    ret = (struct plm_vk_list_counters){now.recorded - last.recorded, now.repeated - last.repeated,
                                        now.parts - last.parts};
    last = now;
    return ret;
}

static void expect_counts(uint64_t recorded, uint64_t repeated)
{
    const struct plm_vk_list_counters c = counted();
    ck_assert_uint_eq(c.recorded, recorded);
    ck_assert_uint_eq(c.repeated, repeated);
}

// ---- recorded once ----

static uint32_t word_of(uint32_t i)
{
    uint32_t word;
    ck_assert_int_eq(plm_vk_copy_out(dev, &word, area(i), 4), PLM_OK);
    return word;
}

static void put_word(uint32_t i, uint32_t word)
{
    ck_assert_int_eq(plm_vk_copy_in(dev, area(i), &word, 4), PLM_OK);
}

START_TEST(a_list_that_repeats_is_not_recorded_again)
{
    static const char *const options[] = {"0", "0,host_visible=off", "0,submit_ms=1"};
    open_device(options[_i]);
    counted();
    for (uint32_t step = 1; step <= 5; step++) {
        put_word(0, step * 17);
        copy(0, 1, WORDS);
        plm_vk_barrier(dev);
        copy(1, 2, WORDS);
        finish();
        // The same commands, over what was copied in since.
        ck_assert_uint_eq(word_of(2), step * 17);
        // With a watchdog, what was learned of the device may cut the list anew.
        if (_i < 2)
            expect_counts(step == 1, step > 1);
    }
    close_device();
}
END_TEST

START_TEST(a_list_that_differs_is_recorded)
{
    open_device("0");
    counted();
    copy(0, 1, 16);
    copy(1, 2, 16);
    finish();
    expect_counts(1, 0);
    copy(0, 1, 16); // a barrier more
    plm_vk_barrier(dev);
    copy(1, 2, 16);
    finish();
    expect_counts(1, 0);
    copy(0, 1, 16); // a word more
    copy(1, 2, 17);
    finish();
    expect_counts(1, 0);
    copy(0, 1, 16); // shorter
    finish();
    expect_counts(1, 0);
    copy(0, 1, 16); // the first one, which is still there; a barrier at an end means nothing
    copy(1, 2, 16);
    plm_vk_barrier(dev);
    finish();
    expect_counts(0, 1);
    copy(1, 2, 5); // a fifth list takes the place of the one that went longest ago: the second
    finish();
    expect_counts(1, 0);
    copy(0, 1, 16);
    plm_vk_barrier(dev);
    copy(1, 2, 16);
    finish();
    expect_counts(1, 0);
    copy(0, 1, 16);
    copy(1, 2, 16);
    finish();
    expect_counts(0, 1);
    close_device();
}
END_TEST

START_TEST(lists_in_flight_follow_each_other)
{
    open_device("0");
    uint64_t value = 0;
    for (uint32_t i = 0; i < 12; i++) { // more than are kept, and each once more at once
        for (int twice = 0; twice < 2; twice++) {
            fill(i % 2, i);
            plm_vk_barrier(dev);
            copy(i % 2, 2, WORDS - i);
            ck_assert_int_eq(plm_vk_submit(dev, &value), PLM_OK);
        }
    }
    ck_assert_uint_eq(value, dev->timeline.value);
    ck_assert_int_eq(plm_vk_wait(dev, value, WAIT_NS), PLM_OK);
    ck_assert_uint_eq(word_of(2), word_of(1));
    // Nothing launched is a submit as well.
    ck_assert_int_eq(plm_vk_submit(dev, &value), PLM_OK);
    ck_assert_int_eq(plm_vk_wait(dev, value, WAIT_NS), PLM_OK);
    ck_assert_int_eq(plm_vk_wait(dev, value + 1, 1000000), PLM_ERR_TIMEOUT);
    close_device();
}
END_TEST

// ---- watchdogs ----

// A chain in which every step needs the one before, over all words. Returns area 1.
static float *run_chain(const char *options, struct plm_vk_list_counters *ret)
{
    float *words = malloc(WORDS * 4);
    ck_assert_ptr_nonnull(words);
    open_device(options);
    for (uint32_t i = 0; i < WORDS; i++)
        words[i] = (float)(i % 1009) * 0.37f;
    for (uint32_t i = 0; i < 2; i++)
        ck_assert_int_eq(plm_vk_copy_in(dev, area(i), words + i, (WORDS - i) * 4), PLM_OK);
    counted();
    for (uint32_t i = 0; i < 6; i++) {
        const struct plm_add_args a = {area(i % 3), area((i + 1) % 3), area((i + 2) % 3), 16,
                                       WORDS / 16};
        ck_assert_int_eq(plm_vk_launch(dev, PLM_OP_ADD, 1, &a, sizeof(a)), PLM_OK);
        ck_assert_int_eq(plm_vk_barrier(dev), PLM_OK);
    }
    finish();
    *ret = counted();
    ck_assert_int_eq(plm_vk_copy_out(dev, words, area(1), (WORDS - 1) * 4), PLM_OK);
    close_device();
    return words;
}

START_TEST(parts_change_no_bit)
{
    struct plm_vk_list_counters whole, cut;
    float *want = run_chain("0", &whole), *got = run_chain("0,submit_ms=1", &cut);
    ck_assert_uint_eq(whole.parts, 1);
    // An addition moves 12 MiB, and a millisecond has half a megabyte at first: more parts than
    // there are command buffers, so each is four times as long.
    ck_assert_uint_eq(cut.parts, 6 * 7);
    ck_assert_int_eq(memcmp(want, got, (WORDS - 1) * 4), 0);
    ck_assert(want[12345] > 0);
    free(want);
    free(got);
}
END_TEST

// ---- what is refused ----

START_TEST(kernels_beyond_the_plan_are_refused)
{
    open_device("0");
    const struct plm_get_rows_args a = {.type = PLM_TYPE_Q4_0, .rows = 1, .n_in = 32, .n_out = 16};
    ck_assert_int_eq(plm_vk_launch(dev, PLM_OP_GET_ROWS, 1, &a, sizeof(a)), PLM_ERR_UNSUPPORTED);
    const struct plm_kernel_needs more = {.weight_types = 1ull << PLM_TYPE_Q4_0};
    ck_assert_int_eq(plm_vk_warm_up(dev, &more, NULL), PLM_OK);
    ck_assert_int_eq(plm_vk_launch(dev, PLM_OP_GET_ROWS, 1, &a, sizeof(a)), PLM_OK);
    plm_vk_discard(dev);
    for (uint32_t i = 0; i < 64; i++)
        copy(0, 1, 16);
    const struct plm_copy_args one = {area(0), area(1), 16};
    ck_assert_int_eq(plm_vk_launch(dev, PLM_OP_COPY, 1, &one, sizeof(one)), PLM_ERR_LIMIT);
    finish();
    close_device();
}
END_TEST

START_TEST(steps_take_no_host_memory)
{
    static const char *const options[] = {"0", "0,host_visible=off", "0,submit_ms=1"};
    struct plm_host_stats before, after;
    open_device(options[_i]);
    plm_host_read(host, &before);
    for (uint32_t i = 0; i < 20; i++) {
        put_word(0, i);
        copy(0, 1, WORDS - i % 7);
        finish();
        word_of(1);
    }
    plm_host_read(host, &after);
    ck_assert_uint_eq(after.allocations, before.allocations);
    close_device();
}
END_TEST

// ---- failing submits ----

static PFN_vkQueueSubmit2 real_submit;
static VkResult next_result;

static VKAPI_ATTR VkResult VKAPI_CALL failing_submit(VkQueue queue, uint32_t n,
                                                     const VkSubmitInfo2 *infos, VkFence fence)
{
    const VkResult r = next_result;
    next_result = VK_SUCCESS;
    return r != VK_SUCCESS ? r : real_submit(queue, n, infos, fence);
}

static void fail_next_submit(VkResult result)
{
    real_submit = dev->vk->QueueSubmit2;
    dev->vk->QueueSubmit2 = failing_submit;
    next_result = result;
}

START_TEST(a_submit_without_room_can_be_made_again)
{
    static const VkResult results[] = {VK_ERROR_OUT_OF_DEVICE_MEMORY, VK_ERROR_OUT_OF_HOST_MEMORY};
    uint64_t value;
    open_device("0,host_visible=off");
    put_word(0, 1);
    copy(0, 1, 16);
    finish();
    const uint64_t last = dev->timeline.value;
    put_word(0, 2); // waits for the submit that fails
    copy(0, 1, 16);
    fail_next_submit(results[_i]);
    ck_assert_int_eq(plm_vk_submit(dev, &value), PLM_ERR_OUT_OF_DEVICE);
    ck_assert_uint_eq(dev->timeline.value, last);
    ck_assert_int_eq(plm_vk_submit(dev, &value), PLM_OK);
    ck_assert_uint_eq(value, last + 1);
    ck_assert_int_eq(plm_vk_wait(dev, value, WAIT_NS), PLM_OK);
    ck_assert_uint_eq(word_of(1), 2);
    close_device();
}
END_TEST

START_TEST(a_lost_device_stays_lost)
{
    uint64_t value;
    open_device("0");
    copy(0, 1, 16);
    fail_next_submit(VK_ERROR_DEVICE_LOST);
    ck_assert_int_eq(plm_vk_submit(dev, &value), PLM_ERR_LOST);
    ck_assert_int_eq(plm_vulkan_backend.status(dev), PLM_ERR_LOST);
    ck_assert_int_eq(plm_vk_submit(dev, &value), PLM_ERR_LOST);
    ck_assert_int_eq(plm_vk_wait(dev, 1, 0), PLM_ERR_LOST);
    ck_assert_int_eq(plm_vk_barrier(dev), PLM_ERR_LOST);
    const struct plm_copy_args a = {area(0), area(1), 16};
    ck_assert_int_eq(plm_vk_launch(dev, PLM_OP_COPY, 1, &a, sizeof(a)), PLM_ERR_LOST);
    close_device();
}
END_TEST

static VKAPI_ATTR VkResult VKAPI_CALL no_pipelines(VkDevice device, VkPipelineCache cache,
                                                   uint32_t n,
                                                   const VkComputePipelineCreateInfo *infos,
                                                   const VkAllocationCallbacks *callbacks,
                                                   VkPipeline *ret)
{
    (void)device, (void)cache, (void)n, (void)infos, (void)callbacks, (void)ret;
    return VK_ERROR_OUT_OF_DEVICE_MEMORY;
}

START_TEST(a_pipeline_that_fails_is_named)
{
    struct plm_error err = {0};
    const struct plm_kernel_needs more = {.weight_types = 1ull << PLM_TYPE_Q4_0};
    open_device("0");
    const PFN_vkCreateComputePipelines real = dev->vk->CreateComputePipelines;
    dev->vk->CreateComputePipelines = no_pipelines;
    ck_assert_int_eq(plm_vk_warm_up(dev, &more, &err), PLM_ERR_OUT_OF_DEVICE);
    ck_assert_msg(strstr(err.msg, "get_rows-q4_0") != NULL, "%s", err.msg);
    dev->vk->CreateComputePipelines = real;
    ck_assert_int_eq(plm_vk_warm_up(dev, &more, &err), PLM_OK);
    close_device();
}
END_TEST

// ---- the pipeline cache ----

static char cache_path[64], cache_options[96];

// Opens with the cache; returns whether it said that the file can not be used.
static bool open_warns(void)
{
    open_device(cache_options);
    close_device();
    ck_assert(warning[0] == '\0' || strstr(warning, cache_path) != NULL);
    return warning[0] != '\0';
}

static void damage(long at, int byte)
{
    FILE *f = fopen(cache_path, "r+b");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(fseek(f, at, at < 0 ? SEEK_END : SEEK_SET), 0);
    const int old = fgetc(f);
    ck_assert_int_eq(fseek(f, at, at < 0 ? SEEK_END : SEEK_SET), 0);
    fputc(old ^ byte, f);
    fclose(f);
}

START_TEST(a_cache_is_read_where_it_fits)
{
    snprintf(cache_path, sizeof(cache_path), "/tmp/plm_vulkan_cache.%d", (int)getpid());
    snprintf(cache_options, sizeof(cache_options), "0,cache=%s", cache_path);
    unlink(cache_path);
    ck_assert(!open_warns()); // there is none: that is no fault
    ck_assert_int_eq(access(cache_path, R_OK), 0);
    ck_assert(!open_warns());
    // Any byte of the header or of the data: said, ignored, written anew.
    static const long places[] = {0, 8, 20, 39, 40, 48, 56, -1};
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        damage(places[i], 0x10);
        ck_assert_msg(open_warns(), "byte %ld", places[i]);
        ck_assert_msg(!open_warns(), "byte %ld", places[i]);
    }
    ck_assert_int_eq(truncate(cache_path, 60), 0);
    ck_assert(open_warns());
    ck_assert_int_eq(truncate(cache_path, 0), 0);
    ck_assert(open_warns());
    unlink(cache_path);
}
END_TEST

START_TEST(a_cache_that_can_not_be_written_is_said)
{
    snprintf(cache_path, sizeof(cache_path), "/nonexistent/cache");
    snprintf(cache_options, sizeof(cache_options), "0,cache=%s", cache_path);
    ck_assert(open_warns());
}
END_TEST

START_TEST(what_is_no_file_stays_what_it_is)
{
    struct stat st;
    snprintf(cache_path, sizeof(cache_path), "/tmp/plm_vulkan_fifo.%d", (int)getpid());
    snprintf(cache_options, sizeof(cache_options), "0,cache=%s", cache_path);
    unlink(cache_path);
    ck_assert_int_eq(mkfifo(cache_path, 0600), 0);
    ck_assert(open_warns());
    ck_assert_int_eq(stat(cache_path, &st), 0);
    ck_assert(S_ISFIFO(st.st_mode));
    unlink(cache_path);
}
END_TEST

int main(void)
{
    if (!vulkan_there_is_a_device())
        return 77;
    TCase *tc = tcase_create("all");
    tcase_set_timeout(tc, 60);
    tcase_add_loop_test(tc, a_list_that_repeats_is_not_recorded_again, 0, 3);
    tcase_add_test(tc, a_list_that_differs_is_recorded);
    tcase_add_test(tc, lists_in_flight_follow_each_other);
    tcase_add_test(tc, parts_change_no_bit);
    tcase_add_test(tc, kernels_beyond_the_plan_are_refused);
    tcase_add_loop_test(tc, steps_take_no_host_memory, 0, 3);
    tcase_add_loop_test(tc, a_submit_without_room_can_be_made_again, 0, 2);
    tcase_add_test(tc, a_lost_device_stays_lost);
    tcase_add_test(tc, a_pipeline_that_fails_is_named);
    tcase_add_test(tc, a_cache_is_read_where_it_fits);
    tcase_add_test(tc, a_cache_that_can_not_be_written_is_said);
    tcase_add_test(tc, what_is_no_file_stays_what_it_is);
    Suite *suite = suite_create("vulkan_list");
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
