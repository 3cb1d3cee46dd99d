// SPDX-License-Identifier: Apache-2.0
// The host code that CUDA and HIP share, on a driver of the test's own (gpu_stub.h): lists, graphs,
// choices and losses.
#include <check.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "gpu_fixture.h"
#include "tests/support/suite.h"

// ---- lists ----

static int append_add(uint32_t n)
{
    const struct plm_add_args args = {.a = 1, .b = 2, .dst = 3, .rows = 1, .n = n};
    return plm_gpu_launch(dev, PLM_OP_ADD, 1, &args, sizeof(args));
}

static uint32_t n_of(const struct stub_launch *l)
{
    struct plm_add_args args;
    ck_assert_str_eq(l->symbol, "plm_add");
    memcpy(&args, l->args, sizeof(args));
    return args.n;
}

static uint64_t submit(void)
{
    uint64_t value = 0;
    ck_assert_int_eq(plm_gpu_submit(dev, &value), PLM_OK);
    return value;
}

static void append_all(uint32_t first, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        ck_assert_int_eq(append_add(first + i), PLM_OK);
}

START_TEST(kernels_beyond_the_plan_are_refused)
{
    open_device();
    ck_assert_int_eq(append_add(1), PLM_ERR_UNSUPPORTED);
    warm_up();
    append_all(1, 64);
    ck_assert_int_eq(append_add(1), PLM_ERR_LIMIT);
    plm_gpu_discard(dev);
    ck_assert_int_eq(append_add(1), PLM_OK);
    plm_gpu_discard(dev);
    end();
}
END_TEST

START_TEST(lists_run_in_order_as_they_were_appended)
{
    open_device();
    warm_up();
    append_all(1024, 3);
    const uint64_t value = submit();
    ck_assert_uint_eq(submit(), value + 1); // an empty one
    ck_assert_int_eq(plm_gpu_wait(dev, value, WAIT_NS), PLM_OK);
    ck_assert_uint_eq(stub.n_launches, 3);
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert_uint_eq(n_of(&stub.launches[i]), 1024 + i);
        ck_assert_uint_eq(stub.launches[i].grid, i == 0 ? 1 : 2);
        ck_assert_uint_eq(stub.launches[i].threads, 256);
        ck_assert_uint_eq(stub.launches[i].args_bytes, sizeof(struct plm_add_args));
        ck_assert(stub.launches[i].early);
    }
    end();
}
END_TEST

START_TEST(waits_have_limits_and_reach_values_long_gone)
{
    open_device();
    const uint64_t first = submit();
    for (uint32_t i = 0; i < 3 * PLM_GPU_EVENTS; i++)
        submit();
    stub.not_ready = UINT64_MAX;
    ck_assert_int_eq(plm_gpu_wait(dev, dev->value, 0), PLM_ERR_TIMEOUT);
    ck_assert_int_eq(plm_gpu_wait(dev, first, 3000000), PLM_ERR_TIMEOUT);
    stub.not_ready = 2;
    ck_assert_int_eq(plm_gpu_wait(dev, first, WAIT_NS), PLM_OK);
    ck_assert_int_eq(plm_gpu_wait(dev, first, 0), PLM_OK);
    ck_assert_int_eq(plm_gpu_wait(dev, dev->value, -1), PLM_OK);
    end();
}
END_TEST

