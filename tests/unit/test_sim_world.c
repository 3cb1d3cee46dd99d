// SPDX-License-Identifier: Apache-2.0
// What a simulated driver may do beyond giving and taking memory: late and kept frees, views that
// disagree, spill, over-commit, events of every kind, poison.
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/cpu.h"
#include "backends/sim/sim.h"
#include "core/device.h"
#include "tests/support/suite.h"

#define MIB    (1ull << 20)
#define MS     INT64_C(1000000)
#define POISON 77

static struct plm_host *host;
static struct plm_sim_world world;
static struct plm_device *device;
static struct plm_sim_clock vclock;
static struct plm_clock source;
static struct plm_sim_opts script; // lives as long as the device, for its reopens

static void open_sim(struct plm_sim_opts opened)
{
    script = opened;
    host = plm_host_create(0);
    memset(&world, 0, sizeof(world));
    plm_sim_clock_init(&vclock);
    source = plm_sim_clock_source(&vclock);
    script.world = &world;
    if (script.capacity_bytes == 0)
        script.capacity_bytes = 64 * MIB;
    script.granularity_bytes = MIB;
    struct plm_device_opts opts = {
        .host = host, .clock = &source, .threads = 1, .backend_opts = &script};
    struct plm_error err;
    ck_assert_msg(plm_device_open("sim", &opts, &device, &err) == PLM_OK, "%s", err.msg);
}

static void close_sim(void)
{
    ck_assert_uint_eq(plm_device_close(device), 0);
    ck_assert_uint_eq(
        world.taken_bytes + world.driver_bytes + world.held_back + world.spilled_bytes, 0);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}

static struct plm_mem_info query(void)
{
    struct plm_mem_info info;
    ck_assert_int_eq(plm_device_query_free(device, &info), PLM_OK);
    return info;
}

static uint64_t free_mib(void)
{
    return query().free_bytes / MIB;
}

static int alloc(uint64_t mib, struct plm_slab *slab)
{
    return plm_device_alloc(device, PLM_SLAB_DEVICE, mib * MIB, slab);
}

static uint64_t submit(void)
{
    uint64_t value = 0;
    ck_assert_int_eq(plm_device_submit(device, &value), PLM_OK);
    return value;
}

START_TEST(heaps_are_filled_in_order)
{
    open_sim((struct plm_sim_opts){
        .capacity_bytes = 20 * MIB, .heap_bytes = {10 * MIB, 4 * MIB}, .n_heaps = 2});
    struct plm_slab a, b, c, d;
    ck_assert_uint_eq(query().total_bytes, 34 * MIB);
    ck_assert_int_eq(alloc(21, &a), PLM_ERR_TOO_LARGE); // no heap is so large
    ck_assert_int_eq(alloc(15, &a), PLM_OK);
    ck_assert_int_eq(alloc(8, &b), PLM_OK);                // of the second
    ck_assert_int_eq(alloc(6, &c), PLM_ERR_OUT_OF_DEVICE); // 5, 2 and 4 are left
    ck_assert_int_eq(alloc(5, &c), PLM_OK);
    ck_assert_int_eq(alloc(4, &d), PLM_OK);
    ck_assert_uint_eq(free_mib(), 2);
    plm_device_free(device, &a);
    world.foreign_bytes = 18 * MIB; // of the first, too: 15 there, 2 and 1 in what comes next
    ck_assert_uint_eq(free_mib(), 0);
    plm_device_free(device, &d);
    ck_assert_uint_eq(free_mib(), 3);
    plm_device_free(device, &b);
    plm_device_free(device, &c);
    close_sim();
}
END_TEST

