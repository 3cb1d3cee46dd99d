// SPDX-License-Identifier: Apache-2.0
// What backends/hostmem reads of a machine made of files, and what the CPU backend takes of the
// real one.
#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/cpu/mem.h"
#include "backends/hostmem/cgroup.h"
#include "backends/hostmem/proc.h"
#include "core/base/alloc.h"
#include "tests/support/suite.h"

#define KIB 1024ull
#define MIB (1ull << 20)
#define GIB (1ull << 30)

static char root[64];

// Writes root/path, making its folders.
static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof(full), "%s%s", root, path);
    for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')) != NULL; p++) {
        *p = '\0';
        mkdir(full, 0700);
        *p = '/';
    }
    FILE *f = fopen(full, "w");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    fclose(f);
}

static void put_u64(const char *path, uint64_t value)
{
    char text[32];
    snprintf(text, sizeof(text), "%llu\n", (unsigned long long)value);
    put(path, text);
}

// A machine of 64 GiB with 48 GiB available, on which this process holds 1 GiB.
static void new_machine(void)
{
    char pages[64];
    snprintf(root, sizeof(root), "/tmp/plm-machine-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
    put("/proc/meminfo", "MemTotal:       67108864 kB\nMemFree:         1048576 kB\n"
                         "MemAvailable:   50331648 kB\nBuffers:           10240 kB\n"
                         "Cached:         41943040 kB\nSwapCached:            0 kB\n");
    snprintf(pages, sizeof(pages), "999999 %llu 100 1 0 1 0\n",
             (unsigned long long)(GIB / (uint64_t)sysconf(_SC_PAGESIZE)));
    put("/proc/self/statm", pages);
}

static void drop_machine(void)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", root);
    ck_assert_int_eq(system(command), 0);
}

static struct plm_mem_info query(void)
{
    struct plm_hostmem machine = {.root = root};
    struct plm_mem_info info;
    ck_assert_int_eq(plm_hostmem_query(&machine, &info), PLM_OK);
    return info;
}

static void assert_level(const struct plm_cgroup *level, uint64_t limit, uint64_t current,
                         uint64_t reclaimable)
{
    ck_assert_uint_eq(level->limit_bytes, limit);
    ck_assert_uint_eq(level->current_bytes, current);
    ck_assert_uint_eq(level->reclaimable_bytes, reclaimable);
}

START_TEST(a_machine_without_groups)
{
    new_machine();
    struct plm_mem_info info = query();
    ck_assert_uint_eq(info.total_bytes, 64 * GIB);
    ck_assert_uint_eq(info.free_bytes, 48 * GIB);
    ck_assert_uint_eq(info.process_use_bytes, GIB);
    ck_assert_uint_eq(info.n_cgroups, 0);
    ck_assert_int_eq(info.confidence, PLM_CONFIDENCE_MEDIUM);
    put("/proc/meminfo", "MemTotal: 1000 kB\nMemFree: 100 kB\nBuffers: 20 kB\nCached: 3 kB\n");
    info = query();
    ck_assert_uint_eq(info.free_bytes, 123 * KIB);
    ck_assert_int_eq(info.confidence, PLM_CONFIDENCE_LOW);
    struct plm_hostmem machine = {.root = root};
    static const char *const bad[] = {"", "MemTotal:", "MemTotal: x kB\n", "\n\n:::\n",
                                      "MemTotal: 0 kB\n"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        put("/proc/meminfo", bad[i]);
        ck_assert_int_eq(plm_hostmem_query(&machine, &info), PLM_ERR_IO);
    }
    put("/proc/meminfo", "MemTotal: 99999999999999999999999999 kB\n");
    ck_assert_uint_eq(query().total_bytes, UINT64_MAX);
    drop_machine();
}
END_TEST

static const char mounts_v2[] =
    "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
    "30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

