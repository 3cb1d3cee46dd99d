// SPDX-License-Identifier: Apache-2.0
// Steps in the air, whose rows outlive the batch that they were formed in: whose they are is kept
// here, and forgotten of those who leave before the step lands. step.c flies them.
#include <string.h>

#include "core/engine/impl.h"

int plm_flights_init(struct plim_engine *engine, uint32_t max_sequences)
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
    engine->picks = plm_calloc(host, PLM_HOST_SCHED, max_sequences, sizeof(*engine->picks));
    for (int i = 0; i < 2; i++)
        engine->flights[i].kept =
            plm_calloc(host, PLM_HOST_SCHED, max_sequences, sizeof(*engine->flights[i].kept));
    return engine->picks != NULL && engine->flights[0].kept != NULL &&
                   engine->flights[1].kept != NULL
               ? PLM_OK
               : PLM_ERR_NOMEM_HOST;
}

void plm_flights_finish(struct plim_engine *engine)
{
    plm_free(engine->core->host, engine->sampling);
    plm_free(engine->core->host, engine->picks);
    for (int i = 0; i < 2; i++)
        plm_free(engine->core->host, engine->flights[i].kept);
}

void plm_flight_keep(struct plm_flight *flight)
{
    memcpy(flight->kept, flight->seqs, flight->shape.logits_rows * sizeof(*flight->kept));
    flight->seqs = flight->kept;
}

void plm_flights_forget(struct plim_engine *engine, const struct plm_seq *seq)
{
    engine->left = true;
    for (int f = 0; engine->air != NULL && f < 2; f++) {
        struct plm_flight *flight = &engine->flights[f];
        for (uint32_t i = 0; i < flight->shape.logits_rows; i++) {
            if (flight->kept[i] == seq)
                flight->kept[i] = NULL;
        }
    }
}