START_TEST(a_list_that_found_no_memory_goes_on_where_it_was)
{
    uint64_t value = 0;
    open_device();
    warm_up();
    append_all(1, 5);
    stub.fail_at = "launch";
    stub.fail_nth = 3;
    stub.fail_times = 2;
    stub.fail_with = PLM_GPU_OUT_OF_MEMORY;
    const uint64_t before = dev->value;
    ck_assert_int_eq(plm_gpu_submit(dev, &value), PLM_ERR_OUT_OF_DEVICE);
    ck_assert_uint_eq(stub.n_launches, 2); // waited for: what they use may be freed
    ck_assert_uint_eq(dev->value, before);
    ck_assert_int_eq(plm_gpu_submit(dev, &value), PLM_ERR_OUT_OF_DEVICE);
    append_all(6, 1);
    ck_assert_int_eq(plm_gpu_submit(dev, &value), PLM_OK);
    ck_assert_uint_eq(value, before + 1);
    ck_assert_int_eq(plm_gpu_wait(dev, value, WAIT_NS), PLM_OK);
    ck_assert_uint_eq(stub.n_launches, 6); // each once
    for (uint32_t i = 0; i < 6; i++)
        ck_assert_uint_eq(n_of(&stub.launches[i]), 1 + i);
    // Discarded instead, the next list begins at its beginning.
    append_all(1, 4);
    stub.calls = 0;
    stub.fail_times = 1;
    ck_assert_int_eq(plm_gpu_submit(dev, &value), PLM_ERR_OUT_OF_DEVICE);
    plm_gpu_discard(dev);
    stub.n_launches = 0;
    append_all(7, 1);
    ck_assert_int_eq(plm_gpu_wait(dev, submit(), WAIT_NS), PLM_OK);
    ck_assert_uint_eq(stub.n_launches, 1);
    ck_assert_uint_eq(n_of(&stub.launches[0]), 7);
    end();
}
END_TEST

START_TEST(a_step_takes_no_host_memory)
{
    struct plm_host_stats before, after;
    open_device();
    warm_up();
    struct plm_slab slab = take(PLM_SLAB_DEVICE, 8 * MIB);
    append_all(1, 8);
    ck_assert_int_eq(plm_gpu_capture(dev), PLM_OK);
    plm_gpu_discard(dev);
    static char bytes[3 << 20];
    plm_host_read(host, &before);
    for (uint32_t i = 0; i < 70; i++) { // more than there are events
        ck_assert_int_eq(plm_gpu_copy_in(dev, slab.addr, bytes, sizeof(bytes)), PLM_OK);
        append_all(i, 1 + i % 8);
        ck_assert_int_eq(plm_gpu_barrier(dev), PLM_OK);
        ck_assert_int_eq(plm_gpu_wait(dev, submit(), WAIT_NS), PLM_OK);
        ck_assert_int_eq(plm_gpu_copy_out(dev, bytes, slab.addr, sizeof(bytes)), PLM_OK);
    }
    plm_host_read(host, &after);
    ck_assert_uint_eq(after.allocations, before.allocations);
    plm_gpu_free(dev, &slab);
    end();
}
END_TEST

// ---- graphs ----

static void capture(uint32_t first, uint32_t n)
{
    append_all(first, n);
    ck_assert_int_eq(plm_gpu_capture(dev), PLM_OK);
    plm_gpu_discard(dev);
}

// Runs a list and returns how many of its launches came of a replay.
static uint32_t run(uint32_t first, uint32_t n)
{
    uint32_t replayed = 0;
    stub.n_launches = 0;
    append_all(first, n);
    ck_assert_int_eq(plm_gpu_wait(dev, submit(), WAIT_NS), PLM_OK);
    ck_assert_uint_eq(stub.n_launches, n);
    for (uint32_t i = 0; i < n; i++) {
        ck_assert_uint_eq(n_of(&stub.launches[i]), first + i);
        replayed += stub.launches[i].replayed;
    }
    return replayed;
}

START_TEST(a_captured_list_is_replayed_with_other_arguments)
{
    struct plm_gpu_counters c;
    open_device();
    warm_up();
    append_all(1, 4);
    ck_assert_int_eq(plm_gpu_capture(dev), PLM_OK);
    ck_assert_int_eq(plm_gpu_wait(dev, submit(), WAIT_NS), PLM_OK); // it is still open
    ck_assert_uint_eq(stub.n_launches, 4);
    ck_assert_uint_eq(run(1, 4), 4);
    plm_gpu_counters(dev, &c);
    ck_assert_uint_eq(c.set, 0);
    ck_assert_uint_eq(run(2000, 4), 4); // grids, too
    ck_assert_uint_eq(run(2000, 4), 4);
    plm_gpu_counters(dev, &c);
    ck_assert_uint_eq(c.set, 4);
    ck_assert_uint_eq(run(1, 5), 0); // of other kernels
    capture(77, 4);                  // there already
    ck_assert_uint_eq(dev->counters.captured, 1);
    end();
}
END_TEST

