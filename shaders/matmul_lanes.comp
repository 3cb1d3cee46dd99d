// SPDX-License-Identifier: Apache-2.0
// matmul for few rows. Workgroup w takes rows w % parts * PLM_ROWS .. of PLM_PANELS panels, parts
// being the number of such groups of rows: neighbours read the same weights.
#version 460
#include "shaders/lib/lanes.glsl"
#include "shaders/lib/matmul.glsl"

uint first_row()
{
    return plm_group_index() % ((a.rows + (PLM_ROWS - 1u)) / PLM_ROWS) * PLM_ROWS;
}

uint first_panel()
{
    return plm_group_index() / ((a.rows + (PLM_ROWS - 1u)) / PLM_ROWS) * PLM_PANELS;
}

void plm_emit(uint pair, uint o, float sum)
{
    plm_matmul_store(first_row() + pair % PLM_ROWS,
                     (first_panel() + pair / PLM_ROWS) * PLM_PANEL_ROWS + o, sum);
}

void main()
{
    uint n_panels = (a.n_out + (PLM_PANEL_ROWS - 1u)) / PLM_PANEL_ROWS;
    if (first_panel() >= n_panels)
        return;
    uint64_t panel[PLM_PANELS];
    [[unroll]] for (uint p = 0u; p < PLM_PANELS; p++)
        panel[p] = a.weight + min(first_panel() + p, n_panels - 1u) * plm_panel_bytes(a.n_in);
    plm_products(panel, a.x, first_row(), a.rows, a.n_in);
}
