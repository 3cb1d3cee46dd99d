// SPDX-License-Identifier: Apache-2.0
// The fake driver itself, by its entry points: work runs late, memory is counted and poisoned,
// faults strike where rules say so, and each misuse that a card would punish is counted and fails.
#include <check.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "backends/cuda/api.h"
#include "backends/gpudrv/images.h"
#include "backends/gpudrv/kernels.h"
#include "control.h"
#include "kernels/abi.h"
#include "tests/support/suite.h"

#define X(name, suffix, since, params) plm_cu_result cu##name##suffix params;
PLM_CU_REQUIRED(X)
PLM_CU_OPTIONAL(X)
#undef X
plm_cu_get_proc_address cuGetProcAddress_v2;

#define MIB  (UINT64_C(1) << 20)
#define ROWS 1u
#define N    64u // floats of a vector

static struct fake_control fake;
static plm_cu_context context;
static plm_cu_stream stream;
static plm_cu_event event;
static plm_cu_module module;
static plm_cu_function add;
static float *host; // pinned, N floats a slot

#define OK(call) ck_assert_uint_eq(call, PLM_CU_SUCCESS)

static void rules(const char *text)
{
    char error[300];
    ck_assert_msg(fake.set(text, error, sizeof(error)), "%s", error);
}

static uint64_t count(const char *counter)
{
    const uint64_t n = fake.count(counter);
    ck_assert_msg(n != UINT64_MAX, "no counter %s", counter);
    return n;
}

static const void *image(const char *name)
{
    for (size_t i = 0; i < plm_cuda_n_images; i++) {
        if (strcmp(plm_cuda_images[i].name, name) == 0)
            return plm_cuda_images[i].data;
    }
    ck_abort_msg("no image %s", name);
}

static void begin(const char *text)
{
    ck_assert(fake_control_open(&fake, "libcuda.so.1"));
    rules(text);
    OK(cuInit(0));
    OK(cuCtxCreate_v2(&context, 0, 0));
    OK(cuStreamCreate(&stream, PLM_CU_STREAM_NON_BLOCKING));
    OK(cuEventCreate(&event, PLM_CU_EVENT_NO_TIMING));
    OK(cuModuleLoadData(&module, image("add")));
    OK(cuModuleGetFunction(&add, module, "plm_add"));
    OK(cuMemHostAlloc((void **)&host, 4 * N * sizeof(float), PLM_CU_HOST_PORTABLE));
}

// Everything is given back in order, and nothing was wrong.
static void end(void)
{
    OK(cuMemFreeHost(host));
    OK(cuModuleUnload(module));
    OK(cuEventDestroy_v2(event));
    OK(cuStreamDestroy_v2(stream));
    OK(cuCtxDestroy_v2(context));
    ck_assert_uint_eq(count("misuses"), 0);
    ck_assert_uint_eq(count("objects_leaked") + count("memory_leaked"), 0);
    ck_assert_uint_eq(count("live_bytes") + count("driver_bytes") + count("host_bytes"), 0);
}

static plm_cu_ptr alloc(uint64_t bytes)
{
    plm_cu_ptr ptr = 0;
    OK(cuMemAlloc_v2(&ptr, bytes));
    return ptr;
}

static plm_cu_result launch_of(plm_cu_function function, const void *args, uint32_t grid,
                               size_t bytes, bool early)
{
    void *extra[] = {PLM_CU_EXTRA_POINTER, (void *)(uintptr_t)args, PLM_CU_EXTRA_SIZE, &bytes,
                     PLM_CU_EXTRA_END};
    plm_cu_launch_attribute attribute = {.id = PLM_CU_LAUNCH_PROGRAMMATIC};
    attribute.value.programmatic = 1;
    const plm_cu_launch_config config = {.grid = {grid, 1, 1},
                                         .block = {256, 1, 1},
                                         .stream = stream,
                                         .attributes = &attribute,
                                         .n_attributes = early};
    return cuLaunchKernelEx(&config, function, NULL, extra);
}

