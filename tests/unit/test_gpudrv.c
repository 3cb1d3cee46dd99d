// SPDX-License-Identifier: Apache-2.0
// The host code that CUDA and HIP share, on a driver of the test's own (gpu_stub.h).
#include <check.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu_stub.h"

#define MIB     (1ull << 20)
#define WAIT_NS INT64_C(1000000000)

// ---- options and cards ----

static struct plm_gpu_opts parse(const char *text)
{
    struct plm_gpu_opts o;
    struct plm_error err = {0};
    ck_assert_msg(plm_gpu_opts_parse("cuda", text, &o, &err) == PLM_OK, "%s: %s", text, err.msg);
    return o;
}

START_TEST(options_name_a_card_and_its_use)
{
    struct plm_gpu_opts o = parse("1");
    ck_assert_uint_eq(o.which.index, 1);
    ck_assert(o.graphs && o.early && o.elastic && !o.spill);
    o = parse("H100,graphs=off,early=off,elastic=off,spill=on");
    ck_assert_str_eq(o.which.name, "H100");
    ck_assert(!o.graphs && !o.early && !o.elastic && o.spill);
    ck_assert_str_eq(parse("6d657361-3232-2e33-2E36-000000000000").which.uuid,
                     "6d657361-3232-2e33-2E36-000000000000");
    ck_assert_str_eq(parse("GPU-6d657361-3232-2e33-2E36-000000000000").which.uuid,
                     "6d657361-3232-2e33-2E36-000000000000");
    ck_assert_str_eq(parse("MIG-6d657361-3232-2e33-2E36-000000000000").which.uuid,
                     "6d657361-3232-2e33-2E36-000000000000");
    ck_assert_str_eq(parse("GPU-1a2b3c4d5e6f7a8b").which.uuid, "1a2b3c4d5e6f7a8b");
    ck_assert_str_eq(parse("RTX 4090").which.name, "RTX 4090");
    ck_assert_uint_eq(parse("graphs=on").which.index, 0);
}
END_TEST

START_TEST(bad_options_are_refused_by_name)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"", "empty"},
        {"0,", "empty"},
        {"0,1", "'1'"},
        {"graphs=yes", "'yes'"},
        {"early=", "on or off"},
        {"0,speed=on", "'speed'"},
        {"65536", "index"},
        {"123456789012345678901234567890", "index"},
        {"a name that is far longer than any that a driver gives to a card of its own", "64"}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct plm_gpu_opts o;
        struct plm_error err = {0};
        ck_assert_int_eq(plm_gpu_opts_parse("cuda", bad[i].text, &o, &err), PLM_ERR_INVALID);
        ck_assert_msg(i + 1 == sizeof(bad) / sizeof(bad[0]) || strstr(err.msg, bad[i].says) != NULL,
                      "%s: %s", bad[i].text, err.msg);
    }
}
END_TEST

START_TEST(cards_are_found_and_missing_ones_explained)
{
    static const struct plm_gpu_card cards[] = {
        {.name = "Old 75", .missing = "compute capability 8.0"},
        {.name = "New 90", .uuid = "00000000-0000-0000-0000-00000000000a"},
        {.name = "New 80", .uuid = "00000000-0000-0000-0000-00000000000b"}};
    struct plm_error err = {0};
    uint32_t at;
    const struct {
        const char *which;
        uint32_t at;
    } found[] = {
        {"1", 1}, {"2", 2}, {"new", 1}, {"80", 0}, {"GPU-00000000-0000-0000-0000-00000000000B", 2}};
    for (size_t i = 0; i < sizeof(found) / sizeof(found[0]); i++) {
        const struct plm_gpu_opts o = parse(found[i].which);
        if (found[i].at == 0) // an index, not a part of the name
            ck_assert_int_eq(plm_gpu_select("cuda", &o, cards, 3, &at, &err), PLM_ERR_NOT_FOUND);
        else
            ck_assert_int_eq(plm_gpu_select("cuda", &o, cards, 3, &at, &err), PLM_OK);
        ck_assert(found[i].at == 0 || at == found[i].at);
    }
    const struct plm_gpu_opts o = parse("0");
    ck_assert_int_eq(plm_gpu_select("cuda", &o, cards, 3, &at, &err), PLM_ERR_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(err.msg, "Old 75, which lacks compute capability 8.0"));
    ck_assert_ptr_nonnull(strstr(err.msg, "cuda:1 New 90"));
}
END_TEST

