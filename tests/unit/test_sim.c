// SPDX-License-Identifier: Apache-2.0
// The simulated device keeps to its script.
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
static struct plm_device *device;

static struct plm_sim_clock vclock;
static struct plm_clock source;

static int try_open(const struct plm_sim_opts *script)
{
    struct plm_device_opts opts = {
        .host = host, .clock = &source, .threads = 2, .backend_opts = script};
    struct plm_error err;
    return plm_device_open("sim", &opts, &device, &err);
}

static void open_sim(struct plm_sim_opts script)
{
    host = plm_host_create(0);
    memset(&world, 0, sizeof(world));
    plm_sim_clock_init(&vclock);
    source = plm_sim_clock_source(&vclock);
    script.world = &world;
    ck_assert_int_eq(try_open(&script), PLM_OK);
}

static void close_sim(void)
{
    ck_assert_uint_eq(plm_device_close(device), 0);
    ck_assert_uint_eq(world.taken_bytes, 0);
    ck_assert_uint_eq(world.driver_bytes, 0);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}

static uint64_t query(void)
{
    struct plm_mem_info info;
    ck_assert_int_eq(plm_device_query_free(device, &info), PLM_OK);
    return info.free_bytes;
}

static int alloc(uint64_t bytes, struct plm_slab *slab)
{
    return plm_device_alloc(device, PLM_SLAB_DEVICE, bytes, slab);
}

START_TEST(capacity_is_kept_in_granules)
{
    open_sim((struct plm_sim_opts){
        .capacity_bytes = 64 * MIB, .context_bytes = 6 * MIB, .unavailable_bytes = 2 * MIB});
    struct plm_slab a;
    struct plm_slab b;
    struct plm_slab c;
    ck_assert_uint_eq(query(), 58 * MIB);
    ck_assert_int_eq(alloc(1, &a), PLM_OK);
    ck_assert_uint_eq(a.taken_bytes, 2 * MIB);
    ck_assert_ptr_null(a.host);
    ck_assert_uint_eq(query(), 56 * MIB);
    ck_assert_int_eq(alloc(54 * MIB + 1, &b), PLM_ERR_OUT_OF_DEVICE); // 2 MiB are withheld
    ck_assert_int_eq(alloc(54 * MIB, &b), PLM_OK);
    ck_assert_int_eq(alloc(1, &c), PLM_ERR_OUT_OF_DEVICE);
    ck_assert_int_eq(alloc(57 * MIB, &c), PLM_ERR_TOO_LARGE); // could not fit when empty either
    plm_device_free(device, &b);
    ck_assert_int_eq(alloc(54 * MIB, &c), PLM_OK);
    ck_assert_uint_ne(c.addr, b.addr);
    ck_assert_uint_eq(world.peak_taken_bytes, 56 * MIB);
    plm_device_free(device, &a);
    plm_device_free(device, &c);
    close_sim();
}
END_TEST

START_TEST(neighbours_come_and_go_by_query)
{
    static const struct plm_sim_event events[] = {
        {PLM_SIM_AT_QUERY, 2, PLM_SIM_FOREIGN, 30 * MIB, 0},
        {PLM_SIM_AT_QUERY, 4, PLM_SIM_FOREIGN_BY, -20 * (int64_t)MIB, 0}};
    open_sim((struct plm_sim_opts){.capacity_bytes = 64 * MIB, .events = events, .n_events = 2});
    struct plm_slab slab;
    ck_assert_uint_eq(query(), 64 * MIB);
    ck_assert_uint_eq(query(), 34 * MIB);
    ck_assert_int_eq(alloc(40 * MIB, &slab), PLM_ERR_OUT_OF_DEVICE);
    ck_assert_uint_eq(query(), 34 * MIB);
    ck_assert_uint_eq(query(), 54 * MIB);
    ck_assert_int_eq(alloc(40 * MIB, &slab), PLM_OK);
    world.foreign_bytes = 100 * MIB; // over-commit: nothing is left, nothing underflows
    ck_assert_uint_eq(query(), 0);
    plm_device_free(device, &slab);
    close_sim();
}
END_TEST

START_TEST(allocations_fail_as_scripted)
{
    static const struct plm_sim_event events[] = {{PLM_SIM_AT_ALLOC, 2, PLM_SIM_FAIL_ALLOCS, 2, 0}};
    open_sim((struct plm_sim_opts){.capacity_bytes = 64 * MIB,
                                   .granularity_bytes = MIB,
                                   .max_slab_bytes = 20 * MIB,
                                   .events = events,
                                   .n_events = 1,
                                   .fail_alloc_above_bytes = 16 * MIB});
    struct plm_slab a;
    struct plm_slab b;
    ck_assert_int_eq(alloc(1, &a), PLM_OK);
    ck_assert_int_eq(alloc(1, &b), PLM_ERR_OUT_OF_DEVICE);
    ck_assert_int_eq(alloc(1, &b), PLM_ERR_OUT_OF_DEVICE);
    ck_assert_int_eq(alloc(17 * MIB, &b), PLM_ERR_OUT_OF_DEVICE);
    ck_assert_int_eq(alloc(21 * MIB, &b), PLM_ERR_TOO_LARGE);
    ck_assert_int_eq(alloc(16 * MIB, &b), PLM_OK);
    plm_device_free(device, &a);
    plm_device_free(device, &b);
    close_sim();
}
END_TEST

