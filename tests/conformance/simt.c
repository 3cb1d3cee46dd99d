// SPDX-License-Identifier: Apache-2.0
// Runs a case by the kernels of CUDA and HIP under the emulator (tests/simt): by every kernel of
// kernels.def that fits the arguments, all of which must give the same bits.
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "backends/gpudrv/kernels.h"
#include "tests/conformance/conf.h"
#include "tests/simt/simt_run.h"

struct simt {
    uint32_t width; // of a wave
    uint64_t seed;
};

// Whether a field is an address of constants, which may be read before the kernels before have
// ended.
static bool is_weight(enum plm_op op, uint32_t field)
{
    enum { IN, OUT, INOUT, WEIGHT };
    static const struct {
        enum plm_op op;
        uint32_t field;
        int mode;
    } list[] = {
#define PLM_SPAN(NAME, name, mode, field, bytes, rows, stride)                                     \
    {PLM_OP_##NAME, (uint32_t)offsetof(struct plm_##name##_args, field), mode},
#define PLM_SPANS(NAME, name, mode, n, m, address, bytes)
#include "kernels/spans.def"
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        if (list[i].op == op && list[i].field == field && list[i].mode == WEIGHT)
            return true;
    return false;
}

static int run_kernel(const struct simt *simt, const struct conf_case *c, const void *args,
                      const struct plm_gpu_kernel *k, uint64_t seed)
{
    struct simt_range ranges[CONF_BUFFERS];
    char error[SIMT_ERROR_BYTES];
    struct simt_launch launch = {.kernel = k->symbol,
                                 .threads = k->threads,
                                 .args = args,
                                 .args_bytes = c->args_bytes,
                                 .width = simt->width,
                                 .seed = seed,
                                 .guarded = ranges};
    for (int i = 0; i < c->n_bufs; i++)
        if (!is_weight(c->op, c->buf[i].field))
            ranges[launch.n_guarded++] = (struct simt_range){c->buf[i].data, c->buf[i].bytes};
    struct plm_gpu_grid grid;
    if (plm_gpu_kernel_grid(k, args, &grid) != PLM_OK) {
        printf("FAIL %s: no grid of %s\n", c->label, k->symbol);
        return 1;
    }
    launch.grid[0] = (uint32_t)grid.x;
    launch.grid[1] = (uint32_t)grid.y;
    launch.grid[2] = (uint32_t)grid.z;
    conf_forbid_guards(c, true);
    const int r = simt_run(&launch, error);
    conf_forbid_guards(c, false);
    if (r != 0)
        printf("FAIL %s: %s\n", c->label, error);
    return r;
}

// Copies what the case's outputs hold: one after the other, or back.
static void copy_outputs(struct conf_case *c, uint8_t *at, bool back)
{
    for (int i = 0; i < c->n_bufs; i++)
        if (c->buf[i].out) {
            memcpy(back ? c->buf[i].data : at, back ? at : c->buf[i].data, c->buf[i].bytes);
            at += c->buf[i].bytes;
        }
}

static int run_simt(struct conf_target *t, struct conf_case *c, struct conf_rng *rng)
{
    const struct simt *simt = t->impl;
    _Alignas(16) uint8_t args[128];
    uint64_t bytes = 1;
    int r = 0;
    conf_bind(c, args);
    for (int i = 0; i < c->n_bufs; i++)
        bytes += c->buf[i].out ? c->buf[i].bytes : 0;
    uint8_t *before = malloc(bytes), *first = malloc(bytes), *got = malloc(bytes);
    if (before == NULL || first == NULL || got == NULL)
        abort();
    copy_outputs(c, before, false);
    const struct plm_gpu_kernel *k;
    uint32_t n = 0;
    for (; r == 0 && (k = plm_gpu_kernel_of(c->op, args, n)) != NULL; n++) {
        copy_outputs(c, before, true);
        r = run_kernel(simt, c, args, k, simt->seed + conf_u32(rng));
        copy_outputs(c, n == 0 ? first : got, false);
        if (r == 0 && n > 0 && memcmp(first, got, bytes - 1) != 0) {
            printf("FAIL %s: %s, the kernel %u that fits, gives other bits than the first\n",
                   c->label, k->symbol, n);
            r = 1;
        }
    }
    if (n == 0) {
        printf("FAIL %s %s: no kernel fits\n", conf_op_name(c->op), c->label);
        r = 1;
    }
    free(before);
    free(first);
    free(got);
    return r;
}

static int close_target(struct conf_target *t)
{
    free(t->impl);
    return 0;
}

int conf_simt_open(const char *options, struct conf_target *ret)
{
    char *end;
    struct simt simt = {.width = (uint32_t)strtoul(options, &end, 10)};
    if (*end == ':')
        simt.seed = strtoull(end + 1, &end, 10);
    if ((simt.width != 32 && simt.width != 64) || *end != 0) {
        printf("conformance: simt:WIDTH[:SEED], width 32 or 64\n");
        return 1;
    }
    struct simt *s = malloc(sizeof *s);
    if (s == NULL)
        abort();
    *s = simt;
    *ret = (struct conf_target){.name = "simt",
                                .run = run_simt,
                                .close = close_target,
                                .impl = s,
                                .types = conf_types(PLM_BACKENDS_GPU),
                                .kv_types = PLM_KV_TYPES_ALL};
    return 0;
}

uint64_t conf_simt_load(const char *file)
{
    const struct simt_kernel *before[PLM_GPU_KERNELS];
    uint64_t ops = 0;
    for (int i = 0; i < PLM_GPU_KERNELS; i++)
        before[i] = simt_find(plm_gpu_kernels[i].symbol);
    if (dlopen(file, RTLD_NOW | RTLD_LOCAL) == NULL) {
        printf("conformance: %s\n", dlerror());
        return 0;
    }
    for (int i = 0; i < PLM_GPU_KERNELS; i++)
        if (simt_find(plm_gpu_kernels[i].symbol) != before[i])
            ops |= 1ull << plm_gpu_kernels[i].op;
    return ops;
}
