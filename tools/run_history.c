// SPDX-License-Identifier: Apache-2.0
#include "tools/run_history.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/files.h"

#define QUESTION_MAX_BYTES 4096 // longer ones were pasted
// As many as Up finds (line_edit.c). A file may grow to twice as many before it is written anew.
#define KEPT_MAX 1000
// What two times KEPT_MAX questions take at most, each byte written as two.
#define FILE_MAX_BYTES (2 * KEPT_MAX * (2 * QUESTION_MAX_BYTES + 1))

// Freed by the caller. NULL: there is no place for it.
static char *path_of(void)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    char *path = NULL;
    int n = -1;
    if (state != NULL && state[0] == '/')
        n = asprintf(&path, "%s/plimsoll/history", state);
    else if (home != NULL && home[0] == '/')
        n = asprintf(&path, "%s/.local/state/plimsoll/history", home);
    return n >= 0 ? path : NULL;
}

// The whole file, with a NUL behind it. NULL: there is none, or it is none of ours.
static char *read_file(const char *path, size_t *ret_len)
{
    struct stat st;
    char *text = NULL;
    size_t len = 0;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (fd < 0)
        return NULL;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0 &&
        st.st_size <= FILE_MAX_BYTES)
        text = malloc((size_t)st.st_size + 1);
    for (ssize_t n = 1; text != NULL && n > 0 && len < (size_t)st.st_size; len += (size_t)n) {
        n = read(fd, text + len, (size_t)st.st_size - len);
        n = n > 0 ? n : 0;
    }
    close(fd);
    if (text != NULL)
        text[len] = '\0';
    *ret_len = len;
    return text;
}

// Writes a line as the question that it is, in its own place. Returns its length.
static size_t unescape(char *line, size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        char c = line[i];
        if (c == '\\' && i + 1 < len)
            c = line[++i] == 'n' ? '\n' : line[i];
        line[n++] = c;
    }
    return n;
}

void plm_run_history_read(void (*each)(const char *text, size_t len))
{
    char *path = path_of();
    size_t len = 0, lines = 0;
    char *text = path != NULL ? read_file(path, &len) : NULL;
    char *at = text;
    for (size_t i = 0; i < len; i++)
        lines += text[i] == '\n';
    for (; lines > KEPT_MAX; lines--)
        at = (char *)memchr(at, '\n', len - (size_t)(at - text)) + 1;
    // Only a file in which as many again are too many is written anew, not at every start.
    if (text != NULL && at != text && (size_t)(at - text) > len / 2)
        plm_file_replace("run", path, at, len - (size_t)(at - text));
    for (char *end; lines > 0 && (end = memchr(at, '\n', len - (size_t)(at - text))) != NULL;
         at = end + 1)
        each(at, unescape(at, (size_t)(end - at)));
    free(text);
    free(path);
}

void plm_run_history_add(const char *text, size_t len)
{
    char line[2 * QUESTION_MAX_BYTES + 1];
    size_t n = 0;
    char *path = path_of(), *slash = path != NULL ? strrchr(path, '/') : NULL;
    if (slash == NULL || len == 0 || len > QUESTION_MAX_BYTES || memchr(text, '\0', len) != NULL) {
        free(path);
        return;
    }
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '\n' || text[i] == '\\')
            line[n++] = '\\';
        line[n++] = text[i] == '\n' ? 'n' : text[i];
    }
    line[n++] = '\n';
    *slash = '\0';
    plm_make_folders(path, 0700);
    *slash = '/';
    // One write at the end of the file, so that chats beside each other do not mix their lines.
    // A pipe of this name, whose reader may never come, is not waited for.
    const int fd =
        open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (fd >= 0) {
        struct stat st;
        const bool is_file = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
        // Beyond what is read it would grow for ever.
        if (!is_file || (st.st_size > (off_t)(FILE_MAX_BYTES - n) && ftruncate(fd, 0) != 0))
            n = 0;
        const ssize_t written = write(fd, line, n);
        (void)written; // a full disk
        close(fd);
    }
    free(path);
}
