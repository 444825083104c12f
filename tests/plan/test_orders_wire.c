/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fault/failing_allocator.h"
#include "samples.h"

struct fixture {
    struct samples samples;
    struct merged merged;
    struct buffer bytes; /* rank 1's orders */
};

/* Two ranks: a tensor in slices, a sharded one, one without elements, a scalar, an object. */
static int make_orders(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    assert_non_null(fixture);
    struct samples *samples = &fixture->samples;
    samples_init(samples, 2);
    for (int rank = 0; rank < 2; rank++) {
        sample_tensor(samples, rank, "sliced", DCP_F32, BOX(2, DIMS(0, 0), DIMS(2048, 256)),
                      DIMS(2048, 256));
        sample_tensor(samples, rank, "sharded", DCP_F32, BOX(2, DIMS(2 * rank, 0), DIMS(2, 3)),
                      DIMS(4, 3));
        sample_tensor(samples, rank, "step", DCP_F32, BOX(0, DIMS(0), DIMS(0)), DIMS(0));
    }
    sample_tensor(samples, 1, "empty", DCP_F32, BOX(2, DIMS(3, 0), DIMS(0, 0)), DIMS(3, 0));
    sample_object(samples, 1, "object", 1261);
    struct save_plan_options options = sample_options(DCP_REPLICAS_SLICE);
    options.thread_count = 3;
    assert_int_equal(samples_merge(samples, &options, &fixture->merged), DCP_OK);
    check_merged(samples, &fixture->merged);
    buffer_init(&fixture->bytes, 0);
    assert_int_equal(write_orders_encode(&fixture->merged.orders[1], &fixture->bytes), DCP_OK);
    *state = fixture;
    return 0;
}

static int free_orders(void **state)
{
    struct fixture *fixture = *state;
    buffer_free(&fixture->bytes);
    merged_free(&fixture->merged);
    samples_free(&fixture->samples);
    free(fixture);
    return 0;
}

static dcp_status decode_copy(const struct fixture *fixture, const unsigned char *data, size_t size,
                              struct write_orders *orders)
{
    unsigned char *copy = malloc(size != 0 ? size : 1);
    assert_non_null(copy);
    memcpy(copy, data, size);
    dcp_status status = write_orders_decode(copy, size, &fixture->samples.plans[1], orders);
    free(copy);
    return status;
}

static void orders_survive_the_journey(void **state)
{
    const struct fixture *fixture = *state;
    const struct write_orders *sent = &fixture->merged.orders[1];
    struct write_orders orders;
    assert_int_equal(decode_copy(fixture, fixture->bytes.data, fixture->bytes.size, &orders),
                     DCP_OK);
    assert_int_equal(orders.file_count, 3);
    assert_int_equal(orders.count, sent->count);
    for (size_t i = 0; i < orders.count; i++) {
        const struct write_order *a = &orders.orders[i], *b = &sent->orders[i];
        assert_int_equal(a->item, b->item);
        assert_int_equal(a->file, b->file);
        assert_int_equal(a->offset, b->offset);
        assert_int_equal(a->data_offset, b->data_offset);
        assert_int_equal(a->length, b->length);
        assert_int_equal(a->room, b->room);
        assert_int_equal(a->is_part, b->is_part);
        assert_true(box_equal(a->box, b->box));
    }
    write_orders_free(&orders);
}

static void every_cut_is_refused(void **state)
{
    const struct fixture *fixture = *state;
    for (size_t size = 0; size < fixture->bytes.size; size++) {
        struct write_orders orders;
        assert_int_equal(decode_copy(fixture, fixture->bytes.data, size, &orders), DCP_ERR_FORMAT);
        write_orders_free(&orders);
    }
}

/* Orders that are accepted write only what the rank has. */
static void damage_is_refused_or_harmless(void **state)
{
    const struct fixture *fixture = *state;
    const struct save_plan *plan = &fixture->samples.plans[1];
    for (size_t i = 0; i < fixture->bytes.size * 256; i++) {
        unsigned char kept = fixture->bytes.data[i / 256];
        struct write_orders orders;
        fixture->bytes.data[i / 256] = (unsigned char)i;
        dcp_status status = decode_copy(fixture, fixture->bytes.data, fixture->bytes.size, &orders);
        assert_true(status == DCP_OK || status == DCP_ERR_FORMAT);
        for (size_t k = 0; k < orders.count && status == DCP_OK; k++) {
            const struct write_order *order = &orders.orders[k];
            struct box_storage common;
            assert_true(order->item < plan->count);
            assert_true(order->file < orders.file_count);
            const struct write_item *item = &plan->items[order->item];
            if (!item->is_tensor || box_volume(order->box) == 0)
                continue;
            assert_true(box_intersect(order->box, item->box, &common));
            assert_true(box_equal(order->box, box_of(item->ndim, &common)));
        }
        write_orders_free(&orders);
        fixture->bytes.data[i / 256] = kept;
    }
}

