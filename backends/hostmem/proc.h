// SPDX-License-Identifier: Apache-2.0
// Reading the kernel's text files. They are foreign text: lines are bounded and numbers checked.
// Takes no memory, so that a reading can be made when there is none left. A root is put before
// every path (NULL or "" is the real machine), so that tests build a machine out of files.
#ifndef PLM_HOSTMEM_PROC_H
#define PLM_HOSTMEM_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A text file read line by line through a fixed buffer.
#define PLM_LINES_BUFFER 4096
struct plm_lines {
    int fd;
    size_t begin;
    size_t end;
    bool eof;
    bool cut; // the last line handed out was longer than the buffer
    char buffer[PLM_LINES_BUFFER];
};

// false when there is no such file or it may not be read; then nothing is open.
bool plm_lines_open(struct plm_lines *lines, const char *root, const char *path);
// The next line without its end, NUL-terminated, or NULL at the end of the file. A line longer than
// the buffer is cut to it. Valid until the next call; the caller may write into it.
char *plm_lines_next(struct plm_lines *lines);
void plm_lines_close(struct plm_lines *lines);

// Decimal digits at the start of s, after blanks; *end (may be NULL) is what follows them. false
// where there are none. Saturates at UINT64_MAX.
bool plm_parse_u64(const char *s, uint64_t *ret, const char **end);
// The number after `key` in a file of "key value" or "key: value" lines.
bool plm_read_keyed_u64(const char *root, const char *path, const char *key, uint64_t *ret);
// The number at the start of a file; "max" and what cannot be read give false.
bool plm_read_u64(const char *root, const char *path, uint64_t *ret);

#endif
