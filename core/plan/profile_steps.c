// SPDX-License-Identifier: Apache-2.0
// The shapes of the stress: each the worst of its kind that serving allows.
#include "core/base/checked.h"
#include "core/plan/profile.h"
#include "kernels/abi.h"

// Context of the plain decode: a few blocks. The longest one is FULL_DECODE's.
#define DECODE_CONTEXT 256
// Rows of one chunk at full context that are kept whatever the work: a chunk that the gate would
// cut no further.
#define CHUNK_LEAST 32
// Fewer blocks say nothing about a pool's behaviour.
#define PROBE_LEAST 512

const char *plm_stress_kind_name(enum plm_stress_kind kind)
{
    static const char *const names[PLM_STRESS_KINDS] = {"prefill", "many-short", "decode",
                                                        "full-chunk", "full-decode"};
    return (unsigned)kind < PLM_STRESS_KINDS ? names[kind] : "?";
}

uint32_t plm_profile_probe_blocks(const struct plm_plan_limits *limits)
{
    uint64_t blocks =
        plm_div_ceil(limits->batch_max_tokens, PLM_KV_BLOCK_TOKENS) + limits->max_sequences;
    return blocks < PROBE_LEAST ? PROBE_LEAST : (uint32_t)blocks;
}

static uint32_t least(uint64_t a, uint64_t b)
{
    return (uint32_t)(a < b ? a : b);
}

// Rows of the chunk that sequence 0 runs at full context, beside one row of each other sequence.
static uint32_t full_chunk_rows(const struct plm_profile_opts *opts,
                                const struct plm_plan_limits *limits, const struct plm_shape *worst)
{
    uint32_t chunk = least(worst->rows - (worst->seqs - 1), limits->max_context);
    if (opts->host_pays && !opts->prove_full) {
        int64_t most = plm_max_i64(CHUNK_LEAST, PLM_PROFILE_WORK / limits->max_context);
        chunk = least(chunk, (uint64_t)most);
    }
    return chunk;
}

void plm_profile_step(const struct plm_profile_opts *opts, const struct plm_plan_limits *limits,
                      enum plm_stress_kind kind, unsigned flags, struct plm_stress_step *ret)
{
    struct plm_shape shape = plm_limits_shape(limits);
    switch (kind) {
    case PLM_STRESS_PREFILL:
        shape.rows = shape.ctx = least(limits->batch_max_tokens, limits->max_context);
        shape.seqs = shape.logits_rows = 1;
        break;
    case PLM_STRESS_MANY_SHORT:
        shape.seqs = shape.logits_rows = least(limits->max_sequences, limits->batch_max_tokens);
        shape.rows = least(limits->batch_max_tokens, (uint64_t)shape.seqs * limits->max_context);
        shape.ctx = (uint32_t)plm_div_ceil(shape.rows, shape.seqs);
        flags |= PLM_STRESS_EVEN;
        break;
    case PLM_STRESS_DECODE:
        shape.rows = limits->max_sequences;
        shape.ctx = least(limits->max_context, DECODE_CONTEXT);
        break;
    case PLM_STRESS_FULL_CHUNK:
        shape.rows = full_chunk_rows(opts, limits, &shape) + shape.seqs - 1;
        break;
    case PLM_STRESS_FULL_DECODE:
    default: shape.rows = limits->max_sequences; break;
    }
    if (opts->host_pays && !opts->prove_full)
        flags |= PLM_STRESS_FEW_LAYERS;
    *ret =
        (struct plm_stress_step){.kind = kind, .flags = flags | PLM_STRESS_SAMPLE, .shape = shape};
}
