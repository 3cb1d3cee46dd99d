// SPDX-License-Identifier: Apache-2.0
// Common to copy, fill and verify: how words of 32 bits are spread over workgroups.
#ifndef PLM_SHADERS_WORDS_GLSL
#define PLM_SHADERS_WORDS_GLSL

#include "shaders/lib/group.glsl"

#define PLM_GROUP_WORDS 16384 // 64 KiB: 16 loads of 16 bytes per invocation

// First word of this workgroup; there are 64 bits of them.
uint64_t plm_first_word()
{
    return uint64_t(plm_group_index()) * PLM_GROUP_WORDS;
}

// What fill writes to an address: differs between neighbouring words, between places 2^32 words
// apart and between seeds.
uint plm_fill_word(uint64_t address, uint seed)
{
    return (uint(address >> 2) ^ uint(address >> 34)) * 0x9e3779b1u ^ seed;
}

#endif
