/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "samples.h"

enum { KIB = 1024 };

static void add_tensor(struct samples *samples, const char *name, int64_t bytes)
{
    sample_tensor(samples, 0, name, DCP_U8, BOX(1, DIMS(0), DIMS(bytes)), DIMS(bytes));
}

static void merge_and_check(const struct samples *samples, const struct save_plan_options *options,
                            struct merged *merged)
{
    assert_int_equal(samples_merge(samples, options, merged), DCP_OK);
    check_merged(samples, merged);
}

static const char *name_at(const struct samples *samples, const struct merged *merged, size_t i)
{
    assert_true(i < merged->orders[0].count);
    return samples->plans[0].items[merged->orders[0].orders[i].item].name;
}

static void objects_come_first_large_tensors_last(void **state)
{
    (void)state;
    static const char *const expected[] = {"o1", "o2", "small", "large"};
    struct samples samples;
    struct merged merged;
    struct save_plan_options options = sample_options(DCP_REPLICAS_SLICE);
    samples_init(&samples, 1);
    add_tensor(&samples, "large", 64 * KIB);
    sample_object(&samples, 0, "o1", 1261);
    add_tensor(&samples, "small", 64 * KIB - 2048);
    sample_object(&samples, 0, "o2", 99);
    merge_and_check(&samples, &options, &merged);
    for (size_t i = 0; i < 4; i++)
        assert_string_equal(name_at(&samples, &merged, i), expected[i]);
    assert_int_equal(merged.orders[0].orders[1].offset, 1261); /* objects without gaps */
    assert_string_equal(merged.metadata.files[0], "__0_0.g2.distcp");
    merged_free(&merged);
    samples_free(&samples);
}

static void tiny_tensors_fill_the_gaps(void **state)
{
    (void)state;
    struct samples samples;
    struct merged merged;
    struct save_plan_options options = sample_options(DCP_REPLICAS_SLICE);
    samples_init(&samples, 1);
    for (int i = 0; i < 20; i++) {
        char name[16];
        snprintf(name, sizeof name, "tiny%d", i);
        add_tensor(&samples, name, 4);
        snprintf(name, sizeof name, "large%d", i);
        add_tensor(&samples, name, 64 * KIB);
    }
    merge_and_check(&samples, &options, &merged);
    const struct write_order *last = &merged.orders[0].orders[39];
    uint64_t length = last->offset + last->length;
    assert_true(length - orders_bytes(&merged.orders[0]) < 20 * 1024);
    assert_string_equal(name_at(&samples, &merged, 0), "tiny0");
    assert_string_equal(name_at(&samples, &merged, 39), "large19");
    merged_free(&merged);
    samples_free(&samples);
}

static void padding_is_small(void **state)
{
    (void)state;
    uint64_t seed = 3;
    struct samples samples;
    struct merged merged;
    struct save_plan_options options = sample_options(DCP_REPLICAS_SLICE);
    samples_init(&samples, 1);
    for (int i = 0; i < 200; i++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", i);
        add_tensor(&samples, name, 512 * KIB + (int64_t)random_below(&seed, 4096 * KIB));
    }
    merge_and_check(&samples, &options, &merged);
    const struct write_order *last = &merged.orders[0].orders[199];
    uint64_t written = orders_bytes(&merged.orders[0]);
    assert_true(last->offset + last->length <= written + written / 100);
    merged_free(&merged);
    samples_free(&samples);
}

static void files_of_a_rank_are_even(void **state)
{
    (void)state;
    struct samples samples;
    struct merged merged;
    struct save_plan_options options = sample_options(DCP_REPLICAS_SLICE);
    uint64_t bytes[4] = {0};
    size_t objects[4] = {0};
    options.thread_count = 4;
    samples_init(&samples, 2);
    for (int i = 1; i <= 40; i++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", i);
        add_tensor(&samples, name, i * 10 * KIB);
        snprintf(name, sizeof name, "o%d", i);
        sample_object(&samples, 0, name, 1300);
    }
    merge_and_check(&samples, &options, &merged);
    for (size_t i = 0; i < merged.orders[0].count; i++) {
        const struct write_order *order = &merged.orders[0].orders[i];
        bytes[order->file] += order->length;
        objects[order->file] += order->data_offset == 0;
    }
    for (int file = 0; file < 4; file++) {
        assert_int_equal(objects[file], 10);
        assert_in_range(bytes[file], bytes[0] - 20 * KIB, bytes[0] + 20 * KIB);
    }
    /* the other rank makes its files all the same, but the metadata does not name them */
    assert_int_equal(merged.orders[0].file_count, 4);
    assert_int_equal(merged.orders[1].file_count, 4);
    assert_int_equal(merged.orders[1].count, 0);
    assert_int_equal(merged.metadata.file_count, 4);
    assert_string_equal(merged.metadata.files[3], "__0_3.g2.distcp");
    merged_free(&merged);
    samples_free(&samples);
}

static void more_files_than_items(void **state)
{
    (void)state;
    struct samples samples;
    struct merged merged;
    struct save_plan_options options = sample_options(DCP_REPLICAS_SLICE);
    options.thread_count = 5;
    samples_init(&samples, 1);
    add_tensor(&samples, "w", 10);
    merge_and_check(&samples, &options, &merged);
    assert_int_equal(merged.orders[0].file_count, 5);
    assert_int_equal(merged.metadata.file_count, 1);
    merged_free(&merged);
    options.thread_count = 0;
    merge_and_check(&samples, &options, &merged);
    assert_int_equal(merged.orders[0].file_count, 1);
    merged_free(&merged);
    samples_free(&samples);
}

static void each_item_may_have_its_file(void **state)
{
    (void)state;
    struct samples samples;
    struct merged merged;
    struct save_plan_options options = sample_options(DCP_REPLICAS_SLICE);
    options.files = DCP_FILE_PER_ITEM;
    samples_init(&samples, 2);
    add_tensor(&samples, "w", 100 * KIB);
    sample_object(&samples, 0, "o", 1300);
    add_tensor(&samples, "b", 10);
    merge_and_check(&samples, &options, &merged);
    assert_int_equal(merged.orders[0].file_count, 3);
    assert_int_equal(merged.orders[1].file_count, 0);
    assert_int_equal(merged.metadata.file_count, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(merged.orders[0].orders[i].item, i);
        assert_int_equal(merged.orders[0].orders[i].file, i);
    }
    assert_int_equal(merged.orders[0].orders[1].offset, 0);
    assert_in_range(merged.orders[0].orders[0].offset, 1, 4095); /* its data is at a page */
    merged_free(&merged);
    samples_free(&samples);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(objects_come_first_large_tensors_last),
        cmocka_unit_test(tiny_tensors_fill_the_gaps),
        cmocka_unit_test(padding_is_small),
        cmocka_unit_test(files_of_a_rank_are_even),
        cmocka_unit_test(more_files_than_items),
        cmocka_unit_test(each_item_may_have_its_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
