// SPDX-License-Identifier: Apache-2.0
// Weight panels of 16 rows (kernels/layout.md, backends/panel/layout.h), by weight type as a
// template argument. Records and quants may lie in global or in shared memory.
#ifndef PLM_KERNELS_PANEL_CUH
#define PLM_KERNELS_PANEL_CUH

#include "kernels/lib/vec.cuh"

#define PLM_PANEL_ROWS 16u

// A type as kernels/types.def describes it. block: inputs that share a scale record of scale_bytes
// for 16 rows. quant_bytes: quants of 16 rows and 32 inputs (floats: one input). zero: what is
// taken from the value of a code. offset: whether a block of 32 has a minimum that meets its sum;
// minima: whether it has two, of its halves; halves: whether it has two factors. factors_next:
// bytes from the first factors of a block to the second ones.
template <uint32_t TYPE> struct plm_layout;
#define PLM_LAYOUT(NAME, block_, bytes, CODES, VALUES, zero_, SCALES)                              \
    template <> struct plm_layout<PLM_TYPE_##NAME> {                                               \
        static constexpr uint32_t block = block_, scale_bytes = PLM_SCALE_BYTES_##SCALES;          \
        static constexpr uint32_t codes = PLM_CODES_##CODES, values = PLM_VALUES_##VALUES;         \
        static constexpr uint32_t scales = PLM_SCALES_##SCALES;                                    \
        static constexpr uint32_t quant_bytes =                                                    \
            codes == PLM_CODES_ELEMENTS ? PLM_PANEL_ROWS * bytes : codes * 64;                     \
        static constexpr int zero = zero_;                                                         \
        static constexpr bool offset = PLM_SCALES_HAVE_M(scales);                                  \
        static constexpr bool minima = scales == PLM_SCALES_D_M_HALVES;                            \
        static constexpr bool halves = scales == PLM_SCALES_D_HALVES || minima;                    \
        static constexpr uint32_t factors_next = scales == PLM_SCALES_D_M_SUB ? 128 : 16;          \
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

// The scales of one block of 32 of a lane. An element's value is (d * sc[k / 16]) * q + mw *
// mn[k / 16], q being the value of its code less the type's zero; sc and mn are 1 where the type
// has no such factors, mw 0 where it has no minimum. The products with sc and mn are exact.
struct plm_scales {
    float d, mw;
    int sc[2], mn[2];
};

// 2^(e - 128), as plm_e8m0_half of backends/panel/half.h.
PLM_FN float plm_e8m0_half(uint32_t e)
{
    const uint32_t power = e << 23;
    return plm_float(power > 0x00400000u ? power : 0x00400000u) * 0.5f;
}

// d of a block; at: the scale record, or a copy of its beginning.
template <uint32_t TYPE> PLM_FN float plm_scale_d(const uint8_t *at, uint32_t lane)
{
    if constexpr (plm_layout<TYPE>::scales == PLM_SCALES_E8M0)
        return plm_e8m0_half(at[lane]);
    else
        return plm_half(((const uint16_t *)at)[lane]);
}

// The scales from d, from m or dmin (types that have it) and from the block's factors of the lane:
// one byte each, `next` bytes apart.
template <uint32_t TYPE>
PLM_FN plm_scales plm_scales_of(float d, float m, const uint8_t *factors, uint32_t next)
{
    typedef plm_layout<TYPE> l;
    plm_scales ret = {d, 0.0f, {1, 1}, {1, 1}};
    if constexpr (l::offset)
        ret.mw = m;
    if constexpr (l::scales == PLM_SCALES_D_M_SUB) {
        ret.d = d * (float)factors[0];
        ret.mw = -(m * (float)factors[next]);
    }
    if constexpr (l::scales == PLM_SCALES_D_SUB)
        ret.d = d * (float)(int8_t)factors[0];
    if constexpr (l::scales == PLM_SCALES_D_HALVES) {
        ret.sc[0] = (int8_t)factors[0];
        ret.sc[1] = (int8_t)factors[next];
    }
    if constexpr (l::minima) {
        ret.mw = -m;
        for (uint32_t h = 0; h < 2; h++) {
            ret.sc[h] = factors[h * next] & 15;
            ret.mn[h] = factors[h * next] >> 4;
        }
    }
    return ret;
}

