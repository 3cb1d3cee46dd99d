// SPDX-License-Identifier: Apache-2.0
// The Vulkan backend under calls that fail: at every place, once and for ever, at open, at the
// warm-up, at work. Nothing leaks, the status says what happened, and what can go on does.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fixture.h"

#define SECOND INT64_C(1000000000)

START_TEST(an_allocation_that_fails_leaves_the_device_usable)
{
    static const char *const RULES[] = {DISCRETE "fail allocate oom-device",
                                        DISCRETE "fail buffer oom-device"};
    struct plm_device *device = ready_device("vulkan", DISCRETE);
    struct plm_slab slab;
    for (size_t i = 0; i < 2; i++) {
        rules(RULES[i]);
        ck_assert_int_eq(plm_device_alloc(device, PLM_SLAB_DEVICE, MIB, &slab),
                         PLM_ERR_OUT_OF_DEVICE);
        ck_assert_int_eq(work(device), PLM_OK);
    }
    rules(DISCRETE "fail allocate oom-host");
    ck_assert_int_eq(plm_device_alloc(device, PLM_SLAB_DEVICE, MIB, &slab), PLM_ERR_NOMEM_HOST);
    rules(DISCRETE "fail map map-failed");
    ck_assert_int_eq(plm_device_alloc(device, PLM_SLAB_PINNED, MIB, &slab), PLM_ERR_NOMEM_HOST);
    ck_assert_int_eq(plm_device_status(device), PLM_OK);
    ck_assert_int_eq(work(device), PLM_OK);
    // More than there can ever be, and more than there is now.
    rules(DISCRETE "heap 0 neighbour=500MiB");
    ck_assert_int_eq(plm_device_alloc(device, PLM_SLAB_DEVICE, 600 * MIB, &slab),
                     PLM_ERR_TOO_LARGE);
    ck_assert_int_eq(plm_device_alloc(device, PLM_SLAB_DEVICE, 40 * MIB, &slab),
                     PLM_ERR_OUT_OF_DEVICE);
    rules(DISCRETE);
    ck_assert_int_eq(work(device), PLM_OK);
    ck_assert_uint_eq(plm_device_close(device), 0);
    fixture_end();
}
END_TEST

// Fails the n-th call at a place, for n = 1, 2, 3, 4, 8, 16, .. until all goes well: a start must
// fail cleanly or succeed, whatever breaks. Returns how many starts failed.
static uint32_t starts_fail(const char *view, const char *place, const char *result)
{
    uint32_t failed = 0;
    for (uint32_t nth = 1;; nth += nth < 4 ? 1 : nth) {
        struct plm_device *device = NULL;
        char text[640];
        uint64_t before = count("faults");
        snprintf(text, sizeof(text), "%s fail %s %s nth=%u", view, place, result, nth);
        int rc = open_device("vulkan", text, &device);
        if (rc == PLM_OK)
            rc = warm_up(device);
        bool struck = count("faults") > before;
        if (rc != PLM_OK) {
            ck_assert_msg(error.status == rc && error.msg[0] != '\0', "%s: no message", text);
            failed++;
        }
        ck_assert_msg(rc == PLM_OK || struck, "%s: %s", text, error.msg);
        rules(view);
        if (device != NULL) {
            if (rc == PLM_OK)
                ck_assert_msg(work(device) == PLM_OK, "%s", text);
            ck_assert_uint_eq(plm_device_close(device), 0);
        }
        ck_assert_msg(count("live_bytes") == 0, "%s: memory left", text);
        if (!struck)
            return failed;
    }
}

