// SPDX-License-Identifier: Apache-2.0
// attention and attention_split: causal attention over paged K and V. A workgroup answers for a tile
// of ROWS rows and HEADS query heads of one KV head, whose K and V they share: its queries. Splits of
// PLM_ATTN_SPLIT_TOKENS are each begun from scratch; attention merges them as attention_merge does,
// attention_split (PLM_SPLIT defined) leaves them in memory, a workgroup each.
//
// Grid: x = ceil(rows / ROWS), y = kv_heads * ceil(heads / kv_heads / HEADS), z = 1 or splits.
// A result depends on its query, its position and the cached rows alone: scores are sums in ascending
// dimension; tokens t, t + 16, ... of a split are one of 16 lanes of its sum, added in pairs; outputs
// are sums over tokens p, p + parts, ... in ascending order, the parts then added in ascending order,
// parts being what head_dim leaves of the workgroup.
#version 460
#include "shaders/lib/base.glsl"
#include "shaders/lib/splits.glsl"
#extension GL_EXT_control_flow_attributes : require

#define GROUP    128
#define TOKENS   PLM_ATTN_SPLIT_TOKENS // two per invocation
#define BLOCKS   (TOKENS / PLM_KV_BLOCK_TOKENS)
#define DIM_MAX  256
#define LOWEST   uintBitsToFloat(0xff800000u) // -infinity

layout(local_size_x = GROUP) in;
layout(constant_id = 0) const uint HEADS = 1;
layout(constant_id = 1) const uint ROWS = 1;
const uint QUERIES = HEADS * ROWS; // query i is head i % HEADS of row i / HEADS

#ifdef PLM_SPLIT
PLM_ARGS(plm_attention_split_args);
#else
PLM_ARGS(plm_attention_args);
#endif

// Two neighbouring elements of a head's part of a block; in Q8_0 their codes, which are to be scaled.
#if defined(PLM_KV_F32)
#define KV_TYPE PLM_TYPE_F32
#define ELEM    4
vec2 load_pair(uint64_t address)
{
    return plm_vec2_at(address).v;
}
#elif defined(PLM_KV_Q8_0)
#define KV_TYPE PLM_TYPE_Q8_0
#define ELEM    1
vec2 load_pair(uint64_t address)
{
    int codes = int(plm_u16_at(address).v);
    return vec2(bitfieldExtract(codes, 0, 8), bitfieldExtract(codes, 8, 8));
}

// Scale i of the part that begins there.
float load_scale(uint64_t part, uint i)
{
    return plm_f16_to_f32(plm_u16_at(part + PLM_KV_HEAD_ELEMENTS(a.head_dim) + i * 2u).v);
}
#else
#define KV_TYPE PLM_TYPE_F16
#define ELEM    2
vec2 load_pair(uint64_t address)
{
    return unpackHalf2x16(plm_u32_at(address).v);
}
#endif

shared vec4 query[QUERIES * (DIM_MAX / 4)];
shared float weight[QUERIES * TOKENS]; // scores, then exp(score - top); then parts of the outputs
shared float lanes[QUERIES * 16];
shared float tops[QUERIES];
shared float sums[QUERIES];
shared uint64_t blocks[BLOCKS]; // of this KV head in the split: where its K begins

// The tile.
uint row0, rows, head0, heads, kv_head;
// Rows of a run belong to one sequence; each query sees the tokens [first, seen), none outside the
// run, and all together [earliest, longest).
uint first[QUERIES];
uint seen[QUERIES];
uint earliest, longest;

void load_queries()
{
    const uint quads = a.head_dim / 4;
    for (uint i = gl_LocalInvocationIndex; i < QUERIES * quads; i += GROUP) {
        uint q = i / quads, row = q / HEADS, head = q % HEADS;
        vec4 v = vec4(0);
        if (row < rows && head < heads) {
            uint64_t at = a.q + (uint64_t(row0 + row) * a.ld_q + (head0 + head) * a.head_dim +
                                 i % quads * 4u) * 4ul;
            [[unroll]] for (uint e = 0; e < 4; e++)
                v[e] = plm_f32_at(at + e * 4u).v;
        }
        query[q * (DIM_MAX / 4) + i % quads] = v;
    }
}

