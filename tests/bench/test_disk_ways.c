/* SPDX-License-Identifier: BSD-3-Clause */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "disk.h"
#include "disk_ways.h"

/* Two ranks' bytes: several pieces of a thread, and a part of a block. */
enum { SIZE = (34 << 20) + 4099, RANKS = 2 };

static const char *const memories[] = {"buffered", "direct", "large", "copied"};
static const char *const rests[] = {"", "-ring", "-threads", "-ring-threads"};

/* What disk_ways writes is all ones. */
static void add_ones(int file, size_t size, void *context)
{
    static unsigned char bytes[1 << 16];
    size_t *ones = context;
    ssize_t got;

    (void)size;
    while ((got = read(file, bytes, sizeof bytes)) > 0)
        for (ssize_t i = 0; i < got; i++)
            *ones += bytes[i] == 1;
}

static void check_way(const char *directory, const struct disk_way *way)
{
    char path[512];
    size_t ones = 0, read = 0;

    for (int r = 0; r < RANKS; r++) {
        struct disk_ways *ways = disk_ways_new(way, SIZE);
        snprintf(path, sizeof path, "%s/plain_%d", directory, r);
        if (!ways || !disk_ways_write(ways, path)) {
            disk_ways_free(ways);
            return; /* this machine lacks it */
        }
        assert_int_equal(disk_ways_moved(ways), SIZE);
        disk_ways_free(ways);
    }
    disk_visit(directory, add_ones, &ones);
    assert_int_equal(ones, (size_t)SIZE * RANKS);
    disk_cool(directory);
    for (int r = 0; r < RANKS; r++) {
        /* Less memory than what is read: it is used again. */
        struct disk_ways *ways = disk_ways_new(way, SIZE / 3);
        assert_true(disk_ways_read(ways, directory, r, RANKS));
        read += disk_ways_moved(ways);
        disk_ways_free(ways);
    }
    assert_int_equal(read, (size_t)SIZE * RANKS);
}

static void remove_file(int file, size_t size, void *context)
{
    char link[64], path[512];
    (void)size, (void)context;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    assert_true(length > 0);
    path[length] = '\0';
    assert_int_equal(unlink(path), 0);
}

static void test_all_ways(void **state)
{
    char directory[] = "disk_ways.XXXXXX";

    (void)state;
    assert_non_null(mkdtemp(directory));
    for (size_t m = 0; m < sizeof memories / sizeof *memories; m++)
        for (size_t r = 0; r < sizeof rests / sizeof *rests; r++) {
            struct disk_way way;
            char name[40];
            snprintf(name, sizeof name, "%s%s", memories[m], rests[r]);
            assert_true(disk_way_from_name(name, &way));
            assert_int_equal(way.memory, m);
            assert_int_equal(way.ring, strstr(name, "ring") != NULL);
            assert_int_equal(way.threads, strstr(name, "threads") != NULL);
            check_way(directory, &way);
            disk_visit(directory, remove_file, NULL);
        }
    assert_int_equal(rmdir(directory), 0);
}

static void test_names(void **state)
{
    static const char *const wrong[] = {"",          "-ring", "slow",        "large-",
                                        "large-rin", "larg",  "large-rings", "large-ring-thread",
                                        "largering"};
    struct disk_way way;

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(disk_way_from_name(wrong[i], &way));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_ways),
                                       cmocka_unit_test(test_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
