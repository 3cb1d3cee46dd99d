// SPDX-License-Identifier: Apache-2.0
// One step on its way through the layers, as decoder.c and the kinds of blocks append it.
#ifndef PLM_MODEL_PASS_H
#define PLM_MODEL_PASS_H

#include "core/model/arch.h"

// `rows` and `x` change once: in the last layer, when only the rows that need logits go on.
struct plm_pass {
    const struct plm_model *model;
    struct plm_specialization on; // the model's, but where launches are only counted
    struct plm_device *device;    // NULL: launches are counted
    const struct plm_forward *forward;
    uint64_t at[PLM_BUFFERS]; // device addresses of the buffers
    uint64_t x;               // the residual stream
    uint32_t rows;
    uint32_t counted;
    bool depends; // what comes next reads what was appended since the last barrier
    int result;   // the first failure; later launches are skipped
};

// What comes next reads what was appended so far.
static inline void plm_pass_barrier(struct plm_pass *p)
{
    p->depends = true;
}

// Before a launch: the barrier, if it needs one. False: it is not to be appended.
bool plm_pass_ready(struct plm_pass *p);
void plm_pass_did(struct plm_pass *p, int result);

// Appends the op `name`, or offers it to the tuner of a tuning run.
#define PLM_LAUNCH(p, name, args)                                                                  \
    do {                                                                                           \
        if (plm_pass_ready(p))                                                                     \
            plm_pass_did(p, plm_launch_##name((p)->device, args));                                 \
    } while (0)
#define PLM_LAUNCH_TUNED(p, NAME, name, args)                                                      \
    do {                                                                                           \
        if (((p)->forward->flags & PLM_FORWARD_TUNING) == 0)                                       \
            PLM_LAUNCH(p, name, args);                                                             \
        else if (plm_pass_ready(p))                                                                \
            plm_pass_did(                                                                          \
                p, (p)->forward->tuner->offer((p)->forward->tuner->ctx, PLM_OP_##NAME, args));     \
    } while (0)

// Whether this step, as many rows as it has now, uses an optional op.
static inline bool plm_pass_uses(const struct plm_pass *p, enum plm_op op)
{
    return (p->on.prefers >> op & 1) != 0 && p->rows <= p->on.few_rows;
}

// The activations that a product with this weight reads.
static inline enum plm_act plm_pass_act(const struct plm_pass *p, const struct plm_weight *w)
{
    return p->model->opts.float_activations ? PLM_ACT_F32 : plm_act_of(w->tensor->type);
}

// The blocks of a group that a step's rows go to, and the block tables of its sequences: those of
// the groups lie behind each other.
static inline uint64_t plm_pass_slots(const struct plm_pass *p, uint32_t group)
{
    return p->at[PLM_BUF_SLOTS] + 8ull * p->forward->shape.rows * group;
}

static inline uint64_t plm_pass_tables(const struct plm_pass *p, uint32_t group)
{
    return p->at[PLM_BUF_TABLES] + 8ull * p->forward->shape.seqs * p->forward->table_stride * group;
}

// Where norms and activations leave what a product with w reads.
static inline uint64_t plm_pass_input(const struct plm_pass *p, const struct plm_weight *w)
{
    return p->at[plm_pass_act(p, w) == PLM_ACT_Q8 ? PLM_BUF_ACT_Q8 : PLM_BUF_ACT_F32];
}

// The norm of the residual stream, in the formats that the products with these n weights read: a
// file may mix types, so it can be both. A barrier follows.
void plm_pass_norm(struct plm_pass *p, const struct plm_weight *norm,
                   const struct plm_weight *const *readers, size_t n);
// dst (+)= w * x, x in the format that w wants. bias may be absent.
void plm_pass_product(struct plm_pass *p, const struct plm_weight *w, const struct plm_weight *bias,
                      uint64_t x, uint64_t dst, uint32_t ld_dst, bool add);
// What ends a block: the product, or where norm is there its norm, is added to the residual stream.
// A barrier follows.
void plm_pass_output(struct plm_pass *p, const struct plm_weight *w, const struct plm_weight *bias,
                     const struct plm_weight *norm, uint64_t x);

#endif
