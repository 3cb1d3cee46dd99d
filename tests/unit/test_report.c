// SPDX-License-Identifier: Apache-2.0
#include <check.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/plan/report.h"
#include "tests/support/suite.h"

#define MIB (INT64_C(1) << 20)
#define GIB (INT64_C(1) << 30)

static const struct plm_report_head head = {.model = "a \"model\"\\\n.gguf",
                                            .build = "0.1.0",
                                            .device_id = "cpu",
                                            .device_name = "bad \xff name",
                                            .device_uuid = "u-1",
                                            .isa = "avx2"};

static struct plm_plan make_plan(void)
{
    struct plm_plan plan;
    const struct plm_plan_input in = {.g = MIB,
                                      .T = 24 * GIB,
                                      .F = 15 * GIB,
                                      .O = 8 * GIB,
                                      .K = 512 * MIB,
                                      .process_use = PLM_PLAN_UNKNOWN,
                                      .context_bytes = 5,
                                      .operator_limit = 20 * GIB,
                                      .n_cgroups = 1,
                                      .cgroups = {{22 * GIB, 9 * GIB, MIB}},
                                      .unified = true,
                                      .memory_fraction = 0.9,
                                      .limits = {2048, 64, 32768, 0, 0, 0},
                                      .block_bytes = MIB,
                                      .prefix_cache_blocks = PLM_PLAN_UNKNOWN};
    ck_assert_int_eq(plm_plan_compute(&in, &plan, NULL), PLM_OK);
    return plan;
}

static struct json_object *get(struct json_object *object, const char *name)
{
    struct json_object *value = NULL;
    ck_assert_msg(json_object_object_get_ex(object, name, &value), "no field %s", name);
    return value;
}

static int64_t number(struct json_object *object, const char *name)
{
    struct json_object *value = get(object, name);
    ck_assert_msg(json_object_is_type(value, json_type_int), "%s is no integer", name);
    return json_object_get_int64(value);
}

// Every field of the formula by its name.
static void check_formula(struct json_object *o, const struct plm_plan *p)
{
    ck_assert_int_eq(number(o, "g"), p->in.g);
    ck_assert_int_eq(number(o, "T"), p->in.T);
    ck_assert_int_eq(number(o, "F"), p->in.F);
    ck_assert_int_eq(number(o, "O"), p->in.O);
    ck_assert_int_eq(number(o, "K"), p->in.K);
    ck_assert_int_eq(number(o, "foreign"), p->foreign);
    ck_assert_int_eq(number(o, "own_drv"), p->own_drv);
    ck_assert_int_eq(number(o, "unheld"), p->in.unheld);
    ck_assert_int_eq(number(o, "room"), p->room);
    ck_assert_int_eq(number(o, "resident"), p->resident);
    ck_assert_int_eq(number(o, "growth"), p->growth);
    ck_assert_int_eq(number(o, "margin"), p->margin);
    ck_assert_int_eq(number(o, "U"), p->U);
    ck_assert_int_eq(number(o, "withheld"), p->withheld);
    ck_assert_int_eq(number(o, "ballast"), p->ballast);
    ck_assert_int_eq(number(o, "host"), p->host);
    ck_assert_int_eq(number(o, "budget"), p->budget);
    ck_assert_int_eq(number(o, "blocks"), p->blocks);
    ck_assert_int_eq(number(o, "line"), p->line);
    ck_assert_int_eq(number(o, "operator_limit"), p->in.operator_limit);
    ck_assert(json_object_is_type(get(o, "process_use"), json_type_null));
    ck_assert(json_object_is_type(get(o, "pinned_tokens"), json_type_null));
    ck_assert_double_eq_tol(json_object_get_double(get(o, "memory_fraction")), 0.9, 1e-9);
    ck_assert_int_eq(number(json_object_array_get_idx(get(o, "cgroups"), 0), "limit"),
                     p->in.cgroups[0].limit);
}

