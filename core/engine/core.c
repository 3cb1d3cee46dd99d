// SPDX-License-Identifier: Apache-2.0
// From a model file to a sealed plan: open, load, warm up, profile. A plan without an engine and an
// engine are made the same way.

#include <stdio.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/random.h"
#include "core/engine/env.h"
#include "core/engine/forward.h"
#include "core/engine/host_budget.h"
#include "core/engine/load.h"
#include "core/engine/opts.h"
#include "core/engine/stress.h"
#include "core/engine/text.h"
#include "core/engine/tune.h"
#include "core/engine/watch.h"

// ---- files ----

static int parse_template(struct plm_core *core, struct plm_error *err)
{
    struct plm_slice source;
    if (core->opts.chat_template != NULL) {
        source = (struct plm_slice){core->opts.chat_template, strlen(core->opts.chat_template)};
        return plm_template_create(core->host, source, &core->chat, err);
    }
    if (plm_gguf_str(core->gguf, "tokenizer.chat_template", &source, NULL) != PLM_OK)
        return PLM_OK;
    struct plm_error why = {0};
    int r = plm_template_create(core->host, source, &core->chat, &why);
    if (r == PLM_OK || r == PLM_ERR_NOMEM_HOST)
        return r;
    // The model can still complete; a chat request is answered that there is no template.
    plm_logf(&core->log, PLM_LOG_WARN, "the model's chat template is not usable: %s", why.msg);
    snprintf(core->chat_fault, sizeof(core->chat_fault), "%s", why.msg);
    core->chat = NULL;
    return PLM_OK;
}

static int open_template(struct plm_core *core, struct plm_error *err)
{
    int r = parse_template(core, err);
    if (r == PLM_OK && core->chat != NULL)
        r = plm_text_probe(core, err);
    return plm_fail_about(err, r,
                          core->opts.chat_template != NULL ? "chat_template" : "model_path");
}

static int list_eog(struct plm_core *core, struct plm_error *err)
{
    int32_t n = plm_tokenizer_n_vocab(core->tokenizer);
    uint32_t n_eog = 0;
    for (int32_t id = 0; id < n; id++)
        n_eog += plm_tokenizer_is_eog(core->tokenizer, id);
    core->eog = plm_calloc(core->host, PLM_HOST_TOKENIZER, n_eog + 1, sizeof(int32_t));
    if (core->eog == NULL)
        return plm_fail(err, PLM_ERR_NOMEM_HOST, "no host memory for %u token ids", n_eog);
    for (int32_t id = 0; id < n; id++) {
        if (plm_tokenizer_is_eog(core->tokenizer, id))
            core->eog[core->n_eog++] = id;
    }
    return PLM_OK;
}

static int check_context(const struct plm_core *core, struct plm_error *err)
{
    uint32_t trained = plm_model_facts(core->model)->n_ctx_train;
    if (core->opts.ctx_size > trained)
        return plm_fail_about(err,
                              plm_fail(err, PLM_ERR_INVALID,
                                       "ctx_size is %u, but the model was trained for %u tokens",
                                       core->opts.ctx_size, trained),
                              "ctx_size");
    return PLM_OK;
}

static void say_stray_ids(const struct plm_core *core)
{
    char name[PLM_TOKENIZER_KEY_MAX];
    uint32_t id;
    for (uint64_t at = 0; plm_tokenizer_stray_id(core->tokenizer, core->gguf, &at, name, &id);)
        plm_logf(&core->log, PLM_LOG_WARN, "%s is %u, but there are %d tokens: it is not used",
                 name, id, plm_tokenizer_n_vocab(core->tokenizer));
}

// What the header says: hyper-parameters, tensors, vocabulary.
static int read_header(struct plm_core *core, struct plm_error *err)
{
    const struct plm_model_opts opts = {.kv_type = plm_opts_kv_type(&core->opts),
                                        .float_activations = core->opts.float_activations != 0};
    int r = plm_model_create(core->host, core->gguf, &opts, &core->model, err);
    if (r == PLM_OK)
        r = plm_tokenizer_create(core->host, core->gguf, &core->tokenizer, err);
    if (r != PLM_OK)
        return r;
    // Rows of the embedding beyond the vocabulary are never chosen; the other way round would read
    // past the matrix.
    uint32_t n_vocab = plm_model_facts(core->model)->n_vocab;
    if ((uint32_t)plm_tokenizer_n_vocab(core->tokenizer) > n_vocab)
        return plm_fail(err, PLM_ERR_FORMAT,
                        "the vocabulary has %d tokens, but token_embd.weight has %u rows",
                        plm_tokenizer_n_vocab(core->tokenizer), n_vocab);
    return PLM_OK;
}