START_TEST(every_level_of_v2)
{
    new_machine();
    put("/proc/self/mountinfo", mounts_v2);
    put("/proc/self/cgroup", "0::/user.slice/app.scope\n");
    // The root of the hierarchy has no limit files; the slice has no limit; the scope has two.
    put("/sys/fs/cgroup/user.slice/memory.max", "max\n");
    put("/sys/fs/cgroup/user.slice/memory.high", "max\n");
    put_u64("/sys/fs/cgroup/user.slice/memory.current", 9 * GIB);
    put_u64("/sys/fs/cgroup/user.slice/app.scope/memory.max", 8 * GIB);
    put_u64("/sys/fs/cgroup/user.slice/app.scope/memory.current", 3 * GIB);
    put("/sys/fs/cgroup/user.slice/app.scope/memory.stat",
        "anon 1000\nfile 99\nfile_mapped 5\nfile_dirty 300\nfile_writeback 70\n"
        "inactive_anon 12345\ninactive_file 4000\nactive_file 2000\nunevictable 0\n");
    struct plm_mem_info info = query();
    ck_assert_uint_eq(info.n_cgroups, 1);
    assert_level(&info.cgroups[0], 8 * GIB, 3 * GIB, 4000 + 2000 - 300 - 70);
    // A lower memory.high binds first.
    put_u64("/sys/fs/cgroup/user.slice/app.scope/memory.high", 6 * GIB);
    ck_assert_uint_eq(query().cgroups[0].limit_bytes, 6 * GIB);
    // And a limit above counts as well.
    put_u64("/sys/fs/cgroup/user.slice/memory.max", 10 * GIB);
    info = query();
    ck_assert_uint_eq(info.n_cgroups, 2);
    assert_level(&info.cgroups[1], 10 * GIB, 9 * GIB, 0);
    // Reclaimable is never more than there is, and never below 0.
    put("/sys/fs/cgroup/user.slice/memory.stat", "file_dirty 300\ninactive_file 200\n");
    ck_assert_uint_eq(query().cgroups[1].reclaimable_bytes, 0);
    put("/sys/fs/cgroup/user.slice/memory.stat",
        "inactive_file 18446744073709551615\nactive_file 18446744073709551615\n");
    ck_assert_uint_eq(query().cgroups[1].reclaimable_bytes, 9 * GIB);
    drop_machine();
}
END_TEST

static const char mounts_v1[] =
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "35 31 0:32 %s /sys/fs/cgroup/mem\\040ory rw shared:4 - cgroup cgroup rw,memory\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

static void put_v1(const char *dir, uint64_t limit, uint64_t usage)
{
    char path[256];
    snprintf(path, sizeof(path), "/sys/fs/cgroup/mem ory%s/memory.limit_in_bytes", dir);
    put_u64(path, limit);
    snprintf(path, sizeof(path), "/sys/fs/cgroup/mem ory%s/memory.usage_in_bytes", dir);
    put_u64(path, usage);
}

START_TEST(every_level_of_v1_beside_v2)
{
    char mounts[512];
    new_machine();
    snprintf(mounts, sizeof(mounts), mounts_v1, "/");
    put("/proc/self/mountinfo", mounts);
    put("/proc/self/cgroup", "9:name=systemd:/\n4:hugetlb,memory:/docker/abc\n1:cpu:/x\n0::/\n");
    put_v1("", 9223372036854771712ull, 5 * GIB); // v1's way to say that there is none
    put_v1("/docker", 20 * GIB, 5 * GIB);
    put_v1("/docker/abc", 4 * GIB, GIB);
    put("/sys/fs/cgroup/mem ory/docker/abc/memory.stat",
        "inactive_file 1\nactive_file 1\ntotal_inactive_file 500\ntotal_active_file 600\n"
        "total_dirty 90\ntotal_writeback 10\n");
    struct plm_mem_info info = query();
    ck_assert_uint_eq(info.n_cgroups, 2);
    assert_level(&info.cgroups[0], 4 * GIB, GIB, 1000);
    assert_level(&info.cgroups[1], 20 * GIB, 5 * GIB, 0);
    drop_machine();
}
END_TEST