START_TEST(a_start_fails_cleanly_wherever_a_creation_does)
{
    static const struct {
        const char *place;
        const char *result;
    } CASES[] = {
        {"allocate", "oom-device"}, {"buffer", "oom-device"},  {"map", "map-failed"},
        {"pipeline", "oom-device"}, {"shader", "oom-host"},    {"pipeline-layout", "oom-host"},
        {"cache", "oom-host"},      {"semaphore", "oom-host"}, {"command-pool", "oom-device"},
        {"commands", "oom-host"},   {"record", "oom-device"},  {"wait", "lost"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        uint32_t failed = starts_fail(DISCRETE, CASES[i].place, CASES[i].result);
        ck_assert_msg(failed > 0, "%s: nothing was struck", CASES[i].place);
        printf("  %-16s %-11s %u starts failed cleanly\n", CASES[i].place, CASES[i].result, failed);
        fflush(stdout);
    }
    fixture_end();
}
END_TEST

START_TEST(a_kernel_that_can_not_be_made_is_named)
{
    struct plm_device *device = NULL;
    ck_assert_int_eq(open_device("vulkan", "fail pipeline oom-device nth=2", &device), PLM_OK);
    ck_assert_int_eq(warm_up(device), PLM_ERR_OUT_OF_DEVICE);
    ck_assert_ptr_nonnull(strstr(error.msg, "kernel"));
    ck_assert_ptr_nonnull(strstr(error.msg, "llvmpipe"));
    ck_assert_int_eq(warm_up(device), PLM_OK); // those that were made are kept
    ck_assert_int_eq(work(device), PLM_OK);
    ck_assert_uint_eq(plm_device_close(device), 0);
    fixture_end();
}
END_TEST

START_TEST(a_slab_can_be_freed_while_copies_into_it_wait_or_travel)
{
    static unsigned char bytes[20 << 20];
    struct plm_device *device = ready_device("vulkan", DISCRETE);
    struct plm_slab slabs[2];
    unsigned char back[64];
    memset(bytes, 0xa5, sizeof(bytes));
    for (uint32_t i = 0; i < 2; i++)
        ck_assert_int_eq(plm_device_alloc(device, PLM_SLAB_DEVICE, 20 * MIB, &slabs[i]), PLM_OK);
    // Small ones wait for a submit, those of a load travel at once.
    for (uint32_t i = 0; i < 2; i++)
        ck_assert_int_eq(plm_device_copy_in(device, slabs[i].addr, bytes, 64), PLM_OK);
    ck_assert_int_eq(plm_device_copy_in(device, slabs[0].addr, bytes, sizeof(bytes)), PLM_OK);
    ck_assert_int_eq(plm_device_copy_in(device, slabs[0].addr, bytes, 64), PLM_OK);
    plm_device_free(device, &slabs[0]);
    ck_assert_int_eq(work(device), PLM_OK);
    ck_assert_int_eq(plm_device_copy_out(device, back, slabs[1].addr, sizeof(back)), PLM_OK);
    ck_assert_mem_eq(back, bytes, sizeof(back));
    plm_device_free(device, &slabs[1]);
    ck_assert_uint_eq(plm_device_close(device), 0);
    fixture_end();
}
END_TEST

START_TEST(a_refused_submit_leaves_the_list_open)
{
    static const char *const VIEWS[] = {"", DISCRETE};
    for (size_t i = 0; i < 2; i++) {
        struct plm_device *device = ready_device("vulkan", VIEWS[i]);
        struct plm_slab slab;
        char text[512];
        uint64_t value = 0;
        uint32_t words[4096];
        ck_assert_int_eq(plm_device_alloc(device, PLM_SLAB_DEVICE, MIB, &slab), PLM_OK);
        memset(words, 0, sizeof(words));
        ck_assert_int_eq(plm_device_copy_in(device, slab.addr, words, sizeof(words)), PLM_OK);
        ck_assert_int_eq(append_fill(device, &slab, 3), PLM_OK);
        snprintf(text, sizeof(text), "%s fail submit oom-device times=2", VIEWS[i]);
        rules(text);
        uint64_t ran = count("dispatches_run");
        ck_assert_int_eq(plm_device_submit(device, &value), PLM_ERR_OUT_OF_DEVICE);
        ck_assert_int_eq(plm_device_submit(device, &value), PLM_ERR_OUT_OF_DEVICE);
        ck_assert_uint_eq(count("dispatches_run"), ran);
        ck_assert_int_eq(plm_device_submit(device, &value), PLM_OK);
        ck_assert_int_eq(plm_device_wait(device, value, 60 * SECOND), PLM_OK);
        ck_assert_uint_eq(count("dispatches_run"), ran + 1);
        ck_assert_int_eq(plm_device_copy_out(device, words, slab.addr, sizeof(words)), PLM_OK);
        ck_assert_uint_ne(words[0], 0);
        ck_assert_uint_ne(words[4095], 0);
        // A list that is given up runs nothing.
        ck_assert_int_eq(append_fill(device, &slab, 4), PLM_OK);
        snprintf(text, sizeof(text), "%s fail submit oom-device tag=again", VIEWS[i]);
        rules(text);
        ck_assert_int_eq(plm_device_submit(device, &value), PLM_ERR_OUT_OF_DEVICE);
        plm_device_discard(device);
        plm_device_free(device, &slab);
        ck_assert_int_eq(work(device), PLM_OK);
        ck_assert_uint_eq(plm_device_close(device), 0);
    }
    fixture_end();
}
END_TEST

// After a loss: everything says so, until the device is opened again.
static void is_lost(struct plm_device *device, const struct plm_slab *slab)
{
    struct plm_slab other;
    uint64_t value = 0;
    uint32_t word = 0;
    ck_assert_int_eq(plm_device_status(device), PLM_ERR_LOST);
    ck_assert_int_eq(plm_device_alloc(device, PLM_SLAB_DEVICE, MIB, &other), PLM_ERR_LOST);
    ck_assert_int_eq(append_fill(device, slab, 1), PLM_ERR_LOST);
    ck_assert_int_eq(plm_device_submit(device, &value), PLM_ERR_LOST);
    ck_assert_int_eq(plm_device_wait(device, 1, 0), PLM_ERR_LOST);
    ck_assert_int_eq(plm_device_copy_in(device, slab->addr, &word, 4), PLM_ERR_LOST);
    ck_assert_int_eq(plm_device_copy_out(device, &word, slab->addr, 4), PLM_ERR_LOST);
}

// It opens again, works as before, and closes.
static void comes_back(struct plm_device *device)
{
    ck_assert_msg(plm_device_reopen(device, &error) == PLM_OK, "%s", error.msg);
    ck_assert_int_eq(plm_device_status(device), PLM_OK);
    ck_assert_int_eq(warm_up(device), PLM_OK);
    ck_assert_int_eq(work(device), PLM_OK);
    ck_assert_uint_eq(plm_device_close(device), 0);
}

static void lose(struct plm_device *device, const char *text, struct plm_slab *slab)
{
    uint64_t value = 0;
    ck_assert_int_eq(plm_device_alloc(device, PLM_SLAB_DEVICE, MIB, slab), PLM_OK);
    rules(text);
    ck_assert_int_eq(append_fill(device, slab, 5), PLM_OK);
    int rc = plm_device_submit(device, &value);
    if (rc == PLM_OK)
        rc = plm_device_wait(device, value, 60 * SECOND);
    ck_assert_msg(rc == PLM_ERR_LOST, "%s: %s", text, plm_strstatus(rc));
}

START_TEST(a_loss_is_sticky_and_ends_with_a_reopen)
{
    static const char *const RULES[] = {"fail submit lost", DISCRETE "fail submit lost",
                                        "fail wait lost", "fail submit unknown"};
    for (size_t i = 0; i < sizeof(RULES) / sizeof(RULES[0]); i++) {
        bool discrete = strstr(RULES[i], "type=discrete") != NULL;
        struct plm_device *device = ready_device("vulkan", discrete ? DISCRETE : "");
        struct plm_slab slab;
        lose(device, RULES[i], &slab);
        is_lost(device, &slab);
        plm_device_free(device, &slab);
        comes_back(device);
    }
    fixture_end();
}
END_TEST

START_TEST(a_lost_device_is_closed_without_a_leak)
{
    struct plm_device *device = ready_device("vulkan", DISCRETE);
    struct plm_slab slab;
    lose(device, DISCRETE "fail submit lost", &slab);
    plm_device_free(device, &slab);
    ck_assert_uint_eq(plm_device_close(device), 0);
    fixture_end();
}
END_TEST

START_TEST(what_answers_after_a_loss_must_be_the_same_device)
{
    struct plm_device *device = ready_device("vulkan", "");
    struct plm_slab slab;
    lose(device, "fail submit lost then=other", &slab);
    plm_device_free(device, &slab);
    ck_assert_int_eq(plm_device_reopen(device, &error), PLM_ERR_LOST);
    ck_assert_ptr_nonnull(strstr(error.msg, "another device"));
    rules("");
    comes_back(device);
    fixture_end();
}
END_TEST

START_TEST(a_device_that_is_gone_or_broken_comes_back_later)
{
    static const char *const RULES[] = {"fail submit lost then=gone",
                                        "fail submit lost then=broken"};
    for (size_t i = 0; i < 2; i++) {
        struct plm_device *device = ready_device("vulkan", "");
        struct plm_slab slab;
        lose(device, RULES[i], &slab);
        plm_device_free(device, &slab);
        for (uint32_t tries = 0; tries < 3; tries++) {
            ck_assert_int_ne(plm_device_reopen(device, &error), PLM_OK);
            ck_assert_int_eq(plm_device_status(device), PLM_ERR_LOST);
        }
        rules("");
        comes_back(device);
    }
    fixture_end();
}
END_TEST

START_TEST(a_hanging_list_times_out_and_ends)
{
    struct plm_device *device = ready_device("vulkan", "");
    struct plm_slab slab;
    uint64_t value = 0;
    ck_assert_int_eq(plm_device_alloc(device, PLM_SLAB_DEVICE, MIB, &slab), PLM_OK);
    rules("fail submit hang ms=300");
    ck_assert_int_eq(append_fill(device, &slab, 5), PLM_OK);
    ck_assert_int_eq(plm_device_submit(device, &value), PLM_OK);
    ck_assert_int_eq(plm_device_wait(device, value, 0), PLM_ERR_TIMEOUT);
    ck_assert_int_eq(plm_device_wait(device, value, SECOND / 20), PLM_ERR_TIMEOUT);
    ck_assert_int_eq(plm_device_status(device), PLM_OK); // late is not lost
    ck_assert_int_eq(plm_device_wait(device, value, 60 * SECOND), PLM_OK);
    plm_device_free(device, &slab);
    ck_assert_int_eq(work(device), PLM_OK);
    ck_assert_uint_eq(plm_device_close(device), 0);
    fixture_end();
}
END_TEST

// ---- the pipeline cache's file ----

static char folder[] = "/tmp/plimsoll-vulkan-XXXXXX";
static char path[96];
static unsigned char file_bytes[8 << 20];

static size_t read_file(void)
{
    FILE *file = fopen(path, "rb");
    size_t n = file != NULL ? fread(file_bytes, 1, sizeof(file_bytes), file) : 0;
    if (file != NULL)
        fclose(file);
    return n;
}

static void write_file(size_t n)
{
    FILE *file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(file_bytes, 1, n, file), n);
    fclose(file);
}