static int open_files(struct plm_core *core, struct plm_error *err)
{
    int r = plm_gguf_open_header(core->host, core->opts.model_path, &core->gguf, err);
    if (r == PLM_OK)
        r = plm_gguf_about(core->gguf, read_header(core, err), err);
    if (r == PLM_OK)
        r = check_context(core, err);
    if (r == PLM_OK)
        r = list_eog(core, err);
    if (r != PLM_OK)
        return r;
    say_stray_ids(core);
    return open_template(core, err);
}

static int load_weights(struct plm_core *core, struct plm_error *err)
{
    int r = plm_model_weight_bytes(core->model, core->rank.device, &core->weight_sizes, err);
    if (r == PLM_OK)
        r = plm_core_preflight(core, core->weight_sizes.held_bytes, err);
    if (r == PLM_OK) {
        struct plm_mem_info info = {0};
        plm_device_query_free(core->rank.device, &info);
        r = plm_core_preflight_host(core, (int64_t)info.total_bytes, err);
    }
    return r == PLM_OK ? plm_core_take_weights(core, err) : r;
}

// ---- ledger and driver ----

int64_t plm_core_mismatch(const struct plm_core *core, const struct plm_stress_reading *r)
{
    struct plm_device_counters c;
    // A use of the whole device or more is what a bad reading is cut to.
    if (r->process_use == PLM_PLAN_UNKNOWN || r->T == 0 || r->process_use >= r->T)
        return 0;
    plm_device_counters(core->rank.device, &c);
    const int64_t g = (int64_t)plm_device_caps(core->rank.device)->granularity_bytes;
    const int64_t tolerance = plm_ledger_tolerance(r->O, c.allocs - c.frees, g);
    const int64_t more = r->process_use - (r->O + core->profile.plan.own_drv);
    return more > tolerance || -more > tolerance ? more : 0;
}

// A driver's figure may lag behind by a fraction of a second.
#define RECONCILE_TRIES 25
#define RECONCILE_NS    INT64_C(20000000)

// Compares ledger and driver once all memory is taken: bytes that the ledger does not know would be
// missing from every later decision, and fail the start. Bytes that the driver does not count (yet)
// are only logged. On unified memory the process's use includes what the program around us takes,
// so there a surplus is only logged, too.
static int reconcile(struct plm_core *core, struct plm_error *err)
{
    struct plm_stress_reading r;
    struct plm_mem_info info;
    uint64_t released;
    int64_t more = 0;
    for (int i = 0; i < RECONCILE_TRIES; i++) {
        if (plm_core_read(core, &r) != PLM_OK || (more = plm_core_mismatch(core, &r)) == 0)
            return PLM_OK;
        // What the driver keeps of the ballast and of the stress is not its own.
        plm_device_empty_cache(core->rank.device, &released, &info);
        core->clock->sleep_ns(core->clock->ctx, RECONCILE_NS);
    }
    static const char text[] = "the driver says that this process holds %lld bytes, but the ledger "
                               "has %lld and the driver's own were %lld";
    const int64_t own = core->profile.plan.own_drv;
    if (more > 0 && !plm_device_caps(core->rank.device)->unified) {
        plm_fail(err, PLM_ERR_INTERNAL, text, (long long)r.process_use, (long long)r.O,
                 (long long)own);
        if (err != NULL) {
            err->needed_bytes = r.process_use;
            err->limit_bytes = r.O + own;
        }
        return PLM_ERR_INTERNAL;
    }
    plm_logf(&core->log, PLM_LOG_WARN, text, (long long)r.process_use, (long long)r.O,
             (long long)own);
    return PLM_OK;
}

