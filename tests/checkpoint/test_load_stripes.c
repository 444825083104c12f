/* SPDX-License-Identifier: BSD-3-Clause */
/* Columns of tensors of several stripes, which two ranks read for each other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/ranks.h"
#include "fault/over_files.h"
#include "format/pt_file.h"
#include "storage/scratch.h"

enum { ROWS = 2500, COLUMNS = 4001, RANKS = 2 };
#define SIZE (ROWS * COLUMNS * sizeof(int16_t))

/* Compresses to a few bytes of each stripe. */
static int16_t value_of(int64_t row, int64_t column)
{
    return (int16_t)(row / 100 + (column >= COLUMNS / 2 ? 50 : 0));
}

static int16_t *all_values(void)
{
    int16_t *values = malloc(ROWS * COLUMNS * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < ROWS * COLUMNS; i++)
        values[i] = value_of(i / COLUMNS, i % COLUMNS);
    return values;
}

struct reading {
    const dcp_storage *storage;
    uint32_t io;
    dcp_dtype dtype;
    int64_t first;        /* columns of rank 0 */
    uint64_t read[RANKS]; /* bytes */
};

static dcp_status load_columns(struct rank *self)
{
    struct reading *reading = self->context;
    dcp_figures figures = {.size_of = sizeof figures};
    const dcp_load_options how = {.group = self->group,
                                  .reading = DCP_READING_COOPERATIVE,
                                  .storage = reading->storage,
                                  .io = reading->io,
                                  .figures = &figures};
    const int64_t start = self->rank == 0 ? 0 : reading->first;
    const int64_t width = self->rank == 0 ? reading->first : COLUMNS - reading->first;
    const size_t size = (size_t)(ROWS * width) * sizeof(int16_t);
    int16_t *own = malloc(size);
    dcp_state *root = dcp_state_new();
    const dcp_tensor tensor = {.dtype = reading->dtype,
                               .ndim = 2,
                               .global_shape = {ROWS, COLUMNS},
                               .sharded = true,
                               .offsets = {0, start},
                               .sizes = {ROWS, width},
                               .data = own};
    assert_non_null(own);
    memset(own, 0xff, size);
    dcp_state_tensor(root, "t", &tensor);
    dcp_status status = dcp_load(root, self->path, &how, NULL);
    for (int64_t i = 0; i < ROWS * width && status == DCP_OK; i++)
        if (own[i] != value_of(i / width, start + i % width))
            status = dcp_error_set(DCP_ERR_INTERNAL, "element %ld is %d", (long)i, own[i]);
    reading->read[self->rank] = figures.bytes_read;
    dcp_state_free(root);
    free(own);
    return status;
}

/* Of `size` bytes each is read by one rank, as of any file on a network. */
static void must_load(const char *path, dcp_dtype dtype, uint64_t size)
{
    static const uint32_t ways[] = {0, DCP_IO_RING | DCP_IO_DIRECT, DCP_IO_BUFFERED,
                                    DCP_IO_POOL | DCP_IO_DIRECT};
    static const int64_t firsts[] = {COLUMNS / 2, COLUMNS - 80}; /* more than a window */
    struct file_ops ops = file_ops_system;
    ops.remote = over_network;
    const dcp_storage storage = files_storage(&ops);
    for (size_t i = 0; i < 2 * sizeof ways / sizeof *ways; i += TRIAL_STEP < 7 ? TRIAL_STEP : 7) {
        struct reading reading = {&storage, ways[i / 2], dtype, firsts[i % 2], {0}};
        struct rank ranks[RANKS_MAX];
        ranks_run(ranks, RANKS, path, load_columns, &reading);
        if (ranks[0].status == DCP_ERR_UNSUPPORTED && (reading.io & DCP_IO_DIRECT)) {
            print_message("not tested: %s\n", ranks[0].message);
            continue;
        }
        for (int r = 0; r < RANKS; r++)
            if (ranks[r].status != DCP_OK)
                fail_msg("rank %d: %s", r, ranks[r].message);
        assert_in_range(reading.read[0] + reading.read[1], 0, size + size / 20);
    }
}

static bool save(const char *path, dcp_compression compression)
{
    int16_t *values = all_values();
    const dcp_tensor tensor = {
        .dtype = DCP_I16, .ndim = 2, .global_shape = {ROWS, COLUMNS}, .data = values};
    const dcp_save_options options = {.skip_sync = true, .compression = compression};
    dcp_state *root = dcp_state_new();
    dcp_state_tensor(root, "t", &tensor);
    dcp_status status = dcp_save(root, path, &options);
    dcp_state_free(root);
    free(values);
    assert_true(status == DCP_OK || status == DCP_ERR_UNSUPPORTED);
    return status == DCP_OK;
}

static void each_rank_gets_its_columns(void **state)
{
    assert_true(save(*state, DCP_COMPRESSION_NONE));
    must_load(*state, DCP_I16, SIZE);
}

/* It is not one of many in a lot: its stripes are read one after the other. */
static void a_piece_that_is_small_as_it_is_stored_has_stripes_too(void **state)
{
    if (save(*state, DCP_COMPRESSION_ZSTD))
        must_load(*state, DCP_I16, (uint64_t)1 << 20);
}

/* Parts that are read at a time begin and end in the middle of elements. */
static void elements_need_not_be_aligned(void **state)
{
    static const char header[] = "{\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
                                 "\"t\":{\"dtype\":\"I16\",\"shape\":[2500,4001],"
                                 "\"data_offsets\":[4,20005004]}}";
    char *name = scratch_path(*state, "t.safetensors");
    int16_t *values = all_values();
    const uint64_t length = sizeof header - 1;
    FILE *file = fopen(name, "wb");
    assert_non_null(file);
    assert_int_equal((sizeof length + length + 4) % 2, 1);
    assert_int_equal(fwrite(&length, sizeof length, 1, file), 1);
    assert_int_equal(fwrite(header, length, 1, file), 1);
    assert_int_equal(fwrite("abcd", 4, 1, file), 1);
    assert_int_equal(fwrite(values, sizeof *values, ROWS * COLUMNS, file), ROWS * COLUMNS);
    assert_int_equal(fclose(file), 0);
    must_load(*state, DCP_I16, SIZE);
    free(values);
    free(name);
}

/* They are swapped as they are read, which they are not where they are given as they come. */
static void elements_may_have_the_other_byte_order(void **state)
{
    static const struct pt_view view = {"t", 0, 0, 2, {ROWS, COLUMNS}, {COLUMNS, 1}};
    int16_t *values = all_values();
    const struct pt_storage storage = {DCP_BF16, ROWS * COLUMNS, values};
    const struct pt_file file = {
        .views = &view, .count = 1, .storages = 1, .big_endian = true, .contents = &storage};
    char *name = scratch_path(*state, "t.pt");
    for (int64_t i = 0; i < ROWS * COLUMNS; i++)
        values[i] = (int16_t)__builtin_bswap16((uint16_t)values[i]);
    pt_file_write(&file, *state, "t.pt", NULL);
    must_load(name, DCP_BF16, SIZE);
    free(values);
    free(name);
}

#define file_test(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        file_test(each_rank_gets_its_columns),
        file_test(a_piece_that_is_small_as_it_is_stored_has_stripes_too),
        file_test(elements_need_not_be_aligned),
        file_test(elements_may_have_the_other_byte_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
