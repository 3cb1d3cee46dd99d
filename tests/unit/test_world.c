// SPDX-License-Identifier: Apache-2.0
// World files: what is written parses to the same world, and what is wrong is named.
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/sim/world.h"
#include "core/device.h"
#include "tests/support/suite.h"

#define MIB (1ull << 20)

// Every statement, property, event and field once.
static const char whole[] =
    "# a comment\n"
    "\n"
    "plimsoll-world 1\r\n"
    "seed 7\n"
    "max_steps 10000\n"
    "device capacity 24GiB  # of the first heap\n"
    "device heap 8GiB\n"
    "device heap 512KiB\n"
    "device granularity 2MiB\n"
    "device max_slab 4GiB\n"
    "device max_slabs 4096\n"
    "device context 300MiB\n"
    "device shown_context 200MiB\n"
    "device kernel 1MiB\n"
    "device withheld 4MiB\n"
    "device commit soft\n"
    "device unified yes\n"
    "device host 64GiB\n"
    "device hides_process_use yes\n"
    "device cgroup 8GiB 1GiB 200MiB\n"
    "device inner cpu\n"
    "device submit_time 1ms\n"
    "device dispatch_time 5us\n"
    "device variants 3\n"
    "device query_lag 250ms\n"
    "device free_lag 2s\n"
    "device keeps 512MiB\n"
    "device leaks 1MiB\n"
    "device spill yes\n"
    "device overcommit yes\n"
    "device fail_above 1GiB\n"
    "device poison 300 hang\n"
    "at step 12 foreign 2GiB\n"
    "at phase prefill foreign +1GiB\n"
    "at time 1500us foreign -1GiB\n"
    "at step 13 host 20GiB\n"
    "at query 40 lie stale 20\n"
    "at query 90 lie oscillate 0\n"
    "at alloc 7 fail_allocs 2\n"
    "at submit 30 fail_submits 1\n"
    "at submit 31 lost\n"
    "at submit 40 hang 10s\n"
    "at step 50 slow 10\n"
    "at step 60 overrun 64\n"
    "at step 70 take 100MiB\n"
    "at step 71 take -1MiB\n"
    "model layers 3 embd 96 heads 6 kv_heads 3 ff 256 vocab 400 ctx 1024 type q8_0 "
    "window 24 full_every 3\n"
    "engine max_sequences 4\n"
    "engine chat_template \"a # b\"\n"
    "request step 3 prompt 40 max 20 n 2 seed 5 salt a\n"
    "request step 4 prompt 48 max 8 prefix 1:32\n"
    "request step 5 prompt 9 max 30 leave_after 3\n"
    "request step 5 prompt 9 max 30 leave_step 9\n"
    "request step 6 prompt 9 max 30 poison\n"
    "action step 20 sleep\n"
    "action step 30 wake\n"
    "action step 40 drain\n"
    "want ready\n"
    "want start_error OUT_OF_DEVICE\n"
    "want says \"--ctx-size #\"\n"
    "want finished == 30\n"
    "want request 3 status NOMEM_NEVER term kv\n"
    "want plan.growth >= 2MiB\n";

static struct plm_host *host;

static struct plm_world *parse(const char *text)
{
    struct plm_world *world = NULL;
    struct plm_error err = {0};
    ck_assert_msg(plm_world_parse(host, text, strlen(text), &world, &err) == PLM_OK, "%s", err.msg);
    return world;
}

static void setup(void)
{
    host = plm_host_create(0);
}

static void teardown(void)
{
    ck_assert_int_eq(plm_host_destroy(host), 0);
}

