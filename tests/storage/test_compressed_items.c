/* SPDX-License-Identifier: BSD-3-Clause */
/* Compressed tensors that are decompressed as they are read: whatever their streams look like, the
 * elements are right or there is an error. And ranges of streams, compressed or not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "base/error.h"
#include "fault/failing_allocator.h"
#include "format/streams/item_compress.h"
#include "format/streams/stream_records.h"
#include "format/streams/tensor_pickle.h"
#include "state/box.h"
#include "storage/shard/shard_file.h"
#include "storage/shard/stored_item.h"

/* A matrix of float32, large enough not to be decompressed at once. */
enum { SIDE = 300, COUNT = SIDE * SIDE };

static float elements[COUNT];
static struct shard_reader *reader; /* of no files: it tells whose stream is wrong */

static int set_up(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT; i++)
        elements[i] = (float)(i % 1009);
    return shard_reader_new(dcp_storage_files(), "nowhere", STORAGE_DCP, &reader) == DCP_OK ? 0
                                                                                            : -1;
}

static int tear_down(void **state)
{
    (void)state;
    shard_reader_free(reader);
    return 0;
}

struct stream_options {
    bool turned;    /* the pickle that counts says that columns lie row by row */
    bool other;     /* one that is not in the directory says the opposite, in its place */
    bool last;      /* the pickle comes behind the elements */
    size_t padding; /* of another record behind them */
    bool wrong_crc;
};

/* The strides of the pickle, exchanged. */
static void turn(struct buffer *pickle)
{
    static const unsigned char as_is[] = {'M', SIDE & 255, SIDE >> 8, 'K', 1, 0x86};
    static const unsigned char turned[] = {'K', 1, 'M', SIDE & 255, SIDE >> 8, 0x86};
    unsigned char *place = memmem(pickle->data, pickle->size, as_is, sizeof as_is);
    assert_non_null(place);
    memcpy(place, turned, sizeof turned);
}

static void exchange_names(struct buffer *stream, uint64_t directory)
{
    unsigned char *end = stream->data + directory;
    size_t size = stream->size - (size_t)directory;
    unsigned char *first = memmem(end, size, "archive/data.pkl", 16);
    unsigned char *second = memmem(end, size, "archive/data.pkx", 16);
    assert_non_null(first);
    assert_non_null(second);
    first[15] = 'x';
    second[15] = 'l';
}

static void put(struct stream_records *records, const char *name, const void *bytes, size_t size)
{
    struct stream_record *record = &records->items[records->count++];
    *record = (struct stream_record){
        .name = name, .bytes = bytes, .size = size, .crc = crc32_update(0, bytes, size)};
}

/* Writes the records one behind the other, and the directory. */
static void put_stream(struct buffer *out, const struct stream_options *options)
{
    static const int64_t sizes[] = {SIDE, SIDE};
    static const char zeros[60000];
    struct stream_record items[8];
    struct stream_records records = {.items = items};
    struct buffer pickle, second;
    buffer_init(&pickle, 0);
    buffer_init(&second, 0);
    tensor_pickle_write(&pickle, DCP_F32, 2, sizes);
    tensor_pickle_write(&second, DCP_F32, 2, sizes);
    if (options->turned)
        turn(options->other ? &second : &pickle);
    if (options->last)
        put(&records, "data/0", elements, sizeof elements);
    put(&records, "data.pkl", pickle.data, pickle.size);
    if (options->other)
        put(&records, "data.pkx", second.data, second.size);
    put(&records, "byteorder", "little", 6);
    if (!options->last)
        put(&records, "data/0", elements, sizeof elements);
    if (options->padding > 0)
        put(&records, "padding", zeros, options->padding);
    put(&records, "version", "3\n", 2);
    for (size_t i = 0; i < records.count; i++) {
        struct stream_record *record = &items[i];
        if (options->wrong_crc && strcmp(record->name, "data/0") == 0)
            record->crc ^= 1;
        record->header_offset = out->size;
        stream_put_header(out, record);
        record->data_offset = out->size;
        buffer_append(out, record->bytes, (size_t)record->size);
        stream_put_descriptor(out, record);
    }
    records.directory_offset = out->size;
    for (size_t i = 0; i < records.count; i++)
        records.directory_size += 46 + strlen("archive/") + strlen(items[i].name);
    stream_put_directory(out, &records);
    if (options->other)
        exchange_names(out, records.directory_offset);
    buffer_free(&pickle);
    buffer_free(&second);
}

