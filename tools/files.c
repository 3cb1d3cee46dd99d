// SPDX-License-Identifier: Apache-2.0
#include "tools/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// Grows by doubling, so that the limit costs memory only to those who come near it.
static char *read_stream(FILE *file, size_t max_bytes, size_t *ret_len)
{
    size_t cap = 4096, len = 0;
    char *text = malloc(cap + 1);
    while (text != NULL) {
        len += fread(text + len, 1, cap - len, file);
        if (len < cap || len > max_bytes)
            break;
        char *larger = realloc(text, 2 * cap + 1);
        if (larger == NULL)
            free(text);
        text = larger;
        cap *= 2;
    }
    if (text != NULL)
        text[len] = '\0';
    *ret_len = len;
    return text;
}

char *plm_file_read(const char *command, const char *path, FILE *file, size_t max_bytes,
                    size_t *ret_len)
{
    FILE *opened = file != NULL ? NULL : fopen(path, "rb");
    if (file == NULL && opened == NULL) {
        fprintf(stderr, "plimsoll %s: %s: %s\n", command, path, strerror(errno));
        return NULL;
    }
    size_t len = 0;
    errno = 0;
    char *text = read_stream(file != NULL ? file : opened, max_bytes, &len);
    bool failed = text == NULL || ferror(file != NULL ? file : opened);
    int why = errno;
    if (opened != NULL)
        fclose(opened);
    if (failed)
        fprintf(stderr, "plimsoll %s: %s: %s\n", command, path, strerror(why));
    else if (len > max_bytes)
        fprintf(stderr, "plimsoll %s: %s: larger than %zu KiB\n", command, path, max_bytes / 1024);
    else if (memchr(text, '\0', len) != NULL)
        fprintf(stderr, "plimsoll %s: %s: not a text: it holds a NUL byte\n", command, path);
    else {
        *ret_len = len;
        return text;
    }
    free(text);
    return NULL;
}

static bool write_through(FILE *file, const char *text, size_t len)
{
    bool ok = fwrite(text, 1, len, file) == len;
    ok = fflush(file) == 0 && ok;
    int why = errno;
    ok = fclose(file) == 0 && ok;
    if (!ok && why != 0)
        errno = why;
    return ok;
}

bool plm_file_write(const char *command, const char *path, const char *text, size_t len)
{
    // A device or a pipe can not be replaced; it is written in place.
    struct stat st;
    bool in_place = stat(path, &st) == 0 && !S_ISREG(st.st_mode);
    char *part = in_place ? strdup(path) : NULL;
    if (!in_place && asprintf(&part, "%s.part", path) < 0)
        part = NULL;
    if (part == NULL) {
        fprintf(stderr, "plimsoll %s: %s: %s\n", command, path, strerror(ENOMEM));
        return false;
    }
    errno = 0;
    FILE *file = fopen(part, "wb");
    bool ok = file != NULL && write_through(file, text, len);
    ok = ok && (in_place || rename(part, path) == 0);
    if (!ok) {
        fprintf(stderr, "plimsoll %s: %s: %s\n", command, path, strerror(errno));
        if (file != NULL && !in_place)
            unlink(part);
    }
    free(part);
    return ok;
}

bool plm_file_writable(const char *command, const char *path)
{
    struct stat st;
    char *part = NULL;
    int fd = -1;
    errno = 0;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        if (S_ISDIR(st.st_mode))
            errno = EISDIR;
        else if (access(path, W_OK) == 0)
            return true;
    } else if (asprintf(&part, "%s.part", path) >= 0) {
        fd = open(part, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
        if (fd >= 0)
            unlink(part);
    }
    if (fd < 0)
        fprintf(stderr, "plimsoll %s: %s: %s\n", command, path, strerror(errno));
    else
        close(fd);
    free(part);
    return fd >= 0;
}

bool plm_stdout_finish(const char *command)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return true;
    fprintf(stderr, "plimsoll %s: cannot write the output: %s\n", command,
            errno != 0 ? strerror(errno) : "an earlier write failed");
    return false;
}
