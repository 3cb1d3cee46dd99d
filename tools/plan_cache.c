// SPDX-License-Identifier: Apache-2.0
#include "tools/plan_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tools/files.h"

#define IN(field) offsetof(struct plm_plan_cache, field)

// Certificates have some KiB; what is larger is something else.
#define FILE_MAX_BYTES (1 << 20)

static const struct plm_opt table[] = {
    PLM_OPT("--plan-cache", "DIR",
            "folder of what starts measured, for fast ones\n(default plimsoll/plans in the user's "
            "cache)",
            PLM_OPT_STRING, IN(dir)),
    PLM_OPT("--no-plan-cache", NULL, "measure anew, and keep nothing", PLM_OPT_FLAG, IN(off)),
    PLM_OPT_END,
};

struct plm_opt_group plm_plan_cache_group(struct plm_plan_cache *cache)
{
    return (struct plm_opt_group){"proved plans", table, cache};
}

// What the files are called, where the options take them, and what the engine says after a start.
static const struct {
    const char *ending;
    size_t text, len; // of plim_engine_opts
    int (*get)(const plim_engine *engine, char *out, size_t cap, size_t *need);
} kinds[PLM_PLAN_CACHE_KINDS] = {
    {"plan.json", offsetof(plim_engine_opts, certificate),
     offsetof(plim_engine_opts, certificate_len), plim_engine_certificate},
    {"tuning.json", offsetof(plim_engine_opts, tuning), offsetof(plim_engine_opts, tuning_len),
     plim_engine_tuning},
};

// ---- names ----

#define HASH_DIGITS 16

// FNV-1a of 64 bits; with its NUL, so that two texts do not run into each other.
static uint64_t mix_text(uint64_t hash, const char *text)
{
    do
        hash = (hash ^ (unsigned char)*text) * UINT64_C(1099511628211);
    while (*text++ != '\0');
    return hash;
}

static uint64_t mix_number(uint64_t hash, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRIu64, value);
    return mix_text(hash, text);
}

// Starts that would measure something else get another file, so that they do not overwrite each
// other; those that differ in how much room there is share one. Whether the file fits a start is
// the engine's question: this only finds it.
static uint64_t name_hash(const plim_engine_opts *o, const char *model)
{
    uint64_t hash = mix_text(UINT64_C(14695981039346656037), model);
    hash = mix_text(hash, o->device != NULL ? o->device : "");
    hash = mix_text(hash, plim_build_info());
    const uint64_t numbers[] = {o->threads,       o->ctx_size,   o->batch_max_tokens,
                                o->max_sequences, o->prove_full, o->max_total_tokens != 0};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
        hash = mix_number(hash, numbers[i]);
    return hash;
}

static char *default_folder(void)
{
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char *path = NULL;
    int n = -1;
    if (base != NULL && base[0] == '/')
        n = asprintf(&path, "%s/plimsoll/plans", base);
    else if (home != NULL && home[0] == '/')
        n = asprintf(&path, "%s/.cache/plimsoll/plans", home);
    return n >= 0 ? path : NULL;
}

// The path of a file in the folder, or NULL: there is no such folder and none can be made.
static char *path_of(const struct plm_plan_cache *cache, const plim_engine_opts *o,
                     const char *ending)
{
    char *folder = cache->dir != NULL ? strdup(cache->dir) : default_folder();
    char *model = realpath(o->model_path, NULL), *path = NULL;
    if (folder != NULL && folder[0] != '\0' && model != NULL && plm_make_folders(folder, 0700)) {
        const char *name = strrchr(model, '/') + 1;
        if (asprintf(&path, "%s/%.64s-%016" PRIx64 ".%s", folder, name, name_hash(o, model),
                     ending) < 0)
            path = NULL;
    }
    free(model);
    free(folder);
    return path;
}

// ---- files ----

// The text of a file, or NULL: there is none, or it is none of ours. A cache does not complain.
static char *read_quietly(const char *path, size_t *ret_len)
{
    struct stat st;
    char *text = NULL;
    size_t len = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (fd < 0)
        return NULL;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0 && st.st_size < FILE_MAX_BYTES)
        text = malloc((size_t)st.st_size);
    while (text != NULL && len < (size_t)st.st_size) {
        ssize_t got = read(fd, text + len, (size_t)st.st_size - len);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        len += (size_t)got;
    }
    close(fd);
    *ret_len = len;
    return text;
}

void plm_plan_cache_load(struct plm_plan_cache *cache, plim_engine_opts *opts)
{
    if (cache->off || opts->model_path == NULL)
        return;
    for (int i = 0; i < PLM_PLAN_CACHE_KINDS; i++) {
        cache->files[i].path = path_of(cache, opts, kinds[i].ending);
        if (cache->files[i].path == NULL)
            continue;
        cache->files[i].text = read_quietly(cache->files[i].path, &cache->files[i].len);
        memcpy((char *)opts + kinds[i].text, &cache->files[i].text, sizeof(char *));
        memcpy((char *)opts + kinds[i].len, &cache->files[i].len, sizeof(size_t));
    }
}

