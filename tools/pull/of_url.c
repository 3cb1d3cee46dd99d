// SPDX-License-Identifier: Apache-2.0
// A model from an address: one file, or all parts of a split one, into a folder of the user's.
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/pull/cache.h"
#include "tools/pull/models.h"
#include "tools/term.h"

struct get {
    const struct plm_model_source *source;
    struct plm_hub_access access;
    struct plm_client *client;
    char name[256];  // of the file, or of the first part
    unsigned parts;  // 1: not split
    char *base;      // the address without its query
    const char *end; // the query, or ""
};

__attribute__((format(printf, 2, 3))) static char *text_of(const struct get *get, const char *fmt,
                                                           ...)
{
    char *text = NULL;
    va_list ap;
    va_start(ap, fmt);
    const int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n >= 0)
        return text;
    plm_term_say("plimsoll %s: out of memory", get->source->command);
    return NULL;
}

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

// Where a part goes: its own name in the folder, or the name that the user gave.
static char *target_of(const struct get *get, const char *name)
{
    const char *output = get->source->output;
    if (output == NULL)
        return text_of(get, "%s", name);
    const size_t len = strlen(output);
    if (is_folder(output) || (len > 0 && output[len - 1] == '/'))
        return text_of(get, "%s%s%s", output, output[len - 1] == '/' ? "" : "/", name);
    return text_of(get, "%s", output);
}

// A file that is there already is right where its SHA-256 is the one that was given.
static int judge_there(struct get *get, const char *target, const char *hash)
{
    char found[PLM_HUB_HASH_DIGITS + 1] = "";
    if (hash[0] == '\0') {
        plm_term_say("plimsoll %s: %s is there; remove it, or choose another place with -o",
                     get->source->command, target);
        return 1;
    }
    if (!plm_digest_of_file(get->client, target, found)) {
        plm_term_say("plimsoll %s: %s: %s", get->source->command, target, strerror(errno));
        return plm_stop_is_wanted() ? plm_fetch_exit(PLM_FETCH_STOPPED) : 1;
    }
    if (strcmp(found, hash) != 0) {
        plm_term_say("plimsoll %s: %s is there with the SHA-256 %s, not %s", get->source->command,
                     target, found, hash);
        return 1;
    }
    plm_term_say("%s: it is there, SHA-256 as it should be", target);
    return 0;
}

static int fetch_locked(struct get *get, const char *url, const char *target, const char *part,
                        const char *hash)
{
    char *note = text_of(get, "%s.note", part);
    if (note == NULL)
        return 1;
    struct plm_fetch fetch = {.command = get->source->command,
                              .client = get->client,
                              .url = url,
                              .name = target,
                              .token = plm_hub_token_for(&get->access, get->client, url),
                              .timeout_s = get->source->timeout_s,
                              .part = part,
                              .note = hash[0] == '\0' ? note : NULL,
                              .bytes = -1};
    snprintf(fetch.hash, sizeof(fetch.hash), "%s", hash);
    int status = plm_fetch_exit(plm_fetch_file(&fetch));
    if (status == 0 && rename(part, target) != 0) {
        plm_term_say("plimsoll %s: %s: %s", get->source->command, target, strerror(errno));
        status = 1;
    }
    free(note);
    return status;
}

static int get_file(struct get *get, const char *url, const char *target, const char *hash)
{
    int status = 1;
    if (access(target, F_OK) == 0)
        return judge_there(get, target, hash);
    char *part = text_of(get, "%s.part", target);
    const int lock = part != NULL ? plm_fetch_lock(get->source->command, part, target) : -1;
    if (lock >= 0 && access(target, F_OK) == 0) {
        // Whoever held the lock fetched it, and renamed the part that the lock was on.
        unlink(part);
        plm_term_say("%s: it is there", target);
        status = 0;
    } else if (lock >= 0) {
        status = fetch_locked(get, url, target, part, hash);
    } else if (plm_stop_is_wanted() != 0) {
        status = plm_fetch_exit(PLM_FETCH_STOPPED);
    }
    if (lock >= 0)
        close(lock);
    free(part);
    return status;
}

static int get_part(struct get *get, unsigned part, char **ret_target)
{
    const struct plm_model_source *source = get->source;
    char name[PLM_HUB_PATH_MAX + 1];
    char *base = text_of(get, "%s", get->base);
    snprintf(name, sizeof(name), "%s", get->name);
    if (get->parts > 1 && base != NULL) {
        // Digits and dashes are never escaped, so the address ends as the name does.
        plm_hub_split_name(get->name, part, name);
        const size_t tail = strlen("-00001-of-00001.gguf");
        memcpy(base + strlen(base) - tail, name + strlen(name) - tail, tail);
    }
    char *url = base != NULL ? text_of(get, "%s%s", base, get->end) : NULL;
    char *target = target_of(get, name);
    const char *hash = source->hashes.n > 0 ? source->hashes.items[part - 1] : "";
    const int status = url != NULL && target != NULL ? get_file(get, url, target, hash) : 1;
    free(url);
    free(base);
    if (part == 1 && status == 0)
        *ret_target = target;
    else
        free(target);
    return status;
}

// Reads the address; a split model is named by its first part.
static int read_address(struct get *get)
{
    const struct plm_model_source *source = get->source;
    unsigned part = 1;
    if (!plm_client_file_name(get->client, source->what, get->name, sizeof(get->name))) {
        plm_term_say("plimsoll %s: the address does not end in the name of a file",
                     source->command);
        return 2;
    }
    get->parts = 1;
    if (plm_hub_split_of(get->name, &part, &get->parts) && part != 1) {
        plm_term_say("plimsoll %s: %s is part %u of %u; name the first", source->command, get->name,
                     part, get->parts);
        return 2;
    }
    get->base = strdup(source->what);
    get->end = source->what + strcspn(source->what, "?#");
    if (get->base == NULL)
        return 1;
    get->base[get->end - source->what] = '\0';
    const size_t tail = strlen("-00001-of-00001.gguf"), len = strlen(get->base);
    // The name of the part may be written with escapes.
    if (get->parts > 1 &&
        (len < tail || strcmp(get->base + len - tail, get->name + strlen(get->name) - tail) != 0))
        get->parts = 1;
    if (source->hashes.n > 0 && source->hashes.n != get->parts) {
        plm_term_say("plimsoll %s: --sha256 was given %zu times, but the model has %u parts",
                     source->command, source->hashes.n, get->parts);
        return 2;
    }
    if (get->parts > 1 && source->output != NULL && !is_folder(source->output)) {
        plm_term_say("plimsoll %s: -o %s: a model of %u parts needs a folder", source->command,
                     source->output, get->parts);
        return 2;
    }
    return 0;
}

int plm_model_of_url(const struct plm_model_source *source, char **ret)
{
    struct get get = {.source = source};
    *ret = NULL;
    if (!plm_hub_access_read(source, &get.access))
        return 1;
    get.client = plm_client_create(source->command);
    if (get.client == NULL)
        return 1;
    plm_stop_catch();
    int status = read_address(&get);
    for (unsigned part = 1; part <= get.parts && status == 0; part++)
        status = get_part(&get, part, ret);
    plm_stop_release();
    if (status != 0) {
        free(*ret);
        *ret = NULL;
    }
    free(get.base);
    plm_client_destroy(get.client);
    return status;
}
