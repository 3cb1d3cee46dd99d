// SPDX-License-Identifier: Apache-2.0
#include <string.h>
#include <unistd.h>

#include "backends/hostmem/cgroup.h"
#include "backends/hostmem/hostmem.h"
#include "backends/hostmem/proc.h"

uint64_t plm_hostmem_resident_bytes(const char *root)
{
    // statm is "size resident shared ...", in pages.
    struct plm_lines lines;
    if (!plm_lines_open(&lines, root, "/proc/self/statm"))
        return 0;
    const char *line = plm_lines_next(&lines);
    uint64_t size;
    uint64_t resident = 0;
    const char *rest;
    if (line == NULL || !plm_parse_u64(line, &size, &rest) || !plm_parse_u64(rest, &resident, NULL))
        resident = 0;
    plm_lines_close(&lines);
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    return resident > UINT64_MAX / page ? UINT64_MAX : resident * page;
}

struct meminfo {
    uint64_t total;
    uint64_t available;
    uint64_t free;
    uint64_t buffers;
    uint64_t cached;
    bool has_available; // since Linux 3.14
};

static void parse_meminfo_line(const char *line, struct meminfo *info)
{
    static const char kib[] = "kB";
    const char *colon = strchr(line, ':');
    uint64_t value;
    const char *rest;
    if (colon == NULL || !plm_parse_u64(colon + 1, &value, &rest))
        return;
    if (strstr(rest, kib) != NULL)
        value = value > UINT64_MAX / 1024 ? UINT64_MAX : value * 1024;
    size_t len = (size_t)(colon - line);
    if (len == 8 && memcmp(line, "MemTotal", len) == 0)
        info->total = value;
    else if (len == 7 && memcmp(line, "MemFree", len) == 0)
        info->free = value;
    else if (len == 7 && memcmp(line, "Buffers", len) == 0)
        info->buffers = value;
    else if (len == 6 && memcmp(line, "Cached", len) == 0)
        info->cached = value;
    else if (len == 12 && memcmp(line, "MemAvailable", len) == 0) {
        info->available = value;
        info->has_available = true;
    }
}

int plm_hostmem_query(const struct plm_hostmem *machine, struct plm_mem_info *ret)
{
    struct plm_lines lines;
    if (!plm_lines_open(&lines, machine->root, "/proc/meminfo"))
        return PLM_ERR_IO;
    struct meminfo info = {0};
    const char *line;
    while ((line = plm_lines_next(&lines)) != NULL)
        parse_meminfo_line(line, &info);
    plm_lines_close(&lines);
    if (info.total == 0)
        return PLM_ERR_IO;

    memset(ret, 0, sizeof(*ret));
    ret->total_bytes = info.total;
    ret->source = "/proc/meminfo";
    if (info.has_available) {
        ret->free_bytes = info.available;
        ret->confidence = PLM_CONFIDENCE_MEDIUM; // the kernel calls it an estimate
    } else {
        ret->free_bytes = info.free + info.buffers + info.cached;
        ret->confidence = PLM_CONFIDENCE_LOW; // counts dirty and shared pages as free
    }
    ret->process_use_bytes = plm_hostmem_resident_bytes(machine->root);
    ret->n_cgroups = plm_cgroup_memory(machine->root, ret->cgroups, PLM_CGROUP_LEVELS);
    return PLM_OK;
}
