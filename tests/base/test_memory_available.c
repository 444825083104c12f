/* SPDX-License-Identifier: BSD-3-Clause */
/* The machine's figures and control groups of both versions, as files below a directory. */
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/memory_available.h"

#define MACHINE                                                                                    \
    "MemTotal:       16384000 kB\nMemFree:          524288 kB\nMemAvailable:    8388608 kB\n"
#define GIB ((uint64_t)1 << 30)

static char root[] = "memory_available.XXXXXX";

/* Makes the directories on the way. */
static void put(const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", root, name);
    for (char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0777);
        *slash = '/';
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place)
{
    (void)status, (void)kind, (void)place;
    return remove(path);
}

static int set_up(void **state)
{
    (void)state;
    memcpy(root + sizeof root - 7, "XXXXXX", 6);
    return mkdtemp(root) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void test_machine(void **state)
{
    (void)state;
    assert_int_equal(memory_available(root), 0);
    put("proc/meminfo", "MemTotal: 1 kB\n");
    assert_int_equal(memory_available(root), 0);
    put("proc/meminfo", "MemAvailable: much\n");
    assert_int_equal(memory_available(root), 0);
    put("proc/meminfo", "MemAvailable: 18446744073709551615 kB\n");
    assert_int_equal(memory_available(root), 0);
    put("proc/meminfo", MACHINE);
    assert_int_equal(memory_available(root), 8 * GIB);
    put("proc/self/cgroup", "nonsense\n0:\n0::/\n");
    assert_int_equal(memory_available(root), 8 * GIB);
    /* This machine says something. */
    assert_true(memory_available("") > 0);
}

static void test_groups(void **state)
{
    (void)state;
    put("proc/meminfo", MACHINE);
    put("proc/self/cgroup", "0::/jobs/42\n");
    put("sys/fs/cgroup/jobs/42/memory.max", "max\n");
    put("sys/fs/cgroup/jobs/42/memory.current", "1\n");
    assert_int_equal(memory_available(root), 8 * GIB);
    put("sys/fs/cgroup/jobs/42/memory.max", "4294967296\n");
    put("sys/fs/cgroup/jobs/42/memory.current", "3221225472\n");
    assert_int_equal(memory_available(root), GIB);
    put("sys/fs/cgroup/jobs/42/memory.stat",
        "anon 5\nactive_file 7\ninactive_file 1073741824\nslab 3\n");
    assert_int_equal(memory_available(root), 2 * GIB);
    /* The one above is narrower, and the topmost narrower still. */
    put("sys/fs/cgroup/jobs/memory.max", "1500\n");
    put("sys/fs/cgroup/jobs/memory.current", "500\n");
    assert_int_equal(memory_available(root), 1000);
    put("sys/fs/cgroup/memory.max", "700\n");
    put("sys/fs/cgroup/memory.current", "500\n");
    assert_int_equal(memory_available(root), 200);
    put("sys/fs/cgroup/memory.current", "900\n");
    assert_int_equal(memory_available(root), 0);
}

static void test_first_version(void **state)
{
    (void)state;
    put("proc/meminfo", MACHINE);
    put("proc/self/cgroup", "9:name=memory2:/x\n7:cpu,memory,pids:/jobs\n3:mymemory:/y\n0::/\n");
    put("sys/fs/cgroup/memory/jobs/memory.limit_in_bytes", "9223372036854771712\n");
    put("sys/fs/cgroup/memory/jobs/memory.usage_in_bytes", "4096\n");
    assert_int_equal(memory_available(root), 8 * GIB);
    put("sys/fs/cgroup/memory/jobs/memory.limit_in_bytes", "1073741824\n");
    put("sys/fs/cgroup/memory/jobs/memory.usage_in_bytes", "1073741824\n");
    put("sys/fs/cgroup/memory/jobs/memory.stat", "inactive_file 9\ntotal_inactive_file 4096\n");
    assert_int_equal(memory_available(root), 4096);
    /* In a container the path is the host's, and only the topmost is there. */
    put("proc/self/cgroup", "7:memory:/host/path\n");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "5000\n");
    put("sys/fs/cgroup/memory/memory.usage_in_bytes", "2000\n");
    assert_int_equal(memory_available(root), 3000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_machine, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_groups, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_first_version, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
