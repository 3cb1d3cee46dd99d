// SPDX-License-Identifier: Apache-2.0
// Bytes of a model file: positioned reads and the check that it is still the file we opened.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/gguf/gguf_impl.h"

#define READ_STEP (1ull << 30) // bytes; Linux moves at most 2 GiB in one call

static const char *reason(char *text, size_t n)
{
    return strerror_r(errno, text, n); // GNU: may return a constant
}

static void note_identity(struct plm_gguf_file *file, const struct stat *st)
{
    file->size = (uint64_t)st->st_size;
    file->dev = (uint64_t)st->st_dev;
    file->ino = (uint64_t)st->st_ino;
    file->mtime_s = (int64_t)st->st_mtim.tv_sec;
    file->mtime_ns = (int64_t)st->st_mtim.tv_nsec;
}

int plm_gguf_file_open(struct plm_gguf_file *file, struct plm_host *host, const char *path,
                       struct plm_error *err)
{
    char text[64];
    *file = (struct plm_gguf_file){.fd = -1};
    // Not blocking: a FIFO of that name must not hang the start.
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return plm_fail(err, errno == ENOENT ? PLM_ERR_NOT_FOUND : PLM_ERR_IO,
                        "cannot be opened: %s", reason(text, sizeof(text)));
    struct stat st;
    int status = PLM_OK;
    if (fstat(fd, &st) != 0)
        status = plm_fail(err, PLM_ERR_IO, "cannot be examined: %s", reason(text, sizeof(text)));
    else if (!S_ISREG(st.st_mode))
        status = plm_fail(err, PLM_ERR_IO, "is not a regular file");
    else if ((file->path = plm_strndup(host, PLM_HOST_MODEL, path, strlen(path))) == NULL)
        status = plm_fail(err, PLM_ERR_NOMEM_HOST, "no host memory to open it");
    if (status != PLM_OK) {
        close(fd);
        return status;
    }
    file->fd = fd;
    note_identity(file, &st);
    return PLM_OK;
}

void plm_gguf_file_close(struct plm_gguf_file *file, struct plm_host *host)
{
    if (file->fd >= 0)
        close(file->fd);
    file->fd = -1;
    plm_free(host, file->path);
    file->path = NULL;
}

int plm_gguf_file_read(const struct plm_gguf_file *file, uint64_t from, void *dst, uint64_t n,
                       struct plm_error *err)
{
    if (file->bytes != NULL) {
        if (n > 0)
            memcpy(dst, file->bytes + from, n);
        return PLM_OK;
    }
    unsigned char *to = dst;
    while (n > 0) {
        ssize_t got = pread(file->fd, to, n < READ_STEP ? n : READ_STEP, (off_t)from);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            char text[64];
            return plm_fail(err, PLM_ERR_IO, "reading at byte %llu: %s", (unsigned long long)from,
                            reason(text, sizeof(text)));
        }
        if (got == 0)
            return plm_fail(err, PLM_ERR_IO,
                            "ends at byte %llu: it had %llu bytes when it was opened and was "
                            "truncated since",
                            (unsigned long long)from, (unsigned long long)file->size);
        to += got;
        from += (uint64_t)got;
        n -= (uint64_t)got;
    }
    return PLM_OK;
}

int plm_gguf_file_unchanged(const struct plm_gguf_file *file, struct plm_error *err)
{
    if (file->bytes != NULL)
        return PLM_OK;
    struct stat st;
    struct plm_gguf_file now = {0};
    if (fstat(file->fd, &st) != 0) {
        char text[64];
        return plm_fail(err, PLM_ERR_IO, "cannot be examined: %s", reason(text, sizeof(text)));
    }
    note_identity(&now, &st);
    if (now.size != file->size)
        return plm_fail(err, PLM_ERR_IO,
                        "changed from %llu to %llu bytes while it was being loaded",
                        (unsigned long long)file->size, (unsigned long long)now.size);
    if (now.mtime_s != file->mtime_s || now.mtime_ns != file->mtime_ns)
        return plm_fail(err, PLM_ERR_IO, "was written while it was being loaded");
    // Another file under the same name: what we hold is still whole, but it is not what the path
    // says. A name that is gone does no harm.
    if (stat(file->path, &st) == 0 &&
        ((uint64_t)st.st_dev != file->dev || (uint64_t)st.st_ino != file->ino))
        return plm_fail(err, PLM_ERR_IO, "was replaced by another file while it was being loaded");
    return PLM_OK;
}