static dcp_status receive(void *context, const void *bytes, size_t size)
{
    buffer_append(context, bytes, size);
    return DCP_OK;
}

static void put_compressed(struct buffer *out, const struct buffer *stream)
{
    struct item_compressor *compressor;
    assert_int_equal(item_compressor_new(0, 0, &compressor), DCP_OK);
    assert_int_equal(item_compressor_add(compressor, stream->data, stream->size, receive, out),
                     DCP_OK);
    assert_int_equal(item_compressor_end(compressor, receive, out), DCP_OK);
    item_compressor_free(compressor);
}

/* Some of the matrix. */
struct wish {
    int64_t offsets[2];
    int64_t sizes[2];
};

static const struct wish all = {{0, 0}, {SIDE, SIDE}};

static dcp_status take(const struct buffer *packed, const struct wish *wish,
                       dcp_verification verification, float *values)
{
    static const int64_t shape[] = {SIDE, SIDE}, origin[] = {0, 0};
    int64_t offsets[] = {wish->offsets[0], wish->offsets[1]};
    int64_t sizes[] = {wish->sizes[0], wish->sizes[1]}, strides[] = {sizes[1], 1};
    const struct metadata_entry entry = {
        .name = "t", .is_tensor = true, .dtype = DCP_F32, .ndim = 2, .global_shape = shape};
    const struct metadata_piece piece = {
        .offsets = origin, .sizes = shape, .zstd = true, .length = packed->size};
    const struct state_chunk target = {
        .offsets = offsets, .sizes = sizes, .strides = strides, .data = values};
    return shard_take_tensor(reader, &entry, &piece,
                             (struct stream_bytes){packed->data, packed->size}, &target, DCP_F32,
                             verification);
}

static void compare(const struct wish *wish, const float *values, bool turned)
{
    for (int64_t i = 0; i < wish->sizes[0]; i++)
        for (int64_t j = 0; j < wish->sizes[1]; j++) {
            int64_t row = wish->offsets[0] + i, column = wish->offsets[1] + j;
            float expected = elements[turned ? column * SIDE + row : row * SIDE + column];
            if (memcmp(&expected, &values[i * wish->sizes[1] + j], sizeof expected) != 0)
                fail_msg("differs at %lld, %lld", (long long)row, (long long)column);
        }
}

static void expect_elements(const struct stream_options *options)
{
    static const struct wish wishes[] = {
        {{0, 0}, {SIDE, SIDE}}, {{290, 0}, {10, SIDE}}, {{0, 7}, {SIDE, 1}},
        {{3, 100}, {200, 150}}, {{0, 0}, {1, 1}},       {{SIDE - 1, SIDE - 1}, {1, 1}},
    };
    static float values[COUNT];
    struct buffer stream, packed;
    buffer_init(&stream, 0);
    buffer_init(&packed, 0);
    put_stream(&stream, options);
    put_compressed(&packed, &stream);
    for (size_t i = 0; i < sizeof wishes / sizeof *wishes; i++)
        for (int verification = DCP_VERIFY_ALL; verification <= DCP_VERIFY_NONE; verification++) {
            memset(values, 0xff, sizeof values);
            if (take(&packed, &wishes[i], (dcp_verification)verification, values) != DCP_OK)
                fail_msg("%s", dcp_error_message());
            compare(&wishes[i], values, options->turned);
        }
    buffer_free(&packed);
    buffer_free(&stream);
}

static void streams_of_any_layout(void **state)
{
    (void)state;
    expect_elements(&(struct stream_options){0});
    expect_elements(&(struct stream_options){.turned = true});
    expect_elements(&(struct stream_options){.last = true});
    expect_elements(&(struct stream_options){.last = true, .turned = true});
    /* More behind the elements than is kept. */
    expect_elements(&(struct stream_options){.padding = 60000});
    expect_elements(&(struct stream_options){.padding = 60000, .turned = true});
}

static void expect_refused(const struct stream_options *options, dcp_verification verification,
                           dcp_status expected, const char *words)
{
    static float values[COUNT];
    struct buffer stream, packed;
    buffer_init(&stream, 0);
    buffer_init(&packed, 0);
    put_stream(&stream, options);
    put_compressed(&packed, &stream);
    assert_int_equal(take(&packed, &all, verification, values), expected);
    if (!strstr(dcp_error_message(), words))
        fail_msg("\"%s\" is not in \"%s\"", words, dcp_error_message());
    buffer_free(&packed);
    buffer_free(&stream);
}