bool sees(uint q, uint token)
{
    return token >= first[q] && token < seen[q];
}

// Scores of two neighbouring tokens of this invocation, for all queries; the split begins at
// token `begin`.
void score(uint begin)
{
    const uint j = gl_LocalInvocationIndex * 2;
    precise vec2 dot[QUERIES];
    [[unroll]] for (uint q = 0; q < QUERIES; q++)
        dot[q] = vec2(0);
    if (begin + j + 1 >= earliest && begin + j < longest) { // so their block is there
        const uint64_t part = blocks[j / PLM_KV_BLOCK_TOKENS];
        uint64_t at = part + (j % PLM_KV_BLOCK_TOKENS) * ELEM;
#if defined(PLM_KV_Q8_0)
        vec2 scales;
#endif
        for (uint d = 0; d < a.head_dim; d += 4, at += 4 * PLM_KV_BLOCK_TOKENS * ELEM) {
            vec2 k[4];
            [[unroll]] for (uint i = 0; i < 4; i++)
                k[i] = load_pair(at + i * (PLM_KV_BLOCK_TOKENS * ELEM));
#if defined(PLM_KV_Q8_0)
            if (d % PLM_KV_Q8_BLOCK == 0) {
                uint s = d / PLM_KV_Q8_BLOCK * PLM_KV_BLOCK_TOKENS + j % PLM_KV_BLOCK_TOKENS;
                scales = vec2(load_scale(part, s), load_scale(part, s + 1));
            }
            [[unroll]] for (uint i = 0; i < 4; i++)
                k[i] *= scales; // exact
#endif
            [[unroll]] for (uint q = 0; q < QUERIES; q++) {
                vec4 x = query[q * (DIM_MAX / 4) + d / 4];
                [[unroll]] for (uint i = 0; i < 4; i++)
                    dot[q] = plm_fma(vec2(x[i]), k[i], dot[q]);
            }
        }
    }
    [[unroll]] for (uint q = 0; q < QUERIES; q++) {
        weight[q * TOKENS + j] = sees(q, begin + j) ? dot[q].x * a.scale : LOWEST;
        weight[q * TOKENS + j + 1] = sees(q, begin + j + 1) ? dot[q].y * a.scale : LOWEST;
    }
}

// Largest score of each query, weights of its tokens, and their sum.
void weigh()
{
    for (uint i = gl_LocalInvocationIndex; i < QUERIES * 16; i += GROUP) {
        float top = LOWEST;
        for (uint j = i % 16; j < TOKENS; j += 16) {
            float s = weight[i / 16 * TOKENS + j];
            top = s > top ? s : top;
        }
        lanes[i] = top;
    }
    barrier();
    for (uint q = gl_LocalInvocationIndex; q < QUERIES; q += GROUP) {
        float top = LOWEST;
        for (uint l = 0; l < 16; l++)
            top = lanes[q * 16 + l] > top ? lanes[q * 16 + l] : top;
        tops[q] = top;
    }
    barrier();
    for (uint i = gl_LocalInvocationIndex; i < QUERIES * 16; i += GROUP) {
        precise float sum = 0;
        for (uint j = i % 16; j < TOKENS; j += 16) {
            float s = weight[i / 16 * TOKENS + j];
            float w = s == LOWEST ? 0 : plm_exp(s - tops[i / 16]);
            weight[i / 16 * TOKENS + j] = w;
            sum += w;
        }
        lanes[i] = sum;
    }
    barrier();
    for (uint q = gl_LocalInvocationIndex; q < QUERIES; q += GROUP) {
        precise float pair[8];
        [[unroll]] for (uint l = 0; l < 8; l++)
            pair[l] = lanes[q * 16 + l] + lanes[q * 16 + l + 8];
        [[unroll]] for (uint l = 0; l < 4; l++)
            pair[l] = pair[l] + pair[l + 4];
        sums[q] = (pair[0] + pair[2]) + (pair[1] + pair[3]);
    }
    barrier();
}