START_TEST(a_container_sees_its_own_folder)
{
    char mounts[512];
    new_machine();
    // v1 in a container: the mount shows /docker/abc alone, and the path names it whole.
    snprintf(mounts, sizeof(mounts), mounts_v1, "/docker/abc");
    put("/proc/self/mountinfo", mounts);
    put("/proc/self/cgroup", "4:memory:/docker/abc\n");
    put_v1("", 4 * GIB, GIB);
    ck_assert_uint_eq(query().n_cgroups, 1);
    put("/proc/self/cgroup", "4:memory:/docker/abc/inner\n");
    put_v1("/inner", 2 * GIB, GIB);
    ck_assert_uint_eq(query().n_cgroups, 2);
    // A name that only begins alike, or a path outside the namespace: the mount itself counts.
    put("/proc/self/cgroup", "4:memory:/docker/abcd/inner\n");
    ck_assert_uint_eq(query().n_cgroups, 1);
    put("/proc/self/cgroup", "0::/../../other\n");
    put("/proc/self/mountinfo", mounts_v2);
    put_u64("/sys/fs/cgroup/memory.max", 3 * GIB);
    put_u64("/sys/fs/cgroup/memory.current", GIB);
    struct plm_mem_info info = query();
    ck_assert_uint_eq(info.n_cgroups, 1);
    ck_assert_uint_eq(info.cgroups[0].limit_bytes, 3 * GIB);
    drop_machine();
}
END_TEST

START_TEST(of_many_levels_the_tightest_are_kept)
{
    char dir[256] = "/sys/fs/cgroup";
    char path[320];
    new_machine();
    put("/proc/self/mountinfo", mounts_v2);
    put("/proc/self/cgroup", "0::/a/a/a/a/a/a/a/a/a/a/a\n");
    for (int i = 0; i < 11; i++) {
        strcat(dir, "/a");
        snprintf(path, sizeof(path), "%s/memory.max", dir);
        put_u64(path, (uint64_t)(20 - i) * GIB); // the innermost, read first, is the tightest
        snprintf(path, sizeof(path), "%s/memory.current", dir);
        put_u64(path, GIB);
    }
    snprintf(path, sizeof(path), "/sys/fs/cgroup/a/memory.max");
    put_u64(path, 2 * GIB); // but for the outermost
    struct plm_mem_info info = query();
    ck_assert_uint_eq(info.n_cgroups, PLM_CGROUP_LEVELS);
    uint64_t least = UINT64_MAX;
    uint64_t most = 0;
    for (uint32_t i = 0; i < info.n_cgroups; i++) {
        least = info.cgroups[i].limit_bytes < least ? info.cgroups[i].limit_bytes : least;
        most = info.cgroups[i].limit_bytes > most ? info.cgroups[i].limit_bytes : most;
    }
    ck_assert_uint_eq(least, 2 * GIB);
    ck_assert_uint_eq(most, 16 * GIB); // 17, 18 and 19 gave way
    drop_machine();
}
END_TEST

START_TEST(processor_quotas)
{
    new_machine();
    uint32_t all = plm_cgroup_cpus(NULL);
    ck_assert_uint_ge(all, 1);
    ck_assert_uint_eq(plm_cgroup_cpus(root) >= all, 1);
    put("/proc/self/mountinfo", mounts_v2);
    put("/proc/self/cgroup", "0::/a\n");
    put("/sys/fs/cgroup/a/cpu.max", "max 100000\n");
    ck_assert_uint_ge(plm_cgroup_cpus(root), 1);
    put("/sys/fs/cgroup/a/cpu.max", "50000 100000\n");
    ck_assert_uint_eq(plm_cgroup_cpus(root), 1); // rounded up, not to nothing
    put("/sys/fs/cgroup/a/cpu.max", "1 0\n");
    ck_assert_uint_ge(plm_cgroup_cpus(root), 1);
    drop_machine();
}
END_TEST

START_TEST(long_and_broken_lines)
{
    static char text[3 * PLM_LINES_BUFFER];
    new_machine();
    memset(text, 'x', sizeof(text) - 1);
    memcpy(text + 2 * PLM_LINES_BUFFER, "\nMemTotal: 5 kB\nlast", 20);
    text[2 * PLM_LINES_BUFFER + 20] = '\0';
    put("/proc/meminfo", text);
    struct plm_lines lines;
    ck_assert(plm_lines_open(&lines, root, "/proc/meminfo"));
    ck_assert_uint_eq(strlen(plm_lines_next(&lines)), PLM_LINES_BUFFER - 1);
    ck_assert_str_eq(plm_lines_next(&lines), "MemTotal: 5 kB");
    ck_assert_str_eq(plm_lines_next(&lines), "last");
    ck_assert_ptr_null(plm_lines_next(&lines));
    plm_lines_close(&lines);
    ck_assert_uint_eq(query().total_bytes, 5 * KIB);
    ck_assert(!plm_lines_open(&lines, root, "/proc/none"));
    // A line that fills the buffer exactly is not cut.
    text[PLM_LINES_BUFFER - 1] = '\n';
    memcpy(text + PLM_LINES_BUFFER, "b\n", 3);
    put("/proc/meminfo", text);
    ck_assert(plm_lines_open(&lines, root, "/proc/meminfo"));
    ck_assert_uint_eq(strlen(plm_lines_next(&lines)), PLM_LINES_BUFFER - 1);
    uint64_t value;
    const char *rest;
    ck_assert(plm_parse_u64(" \t12ab", &value, &rest));
    ck_assert_uint_eq(value, 12);
    ck_assert_str_eq(rest, "ab");
    ck_assert(!plm_parse_u64("-1", &value, NULL));
    ck_assert(!plm_parse_u64("max", &value, NULL));
    ck_assert(plm_parse_u64("18446744073709551615", &value, NULL));
    ck_assert_uint_eq(value, UINT64_MAX);
    ck_assert(plm_parse_u64("18446744073709551616", &value, NULL));
    ck_assert_uint_eq(value, UINT64_MAX);
    plm_lines_close(&lines);
    drop_machine();
}
END_TEST

