// SPDX-License-Identifier: Apache-2.0
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "backends/vulkan/impl.h"

// ---- the text after "vulkan:" ----

void plm_vk_opts_defaults(struct plm_vk_opts *ret)
{
    *ret = (struct plm_vk_opts){.dot = true, .coopmat = true, .host_visible = true};
}

static int take_number(struct plm_piece value, uint32_t *ret, struct plm_error *err)
{
    if (plm_piece_number(value, 600000, ret))
        return PLM_OK;
    return plm_fail(err, PLM_ERR_INVALID,
                    "vulkan: submit_ms is '%.*s'; it is 0 to 600000 milliseconds",
                    PLM_PIECE_ARGS(value));
}

static int take_path(struct plm_piece value, struct plm_vk_opts *o, struct plm_error *err)
{
    if (value.n == 0 || value.n >= sizeof(o->cache_path))
        return plm_fail(err, PLM_ERR_INVALID,
                        "vulkan: cache is %zu bytes long; 1 to %zu are allowed", value.n,
                        sizeof(o->cache_path) - 1);
    memcpy(o->cache_path, value.at, value.n);
    o->cache_path[value.n] = '\0';
    return PLM_OK;
}

static int take_key(void *ctx, struct plm_piece key, struct plm_piece value, struct plm_error *err)
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
        return take_number(value, &o->submit_ms, err);
    if (plm_piece_is(key, "cache"))
        return take_path(value, o, err);
    return plm_fail(err, PLM_ERR_INVALID,
                    "vulkan: no option '%.*s'; there are math, dot, coopmat, kernels, "
                    "host_visible, submit_ms and cache",
                    PLM_PIECE_ARGS(key));
}

int plm_vk_opts_parse(const char *text, struct plm_vk_opts *ret, struct plm_error *err)
{
    struct plm_vk_opts opts;
    plm_vk_opts_defaults(&opts);
    int rc = plm_which_parse("vulkan", text, take_key, &opts, &opts.which, err);
    if (rc == PLM_OK)
        *ret = opts;
    return rc;
}

// ---- among the devices ----

// What is there instead: "vulkan:0 NAME; NAME, which lacks ..." as far as there is room.
static int fail_none(const struct plm_vk_opts *opts, const struct plm_vk_judged *list, uint32_t n,
                     struct plm_error *err)
{
    char there[PLM_ERROR_MSG_BYTES] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < n && used < sizeof(there); i++) {
        const struct plm_vk_judged *j = &list[i];
        const char *sep = i > 0 ? "; " : "";
        int len = j->missing[0] == '\0'
                      ? snprintf(there + used, sizeof(there) - used, "%svulkan:%" PRIu32 " %s", sep,
                                 i, j->physical.name)
                      : snprintf(there + used, sizeof(there) - used, "%s%s, which lacks %s", sep,
                                 j->physical.name, j->missing);
        used += len > 0 ? (size_t)len : 0;
    }
    char which[80];
    plm_which_text(&opts->which, which);
    return plm_fail(err, PLM_ERR_NOT_FOUND, "vulkan: no usable device '%s'; there is: %s", which,
                    there);
}

int plm_vk_select(const struct plm_vk_opts *opts, const struct plm_vk_judged *list, uint32_t n,
                  uint32_t *ret, struct plm_error *err)
{
    for (uint32_t i = 0; i < n; i++) {
        if (list[i].missing[0] == '\0' &&
            plm_which_matches(&opts->which, i, list[i].physical.name, list[i].physical.uuid)) {
            *ret = i;
            return PLM_OK;
        }
    }
    return fail_none(opts, list, n, err);
}
