// SPDX-License-Identifier: Apache-2.0
#include "tools/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/term.h"

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
        plm_term_say("plimsoll %s: %s: %s", command, path, strerror(errno));
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
        plm_term_say("plimsoll %s: %s: %s", command, path, strerror(why));
    else if (len > max_bytes)
        plm_term_say("plimsoll %s: %s: larger than %zu KiB", command, path, max_bytes / 1024);
    else if (memchr(text, '\0', len) != NULL)
        plm_term_say("plimsoll %s: %s: not a text: it holds a NUL byte", command, path);
    else {
        *ret_len = len;
        return text;
    }
    free(text);
    return NULL;
}

// ---- writing ----

static void complain(const char *command, const char *path)
{
    plm_term_say("plimsoll %s: %s: %s", command, path, strerror(errno));
}

// A new file beside `path`, open for writing: of a random name that nobody could have put a link or
// a file at (O_EXCL follows none), readable by the user alone (mode 0600). *ret_name is the
// caller's to free. -1 with errno.
static int open_beside(const char *path, char **ret_name)
{
    if (asprintf(ret_name, "%s" PLM_FILE_PART "XXXXXX", path) < 0) {
        *ret_name = NULL;
        errno = ENOMEM;
        return -1;
    }
    const int fd = mkostemp(*ret_name, O_CLOEXEC);
    if (fd < 0) {
        const int why = errno;
        free(*ret_name);
        *ret_name = NULL;
        errno = why;
    }
    return fd;
}

// Closes fd in every case; errno says why it failed.
static bool write_all(int fd, const char *text, size_t len)
{
    bool ok = true;
    while (ok && len > 0) {
        const ssize_t n = write(fd, text, len);
        if (n < 0 && errno == EINTR)
            continue;
        ok = n >= 0;
        text += ok ? n : 0;
        len -= ok ? (size_t)n : 0;
    }
    const int why = errno;
    const bool closed = close(fd) == 0;
    if (!ok)
        errno = why;
    return ok && closed;
}

bool plm_file_replace(const char *command, const char *path, const char *text, size_t len)
{
    char *part;
    const int fd = open_beside(path, &part);
    bool ok = fd >= 0 && write_all(fd, text, len);
    ok = ok && rename(part, path) == 0;
    if (!ok) {
        complain(command, path);
        if (part != NULL)
            unlink(part);
    }
    free(part);
    return ok;
}

// A device or a pipe can not be replaced; it is written in place.
static bool is_in_place(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

bool plm_file_write(const char *command, const char *path, const char *text, size_t len)
{
    if (!is_in_place(path))
        return plm_file_replace(command, path, text, len);
    const int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    if (fd >= 0 && write_all(fd, text, len))
        return true;
    complain(command, path);
    return false;
}

bool plm_file_writable(const char *command, const char *path)
{
    struct stat st;
    if (is_in_place(path)) {
        if (access(path, W_OK) == 0)
            return true;
        complain(command, path);
        return false;
    }
    char *part = NULL;
    int fd = -1;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        errno = EISDIR;
    else
        fd = open_beside(path, &part);
    if (fd < 0) {
        complain(command, path);
        return false;
    }
    close(fd);
    unlink(part);
    free(part);
    return true;
}

bool plm_make_folders(const char *path, mode_t mode)
{
    char *copy = strdup(path);
    if (copy == NULL) {
        errno = ENOMEM;
        return false;
    }
    for (char *at = copy + 1; *at != '\0'; at++) {
        if (*at != '/')
            continue;
        *at = '\0';
        mkdir(copy, mode); // what fails here fails at the last one, too
        *at = '/';
    }
    const bool ok = mkdir(copy, mode) == 0 || errno == EEXIST;
    free(copy);
    return ok;
}

bool plm_stdout_finish(const char *command)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return true;
    plm_term_say("plimsoll %s: cannot write the output: %s", command,
                 errno != 0 ? strerror(errno) : "an earlier write failed");
    return false;
}
