/* SPDX-License-Identifier: BSD-3-Clause */
/* The beginning of a stream says of its elements what the directory at its end does, or nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "failing_allocator.h"
#include "fixture.h"
#include "format/streams/item.h"
#include "format/streams/stream.h"
#include "format/streams/tensor_pickle.h"
#include "stream_part.h"
#include "zip_builder.h"

static bool foresee(const void *bytes, size_t size, struct arena *arena, struct tensor_view *view)
{
    bool known = false;
    if (item_foresee_tensor(bytes, size, arena, view, &known) != DCP_OK)
        fail_msg("%s", dcp_error_message());
    return known;
}

/* From all of the stream and from every beginning of it. */
static void expect_foreseen(const unsigned char *stream, size_t size)
{
    struct arena arena;
    struct tensor_view exact, view;
    arena_init(&arena, 0);
    assert_int_equal(item_open_tensor(byte_source_memory(stream, size), &arena, &exact), DCP_OK);
    assert_true(foresee(stream, size, &arena, &view));
    assert_true(item_same_view(&view, &exact));
    assert_false(view.has_crc);
    assert_true(foresee(stream, (size_t)exact.data_offset, &arena, &view));
    assert_true(item_same_view(&view, &exact));
    size_t last = exact.data_offset < 2000 ? (size_t)exact.data_offset : 2000;
    for (size_t cut = 0; cut < last; cut++) {
        unsigned char *beginning = malloc(cut + 1);
        assert_non_null(beginning);
        memcpy(beginning, stream, cut);
        assert_false(foresee(beginning, cut, &arena, &view));
        free(beginning);
    }
    arena_free(&arena);
}

static void check_piece(const struct fixture_piece *piece, void *context)
{
    if (piece->dtype == DCP_DTYPE_NONE || piece->zstd)
        return;
    expect_foreseen(piece->stream.data, piece->stream.size);
    ++*(size_t *)context;
}

static void test_what_pytorch_writes(void **state)
{
    static const char *const names[] = {"basic",
                                        "layouts",
                                        "dtypes",
                                        "shapes",
                                        "fsdp2_adam_w2",
                                        "torch_2.0.1_single",
                                        "torch_2.2.2_single",
                                        "torch_2.4.1_single",
                                        "torch_2.7.1_single",
                                        "torch_2.14.1_single",
                                        "torch_2.15.0_single"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct fixture fixture;
        size_t count = 0;
        fixture_open(&fixture, names[i]);
        fixture_each_piece(&fixture, check_piece, &count);
        fixture_close(&fixture);
        assert_true(count > 0);
    }
}

static void put_stream(struct buffer *out, dcp_dtype dtype, int32_t ndim, const int64_t *sizes)
{
    struct stream_layout layout;
    assert_int_equal(stream_tensor_layout(dtype, ndim, sizes, &layout), DCP_OK);
    assert_int_equal(stream_part_head(out, dtype, ndim, sizes), DCP_OK);
    for (uint64_t i = 0; i < layout.data_length; i++)
        buffer_append_u8(out, (uint8_t)(i * 31));
    uint32_t crc = crc32_update(0, out->data + layout.data_offset, (size_t)layout.data_length);
    assert_int_equal(stream_part_tail(out, dtype, ndim, sizes, crc), DCP_OK);
}

static void test_what_is_written_here(void **state)
{
    static const int64_t sizes[] = {3, 300, 70};
    static const dcp_dtype dtypes[] = {DCP_F32, DCP_BF16, DCP_F8_E4M3FN, DCP_U16, DCP_BOOL};
    (void)state;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        for (int32_t ndim = 0; ndim <= 3; ndim++) {
            struct buffer stream;
            buffer_init(&stream, 0);
            put_stream(&stream, dtypes[i], ndim, sizes);
            expect_foreseen(stream.data, stream.size);
            buffer_free(&stream);
        }
}

/* Records in another order, without sizes in front of or behind them, or no zip archive at all. */
static void test_what_is_not_foreseen(void **state)
{
    static const int64_t sizes[] = {4};
    struct zip_builder builder;
    struct buffer pickle, stream;
    struct arena arena;
    struct tensor_view view;
    (void)state;
    buffer_init(&pickle, 0);
    buffer_init(&stream, 0);
    arena_init(&arena, 0);
    tensor_pickle_write(&pickle, DCP_U8, 1, sizes);
    for (int first = 0; first < 2; first++) {
        zip_builder_init(&builder);
        if (first == 1)
            zip_builder_add(&builder, "archive/data/0", "abcd", 4);
        zip_builder_add_container(&builder, pickle.data, pickle.size);
        if (first == 0)
            zip_builder_add(&builder, "archive/data/0", "abcd", 4);
        zip_builder_finish(&builder);
        assert_int_equal(
            item_open_tensor(byte_source_memory(builder.out.data, builder.out.size), &arena, &view),
            DCP_OK);
        assert_false(foresee(builder.out.data, builder.out.size, &arena, &view));
        zip_builder_free(&builder);
    }
    assert_false(foresee("", 0, &arena, &view));
    assert_false(foresee("no zip archive, but some text that is long enough", 48, &arena, &view));
    put_stream(&stream, DCP_U8, 1, sizes);
    for (size_t bit = 0; bit < stream.size * 8; bit++) {
        stream.data[bit / 8] ^= (unsigned char)(1u << bit % 8);
        if (foresee(stream.data, stream.size, &arena, &view))
            assert_true(view.data_offset <= stream.size);
        stream.data[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    arena_free(&arena);
    buffer_free(&stream);
    buffer_free(&pickle);
}

static void test_no_memory(void **state)
{
    static const int64_t sizes[] = {4, 5};
    struct buffer stream;
    (void)state;
    buffer_init(&stream, 0);
    put_stream(&stream, DCP_I32, 2, sizes);
    for (size_t failed = 0;; failed++) {
        struct arena arena;
        struct tensor_view view;
        bool known = false;
        arena_init(&arena, 0);
        failing_allocator_install(failed);
        dcp_status status = item_foresee_tensor(stream.data, stream.size, &arena, &view, &known);
        arena_free(&arena);
        failing_allocator_remove();
        assert_true(status == DCP_OK ? known : status == DCP_ERR_NO_MEMORY);
        if (status == DCP_OK) {
            assert_true(failed > 0);
            break;
        }
    }
    buffer_free(&stream);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_pytorch_writes),
        cmocka_unit_test(test_what_is_written_here),
        cmocka_unit_test(test_what_is_not_foreseen),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
