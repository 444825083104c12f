/* SPDX-License-Identifier: BSD-3-Clause */
/* What a load checks by default, however tensors are divided, and what that costs:
 * test_checkpoint_verification [0]; with 0 every bit of the data is flipped, else one of each byte.
 */
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
#include "storage/scratch.h"

#define FILE_NAME "__0_0.distcp"

static bool every_bit;

/* A matrix of numbers that say where they are, and the part of it that is loaded. */
struct part {
    int64_t rows, columns;
    int64_t offsets[2], sizes[2];
};

static float value_at(int64_t row, int64_t column, int64_t columns)
{
    return (float)(row * columns + column) + 0.25F;
}

static struct part whole(int64_t rows, int64_t columns)
{
    return (struct part){rows, columns, {0, 0}, {rows, columns}};
}

static dcp_state *tree_of(const struct part *part, float *data)
{
    dcp_state *root = dcp_state_new();
    dcp_tensor tensor = {.dtype = DCP_F32,
                         .ndim = 2,
                         .global_shape = {part->rows, part->columns},
                         .sharded = true,
                         .offsets = {part->offsets[0], part->offsets[1]},
                         .sizes = {part->sizes[0], part->sizes[1]},
                         .data = data};
    dcp_state_tensor(root, "w", &tensor);
    must(dcp_state_status(root));
    return root;
}

static size_t bytes_of(const struct part *part)
{
    return (size_t)(part->sizes[0] * part->sizes[1]) * sizeof(float);
}

static void save_matrix(const char *path, int64_t rows, int64_t columns)
{
    struct part all = whole(rows, columns);
    float *data = malloc(bytes_of(&all));
    assert_non_null(data);
    for (int64_t i = 0; i < rows * columns; i++)
        data[i] = value_at(i / columns, i % columns, columns);
    dcp_state *root = tree_of(&all, data);
    must(dcp_save(root, path, &(dcp_save_options){.skip_sync = true}));
    dcp_state_free(root);
    free(data);
}

static void check_values(const struct part *part, const float *data)
{
    for (int64_t r = 0; r < part->sizes[0]; r++)
        for (int64_t c = 0; c < part->sizes[1]; c++)
            if (data[r * part->sizes[1] + c] !=
                value_at(part->offsets[0] + r, part->offsets[1] + c, part->columns))
                fail_msg("a wrong element at %d, %d", (int)r, (int)c);
}

/* DCP_OK: values were right. */
static dcp_status load_part(const char *path, const struct part *part,
                            const dcp_load_options *options, dcp_figures *figures)
{
    float *data = calloc(1, bytes_of(part));
    dcp_load_options ours = options ? *options : (dcp_load_options){0};
    dcp_state *root = tree_of(part, data);
    *figures = (dcp_figures){.size_of = sizeof *figures};
    ours.figures = figures;
    dcp_status status = dcp_load(root, path, &ours, NULL);
    if (status == DCP_OK)
        check_values(part, data);
    dcp_state_free(root);
    free(data);
    return status;
}

static dcp_status read_box(const char *path, const struct part *part)
{
    dcp_checkpoint *checkpoint;
    float *data = calloc(1, bytes_of(part));
    dcp_tensor tensor = {.dtype = DCP_F32,
                         .ndim = 2,
                         .global_shape = {part->rows, part->columns},
                         .sharded = true,
                         .offsets = {part->offsets[0], part->offsets[1]},
                         .sizes = {part->sizes[0], part->sizes[1]},
                         .data = data};
    dcp_status status = dcp_checkpoint_open(path, NULL, &checkpoint);
    if (status == DCP_OK) {
        status = dcp_checkpoint_read_tensor(checkpoint, 0, &tensor, NULL);
        dcp_checkpoint_close(checkpoint);
    }
    if (status == DCP_OK)
        check_values(part, data);
    free(data);
    return status;
}

/* ---- damage ---- */

enum { ROWS = 67, COLUMNS = 71 };

