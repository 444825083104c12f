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

/* One rank's plan with everything in it that the message can tell. */
static void add_everything(struct samples *samples)
{
    samples_init(samples, 1);
    sample_tensor(samples, 0, "model.layers.0.w", DCP_BF16, BOX(2, DIMS(4, 0), DIMS(4, 300)),
                  DIMS(16, 300));
    sample_tensor(samples, 0, "model.layers.0.w", DCP_BF16, BOX(2, DIMS(8, 7), DIMS(4, 1)),
                  DIMS(16, 300));
    sample_tensor(samples, 0, "model.layers.0.b", DCP_F32, BOX(1, DIMS(0), DIMS(300)), DIMS(300));
    samples->plans[0].items[2].requires_grad = true;
    sample_tensor(samples, 0, "model.layers.12.w", DCP_C128, BOX(3, DIMS(0, 1, 0), DIMS(2, 0, 5)),
                  DIMS(2, 1, 5));
    sample_tensor(samples, 0, "step", DCP_I64, BOX(0, DIMS(0), DIMS(0)), DIMS(0));
    sample_object(samples, 0, "", 1261);
    sample_object(samples, 0, ".", 0);
    sample_object(samples, 0, "\xc3\xa4.\xe2\x82\xac", 1u << 30);
}

static void encode(const struct save_plan *plan, struct buffer *out)
{
    buffer_init(out, 0);
    assert_int_equal(save_plan_encode(plan, out), DCP_OK);
}

static void assert_same_item(const struct write_item *a, const struct write_item *b)
{
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->path_length, b->path_length);
    for (size_t i = 0; i < a->path_length; i++) {
        assert_int_equal(a->path[i].key == NULL, b->path[i].key == NULL);
        if (a->path[i].key != NULL)
            assert_string_equal(a->path[i].key, b->path[i].key);
        assert_int_equal(a->path[i].position, b->path[i].position);
    }
    assert_int_equal(a->is_tensor, b->is_tensor);
    assert_int_equal(a->requires_grad, b->requires_grad);
    assert_int_equal(a->dtype, b->dtype);
    assert_int_equal(a->ndim, b->ndim);
    assert_int_equal(a->object_length, b->object_length);
    if (!a->is_tensor)
        return;
    for (int32_t i = 0; i < a->ndim; i++)
        assert_int_equal(a->global_shape[i], b->global_shape[i]);
    assert_true(box_equal(a->box, b->box));
}

static void plans_survive_the_journey(void **state)
{
    (void)state;
    struct samples samples;
    struct buffer bytes;
    struct save_plan plan;
    add_everything(&samples);
    encode(&samples.plans[0], &bytes);
    assert_int_equal(save_plan_decode(bytes.data, bytes.size, &plan), DCP_OK);
    assert_int_equal(plan.count, samples.plans[0].count);
    for (size_t i = 0; i < plan.count; i++)
        assert_same_item(&plan.items[i], &samples.plans[0].items[i]);
    assert_ptr_equal(plan.items[0].name, plan.items[1].name);
    struct buffer again;
    encode(&plan, &again);
    assert_int_equal(again.size, bytes.size);
    assert_memory_equal(again.data, bytes.data, bytes.size);
    buffer_free(&again);
    buffer_free(&bytes);
    save_plan_free(&plan);
    samples_free(&samples);
}

static void an_empty_plan_is_a_plan(void **state)
{
    (void)state;
    struct save_plan empty = {0}, plan;
    struct buffer bytes;
    encode(&empty, &bytes);
    assert_int_equal(save_plan_decode(bytes.data, bytes.size, &plan), DCP_OK);
    assert_int_equal(plan.count, 0);
    save_plan_free(&plan);
    buffer_free(&bytes);
}

static void neighbours_share_their_names(void **state)
{
    (void)state;
    struct samples samples;
    struct buffer bytes;
    samples_init(&samples, 1);
    for (int i = 0; i < 1000; i++) {
        char name[400];
        snprintf(name, sizeof name, "%0300d.layers.%d.weight", 0, i);
        sample_tensor(&samples, 0, name, DCP_F32, BOX(2, DIMS(0, 0), DIMS(8, 8)), DIMS(8, 8));
    }
    encode(&samples.plans[0], &bytes);
    assert_in_range(bytes.size, 1, 1000 * (300 - 255 + 40));
    struct save_plan plan;
    assert_int_equal(save_plan_decode(bytes.data, bytes.size, &plan), DCP_OK);
    assert_string_equal(plan.items[999].name, samples.plans[0].items[999].name);
    save_plan_free(&plan);
    buffer_free(&bytes);
    samples_free(&samples);
}

static void names_must_be_their_paths(void **state)
{
    (void)state;
    struct samples samples;
    struct buffer bytes;
    samples_init(&samples, 1);
    sample_object(&samples, 0, "a.b", 1);
    samples.plans[0].items[0].path_length = 1;
    buffer_init(&bytes, 0);
    assert_int_equal(save_plan_encode(&samples.plans[0], &bytes), DCP_ERR_INTERNAL);
    buffer_free(&bytes);
    samples_free(&samples);
}

static dcp_status decode_copy(const unsigned char *data, size_t size, struct save_plan *plan)
{
    unsigned char *copy = malloc(size != 0 ? size : 1);
    assert_non_null(copy);
    memcpy(copy, data, size);
    dcp_status status = save_plan_decode(copy, size, plan);
    free(copy);
    return status;
}

