// SPDX-License-Identifier: Apache-2.0
// The options of an engine: defaults, ranges, and limits that contradict each other, which are
// named together with their values.
#include "core/engine/opts.h"

#include <string.h>

#include "core/base/checked.h"
#include "core/engine/defaults.h"
#include "core/engine/env.h"
#include "core/engine/error.h"
#include "core/engine/structs.h"
#include "core/kv/group.h"
#include "core/plan/plan.h"
#include "kernels/abi.h"

// Defaults of all devices; those that depend on what is free are in defaults.c.
#define DEFAULT_BATCH_TOKENS 512
// Who waits is not forgotten: leaving is noticed in every state, and what can not start in time is
// refused at once. So the patience is that of a person with a long task, not that of a proxy.
#define DEFAULT_QUEUE_TIMEOUT_MS 600000
// Range of the options: above them a number is a slip, not a wish.
#define BATCH_TOKENS_MAX 65536
#define SEQUENCES_MAX    4096

void plim_engine_opts_init_sized(plim_engine_opts *opts, size_t opts_bytes)
{
    const plim_engine_opts defaults = {.struct_size = sizeof(defaults),
                                       .device = "cpu",
                                       .memory_fraction = 1.0,
                                       .queue_max = 256,
                                       .queue_timeout_ms = DEFAULT_QUEUE_TIMEOUT_MS,
                                       .prefix_cache = 1,
                                       .autotune = 1,
                                       .monitor_ms = 1000,
                                       .log_level = PLIM_LOG_INFO};
    plm_struct_init(opts, opts_bytes, &defaults, sizeof(defaults));
}

static int check_ranges(const plim_engine_opts *o, plim_error *err)
{
    if (!(o->memory_fraction > 0.0 && o->memory_fraction <= 1.0))
        return plm_error_set(err, PLIM_ERR_INVALID, "memory_fraction",
                             "memory_fraction is %g; it must be above 0 and at most 1",
                             o->memory_fraction);
    if (o->batch_max_tokens > BATCH_TOKENS_MAX)
        return plm_error_set(err, PLIM_ERR_INVALID, "batch_max_tokens",
                             "batch_max_tokens is %u; the largest is %d", o->batch_max_tokens,
                             BATCH_TOKENS_MAX);
    if (o->max_sequences > SEQUENCES_MAX)
        return plm_error_set(err, PLIM_ERR_INVALID, "max_sequences",
                             "max_sequences is %u; the largest is %d", o->max_sequences,
                             SEQUENCES_MAX);
    if (o->memory_limit_bytes > INT64_MAX || o->host_limit_bytes > INT64_MAX ||
        o->max_total_tokens > INT64_MAX || o->kv_min_bytes > INT64_MAX)
        return plm_error_set(err, PLIM_ERR_INVALID, "memory_limit_bytes",
                             "a limit does not fit into 63 bits");
    if (o->host_caller_bytes > PLM_PLAN_BYTES_MAX)
        return plm_error_set(err, PLIM_ERR_INVALID, "host_caller_bytes",
                             "host_caller_bytes is %llu; the largest is %lld",
                             (unsigned long long)o->host_caller_bytes,
                             (long long)PLM_PLAN_BYTES_MAX);
    if (o->neighbours > PLIM_NEIGHBOURS_YIELD)
        return plm_error_set(err, PLIM_ERR_INVALID, "neighbours",
                             "neighbours is %u; it must be auto, hold or yield (0 to 2)",
                             o->neighbours);
    if (o->kv_type > PLIM_KV_Q8_0)
        return plm_error_set(err, PLIM_ERR_INVALID, "kv_type",
                             "kv_type is %u; it must be f16 or q8_0 (0 or 1)", o->kv_type);
    return PLIM_OK;
}

// What can be checked without model and device.
static int check_pairs(const plim_engine_opts *o, plim_error *err)
{
    // Every running sequence has at least one row of a step.
    if (o->batch_max_tokens < o->max_sequences)
        return plm_error_set(err, PLIM_ERR_INVALID, "batch_max_tokens",
                             "batch_max_tokens is %u; it must be at least max_sequences (%u)",
                             o->batch_max_tokens, o->max_sequences);
    if (o->memory_limit_bytes != 0 && o->kv_min_bytes > o->memory_limit_bytes)
        return plm_error_set(err, PLIM_ERR_INVALID, "kv_min_bytes",
                             "kv_min_bytes is %llu, but memory_limit_bytes is %llu: the KV cache "
                             "is a part of it",
                             (unsigned long long)o->kv_min_bytes,
                             (unsigned long long)o->memory_limit_bytes);
    if (o->kv_min_bytes != 0 && o->neighbours == PLIM_NEIGHBOURS_HOLD)
        return plm_error_set(err, PLIM_ERR_INVALID, "kv_min_bytes",
                             "kv_min_bytes is %llu, but with neighbours hold (%u) the KV cache is "
                             "never made smaller",
                             (unsigned long long)o->kv_min_bytes, o->neighbours);
    if (o->neighbours == PLIM_NEIGHBOURS_YIELD && o->monitor_ms == 0)
        return plm_error_set(err, PLIM_ERR_INVALID, "monitor_ms",
                             "monitor_ms is %u, but neighbours is yield (%u): without readings "
                             "nobody would see them come",
                             o->monitor_ms, o->neighbours);
    if (o->kv_f32 != 0 && o->kv_type != PLIM_KV_F16)
        return plm_error_set(err, PLIM_ERR_INVALID, "kv_type",
                             "kv_type is %u, but kv_f32 asks for a float32 KV cache", o->kv_type);
    return PLIM_OK;
}

