// SPDX-License-Identifier: Apache-2.0
// Opens single and split GGUF files and reads tensor data.
#include "core/gguf/gguf.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "core/base/checked.h"
#include "core/gguf/gguf_impl.h"

#define PATH_TAIL_BYTES 160u // of a path in a message: the end tells splits apart

// What the keys of one file say about splits; count is 1 for a file that stands alone.
struct split_info {
    uint64_t no;
    uint64_t count;
    uint64_t tensors;
};

// Puts the file's path before the message. Returns status.
static int in_file(const char *path, int status, struct plm_error *err)
{
    if (status == PLM_OK || err == NULL || path == NULL)
        return status;
    char detail[PLM_ERROR_MSG_BYTES];
    size_t len = strlen(path);
    memcpy(detail, err->msg, sizeof(detail));
    detail[sizeof(detail) - 1] = '\0';
    const char *dots = len > PATH_TAIL_BYTES ? "..." : "";
    const char *tail = len > PATH_TAIL_BYTES ? path + len - PATH_TAIL_BYTES : path;
    return plm_fail(err, status, "%s%s: %s", dots, tail, detail);
}

// An optional key: absent leaves *ret alone.
static int optional_u64(const struct plm_gguf_keys *keys, const char *name, uint64_t *ret,
                        struct plm_error *err)
{
    if (plm_gguf_keys_find(keys, name) == NULL)
        return PLM_OK;
    return plm_gguf_keys_u64(keys, name, ret, err);
}

static int read_split_info(const struct plm_gguf_keys *keys, struct split_info *ret,
                           struct plm_error *err)
{
    struct split_info info = {.count = 1};
    int status = optional_u64(keys, "split.count", &info.count, err);
    if (status != PLM_OK)
        return status;
    if (info.count <= 1) { // gguf-split writes 0 or 1 into a file that was merged again
        *ret = (struct split_info){.count = 1};
        return PLM_OK;
    }
    if (info.count > PLM_GGUF_MAX_SPLITS)
        return plm_fail(err, PLM_ERR_LIMIT, "key \"split.count\" is %llu; at most %llu are read",
                        (unsigned long long)info.count, PLM_GGUF_MAX_SPLITS);
    status = plm_gguf_keys_u64(keys, "split.no", &info.no, err);
    if (status == PLM_OK)
        status = plm_gguf_keys_u64(keys, "split.tensors.count", &info.tensors, err);
    if (status == PLM_ERR_NOT_FOUND && err != NULL)
        err->status = PLM_ERR_FORMAT;
    if (status != PLM_OK)
        return status == PLM_ERR_NOT_FOUND ? PLM_ERR_FORMAT : status; // the file is there
    if (info.no >= info.count)
        return plm_fail(err, PLM_ERR_FORMAT, "key \"split.no\" is %llu of only %llu",
                        (unsigned long long)info.no, (unsigned long long)info.count);
    *ret = info;
    return PLM_OK;
}

static int add_split(struct plm_gguf *gguf, const char *path, uint32_t no,
                     const struct split_info *first, struct plm_error *err)
{
    struct plm_gguf_keys keys = {0};
    struct split_info info;
    int status = plm_gguf_file_open(&gguf->files[no], gguf->host, path, err);
    if (status != PLM_OK)
        return status;
    gguf->n_files = no + 1;
    status = plm_gguf_parse(gguf, no, &keys, err);
    if (status == PLM_OK)
        status = read_split_info(&keys, &info, err);
    plm_gguf_keys_finish(&keys, gguf->host);
    if (status != PLM_OK)
        return status;
    if (info.no != no || info.count != first->count || info.tensors != first->tensors)
        return plm_fail(err, PLM_ERR_FORMAT,
                        "says it is split %llu of %llu with %llu tensors in all; expected split "
                        "%u of %llu with %llu",
                        (unsigned long long)info.no + 1, (unsigned long long)info.count,
                        (unsigned long long)info.tensors, no + 1, (unsigned long long)first->count,
                        (unsigned long long)first->tensors);
    return PLM_OK;
}