// ---- taking memory ----

static int alloc(uint64_t limit_bytes, uint64_t bytes, struct plm_slab *slab)
{
    struct plm_hostmem machine = {.root = root, .limit_bytes = limit_bytes};
    return plm_cpu_alloc(&machine, NULL, PLM_SLAB_DEVICE, bytes, NULL, slab);
}

START_TEST(a_limit_of_a_group_stops_it)
{
    new_machine();
    put("/proc/self/mountinfo", mounts_v2);
    put("/proc/self/cgroup", "0::/a\n");
    struct plm_slab slab;
    put_u64("/sys/fs/cgroup/a/memory.max", 100 * MIB);
    put_u64("/sys/fs/cgroup/a/memory.current", 90 * MIB);
    ck_assert_int_eq(alloc(0, 16 * MIB, &slab), PLM_ERR_OUT_OF_DEVICE);
    ck_assert_int_eq(alloc(0, 101 * MIB, &slab), PLM_ERR_TOO_LARGE);
    // Page cache of the group gives way.
    put("/sys/fs/cgroup/a/memory.stat", "inactive_file 31457280\n");
    ck_assert_int_eq(alloc(0, 16 * MIB, &slab), PLM_OK);
    plm_cpu_free(&slab);
    // The machine itself is a limit too.
    put("/proc/meminfo", "MemTotal: 1048576 kB\nMemAvailable: 20480 kB\n");
    ck_assert_int_eq(alloc(0, 32 * MIB, &slab), PLM_ERR_OUT_OF_DEVICE);
    ck_assert_int_eq(alloc(0, 2 * GIB, &slab), PLM_ERR_TOO_LARGE);
    ck_assert_int_eq(alloc(0, 16 * MIB, &slab), PLM_OK);
    plm_cpu_free(&slab);
    // So is the operator; this process holds 1 GiB there.
    ck_assert_int_eq(alloc(GIB + 8 * MIB, 16 * MIB, &slab), PLM_ERR_OUT_OF_DEVICE);
    ck_assert_int_eq(alloc(GIB + 24 * MIB, 16 * MIB, &slab), PLM_OK);
    plm_cpu_free(&slab);
    // Blind, nothing is taken.
    put("/proc/meminfo", "");
    ck_assert_int_eq(alloc(0, 16 * MIB, &slab), PLM_ERR_OUT_OF_DEVICE);
    ck_assert_int_eq(alloc(0, UINT64_MAX, &slab), PLM_ERR_TOO_LARGE);
    drop_machine();
}
END_TEST

START_TEST(slabs_are_resident_and_go_back)
{
    root[0] = '\0';
    struct plm_slab slab;
    uint64_t before = plm_hostmem_resident_bytes(NULL);
    ck_assert_int_eq(alloc(0, 100 * MIB + 1, &slab), PLM_OK);
    ck_assert_uint_eq(slab.taken_bytes, 112 * MIB);
    ck_assert_uint_eq(slab.addr % (2 * MIB), 0);
    uint64_t held = plm_hostmem_resident_bytes(NULL);
    ck_assert_uint_ge(held - before, 111 * MIB);
    ck_assert_uint_le(held - before, 114 * MIB);
    memset(slab.host, 1, slab.taken_bytes);
    plm_cpu_free(&slab);
    ck_assert_uint_le(plm_hostmem_resident_bytes(NULL), before + 2 * MIB);
    // Imported memory stays the caller's.
    char own[64];
    struct plm_hostmem machine = {0};
    ck_assert_int_eq(plm_cpu_alloc(&machine, NULL, PLM_SLAB_IMPORTED, 64, own, &slab), PLM_OK);
    ck_assert_ptr_eq(slab.host, own);
    ck_assert_uint_eq(slab.taken_bytes, 0);
    plm_cpu_free(&slab);
}
END_TEST

