// SPDX-License-Identifier: Apache-2.0
// The wrappers around a backend: what they check, count and refuse.
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/cpu.h"
#include "backends/sim/sim.h"
#include "core/device.h"
#include "tests/support/suite.h"

#define MIB (1ull << 20)

static struct plm_host *host;
static struct plm_sim_world world;

static struct plm_device *open_sim(struct plm_sim_opts script, uint32_t max_dispatches)
{
    struct plm_device *device = NULL;
    memset(&world, 0, sizeof(world));
    script.world = &world;
    if (script.capacity_bytes == 0)
        script.capacity_bytes = 64 * MIB;
    struct plm_device_opts opts = {
        .host = host, .max_dispatches = max_dispatches, .backend_opts = &script};
    host = host != NULL ? host : plm_host_create(0);
    opts.host = host;
    ck_assert_int_eq(plm_device_open("sim", &opts, &device, NULL), PLM_OK);
    return device;
}

static void close_sim(struct plm_device *device)
{
    ck_assert_uint_eq(plm_device_close(device), 0);
    ck_assert_uint_eq(world.taken_bytes, 0);
    ck_assert_int_eq(plm_host_destroy(host), 0);
    host = NULL;
}

static struct plm_device_counters counters(const struct plm_device *device)
{
    struct plm_device_counters c;
    plm_device_counters(device, &c);
    return c;
}

