/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "fault/failing_allocator.h"
#include "samples.h"

static void expect_failure(const struct samples *samples, dcp_status expected, const char *message)
{
    struct save_plan_options options = sample_options(DCP_REPLICAS_SLICE);
    struct merged merged;
    assert_int_equal(samples_merge(samples, &options, &merged), expected);
    if (strstr(dcp_error_message(), message) == NULL)
        fail_msg("\"%s\" does not contain \"%s\"", dcp_error_message(), message);
    merged_free(&merged);
}

static void merge_and_check(const struct samples *samples, dcp_replicas replicas,
                            struct merged *merged)
{
    struct save_plan_options options = sample_options(replicas);
    assert_int_equal(samples_merge(samples, &options, merged), DCP_OK);
    check_merged(samples, merged);
}

static const struct metadata_entry *entry_of(const struct merged *merged, const char *name)
{
    const struct metadata_entry *entry = metadata_find(&merged->metadata, name);
    assert_non_null(entry);
    return entry;
}

static const char *file_of(const struct merged *merged, const struct metadata_entry *entry,
                           size_t piece)
{
    return merged->metadata.files[entry->pieces[piece].file];
}

/* PyTorch's TestSavePlan.test_global_plan: four ranks with a sharded and a replicated tensor each,
 * and an object. */
static void ranks_become_one_checkpoint(void **state)
{
    (void)state;
    struct samples samples;
    struct merged merged;
    samples_init(&samples, 4);
    for (int rank = 0; rank < 4; rank++) {
        sample_tensor(&samples, rank, "tensor", DCP_F32, BOX(1, DIMS(0), DIMS(10)), DIMS(10));
        sample_object(&samples, rank, "value", 1261);
        sample_tensor(&samples, rank, "st.w", DCP_F32, BOX(2, DIMS(8 * rank, 0), DIMS(8, 4)),
                      DIMS(32, 4));
    }
    merge_and_check(&samples, DCP_REPLICAS_WHOLE, &merged);
    assert_int_equal(merged.metadata.count, 3);
    assert_string_equal(merged.metadata.entries[0].name, "tensor");
    assert_string_equal(merged.metadata.entries[1].name, "value");
    assert_string_equal(merged.metadata.entries[2].name, "st.w");
    assert_true(merged.metadata.has_paths);
    assert_string_equal(merged.metadata.save_id, "");
    assert_int_equal(merged.metadata.file_count, 4);

    const struct metadata_entry *sharded = entry_of(&merged, "st.w");
    assert_int_equal(sharded->piece_count, 4);
    assert_int_equal(sharded->path_length, 2);
    assert_string_equal(sharded->path[1].key, "w");
    for (size_t i = 0; i < 4; i++) {
        char name[SHARD_NAME_MAX];
        shard_name(name, (int)i, 0, SAMPLE_GENERATION);
        assert_int_equal(sharded->pieces[i].offsets[0], 8 * i);
        assert_string_equal(file_of(&merged, sharded, i), name);
    }
    assert_int_equal(entry_of(&merged, "tensor")->piece_count, 1);
    const struct metadata_entry *object = entry_of(&merged, "value");
    assert_false(object->is_tensor);
    assert_string_equal(file_of(&merged, object, 0), "__0_0.g2.distcp");
    assert_int_equal(object->pieces[0].offset, 0);
    assert_int_equal(object->pieces[0].length, 1261);
    merged_free(&merged);
    samples_free(&samples);
}

/* PyTorch's TestSavePlan.test_dedup_plans, and its balance. */
static void replicas_are_written_once(void **state)
{
    (void)state;
    struct samples samples;
    struct merged merged;
    samples_init(&samples, 2);
    for (int rank = 0; rank < 2; rank++)
        for (int i = 0; i < 6; i++) {
            char name[16];
            snprintf(name, sizeof name, "t%d", i);
            sample_tensor(&samples, rank, name, DCP_F32, BOX(1, DIMS(0), DIMS(1000)), DIMS(1000));
        }
    merge_and_check(&samples, DCP_REPLICAS_WHOLE, &merged);
    assert_int_equal(merged.orders[0].count, 3);
    assert_int_equal(merged.orders[1].count, 3);
    merged_free(&merged);
    merge_and_check(&samples, DCP_REPLICAS_LOWEST, &merged);
    assert_int_equal(merged.orders[0].count, 6);
    assert_int_equal(merged.orders[1].count, 0);
    assert_int_equal(merged.orders[1].file_count, 1);
    assert_int_equal(merged.metadata.file_count, 1);
    merged_free(&merged);
    samples_free(&samples);
}

