/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/memory.h"
#include "failing_allocator.h"
#include "fixture.h"
#include "format/streams/stream.h"
#include "format/streams/tensor_pickle.h"
#include "format/zip/zip.h"
#include "stream_part.h"

/* One for all, which was sealed for other data before. */
static struct stream_frame frame;

static void check_frame(const struct fixture_piece *piece, uint32_t crc)
{
    const unsigned char *stream = piece->stream.data;
    assert_int_equal(stream_frame_fit(&frame, piece->dtype, piece->ndim, piece->sizes), DCP_OK);
    assert_int_equal(frame.head.size + piece->whole.size + frame.tail.size, piece->stream.size);
    assert_memory_equal(frame.head.data, stream, frame.head.size);
    stream_frame_seal(&frame, ~crc);
    assert_memory_not_equal(frame.tail.data, stream + piece->stream.size - frame.tail.size,
                            frame.tail.size);
    stream_frame_seal(&frame, crc);
    assert_memory_equal(frame.tail.data, stream + piece->stream.size - frame.tail.size,
                        frame.tail.size);
}

static void check_tensor(const struct fixture_piece *piece, struct buffer *out)
{
    struct stream_layout layout;
    assert_int_equal(stream_tensor_layout(piece->dtype, piece->ndim, piece->sizes, &layout),
                     DCP_OK);
    assert_int_equal(layout.length, piece->stream.size);
    assert_int_equal(layout.data_length, piece->whole.size);
    assert_int_equal(layout.data_offset % 64, 0);
    assert_int_equal(stream_part_head(out, piece->dtype, piece->ndim, piece->sizes), DCP_OK);
    assert_int_equal(out->size, layout.data_offset);
    buffer_append(out, piece->whole.data, piece->whole.size);
    uint32_t crc = crc32_update(0, piece->whole.data, piece->whole.size);
    assert_int_equal(stream_part_tail(out, piece->dtype, piece->ndim, piece->sizes, crc), DCP_OK);
    if (piece->whole.size != 0)
        check_frame(piece, crc);
}

static void check_object(const struct fixture_piece *piece, struct buffer *out)
{
    struct zip_archive archive;
    void *pickle = NULL;
    struct byte_source source = byte_source_memory(piece->stream.data, piece->stream.size);
    assert_int_equal(zip_open(source, &archive), DCP_OK);
    const struct zip_record *record = zip_find(&archive, "data.pkl");
    assert_non_null(record);
    assert_int_equal(zip_read(&archive, record, piece->stream.size, &pickle), DCP_OK);
    assert_int_equal(stream_object(out, pickle, (size_t)record->size), DCP_OK);
    memory_release(pickle);
    zip_close(&archive);
}

static bool has_tensors(const struct fixture_piece *piece)
{
    struct zip_archive archive;
    struct byte_source source = byte_source_memory(piece->stream.data, piece->stream.size);
    assert_int_equal(zip_open(source, &archive), DCP_OK);
    bool found = zip_find(&archive, "data/0") != NULL;
    zip_close(&archive);
    return found;
}

static void check_piece(const struct fixture_piece *piece, void *context)
{
    struct buffer out;
    if (piece->dtype == DCP_DTYPE_NONE && has_tensors(piece))
        return;
    buffer_init(&out, 0);
    if (piece->dtype != DCP_DTYPE_NONE)
        check_tensor(piece, &out);
    else
        check_object(piece, &out);
    assert_int_equal(out.size, piece->stream.size);
    assert_memory_equal(out.data, piece->stream.data, out.size);
    buffer_free(&out);
    ++*(size_t *)context;
}

static void check_fixture(const char *name, size_t least)
{
    struct fixture fixture;
    size_t checked = 0;
    fixture_open(&fixture, name);
    stream_frame_init(&frame);
    fixture_each_piece(&fixture, check_piece, &checked);
    stream_frame_free(&frame);
    fixture_close(&fixture);
    assert_true(checked >= least);
}

static void test_streams_equal_pytorch(void **state)
{
    (void)state;
    check_fixture("basic", 4);
    check_fixture("dtypes", 66);
    check_fixture("shapes", 14);
    check_fixture("objects", 50);
}

/* What PyTorch 2.13 writes around a uint8 vector of zeros, at the sizes around which zip64 begins.
 */
