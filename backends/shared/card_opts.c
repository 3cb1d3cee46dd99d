// SPDX-License-Identifier: Apache-2.0
#include "backends/shared/card_opts.h"

#include <string.h>

// ---- the text after "cuda:" ----

void plm_gpu_opts_defaults(struct plm_gpu_opts *ret)
{
    *ret = (struct plm_gpu_opts){.graphs = true, .early = true, .elastic = true};
}

struct gpu_parse {
    const char *backend;
    struct plm_gpu_opts *opts;
};

static int take_gpu_key(void *ctx, struct plm_piece key, struct plm_piece value,
                        struct plm_error *err)
{
    const struct gpu_parse *p = ctx;
    const struct {
        const char *name;
        bool *value;
    } keys[] = {{"graphs", &p->opts->graphs},
                {"early", &p->opts->early},
                {"elastic", &p->opts->elastic},
                {"spill", &p->opts->spill}};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (plm_piece_is(key, keys[i].name))
            return plm_piece_switch(value, p->backend, keys[i].name, "on", "off", keys[i].value,
                                    err);
    }
    return plm_fail(err, PLM_ERR_INVALID,
                    "%s: no option '%.*s'; there are graphs, early, elastic and spill", p->backend,
                    PLM_PIECE_ARGS(key));
}

int plm_gpu_opts_parse(const char *backend, const char *text, struct plm_gpu_opts *ret,
                       struct plm_error *err)
{
    struct plm_gpu_opts opts;
    struct gpu_parse p = {.backend = backend, .opts = &opts};
    plm_gpu_opts_defaults(&opts);
    int rc = plm_which_parse(backend, text, take_gpu_key, &p, &opts.which, err);
    if (rc == PLM_OK)
        *ret = opts;
    return rc;
}

// ---- the text after "vulkan:" ----

void plm_vk_opts_defaults(struct plm_vk_opts *ret)
{
    *ret = (struct plm_vk_opts){.dot = true, .coopmat = true, .host_visible = true};
}

static int take_submit_ms(struct plm_piece value, uint32_t *ret, struct plm_error *err)
{
    if (plm_piece_number(value, 600000, ret))
        return PLM_OK;
    return plm_fail(err, PLM_ERR_INVALID,
                    "vulkan: submit_ms is '%.*s'; it is 0 to 600000 milliseconds",
                    PLM_PIECE_ARGS(value));
}

static int take_cache(struct plm_piece value, struct plm_vk_opts *o, struct plm_error *err)
{
    if (value.n == 0 || value.n >= sizeof(o->cache_path))
        return plm_fail(err, PLM_ERR_INVALID,
                        "vulkan: cache is %zu bytes long; 1 to %zu are allowed", value.n,
                        sizeof(o->cache_path) - 1);
    memcpy(o->cache_path, value.at, value.n);
    o->cache_path[value.n] = '\0';
    return PLM_OK;
}

static int take_vk_key(void *ctx, struct plm_piece key, struct plm_piece value,
                       struct plm_error *err)
{
    struct plm_vk_opts *o = ctx;
    const struct {
        const char *name, *yes, *no;
        bool *value;
    } switches[] = {{"math", "f16", "f32", &o->f16_math},
                    {"dot", "on", "off", &o->dot},
                    {"coopmat", "on", "off", &o->coopmat},
                    {"kernels", "gpu", "auto", &o->gpu_kernels},
                    {"host_visible", "on", "off", &o->host_visible}};
    for (size_t i = 0; i < sizeof(switches) / sizeof(switches[0]); i++) {
        if (plm_piece_is(key, switches[i].name))
            return plm_piece_switch(value, "vulkan", switches[i].name, switches[i].yes,
                                    switches[i].no, switches[i].value, err);
    }
    if (plm_piece_is(key, "submit_ms"))
        return take_submit_ms(value, &o->submit_ms, err);
    if (plm_piece_is(key, "cache"))
        return take_cache(value, o, err);
    return plm_fail(err, PLM_ERR_INVALID,
                    "vulkan: no option '%.*s'; there are math, dot, coopmat, kernels, "
                    "host_visible, submit_ms and cache",
                    PLM_PIECE_ARGS(key));
}

int plm_vk_opts_parse(const char *text, struct plm_vk_opts *ret, struct plm_error *err)
{
    struct plm_vk_opts opts;
    plm_vk_opts_defaults(&opts);
    int rc = plm_which_parse("vulkan", text, take_vk_key, &opts, &opts.which, err);
    if (rc == PLM_OK)
        *ret = opts;
    return rc;
}
