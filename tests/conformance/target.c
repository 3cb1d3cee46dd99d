// SPDX-License-Identifier: Apache-2.0
// What runs a case: kernel tables of the CPU, called directly on ranges cut at random.
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/isa.h"
#include "backends/cpu/kernels.h"
#include "tests/conformance/conf.h"

// Runs [0, units) in random pieces in random order.
static void run_cut(plm_cpu_kernel *fn, const void *args, uint32_t units, void *scratch,
                    struct conf_rng *rng)
{
    uint32_t cut[9] = {0}, n = conf_range(rng, 1, 8);
    for (uint32_t i = 1; i < n; i++)
        cut[i] = conf_below(rng, units + 1);
    cut[n] = units;
    for (uint32_t i = 1; i < n; i++) // sorted
        for (uint32_t j = i; j > 1 && cut[j] < cut[j - 1]; j--) {
            uint32_t swap = cut[j];
            cut[j] = cut[j - 1];
            cut[j - 1] = swap;
        }
    for (uint32_t start = conf_below(rng, n), i = 0; i < n; i++) {
        uint32_t k = (start + i) % n;
        memset(scratch, 0xff, PLM_CPU_SCRATCH_BYTES);
        if (cut[k] < cut[k + 1])
            fn(args, cut[k], cut[k + 1], scratch);
    }
}

static int run_kernels(struct conf_target *t, struct conf_case *c, struct conf_rng *rng)
{
    const struct plm_cpu_kernels *kernels = t->impl;
    _Alignas(16) uint8_t args[128];
    conf_bind(c, args);
    void *scratch = aligned_alloc(64, PLM_CPU_SCRATCH_BYTES);
    if (scratch == NULL)
        return 1;
    run_cut(kernels->fn[c->op], args, conf_units(c->op, args), scratch, rng);
    free(scratch);
    return 0;
}

int conf_target_open(const char *name, struct conf_target *ret)
{
    static const struct {
        const char *name;
        uint32_t isa;
        enum plm_kernel_choice choice;
    } list[] = {
        {"reference", PLM_CPU_ISA_NO_CAP, PLM_KERNELS_REFERENCE},
        {"portable", PLM_CPU_ISA_PORTABLE, PLM_KERNELS_AUTO},
        {"avx2", PLM_CPU_ISA_AVX2, PLM_KERNELS_AUTO},
        {"avx512", PLM_CPU_ISA_AVX512, PLM_KERNELS_AUTO},
        {"avx512-vnni", PLM_CPU_ISA_AVX512_VNNI, PLM_KERNELS_AUTO},
    };
    if (strncmp(name, "backend:", 8) == 0)
        return conf_device_open(name + 8, 2, ret);
#ifdef CONF_SIMT
    if (strncmp(name, "simt:", 5) == 0)
        return conf_simt_open(name + 5, ret);
#endif
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        if (strcmp(name, list[i].name) != 0)
            continue;
        if (list[i].choice == PLM_KERNELS_AUTO && list[i].isa > (uint32_t)plm_cpu_isa_best())
            return 77;
        const struct plm_cpu_kernels *k = plm_cpu_kernels_select(list[i].isa, list[i].choice);
        if (strcmp(k->isa, name) != 0) {
            printf("FAIL select: asked for %s, got %s\n", name, k->isa);
            return 1;
        }
        *ret = (struct conf_target){.name = list[i].name,
                                    .run = run_kernels,
                                    .impl = (void *)(uintptr_t)k,
                                    .bit_equal = true,
                                    .types = conf_types(PLM_BACKENDS_CPU),
                                    .kv_types = PLM_KV_TYPES_ALL};
        return 0;
    }
    printf("conformance: no target \"%s\"\n", name);
    return 1;
}

int conf_target_close(struct conf_target *t)
{
    return t->close != NULL ? t->close(t) : 0;
}
