// SPDX-License-Identifier: Apache-2.0
// plimsoll plan: what a start would plan, without serving: measured on the device, or dry, for a
// device that is not there.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cmd.h"
#include "tools/files.h"
#include "tools/opts.h"
#ifdef PLM_SERVER
#include "tools/serve/connections.h"
#endif
#include "tools/term.h"

struct flags {
    const char *plan_out;
    uint64_t device_memory;
    uint32_t max_connections; // 0: as many as serve takes unless told
    bool json;
    bool diff;
};

static const struct plm_opt table[] = {
    PLM_OPT("--json", NULL, "print the plan as JSON instead of a table", PLM_OPT_FLAG,
            offsetof(struct flags, json)),
    PLM_OPT_IN("--device-memory", "BYTES",
               "plan without the device, as if it had so much memory: reads the\nmodel's header "
               "alone; --device is cpu, cuda, hip or vulkan then",
               PLM_OPT_BYTES, offsetof(struct flags, device_memory), 1, 9e15),
    PLM_OPT("--diff", NULL,
            "compare two plans (--json, --plan-out) or two proved plans of\nthe plan cache: "
            "plimsoll plan --diff FILE FILE",
            PLM_OPT_FLAG, offsetof(struct flags, diff)),
    PLM_OPT("--plan-out", "FILE", "also write the plan as JSON to a file", PLM_OPT_STRING,
            offsetof(struct flags, plan_out)),
#ifdef PLM_SERVER
    PLM_OPT_IN("--max-connections", "N",
               "connections that serve is to have room for (default: as there)", PLM_OPT_U32,
               offsetof(struct flags, max_connections), 1, PLM_CONNECTIONS_MAX),
#endif
    PLM_OPT_END,
};

typedef int plan_text(const plim_plan *plan, char *out, size_t cap, size_t *need);

// The text of a plan with a line feed at its end; freed by the caller. NULL: a message was printed.
static char *text_of(const plim_plan *plan, plan_text *get, size_t *ret_len)
{
    size_t need = 0;
    int r = get(plan, NULL, 0, &need);
    if (r == PLIM_OK || r == PLIM_ERR_LIMIT) {
        char *text = malloc(need + 2);
        r = text != NULL ? get(plan, text, need + 1, &need) : PLIM_ERR_NOMEM_HOST;
        if (r == PLIM_OK) {
            if (need == 0 || text[need - 1] != '\n')
                text[need++] = '\n';
            *ret_len = need;
            return text;
        }
        free(text);
    }
    fprintf(stderr, "plimsoll plan: %s\n", plim_strstatus(r));
    return NULL;
}

static bool show(const plim_plan *plan, const struct flags *flags)
{
    size_t json_len, len;
    char *json = text_of(plan, plim_plan_json, &json_len);
    if (json == NULL)
        return false;
    bool ok = flags->plan_out == NULL || plm_file_write("plan", flags->plan_out, json, json_len);
    char *table_text = flags->json ? NULL : text_of(plan, plim_plan_table, &len);
    if (flags->json)
        fwrite(json, 1, json_len, stdout);
    else if (table_text != NULL)
        fwrite(table_text, 1, len, stdout);
    ok = ok && (flags->json || table_text != NULL);
    free(table_text);
    free(json);
    return plm_stdout_finish("plan") && ok;
}

// Whether a plan for this device needs no backend.
static bool is_dry(const char *device)
{
    static const char *const names[] = {"cuda", "hip", "vulkan"};
    for (size_t i = 0; device != NULL && i < sizeof(names) / sizeof(names[0]); i++) {
        const size_t n = strlen(names[i]);
        if (strncmp(device, names[i], n) == 0 && (device[n] == '\0' || device[n] == ':'))
            return true;
    }
    return false;
}

// What serve will hold beside the engine belongs to what a start plans.
static void add_connections(plim_engine_opts *opts, const struct flags *flags)
{
#ifdef PLM_SERVER
    plm_connections_plan(opts, flags->max_connections > 0
                                   ? flags->max_connections
                                   : plm_connections_by_budget(opts->host_limit_bytes));
#else
    (void)opts;
    (void)flags;
#endif
}