static void gradients_are_united_and_first_paths_win(void **state)
{
    (void)state;
    struct samples samples;
    struct merged merged;
    samples_init(&samples, 2);
    sample_object(&samples, 0, "only.0", 10);
    for (int rank = 0; rank < 2; rank++)
        sample_tensor(&samples, rank, "a.b", DCP_F32, BOX(1, DIMS(rank), DIMS(1)), DIMS(2));
    samples.plans[1].items[0].requires_grad = true;
    dcp_path_part whole = {"a.b", 0};
    samples.plans[1].items[0].path = &whole;
    samples.plans[1].items[0].path_length = 1;
    merge_and_check(&samples, DCP_REPLICAS_WHOLE, &merged);
    assert_true(entry_of(&merged, "a.b")->requires_grad);
    assert_int_equal(entry_of(&merged, "a.b")->path_length, 2);
    const struct metadata_entry *listed = entry_of(&merged, "only.0");
    assert_null(listed->path[1].key);
    assert_int_equal(listed->path[1].position, 0);
    merged_free(&merged);
    samples_free(&samples);
}

static void chunks_without_elements_are_dropped(void **state)
{
    (void)state;
    struct samples samples;
    struct merged merged;
    samples_init(&samples, 4);
    for (int rank = 0; rank < 3; rank++)
        sample_tensor(&samples, rank, "w", DCP_F32, BOX(1, DIMS(rank), DIMS(1)), DIMS(3));
    sample_tensor(&samples, 3, "w", DCP_F32, BOX(1, DIMS(3), DIMS(0)), DIMS(3));
    merge_and_check(&samples, DCP_REPLICAS_SLICE, &merged);
    assert_int_equal(entry_of(&merged, "w")->piece_count, 3);
    assert_int_equal(merged.orders[3].count, 0);
    merged_free(&merged);
    samples_free(&samples);
}

static void tensors_without_elements_are_one_piece(void **state)
{
    (void)state;
    struct samples samples;
    struct merged merged;
    samples_init(&samples, 2);
    sample_tensor(&samples, 0, "w", DCP_F32, BOX(2, DIMS(0, 0), DIMS(2, 0)), DIMS(3, 0));
    sample_tensor(&samples, 1, "w", DCP_F32, BOX(2, DIMS(2, 0), DIMS(1, 0)), DIMS(3, 0));
    sample_tensor(&samples, 1, "w", DCP_F32, BOX(2, DIMS(3, 0), DIMS(0, 0)), DIMS(3, 0));
    merge_and_check(&samples, DCP_REPLICAS_SLICE, &merged);
    const struct metadata_entry *entry = entry_of(&merged, "w");
    assert_int_equal(entry->piece_count, 1);
    assert_int_equal(entry->pieces[0].offsets[0], 0);
    assert_int_equal(entry->pieces[0].sizes[0], 3);
    assert_int_equal(entry->pieces[0].sizes[1], 0);
    merged_free(&merged);
    samples_free(&samples);
}

static void scalars_are_replicas(void **state)
{
    (void)state;
    struct samples samples;
    struct merged merged;
    samples_init(&samples, 3);
    for (int rank = 0; rank < 3; rank++)
        sample_tensor(&samples, rank, "step", DCP_F32, BOX(0, DIMS(0), DIMS(0)), DIMS(0));
    merge_and_check(&samples, DCP_REPLICAS_SLICE, &merged);
    assert_int_equal(entry_of(&merged, "step")->piece_count, 1);
    assert_int_equal(merged.orders[0].count, 1);
    merged_free(&merged);
    samples_free(&samples);
}

static void nothing_is_a_checkpoint_too(void **state)
{
    (void)state;
    struct samples samples;
    struct merged merged;
    samples_init(&samples, 2);
    merge_and_check(&samples, DCP_REPLICAS_SLICE, &merged);
    assert_int_equal(merged.metadata.count, 0);
    assert_int_equal(merged.metadata.file_count, 0);
    assert_int_equal(merged.orders[1].file_count, 1);
    merged_free(&merged);
    samples_free(&samples);
}

