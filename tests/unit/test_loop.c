// SPDX-License-Identifier: Apache-2.0
// The whole loop over real parts: arenas, pool, ledger and device wrappers on the simulated device.
// What test_profile.c shows with numbers, this shows with the bytes that a device really gave.
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "backends/sim/sim.h"
#include "core/kv/pool.h"
#include "core/mem/arena.h"
#include "core/plan/profile.h"
#include "tests/support/suite.h"
#include "tests/unit/suggested.h"

#define MIB   (UINT64_C(1) << 20)
#define GIB   (UINT64_C(1) << 30)
#define BLOCK (UINT64_C(360) << 10)

static const struct plm_cost_table table = {
    .n_buffers = 2,
    .buffers = {{.name = "rows", .per_row = 20 << 10}, {.name = "tables", .per_seq_block = 8}},
};

struct rig {
    struct plm_host *host;
    struct plm_sim_clock time;
    struct plm_clock clock;
    struct plm_sim_world world;
    struct plm_device *device;
    struct plm_ledger *ledger;
    struct plm_arena *weights, *workspace, *ballast;
    struct plm_kv_pool *pool;
    uint64_t workspace_addr;
};

static int on_read(void *ctx, struct plm_stress_reading *ret)
{
    struct rig *rig = ctx;
    struct plm_mem_info info;
    struct plm_ledger_stats l;
    int r = plm_device_query_free(rig->device, &info);
    if (r != PLM_OK)
        return r;
    plm_ledger_read(rig->ledger, &l);
    bool known = plm_device_caps(rig->device)->reports_process_use;
    *ret = (struct plm_stress_reading){.T = (int64_t)info.total_bytes,
                                       .F = (int64_t)info.free_bytes,
                                       .O = l.held_bytes,
                                       .K = l.by_class[PLM_MEM_KV].held_bytes,
                                       .process_use = known ? (int64_t)info.process_use_bytes
                                                            : PLM_PLAN_UNKNOWN,
                                       .n_cgroups = info.n_cgroups};
    for (uint32_t i = 0; i < info.n_cgroups; i++)
        ret->cgroups[i] = (struct plm_plan_cgroup){(int64_t)info.cgroups[i].limit_bytes,
                                                   (int64_t)info.cgroups[i].current_bytes,
                                                   (int64_t)info.cgroups[i].reclaimable_bytes};
    return PLM_OK;
}

static int submit(struct rig *rig, uint64_t addr, uint64_t bytes)
{
    const struct plm_fill_args fill = {.dst = addr, .n_words = bytes / 4, .seed = 1};
    uint64_t value;
    int r = plm_launch_fill(rig->device, &fill);
    if (r == PLM_OK && (r = plm_device_submit(rig->device, &value)) == PLM_OK)
        return plm_device_wait(rig->device, value, -1);
    plm_device_discard(rig->device);
    return r;
}

static int on_run(void *ctx, const struct plm_stress_step *step, struct plm_error *err)
{
    struct rig *rig = ctx;
    int r = submit(rig, rig->workspace_addr, (uint64_t)plm_cost(&table, &step->shape));
    return r == PLM_OK ? r : plm_fail(err, r, "a step failed: %s", plm_strstatus(r));
}

static int on_empty(void *ctx);

static int on_format(void *ctx, uint32_t slab_blocks, uint32_t max_blocks)
{
    struct rig *rig = ctx;
    int r = on_empty(rig); // as the engine's does: the new pool takes the place of the old one
    return r == PLM_OK ? plm_kv_pool_format(rig->pool, slab_blocks, max_blocks) : r;
}

static int on_resize(void *ctx, uint32_t blocks, uint32_t *ret_blocks, int64_t *ret_failed)
{
    struct rig *rig = ctx;
    struct plm_kv_pool_stats s;
    uint64_t failed = 0;
    int r = plm_kv_pool_resize(rig->pool, blocks, &failed);
    plm_kv_pool_read(rig->pool, &s);
    *ret_blocks = s.total;
    *ret_failed = (int64_t)failed;
    return r;
}

