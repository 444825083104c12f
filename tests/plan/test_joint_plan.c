/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fault/failing_allocator.h"
#include "samples.h"

/* Rows of two tensors in even shares but for the last rank, a replica, columns of rows, an object
 * that differs, a tensor that only some ranks hold, and one without elements. */
static void add_everything(struct samples *samples, int ranks)
{
    samples_init(samples, ranks);
    for (int rank = 0; rank < ranks; rank++) {
        int64_t rows = rank == ranks - 1 ? 2 : 4, all = 4 * (ranks - 1) + 2;
        sample_tensor(samples, rank, "model.a", DCP_BF16, BOX(2, DIMS(4 * rank, 0), DIMS(rows, 8)),
                      DIMS(all, 8));
        if (rank % 3 == 1)
            sample_object(samples, rank, "extra", 900 + (uint64_t)rank);
        sample_tensor(samples, rank, "model.replica", DCP_F32, BOX(1, DIMS(0), DIMS(6)), DIMS(6));
        for (int64_t part = 0; part < 3; part++)
            sample_tensor(samples, rank, "model.parts", DCP_I64,
                          BOX(2, DIMS(rank, 5 * part), DIMS(1, 5)), DIMS(ranks, 15));
        sample_object(samples, rank, "step", 1000 + (uint64_t)rank);
        sample_tensor(samples, rank, "nothing", DCP_F32, BOX(2, DIMS(0, 0), DIMS(0, 3)),
                      DIMS(0, 3));
        sample_tensor(samples, rank, "scalar", DCP_F32, BOX(0, NULL, NULL), NULL);
        if (rank == ranks - 1)
            samples->plans[rank].items[0].requires_grad = true;
    }
}

static void join(const struct samples *samples, int first, int end, struct joint_plan *joint)
{
    joint_plan_init(joint, (uint32_t)samples->count);
    for (int rank = first; rank < end; rank++)
        assert_int_equal(joint_plan_add(joint, &samples->plans[rank], (uint32_t)rank), DCP_OK);
}

static void encode(const struct joint_plan *joint, struct buffer *bytes)
{
    buffer_init(bytes, 0);
    assert_int_equal(joint_plan_encode(joint, bytes), DCP_OK);
}

static void assert_same(const struct joint_plan *a, const struct joint_plan *b)
{
    struct buffer first, second;
    encode(a, &first);
    encode(b, &second);
    assert_int_equal(first.size, second.size);
    assert_memory_equal(first.data, second.data, first.size);
    buffer_free(&first);
    buffer_free(&second);
}

static void even_steps_are_one_run(void **state)
{
    (void)state;
    struct samples samples;
    struct joint_plan joint;
    add_everything(&samples, 9);
    join(&samples, 0, 9, &joint);
    assert_string_equal(joint.entries[0].name, "model.a");
    assert_true(joint.entries[0].requires_grad);
    assert_int_equal(joint.entries[0].run_count, 2);
    assert_int_equal(joint.entries[0].runs[0].count, 8);
    assert_int_equal(joint.entries[0].runs[0].steps[0], 4);
    assert_string_equal(joint.entries[1].name, "model.replica");
    assert_null(joint.entries[1].runs[0].steps);
    assert_int_equal(joint_plan_items(&joint), 9 * 7 + 2);
    struct buffer bytes;
    encode(&joint, &bytes);
    assert_in_range(bytes.size, 1, 500);
    buffer_free(&bytes);
    joint_plan_free(&joint);
    samples_free(&samples);
}

/* In whatever way the ranks come together, the same plan comes of it. */
static void uniting_is_as_good_as_adding(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 13; ranks++) {
        struct samples samples;
        struct joint_plan all, parts[SAMPLE_RANKS_MAX];
        add_everything(&samples, ranks);
        join(&samples, 0, ranks, &all);
        for (int rank = 0; rank < ranks; rank++)
            join(&samples, rank, rank + 1, &parts[rank]);
        for (int step = 1; step < ranks; step *= 2)
            for (int rank = 0; rank + step < ranks; rank += 2 * step) {
                struct buffer bytes;
                encode(&parts[rank + step], &bytes);
                joint_plan_free(&parts[rank + step]);
                assert_int_equal(
                    joint_plan_decode(bytes.data, bytes.size, (uint32_t)ranks, &parts[rank + step]),
                    DCP_OK);
                buffer_free(&bytes);
                assert_int_equal(joint_plan_unite(&parts[rank], &parts[rank + step]), DCP_OK);
            }
        assert_int_equal(joint_plan_items(&parts[0]), joint_plan_items(&all));
        assert_same(&parts[0], &all);
        struct merged merged;
        struct save_plan_options options = sample_options(DCP_REPLICAS_SLICE);
        assert_int_equal(samples_merge(&samples, &options, &merged), DCP_OK);
        check_merged(&samples, &merged);
        merged_free(&merged);
        joint_plan_free(&all);
        for (int rank = ranks; rank-- > 0;)
            joint_plan_free(&parts[rank]);
        samples_free(&samples);
    }
}

