// SPDX-License-Identifier: Apache-2.0
// The emulator: what is right runs right in every order, what is wrong shows (misuse.cu).
#include <check.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "backends/panel/half.h"
#include "kernels/abi.h"
#include "tests/simt/simt_run.h"
#include "tests/support/suite.h"

#define SEEDS 20
#define WORDS 2048

// Aligned as device memory is.
static _Alignas(256) uint32_t src[WORDS], dst[WORDS];
static char error[SIMT_ERROR_BYTES];

static const uint32_t widths[] = {32, 64};

static void fill(void)
{
    for (uint32_t i = 0; i < WORDS; i++)
        src[i] = i * 2654435761u;
    memset(dst, 0, sizeof dst);
}

static struct simt_launch launch_of(const char *kernel, uint32_t width, uint64_t seed,
                                    const struct plm_copy_args *args)
{
    return (struct simt_launch){.kernel = kernel,
                                .grid = {4, 1, 1},
                                .threads = 128,
                                .args = args,
                                .args_bytes = sizeof *args,
                                .width = width,
                                .seed = seed};
}

static struct plm_copy_args addresses(void)
{
    return (struct plm_copy_args){
        .src = (uint64_t)(uintptr_t)src, .dst = (uint64_t)(uintptr_t)dst, .n_words = WORDS};
}

// One block, with nothing guarded, or with dst and, unless it is a weight, src.
enum guard { NOTHING, RESULTS, ALL };

static int run(const char *kernel, uint32_t width, uint64_t seed, enum guard guard)
{
    const struct plm_copy_args a = addresses();
    const struct simt_range ranges[] = {{dst, sizeof dst}, {src, sizeof src}};
    struct simt_launch l = launch_of(kernel, width, seed, &a);
    l.grid[0] = 1;
    l.guarded = ranges;
    l.n_guarded = (size_t)guard;
    return simt_run(&l, error);
}

// Fails in every order and both widths, and says `what`.
static void fails(const char *kernel, enum guard guard, const char *what)
{
    for (int w = 0; w < 2; w++)
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            fill();
            ck_assert_msg(run(kernel, widths[w], seed, guard) != 0, "%s passed", kernel);
            ck_assert_msg(strstr(error, what) != NULL, "\"%s\" lacks \"%s\"", error, what);
            ck_assert_msg(strncmp(error, kernel, strlen(kernel)) == 0, "\"%s\"", error);
        }
}

// How many of 20 orders give the first n words of dst as `want` has them.
static int right(const char *kernel, uint32_t width, enum guard guard, const uint32_t *want,
                 size_t n)
{
    int count = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        fill();
        ck_assert_msg(run(kernel, width, seed, guard) == 0, "%s", error);
        count += memcmp(dst, want, n * 4) == 0;
    }
    return count;
}

static void always_right(const char *kernel, enum guard guard, const uint32_t *want, size_t n)
{
    for (int w = 0; w < 2; w++)
        ck_assert_msg(right(kernel, widths[w], guard, want, n) == SEEDS, "%s", kernel);
}

static void mostly_wrong(const char *kernel, enum guard guard, const uint32_t *want, size_t n)
{
    for (int w = 0; w < 2; w++)
        ck_assert_msg(right(kernel, widths[w], guard, want, n) <= SEEDS / 2, "%s", kernel);
}

START_TEST(barriers)
{
    uint32_t want[128];
    fill();
    for (uint32_t i = 0; i < 128; i++)
        want[i] = src[127 - i];
    always_right("reverse_right", ALL, want, 128);
    mostly_wrong("reverse_unfilled", ALL, want, 128);
    mostly_wrong("reverse_unfreed", ALL, want, 128);
    fails("barriers_apart", NOTHING, "in __syncthreads at");
    fails("barrier_left_out", NOTHING,
          "deadlock: 1 of 128 threads have ended, 127 in __syncthreads at");
}
END_TEST

