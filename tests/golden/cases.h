// SPDX-License-Identifier: Apache-2.0
// The frame of a program that runs recorded cases: which folders, how many passed, what it exits
// with.
#ifndef PLM_TESTS_CASES_H
#define PLM_TESTS_CASES_H

#include "core/base/alloc.h"

struct counts {
    long passed;
    long failed;
    long skipped;
};

struct cases {
    const char *suffix;           // of the files to run in a folder, in the order of their names
    const char *const folders[2]; // without arguments, those that are there
    void (*file)(const char *dir, const char *name, struct counts *counts);
    void (*rest)(const char *dir, struct counts *counts); // of the folder; NULL: nothing
};

// A main(): the arguments are folders. Prints the counts and destroys the host, which must be empty
// by then. Exit status: 0 nothing failed, 1 a case failed, a folder was unreadable or bytes leaked,
// 77 nothing ran.
int cases_main(const struct cases *cases, struct plm_host *host, int argc, char **argv);

#endif
