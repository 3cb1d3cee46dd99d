// SPDX-License-Identifier: Apache-2.0
#include "tools/pull/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/files.h"
#include "tools/term.h"

// Folders of a snapshot below each other. Repositories that keep each quantisation apart have one.
#define DEPTH_MAX 4

__attribute__((format(printf, 1, 2))) static char *text_of(const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;
    va_start(ap, fmt);
    const int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    return n >= 0 ? text : NULL;
}

static void complain(const struct plm_cache *cache, const char *path)
{
    plm_term_say("plimsoll %s: %s: %s", cache->command, path, strerror(errno));
}

// ---- where it is ----

// A variable that is set to something; an empty one counts as none.
static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

// "~/x" as a shell would have written it; Python's programs take it so.
static char *expanded(const char *path)
{
    const char *home = variable("HOME");
    if (path[0] == '~' && path[1] == '/' && home != NULL)
        return text_of("%s%s", home, path + 1);
    return strdup(path);
}

char *plm_cache_hf_home(void)
{
    const char *hf = variable("HF_HOME"), *xdg = variable("XDG_CACHE_HOME"),
               *home = variable("HOME");
    if (hf != NULL)
        return expanded(hf);
    if (xdg != NULL)
        return text_of("%s/huggingface", xdg);
    return home != NULL ? text_of("%s/.cache/huggingface", home) : NULL;
}

bool plm_cache_open(struct plm_cache *cache, const char *command)
{
    const char *named = variable("HF_HUB_CACHE");
    if (named == NULL)
        named = variable("HUGGINGFACE_HUB_CACHE");
    *cache = (struct plm_cache){.command = command};
    if (named != NULL) {
        cache->root = expanded(named);
    } else {
        char *home = plm_cache_hf_home();
        cache->root = home != NULL ? text_of("%s/hub", home) : NULL;
        free(home);
    }
    if (cache->root == NULL)
        plm_term_say("plimsoll %s: no folder for models: none of HF_HUB_CACHE, HF_HOME and HOME "
                     "is set",
                     command);
    return cache->root != NULL;
}

void plm_cache_finish(struct plm_cache *cache)
{
    free(cache->root);
    cache->root = NULL;
}

// ---- names and folders ----

// Makes the folder that a file is to be in.
static bool make_parent(const struct plm_cache *cache, const char *path)
{
    char *copy = strdup(path);
    char *slash = copy != NULL ? strrchr(copy, '/') : NULL;
    if (slash != NULL)
        *slash = '\0';
    const bool ok = slash != NULL && plm_make_folders(copy, 0777);
    if (!ok)
        complain(cache, copy != NULL ? copy : path);
    free(copy);
    return ok;
}

// "user/repo" as "models--user--repo". out has room for 2 * PLM_HUB_NAME_MAX + 16 bytes.
static void folder_of(const char *repo, char *out)
{
    const size_t user = strcspn(repo, "/");
    snprintf(out, 2 * PLM_HUB_NAME_MAX + 16, "models--%.*s--%s", (int)user, repo, repo + user + 1);
}

// ROOT/FOLDER/rest, with the folder of a repository. NULL: a message was printed.
static char *path_in(const struct plm_cache *cache, const char *above, const char *repo,
                     const char *rest)
{
    char folder[2 * PLM_HUB_NAME_MAX + 16];
    folder_of(repo, folder);
    char *path = text_of("%s/%s%s/%s", cache->root, above, folder, rest);
    if (path == NULL)
        plm_term_say("plimsoll %s: out of memory", cache->command);
    return path;
}

// The same, and the folders of the file are made.
static char *path_for(const struct plm_cache *cache, const char *above, const char *repo,
                      const char *rest)
{
    char *path = path_in(cache, above, repo, rest);
    if (path != NULL && !make_parent(cache, path)) {
        free(path);
        path = NULL;
    }
    return path;
}

