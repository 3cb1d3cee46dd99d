// SPDX-License-Identifier: Apache-2.0
// plimsoll list: the models in the cache.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cmd.h"
#include "tools/files.h"
#include "tools/opts.h"
#include "tools/out.h"
#include "tools/pull/cache.h"
#include "tools/pull/fetch.h"

struct flags {
    bool json;
};

static const struct plm_opt table[] = {
    PLM_OPT("--json", NULL, "as JSON", PLM_OPT_FLAG, offsetof(struct flags, json)),
    PLM_OPT_END,
};

struct line {
    char *text; // sorted by it
};

struct lines {
    struct line *lines;
    size_t n;
    bool json, failed;
};

static bool add(void *ctx, const struct plm_cache_entry *e)
{
    struct lines *all = ctx;
    struct plm_out out;
    char size[PLM_BYTES_TEXT];
    struct line *more = realloc(all->lines, (all->n + 1) * sizeof(*more));
    if (more != NULL)
        all->lines = more;
    plm_out_init(&out, NULL);
    plm_bytes_text(size, e->bytes);
    if (all->json) {
        plm_out_str(&out, "{\"repo\":");
        plm_out_json_str(&out, e->repo);
        plm_out_str(&out, e->commit != NULL ? ",\"file\":" : ",\"part_of\":");
        plm_out_json_str(&out, e->commit != NULL ? e->path : e->hash);
        if (e->commit != NULL) {
            plm_out_str(&out, ",\"commit\":");
            plm_out_json_str(&out, e->commit);
        }
        plm_out_printf(&out, ",\"bytes\":%" PRId64 ",\"path\":", e->bytes);
        plm_out_json_str(&out, e->full);
        plm_out_str(&out, "}");
    } else if (e->commit != NULL) {
        plm_out_printf(&out, "%s  %s  %s", e->repo, e->path, size);
    } else {
        plm_out_printf(&out, "%s  %s of a file, which a pull goes on from", e->repo, size);
    }
    plm_out_bytes(&out, "", 1);
    all->failed = more == NULL || out.failed;
    if (!all->failed)
        all->lines[all->n++].text = strdup(out.data);
    all->failed = all->failed || all->lines[all->n - 1].text == NULL;
    plm_out_finish(&out);
    return !all->failed;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(((const struct line *)a)->text, ((const struct line *)b)->text);
}

static void print(const struct lines *all)
{
    if (all->json)
        putchar('[');
    for (size_t i = 0; i < all->n; i++)
        printf("%s%s%s", all->json && i > 0 ? ",\n" : "", all->lines[i].text,
               all->json ? "" : "\n");
    if (all->json)
        puts("]");
}

int plim_cmd_list(int argc, char **argv)
{
    struct flags flags = {0};
    const struct plm_opt_group group = {"options", table, &flags};
    const struct plm_opt_command cmd = {
        .name = "list",
        .summary = "Lists the GGUF files in the cache of models that plimsoll pull and other "
                   "programs\nfetched from a hub.",
        .groups = &group,
        .n_groups = 1,
    };
    const enum plm_opts_result parsed = plm_opts_parse(&cmd, argc, argv, NULL, NULL);
    if (parsed != PLM_OPTS_OK)
        return parsed == PLM_OPTS_EXIT ? 0 : 2;
    struct plm_cache cache;
    if (!plm_cache_open(&cache, "list"))
        return 1;
    struct lines all = {.json = flags.json};
    plm_cache_walk(&cache, NULL, add, &all);
    if (all.n > 1)
        qsort(all.lines, all.n, sizeof(*all.lines), by_text);
    if (all.failed)
        fprintf(stderr, "plimsoll list: out of memory\n");
    else if (all.n == 0 && !flags.json)
        fprintf(stderr, "plimsoll list: there are no models in %s\n", cache.root);
    print(&all);
    for (size_t i = 0; i < all.n; i++)
        free(all.lines[i].text);
    free(all.lines);
    plm_cache_finish(&cache);
    return plm_stdout_finish("list") && !all.failed ? 0 : 1;
}
