// SPDX-License-Identifier: Apache-2.0
// Any bytes as the kernel's text files that the CPU backend reads: a reading must not crash and its
// numbers must hang together. The input is cut at zero bytes into the files below.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backends/hostmem/cgroup.h"
#include "backends/hostmem/hostmem.h"
#include "tests/fuzz/fuzz.h"

static const char *const files[] = {
    "/proc/meminfo", "/proc/self/statm", "/proc/self/cgroup", "/proc/self/mountinfo",
    "/g/memory.max", "/g/memory.stat",   "/g/cpu.max",        "/g/a/memory.max",
};
#define N_FILES (sizeof(files) / sizeof(files[0]))

static char root[64];

static void remove_root(void)
{
    char command[96];
    snprintf(command, sizeof(command), "rm -rf %s", root);
    if (system(command) != 0)
        fputs("cannot remove the folder of the fuzzed machine\n", stderr);
}

static void put(const char *path, const uint8_t *bytes, size_t n)
{
    char full[128];
    snprintf(full, sizeof(full), "%s%s", root, path);
    FILE *f = fopen(full, "wb");
    if (f == NULL || fwrite(bytes, 1, n, f) != n || fclose(f) != 0)
        abort();
}

static void make_root(void)
{
    static const char *const dirs[] = {"/proc", "/proc/self", "/g", "/g/a"};
    char full[128];
    strcpy(root, "/tmp/plm-fuzz-XXXXXX");
    if (mkdtemp(root) == NULL)
        abort();
    for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
        snprintf(full, sizeof(full), "%s%s", root, dirs[i]);
        mkdir(full, 0700);
    }
    put("/g/memory.current", (const uint8_t *)"4096\n", 5);
    put("/g/a/memory.current", (const uint8_t *)"18446744073709551615\n", 21);
    atexit(remove_root);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    if (root[0] == '\0')
        make_root();
    for (size_t i = 0; i < N_FILES; i++) {
        const uint8_t *end = n > 0 ? memchr(bytes, 0, n) : NULL;
        size_t len = end != NULL ? (size_t)(end - bytes) : n;
        put(files[i], bytes, len);
        size_t used = len + (end != NULL);
        bytes += used;
        n -= used;
    }
    struct plm_hostmem machine = {.root = root};
    struct plm_mem_info info;
    int rc = plm_hostmem_query(&machine, &info);
    if (rc != PLM_OK && rc != PLM_ERR_IO)
        abort();
    if (rc == PLM_OK && (info.total_bytes == 0 || info.n_cgroups > PLM_CGROUP_LEVELS))
        abort();
    for (uint32_t i = 0; rc == PLM_OK && i < info.n_cgroups; i++) {
        if (info.cgroups[i].reclaimable_bytes > info.cgroups[i].current_bytes)
            abort();
    }
    if (plm_cgroup_cpus(root) == 0)
        abort();
    return 0;
}
