// SPDX-License-Identifier: Apache-2.0
// What of the fake HIP runtime is not as in CUDA: contexts that come by themselves and go with a
// reset, images for architectures that are named, waves of both widths.
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "backends/gpudrv/images.h"
#include "backends/hip/api.h"
#include "control.h"
#include "kernels/abi.h"
#include "tests/support/suite.h"

#define X(name, params) plm_hip_result hip##name params;
PLM_HIP_REQUIRED(X)
PLM_HIP_OPTIONAL(X)
PLM_HIP_LATER(X)
#undef X

#define N        64u
#define OK(call) ck_assert_uint_eq(call, PLM_HIP_SUCCESS)

static struct fake_control fake;

static void rules(const char *text)
{
    char error[300];
    ck_assert_msg(fake.set(text, error, sizeof(error)), "%s", error);
}

static const void *image(const char *name)
{
    for (size_t i = 0; i < plm_hip_n_images; i++) {
        if (strcmp(plm_hip_images[i].name, name) == 0)
            return plm_hip_images[i].data;
    }
    ck_abort_msg("no image %s", name);
}

static void begin(const char *text)
{
    ck_assert(fake_control_open(&fake, "libamdhip64.so.6"));
    rules(text);
    OK(hipInit(0));
    OK(hipSetDevice(0));
}

START_TEST(a_context_comes_and_goes)
{
    void *a, *b;
    begin("");
    ck_assert_uint_eq(fake.count("contexts_created"), 0);
    OK(hipMalloc(&a, 100));
    ck_assert_uint_eq(fake.count("contexts_created"), 1);
    OK(hipFree(a));
    OK(hipDeviceReset());
    ck_assert_uint_eq(fake.count("misuses") + fake.count("live_bytes"), 0);
    rules("fail alloc lost");
    ck_assert_uint_eq(hipMalloc(&a, 100), PLM_HIP_ILLEGAL_ADDRESS);
    ck_assert_uint_eq(hipMalloc(&b, 100), PLM_HIP_ILLEGAL_ADDRESS);
    OK(hipDeviceReset());
    OK(hipMalloc(&a, 100)); // again
    OK(hipDeviceReset());   // and leaks it
    ck_assert_uint_eq(fake.count("memory_leaked"), 1);
    ck_assert_uint_eq(fake.count("misuses"), 1);
}
END_TEST

START_TEST(images_are_for_architectures)
{
    static uint8_t zeros[128];
    plm_hip_module module;
    begin("");
    OK(hipModuleLoadData(&module, image("add")));
    OK(hipModuleUnload(module));
    rules("identity arch=gfx803");
    ck_assert_uint_eq(hipModuleLoadData(&module, image("add")), PLM_HIP_NO_BINARY_FOR_GPU);
    rules("identity arch=gfx90");
    ck_assert_uint_eq(hipModuleLoadData(&module, image("add")), PLM_HIP_NO_BINARY_FOR_GPU);
    ck_assert_uint_eq(hipModuleLoadData(&module, zeros), PLM_HIP_INVALID_IMAGE);
    rules("");
    OK(hipDeviceReset());
    ck_assert_uint_eq(fake.count("misuses"), 0);
}
END_TEST

START_TEST(kernels_run_in_waves_of_64)
{
    plm_hip_module module;
    plm_hip_function add;
    plm_hip_stream stream;
    plm_hip_event event;
    void *at;
    float *host;
    begin("exec simt");
    OK(hipModuleLoadData(&module, image("add")));
    OK(hipModuleGetFunction(&add, module, "plm_add"));
    OK(hipStreamCreateWithFlags(&stream, PLM_HIP_STREAM_NON_BLOCKING));
    OK(hipEventCreateWithFlags(&event, PLM_HIP_EVENT_NO_TIMING));
    OK(hipMalloc(&at, 4 * N));
    OK(hipHostMalloc((void **)&host, 4 * N, PLM_HIP_HOST_PORTABLE));
    for (uint32_t i = 0; i < N; i++)
        host[i] = (float)i;
    struct plm_add_args args = {.rows = 1, .n = N};
    args.a = args.b = args.dst = (uint64_t)(uintptr_t)at;
    size_t bytes = sizeof(args);
    void *extra[] = {PLM_HIP_EXTRA_POINTER, &args, PLM_HIP_EXTRA_SIZE, &bytes, PLM_HIP_EXTRA_END};
    OK(hipMemcpyAsync(at, host, 4 * N, PLM_HIP_COPY_TO_DEVICE, stream));
    OK(hipModuleLaunchKernel(add, 1, 1, 1, 256, 1, 1, 0, stream, NULL, extra));
    OK(hipMemcpyAsync(host, at, 4 * N, PLM_HIP_COPY_TO_HOST, stream));
    OK(hipEventRecord(event, stream));
    OK(hipEventQuery(event));
    ck_assert(host[5] == 10.0f);
    ck_assert_uint_eq(fake.count("kernels_emulated"), 1);
    OK(hipHostFree(host));
    OK(hipFree(at));
    OK(hipEventDestroy(event));
    OK(hipStreamDestroy(stream));
    OK(hipModuleUnload(module));
    OK(hipDeviceReset());
    ck_assert_uint_eq(fake.count("misuses") + fake.count("objects_leaked"), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fakegpu_hip");
    TCase *tcase = tcase_create("hip");
    tcase_add_test(tcase, a_context_comes_and_goes);
    tcase_add_test(tcase, images_are_for_architectures);
    tcase_add_test(tcase, kernels_run_in_waves_of_64);
    suite_add_tcase(suite, tcase);
    return suite_run(suite);
}
