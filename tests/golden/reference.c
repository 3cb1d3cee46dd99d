// SPDX-License-Identifier: Apache-2.0
#include "tests/golden/reference.h"

#include <ctype.h>
#include <dirent.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct ref_tokens read_tokens(struct json_object *list)
{
    struct ref_tokens t = {.n = (uint32_t)json_object_array_length(list)};
    t.ids = malloc(sizeof(int32_t) * (t.n + 1));
    for (uint32_t i = 0; i < t.n; i++)
        t.ids[i] = json_object_get_int(json_object_array_get_idx(list, i));
    return t;
}

static struct json_object *member(struct json_object *object, const char *key)
{
    return json_object_object_get(object, key);
}

static bool read_logits(const char *dir, struct json_object *json, struct ref_case *c,
                        uint32_t n_vocab)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", dir,
             json_object_get_string(member(json, "logits_f32_file")));
    c->first_row = (uint32_t)json_object_get_int(member(json, "first_row"));
    size_t n = (size_t)(c->tokens.n - c->first_row) * n_vocab;
    c->logits = malloc(sizeof(float) * n);
    FILE *f = fopen(path, "rb");
    bool ok = f != NULL && fread(c->logits, sizeof(float), n, f) == n && fgetc(f) == EOF;
    if (f != NULL)
        fclose(f);
    return ok;
}

static void read_real(struct json_object *json, struct ref_case *c)
{
    struct json_object *top = member(json, "top"), *gap = member(json, "gap");
    c->greedy = read_tokens(member(json, "greedy"));
    c->n_top = (uint32_t)json_object_array_length(top);
    c->top_ids = malloc(sizeof(int32_t) * c->n_top);
    c->top_logprobs = malloc(sizeof(double) * c->n_top);
    c->gap = malloc(sizeof(double) * c->greedy.n);
    for (uint32_t i = 0; i < c->n_top; i++) {
        struct json_object *pair = json_object_array_get_idx(top, i);
        c->top_ids[i] = json_object_get_int(json_object_array_get_idx(pair, 0));
        c->top_logprobs[i] = json_object_get_double(json_object_array_get_idx(pair, 1));
    }
    for (uint32_t i = 0; i < c->greedy.n; i++)
        c->gap[i] = json_object_get_double(json_object_array_get_idx(gap, i));
}

bool reference_read(const char *dir, const char *file, struct reference *ret, char *error,
                    size_t error_bytes)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", dir, file);
    *ret = (struct reference){.real = strncmp(file, "real-", 5) == 0};
    const char *name = file + (ret->real ? 5 : 0);
    snprintf(ret->name, sizeof(ret->name), "%.*s", (int)(strlen(name) - strlen(".ref.json")), name);
    struct json_object *json = json_object_from_file(path);
    if (json == NULL) {
        snprintf(error, error_bytes, "not JSON");
        return false;
    }
    struct json_object *cases = member(json, "cases");
    ret->logits_std = json_object_get_double(member(json, "logits_std"));
    ret->n_cases = (uint32_t)json_object_array_length(cases);
    ret->cases = calloc(ret->n_cases, sizeof(*ret->cases));
    bool ok = true;
    for (uint32_t i = 0; i < ret->n_cases; i++) {
        struct json_object *c = json_object_array_get_idx(cases, i);
        ret->cases[i].tokens = read_tokens(member(c, "tokens"));
        if (ret->real)
            read_real(c, &ret->cases[i]);
        else
            ok &= read_logits(dir, c, &ret->cases[i],
                              (uint32_t)json_object_get_int(member(json, "n_vocab")));
    }
    if (!ret->real) {
        ret->prompt = read_tokens(member(member(json, "greedy"), "prompt"));
        ret->greedy = read_tokens(member(member(json, "greedy"), "tokens"));
    }
    json_object_put(json);
    if (!ok) {
        snprintf(error, error_bytes, "a file of logits is missing or of the wrong size");
        reference_finish(ret);
    }
    return ok;
}

void reference_finish(struct reference *ref)
{
    for (uint32_t i = 0; i < ref->n_cases; i++) {
        struct ref_case *c = &ref->cases[i];
        free(c->tokens.ids);
        free(c->logits);
        free(c->top_ids);
        free(c->top_logprobs);
        free(c->greedy.ids);
        free(c->gap);
    }
    free(ref->cases);
    free(ref->prompt.ids);
    free(ref->greedy.ids);
}

// Letters and digits alone, in lower case, without a .gguf at the end.
static void normalise(const char *name, char *out, size_t cap)
{
    size_t n = 0, len = strlen(name);
    if (len > 5 && strcmp(name + len - 5, ".gguf") == 0)
        len -= 5;
    for (size_t i = 0; i < len && n + 1 < cap; i++) {
        if (isalnum((unsigned char)name[i]))
            out[n++] = (char)tolower((unsigned char)name[i]);
    }
    out[n] = '\0';
}

bool reference_find_model(const struct reference *ref, char *path, size_t path_bytes)
{
    const char *folder = getenv("PLIMSOLL_TEST_MODELS");
    DIR *dir = folder != NULL ? opendir(folder) : NULL;
    if (dir == NULL)
        return false;
    char want[256], have[256];
    normalise(ref->name, want, sizeof(want));
    bool found = false;
    for (struct dirent *e; !found && (e = readdir(dir)) != NULL;) {
        normalise(e->d_name, have, sizeof(have));
        found = strcmp(want, have) == 0 && strstr(e->d_name, ".gguf") != NULL;
        if (found)
            snprintf(path, path_bytes, "%s/%s", folder, e->d_name);
    }
    closedir(dir);
    return found;
}
