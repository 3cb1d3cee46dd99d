// SPDX-License-Identifier: Apache-2.0
// The rest of the pretended engine: what the subcommands beside serve call. Linked together with
// fake_engine.c. A model path steers it: "missing" does not exist, "small" does not fit.
#include <stdio.h>
#include <string.h>

#include "core/plimsoll.h"

struct plim_plan {
    int unused;
};

static plim_plan the_plan;

static int give(const char *text, char *out, size_t cap, size_t *need)
{
    *need = strlen(text);
    if (cap > 0)
        snprintf(out, cap, "%s", text);
    return *need > cap ? PLIM_ERR_LIMIT : PLIM_OK;
}

static int fail(plim_error *err, int status, const char *message)
{
    *err = (plim_error)PLIM_INIT(plim_error);
    err->status = status;
    snprintf(err->message, sizeof(err->message), "%s", message);
    return status;
}

int plim_device_list_sized(plim_device_info *out, size_t element_bytes, size_t cap, size_t *n)
{
    (void)element_bytes; // built with the same header
    *n = 1;
    if (cap > 0)
        out[0] = (plim_device_info){.id = "cpu", .name = "pretended", .total_bytes = 1 << 30};
    return PLIM_OK;
}

int plim_device_missing(char *out, size_t cap, size_t *need)
{
    return give("abacus: no beads\n", out, cap, need);
}

int plim_plan_create(const plim_engine_opts *opts, plim_plan **ret, plim_error *err)
{
    static const char *const stages[] = {"load", "probe", "stress", "resize", "validate", "ready"};
    if (strcmp(opts->model_path, "missing") == 0)
        return fail(err, PLIM_ERR_NOT_FOUND, "missing: no such file");
    for (size_t i = 0; i < 6 && opts->progress != NULL; i++) {
        opts->progress(opts->progress_ctx, &(plim_progress){stages[i], 0, 2});
        opts->progress(opts->progress_ctx, &(plim_progress){stages[i], 2, 2});
    }
    if (strcmp(opts->model_path, "small") == 0)
        return fail(err, PLIM_ERR_OUT_OF_DEVICE, "the limit is too small; max_sequences 1 works");
    *ret = &the_plan;
    return PLIM_OK;
}

int plim_plan_dry(const plim_engine_opts *opts, uint64_t device_bytes, plim_plan **ret,
                  plim_error *err)
{
    if (strcmp(opts->model_path, "missing") == 0)
        return fail(err, PLIM_ERR_NOT_FOUND, "missing: no such file");
    if (device_bytes < 1 << 20)
        return fail(err, PLIM_ERR_OUT_OF_DEVICE, "the device is too small");
    *ret = &the_plan;
    return PLIM_OK;
}

int plim_plan_diff(const char *a, size_t a_len, const char *b, size_t b_len, char *out, size_t cap,
                   size_t *need, plim_error *err)
{
    if (a_len == 0 || b_len == 0 || *a != '{' || *b != '{')
        return fail(err, PLIM_ERR_FORMAT, "not a plan");
    return give("plan.line  1 -> 2\n", out, cap, need);
}

int plim_explain(const plim_engine_opts *opts, double bytes_per_second, bool json, char *out,
                 size_t cap, size_t *need, plim_error *err)
{
    char text[64];
    if (strcmp(opts->model_path, "missing") == 0)
        return fail(err, PLIM_ERR_NOT_FOUND, "missing: no such file");
    snprintf(text, sizeof(text), json ? "{\"bytes_per_second\":%.0f}\n" : "%.0f bytes/s\n",
             bytes_per_second);
    return give(text, out, cap, need);
}

void plim_plan_free(plim_plan *plan)
{
    (void)plan;
}

int plim_plan_json(const plim_plan *plan, char *out, size_t cap, size_t *need)
{
    (void)plan;
    return give("{\"object\":\"plan\"}", out, cap, need);
}

int plim_plan_table(const plim_plan *plan, char *out, size_t cap, size_t *need)
{
    (void)plan;
    return give("room  1 GiB\nline  1 GiB\n", out, cap, need);
}

int plim_inspect(const char *path, bool json, char *out, size_t cap, size_t *need, plim_error *err)
{
    if (strcmp(path, "missing") == 0)
        return fail(err, PLIM_ERR_NOT_FOUND, "missing: no such file");
    return give(json ? "{\"keys\":{}}" : "keys: none", out, cap, need);
}