START_TEST(the_smaller_of_two_views_binds)
{
    static const struct plm_sim_event events[] = {{PLM_SIM_AT_STEP, 3, PLM_SIM_HOST, 20 * MIB, 0}};
    open_sim((struct plm_sim_opts){
        .unified = true, .host_bytes = 40 * MIB, .events = events, .n_events = 1});
    struct plm_slab a, b;
    ck_assert_uint_eq(query().total_bytes, 40 * MIB);
    ck_assert_uint_eq(free_mib(), 40);
    ck_assert_int_eq(alloc(10, &a), PLM_OK);
    ck_assert_int_eq(alloc(31, &b), PLM_ERR_OUT_OF_DEVICE);
    plm_device_mark(device, PLM_PHASE_SERVE, 3);
    ck_assert_uint_eq(free_mib(), 10);
    ck_assert_int_eq(alloc(11, &b), PLM_ERR_OUT_OF_DEVICE);
    world.foreign_bytes = 50 * MIB; // now the device's view is the smaller
    ck_assert_uint_eq(free_mib(), 4);
    plm_device_free(device, &a);
    close_sim();
}
END_TEST

START_TEST(levels_bind_on_unified_memory)
{
    struct plm_sim_opts limited = {.unified = true, .n_cgroups = 1};
    limited.cgroups[0] = (struct plm_cgroup){30 * MIB, 15 * MIB, 5 * MIB};
    open_sim(limited);
    struct plm_slab a, b;
    ck_assert_int_eq(alloc(19, &a), PLM_OK);
    ck_assert_int_eq(alloc(2, &b), PLM_ERR_OUT_OF_DEVICE);
    plm_device_free(device, &a);
    close_sim();
}
END_TEST

START_TEST(frees_come_back_late)
{
    open_sim((struct plm_sim_opts){.free_lag_ns = 250 * MS});
    struct plm_slab a, b;
    ck_assert_int_eq(alloc(40, &a), PLM_OK);
    ck_assert_int_eq(alloc(10, &b), PLM_OK);
    plm_device_free(device, &a);
    ck_assert_uint_eq(world.taken_bytes, 10 * MIB);
    ck_assert_uint_eq(free_mib(), 14);
    ck_assert_int_eq(alloc(20, &a), PLM_ERR_OUT_OF_DEVICE);
    plm_sim_clock_advance(&vclock, 249 * MS);
    ck_assert_uint_eq(free_mib(), 14);
    plm_sim_clock_advance(&vclock, 1 * MS);
    ck_assert_uint_eq(free_mib(), 54);
    // Emptying the cache waits for it.
    plm_device_free(device, &b);
    uint64_t released;
    struct plm_mem_info info;
    const int64_t start = plm_now(&source);
    ck_assert_int_eq(plm_device_empty_cache(device, &released, &info), PLM_OK);
    ck_assert_int_eq(plm_now(&source) - start, 250 * MS);
    ck_assert_uint_eq(released, 10 * MIB);
    ck_assert_uint_eq(info.free_bytes, 64 * MIB);
    close_sim();
}
END_TEST

START_TEST(many_late_frees_all_come_back)
{
    open_sim((struct plm_sim_opts){.free_lag_ns = 250 * MS});
    struct plm_slab slabs[60];
    for (int i = 0; i < 60; i++)
        ck_assert_int_eq(alloc(1, &slabs[i]), PLM_OK);
    for (int i = 0; i < 60; i++) {
        plm_device_free(device, &slabs[i]);
        plm_sim_clock_advance(&vclock, 1);
    }
    ck_assert_uint_gt(world.held_back, 0);
    plm_sim_clock_advance(&vclock, 250 * MS);
    ck_assert_uint_eq(free_mib(), 64);
    ck_assert_uint_eq(world.held_back, 0);
    close_sim();
}
END_TEST

START_TEST(freed_memory_is_kept_until_the_cache_is_emptied)
{
    open_sim((struct plm_sim_opts){.keeps_bytes = 30 * MIB, .leaks_bytes = 3 * MIB});
    struct plm_slab a, b;
    uint64_t released;
    struct plm_mem_info info;
    ck_assert_int_eq(alloc(40, &a), PLM_OK);
    plm_device_free(device, &a);
    ck_assert_uint_eq(free_mib(), 34); // 30 are kept
    ck_assert_uint_eq(query().process_use_bytes, 30 * MIB);
    ck_assert_int_eq(alloc(35, &b), PLM_ERR_OUT_OF_DEVICE);
    ck_assert_int_eq(plm_device_empty_cache(device, &released, &info), PLM_OK);
    ck_assert_uint_eq(released, 30 * MIB);
    ck_assert_uint_eq(info.free_bytes, 61 * MIB); // 3 leaked
    // Nothing was freed since: nothing leaks.
    ck_assert_int_eq(plm_device_empty_cache(device, &released, &info), PLM_OK);
    ck_assert_uint_eq(released, 0);
    ck_assert_uint_eq(info.free_bytes, 61 * MIB);
    close_sim();
}
END_TEST