START_TEST(kernels_take_their_code_at_first_use)
{
    open_sim((struct plm_sim_opts){.capacity_bytes = 64 * MIB, .kernel_bytes = MIB});
    struct plm_slab slab;
    struct plm_mem_info info;
    ck_assert_int_eq(alloc(MIB, &slab), PLM_OK);
    struct plm_fill_args fill = {slab.addr, 1024, 1, 0};
    ck_assert_int_eq(plm_launch_fill(device, &fill), PLM_OK);
    ck_assert_int_eq(plm_launch_fill(device, &fill), PLM_OK);
    ck_assert_uint_eq(world.driver_bytes, MIB);
    ck_assert_int_eq(plm_device_warm_up(device, &(struct plm_kernel_needs){0}, NULL), PLM_OK);
    ck_assert_uint_eq(world.driver_bytes, PLM_OPS * MIB);
    ck_assert_int_eq(plm_device_query_free(device, &info), PLM_OK);
    ck_assert_uint_eq(info.process_use_bytes, (PLM_OPS + 2) * MIB);
    plm_device_free(device, &slab);
    close_sim();
}
END_TEST

START_TEST(a_failed_submit_keeps_the_list)
{
    static const struct plm_sim_event events[] = {
        {PLM_SIM_AT_SUBMIT, 1, PLM_SIM_FAIL_SUBMITS, 1, 0}};
    open_sim((struct plm_sim_opts){
        .capacity_bytes = 64 * MIB, .inner = &plm_cpu_backend, .events = events, .n_events = 1});
    struct plm_slab slab;
    uint64_t value;
    uint32_t words[4];
    uint32_t count = 0;
    ck_assert_int_eq(alloc(MIB, &slab), PLM_OK);
    ck_assert_int_eq(plm_device_copy_in(device, slab.addr + 4096, &count, 4), PLM_OK);
    struct plm_fill_args fill = {slab.addr, 512, 1, 0};
    struct plm_verify_args verify = {slab.addr, 512, slab.addr + 4096, 1, 0};
    ck_assert_int_eq(plm_launch_fill(device, &fill), PLM_OK);
    ck_assert_int_eq(plm_device_barrier(device), PLM_OK);
    ck_assert_int_eq(plm_launch_verify(device, &verify), PLM_OK);
    ck_assert_int_eq(plm_device_submit(device, &value), PLM_ERR_OUT_OF_DEVICE);
    ck_assert_int_eq(plm_device_copy_out(device, words, slab.addr, sizeof(words)), PLM_OK);
    ck_assert_uint_eq(words[1] | words[2] | words[3], 0); // nothing ran
    ck_assert_int_eq(plm_device_submit(device, &value), PLM_OK);
    ck_assert_int_eq(plm_device_wait(device, value, 0), PLM_OK);
    ck_assert_int_eq(plm_device_copy_out(device, words, slab.addr, sizeof(words)), PLM_OK);
    ck_assert_uint_ne(words[1] | words[2] | words[3], 0);
    ck_assert_int_eq(plm_device_copy_out(device, &count, slab.addr + 4096, 4), PLM_OK);
    ck_assert_uint_eq(count, 0);
    // Discarded dispatches do not run with the next list.
    verify.seed = 2;
    ck_assert_int_eq(plm_launch_verify(device, &verify), PLM_OK);
    plm_device_discard(device);
    ck_assert_int_eq(plm_device_submit(device, &value), PLM_OK);
    ck_assert_int_eq(plm_device_copy_out(device, &count, slab.addr + 4096, 4), PLM_OK);
    ck_assert_uint_eq(count, 0);
    // And a verify that should find something does.
    ck_assert_int_eq(plm_launch_verify(device, &verify), PLM_OK);
    ck_assert_int_eq(plm_device_submit(device, &value), PLM_OK);
    ck_assert_int_eq(plm_device_copy_out(device, &count, slab.addr + 4096, 4), PLM_OK);
    ck_assert_uint_gt(count, 500);
    plm_device_free(device, &slab);
    close_sim();
}
END_TEST

