// SPDX-License-Identifier: Apache-2.0
// Between the CPU device (memory, workers, list) and its kernels: a table with one function per op.
// The kernels know nothing of devices or threads; the device knows nothing of what an op computes.
#ifndef PLM_CPU_KERNELS_H
#define PLM_CPU_KERNELS_H

#include <stdint.h>

#include "core/backend.h"

// Scratch that every worker owns, for values that live within one call: 64-byte aligned, contents
// undefined at entry. The largest user is attention (one score and output tile per query head of a
// KV head).
#define PLM_CPU_SCRATCH_BYTES (128u << 10)

// Computes units [begin, end) of an op (ops.def says what a unit is), begin < end. args points to
// struct plm_<op>_args, 16-byte aligned; addresses in it are host pointers. Calls on disjoint unit
// ranges of one dispatch run at the same time on several threads, in any order and cut anywhere,
// and the result must not depend on it. Takes no memory, no lock, and does not block.
typedef void plm_cpu_kernel(const void *args, uint32_t begin, uint32_t end, void *scratch);

// A way to run an op. All of one op are bit-equal.
struct plm_cpu_variant {
    const char *name; // static text: the instruction set, and what else it is about
    plm_cpu_kernel *fn;
};

#define PLM_CPU_WALKS    3 // of a matrix product, per instruction set
#define PLM_CPU_VARIANTS 4 // of one op at most

struct plm_cpu_kernels {
    plm_cpu_kernel *fn[PLM_OPS]; // by enum plm_op; none is NULL
    const char *isa;             // static text for plm_caps.isa: "avx512-vnni", "reference"
    struct plm_cpu_variant matmul[PLM_CPU_WALKS]; // the first is fn's; the reference has none
};

// The kernels for this machine: the fastest variants whose instruction set is there and at most
// isa_max (backends/cpu/isa.h; 0: no cap), or with PLM_KERNELS_REFERENCE the plain C functions that
// specify the ops. Never NULL. Any thread.
const struct plm_cpu_kernels *plm_cpu_kernels_select(uint32_t isa_max,
                                                     enum plm_kernel_choice choice);

// The variants of an op that a device with these kernels may choose among: its own first, then
// those of narrower vectors, which a processor may run at a higher clock. Returns how many, at
// least 1.
uint32_t plm_cpu_variants(const struct plm_cpu_kernels *kernels, enum plm_op op,
                          struct plm_cpu_variant ret[PLM_CPU_VARIANTS]);

// Text for plm_caps.device_class: names the weight layout (backends/panel), which is the same for
// every instruction set.
#define PLM_CPU_DEVICE_CLASS "cpu-p16"

#endif