static void streams_that_contradict_themselves(void **state)
{
    (void)state;
    for (int verification = DCP_VERIFY_ALL; verification <= DCP_VERIFY_NONE; verification++)
        expect_refused(&(struct stream_options){.other = true, .turned = true},
                       (dcp_verification)verification, DCP_ERR_FORMAT, "disagree");
    for (int last = 0; last < 2; last++) {
        struct stream_options options = {.wrong_crc = true, .last = last != 0};
        expect_refused(&options, DCP_VERIFY_ALL, DCP_ERR_CHECKSUM, "CRC-32");
        expect_refused(&options, DCP_VERIFY_RECORDS, DCP_ERR_CHECKSUM, "CRC-32");
    }
}

/* ---- ranges ---- */

/* All of a piece of ROWS x 7 elements that is in the stream, from one of the matrix's on. */
static dcp_status take_range(const struct buffer *stored, bool zstd, int64_t rows,
                             const struct stream_range *range, dcp_verification verification,
                             float *values)
{
    int64_t shape[] = {rows, 7}, origin[] = {0, 0}, strides[] = {7, 1};
    const struct metadata_entry entry = {
        .name = "t", .is_tensor = true, .dtype = DCP_F32, .ndim = 2, .global_shape = shape};
    const struct metadata_piece piece = {.offsets = origin,
                                         .sizes = shape,
                                         .encoding = PIECE_RANGE,
                                         .zstd = zstd,
                                         .length = stored->size,
                                         .range = range};
    const struct state_chunk target = {
        .offsets = origin, .sizes = shape, .strides = strides, .data = values};
    return shard_take_tensor(reader, &entry, &piece,
                             (struct stream_bytes){stored->data, stored->size}, &target, DCP_F32,
                             verification);
}

static void ranges_of_streams(void **state)
{
    (void)state;
    static const int64_t sizes[] = {SIDE, SIDE};
    static const int64_t firsts[] = {0, 1, 299, 300, 45001, COUNT - 70};
    static float values[COUNT];
    struct buffer stored[2];
    for (int last = 0; last < 2; last++) {
        buffer_init(&stored[0], 0);
        buffer_init(&stored[1], 0);
        put_stream(&stored[0], &(struct stream_options){.last = last != 0});
        put_compressed(&stored[1], &stored[0]);
        for (size_t i = 0; i < 2 * sizeof firsts / sizeof *firsts; i++) {
            const struct stream_range range = {2, sizes, firsts[i / 2]};
            for (int verification = DCP_VERIFY_ALL; verification <= DCP_VERIFY_NONE;
                 verification++) {
                memset(values, 0xff, sizeof values);
                if (take_range(&stored[i % 2], i % 2 == 1, 10, &range,
                               (dcp_verification)verification, values) != DCP_OK)
                    fail_msg("%s", dcp_error_message());
                assert_memory_equal(values, elements + range.first, 70 * sizeof *values);
            }
        }
        buffer_free(&stored[0]);
        buffer_free(&stored[1]);
    }
}

/* Streams of tensors that are not what a range says, or not row-major. */
static void ranges_that_are_not_there(void **state)
{
    (void)state;
    static const int64_t sizes[] = {SIDE, SIDE}, flat[] = {COUNT}, fewer[] = {SIDE - 1, SIDE};
    static float values[COUNT];
    for (int turned = 0; turned < 2; turned++) {
        struct buffer stored[2];
        buffer_init(&stored[0], 0);
        buffer_init(&stored[1], 0);
        put_stream(&stored[0], &(struct stream_options){.turned = turned != 0});
        put_compressed(&stored[1], &stored[0]);
        for (int zstd = 0; zstd < 2; zstd++) {
            const struct stream_range ranges[] = {{2, sizes, 300}, {1, flat, 0}, {2, fewer, 0}};
            for (size_t i = 0; i < 3; i++) {
                dcp_status expected = i > 0    ? DCP_ERR_FORMAT
                                      : turned ? DCP_ERR_UNSUPPORTED
                                               : DCP_OK;
                assert_int_equal(
                    take_range(&stored[zstd], zstd == 1, 10, &ranges[i], DCP_VERIFY_ALL, values),
                    expected);
                if (expected != DCP_OK)
                    assert_non_null(strstr(dcp_error_message(),
                                           i > 0 ? "metadata says [" : "not stored row-major"));
            }
        }
        buffer_free(&stored[0]);
        buffer_free(&stored[1]);
    }
}

