// SPDX-License-Identifier: Apache-2.0
// What a step asks of a device, counted and not run: the model's own forward appends its launches
// to a device that has addresses and no bytes, which adds up dispatches, barriers and the bytes
// that each op must read. So what is explained is what runs.
#ifndef PLM_MODEL_EXPLAIN_H
#define PLM_MODEL_EXPLAIN_H

#include "core/model/model.h"

// Bytes that a dispatch reads at least once, by what they are. Weights: as they are re-laid, biases
// and norms with them. KV: of the cache. Activations: everything else, inputs of the step included.
struct plm_reads {
    uint64_t weight_bytes;
    uint64_t kv_bytes;
    uint64_t act_bytes;
};
uint64_t plm_reads_bytes(const struct plm_reads *reads); // of all three

// What one dispatch reads, where every row is a sequence of its own that has `context` tokens;
// pure. Blocks of the cache are read whole. What weight_layout says of a type that it does not
// know.
int plm_op_reads(enum plm_op op, const void *args, uint32_t context, plm_layout_fn *layout,
                 const void *layout_ctx, struct plm_reads *ret);

struct plm_explain_op {
    uint32_t dispatches;
    struct plm_reads reads;
};

// One part of a step. A barrier belongs to the part of the dispatch before it.
struct plm_explain_part {
    uint32_t barriers;
    struct plm_explain_op ops[PLM_OPS];
};

// Parts of a step in order: what stands before the layers, each layer, the head.
uint32_t plm_explain_parts(const struct plm_model *model);
// One decode step of one sequence whose context has `context` tokens (1 to the trained length), on
// a device of these caps. Fills plm_explain_parts() parts. Afterwards the model's weights lie
// nowhere: it is good for another explanation, or to be loaded.
struct plm_explain_opts {
    struct plm_host *host;
    const struct plm_caps *caps;
    plm_layout_fn *layout;
    const void *layout_ctx;
    uint32_t context;
};
int plm_model_explain(struct plm_model *model, const struct plm_explain_opts *opts,
                      struct plm_explain_part *ret_parts, struct plm_error *err);
const char *plm_op_name(enum plm_op op); // "rms_norm"

#endif
