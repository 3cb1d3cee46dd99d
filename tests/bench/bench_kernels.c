// SPDX-License-Identifier: Apache-2.0
// bench_kernels [ISA]: GB/s and GOP/s of the CPU kernels on one thread, by type and rows. ISA is a
// number of backends/cpu/isa.h (default: the best of this machine; -1: the reference).
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backends/cpu/isa.h"
#include "backends/cpu/kernels.h"
#include "backends/panel/pack.h"
#include "core/kv/group.h"

#define ROUNDS    7        // the best is printed: others on the machine only slow down
#define ROUND_NS  10000000 // of each round at least
#define BIG_BYTES (400ull << 20)

// Processor time of this thread: on a busy machine the wall clock counts others' work.
static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1000000000 + t.tv_nsec;
}

static void *get(uint64_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (p == NULL)
        exit(1);
    // Any bytes do as codes; halves of 0x2c2c and floats of 0x2c2c2c2c are small numbers.
    memset(p, 0x2c, (bytes + 63) / 64 * 64);
    return p;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

// Least seconds of one call.
static double measure(plm_cpu_kernel *fn, const void *args, uint32_t units, void *scratch)
{
    double seconds[ROUNDS];
    int64_t first = now_ns();
    fn(args, 0, units, scratch);
    const int batch = now_ns() - first < 100000 ? 32 : 1; // reading the clock takes half a us
    for (int i = 0; i < ROUNDS; i++) {
        int64_t start = now_ns(), now;
        int calls = 0;
        do {
            for (int n = 0; n < batch; n++)
                fn(args, 0, units, scratch);
            calls += batch;
            now = now_ns();
        } while (now - start < ROUND_NS);
        seconds[i] = (double)(now - start) * 1e-9 / calls;
    }
    qsort(seconds, ROUNDS, sizeof *seconds, by_value);
    return seconds[0];
}

static void bench_matmul(const struct plm_cpu_kernels *k, const char *name, enum plm_type type,
                         enum plm_act act, uint32_t n_in, uint32_t n_out, uint32_t rows,
                         void *scratch)
{
    struct plm_weight_layout layout;
    if (plm_panel_weight_layout(type, n_in, n_out, &layout) != PLM_OK)
        exit(1);
    _Alignas(16) struct plm_matmul_args a = {
        .type = type, .act = act, .rows = rows, .n_in = n_in, .n_out = n_out, .ld_dst = n_out};
    void *w = get(layout.bytes), *x = get(PLM_ACT_ROW_BYTES(act, n_in) * rows);
    void *dst = get((uint64_t)rows * n_out * 4);
    a.weight = (uint64_t)(uintptr_t)w;
    a.x = (uint64_t)(uintptr_t)x;
    a.dst = (uint64_t)(uintptr_t)dst;
    double s = measure(k->fn[PLM_OP_MATMUL], &a, (n_out + 15) / 16, scratch);
    printf("matmul    %-5s %s %5u x %6u rows %4u: %8.2f GB/s %8.1f GOP/s %10.1f us\n", name,
           act == PLM_ACT_Q8 ? "q8 " : "f32", n_in, n_out, rows, (double)layout.bytes / s * 1e-9,
           2.0 * n_in * n_out * rows / s * 1e-9, s * 1e6);
    fflush(stdout);
    free(w);
    free(x);
    free(dst);
}

static void bench_attention(const struct plm_cpu_kernels *k, uint32_t heads, uint32_t kv_heads,
                            uint32_t dim, uint32_t context, uint32_t rows, enum plm_type type,
                            void *scratch)
{
    uint32_t blocks = (context + 15) / 16;
    uint64_t block = 2 * kv_heads * PLM_KV_HEAD_BYTES(type, dim);
    uint8_t *slab = get(block * blocks);
    uint64_t *table = get((uint64_t)blocks * 8);
    int32_t *pos = get((uint64_t)rows * 4), *seq = get((uint64_t)rows * 4);
    for (uint32_t b = 0; b < blocks; b++)
        table[b] = (uint64_t)(uintptr_t)(slab + b * block);
    for (uint32_t r = 0; r < rows; r++) {
        pos[r] = (int32_t)(context - rows + r);
        seq[r] = 0;
    }
    void *q = get((uint64_t)rows * heads * dim * 4), *dst = get((uint64_t)rows * heads * dim * 4);
    _Alignas(16) struct plm_attention_args a = {.q = (uint64_t)(uintptr_t)q,
                                                .dst = (uint64_t)(uintptr_t)dst,
                                                .pos = (uint64_t)(uintptr_t)pos,
                                                .seq = (uint64_t)(uintptr_t)seq,
                                                .tables = (uint64_t)(uintptr_t)table,
                                                .table_stride = blocks,
                                                .rows = rows,
                                                .ld_q = heads * dim,
                                                .heads = heads,
                                                .kv_heads = kv_heads,
                                                .head_dim = dim,
                                                .kv_type = type,
                                                .scale = 0.125f};
    double s = measure(k->fn[PLM_OP_ATTENTION], &a, rows * kv_heads, scratch);
    double seen = (double)rows * (context - rows + 1 + context) / 2;
    printf("attention %-4s %2u:%u x %3u context %5u rows %4u: %8.2f GB/s %8.1f GOP/s %10.1f us\n",
           plm_kv_type_name(type), heads, kv_heads, dim, context, rows,
           (double)(block * blocks) / s * 1e-9, 4.0 * seen * heads * dim / s * 1e-9, s * 1e6);
    fflush(stdout);
    free(slab);
    free(table);
    free(pos);
    free(seq);
    free(q);
    free(dst);
}

static void bench_rows(const struct plm_cpu_kernels *k, uint32_t n, uint32_t rows, void *scratch)
{
    void *x = get((uint64_t)rows * n * 4), *y = get((uint64_t)rows * n * 4);
    void *w = get((uint64_t)n * 4), *q8 = get(PLM_ACT_Q8_ROW_BYTES(n) * rows);
    uint64_t xa = (uint64_t)(uintptr_t)x, ya = (uint64_t)(uintptr_t)y;
    uint64_t wa = (uint64_t)(uintptr_t)w, qa = (uint64_t)(uintptr_t)q8;
    _Alignas(16) struct plm_rms_norm_args norm = {
        .x = xa, .weight = wa, .dst_q8 = qa, .rows = rows, .n = n, .eps = 1e-5f};
    _Alignas(16) struct plm_gate_mul_args silu = {
        .gate = xa, .up = ya, .dst_q8 = qa, .rows = rows, .n = n, .ld = n};
    _Alignas(16) struct plm_quantize_args quant = {.x = xa, .dst = qa, .rows = rows, .n = n};
    _Alignas(16) struct plm_add_args add = {.a = xa, .b = ya, .dst = ya, .rows = rows, .n = n};
    const struct {
        const char *name;
        enum plm_op op;
        const void *args;
    } list[] = {{"rms_norm", PLM_OP_RMS_NORM, &norm},
                {"gate_mul", PLM_OP_GATE_MUL, &silu},
                {"quantize", PLM_OP_QUANTIZE, &quant},
                {"add", PLM_OP_ADD, &add}};
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        double s = measure(k->fn[list[i].op], list[i].args, rows, scratch);
        printf("%-9s %5u rows %4u: %6.2f ns per element %10.1f us\n", list[i].name, n, rows,
               s * 1e9 / ((double)n * rows), s * 1e6);
    }
    free(x);
    free(y);
    free(w);
    free(q8);
}

