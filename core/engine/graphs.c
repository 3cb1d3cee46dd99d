// SPDX-License-Identifier: Apache-2.0
// The capture of graphs: dummy decodes of which the device makes graphs, one for every sequence of
// kernels that decoding will ask for. All of it is before the seal, and each graph has run once, so
// what graphs take is measured and nothing is taken for them later.
#include "core/engine/graphs.h"

#include "core/base/checked.h"
#include "core/engine/forward.h"
#include "core/engine/load.h"

// Tokens of context that the shortest block table of serving holds (core/sched/blocks.c).
#define SHORT_CONTEXT (16 * PLM_KV_BLOCK_TOKENS)

// Both sides of each power of two: the ranges of rows for which a device has a kernel of its own
// end there. 1, 2, 3, 4, 5, 8, 9, 16, 17, ...
static uint32_t next_rows(uint32_t rows)
{
    if ((rows & (rows - 1)) == 0)
        return rows + 1;
    return UINT32_C(1) << (32 - __builtin_clz(rows));
}

// A graph of a decode of so many rows, and its first run; and one of a decode that follows another
// without the host, where there are such. LIMIT: the device keeps no more graphs,
// and the others run without.
static int capture_one(struct plm_core *core, uint32_t rows, uint32_t ctx, struct plm_error *err)
{
    const struct plm_stress_step step = {
        .shape = {.rows = rows, .seqs = rows, .logits_rows = rows, .ctx = ctx}};
    struct plm_forward_out out;
    int r = plm_core_dummy_step(core, &step, PLM_FORWARD_CAPTURE, NULL, &out, err);
    if (r == PLM_OK && core->rank.results.host != NULL)
        r = plm_core_dummy_step(core, &step, PLM_FORWARD_CAPTURE | PLM_FORWARD_CHAINED, NULL, &out,
                                err);
    return r;
}

// Long contexts attend with other kernels: one more graph, where the context may become so long.
static int capture_rows(struct plm_core *core, uint32_t rows, struct plm_error *err)
{
    const uint32_t longest = core->worst.ctx;
    const uint32_t brief = longest < SHORT_CONTEXT ? longest : SHORT_CONTEXT;
    const uint64_t unsplit = plm_model_unsplit_context(core->model, rows);
    int r = capture_one(core, rows, brief, err);
    if (r == PLM_OK && unsplit > brief && unsplit <= longest)
        r = capture_one(core, rows, (uint32_t)unsplit, err);
    return r;
}

int plm_core_capture(void *ctx, struct plm_error *err)
{
    struct plm_core *core = ctx;
    const uint32_t most = core->worst.seqs < core->worst.rows ? core->worst.seqs : core->worst.rows;
    struct plm_error why = {0};
    int r = PLM_OK;
    plm_core_phase(core, PLM_PHASE_CAPTURE);
    for (uint32_t rows = 1; rows < most && r == PLM_OK; rows = next_rows(rows))
        r = capture_rows(core, rows, &why);
    if (r == PLM_OK)
        r = capture_rows(core, most, &why);
    if (r == PLM_ERR_LIMIT) {
        plm_logf(&core->log, PLM_LOG_INFO,
                 "the device keeps no more graphs: some decodes run kernel by kernel");
        return PLM_OK;
    }
    return r == PLM_OK ? r : plm_fail(err, r, "no graph was made: %s", why.msg);
}
