/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading boxes of a tensor as another dtype: between all dtypes that a load converts, with the
 * same bits, and between no others; nothing is converted unasked; what is converted was checked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "state/copy.h"
#include "state/dtype.h"

enum { ROWS = 4, COLUMNS = 6, ELEMENTS = ROWS * COLUMNS, WIDEST = 16 };
static const double numbers[ELEMENTS] = {0,  1,   2,    3,    -1, -2,   0.5, 1.5, 4, 8,  16, 96,
                                         -4, 0.1, 1000, 7e-3, 60, 1e10, 5,   6,   7, 10, 12, 14};

/* A dtype's elements, as the numbers where it has such and as any bytes else. */
static void fill(dcp_dtype dtype, unsigned char *bytes)
{
    const int64_t count = ELEMENTS, stride = 1;
    if (copy_can_convert(DCP_F64, dtype))
        copy_convert(1, &count, DCP_F64, numbers, &stride, dtype, bytes, &stride);
    else
        for (size_t i = 0; i < ELEMENTS * dcp_dtype_size(dtype); i++)
            bytes[i] = (unsigned char)(i * 37);
}

static dcp_tensor whole(dcp_dtype dtype, void *data)
{
    return (dcp_tensor){.dtype = dtype, .ndim = 2, .global_shape = {ROWS, COLUMNS}, .data = data};
}

/* One tensor of each dtype that can be saved, by its dtype's name. */
static void save_all(const char *path)
{
    static unsigned char bytes[64][ELEMENTS * WIDEST];
    dcp_state *root = dcp_state_new();
    for (size_t i = 0; dtype_facts_at(i); i++) {
        dcp_dtype dtype = dtype_facts_at(i)->dtype;
        if (!dtype_is_savable(dtype))
            continue;
        dcp_tensor tensor = whole(dtype, bytes[i]);
        fill(dtype, bytes[i]);
        dcp_state_tensor(root, dcp_dtype_name(dtype), &tensor);
    }
    must(dcp_save(root, path, NULL));
    dcp_state_free(root);
}

/* A box of it, as columns of memory. */
enum { BOX_ROWS = 3, BOX_COLUMNS = 2, FIRST_ROW = 1, FIRST_COLUMN = 3 };

static dcp_status read_box(dcp_checkpoint *checkpoint, dcp_dtype from, dcp_dtype to, bool convert,
                           unsigned char *box)
{
    dcp_tensor tensor = whole(to, box);
    size_t index;
    tensor.sharded = tensor.strided = true;
    tensor.offsets[0] = FIRST_ROW;
    tensor.offsets[1] = FIRST_COLUMN;
    tensor.sizes[0] = BOX_ROWS;
    tensor.sizes[1] = BOX_COLUMNS;
    tensor.strides[0] = 1;
    tensor.strides[1] = BOX_ROWS;
    must(dcp_checkpoint_find(checkpoint, dcp_dtype_name(from), &index));
    return dcp_checkpoint_read_tensor(checkpoint, index, &tensor,
                                      &(dcp_read_options){.convert = convert});
}

static void expect_box(dcp_dtype from, dcp_dtype to, const unsigned char *box)
{
    static unsigned char stored[ELEMENTS * WIDEST], expected[BOX_ROWS * BOX_COLUMNS * WIDEST];
    const int64_t sizes[2] = {BOX_ROWS, BOX_COLUMNS}, strides[2] = {COLUMNS, 1};
    const int64_t columns[2] = {1, BOX_ROWS};
    size_t first = (FIRST_ROW * COLUMNS + FIRST_COLUMN) * dcp_dtype_size(from);
    fill(from, stored);
    if (from != to)
        copy_convert(2, sizes, from, stored + first, strides, to, expected, columns);
    else
        for (size_t row = 0; row < BOX_ROWS; row++)
            for (size_t column = 0; column < BOX_COLUMNS; column++)
                memcpy(expected + (column * BOX_ROWS + row) * dcp_dtype_size(to),
                       stored + first + (row * COLUMNS + column) * dcp_dtype_size(from),
                       dcp_dtype_size(to));
    assert_memory_equal(box, expected, BOX_ROWS * BOX_COLUMNS * dcp_dtype_size(to));
}

static void reads_between_all_dtypes_that_a_load_converts(void **state)
{
    unsigned char box[BOX_ROWS * BOX_COLUMNS * WIDEST], untouched[sizeof box];
    const char *path = path_in(state, "c");
    dcp_checkpoint *checkpoint;
    size_t converted = 0, refused = 0;
    save_all(path);
    must(dcp_checkpoint_open(path, NULL, &checkpoint));
    memset(untouched, 0xa5, sizeof untouched);
    for (size_t i = 0; dtype_facts_at(i); i++)
        for (size_t j = 0; dtype_facts_at(j); j++) {
            dcp_dtype from = dtype_facts_at(i)->dtype, to = dtype_facts_at(j)->dtype;
            if (!dtype_is_savable(from) || !dtype_is_savable(to))
                continue;
            memset(box, 0xa5, sizeof box);
            if (copy_can_convert(from, to)) {
                must(read_box(checkpoint, from, to, true, box));
                expect_box(from, to, box);
                converted += from != to;
            } else {
                must_fail(read_box(checkpoint, from, to, true, box), DCP_ERR_DTYPE,
                          dcp_dtype_name(from));
                assert_memory_equal(box, untouched, sizeof box);
                refused++;
            }
        }
    assert_int_equal(converted, 18 * 17);
    assert_int_equal(refused, 4 * 3 + 2 * 4 * 18); /* three complex dtypes, and a packed one */
    dcp_checkpoint_close(checkpoint);
}

