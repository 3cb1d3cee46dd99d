// SPDX-License-Identifier: Apache-2.0
// qkv: workgroup w takes rows w % parts * PLM_ROWS .. and one unit of a head of q, k or v. A unit of
// UNIT elements is half of them from one place on and half from the place half a head further, so
// that it holds both elements of every pair that rope turns, in either mode. That wants whole panels
// in half a unit, whole units in a head, all of the head rotated where pairs lie half a head apart,
// and no norms; half a unit of 64 is also what has one scale in a cache in Q8_0. A unit of 0 is a
// head of any shape, for 4 rows at most.
#version 460
#include "shaders/lib/lanes.glsl"
#include "shaders/lib/head.glsl"
#include "shaders/lib/kv.glsl"
#include "shaders/lib/rope.glsl"

PLM_ARGS(plm_qkv_args);

layout(constant_id = 3) const uint UNIT = 2u * PLM_PANEL_ROWS;

#define HEAD_MAX 256u // elements of a head (kernels/abi.h)

const bool WHOLE = UNIT == 0u;
const uint HALF = WHOLE ? HEAD_MAX : UNIT / 2u; // of a unit; of heads that are whole none is asked
const uint STAGED = WHOLE ? HEAD_MAX : UNIT;
shared float staged[PLM_ROWS][STAGED]; // elements of a unit

#define Q 0u
#define K 1u
#define V 2u

// What this workgroup computes.
uint first_row;
uint product; // Q, K or V
uint head;
uint unit; // of the head
uint first_panel, panel_step;

uint head_dim()
{
    return PLM_LOW(a.head_dim);
}

uint kv_type()
{
    return PLM_KIND(a.kinds, 3);
}

// Whether the unit goes to a cache in Q8_0.
bool stores_q8()
{
    return UNIT != 2u * PLM_PANEL_ROWS && product != Q && kv_type() == PLM_TYPE_Q8_0;
}

uint64_t weight()
{
    return product == Q ? a.weight_q : product == K ? a.weight_k : a.weight_v;
}

// False: beyond the work.
bool locate()
{
    uint parts = (a.rows + (PLM_ROWS - 1u)) / PLM_ROWS;
    uint units = WHOLE ? 1u : head_dim() / (2u * HALF);
    uint w = plm_group_index() / parts;
    first_row = plm_group_index() % parts * PLM_ROWS;
    unit = w % units;
    head = w / units;
    uint n_q = a.weight_q != 0ul ? PLM_LOW(a.heads) : 0u;
    uint n_k = a.weight_k != 0ul ? PLM_HIGH(a.heads) : 0u;
    uint n_v = a.weight_v != 0ul ? PLM_HIGH(a.heads) : 0u;
    product = head < n_q ? Q : head < n_q + n_k ? K : V;
    if (head >= n_q + n_k + n_v)
        return false;
    head -= product == Q ? 0u : product == K ? n_q : n_q + n_k;
    return true;
}

// Of the unit.
uint elements()
{
    return WHOLE ? head_dim() : UNIT;
}

// Where dimension d of the head is staged, d lying in this unit; and what is staged there.
uint place(uint d)
{
    return WHOLE ? d : d % HALF + (d < head_dim() / 2u ? 0u : HALF);
}

uint staged_at(uint i)
{
    return WHOLE ? i : unit * HALF + i % HALF + i / HALF * (head_dim() / 2u);
}

void plm_emit(uint pair, uint o, float sum)
{
    uint element = (first_panel + pair / PLM_ROWS * panel_step) * PLM_PANEL_ROWS + o;
    uint d = element - head * head_dim(); // wraps below the head
    if (d >= head_dim())
        return;
    uint64_t bias = product == Q ? a.bias_q : product == K ? a.bias_k : a.bias_v;
    precise float y = sum;
    if (bias != 0ul)
        y = y + plm_f32_at(bias + uint64_t(element) * 4ul).v;
    staged[pair % PLM_ROWS][place(d)] = y;
}

// The products of PLM_PANELS panels, panel_step apart, as far as there are such.
void products(uint first, uint last)
{
    uint64_t panel[PLM_PANELS];
    first_panel = first;
    [[unroll]] for (uint p = 0u; p < PLM_PANELS; p++)
        panel[p] = weight() + min(first + p * panel_step, last) * plm_panel_bytes(a.n_in);
    plm_products(panel, a.x, first_row, a.rows, a.n_in);
}

