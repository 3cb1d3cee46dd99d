// SPDX-License-Identifier: Apache-2.0
#include "tools/plan_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/files.h"

#define IN(field) offsetof(struct plm_plan_cache, field)

// Certificates have some KiB; what is larger is something else.
#define FILE_MAX_BYTES (1 << 20)

static const struct plm_opt table[] = {
    PLM_OPT("--plan-cache", "DIR",
            "folder of proved plans, for fast starts\n(default plimsoll/plans in the user's cache)",
            PLM_OPT_STRING, IN(dir)),
    PLM_OPT("--no-plan-cache", NULL, "prove the plan anew, and keep none", PLM_OPT_FLAG, IN(off)),
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

// Starts that would make another plan get another file, so that they do not overwrite each other.
// Whether the file fits a start is the engine's question: this only finds it.
static uint64_t name_hash(const plim_engine_opts *o, const char *model)
{
    char fraction[32];
    snprintf(fraction, sizeof(fraction), "%.9g", o->memory_fraction);
    uint64_t hash = mix_text(UINT64_C(14695981039346656037), model);
    hash = mix_text(hash, o->device != NULL ? o->device : "");
    hash = mix_text(hash, plim_build_info());
    hash = mix_text(hash, fraction);
    const uint64_t numbers[] = {o->threads,          o->ctx_size,         o->batch_max_tokens,
                                o->max_sequences,    o->prove_full,       o->memory_limit_bytes,
                                o->host_limit_bytes, o->max_total_tokens, o->prefix_cache};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
        hash = mix_number(hash, numbers[i]);
    return hash;
}

// Makes a folder and those above it that are missing, for the user alone.
static bool make_folder(char *path)
{
    for (char *at = path + 1; *at != '\0'; at++) {
        if (*at != '/')
            continue;
        *at = '\0';
        mkdir(path, 0700); // what fails here fails at the last one, too
        *at = '/';
    }
    return mkdir(path, 0700) == 0 || errno == EEXIST;
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
    if (folder != NULL && folder[0] != '\0' && model != NULL && make_folder(folder)) {
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
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
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

// A pipe or a device is not ours to write to.
static bool is_ours(const char *path)
{
    struct stat st;
    return path != NULL && (stat(path, &st) != 0 || S_ISREG(st.st_mode));
}

void plm_plan_cache_store(const struct plm_plan_cache *cache, const plim_engine *engine,
                          const char *command)
{
    for (int i = 0; i < PLM_PLAN_CACHE_KINDS; i++) {
        size_t need = 0;
        if (!is_ours(cache->files[i].path))
            continue;
        kinds[i].get(engine, NULL, 0, &need);
        char *text = need > 0 ? malloc(need + 1) : NULL;
        if (text != NULL && kinds[i].get(engine, text, need + 1, &need) == PLIM_OK &&
            (need != cache->files[i].len || memcmp(text, cache->files[i].text, need) != 0))
            plm_file_write(command, cache->files[i].path, text, need);
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