// Runs a product of so many rows beside other ops, and returns how many of the list's launches may
// begin early; *replayed: whether it was a replay.
static uint32_t run_rows(uint32_t rows, bool capture_it, bool *replayed)
{
    const struct plm_matmul_args product = {.weight = 1,
                                            .x = 2,
                                            .dst = 3,
                                            .type = PLM_TYPE_Q4_0,
                                            .act = PLM_ACT_Q8,
                                            .rows = rows,
                                            .n_in = 256,
                                            .n_out = 16,
                                            .ld_dst = 16};
    uint32_t early = 0;
    stub.n_launches = 0;
    append_all(1, 1);
    ck_assert_int_eq(plm_gpu_launch(dev, PLM_OP_MATMUL, 1, &product, sizeof(product)), PLM_OK);
    append_all(2, 2);
    if (capture_it)
        ck_assert_int_eq(plm_gpu_capture(dev), PLM_OK);
    ck_assert_int_eq(plm_gpu_wait(dev, submit(), WAIT_NS), PLM_OK);
    ck_assert_uint_eq(stub.n_launches, 4);
    for (uint32_t i = 0; i < 4; i++)
        early += stub.launches[i].early;
    *replayed = stub.launches[0].replayed;
    return early;
}

START_TEST(kernels_of_many_rows_do_not_begin_early)
{
    static const struct plm_kernel_needs needs = {.weight_types = 1u << PLM_TYPE_Q4_0};
    static const uint32_t all_rows[] = {64, 1, 16, 32, 17, 16, 1, 64};
    struct plm_error err = {0};
    bool replayed;
    open_device();
    ck_assert_msg(plm_gpu_warm_up(dev, &needs, &err) == PLM_OK, "%s", err.msg);
    for (size_t i = 0; i < 8; i++) {
        ck_assert_uint_eq(run_rows(all_rows[i], false, &replayed), all_rows[i] <= 16 ? 4 : 0);
        ck_assert(!replayed);
    }
    // The same in graphs, also where both kinds have the same kernels.
    for (size_t i = 0; i < 8; i++) {
        ck_assert_uint_eq(run_rows(all_rows[i], true, &replayed), all_rows[i] <= 16 ? 4 : 0);
        ck_assert(replayed);
    }
    append_all(1, 4); // what was appended before is not remembered
    ck_assert(plm_gpu_list_is_early(dev));
    plm_gpu_discard(dev);
    end();
    begin();
    opts.early = false;
    ck_assert_int_eq(try_open(&err), PLM_OK);
    ck_assert_msg(plm_gpu_warm_up(dev, &needs, &err) == PLM_OK, "%s", err.msg);
    ck_assert_uint_eq(run_rows(1, false, &replayed), 0);
    end();
}
END_TEST

START_TEST(where_arguments_cannot_be_set_only_the_same_list_is_replayed)
{
    struct plm_error err = {0};
    begin();
    stub.cards[0].graphs_settable = false;
    ck_assert_int_eq(try_open(&err), PLM_OK);
    warm_up();
    capture(1, 4);
    capture(9, 4);
    ck_assert_uint_eq(dev->counters.captured, 2);
    ck_assert_uint_eq(run(1, 4), 4);
    ck_assert_uint_eq(run(9, 4), 4);
    ck_assert_uint_eq(run(2, 4), 0);
    end();
}
END_TEST

