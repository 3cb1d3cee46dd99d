// SPDX-License-Identifier: Apache-2.0
// The options that every command which starts an engine shares.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/files.h"
#include "tools/opts.h"
#include "tools/pull/models.h"
#include "tools/term.h"

#define IN_OPTS(field)  offsetof(struct plm_engine_flags, opts.field)
#define IN_FLAGS(field) offsetof(struct plm_engine_flags, field)

// Upper ends: a context, batch or thread count above these is a typing mistake, and products of
// them still fit the 64-bit arithmetic of the plan.
#define CTX_MAX     16777216
#define BATCH_MAX   65536
#define SEQS_MAX    4096
#define THREADS_MAX 1024

// By enum plim_kv_type.
#define KV_TYPES "f16|q8_0"

static const struct plm_opt engine_table[] = {
    PLM_OPT("-m, --model", "FILE", "model file (GGUF)", PLM_OPT_STRING, IN_OPTS(model_path)),
    PLM_OPT("-hf, -hfr, --hf-repo", "USER/REPO[:QUANT]",
            "model of a hub: what the cache has, else fetched into it\n(plimsoll pull). Without "
            "QUANT: " PLM_HUB_RULE,
            PLM_OPT_STRING, IN_FLAGS(hf_repo)),
    PLM_OPT("-hff, --hf-file", "PATH", "the file of that repository, whatever its name says",
            PLM_OPT_STRING, IN_FLAGS(hf_file)),
    PLM_OPT("-dev, --device", "ID",
            "device to run on (default cpu; see plimsoll devices);\n"
            "vulkan:WHICH,KEY=VALUE,... takes an index, part of a name or\n"
            "a UUID, and math=f32|f16, dot=on|off, coopmat=on|off,\n"
            "kernels=auto|gpu, host_visible=on|off, submit_ms=N, cache=FILE;\n"
            "cuda:WHICH,... and hip:WHICH,... take graphs=on|off,\n"
            "early=on|off, elastic=on|off, spill=on|off",
            PLM_OPT_STRING, IN_OPTS(device)),
    PLM_OPT_IN("-t, --threads", "N", "CPU threads (default: one per usable core)", PLM_OPT_U32,
               IN_OPTS(threads), 1, THREADS_MAX),
    PLM_OPT_IN("-c, --ctx-size, --max-model-len", "N",
               "context of each request in tokens; never divided by -np,\nlowered with a warning "
               "where memory is short\n(default 0: as trained, on the CPU at most 8192)",
               PLM_OPT_U32, IN_OPTS(ctx_size), 0, CTX_MAX),
    PLM_OPT_IN("-b, --batch-size, --max-num-batched-tokens", "N",
               "tokens of one step (default 512)", PLM_OPT_U32, IN_OPTS(batch_max_tokens), 1,
               BATCH_MAX),
    PLM_OPT_IN("-np, --parallel, --max-num-seqs", "N", "sequences of one step (default 8)",
               PLM_OPT_U32, IN_OPTS(max_sequences), 1, SEQS_MAX),
    PLM_OPT_IN("--prefill-chunk", "N", "tokens of one prompt per step (default: as -b)",
               PLM_OPT_U32, IN_OPTS(prefill_chunk), 1, BATCH_MAX),
    PLM_OPT_IN("--memory-limit", "BYTES",
               "use at most so much of the device (default: all that is free)", PLM_OPT_BYTES,
               IN_OPTS(memory_limit_bytes), 1, 9e15),
    PLM_OPT_IN("--host-limit", "BYTES",
               "budget of host memory (default: 1/16 of what there is,\nwithin 64 to 256 MiB)",
               PLM_OPT_BYTES, IN_OPTS(host_limit_bytes), 1, 9e15),
    PLM_OPT_ABOVE("--memory-fraction, --gpu-memory-utilization", "F",
                  "part of the measured budget for the KV cache (default 1.0)", PLM_OPT_DOUBLE,
                  IN_OPTS(memory_fraction), 0, 1),
    PLM_OPT_IN("--max-total-tokens", "N",
               "pin the size of the KV cache instead of measuring it\n(on the CPU it is by default "
               "at most a quarter of what is free)",
               PLM_OPT_U64, IN_OPTS(max_total_tokens), 1, 1e12),
    PLM_OPT_ONE_OF("--kv-type, --kv-cache-dtype", "TYPE",
                   "what the KV cache holds (default f16); q8_0 takes 17/32 of\nits bytes, with "
                   "heads of a multiple of 32 elements",
                   IN_FLAGS(kv_type), KV_TYPES),
    PLM_OPT_ONE_OF("-ctk, --cache-type-k", "TYPE", "the same for K; -ctv must say the same",
                   IN_FLAGS(kv_type_k), KV_TYPES),
    PLM_OPT_ONE_OF("-ctv, --cache-type-v", "TYPE", "the same for V", IN_FLAGS(kv_type_v), KV_TYPES),
    PLM_OPT_ONE_OF("--prove", "HOW",
                   "how much the start runs to prove the plan: a few layers,\nor the whole model "
                   "(default quick)",
                   IN_FLAGS(prove), "quick|full"),
    PLM_OPT("--prefix-cache", "on|off", "reuse the KV of equal prompt beginnings (default on)",
            PLM_OPT_ONOFF, IN_OPTS(prefix_cache)),
    PLM_OPT_IN("--queue-max", "N", "requests that may wait (default 256)", PLM_OPT_U32,
               IN_OPTS(queue_max), 1, 1000000),
    PLM_OPT_IN("--queue-timeout", "S",
               "longest wait for admission in seconds; 0: for ever\n(default 600; 50 behind a "
               "proxy that cuts connections silent\nfor 60: headers go out at admission)",
               PLM_OPT_DOUBLE, IN_FLAGS(queue_timeout_s), 0, 4000000),
    PLM_OPT_IN("--queue-max-tokens", "N", "prompt tokens that may wait in all (default: no limit)",
               PLM_OPT_U64, IN_OPTS(queue_max_tokens), 1, 1e12),
    PLM_OPT_ONE_OF(
        "--neighbours", "HOW",
        "when others take memory of the device: keep what the plan\nholds, or give KV "
        "blocks back and take them again later\n(default auto: hold where nobody can take "
        "what is held)",
        IN_OPTS(neighbours), "auto|hold|yield"),
    PLM_OPT_IN("--kv-min", "BYTES",
               "of the KV cache, what is never given back\n(default: one request of the whole "
               "context)",
               PLM_OPT_BYTES, IN_OPTS(kv_min_bytes), 1, 9e15),
    PLM_OPT_IN("--monitor-ms", "MS",
               "time between looks at the device's memory; 0: never\n(default 1000)", PLM_OPT_U32,
               IN_OPTS(monitor_ms), 0, 3600000),
    PLM_OPT_IN(
        "--watchdog-ms", "MS",
        "a step that takes longer counts as hung; 0: none does\n(default 0). A step of the "
        "start may take ten times as long,\nby default ten minutes, with --prove full an hour",
        PLM_OPT_U32, IN_OPTS(watchdog_ms), 0, 86400000),
    PLM_OPT("--autotune", "on|off", "time kernel variants at the start (default on)", PLM_OPT_ONOFF,
            IN_OPTS(autotune)),
    PLM_OPT("--incident-dir", "FOLDER",
            "write what led to refusal streaks, lost devices and audit\nexcesses as world files "
            "into this folder, which must exist",
            PLM_OPT_STRING, IN_FLAGS(incidents.folder)),
    PLM_OPT("--chat-template", "TEXT", "chat template instead of the model's", PLM_OPT_STRING,
            IN_OPTS(chat_template)),
    PLM_OPT("--chat-template-file", "FILE", "the same from a file", PLM_OPT_STRING,
            IN_FLAGS(chat_template_file)),
    PLM_OPT("-v, --verbose", NULL, "log more", PLM_OPT_FLAG, IN_FLAGS(verbose)),
    PLM_OPT_END,
};

