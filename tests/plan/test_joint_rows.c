/* SPDX-License-Identifier: BSD-3-Clause */
/* What ranks hold of tensors that are divided by rows is what plans of their rows would tell, and
 * orders for it are orders for parts of whole tensors. */
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

static const int64_t row_counts[] = {0, 1, 2, 3, 5, 7, 8, 12, 13, 16, 17, 100};
enum { TENSORS = sizeof row_counts / sizeof *row_counts };

/* As torch.chunk divides. */
static void add_rows(struct samples *samples, int rank, const char *name, int64_t rows)
{
    int64_t ranks = samples->count, part = (rows + ranks - 1) / ranks;
    int64_t begin = rank * part < rows ? rank * part : rows;
    int64_t end = begin + part < rows ? begin + part : rows;
    sample_tensor(samples, rank, name, DCP_F32, BOX(2, DIMS(begin, 0), DIMS(end - begin, 6)),
                  DIMS(rows, 6));
}

static void add_all(struct samples *samples, int rank)
{
    for (int i = 0; i < TENSORS; i++) {
        char name[32];
        snprintf(name, sizeof name, "model.%d.weight", i);
        add_rows(samples, rank, name, row_counts[i]);
    }
    sample_object(samples, rank, "step", 100);
    sample_tensor(samples, rank, "scalar", DCP_F32, BOX(0, NULL, NULL), NULL);
}

/* The rows of so many ranks, and the whole that they are of. */
static void make(struct samples *ranks, struct samples *whole, int count)
{
    samples_init(ranks, count);
    samples_init(whole, 1);
    add_all(whole, 0);
    for (int rank = 0; rank < count; rank++)
        add_all(ranks, rank);
}

static void end(struct samples *ranks, struct samples *whole)
{
    samples_free(ranks);
    samples_free(whole);
}

/* The orders of each rank, as messages. */
struct dealt {
    struct joint_plan joint;
    struct metadata metadata;
    struct buffer orders[SAMPLE_RANKS_MAX];
};

static dcp_status encode_orders(void *context, uint32_t rank, const struct write_orders *orders)
{
    struct dealt *dealt = context;
    return write_orders_encode(orders, &dealt->orders[rank]);
}

static void deal(struct dealt *dealt, bool of_wholes)
{
    struct save_plan_options options = sample_options(DCP_REPLICAS_SLICE);
    const struct order_sink sink = {.take = encode_orders, .context = dealt};
    options.of_wholes = of_wholes;
    for (int rank = 0; rank < SAMPLE_RANKS_MAX; rank++)
        buffer_init(&dealt->orders[rank], 0);
    struct merge *merge;
    assert_int_equal(joint_plan_merge(&dealt->joint, &options, &dealt->metadata, &merge), DCP_OK);
    assert_int_equal(merge_order_all(merge, 0, &sink), DCP_OK);
    merge_free(merge);
}

static void dealt_free(struct dealt *dealt)
{
    for (int rank = 0; rank < SAMPLE_RANKS_MAX; rank++)
        buffer_free(&dealt->orders[rank]);
    metadata_free(&dealt->metadata);
    joint_plan_free(&dealt->joint);
}

static void assert_same_orders(const struct buffer *a, const struct save_plan *a_plan,
                               const struct buffer *b, const struct save_plan *b_plan)
{
    struct write_orders one, other;
    assert_int_equal(write_orders_decode(a->data, a->size, a_plan, &one), DCP_OK);
    assert_int_equal(write_orders_decode(b->data, b->size, b_plan, &other), DCP_OK);
    assert_int_equal(one.count, other.count);
    assert_int_equal(one.file_count, other.file_count);
    for (size_t i = 0; i < one.count; i++) {
        const struct write_order *left = &one.orders[i], *right = &other.orders[i];
        assert_int_equal(left->item, right->item);
        assert_int_equal(left->file, right->file);
        assert_int_equal(left->offset, right->offset);
        assert_int_equal(left->data_offset, right->data_offset);
        assert_int_equal(left->length, right->length);
        assert_int_equal(left->room, right->room);
        assert_true(box_equal(left->box, right->box));
    }
    write_orders_free(&one);
    write_orders_free(&other);
}

static void rows_are_those_of_ranks(void **state)
{
    (void)state;
    for (int count = 1; count <= SAMPLE_RANKS_MAX; count++) {
        struct samples ranks, whole;
        struct dealt of_ranks, of_whole;
        make(&ranks, &whole, count);
        joint_plan_init(&of_ranks.joint, (uint32_t)count);
        joint_plan_init(&of_whole.joint, (uint32_t)count);
        for (int rank = 0; rank < count; rank++)
            assert_int_equal(joint_plan_add(&of_ranks.joint, &ranks.plans[rank], (uint32_t)rank),
                             DCP_OK);
        assert_int_equal(joint_plan_add_rows(&of_whole.joint, &whole.plans[0]), DCP_OK);
        sample_same_joint_plan(&of_ranks.joint, &of_whole.joint);
        deal(&of_ranks, false);
        deal(&of_whole, true);
        for (int rank = 0; rank < count; rank++)
            assert_same_orders(&of_ranks.orders[rank], &ranks.plans[rank], &of_whole.orders[rank],
                               &whole.plans[0]);
        dealt_free(&of_ranks);
        dealt_free(&of_whole);
        end(&ranks, &whole);
    }
}

static void memory_may_run_out_anywhere(void **state)
{
    struct samples ranks, whole;
    (void)state;
    make(&ranks, &whole, 3);
    for (long n = 1;; n++) {
        struct joint_plan joint;
        failing_allocator_install(n, false);
        joint_plan_init(&joint, 3);
        dcp_status status = joint_plan_add_rows(&joint, &whole.plans[0]);
        joint_plan_free(&joint);
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        assert_int_equal(status, reached ? DCP_ERR_NO_MEMORY : DCP_OK);
        if (!reached)
            break;
    }
    end(&ranks, &whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_those_of_ranks),
        cmocka_unit_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