START_TEST(a_lost_device_is_lost_until_reopened)
{
    static const struct plm_sim_event events[] = {{PLM_SIM_AT_SUBMIT, 2, PLM_SIM_LOST, 0, 0}};
    struct plm_sim_opts script = {
        .capacity_bytes = 64 * MIB, .context_bytes = MIB, .events = events, .n_events = 1};
    open_sim(script);
    script.world = &world;
    struct plm_slab slab;
    struct plm_mem_info info;
    uint64_t value;
    uint32_t word;
    ck_assert_int_eq(alloc(MIB, &slab), PLM_OK);
    ck_assert_int_eq(plm_device_submit(device, &value), PLM_OK);
    ck_assert_int_eq(plm_device_submit(device, &value), PLM_ERR_LOST);
    struct plm_slab other;
    ck_assert_int_eq(alloc(MIB, &other), PLM_ERR_LOST);
    ck_assert_int_eq(plm_device_query_free(device, &info), PLM_ERR_LOST);
    ck_assert_int_eq(plm_device_copy_out(device, &word, slab.addr, 4), PLM_ERR_LOST);
    ck_assert_int_eq(plm_device_wait(device, 1, 0), PLM_ERR_LOST);
    ck_assert_int_eq(plm_device_status(device), PLM_ERR_LOST);
    plm_device_free(device, &slab);
    ck_assert_uint_eq(plm_device_close(device), 0);
    ck_assert_int_eq(try_open(&script), PLM_OK);
    ck_assert_int_eq(plm_device_submit(device, &value), PLM_OK); // the third of this world
    ck_assert_int_eq(alloc(MIB, &slab), PLM_OK);
    world.lose = 1;
    ck_assert_int_eq(plm_device_status(device), PLM_ERR_LOST);
    ck_assert_int_eq(alloc(MIB, &other), PLM_ERR_LOST);
    plm_device_free(device, &slab);
    close_sim();
}
END_TEST

static void lie(enum plm_sim_lie kind, struct plm_mem_info *ret, int expected)
{
    const struct plm_sim_event event = {PLM_SIM_AT_QUERY, 2, PLM_SIM_LIE, 1, kind};
    open_sim((struct plm_sim_opts){.capacity_bytes = 64 * MIB, .events = &event, .n_events = 1});
    struct plm_slab slab;
    ck_assert_uint_eq(query(), 64 * MIB);
    ck_assert_int_eq(alloc(2 * MIB, &slab), PLM_OK);
    ck_assert_int_eq(plm_device_query_free(device, ret), expected);
    ck_assert_uint_eq(query(), 62 * MIB);
    plm_device_free(device, &slab);
    close_sim();
}

START_TEST(lies_are_clamped_and_not_believed)
{
    struct plm_mem_info info = {.total_bytes = 1};
    lie(PLM_SIM_STALE, &info, PLM_OK);
    ck_assert_uint_eq(info.free_bytes, 64 * MIB);
    ck_assert_int_eq(info.confidence, PLM_CONFIDENCE_HIGH); // nothing in it shows that it is old
    lie(PLM_SIM_FREE_ABOVE_TOTAL, &info, PLM_OK);
    ck_assert_uint_eq(info.free_bytes, 64 * MIB);
    ck_assert_int_eq(info.confidence, PLM_CONFIDENCE_LOW);
    lie(PLM_SIM_USE_ABOVE_TOTAL, &info, PLM_OK);
    ck_assert_uint_eq(info.process_use_bytes, 64 * MIB);
    ck_assert_int_eq(info.confidence, PLM_CONFIDENCE_LOW);
    lie(PLM_SIM_ALL_ZERO, &info, PLM_OK);
    ck_assert_uint_eq(info.total_bytes, 0);
    ck_assert_int_eq(info.confidence, PLM_CONFIDENCE_NONE);
    info.total_bytes = 77;
    lie(PLM_SIM_QUERY_FAILS, &info, PLM_ERR_IO);
    ck_assert_uint_eq(info.total_bytes, 77); // untouched
    lie(PLM_SIM_OSCILLATE, &info, PLM_OK);
    ck_assert_uint_eq(info.free_bytes, 62 * MIB - 64 * MIB / 5);
    ck_assert_int_eq(info.confidence, PLM_CONFIDENCE_HIGH);
}
END_TEST

START_TEST(levels_hold_the_slabs_too)
{
    struct plm_sim_opts script = {.capacity_bytes = 64 * MIB, .unified = true, .n_cgroups = 1};
    script.cgroups[0] = (struct plm_cgroup){50 * MIB, 5 * MIB, 3 * MIB};
    open_sim(script);
    struct plm_slab slab;
    struct plm_mem_info info;
    ck_assert_int_eq(alloc(10 * MIB, &slab), PLM_OK);
    ck_assert_int_eq(plm_device_query_free(device, &info), PLM_OK);
    ck_assert_uint_eq(info.n_cgroups, 1);
    ck_assert_uint_eq(info.cgroups[0].limit_bytes, 50 * MIB);
    ck_assert_uint_eq(info.cgroups[0].current_bytes, 15 * MIB);
    ck_assert_uint_eq(info.cgroups[0].reclaimable_bytes, 3 * MIB);
    plm_device_free(device, &slab);
    close_sim();
}
END_TEST

