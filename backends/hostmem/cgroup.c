// SPDX-License-Identifier: Apache-2.0
#include "backends/hostmem/cgroup.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "backends/hostmem/proc.h"

// v1 has no word for "no limit": it stores LONG_MAX rounded down to a page. No machine has half of
// that.
#define V1_NO_LIMIT (1ull << 62)

// A group's directory, without root.
typedef void visit_fn(void *ctx, const char *root, const char *dir, bool unified);

// ---- where this process is ----

// True when `list` ("cpu,cpuacct") has `word` as one of its parts.
static bool has_word(const char *list, const char *word)
{
    size_t len = strlen(word);
    while (*list != '\0') {
        size_t part = strcspn(list, ",");
        if (part == len && memcmp(list, word, len) == 0)
            return true;
        list += part + (list[part] == ',');
    }
    return false;
}

// The path of this process in the hierarchy of `controller`, or in the unified one when that is
// NULL. Lines are "id:controllers:path"; the unified one has no controllers.
static bool own_path(const char *root, const char *controller, char *out, size_t cap)
{
    struct plm_lines lines;
    if (!plm_lines_open(&lines, root, "/proc/self/cgroup"))
        return false;
    bool found = false;
    char *line;
    while (!found && (line = plm_lines_next(&lines)) != NULL) {
        char *list = strchr(line, ':');
        char *path = list != NULL ? strchr(list + 1, ':') : NULL;
        if (path == NULL)
            continue;
        *path++ = '\0';
        list++;
        bool match = controller != NULL ? has_word(list, controller) : *list == '\0';
        if (match && strlen(path) < cap) {
            strcpy(out, path);
            found = true;
        }
    }
    plm_lines_close(&lines);
    return found;
}

// mountinfo writes blanks and backslashes as three octal digits; undone in place.
static void unescape(char *s)
{
    char *to = s;
    while (*s != '\0') {
        if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' &&
            s[3] >= '0' && s[3] <= '7') {
            *to++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
            s += 4;
        } else {
            *to++ = *s++;
        }
    }
    *to = '\0';
}

struct mount {
    char *root;  // which directory of the hierarchy is mounted
    char *point; // where
};

// One line of mountinfo: id parent major:minor root point options [tags] - type source super.
static bool parse_mount(char *line, const char *controller, struct mount *ret)
{
    char *tail = strstr(line, " - ");
    if (tail == NULL)
        return false;
    *tail = '\0';
    char *save = NULL;
    char *type = strtok_r(tail + 3, " ", &save);
    char *source = strtok_r(NULL, " ", &save);
    char *super = strtok_r(NULL, " ", &save);
    if (type == NULL || source == NULL)
        return false;
    bool match = controller == NULL
                     ? strcmp(type, "cgroup2") == 0
                     : strcmp(type, "cgroup") == 0 && super != NULL && has_word(super, controller);
    if (!match)
        return false;
    char *field = NULL;
    save = NULL;
    for (int i = 0; i < 5; i++) {
        field = strtok_r(i == 0 ? line : NULL, " ", &save);
        if (field == NULL)
            return false;
        if (i == 3)
            ret->root = field;
    }
    ret->point = field;
    unescape(ret->root);
    unescape(ret->point);
    return true;
}

// The part of `path` below the mounted directory, "" for that directory itself. A process that was
// moved out of its namespace has a path that is not below it: then the mounted directory is all
// that can be seen.
static const char *below(const char *path, const char *mount_root)
{
    size_t len = strcmp(mount_root, "/") == 0 ? 0 : strlen(mount_root);
    if (strncmp(path, mount_root, len) != 0 || (path[len] != '/' && path[len] != '\0'))
        return "";
    if (strncmp(path + len, "/..", 3) == 0 || strcmp(path + len, "/") == 0)
        return "";
    return path + len;
}

// Visits the group's directory and those above it up to the mount point.
static void visit_levels(const char *root, const struct mount *mount, const char *path,
                         visit_fn *visit, void *ctx, bool unified)
{
    char dir[PATH_MAX];
    size_t top = strlen(mount->point);
    int n = snprintf(dir, sizeof(dir), "%s%s", mount->point, below(path, mount->root));
    if (n < 0 || (size_t)n >= sizeof(dir))
        return;
    for (;;) {
        visit(ctx, root, dir, unified);
        char *slash = strrchr(dir, '/');
        if (slash == NULL || (size_t)(slash - dir) < top)
            return;
        *slash = '\0';
    }
}

// controller NULL: the unified hierarchy.
static void walk(const char *root, const char *controller, visit_fn *visit, void *ctx)
{
    char path[PATH_MAX];
    struct plm_lines lines;
    if (!own_path(root, controller, path, sizeof(path)) ||
        !plm_lines_open(&lines, root, "/proc/self/mountinfo"))
        return;
    bool found = false;
    char *line;
    while (!found && (line = plm_lines_next(&lines)) != NULL) {
        struct mount mount = {0};
        if (parse_mount(line, controller, &mount)) {
            visit_levels(root, &mount, path, visit, ctx, controller == NULL);
            found = true; // a second mount of one hierarchy shows the same groups
        }
    }
    plm_lines_close(&lines);
}