static void disagreement_names_both_ranks(void **state)
{
    (void)state;
    struct samples samples;
    samples_init(&samples, 3);
    for (int rank = 0; rank < 2; rank++)
        sample_tensor(&samples, rank, "w", DCP_F32, BOX(1, DIMS(0), DIMS(4)), DIMS(4));
    sample_object(&samples, 2, "w", 7);
    expect_failure(&samples, DCP_ERR_KIND, "\"w\" is a tensor on rank 0, but an object on rank 2");
    samples_free(&samples);

    samples_init(&samples, 3);
    sample_object(&samples, 0, "other", 7);
    sample_tensor(&samples, 1, "w", DCP_F32, BOX(1, DIMS(0), DIMS(4)), DIMS(4));
    sample_tensor(&samples, 2, "w", DCP_BF16, BOX(1, DIMS(0), DIMS(4)), DIMS(4));
    expect_failure(&samples, DCP_ERR_DTYPE, "\"w\" is float32 on rank 1, but bfloat16 on rank 2");
    samples_free(&samples);

    samples_init(&samples, 2);
    sample_tensor(&samples, 0, "w", DCP_F32, BOX(2, DIMS(0, 0), DIMS(4, 4)), DIMS(4, 4));
    sample_tensor(&samples, 1, "w", DCP_F32, BOX(2, DIMS(0, 0), DIMS(4, 4)), DIMS(4, 5));
    expect_failure(&samples, DCP_ERR_SHAPE, "global shape [4, 4] on rank 0, but [4, 5] on rank 1");
    samples_free(&samples);
}

/* PyTorch's test_planner: validate_global_plan. */
static void wrong_boxes_are_named(void **state)
{
    (void)state;
    struct samples samples;
    samples_init(&samples, 2);
    sample_tensor(&samples, 0, "w", DCP_F32, BOX(2, DIMS(0, 0), DIMS(2, 4)), DIMS(4, 4));
    sample_tensor(&samples, 1, "w", DCP_F32, BOX(2, DIMS(1, 0), DIMS(3, 4)), DIMS(4, 4));
    expect_failure(&samples, DCP_ERR_OVERLAP,
                   "[0:2, 0:4] of rank 0 overlaps chunk [1:4, 0:4] of rank 1");
    samples_free(&samples);

    samples_init(&samples, 2);
    sample_tensor(&samples, 0, "w", DCP_F32, BOX(2, DIMS(0, 0), DIMS(2, 4)), DIMS(4, 4));
    sample_tensor(&samples, 1, "w", DCP_F32, BOX(2, DIMS(3, 0), DIMS(1, 4)), DIMS(4, 4));
    expect_failure(&samples, DCP_ERR_COVERAGE, "no rank holds [2:3, 0:4] of the shape [4, 4]");
    samples_free(&samples);

    samples_init(&samples, 2);
    sample_tensor(&samples, 0, "w", DCP_F32, BOX(2, DIMS(0, 0), DIMS(2, 4)), DIMS(4, 4));
    sample_tensor(&samples, 1, "w", DCP_F32, BOX(2, DIMS(2, 0), DIMS(1, 4)), DIMS(4, 4));
    expect_failure(&samples, DCP_ERR_COVERAGE, "no rank holds [3:4, 0:4] of the shape [4, 4]");
    samples_free(&samples);

    samples_init(&samples, 2);
    sample_tensor(&samples, 0, "w", DCP_F32, BOX(2, DIMS(0, 0), DIMS(2, 4)), DIMS(4, 4));
    sample_tensor(&samples, 1, "w", DCP_F32, BOX(2, DIMS(2, 0), DIMS(3, 4)), DIMS(4, 4));
    expect_failure(&samples, DCP_ERR_SHAPE,
                   "chunk at [2, 0] of sizes [3, 4] of rank 1 is not inside the shape [4, 4]");
    samples_free(&samples);

    samples_init(&samples, 1);
    sample_tensor(&samples, 0, "w", DCP_F32, BOX(1, DIMS(INT64_MAX), DIMS(INT64_MAX)), DIMS(4));
    expect_failure(&samples, DCP_ERR_SHAPE, "is not inside the shape [4]");
    samples_free(&samples);

    samples_init(&samples, 2);
    for (int rank = 0; rank < 2; rank++)
        sample_tensor(&samples, rank, "w", DCP_F32, BOX(1, DIMS(4), DIMS(0)), DIMS(4));
    expect_failure(&samples, DCP_ERR_COVERAGE, "no rank holds [0:4]");
    samples_free(&samples);

    samples_init(&samples, 1);
    for (int i = 0; i < 2; i++)
        sample_tensor(&samples, 0, "w", DCP_F32, BOX(1, DIMS(0), DIMS(4)), DIMS(4));
    expect_failure(&samples, DCP_ERR_OVERLAP, "[0:4] of rank 0 overlaps chunk [0:4] of rank 0");
    samples_free(&samples);

    samples_init(&samples, 1);
    sample_object(&samples, 0, "o", 1);
    sample_object(&samples, 0, "o", 1);
    expect_failure(&samples, DCP_ERR_DUPLICATE, "\"o\": rank 0 has two objects of this name");
    samples_free(&samples);
}