static plm_cu_result launch(const struct plm_add_args *args, uint32_t grid, size_t bytes,
                            bool early)
{
    return launch_of(add, args, grid, bytes, early);
}

static plm_cu_result launch_add(plm_cu_ptr a, plm_cu_ptr b, plm_cu_ptr dst, bool early)
{
    const struct plm_add_args args = {.a = a, .b = b, .dst = dst, .rows = ROWS, .n = N};
    return launch(&args, 1, sizeof(args), early);
}

// The queue to its end.
static plm_cu_result finish(void)
{
    OK(cuEventRecord(event, stream));
    return cuEventQuery(event);
}

START_TEST(work_runs_when_somebody_looks)
{
    begin("");
    const plm_cu_ptr at = alloc(4 * N * sizeof(float));
    const uint64_t row = N * sizeof(float);
    for (uint32_t i = 0; i < N; i++)
        host[i] = (float)i;
    OK(cuMemcpyHtoDAsync_v2(at, host, row, stream));
    OK(launch_add(at, at, at + row, false));
    OK(cuMemcpyDtoHAsync_v2(host + N, at + row, row, stream));
    host[0] = 5; // the copy was not waited for: it takes what is there when it runs
    ck_assert_uint_eq(count("kernels_run"), 0);
    OK(finish());
    ck_assert_uint_eq(count("kernels_run"), 1);
    ck_assert(host[N] == 10.0f && host[N + 7] == 14.0f);
    OK(cuMemFree_v2(at));
    end();
}
END_TEST

START_TEST(the_emulator_runs_the_kernels_source)
{
    begin("exec simt seed=3");
    const plm_cu_ptr at = alloc(2 * N * sizeof(float));
    for (uint32_t i = 0; i < N; i++)
        host[i] = (float)i;
    OK(cuMemcpyHtoDAsync_v2(at, host, N * 4, stream));
    OK(launch_add(at, at, at + 4 * N, true));
    OK(cuMemcpyDtoHAsync_v2(host + N, at + 4 * N, N * 4, stream));
    OK(finish());
    ck_assert_uint_eq(count("kernels_emulated"), 1);
    ck_assert(host[N + 9] == 18.0f);
    OK(cuMemFree_v2(at));
    end();
}
END_TEST

START_TEST(memory_is_counted_and_poisoned)
{
    size_t free_before, free_now, total;
    begin("device size=256MiB context=32MiB withheld=2MiB");
    OK(cuMemGetInfo_v2(&free_before, &total));
    ck_assert_uint_eq(total, 256 * MIB);
    const plm_cu_ptr at = alloc(64 * MIB + 1);
    OK(cuMemGetInfo_v2(&free_now, &total));
    ck_assert_uint_eq(free_before - free_now, 66 * MIB);
    ck_assert(at % 256 == 0);
    OK(cuMemcpyDtoHAsync_v2(host, at + 64 * MIB - 64, 64, stream));
    OK(finish());
    ck_assert(host[0] != host[0]); // NaN
    plm_cu_ptr more = 0;
    ck_assert_uint_eq(cuMemAlloc_v2(&more, 200 * MIB), PLM_CU_OUT_OF_MEMORY);
    ck_assert_uint_eq(count("refusals"), 1);
    // A neighbour takes what is left, and goes; a reading lies.
    rules("device size=256MiB context=32MiB withheld=2MiB neighbour=128MiB");
    ck_assert_uint_eq(cuMemAlloc_v2(&more, 64 * MIB), PLM_CU_OUT_OF_MEMORY);
    rules("device size=256MiB context=32MiB withheld=2MiB; reading max");
    OK(cuMemGetInfo_v2(&free_now, &total));
    ck_assert_uint_gt(free_now, total);
    OK(cuMemFree_v2(at));
    end();
}
END_TEST

