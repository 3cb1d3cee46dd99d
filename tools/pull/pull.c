// SPDX-License-Identifier: Apache-2.0
// plimsoll pull: gets a model from a hub or any other server.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cmd.h"
#include "tools/files.h"
#include "tools/pull/models.h"
#include "tools/term.h"

#define IN(field) offsetof(struct plm_model_source, field)

static const struct plm_opt table[] = {
    PLM_OPT("-hff, --hf-file", "PATH", "the file of the repository, whatever its name says",
            PLM_OPT_STRING, IN(file)),
    PLM_OPT("--revision", "REV", "branch, tag or commit of the repository (default main)",
            PLM_OPT_STRING, IN(revision)),
    PLM_OPT("--endpoint", "URL", "the hub (default: $HF_ENDPOINT, else https://huggingface.co)",
            PLM_OPT_STRING, IN(endpoint)),
    PLM_OPT("-o, --output", "PATH",
            "of a URL: the file, or a folder for it (default: this folder);\na hub's models go "
            "into its cache",
            PLM_OPT_STRING, IN(output)),
    PLM_OPT("--sha256", "HEX",
            "what the file must be; once for each part of a split model.\nA hub says it itself",
            PLM_OPT_LIST, IN(hashes)),
    PLM_OPT_IN("--timeout", "S",
               "without a byte for so long a connection counts as dead\n(default 30)",
               PLM_OPT_DOUBLE, IN(timeout_s), 1, 86400),
    PLM_OPT_END,
};

// Hashes are compared as text.
static bool hashes_are_sound(struct plm_model_source *source)
{
    for (size_t i = 0; i < source->hashes.n; i++) {
        char *hash = (char *)source->hashes.items[i]; // argv, which is ours
        for (char *c = hash; *c != '\0'; c++)
            *c = *c >= 'A' && *c <= 'F' ? (char)(*c + 32) : *c;
        if (!plm_hub_is_hash(hash)) {
            fprintf(stderr, "plimsoll pull: --sha256: \"%.80s\" is not 64 hexadecimal digits\n",
                    hash);
            return false;
        }
    }
    return true;
}

static bool flags_are_sound(struct plm_model_source *source, bool is_url)
{
    const char *flag = NULL;
    if (is_url)
        flag = source->file != NULL ? "--hf-file" : source->revision != NULL ? "--revision" : NULL;
    else if (source->output != NULL)
        flag = "-o";
    if (flag != NULL)
        fprintf(stderr, "plimsoll pull: %s is for %s\n", flag,
                is_url ? "a repository of a hub, not a URL" : "a URL, not a repository of a hub");
    return flag == NULL && hashes_are_sound(source);
}

int plim_cmd_pull(int argc, char **argv)
{
    struct plm_model_source source = {
        .command = "pull", .timeout_s = PLM_FETCH_TIMEOUT_S, .newest = true};
    const struct plm_opt_group group = {"options", table, &source};
    const struct plm_opt_command cmd = {
        .name = "pull",
        .operands = "USER/REPO[:QUANT] | URL",
        .summary =
            "Gets a model, whole and proved, or goes on where an earlier pull ended, and prints\n"
            "its path. From a hub it goes into the cache that other programs share, where -hf\n"
            "of serve, run, plan and bench finds it. Without QUANT: " PLM_HUB_RULE ".",
        .groups = &group,
        .n_groups = 1,
        .max_operands = 1,
    };
    size_t n = 0;
    const enum plm_opts_result parsed = plm_opts_parse(&cmd, argc, argv, &source.what, &n);
    if (parsed != PLM_OPTS_OK)
        return parsed == PLM_OPTS_EXIT ? 0 : 2;
    if (n == 0) {
        fprintf(stderr, "plimsoll pull: name a model, as in plimsoll pull USER/REPO:QUANT\n");
        return 2;
    }
    const bool is_url = strstr(source.what, "://") != NULL;
    if (!flags_are_sound(&source, is_url))
        return 2;
    char *path = NULL;
    int status = is_url ? plm_model_of_url(&source, &path) : plm_model_of_hub(&source, &path);
    if (status == 0) {
        puts(path);
        status = plm_stdout_finish("pull") ? 0 : 1;
    }
    free(path);
    return status;
}