START_TEST(uuids_are_digits_or_text)
{
    char text[40];
    plm_gpu_uuid_text("\x01\x23\x45\x67\x89\xab\xcd\xef\x00\x11\x22\x33\x44\x55\x66\x77", text);
    ck_assert_str_eq(text, "01234567-89ab-cdef-0011-223344556677");
    plm_gpu_uuid_text("1a2b3c4d5e6f7a8b", text);
    ck_assert_str_eq(text, "1a2b3c4d5e6f7a8b");
}
END_TEST

START_TEST(a_unified_device_has_what_the_machine_has)
{
    struct plm_mem_info machine = {.total_bytes = 64, .free_bytes = 10, .source = "m"};
    struct plm_mem_info info = {.total_bytes = 100, .free_bytes = 90, .source = "d"};
    machine.n_cgroups = 1;
    plm_gpu_read_unified(&machine, &info);
    ck_assert_uint_eq(info.total_bytes, 64);
    ck_assert_uint_eq(info.free_bytes, 10);
    ck_assert_str_eq(info.source, "m");
    ck_assert_uint_eq(info.n_cgroups, 1);
    info = (struct plm_mem_info){.total_bytes = 32, .free_bytes = 5, .source = "d"};
    plm_gpu_read_unified(&machine, &info); // an aperture
    ck_assert_uint_eq(info.total_bytes, 32);
    ck_assert_uint_eq(info.free_bytes, 5);
    ck_assert_str_eq(info.source, "d");
}
END_TEST

// ---- a device ----

static struct plm_host *host;
static struct plm_gpu_opts opts;
static struct plm_backend_device *dev;
static char log_text[2048]; // warnings and errors

static void keep_log(void *ctx, int level, const char *line)
{
    (void)ctx;
    const size_t used = strlen(log_text);
    if (level <= PLM_LOG_WARN)
        snprintf(log_text + used, sizeof(log_text) - used, "%s\n", line);
}

static int try_open(struct plm_error *err)
{
    static const struct plm_log log = {.write = keep_log, .level = PLM_LOG_WARN};
    const struct plm_device_opts device = {.host = host,
                                           .clock = plm_clock_system(),
                                           .log = &log,
                                           .max_dispatches = 64,
                                           .backend_opts = &opts};
    return plm_gpu_open(&stub_driver, &device, &dev, err);
}

static void begin(void)
{
    stub_reset();
    host = plm_host_create(0);
    log_text[0] = '\0';
    plm_gpu_opts_defaults(&opts);
    dev = NULL;
}

// Nothing is left anywhere.
static void end(void)
{
    plm_gpu_close(dev);
    dev = NULL;
    ck_assert_int_eq(stub.live, 0);
    ck_assert_int_eq(plm_host_destroy(host), 0);
}

static void open_device(void)
{
    struct plm_error err = {0};
    begin();
    ck_assert_msg(try_open(&err) == PLM_OK, "%s", err.msg);
}

static const struct plm_kernel_needs no_weights = {0};

static void warm_up(void)
{
    struct plm_error err = {0};
    ck_assert_msg(plm_gpu_warm_up(dev, &no_weights, &err) == PLM_OK, "%s", err.msg);
    stub.n_launches = 0;
    dev->counters = (struct plm_gpu_counters){0};
}