static const plm_cu_mem_prop on_device = {.type = PLM_CU_MEM_ALLOCATION_PINNED,
                                          .location = {.type = PLM_CU_MEM_LOCATION_DEVICE}};

static plm_cu_ptr map(uint64_t bytes, plm_cu_memory *ret)
{
    const plm_cu_mem_access access = {.location = {.type = PLM_CU_MEM_LOCATION_DEVICE},
                                      .flags = PLM_CU_MEM_ACCESS_READWRITE};
    plm_cu_ptr at = 0;
    OK(cuMemAddressReserve(&at, bytes, 0, 0, 0));
    OK(cuMemCreate(ret, bytes, &on_device, 0));
    OK(cuMemMap(at, bytes, 0, *ret, 0));
    OK(cuMemSetAccess(at, bytes, &access, 1));
    return at;
}

static void unmap(plm_cu_ptr at, uint64_t bytes, plm_cu_memory memory)
{
    OK(cuMemUnmap(at, bytes));
    OK(cuMemRelease(memory));
    OK(cuMemAddressFree(at, bytes));
}

START_TEST(mapped_memory_goes_without_waiting)
{
    plm_cu_memory memory;
    begin("");
    const plm_cu_ptr at = map(2 * MIB, &memory);
    OK(launch_add(at, at, at, false));
    OK(finish());
    OK(launch_add(at, at, at, false));
    unmap(at, 2 * MIB, memory); // the kernel still runs
    ck_assert_uint_eq(finish(), PLM_CU_ILLEGAL_ADDRESS);
    ck_assert_uint_eq(count("misuses"), 1);
    OK(cuCtxDestroy_v2(context)); // takes the rest along
    ck_assert_uint_eq(count("live_bytes") + count("memory_leaked") + count("host_bytes"), 0);
}
END_TEST

START_TEST(graphs_replay_and_hold_no_freed_memory)
{
    plm_cu_graph graph;
    plm_cu_graph_exec exec;
    const plm_cu_graph_node *nodes;
    unsigned int status;
    size_t n;
    begin("");
    const plm_cu_ptr a = alloc(4 * N), b = alloc(4 * N);
    OK(cuStreamBeginCapture_v2(stream, PLM_CU_CAPTURE_RELAXED));
    OK(launch_add(a, a, b, true));
    OK(cuStreamGetCaptureInfo_v3(stream, &status, NULL, NULL, &nodes, NULL, &n));
    ck_assert_uint_eq(status, PLM_CU_CAPTURE_ACTIVE);
    const plm_cu_graph_node node = nodes[0];
    ck_assert_uint_eq(cuMemcpyDtoHAsync_v2(host, b, 4 * N, stream),
                      PLM_CU_STREAM_CAPTURE_UNSUPPORTED);
    OK(cuStreamEndCapture(stream, &graph));
    OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cuGraphUpload(exec, stream));
    OK(cuGraphLaunch(exec, stream));
    OK(finish());
    ck_assert_uint_eq(count("kernels_run"), 1);
    // Other arguments; then the memory that they name goes.
    const struct plm_add_args args = {.a = b, .b = b, .dst = a, .rows = ROWS, .n = N};
    size_t bytes = sizeof(args);
    void *extra[] = {PLM_CU_EXTRA_POINTER, (void *)(uintptr_t)&args, PLM_CU_EXTRA_SIZE, &bytes,
                     PLM_CU_EXTRA_END};
    const plm_cu_kernel_node params = {
        .function = add, .grid = {1, 1, 1}, .block = {256, 1, 1}, .extra = extra};
    OK(cuGraphExecKernelNodeSetParams_v2(exec, node, &params));
    OK(cuGraphLaunch(exec, stream));
    OK(finish());
    ck_assert_uint_eq(count("misuses"), 0);
    OK(cuMemFree_v2(b));
    OK(cuGraphLaunch(exec, stream));
    ck_assert_uint_eq(finish(), PLM_CU_ILLEGAL_ADDRESS);
    ck_assert_uint_eq(count("misuses"), 1);
    OK(cuCtxDestroy_v2(context));
    ck_assert_uint_eq(count("driver_bytes"), 0);
}
END_TEST