static void converts_nothing_unasked(void **state)
{
    unsigned char box[BOX_ROWS * BOX_COLUMNS * WIDEST] = {0}, untouched[sizeof box] = {0};
    const char *path = path_in(state, "c");
    dcp_checkpoint *checkpoint;
    save_all(path);
    must(dcp_checkpoint_open(path, NULL, &checkpoint));
    must_fail(read_box(checkpoint, DCP_F32, DCP_F64, false, box), DCP_ERR_DTYPE, "float32");
    must_fail(read_box(checkpoint, DCP_I8, DCP_U8, false, box), DCP_ERR_DTYPE, "int8");
    assert_memory_equal(box, untouched, sizeof box);
    must(read_box(checkpoint, DCP_F32, DCP_F32, false, box));
    expect_box(DCP_F32, DCP_F32, box);
    dcp_checkpoint_close(checkpoint);
}

/* Of a version to come. */
static void refuses_options_that_it_does_not_know(void **state)
{
    struct {
        dcp_read_options options;
        unsigned char later[8];
    } longer = {.options.convert = true};
    const char *path = path_in(state, "c");
    double read[ELEMENTS] = {0};
    dcp_tensor tensor = whole(DCP_F64, read);
    dcp_checkpoint *checkpoint;
    size_t index;
    save_all(path);
    must(dcp_checkpoint_open(path, NULL, &checkpoint));
    must(dcp_checkpoint_find(checkpoint, "float32", &index));
    must(dcp_checkpoint_read_tensor_sized(checkpoint, index, &tensor, sizeof tensor,
                                          &longer.options, sizeof longer));
    assert_true(read[1] == 1 && read[6] == 0.5);
    longer.later[7] = 1;
    must_fail(dcp_checkpoint_read_tensor_sized(checkpoint, index, &tensor, sizeof tensor,
                                               &longer.options, sizeof longer),
              DCP_ERR_ARGUMENT, "dcp_read_options");
    dcp_checkpoint_close(checkpoint);
}

/* Of the first element that is not 0. */
static void flip_bit(const char *file, dcp_dtype dtype)
{
    static unsigned char bytes[1 << 20], sought[ELEMENTS * WIDEST];
    size_t size = ELEMENTS * dcp_dtype_size(dtype), at = 0;
    FILE *stream = fopen(file, "r+b");
    assert_non_null(stream);
    size_t length = fread(bytes, 1, sizeof bytes, stream);
    fill(dtype, sought);
    while (at + size <= length && memcmp(bytes + at, sought, size) != 0)
        at++;
    assert_true(at + size <= length);
    at += dcp_dtype_size(dtype);
    assert_int_equal(fseek(stream, (long)at, SEEK_SET), 0);
    assert_int_equal(fputc(bytes[at] ^ 1, stream), bytes[at] ^ 1);
    assert_int_equal(fclose(stream), 0);
}

static void checks_what_it_converts(void **state)
{
    const char *path = path_in(state, "c");
    double read[ELEMENTS];
    dcp_tensor tensor = whole(DCP_F64, read);
    dcp_checkpoint *checkpoint;
    dcp_stored_chunk stored;
    size_t index;
    needs_files();
    save_all(path);
    must(dcp_checkpoint_open(path, NULL, &checkpoint));
    must(dcp_checkpoint_find(checkpoint, "float32", &index));
    must(dcp_checkpoint_chunk(checkpoint, index, 0, &stored));
    char file[512];
    snprintf(file, sizeof file, "%s/%s", path, stored.file);
    flip_bit(file, DCP_F32);
    must_fail(dcp_checkpoint_read_tensor(checkpoint, index, &tensor,
                                         &(dcp_read_options){.convert = true}),
              DCP_ERR_CHECKSUM, "");
    must(dcp_checkpoint_read_tensor(
        checkpoint, index, &tensor,
        &(dcp_read_options){.convert = true, .verification = DCP_VERIFY_NONE}));
    dcp_checkpoint_close(checkpoint);
}

int main(void)
{
#define TEST(function)                                                                             \
    cmocka_unit_test_setup_teardown(function, directory_setup, directory_teardown)
    const struct CMUnitTest tests[] = {
        TEST(reads_between_all_dtypes_that_a_load_converts),
        TEST(converts_nothing_unasked),
        TEST(refuses_options_that_it_does_not_know),
        TEST(checks_what_it_converts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