START_TEST(capabilities_follow_from_the_card)
{
    open_device();
    const struct plm_caps *caps = plm_gpu_caps(dev);
    ck_assert_str_eq(caps->name, "Stub 90");
    ck_assert_str_eq(caps->isa, "sm_90");
    ck_assert_str_eq(caps->device_class, "stub-p16");
    ck_assert_int_eq(caps->commit, PLM_COMMIT_HARD);
    ck_assert(!caps->unified && !caps->reports_process_use && caps->graphs && caps->async);
    ck_assert_uint_eq(caps->granularity_bytes, 2 * MIB);
    ck_assert_uint_eq(caps->withheld_bytes, 3 * MIB);
    ck_assert_uint_eq(caps->max_slab_bytes, 1024 * MIB);
    ck_assert_uint_eq(caps->max_submit_ms, 0);
    ck_assert_uint_eq(caps->few_rows, 64);
    ck_assert(dev->early && dev->mapped);
    end();
}
END_TEST

START_TEST(a_card_whose_memory_may_be_moved_is_refused_unless_asked_for)
{
    struct plm_error err = {0};
    begin();
    stub.cards[0].spills = true;
    ck_assert_int_eq(try_open(&err), PLM_ERR_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(err.msg, "spill=on"));
    opts.spill = true;
    ck_assert_int_eq(try_open(&err), PLM_OK);
    ck_assert_int_eq(plm_gpu_caps(dev)->commit, PLM_COMMIT_SOFT);
    struct plm_mem_info info;
    ck_assert_int_eq(plm_gpu_query_free(dev, &info), PLM_OK);
    ck_assert_int_eq(info.confidence, PLM_CONFIDENCE_LOW);
    end();
}
END_TEST

START_TEST(a_reading_without_the_others_is_not_trusted)
{
    struct plm_error err = {0};
    struct plm_mem_info info;
    begin();
    stub.cards[0].sees_itself = true;
    ck_assert_int_eq(try_open(&err), PLM_OK);
    ck_assert_int_eq(plm_gpu_query_free(dev, &info), PLM_OK);
    ck_assert_int_eq(info.confidence, PLM_CONFIDENCE_LOW);
    end();
}
END_TEST

START_TEST(a_shared_card_is_warned_of)
{
    struct plm_error err = {0};
    begin();
    stub.cards[0].shared_service = true;
    ck_assert_int_eq(try_open(&err), PLM_OK);
    ck_assert_ptr_nonnull(strstr(log_text, "MPS"));
    end();
}
END_TEST

START_TEST(whatever_fails_at_open_leaves_nothing)
{
    struct plm_error err = {0};
    for (uint64_t nth = 1;; nth++) { // of the driver
        begin();
        stub.fail_nth = nth;
        stub.fail_times = 1;
        stub.fail_with = PLM_GPU_OUT_OF_MEMORY;
        const int rc = try_open(&err);
        if (stub.calls < nth) {
            ck_assert_int_eq(rc, PLM_OK);
            end();
            break;
        }
        // A card that does not answer is one that lacks an answer; mapping is not needed.
        ck_assert(rc == PLM_ERR_OUT_OF_DEVICE || rc == PLM_ERR_NOMEM_HOST ||
                  rc == PLM_ERR_NOT_FOUND || rc == PLM_ERR_LOST || (rc == PLM_OK && !dev->mapped));
        end();
    }
    for (uint64_t nth = 1;; nth++) { // of the host
        begin();
        plm_host_fail_nth(host, nth, 0);
        const int rc = try_open(&err);
        plm_host_fail_nth(host, 0, 0);
        end();
        if (rc == PLM_OK)
            break;
        ck_assert_int_eq(rc, PLM_ERR_NOMEM_HOST);
    }
}
END_TEST

// ---- slabs and copies ----

static struct plm_slab take(enum plm_slab_kind kind, uint64_t bytes)
{
    struct plm_slab slab = {0};
    ck_assert_int_eq(plm_gpu_alloc(dev, kind, bytes, NULL, &slab), PLM_OK);
    return slab;
}