START_TEST(every_word_is_understood)
{
    struct plm_world *w = parse(whole);
    const struct plm_sim_opts *d = &w->device;
    ck_assert_uint_eq(w->seed, 7);
    ck_assert_uint_eq(w->max_steps, 10000);
    ck_assert_uint_eq(d->capacity_bytes, 24ull << 30);
    ck_assert_uint_eq(d->n_heaps, 2);
    ck_assert_uint_eq(d->heap_bytes[1], 512 << 10);
    ck_assert(d->commit == PLM_COMMIT_SOFT && d->unified && d->hides_process_use && w->computes);
    ck_assert_uint_eq(d->cgroups[0].reclaimable_bytes, 200 * MIB);
    ck_assert_int_eq(d->query_lag_ns, 250000000);
    ck_assert(d->spills && d->overcommits);
    ck_assert(d->poison == PLM_SIM_POISON_HANG && d->poison_token == 300);
    ck_assert_uint_eq(d->n_events, 14);
    ck_assert(d->events[1].when == PLM_SIM_AT_PHASE && d->events[1].at == PLM_PHASE_PREFILL);
    ck_assert(d->events[1].what == PLM_SIM_FOREIGN_BY && d->events[1].value == 1 << 30);
    ck_assert(d->events[2].at == 1500000 && d->events[2].value == -(1 << 30));
    ck_assert(d->events[4].lie == PLM_SIM_STALE && d->events[4].value == 20);
    ck_assert(d->events[8].what == PLM_SIM_LOST && d->events[8].at == 31);
    ck_assert_int_eq(d->events[9].value, 10000000000);
    ck_assert(w->model.n_head_kv == 3 && w->model.type == PLM_TYPE_Q8_0);
    ck_assert(w->model.window == 24 && w->model.full_every == 3);
    ck_assert_str_eq(w->options[1].value, "a # b");
    ck_assert_uint_eq(w->n_requests, 5);
    ck_assert(w->requests[1].prefix_of == 1 && w->requests[1].prefix == 32);
    ck_assert(w->requests[0].n == 2 && w->requests[1].n == 1 && w->requests[4].poison);
    ck_assert_str_eq(w->requests[0].salt, "a");
    ck_assert_uint_eq(w->requests[3].leave_step, 9);
    ck_assert(w->n_actions == 3 && w->actions[2].act == PLM_WORLD_DRAIN);
    ck_assert_str_eq(w->wants[0].name, "ready");
    ck_assert_str_eq(w->wants[2].value, "--ctx-size #");
    ck_assert_str_eq(w->wants[3].op, "==");
    ck_assert_str_eq(w->wants[4].name, "request");
    ck_assert_str_eq(w->wants[4].value, "3 status NOMEM_NEVER term kv");
    ck_assert_str_eq(w->wants[5].value, "2MiB");
    plm_world_free(w);
}
END_TEST

static void same_arrays(const struct plm_world *a, const struct plm_world *b)
{
    ck_assert_uint_eq(a->device.n_events, b->device.n_events);
    for (size_t i = 0; i < a->device.n_events; i++) {
        const struct plm_sim_event *x = &a->events[i], *y = &b->events[i];
        ck_assert(x->when == y->when && x->at == y->at && x->what == y->what &&
                  x->value == y->value && x->lie == y->lie);
    }
    ck_assert_uint_eq(a->n_options, b->n_options);
    for (uint32_t i = 0; i < a->n_options; i++) {
        ck_assert_str_eq(a->options[i].key, b->options[i].key);
        ck_assert_str_eq(a->options[i].value, b->options[i].value);
    }
    ck_assert_uint_eq(a->n_requests, b->n_requests);
    for (uint32_t i = 0; i < a->n_requests; i++) {
        const struct plm_world_request *x = &a->requests[i], *y = &b->requests[i];
        ck_assert(x->at_step == y->at_step && x->prompt == y->prompt && x->max == y->max &&
                  x->n == y->n && x->seed == y->seed && x->prefix_of == y->prefix_of &&
                  x->prefix == y->prefix && x->leave_after == y->leave_after &&
                  x->leave_step == y->leave_step && x->poison == y->poison);
        ck_assert_str_eq(x->salt, y->salt);
    }
    ck_assert_uint_eq(a->n_actions, b->n_actions);
    ck_assert_uint_eq(a->n_wants, b->n_wants);
    for (uint32_t i = 0; i < a->n_wants; i++) {
        ck_assert_str_eq(a->wants[i].name, b->wants[i].name);
        ck_assert_str_eq(a->wants[i].op, b->wants[i].op);
        ck_assert_str_eq(a->wants[i].value, b->wants[i].value);
    }
}

