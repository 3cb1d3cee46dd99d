// SPDX-License-Identifier: Apache-2.0
// Steps in flight: submitted, and not waited for yet. A step's list of sequences outlives the batch
// that it was formed in, so it is copied here, and a sequence that leaves before the step is
// retired is erased from it. step.c submits and retires the steps.
#include "core/engine/inflight.h"

#include <string.h>

#include "core/engine/forward.h"

int plm_inflight_init(struct plm_ahead *ahead, const struct plm_core *core, uint32_t max_sequences)
{
    struct plm_host *host = core->host;
    if (plm_model_samples(core->model)) {
        ahead->sampling = plm_calloc(host, PLM_HOST_SCHED, max_sequences, sizeof(*ahead->sampling));
        if (ahead->sampling == NULL)
            return PLM_ERR_NOMEM_HOST;
    }
    if (core->rank.results.host == NULL)
        return PLM_OK;
    ahead->source_rows =
        plm_calloc(host, PLM_HOST_SCHED, max_sequences, sizeof(*ahead->source_rows));
    for (int i = 0; i < 2; i++)
        ahead->slots[i].kept =
            plm_calloc(host, PLM_HOST_SCHED, max_sequences, sizeof(*ahead->slots[i].kept));
    return ahead->source_rows != NULL && ahead->slots[0].kept != NULL &&
                   ahead->slots[1].kept != NULL
               ? PLM_OK
               : PLM_ERR_NOMEM_HOST;
}

void plm_inflight_finish(struct plm_ahead *ahead, const struct plm_core *core)
{
    plm_free(core->host, ahead->sampling);
    plm_free(core->host, ahead->source_rows);
    for (int i = 0; i < 2; i++)
        plm_free(core->host, ahead->slots[i].kept);
}

void plm_inflight_abandon(struct plm_ahead *ahead, struct plm_core *core)
{
    if (ahead->current != NULL)
        plm_core_wait(core, &ahead->current->run, NULL);
    ahead->current = NULL;
}

void plm_inflight_keep(struct plm_inflight *step)
{
    memcpy(step->kept, step->seqs, step->shape.logits_rows * sizeof(*step->kept));
    step->seqs = step->kept;
}

void plm_inflight_forget(struct plm_ahead *ahead, const struct plm_seq *seq)
{
    ahead->left = true;
    for (int f = 0; ahead->current != NULL && f < 2; f++) {
        struct plm_inflight *step = &ahead->slots[f];
        for (uint32_t i = 0; i < step->shape.logits_rows; i++) {
            if (step->kept[i] == seq)
                step->kept[i] = NULL;
        }
    }
}