START_TEST(slabs_take_whole_steps)
{
    open_device();
    struct plm_slab a = take(PLM_SLAB_DEVICE, 1), b = take(PLM_SLAB_ELASTIC, 2 * MIB + 1),
                    c = take(PLM_SLAB_PINNED, 100);
    ck_assert_uint_eq(a.taken_bytes, 2 * MIB);
    ck_assert_uint_eq(b.taken_bytes, 4 * MIB);
    ck_assert_uint_eq(stub.device_bytes, 6 * MIB);
    ck_assert_int_eq(stub.maps, 1);
    ck_assert(a.host == NULL && b.host == NULL && c.host != NULL);
    struct plm_slab d;
    ck_assert_int_eq(plm_gpu_alloc(dev, PLM_SLAB_DEVICE, 1020 * MIB, NULL, &d),
                     PLM_ERR_OUT_OF_DEVICE);
    ck_assert_int_eq(plm_gpu_device_status(dev), PLM_OK);
    plm_gpu_free(dev, &b);
    ck_assert_int_eq(stub.maps, 0);
    d = take(PLM_SLAB_DEVICE, 1020 * MIB); // an ordinary result: what was freed can be had
    plm_gpu_free(dev, &d);
    plm_gpu_free(dev, &c);
    plm_gpu_free(dev, &a);
    ck_assert_uint_eq(stub.device_bytes, 0);
    end();
}
END_TEST

START_TEST(pinned_memory_is_the_hosts)
{
    struct plm_slab slab;
    open_device();
    stub.fail_at = "host_alloc";
    stub.fail_nth = stub.fail_times = 1;
    stub.fail_with = PLM_GPU_OUT_OF_MEMORY;
    ck_assert_int_eq(plm_gpu_alloc(dev, PLM_SLAB_PINNED, MIB, NULL, &slab), PLM_ERR_NOMEM_HOST);
    slab = take(PLM_SLAB_PINNED, MIB);
    plm_gpu_free(dev, &slab);
    end();
}
END_TEST

START_TEST(memory_is_imported_where_it_is_the_devices_own)
{
    struct plm_error err = {0};
    struct plm_slab slab;
    char *page = aligned_alloc(4096, 8192);
    open_device();
    ck_assert_int_eq(plm_gpu_alloc(dev, PLM_SLAB_IMPORTED, 4096, page, &slab), PLM_ERR_UNSUPPORTED);
    end();
    begin();
    stub.cards[0].unified = true;
    ck_assert_int_eq(try_open(&err), PLM_OK);
    ck_assert_int_eq(plm_gpu_alloc(dev, PLM_SLAB_IMPORTED, 4096, page + 64, &slab),
                     PLM_ERR_INVALID);
    ck_assert_int_eq(plm_gpu_alloc(dev, PLM_SLAB_IMPORTED, 4096, page, &slab), PLM_OK);
    ck_assert_ptr_eq(slab.host, page);
    ck_assert_uint_eq(slab.taken_bytes, 0);
    plm_gpu_free(dev, &slab);
    end();
    free(page);
}
END_TEST

static void round_trip(struct plm_slab *slab, size_t bytes)
{
    unsigned char *in = malloc(bytes), *out = calloc(1, bytes), *sent = malloc(bytes);
    for (size_t i = 0; i < bytes; i++)
        in[i] = sent[i] = (unsigned char)(i * 7 + i / 251);
    stub.not_ready = 3; // nothing may be reused before it has travelled
    ck_assert_int_eq(plm_gpu_copy_in(dev, slab->addr, in, bytes), PLM_OK);
    memset(in, 0, bytes); // the source may be
    stub.not_ready = 3;
    ck_assert_int_eq(plm_gpu_copy_out(dev, out, slab->addr, bytes), PLM_OK);
    ck_assert_int_eq(memcmp(out, sent, bytes), 0);
    free(in);
    free(out);
    free(sent);
}

