// SPDX-License-Identifier: Apache-2.0
// Any keys and tensors as a model: what is accepted must hang together. Weights lie within their
// tensors, a step's launches can be counted on every kind of device, and none has more of them than
// the model said.
#include <stdlib.h>

#include "core/model/arch.h"
#include "core/model/explain.h"
#include "core/plan/dry.h"
#include "tests/fuzz/fuzz.h"

static void must(bool holds)
{
    if (!holds)
        abort();
}

static int within_tensor(void *ctx, struct plm_weight *w)
{
    (void)ctx;
    const bool matrix = plm_weight_is_matrix(w);
    must(w->decl != NULL && w->n_in > 0 && w->n_out > 0);
    must(!matrix || w->tensor != NULL);
    if (w->tensor != NULL)
        must((uint64_t)w->first + (matrix ? w->n_out : w->n_in) <= w->tensor->ne[matrix ? 1 : 0]);
    return PLM_OK;
}

static void count_step(struct plm_host *host, struct plm_model *model, const char *device)
{
    const struct plm_dry_kind *kind = plm_dry_kind(device);
    const uint32_t n = plm_explain_parts(model), most = plm_model_max_dispatches(model);
    struct plm_explain_part *parts = calloc(n, sizeof(*parts));
    struct plm_caps caps;
    struct plm_error err = {0};
    plm_dry_caps(kind, UINT64_C(1) << 50, &caps);
    const struct plm_explain_opts opts = {
        .host = host, .caps = &caps, .layout = plm_dry_layout, .layout_ctx = kind, .context = 1};
    uint64_t dispatches = 0;
    if (parts != NULL && plm_model_explain(model, &opts, parts, &err) == PLM_OK) {
        for (uint32_t i = 0; i < n; i++) {
            for (int op = 0; op < PLM_OPS; op++)
                dispatches += parts[i].ops[op].dispatches;
        }
        must(dispatches > 0 && dispatches <= most);
    }
    free(parts);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct plm_host *host = plm_host_create(0);
    struct plm_gguf *gguf = NULL;
    struct plm_model *model = NULL;
    struct plm_error err = {0};
    const struct plm_model_opts opts = {.kv_type = n % 2 ? PLM_TYPE_Q8_0 : PLM_TYPE_F16};
    if (plm_gguf_open_memory(host, bytes, n, true, &gguf, &err) == PLM_OK &&
        plm_model_create(host, gguf, &opts, &model, &err) == PLM_OK) {
        must(plm_each_weight(model, within_tensor, NULL) == PLM_OK);
        must(model->layers[0].first_of_kind);
        for (uint32_t g = 0; g < model->facts.n_groups; g++)
            must(plm_kv_layer_bytes(&model->facts.groups[g]) % 64 == 0 ||
                 opts.kv_type != PLM_TYPE_Q8_0);
        count_step(host, model, "cpu");
        count_step(host, model, "cuda");
    }
    plm_model_destroy(model);
    plm_gguf_close(gguf);
    must(plm_host_destroy(host) == 0);
    return 0;
}