static int make_serving(struct plm_core *core, struct plm_error *err)
{
    const struct plm_model_facts *facts = plm_model_facts(core->model);
    int r = plm_sampler_create(core->host, facts->n_vocab, &core->sampler);
    for (uint32_t g = 0; g < facts->n_groups && r == PLM_OK; g++) {
        r = plm_kv_pool_create(core->host, core->rank.device, core->rank.ledger,
                               plm_kv_block_bytes(&facts->groups[g]), g == 0, &core->kv.pools[g]);
        core->kv.windows[g] = facts->groups[g].window;
        core->kv.n_groups += r == PLM_OK;
    }
    core->pool = core->kv.pools[0];
    // Always there, so that the plan does not hang on whether the cache is used.
    if (r == PLM_OK)
        r = plm_prefix_create(core->host, &core->kv, plm_core_seed(core),
                              plm_core_extra_nodes(core, &core->chosen), &core->prefix);
    return r == PLM_OK ? r : plm_fail(err, r, "no host memory for the KV cache's tables");
}

// ---- a start that hangs ----

// What one step of a start may take before it counts as hung. On a slow machine the largest chunk
// through a few layers takes some minutes at most; with prove_full it goes through all of them.
#define STEP_MAX_MS      INT64_C(600000)
#define STEP_MAX_FULL_MS INT64_C(3600000)
// Where the operator says how long a step may take while serving, so many times as long: the first
// run of a kernel loads it, or compiles it.
#define STEP_COLD 10

static int64_t patience_ms(const plim_engine_opts *o)
{
    if (o->watchdog_ms != 0)
        return STEP_COLD * (int64_t)o->watchdog_ms;
    return o->prove_full ? STEP_MAX_FULL_MS : STEP_MAX_MS;
}

// Turns a timeout of the start into an error that names the stage. It is logged at once, too:
// closing a device that hangs may take as long as it hangs.
static int fail_hung(const struct plm_core *core, struct plm_error *err)
{
    struct plm_error why = {0};
    if (err != NULL)
        why = *err;
    plm_fail(&why, PLM_ERR_TIMEOUT,
             "the start hangs in its stage \"%s\", in a step that takes longer than %lld s: %s",
             core->stage != NULL ? core->stage : "open",
             (long long)(patience_ms(&core->opts) / 1000),
             err != NULL && err->msg[0] != '\0' ? err->msg : plm_strstatus(PLM_ERR_TIMEOUT));
    plm_logf(&core->log, PLM_LOG_ERROR, "%s", why.msg);
    if (err != NULL)
        *err = why;
    return PLM_ERR_TIMEOUT;
}

static int build(struct plm_core *core, struct plm_error *err)
{
    int r = plm_fail_about(err, plm_core_open_device(core, err), "device");
    if (r == PLM_OK)
        plm_device_set_patience(core->rank.device, patience_ms(&core->opts) * 1000000);
    if (r == PLM_OK)
        r = plm_opts_check_kv_type(&core->opts, plm_device_caps(core->rank.device),
                                   core->rank.device_id, err);
    if (r == PLM_OK)
        r = plm_opts_check(&core->opts, plm_device_caps(core->rank.device)->unified,
                           &plm_model_facts(core->model)->groups[0], err);
    if (r == PLM_OK)
        r = load_weights(core, err);
    if (r == PLM_OK)
        r = make_serving(core, err);
    if (r == PLM_OK)
        r = plm_core_tune(core, err);
    if (r == PLM_OK)
        r = plm_core_profile(core, err);
    if (r == PLM_OK)
        r = reconcile(core, err);
    if (r == PLM_OK)
        r = plm_core_seal_host(core, err);
    if (r == PLM_ERR_TIMEOUT)
        return fail_hung(core, err);
    if (r != PLM_OK)
        return r;
    plm_device_set_patience(core->rank.device, 0);
    plm_core_phase(core, PLM_PHASE_SERVE);
    core->opts.model_path = core->opts.chat_template = core->opts.device = NULL;
    core->opts.certificate = NULL;
    core->opts.tuning = NULL;
    core->opts.progress = NULL; // it reports the start alone
    core->serving = true;
    return PLM_OK;
}

