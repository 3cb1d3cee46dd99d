// SPDX-License-Identifier: Apache-2.0
#include "tools/pull/hub.h"

#include <json-c/json_object.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "tools/json.h"

// Digits and letters of ASCII alone, whatever the locale.
static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

// ---- names ----

// One part of "user/repo". Two dashes separate the parts in a cache's folder names, so that the hub
// allows them in none.
static bool is_hub_name(const char *text, size_t len)
{
    if (len == 0 || len > PLM_HUB_NAME_MAX || text[0] == '.' || text[0] == '-')
        return false;
    for (size_t i = 0; i < len; i++) {
        const bool mark = text[i] == '.' || text[i] == '-';
        if (!is_word(text[i]) && text[i] != '_' && !mark)
            return false;
        if (mark && i + 1 < len && text[i + 1] == text[i])
            return false;
    }
    return true;
}

bool plm_hub_repo_is_name(const char *text)
{
    const char *slash = strchr(text, '/');
    return slash != NULL && is_hub_name(text, (size_t)(slash - text)) &&
           is_hub_name(slash + 1, strlen(slash + 1));
}

bool plm_hub_path_is_safe(const char *path)
{
    const size_t len = strlen(path);
    if (len == 0 || len > PLM_HUB_PATH_MAX)
        return false;
    for (const char *part = path;; part++) {
        const size_t n = strcspn(part, "/");
        if (n == 0 || n > 255 || strncmp(part, ".", n) == 0 || strncmp(part, "..", n) == 0)
            return false;
        for (size_t i = 0; i < n; i++) {
            if (part[i] < ' ' || part[i] > '~' || part[i] == '\\')
                return false;
        }
        part += n;
        if (*part == '\0')
            return true;
    }
}

bool plm_hub_revision_is_name(const char *text)
{
    if (strlen(text) > PLM_HUB_REVISION_MAX || !plm_hub_path_is_safe(text))
        return false;
    for (; *text != '\0'; text++) {
        if (!is_word(*text) && strchr("._-/", *text) == NULL)
            return false;
    }
    return true;
}

static bool is_hex(const char *text, size_t min, size_t max)
{
    const size_t len = strlen(text);
    return len >= min && len <= max && strspn(text, "0123456789abcdef") == len;
}

bool plm_hub_is_hash(const char *text)
{
    return is_hex(text, PLM_HUB_HASH_DIGITS, PLM_HUB_HASH_DIGITS);
}

static bool is_quant(const char *text)
{
    const size_t len = strlen(text);
    bool ok = len > 0 && len <= PLM_HUB_QUANT_MAX;
    for (size_t i = 0; i < len && ok; i++)
        ok = is_word(text[i]) || strchr("._-", text[i]) != NULL;
    return ok;
}

bool plm_hub_ref_parse(const char *text, struct plm_hub_ref *ret, char *message, size_t cap)
{
    struct plm_hub_ref ref = {.revision = "main"};
    if (strncmp(text, "hf:", 3) == 0)
        text += 3;
    const size_t len = strcspn(text, ":");
    if (len < sizeof(ref.repo)) {
        memcpy(ref.repo, text, len);
        ref.repo[len] = '\0';
    }
    if (!plm_hub_repo_is_name(ref.repo)) {
        snprintf(message, cap, "\"%.100s\" is not USER/REPO or USER/REPO:QUANT", text);
        return false;
    }
    if (text[len] == ':') {
        if (!is_quant(text + len + 1)) {
            snprintf(message, cap,
                     "\"%.100s\": what follows the colon is not the name of a quantisation", text);
            return false;
        }
        snprintf(ref.quant, sizeof(ref.quant), "%s", text + len + 1);
    }
    *ret = ref;
    return true;
}

// ---- splits ----

#define SPLIT_TAIL "-00001-of-00001.gguf"

bool plm_hub_split_of(const char *path, unsigned *ret_part, unsigned *ret_parts)
{
    const size_t len = strlen(path), tail = strlen(SPLIT_TAIL);
    unsigned numbers[2] = {0, 0};
    if (len <= tail)
        return false;
    const char *at = path + len - tail;
    for (size_t i = 0; i < tail; i++) {
        const bool digit = SPLIT_TAIL[i] == '0' || SPLIT_TAIL[i] == '1';
        if (digit ? at[i] < '0' || at[i] > '9' : at[i] != SPLIT_TAIL[i])
            return false;
        if (digit)
            numbers[i > 6] = 10 * numbers[i > 6] + (unsigned)(at[i] - '0');
    }
    if (numbers[0] == 0 || numbers[0] > numbers[1])
        return false;
    *ret_part = numbers[0];
    *ret_parts = numbers[1];
    return true;
}

void plm_hub_split_name(const char *path, unsigned part, char *out)
{
    snprintf(out, PLM_HUB_PATH_MAX + 1, "%s", path);
    char digits[8];
    snprintf(digits, sizeof(digits), "%05u", part % 100000);
    memcpy(out + strlen(out) - strlen(SPLIT_TAIL) + 1, digits, 5);
}