/* A range that is all of its stream, in its shape: of a tensor under another name. */
static void a_range_that_is_all_may_be_strided(void **state)
{
    (void)state;
    static const int64_t shape[] = {SIDE, SIDE}, origin[] = {0, 0};
    static float values[COUNT];
    int64_t strides[] = {SIDE, 1};
    struct buffer stream;
    buffer_init(&stream, 0);
    put_stream(&stream, &(struct stream_options){.turned = true});
    const struct stream_range range = {2, shape, 0};
    const struct metadata_entry entry = {
        .name = "t", .is_tensor = true, .dtype = DCP_F32, .ndim = 2, .global_shape = shape};
    const struct metadata_piece piece = {.offsets = origin,
                                         .sizes = shape,
                                         .encoding = PIECE_RANGE,
                                         .length = stream.size,
                                         .range = &range};
    const struct state_chunk target = {.offsets = (int64_t *)origin,
                                       .sizes = (int64_t *)shape,
                                       .strides = strides,
                                       .data = values};
    assert_int_equal(shard_take_tensor(reader, &entry, &piece,
                                       (struct stream_bytes){stream.data, stream.size}, &target,
                                       DCP_F32, DCP_VERIFY_ALL),
                     DCP_OK);
    compare(&all, values, true);
    buffer_free(&stream);
}

/* Cut anywhere, also where the zip archive in it is cut, or with any bit flipped. */
static void damaged_streams(void **state)
{
    (void)state;
    static float values[COUNT];
    struct buffer stream, packed;
    buffer_init(&stream, 0);
    buffer_init(&packed, 0);
    put_stream(&stream, &(struct stream_options){0});
    put_compressed(&packed, &stream);
    for (size_t size = 4; size < packed.size; size += 1 + packed.size / 150) {
        struct buffer cut = {.data = packed.data, .size = size};
        assert_int_equal(take(&cut, &all, DCP_VERIFY_ALL, values), DCP_ERR_FORMAT);
    }
    for (size_t at = 4; at < packed.size; at += 1 + packed.size / 300) {
        unsigned char mask = (unsigned char)(1u << at % 8);
        packed.data[at] ^= mask;
        memset(values, 0xff, sizeof values);
        if (take(&packed, &all, DCP_VERIFY_ALL, values) == DCP_OK)
            compare(&all, values, false);
        packed.data[at] ^= mask;
    }
    size_t whole = stream.size;
    for (size_t cut = 1; cut < whole; cut += 1 + cut / 4) {
        stream.size = whole - cut;
        buffer_clear(&packed);
        put_compressed(&packed, &stream);
        assert_int_equal(take(&packed, &all, DCP_VERIFY_NONE, values), DCP_ERR_FORMAT);
    }
    /* And more of it than a tensor can have around it. */
    stream.size = whole;
    buffer_append_zeros(&stream, 70000);
    buffer_clear(&packed);
    put_compressed(&packed, &stream);
    assert_int_equal(take(&packed, &all, DCP_VERIFY_ALL, values), DCP_ERR_FORMAT);
    buffer_free(&packed);
    buffer_free(&stream);
}

static void missing_memory(void **state)
{
    (void)state;
    static float values[COUNT];
    for (int last = 0; last < 2; last++) {
        struct buffer stream, packed;
        buffer_init(&stream, 0);
        buffer_init(&packed, 0);
        put_stream(&stream, &(struct stream_options){.last = last != 0, .turned = true});
        put_compressed(&packed, &stream);
        for (long n = 1;; n++) {
            failing_allocator_install(n, false);
            dcp_status status = take(&packed, &all, DCP_VERIFY_ALL, values);
            bool reached = failing_allocator_reached();
            assert_int_equal(failing_allocator_remove(), 0);
            assert_int_equal(status, reached ? DCP_ERR_NO_MEMORY : DCP_OK);
            if (!reached)
                break;
        }
        compare(&all, values, true);
        buffer_free(&packed);
        buffer_free(&stream);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_of_any_layout),
        cmocka_unit_test(streams_that_contradict_themselves),
        cmocka_unit_test(ranges_of_streams),
        cmocka_unit_test(ranges_that_are_not_there),
        cmocka_unit_test(a_range_that_is_all_may_be_strided),
        cmocka_unit_test(damaged_streams),
        cmocka_unit_test(missing_memory),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