static int on_verify(void *ctx, struct plm_error *err)
{
    struct rig *rig = ctx;
    uint32_t first, blocks;
    int r = PLM_OK;
    (void)err;
    for (uint32_t i = 0; r == PLM_OK && plm_kv_pool_slab(rig->pool, i, &first, &blocks); i++)
        r = submit(rig, plm_kv_pool_addr(rig->pool, first), blocks * BLOCK);
    return r;
}

static int on_ballast(void *ctx, int64_t bytes)
{
    struct rig *rig = ctx;
    plm_arena_destroy(rig->ballast);
    rig->ballast = NULL;
    if (bytes == 0)
        return PLM_OK;
    int r =
        plm_arena_create(rig->host, rig->device, rig->ledger, PLM_MEM_BALLAST, 0, &rig->ballast);
    return r == PLM_OK ? plm_arena_reserve(rig->ballast, (uint64_t)bytes) : r;
}

static int on_empty(void *ctx)
{
    struct rig *rig = ctx;
    struct plm_mem_info info;
    uint64_t released;
    return plm_device_empty_cache(rig->device, &released, &info);
}

static int on_limits(void *ctx, const struct plm_plan_limits *limits)
{
    struct rig *rig = ctx;
    struct plm_shape worst = plm_limits_shape(limits);
    plm_arena_destroy(rig->workspace);
    rig->workspace = NULL;
    int r = plm_arena_create(rig->host, rig->device, rig->ledger, PLM_MEM_WORKSPACE, 0,
                             &rig->workspace);
    return r == PLM_OK ? plm_arena_alloc(rig->workspace, (uint64_t)plm_cost(&table, &worst), 256,
                                         &rig->workspace_addr)
                       : r;
}

static void on_seal(void *ctx)
{
    struct rig *rig = ctx;
    plm_device_seal(rig->device, true);
}

// What a start is asked for; the rest comes from the device.
static struct plm_plan_input asked(void)
{
    return (struct plm_plan_input){
        .memory_fraction = 1,
        .limits = {.batch_max_tokens = 512, .max_sequences = 16, .max_context = 65536},
        .prefix_cache_blocks = PLM_PLAN_UNKNOWN};
}

static int start_as(struct rig *rig, struct plm_sim_opts *sim, struct plm_plan_input in,
                    struct plm_profile *ret, struct plm_error *err)
{
    *rig = (struct rig){.host = plm_host_create(0)};
    plm_sim_clock_init(&rig->time);
    rig->clock = plm_sim_clock_source(&rig->time);
    sim->world = &rig->world;
    const struct plm_device_opts opts = {
        .host = rig->host, .clock = &rig->clock, .backend_opts = sim};
    *err = (struct plm_error){.msg = ""};
    rig->ledger = plm_ledger_create(rig->host);
    int r = plm_device_open_backend(&plm_sim_backend, &opts, &rig->device, err);
    if (r != PLM_OK)
        return r;
    ck_assert_int_eq(
        plm_kv_pool_create(rig->host, rig->device, rig->ledger, BLOCK, true, &rig->pool), PLM_OK);
    ck_assert_int_eq(
        plm_arena_create(rig->host, rig->device, rig->ledger, PLM_MEM_WEIGHTS, 0, &rig->weights),
        PLM_OK);
    if ((r = plm_arena_reserve(rig->weights, 500 * MIB)) != PLM_OK)
        return plm_fail(err, r, "weights");
    if ((r = plm_device_warm_up(rig->device, &(struct plm_kernel_needs){0}, err)) != PLM_OK)
        return r;
    const struct plm_caps *caps = plm_device_caps(rig->device);
    const struct plm_stress_ops ops = {.ctx = rig,
                                       .read = on_read,
                                       .run = on_run,
                                       .kv_format = on_format,
                                       .kv_resize = on_resize,
                                       .kv_verify = on_verify,
                                       .ballast = on_ballast,
                                       .empty_cache = on_empty,
                                       .set_limits = on_limits,
                                       .seal = on_seal};
    const struct plm_log silent = {0};
    in.g = (int64_t)caps->granularity_bytes;
    in.context_bytes = (int64_t)caps->context_bytes;
    in.withheld = (int64_t)caps->unavailable_bytes;
    in.unified = caps->unified;
    in.block_bytes = BLOCK;
    in.max_slab_bytes = (int64_t)caps->max_slab_bytes;
    in.max_slabs = caps->max_slabs - 3; // weights, workspace, ballast
    const struct plm_profile_opts po = {
        .in = in, .cost = &table, .clock = &rig->clock, .log = &silent};
    return plm_profile_run(&po, &ops, ret, err);
}

