/* SPDX-License-Identifier: BSD-3-Clause */
/* Loads of compressed tensors within limits far below their chunks, and of streams that others may
 * have written, which take more than most. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zstd.h>

#include <cmocka.h>

#include "base/checksum.h"
#include "checkpoint/limit_trial.h"
#include "format/metadata/metadata_codec.h"
#include "format/stream_part.h"
#include "format/streams/stream.h"
#include "format/streams/tensor_pickle.h"
#include "format/zip_builder.h"

/* A chunk that is several times as large as the limit of the loads that want some of it. */
enum { TALL = 8 << 10, WIDE = 2 << 10 };
#define FAR_BELOW ((uint64_t)16 << 20)

static float value_at(int64_t row, int64_t column)
{
    return (float)((row * 31 + column * 7) % 4093);
}

static dcp_status save_tall(struct rank *self)
{
    float *values = malloc((size_t)TALL * WIDE * sizeof *values);
    dcp_tensor tensor = {.dtype = DCP_F32, .ndim = 2, .global_shape = {TALL, WIDE}, .data = values};
    dcp_save_options options = {.compression = DCP_COMPRESSION_ZSTD, .skip_sync = true};
    dcp_state *root = dcp_state_new();
    assert_non_null(values);
    for (int64_t i = 0; i < (int64_t)TALL * WIDE; i++)
        values[i] = value_at(i / WIDE, i % WIDE);
    dcp_state_tensor(root, "tall", &tensor);
    dcp_status status = dcp_save(root, self->path, &options);
    dcp_state_free(root);
    free(values);
    return status;
}

/* Some boxes of the tensor, each to memory of its own, of one dtype. */
struct tall_wants {
    dcp_dtype dtype;
    int count;
    struct {
        int64_t offsets[2], sizes[2];
        bool turned;
    } boxes[3];
    dcp_load_options options;
};

static void expect_tall(const struct tall_wants *wants, int box, const void *memory)
{
    const int64_t *sizes = wants->boxes[box].sizes, *offsets = wants->boxes[box].offsets;
    for (int64_t i = 0; i < sizes[0]; i++)
        for (int64_t j = 0; j < sizes[1]; j++) {
            int64_t at = wants->boxes[box].turned ? j * sizes[0] + i : i * sizes[1] + j;
            double found = wants->dtype == DCP_F64 ? ((const double *)memory)[at]
                                                   : (double)((const float *)memory)[at];
            if (found != (double)value_at(offsets[0] + i, offsets[1] + j))
                fail_msg("box %d: %f at %lld, %lld", box, found, (long long)i, (long long)j);
        }
}

static dcp_status load_tall(struct rank *self)
{
    const struct tall_wants *wants = self->context;
    dcp_state *root = dcp_state_new();
    dcp_load_options options = wants->options;
    dcp_figures figures = {.size_of = sizeof figures};
    dcp_tensor chunks[3];
    for (int i = 0; i < wants->count; i++) {
        const int64_t *sizes = wants->boxes[i].sizes, *offsets = wants->boxes[i].offsets;
        chunks[i] = (dcp_tensor){.dtype = wants->dtype,
                                 .ndim = 2,
                                 .global_shape = {TALL, WIDE},
                                 .sharded = true,
                                 .offsets = {offsets[0], offsets[1]},
                                 .sizes = {sizes[0], sizes[1]},
                                 .data = malloc((size_t)(sizes[0] * sizes[1]) * 8)};
        assert_non_null(chunks[i].data);
        if (wants->boxes[i].turned) {
            chunks[i].strided = true;
            chunks[i].strides[0] = 1;
            chunks[i].strides[1] = sizes[0];
        }
    }
    dcp_state *node = dcp_state_tensor(root, "tall", &chunks[0]);
    for (int i = 1; i < wants->count; i++)
        must(dcp_state_add_chunk(node, &chunks[i]));
    must(dcp_state_status(root));
    options.group = self->group;
    options.figures = &figures;
    options.convert = true;
    must(dcp_load(root, self->path, &options, NULL));
    assert_true(figures.peak_memory <= options.memory_limit);
    for (int i = 0; i < wants->count; i++) {
        expect_tall(wants, i, chunks[i].data);
        free(chunks[i].data);
    }
    dcp_state_free(root);
    return DCP_OK;
}