// Opens splits 2 to count beside the first.
static int open_splits(struct plm_gguf *gguf, const char *path, const struct split_info *first,
                       struct plm_error *err)
{
    char suffix[32];
    size_t len = strlen(path);
    unsigned count = (unsigned)first->count;
    int n = snprintf(suffix, sizeof(suffix), "-00001-of-%05u.gguf", count);
    if (first->no != 0)
        return plm_fail(err, PLM_ERR_FORMAT,
                        "is split %llu of %u; give the first one, NAME-00001-of-%05u.gguf",
                        (unsigned long long)first->no + 1, count, count);
    if (len < (size_t)n || strcmp(path + len - n, suffix) != 0)
        return plm_fail(err, PLM_ERR_FORMAT,
                        "is the first of %u splits, so its name must end with \"%s\"", count,
                        suffix);
    struct plm_gguf_file *files =
        plm_realloc(gguf->host, PLM_HOST_MODEL, gguf->files, count * sizeof(*files));
    if (files == NULL)
        return plm_fail(err, PLM_ERR_NOMEM_HOST, "no host memory for %u splits", count);
    gguf->files = files;
    struct plm_buf name;
    plm_buf_init(&name, gguf->host, PLM_HOST_MODEL);
    int status = PLM_OK;
    for (uint32_t no = 1; status == PLM_OK && no < count; no++) {
        plm_buf_clear(&name);
        plm_buf_append(&name, path, len - (size_t)n);
        if (!plm_buf_printf(&name, "-%05u-of-%05u.gguf", no + 1, count))
            status = plm_fail(err, PLM_ERR_NOMEM_HOST, "no host memory for the name of split %u",
                              no + 1);
        else
            status = in_file(name.data, add_split(gguf, name.data, no, first, err), err);
    }
    plm_buf_finish(&name);
    return status;
}

// Parses files[0] and, for a path, the splits that belong to it. header_only matters to memory
// alone: one split may then stand for itself.
static int read_headers(struct plm_gguf *gguf, const char *path, bool header_only,
                        struct plm_error *err)
{
    struct split_info info;
    int status = plm_gguf_parse(gguf, 0, &gguf->keys, err);
    if (status == PLM_OK)
        status = read_split_info(&gguf->keys, &info, err);
    if (status == PLM_OK && path == NULL && info.count > 1 && !header_only)
        status = plm_fail(err, PLM_ERR_UNSUPPORTED,
                          "is one of %llu splits, which cannot be read from memory",
                          (unsigned long long)info.count);
    status = in_file(path, status, err);
    if (status != PLM_OK || info.count <= 1 || path == NULL)
        return status;
    status = open_splits(gguf, path, &info, err);
    if (status == PLM_OK && gguf->n_tensors != info.tensors)
        status =
            plm_fail(err, PLM_ERR_FORMAT,
                     "%s: key \"split.tensors.count\" is %llu, but the splits hold %llu "
                     "tensors",
                     path, (unsigned long long)info.tensors, (unsigned long long)gguf->n_tensors);
    return status;
}

static struct plm_gguf *create(struct plm_host *host, struct plm_error *err)
{
    struct plm_gguf *gguf = plm_calloc(host, PLM_HOST_MODEL, 1, sizeof(*gguf));
    struct plm_gguf_file *file = plm_calloc(host, PLM_HOST_MODEL, 1, sizeof(*file));
    if (gguf == NULL || file == NULL) {
        plm_free(host, gguf);
        plm_free(host, file);
        plm_fail(err, PLM_ERR_NOMEM_HOST, "no host memory to open a model file");
        return NULL;
    }
    gguf->host = host;
    gguf->files = file;
    return gguf;
}

int plm_gguf_about(const struct plm_gguf *gguf, int status, struct plm_error *err)
{
    // Host memory is not the file's fault.
    return status == PLM_ERR_NOMEM_HOST ? status : in_file(gguf->files[0].path, status, err);
}

int plm_gguf_check_data(const struct plm_gguf *gguf, struct plm_error *err)
{
    char name[PLM_GGUF_QUOTE_BYTES];
    for (uint64_t i = 0; i < gguf->n_tensors; i++) {
        const struct plm_gguf_tensor *t = &gguf->tensors[i];
        const struct plm_gguf_file *file = &gguf->files[t->file];
        const uint64_t end = t->offset + t->bytes; // the parser saw that it does not wrap
        if (end <= file->size)
            continue;
        int status = plm_fail(err, PLM_ERR_FORMAT,
                              "tensor \"%s\" ends at byte %llu of a file of %llu bytes: the file "
                              "is truncated",
                              plm_gguf_quote(t->name, name), (unsigned long long)end,
                              (unsigned long long)file->size);
        return in_file(file->path, status, err);
    }
    return PLM_OK;
}

int plm_gguf_open_header(struct plm_host *host, const char *path, struct plm_gguf **ret,
                         struct plm_error *err)
{
    struct plm_gguf *gguf = create(host, err);
    if (gguf == NULL)
        return PLM_ERR_NOMEM_HOST;
    int status = in_file(path, plm_gguf_file_open(&gguf->files[0], host, path, err), err);
    if (status == PLM_OK) {
        gguf->n_files = 1;
        status = read_headers(gguf, path, true, err);
    }
    for (uint32_t i = 0; status == PLM_OK && i < gguf->n_files; i++)
        status = in_file(gguf->files[i].path, plm_gguf_file_unchanged(&gguf->files[i], err), err);
    if (status != PLM_OK) {
        plm_gguf_close(gguf);
        return status;
    }
    *ret = gguf;
    return PLM_OK;
}