static void every_cut_is_refused(void **state)
{
    (void)state;
    struct samples samples;
    struct buffer bytes;
    add_everything(&samples);
    encode(&samples.plans[0], &bytes);
    for (size_t size = 0; size < bytes.size; size++) {
        struct save_plan plan;
        assert_int_equal(decode_copy(bytes.data, size, &plan), DCP_ERR_FORMAT);
        assert_non_null(strstr(dcp_error_message(), "save plan: "));
        save_plan_free(&plan);
    }
    buffer_append_u8(&bytes, 0);
    struct save_plan plan;
    assert_int_equal(decode_copy(bytes.data, bytes.size, &plan), DCP_ERR_FORMAT);
    save_plan_free(&plan);
    buffer_free(&bytes);
    samples_free(&samples);
}

/* Whatever is decoded from damaged bytes is a plan that can be encoded and merged. */
static void damage_is_refused_or_harmless(void **state)
{
    (void)state;
    struct samples samples;
    struct buffer bytes;
    struct save_plan_options options = sample_options(DCP_REPLICAS_SLICE);
    add_everything(&samples);
    encode(&samples.plans[0], &bytes);
    for (size_t i = 0; i < bytes.size * 256; i++) {
        unsigned char kept = bytes.data[i / 256];
        bytes.data[i / 256] = (unsigned char)i;
        struct samples damaged = {.count = 1};
        dcp_status status = decode_copy(bytes.data, bytes.size, &damaged.plans[0]);
        if (status == DCP_OK) {
            struct merged merged;
            struct buffer again;
            encode(&damaged.plans[0], &again);
            buffer_free(&again);
            samples_merge(&damaged, &options, &merged);
            merged_free(&merged);
        } else {
            assert_int_equal(status, DCP_ERR_FORMAT);
        }
        samples_free(&damaged);
        bytes.data[i / 256] = kept;
    }
    buffer_free(&bytes);
    samples_free(&samples);
}

static void expect_refusal(const char *hex, const char *message)
{
    unsigned char bytes[128];
    size_t size = strlen(hex) / 2;
    for (size_t i = 0; i < size; i++) {
        unsigned value;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &value), 1);
        bytes[i] = (unsigned char)value;
    }
    struct save_plan plan;
    assert_int_equal(decode_copy(bytes, size, &plan), DCP_ERR_FORMAT);
    if (strstr(dcp_error_message(), message) == NULL)
        fail_msg("\"%s\" does not contain \"%s\"", dcp_error_message(), message);
    save_plan_free(&plan);
}

static void lies_are_named(void **state)
{
    (void)state;
    expect_refusal("", "the message is empty");
    expect_refusal("2100", "begins with 0x21, expected 0x11");
    expect_refusal("11ffffffff7f",
                   "ends too early, or a number is out of range"); /* count beyond the bytes */
    expect_refusal("1101050161010200", "a name ends too early");   /* shares with nothing */
    expect_refusal("11010001ff010200", "a name is not UTF-8");
    expect_refusal("110100026100010400", "a name is not UTF-8, or contains NUL");
    expect_refusal("11010001610000", "no path");
    expect_refusal("1101000161010400", "a path does not match"); /* part longer than the name */
    expect_refusal("1101000361626302020200", "a path does not match"); /* no dot at the cut */
    expect_refusal("11010001610103", "a list position is not a number");
    expect_refusal("1101000230310105", "a list position is not a number");
    expect_refusal("110100016101020400", "unknown flags");
    expect_refusal("11010001610102ff00", "unknown flags");
    expect_refusal("110100016101020163", "a dtype is unknown"); /* dtype 99 */
    expect_refusal("11010001610102010241",
                   "a dtype is unknown, or a shape has too many dim"); /* 65 dimensions */
    expect_refusal("1101000161010201020100", "the number of chunks differs");
    expect_refusal("1101000161010201020104010300", "a box has more dimensions");
    expect_refusal("11010001610102010201040101020300", "is not inside its tensor");
    expect_refusal("1101000161010201020104020000", "the number of chunks differs");
    expect_refusal("11010001610102010202ffffffffffffffff7f0a0100", "a shape is too large");
    expect_refusal("1101000161010200ffffffffffffffffff01",
                   "an object ends too early or is too long");
}

static void memory_may_run_out_anywhere(void **state)
{
    (void)state;
    struct samples samples;
    struct buffer bytes;
    add_everything(&samples);
    encode(&samples.plans[0], &bytes);
    for (long n = 1;; n++) {
        struct save_plan plan;
        struct buffer again;
        buffer_init(&again, 0);
        failing_allocator_install(n, false);
        dcp_status status = save_plan_decode(bytes.data, bytes.size, &plan);
        if (status == DCP_OK)
            status = save_plan_encode(&plan, &again);
        buffer_free(&again);
        save_plan_free(&plan);
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
        cmocka_unit_test(plans_survive_the_journey),
        cmocka_unit_test(an_empty_plan_is_a_plan),
        cmocka_unit_test(neighbours_share_their_names),
        cmocka_unit_test(names_must_be_their_paths),
        cmocka_unit_test(every_cut_is_refused),
        cmocka_unit_test(damage_is_refused_or_harmless),
        cmocka_unit_test(lies_are_named),
        cmocka_unit_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
