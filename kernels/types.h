// SPDX-License-Identifier: Apache-2.0
// The words of kernels/types.def as numbers, for C, CUDA and GLSL: how the layout p16 holds a block
// of a type (kernels/layout.md draws it), and which backends have kernels for it.
#ifndef PLM_KERNELS_TYPES_H
#define PLM_KERNELS_TYPES_H

// CODES: the number is that of 64-byte lines that the codes of 32 inputs of 16 rows take.
#define PLM_CODES_UNKNOWN   0 // no kernel has it
#define PLM_CODES_ELEMENTS  1 // floats, a line or half of one per input
#define PLM_CODES_PAIRS     2 // 2 bits
#define PLM_CODES_PAIRS_1   3 // 2 bits, then a high bit
#define PLM_CODES_NIBBLES   4 // 4 bits
#define PLM_CODES_NIBBLES_1 5 // 4 bits, then a high bit
#define PLM_CODES_NIBBLES_2 6 // 4 bits, then 2 high bits
#define PLM_CODES_BYTES     8 // 8 bits

// VALUES: what a code stands for, before zero is taken from it.
#define PLM_VALUES_LINEAR 0 // itself
#define PLM_VALUES_IQ4    1 // one of 16 levels
#define PLM_VALUES_E2M1   2 // a float of 4 bits, doubled
// The levels plus zero, a byte each, four to a word from code 0 on.
#define PLM_LEVELS_IQ4  0x3f2d1801u, 0x766a5d4fu, 0xa6998d81u, 0xf1d9c5b5u
#define PLM_LEVELS_E2M1 0x0f0e0d0cu, 0x18141210u, 0x090a0b0cu, 0x00040608u

// SCALES, and the bytes of a record of 16 rows. M is a minimum, which is added.
#define PLM_SCALES_NONE            0
#define PLM_SCALES_D               1 // f16 d per block of 32
#define PLM_SCALES_D_M             2 // f16 d, m per block of 32
#define PLM_SCALES_D_M_SUB         3 // f16 d, dmin per 256; 8-bit factors of both per 32
#define PLM_SCALES_D_HALVES        4 // f16 d per 256; an int8 factor per 16
#define PLM_SCALES_D_M_HALVES      5 // f16 d, dmin per 256; 4-bit factors of both per 16
#define PLM_SCALES_E8M0            6 // u8 e per block of 32: d = 2^(e - 128)
#define PLM_SCALES_D_SUB           7 // f16 d per 256; an int8 factor per 32
#define PLM_SCALE_BYTES_NONE       0
#define PLM_SCALE_BYTES_D          32
#define PLM_SCALE_BYTES_D_M        64
#define PLM_SCALE_BYTES_D_M_SUB    320
#define PLM_SCALE_BYTES_D_HALVES   288
#define PLM_SCALE_BYTES_D_M_HALVES 320
#define PLM_SCALE_BYTES_D_SUB      160
#define PLM_SCALE_BYTES_E8M0       16
// Whether an element is d * q + m, so that m meets the activations' ds.
#define PLM_SCALES_HAVE_M(scales) ((scales) == PLM_SCALES_D_M || (scales) == PLM_SCALES_D_M_SUB)

// BACKENDS
#define PLM_BACKENDS_NONE      0
#define PLM_BACKENDS_CPU       1
#define PLM_BACKENDS_GPU       2 // CUDA and HIP
#define PLM_BACKENDS_VULKAN    4
#define PLM_BACKENDS_EVERY     7
#define PLM_BACKENDS_EVERY_FEW 7
#ifndef PLM_SHADER
// What stands in parentheses where any backend has kernels, by the word of BACKENDS.
#define PLM_WITH_KERNELS_NONE(...)
#define PLM_WITH_KERNELS_CPU(...)       __VA_ARGS__
#define PLM_WITH_KERNELS_EVERY_FEW(...) __VA_ARGS__
#define PLM_WITH_KERNELS_EVERY(...)     __VA_ARGS__
// What stands in parentheses where CUDA and HIP have kernels, by the word of BACKENDS and of CODES.
#define PLM_ON_GPU_NONE(...)
#define PLM_ON_GPU_CPU(...)
#define PLM_ON_GPU_EVERY_FEW(...) __VA_ARGS__
#define PLM_ON_GPU_EVERY(...)     __VA_ARGS__
// All variants of a type's products, or few: products are most of what the images take to
// compile, so types that files hold less often have those alone that decode and prompts need.
#define PLM_GPU_VARIANTS_EVERY_FEW(all, few) few
#define PLM_GPU_VARIANTS_EVERY(all, few)     all
#define PLM_QUANTISED_UNKNOWN(...)
#define PLM_QUANTISED_ELEMENTS(...)
#define PLM_QUANTISED_PAIRS(...)     __VA_ARGS__
#define PLM_QUANTISED_PAIRS_1(...)   __VA_ARGS__
#define PLM_QUANTISED_NIBBLES(...)   __VA_ARGS__
#define PLM_QUANTISED_NIBBLES_1(...) __VA_ARGS__
#define PLM_QUANTISED_NIBBLES_2(...) __VA_ARGS__
#define PLM_QUANTISED_BYTES(...)     __VA_ARGS__
#endif

#endif