/* Loads by rows, by columns, and a slice around the element must not succeed. */
static void expect_found(const char *path, int64_t element)
{
    int64_t row = element / COLUMNS, column = element % COLUMNS, third = ROWS / 3 + 1;
    struct part rows = whole(ROWS, COLUMNS), columns = rows, slice = rows;
    dcp_figures figures;
    rows.offsets[0] = row / third * third;
    rows.sizes[0] = rows.offsets[0] + third > ROWS ? ROWS - rows.offsets[0] : third;
    third = COLUMNS / 3 + 1;
    columns.offsets[1] = column / third * third;
    columns.sizes[1] = columns.offsets[1] + third > COLUMNS ? COLUMNS - columns.offsets[1] : third;
    slice.offsets[0] = row;
    slice.offsets[1] = column / 2;
    slice.sizes[0] = row + 1 < ROWS ? 2 : 1;
    slice.sizes[1] = column - column / 2 + 1;
    assert_int_equal(load_part(path, &rows, NULL, &figures), DCP_ERR_CHECKSUM);
    assert_int_equal(load_part(path, &columns, NULL, &figures), DCP_ERR_CHECKSUM);
    assert_int_equal(read_box(path, &slice), DCP_ERR_CHECKSUM);
}

static uint64_t find_data(const char *path, int64_t columns)
{
    size_t size;
    unsigned char *bytes = scratch_read(path, FILE_NAME, &size);
    float first[4];
    for (int i = 0; i < 4; i++)
        first[i] = value_at(0, i, columns);
    const unsigned char *found = memmem(bytes, size, first, sizeof first);
    assert_non_null(found);
    uint64_t place = (uint64_t)(found - bytes);
    free(bytes);
    return place;
}

static void no_flipped_bit_passes(void **state)
{
    const char *path = path_in(state, "c");
    save_matrix(path, ROWS, COLUMNS);
    uint64_t data = find_data(path, COLUMNS);
    for (uint64_t byte = 0; byte < ROWS * COLUMNS * sizeof(float);
         byte += every_bit ? 1 : TRIAL_STEP)
        for (unsigned bit = every_bit ? 0 : byte % 8; bit < 8; bit += every_bit ? 1 : 8) {
            scratch_flip(path, FILE_NAME, data + byte, (unsigned char)(1u << bit));
            expect_found(path, (int64_t)(byte / sizeof(float)));
            scratch_flip(path, FILE_NAME, data + byte, (unsigned char)(1u << bit));
        }
}

/* Each rank wants the rows of two, or all of them the columns in the middle. */
static dcp_status load_shared(struct rank *self)
{
    const bool *by_rows = self->context;
    struct part part = whole(ROWS, COLUMNS);
    dcp_load_options options = {.group = self->group, .reading = DCP_READING_COOPERATIVE};
    dcp_figures figures;
    part.offsets[*by_rows ? 0 : 1] = self->rank * 10;
    part.sizes[*by_rows ? 0 : 1] = 40;
    return load_part(self->path, &part, &options, &figures);
}

static void nor_in_a_cooperative_load(void **state)
{
    const char *path = path_in(state, "c");
    struct rank ranks[RANKS_MAX];
    save_matrix(path, ROWS, COLUMNS);
    uint64_t data = find_data(path, COLUMNS);
    for (uint64_t byte = 0; byte < ROWS * COLUMNS * sizeof(float);
         byte += every_bit ? 1 : 61 * TRIAL_STEP)
        for (int by_rows = 0; by_rows < 2; by_rows++) {
            bool rows = by_rows != 0;
            int64_t place = (int64_t)(byte / sizeof(float));
            place = rows ? place / COLUMNS : place % COLUMNS;
            scratch_flip(path, FILE_NAME, data + byte, (unsigned char)(1u << byte % 8));
            ranks_run(ranks, 3, path, load_shared, &rows);
            if (place < 60)
                assert_int_equal(ranks[0].status, DCP_ERR_CHECKSUM);
            scratch_flip(path, FILE_NAME, data + byte, (unsigned char)(1u << byte % 8));
        }
}

/* Sums of blocks are held to the footer's body, and with them the blocks under them. */
static void damaged_sums_fail_their_blocks(void **state)
{
    const char *path = path_in(state, "c");
    struct part part = whole(2048, 1024), last = part;
    dcp_figures figures;
    uint64_t faults, content;
    size_t size;
    save_matrix(path, part.rows, part.columns);
    unsigned char *bytes = scratch_read(path, FILE_NAME, &size);
    memcpy(&content, bytes + size - 40, sizeof content);
    free(bytes);
    scratch_flip(path, FILE_NAME, content + 100, 4);
    part.sizes[0] = last.sizes[0] = 4;
    last.offsets[0] = 2040;
    must_fail(load_part(path, &part, NULL, &figures), DCP_ERR_CHECKSUM,
              "page 0 of block checksums");
    must(load_part(path, &last, NULL, &figures));
    must(dcp_verify(path, NULL, NULL, NULL, &faults));
    assert_true(faults > 0);
}