uint64_t plm_core_seed(struct plm_core *core)
{
    if (core->env.seed == 0)
        return plm_random_seed();
    const uint64_t n = atomic_fetch_add(&core->n_seeds, 1);
    const uint32_t counter[4] = {(uint32_t)n, (uint32_t)(n >> 32)};
    const uint32_t key[2] = {(uint32_t)core->env.seed, (uint32_t)(core->env.seed >> 32)};
    uint32_t out[4];
    plm_philox4x32(counter, key, out);
    return (uint64_t)out[0] << 32 | out[1];
}

int plm_core_open(const struct plm_engine_env *env, const plim_engine_opts *opts,
                  struct plm_core **ret, struct plm_error *err)
{
    const char *path = opts->model_path, *slash = strrchr(path, '/');
    struct plm_core *core = plm_calloc(env->host, PLM_HOST_OTHER, 1, sizeof(*core));
    if (core == NULL)
        return plm_fail(err, PLM_ERR_NOMEM_HOST, "no host memory for an engine");
    core->env = *env;
    core->host = env->host;
    core->clock = env->clock != NULL ? env->clock : plm_clock_system();
    core->log = (struct plm_log){opts->log, opts->log_ctx, (int)opts->log_level};
    core->opts = *opts;
    snprintf(core->file_name, sizeof(core->file_name), "%s", slash != NULL ? slash + 1 : path);
    int r = plm_fail_about(err, open_files(core, err), "model_path");
    if (r != PLM_OK) {
        plm_core_destroy(core);
        return r;
    }
    *ret = core;
    return PLM_OK;
}

int plm_core_create(const struct plm_engine_env *env, const plim_engine_opts *opts,
                    struct plm_core **ret, struct plm_error *err)
{
    struct plm_core *core;
    int r = plm_core_open(env, opts, &core, err);
    if (r != PLM_OK)
        return r;
    r = build(core, err);
    // A stage that was stopped may have returned another error.
    if (core->stopped)
        r = plm_core_stopped(err);
    if (r != PLM_OK) {
        plm_core_destroy(core);
        return r;
    }
    *ret = core;
    return PLM_OK;
}

void plm_core_destroy(struct plm_core *core)
{
    if (core == NULL)
        return;
    struct plm_host *host = core->host;
    plm_prefix_destroy(core->prefix);
    for (uint32_t g = 0; g < core->kv.n_groups; g++)
        plm_kv_pool_destroy(core->kv.pools[g]);
    plm_arena_destroy(core->rank.ballast);
    plm_arena_destroy(core->rank.workspace);
    plm_arena_destroy(core->rank.weights);
    if (core->rank.device != NULL) {
        plm_core_drop_results(core);
        plm_device_close(core->rank.device);
    }
    plm_ledger_destroy(core->rank.ledger);
    plm_free(host, core->tune);
    plm_sampler_destroy(core->sampler);
    plm_template_destroy(core->chat);
    plm_tokenizer_destroy(core->tokenizer);
    plm_model_destroy(core->model);
    plm_gguf_close(core->gguf);
    plm_free(host, core->logits_row);
    plm_free(host, core->best);
    plm_free(host, core->eog);
    plm_free(host, core);
}

void plm_core_report_head(const struct plm_core *core, const struct plm_caps *caps,
                          const struct plm_ledger_stats *ledger, struct plm_report_head *ret)
{
    *ret = (struct plm_report_head){
        .model = core->file_name,
        .build = plim_build_info(),
        .device_id = core->rank.device_id,
        .kv_type = plm_kv_type_name(plm_opts_kv_type(&core->opts)),
        .device_name = caps->name,
        .device_uuid = caps->uuid,
        .isa = caps->isa,
        .ledger = ledger,
        .trained_context = core->opts.ctx_size == 0 ? plm_model_facts(core->model)->n_ctx_train : 0,
        .short_context = plm_model_facts(core->model)->short_context,
        .n_weights = PLM_WEIGHT_CLASSES};
    _Static_assert(PLM_WEIGHT_CLASSES <= PLM_REPORT_WEIGHTS_MAX, "the report has room for them");
    for (uint32_t i = 0; i < PLM_WEIGHT_CLASSES; i++)
        ret->weights[i] =
            (struct plm_report_weights){.name = plm_weight_class_name((enum plm_weight_class)i),
                                        .bytes = (int64_t)core->weight_sizes.by_class[i]};
}
