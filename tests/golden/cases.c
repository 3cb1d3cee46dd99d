// SPDX-License-Identifier: Apache-2.0
#include "tests/golden/cases.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool ends_with(const char *name, const char *suffix)
{
    size_t n = strlen(name), n_suffix = strlen(suffix);
    return n > n_suffix && strcmp(name + n - n_suffix, suffix) == 0;
}

static bool run_dir(const struct cases *cases, const char *dir, struct counts *counts)
{
    struct dirent **entries = NULL;
    int n = scandir(dir, &entries, NULL, alphasort);
    if (n < 0) {
        printf("%s: %s\n", dir, strerror(errno));
        return false;
    }
    for (int i = 0; i < n; i++) {
        if (ends_with(entries[i]->d_name, cases->suffix))
            cases->file(dir, entries[i]->d_name, counts);
        free(entries[i]);
    }
    free(entries);
    if (cases->rest != NULL)
        cases->rest(dir, counts);
    return true;
}

int cases_main(const struct cases *cases, struct plm_host *host, int argc, char **argv)
{
    const size_t n_folders = sizeof(cases->folders) / sizeof(*cases->folders);
    struct counts counts = {0};
    bool ok = true;
    for (int i = 1; i < argc; i++)
        ok = run_dir(cases, argv[i], &counts) && ok;
    for (size_t i = 0; argc == 1 && i < n_folders; i++)
        if (access(cases->folders[i], R_OK) == 0)
            ok = run_dir(cases, cases->folders[i], &counts) && ok;
    int64_t leaked = plm_host_destroy(host);
    if (leaked != 0)
        printf("%lld bytes were not freed\n", (long long)leaked);
    printf("%ld passed, %ld failed, %ld skipped\n", counts.passed, counts.failed, counts.skipped);
    if (counts.failed > 0 || leaked != 0 || !ok)
        return 1;
    return counts.passed > 0 ? 0 : 77;
}