static bool read_in(const char *root, const char *dir, const char *file, uint64_t *ret)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof(path), "%s/%s", dir, file);
    return n >= 0 && (size_t)n < sizeof(path) && plm_read_u64(root, path, ret);
}

// ---- memory ----

struct memory_levels {
    struct plm_cgroup *out;
    uint32_t cap;
    uint32_t n;
};

static uint64_t sat_sub(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static uint64_t room_of(const struct plm_cgroup *level)
{
    return sat_sub(level->limit_bytes, sat_sub(level->current_bytes, level->reclaimable_bytes));
}

// inactive_file + active_file - dirty - writeback: clean page cache, which the kernel drops before
// it kills. v1 names with total_ count the groups below as well, as v2 always does.
static uint64_t reclaimable(const char *root, const char *dir, bool unified)
{
    static const char *const v2[] = {"inactive_file ", "active_file ", "file_dirty ",
                                     "file_writeback "};
    static const char *const v1[] = {"total_inactive_file ", "total_active_file ", "total_dirty ",
                                     "total_writeback "};
    const char *const *names = unified ? v2 : v1;
    char path[PATH_MAX];
    struct plm_lines lines;
    int n = snprintf(path, sizeof(path), "%s/memory.stat", dir);
    if (n < 0 || (size_t)n >= sizeof(path) || !plm_lines_open(&lines, root, path))
        return 0;
    uint64_t value[4] = {0};
    const char *line;
    while ((line = plm_lines_next(&lines)) != NULL) {
        for (int i = 0; i < 4; i++) {
            size_t len = strlen(names[i]);
            if (strncmp(line, names[i], len) == 0)
                plm_parse_u64(line + len, &value[i], NULL);
        }
    }
    plm_lines_close(&lines);
    uint64_t clean = value[0] > UINT64_MAX - value[1] ? UINT64_MAX : value[0] + value[1];
    return sat_sub(sat_sub(clean, value[2]), value[3]);
}

static bool read_limit(const char *root, const char *dir, bool unified, uint64_t *ret)
{
    uint64_t limit = UINT64_MAX;
    uint64_t value;
    if (unified) {
        if (read_in(root, dir, "memory.max", &value))
            limit = value;
        if (read_in(root, dir, "memory.high", &value) && value < limit)
            limit = value;
    } else if (read_in(root, dir, "memory.limit_in_bytes", &value) && value < V1_NO_LIMIT) {
        limit = value;
    }
    if (limit == UINT64_MAX)
        return false;
    *ret = limit;
    return true;
}

static void visit_memory(void *ctx, const char *root, const char *dir, bool unified)
{
    struct memory_levels *levels = ctx;
    struct plm_cgroup level = {0};
    if (!read_limit(root, dir, unified, &level.limit_bytes))
        return;
    if (!read_in(root, dir, unified ? "memory.current" : "memory.usage_in_bytes",
                 &level.current_bytes))
        return;
    level.reclaimable_bytes = reclaimable(root, dir, unified);
    if (level.reclaimable_bytes > level.current_bytes)
        level.reclaimable_bytes = level.current_bytes;
    if (levels->n < levels->cap) {
        levels->out[levels->n++] = level;
        return;
    }
    uint32_t loosest = 0;
    for (uint32_t i = 1; i < levels->n; i++) {
        if (room_of(&levels->out[i]) > room_of(&levels->out[loosest]))
            loosest = i;
    }
    if (levels->n > 0 && room_of(&level) < room_of(&levels->out[loosest]))
        levels->out[loosest] = level;
}

uint32_t plm_cgroup_memory(const char *root, struct plm_cgroup *out, uint32_t cap)
{
    struct memory_levels levels = {out, cap, 0};
    walk(root, "memory", visit_memory, &levels);
    walk(root, NULL, visit_memory, &levels);
    return levels.n;
}

// ---- processors ----

static void visit_cpu(void *ctx, const char *root, const char *dir, bool unified)
{
    uint64_t *cpus = ctx;
    uint64_t quota;
    uint64_t period;
    if (unified) {
        // cpu.max is "quota period", or "max period".
        char path[PATH_MAX];
        struct plm_lines lines;
        int n = snprintf(path, sizeof(path), "%s/cpu.max", dir);
        if (n < 0 || (size_t)n >= sizeof(path) || !plm_lines_open(&lines, root, path))
            return;
        const char *line = plm_lines_next(&lines);
        const char *rest;
        bool ok = line != NULL && plm_parse_u64(line, &quota, &rest) &&
                  plm_parse_u64(rest, &period, NULL);
        plm_lines_close(&lines);
        if (!ok)
            return;
    } else if (!read_in(root, dir, "cpu.cfs_quota_us", &quota) || // -1, no quota, is no number
               !read_in(root, dir, "cpu.cfs_period_us", &period)) {
        return;
    }
    if (period == 0)
        return;
    uint64_t whole = quota / period + (quota % period != 0);
    if (whole > 0 && whole < *cpus)
        *cpus = whole;
}

uint32_t plm_cgroup_cpus(const char *root)
{
    cpu_set_t set;
    uint64_t cpus = 1;
    if (sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) > 0)
        cpus = (uint64_t)CPU_COUNT(&set);
    walk(root, "cpu", visit_cpu, &cpus);
    walk(root, NULL, visit_cpu, &cpus);
    return (uint32_t)cpus;
}
