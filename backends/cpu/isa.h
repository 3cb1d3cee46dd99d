// SPDX-License-Identifier: Apache-2.0
// Levels of instruction sets that kernels are compiled for, lowest first. A cap of 0 means none.
#ifndef PLM_CPU_ISA_H
#define PLM_CPU_ISA_H

enum plm_cpu_isa {
    PLM_CPU_ISA_NO_CAP = 0,
    PLM_CPU_ISA_PORTABLE = 1,    // plain C for the target's baseline
    PLM_CPU_ISA_AVX2 = 2,        // AVX2, FMA, F16C
    PLM_CPU_ISA_AVX512 = 3,      // AVX-512 F, BW, DQ, VL
    PLM_CPU_ISA_AVX512_VNNI = 4, // and VNNI
};

// The highest level that this machine runs.
enum plm_cpu_isa plm_cpu_isa_best(void);

#endif
