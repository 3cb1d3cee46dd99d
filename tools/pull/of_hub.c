// SPDX-License-Identifier: Apache-2.0
// A model of a hub: in the cache, or fetched into it.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/pull/cache.h"
#include "tools/pull/models.h"
#include "tools/term.h"

#define MESSAGE_BYTES 900 // with the names of what there is

struct get {
    const struct plm_model_source *source;
    struct plm_hub_ref ref;
    struct plm_cache cache;
    struct plm_hub_access access;
    struct plm_client *client;
    struct plm_hub_listing listing;
    struct plm_hub_choice choice;
    int64_t done_bytes, all_bytes; // of the parts that are fetched
};

static void say(const struct get *get, const char *what)
{
    plm_term_say("plimsoll %s: %s: %s", get->source->command, get->ref.repo, what);
}

static bool nothing_named(const struct get *get)
{
    return get->ref.quant[0] == '\0' && get->source->file == NULL;
}

// ---- in the cache ----

// *ret stays NULL where the cache has no such model, or, with `sure`, where the hub might mean
// another one: nothing was named, and what is there is not of the kind that comes first.
static void find_in_cache(struct get *get, bool sure, char **ret)
{
    char message[MESSAGE_BYTES];
    struct plm_hub_listing listing;
    struct plm_hub_choice choice;
    if (!plm_cache_listing(&get->cache, get->ref.repo, get->ref.revision, &listing))
        return;
    if (plm_hub_choose(&listing, get->ref.quant, get->source->file, &choice, message,
                       sizeof(message))) {
        if (!sure || !nothing_named(get) || choice.preferred)
            *ret = plm_cache_file_path(&get->cache, get->ref.repo, listing.commit,
                                       choice.parts[0]->path);
        plm_hub_choice_finish(&choice);
    }
    plm_hub_listing_finish(&listing);
}

// ---- asking the hub ----

// Writes a piece of an address: what is no letter, digit or one of `keep` becomes %XX.
static void put_escaped(FILE *out, const char *text, const char *keep)
{
    for (; *text != '\0'; text++) {
        const bool plain = (*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z') ||
                           (*text >= '0' && *text <= '9') || strchr(keep, *text) != NULL;
        fprintf(out, plain ? "%c" : "%%%02X", (unsigned char)*text);
    }
}

// Where the files at a revision are listed, or, with a path, where a file is. NULL: no memory.
static char *url_of(const struct get *get, const char *revision, const char *path)
{
    char *url = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&url, &len);
    if (out == NULL)
        return NULL;
    fprintf(out, "%s%s%s%s", get->access.endpoint, path != NULL ? "/" : "/api/models/",
            get->ref.repo, path != NULL ? "/resolve/" : "/revision/");
    put_escaped(out, revision, "-._~");
    if (path != NULL) {
        fputc('/', out);
        put_escaped(out, path, "-._~/");
    } else {
        fputs("?blobs=true", out); // with sizes and hashes
    }
    if (fclose(out) == 0)
        return url;
    free(url);
    return NULL;
}

static enum plm_fetch_result ask(struct get *get)
{
    char *url = url_of(get, get->ref.revision, NULL);
    char *json = NULL;
    size_t len = 0;
    if (url == NULL) {
        say(get, "out of memory");
        return PLM_FETCH_FAILED;
    }
    const struct plm_fetch fetch = {.command = get->source->command,
                                    .client = get->client,
                                    .url = url,
                                    .name = get->ref.repo,
                                    .token = plm_hub_token_for(&get->access, get->client, url),
                                    .timeout_s = get->source->timeout_s};
    if (get->access.token[0] != '\0' && fetch.token == NULL)
        say(get, "the token is not sent: the hub's address has no TLS");
    enum plm_fetch_result r = plm_fetch_text(&fetch, PLM_HUB_LISTING_MAX_BYTES, &json, &len);
    char message[MESSAGE_BYTES];
    if (r == PLM_FETCH_DONE &&
        !plm_hub_listing_read(json, len, &get->listing, message, sizeof(message))) {
        say(get, message);
        r = PLM_FETCH_FAILED;
    }
    free(json);
    free(url);
    return r;
}

// ---- fetching ----