static void messages_survive_the_journey(void **state)
{
    (void)state;
    struct samples samples;
    struct joint_plan joint, decoded;
    struct buffer bytes;
    add_everything(&samples, 7);
    join(&samples, 0, 7, &joint);
    encode(&joint, &bytes);
    assert_int_equal(joint_plan_decode(bytes.data, bytes.size, 7, &decoded), DCP_OK);
    assert_same(&joint, &decoded);
    joint_plan_free(&decoded);
    for (size_t size = 0; size < bytes.size; size++) {
        assert_int_equal(joint_plan_decode(bytes.data, size, 7, &decoded), DCP_ERR_FORMAT);
        joint_plan_free(&decoded);
    }
    assert_int_equal(joint_plan_decode(bytes.data, bytes.size, 6, &decoded), DCP_ERR_FORMAT);
    joint_plan_free(&decoded);
    buffer_free(&bytes);
    joint_plan_free(&joint);
    samples_free(&samples);
}

static dcp_status ignore_orders(void *context, uint32_t rank, const struct write_orders *orders)
{
    (void)context;
    (void)rank;
    (void)orders;
    return DCP_OK;
}

/* Whatever is accepted can be merged, or is refused with a message. */
static void damage_is_refused_or_harmless(void **state)
{
    (void)state;
    struct samples samples;
    struct joint_plan joint;
    struct buffer bytes;
    struct save_plan_options options = sample_options(DCP_REPLICAS_SLICE);
    struct order_sink sink = {.take = ignore_orders};
    add_everything(&samples, 3);
    join(&samples, 0, 3, &joint);
    encode(&joint, &bytes);
    joint_plan_free(&joint);
    for (size_t i = 0; i < bytes.size * 256; i++) {
        unsigned char kept = bytes.data[i / 256];
        unsigned char *copy = malloc(bytes.size);
        assert_non_null(copy);
        bytes.data[i / 256] = (unsigned char)i;
        memcpy(copy, bytes.data, bytes.size);
        bytes.data[i / 256] = kept;
        dcp_status status = joint_plan_decode(copy, bytes.size, 3, &joint);
        assert_true(status == DCP_OK || status == DCP_ERR_FORMAT);
        free(copy);
        if (status == DCP_OK && joint_plan_items(&joint) < 10000) {
            struct metadata metadata;
            struct merge *merge;
            if (joint_plan_merge(&joint, &options, &metadata, &merge) == DCP_OK)
                merge_order_all(merge, 0, &sink);
            merge_free(merge);
            metadata_free(&metadata);
        }
        joint_plan_free(&joint);
    }
    buffer_free(&bytes);
    samples_free(&samples);
}

static void expect_unite(struct samples *samples, dcp_status expected, const char *text)
{
    struct joint_plan lower, higher;
    join(samples, 0, 1, &lower);
    join(samples, 1, 3, &higher);
    assert_int_equal(joint_plan_unite(&lower, &higher), expected);
    if (strstr(dcp_error_message(), text) == NULL)
        fail_msg("\"%s\" does not contain \"%s\"", dcp_error_message(), text);
    joint_plan_free(&lower);
    joint_plan_free(&higher);
    samples_free(samples);
}

static void disagreement_names_ranks_and_versions(void **state)
{
    (void)state;
    static const int64_t wider[] = {10, 9};
    struct samples samples;
    add_everything(&samples, 3);
    for (int rank = 1; rank < 3; rank++)
        samples.plans[rank].items[0].dtype = DCP_F16;
    expect_unite(&samples, DCP_ERR_DTYPE,
                 "\"model.a\" is bfloat16 on rank 0, but float16 on rank 1");
    add_everything(&samples, 3);
    for (int rank = 1; rank < 3; rank++)
        samples.plans[rank].items[0].global_shape = wider;
    expect_unite(&samples, DCP_ERR_SHAPE,
                 "\"model.a\" has the global shape [10, 8] on rank 0, but [10, 9] on rank 1");
    samples_init(&samples, 3);
    sample_object(&samples, 0, "x", 10);
    sample_tensor(&samples, 2, "x", DCP_F32, BOX(0, NULL, NULL), NULL);
    expect_unite(&samples, DCP_ERR_KIND, "\"x\" is an object on rank 0, but a tensor on rank 2");
}

static void memory_may_run_out_anywhere(void **state)
{
    (void)state;
    struct samples samples;
    struct joint_plan joint, lower;
    struct buffer bytes;
    add_everything(&samples, 4);
    join(&samples, 2, 4, &joint);
    encode(&joint, &bytes);
    joint_plan_free(&joint);
    for (long n = 1;; n++) {
        failing_allocator_install(n, false);
        joint_plan_init(&lower, 4);
        dcp_status status = joint_plan_add(&lower, &samples.plans[0], 0);
        if (status == DCP_OK)
            status = joint_plan_add(&lower, &samples.plans[1], 1);
        dcp_status decoded = joint_plan_decode(bytes.data, bytes.size, 4, &joint);
        if (status == DCP_OK)
            status = decoded;
        if (status == DCP_OK)
            status = joint_plan_unite(&lower, &joint);
        joint_plan_free(&lower);
        joint_plan_free(&joint);
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        assert_int_equal(status, reached ? DCP_ERR_NO_MEMORY : DCP_OK);
        if (!reached)
            break;
    }
    buffer_free(&bytes);
    samples_free(&samples);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(even_steps_are_one_run),
        cmocka_unit_test(uniting_is_as_good_as_adding),
        cmocka_unit_test(messages_survive_the_journey),
        cmocka_unit_test(damage_is_refused_or_harmless),
        cmocka_unit_test(disagreement_names_ranks_and_versions),
        cmocka_unit_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
