// SPDX-License-Identifier: Apache-2.0
// plimsoll rm: removes models from the cache.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/cmd.h"
#include "tools/files.h"
#include "tools/opts.h"
#include "tools/pull/cache.h"
#include "tools/pull/fetch.h"
#include "tools/term.h"

// What is removed is noted first: a folder is not changed while it is walked.
struct found {
    char *full, *name; // name: for people
    char hash[PLM_HUB_HASH_DIGITS + 1];
    bool part; // a part of a file
};

struct removal {
    const struct plm_hub_ref *ref;
    struct plm_cache cache;
    struct found *found;
    size_t n;
    bool failed;
    int64_t freed_bytes;
    // While a blob is looked for in what is left.
    const char *hash;
};

static bool is_meant(const struct removal *r, const struct plm_cache_entry *e)
{
    const char *quant = r->ref->quant;
    if (e->commit == NULL) // which quantisation a part is of, its name does not say
        return quant[0] == '\0';
    return quant[0] == '\0' || plm_hub_has_quant(e->path, quant);
}

static bool note(void *ctx, const struct plm_cache_entry *e)
{
    struct removal *r = ctx;
    if (!is_meant(r, e))
        return true;
    struct found *more = realloc(r->found, (r->n + 1) * sizeof(*more));
    if (more != NULL) {
        r->found = more;
        struct found *f = &more[r->n++];
        *f = (struct found){strdup(e->full), strdup(e->path), "", e->commit == NULL};
        snprintf(f->hash, sizeof(f->hash), "%s", e->hash);
        r->failed = f->full == NULL || f->name == NULL;
    }
    r->failed = r->failed || more == NULL;
    return !r->failed;
}

static bool is_other(void *ctx, const struct plm_cache_entry *e)
{
    const struct removal *r = ctx;
    return e->commit == NULL || strcmp(e->hash, r->hash) != 0; // false: somebody needs it
}

static void remove_file(struct removal *r, const char *path)
{
    struct stat st;
    const bool there = lstat(path, &st) == 0;
    if (unlink(path) == 0)
        r->freed_bytes += there && S_ISREG(st.st_mode) ? st.st_size : 0;
    else if (errno != ENOENT) {
        plm_term_say("plimsoll rm: %s: %s", path, strerror(errno));
        r->failed = true;
    }
}

// Its blob, once no other name leads to it. Parts have none.
static void remove_blob(struct removal *r, const struct found *f)
{
    r->hash = f->hash;
    if (f->part || f->hash[0] == '\0' || !plm_cache_walk(&r->cache, r->ref->repo, is_other, r))
        return;
    char *blob = plm_cache_blob_path(&r->cache, r->ref->repo, f->hash);
    if (blob != NULL)
        remove_file(r, blob);
    r->failed = r->failed || blob == NULL;
    free(blob);
}

// A part that somebody is fetching right now stays. Returns whether it was removed.
static bool remove_part(struct removal *r, const struct found *f)
{
    char *path = plm_cache_lock_path(&r->cache, r->ref->repo, f->hash);
    const int fd = path != NULL ? open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666) : -1;
    const bool held = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0;
    free(path);
    if (held)
        plm_term_say("plimsoll rm: %s is being fetched; it stays", f->name);
    else
        remove_file(r, f->full);
    if (fd >= 0)
        close(fd);
    return !held;
}

static void remove_all(struct removal *r)
{
    for (size_t i = 0; i < r->n; i++) {
        const struct found *f = &r->found[i];
        if (f->part && !remove_part(r, f))
            continue;
        if (!f->part)
            remove_file(r, f->full);
        printf("removed %s %s\n", r->ref->repo, f->part ? "(a part of a file)" : f->name);
    }
    for (size_t i = 0; i < r->n; i++)
        remove_blob(r, &r->found[i]);
    plm_cache_prune(&r->cache, r->ref->repo);
}

static int remove_models(struct removal *r)
{
    plm_cache_walk(&r->cache, r->ref->repo, note, r);
    if (r->failed)
        plm_term_say("plimsoll rm: out of memory");
    else if (r->n == 0)
        plm_term_say("plimsoll rm: the cache has no %s%s%s", r->ref->repo,
                     r->ref->quant[0] != '\0' ? ":" : "", r->ref->quant);
    else
        remove_all(r);
    if (r->n > 0 && !r->failed) {
        char freed[PLM_BYTES_TEXT];
        plm_bytes_text(freed, r->freed_bytes);
        printf("%s are free again\n", freed);
    }
    for (size_t i = 0; i < r->n; i++) {
        free(r->found[i].full);
        free(r->found[i].name);
    }
    free(r->found);
    return plm_stdout_finish("rm") && !r->failed && r->n > 0 ? 0 : 1;
}

static const struct plm_opt table[] = {PLM_OPT_END};

int plim_cmd_rm(int argc, char **argv)
{
    const struct plm_opt_group group = {"options", table, NULL};
    const struct plm_opt_command cmd = {
        .name = "rm",
        .operands = "USER/REPO[:QUANT]",
        .summary = "Removes the GGUF files of a repository from the cache, or those of one\n"
                   "quantisation. Other files that programs keep there stay.",
        .groups = &group,
        .n_groups = 1,
        .max_operands = 1,
    };
    const char *operand = NULL;
    char message[256];
    size_t n = 0;
    struct plm_hub_ref ref;
    const enum plm_opts_result parsed = plm_opts_parse(&cmd, argc, argv, &operand, &n);
    if (parsed != PLM_OPTS_OK)
        return parsed == PLM_OPTS_EXIT ? 0 : 2;
    if (n == 0 || !plm_hub_ref_parse(operand, &ref, message, sizeof(message))) {
        fprintf(stderr, "plimsoll rm: %s\n",
                n == 0 ? "name a model, as plimsoll list prints it: USER/REPO[:QUANT]" : message);
        return 2;
    }
    struct removal removal = {.ref = &ref};
    if (!plm_cache_open(&removal.cache, "rm"))
        return 1;
    const int status = remove_models(&removal);
    plm_cache_finish(&removal.cache);
    return status;
}