START_TEST(warps)
{
    uint32_t want[128], v[128];
    fill();
    for (uint32_t i = 0; i < 128; i++)
        want[i] = src[i ^ 31];
    always_right("warp_right", ALL, want, 128);
    mostly_wrong("warp_unsynced", ALL, want, 128);
    fails("lane_left_out", NOTHING, "deadlock: 97 of 128 threads have ended, 31 in plm_shuffle at");
    fails("exchanges_apart", NOTHING, "in plm_shuffle at");
    for (uint32_t i = 0; i < 128; i++)
        v[i] = i / 32 % 2 == 0 ? src[i ^ 16] + 1000 * src[i / 32 * 32 + 8] : src[i];
    always_right("exchange", ALL, v, 128);
}
END_TEST

// Garbage at first, in each block.
START_TEST(shared)
{
    const struct plm_copy_args a = addresses();
    const struct simt_launch l = launch_of("leftover", 32, 1, &a);
    ck_assert_int_eq(simt_run(&l, error), 0);
    for (uint32_t i = 0; i < 512; i++)
        ck_assert_uint_eq(dst[i], UINT32_MAX);
    ck_assert_int_eq(run("shared_full", 32, 1, NOTHING), 0);
    fails("shared_over", NOTHING, "bytes of shared memory, 49152 are there");
}
END_TEST

START_TEST(awaits)
{
    fails("await_none", NOTHING, "ends without plm_await");
    fails("await_one_lacks", NOTHING, "thread 5 ends without plm_await");
    fails("await_one_lacks", ALL, "thread 5 ends without plm_await");
    fails("await_twice", NOTHING, "thread 5 calls plm_await twice");
    fails("await_twice", ALL, "thread 5 calls plm_await twice");
    fill();
    uint32_t want[128];
    memcpy(want, src, sizeof want);
    always_right("await_last", NOTHING, want, 128);
    always_right("await_last", RESULTS, want, 128); // src holds weights
    for (int w = 0; w < 2; w++)
        ck_assert_int_eq(right("await_last", widths[w], ALL, want, 128), 0);
    always_right("await_after_load", RESULTS, want, 128);
    fails("await_after_load", ALL, "touches what only plm_await makes valid");
    fails("await_after_store", RESULTS, "memory was written before plm_await");
    // What was held back is there again.
    for (uint32_t i = 128; i < WORDS; i++)
        ck_assert(src[i] == i * 2654435761u && dst[i] == 0);
}
END_TEST

START_TEST(copies)
{
    uint32_t want[1024];
    fill();
    for (uint32_t i = 0; i < 1024; i++)
        want[i] = src[(i / 4 ^ 127) * 4 + i % 4];
    always_right("copy_right", ALL, want, 1024);
    always_right("copy_one_of_two", ALL, want, 512);
    for (int w = 0; w < 2; w++) // of the second group not a byte is there
        ck_assert_int_eq(right("copy_one_of_two", widths[w], ALL, want, 1024), 0);
    mostly_wrong("copy_unsynced", ALL, want, 1024);
    mostly_wrong("copy_too_early", ALL, want, 512);
    fails("copy_unfinished", ALL, "ends with copies under way");
    fails("copy_uncommitted", ALL, "ends with copies under way");
    fails("copy_outside", ALL, "not 16 aligned bytes of shared memory");
    fails("copy_unaligned", ALL, "is not aligned");
    fails("load_unaligned", ALL, "is not aligned");
}
END_TEST

// ---- products ----

static float small(uint32_t i, uint32_t steps)
{
    return (float)((int)((i * 2654435761u >> 8) % steps) - (int)steps / 2) / 8.0f;
}

static uint32_t bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}

