/* SPDX-License-Identifier: BSD-3-Clause */
/* Which parts of a conversion are copied at once: small neighbours, as they lie in the file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "convert/convert_blocks.h"

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)

enum { RUNS = 600 };

static struct convert_run runs[RUNS];

/* Of runs that follow each other, with so much in between. */
static void lay_out(size_t count, uint64_t size, uint64_t gap)
{
    for (size_t i = 0; i < count; i++)
        runs[i] = (struct convert_run){
            .bytes = "", .size = size, .offset = 64 + (uint64_t)i * (size + gap)};
}

/* The groups begin with these blocks, and there are no others. */
static void expect_groups(size_t count, const size_t *groups, size_t group_count)
{
    const struct convert_source source = {0};
    struct convert_blocks blocks;
    uint64_t bytes = 0, total = 0;
    assert_int_equal(convert_blocks_make(&source, runs, count, &blocks), DCP_OK);
    assert_int_equal(blocks.group_count, group_count);
    assert_memory_equal(blocks.groups, groups, group_count * sizeof *groups);
    assert_int_equal(blocks.groups[group_count], blocks.count);
    for (size_t i = 0; i < count; i++)
        total += runs[i].size;
    for (size_t block = 0; block < blocks.count; block++) {
        size_t group = convert_blocks_group(&blocks, block);
        assert_in_range(block, blocks.groups[group], blocks.groups[group + 1] - 1);
        bytes += convert_block_at(&blocks, block).size;
    }
    assert_int_equal(bytes, total);
    convert_blocks_free(&blocks);
}

#define EXPECT_GROUPS(count, ...)                                                                  \
    expect_groups(count, (const size_t[]){__VA_ARGS__},                                            \
                  sizeof((const size_t[]){__VA_ARGS__}) / sizeof(size_t))

static void small_neighbours_are_one_group(void **state)
{
    (void)state;
    lay_out(100, 100, 0);
    EXPECT_GROUPS(100, 0);
    lay_out(RUNS, 100, 0);
    EXPECT_GROUPS(RUNS, 0, 256, 512);
    lay_out(12, 700 * KIB, 0); /* of one block together, at most */
    EXPECT_GROUPS(12, 0, 5, 10);
}

static void large_ones_are_copied_by_themselves(void **state)
{
    (void)state;
    lay_out(4, MIB, 0);
    EXPECT_GROUPS(4, 0, 1, 2, 3);
    lay_out(2, 9 * MIB, 0); /* blocks of 4 MiB */
    EXPECT_GROUPS(2, 0, 1, 2, 3, 4, 5);
    lay_out(5, 100, 0);
    runs[2].size = 2 * MIB;
    runs[3].offset = runs[2].offset + runs[2].size;
    runs[4].offset = runs[3].offset + runs[3].size;
    EXPECT_GROUPS(5, 0, 2, 3);
}

/* What is between neighbours of the caller's list belongs there. */
static void gaps_are_small_and_between_neighbours(void **state)
{
    (void)state;
    lay_out(6, 1000, 300);
    EXPECT_GROUPS(6, 0);
    lay_out(6, 1000, 4096);
    EXPECT_GROUPS(6, 0, 1, 2, 3, 4, 5);
    lay_out(6, 1000, 300);
    runs[3].size = 0; /* it has no block, but a place between its neighbours */
    EXPECT_GROUPS(6, 0, 3);
    runs[3].offset = runs[2].offset + runs[2].size;
    runs[4].offset = runs[3].offset;
    runs[5].offset = runs[4].offset + runs[4].size + 300;
    EXPECT_GROUPS(6, 0);
}

static void what_is_elsewhere_begins_a_group(void **state)
{
    (void)state;
    lay_out(6, 1000, 0);
    runs[2].file = 1;
    EXPECT_GROUPS(6, 0, 2, 3);
    lay_out(6, 2000, 0);
    runs[4].offset = 64;
    EXPECT_GROUPS(6, 0, 4, 5);
}

/* Elements are aligned, and those of one entry as it is. */
static void tensors_are_read_as_they_are(void **state)
{
    static const struct convert_recipe recipe;
    struct convert_item plain = {.is_tensor = true}, made = {.is_tensor = true, .recipe = &recipe};
    (void)state;
    lay_out(6, 1000, 0);
    for (size_t i = 0; i < 6; i++)
        runs[i].item = &plain;
    EXPECT_GROUPS(6, 0);
    runs[2].item = &made;
    EXPECT_GROUPS(6, 0, 2, 3);
    runs[2].item = &plain;
    runs[2].storage = true;
    EXPECT_GROUPS(6, 0, 2, 3);
    lay_out(6, 1001, 0);
    runs[3].item = &plain;
    EXPECT_GROUPS(6, 0, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_neighbours_are_one_group),
        cmocka_unit_test(large_ones_are_copied_by_themselves),
        cmocka_unit_test(gaps_are_small_and_between_neighbours),
        cmocka_unit_test(what_is_elsewhere_begins_a_group),
        cmocka_unit_test(tensors_are_read_as_they_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