START_TEST(readings_are_late)
{
    open_sim((struct plm_sim_opts){.query_lag_ns = 250 * MS});
    struct plm_slab a, b;
    ck_assert_int_eq(alloc(10, &a), PLM_OK);
    plm_sim_clock_advance(&vclock, 100 * MS);
    ck_assert_int_eq(alloc(20, &b), PLM_OK);
    plm_sim_clock_advance(&vclock, 150 * MS);
    ck_assert_uint_eq(free_mib(), 54); // what was true after the first
    ck_assert_uint_eq(query().process_use_bytes, 10 * MIB);
    plm_sim_clock_advance(&vclock, 100 * MS);
    ck_assert_uint_eq(free_mib(), 34);
    plm_device_free(device, &b);
    ck_assert_uint_eq(free_mib(), 34);
    ck_assert_int_eq(alloc(54, &b), PLM_OK); // though it says 34
    plm_device_free(device, &a);
    plm_device_free(device, &b);
    close_sim();
}
END_TEST

// How long it takes to copy a word.
static int64_t copy_ns(const struct plm_slab *from, const struct plm_slab *to)
{
    const struct plm_copy_args copy = {.src = from->addr + MIB, .dst = to->addr, .n_words = 1};
    const int64_t start = plm_now(&source);
    ck_assert_int_eq(plm_device_run(device, plm_launch_copy(device, &copy)), PLM_OK);
    return plm_now(&source) - start;
}

START_TEST(spill_is_slow_memory)
{
    open_sim((struct plm_sim_opts){.spills = true, .submit_ns = 100});
    struct plm_slab a, b, c;
    ck_assert_int_eq(alloc(60, &a), PLM_OK);
    ck_assert_int_eq(alloc(70, &b), PLM_OK);
    ck_assert_int_eq(alloc(71, &c), PLM_OK);
    ck_assert_uint_eq(world.spilled_bytes, 141 * MIB);
    ck_assert_uint_eq(query().process_use_bytes, 60 * MIB); // the driver does not count it
    ck_assert_uint_eq(free_mib(), 4);
    // What names its ranges is slow where they lie there, anything else may use them.
    ck_assert_int_eq(copy_ns(&a, &a), 100);
    ck_assert_int_eq(copy_ns(&b, &a), 1000);
    ck_assert_int_eq(copy_ns(&a, &c), 1000);
    const struct plm_fill_args fill = {.dst = b.addr + MIB, .n_words = 1};
    int64_t start = plm_now(&source);
    ck_assert_int_eq(plm_device_run(device, plm_launch_fill(device, &fill)), PLM_OK);
    ck_assert_int_eq(plm_now(&source) - start, 1000);
    plm_device_free(device, &b);
    ck_assert_int_eq(copy_ns(&a, &a), 100);
    ck_assert_int_eq(copy_ns(&c, &a), 1000);
    plm_device_free(device, &c);
    start = plm_now(&source);
    ck_assert_int_eq(plm_device_wait(device, submit(), -1), PLM_OK);
    ck_assert_int_eq(plm_now(&source) - start, 100);
    ck_assert_int_eq(alloc(70, &b), PLM_OK);
    plm_device_free(device, &b);
    plm_device_free(device, &a);
    close_sim();
}
END_TEST