// ---- listings ----

bool plm_hub_listing_add(struct plm_hub_listing *listing, const char *path, int64_t bytes,
                         const char *hash)
{
    if (listing->n == PLM_HUB_FILES_MAX)
        return false;
    if ((listing->n & (listing->n - 1)) == 0) { // full at each power of two
        const size_t cap = listing->n > 0 ? 2 * listing->n : 1;
        struct plm_hub_file *more = realloc(listing->files, cap * sizeof(*more));
        if (more == NULL)
            return false;
        listing->files = more;
    }
    struct plm_hub_file *file = &listing->files[listing->n];
    *file = (struct plm_hub_file){.path = strdup(path), .bytes = bytes};
    if (hash != NULL && plm_hub_is_hash(hash))
        memcpy(file->hash, hash, PLM_HUB_HASH_DIGITS);
    listing->n += file->path != NULL;
    return file->path != NULL;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct plm_hub_file *)a)->path, ((const struct plm_hub_file *)b)->path);
}

void plm_hub_listing_sort(struct plm_hub_listing *listing)
{
    if (listing->n > 1)
        qsort(listing->files, listing->n, sizeof(*listing->files), by_path);
}

void plm_hub_listing_finish(struct plm_hub_listing *listing)
{
    for (size_t i = 0; i < listing->n; i++)
        free(listing->files[i].path);
    free(listing->files);
    *listing = (struct plm_hub_listing){.n = 0};
}

static bool is_gguf(const char *path)
{
    const size_t len = strlen(path);
    return len > 5 && strcasecmp(path + len - 5, ".gguf") == 0;
}

static const char *string_of(json_object *from, const char *name)
{
    json_object *value = NULL;
    json_object_object_get_ex(from, name, &value);
    return json_object_is_type(value, json_type_string) ? json_object_get_string(value) : NULL;
}

static bool add_sibling(json_object *sibling, struct plm_hub_listing *listing)
{
    json_object *size = NULL, *lfs = NULL;
    const char *path = string_of(sibling, "rfilename");
    // A NUL within would end a checked name early.
    json_object *name = NULL;
    json_object_object_get_ex(sibling, "rfilename", &name);
    if (path == NULL || strlen(path) != (size_t)json_object_get_string_len(name) ||
        !is_gguf(path) || !plm_hub_path_is_safe(path))
        return true;
    json_object_object_get_ex(sibling, "size", &size);
    json_object_object_get_ex(sibling, "lfs", &lfs);
    const int64_t bytes =
        json_object_is_type(size, json_type_int) ? json_object_get_int64(size) : -1;
    return plm_hub_listing_add(listing, path, bytes >= 0 ? bytes : -1, string_of(lfs, "sha256"));
}

// The commit, which becomes the name of a folder: 40 digits, or 64 where the hub's git counts so.
static bool read_commit(const struct plm_json_doc *doc, struct plm_hub_listing *ret)
{
    const struct plm_json_value *value = plm_json_get(doc, "sha");
    if (value == NULL || value->type != PLM_JSON_STRING)
        return false;
    struct plm_out text;
    plm_out_init(&text, NULL);
    plm_json_text(value, &text);
    plm_out_bytes(&text, "", 1);
    const bool ok = !text.failed && strlen(text.data) + 1 == text.len && is_hex(text.data, 40, 64);
    if (ok)
        snprintf(ret->commit, sizeof(ret->commit), "%s", text.data);
    plm_out_finish(&text);
    return ok;
}

bool plm_hub_listing_read(const char *json, size_t len, struct plm_hub_listing *ret, char *message,
                          size_t cap)
{
    struct plm_hub_listing listing = {.n = 0};
    struct plm_json_doc *doc = malloc(sizeof(*doc));
    int64_t charged = 0;
    json_object *siblings = NULL;
    bool ok = doc != NULL && plm_json_scan(json, len, NULL, doc, message, cap) == PLIM_OK;
    if (doc == NULL)
        snprintf(message, cap, "out of memory");
    if (ok) {
        const struct plm_json_value *value = plm_json_get(doc, "siblings");
        ok = read_commit(doc, &listing) && value != NULL && value->type == PLM_JSON_ARRAY;
        if (ok)
            siblings = plm_json_tree(value, NULL, &charged);
        if (!ok || siblings == NULL)
            snprintf(message, cap, ok ? "out of memory" : "the answer names no commit or no files");
        ok = siblings != NULL;
    }
    for (size_t i = 0; ok && i < json_object_array_length(siblings); i++) {
        ok = add_sibling(json_object_array_get_idx(siblings, i), &listing);
        if (!ok)
            snprintf(message, cap, "more than %d GGUF files, or no memory for their names",
                     PLM_HUB_FILES_MAX);
    }
    plm_json_release(siblings, NULL, charged);
    free(doc);
    plm_hub_listing_sort(&listing);
    if (ok)
        *ret = listing;
    else
        plm_hub_listing_finish(&listing);
    return ok;
}