// Per warp A [16][k], B as [8][k] and C [16][8], of values whose products and sums are exact.
static void fill_products(double *a, double *b, double *c, uint32_t k, uint32_t warp)
{
    for (uint32_t i = 0; i < 16 * k; i++)
        a[i] = (double)small(warp * 7919 + i, 200);
    for (uint32_t i = 0; i < 8 * k; i++)
        b[i] = (double)small(warp * 104729 + i + 500, 200);
    for (uint32_t i = 0; i < 128; i++)
        c[i] = (double)small(warp * 1299709 + i + 900, 100000);
}

static void put(uint8_t *to, uint32_t i, double v, uint32_t k, bool f16)
{
    const uint32_t u = f16 ? (uint32_t)plm_f32_to_f16((float)v) << 16 : bits((float)v);
    if (k == 32)
        to[i] = (uint8_t)(int8_t)(v * 8);
    else if (k == 16)
        memcpy(to + 2 * i, (const uint8_t *)&u + 2, 2); // little-endian: the upper half
    else
        memcpy(to + 4 * i, &u, 4);
}

static void check_products(const char *kernel, uint32_t k, uint32_t width)
{
    const bool f16 = strcmp(kernel, "mma_f16") == 0;
    static double a[4][16 * 32], b[4][8 * 32], c[4][128];
    for (uint32_t w = 0; w < 4; w++) {
        fill_products(a[w], b[w], c[w], k, w);
        uint8_t *at = (uint8_t *)(src + w * 192);
        for (uint32_t i = 0; i < 16 * k; i++)
            put(at, i, a[w][i], k, f16);
        for (uint32_t i = 0; i < 8 * k; i++)
            put(at + 512, i, b[w][i], k, f16);
        for (uint32_t i = 0; i < 128; i++)
            dst[w * 128 + i] = k == 32 ? (uint32_t)(int)(c[w][i] * 64) : bits((float)c[w][i]);
    }
    ck_assert_msg(run(kernel, width, 3, RESULTS) == 0, "%s", error);
    for (uint32_t w = 0; w < 4; w++)
        for (uint32_t i = 0; i < 128; i++) {
            double sum = c[w][i];
            for (uint32_t j = 0; j < k; j++)
                sum += a[w][i / 8 * k + j] * b[w][i % 8 * k + j];
            const uint32_t want = k == 32 ? (uint32_t)(int)(sum * 64) : bits((float)sum);
            ck_assert_msg(dst[w * 128 + i] == want, "%s of %u: warp %u [%u][%u]", kernel, width, w,
                          i / 8, i % 8);
        }
}

START_TEST(products)
{
    for (int w = 0; w < 2; w++) {
        check_products("mma_s8", 32, widths[w]);
        check_products("mma_bf16", 16, widths[w]);
        check_products("mma_f16", 16, widths[w]);
        check_products("mma_tf32", 8, widths[w]);
    }
    fails("mma_unrounded", NOTHING, "is not from plm_tf32");
}
END_TEST

START_TEST(matrices)
{
    fill();
    uint32_t want[512];
    memcpy(want, src, sizeof want);
    always_right("transpose", ALL, want, 512);
    always_right("straight", ALL, want, 512);
}
END_TEST