// Each is refused or loses the device, and is counted.
START_TEST(misuses_are_punished)
{
    begin("");
    const plm_cu_ptr at = alloc(4 * N);
    static float pageable[N];
    struct plm_add_args args = {.a = at, .b = at, .dst = at, .rows = ROWS, .n = N};
    uint64_t n = 0;
    ck_assert_uint_eq(cuMemcpyHtoDAsync_v2(at, pageable, 64, stream), PLM_CU_INVALID_VALUE);
    ck_assert_uint_eq(count("misuses"), ++n);
    ck_assert_uint_eq(cuMemcpyHtoDAsync_v2(at + 4, host, 4 * N, stream), PLM_CU_INVALID_VALUE);
    ck_assert_uint_eq(count("misuses"), ++n);
    ck_assert_uint_eq(launch(&args, 2, sizeof(args), false), PLM_CU_INVALID_VALUE);
    ck_assert_uint_eq(count("misuses"), ++n);
    ck_assert_uint_eq(launch(&args, 1, sizeof(args) - 8, false), PLM_CU_INVALID_VALUE);
    ck_assert_uint_eq(count("misuses"), ++n);
    ck_assert_uint_eq(cuMemFree_v2(at + 8), PLM_CU_INVALID_VALUE);
    ck_assert_uint_eq(count("misuses"), ++n);
    ck_assert_uint_eq(cuMemRelease(at), PLM_CU_INVALID_VALUE);
    ck_assert_uint_eq(count("misuses"), ++n);
    // No context on this thread.
    plm_cu_context popped;
    OK(cuCtxPopCurrent_v2(&popped));
    ck_assert_uint_eq(launch(&args, 1, sizeof(args), false), PLM_CU_INVALID_CONTEXT);
    OK(cuCtxPushCurrent_v2(popped));
    args.n = N + 1; // a word behind the allocation
    OK(launch(&args, 1, sizeof(args), false));
    ck_assert_uint_eq(finish(), PLM_CU_ILLEGAL_ADDRESS);
    ck_assert_uint_eq(count("misuses"), ++n);
    ck_assert_uint_eq(cuEventQuery(event), PLM_CU_ILLEGAL_ADDRESS); // sticky
    OK(cuCtxDestroy_v2(context));
    // What is left behind.
    OK(cuCtxCreate_v2(&context, 0, 0));
    alloc(MIB);
    OK(cuCtxDestroy_v2(context));
    ck_assert_uint_eq(count("memory_leaked"), 1);
    ck_assert_uint_gt(count("misuses"), n);
}
END_TEST

START_TEST(early_launches_need_kernels_that_wait)
{
    begin("");
    const plm_cu_ptr a = alloc(4 * N), b = alloc(4 * N), c = alloc(4 * N);
    OK(launch_add(a, a, b, true));
    OK(launch_add(b, b, c, true)); // waits for the one before
    OK(finish());
    ck_assert_uint_eq(count("misuses"), 0);
    // The same kernel, taken for one that does not wait.
    rules("unawaited plm_add");
    OK(cuModuleGetFunction(&add, module, "plm_add"));
    OK(launch_add(a, a, b, false));
    OK(launch_add(a, a, c, true));  // touches nothing that is written
    OK(launch_add(b, b, a, false)); // begins when all has ended
    OK(finish());
    ck_assert_uint_eq(count("misuses"), 0);
    OK(launch_add(a, a, b, false));
    OK(launch_add(b, b, c, true));
    ck_assert_uint_eq(finish(), PLM_CU_ILLEGAL_ADDRESS);
    ck_assert_uint_eq(count("misuses"), 1);
}
END_TEST

