// SPDX-License-Identifier: Apache-2.0
// Which launches reach the driver with the attribute that lets a kernel begin early (programmatic
// dependent launch): all of a list of few rows, none of one with more. Launched one by one and as
// graphs, on a fake card that has it.
#include <check.h>
#include <stdlib.h>

#include "control.h"
#include "core/backend.h"
#include "tests/support/suite.h"

#define MIB (UINT64_C(1) << 20)

static const struct plm_backend *backend;
static struct fake_control fake;

// Appends a product of so many rows, and one that reads what it left.
static void append(struct plm_backend_device *dev, uint64_t at, uint32_t rows)
{
    struct plm_matmul_args a = {.weight = at,
                                .x = at + MIB,
                                .dst = at + 2 * MIB,
                                .type = PLM_TYPE_F32,
                                .act = PLM_ACT_F32,
                                .rows = rows,
                                .n_in = 256,
                                .n_out = 256,
                                .ld_dst = 256};
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(backend->launch(dev, PLM_OP_MATMUL, 16, &a, sizeof(a)), PLM_OK);
        ck_assert_int_eq(backend->barrier(dev), PLM_OK);
        a.x = a.dst;
        a.dst += MIB;
    }
}

// Runs such a list, and returns how many of its kernels may begin early.
static uint64_t run(struct plm_backend_device *dev, uint64_t at, uint32_t rows, bool capture)
{
    uint64_t value;
    append(dev, at, rows);
    if (capture)
        ck_assert_int_eq(backend->capture(dev), PLM_OK);
    const uint64_t early = fake.count("launches_early");
    const uint64_t replays = fake.count("graph_launches");
    ck_assert_int_eq(backend->submit(dev, &value), PLM_OK);
    ck_assert_int_eq(backend->wait(dev, value, INT64_C(60000000000)), PLM_OK);
    ck_assert_uint_eq(fake.count("graph_launches") - replays, capture);
    return fake.count("launches_early") - early;
}

START_TEST(lists_of_few_rows_begin_early)
{
    static const uint32_t rows[] = {1, 16, 32, 64};
    static const struct plm_kernel_needs needs = {.weight_types = 1u << PLM_TYPE_F32};
    struct plm_host *host = plm_host_create(0);
    struct plm_backend_device *dev;
    struct plm_slab slab;
    struct plm_error err = {0};
    const void *script = NULL;
    ck_assert(fake_control_open(&fake, "libcuda.so.1"));
    ck_assert_int_eq(backend->configure(host, "0", &script, &err), PLM_OK);
    const struct plm_device_opts opts = {
        .host = host, .clock = plm_clock_system(), .max_dispatches = 8, .backend_opts = script};
    ck_assert_msg(backend->open(&opts, &dev, &err) == PLM_OK, "%s", err.msg);
    ck_assert_msg(backend->warm_up(dev, &needs, &err) == PLM_OK, "%s", err.msg);
    ck_assert_int_eq(backend->alloc(dev, PLM_SLAB_DEVICE, 4 * MIB, NULL, &slab), PLM_OK);
    for (int capture = 0; capture < 2; capture++) {
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
            ck_assert_uint_eq(run(dev, slab.addr, rows[i], capture), rows[i] <= 16 ? 2 : 0);
    }
    backend->free(dev, &slab);
    backend->close(dev);
    backend->release(host, script);
    ck_assert_uint_eq(fake.count("misuses"), 0);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}
END_TEST

int main(void)
{
    for (size_t i = 0; plm_backends[i] != NULL; i++)
        if (strcmp(plm_backends[i]->name, "cuda") == 0)
            backend = plm_backends[i];
    Suite *s = suite_create("early");
    TCase *tc = tcase_create("lists");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, lists_of_few_rows_begin_early);
    suite_add_tcase(s, tc);
    return suite_run(s);
}