START_TEST(overcommit_fails_at_the_submit)
{
    open_sim((struct plm_sim_opts){.overcommits = true});
    struct plm_slab a, b;
    uint64_t value;
    ck_assert_int_eq(alloc(60, &a), PLM_OK);
    submit();
    world.foreign_bytes = 5 * MIB;
    ck_assert_int_eq(plm_device_submit(device, &value), PLM_ERR_OUT_OF_DEVICE);
    world.foreign_bytes = 0;
    ck_assert_int_eq(alloc(10, &b), PLM_OK);
    ck_assert_uint_eq(free_mib(), 0);
    ck_assert_int_eq(plm_device_submit(device, &value), PLM_ERR_OUT_OF_DEVICE);
    plm_device_free(device, &a);
    ck_assert_uint_eq(free_mib(), 54);
    submit();
    plm_device_free(device, &b);
    close_sim();
}
END_TEST

START_TEST(events_have_their_moments)
{
    static const struct plm_sim_event events[] = {
        {PLM_SIM_AT_STEP, 2, PLM_SIM_FOREIGN, 1 * MIB, 0},
        {PLM_SIM_AT_STEP, 5, PLM_SIM_FOREIGN_BY, 2 * MIB, 0},
        {PLM_SIM_AT_PHASE, PLM_PHASE_PREFILL, PLM_SIM_FOREIGN_BY, 4 * MIB, 0},
        {PLM_SIM_AT_TIME, 10 * MS, PLM_SIM_FOREIGN_BY, 8 * MIB, 0},
        {PLM_SIM_AT_TIME, 20 * MS, PLM_SIM_FOREIGN_BY, 16 * MIB, 0},
    };
    open_sim((struct plm_sim_opts){.events = events, .n_events = 5});
    plm_device_mark(device, PLM_PHASE_SERVE, 1);
    ck_assert_uint_eq(free_mib(), 64);
    plm_device_mark(device, PLM_PHASE_SERVE, 2);
    ck_assert_uint_eq(free_mib(), 63);
    plm_device_mark(device, PLM_PHASE_SERVE, 6); // over the fifth
    ck_assert_uint_eq(free_mib(), 61);
    plm_device_mark(device, PLM_PHASE_PREFILL, 0);
    ck_assert_uint_eq(free_mib(), 57);
    plm_device_mark(device, PLM_PHASE_PREFILL, 0); // entered again: it happened once
    ck_assert_uint_eq(free_mib(), 57);
    plm_sim_clock_advance(&vclock, 10 * MS);
    ck_assert_uint_eq(free_mib(), 49);
    plm_sim_clock_advance(&vclock, 100 * MS);
    ck_assert_uint_eq(free_mib(), 33);
    ck_assert_uint_eq(free_mib(), 33);
    // A reopened device does not live through it again.
    struct plm_error err;
    ck_assert_int_eq(plm_device_reopen(device, &err), PLM_OK);
    plm_device_mark(device, PLM_PHASE_PREFILL, 0);
    plm_device_mark(device, PLM_PHASE_SERVE, 6);
    ck_assert_uint_eq(free_mib(), 33);
    close_sim();
}
END_TEST

START_TEST(the_device_is_lost_at_any_moment)
{
    static const struct plm_sim_event events[] = {{PLM_SIM_AT_ALLOC, 2, PLM_SIM_LOST, 0, 0},
                                                  {PLM_SIM_AT_STEP, 4, PLM_SIM_LOST, 0, 0},
                                                  {PLM_SIM_AT_QUERY, 1, PLM_SIM_LOST, 0, 0}};
    struct plm_error err;
    struct plm_mem_info info;
    struct plm_slab a, b;
    open_sim((struct plm_sim_opts){.events = events, .n_events = 3});
    ck_assert_int_eq(alloc(1, &a), PLM_OK);
    ck_assert_int_eq(alloc(1, &b), PLM_ERR_LOST);
    plm_device_free(device, &a);
    ck_assert_int_eq(plm_device_reopen(device, &err), PLM_OK);
    plm_device_mark(device, PLM_PHASE_SERVE, 4);
    ck_assert_int_eq(plm_device_status(device), PLM_ERR_LOST);
    ck_assert_int_eq(plm_device_reopen(device, &err), PLM_OK);
    ck_assert_int_eq(plm_device_query_free(device, &info), PLM_ERR_LOST);
    ck_assert_int_eq(plm_device_reopen(device, &err), PLM_OK);
    ck_assert_int_eq(plm_device_query_free(device, &info), PLM_OK);
    close_sim();
}
END_TEST