START_TEST(copies_go_through_rings_of_fixed_size)
{
    static const size_t sizes[] = {1, 100, 1 << 20, (5 << 20) + 3, (66 << 20) + 1};
    uint64_t released;
    struct plm_mem_info info;
    open_device();
    struct plm_slab slab = take(PLM_SLAB_DEVICE, 100 * MIB);
    struct plm_slab pinned = take(PLM_SLAB_PINNED, 1 * MIB);
    const int64_t live = stub.live;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        round_trip(&slab, sizes[i]);
    round_trip(&pinned, 1000);
    ck_assert_int_eq(plm_gpu_empty_cache(dev, &released, &info), PLM_OK);
    ck_assert_uint_eq(released, 64 * MIB); // the ring that loads
    ck_assert_int_eq(plm_gpu_empty_cache(dev, &released, &info), PLM_OK);
    ck_assert_uint_eq(released, 0);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        round_trip(&slab, sizes[i]);
    ck_assert_int_eq(stub.live, live - 5); // the ring and its events
    plm_gpu_free(dev, &slab);
    plm_gpu_free(dev, &pinned);
    end();
}
END_TEST

START_TEST(parts_that_fit_a_segment_are_one_transfer)
{
    static char large[2 << 20], back[4 << 20];
    char small[3][100];
    open_device();
    struct plm_slab slab = take(PLM_SLAB_DEVICE, 4 * MIB);
    struct plm_slab pinned = take(PLM_SLAB_PINNED, 4 * MIB);
    for (size_t i = 0; i < sizeof(large); i++)
        large[i] = (char)(i * 7 + i / 251);
    memset(small, 'x', sizeof(small));
    // Three that go together, one that needs more than a segment, one behind it.
    const struct plm_copy_part parts[] = {{small[0], 256, 100},
                                          {small[1], 512, 0},
                                          {small[1], 1024, 100},
                                          {large, 4096, sizeof(large)},
                                          {small[2], 4096 + sizeof(large), 100}};
    uint64_t released;
    struct plm_mem_info info;
    ck_assert_int_eq(plm_gpu_empty_cache(dev, &released, &info), PLM_OK); // no load ring any more
    uint64_t copies = stub.copies_in;
    ck_assert_int_eq(plm_gpu_copy_in_parts(dev, slab.addr, parts, 3), PLM_OK);
    ck_assert_uint_eq(stub.copies_in, copies + 1);
    copies = stub.copies_in;
    ck_assert_int_eq(plm_gpu_copy_in_parts(dev, slab.addr, parts, 5), PLM_OK);
    ck_assert_uint_eq(stub.copies_in, copies + 1 + 2 + 1);
    ck_assert_int_eq(plm_gpu_copy_in_parts(dev, pinned.addr, parts, 5), PLM_OK);
    memset(small, 0, sizeof(small)); // they may be reused
    ck_assert_int_eq(plm_gpu_copy_out(dev, back, slab.addr, sizeof(back)), PLM_OK);
    for (size_t i = 0; i < 5; i++) {
        const char *want = parts[i].src == large ? large : memset(small[0], 'x', 100);
        ck_assert_mem_eq(back + parts[i].at, want, parts[i].bytes);
        ck_assert_mem_eq((char *)pinned.host + parts[i].at, want, parts[i].bytes);
    }
    plm_gpu_free(dev, &pinned);
    plm_gpu_free(dev, &slab);
    end();
}
END_TEST

START_TEST(a_small_copy_waits_for_nothing)
{
    open_device();
    struct plm_slab slab = take(PLM_SLAB_DEVICE, MIB);
    const uint64_t queries = stub.queries;
    for (int i = 0; i < 100; i++)
        ck_assert_int_eq(plm_gpu_copy_in(dev, slab.addr, &i, sizeof(i)), PLM_OK);
    ck_assert_uint_eq(stub.queries, queries);
    plm_gpu_free(dev, &slab);
    end();
}
END_TEST