START_TEST(time_is_virtual)
{
    open_sim(
        (struct plm_sim_opts){.capacity_bytes = 64 * MIB, .submit_ns = 100, .dispatch_ns = 10});
    struct plm_slab slab;
    uint64_t value;
    ck_assert_int_eq(alloc(MIB, &slab), PLM_OK);
    int64_t start = plm_now(&source);
    struct plm_fill_args fill = {slab.addr, 1024, 1, 0};
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(plm_launch_fill(device, &fill), PLM_OK);
    ck_assert_int_eq(plm_device_submit(device, &value), PLM_OK);
    ck_assert_int_eq(plm_now(&source) - start, 0); // it runs beside the host
    ck_assert_int_eq(plm_device_wait(device, value, 129), PLM_ERR_TIMEOUT);
    ck_assert_int_eq(plm_now(&source) - start, 129);
    ck_assert_int_eq(plm_device_wait(device, value, 1), PLM_OK);
    ck_assert_int_eq(plm_now(&source) - start, 130);
    // Lists run one after the other, and a copy waits for them.
    ck_assert_int_eq(plm_device_submit(device, &value), PLM_OK);
    ck_assert_int_eq(plm_device_submit(device, &value), PLM_OK);
    ck_assert_int_eq(plm_device_wait(device, value - 1, -1), PLM_OK);
    ck_assert_int_eq(plm_now(&source) - start, 230);
    ck_assert_int_eq(plm_device_copy_in(device, slab.addr, &value, 8), PLM_OK);
    ck_assert_int_eq(plm_now(&source) - start, 330);
    source.sleep_ns(source.ctx, 1000);
    ck_assert_int_eq(plm_now(&source) - start, 1330);
    ck_assert_uint_eq(world.launches, 3);
    plm_device_free(device, &slab);
    close_sim();
}
END_TEST

START_TEST(bad_scripts_are_refused)
{
    struct plm_sim_opts script = {0};
    host = plm_host_create(0);
    source = plm_sim_clock_source(&vclock);
    ck_assert_int_eq(try_open(NULL), PLM_ERR_INVALID);
    ck_assert_int_eq(try_open(&script), PLM_ERR_INVALID);
    script.capacity_bytes = MIB;
    script.context_bytes = 2 * MIB;
    ck_assert_int_eq(try_open(&script), PLM_ERR_OUT_OF_DEVICE);
    script.context_bytes = 0;
    script.n_events = 1;
    ck_assert_int_eq(try_open(&script), PLM_ERR_INVALID);
    script.n_events = 0;
    script.n_heaps = PLM_SIM_HEAPS_MAX;
    ck_assert_int_eq(try_open(&script), PLM_ERR_INVALID);
    script.n_heaps = 0;
    script.inner = &plm_sim_backend; // whose own script is missing
    ck_assert_int_eq(try_open(&script), PLM_ERR_INVALID);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}
END_TEST

START_TEST(weights_have_a_size_without_bytes)
{
    open_sim((struct plm_sim_opts){.capacity_bytes = 64 * MIB});
    struct plm_weight_layout layout;
    ck_assert_int_eq(plm_device_weight_layout(device, PLM_TYPE_Q4_K, 512, 17, &layout), PLM_OK);
    ck_assert_uint_eq(layout.row_bytes_in, 288);
    ck_assert_uint_eq(layout.bytes, 2 * layout.step_bytes); // 17 rows are two steps
    ck_assert_uint_eq(layout.bytes, 288 * 32);
    ck_assert_int_eq(plm_device_weight_layout(device, PLM_TYPE_Q4_K, 500, 17, &layout),
                     PLM_ERR_UNSUPPORTED);
    close_sim();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sim");
    TCase *tc = tcase_create("sim");
    tcase_add_test(tc, capacity_is_kept_in_granules);
    tcase_add_test(tc, neighbours_come_and_go_by_query);
    tcase_add_test(tc, allocations_fail_as_scripted);
    tcase_add_test(tc, kernels_take_their_code_at_first_use);
    tcase_add_test(tc, a_failed_submit_keeps_the_list);
    tcase_add_test(tc, a_lost_device_is_lost_until_reopened);
    tcase_add_test(tc, lies_are_clamped_and_not_believed);
    tcase_add_test(tc, levels_hold_the_slabs_too);
    tcase_add_test(tc, time_is_virtual);
    tcase_add_test(tc, bad_scripts_are_refused);
    tcase_add_test(tc, weights_have_a_size_without_bytes);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