static int start(struct rig *rig, struct plm_sim_opts *sim, struct plm_profile *ret,
                 struct plm_error *err)
{
    return start_as(rig, sim, asked(), ret, err);
}

static void finish(struct rig *rig)
{
    plm_kv_pool_destroy(rig->pool);
    plm_arena_destroy(rig->ballast);
    plm_arena_destroy(rig->workspace);
    plm_arena_destroy(rig->weights);
    plm_ledger_destroy(rig->ledger);
    if (rig->device != NULL)
        ck_assert_uint_eq(plm_device_close(rig->device), 0);
    ck_assert_uint_eq(rig->world.taken_bytes, 0);
    ck_assert_int_eq(plm_host_destroy(rig->host), 0);
}

static struct plm_sim_opts card(void)
{
    return (struct plm_sim_opts){.capacity_bytes = 4 * GIB,
                                 .granularity_bytes = 2 * MIB,
                                 .context_bytes = 200 * MIB,
                                 .kernel_bytes = 4 * MIB};
}

// Free memory as it really is.
static int64_t left(const struct rig *rig, const struct plm_sim_opts *sim)
{
    return (int64_t)(sim->capacity_bytes - sim->unavailable_bytes - rig->world.taken_bytes -
                     rig->world.driver_bytes - rig->world.foreign_bytes);
}

static void check_sealed(struct rig *rig, const struct plm_sim_opts *sim,
                         const struct plm_profile *p)
{
    struct plm_ledger_stats l;
    struct plm_kv_pool_stats s;
    struct plm_slab slab;
    struct plm_device_counters c;
    plm_ledger_read(rig->ledger, &l);
    plm_kv_pool_read(rig->pool, &s);
    ck_assert_int_eq(l.held_bytes, (int64_t)rig->world.taken_bytes);
    ck_assert_int_eq(p->plan.line, l.held_bytes);
    ck_assert_uint_eq(s.total, (uint64_t)p->plan.blocks);
    ck_assert_int_eq(p->plan.kv_bytes, (int64_t)s.held_bytes);
    ck_assert_int_ge(left(rig, sim), p->plan.ballast);
    ck_assert_int_eq(plm_device_alloc(rig->device, PLM_SLAB_DEVICE, 1, &slab), PLM_ERR_SEALED);
    plm_device_counters(rig->device, &c);
    ck_assert_uint_eq(c.allocs_refused, 1);
}

START_TEST(the_plan_is_what_the_device_gave)
{
    for (int variant = 0; variant < 6; variant++) {
        struct rig rig;
        struct plm_profile p;
        struct plm_error err;
        struct plm_sim_opts sim = card();
        if (variant == 1)
            sim.unavailable_bytes = 80 * MIB;
        if (variant == 2)
            sim.hides_process_use = true;
        if (variant == 3)
            sim.granularity_bytes = 16 * MIB;
        if (variant == 4)
            sim.max_slabs = 12;
        if (variant == 5) {
            sim.unified = true;
            sim.n_cgroups = 1;
            sim.cgroups[0] = (struct plm_cgroup){.limit_bytes = 2 * GIB, .current_bytes = 50 * MIB};
        }
        int r = start(&rig, &sim, &p, &err);
        ck_assert_msg(r == PLM_OK, "%d: %s", variant, err.msg);
        check_sealed(&rig, &sim, &p);
        // All but the margin, what is withheld and less than a slab is used.
        if (variant != 5)
            ck_assert_int_lt(left(&rig, &sim) - p.plan.margin,
                             p.plan.slabs.slab_bytes + (int64_t)sim.granularity_bytes);
        else
            ck_assert_int_le(p.plan.line, (int64_t)(2 * GIB - 50 * MIB));
        finish(&rig);
    }
}
END_TEST