// Weighted sums of V over the split's tokens: invocation p * pairs + d has two outputs of part p.
// In the end part 0 has them all.
void gather(uint begin, out vec2 ret[QUERIES])
{
    const uint pairs = a.head_dim / 2, parts = GROUP / pairs;
    const uint part = gl_LocalInvocationIndex / pairs, pair = gl_LocalInvocationIndex % pairs;
    const uint64_t to_v = a.kv_heads * PLM_KV_HEAD_BYTES(KV_TYPE, a.head_dim); // from a head's K
    precise vec2 sum[QUERIES];
    [[unroll]] for (uint q = 0; q < QUERIES; q++)
        sum[q] = vec2(0);
    const uint end = min(TOKENS, longest - begin), lowest = earliest > begin ? earliest - begin : 0;
    uint j = part + lowest / parts * parts; // or the one after it
    for (j += j < lowest ? parts : 0; part < parts && j < end; j += parts) {
        const uint64_t v_part = blocks[j / PLM_KV_BLOCK_TOKENS] + to_v;
        const uint element = j % PLM_KV_BLOCK_TOKENS * a.head_dim + 2 * pair;
        vec2 v = load_pair(v_part + element * ELEM);
#if defined(PLM_KV_Q8_0)
        v *= load_scale(v_part, element / PLM_KV_Q8_BLOCK); // exact
#endif
        [[unroll]] for (uint q = 0; q < QUERIES; q++) // what a query does not see may be anything
            if (sees(q, begin + j))
                sum[q] = plm_fma(vec2(weight[q * TOKENS + j]), v, sum[q]);
    }
    barrier(); // all have read the weights
    if (part > 0 && part < parts)
        [[unroll]] for (uint q = 0; q < QUERIES; q++) {
            weight[(gl_LocalInvocationIndex * QUERIES + q) * 2] = sum[q].x;
            weight[(gl_LocalInvocationIndex * QUERIES + q) * 2 + 1] = sum[q].y;
        }
    barrier();
    for (uint p = 1; part == 0 && p < parts; p++)
        [[unroll]] for (uint q = 0; q < QUERIES; q++) {
            uint at = ((p * pairs + pair) * QUERIES + q) * 2;
            sum[q] += vec2(weight[at], weight[at + 1]);
        }
    [[unroll]] for (uint q = 0; q < QUERIES; q++)
        ret[q] = sum[q];
    barrier(); // before the next split's scores
}

// One split of the run's sequence: tops, sums and part 0's outputs.
void attend(uint64_t table, uint split, out vec2 ret[QUERIES])
{
    const uint begin = split * TOKENS;
    const uint block = gl_LocalInvocationIndex, at = begin + block * PLM_KV_BLOCK_TOKENS;
    if (block < BLOCKS && at + PLM_KV_BLOCK_TOKENS > earliest && at < longest)
        blocks[block] = plm_u64_at(table + uint64_t(split * BLOCKS + block) * 8ul).v +
                        a.layer_offset + kv_head * PLM_KV_HEAD_BYTES(KV_TYPE, a.head_dim);
    barrier();
    score(begin);
    barrier();
    weigh();
    gather(begin, ret);
}

// Whether this invocation holds outputs, and which: elements pair and pair + 1 of a head.
bool holds_outputs()
{
    return gl_LocalInvocationIndex < a.head_dim / 2;
}