char *plm_cache_blob_path(const struct plm_cache *cache, const char *repo, const char *hash)
{
    char rest[PLM_HUB_HASH_DIGITS + 16];
    snprintf(rest, sizeof(rest), "blobs/%s", hash);
    return path_for(cache, "", repo, rest);
}

char *plm_cache_lock_path(const struct plm_cache *cache, const char *repo, const char *hash)
{
    char rest[PLM_HUB_HASH_DIGITS + 16];
    snprintf(rest, sizeof(rest), "%s.lock", hash);
    return path_for(cache, ".locks/", repo, rest);
}

char *plm_cache_file_path(const struct plm_cache *cache, const char *repo, const char *commit,
                          const char *path)
{
    char rest[PLM_HUB_PATH_MAX + PLM_HUB_HASH_DIGITS + 16];
    snprintf(rest, sizeof(rest), "snapshots/%s/%s", commit, path);
    return path_in(cache, "", repo, rest);
}

// ---- links and revisions ----

// The blob as a path from the link's own folder, so that the cache can be moved as a whole.
static char *target_of(const char *path, const char *hash)
{
    char up[3 * PLM_HUB_PATH_MAX / 2 + 1] = "";
    size_t at = 0;
    for (const char *c = path; *c != '\0'; c++) {
        if (*c == '/') {
            memcpy(up + at, "../", 4);
            at += 3;
        }
    }
    return text_of("%s../../blobs/%s", up, hash);
}

bool plm_cache_link(const struct plm_cache *cache, const char *repo, const char *commit,
                    const char *path, const char *hash)
{
    char *name = plm_cache_file_path(cache, repo, commit, path);
    char *target = target_of(path, hash), *part = NULL;
    bool ok = name != NULL && target != NULL && make_parent(cache, name);
    if (ok) {
        // Renamed into place, so that others see the old one or the new one.
        part = text_of("%s" PLM_FILE_PART "%ld", name, (long)getpid());
        ok = part != NULL && (unlink(part) == 0 || errno == ENOENT) && symlink(target, part) == 0 &&
             rename(part, name) == 0;
        if (!ok)
            complain(cache, name);
        // A rename onto another link of the same file would leave the part behind.
        if (part != NULL)
            unlink(part);
    }
    free(part);
    free(target);
    free(name);
    return ok;
}

bool plm_cache_set_ref(const struct plm_cache *cache, const char *repo, const char *revision,
                       const char *commit)
{
    char rest[PLM_HUB_REVISION_MAX + 16];
    snprintf(rest, sizeof(rest), "refs/%s", revision);
    char *path = path_for(cache, "", repo, rest);
    const bool ok = path != NULL && plm_file_replace(cache->command, path, commit, strlen(commit));
    // A cache may be several users'; the umask says so, as for the blobs.
    const mode_t mask = umask(0);
    umask(mask);
    if (ok)
        chmod(path, 0666 & ~mask);
    free(path);
    return ok;
}

// The commit that a revision stood at, or the revision itself where it is one. False: not known.
static bool read_ref(const struct plm_cache *cache, const char *repo, const char *revision,
                     char commit[PLM_HUB_HASH_DIGITS + 1])
{
    char rest[PLM_HUB_REVISION_MAX + 16];
    snprintf(rest, sizeof(rest), "refs/%s", revision);
    char *path = path_in(cache, "", repo, rest);
    FILE *file = path != NULL ? fopen(path, "rbe") : NULL;
    free(path);
    char text[PLM_HUB_HASH_DIGITS + 2] = "";
    if (file != NULL) {
        const size_t n = fread(text, 1, sizeof(text) - 1, file);
        fclose(file);
        text[n] = '\0';
        text[strcspn(text, "\r\n")] = '\0';
    } else {
        snprintf(text, sizeof(text), "%s", revision);
    }
    const size_t len = strlen(text);
    if (len < 40 || len > PLM_HUB_HASH_DIGITS || strspn(text, "0123456789abcdef") != len)
        return false;
    memcpy(commit, text, len + 1);
    return true;
}