START_TEST(a_kernel_that_waits_does_not_wait_for_two)
{
    plm_cu_function waits;
    begin("unawaited plm_add");
    ck_assert(add != NULL);
    rules("");
    OK(cuModuleGetFunction(&waits, module, "plm_add"));
    const plm_cu_ptr a = alloc(4 * N), b = alloc(4 * N), c = alloc(4 * N);
    OK(launch_add(a, a, b, false));
    OK(launch_add(a, a, c, true)); // neither does it wait for the first one
    add = waits;
    OK(launch_add(b, b, a, true));
    ck_assert_uint_eq(finish(), PLM_CU_ILLEGAL_ADDRESS);
    ck_assert_uint_eq(count("misuses"), 1);
}
END_TEST

// A block of the KV cache is written through the address that stands in an array of slots.
START_TEST(what_is_reached_through_memory_is_ordered_too)
{
    plm_cu_module kv_module;
    plm_cu_function rope_kv;
    begin("unawaited plm_add");
    OK(cuModuleLoadData(&kv_module, image("rope_kv")));
    OK(cuModuleGetFunction(&rope_kv, kv_module, "plm_rope_kv"));
    const plm_cu_ptr block = alloc(2 * PLM_KV_BLOCK_TOKENS * N * 4), row = alloc(4 * N);
    const plm_cu_ptr slots = alloc(8), pos = alloc(4), other = alloc(4 * N);
    const struct plm_rope_kv_args args = {.q = row,
                                          .k = row,
                                          .v = row,
                                          .slots = slots,
                                          .pos = pos,
                                          .rows = 1,
                                          .ld = N,
                                          .kv_heads = 1,
                                          .head_dim = N,
                                          .kv_type = PLM_TYPE_F32};
    const uint32_t grid = (uint32_t)plm_gpu_kernel_named("plm_rope_kv")->grid(&args).x;
    memcpy(host, &block, sizeof(block));
    memset(host + 2, 0, sizeof(*host));
    OK(cuMemcpyHtoDAsync_v2(slots, host, 8, stream));
    OK(cuMemcpyHtoDAsync_v2(pos, host + 2, 4, stream));
    OK(launch_of(rope_kv, &args, grid, sizeof(args), true));
    OK(launch_add(row, row, block, false)); // begins when it has ended
    OK(launch_of(rope_kv, &args, grid, sizeof(args), true));
    OK(finish());
    ck_assert_uint_eq(count("misuses"), 0);
    OK(launch_add(block, block, other, true)); // does not wait
    ck_assert_uint_eq(finish(), PLM_CU_ILLEGAL_ADDRESS);
    ck_assert_uint_eq(count("misuses"), 1);
}
END_TEST

START_TEST(faults_strike_where_rules_say)
{
    static const struct {
        const char *rule;
        plm_cu_result result;
    } cases[] = {
        {"fail launch oom", PLM_CU_OUT_OF_MEMORY},
        {"fail launch lost", PLM_CU_ILLEGAL_ADDRESS},
        {"fail launch launch-timeout", PLM_CU_LAUNCH_TIMEOUT},
        {"fail launch ecc", PLM_CU_ECC_UNCORRECTABLE},
        {"fail event oom", PLM_CU_OUT_OF_MEMORY},
        {"fail wait lost nth=1", PLM_CU_ILLEGAL_ADDRESS},
    };
    for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        begin("");
        const plm_cu_ptr at = alloc(4 * N);
        rules(cases[i].rule);
        plm_cu_result r = launch_add(at, at, at, false);
        if (r == PLM_CU_SUCCESS)
            r = cuEventRecord(event, stream);
        if (r == PLM_CU_SUCCESS)
            r = cuEventQuery(event);
        ck_assert_uint_eq(r, cases[i].result);
        ck_assert_uint_eq(count("faults"), i + 1);
        if (r == PLM_CU_OUT_OF_MEMORY)
            OK(finish()); // only a lost device stays so
        else
            ck_assert_uint_eq(cuEventQuery(event), r);
        if (r == PLM_CU_OUT_OF_MEMORY)
            OK(cuMemFree_v2(at));
        if (r == PLM_CU_OUT_OF_MEMORY)
            end();
        else
            OK(cuCtxDestroy_v2(context));
    }
}
END_TEST