START_TEST(submits_may_be_slow_or_hang)
{
    static const struct plm_sim_event events[] = {{PLM_SIM_AT_SUBMIT, 2, PLM_SIM_HANG, 10000, 0},
                                                  {PLM_SIM_AT_SUBMIT, 3, PLM_SIM_SLOW, 7, 0},
                                                  {PLM_SIM_AT_SUBMIT, 4, PLM_SIM_SLOW, 1, 0}};
    open_sim((struct plm_sim_opts){.submit_ns = 100, .events = events, .n_events = 3});
    const int64_t start = plm_now(&source);
    ck_assert_int_eq(plm_device_wait(device, submit(), -1), PLM_OK);
    ck_assert_int_eq(plm_now(&source) - start, 100);
    uint64_t value = submit();
    ck_assert_int_eq(plm_device_wait(device, value, 5000), PLM_ERR_TIMEOUT);
    ck_assert_int_eq(plm_now(&source) - start, 5100);
    ck_assert_int_eq(plm_device_wait(device, value, -1), PLM_OK);
    ck_assert_int_eq(plm_now(&source) - start, 10200);
    ck_assert_int_eq(plm_device_wait(device, submit(), -1), PLM_OK);
    ck_assert_int_eq(plm_now(&source) - start, 10900);
    ck_assert_int_eq(plm_device_wait(device, submit(), -1), PLM_OK);
    ck_assert_int_eq(plm_now(&source) - start, 11000);
    close_sim();
}
END_TEST

START_TEST(the_driver_grows)
{
    static const struct plm_sim_event events[] = {
        {PLM_SIM_AT_STEP, 1, PLM_SIM_TAKE, 10 * MIB, 0},
        {PLM_SIM_AT_STEP, 2, PLM_SIM_TAKE, 1000 * MIB, 0},
        {PLM_SIM_AT_STEP, 3, PLM_SIM_TAKE, -60 * (int64_t)MIB, 0}};
    open_sim((struct plm_sim_opts){.events = events, .n_events = 3});
    plm_device_mark(device, PLM_PHASE_SERVE, 1);
    ck_assert_uint_eq(free_mib(), 54);
    ck_assert_uint_eq(query().process_use_bytes, 10 * MIB);
    plm_device_mark(device, PLM_PHASE_SERVE, 2); // it takes what there is
    ck_assert_uint_eq(free_mib(), 0);
    ck_assert_uint_eq(world.driver_bytes, 64 * MIB);
    plm_device_mark(device, PLM_PHASE_SERVE, 3);
    ck_assert_uint_eq(free_mib(), 60);
    close_sim();
}
END_TEST

START_TEST(small_copies_read_back_without_bytes)
{
    open_sim((struct plm_sim_opts){0});
    struct plm_slab a;
    unsigned char guard[256], out[256]; // as long as a workspace's
    uint32_t ids[100], word = 5;
    memset(guard, 0xA5, sizeof(guard));
    for (int i = 0; i < 100; i++)
        ids[i] = 1;
    ck_assert_int_eq(alloc(1, &a), PLM_OK);
    ck_assert_int_eq(plm_device_copy_in(device, a.addr + 4096, guard, sizeof(guard)), PLM_OK);
    for (int step = 0; step < 12; step++) { // more than a step makes
        ck_assert_int_eq(plm_device_copy_in(device, a.addr + 4ull * step, &word, 4), PLM_OK);
        ck_assert_int_eq(plm_device_copy_in(device, a.addr + 8192, ids, sizeof(ids)), PLM_OK);
    }
    ck_assert_int_eq(plm_device_copy_out(device, out, a.addr + 4096, 64), PLM_OK);
    ck_assert_mem_eq(out, guard, 64);
    ck_assert_int_eq(plm_device_copy_out(device, out, a.addr + 4096 + 16, 4), PLM_OK);
    ck_assert_int_eq(out[3], 0xA5);
    ck_assert_int_eq(plm_device_copy_out(device, &word, a.addr, 4), PLM_OK);
    ck_assert_uint_eq(word, 5);
    ck_assert_int_eq(plm_device_copy_out(device, ids, a.addr + 8192, sizeof(ids)), PLM_OK);
    ck_assert_uint_eq(ids[0], 0); // too long to be kept
    // What is overwritten is not told any longer.
    word = 9;
    ck_assert_int_eq(plm_device_copy_in(device, a.addr + 4096, &word, 4), PLM_OK);
    ck_assert_int_eq(plm_device_copy_out(device, out, a.addr + 4096, 64), PLM_OK);
    ck_assert_uint_eq(out[63], 0);
    ck_assert_int_eq(plm_device_copy_out(device, &word, a.addr + 4096, 4), PLM_OK);
    ck_assert_uint_eq(word, 9);
    plm_device_free(device, &a);
    close_sim();
}
END_TEST