START_TEST(a_graph_that_fails_is_not_missed)
{
    uint64_t value;
    open_device();
    warm_up();
    static const char *const places[] = {"capture_begin", "launch", "capture_node", "capture_end",
                                         "graph_instantiate"};
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        append_all(1, 4);
        const int64_t live = stub.live;
        stub.fail_at = places[i];
        stub.calls = 0;
        stub.fail_nth = stub.fail_times = 1;
        stub.fail_with = PLM_GPU_OUT_OF_MEMORY;
        ck_assert_int_eq(plm_gpu_capture(dev), PLM_ERR_OUT_OF_DEVICE);
        ck_assert_int_eq(stub.live, live);
        stub.fail_nth = 0;
        plm_gpu_discard(dev);
        ck_assert_uint_eq(run(1, 4), 0);
    }
    // What the driver does not capture runs kernel by kernel.
    append_all(1, 4);
    stub.fail_at = "capture_node";
    stub.calls = 0;
    stub.fail_nth = 1;
    stub.fail_with = PLM_GPU_UNSUPPORTED;
    ck_assert_int_eq(plm_gpu_capture(dev), PLM_ERR_LIMIT);
    ck_assert_ptr_nonnull(strstr(log_text, "makes no graph"));
    stub.fail_nth = 0;
    stub.fail_with = PLM_GPU_OUT_OF_MEMORY;
    plm_gpu_discard(dev);
    ck_assert_uint_eq(run(1, 4), 0);
    capture(1, 4);
    // No memory for a replay: nothing ran, the list is still open.
    append_all(1, 4);
    stub.n_launches = 0;
    stub.fail_at = "graph_launch";
    stub.calls = 0;
    stub.fail_nth = 1;
    ck_assert_int_eq(plm_gpu_submit(dev, &value), PLM_ERR_OUT_OF_DEVICE);
    ck_assert_int_eq(plm_gpu_submit(dev, &value), PLM_OK);
    ck_assert_int_eq(plm_gpu_wait(dev, value, WAIT_NS), PLM_OK);
    ck_assert_uint_eq(stub.n_launches, 4);
    ck_assert(stub.launches[0].replayed);
    // Arguments that cannot be set after all: kernel by kernel from then on.
    stub.fail_at = "graph_set";
    stub.calls = 0;
    stub.fail_with = PLM_GPU_UNSUPPORTED;
    ck_assert_uint_eq(run(5, 4), 0);
    ck_assert_ptr_nonnull(strstr(log_text, "a graph is given up"));
    ck_assert_uint_eq(run(6, 4), 0);
    end();
}
END_TEST

START_TEST(there_is_a_limit_to_graphs)
{
    open_device();
    warm_up();
    for (uint32_t n = 1; n <= PLM_GPU_GRAPHS_MAX; n++)
        capture(1, n);
    append_all(1, PLM_GPU_GRAPHS_MAX + 1);
    ck_assert_int_eq(plm_gpu_capture(dev), PLM_ERR_LIMIT);
    plm_gpu_discard(dev);
    ck_assert_uint_eq(run(3, 7), 7);
    end();
}
END_TEST

// ---- choices ----