START_TEST(a_launch_hangs_and_ends)
{
    begin("fail launch hang ms=50");
    const plm_cu_ptr at = alloc(4 * N);
    OK(launch_add(at, at, at, false));
    ck_assert_uint_eq(finish(), PLM_CU_NOT_READY);
    const struct timespec ms = {.tv_nsec = 60000000};
    nanosleep(&ms, NULL);
    OK(cuEventQuery(event));
    OK(cuMemFree_v2(at));
    end();
}
END_TEST

START_TEST(images_are_looked_into)
{
    static uint8_t bad[256];
    begin("");
    plm_cu_module other;
    plm_cu_function function;
    ck_assert_uint_eq(cuModuleLoadData(&other, bad), PLM_CU_INVALID_IMAGE);
    memcpy(bad, image("add"), sizeof(bad));
    bad[16 + 64] = 0; // of the first code's ELF
    ck_assert_uint_eq(cuModuleLoadData(&other, bad), PLM_CU_INVALID_IMAGE);
    rules("identity arch=7.5");
    ck_assert_uint_eq(cuModuleLoadData(&other, image("add")), PLM_CU_NO_BINARY_FOR_GPU);
    ck_assert_uint_eq(cuModuleGetFunction(&function, module, "plm_argmax"), PLM_CU_NOT_FOUND);
    rules("");
    end();
}
END_TEST

START_TEST(entry_points_come_by_version)
{
    void *at;
    unsigned int status;
    begin("identity driver=11040");
    OK(cuGetProcAddress_v2("cuGraphLaunch", &at, 12000, 0, &status));
    ck_assert_ptr_nonnull(at);
    ck_assert_uint_eq(cuGetProcAddress_v2("cuLaunchKernelEx", &at, 12000, 0, &status),
                      PLM_CU_NOT_FOUND);
    rules("hide cuGraphLaunch");
    ck_assert_uint_eq(cuGetProcAddress_v2("cuGraphLaunch", &at, 12000, 0, &status),
                      PLM_CU_NOT_FOUND);
    rules("count 0");
    ck_assert_uint_eq(cuInit(0), PLM_CU_NO_DEVICE);
    char error[300];
    ck_assert(!fake.set("fail nowhere oom", error, sizeof(error)));
    ck_assert_msg(strstr(error, "nowhere") != NULL, "%s", error);
    ck_assert(!fake.set("fail copy hang ms=5", error, sizeof(error)));
    rules("");
    end();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fakegpu_driver");
    TCase *tcase = tcase_create("driver");
    tcase_add_test(tcase, work_runs_when_somebody_looks);
    tcase_add_test(tcase, the_emulator_runs_the_kernels_source);
    tcase_add_test(tcase, memory_is_counted_and_poisoned);
    tcase_add_test(tcase, mapped_memory_goes_without_waiting);
    tcase_add_test(tcase, graphs_replay_and_hold_no_freed_memory);
    tcase_add_test(tcase, misuses_are_punished);
    tcase_add_test(tcase, early_launches_need_kernels_that_wait);
    tcase_add_test(tcase, a_kernel_that_waits_does_not_wait_for_two);
    tcase_add_test(tcase, what_is_reached_through_memory_is_ordered_too);
    tcase_add_test(tcase, faults_strike_where_rules_say);
    tcase_add_test(tcase, a_launch_hangs_and_ends);
    tcase_add_test(tcase, images_are_looked_into);
    tcase_add_test(tcase, entry_points_come_by_version);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