static void refuse(const struct fixture *fixture, struct write_order order, uint32_t file_count,
                   const char *message)
{
    struct write_orders sent = {.orders = &order, .count = 1, .file_count = file_count}, orders;
    struct buffer bytes;
    buffer_init(&bytes, 0);
    assert_int_equal(write_orders_encode(&sent, &bytes), DCP_OK);
    assert_int_equal(decode_copy(fixture, bytes.data, bytes.size, &orders), DCP_ERR_FORMAT);
    if (strstr(dcp_error_message(), message) == NULL)
        fail_msg("\"%s\" does not contain \"%s\"", dcp_error_message(), message);
    write_orders_free(&orders);
    buffer_free(&bytes);
}

static void orders_for_what_was_not_offered_are_refused(void **state)
{
    const struct fixture *fixture = *state;
    struct write_order sharded = {.item = 1,
                                  .is_part = true,
                                  .box = BOX(2, DIMS(2, 0), DIMS(2, 3)),
                                  .data_offset = 640,
                                  .room = 2000};
    struct write_order object = {.item = 4, .room = 1261};
    struct write_order changed;
    assert_string_equal(fixture->samples.plans[1].items[4].name, "object");

    changed = sharded, changed.file = 1;
    refuse(fixture, changed, 1, "unknown item or file");
    changed = sharded, changed.box = BOX(2, DIMS(0, 0), DIMS(2, 3));
    refuse(fixture, changed, 1, "a box is not inside its item");
    changed = sharded, changed.box = BOX(2, DIMS(2, 0), DIMS(3, 3));
    refuse(fixture, changed, 1, "a box is not inside its item");
    changed = sharded, changed.data_offset = 1990;
    refuse(fixture, changed, 1, "the space for a stream is too small for its item");
    changed = sharded, changed.data_offset = 2001;
    refuse(fixture, changed, 1, "the space for a stream is too small for its item");
    changed = sharded, changed.offset = INT64_MAX;
    refuse(fixture, changed, 1, "the space for a stream is too small for its item");
    changed = object, changed.room = 1260;
    refuse(fixture, changed, 1, "the space for a stream is too small for its item");
    changed = object, changed.data_offset = 64;
    refuse(fixture, changed, 1, "the space for a stream is too small for its item");

    changed = object, changed.is_part = true;
    refuse(fixture, changed, 1, "part of an object");

    struct write_order twice[2] = {object, object};
    struct write_orders sent = {.orders = twice, .count = 2, .file_count = 1}, orders;
    struct buffer bytes;
    twice[1].offset = 1260;
    buffer_init(&bytes, 0);
    assert_int_equal(write_orders_encode(&sent, &bytes), DCP_OK);
    assert_int_equal(decode_copy(fixture, bytes.data, bytes.size, &orders), DCP_ERR_FORMAT);
    assert_non_null(
        strstr(dcp_error_message(), "the space for a stream is too small for its item"));
    write_orders_free(&orders);
    buffer_free(&bytes);
}

/* Orders that are used again fit objects that have grown or shrunk within their room. */
static void objects_are_as_long_as_they_are(void **state)
{
    const struct fixture *fixture = *state;
    struct write_item *item = &fixture->samples.plans[1].items[4];
    uint64_t length = item->object_length;
    struct write_order order = {.item = 4, .room = 1300};
    struct write_orders sent = {.orders = &order, .count = 1, .file_count = 1}, orders;
    struct buffer bytes;
    buffer_init(&bytes, 0);
    assert_int_equal(write_orders_encode(&sent, &bytes), DCP_OK);
    for (item->object_length = 1299; item->object_length <= 1301; item->object_length++) {
        dcp_status status = decode_copy(fixture, bytes.data, bytes.size, &orders);
        assert_int_equal(status, item->object_length > 1300 ? DCP_ERR_FORMAT : DCP_OK);
        if (status == DCP_OK)
            assert_int_equal(orders.orders[0].length, item->object_length);
        write_orders_free(&orders);
    }
    item->object_length = length;
    buffer_free(&bytes);
}

static void an_unknown_item_is_refused(void **state)
{
    const struct fixture *fixture = *state;
    const unsigned char bytes[] = {0x22, 1, 1, 200, 1, 0, 0, 0, 0};
    struct write_orders orders;
    assert_int_equal(decode_copy(fixture, bytes, sizeof bytes, &orders), DCP_ERR_FORMAT);
    assert_non_null(strstr(dcp_error_message(), "unknown item or file"));
    write_orders_free(&orders);
}

static void memory_may_run_out_anywhere(void **state)
{
    const struct fixture *fixture = *state;
    for (long n = 1;; n++) {
        struct write_orders orders;
        failing_allocator_install(n, false);
        dcp_status status = write_orders_decode(fixture->bytes.data, fixture->bytes.size,
                                                &fixture->samples.plans[1], &orders);
        write_orders_free(&orders);
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        assert_int_equal(status, reached ? DCP_ERR_NO_MEMORY : DCP_OK);
        if (!reached)
            break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(orders_survive_the_journey),
        cmocka_unit_test(every_cut_is_refused),
        cmocka_unit_test(damage_is_refused_or_harmless),
        cmocka_unit_test(orders_for_what_was_not_offered_are_refused),
        cmocka_unit_test(objects_are_as_long_as_they_are),
        cmocka_unit_test(an_unknown_item_is_refused),
        cmocka_unit_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests(tests, make_orders, free_orders);
}
