// SPDX-License-Identifier: Apache-2.0
// What an engine stands on once it is loaded: device, model, weights, workspace, KV pool and the
// plan that was proved. One thread at a time. Nothing here knows of a request.
#ifndef PLM_ENGINE_CORE_H
#define PLM_ENGINE_CORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/base/alloc.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/chat/chat.h"
#include "core/engine/baseline.h"
#include "core/engine/env.h"
#include "core/engine/rank.h"
#include "core/engine/watch.h"
#include "core/kv/prefix.h"
#include "core/kv/set.h"
#include "core/model/model.h"
#include "core/plan/certificate.h"
#include "core/plan/profile.h"
#include "core/plan/report.h"
#include "core/plimsoll.h"
#include "core/sched/sample.h"
#include "core/template/template.h"
#include "core/tokenizer/tokenizer.h"

struct plm_tune;

struct plm_core {
    struct plm_engine_env env;
    struct plm_host *host; // of env, as is the clock
    const struct plm_clock *clock;
    struct plm_log log;
    plim_engine_opts opts; // strings are valid while it is being created only
    enum plm_phase phase;
    struct plm_rank rank;
    struct plm_gguf *gguf;
    struct plm_model *model;
    struct plm_tokenizer *tokenizer;
    struct plm_template *chat;            // NULL: the model has none, or one that can not be used:
    char chat_fault[PLM_ERROR_MSG_BYTES]; // why, or ""
    struct plm_chat_form chat_form;       // what it reads
    struct plm_weight_sizes weight_sizes;
    bool keeps_ballast;     // also while it serves
    bool stopped;           // by opts.progress: the start goes no further
    const char *stage;      // of the start, as last reported to opts.progress; static text
    bool serving;           // READY was reached
    uint64_t resubmits;     // lists that were submitted twice
    struct plm_shape worst; // that it is for
    int64_t forward_ns;     // of the last forward that ran
    int64_t ended_ns;       // when it ended
    struct plm_baseline baseline;
    struct plm_kv_set kv;
    struct plm_kv_pool *pool;      // the main one of them
    _Atomic int64_t windows_bytes; // held by the pools of the others; read by any thread
    struct plm_prefix *prefix;
    struct plm_sampler *sampler;
    struct plm_tune *tune; // NULL: nothing was chosen
    struct plm_profile profile;
    struct plm_profile proved; // what the certificate says: profile, or that of an earlier start
    struct plm_plan_limits chosen; // as asked, or by default (plm_core_choose)
    int64_t driver_calls; // growth of what others hold over load and warm-up, where use is unknown
    struct plm_cert_key key; // of that certificate; n is 0 where there is none
    struct plm_watch watch;
    // Where the host does not see the workspace; else NULL.
    float *logits_row;              // [n_vocab]
    struct plm_argmax_record *best; // [opts.max_sequences], where forwards find them
    uint64_t logits_at; // device address of what is in logits_row; 0: nothing of the last forward
    int32_t *eog;       // tokens that end generation
    uint32_t n_eog;
    char file_name[128];
    _Atomic uint64_t n_seeds; // drawn from env.seed
};

// Opens the model's files and no device: what a plan without one needs. On failure nothing is left.
int plm_core_open(const struct plm_engine_env *env, const plim_engine_opts *opts,
                  struct plm_core **ret, struct plm_error *err);
// Opens, loads, stresses, sizes and seals. On failure nothing is left.
int plm_core_create(const struct plm_engine_env *env, const plim_engine_opts *opts,
                    struct plm_core **ret, struct plm_error *err);
void plm_core_destroy(struct plm_core *core); // NULL is allowed
// A seed that nobody can guess; in a simulation the next one of the environment's.
uint64_t plm_core_seed(struct plm_core *core);
// Whether ledger and driver agree on what this process holds, beside the driver's own as measured:
// 0, or by how many bytes the driver says more (or, below 0, less). A reading that can not be, or
// one that does not know this process, tells nothing: 0.
int64_t plm_core_mismatch(const struct plm_core *core, const struct plm_stress_reading *reading);
// Who and what a report is about.
void plm_core_report_head(const struct plm_core *core, const struct plm_caps *caps,
                          const struct plm_ledger_stats *ledger, struct plm_report_head *ret);

#endif
