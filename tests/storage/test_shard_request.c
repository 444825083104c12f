/* SPDX-License-Identifier: BSD-3-Clause */
/* Where the bytes of a region lie in its file, for those that lie in one place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "format/streams/stream.h"
#include "storage/shard/shard_request.h"

enum { ROWS = 10, COLUMNS = 6 };

/* Rows 10 to 19 of a tensor, in a stream of 1000 bytes, 240 of which are elements. */
static const int64_t shape[] = {40, COLUMNS}, offsets[] = {10, 0}, sizes[] = {ROWS, COLUMNS};
static const struct metadata_entry entry = {
    .is_tensor = true, .dtype = DCP_F32, .ndim = 2, .global_shape = shape};
static const struct metadata_piece stream = {
    .offsets = offsets, .sizes = sizes, .encoding = PIECE_STREAM, .offset = 5000, .length = 1000};
#define AROUND (1000 - ROWS * COLUMNS * 4)

/* From a row and column of the tensor on. */
static bool find(const struct metadata_piece *piece, int64_t row, int64_t column, int64_t rows,
                 int64_t columns, struct shard_range *range)
{
    const int64_t at[] = {row, column}, of[] = {rows, columns};
    const struct shard_request request = {
        .entry = &entry, .piece = piece, .region = {2, at, of}, .dtype = DCP_F32};
    return shard_request_range(&request, range);
}

static void rows_of_a_stream_are_in_one_place(void **state)
{
    struct shard_range range;
    (void)state;
    assert_true(find(&stream, 10, 0, ROWS, COLUMNS, &range));
    assert_true(range.offset == 5000 && range.size == 1000);
    assert_true(find(&stream, 13, 0, 2, COLUMNS, &range));
    assert_int_equal(range.offset, 5000 + 3 * COLUMNS * 4);
    assert_int_equal(range.size, 2 * COLUMNS * 4 + AROUND);
    assert_true(find(&stream, 13, 2, 1, 3, &range));
    assert_int_equal(range.offset, 5000 + (3 * COLUMNS + 2) * 4);
    assert_false(find(&stream, 10, 0, ROWS, COLUMNS - 1, &range));
}

/* What is around the elements is known where the stream may be one of ours. */
static void elements_of_our_streams_are_where_we_put_them(void **state)
{
    static const int64_t at[] = {13, 0}, of[] = {2, COLUMNS};
    struct metadata_piece piece = stream;
    const struct shard_request request = {
        .entry = &entry, .piece = &piece, .region = {2, at, of}, .dtype = DCP_F32};
    struct stream_layout layout;
    struct shard_range range, before;
    (void)state;
    assert_true(shard_request_range(&request, &range));
    before = range;
    shard_request_lay_out(&request, &range);
    assert_memory_equal(&range, &before, sizeof range);
    assert_int_equal(stream_tensor_layout(DCP_F32, 2, sizes, &layout), DCP_OK);
    piece.length = layout.length;
    shard_request_lay_out(&request, &range);
    assert_int_equal(range.offset, 5000 + layout.data_offset + 3 * COLUMNS * 4);
    assert_int_equal(range.size, 2 * COLUMNS * 4);
    range = before;
    piece.zstd = true;
    shard_request_lay_out(&request, &range);
    assert_memory_equal(&range, &before, sizeof range);
}

static void a_range_of_a_stream_begins_behind_others(void **state)
{
    static const int64_t stored[] = {100};
    static const struct stream_range inside = {.ndim = 1, .sizes = stored, .first = 7};
    struct metadata_piece piece = stream;
    struct shard_range range;
    (void)state;
    piece.encoding = PIECE_RANGE;
    piece.range = &inside;
    assert_true(find(&piece, 11, 0, 1, COLUMNS, &range));
    assert_int_equal(range.offset, 5000 + (7 + COLUMNS) * 4);
    assert_int_equal(range.size, COLUMNS * 4 + 1000 - 400);
}

static void views_are_where_they_say(void **state)
{
    static const int64_t rows[] = {COLUMNS, 1}, columns[] = {1, ROWS};
    struct tensor_view view = {
        .dtype = DCP_F32, .ndim = 2, .strides = rows, .storage_offset = 3, .data_offset = 800};
    struct metadata_piece piece = {
        .offsets = offsets, .sizes = sizes, .encoding = PIECE_RAW, .view = &view};
    struct shard_range range;
    (void)state;
    assert_true(find(&piece, 12, 0, 4, COLUMNS, &range));
    assert_int_equal(range.offset, 800 + (3 + 2 * COLUMNS) * 4);
    assert_int_equal(range.size, 4 * COLUMNS * 4);
    view.strides = columns;
    assert_false(find(&piece, 12, 0, 4, COLUMNS, &range));
    view.strides = rows;
    view.deflated = true;
    assert_false(find(&piece, 12, 0, 4, COLUMNS, &range));
}

static void what_is_compressed_or_too_short_has_no_place(void **state)
{
    struct metadata_piece piece = stream;
    struct shard_range range;
    (void)state;
    piece.zstd = true;
    assert_false(find(&piece, 10, 0, ROWS, COLUMNS, &range));
    piece = stream;
    piece.length = ROWS * COLUMNS * 4 - 1;
    assert_false(find(&piece, 10, 0, ROWS, COLUMNS, &range));
    piece.encoding = PIECE_HELD;
    assert_false(find(&piece, 10, 0, ROWS, COLUMNS, &range));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_a_stream_are_in_one_place),
        cmocka_unit_test(elements_of_our_streams_are_where_we_put_them),
        cmocka_unit_test(a_range_of_a_stream_begins_behind_others),
        cmocka_unit_test(views_are_where_they_say),
        cmocka_unit_test(what_is_compressed_or_too_short_has_no_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