#ifdef PLM_SPLIT
void run(uint64_t table)
{
    const uint slot = gl_WorkGroupID.z, split = earliest / TOKENS + slot;
    if (split * TOKENS >= longest)
        return;
    vec2 o[QUERIES];
    attend(table, split, o);
    [[unroll]] for (uint q = 0; q < QUERIES; q++) {
        if (split * TOKENS >= seen[q] || q % HEADS >= heads)
            continue;
        uint64_t record = a.partial + ((uint64_t(row0 + q / HEADS) * a.heads + head0 + q % HEADS) *
                                       a.splits + slot) * (a.head_dim + 2u) * 4ul;
        if (gl_LocalInvocationIndex == 0)
            plm_vec2_at(record).v = vec2(tops[q], sums[q]);
        if (holds_outputs())
            plm_vec2_at(record + 8ul + gl_LocalInvocationIndex * 8ul).v = o[q];
    }
}
#else
void run(uint64_t table)
{
    float top[QUERIES], sum[QUERIES];
    vec2 merged[QUERIES];
    for (uint split = earliest / TOKENS; split * TOKENS < longest; split++) {
        vec2 o[QUERIES];
        attend(table, split, o);
        [[unroll]] for (uint q = 0; q < QUERIES; q++) {
            if (split == first[q] / TOKENS) {
                top[q] = tops[q];
                sum[q] = sums[q];
                merged[q] = o[q];
            } else if (sees(q, split * TOKENS)) {
                vec2 factor = plm_merge_split(top[q], sum[q], tops[q], sums[q]);
                merged[q] = vec2(plm_merge_output(merged[q].x, o[q].x, factor),
                                 plm_merge_output(merged[q].y, o[q].y, factor));
            }
        }
    }
    [[unroll]] for (uint q = 0; q < QUERIES; q++) {
        if (seen[q] == 0 || q % HEADS >= heads || !holds_outputs())
            continue;
        uint64_t at = uint64_t(row0 + q / HEADS) * a.heads + head0 + q % HEADS;
        plm_vec2_at(a.dst + (at * a.head_dim + gl_LocalInvocationIndex * 2u) * 4ul).v =
            merged[q] / sum[q];
    }
}
#endif

// Whether row r of the tile is of the run of the row before it: of its sequence, and with a window
// at the next position, so that what a run sees has no gaps; where splits have workgroups of their
// own, also with the same first one.
bool joins(uint r)
{
    uint64_t at = (row0 + r) * 4ul;
    uint pos = plm_u32_at(a.pos + at).v;
    if (plm_u32_at(a.seq + at - 4ul).v != plm_u32_at(a.seq + at).v)
        return false;
    if (a.window == 0)
        return true;
#ifdef PLM_SPLIT
    if (PLM_ATTN_FIRST(pos - 1, a.window) / TOKENS != PLM_ATTN_FIRST(pos, a.window) / TOKENS)
        return false;
#endif
    return plm_u32_at(a.pos + at - 4ul).v + 1 == pos;
}

void main()
{
    const uint group = a.heads / a.kv_heads, chunks = (group + HEADS - 1) / HEADS;
    row0 = gl_WorkGroupID.x * ROWS;
    rows = min(ROWS, a.rows - row0);
    kv_head = gl_WorkGroupID.y / chunks;
    head0 = kv_head * group + gl_WorkGroupID.y % chunks * HEADS;
    heads = min(HEADS, (kv_head + 1) * group - head0);
    load_queries();
    // The rows of a run share what they read; a tile with several takes them in turn.
    for (uint begin = 0, end; begin < rows; begin = end) {
        uint seq = plm_u32_at(a.seq + (row0 + begin) * 4ul).v;
        for (end = begin + 1; end < rows && joins(end);)
            end++;
        earliest = 0xffffffffu;
        longest = 0;
        [[unroll]] for (uint q = 0; q < QUERIES; q++) {
            uint row = q / HEADS;
            bool within = row >= begin && row < end;
            uint pos = within ? plm_u32_at(a.pos + (row0 + row) * 4ul).v : 0;
            first[q] = within ? PLM_ATTN_FIRST(pos, a.window) : 0;
            seen[q] = within ? pos + 1 : 0;
            if (within)
                earliest = min(earliest, first[q]);
            longest = max(longest, seen[q]);
        }
        run(a.tables + uint64_t(seq) * a.table_stride * 8ul);
    }
}