// ---- which file is meant ----

bool plm_hub_has_quant(const char *path, const char *quant)
{
    const size_t n = strlen(quant);
    for (const char *at = path; *at != '\0' && n > 0; at++) {
        // "Q4_K" is not meant by Q4_K_M, nor "Q4_XS" by IQ4_XS.
        if (strncasecmp(at, quant, n) == 0 && (at == path || !is_word(at[-1])) && !is_word(at[n]) &&
            at[n] != '_')
            return true;
    }
    return false;
}

// A model, and of a split one the first part.
static bool is_model(const char *path)
{
    unsigned part, parts;
    return strcasestr(path, "mmproj") == NULL && strcasestr(path, "imatrix") == NULL &&
           (!plm_hub_split_of(path, &part, &parts) || part == 1);
}

static const struct plm_hub_file *find_path(const struct plm_hub_listing *listing, const char *path)
{
    const struct plm_hub_file key = {.path = (char *)path};
    return listing->n > 0
               ? bsearch(&key, listing->files, listing->n, sizeof(*listing->files), by_path)
               : NULL;
}

// Of several the shortest name: "x-Q4_K_M" before "x-UD-Q4_K_M".
static const struct plm_hub_file *find_quant(const struct plm_hub_listing *listing,
                                             const char *quant)
{
    const struct plm_hub_file *best = NULL;
    for (size_t i = 0; i < listing->n; i++) {
        const struct plm_hub_file *file = &listing->files[i];
        if (is_model(file->path) && plm_hub_has_quant(file->path, quant) &&
            (best == NULL || strlen(file->path) < strlen(best->path)))
            best = file;
    }
    return best;
}

static const struct plm_hub_file *find_default(const struct plm_hub_listing *listing,
                                               bool *ret_preferred)
{
    const struct plm_hub_file *found = find_quant(listing, "Q4_K_M");
    *ret_preferred = found != NULL;
    if (found == NULL)
        found = find_quant(listing, "Q8_0");
    for (size_t i = 0; i < listing->n && found == NULL; i++) {
        if (is_model(listing->files[i].path))
            found = &listing->files[i];
    }
    return found;
}

// "; there are a.gguf, b.gguf and 3 more", as far as it fits.
static void add_models(const struct plm_hub_listing *listing, char *message, size_t cap)
{
    size_t shown = 0, models = 0;
    for (size_t i = 0; i < listing->n; i++) {
        const size_t at = strlen(message);
        if (!is_model(listing->files[i].path))
            continue;
        models++;
        if (at + strlen(listing->files[i].path) + 32 > cap)
            continue;
        snprintf(message + at, cap - at, "%s %s", shown == 0 ? "; there are" : ",",
                 listing->files[i].path);
        shown++;
    }
    const size_t at = strlen(message);
    if (models == 0)
        snprintf(message + at, cap - at, "; there is no GGUF model at all");
    else if (models > shown)
        snprintf(message + at, cap - at, " and %zu more", models - shown);
}

bool plm_hub_choose(const struct plm_hub_listing *listing, const char *quant, const char *file,
                    struct plm_hub_choice *ret, char *message, size_t cap)
{
    struct plm_hub_choice choice = {.n = 1};
    const struct plm_hub_file *first;
    if (file != NULL)
        first = find_path(listing, file);
    else if (quant[0] != '\0')
        first = find_quant(listing, quant);
    else
        first = find_default(listing, &choice.preferred);
    if (first == NULL) {
        if (file != NULL || quant[0] != '\0')
            snprintf(message, cap, "there is no %.*s%s", PLM_HUB_PATH_MAX,
                     file != NULL ? file : quant, file != NULL ? "" : " model");
        else
            snprintf(message, cap, "there is nothing to take");
        add_models(listing, message, cap);
        return false;
    }
    unsigned part = 1, parts = 1;
    if (plm_hub_split_of(first->path, &part, &parts))
        choice.n = parts;
    choice.parts = calloc(choice.n, sizeof(*choice.parts));
    for (size_t i = 0; i < choice.n && choice.parts != NULL; i++) {
        char path[PLM_HUB_PATH_MAX + 1];
        snprintf(path, sizeof(path), "%s", first->path);
        if (parts > 1)
            plm_hub_split_name(first->path, (unsigned)i + 1, path);
        choice.parts[i] = parts > 1 ? find_path(listing, path) : first;
        if (choice.parts[i] == NULL) {
            snprintf(message, cap, "%s, one of %u parts, is missing there", path, parts);
            plm_hub_choice_finish(&choice);
            return false;
        }
    }
    if (choice.parts == NULL) {
        snprintf(message, cap, "out of memory");
        return false;
    }
    *ret = choice;
    return true;
}

void plm_hub_choice_finish(struct plm_hub_choice *choice)
{
    free(choice->parts);
    *choice = (struct plm_hub_choice){.n = 0};
}
