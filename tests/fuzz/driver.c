// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target over files and folders of files, without libFuzzer: the regression test of
// every build. Fails where there was nothing to run.
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"

static unsigned long n_files;

static int run_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    long size = -1;
    if (f != NULL && fseek(f, 0, SEEK_END) == 0)
        size = ftell(f);
    if (size < 0 || fseek(f, 0, SEEK_SET) != 0) {
        perror(path);
        if (f != NULL)
            fclose(f);
        return EXIT_FAILURE;
    }
    // Exactly as large as the file, so that a sanitizer sees a read beyond its end.
    uint8_t *bytes = malloc(size > 0 ? (size_t)size : 1);
    int status = EXIT_FAILURE;
    if (bytes != NULL && fread(bytes, 1, (size_t)size, f) == (size_t)size) {
        fprintf(stderr, "%s\n", path); // the last line before a crash names the input
        status = LLVMFuzzerTestOneInput(bytes, (size_t)size) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
        n_files++;
    }
    free(bytes);
    fclose(f);
    return status;
}

static int run_path(const char *path)
{
    DIR *dir = opendir(path);
    int status = EXIT_SUCCESS;
    if (dir == NULL)
        return run_file(path);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        char inner[4096];
        if (entry->d_name[0] == '.')
            continue;
        if (snprintf(inner, sizeof(inner), "%s/%s", path, entry->d_name) >= (int)sizeof(inner) ||
            run_file(inner) != EXIT_SUCCESS)
            status = EXIT_FAILURE;
    }
    closedir(dir);
    return status;
}

int main(int argc, char **argv)
{
    int status = EXIT_SUCCESS;
    for (int i = 1; i < argc; i++) {
        if (run_path(argv[i]) != EXIT_SUCCESS)
            status = EXIT_FAILURE;
    }
    printf("%lu inputs\n", n_files);
    return n_files > 0 ? status : EXIT_FAILURE;
}