/* A CRC-32 of 0 means that none was computed; this is one that is. */
static void a_checksum_that_is_zero_is_one(void **state)
{
    static const unsigned char bytes[4] = {0x9d, 0x0a, 0xd9, 0x6d};
    const char *path = path_in(state, "c");
    uint32_t data;
    size_t size;
    memcpy(&data, bytes, sizeof data);
    dcp_tensor tensor = {.dtype = DCP_I32, .ndim = 1, .global_shape = {1}, .data = &data};
    dcp_state *root = dcp_state_new();
    dcp_state_tensor(root, "w", &tensor);
    must(dcp_save(root, path, &(dcp_save_options){.skip_sync = true}));
    unsigned char *file = scratch_read(path, FILE_NAME, &size);
    const unsigned char *found = memmem(file, size, bytes, sizeof bytes);
    assert_non_null(found);
    must(dcp_load(root, path, NULL, NULL));
    scratch_flip(path, FILE_NAME, (uint64_t)(found - file), 1);
    assert_int_equal(dcp_load(root, path, NULL, NULL), DCP_ERR_CHECKSUM);
    free(file);
    dcp_state_free(root);
}

/* ---- what it costs ---- */

enum { TALL = 16384, WIDE = 1024 };

static void a_row_is_read_with_little_more(void **state)
{
    const char *path = path_in(state, "c");
    struct part part = whole(TALL, WIDE);
    dcp_figures figures;
    save_matrix(path, TALL, WIDE);
    part.sizes[0] = 4;
    for (part.offsets[0] = 0; part.offsets[0] < TALL - 4; part.offsets[0] += 1001) {
        must(load_part(path, &part, NULL, &figures));
        assert_in_range(figures.bytes_read, 16 << 10, 24 << 10);
        assert_int_equal(figures.bytes_checked, 16 << 10);
        assert_int_equal(figures.bytes_unchecked, 0);
    }
}

static void resharding_reads_little_more(void **state)
{
    const char *path = path_in(state, "c"), *wide = path_in(state, "wide");
    dcp_figures figures;
    save_matrix(path, TALL, WIDE);
    save_matrix(wide, 1024, TALL);
    for (int64_t rank = 0; rank < 3; rank++) {
        struct part rows = whole(TALL, WIDE), columns = rows, runs = whole(1024, TALL);
        rows.offsets[0] = rank * 5462;
        rows.sizes[0] = rank < 2 ? 5462 : TALL - 2 * 5462;
        must(load_part(path, &rows, NULL, &figures));
        assert_in_range(figures.bytes_read, bytes_of(&rows), bytes_of(&rows) * 102 / 100);
        /* Each row is one block: all of them, once. */
        columns.offsets[1] = rank * 342;
        columns.sizes[1] = rank < 2 ? 342 : WIDE - 2 * 342;
        must(load_part(path, &columns, NULL, &figures));
        assert_in_range(figures.bytes_read, (uint64_t)TALL * 4096,
                        (uint64_t)TALL * 4096 * 102 / 100);
        /* Runs of 21844 bytes in rows of 64 KiB: their blocks. */
        runs.offsets[1] = rank * 5461;
        runs.sizes[1] = 5461;
        must(load_part(wide, &runs, NULL, &figures));
        uint64_t first = (uint64_t)rank * 21844 / 4096, end = ((uint64_t)rank + 1) * 21844 - 1;
        uint64_t blocks = (end / 4096 - first + 1) * 1024 * 4096;
        assert_in_range(figures.bytes_read, blocks, blocks * 102 / 100);
        assert_int_equal(figures.bytes_checked, bytes_of(&runs));
    }
}

/* ---- what cannot be checked ---- */

static char logged[512];

static void remember(void *context, dcp_log_level level, const char *line)
{
    (void)context, (void)level;
    if (strstr(line, "not checked"))
        snprintf(logged, sizeof logged, "%s", line);
}

