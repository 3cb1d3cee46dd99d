// SPDX-License-Identifier: Apache-2.0
#include "backends/hostmem/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool plm_lines_open(struct plm_lines *lines, const char *root, const char *path)
{
    char full[PATH_MAX];
    int n = snprintf(full, sizeof(full), "%s%s", root != NULL ? root : "", path);
    if (n < 0 || (size_t)n >= sizeof(full))
        return false;
    lines->fd = open(full, O_RDONLY | O_CLOEXEC);
    lines->begin = 0;
    lines->end = 0;
    lines->eof = false;
    lines->cut = false;
    return lines->fd >= 0;
}

void plm_lines_close(struct plm_lines *lines)
{
    close(lines->fd);
    lines->fd = -1;
}

// Moves what is left to the front and reads behind it.
static void refill(struct plm_lines *lines)
{
    memmove(lines->buffer, lines->buffer + lines->begin, lines->end - lines->begin);
    lines->end -= lines->begin;
    lines->begin = 0;
    size_t room = sizeof(lines->buffer) - 1 - lines->end; // one byte stays for the NUL
    ssize_t n;
    do {
        n = read(lines->fd, lines->buffer + lines->end, room);
    } while (n < 0 && errno == EINTR);
    if (n <= 0)
        lines->eof = true;
    else
        lines->end += (size_t)n;
}

// The next piece that ends at a newline, the end of the file or the end of the buffer.
static char *next_piece(struct plm_lines *lines, bool *ret_cut)
{
    for (;;) {
        char *piece = lines->buffer + lines->begin;
        char *nl = memchr(piece, '\n', lines->end - lines->begin);
        bool full = lines->end - lines->begin == sizeof(lines->buffer) - 1;
        if (nl == NULL && !full && !lines->eof) {
            refill(lines);
            continue;
        }
        if (nl == NULL && lines->begin == lines->end)
            return NULL;
        *ret_cut = nl == NULL && full;
        if (nl == NULL)
            nl = lines->buffer + lines->end;
        *nl = '\0';
        lines->begin = (size_t)(nl - lines->buffer) + 1;
        if (lines->begin > lines->end)
            lines->begin = lines->end;
        return piece;
    }
}

char *plm_lines_next(struct plm_lines *lines)
{
    char *piece;
    bool rest;
    do {
        rest = lines->cut;
        lines->cut = false;
        piece = next_piece(lines, &lines->cut);
    } while (rest && piece != NULL);
    return piece;
}

bool plm_parse_u64(const char *s, uint64_t *ret, const char **end)
{
    while (*s == ' ' || *s == '\t')
        s++;
    if (*s < '0' || *s > '9')
        return false;
    uint64_t value = 0;
    for (; *s >= '0' && *s <= '9'; s++) {
        uint64_t digit = (uint64_t)(*s - '0');
        value = value > (UINT64_MAX - digit) / 10 ? UINT64_MAX : value * 10 + digit;
    }
    *ret = value;
    if (end != NULL)
        *end = s;
    return true;
}

bool plm_read_keyed_u64(const char *root, const char *path, const char *key, uint64_t *ret)
{
    struct plm_lines lines;
    if (!plm_lines_open(&lines, root, path))
        return false;
    size_t key_len = strlen(key);
    bool found = false;
    const char *line;
    while (!found && (line = plm_lines_next(&lines)) != NULL) {
        if (strncmp(line, key, key_len) != 0)
            continue;
        const char *rest = line + key_len;
        if (*rest == ':')
            rest++;
        if (*rest == ' ' || *rest == '\t')
            found = plm_parse_u64(rest, ret, NULL);
    }
    plm_lines_close(&lines);
    return found;
}

bool plm_read_u64(const char *root, const char *path, uint64_t *ret)
{
    struct plm_lines lines;
    if (!plm_lines_open(&lines, root, path))
        return false;
    const char *line = plm_lines_next(&lines);
    bool found = line != NULL && plm_parse_u64(line, ret, NULL);
    plm_lines_close(&lines);
    return found;
}