START_TEST(the_plan_as_json)
{
    struct plm_host *host = plm_host_create(0);
    struct plm_plan plan = make_plan();
    struct plm_profile profile = {.plan = plan, .n_passes = 2, .attempts = 1, .settled = true};
    struct plm_ledger_stats ledger = {.by_class = {[PLM_MEM_WEIGHTS] = {.held_bytes = 77}}};
    struct plm_report_head with = head;
    struct plm_buf buf;
    with.ledger = &ledger;
    plm_buf_init(&buf, host, PLM_HOST_OTHER);
    plm_report_plan_json(&buf, &with, &plan, &profile);
    ck_assert(!buf.failed);
    struct json_object *o = json_tokener_parse(buf.data);
    ck_assert_ptr_nonnull(o);
    ck_assert_str_eq(json_object_get_string(get(o, "model")), head.model);
    ck_assert_str_eq(json_object_get_string(get(get(o, "device"), "name")),
                     "bad \xEF\xBF\xBD name");
    check_formula(get(o, "plan"), &plan);
    ck_assert_int_eq(number(get(o, "by_class"), "weights"), 77);
    ck_assert_uint_eq(json_object_array_length(get(get(o, "evidence"), "passes")), 2);
    json_object_put(o);
    plm_buf_clear(&buf);
    plm_report_plan_json(&buf, &head, &plan, NULL);
    o = json_tokener_parse(buf.data);
    ck_assert_ptr_nonnull(o);
    ck_assert(!json_object_object_get_ex(o, "evidence", NULL));
    json_object_put(o);
    plm_buf_finish(&buf);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}
END_TEST

static struct plm_report_memory make_memory(const struct plm_report_device *device,
                                            const struct plm_report_refusal *refusals,
                                            const struct plm_report_neighbour *neighbours)
{
    static const struct plm_report_counter counters[] = {{"allocations_in_step", 0},
                                                         {"resizes", 4}};
    return (struct plm_report_memory){
        .wall_ns = 1700000002000000000,
        .ready = true,
        .sealed = true,
        .devices = device,
        .n_devices = 1,
        .host = {.used_bytes = 9, .limit_bytes = 10, .owner_bytes = {[PLM_HOST_KV] = 3}},
        .running = 1,
        .waiting = 2,
        .preempted = 3,
        .refusals = refusals,
        .n_refusals = 2,
        .neighbours = neighbours,
        .n_neighbours = 1,
        .counters = counters,
        .n_counters = 2};
}

static void check_blocks(struct json_object *d)
{
    struct json_object *b = get(d, "blocks");
    ck_assert_int_eq(number(b, "tokens"), 16);
    ck_assert_int_eq(number(b, "used") + number(b, "cached") + number(b, "free"),
                     number(b, "total"));
    ck_assert_uint_eq(json_object_array_length(get(d, "groups")), 2);
    struct json_object *group = json_object_array_get_idx(get(d, "groups"), 1);
    ck_assert_int_eq(number(group, "window"), 1024);
    ck_assert_str_eq(json_object_get_string(get(group, "type")), "q8_0");
    ck_assert_int_eq(number(group, "bytes"), 9);
    ck_assert_int_eq(number(group, "total"), 6);
    ck_assert_int_eq(number(group, "used"), 3);
    ck_assert_int_eq(number(group, "cached"), 2);
    ck_assert_int_eq(number(group, "free"), 1);
}

static struct plm_report_device make_device(const struct plm_plan *plan)
{
    return (struct plm_report_device){
        .id = "cpu",
        .name = "cpu",
        .plan = plan,
        .ledger = {.held_bytes = 150,
                   .by_class = {[PLM_MEM_WEIGHTS] = {.held_bytes = 100},
                                [PLM_MEM_KV] = {.held_bytes = 50, .largest_free_bytes = 5}},
                   .peak_held_bytes = 999,
                   .phase_peak_bytes = {[PLM_PHASE_LOAD] = 120, [PLM_PHASE_SERVE] = 200}},
        .limit_bytes = plan->line - 7,
        .n_groups = 2,
        .groups = {
            {.type = "f16", .block_bytes = 7, .total = 10, .used = 4, .cached = 5, .free = 1},
            {.window = 1024,
             .type = "q8_0",
             .block_bytes = 9,
             .total = 6,
             .used = 3,
             .cached = 2,
             .free = 1}}};
}

