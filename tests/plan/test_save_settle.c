/* SPDX-License-Identifier: BSD-3-Clause */
/* Plans made into dealt ones, and dealt ones into orders: in two steps what a merge does in one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "fault/failing_allocator.h"
#include "samples.h"

enum { RANKS = 3 };

/* A sharded tensor, a large replicated one, one without elements, and objects of other lengths. */
static void make_samples(struct samples *samples)
{
    samples_init(samples, RANKS);
    for (int rank = 0; rank < RANKS; rank++) {
        sample_tensor(samples, rank, "w", DCP_F32, BOX(2, DIMS(4 * rank, 0), DIMS(4, 3)),
                      DIMS(12, 3));
        sample_tensor(samples, rank, "r", DCP_F64, BOX(1, DIMS(0), DIMS(1000000)), DIMS(1000000));
        sample_tensor(samples, rank, "e", DCP_F64, BOX(1, DIMS(0), DIMS(0)), DIMS(0));
        sample_object(samples, rank, "o", 100 + (uint64_t)rank);
    }
}

static void free_all(struct save_plan *dealt, struct write_orders *orders)
{
    for (int rank = 0; rank < RANKS; rank++) {
        save_plan_free(&dealt[rank]);
        write_orders_free(&orders[rank]);
    }
}

static void two_steps_make_what_a_merge_makes(void **state)
{
    (void)state;
    struct samples samples;
    struct save_plan dealt[RANKS];
    struct merged merged = {.count = RANKS}, expected;
    struct save_plan_options options = sample_options(DCP_REPLICAS_SLICE);
    make_samples(&samples);
    assert_int_equal(samples_merge(&samples, &options, &expected), DCP_OK);
    assert_int_equal(save_plan_deal(samples.plans, RANKS, &options, dealt), DCP_OK);
    assert_int_equal(save_plan_settle(samples.plans, dealt, RANKS, &options, SAMPLE_GENERATION,
                                      merged.orders, &merged.metadata),
                     DCP_OK);
    check_merged(&samples, &merged);
    assert_int_equal(merged.metadata.count, expected.metadata.count);
    for (size_t i = 0; i < merged.metadata.count; i++) {
        const struct metadata_entry *entry = &merged.metadata.entries[i];
        const struct metadata_entry *other = metadata_find(&expected.metadata, entry->name);
        assert_int_equal(entry->piece_count, other->piece_count);
    }
    merged_free(&expected);
    for (int rank = 0; rank < RANKS; rank++)
        save_plan_free(&dealt[rank]);
    merged_free(&merged);
    samples_free(&samples);
}

static void an_object_has_the_length_of_who_writes_it(void **state)
{
    (void)state;
    struct samples samples;
    struct save_plan dealt[RANKS];
    struct merged merged = {.count = RANKS};
    struct save_plan_options options = sample_options(DCP_REPLICAS_WHOLE);
    make_samples(&samples);
    assert_int_equal(save_plan_deal(samples.plans, RANKS, &options, dealt), DCP_OK);
    struct write_item object = dealt[0].items[dealt[0].count - 1];
    assert_string_equal(object.name, "o");
    dealt[0].count--;
    struct write_item items[8];
    assert_true(dealt[2].count < 8);
    memcpy(items, dealt[2].items, dealt[2].count * sizeof *items);
    items[dealt[2].count++] = object;
    dealt[2].items = items;
    assert_int_equal(save_plan_settle(samples.plans, dealt, RANKS, &options, SAMPLE_GENERATION,
                                      merged.orders, &merged.metadata),
                     DCP_OK);
    assert_int_equal(metadata_find(&merged.metadata, "o")->pieces[0].length, 102);
    for (int rank = 0; rank < RANKS; rank++)
        save_plan_free(&dealt[rank]);
    merged_free(&merged);
    samples_free(&samples);
}

static void every_failed_allocation_is_reported(void **state)
{
    (void)state;
    struct samples samples;
    make_samples(&samples);
    for (long n = 1;; n++) {
        struct save_plan dealt[RANKS] = {0};
        struct write_orders orders[RANKS] = {0};
        struct metadata metadata;
        struct save_plan_options options = sample_options(DCP_REPLICAS_SLICE);
        failing_allocator_install(n, false);
        metadata_init(&metadata);
        dcp_status status = save_plan_deal(samples.plans, RANKS, &options, dealt);
        if (status == DCP_OK)
            status = save_plan_settle(samples.plans, dealt, RANKS, &options, 0, orders, &metadata);
        metadata_free(&metadata);
        free_all(dealt, orders);
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        assert_int_equal(status, reached ? DCP_ERR_NO_MEMORY : DCP_OK);
        if (!reached)
            break;
    }
    samples_free(&samples);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_steps_make_what_a_merge_makes),
        cmocka_unit_test(an_object_has_the_length_of_who_writes_it),
        cmocka_unit_test(every_failed_allocation_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