START_TEST(names_find_backends)
{
    struct plm_error err = {0};
    struct plm_device *device = NULL;
    host = plm_host_create(0);
    struct plm_device_opts opts = {.host = host, .threads = 1};
    ck_assert_int_eq(plm_device_open("cpu:0", &opts, &device, &err), PLM_OK);
    ck_assert_uint_eq(plm_device_caps(device)->workers, 1);
    ck_assert_uint_eq(plm_device_close(device), 0);
    ck_assert_int_eq(plm_device_open(NULL, &opts, &device, &err), PLM_OK);
    ck_assert_uint_eq(plm_device_close(device), 0);
    ck_assert_int_eq(plm_device_open("cpu:1", &opts, &device, &err), PLM_ERR_NOT_FOUND);
    ck_assert_int_eq(plm_device_open("cp", &opts, &device, &err), PLM_ERR_NOT_FOUND);
    ck_assert_int_eq(plm_device_open("", &opts, &device, &err), PLM_ERR_NOT_FOUND);
    ck_assert_int_eq(plm_device_open("tpu:0", &opts, &device, &err), PLM_ERR_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(err.msg, "'tpu'"));
    ck_assert_ptr_nonnull(strstr(err.msg, "cpu, sim"));
    static const char *const bad[] = {"cpu:", "cpu:x", "cpu:-1", "cpu:0x0", "cpu:4294967296"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_int_eq(plm_device_open(bad[i], &opts, &device, &err), PLM_ERR_INVALID);
    opts.threads = 100000;
    ck_assert_int_eq(plm_device_open("cpu", &opts, &device, &err), PLM_ERR_INVALID);
    opts.threads = 1;
    opts.max_dispatches = UINT32_MAX;
    ck_assert_int_eq(plm_device_open("cpu", &opts, &device, &err), PLM_ERR_INVALID);
    ck_assert_int_eq(plm_host_destroy(host), 0);
    host = NULL;
}
END_TEST

START_TEST(the_seal_refuses_and_counts)
{
    struct plm_device *device = open_sim((struct plm_sim_opts){0}, 0);
    struct plm_slab a;
    struct plm_slab b;
    ck_assert_int_eq(plm_device_alloc(device, PLM_SLAB_DEVICE, MIB, &a), PLM_OK);
    plm_device_seal(device, true);
    ck_assert(plm_device_sealed(device));
    ck_assert_int_eq(plm_device_alloc(device, PLM_SLAB_DEVICE, MIB, &b), PLM_ERR_SEALED);
    ck_assert_int_eq(plm_device_alloc(device, PLM_SLAB_PINNED, MIB, &b), PLM_ERR_SEALED);
    ck_assert_uint_eq(world.allocs, 1); // the backend was not asked
    ck_assert_uint_eq(counters(device).allocs_refused, 2);
    ck_assert_uint_eq(counters(device).allocs, 1);
    // The resizer's key opens it, between steps only.
    ck_assert_int_eq(plm_device_alloc_resize(device, MIB, &b), PLM_OK);
    ck_assert_int_eq(b.kind, PLM_SLAB_ELASTIC);
    ck_assert_uint_eq(counters(device).resizes, 1);
    plm_device_free(device, &b);
    ck_assert_uint_eq(counters(device).resizes, 2);
    ck_assert_uint_eq(counters(device).allocs_in_step, 0);
    plm_device_step_begin(device);
    ck_assert_int_eq(plm_device_alloc_resize(device, MIB, &b), PLM_ERR_SEALED);
    ck_assert_int_eq(plm_device_alloc(device, PLM_SLAB_DEVICE, MIB, &b), PLM_ERR_SEALED);
    ck_assert_uint_eq(counters(device).allocs_in_step, 2);
    plm_device_step_end(device);
    plm_device_seal(device, false);
    ck_assert_int_eq(plm_device_alloc(device, PLM_SLAB_DEVICE, MIB, &b), PLM_OK);
    ck_assert_uint_eq(counters(device).allocs_in_step, 2);
    plm_device_free(device, &a);
    plm_device_free(device, &b);
    ck_assert_uint_eq(counters(device).frees, 3);
    close_sim(device);
}
END_TEST

START_TEST(slabs_are_checked)
{
    struct plm_device *device = open_sim((struct plm_sim_opts){.max_slabs = 40}, 0);
    struct plm_slab slab = {.addr = 1};
    ck_assert_int_eq(plm_device_alloc(device, PLM_SLAB_DEVICE, 0, &slab), PLM_ERR_INVALID);
    ck_assert_int_eq(plm_device_alloc(device, PLM_SLAB_IMPORTED, 1, &slab), PLM_ERR_INVALID);
    ck_assert_int_eq(plm_device_alloc(device, PLM_SLAB_DEVICE, 65 * MIB, &slab), PLM_ERR_TOO_LARGE);
    ck_assert_int_eq(plm_device_alloc(device, PLM_SLAB_DEVICE, UINT64_MAX, &slab),
                     PLM_ERR_TOO_LARGE);
    ck_assert_uint_eq(slab.addr, 1); // untouched by failures
    ck_assert_uint_eq(world.allocs, 0);
    close_sim(device);

    device = open_sim((struct plm_sim_opts){.max_slabs = 40, .granularity_bytes = 4096}, 0);
    struct plm_slab slabs[41];
    for (int i = 0; i < 40; i++)
        ck_assert_int_eq(plm_device_alloc(device, PLM_SLAB_DEVICE, 4096, &slabs[i]), PLM_OK);
    ck_assert_int_eq(plm_device_alloc(device, PLM_SLAB_DEVICE, 1, &slabs[40]),
                     PLM_ERR_OUT_OF_DEVICE);
    // A slab freed twice, or one that never was, does not reach the backend.
    struct plm_slab copy = slabs[7];
    plm_device_free(device, &slabs[7]);
    ck_assert_uint_eq(slabs[7].bytes, 0);
    plm_device_free(device, &slabs[7]);
    plm_device_free(device, &copy);
    struct plm_slab wrong = {.addr = slabs[8].addr + 64, .bytes = 64};
    plm_device_free(device, &wrong);
    ck_assert_uint_eq(counters(device).frees, 1);
    ck_assert_uint_eq(world.taken_bytes, 39 * 4096);
    for (int i = 0; i < 40; i++)
        plm_device_free(device, &slabs[i]);
    close_sim(device);
}
END_TEST

START_TEST(close_counts_and_frees_what_is_left)
{
    struct plm_device *device = open_sim((struct plm_sim_opts){0}, 0);
    struct plm_slab slab;
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(plm_device_alloc(device, PLM_SLAB_DEVICE, MIB, &slab), PLM_OK);
    ck_assert_uint_eq(plm_device_close(device), 3);
    ck_assert_uint_eq(world.taken_bytes, 0);
    ck_assert_int_eq(plm_host_destroy(host), 0);
    host = NULL;
}
END_TEST

START_TEST(parts_are_copied_together)
{
    struct plm_device *device = open_sim((struct plm_sim_opts){.inner = &plm_cpu_backend}, 0);
    struct plm_slab a;
    char first[4] = "one", second[4] = "two", back[104];
    const struct plm_copy_part parts[] = {{first, 10, 4}, {second, 14, 0}, {second, 96, 4}};
    const struct plm_copy_part twice[] = {{first, 10, 4}, {second, 13, 4}};
    const struct plm_copy_part none = {NULL, 0, 4}, endless = {first, 8, UINT64_MAX};
    ck_assert_int_eq(plm_device_alloc(device, PLM_SLAB_DEVICE, 100, &a), PLM_OK);
    ck_assert_int_eq(plm_device_copy_in_parts(device, a.addr, parts, 3), PLM_OK);
    ck_assert_int_eq(plm_device_copy_out(device, back, a.addr, 100), PLM_OK);
    ck_assert_str_eq(back + 10, "one");
    ck_assert_str_eq(back + 96, "two");
    ck_assert_int_eq(plm_device_copy_in_parts(device, a.addr, NULL, 0), PLM_OK);
    ck_assert_int_eq(plm_device_copy_in_parts(device, a.addr + 1, parts, 3), PLM_ERR_INVALID);
    ck_assert_int_eq(plm_device_copy_in_parts(device, a.addr, twice, 2), PLM_ERR_INVALID);
    ck_assert_int_eq(plm_device_copy_in_parts(device, a.addr, &none, 1), PLM_ERR_INVALID);
    ck_assert_int_eq(plm_device_copy_in_parts(device, a.addr, &endless, 1), PLM_ERR_INVALID);
    plm_device_free(device, &a);
    ck_assert_uint_eq(plm_device_close(device), 0);
    ck_assert_int_eq(plm_host_destroy(host), 0);
    host = NULL;
}
END_TEST

START_TEST(copies_stay_inside_one_slab)
{
    struct plm_device *device = open_sim((struct plm_sim_opts){.inner = &plm_cpu_backend}, 0);
    struct plm_slab a;
    struct plm_slab b;
    char text[16] = "a load line";
    char back[16];
    ck_assert_int_eq(plm_device_alloc(device, PLM_SLAB_DEVICE, 100, &a), PLM_OK);
    ck_assert_int_eq(plm_device_alloc(device, PLM_SLAB_DEVICE, 5 * MIB, &b), PLM_OK);
    ck_assert_int_eq(plm_device_copy_in(device, a.addr + 84, text, 16), PLM_OK);
    ck_assert_int_eq(plm_device_copy_out(device, back, a.addr + 84, 16), PLM_OK);
    ck_assert_str_eq(back, text);
    ck_assert_int_eq(plm_device_copy_in(device, a.addr + 85, text, 16), PLM_ERR_INVALID);
    ck_assert_int_eq(plm_device_copy_out(device, back, a.addr - 1, 1), PLM_ERR_INVALID);
    ck_assert_int_eq(plm_device_copy_out(device, back, a.addr + 101, 1), PLM_ERR_INVALID);
    ck_assert_int_eq(plm_device_copy_out(device, back, b.addr + 1, UINT64_MAX), PLM_ERR_INVALID);
    ck_assert_int_eq(plm_device_copy_out(device, back, 0, 1), PLM_ERR_INVALID);
    ck_assert_int_eq(plm_device_copy_out(device, NULL, b.addr, 1), PLM_ERR_INVALID);
    ck_assert_int_eq(plm_device_copy_out(device, back, 0, 0), PLM_OK);
    uint64_t gone = a.addr;
    plm_device_free(device, &a);
    ck_assert_int_eq(plm_device_copy_out(device, back, gone, 1), PLM_ERR_INVALID);
    plm_device_free(device, &b);
    close_sim(device);
}
END_TEST

START_TEST(launches_are_bounded)
{
    struct plm_device *device = open_sim((struct plm_sim_opts){0}, 2);
    struct plm_slab slab;
    uint64_t value;
    ck_assert_int_eq(plm_device_alloc(device, PLM_SLAB_DEVICE, MIB, &slab), PLM_OK);
    struct plm_fill_args fill = {slab.addr, 1024, 1, 0};
    struct plm_fill_args none = {slab.addr, 0, 1, 0};
    ck_assert_int_eq(plm_launch_fill(device, &none), PLM_OK);
    ck_assert_int_eq(plm_launch_fill(device, &fill), PLM_OK);
    ck_assert_int_eq(plm_launch_fill(device, &fill), PLM_OK);
    ck_assert_int_eq(plm_launch_fill(device, &fill), PLM_ERR_LIMIT);
    ck_assert_uint_eq(counters(device).dispatches, 2);
    ck_assert_int_eq(plm_device_wait(device, 1, 0), PLM_ERR_INVALID); // not submitted yet
    ck_assert_int_eq(plm_device_submit(device, &value), PLM_OK);
    ck_assert_uint_eq(value, 1);
    ck_assert_int_eq(plm_device_wait(device, value, -1), PLM_OK);
    ck_assert_int_eq(plm_launch_fill(device, &fill), PLM_OK);
    plm_device_discard(device);
    ck_assert_int_eq(plm_launch_fill(device, &fill), PLM_OK);
    ck_assert_int_eq(plm_launch_fill(device, &fill), PLM_OK);
    plm_device_discard(device);
    ck_assert_uint_eq(counters(device).submits, 1);
    plm_device_free(device, &slab);
    close_sim(device);
}
END_TEST

START_TEST(units_do_not_wrap)
{
    struct plm_device *device = open_sim((struct plm_sim_opts){0}, 0);
    struct plm_attention_args attention = {.rows = 1u << 16, .kv_heads = 1u << 16};
    ck_assert_int_eq(plm_launch_attention(device, &attention), PLM_ERR_LIMIT); // 2^32 would be 0
    struct plm_add_args add = {.rows = UINT32_MAX};
    ck_assert_int_eq(plm_launch_add(device, &add), PLM_ERR_LIMIT);
    struct plm_fill_args fill = {.n_words = UINT64_MAX};
    ck_assert_int_eq(plm_launch_fill(device, &fill), PLM_ERR_LIMIT);
    struct plm_matmul_args matmul = {.n_out = UINT32_MAX};
    ck_assert_int_eq(plm_launch_matmul(device, &matmul), PLM_OK); // 2^28 units, and not 0
    ck_assert_uint_eq(world.launches, 1);
    close_sim(device);
}
END_TEST

// Opening with every host allocation failing in turn leaves nothing behind.
static void open_with_losses(const struct plm_backend *backend, const void *backend_opts)
{
    struct plm_host_stats stats;
    host = plm_host_create(0);
    struct plm_device_opts opts = {
        .host = host, .threads = 2, .max_dispatches = 16, .backend_opts = backend_opts};
    for (uint64_t n = 1;; n++) {
        struct plm_device *device = NULL;
        struct plm_slab slab;
        plm_host_fail_nth(host, n, 0);
        int rc = plm_device_open_backend(backend, &opts, &device, NULL);
        if (rc == PLM_OK) {
            rc = plm_device_alloc(device, PLM_SLAB_DEVICE, 100, &slab);
            if (rc == PLM_OK)
                plm_device_free(device, &slab);
            ck_assert_uint_eq(plm_device_close(device), 0);
        }
        plm_host_fail_nth(host, 0, 0);
        plm_host_read(host, &stats);
        ck_assert_int_eq(stats.used_bytes, 0);
        if (rc == PLM_OK) {
            ck_assert_uint_gt(n, 3); // it did fail before
            break;
        }
        ck_assert_int_eq(rc, PLM_ERR_NOMEM_HOST);
    }
    ck_assert_int_eq(plm_host_destroy(host), 0);
    host = NULL;
}

START_TEST(open_survives_lost_allocations)
{
    struct plm_sim_opts script = {.capacity_bytes = 64 * MIB, .inner = &plm_cpu_backend};
    open_with_losses(&plm_cpu_backend, NULL);
    open_with_losses(&plm_sim_backend, &script);
}
END_TEST

// In place: handles and counters stay, what was lost works again, and it is not sealed.
START_TEST(a_lost_device_is_reopened_in_place)
{
    host = plm_host_create(0);
    world = (struct plm_sim_world){0};
    const struct plm_sim_opts script = {.capacity_bytes = 64 * MIB, .world = &world};
    const struct plm_device_opts opts = {.host = host, .backend_opts = &script};
    struct plm_device *device;
    struct plm_slab slab;
    struct plm_mem_info info;
    struct plm_device_counters before, after;
    ck_assert_int_eq(plm_device_open_backend(&plm_sim_backend, &opts, &device, NULL), PLM_OK);
    ck_assert_int_eq(plm_device_alloc(device, PLM_SLAB_DEVICE, MIB, &slab), PLM_OK);
    plm_device_seal(device, true);
    atomic_store(&world.lose, 1);
    ck_assert_int_eq(plm_device_query_free(device, &info), PLM_ERR_LOST);
    ck_assert_int_eq(plm_device_reopen(device, NULL), PLM_ERR_INVALID); // a slab is left
    plm_device_free(device, &slab);
    plm_device_counters(device, &before);
    ck_assert_int_eq(plm_device_reopen(device, NULL), PLM_OK);
    ck_assert_uint_eq(atomic_load(&world.opens), 2);
    ck_assert_int_eq(plm_device_status(device), PLM_OK);
    ck_assert(!plm_device_sealed(device));
    ck_assert_int_eq(plm_device_alloc(device, PLM_SLAB_DEVICE, MIB, &slab), PLM_OK);
    plm_device_counters(device, &after);
    ck_assert_uint_eq(after.allocs, before.allocs + 1);
    plm_device_free(device, &slab);
    ck_assert_uint_eq(plm_device_close(device), 0);
    ck_assert_int_eq(plm_host_destroy(host), 0);
    host = NULL;
}
END_TEST

// Where the driver does not come back, the device stays lost, and can be tried again and closed.
START_TEST(a_failed_reopen_leaves_a_lost_device)
{
    host = plm_host_create(0);
    world = (struct plm_sim_world){0};
    const struct plm_sim_opts script = {
        .capacity_bytes = 64 * MIB, .world = &world, .context_bytes = 8 * MIB};
    const struct plm_device_opts opts = {.host = host, .backend_opts = &script};
    struct plm_device *device;
    struct plm_slab slab;
    struct plm_mem_info info;
    struct plm_weight_layout layout;
    ck_assert_int_eq(plm_device_open_backend(&plm_sim_backend, &opts, &device, NULL), PLM_OK);
    atomic_store(&world.lose, 1);
    atomic_store(&world.foreign_bytes, 60 * MIB);
    ck_assert_int_eq(plm_device_reopen(device, NULL), PLM_ERR_OUT_OF_DEVICE);
    ck_assert_int_eq(plm_device_status(device), PLM_ERR_LOST);
    ck_assert_int_eq(plm_device_query_free(device, &info), PLM_ERR_LOST);
    ck_assert_int_eq(plm_device_alloc(device, PLM_SLAB_DEVICE, MIB, &slab), PLM_ERR_LOST);
    ck_assert_int_eq(plm_device_weight_layout(device, PLM_TYPE_F16, 16, 16, &layout), PLM_ERR_LOST);
    plm_device_mark(device, PLM_PHASE_SERVE, 1);
    ck_assert_str_eq(plm_device_caps(device)->name, "simulated device");
    ck_assert_int_eq(plm_device_reopen(device, NULL), PLM_ERR_OUT_OF_DEVICE);
    atomic_store(&world.lose, 0);
    atomic_store(&world.foreign_bytes, 0);
    ck_assert_int_eq(plm_device_reopen(device, NULL), PLM_OK);
    ck_assert_int_eq(plm_device_query_free(device, &info), PLM_OK);
    ck_assert_uint_eq(plm_device_close(device), 0);
    ck_assert_int_eq(plm_host_destroy(host), 0);
    host = NULL;
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("device");
    TCase *tc = tcase_create("device");
    tcase_add_test(tc, names_find_backends);
    tcase_add_test(tc, the_seal_refuses_and_counts);
    tcase_add_test(tc, slabs_are_checked);
    tcase_add_test(tc, close_counts_and_frees_what_is_left);
    tcase_add_test(tc, parts_are_copied_together);
    tcase_add_test(tc, copies_stay_inside_one_slab);
    tcase_add_test(tc, launches_are_bounded);
    tcase_add_test(tc, units_do_not_wrap);
    tcase_add_test(tc, open_survives_lost_allocations);
    tcase_add_test(tc, a_lost_device_is_reopened_in_place);
    tcase_add_test(tc, a_failed_reopen_leaves_a_lost_device);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