int main(int argc, char **argv)
{
    int isa = argc > 1 ? atoi(argv[1]) : 0;
    const char *only = argc > 2 ? argv[2] : "";
    const struct plm_cpu_kernels *k = plm_cpu_kernels_select(
        isa > 0 ? (uint32_t)isa : 0, isa < 0 ? PLM_KERNELS_REFERENCE : PLM_KERNELS_AUTO);
    static const struct {
        const char *name;
        enum plm_type type;
        uint32_t block;
    } types[] = {
#define PLM_TENSOR_TYPE(NAME, name, id, block, bytes, CODES, VALUES, zero, SCALES, BACKENDS)       \
    PLM_WITH_KERNELS_##BACKENDS({#NAME, PLM_TYPE_##NAME, block}, )
#include "kernels/types.def"
    };
    static const uint32_t rows[] = {1, 2, 4, 8, 64, 512};
    void *scratch = get(PLM_CPU_SCRATCH_BYTES);
    printf("kernels: %s, one thread\n", k->isa);
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        enum plm_act act = types[t].block != 1 ? PLM_ACT_Q8 : PLM_ACT_F32;
        if (strstr(types[t].name, only) == NULL)
            continue;
        for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++)
            bench_matmul(k, types[t].name, types[t].type, act, types[t].block == 256 ? 1536 : 576,
                         1536, rows[r], scratch);
        bench_matmul(k, types[t].name, types[t].type, act, 1536, (uint32_t)(BIG_BYTES / 1536), 1,
                     scratch); // out of the caches
        bench_matmul(k, types[t].name, types[t].type, act, 1536, (64u << 20) / 1536, 1, scratch);
        bench_matmul(k, types[t].name, types[t].type, PLM_ACT_F32, 1536, 576, 8, scratch);
    }
    if (only[0] == 0 || strcmp(only, "attention") == 0) {
        for (int i = 0; i < 2; i++) {
            const enum plm_type type = i == 0 ? PLM_TYPE_F16 : PLM_TYPE_Q8_0;
            bench_attention(k, 9, 3, 64, 512, 1, type, scratch);
            bench_attention(k, 9, 3, 64, 4096, 1, type, scratch);
            bench_attention(k, 9, 3, 64, 512, 512, type, scratch);
            bench_attention(k, 12, 2, 128, 512, 512, type, scratch);
            bench_attention(k, 12, 2, 128, 2048, 1, type, scratch);
        }
        bench_attention(k, 9, 3, 64, 512, 512, PLM_TYPE_F32, scratch);
    }
    if (only[0] == 0 || strcmp(only, "rows") == 0) {
        bench_rows(k, 576, 1, scratch);
        bench_rows(k, 1536, 512, scratch);
    }
    free(scratch);
    return 0;
}
