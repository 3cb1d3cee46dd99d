// SPDX-License-Identifier: Apache-2.0
// The host code that CUDA and HIP share, on a driver of the test's own (gpu_stub.h): what is there
// before a list runs.
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "gpu_fixture.h"
#include "tests/support/suite.h"

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
    ck_assert_uint_eq(caps->unavailable_bytes, 3 * MIB);
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
    for (size_t i = 0; i < 3; i++)
        memset(small[i], (int)('x' + i), sizeof(small[i]));
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
    char sent[3][100];
    memcpy(sent, small, sizeof(sent));
    memset(small, 0, sizeof(small)); // they may be reused
    ck_assert_int_eq(plm_gpu_copy_out(dev, back, slab.addr, sizeof(back)), PLM_OK);
    for (size_t i = 0; i < 5; i++) {
        const char *want = parts[i].src == large      ? large
                           : parts[i].src == small[0] ? sent[0]
                           : parts[i].src == small[1] ? sent[1]
                                                      : sent[2];
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
    suite_add_tcase(s, t);
    return suite_run(s);
}