START_TEST(a_mapped_slab_is_freed_beside_what_runs)
{
    open_device();
    struct plm_slab a = take(PLM_SLAB_ELASTIC, MIB), b = take(PLM_SLAB_ELASTIC, MIB),
                    c = take(PLM_SLAB_DEVICE, MIB);
    int x = 1;
    uint64_t queries = stub.queries;
    plm_gpu_free(dev, &a);
    ck_assert_uint_eq(stub.queries, queries);
    ck_assert_int_eq(plm_gpu_copy_in(dev, b.addr, &x, sizeof(x)), PLM_OK);
    plm_gpu_free(dev, &b); // a copy into it may be under way
    ck_assert_uint_gt(stub.queries, queries);
    queries = stub.queries;
    plm_gpu_free(dev, &c);
    ck_assert_uint_gt(stub.queries, queries);
    end();
}
END_TEST

// A clock that runs while somebody sleeps.
static int64_t slept_ns;

static int64_t quick_now(void *ctx)
{
    (void)ctx;
    return slept_ns;
}

static void quick_sleep(void *ctx, int64_t ns)
{
    (void)ctx;
    slept_ns += ns;
}

static const struct plm_clock quick_clock = {.now_ns = quick_now, .sleep_ns = quick_sleep};

START_TEST(empty_cache_waits_for_what_was_freed)
{
    uint64_t released;
    struct plm_mem_info info;
    open_device();
    dev->clock = &quick_clock;
    struct plm_slab a = take(PLM_SLAB_DEVICE, 100 * MIB), b = take(PLM_SLAB_ELASTIC, 50 * MIB),
                    c = take(PLM_SLAB_DEVICE, 20 * MIB);
    stub.late = 100; // readings, of which two in a row agree
    plm_gpu_free(dev, &a);
    plm_gpu_free(dev, &b);
    ck_assert_int_eq(plm_gpu_empty_cache(dev, &released, &info), PLM_OK);
    ck_assert_uint_eq(info.free_bytes, 1004 * MIB);
    ck_assert_uint_eq(stub.late_left, 0);
    // Nothing is on its way any more, and nothing is waited for.
    const uint64_t readings = stub.readings;
    ck_assert_int_eq(plm_gpu_empty_cache(dev, &released, &info), PLM_OK);
    ck_assert_uint_eq(stub.readings, readings + 2);
    // What a neighbour took meanwhile is waited for in vain, and not for long.
    stub.late = 0;
    slept_ns = 0;
    plm_gpu_free(dev, &c);
    for (int i = 0; i < 4; i++)
        stub.foreign[i] = 30 * MIB;
    ck_assert_int_eq(plm_gpu_empty_cache(dev, &released, &info), PLM_OK);
    ck_assert_uint_eq(info.free_bytes, 994 * MIB);
    ck_assert_int_le(slept_ns, INT64_C(2100000000));
    end();
}
END_TEST

// The machine's memory is everybody's.
START_TEST(a_unified_device_waits_for_no_free)
{
    struct plm_error err = {0};
    uint64_t released;
    struct plm_mem_info info;
    begin();
    stub.cards[0].unified = true;
    ck_assert_int_eq(try_open(&err), PLM_OK);
    struct plm_slab a = take(PLM_SLAB_DEVICE, 10 * MIB);
    stub.late = 100;
    plm_gpu_free(dev, &a);
    ck_assert_int_eq(plm_gpu_empty_cache(dev, &released, &info), PLM_OK);
    ck_assert_uint_eq(stub.readings, 2);
    end();
}
END_TEST

START_TEST(empty_cache_reads_until_two_readings_agree)
{
    uint64_t released;
    struct plm_mem_info info;
    open_device();
    stub.foreign[0] = 30 * MIB;
    stub.foreign[1] = 20 * MIB;
    stub.foreign[2] = stub.foreign[3] = 10 * MIB;
    ck_assert_int_eq(plm_gpu_empty_cache(dev, &released, &info), PLM_OK);
    ck_assert_uint_eq(info.free_bytes, 1014 * MIB);
    ck_assert_uint_eq(stub.readings, 4);
    end();
}
END_TEST

// ---- kernels ----

