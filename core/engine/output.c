// SPDX-License-Identifier: Apache-2.0
// What a step leaves: whether its logits are numbers, and the tokens that they give.
#include "core/engine/impl.h"

// Row i; NULL: the device is lost since.
static const float *row_of(struct plim_engine *engine, const struct plm_step_output *step,
                           uint32_t i)
{
    return plm_core_logits(engine->core, step->run->out.logits, i);
}

// PLM_OK, LOST, or NUMERIC where a number of the row is none.
static int check_row(struct plim_engine *engine, const struct plm_step_output *step, uint32_t i)
{
    if (step->best != NULL)
        return step->best[i].n_wrong == 0 ? PLM_OK : PLM_ERR_NUMERIC;
    const float *row = row_of(engine, step, i);
    if (row == NULL)
        return PLM_ERR_LOST;
    const uint32_t n_vocab = plm_model_facts(engine->core->model)->n_vocab;
    return plm_sample_finite(row, n_vocab) ? PLM_OK : PLM_ERR_NUMERIC;
}

int plm_output_check(struct plim_engine *engine, struct plm_step_output *step,
                     struct plim_request **ret_culprit)
{
    struct plim_request *wrong = NULL;
    bool several = false, any_right = false;
    if (step->run->out.best != 0) {
        step->best = plm_core_best(engine->core, step->run, step->rows);
        if (step->best == NULL)
            return PLM_ERR_LOST;
    }
    for (uint32_t i = 0; i < step->rows; i++) {
        if (step->seqs[i] == NULL)
            continue;
        struct plim_request *request = ((struct plm_choice *)step->seqs[i])->request;
        int r = check_row(engine, step, i);
        if (r == PLM_OK) {
            any_right = true;
            continue;
        }
        if (r != PLM_ERR_NUMERIC)
            return r;
        several = several || (wrong != NULL && wrong != request);
        wrong = request;
    }
    *ret_culprit = several || !any_right ? NULL : wrong;
    return wrong == NULL ? PLM_OK : PLM_ERR_NUMERIC;
}

// Of the next token of a choice; ahead: of the one after it, of whose output the last is not known.
static struct plm_sample_in sample_in(const struct plim_engine *engine,
                                      const struct plm_choice *choice, bool ahead)
{
    const struct plim_request *request = choice->request;
    const struct plm_seq *seq = &choice->seq;
    struct plm_sample_in in = {.params = &request->params,
                               .prompt = seq->tokens,
                               .n_prompt = seq->n_prompt,
                               .output = seq->tokens + seq->n_prompt,
                               .n_output = seq->n_tokens - seq->n_prompt + ahead,
                               .choice = choice->index};
    if (in.n_output < request->min_tokens) {
        in.banned = request->n_stop_tokens > 0 ? request->stop_tokens : engine->core->eog;
        in.n_banned = request->n_stop_tokens > 0 ? request->n_masked : engine->core->n_eog;
    }
    return in;
}

// Where a device has no bytes behind its addresses it draws nothing, and the host samples zeros.
static bool is_drawn(const struct plim_engine *engine, const struct plm_sample_in *in)
{
    const struct plm_core *core = engine->core;
    return plm_sample_is_argmax(in) ||
           (plm_model_samples(core->model) && !plm_device_caps(core->device)->addresses_only &&
            plm_sample_is_plain(in));
}

bool plm_output_is_drawn(const struct plim_engine *engine, struct plm_seq *const *seqs, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (seqs[i] == NULL)
            continue;
        const struct plm_sample_in in =
            sample_in(engine, (const struct plm_choice *)seqs[i], false);
        if (!is_drawn(engine, &in))
            return false;
    }
    return true;
}

void plm_output_sampling(const struct plim_engine *engine, struct plm_seq *const *seqs, uint32_t n,
                         bool ahead, struct plm_sample_row *ret)
{
    const uint32_t n_vocab = plm_model_facts(engine->core->model)->n_vocab;
    for (uint32_t i = 0; i < n; i++) {
        ret[i] = (struct plm_sample_row){0};
        if (seqs[i] == NULL)
            continue;
        const struct plm_sample_in in =
            sample_in(engine, (const struct plm_choice *)seqs[i], ahead);
        if (is_drawn(engine, &in)) // what the host draws needs no walks of the device
            ret[i] = plm_sample_row_of(&in, n_vocab);
    }
}

// The token that row i gives a choice. LOST: it could not be read.
static int sample(struct plim_engine *engine, const struct plm_step_output *step, uint32_t i,
                  struct plm_sample_out *out)
{
    struct plm_sample_in in = sample_in(engine, (const struct plm_choice *)step->seqs[i], false);
    if (step->best != NULL && is_drawn(engine, &in)) {
        *out = (struct plm_sample_out){.token = step->best[i].index};
        return PLM_OK;
    }
    in.logits = row_of(engine, step, i);
    return in.logits != NULL ? plm_sampler_draw(engine->core->sampler, &in, out) : PLM_ERR_LOST;
}

void plm_output_sample(struct plim_engine *engine, const struct plm_step_output *step)
{
    for (uint32_t i = 0; i < step->rows; i++) {
        struct plm_choice *choice = (struct plm_choice *)step->seqs[i];
        struct plm_sample_out out;
        // It left, or an earlier row of this step ended the whole request.
        if (choice == NULL || !choice->live)
            continue;
        int r = sample(engine, step, i, &out);
        if (r == PLM_ERR_LOST)
            return; // the next step finds it so, and computes these again
        if (r == PLM_OK)
            plm_step_token(engine, choice, &out, plm_now(engine->core->clock));
        else
            plm_request_fail(engine, choice->request, r, "no token can be chosen");
    }
}