// Where the row's token goes: its part of k or v, and its place there.
uint64_t part_of(uint row)
{
    uint64_t layer = plm_u64_at(a.slots + uint64_t(row) * 8ul).v + a.layer_offset;
    return plm_kv_part(layer, product == K, head, PLM_HIGH(a.heads), head_dim(), kv_type());
}

uint token_place(uint row)
{
    return uint(plm_i32_at(a.pos + uint64_t(row) * 4ul).v) % PLM_KV_BLOCK_TOKENS;
}

// The address of the weights of the head's norm; 0: there is none.
uint64_t norm()
{
    return WHOLE && product != V ? plm_head_norm(a.norms, product == K) : 0ul;
}

// The factors of the head's norm of each row, 32 invocations a row.
void sum_squares()
{
    uint r = gl_LocalInvocationIndex / PLM_HEAD_LANES;
    float squares = 0.0;
    if (r < PLM_ROWS)
        for (uint d = gl_LocalInvocationIndex % PLM_HEAD_LANES; d < head_dim(); d += PLM_HEAD_LANES)
            squares = plm_fma(staged[r][d], staged[r][d], squares);
    plm_head_sum(squares, head_dim(), plm_head_norms_at(a.norms).v.eps);
}

// Pair i of the unit's in row first_row + r: stored, or staged again to be stored in Q8_0.
void finish(uint r, uint i)
{
    uint row = first_row + r, dims = PLM_HIGH(a.head_dim), mode = PLM_KIND(a.kinds, 2);
    uint pair = i; // of the head
    if (!WHOLE)
        pair = mode == PLM_ROPE_NEOX ? staged_at(i) : staged_at(i * 2u) / 2u;
    uvec2 d = plm_rope_pair(pair, dims, mode);
    vec2 x = vec2(staged[r][place(d.x)], staged[r][place(d.y)]);
    uint64_t weight = norm();
    if (weight != 0ul)
        x = vec2(plm_head_normed(x.x, r, weight, d.x), plm_head_normed(x.y, r, weight, d.y));
    if (product != V && pair < dims / 2u)
        x = plm_rope_rotate(x, a.table + uint64_t(row) * dims * 4ul, pair);
    uint64_t part = product == Q || stores_q8() ? 0ul : part_of(row);
    uint t = part == 0ul ? 0u : token_place(row);
    for (uint c = 0u; c < 2u; c++)
        if (product == Q)
            plm_f32_at(a.q + (uint64_t(row) * a.ld_q + head * head_dim() + d[c]) * 4ul).v = x[c];
        else if (stores_q8())
            staged[r][place(d[c])] = x[c];
        else
            plm_kv_store(part, plm_kv_element(product == K, d[c], t, head_dim()), kv_type(), x[c]);
}

// Stores the unit of all rows in Q8_0.
void store_q8()
{
    uint lanes = elements() / 4u; // of a row
    barrier();
    for (uint begin = 0u; begin < PLM_ROWS * lanes; begin += PLM_GROUP) {
        uint i = begin + gl_LocalInvocationIndex, r = i / lanes, at = i % lanes * 4u;
        uint row = first_row + r;
        bool live = i < PLM_ROWS * lanes && row < a.rows;
        uint64_t part = live ? part_of(row) : 0ul;
        uint t = live ? token_place(row) : 0u;
        vec4 x = vec4(0.0);
        for (uint c = 0u; live && c < 4u; c++)
            x[c] = staged[r][at + c];
        plm_kv_store_q8(live, part, product == K, staged_at(at), t, head_dim(), x);
    }
}

void main()
{
    if (!locate())
        return;
    uint begin = head * head_dim() / PLM_PANEL_ROWS;
    uint last = (head * head_dim() + (head_dim() - 1u)) / PLM_PANEL_ROWS;
    if (WHOLE) {
        panel_step = 1u;
        for (uint p = begin; p <= last; p += PLM_PANELS) {
            products(p, last);
            barrier();
        }
    } else {
        panel_step = head_dim() / (2u * PLM_PANEL_ROWS);
        for (uint p = 0u; p < HALF / PLM_PANEL_ROWS; p++) {
            products(begin + unit * (HALF / PLM_PANEL_ROWS) + p, last);
            barrier();
        }
    }
    if (norm() != 0ul)
        sum_squares();
    uint pairs = elements() / 2u;
    for (uint i = gl_LocalInvocationIndex; i < PLM_ROWS * pairs; i += PLM_GROUP)
        if (first_row + i / pairs < a.rows)
            finish(i / pairs, i % pairs);
    if (stores_q8())
        store_q8();
}
