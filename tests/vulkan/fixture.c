// SPDX-License-Identifier: Apache-2.0
#include "fixture.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "tests/support/suite.h"

#ifndef LAYER
#error "the build names the shared object of the layer"
#endif

#define WORDS   4096u
#define WAIT_NS INT64_C(60000000000)

struct layer_control layer;
struct plm_host *host;
struct plm_error error;
char log_text[16384];

static void keep_line(void *ctx, int level, const char *line)
{
    (void)ctx;
    (void)level;
    size_t used = strlen(log_text);
    snprintf(log_text + used, sizeof(log_text) - used, "%s\n", line);
}

static const struct plm_log keep_log = {.write = keep_line, .level = PLM_LOG_DEBUG};

void fixture_begin(void)
{
    ck_assert(layer_control_open(&layer, LAYER));
    host = plm_host_create(0);
    ck_assert_ptr_nonnull(host);
    log_text[0] = '\0';
}

void fixture_end(void)
{
    static const char *const KINDS[] = {
        "instances",  "devices",          "buffers",         "shader_modules", "pipelines",
        "semaphores", "pipeline_layouts", "pipeline_caches", "command_pools",
    };
    char name[64];
    for (size_t i = 0; i < sizeof(KINDS) / sizeof(KINDS[0]); i++) {
        snprintf(name, sizeof(name), "%s_created", KINDS[i]);
        uint64_t created = count(name);
        snprintf(name, sizeof(name), "%s_destroyed", KINDS[i]);
        ck_assert_msg(created == count(name), "%s: %" PRIu64 " destroyed of %" PRIu64, KINDS[i],
                      count(name), created);
    }
    ck_assert_uint_eq(count("live_bytes"), 0);
    ck_assert_uint_eq(count("memory_leaked"), 0);
    ck_assert_uint_eq(count("misuses"), 0);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}

void rules(const char *text)
{
    char why[512] = "";
    ck_assert_msg(layer.set(text, why, sizeof(why)), "%s: %s", text, why);
}

uint64_t count(const char *counter)
{
    uint64_t n = layer.count(counter);
    ck_assert_msg(n != UINT64_MAX, "no counter %s", counter);
    return n;
}

int open_device(const char *id, const char *text, struct plm_device **ret)
{
    const struct plm_device_opts opts = {
        .host = host, .clock = plm_clock_system(), .log = &keep_log, .max_dispatches = 64};
    rules(text);
    error = (struct plm_error){.status = PLM_OK};
    return plm_device_open(id, &opts, ret, &error);
}

// Only the ops that know no weights and no KV.
int warm_up(struct plm_device *device)
{
    const struct plm_kernel_needs needs = {.weight_types = 0};
    error = (struct plm_error){.status = PLM_OK};
    return plm_device_warm_up(device, &needs, &error);
}

struct plm_device *ready_device(const char *id, const char *text)
{
    struct plm_device *device = NULL;
    ck_assert_msg(open_device(id, text, &device) == PLM_OK, "%s", error.msg);
    ck_assert_msg(warm_up(device) == PLM_OK, "%s", error.msg);
    return device;
}

int append_fill(struct plm_device *device, const struct plm_slab *slab, uint32_t value)
{
    const struct plm_fill_args fill = {.dst = slab->addr, .n_words = WORDS, .seed = value};
    return plm_launch_fill(device, &fill);
}

static int run_and_read(struct plm_device *device, const struct plm_slab *slab)
{
    static uint32_t words[2 * WORDS];
    const struct plm_copy_args copy = {
        .src = slab->addr, .dst = slab->addr + WORDS * 4, .n_words = WORDS};
    uint64_t value = 0;
    int rc = append_fill(device, slab, 7);
    if (rc == PLM_OK)
        rc = plm_device_barrier(device);
    if (rc == PLM_OK)
        rc = plm_launch_copy(device, &copy);
    if (rc == PLM_OK)
        rc = plm_device_submit(device, &value);
    if (rc == PLM_OK)
        rc = plm_device_wait(device, value, WAIT_NS);
    if (rc == PLM_OK)
        rc = plm_device_copy_out(device, words, slab->addr, sizeof(words));
    if (rc != PLM_OK) {
        plm_device_discard(device);
        return rc;
    }
    ck_assert_mem_eq(words, words + WORDS, WORDS * 4);
    ck_assert_uint_ne(words[0], words[1]); // the pattern of fill, not what was there before
    return PLM_OK;
}

int work(struct plm_device *device)
{
    struct plm_slab slab;
    int rc = plm_device_alloc(device, PLM_SLAB_DEVICE, 2 * WORDS * 4, &slab);
    if (rc != PLM_OK)
        return rc;
    rc = run_and_read(device, &slab);
    plm_device_free(device, &slab);
    return rc;
}

int fixture_main(TCase *cases)
{
    Suite *suite = suite_create("vulkan under faults");
    if (!client_can_run()) {
        printf(
            "skipped: no Vulkan loader or no driver (Debian: libvulkan1, mesa-vulkan-drivers)\n");
        return 77;
    }
    tcase_add_checked_fixture(cases, fixture_begin, NULL);
    tcase_set_timeout(cases, 120);
    suite_add_tcase(suite, cases);
    return suite_run(suite);
}