START_TEST(each_device_allocation_may_fail)
{
    for (uint64_t nth = 1;; nth++) {
        struct rig rig;
        struct plm_profile p;
        struct plm_error err;
        struct plm_sim_opts sim = card();
        const struct plm_sim_event event = {PLM_SIM_AT_ALLOC, nth, PLM_SIM_FAIL_ALLOCS, 1, 0};
        sim.events = &event;
        sim.n_events = 1;
        int r = start(&rig, &sim, &p, &err);
        bool met = rig.world.allocs >= nth;
        if (r == PLM_OK)
            check_sealed(&rig, &sim, &p);
        else
            ck_assert(r == PLM_ERR_OUT_OF_DEVICE && err.msg[0] != '\0');
        finish(&rig);
        if (!met)
            break;
        ck_assert_uint_lt(nth, 1000);
    }
}
END_TEST

START_TEST(each_submit_may_fail_or_lose_the_device)
{
    for (int lost = 0; lost < 2; lost++) {
        for (uint64_t nth = 1;; nth += 1 + nth / 8) {
            struct rig rig;
            struct plm_profile p;
            struct plm_error err;
            struct plm_sim_opts sim = card();
            const struct plm_sim_event event = {PLM_SIM_AT_SUBMIT, nth,
                                                lost ? PLM_SIM_LOST : PLM_SIM_FAIL_SUBMITS, 1, 0};
            sim.events = &event;
            sim.n_events = 1;
            int r = start(&rig, &sim, &p, &err);
            bool met = rig.world.submits >= nth;
            // One failed submit is outlived; a lost device is not, where nothing can reopen it.
            if (lost && met)
                ck_assert_int_eq(r, PLM_ERR_LOST);
            else
                ck_assert_msg(r == PLM_OK, "%d at %d: %s", r, (int)nth, err.msg);
            if (r == PLM_OK)
                check_sealed(&rig, &sim, &p);
            finish(&rig);
            if (!met)
                break;
        }
    }
}
END_TEST

START_TEST(neighbours_come_and_go)
{
    // At each of the first queries one comes with 1 GiB, at the next ones it leaves again.
    for (uint64_t at = 1; at < 12; at++) {
        struct rig rig;
        struct plm_profile p;
        struct plm_error err;
        const struct plm_sim_event events[2] = {{PLM_SIM_AT_QUERY, at, PLM_SIM_FOREIGN, GIB, 0},
                                                {PLM_SIM_AT_QUERY, at + 6, PLM_SIM_FOREIGN, 0, 0}};
        struct plm_sim_opts sim = card();
        sim.events = events;
        sim.n_events = 2;
        int r = start(&rig, &sim, &p, &err);
        ck_assert_msg(r == PLM_OK, "at %d: %s", (int)at, err.msg);
        check_sealed(&rig, &sim, &p);
        finish(&rig);
    }
}
END_TEST

START_TEST(lies_end_in_a_plan_or_a_reason)
{
    static const enum plm_sim_lie lies[] = {PLM_SIM_STALE,       PLM_SIM_FREE_ABOVE_TOTAL,
                                            PLM_SIM_ALL_ZERO,    PLM_SIM_USE_ABOVE_TOTAL,
                                            PLM_SIM_QUERY_FAILS, PLM_SIM_OSCILLATE};
    for (size_t i = 0; i < sizeof(lies) / sizeof(*lies); i++) {
        for (uint64_t from = 1; from < 12; from++) {
            struct rig rig;
            struct plm_profile p;
            struct plm_error err;
            struct plm_sim_opts sim = card();
            const struct plm_sim_event event = {PLM_SIM_AT_QUERY, from, PLM_SIM_LIE, 0, lies[i]};
            sim.events = &event;
            sim.n_events = 1;
            int r = start(&rig, &sim, &p, &err);
            if (r == PLM_OK)
                check_sealed(&rig, &sim, &p);
            else
                ck_assert_uint_gt(strlen(err.msg), 0);
            finish(&rig);
        }
    }
}
END_TEST