START_TEST(choices_hold_for_sizes_types_and_ranges_of_rows)
{
    struct plm_matmul_args a = {
        .type = PLM_TYPE_Q4_0, .act = PLM_ACT_Q8, .rows = 1, .n_in = 256, .n_out = 512};
    char name[PLM_TUNING_NAME_BYTES], other[PLM_TUNING_NAME_BYTES];
    open_device();
    ck_assert_uint_ge(plm_gpu_variants(dev, PLM_OP_MATMUL, &a, name), 1);
    ck_assert_int_eq(plm_gpu_choose(dev, PLM_OP_MATMUL, &a, 1), PLM_OK);
    ck_assert_uint_eq(plm_gpu_chosen(&dev->choices, PLM_OP_MATMUL, &a), 1);
    a.x = 99; // addresses do not count
    ck_assert_uint_eq(plm_gpu_chosen(&dev->choices, PLM_OP_MATMUL, &a), 1);
    a.rows = 2;
    ck_assert_uint_eq(plm_gpu_chosen(&dev->choices, PLM_OP_MATMUL, &a), 0);
    plm_gpu_variants(dev, PLM_OP_MATMUL, &a, other);
    ck_assert_str_ne(name, other);
    ck_assert_ptr_nonnull(plm_gpu_variant_name(dev, PLM_OP_MATMUL, 0));
    ck_assert_ptr_null(plm_gpu_variant_name(dev, PLM_OP_ADD, 1));
    int rc = PLM_OK;
    uint32_t kept = 1;
    for (a.n_out = 1024; rc == PLM_OK; a.n_out++, kept++)
        rc = plm_gpu_choose(dev, PLM_OP_MATMUL, &a, 1);
    ck_assert_int_eq(rc, PLM_ERR_LIMIT);
    ck_assert_uint_eq(kept - 1, PLM_CHOICES / 2);
    end();
}
END_TEST

// ---- losses ----

static void lose(const char *place, plm_gpu_r how)
{
    stub.fail_at = place;
    stub.calls = 0;
    stub.fail_nth = 1;
    stub.fail_times = UINT64_MAX;
    stub.fail_with = how;
}

START_TEST(a_lost_device_is_lost_until_it_is_opened_again)
{
    static const plm_gpu_r hows[] = {PLM_GPU_LOST, PLM_GPU_UNKNOWN};
    for (size_t i = 0; i < 2; i++) {
        struct plm_error err = {0};
        struct plm_mem_info info;
        uint64_t released, x = 0;
        open_device();
        warm_up();
        struct plm_slab a = take(PLM_SLAB_DEVICE, MIB), b = take(PLM_SLAB_ELASTIC, MIB),
                        c = take(PLM_SLAB_PINNED, MIB), d;
        capture(1, 4);
        append_all(1, 4);
        const uint64_t value = submit();
        lose("event_query", hows[i]);
        ck_assert_int_eq(plm_gpu_wait(dev, value, WAIT_NS), PLM_ERR_LOST);
        stub.fail_nth = 0; // it stays lost, whatever the driver says next
        ck_assert_int_eq(plm_gpu_device_status(dev), PLM_ERR_LOST);
        ck_assert_int_eq(plm_gpu_wait(dev, value, WAIT_NS), PLM_ERR_LOST);
        ck_assert_int_eq(plm_gpu_submit(dev, &x), PLM_ERR_LOST);
        ck_assert_int_eq(append_add(1), PLM_ERR_LOST);
        ck_assert_int_eq(plm_gpu_barrier(dev), PLM_ERR_LOST);
        ck_assert_int_eq(plm_gpu_capture(dev), PLM_ERR_LOST);
        ck_assert_int_eq(plm_gpu_query_free(dev, &info), PLM_ERR_LOST);
        ck_assert_int_eq(plm_gpu_empty_cache(dev, &released, &info), PLM_ERR_LOST);
        ck_assert_int_eq(plm_gpu_copy_in(dev, a.addr, &x, 8), PLM_ERR_LOST);
        ck_assert_int_eq(plm_gpu_copy_out(dev, &x, a.addr, 8), PLM_ERR_LOST);
        ck_assert_int_eq(plm_gpu_alloc(dev, PLM_SLAB_DEVICE, 1, NULL, &d), PLM_ERR_LOST);
        ck_assert_int_eq(plm_gpu_warm_up(dev, &no_weights, &err), PLM_ERR_LOST);
        ck_assert_ptr_nonnull(strstr(log_text, "is lost: STUB_ERROR"));
        ck_assert_ptr_eq(strstr(log_text, "is lost"), strstr(log_text, "is lost: STUB_ERROR"));
        plm_gpu_free(dev, &a);
        plm_gpu_free(dev, &b);
        plm_gpu_free(dev, &c);
        plm_gpu_close(dev);
        ck_assert_int_eq(stub.maps, 0); // its memory has no context to go with
        ck_assert_int_eq(stub.live, 0);
        ck_assert_int_eq(try_open(&err), PLM_OK);
        warm_up();
        ck_assert_uint_eq(run(1, 4), 0);
        end();
    }
}
END_TEST

