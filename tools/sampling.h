// SPDX-License-Identifier: Apache-2.0
// How tokens are chosen where a request, or the question of a chat, does not say: what the command
// line says, else what the author of the model file advises (general.sampling.*), else these
// defaults, which are llama-server's.
#ifndef PLM_TOOLS_SAMPLING_H
#define PLM_TOOLS_SAMPLING_H

#include "core/plimsoll.h"
#include "tools/opts.h"

struct plm_sampling {
    // NaN, PLM_SAMPLING_UNSET: not said so far.
    double temperature, top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty;
    uint32_t top_k;
    int64_t seed;      // -1: a random one
    unsigned n_advice; // of the values above, how many the file's author gave
};

#define PLM_SAMPLING_UNSET UINT32_MAX

void plm_sampling_init(struct plm_sampling *sampling);
// The group for plm_opt_command.groups.
struct plm_opt_group plm_sampling_group(struct plm_sampling *sampling);
// Once the model is there: fills what the command line left open.
void plm_sampling_settle(struct plm_sampling *sampling, const plim_model_info *model);
// Into options of a request, as plim_request_opts_init() left them.
void plm_sampling_apply(const struct plm_sampling *sampling, plim_request_opts *opts);
// One line for people: the values and where they are from.
void plm_sampling_text(const struct plm_sampling *sampling, char *out, size_t cap);

#endif