static bool is_there(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

// What is there of a blob: whole, in part, or nothing.
static int64_t bytes_there(const char *blob)
{
    struct stat st;
    char *part = NULL;
    int64_t bytes = 0;
    if (stat(blob, &st) == 0)
        return st.st_size;
    if (asprintf(&part, "%s.incomplete", blob) >= 0 && stat(part, &st) == 0)
        bytes = st.st_size;
    free(part);
    return bytes;
}

// The hash that a part is held to: the hub's, the user's, or both, which are one then.
static bool hash_of(struct get *get, size_t i, char hash[PLM_HUB_HASH_DIGITS + 1])
{
    const struct plm_hub_file *file = get->choice.parts[i];
    const char *given = get->source->hashes.n > 0 ? get->source->hashes.items[i] : file->hash;
    if (file->hash[0] != '\0' && strcmp(file->hash, given) != 0) {
        plm_term_say("plimsoll %s: %s: the hub says that its SHA-256 is %s, --sha256 says %s",
                     get->source->command, file->path, file->hash, given);
        return false;
    }
    if (given[0] == '\0') {
        plm_term_say("plimsoll %s: %s: the hub knows no SHA-256 of it; --sha256 HEX gives one",
                     get->source->command, file->path);
        return false;
    }
    snprintf(hash, PLM_HUB_HASH_DIGITS + 1, "%s", given);
    return true;
}

static int fetch_locked(struct get *get, const struct plm_hub_file *file, const char *hash,
                        const char *blob)
{
    char *part = NULL;
    char *url = url_of(get, get->listing.commit, file->path);
    int status = 1;
    if (asprintf(&part, "%s.incomplete", blob) < 0)
        part = NULL;
    if (url == NULL || part == NULL) {
        say(get, "out of memory");
    } else {
        struct plm_fetch fetch = {.command = get->source->command,
                                  .client = get->client,
                                  .url = url,
                                  .name = file->path,
                                  .token = plm_hub_token_for(&get->access, get->client, url),
                                  .timeout_s = get->source->timeout_s,
                                  .part = part,
                                  .bytes = file->bytes,
                                  .before_bytes = get->done_bytes,
                                  .all_bytes = get->all_bytes};
        snprintf(fetch.hash, sizeof(fetch.hash), "%s", hash);
        status = plm_fetch_exit(plm_fetch_file(&fetch));
        if (status == 0 && rename(part, blob) != 0) {
            plm_term_say("plimsoll %s: %s: %s", get->source->command, blob, strerror(errno));
            status = 1;
        }
    }
    free(part);
    free(url);
    return status;
}

// One part of the model: its blob, whoever fetches it, and its name in the snapshot.
static int get_part(struct get *get, size_t i)
{
    const struct plm_hub_file *file = get->choice.parts[i];
    char hash[PLM_HUB_HASH_DIGITS + 1];
    int status = 1;
    if (!hash_of(get, i, hash))
        return status;
    char *blob = plm_cache_blob_path(&get->cache, get->ref.repo, hash);
    char *lock_path = plm_cache_lock_path(&get->cache, get->ref.repo, hash);
    if (blob != NULL && lock_path != NULL) {
        bool there = is_there(blob);
        const int lock = there ? -1 : plm_fetch_lock(get->source->command, lock_path, file->path);
        if (lock >= 0) {
            there = is_there(blob); // whoever held the lock may have fetched it
            status = there ? 0 : fetch_locked(get, file, hash, blob);
            close(lock);
        } else if (plm_stop_is_wanted() != 0) {
            status = plm_fetch_exit(PLM_FETCH_STOPPED);
        }
        if (there) {
            plm_term_say("%s: it is there", file->path);
            status = 0;
        }
    }
    if (status == 0 &&
        !plm_cache_link(&get->cache, get->ref.repo, get->listing.commit, file->path, hash))
        status = 1;
    if (status == 0)
        get->done_bytes += file->bytes > 0 ? file->bytes : 0;
    free(lock_path);
    free(blob);
    return status;
}

// Sums up what the parts have, and whether the disk has room for what is missing of them.
static bool has_room(struct get *get)
{
    int64_t missing = 0;
    for (size_t i = 0; i < get->choice.n; i++) {
        const struct plm_hub_file *file = get->choice.parts[i];
        char hash[PLM_HUB_HASH_DIGITS + 1];
        char *blob =
            hash_of(get, i, hash) ? plm_cache_blob_path(&get->cache, get->ref.repo, hash) : NULL;
        if (blob == NULL)
            return false;
        const int64_t there = bytes_there(blob);
        free(blob);
        // Sizes are the server's: what would not add up is left to each file's own check.
        if (file->bytes < 0 || get->all_bytes > INT64_MAX - file->bytes)
            continue;
        get->all_bytes += file->bytes;
        missing += file->bytes > there ? file->bytes - there : 0;
    }
    return plm_fetch_has_room(get->source->command, get->cache.root, missing);
}

static int fetch_choice(struct get *get)
{
    const struct plm_model_source *source = get->source;
    char message[MESSAGE_BYTES];
    if (!plm_hub_choose(&get->listing, get->ref.quant, source->file, &get->choice, message,
                        sizeof(message))) {
        say(get, message);
        return 1;
    }
    if (nothing_named(get))
        plm_term_say("%s: taking %s (none was named: %s)", get->ref.repo,
                     get->choice.parts[0]->path, PLM_HUB_RULE);
    if (source->hashes.n > 0 && source->hashes.n != get->choice.n) {
        plm_term_say("plimsoll %s: --sha256 was given %zu times, but the model has %zu parts",
                     source->command, source->hashes.n, get->choice.n);
        return 2;
    }
    int status = has_room(get) ? 0 : 1;
    for (size_t i = 0; i < get->choice.n && status == 0; i++)
        status = get_part(get, i);
    if (status == 0 &&
        !plm_cache_set_ref(&get->cache, get->ref.repo, get->ref.revision, get->listing.commit))
        status = 1;
    return status;
}

static int fetch_model(struct get *get, char **ret)
{
    get->client = plm_client_create(get->source->command);
    if (get->client == NULL)
        return 1;
    plm_stop_catch();
    const enum plm_fetch_result asked = ask(get);
    int status = plm_fetch_exit(asked);
    if (asked == PLM_FETCH_UNREACHABLE && !get->source->newest) {
        find_in_cache(get, false, ret);
        if (*ret != NULL) {
            say(get, "taking what the cache has");
            status = 0;
        }
    } else if (status == 0) {
        status = fetch_choice(get);
        if (status == 0)
            *ret = plm_cache_file_path(&get->cache, get->ref.repo, get->listing.commit,
                                       get->choice.parts[0]->path);
        status = status == 0 && *ret == NULL ? 1 : status;
    }
    plm_stop_release();
    plm_hub_choice_finish(&get->choice);
    plm_hub_listing_finish(&get->listing);
    plm_client_destroy(get->client);
    return status;
}

// Names that can be none are a wrong command line.
static bool read_names(struct get *get)
{
    const struct plm_model_source *source = get->source;
    char message[MESSAGE_BYTES];
    if (!plm_hub_ref_parse(source->what, &get->ref, message, sizeof(message))) {
        plm_term_say("plimsoll %s: %s", source->command, message);
        return false;
    }
    if (source->file != NULL && !plm_hub_path_is_safe(source->file)) {
        plm_term_say("plimsoll %s: --hf-file is not the path of a file in a repository",
                     source->command);
        return false;
    }
    if (source->revision != NULL && !plm_hub_revision_is_name(source->revision)) {
        plm_term_say("plimsoll %s: --revision is not a revision", source->command);
        return false;
    }
    if (source->revision != NULL)
        snprintf(get->ref.revision, sizeof(get->ref.revision), "%s", source->revision);
    return true;
}

int plm_model_of_hub(const struct plm_model_source *source, char **ret)
{
    struct get get = {.source = source};
    int status = 1;
    *ret = NULL;
    if (!read_names(&get))
        return 2;
    if (!plm_cache_open(&get.cache, source->command))
        return 1;
    const bool offline = plm_hub_is_offline();
    if (!source->newest || offline)
        find_in_cache(&get, !offline, ret);
    if (*ret != NULL)
        status = 0;
    else if (offline)
        say(&get, "the cache has no such model, and HF_HUB_OFFLINE forbids to fetch it");
    else if (plm_hub_access_read(source, &get.access))
        status = fetch_model(&get, ret);
    plm_cache_finish(&get.cache);
    return status;
}
