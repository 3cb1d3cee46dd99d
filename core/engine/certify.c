// SPDX-License-Identifier: Apache-2.0
// The plan of a start as a certificate for the next one.
#include "core/engine/certify.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/engine/core.h"
#include "core/engine/opts.h"

// What the measures of a start depend on. What only says how much room there is (limits, other
// processes, the size of pool and prefix cache) is no part of it: with that, every start plans
// anew.
static void make_key(const struct plm_core *core, uint64_t fingerprint, struct plm_cert_key *key)
{
    const struct plm_caps *caps = plm_device_caps(core->rank.device);
    const plim_engine_opts *o = &core->opts;
    char text[64];
    key->n = 0;
    plm_cert_key_text(key, "version", plim_version());
    plm_cert_key_text(key, "build", plim_build_info());
    plm_cert_key_number(key, "model_bytes", (int64_t)plm_gguf_file_bytes(core->gguf));
    snprintf(text, sizeof(text), "%016" PRIx64, fingerprint);
    plm_cert_key_text(key, "model_header", text);
    plm_cert_key_text(key, "device", core->rank.device_id);
    plm_cert_key_text(key, "device_name", caps->name);
    plm_cert_key_text(key, "device_uuid", caps->uuid);
    plm_cert_key_text(key, "device_class", caps->device_class);
    plm_cert_key_text(key, "driver", caps->driver);
    plm_cert_key_text(key, "isa", caps->isa);
    plm_cert_key_number(key, "workers", caps->workers);
    plm_cert_key_number(key, "commit", caps->commit);
    plm_cert_key_number(key, "unified", caps->unified);
    plm_cert_key_number(key, "granularity", (int64_t)caps->granularity_bytes);
    plm_cert_key_number(key, "context_bytes", (int64_t)caps->context_bytes);
    plm_cert_key_number(key, "withheld", (int64_t)caps->unavailable_bytes);
    plm_cert_key_number(key, "max_slab_bytes", (int64_t)caps->max_slab_bytes);
    plm_cert_key_number(key, "max_slabs", caps->max_slabs);
    plm_cert_key_number(key, "ctx_size", o->ctx_size);
    plm_cert_key_number(key, "batch_max_tokens", o->batch_max_tokens);
    plm_cert_key_number(key, "max_sequences", o->max_sequences);
    plm_cert_key_number(key, "prove_full", o->prove_full);
    // The stress of a pinned size has no cold pass: it measures something else.
    plm_cert_key_number(key, "pinned", o->max_total_tokens != 0);
    plm_cert_key_number(key, "reference_kernels", o->reference_kernels);
    plm_cert_key_number(key, "float_activations", o->float_activations);
    plm_cert_key_text(key, "kv_type", plm_kv_type_name(plm_opts_kv_type(o)));
}

bool plm_core_certified(struct plm_core *core, struct plm_profile *ret)
{
    const struct plm_slice text = {core->opts.certificate, core->opts.certificate_len};
    struct plm_error why = {0};
    uint64_t fingerprint;
    int r = plm_gguf_fingerprint(core->gguf, &fingerprint, &why);
    if (r != PLM_OK) {
        // Without it nothing can be compared, neither now nor later.
        plm_logf(&core->log, PLM_LOG_WARN, "the model has no fingerprint: %s", why.msg);
        return false;
    }
    make_key(core, fingerprint, &core->key);
    if (text.ptr == NULL || text.len == 0)
        return false;
    r = plm_cert_read(core->host, text, &core->key, ret, &why);
    if (r != PLM_OK)
        plm_logf(&core->log, PLM_LOG_WARN, "the certificate is not used, the plan is made anew: %s",
                 why.msg);
    return r == PLM_OK;
}