START_TEST(numbers)
{
    static const float x[] = {1.0f,
                              -1.0f,
                              0.5f,
                              1.5f,
                              2.5f,
                              -2.5f,
                              1e10f,
                              -1e10f,
                              INFINITY,
                              NAN,
                              4.0f,
                              1.0f + 0x1p-8f,
                              1.0f + 0x1.8p-7f,
                              1 + 0x1p-11f,
                              1 + 0x1.8p-10f,
                              0.25f};
    static const struct {
        int at, field;
        uint32_t want;
    } list[] = {
        {2, 3, 0},
        {3, 3, 2},
        {4, 3, 2},
        {5, 3, (uint32_t)-2},
        {6, 3, INT32_MAX},
        {7, 3, 0x80000000},
        {8, 3, INT32_MAX},
        {9, 3, 0},
        {10, 4, 0x3f000000},
        {11, 1, 0x3f80},
        {12, 1, 0x3f82},
        {13, 0, 0x3f802000},
        {13, 2, 0x3c00},
        {14, 2, 0x3c02},
        {14, 0, 0x3f804000},
        {8, 2, 0x7c00},
        {0, 5, 5 + 2 - 127 - 3 - 128 * 127},
    };
    const struct plm_copy_args a = addresses();
    struct simt_launch l = launch_of("numbers", 32, 1, &a);
    l.grid[0] = 1;
    l.threads = 32;
    memset(src, 0, 128);
    memcpy(src, x, sizeof x);
    ck_assert_int_eq(simt_run(&l, error), 0);
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        ck_assert_msg(dst[list[i].at * 8 + list[i].field] == list[i].want, "%zu: %#x, not %#x", i,
                      dst[list[i].at * 8 + list[i].field], list[i].want);
    ck_assert((dst[9 * 8 + 1] & 0x7fff) > 0x7f80 && (dst[9 * 8 + 2] & 0x7fff) > 0x7c00);
}
END_TEST

// ---- launches ----

START_TEST(grids)
{
    const struct plm_copy_args a = addresses();
    struct simt_launch l = launch_of("count_blocks", 64, 5, &a);
    l.grid[0] = 3;
    l.grid[1] = 4;
    l.grid[2] = 5;
    fill();
    ck_assert_int_eq(simt_run(&l, error), 0);
    for (uint32_t i = 0; i < 61; i++)
        ck_assert_uint_eq(dst[i], i < 60 ? 128128 : 0);
}
END_TEST

static void refused(struct simt_launch l, const char *what)
{
    ck_assert_int_eq(simt_run(&l, error), 1);
    ck_assert_msg(strstr(error, what) != NULL, "\"%s\" lacks \"%s\"", error, what);
}

START_TEST(refusals)
{
    const struct plm_copy_args a = addresses();
    const struct simt_launch good = launch_of("reverse_right", 32, 1, &a);
    struct simt_launch l = good;
    l.kernel = "absent";
    refused(l, "no such kernel");
    l = good;
    l.threads = 256;
    refused(l, "built for 128 and 24");
    l = good;
    l.args_bytes = 32;
    refused(l, "built for 128 and 24");
    l = good;
    l.grid[1] = 0;
    refused(l, "a grid of 4 x 0 x 1");
    l = good;
    l.grid[2] = 65536;
    refused(l, "a grid of 4 x 1 x 65536");
    l = good;
    l.width = 16;
    refused(l, "waves of 16 lanes");
    ck_assert_int_eq(simt_run(&good, error), 0);
    ck_assert_ptr_null(simt_find("absent"));
    ck_assert_str_eq(simt_find("reverse_right")->args, "plm_copy_args");
}
END_TEST

// A seed is an order: the same one again, another one for another seed.
START_TEST(orders)
{
    uint32_t first[128];
    int other = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        fill();
        ck_assert_int_eq(run("warp_unsynced", 32, seed, NOTHING), 0);
        memcpy(first, dst, sizeof first);
        fill();
        ck_assert_int_eq(run("warp_unsynced", 32, seed, NOTHING), 0);
        ck_assert_mem_eq(first, dst, sizeof first);
        fill();
        ck_assert_int_eq(run("warp_unsynced", 32, seed + 100, NOTHING), 0);
        other += memcmp(first, dst, sizeof first) != 0;
    }
    ck_assert_int_ge(other, SEEDS / 2);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("simt");
    TCase *t = tcase_create("simt");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, barriers);
    tcase_add_test(t, warps);
    tcase_add_test(t, shared);
    tcase_add_test(t, awaits);
    tcase_add_test(t, copies);
    tcase_add_test(t, products);
    tcase_add_test(t, matrices);
    tcase_add_test(t, numbers);
    tcase_add_test(t, grids);
    tcase_add_test(t, refusals);
    tcase_add_test(t, orders);
    suite_add_tcase(s, t);
    return suite_run(s);
}