static void test_compressed_far_below_a_chunk(void **state)
{
    const struct tall_wants wants[] = {
        {DCP_F32, 1, {{{0, 0}, {TALL, WIDE}, false}}, {.thread_count = 4}},
        {DCP_F32, 1, {{{100, 0}, {TALL / 2, WIDE}, false}}, {.verification = DCP_VERIFY_RECORDS}},
        {DCP_F32, 1, {{{0, 700}, {TALL, WIDE / 4}, false}}, {.verification = DCP_VERIFY_NONE}},
        {DCP_F64, 1, {{{17, 3}, {TALL - 40, 5}, false}}, {0}},
        {DCP_F32, 1, {{{5, 1000}, {3000, 1000}, true}}, {.io = DCP_IO_DIRECT}},
        {DCP_F64,
         3,
         {{{0, 0}, {TALL, 100}, false},
          {{0, 100}, {10, WIDE - 100}, false},
          {{4000, 500}, {900, 1200}, true}},
         {.thread_count = 2}},
    };
    const char *path = path_in(state, "tall");
    ranks_must(1, path, save_tall, NULL);
    for (size_t i = 0; i < sizeof wants / sizeof *wants; i++) {
        struct tall_wants now = wants[i];
        now.options.memory_limit = FAR_BELOW;
        ranks_must(1, path, load_tall, &now);
        now.options.reading = DCP_READING_COOPERATIVE;
        ranks_must(2, path, load_tall, &now);
        now.options.memory_limit = (uint64_t)64 << 20;
        ranks_must(3, path, load_tall, &now);
    }
}

/* ---- streams that are not as ours ---- */

enum { ODD_SIZE = 6 << 20, HEAD_FRAME = 100000, HEAD_SIZE = 900 << 10 };
#define UNTOUCHED 0xee

static unsigned char odd_value(int64_t i)
{
    return (unsigned char)(i * i >> 11);
}

/* A frame with a window of 2^log bytes, which does not say how much is in it. */
static void put_frame(struct buffer *out, const unsigned char *bytes, size_t size, int log)
{
    ZSTD_CCtx *context = ZSTD_createCCtx();
    ZSTD_inBuffer input = {.src = bytes, .size = size};
    unsigned char piece[4096];
    size_t left = 1;
    assert_non_null(context);
    ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, log);
    while (left > 0) {
        ZSTD_outBuffer output = {.dst = piece, .size = sizeof piece};
        bool more = input.pos < size;
        size_t behind =
            ZSTD_compressStream2(context, &output, &input, more ? ZSTD_e_continue : ZSTD_e_end);
        assert_false(ZSTD_isError(behind));
        buffer_append(out, piece, output.pos);
        left = more ? 1 : behind;
    }
    ZSTD_freeCCtx(context);
}

/* Frames of one stream, of which the last has the largest window. */
static void put_frames(struct buffer *out, int64_t size)
{
    struct buffer stream;
    struct stream_layout layout;
    buffer_init(&stream, 0);
    must(stream_tensor_layout(DCP_U8, 1, &size, &layout));
    must(stream_part_head(&stream, DCP_U8, 1, &size));
    for (int64_t i = 0; i < size; i++)
        buffer_append_u8(&stream, odd_value(i));
    must(stream_part_tail(&stream, DCP_U8, 1, &size,
                          crc32_update(0, stream.data + layout.data_offset, (size_t)size)));
    must(buffer_status(&stream));
    put_frame(out, stream.data, HEAD_FRAME, 10);
    put_frame(out, stream.data + HEAD_FRAME, stream.size - HEAD_FRAME, 24);
    buffer_free(&stream);
}

