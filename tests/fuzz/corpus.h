// SPDX-License-Identifier: Apache-2.0
// Of the programs that write a corpus.
#ifndef PLM_TESTS_FUZZ_CORPUS_H
#define PLM_TESTS_FUZZ_CORPUS_H

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>

// Makes a folder, with its parents.
static inline bool make_folder(const char *path)
{
    char part[4096];
    for (size_t i = 1; i < sizeof(part); i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        snprintf(part, sizeof(part), "%.*s", (int)i, path);
        if (mkdir(part, 0777) != 0 && errno != EEXIST)
            return false;
        if (path[i] == '\0')
            return true;
    }
    return false;
}

#endif
