// SPDX-License-Identifier: Apache-2.0
// get_rows: workgroup w decodes piece w % pieces of row w / pieces, four inputs per invocation.
#version 460
#include "shaders/lib/group.glsl"
#include "shaders/lib/panel.glsl"

PLM_ARGS(plm_get_rows_args);

// Elements i .. i+3 of a lane; zeros beyond the row's end.
vec4 values(uint64_t panel, uint lane, uint i)
{
#if PLM_W_BLOCK == 1
    vec4 x = vec4(0.0);
    for (uint c = 0u; c < 4u && i + c < a.n_in; c++)
        x[c] = plm_panel_value(panel, lane, i + c);
    return x;
#else
    uint b = i / 32u, g = i / 4u % 8u;
    uint64_t quants = panel + plm_panel_quant_offset(a.n_in) + uint64_t(b) * PLM_W_QUANT_BYTES;
    return plm_panel_values(plm_panel_scales(panel, lane, b), plm_panel_codes(quants, lane, g), g);
#endif
}

void main()
{
    uint r = plm_group_index() / plm_pieces(a.n_in);
    uint i = plm_group_index() % plm_pieces(a.n_in) * PLM_PIECE + gl_LocalInvocationIndex * 4u;
    if (r >= a.rows || i >= a.n_in)
        return;
    uint token = uint(plm_i32_at(a.tokens + uint64_t(r) * 4ul).v);
    uint64_t panel = a.weight + token / PLM_PANEL_ROWS * plm_panel_bytes(a.n_in);
    precise vec4 x = values(panel, token % PLM_PANEL_ROWS, i) * a.scale;
    uint64_t row_bytes = uint64_t(a.n_in) * 4ul;
    plm_store4(a.dst + r * row_bytes, i, a.n_in, plm_aligned(a.dst | row_bytes), x);
}