/* A stream whose pickle has a lot behind its end. */
static void put_large_head(struct buffer *out, int64_t size)
{
    struct zip_builder builder;
    struct buffer pickle, data;
    buffer_init(&pickle, 0);
    buffer_init(&data, 0);
    tensor_pickle_write(&pickle, DCP_U8, 1, &size);
    buffer_append_zeros(&pickle, HEAD_SIZE);
    for (int64_t i = 0; i < size; i++)
        buffer_append_u8(&data, odd_value(i));
    zip_builder_init(&builder);
    zip_builder_add_container(&builder, pickle.data, pickle.size);
    zip_builder_add(&builder, "archive/data/0", data.data, data.size);
    zip_builder_finish(&builder);
    buffer_append(out, builder.out.data, builder.out.size);
    zip_builder_free(&builder);
    buffer_free(&data);
    buffer_free(&pickle);
}

static void write_file(const char *directory, const char *name, const struct buffer *bytes)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes->data, 1, bytes->size, file), bytes->size);
    assert_int_equal(fclose(file), 0);
}

/* A checkpoint of one such tensor. */
static void write_odd(const char *path, bool frames)
{
    static const int64_t shape[] = {ODD_SIZE}, origin[] = {0};
    const char *files[] = {"__0_0.distcp"};
    struct buffer bytes, encoded;
    dcp_path_part part = {.key = "odd"};
    buffer_init(&bytes, 0);
    buffer_init(&encoded, 0);
    if (frames)
        put_frames(&bytes, ODD_SIZE);
    else
        put_large_head(&bytes, ODD_SIZE);
    must(buffer_status(&bytes));
    struct metadata_piece piece = {
        .offsets = origin, .sizes = shape, .zstd = frames, .length = bytes.size};
    struct metadata_entry entry = {.name = "odd",
                                   .path = &part,
                                   .path_length = 1,
                                   .is_tensor = true,
                                   .dtype = DCP_U8,
                                   .ndim = 1,
                                   .global_shape = shape,
                                   .pieces = &piece,
                                   .piece_count = 1};
    struct metadata metadata = {
        .entries = &entry, .count = 1, .files = files, .file_count = 1, .save_id = ""};
    must(metadata_encode(&metadata, &encoded));
    assert_int_equal(mkdir(path, 0700), 0);
    write_file(path, files[0], &bytes);
    write_file(path, ".metadata", &encoded);
    buffer_free(&encoded);
    buffer_free(&bytes);
}

static dcp_status load_odd(struct rank *self)
{
    struct limit_trial *trial = self->context;
    unsigned char *memory = malloc(ODD_SIZE);
    dcp_tensor tensor = {.dtype = DCP_U8, .ndim = 1, .global_shape = {ODD_SIZE}, .data = memory};
    dcp_figures figures = {.size_of = sizeof figures};
    dcp_load_options options = {
        .memory_limit = trial->limit, .group = self->group, .figures = &figures};
    dcp_state *root = dcp_state_new();
    assert_non_null(memory);
    memset(memory, UNTOUCHED, ODD_SIZE);
    dcp_state_tensor(root, "odd", &tensor);
    dcp_status status = dcp_load(root, self->path, &options, NULL);
    limit_trial_judge(trial, self, status, &figures);
    for (int64_t i = 0; i < ODD_SIZE; i++)
        if (memory[i] != (trial->too_small ? UNTOUCHED : odd_value(i)))
            fail_msg("byte %lld is %d", (long long)i, memory[i]);
    dcp_state_free(root);
    free(memory);
    return DCP_OK;
}

static void look_at_odd(const char *path, bool frames)
{
    struct limit_trial trial = {.body = load_odd, .context = &trial};
    write_odd(path, frames);
    limit_trial_refuse(&trial, 1, path);
    limit_trial_accept(&trial, 1, path, (uint64_t)20 << 20);
    limit_trial_refuse(&trial, 2, path);
    limit_trial_accept(&trial, 2, path, (uint64_t)1 << 20);
}

static void test_later_frame_with_a_larger_window(void **state)
{
    look_at_odd(path_in(state, "frames"), true);
}

static void test_large_head(void **state)
{
    look_at_odd(path_in(state, "head"), false);
}

#define LIMIT_TEST(test) cmocka_unit_test_setup_teardown(test, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        LIMIT_TEST(test_compressed_far_below_a_chunk),
        LIMIT_TEST(test_later_frame_with_a_larger_window),
        LIMIT_TEST(test_large_head),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
