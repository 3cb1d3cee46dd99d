// SPDX-License-Identifier: Apache-2.0
// The measured runs of plimsoll bench, through the public API: what a client gets, sampling and the
// engine's thread included.
#ifndef PLM_TOOLS_BENCH_MEASURE_H
#define PLM_TOOLS_BENCH_MEASURE_H

#include <stdint.h>

#include "core/plimsoll.h"

enum plm_bench_kind {
    PLM_BENCH_PROMPT, // one request: until its first token
    PLM_BENCH_DECODE, // one request: from its first token to its last
    PLM_BENCH_USERS,  // several: while all of them decode
    PLM_BENCH_MIXED,  // several of different lengths at once: until the last one ends
};

// One measured thing: users requests of prompt tokens each that generate predict tokens. Mixed: at
// most so many, in eight steps of length.
struct plm_bench_case {
    enum plm_bench_kind kind;
    const char *name;
    uint32_t prompt, predict, users;
    float temperature; // 0: the best token
    uint32_t n;        // measured runs so far
    double *seconds;   // each run
    double *tokens;    // that its seconds stand for
    double first_s;    // mixed: until half of the requests had their first token, in the last run
    double prompts_n;  // mixed: prompt tokens of a run
};

struct plm_bench {
    plim_engine *engine;
    plim_model_info model;
    uint32_t batch_max_tokens;
    uint64_t random; // state of the token generator
    int32_t *tokens; // room for the longest prompt
};

// Tokens that the context of a case holds.
uint32_t plm_bench_context(const struct plm_bench_case *what, uint32_t batch_max_tokens);
// Runs a case once to warm up and `repetitions` times to measure; the caller frees what->seconds
// and what->tokens. Past until_s (plm_term_now_s) no further run begins: the first one counts where
// it is the only one. Codes of the API.
int plm_bench_measure(struct plm_bench *bench, struct plm_bench_case *what, uint32_t repetitions,
                      double until_s, plim_error *err);

#endif