// ---- what is there ----

struct walk {
    const struct plm_cache *cache;
    const char *repo;
    const char *commit;
    plm_cache_visit *visit;
    void *ctx;
    bool ended; // by the visitor
};

// Calls `each` for the names of a folder that are safe.
static void each_name(struct walk *walk, const char *folder,
                      void (*each)(struct walk *walk, const char *folder, const char *name))
{
    DIR *dir = opendir(folder);
    if (dir == NULL)
        return;
    for (struct dirent *entry; !walk->ended && (entry = readdir(dir)) != NULL;) {
        if (plm_hub_path_is_safe(entry->d_name))
            each(walk, folder, entry->d_name);
    }
    closedir(dir);
}

static bool ends_with(const char *name, const char *ending)
{
    const size_t n = strlen(name), m = strlen(ending);
    return n > m && strcmp(name + n - m, ending) == 0;
}

// The name of the blob that a link leads to; "" where it is no link, or not to one named so.
static void hash_of(const char *full, char hash[PLM_HUB_HASH_DIGITS + 1])
{
    char target[PATH_MAX];
    const ssize_t n = readlink(full, target, sizeof(target) - 1);
    target[n > 0 ? n : 0] = '\0';
    const char *slash = strrchr(target, '/');
    const bool known = slash != NULL && plm_hub_is_hash(slash + 1);
    snprintf(hash, PLM_HUB_HASH_DIGITS + 1, "%s", known ? slash + 1 : "");
}

static void walk_files(struct walk *walk, const char *top, const char *below, int depth)
{
    char *folder = below[0] != '\0' ? text_of("%s/%s", top, below) : strdup(top);
    DIR *dir = folder != NULL ? opendir(folder) : NULL;
    for (struct dirent *entry; dir != NULL && !walk->ended && (entry = readdir(dir)) != NULL;) {
        struct stat st;
        char *path =
            below[0] != '\0' ? text_of("%s/%s", below, entry->d_name) : strdup(entry->d_name);
        char *full = path != NULL ? text_of("%s/%s", top, path) : NULL;
        // Folders are followed only where they are no links: those could lead in a circle.
        const bool there =
            full != NULL && plm_hub_path_is_safe(path) && fstatat(AT_FDCWD, full, &st, 0) == 0;
        if (there && S_ISREG(st.st_mode) && ends_with(path, ".gguf")) {
            char hash[PLM_HUB_HASH_DIGITS + 1];
            hash_of(full, hash);
            walk->ended =
                !walk->visit(walk->ctx, &(struct plm_cache_entry){walk->repo, walk->commit, path,
                                                                  full, hash, st.st_size});
        } else if (there && S_ISDIR(st.st_mode) && depth < DEPTH_MAX && lstat(full, &st) == 0 &&
                   S_ISDIR(st.st_mode)) {
            walk_files(walk, top, path, depth + 1);
        }
        free(full);
        free(path);
    }
    if (dir != NULL)
        closedir(dir);
    free(folder);
}

static void walk_snapshot(struct walk *walk, const char *folder, const char *name)
{
    char *full = text_of("%s/%s", folder, name);
    walk->commit = name;
    if (full != NULL)
        walk_files(walk, full, "", 0);
    free(full);
}

static void walk_part(struct walk *walk, const char *folder, const char *name)
{
    struct stat st;
    char *full = text_of("%s/%s", folder, name);
    if (full != NULL && ends_with(name, ".incomplete") && lstat(full, &st) == 0 &&
        S_ISREG(st.st_mode)) {
        char hash[PLM_HUB_HASH_DIGITS + 1];
        snprintf(hash, sizeof(hash), "%.*s", (int)strcspn(name, "."), name);
        walk->ended = !walk->visit(
            walk->ctx, &(struct plm_cache_entry){walk->repo, NULL, name, full, hash, st.st_size});
    }
    free(full);
}

