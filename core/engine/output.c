// SPDX-License-Identifier: Apache-2.0
// The output of a step: checks that its logits are numbers, and samples tokens from them.
#include "core/engine/output.h"

#include "core/engine/forward.h"
#include "core/engine/request.h"

// Row i of the logits; NULL: the device was lost meanwhile.
static const float *row_of(struct plm_core *core, const struct plm_step_output *step, uint32_t i)
{
    return plm_core_logits(core, step->run->out.logits, i);
}

// PLM_OK, LOST, or NUMERIC where the row holds a value that is not finite.
static int check_row(struct plm_core *core, const struct plm_step_output *step, uint32_t i)
{
    if (step->best != NULL)
        return step->best[i].n_wrong == 0 ? PLM_OK : PLM_ERR_NUMERIC;
    const float *row = row_of(core, step, i);
    if (row == NULL)
        return PLM_ERR_LOST;
    const uint32_t n_vocab = plm_model_facts(core->model)->n_vocab;
    return plm_sample_finite(row, n_vocab) ? PLM_OK : PLM_ERR_NUMERIC;
}

int plm_output_check(struct plm_core *core, struct plm_step_output *step,
                     struct plim_request **ret_culprit)
{
    struct plim_request *wrong = NULL;
    bool several = false, any_right = false;
    if (step->run->out.best != 0) {
        step->best = plm_core_best(core, step->run, step->rows);
        if (step->best == NULL)
            return PLM_ERR_LOST;
    }
    for (uint32_t i = 0; i < step->rows; i++) {
        if (step->seqs[i] == NULL)
            continue;
        struct plim_request *request = ((struct plm_choice *)step->seqs[i])->request;
        int r = check_row(core, step, i);
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

// The sampling input for the next token of a choice; with `ahead`, for the token after it, whose
// predecessor is not known yet.
static struct plm_sample_in sample_in(const struct plm_core *core, const struct plm_choice *choice,
                                      bool ahead)
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
        in.banned = request->n_stop_tokens > 0 ? request->stop_tokens : core->eog;
        in.n_banned = request->n_stop_tokens > 0 ? request->n_masked : core->n_eog;
    }
    return in;
}

// Whether the device samples this token. A device without bytes behind its addresses samples none:
// the host samples zeros.
static bool is_drawn(const struct plm_core *core, const struct plm_sample_in *in)
{
    return plm_sample_is_argmax(in) ||
           (plm_model_samples(core->model) && !plm_device_caps(core->rank.device)->addresses_only &&
            plm_sample_is_plain(in));
}

bool plm_output_is_drawn(const struct plm_core *core, struct plm_seq *const *seqs, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (seqs[i] == NULL)
            continue;
        const struct plm_sample_in in = sample_in(core, (const struct plm_choice *)seqs[i], false);
        if (!is_drawn(core, &in))
            return false;
    }
    return true;
}

void plm_output_sampling(const struct plm_core *core, struct plm_seq *const *seqs, uint32_t n,
                         bool ahead, struct plm_sample_row *ret)
{
    const uint32_t n_vocab = plm_model_facts(core->model)->n_vocab;
    for (uint32_t i = 0; i < n; i++) {
        ret[i] = (struct plm_sample_row){0};
        if (seqs[i] == NULL)
            continue;
        const struct plm_sample_in in = sample_in(core, (const struct plm_choice *)seqs[i], ahead);
        if (is_drawn(core, &in)) // what the host draws needs no passes of the device
            ret[i] = plm_sample_row_of(&in, n_vocab);
    }
}

int plm_output_token(struct plm_core *core, const struct plm_step_output *step, uint32_t i,
                     struct plm_sample_out *ret)
{
    struct plm_sample_in in = sample_in(core, (const struct plm_choice *)step->seqs[i], false);
    if (step->best != NULL && is_drawn(core, &in)) {
        *ret = (struct plm_sample_out){.token = step->best[i].index};
        return PLM_OK;
    }
    in.logits = row_of(core, step, i);
    return in.logits != NULL ? plm_sampler_draw(core->sampler, &in, ret) : PLM_ERR_LOST;
}