START_TEST(what_is_written_parses_to_the_same)
{
    static const char *const texts[] = {
        whole,
        "plimsoll-world 1\ndevice capacity 1\n",
        "plimsoll-world 1\ndevice capacity 1GiB\nmodel file \"a b.gguf\"\nwant says \"a == b\"\n"
        "want \"x y\"\nwant a b == \" c\"\nwant says \"\"\nengine k \"\"\n"
        "at time 0 take 0\nwant says \"two  blanks\"\nwant x == y == z\n",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct plm_world *a = parse(texts[i]);
        struct plm_buf first, second;
        plm_buf_init(&first, host, PLM_HOST_OTHER);
        plm_buf_init(&second, host, PLM_HOST_OTHER);
        plm_world_write(a, &first);
        struct plm_world *b = parse(first.data);
        plm_world_write(b, &second);
        ck_assert_str_eq(first.data, second.data);
        struct plm_sim_opts x = a->device, y = b->device;
        x.events = y.events = NULL;
        ck_assert_mem_eq(&x, &y, sizeof(x));
        ck_assert(a->seed == b->seed && a->max_steps == b->max_steps && a->computes == b->computes);
        ck_assert_mem_eq(&a->model, &b->model, sizeof(a->model));
        same_arrays(a, b);
        plm_world_free(a);
        plm_world_free(b);
        plm_buf_finish(&first);
        plm_buf_finish(&second);
    }
}
END_TEST