START_TEST(the_memory_report)
{
    struct plm_host *host = plm_host_create(0);
    struct plm_plan plan = make_plan();
    struct plm_report_device device = make_device(&plan);
    const struct plm_report_refusal refusals[2] = {
        {1700000000123456789, true, PLM_ADMIT_KV, 5, 4, {1, 2, 3}},
        {1700000001123456789, false, PLM_ADMIT_QUEUE, 7, 6, {0, 0, 0}}};
    const struct plm_report_neighbour neighbour = {1700000000000000000, 11, -2};
    struct plm_report_memory m = make_memory(&device, refusals, &neighbour);
    struct plm_buf buf;
    plm_buf_init(&buf, host, PLM_HOST_OTHER);
    plm_report_memory_json(&buf, &m);
    struct json_object *o = json_tokener_parse(buf.data);
    ck_assert_ptr_nonnull(o);
    ck_assert_str_eq(json_object_get_string(get(o, "object")), "memory");
    ck_assert(json_object_get_boolean(get(o, "ready")) &&
              json_object_get_boolean(get(o, "sealed")));
    struct json_object *d = json_object_array_get_idx(get(o, "devices"), 0);
    int64_t sum = 0;
    json_object_object_foreach(get(d, "by_owner"), owner, bytes)
    {
        ck_assert_uint_gt(strlen(owner), 0);
        sum += json_object_get_int64(bytes);
    }
    ck_assert_int_eq(number(d, "used_bytes"), 150);
    ck_assert_int_eq(sum, 150);
    ck_assert_int_eq(number(d, "limit_bytes"), plan.line - 7);
    ck_assert_int_eq(number(d, "total_bytes"), 24 * GIB);
    ck_assert_int_eq(number(d, "high_water_bytes"), 200);
    ck_assert_int_eq(number(get(d, "phase_peaks"), "load"), 120);
    ck_assert_int_eq(number(get(d, "largest_free_bytes"), "kv"), 5);
    ck_assert_int_eq(number(o, "time"), 1700000002);
    ck_assert(!json_object_get_boolean(get(o, "asleep")));
    ck_assert_int_eq(number(d, "margin_bytes"), plan.margin);
    ck_assert_int_eq(number(d, "foreign_bytes"), 0);
    check_blocks(d);
    check_formula(get(d, "plan"), &plan);
    ck_assert_int_eq(number(get(o, "host"), "used_bytes"), 9);
    ck_assert_int_eq(number(get(get(o, "host"), "by_owner"), "kv"), 3);
    ck_assert_int_eq(number(get(o, "requests"), "preempted"), 3);
    struct json_object *r = json_object_array_get_idx(get(o, "refusals"), 0);
    ck_assert_int_eq(number(r, "time"), 1700000000);
    ck_assert_str_eq(json_object_get_string(get(r, "kind")), "never");
    ck_assert_str_eq(json_object_get_string(get(r, "term")), "kv");
    ck_assert_int_eq(number(get(r, "offer"), "n"), 3);
    ck_assert_int_eq(number(json_object_array_get_idx(get(o, "neighbours"), 0), "change_bytes"),
                     -2);
    ck_assert_int_eq(number(get(o, "counters"), "allocations_in_step"), 0);
    ck_assert_int_eq(number(get(o, "counters"), "resizes"), 4);
    json_object_put(o);
    plm_buf_finish(&buf);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}
END_TEST

// Where the KV cache is smaller than the room allows, no limit of the room binds.
START_TEST(the_table_marks_what_sized_the_cache)
{
    static const enum plm_plan_term terms[] = {PLM_TERM_DEFAULT, PLM_TERM_CAP, PLM_TERM_PIN,
                                               PLM_TERM_BUDGET, PLM_TERM_SHRINK};
    static const char *const lines[] = {"  KV cache ", "  KV cache ", "  KV cache ",
                                        "  left by --memory-limit ", "  left by --memory-limit "};
    struct plm_host *host = plm_host_create(0);
    struct plm_plan plan = make_plan();
    struct plm_buf buf;
    plan.blocks_bind = terms[_i];
    plm_buf_init(&buf, host, PLM_HOST_OTHER);
    plm_report_plan_table(&buf, &head, &plan, NULL);
    const char *mark = strstr(buf.data, "<- binds"), *line = strstr(buf.data, lines[_i]);
    ck_assert_ptr_nonnull(mark);
    ck_assert_ptr_nonnull(line);
    ck_assert_msg(mark > line && memchr(line, '\n', (size_t)(mark - line)) == NULL, "%s", buf.data);
    ck_assert_ptr_null(strstr(mark + 1, "<- binds"));
    plm_buf_finish(&buf);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}
END_TEST

START_TEST(the_table_says_who_binds)
{
    struct plm_host *host = plm_host_create(0);
    struct plm_plan plan = make_plan();
    struct plm_profile profile = {
        .plan = plan, .n_passes = 9, .context_lowered = true, .asked_context = 99999};
    struct plm_buf buf;
    plm_buf_init(&buf, host, PLM_HOST_OTHER);
    plm_report_plan_table(&buf, &head, &plan, &profile);
    ck_assert(!buf.failed);
    const char *binds = strstr(buf.data, "<- binds");
    ck_assert_ptr_nonnull(binds);
    ck_assert_ptr_null(strstr(binds + 1, "<- binds"));
    ck_assert_ptr_nonnull(strstr(buf.data, "left by --memory-limit"));
    ck_assert_ptr_nonnull(strstr(buf.data, "lowered from 99999"));
    // Columns line up: every line with MiB has it at the same place.
    long column = -1;
    for (const char *line = buf.data; line != NULL && *line != '\0';) {
        const char *end = strchr(line, '\n'), *mib = strstr(line, " MiB ");
        if (mib != NULL && mib < end) {
            ck_assert(column < 0 || mib - line == column);
            column = mib - line;
        }
        line = end != NULL ? end + 1 : NULL;
    }
    ck_assert_int_gt(column, 0);
    plm_buf_finish(&buf);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}
