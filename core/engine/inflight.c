// SPDX-License-Identifier: Apache-2.0
// Steps in flight: submitted, and not waited for yet. Their rows outlive the batch that they were
// formed in: whose they are is kept here, and forgotten of those who leave before the step is
// retired. step.c submits and retires them.
#include <string.h>

#include "core/engine/impl.h"

int plm_inflight_init(struct plim_engine *engine, uint32_t max_sequences)
{
    struct plm_host *host = engine->core->host;
    if (plm_model_samples(engine->core->model)) {
        engine->sampling =
            plm_calloc(host, PLM_HOST_SCHED, max_sequences, sizeof(*engine->sampling));
        if (engine->sampling == NULL)
            return PLM_ERR_NOMEM_HOST;
    }
    if (engine->core->results.host == NULL)
        return PLM_OK;
    engine->source_rows =
        plm_calloc(host, PLM_HOST_SCHED, max_sequences, sizeof(*engine->source_rows));
    for (int i = 0; i < 2; i++)
        engine->inflight_slots[i].kept = plm_calloc(host, PLM_HOST_SCHED, max_sequences,
                                                    sizeof(*engine->inflight_slots[i].kept));
    return engine->source_rows != NULL && engine->inflight_slots[0].kept != NULL &&
                   engine->inflight_slots[1].kept != NULL
               ? PLM_OK
               : PLM_ERR_NOMEM_HOST;
}

void plm_inflight_finish(struct plim_engine *engine)
{
    plm_free(engine->core->host, engine->sampling);
    plm_free(engine->core->host, engine->source_rows);
    for (int i = 0; i < 2; i++)
        plm_free(engine->core->host, engine->inflight_slots[i].kept);
}

void plm_inflight_keep(struct plm_inflight *step)
{
    memcpy(step->kept, step->seqs, step->shape.logits_rows * sizeof(*step->kept));
    step->seqs = step->kept;
}

void plm_inflight_forget(struct plim_engine *engine, const struct plm_seq *seq)
{
    engine->left = true;
    for (int f = 0; engine->inflight != NULL && f < 2; f++) {
        struct plm_inflight *step = &engine->inflight_slots[f];
        for (uint32_t i = 0; i < step->shape.logits_rows; i++) {
            if (step->kept[i] == seq)
                step->kept[i] = NULL;
        }
    }
}