// The number of the last submit of a start, which is within its validation.
static uint64_t last_submit(struct plm_sim_opts sim)
{
    struct rig rig;
    struct plm_profile p;
    struct plm_error err;
    ck_assert_int_eq(start(&rig, &sim, &p, &err), PLM_OK);
    const uint64_t submits = rig.world.submits;
    finish(&rig);
    return submits;
}

START_TEST(what_is_released_must_come_back)
{
    int64_t blocks[3];
    for (int variant = 0; variant < 3; variant++) {
        struct rig rig;
        struct plm_profile p;
        struct plm_error err;
        struct plm_sim_opts sim = card();
        if (variant == 1)
            sim.keeps_bytes = GIB; // kept until the caches are emptied: all comes back
        if (variant == 2)
            sim.leaks_bytes = 64 * MIB;
        // So that the pool is shrunk.
        const struct plm_sim_event event = {PLM_SIM_AT_SUBMIT, last_submit(sim),
                                            PLM_SIM_FAIL_SUBMITS, 1, 0};
        sim.events = &event;
        sim.n_events = 1;
        int r = start(&rig, &sim, &p, &err);
        ck_assert_msg(r == PLM_OK, "%d: %s", variant, err.msg);
        ck_assert_uint_eq(p.attempts, 2);
        check_sealed(&rig, &sim, &p);
        blocks[variant] = p.plan.blocks;
        if (variant < 2)
            ck_assert_int_eq(p.not_returned, 0);
        else
            ck_assert_int_ge(p.not_returned, (int64_t)(64 * MIB));
        finish(&rig);
    }
    ck_assert_int_eq(blocks[1], blocks[0]);
    ck_assert_int_le(blocks[2], blocks[0] - (int64_t)(64 * MIB / BLOCK));
}
END_TEST

// A start on each device between too small and large enough; each value that a failure names starts
// on the same device.
START_TEST(what_is_suggested_starts_on_the_same_device)
{
    int failed = 0, started = 0;
    for (uint64_t capacity = 700 * MIB; capacity < GIB; capacity += 3 * MIB) {
        for (int limited = 0; limited < 3; limited++) {
            struct rig rig;
            struct plm_profile p;
            struct plm_error err;
            struct plm_sim_opts sim = card();
            struct plm_plan_input in = asked();
            sim.capacity_bytes = limited ? 4 * GIB : capacity;
            sim.hides_process_use = limited == 2;
            in.operator_limit = limited ? (int64_t)capacity : 0;
            in.limits.max_sequences = 64;
            in.limits.batch_max_tokens = 4096;
            int r = start_as(&rig, &sim, in, &p, &err);
            finish(&rig);
            if (r == PLM_OK)
                continue;
            ck_assert_int_eq(r, PLM_ERR_OUT_OF_DEVICE);
            failed++;
            char *list = strstr(err.msg, "starts: ");
            if (list == NULL)
                continue;
            list += strlen("starts: ");
            for (char *item = strtok(list, ",;"); item != NULL; item = strtok(NULL, ",;")) {
                struct plm_plan_input other = in;
                struct plm_error why;
                ck_assert_int_gt(suggested_apply(item, &other), 0);
                r = start_as(&rig, &sim, other, &p, &why);
                ck_assert_msg(r == PLM_OK, "%s of \"%s\": %s", item, err.msg, why.msg);
                finish(&rig);
                started++;
            }
        }
    }
    ck_assert_int_gt(failed, 30);
    ck_assert_int_gt(started, 60);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("loop");
    TCase *tc = tcase_create("all");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, the_plan_is_what_the_device_gave);
    tcase_add_test(tc, each_device_allocation_may_fail);
    tcase_add_test(tc, each_submit_may_fail_or_lose_the_device);
    tcase_add_test(tc, neighbours_come_and_go);
    tcase_add_test(tc, lies_end_in_a_plan_or_a_reason);
    tcase_add_test(tc, what_is_released_must_come_back);
    tcase_add_test(tc, what_is_suggested_starts_on_the_same_device);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
