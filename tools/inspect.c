// SPDX-License-Identifier: Apache-2.0
// plimsoll inspect: what a model file says of itself, and whether it can be loaded.
#include <stdio.h>
#include <stdlib.h>

#include "tools/cmd.h"
#include "tools/files.h"
#include "tools/opts.h"
#include "tools/term.h"

struct flags {
    const char *model;
    bool json;
};

static const struct plm_opt table[] = {
    PLM_OPT("-m, --model", "FILE", "the file, for those used to -m", PLM_OPT_STRING,
            offsetof(struct flags, model)),
    PLM_OPT("--json", NULL, "as JSON", PLM_OPT_FLAG, offsetof(struct flags, json)),
    PLM_OPT_END,
};

static int inspect(const char *path, bool json)
{
    plim_error err = PLIM_INIT(plim_error);
    size_t need = 0;
    int r = plim_inspect(path, json, NULL, 0, &need, &err);
    char *text = NULL;
    // Without room it says how much it needs: LIMIT.
    if (r == PLIM_OK || (r == PLIM_ERR_LIMIT && need > 0)) {
        text = malloc(need + 1);
        r = text != NULL ? plim_inspect(path, json, text, need + 1, &need, &err)
                         : PLIM_ERR_NOMEM_HOST;
    }
    if (r == PLIM_OK) {
        fwrite(text, 1, need, stdout);
        if (need > 0 && text[need - 1] != '\n')
            putchar('\n');
    } else {
        plm_term_error("inspect", r, &err);
    }
    free(text);
    return r == PLIM_OK && plm_stdout_finish("inspect") ? 0 : 1;
}

int plim_cmd_inspect(int argc, char **argv)
{
    struct flags flags = {0};
    const struct plm_opt_group group = {"options", table, &flags};
    const struct plm_opt_command cmd = {
        .name = "inspect",
        .operands = "FILE",
        .summary = "Prints the keys and tensors of a model file, and whether it can be "
                   "loaded\nhere and why "
                   "not; reads its header only.",
        .groups = &group,
        .n_groups = 1,
        .max_operands = 1,
    };
    const char *operand = NULL;
    size_t n = 0;
    enum plm_opts_result parsed = plm_opts_parse(&cmd, argc, argv, &operand, &n);
    if (parsed != PLM_OPTS_OK)
        return parsed == PLM_OPTS_EXIT ? 0 : 2;
    if ((n == 1) == (flags.model != NULL)) {
        fprintf(stderr, "plimsoll inspect: name one file\n");
        return 2;
    }
    return inspect(n == 1 ? operand : flags.model, flags.json);
}