static int make(struct plm_engine_flags *engine_flags, const struct flags *flags)
{
    plim_error err = PLIM_INIT(plim_error);
    plim_plan *plan = NULL;
    plm_term_attach(&engine_flags->opts, engine_flags->verbose);
    add_connections(&engine_flags->opts, flags);
    int r = flags->device_memory > 0
                ? plim_plan_dry(&engine_flags->opts, flags->device_memory, &plan, &err)
                : plim_plan_create(&engine_flags->opts, &plan, &err);
    plm_term_progress_end();
    if (r != PLIM_OK)
        plm_term_error("plan", r, &err);
    if (r == PLIM_ERR_NOT_FOUND && flags->device_memory == 0 && is_dry(engine_flags->opts.device))
        fprintf(stderr,
                "plimsoll plan: --device-memory BYTES plans for a device that is not there\n");
    bool ok = r == PLIM_OK && show(plan, flags);
    plim_plan_free(plan);
    return ok ? 0 : 1;
}

// A plan or certificate is some KiB.
#define DIFF_MAX_BYTES (1024 * 1024)

struct text {
    char *data;
    size_t len;
};

static bool show_diff(const struct text *a, const struct text *b)
{
    plim_error err = PLIM_INIT(plim_error);
    size_t need = 0;
    char *out = NULL;
    int r = plim_plan_diff(a->data, a->len, b->data, b->len, NULL, 0, &need, &err);
    if (r == PLIM_OK || r == PLIM_ERR_LIMIT) {
        out = malloc(need + 1);
        r = out != NULL
                ? plim_plan_diff(a->data, a->len, b->data, b->len, out, need + 1, &need, &err)
                : PLIM_ERR_NOMEM_HOST;
    }
    if (r == PLIM_OK)
        fwrite(out, 1, need, stdout);
    else
        plm_term_error("plan", r, &err);
    free(out);
    return plm_stdout_finish("plan") && r == PLIM_OK;
}

static int diff(const char *const *paths, size_t n)
{
    if (n != 2) {
        fprintf(stderr, "plimsoll plan: --diff compares two files, not %zu\n", n);
        return 2;
    }
    struct text texts[2] = {{NULL, 0}, {NULL, 0}};
    bool ok = true;
    for (size_t i = 0; i < 2 && ok; i++) {
        texts[i].data = plm_file_read("plan", paths[i], NULL, DIFF_MAX_BYTES, &texts[i].len);
        ok = texts[i].data != NULL;
    }
    ok = ok && show_diff(&texts[0], &texts[1]);
    free(texts[0].data);
    free(texts[1].data);
    return ok ? 0 : 1;
}

int plim_cmd_plan(int argc, char **argv)
{
    const char *paths[2];
    size_t n_paths = 0;
    struct plm_engine_flags engine_flags;
    struct flags flags = {0};
    plm_engine_flags_init(&engine_flags);
    const struct plm_opt_group groups[] = {
        {"output", table, &flags}, plm_engine_flags_group(&engine_flags), plm_noted_flags_group()};
    const struct plm_opt_command cmd = {
        .name = "plan",
        .operands = "[FILE [FILE]]",
        .max_operands = 2,
        .summary = "Loads, measures and sizes as serve does, prints the plan and ends; with\n"
                   "--device-memory plans from the model's header, without the device.",
        .groups = groups,
        .n_groups = 3,
    };
    enum plm_opts_result parsed = plm_opts_parse(&cmd, argc, argv, paths, &n_paths);
    if (parsed != PLM_OPTS_OK)
        return parsed == PLM_OPTS_EXIT ? 0 : 2;
    if (flags.diff)
        return diff(paths, n_paths);
    if (n_paths > 1) {
        fprintf(stderr, "plimsoll plan: %s: two files are compared with --diff\n", paths[1]);
        return 2;
    }
    if (!plm_engine_flags_operand(&engine_flags, "plan", n_paths == 1 ? paths[0] : NULL))
        return 2;
    int status = 2;
    if (flags.plan_out != NULL && !plm_file_writable("plan", flags.plan_out)) {
        plm_engine_flags_finish(&engine_flags);
        return 1;
    }
    if (plm_engine_flags_apply(&engine_flags, "plan"))
        status = plm_engine_flags_fetch(&engine_flags, "plan");
    if (status == 0)
        status = make(&engine_flags, &flags);
    plm_engine_flags_finish(&engine_flags);
    return status;
}