// What is no file is not ours to replace.
static bool is_ours(const char *path)
{
    struct stat st;
    return path != NULL && (lstat(path, &st) != 0 || S_ISREG(st.st_mode));
}

// ---- pruning ----

// A file that no start has taken for so long goes: its build or model is gone, too.
#define AGE_MAX_S (90 * 24 * 3600)
// Files of one folder, of which two belong together: models, devices and flags of one user, at some
// 10 KiB each. The oldest go.
#define FILES_MAX 128
// A file that was being written so long ago belongs to a process that is no more.
#define PART_AGE_MAX_S 3600

struct old_file {
    char name[NAME_MAX + 1];
    struct timespec used;
};

static bool ends_with(const char *name, const char *ending)
{
    const size_t n = strlen(name), m = strlen(ending);
    return n > m && strcmp(name + n - m, ending) == 0;
}

// MODEL-HASH.plan.json or .tuning.json, as path_of() makes them, and such that were being written.
static bool is_kept_file(const char *name, bool *ret_part)
{
    char whole[NAME_MAX + 1];
    snprintf(whole, sizeof(whole), "%s", name);
    char *part = strstr(whole, PLM_FILE_PART);
    *ret_part = part != NULL;
    if (part != NULL)
        *part = '\0';
    for (int i = 0; i < PLM_PLAN_CACHE_KINDS; i++) {
        char ending[32];
        snprintf(ending, sizeof(ending), ".%s", kinds[i].ending);
        if (!ends_with(whole, ending))
            continue;
        const char *hash = whole + strlen(whole) - strlen(ending) - HASH_DIGITS;
        return hash > whole && hash[-1] == '-' && strspn(hash, "0123456789abcdef") == HASH_DIGITS;
    }
    return false;
}

static int by_age(const void *a, const void *b)
{
    const struct timespec *x = &((const struct old_file *)a)->used;
    const struct timespec *y = &((const struct old_file *)b)->used;
    if (x->tv_sec != y->tv_sec)
        return x->tv_sec < y->tv_sec ? -1 : 1;
    return x->tv_nsec < y->tv_nsec ? -1 : x->tv_nsec > y->tv_nsec;
}

// Removes what is too old; of the others, the files' names and ages. Freed by the caller.
static struct old_file *list_files(DIR *dir, int at, size_t *ret_n)
{
    struct old_file *files = NULL;
    size_t n = 0, cap = 0;
    const time_t now = time(NULL);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        struct stat st;
        bool part;
        if (!is_kept_file(entry->d_name, &part) ||
            fstatat(at, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode))
            continue;
        if (now - st.st_mtime > (part ? PART_AGE_MAX_S : AGE_MAX_S)) {
            unlinkat(at, entry->d_name, 0);
            continue;
        }
        if (part)
            continue;
        if (n == cap) {
            struct old_file *more = realloc(files, (cap = 2 * cap + 32) * sizeof(*files));
            if (more == NULL)
                break;
            files = more;
        }
        snprintf(files[n].name, sizeof(files[n].name), "%s", entry->d_name);
        files[n++].used = st.st_mtim;
    }
    *ret_n = n;
    return files;
}

// Old files go, and the oldest of too many. What can not be removed stays.
static void prune(const char *path_of_one)
{
    char *folder = strdup(path_of_one);
    char *slash = folder != NULL ? strrchr(folder, '/') : NULL;
    if (slash != NULL)
        *slash = '\0';
    DIR *dir = slash != NULL ? opendir(folder) : NULL;
    free(folder);
    if (dir == NULL)
        return;
    size_t n = 0;
    struct old_file *files = list_files(dir, dirfd(dir), &n);
    if (n > FILES_MAX)
        qsort(files, n, sizeof(*files), by_age);
    for (size_t i = 0; i + FILES_MAX < n; i++)
        unlinkat(dirfd(dir), files[i].name, 0);
    free(files);
    closedir(dir);
}

// ---- after the start ----

void plm_plan_cache_store(const struct plm_plan_cache *cache, const plim_engine *engine,
                          const char *command)
{
    for (int i = 0; i < PLM_PLAN_CACHE_KINDS; i++) {
        size_t need = 0;
        if (!is_ours(cache->files[i].path))
            continue;
        kinds[i].get(engine, NULL, 0, &need);
        char *text = need > 0 ? malloc(need + 1) : NULL;
        if (text != NULL && kinds[i].get(engine, text, need + 1, &need) == PLIM_OK) {
            const bool same =
                need == cache->files[i].len && memcmp(text, cache->files[i].text, need) == 0;
            if (same) // its age counts from its last use
                utimensat(AT_FDCWD, cache->files[i].path, NULL, AT_SYMLINK_NOFOLLOW);
            else if (plm_file_replace(command, cache->files[i].path, text, need))
                prune(cache->files[i].path);
        }
        free(text);
    }
}

void plm_plan_cache_finish(struct plm_plan_cache *cache)
{
    for (int i = 0; i < PLM_PLAN_CACHE_KINDS; i++) {
        free(cache->files[i].path);
        free(cache->files[i].text);
        cache->files[i].path = cache->files[i].text = NULL;
    }
}