END_TEST

// The pools of further groups: their size by the formula, in JSON and in the table.
START_TEST(windows_are_shown)
{
    struct plm_host *host = plm_host_create(0);
    struct plm_plan plan = make_plan();
    struct plm_buf buf;
    char want[160];
    plan.in.n_windows = 1;
    plan.in.windows[0] = (struct plm_plan_window){.window = 512, .block_bytes = 4096};
    plan.in.limits.cached_windows = 3;
    ck_assert_int_eq(plm_plan_compute(&plan.in, &plan, NULL), PLM_OK);
    const struct plm_plan_pool pool = plan.windows[0];
    ck_assert_int_eq(pool.blocks, 64 * 34 + 128 + 3 * 34);
    plm_buf_init(&buf, host, PLM_HOST_OTHER);
    plm_report_plan_json(&buf, &head, &plan, NULL);
    struct json_object *o = json_tokener_parse(buf.data);
    struct json_object *p = get(o, "plan"), *w = json_object_array_get_idx(get(p, "windows"), 0);
    ck_assert_int_eq(number(p, "cached_windows"), 3);
    ck_assert_int_eq(number(p, "window"), 0);
    ck_assert_int_eq(number(w, "window"), 512);
    ck_assert_int_eq(number(w, "block_bytes"), 4096);
    ck_assert_int_eq(number(w, "blocks"), pool.blocks);
    ck_assert_int_eq(number(w, "bytes"), pool.bytes);
    ck_assert_int_eq(number(p, "windows_bytes"), pool.bytes);
    json_object_put(o);
    plm_buf_finish(&buf);
    plm_buf_init(&buf, host, PLM_HOST_OTHER);
    plm_report_plan_table(&buf, &head, &plan, NULL);
    ck_assert_ptr_nonnull(strstr(buf.data, "    windows of 512 tokens"));
    snprintf(want, sizeof(want), "%lld blocks: %u requests and a step, %d cached",
             (long long)pool.blocks, plan.in.limits.max_sequences, 3 * 34);
    ck_assert_msg(strstr(buf.data, want) != NULL, "%s", buf.data);
    plm_buf_finish(&buf);
    // Where a window holds a whole context, its pool is told as what it is.
    plan.in.limits.max_context = 512;
    ck_assert_int_eq(plm_plan_compute(&plan.in, &plan, NULL), PLM_OK);
    plm_buf_init(&buf, host, PLM_HOST_OTHER);
    plm_report_plan_table(&buf, &head, &plan, NULL);
    ck_assert_ptr_nonnull(strstr(buf.data, "    contexts of 512 tokens"));
    ck_assert_ptr_null(strstr(buf.data, "    windows of"));
    ck_assert_ptr_null(strstr(buf.data, "rows a step, "));
    plm_buf_finish(&buf);
    // The main group's: a request's context is not what its blocks hold.
    plan.in.window = 300;
    plm_buf_init(&buf, host, PLM_HOST_OTHER);
    plm_report_plan_table(&buf, &head, &plan, NULL);
    ck_assert_ptr_nonnull(strstr(buf.data, "rows a step, windows of 300 tokens\n"));
    plm_buf_finish(&buf);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}
END_TEST

START_TEST(each_host_allocation_may_fail)
{
    struct plm_host *host = plm_host_create(0);
    struct plm_plan plan = make_plan();
    struct plm_profile profile = {.plan = plan, .n_passes = 32};
    bool whole = false;
    for (uint64_t nth = 1; !whole; nth++) {
        struct plm_buf buf;
        plm_host_fail_nth(host, nth, 0);
        plm_buf_init(&buf, host, PLM_HOST_OTHER);
        plm_report_plan_json(&buf, &head, &plan, &profile);
        plm_report_plan_table(&buf, &head, &plan, &profile);
        whole = !buf.failed;
        plm_buf_finish(&buf);
    }
    plm_host_fail_nth(host, 0, 0);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("report");
    TCase *tc = tcase_create("all");
    tcase_add_test(tc, the_plan_as_json);
    tcase_add_test(tc, the_memory_report);
    tcase_add_test(tc, the_table_says_who_binds);
    tcase_add_loop_test(tc, the_table_marks_what_sized_the_cache, 0, 5);
    tcase_add_test(tc, windows_are_shown);
    tcase_add_test(tc, each_host_allocation_may_fail);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