static void test_zip64_equals_pytorch(void **state)
{
    (void)state;
    static const struct {
        int64_t size;
        uint32_t data_crc, head_crc, tail_crc;
        uint64_t tail_size;
    } cases[] = {
        {0xfffffc17, 0x3570ba7d, 0x43cdb6c4, 0xed3dfc98, 850},
        {0xfffffffe, 0x0f6a7026, 0xc9f7cdc7, 0x07bc2d56, 907},
        {0xffffffff, 0, 0x06737a10, 0x8b198e63, 926},
        {0x100000001, 0x41d912ff, 0x55aaf9ed, 0x103b925c, 924},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct stream_layout layout;
        struct buffer out;
        buffer_init(&out, 0);
        assert_int_equal(stream_tensor_layout(DCP_U8, 1, &cases[i].size, &layout), DCP_OK);
        assert_int_equal(layout.data_offset, 704);
        assert_int_equal(layout.length, 704 + (uint64_t)cases[i].size + cases[i].tail_size);
        assert_int_equal(stream_part_head(&out, DCP_U8, 1, &cases[i].size), DCP_OK);
        assert_int_equal(out.size, 704);
        assert_int_equal(crc32_update(0, out.data, out.size), cases[i].head_crc);
        buffer_clear(&out);
        assert_int_equal(stream_part_tail(&out, DCP_U8, 1, &cases[i].size, cases[i].data_crc),
                         DCP_OK);
        assert_int_equal(out.size, cases[i].tail_size);
        assert_int_equal(crc32_update(0, out.data, out.size), cases[i].tail_crc);
        buffer_free(&out);
    }
}

/* The layout is computed without the pickle that the head holds: they must agree. */
static void test_layout_agrees_with_head(void **state)
{
    (void)state;
    static const int64_t sizes_to_try[] = {0, 1, 3, 255, 256, 65535, 65536, 1 << 20, 0x7fffffff};
    static const dcp_dtype dtypes[] = {DCP_F32, DCP_BOOL, DCP_U16, DCP_F8_E4M3FNUZ, DCP_C128};
    unsigned seed = 1;
    for (int round = 0; round < 3000; round++) {
        struct stream_layout layout;
        struct buffer out;
        int64_t sizes[DCP_MAX_DIMS];
        dcp_dtype dtype = dtypes[round % 5];
        int32_t ndim = round % 7 == 0 ? DCP_MAX_DIMS : round % 7;
        for (int32_t i = 0; i < ndim; i++) {
            seed = seed * 1103515245 + 12345;
            sizes[i] = ndim > 6 ? 1 : sizes_to_try[(seed >> 16) % 9];
        }
        if (stream_tensor_layout(dtype, ndim, sizes, &layout) != DCP_OK)
            continue;
        buffer_init(&out, 0);
        tensor_pickle_write(&out, dtype, ndim, sizes);
        assert_int_equal(out.size, tensor_pickle_size(dtype, ndim, sizes));
        buffer_clear(&out);
        assert_int_equal(stream_part_head(&out, dtype, ndim, sizes), DCP_OK);
        assert_int_equal(out.size, layout.data_offset);
        assert_int_equal(stream_part_tail(&out, dtype, ndim, sizes, 0), DCP_OK);
        assert_int_equal(out.size + layout.data_length, layout.length);
        buffer_free(&out);
    }
}

static void test_refused_tensors(void **state)
{
    (void)state;
    struct stream_layout layout;
    struct buffer out;
    buffer_init(&out, 0);
    const int64_t sizes[DCP_MAX_DIMS + 1] = {2, -1};
    const int64_t huge[2] = {INT64_MAX / 4, 2};
    assert_int_equal(stream_tensor_layout(DCP_BITS8, 1, sizes, &layout), DCP_ERR_UNSUPPORTED);
    assert_int_equal(stream_part_head(&out, DCP_BITS4X2, 1, sizes), DCP_ERR_UNSUPPORTED);
    assert_int_equal(stream_tensor_layout(DCP_DTYPE_NONE, 1, sizes, &layout), DCP_ERR_ARGUMENT);
    assert_int_equal(stream_tensor_layout(DCP_F32, 2, sizes, &layout), DCP_ERR_ARGUMENT);
    assert_int_equal(stream_tensor_layout(DCP_F32, -1, sizes, &layout), DCP_ERR_ARGUMENT);
    assert_int_equal(stream_tensor_layout(DCP_F32, DCP_MAX_DIMS + 1, sizes, &layout),
                     DCP_ERR_ARGUMENT);
    assert_int_equal(stream_tensor_layout(DCP_F32, 2, huge, &layout), DCP_ERR_ARGUMENT);
    assert_int_equal(stream_part_tail(&out, DCP_F32, 2, huge, 0), DCP_ERR_ARGUMENT);
    assert_int_equal(out.size, 0);
    buffer_free(&out);
}

static void test_no_memory(void **state)
{
    (void)state;
    const int64_t sizes[] = {2, 3};
    size_t failed = 0;
    for (size_t n = 0;; n++, failed++) {
        struct buffer out;
        failing_allocator_install(n);
        buffer_init(&out, 0);
        dcp_status status = stream_part_head(&out, DCP_F32, 2, sizes);
        if (status == DCP_OK)
            status = stream_part_tail(&out, DCP_F32, 2, sizes, 0);
        if (status == DCP_OK)
            status = stream_object(&out, "\x80\x02N.", 4);
        buffer_free(&out);
        failing_allocator_remove();
        if (status == DCP_OK)
            break;
        assert_int_equal(status, DCP_ERR_NO_MEMORY);
    }
    assert_true(failed > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streams_equal_pytorch),
        cmocka_unit_test(test_zip64_equals_pytorch),
        cmocka_unit_test(test_layout_agrees_with_head),
        cmocka_unit_test(test_refused_tensors),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