// Memory that a driver hands out need not begin at a page.
START_TEST(a_touch_takes_the_pages_that_its_ends_lie_in)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *base =
        mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char there[4];
    ck_assert(base != MAP_FAILED);
    madvise(base, 4 * page, MADV_NOHUGEPAGE);
    ck_assert(plm_hostmem_touch(base + page - 1, page + 2));
    ck_assert_int_eq(mincore(base, 4 * page, there), 0);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(there[i] & 1, i < 3);
    munmap(base, 4 * page);
}
END_TEST

// A neighbour that takes everything while a slab is being touched.
static void *neighbour(void *arg)
{
    uint64_t start = *(uint64_t *)arg;
    while (plm_hostmem_resident_bytes(NULL) < start + 100 * MIB)
        usleep(500);
    put("/proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable: 0 kB\n");
    return NULL;
}

START_TEST(every_step_looks_again)
{
    new_machine();
    struct plm_slab slab;
    pthread_t thread;
    uint64_t start = plm_hostmem_resident_bytes(NULL);
    ck_assert_int_eq(pthread_create(&thread, NULL, neighbour, &start), 0);
    ck_assert_int_eq(alloc(0, GIB, &slab), PLM_ERR_OUT_OF_DEVICE);
    pthread_join(thread, NULL);
    ck_assert_uint_le(plm_hostmem_resident_bytes(NULL), start + 8 * MIB);
    drop_machine();
}
END_TEST

// VmHWM of /proc/self/status: the kernel's own record of the largest resident size.
static uint64_t peak_resident(void)
{
    uint64_t kib = 0;
    ck_assert(plm_read_keyed_u64(NULL, "/proc/self/status", "VmHWM", &kib));
    return kib * KIB;
}

// The operator's limit on the real machine: slabs of odd sizes until none fits, by the kernel's
// record never above the limit, and near to it in the end.
START_TEST(the_operators_limit_is_never_crossed)
{
    root[0] = '\0';
    struct plm_slab slabs[64];
    uint64_t limit = 300 * MIB + 12345 + (uint64_t)_i * 50 * MIB;
    int n = 0;
    while (n < 64 && alloc(limit, (uint64_t)(n % 3 + 1) * 13 * MIB, &slabs[n]) == PLM_OK)
        n++;
    ck_assert_int_lt(n, 64);
    struct plm_slab slab;
    while (alloc(limit, MIB, &slab) == PLM_OK)
        slabs[n++] = slab;
    ck_assert_uint_le(peak_resident(), limit);
    ck_assert_uint_ge(peak_resident(), limit - 32 * MIB);
    ck_assert_int_eq(alloc(limit, limit + 1, &slab), PLM_ERR_TOO_LARGE);
    while (n > 0)
        plm_cpu_free(&slabs[--n]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cpu_mem");
    TCase *tc = tcase_create("cpu_mem");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, a_machine_without_groups);
    tcase_add_test(tc, every_level_of_v2);
    tcase_add_test(tc, every_level_of_v1_beside_v2);
    tcase_add_test(tc, a_container_sees_its_own_folder);
    tcase_add_test(tc, of_many_levels_the_tightest_are_kept);
    tcase_add_test(tc, processor_quotas);
    tcase_add_test(tc, long_and_broken_lines);
    tcase_add_test(tc, a_limit_of_a_group_stops_it);
    tcase_add_test(tc, slabs_are_resident_and_go_back);
    tcase_add_test(tc, a_touch_takes_the_pages_that_its_ends_lie_in);
    tcase_add_test(tc, every_step_looks_again);
    tcase_add_loop_test(tc, the_operators_limit_is_never_crossed, 0, 3);
    suite_add_tcase(suite, tc);
    return suite_run(suite);
}