// Where in a record of 256 inputs the factors of block b of 32 of lane 0 begin.
template <uint32_t TYPE> PLM_FN uint32_t plm_factors_at(uint32_t b)
{
    constexpr uint32_t scales = plm_layout<TYPE>::scales;
    return scales == PLM_SCALES_D_M_SUB      ? 64 + b % 8 * 16
           : scales == PLM_SCALES_D_M_HALVES ? 64 + b % 8 * 32
           : scales == PLM_SCALES_D_SUB      ? 32 + b % 8 * 16
                                             : 32 + b % 8 * 32;
}

// Block b of 32 inputs of a row; record is the scale record that the block lies in.
template <uint32_t TYPE>
PLM_FN plm_scales plm_panel_scales(const uint8_t *record, uint32_t lane, uint32_t b)
{
    typedef plm_layout<TYPE> l;
    const bool has_m = l::offset || l::minima;
    return plm_scales_of<TYPE>(plm_scale_d<TYPE>(record, lane),
                               has_m ? plm_half(((const uint16_t *)record)[16 + lane]) : 0.0f,
                               record + plm_factors_at<TYPE>(b) + lane,
                               plm_layout<TYPE>::factors_next);
}

// What four codes stand for, a byte each.
template <uint32_t TYPE> PLM_FN uint32_t plm_values(uint32_t codes)
{
    constexpr uint32_t values = plm_layout<TYPE>::values;
    if constexpr (values == PLM_VALUES_LINEAR)
        return codes;
    constexpr uint32_t iq4[] = {PLM_LEVELS_IQ4}, e2m1[] = {PLM_LEVELS_E2M1};
    constexpr bool is_iq4 = values == PLM_VALUES_IQ4;
    const uint32_t select = codes & 0x07070707u;
    const uint32_t low = plm_permute(is_iq4 ? iq4[0] : e2m1[0], is_iq4 ? iq4[1] : e2m1[1], select);
    const uint32_t high = plm_permute(is_iq4 ? iq4[2] : e2m1[2], is_iq4 ? iq4[3] : e2m1[3], select);
    const uint32_t upper = (codes >> 3 & 0x01010101u) * 0xffu; // codes from 8 on
    return (low & ~upper) | (high & upper);
}

// The values of inputs 4g .. 4g+3 (g: 0 .. 7) in a block of 32, before the zero is taken from them,
// a byte each; line(i) is the row's word of line i of the block.
template <uint32_t TYPE, class LINE> PLM_FN uint32_t plm_line_values(const LINE &line, uint32_t g)
{
    constexpr uint32_t codes = plm_layout<TYPE>::codes;
    if constexpr (codes == PLM_CODES_BYTES)
        return line(g);
    if constexpr (codes == PLM_CODES_PAIRS)
        return line(g / 4) >> g % 4 * 2 & 0x03030303u;
    if constexpr (codes == PLM_CODES_PAIRS_1)
        return (line(g / 4) >> g % 4 * 2 & 0x03030303u) | (line(2) >> g & 0x01010101u) << 2;
    uint32_t q = line(g % 4) >> (g & 4u) & 0x0f0f0f0fu;
    if constexpr (codes == PLM_CODES_NIBBLES_1)
        q |= (line(4) >> g & 0x01010101u) << 4;
    if constexpr (codes == PLM_CODES_NIBBLES_2)
        q |= (line(4 + g / 4) >> g % 4 * 2 & 0x03030303u) << 4;
    return plm_values<TYPE>(q);
}

// The same of a lane; quants are those of the block, as they lie in memory.
template <uint32_t TYPE>
PLM_FN uint32_t plm_panel_codes(const uint8_t *quants, uint32_t lane, uint32_t g)
{
    const uint32_t *words = (const uint32_t *)quants + lane;
    return plm_line_values<TYPE>([&](uint32_t i) { return words[i * 16]; }, g);
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
        if constexpr (plm_layout<TYPE>::minima)
            x.v[c] += s.mw * (float)(g < 4 ? s.mn[0] : s.mn[1]);
    }
    return x;
}

#endif
