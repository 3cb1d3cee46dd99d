// SPDX-License-Identifier: Apache-2.0
// Weight panels of 16 rows (kernels/layout.md, backends/panel/layout.h), by weight type as a
// template argument. Records and quants may lie in global or in shared memory.
#ifndef PLM_KERNELS_PANEL_CUH
#define PLM_KERNELS_PANEL_CUH

#include "kernels/lib/vec.cuh"

#define PLM_PANEL_ROWS 16u

// A type as kernels/types.def describes it. block: inputs that share a scale record of scale_bytes
// for 16 rows. quant_bytes: quants of 16 rows and 32 inputs (floats: one input). zero: what is
// taken from the value of a code. offset: whether there is a minimum; halves: whether a block of 32
// has two factors.
template <uint32_t TYPE> struct plm_layout;
#define PLM_LAYOUT(NAME, block_, bytes, CODES, VALUES, zero_, SCALES)                              \
    template <> struct plm_layout<PLM_TYPE_##NAME> {                                               \
        static constexpr uint32_t block = block_, scale_bytes = PLM_SCALE_BYTES_##SCALES;          \
        static constexpr uint32_t codes = PLM_CODES_##CODES, scales = PLM_SCALES_##SCALES;         \
        static constexpr uint32_t quant_bytes =                                                    \
            codes == PLM_CODES_ELEMENTS ? PLM_PANEL_ROWS * bytes : codes * 64;                     \
        static constexpr int zero = zero_;                                                         \
        static constexpr bool offset = PLM_SCALES_HAVE_M(scales);                                  \
        static constexpr bool halves = scales == PLM_SCALES_D_HALVES;                              \
    };
#define PLM_TENSOR_TYPE(NAME, name, id, block, bytes, CODES, VALUES, zero, SCALES, BACKENDS)       \
    PLM_ON_GPU_##BACKENDS(PLM_LAYOUT(NAME, block, bytes, CODES, VALUES, zero, SCALES))
#include "kernels/types.def"
#undef PLM_LAYOUT

// Offset of the quant area in a panel, and the panel's bytes.
template <uint32_t TYPE> PLM_FN uint64_t plm_panel_quant_offset(uint32_t n_in)
{
    typedef plm_layout<TYPE> l;
    return ((uint64_t)(n_in / l::block) * l::scale_bytes + 63u) & ~(uint64_t)63;
}

template <uint32_t TYPE> PLM_FN uint64_t plm_panel_bytes(uint32_t n_in)
{
    typedef plm_layout<TYPE> l;
    const uint32_t steps = l::block == 1 ? n_in : n_in / 32;
    return plm_panel_quant_offset<TYPE>(n_in) +
           (((uint64_t)steps * l::quant_bytes + 63u) & ~(uint64_t)63);
}

// Element of a float type; line is the 16 lanes of one input.
template <uint32_t TYPE> PLM_FN float plm_panel_float(const uint8_t *line, uint32_t lane)
{
    if constexpr (TYPE == PLM_TYPE_F32)
        return ((const float *)line)[lane];
    else if constexpr (TYPE == PLM_TYPE_F16)
        return plm_half(((const uint16_t *)line)[lane]);
    else
        return plm_bf16(((const uint16_t *)line)[lane]);
}

// The scales of one block of 32 of a lane. An element's value is (d * sc[k / 16]) * q + mw, q being
// its code less the type's zero; sc is 1 where the type has no such scale, mw 0 where it has no
// offset. The products in d and mw are exact.
struct plm_scales {
    float d, mw;
    int sc[2];
};

// Block b of 32 inputs of a row; record is the scale record that the block lies in.
template <uint32_t TYPE>
PLM_FN plm_scales plm_panel_scales(const uint8_t *record, uint32_t lane, uint32_t b)
{
    const uint16_t *halves = (const uint16_t *)record;
    const uint32_t sub = b % 8;
    plm_scales ret = {plm_half(halves[lane]), 0.0f, {1, 1}};
    if constexpr (plm_layout<TYPE>::offset)
        ret.mw = plm_half(halves[16 + lane]);
    if constexpr (plm_layout<TYPE>::scales == PLM_SCALES_D_M_SUB) {
        ret.d *= (float)record[64 + sub * 16 + lane];
        ret.mw = -(ret.mw * (float)record[192 + sub * 16 + lane]);
    }
    if constexpr (plm_layout<TYPE>::halves) {
        ret.sc[0] = (int8_t)record[32 + sub * 32 + lane];
        ret.sc[1] = (int8_t)record[48 + sub * 32 + lane];
    }
    return ret;
}

// The unsigned codes of inputs 4g .. 4g+3 (g: 0 .. 7) of a lane in a block of 32, a byte each;
// quants are those of the block.
template <uint32_t TYPE>
PLM_FN uint32_t plm_panel_codes(const uint8_t *quants, uint32_t lane, uint32_t g)
{
    const uint32_t *words = (const uint32_t *)quants;
    if constexpr (plm_layout<TYPE>::codes == PLM_CODES_BYTES) {
        return words[g * 16 + lane];
    } else {
        uint32_t codes = words[g % 4 * 16 + lane] >> (g & 4u) & 0x0f0f0f0fu;
        if constexpr (plm_layout<TYPE>::codes == PLM_CODES_NIBBLES_2)
            codes |= (words[64 + g / 4 * 16 + lane] >> g % 4 * 2 & 0x03030303u) << 4;
        return codes;
    }
}

// The values of inputs 4g .. 4g+3, rounded as kernels/layout.md says.
template <uint32_t TYPE>
PLM_FN plm_vec4 plm_panel_values(const plm_scales &s, uint32_t codes, uint32_t g)
{
    const float d = s.d * (float)(g < 4 ? s.sc[0] : s.sc[1]); // exact
    plm_vec4 x;
    for (int c = 0; c < 4; c++) {
        x.v[c] = d * (float)((int)(codes >> 8 * c & 0xffu) - plm_layout<TYPE>::zero);
        if constexpr (plm_layout<TYPE>::offset)
            x.v[c] += s.mw;
    }
    return x;
}

#endif