enum plm_type plm_opts_kv_type(const plim_engine_opts *o)
{
    return o->kv_f32 != 0               ? PLM_TYPE_F32
           : o->kv_type == PLIM_KV_Q8_0 ? PLM_TYPE_Q8_0
                                        : PLM_TYPE_F16;
}

int plm_opts_check_kv_type(const plim_engine_opts *o, const struct plm_caps *caps,
                           const char *device, struct plm_error *err)
{
    const enum plm_type type = plm_opts_kv_type(o);
    if ((caps->kv_types >> type & 1) != 0)
        return PLM_OK;
    return plm_fail_about(err,
                          plm_fail(err, PLM_ERR_UNSUPPORTED,
                                   "kv_type is %s, but %.40s has no kernels for such a KV cache; "
                                   "it has them for f16",
                                   plm_kv_type_name(type), device),
                          "kv_type");
}

// A context that was asked for, beside a size that was: a window needs fewer blocks than a context.
static int check_pinned_context(const plim_engine_opts *o, const struct plm_kv_group *main,
                                struct plm_error *err)
{
    const struct plm_plan_input in = {.window = main->window,
                                      .limits = {.batch_max_tokens = o->batch_max_tokens,
                                                 .max_sequences = 1,
                                                 .max_context = o->ctx_size}};
    const int64_t needed = plm_plan_request_blocks(&in);
    if (o->max_total_tokens == 0 ||
        needed <= (int64_t)plm_div_ceil(o->max_total_tokens, PLM_KV_BLOCK_TOKENS))
        return PLM_OK;
    return plm_fail_about(
        err,
        plm_fail(err, PLM_ERR_INVALID,
                 "ctx_size is %u, but max_total_tokens pins the KV cache to %llu tokens: one "
                 "request of that length needs %lld and could not end",
                 o->ctx_size, (unsigned long long)o->max_total_tokens,
                 (long long)needed * PLM_KV_BLOCK_TOKENS),
        "ctx_size");
}

int plm_opts_check(const plim_engine_opts *o, bool unified, const struct plm_kv_group *main,
                   struct plm_error *err)
{
    const uint64_t block_bytes = plm_kv_block_bytes(main);
    const uint64_t limit = unified ? o->memory_limit_bytes : 0; // 0: no limit
    if (limit != 0 && o->host_caller_bytes >= limit)
        return plm_fail_about(
            err,
            plm_fail(err, PLM_ERR_INVALID,
                     "host_caller_bytes is %llu, but memory_limit_bytes is %llu: on this device "
                     "what the connections can take is a part of it",
                     (unsigned long long)o->host_caller_bytes, (unsigned long long)limit),
            "host_caller_bytes");
    if (limit != 0 && o->host_limit_bytes >= limit - o->host_caller_bytes)
        return plm_fail_about(
            err,
            plm_fail(err, PLM_ERR_INVALID,
                     "host_limit_bytes is %llu, but memory_limit_bytes is %llu: on this device "
                     "the host budget is a part of it, and what the caller takes beside it (%llu)",
                     (unsigned long long)o->host_limit_bytes, (unsigned long long)limit,
                     (unsigned long long)o->host_caller_bytes),
            "host_limit_bytes");
    const uint64_t pinned_blocks = plm_div_ceil(o->max_total_tokens, PLM_KV_BLOCK_TOKENS);
    if (pinned_blocks != 0 && o->kv_min_bytes / block_bytes > pinned_blocks)
        return plm_fail_about(
            err,
            plm_fail(err, PLM_ERR_INVALID,
                     "kv_min_bytes is %llu, but max_total_tokens pins the KV cache to %llu "
                     "tokens, which take %llu bytes",
                     (unsigned long long)o->kv_min_bytes, (unsigned long long)o->max_total_tokens,
                     (unsigned long long)(pinned_blocks * block_bytes)),
            "kv_min_bytes");
    return check_pinned_context(o, main, err);
}

int plm_opts_read(const plim_engine_opts *opts, plim_engine_opts *ret, plim_error *err)
{
    plim_engine_opts_init(ret);
    int r = plm_struct_in(ret, sizeof(*ret), opts, "plim_engine_opts_init", err);
    if (r != PLIM_OK)
        return r;
    if (ret->model_path == NULL || ret->model_path[0] == '\0')
        return plm_error_set(err, PLIM_ERR_INVALID, "model_path", "no model file is named");
    r = check_ranges(ret, err);
    if (r != PLIM_OK)
        return r;
    if (ret->device == NULL)
        ret->device = "cpu";
    if (ret->batch_max_tokens == 0)
        ret->batch_max_tokens = DEFAULT_BATCH_TOKENS;
    if (ret->max_sequences == 0)
        ret->max_sequences = PLM_DEFAULT_SEQUENCES;
    if (ret->prefill_chunk == 0 || ret->prefill_chunk > ret->batch_max_tokens)
        ret->prefill_chunk = ret->batch_max_tokens;
    if (ret->queue_max == 0)
        return plm_error_set(err, PLIM_ERR_INVALID, "queue_max", "queue_max must be at least 1");
    return check_pairs(ret, err);
}

int plm_start_begin(const plim_engine_opts *opts, const void *ret, plim_engine_opts *ret_opts,
                    struct plm_engine_env *ret_env, plim_error *err)
{
    int r = plm_opts_read(opts, ret_opts, err);
    if (r != PLIM_OK)
        return r;
    if (ret == NULL)
        return plm_error_null(err, "ret");
    // The limit holds from READY on. Before, it is compared with what the start needs, so that the
    // answer can name a limit that works.
    struct plm_host *host = plm_host_create(0);
    if (host == NULL)
        return plm_error_set(err, PLIM_ERR_NOMEM_HOST, NULL, "no host memory to start");
    *ret_env = (struct plm_engine_env){.host = host};
    return PLIM_OK;
}