static void walk_repo(struct walk *walk, const char *root, const char *folder)
{
    char repo[2 * PLM_HUB_NAME_MAX + 2];
    const char *dashes = strncmp(folder, "models--", 8) == 0 ? strstr(folder + 8, "--") : NULL;
    if (dashes == NULL || strlen(folder + 8) >= sizeof(repo))
        return;
    snprintf(repo, sizeof(repo), "%.*s/%s", (int)(dashes - folder - 8), folder + 8, dashes + 2);
    char *snapshots = text_of("%s/%s/snapshots", root, folder);
    char *blobs = text_of("%s/%s/blobs", root, folder);
    if (plm_hub_repo_is_name(repo) && snapshots != NULL && blobs != NULL) {
        walk->repo = repo;
        each_name(walk, snapshots, walk_snapshot);
        each_name(walk, blobs, walk_part);
    }
    free(snapshots);
    free(blobs);
}

bool plm_cache_walk(const struct plm_cache *cache, const char *repo, plm_cache_visit *visit,
                    void *ctx)
{
    struct walk walk = {.cache = cache, .visit = visit, .ctx = ctx};
    char folder[2 * PLM_HUB_NAME_MAX + 16];
    if (repo == NULL) {
        each_name(&walk, cache->root, walk_repo);
    } else {
        folder_of(repo, folder);
        walk_repo(&walk, cache->root, folder);
    }
    return !walk.ended;
}

struct listing_of {
    const char *commit;
    struct plm_hub_listing *listing;
};

static bool add_entry(void *ctx, const struct plm_cache_entry *entry)
{
    const struct listing_of *of = ctx;
    if (entry->commit == NULL || strcmp(entry->commit, of->commit) != 0)
        return true;
    return plm_hub_listing_add(of->listing, entry->path, entry->bytes, entry->hash);
}

bool plm_cache_listing(const struct plm_cache *cache, const char *repo, const char *revision,
                       struct plm_hub_listing *ret)
{
    struct plm_hub_listing listing = {.n = 0};
    bool ok = true;
    if (read_ref(cache, repo, revision, listing.commit)) {
        struct listing_of of = {listing.commit, &listing};
        ok = plm_cache_walk(cache, repo, add_entry, &of);
    }
    plm_hub_listing_sort(&listing);
    if (ok)
        *ret = listing;
    else
        plm_hub_listing_finish(&listing);
    return ok;
}

// ---- removing ----

// Removes empty folders below a path, and it itself. What holds something stays.
static void prune(const char *path, int depth)
{
    DIR *dir = depth <= DEPTH_MAX + 1 ? opendir(path) : NULL;
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        struct stat st;
        char *full = text_of("%s/%s", path, entry->d_name);
        if (full != NULL && plm_hub_path_is_safe(entry->d_name) && lstat(full, &st) == 0 &&
            S_ISDIR(st.st_mode))
            prune(full, depth + 1);
        free(full);
    }
    if (dir != NULL)
        closedir(dir);
    rmdir(path);
}

// What a snapshot's commit is known by goes with the last snapshot.
static void drop_ref(struct walk *walk, const char *folder, const char *name)
{
    char *full = text_of("%s/%s", folder, name);
    if (full != NULL && unlink(full) != 0) // a revision with a slash is a folder
        each_name(walk, full, drop_ref);
    free(full);
}

void plm_cache_prune(const struct plm_cache *cache, const char *repo)
{
    struct walk walk = {.cache = cache};
    char *snapshots = path_in(cache, "", repo, "snapshots"),
         *refs = path_in(cache, "", repo, "refs");
    if (snapshots != NULL && refs != NULL) {
        prune(snapshots, 0);
        if (access(snapshots, F_OK) != 0)
            each_name(&walk, refs, drop_ref);
        char *top = path_in(cache, "", repo, "");
        if (top != NULL)
            prune(top, 0);
        free(top);
    }
    free(snapshots);
    free(refs);
}
