// SPDX-License-Identifier: Apache-2.0
// Choosing the next token from one row of logits. Order: logit bias and bans, penalties,
// temperature, min_p, top_k, top_p, draw (the order of the OpenAI-compatible servers). The result
// is a pure function of the arguments: the draw is keyed by (seed, choice, position), sums are
// exact and ties go to the lowest id, so neither the batch nor the history of the sampler shows in
// the text. Nor does it show where a token was drawn: from temperature on, this is what the op
// SAMPLE does (kernels/abi.h), in the arithmetic of kernels/sampling.h.
#ifndef PLM_SCHED_SAMPLE_H
#define PLM_SCHED_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/alloc.h"
#include "core/base/status.h"
#include "kernels/abi.h"

#define PLM_SAMPLE_TOP_MAX 20    // alternatives that a token can carry; the OpenAI limit
#define PLM_SAMPLE_GREEDY  1e-5f // temperatures below it take the best token

struct plm_sample_bias {
    int32_t token; // 0 .. n_vocab-1
    float bias;    // finite; added to the logit
};

struct plm_sample_params {
    float temperature;
    float top_p; // 0 < top_p <= 1; 1: off
    float min_p; // 0 <= min_p <= 1; 0: off
    uint32_t top_k;
    float repeat_penalty;    // > 0; 1: off. Prompt and output
    float frequency_penalty; // per occurrence in the output
    float presence_penalty;  // once per token of the output
    uint64_t seed;
    const struct plm_sample_bias *bias;
    uint32_t n_bias;
    // Sequences that are never completed, one after the other: how many tokens, then those. The
    // last one can not be chosen where the output ends with the others.
    const int32_t *bad;
    size_t n_bad; // of the whole list
    bool logprobs;
    uint32_t top_logprobs; // at most PLM_SAMPLE_TOP_MAX
};

// One row to choose from. Everything is borrowed for the call.
struct plm_sample_in {
    const float *logits; // [n_vocab]
    const struct plm_sample_params *params;
    const int32_t *prompt;
    uint32_t n_prompt;
    const int32_t *output; // generated before
    uint32_t n_output;
    const int32_t *banned; // can not be chosen now: end-of-generation before min_tokens
    uint32_t n_banned;
    uint32_t choice; // index of the choice in its request
};

struct plm_sample_top {
    int32_t token;
    float logprob;
};

struct plm_sample_out {
    int32_t token;
    // Log-softmax of the model's own logits, before bias, penalties and temperature: what the model
    // believed, not what the sampler made of it. Set when params->logprobs.
    float logprob;
    uint32_t n_top;
    struct plm_sample_top top[PLM_SAMPLE_TOP_MAX]; // best first
};

struct plm_sampler;

// Scratch for rows of n_vocab logits, about 28 bytes per vocabulary entry; the only allocation. One
// thread at a time. PLM_ERR_NOMEM_HOST.
int plm_sampler_create(struct plm_host *host, uint32_t n_vocab, struct plm_sampler **ret);
void plm_sampler_destroy(struct plm_sampler *sampler); // NULL is allowed

// Whether no logit is NaN or infinite.
bool plm_sample_finite(const float *logits, uint32_t n);
// Whether the row's own logits are all that the draw depends on, and a token all that is wanted of
// them: the op SAMPLE can draw it as plm_sample_row_of() says, which is a pure function of params,
// choice and position. in->logits is not looked at by these three.
bool plm_sample_is_plain(const struct plm_sample_in *in);
struct plm_sample_row plm_sample_row_of(const struct plm_sample_in *in, uint32_t n_vocab);
// Whether the draw is the row's largest logit, the lowest id of those that have it: nothing else of
// the row matters, nor of the output.
bool plm_sample_is_argmax(const struct plm_sample_in *in);
// PLM_OK, or PLM_ERR_NUMERIC when a logit is NaN or infinite or nothing can be chosen.
int plm_sampler_draw(struct plm_sampler *sampler, const struct plm_sample_in *in,
                     struct plm_sample_out *ret);

#endif
