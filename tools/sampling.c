// SPDX-License-Identifier: Apache-2.0
#include "tools/sampling.h"

#include <math.h>
#include <stdio.h>

#define IN(field) offsetof(struct plm_sampling, field)

#define TEMPERATURE_MAX    2.0
#define REPEAT_PENALTY_MAX 2.0
#define TOP_K_MAX          16777216 // beyond every vocabulary

static const struct plm_opt table[] = {
    PLM_OPT_IN("--temp, --temperature", "F",
               "temperature; 0: greedy (default: the model file's, else 0.8)", PLM_OPT_DOUBLE,
               IN(temperature), 0, TEMPERATURE_MAX),
    PLM_OPT_IN("--top-k", "N",
               "of the N likeliest tokens; 0: of all (default: the model\nfile's, else 40)",
               PLM_OPT_U32, IN(top_k), 0, TOP_K_MAX),
    PLM_OPT_ABOVE("--top-p", "F", "nucleus sampling; 1: off (default: the model file's, else 0.95)",
                  PLM_OPT_DOUBLE, IN(top_p), 0, 1),
    PLM_OPT_IN("--min-p", "F",
               "least part of the best token's probability (default: the model\nfile's, else 0.05)",
               PLM_OPT_DOUBLE, IN(min_p), 0, 1),
    PLM_OPT_ABOVE("--repeat-penalty", "F",
                  "on tokens seen before; 1: off (default: the model file's, else 1)",
                  PLM_OPT_DOUBLE, IN(repeat_penalty), 0, REPEAT_PENALTY_MAX),
    PLM_OPT_IN("--presence-penalty", "F", "0: off (default 0)", PLM_OPT_DOUBLE,
               IN(presence_penalty), -2, 2),
    PLM_OPT_IN("--frequency-penalty", "F", "0: off (default 0)", PLM_OPT_DOUBLE,
               IN(frequency_penalty), -2, 2),
    PLM_OPT_IN("-s, --seed", "N", "seed of the answers; -1: a random one (default -1)", PLM_OPT_I64,
               IN(seed), -1, 9.2e18),
    PLM_OPT_END,
};

void plm_sampling_init(struct plm_sampling *sampling)
{
    *sampling = (struct plm_sampling){.temperature = NAN,
                                      .top_p = NAN,
                                      .min_p = NAN,
                                      .repeat_penalty = NAN,
                                      .top_k = PLM_SAMPLING_UNSET,
                                      .seed = -1};
}

struct plm_opt_group plm_sampling_group(struct plm_sampling *sampling)
{
    return (struct plm_opt_group){"sampling", table, sampling};
}

// What the command line says stays; else advice that is in range counts, else the default.
static void settle(double *value, double advice, bool in_range, double otherwise,
                   unsigned *n_advice)
{
    if (!isnan(*value))
        return;
    *value = in_range ? advice : otherwise;
    *n_advice += in_range;
}

void plm_sampling_settle(struct plm_sampling *s, const plim_model_info *model)
{
    // NaN is in no range.
    const double temperature = model->temperature, top_p = model->top_p, min_p = model->min_p;
    const double repeat = model->repeat_penalty;
    settle(&s->temperature, temperature, temperature >= 0 && temperature <= TEMPERATURE_MAX, 0.8,
           &s->n_advice);
    settle(&s->top_p, top_p, top_p > 0 && top_p <= 1, 0.95, &s->n_advice);
    settle(&s->min_p, min_p, min_p >= 0 && min_p <= 1, 0.05, &s->n_advice);
    settle(&s->repeat_penalty, repeat, repeat > 0 && repeat <= REPEAT_PENALTY_MAX, 1, &s->n_advice);
    if (s->top_k == PLM_SAMPLING_UNSET) {
        const bool advised = model->top_k >= 0 && model->top_k <= TOP_K_MAX;
        s->top_k = advised ? (uint32_t)model->top_k : 40;
        s->n_advice += advised;
    }
}

void plm_sampling_apply(const struct plm_sampling *s, plim_request_opts *opts)
{
    opts->temperature = (float)s->temperature;
    opts->top_p = (float)s->top_p;
    opts->min_p = (float)s->min_p;
    opts->top_k = s->top_k;
    opts->repeat_penalty = (float)s->repeat_penalty;
    opts->presence_penalty = (float)s->presence_penalty;
    opts->frequency_penalty = (float)s->frequency_penalty;
    opts->has_seed = s->seed >= 0;
    opts->seed = s->seed >= 0 ? (uint64_t)s->seed : 0;
}

void plm_sampling_text(const struct plm_sampling *s, char *out, size_t cap)
{
    char advice[64] = "";
    if (s->n_advice > 0)
        snprintf(advice, sizeof(advice), "; %u of them from the model file", s->n_advice);
    snprintf(out, cap,
             "sampling: temperature %.4g, top-k %u, top-p %.4g, min-p %.4g, repeat penalty %.4g%s",
             s->temperature, s->top_k, s->top_p, s->min_p, s->repeat_penalty, advice);
}