static void absurd_sizes_are_refused(void **state)
{
    (void)state;
    const int64_t half = INT64_MAX / 8;
    struct samples samples;
    samples_init(&samples, 1);
    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", i);
        sample_tensor(&samples, 0, name, DCP_F32, BOX(1, DIMS(0), DIMS(half)), DIMS(half));
    }
    expect_failure(&samples, DCP_ERR_UNSUPPORTED, "more than 2^63 bytes");
    samples_free(&samples);
}

static dcp_status refuse_layout(dcp_dtype dtype, int32_t ndim, const int64_t *sizes,
                                uint64_t *data_offset, uint64_t *length)
{
    (void)dtype, (void)ndim, (void)sizes, (void)data_offset, (void)length;
    return dcp_error_set(DCP_ERR_UNSUPPORTED, "no layout");
}

static void a_failing_layout_names_the_tensor(void **state)
{
    (void)state;
    struct samples samples;
    struct merged merged;
    samples_init(&samples, 1);
    sample_tensor(&samples, 0, "w", DCP_F32, BOX(1, DIMS(0), DIMS(4)), DIMS(4));
    struct save_plan_options options = sample_options(DCP_REPLICAS_SLICE);
    options.layout = refuse_layout;
    assert_int_equal(samples_merge(&samples, &options, &merged), DCP_ERR_UNSUPPORTED);
    assert_string_equal(dcp_error_message(), "\"w\": no layout");
    merged_free(&merged);
    samples_free(&samples);
}

/* Two layouts of ranks, replicas large enough for slices, a tensor without elements. */
static void add_everything(struct samples *samples)
{
    for (int rank = 0; rank < samples->count; rank++) {
        sample_tensor(samples, rank, "model.0.w", DCP_F32, BOX(2, DIMS(0, 0), DIMS(1024, 512)),
                      DIMS(1024, 512));
        sample_tensor(samples, rank, "model.0.b", DCP_F32,
                      BOX(1, DIMS(2 * (samples->count - 1 - rank)), DIMS(2)),
                      DIMS(2 * samples->count));
        sample_tensor(samples, rank, "empty", DCP_F32, BOX(1, DIMS(0), DIMS(0)), DIMS(0));
        sample_tensor(samples, rank, "step", DCP_I64, BOX(0, DIMS(0), DIMS(0)), DIMS(0));
        sample_object(samples, rank, "config", 1300);
    }
    sample_object(samples, samples->count - 1, "rng", 5000);
}

static void memory_may_run_out_anywhere(void **state)
{
    (void)state;
    struct samples samples;
    samples_init(&samples, 4);
    add_everything(&samples);
    struct save_plan_options options = sample_options(DCP_REPLICAS_SLICE);
    options.thread_count = 2;
    struct merged merged;
    assert_int_equal(samples_merge(&samples, &options, &merged), DCP_OK);
    check_merged(&samples, &merged);
    merged_free(&merged);
    for (long n = 1;; n++) {
        failing_allocator_install(n, false);
        dcp_status status = samples_merge(&samples, &options, &merged);
        merged_free(&merged);
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
        cmocka_unit_test(ranks_become_one_checkpoint),
        cmocka_unit_test(replicas_are_written_once),
        cmocka_unit_test(gradients_are_united_and_first_paths_win),
        cmocka_unit_test(chunks_without_elements_are_dropped),
        cmocka_unit_test(tensors_without_elements_are_one_piece),
        cmocka_unit_test(scalars_are_replicas),
        cmocka_unit_test(nothing_is_a_checkpoint_too),
        cmocka_unit_test(disagreement_names_both_ranks),
        cmocka_unit_test(wrong_boxes_are_named),
        cmocka_unit_test(absurd_sizes_are_refused),
        cmocka_unit_test(a_failing_layout_names_the_tensor),
        cmocka_unit_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