START_TEST(every_call_that_tells_of_a_loss_is_heard)
{
    static const char *const places[] = {"enter",        "launch",      "event_record",
                                         "copy_in",      "memory_info", "memory_alloc",
                                         "graph_launch", "copy_out",    "map"};
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        struct plm_mem_info info;
        uint64_t value;
        static char x[8];
        open_device();
        warm_up();
        struct plm_slab slab = take(PLM_SLAB_DEVICE, MIB), other;
        capture(1, 3);
        lose(places[i], PLM_GPU_LOST);
        append_all(1, 2);
        plm_gpu_submit(dev, &value);
        plm_gpu_discard(dev);
        for (uint32_t n = 1; n <= 3; n++)
            append_add(n);
        plm_gpu_submit(dev, &value);
        plm_gpu_copy_in(dev, slab.addr, x, sizeof(x));
        plm_gpu_copy_out(dev, x, slab.addr, sizeof(x));
        plm_gpu_query_free(dev, &info);
        if (plm_gpu_alloc(dev, PLM_SLAB_DEVICE, 1, NULL, &other) == PLM_OK)
            plm_gpu_free(dev, &other);
        if (plm_gpu_alloc(dev, PLM_SLAB_ELASTIC, 1, NULL, &other) == PLM_OK)
            plm_gpu_free(dev, &other);
        ck_assert_msg(plm_gpu_device_status(dev) == PLM_ERR_LOST, "%s", places[i]);
        plm_gpu_free(dev, &slab);
        stub.fail_nth = 0;
        end();
    }
}
END_TEST

// A slab freed by who is the first to hear of the loss.
START_TEST(mapped_memory_of_a_lost_device_is_given_back_with_its_context)
{
    open_device();
    struct plm_slab slab = take(PLM_SLAB_ELASTIC, MIB), other = take(PLM_SLAB_ELASTIC, MIB);
    lose("unmap", PLM_GPU_LOST);
    plm_gpu_free(dev, &slab);
    stub.fail_nth = 0;
    ck_assert_int_eq(plm_gpu_device_status(dev), PLM_ERR_LOST);
    plm_gpu_free(dev, &other);
    ck_assert_int_eq(stub.maps, 2);
    end();
    ck_assert_int_eq(stub.maps, 0);
    ck_assert_uint_eq(stub.device_bytes, 0);
}
END_TEST

// ---- any call ----

static struct plm_slab slabs[3];

// What a start does, and a step. Stores where it ended.
static int live(struct plm_error *err, const char **ret_where)
{
    static char bytes[3 << 20];
    struct plm_mem_info info;
    uint64_t value, released;
    int rc = (*ret_where = "open", try_open(err));
    if (rc == PLM_OK)
        rc = (*ret_where = "warm_up", plm_gpu_warm_up(dev, &no_weights, err));
    err->msg[0] = rc == PLM_OK ? '\0' : err->msg[0];
    for (int kind = PLM_SLAB_DEVICE; kind <= PLM_SLAB_PINNED && rc == PLM_OK; kind++)
        rc = (*ret_where = "alloc",
              plm_gpu_alloc(dev, (enum plm_slab_kind)kind, MIB, NULL, &slabs[kind]));
    if (rc == PLM_OK)
        rc = (*ret_where = "copy_in", plm_gpu_copy_in(dev, slabs[0].addr, bytes, MIB));
    if (rc == PLM_OK)
        rc = (*ret_where = "empty_cache", plm_gpu_empty_cache(dev, &released, &info));
    for (uint32_t i = 0; i < 3 && rc == PLM_OK; i++)
        rc = (*ret_where = "launch", append_add(i));
    if (rc == PLM_OK)
        rc = (*ret_where = "capture", plm_gpu_capture(dev));
    if (rc == PLM_OK)
        rc = (*ret_where = "submit", plm_gpu_submit(dev, &value));
    if (rc == PLM_OK)
        rc = (*ret_where = "wait", plm_gpu_wait(dev, value, WAIT_NS));
    if (rc == PLM_OK)
        rc = (*ret_where = "copy_out", plm_gpu_copy_out(dev, bytes, slabs[0].addr, MIB));
    return rc;
}