// Drivers below which the device is simulated bring a step's inputs in at once.
START_TEST(a_guard_before_other_inputs_reads_back)
{
    open_sim((struct plm_sim_opts){0});
    struct plm_slab a;
    unsigned char inputs[600] = {0}, out[256];
    memset(inputs, 0xA5, 256);
    ck_assert_int_eq(alloc(1, &a), PLM_OK);
    ck_assert_int_eq(plm_device_copy_in(device, a.addr + 4096, inputs, sizeof(inputs)), PLM_OK);
    ck_assert_int_eq(plm_device_copy_out(device, out, a.addr + 4096, sizeof(out)), PLM_OK);
    ck_assert_mem_eq(out, inputs, sizeof(out));
    plm_device_free(device, &a);
    close_sim();
}
END_TEST

static void overrun(const struct plm_backend *inner)
{
    static const struct plm_sim_event events[] = {{PLM_SIM_AT_STEP, 2, PLM_SIM_OVERRUN, 5, 0}};
    open_sim((struct plm_sim_opts){.inner = inner, .events = events, .n_events = 1});
    struct plm_slab a;
    unsigned char guard[256], out[256]; // as long as a workspace's
    int32_t token = 3;
    memset(guard, 0xA5, sizeof(guard));
    ck_assert_int_eq(alloc(1, &a), PLM_OK);
    for (uint64_t step = 1; step <= 3; step++) {
        plm_device_mark(device, PLM_PHASE_SERVE, step);
        ck_assert_int_eq(plm_device_copy_in(device, a.addr + 4096, guard, sizeof(guard)), PLM_OK);
        ck_assert_int_eq(plm_device_copy_in(device, a.addr, &token, 4), PLM_OK);
        ck_assert_int_eq(plm_device_wait(device, submit(), -1), PLM_OK);
        ck_assert_int_eq(plm_device_copy_out(device, out, a.addr + 4096, sizeof(out)), PLM_OK);
        ck_assert_int_eq(out[0] == 0xA5, step != 2);
        ck_assert_int_eq(out[4] == 0xA5, step != 2);
        ck_assert_int_eq(out[5], 0xA5);
    }
    plm_device_free(device, &a);
    close_sim();
}

START_TEST(a_step_writes_into_the_guard)
{
    overrun(NULL);
    overrun(&plm_cpu_backend);
}
END_TEST

