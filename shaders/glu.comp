// SPDX-License-Identifier: Apache-2.0
// glu: workgroup w takes rows w % parts * PLM_ROWS .. and 32 outputs: two panels of gate and two of
// up, which is one block of 8-bit activations. PLM_PANELS is 4: all at once, or 2: gate and up of
// one half after the other.
#version 460
#include "shaders/lib/lanes.glsl"
#include "shaders/lib/q8.glsl"

PLM_ARGS(plm_glu_args);

#define OUTPUTS 32u

const uint HALVES = PLM_PANELS / 2u; // at once

shared float sums[2][PLM_ROWS][OUTPUTS]; // of gate and up
uint half_now;                           // first of those at once

uint parts()
{
    return (a.rows + (PLM_ROWS - 1u)) / PLM_ROWS;
}

uint first_row()
{
    return plm_group_index() % parts() * PLM_ROWS;
}

uint first_out()
{
    return plm_group_index() / parts() * OUTPUTS;
}

void plm_emit(uint pair, uint o, float sum)
{
    uint p = pair / PLM_ROWS, i = (half_now + p % HALVES) * PLM_PANEL_ROWS + o;
    bool up = p >= HALVES;
    uint64_t bias = up ? a.bias_up : a.bias_gate;
    precise float y = sum;
    if (bias != 0ul && first_out() + i < a.n_out)
        y = y + plm_f32_at(bias + uint64_t(first_out() + i) * 4ul).v;
    sums[up ? 1 : 0][pair % PLM_ROWS][i] = y;
}

void products()
{
    const uint n_panels = (a.n_out + (PLM_PANEL_ROWS - 1u)) / PLM_PANEL_ROWS;
    [[unroll]] for (half_now = 0u; half_now < 2u; half_now += HALVES) {
        uint64_t panel[PLM_PANELS];
        [[unroll]] for (uint p = 0u; p < PLM_PANELS; p++) {
            uint at = min(first_out() / PLM_PANEL_ROWS + half_now + p % HALVES, n_panels - 1u);
            panel[p] = (p < HALVES ? a.weight_gate : a.weight_up) + at * plm_panel_bytes(a.n_in);
        }
        plm_products(panel, a.x, first_row(), a.rows, a.n_in);
        barrier();
    }
}

void main()
{
    if (first_out() >= a.n_out)
        return;
    products();
    // Eight invocations have the 32 outputs of a row.
    uint t = gl_LocalInvocationIndex, r = min(t / 8u, PLM_ROWS - 1u), i = t % 8u * 4u;
    uint row = first_row() + r, out_row = first_out() + i;
    bool live = t < PLM_ROWS * 8u && row < a.rows && out_row < a.n_out;
    vec4 y;
    [[unroll]] for (uint c = 0u; c < 4u; c++)
        y[c] = plm_gate_mul(sums[0][r][i + c], sums[1][r][i + c], a.gate_fn);
    if (live && a.dst_f32 != 0ul) {
        uint64_t row_bytes = uint64_t(a.n_out) * 4ul;
        plm_store4(a.dst_f32 + row * row_bytes, out_row, a.n_out,
                   plm_aligned(a.dst_f32 | row_bytes), y);
    }
    if (a.dst_q8 != 0ul)
        plm_q8_store(live, plm_q8_record(a.dst_q8, row, a.n_out, out_row), y);
}