static void run_with_cache(void)
{
    char id[160];
    snprintf(id, sizeof(id), "vulkan:0,cache=%s", path);
    log_text[0] = '\0';
    struct plm_device *device = ready_device(id, "");
    ck_assert_int_eq(work(device), PLM_OK);
    ck_assert_uint_eq(plm_device_close(device), 0);
}

static bool complains(void)
{
    return strstr(log_text, "pipeline cache") != NULL;
}

START_TEST(a_damaged_pipeline_cache_is_not_used_and_written_anew)
{
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/cache", folder);
    run_with_cache(); // there is none yet
    ck_assert(!complains());
    size_t bytes = read_file();
    ck_assert_uint_gt(bytes, 64);
    run_with_cache();
    ck_assert(!complains());
    const size_t cuts[] = {0, 1, 40, bytes / 2, bytes - 1};
    for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
        bytes = read_file();
        write_file(cuts[i] < bytes ? cuts[i] : bytes - 1);
        run_with_cache();
        ck_assert_msg(complains(), "cut at %zu", cuts[i]);
    }
    // A bit anywhere: in the magic, the device's UUID, the length, the hash, the driver's data.
    const size_t flips[] = {0, 9, 24, 40, 48, 56, 64, bytes - 1};
    for (size_t i = 0; i < sizeof(flips) / sizeof(flips[0]); i++) {
        bytes = read_file();
        file_bytes[flips[i] < bytes ? flips[i] : bytes - 1] ^= 0x10;
        write_file(bytes);
        run_with_cache();
        ck_assert_msg(complains(), "bit at %zu", flips[i]);
        run_with_cache(); // it was written anew
        ck_assert(!complains());
    }
    bytes = read_file();
    file_bytes[bytes] = 0;
    write_file(bytes + 1);
    run_with_cache();
    ck_assert(complains());
    unlink(path);
    ck_assert_int_eq(mkdir(path, 0755), 0);
    run_with_cache(); // a folder can be neither read nor replaced
    ck_assert(complains());
    rmdir(path);
    rmdir(folder);
    fixture_end();
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("faults");
    tcase_add_test(cases, an_allocation_that_fails_leaves_the_device_usable);
    tcase_add_test(cases, a_start_fails_cleanly_wherever_a_creation_does);
    tcase_add_test(cases, a_kernel_that_can_not_be_made_is_named);
    tcase_add_test(cases, a_slab_can_be_freed_while_copies_into_it_wait_or_travel);
    tcase_add_test(cases, a_refused_submit_leaves_the_list_open);
    tcase_add_test(cases, a_loss_is_sticky_and_ends_with_a_reopen);
    tcase_add_test(cases, a_lost_device_is_closed_without_a_leak);
    tcase_add_test(cases, what_answers_after_a_loss_must_be_the_same_device);
    tcase_add_test(cases, a_device_that_is_gone_or_broken_comes_back_later);
    tcase_add_test(cases, a_hanging_list_times_out_and_ends);
    tcase_add_test(cases, a_damaged_pipeline_cache_is_not_used_and_written_anew);
    return fixture_main(cases);
}