START_TEST(errors_name_line_and_word)
{
    static const struct {
        const char *text, *says;
        int status;
    } cases[] = {
        {"", "begins with", PLM_ERR_FORMAT},
        {"plimsoll-world 2\n", "line 1", PLM_ERR_FORMAT},
        {"plimsoll-world 1\n", "no capacity", PLM_ERR_FORMAT},
        {"plimsoll-world 1\n\nfoo 1\n", "line 3: 'foo'", PLM_ERR_FORMAT},
        {"plimsoll-world 1\ndevice\n", "line 2: a property is missing after 'device'",
         PLM_ERR_FORMAT},
        {"plimsoll-world 1\ndevice size 1\n", "'size' is no property", PLM_ERR_FORMAT},
        {"plimsoll-world 1\ndevice capacity\n", "missing after 'capacity'", PLM_ERR_FORMAT},
        {"plimsoll-world 1\ndevice capacity 1Gb\n", "'1Gb' is no size", PLM_ERR_FORMAT},
        {"plimsoll-world 1\ndevice capacity -1\n", "'-1' is no size", PLM_ERR_FORMAT},
        {"plimsoll-world 1\ndevice capacity 9000000TiB\n", "63 bits", PLM_ERR_FORMAT},
        {"plimsoll-world 1\ndevice capacity 99999999999999999999\n", "is no size", PLM_ERR_FORMAT},
        {"plimsoll-world 1\ndevice capacity 1GiB more\n", "'more' is too much", PLM_ERR_FORMAT},
        {"plimsoll-world 1\ndevice query_lag 5\n", "'5' is no time", PLM_ERR_FORMAT},
        {"plimsoll-world 1\ndevice unified maybe\n", "'maybe' is no yes or no", PLM_ERR_FORMAT},
        {"plimsoll-world 1\ndevice max_slabs 4294967296\n", "too large", PLM_ERR_FORMAT},
        {"plimsoll-world 1\nat noon lost\n", "'noon' is no moment", PLM_ERR_FORMAT},
        {"plimsoll-world 1\nat step 1 melt\n", "'melt' is no event", PLM_ERR_FORMAT},
        {"plimsoll-world 1\nat phase tea lost\n", "'tea' is no phase", PLM_ERR_FORMAT},
        {"plimsoll-world 1\nat query 1 lie boldly 2\n", "'boldly' is no lie", PLM_ERR_FORMAT},
        {"plimsoll-world 1\nat step 1 slow 9999999999999999999\n", "63 bits", PLM_ERR_FORMAT},
        {"plimsoll-world 1\nat step 1 foreign +\n", "'' is no size", PLM_ERR_FORMAT},
        {"plimsoll-world 1\nmodel layers 1\nmodel layers 1\n", "line 3: a world has one model",
         PLM_ERR_FORMAT},
        {"plimsoll-world 1\nmodel colour 1\n", "'colour' is too much", PLM_ERR_FORMAT},
        {"plimsoll-world 1\nrequest step 1\n", "a prompt", PLM_ERR_FORMAT},
        {"plimsoll-world 1\nrequest prompt 1 prefix 1:1\n", "earlier request", PLM_ERR_FORMAT},
        {"plimsoll-world 1\nrequest prompt 9\nrequest prompt 3 prefix 1:4\n", "longer than",
         PLM_ERR_FORMAT},
        {"plimsoll-world 1\nrequest step 2 prompt 1\nrequest prompt 1\n", "order of their steps",
         PLM_ERR_FORMAT},
        {"plimsoll-world 1\nrequest prompt 1 salt 0123456789abcdef\n", "longer than 15",
         PLM_ERR_LIMIT},
        {"plimsoll-world 1\naction sleep\n", "at which step", PLM_ERR_FORMAT},
        {"plimsoll-world 1\nwant\n", "names something", PLM_ERR_FORMAT},
        {"plimsoll-world 1\nwant a ==\n", "names something", PLM_ERR_FORMAT},
        {"plimsoll-world 1\nwant says \"a\n", "quote is not closed", PLM_ERR_FORMAT},
        {"plimsoll-world 1\nwant a\"b\n", "quote stands inside", PLM_ERR_FORMAT},
        {"plimsoll-world 1\nwant a\x01"
         "b\n",
         "control character", PLM_ERR_FORMAT},
        {"plimsoll-world 1\nwant 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3",
         "more than 32 words", PLM_ERR_LIMIT},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct plm_world *w = NULL;
        struct plm_error err = {0};
        int r = plm_world_parse(host, cases[i].text, strlen(cases[i].text), &w, &err);
        ck_assert_msg(r == cases[i].status, "%s: %d", cases[i].text, r);
        ck_assert_msg(strstr(err.msg, cases[i].says) != NULL, "%s: %s", cases[i].text, err.msg);
        ck_assert_ptr_null(w);
    }
}
END_TEST

// A text of `n` lines after the head.
static int parse_lines(const char *line, uint32_t n, struct plm_error *err)
{
    struct plm_world *w = NULL;
    struct plm_buf buf;
    plm_buf_init(&buf, host, PLM_HOST_OTHER);
    plm_buf_append_str(&buf, "plimsoll-world 1\ndevice capacity 1GiB\n");
    for (uint32_t i = 0; i < n; i++)
        plm_buf_append_str(&buf, line);
    int r = plm_world_parse(host, buf.data, buf.len, &w, err);
    plm_world_free(w);
    plm_buf_finish(&buf);
    return r;
}

START_TEST(counts_have_limits)
{
    static const struct {
        const char *line;
        uint32_t max;
    } cases[] = {
        {"at step 1 lost\n", PLM_WORLD_EVENTS_MAX},      {"engine a b\n", PLM_WORLD_OPTIONS_MAX},
        {"request prompt 1\n", PLM_WORLD_REQUESTS_MAX},  {"want a\n", PLM_WORLD_WANTS_MAX},
        {"action step 1 wake\n", PLM_WORLD_ACTIONS_MAX}, {"device heap 1\n", PLM_SIM_HEAPS_MAX - 1},
        {"device cgroup 1 1 1\n", PLM_CGROUP_LEVELS},
    };
    struct plm_error err;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ck_assert_int_eq(parse_lines(cases[i].line, cases[i].max, &err), PLM_OK);
        ck_assert_int_eq(parse_lines(cases[i].line, cases[i].max + 1, &err), PLM_ERR_LIMIT);
    }
    ck_assert_int_eq(parse_lines("#234567\n", PLM_WORLD_BYTES_MAX / 8, &err), PLM_ERR_LIMIT);
}
END_TEST