// Flags of llama-server's command lines that ask for what is so, or is decided, in any case.
static const struct plm_opt noted_table[] = {
    PLM_OPT_NOTE("-ngl, --gpu-layers, --n-gpu-layers", "N",
                 "--device says where a model runs, and all of it runs there"),
    PLM_OPT_NOTE("-fa, --flash-attn", "[on|off|auto]", "attention never makes a full matrix"),
    PLM_OPT_NOTE("--jinja, --no-jinja", NULL, "chat templates are always rendered as they stand"),
    PLM_OPT_NOTE("--mlock", NULL, "weights are read into memory of the plan at the start"),
    PLM_OPT_NOTE("--mmap, --no-mmap", NULL, "weights are never mapped from the file"),
    PLM_OPT_NOTE("-ub, --ubatch-size", "N", "a step is one piece; -b says its tokens"),
    PLM_OPT_NOTE("-cb, --cont-batching, -nocb, --no-cont-batching", NULL,
                 "requests always join and leave between steps"),
    PLM_OPT_NOTE("--no-warmup, --warmup", NULL, "the start always runs the worst steps"),
    PLM_OPT_NOTE("-tb, --threads-batch", "N", "-t holds for prompts, too"),
    PLM_OPT_NOTE("-sm, --split-mode", "HOW", "a model runs on one device"),
    PLM_OPT_NOTE("-mg, --main-gpu", "N", "--device chooses the card"),
    PLM_OPT_NOTE("-fit, --fit", "[on|off]", "the plan always fits what is there"),
    PLM_OPT_NOTE("--metrics, --no-slots, --no-webui, --no-ui", NULL,
                 "/metrics is always there; slots and pages are not"),
    PLM_OPT_NOTE("--cache-reuse, --cache-ram", "N",
                 "the prefix cache keeps whole blocks in what the plan gives"),
    PLM_OPT_NOTE("--log-colors", "[on|off|auto]", "logs have no colours"),
    PLM_OPT_NOTE("--log-disable, --log-timestamps, --log-prefix", NULL,
                 "-v says how much is logged"),
    PLM_OPT_END,
};