int plm_gguf_open(struct plm_host *host, const char *path, struct plm_gguf **ret,
                  struct plm_error *err)
{
    struct plm_gguf *gguf;
    int status = plm_gguf_open_header(host, path, &gguf, err);
    if (status != PLM_OK)
        return status;
    status = plm_gguf_check_data(gguf, err);
    if (status != PLM_OK) {
        plm_gguf_close(gguf);
        return status;
    }
    *ret = gguf;
    return PLM_OK;
}

int plm_gguf_open_memory(struct plm_host *host, const void *bytes, size_t n, bool header_only,
                         struct plm_gguf **ret, struct plm_error *err)
{
    struct plm_gguf *gguf = create(host, err);
    if (gguf == NULL)
        return PLM_ERR_NOMEM_HOST;
    gguf->files[0] = (struct plm_gguf_file){
        .fd = -1, .bytes = n > 0 ? bytes : (const unsigned char *)"", .size = n};
    gguf->n_files = 1;
    int status = read_headers(gguf, NULL, header_only, err);
    if (status == PLM_OK && !header_only)
        status = plm_gguf_check_data(gguf, err);
    if (status != PLM_OK) {
        plm_gguf_close(gguf);
        return status;
    }
    *ret = gguf;
    return PLM_OK;
}

void plm_gguf_close(struct plm_gguf *gguf)
{
    if (gguf == NULL)
        return;
    struct plm_host *host = gguf->host;
    for (uint32_t i = 0; i < gguf->n_files; i++)
        plm_gguf_file_close(&gguf->files[i], host);
    plm_free(host, gguf->files);
    plm_free(host, gguf->tensors);
    plm_name_index_finish(&gguf->tensor_index, host);
    plm_gguf_pool_finish(&gguf->pool, host);
    plm_gguf_keys_finish(&gguf->keys, host);
    plm_free(host, gguf);
}

uint32_t plm_gguf_version(const struct plm_gguf *gguf)
{
    return gguf->version;
}

uint64_t plm_gguf_file_bytes(const struct plm_gguf *gguf)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < gguf->n_files; i++)
        sum += gguf->files[i].size; // each below 2^63, together at most 2^10 of what a disk holds
    return sum;
}

uint64_t plm_gguf_n_tensors(const struct plm_gguf *gguf)
{
    return gguf->n_tensors;
}

const struct plm_gguf_tensor *plm_gguf_tensor_at(const struct plm_gguf *gguf, uint64_t i)
{
    return i < gguf->n_tensors ? &gguf->tensors[i] : NULL;
}

const struct plm_gguf_tensor *plm_gguf_tensor_find(const struct plm_gguf *gguf, const char *name)
{
    struct plm_slice slice = {name, strlen(name)};
    int64_t i =
        plm_name_index_find(&gguf->tensor_index, gguf->tensors, sizeof(*gguf->tensors), slice);
    return i < 0 ? NULL : &gguf->tensors[i];
}

int plm_gguf_read(const struct plm_gguf *gguf, const struct plm_gguf_tensor *tensor, uint64_t from,
                  void *dst, uint64_t n, struct plm_error *err)
{
    char name[PLM_GGUF_QUOTE_BYTES];
    const struct plm_gguf_file *file = &gguf->files[tensor->file];
    if (from > tensor->bytes || n > tensor->bytes - from)
        return plm_fail(err, PLM_ERR_INVALID, "bytes %llu to %llu of tensor \"%s\", which has %llu",
                        (unsigned long long)from, (unsigned long long)(from + n),
                        plm_gguf_quote(tensor->name, name), (unsigned long long)tensor->bytes);
    uint64_t at = tensor->offset + from;
    if (at > file->size || n > file->size - at) // only after a header_only open
        return plm_fail(err, PLM_ERR_IO, "the data of tensor \"%s\" is not there",
                        plm_gguf_quote(tensor->name, name));
    int status = plm_gguf_file_read(file, at, dst, n, err);
    // Checked after the read: what was read before a change that is noticed now is not used.
    if (status == PLM_OK)
        status = plm_gguf_file_unchanged(file, err);
    return in_file(file->path, status, err);
}

// ---- fingerprint ----

int plm_gguf_fingerprint(const struct plm_gguf *gguf, uint64_t *ret, struct plm_error *err)
{
    unsigned char piece[4096];
    uint64_t hash = 0;
    for (uint32_t i = 0; i < gguf->n_files; i++) {
        uint64_t end = gguf->files[i].size;
        for (uint64_t t = 0; t < gguf->n_tensors; t++) {
            if (gguf->tensors[t].file == i && gguf->tensors[t].offset < end)
                end = gguf->tensors[t].offset;
        }
        for (uint64_t at = 0; at < end; at += sizeof(piece)) {
            const uint64_t n = end - at < sizeof(piece) ? end - at : sizeof(piece);
            int r = plm_gguf_file_read(&gguf->files[i], at, piece, n, err);
            if (r != PLM_OK)
                return r;
            hash = XXH3_64bits_withSeed(piece, n, hash); // each piece under the hash before it
        }
    }
    *ret = hash;
    return PLM_OK;
}