START_TEST(host_memory_may_fail)
{
    uint64_t n = 1;
    for (;; n++) {
        struct plm_world *w = NULL;
        struct plm_error err;
        plm_host_fail_nth(host, n, 0);
        int r = plm_world_parse(host, whole, sizeof(whole) - 1, &w, &err);
        plm_host_fail_nth(host, 0, 0);
        plm_world_free(w);
        if (r == PLM_OK)
            break;
        ck_assert_int_eq(r, PLM_ERR_NOMEM_HOST);
    }
    ck_assert_uint_gt(n, 10);
}
END_TEST

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    ck_assert_int_eq(fclose(f), 0);
}

START_TEST(a_file_is_a_device)
{
    char path[] = "/tmp/plm-world-XXXXXX", id[64];
    ck_assert_int_ge(mkstemp(path), 0);
    snprintf(id, sizeof(id), "sim:%s", path);
    const struct plm_device_opts opts = {.host = host};
    struct plm_device *device;
    struct plm_error err;
    struct plm_mem_info info;
    uint64_t value;
    put(path, "plimsoll-world 1\ndevice capacity 64MiB\nat submit 2 lost\n");
    ck_assert_msg(plm_device_open(id, &opts, &device, &err) == PLM_OK, "%s", err.msg);
    ck_assert_int_eq(plm_device_query_free(device, &info), PLM_OK);
    ck_assert_uint_eq(info.total_bytes, 64 * MIB);
    ck_assert(plm_device_caps(device)->addresses_only);
    ck_assert_int_eq(plm_device_submit(device, &value), PLM_OK);
    ck_assert_int_eq(plm_device_submit(device, &value), PLM_ERR_LOST);
    // It goes on where it was: it is not lost at the second submit after the reopen again.
    ck_assert_int_eq(plm_device_reopen(device, &err), PLM_OK);
    ck_assert_int_eq(plm_device_submit(device, &value), PLM_OK);
    ck_assert_int_eq(plm_device_submit(device, &value), PLM_OK);
    plm_device_close(device);
    put(path, "plimsoll-world 1\ndevice capacity 64MiB\ndevice inner cpu\n");
    ck_assert_int_eq(plm_device_open(id, &opts, &device, &err), PLM_OK);
    ck_assert(!plm_device_caps(device)->addresses_only);
    plm_device_close(device);
    put(path, "plimsoll-world 1\ndevice capacity much\n");
    ck_assert_int_eq(plm_device_open(id, &opts, &device, &err), PLM_ERR_FORMAT);
    ck_assert_ptr_nonnull(strstr(err.msg, path));
    ck_assert_ptr_nonnull(strstr(err.msg, "line 2: 'much'"));
    ck_assert_int_eq(truncate(path, PLM_WORLD_BYTES_MAX + 1), 0);
    ck_assert_int_eq(plm_device_open(id, &opts, &device, &err), PLM_ERR_LIMIT);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(plm_device_open(id, &opts, &device, &err), PLM_ERR_NOT_FOUND);
    ck_assert_int_eq(plm_device_open("sim:/tmp", &opts, &device, &err), PLM_ERR_IO);
    ck_assert_int_eq(plm_device_open("sim", &opts, &device, &err), PLM_ERR_INVALID);
    ck_assert_ptr_nonnull(strstr(err.msg, "sim:FILE"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("world");
    TCase *tc = tcase_create("all");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, every_word_is_understood);
    tcase_add_test(tc, what_is_written_parses_to_the_same);
    tcase_add_test(tc, errors_name_line_and_word);
    tcase_add_test(tc, counts_have_limits);
    tcase_add_test(tc, host_memory_may_fail);
    tcase_add_test(tc, a_file_is_a_device);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