// One "step": tokens, positions that hold the same numbers, an embedding, a head. The values of its
// logits.
static int step(const struct plm_slab *a, const int32_t tokens[20], float logits[32])
{
    enum { ROWS = 20, N = 32 };
    static const float zeros[32 * 1024];
    const uint64_t tokens_at = a->addr, pos_at = a->addr + 256, x_at = a->addr + 4096,
                   logits_at = a->addr + 65536, weight_at = a->addr + 131072;
    const int32_t pos[ROWS] = {POISON, POISON};
    ck_assert_int_eq(plm_device_copy_in(device, tokens_at, tokens, 4 * ROWS), PLM_OK);
    ck_assert_int_eq(plm_device_copy_in(device, pos_at, pos, sizeof(pos)), PLM_OK);
    ck_assert_int_eq(plm_device_copy_in(device, weight_at, zeros, sizeof(zeros)), PLM_OK);
    const struct plm_get_rows_args rows = {.weight = weight_at,
                                           .tokens = tokens_at,
                                           .dst = x_at,
                                           .type = PLM_TYPE_F32,
                                           .rows = ROWS,
                                           .n_in = N,
                                           .n_out = 1024,
                                           .scale = 1.0f};
    const struct plm_matmul_args head = {.weight = weight_at,
                                         .x = x_at,
                                         .dst = logits_at,
                                         .type = PLM_TYPE_F32,
                                         .act = PLM_ACT_F32,
                                         .rows = 1,
                                         .n_in = N,
                                         .n_out = 32,
                                         .ld_dst = 32};
    uint64_t value;
    ck_assert_int_eq(plm_launch_get_rows(device, &rows), PLM_OK);
    ck_assert_int_eq(plm_device_barrier(device), PLM_OK);
    ck_assert_int_eq(plm_launch_matmul(device, &head), PLM_OK);
    int r = plm_device_submit(device, &value);
    if (r == PLM_OK)
        r = plm_device_wait(device, value, 1000000000);
    if (r == PLM_OK)
        r = plm_device_copy_out(device, logits, logits_at, 32 * sizeof(float));
    return r;
}

static void poison(const struct plm_backend *inner, enum plm_sim_poison kind, int expected)
{
    open_sim((struct plm_sim_opts){.inner = inner, .poison = kind, .poison_token = POISON});
    const int32_t good[20] = {POISON + 1}, bad[20] = {1, 2, [19] = POISON};
    float logits[32];
    struct plm_slab a;
    ck_assert_int_eq(alloc(1, &a), PLM_OK);
    ck_assert_int_eq(step(&a, good, logits), PLM_OK);
    for (int i = 0; i < 32; i++)
        ck_assert(logits[i] == 0.0f);
    ck_assert_int_eq(step(&a, bad, logits), expected);
    if (expected == PLM_OK) {
        for (int i = 0; i < 32; i++)
            ck_assert(isnan(logits[i]));
        ck_assert_int_eq(step(&a, good, logits), PLM_OK);
        ck_assert(logits[31] == 0.0f);
    }
    plm_device_free(device, &a);
    close_sim();
}

START_TEST(a_token_poisons_its_step)
{
    for (int i = 0; i < 2; i++) {
        const struct plm_backend *inner = i == 0 ? NULL : &plm_cpu_backend;
        poison(inner, PLM_SIM_POISON_NAN, PLM_OK);
        poison(inner, PLM_SIM_POISON_HANG, PLM_ERR_TIMEOUT);
        poison(inner, PLM_SIM_POISON_LOST, PLM_ERR_LOST);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sim_world");
    TCase *tc = tcase_create("all");
    tcase_add_test(tc, heaps_are_filled_in_order);
    tcase_add_test(tc, the_smaller_of_two_views_binds);
    tcase_add_test(tc, levels_bind_on_unified_memory);
    tcase_add_test(tc, frees_come_back_late);
    tcase_add_test(tc, many_late_frees_all_come_back);
    tcase_add_test(tc, freed_memory_is_kept_until_the_cache_is_emptied);
    tcase_add_test(tc, readings_are_late);
    tcase_add_test(tc, spill_is_slow_memory);
    tcase_add_test(tc, overcommit_fails_at_the_submit);
    tcase_add_test(tc, events_have_their_moments);
    tcase_add_test(tc, the_device_is_lost_at_any_moment);
    tcase_add_test(tc, submits_may_be_slow_or_hang);
    tcase_add_test(tc, the_driver_grows);
    tcase_add_test(tc, small_copies_read_back_without_bytes);
    tcase_add_test(tc, a_guard_before_other_inputs_reads_back);
    tcase_add_test(tc, a_step_writes_into_the_guard);
    tcase_add_test(tc, a_token_poisons_its_step);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