static void free_all(void)
{
    for (int kind = PLM_SLAB_DEVICE; kind <= PLM_SLAB_PINNED; kind++)
        if (slabs[kind].bytes > 0)
            plm_gpu_free(dev, &slabs[kind]);
    memset(slabs, 0, sizeof(slabs));
}

// The nth call of the driver fails, and `times` after it. False: there are not so many.
static bool fail_call(uint64_t nth, uint64_t times, plm_gpu_r how)
{
    struct plm_error err = {0};
    const char *where;
    begin();
    stub.fail_nth = nth;
    stub.fail_times = times;
    stub.fail_with = how;
    const int rc = live(&err, &where);
    const bool any = stub.calls >= nth;
    const bool start = strcmp(where, "open") == 0 || strcmp(where, "warm_up") == 0;
    ck_assert_msg(!any || rc == PLM_OK || !start || err.msg[0] != '\0', "%s: call %u: no message",
                  where, (unsigned)nth);
    ck_assert_msg(any || rc == PLM_OK, "%s: %s", where, err.msg);
    if (nth % 2 != 0) // what was wrong is so still when memory is given back, or is not
        stub.fail_nth = 0;
    free_all();
    stub.fail_nth = 0;
    end();
    return any;
}

// Every call up to the warm-up, which repeats its own, and then every seventh.
static void fail_calls(uint64_t times, plm_gpu_r how)
{
    for (uint64_t nth = 1; fail_call(nth, times, how); nth += nth < 90 ? 1 : 7)
        ;
}

START_TEST(whichever_call_fails_nothing_is_left)
{
    mallopt(M_PERTURB, 0); // each device has 68 MiB of rings, which malloc would fill
    fail_calls(1, PLM_GPU_OUT_OF_MEMORY);
    fail_calls(1, PLM_GPU_UNSUPPORTED);
    fail_calls(UINT64_MAX, PLM_GPU_LOST);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("gpudrv_lists");
    TCase *t = tcase_create("gpudrv_lists");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, kernels_beyond_the_plan_are_refused);
    tcase_add_test(t, lists_run_in_order_as_they_were_appended);
    tcase_add_test(t, waits_have_limits_and_reach_values_long_gone);
    tcase_add_test(t, a_list_that_found_no_memory_goes_on_where_it_was);
    tcase_add_test(t, a_step_takes_no_host_memory);
    tcase_add_test(t, a_captured_list_is_replayed_with_other_arguments);
    tcase_add_test(t, kernels_of_many_rows_do_not_begin_early);
    tcase_add_test(t, where_arguments_cannot_be_set_only_the_same_list_is_replayed);
    tcase_add_test(t, a_graph_that_fails_is_not_missed);
    tcase_add_test(t, there_is_a_limit_to_graphs);
    tcase_add_test(t, choices_hold_for_sizes_types_and_ranges_of_rows);
    tcase_add_test(t, a_lost_device_is_lost_until_it_is_opened_again);
    tcase_add_test(t, every_call_that_tells_of_a_loss_is_heard);
    tcase_add_test(t, mapped_memory_of_a_lost_device_is_given_back_with_its_context);
    tcase_add_test(t, whichever_call_fails_nothing_is_left);
    suite_add_tcase(s, t);
    return suite_run(s);
}