/* Rows of a matrix in a file like PyTorch's. */
static void expect_counted(const char *path, int64_t rows, int64_t from, int64_t count,
                           bool checked)
{
    struct part part = whole(rows, WIDE);
    dcp_figures figures;
    part.offsets[0] = from;
    part.sizes[0] = count;
    for (int32_t threads = 1; threads <= 3; threads += 2) {
        dcp_load_options options = {.thread_count = threads};
        logged[0] = '\0';
        must(load_part(path, &part, &options, &figures));
        assert_int_equal(figures.bytes_checked, checked ? bytes_of(&part) : 0);
        assert_int_equal(figures.bytes_unchecked, checked ? 0 : bytes_of(&part));
        assert_int_equal(strstr(logged, "parts of records") != NULL, !checked);
        options.verification = DCP_VERIFY_RECORDS;
        must(load_part(path, &part, &options, &figures));
        assert_int_equal(figures.bytes_unchecked, 0);
    }
}

static void records_are_completed_where_that_costs_little(void **state)
{
    const char *large = path_in(state, "large"), *small = path_in(state, "small");
    struct part part = whole(TALL, WIDE);
    dcp_figures figures;
    save_matrix(large, TALL, WIDE);
    scratch_drop_footer(large, FILE_NAME);
    save_matrix(small, 256, WIDE);
    scratch_drop_footer(small, FILE_NAME);
    dcp_set_log(remember, NULL, DCP_LOG_INFO);
    expect_counted(large, TALL, 0, TALL, true);
    expect_counted(large, TALL, 500, TALL - 1000, true);
    expect_counted(large, TALL, 0, TALL / 2, false);
    expect_counted(small, 256, 100, 1, true);
    dcp_set_log(NULL, NULL, DCP_LOG_ERROR);

    uint64_t data = find_data(large, WIDE);
    scratch_flip(large, FILE_NAME, data + (uint64_t)TALL * 4096 - 1, 1);
    part.offsets[0] = 500;
    part.sizes[0] = TALL - 1000;
    must_fail(load_part(large, &part, NULL, &figures), DCP_ERR_CHECKSUM, "CRC-32");
    part.sizes[0] = TALL / 2;
    must(load_part(large, &part, NULL, &figures));
    must_fail(
        load_part(large, &part, &(dcp_load_options){.verification = DCP_VERIFY_RECORDS}, &figures),
        DCP_ERR_CHECKSUM, "CRC-32");
}

static void safetensors_are_counted(void **state)
{
    static const char header[] =
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}";
    unsigned char bytes[8 + sizeof header - 1 + 16] = {sizeof header - 1};
    float data[4] = {0};
    dcp_tensor tensor = {.dtype = DCP_F32, .ndim = 2, .global_shape = {2, 2}, .data = data};
    dcp_figures figures = {.size_of = sizeof figures};
    dcp_load_report *report;
    dcp_state *root = dcp_state_new();
    memcpy(bytes + 8, header, sizeof header - 1);
    scratch_write(*state, "model.safetensors", bytes, sizeof bytes);
    dcp_state_tensor(root, "w", &tensor);
    dcp_set_log(remember, NULL, DCP_LOG_INFO);
    must(dcp_load(root, *state, &(dcp_load_options){.figures = &figures}, &report));
    dcp_set_log(NULL, NULL, DCP_LOG_ERROR);
    assert_int_equal(figures.bytes_checked, 0);
    assert_int_equal(figures.bytes_unchecked, 16);
    assert_int_equal(dcp_load_report_bytes_unchecked(report), 16);
    assert_int_equal(dcp_load_report_bytes_checked(report), 0);
    assert_non_null(strstr(logged, "16 of 16 bytes"));
    assert_non_null(strstr(logged, "because their files have no checksums"));
    dcp_load_report_free(report);
    dcp_state_free(root);
}

int main(int argc, char **argv)
{
#define TEST(function)                                                                             \
    cmocka_unit_test_setup_teardown(function, directory_setup, directory_teardown)
    const struct CMUnitTest tests[] = {
        TEST(no_flipped_bit_passes),
        TEST(nor_in_a_cooperative_load),
        TEST(damaged_sums_fail_their_blocks),
        TEST(a_checksum_that_is_zero_is_one),
        TEST(a_row_is_read_with_little_more),
        TEST(resharding_reads_little_more),
        TEST(records_are_completed_where_that_costs_little),
        TEST(safetensors_are_counted),
    };
    every_bit = argc > 1 && strcmp(argv[1], "0") == 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
