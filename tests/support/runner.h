// SPDX-License-Identifier: Apache-2.0
// Runs one sequence through a model on a device, without engine or scheduler: what golden tests and
// kernel benchmarks need. Blocks are taken from one arena; nothing is shared or freed in between.
#ifndef PLM_TESTS_RUNNER_H
#define PLM_TESTS_RUNNER_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/status.h"
#include "core/model/model.h"

struct runner_opts {
    const char *device;                // NULL: "cpu"
    const struct plm_backend *backend; // in place of the one that device names; or NULL
    const void *backend_opts;          // of the device
    bool strict;                       // float activations and a float32 KV cache
    bool kv_q8_0;                      // a KV cache in 8 bits, also where it is strict
    bool reference;                    // the plain C kernels
    uint32_t threads;
    uint32_t max_tokens; // longest sequence
};

struct runner;

int runner_open(const char *path, const struct runner_opts *opts, struct runner **ret,
                struct plm_error *err);
// The CPU backend, but its devices prefer these optional ops (plm_caps.prefers), until the next
// call.
const struct plm_backend *runner_fused_cpu(uint64_t prefers);
// Returns the host bytes that were leaked.
int64_t runner_close(struct runner *runner);
const struct plm_model_facts *runner_facts(const struct runner *runner);
// Dispatches of the last step.
uint64_t runner_dispatches(const struct runner *runner);
// Forgets the sequence.
void runner_reset(struct runner *runner);
// The next sequence is planned for so many tokens (plm_model_set_context).
void runner_set_context(struct runner *runner, uint32_t tokens);
// Appends n tokens in one step. Stores the logits of the last n_logits of them, row-major
// [n_logits][n_vocab].
int runner_step(struct runner *runner, const int32_t *tokens, uint32_t n, uint32_t n_logits,
                float *logits, struct plm_error *err);
// Natural logarithm of a token's probability, from one row of n logits.
double runner_logprob(const float *logits, uint32_t n, int32_t id);

#endif