void plm_engine_flags_init(struct plm_engine_flags *flags)
{
    memset(flags, 0, sizeof(*flags));
    plim_engine_opts_init(&flags->opts);
    flags->queue_timeout_s = flags->opts.queue_timeout_ms / 1000.0;
    flags->prove = flags->opts.prove_full;
    flags->kv_type = flags->kv_type_k = flags->kv_type_v = PLM_KV_TYPE_NOT_SAID;
}

struct plm_opt_group plm_engine_flags_group(struct plm_engine_flags *flags)
{
    return (struct plm_opt_group){PLM_ENGINE_FLAGS_TITLE, engine_table, flags};
}

struct plm_opt_group plm_noted_flags_group(void)
{
    return (struct plm_opt_group){PLM_NOTED_FLAGS_TITLE, noted_table, NULL};
}

bool plm_engine_flags_operand(struct plm_engine_flags *flags, const char *command, const char *file)
{
    if (file == NULL)
        return true;
    if (flags->opts.model_path != NULL) {
        plm_term_say("plimsoll %s: unexpected argument \"%s\" beside -m %s", command, file,
                     flags->opts.model_path);
        return false;
    }
    flags->opts.model_path = file;
    return true;
}

// Templates are a few KiB; the largest known one is 21 KiB.
#define TEMPLATE_MAX_BYTES (1024 * 1024)

static bool names_a_model(const struct plm_engine_flags *flags, const char *command)
{
    const char *path = flags->opts.model_path;
    if (flags->hf_repo == NULL && flags->hf_file != NULL) {
        plm_term_say("plimsoll %s: -hff names a file of the repository of -hf", command);
        return false;
    }
    if (flags->hf_repo != NULL && path != NULL) {
        plm_term_say("plimsoll %s: two models: %s and -hf %s", command, path, flags->hf_repo);
        return false;
    }
    if (flags->hf_repo != NULL || (path != NULL && path[0] != '\0'))
        return true;
    plm_term_say("plimsoll %s: no model; name its file, as in plimsoll %s FILE", command, command);
    return false;
}

// K and V have one type, however it is said.
static bool apply_kv_type(struct plm_engine_flags *flags, const char *command)
{
    static const char *const names[] = {"f16", "q8_0"};
    const bool said = flags->kv_type != PLM_KV_TYPE_NOT_SAID;
    const uint32_t other = said ? flags->kv_type : flags->opts.kv_type;
    const uint32_t k = flags->kv_type_k != PLM_KV_TYPE_NOT_SAID ? flags->kv_type_k : other;
    const uint32_t v = flags->kv_type_v != PLM_KV_TYPE_NOT_SAID ? flags->kv_type_v : other;
    if (k != v || (said && k != other)) {
        plm_term_say("plimsoll %s: K in %s (-ctk) and V in %s (-ctv)%s%s: the KV cache has one "
                     "type, which --kv-type says",
                     command, names[k], names[v], said ? " with --kv-type " : "",
                     said ? names[other] : "");
        return false;
    }
    flags->opts.kv_type = k;
    return true;
}

bool plm_engine_flags_apply(struct plm_engine_flags *flags, const char *command)
{
    if (!names_a_model(flags, command) || !apply_kv_type(flags, command))
        return false;
    if (flags->chat_template_file != NULL) {
        if (flags->opts.chat_template != NULL) {
            plm_term_say("plimsoll %s: give --chat-template or --chat-template-file, not both",
                         command);
            return false;
        }
        size_t len;
        flags->template_text =
            plm_file_read(command, flags->chat_template_file, NULL, TEMPLATE_MAX_BYTES, &len);
        if (flags->template_text == NULL)
            return false;
        flags->opts.chat_template = flags->template_text;
    }
    if (flags->incidents.folder != NULL) {
        if (!plm_incident_check(command, flags->incidents.folder))
            return false;
        flags->opts.incident = plm_incident_write;
        flags->opts.incident_ctx = &flags->incidents;
    }
    flags->opts.prove_full = flags->prove;
    flags->opts.queue_timeout_ms = (uint32_t)(flags->queue_timeout_s * 1000.0);
    if (flags->verbose)
        flags->opts.log_level = PLIM_LOG_DEBUG;
    return true;
}

int plm_engine_flags_fetch(struct plm_engine_flags *flags, const char *command)
{
    if (flags->hf_repo == NULL)
        return 0;
    const struct plm_model_source source = {.command = command,
                                            .what = flags->hf_repo,
                                            .file = flags->hf_file,
                                            .timeout_s = PLM_FETCH_TIMEOUT_S};
    const int status = plm_model_of_hub(&source, &flags->model_path);
    flags->opts.model_path = flags->model_path;
    return status;
}

void plm_engine_flags_finish(struct plm_engine_flags *flags)
{
    free(flags->template_text);
    free(flags->model_path);
    flags->template_text = flags->model_path = NULL;
}