START_TEST(what_is_wrong_with_an_image_or_kernel_is_said)
{
    const struct {
        const char *image, *symbol, *local;
        const char *says[2];
    } wrong[] = {{"all", NULL, NULL, {"'all'", "corrupt"}},
                 {NULL, "plm_add", NULL, {"plm_add", "not there"}},
                 {NULL, NULL, "plm_add", {"plm_add", "16 bytes of local memory"}}};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct plm_error err = {0};
        open_device();
        stub.bad_image = wrong[i].image;
        stub.no_symbol = wrong[i].symbol;
        stub.local = wrong[i].local;
        ck_assert_int_ne(plm_gpu_warm_up(dev, &no_weights, &err), PLM_OK);
        for (int k = 0; k < 2; k++)
            ck_assert_msg(strstr(err.msg, wrong[i].says[k]) != NULL, "%s", err.msg);
        ck_assert_ptr_nonnull(strstr(err.msg, "Stub 90"));
        end();
    }
}
END_TEST

static int count_kernel(void *ctx, const struct plm_gpu_kernel *kernel)
{
    uint32_t *n = ctx;
    int seen = 0;
    for (uint32_t i = 0; i < stub.n_launches; i++)
        seen += strcmp(stub.launches[i].symbol, kernel->symbol) == 0;
    ck_assert_msg(seen == 1, "%s ran %d times", kernel->symbol, seen);
    ++*n;
    return PLM_OK;
}

START_TEST(the_warm_up_runs_every_kernel_of_the_plan_once)
{
    struct plm_error err = {0};
    const struct plm_kernel_needs everything = {.weight_types = UINT64_MAX,
                                                .kv_types = UINT64_MAX,
                                                .head_groups = UINT64_MAX,
                                                .float_acts = true};
    uint32_t n = 0;
    open_device();
    ck_assert_msg(plm_gpu_warm_up(dev, &everything, &err) == PLM_OK, "%s", err.msg);
    ck_assert_int_eq(plm_gpu_kernels_each(&everything, count_kernel, &n), PLM_OK);
    ck_assert_uint_eq(stub.n_launches, n);
    ck_assert_uint_eq(n, PLM_GPU_KERNELS);
    ck_assert_uint_eq(stub.device_bytes, 0);
    end();
}
END_TEST

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
    Suite *s = suite_create("gpudrv");
    TCase *t = tcase_create("gpudrv");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, options_name_a_card_and_its_use);
    tcase_add_test(t, bad_options_are_refused_by_name);
    tcase_add_test(t, cards_are_found_and_missing_ones_explained);
    tcase_add_test(t, uuids_are_digits_or_text);
    tcase_add_test(t, a_unified_device_has_what_the_machine_has);
    tcase_add_test(t, capabilities_follow_from_the_card);
    tcase_add_test(t, a_card_whose_memory_may_be_moved_is_refused_unless_asked_for);
    tcase_add_test(t, a_reading_without_the_others_is_not_trusted);
    tcase_add_test(t, a_shared_card_is_warned_of);
    tcase_add_test(t, whatever_fails_at_open_leaves_nothing);
    tcase_add_test(t, slabs_take_whole_steps);
    tcase_add_test(t, pinned_memory_is_the_hosts);
    tcase_add_test(t, memory_is_imported_where_it_is_the_devices_own);
    tcase_add_test(t, copies_go_through_rings_of_fixed_size);
    tcase_add_test(t, parts_that_fit_a_segment_are_one_transfer);
    tcase_add_test(t, a_small_copy_waits_for_nothing);
    tcase_add_test(t, a_mapped_slab_is_freed_beside_what_runs);
    tcase_add_test(t, empty_cache_waits_for_what_was_freed);
    tcase_add_test(t, a_unified_device_waits_for_no_free);
    tcase_add_test(t, empty_cache_reads_until_two_readings_agree);
    tcase_add_test(t, what_is_wrong_with_an_image_or_kernel_is_said);
    tcase_add_test(t, the_warm_up_runs_every_kernel_of_the_plan_once);
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
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    const int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
