// SPDX-License-Identifier: Apache-2.0
#include "gpu_fixture.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

struct plm_host *host;
struct plm_gpu_opts opts;
struct plm_backend_device *dev;
char log_text[2048];

static void keep_log(void *ctx, int level, const char *line)
{
    (void)ctx;
    const size_t used = strlen(log_text);
    if (level <= PLM_LOG_WARN)
        snprintf(log_text + used, sizeof(log_text) - used, "%s\n", line);
}

int try_open(struct plm_error *err)
{
    static const struct plm_log log = {.write = keep_log, .level = PLM_LOG_WARN};
    const struct plm_device_opts device = {.host = host,
                                           .clock = plm_clock_system(),
                                           .log = &log,
                                           .max_dispatches = 64,
                                           .backend_opts = &opts};
    return plm_gpu_open(&stub_driver, &device, &dev, err);
}

void begin(void)
{
    stub_reset();
    host = plm_host_create(0);
    log_text[0] = '\0';
    plm_gpu_opts_defaults(&opts);
    dev = NULL;
}

void end(void)
{
    plm_gpu_close(dev);
    dev = NULL;
    ck_assert_int_eq(stub.live, 0);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}

void open_device(void)
{
    struct plm_error err = {0};
    begin();
    ck_assert_msg(try_open(&err) == PLM_OK, "%s", err.msg);
}

const struct plm_kernel_needs no_weights = {0};

void warm_up(void)
{
    struct plm_error err = {0};
    ck_assert_msg(plm_gpu_warm_up(dev, &no_weights, &err) == PLM_OK, "%s", err.msg);
    stub.n_launches = 0;
    dev->counters = (struct plm_gpu_counters){0};
}

struct plm_slab take(enum plm_slab_kind kind, uint64_t bytes)
{
    struct plm_slab slab = {0};
    ck_assert_int_eq(plm_gpu_alloc(dev, kind, bytes, NULL, &slab), PLM_OK);
    return slab;
}
