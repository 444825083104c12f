/* SPDX-License-Identifier: BSD-3-Clause */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "fault/failing_allocator.h"
#include "state/write_plan.h"

static void names_are_made_and_parsed(void **state)
{
    (void)state;
    static const struct {
        int rank;
        uint32_t file, generation;
        const char *name;
    } shards[] = {
        {0, 0, 0, "__0_0.distcp"},
        {12, 3, 0, "__12_3.distcp"},
        {0, 0, 2, "__0_0.g2.distcp"},
        {7, 10, 1, "__7_10.g1.distcp"},
        {INT_MAX, UINT32_MAX, UINT32_MAX, "__2147483647_4294967295.g4294967295.distcp"},
    };
    for (size_t i = 0; i < sizeof shards / sizeof shards[0]; i++) {
        char name[SHARD_NAME_MAX];
        int rank;
        uint32_t file;
        uint32_t generation;
        shard_name(name, shards[i].rank, shards[i].file, shards[i].generation);
        assert_string_equal(name, shards[i].name);
        assert_true(shard_name_parse(name, &rank, &file, &generation));
        assert_int_equal(rank, shards[i].rank);
        assert_int_equal(file, shards[i].file);
        assert_int_equal(generation, shards[i].generation);
    }
}

static void other_names_are_not_ours(void **state)
{
    (void)state;
    static const char *const names[] = {"",
                                        ".metadata",
                                        "__0_0",
                                        "_0_0.distcp",
                                        "__0.distcp",
                                        "__0_.distcp",
                                        "___0.distcp",
                                        "__-1_0.distcp",
                                        "__+1_0.distcp",
                                        "__ 1_0.distcp",
                                        "__01_0.distcp",
                                        "__1_00.distcp",
                                        "__0_0.distcp.tmp",
                                        "__0_0.g.distcp",
                                        "__0_0.g0.distcp",
                                        "__0_0.g02.distcp",
                                        "__0_0.g2distcp",
                                        "__0_0.g2.g3.distcp",
                                        "__2147483648_0.distcp",
                                        "__0_4294967296.distcp",
                                        "__0_0.g4294967296.distcp",
                                        "__99999999999999999999999_0.distcp",
                                        "a__0_0.distcp"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        int rank = -7;
        uint32_t file;
        uint32_t generation;
        assert_false(shard_name_parse(names[i], &rank, &file, &generation));
        assert_int_equal(rank, -7);
    }
}

static void plans_and_orders_are_freed(void **state)
{
    (void)state;
    struct save_plan plan = {0};
    struct write_orders orders = {0};
    save_plan_free(&plan);
    write_orders_free(&orders);
    arena_init(&plan.arena, 0);
    plan.items = arena_allocate_array(&plan.arena, 10, sizeof *plan.items);
    plan.count = 10;
    arena_init(&orders.arena, 0);
    orders.orders = arena_allocate_array(&orders.arena, 10, sizeof *orders.orders);
    orders.count = 10;
    save_plan_free(&plan);
    write_orders_free(&orders);
    assert_int_equal(plan.count + orders.count, 0);
    assert_null(plan.items);
    assert_null(orders.orders);
}

/* Boxes of whole items stay the plan's, which the orders that are copied need not point to. */
static void orders_are_copied(void **state)
{
    (void)state;
    static const int64_t offsets[] = {2, 0}, sizes[] = {4, 8}, elsewhere[] = {2, 0};
    int64_t part_offsets[] = {3, 0}, part_sizes[] = {1, 8};
    struct write_item items[] = {{.name = "object"}, {.name = "t", .box = {2, offsets, sizes}}};
    struct write_order given[] = {
        {.item = 1, .file = 1, .box = {2, elsewhere, sizes}, .offset = 64, .length = 256},
        {.item = 1, .file = 1, .is_part = true, .box = {2, part_offsets, part_sizes}},
        {.item = 0, .file = 2, .length = 7, .room = 9},
    };
    const struct save_plan plan = {.items = items, .count = 2};
    const struct write_orders orders = {.orders = given, .count = 3, .file_count = 3};
    struct write_orders copy;
    for (long n = 1;; n++) {
        failing_allocator_install(n, false);
        dcp_status status = write_orders_copy(&orders, &plan, &copy);
        bool reached = failing_allocator_reached();
        if (status == DCP_OK)
            break;
        write_orders_free(&copy);
        assert_int_equal(failing_allocator_remove(), 0);
        assert_true(reached && status == DCP_ERR_NO_MEMORY);
    }
    part_offsets[0] = part_sizes[0] = 0;
    assert_int_equal(copy.count, 3);
    assert_int_equal(copy.file_count, 3);
    assert_ptr_equal(copy.orders[0].box.offsets, offsets);
    assert_int_equal(copy.orders[0].offset, 64);
    assert_int_equal(copy.orders[0].length, 256);
    assert_true(copy.orders[1].is_part);
    assert_int_equal(copy.orders[1].box.offsets[0], 3);
    assert_int_equal(copy.orders[1].box.sizes[0], 1);
    assert_int_equal(copy.orders[1].box.sizes[1], 8);
    assert_int_equal(copy.orders[2].room, 9);
    write_orders_free(&copy);
    assert_int_equal(failing_allocator_remove(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_made_and_parsed),
        cmocka_unit_test(other_names_are_not_ours),
        cmocka_unit_test(plans_and_orders_are_freed),
        cmocka_unit_test(orders_are_copied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
