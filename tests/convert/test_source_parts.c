/* SPDX-License-Identifier: BSD-3-Clause */
/* Tensors that are gathered from parts: every range of elements, of flat parts, grids of flat
 * shards and placements of DTensors; parts that overlap or leave a hole. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "convert/source_placed.h"
#include "dcp.h"
#include "storage/scratch.h"

enum { ROWS = 6, COLUMNS = 4, ELEMENTS = ROWS * COLUMNS };

struct gathered {
    struct arena arena;
    struct source_parts parts;
    char directory[4096];
    size_t files;
};

static void begin(struct gathered *gathered, void **state)
{
    static int number;
    char name[32];
    *gathered = (struct gathered){0};
    snprintf(name, sizeof name, "parts-%d", number++);
    snprintf(gathered->directory, sizeof gathered->directory, "%s", path_in(state, name));
    arena_init(&gathered->arena, 0);
    source_parts_init(&gathered->parts, &gathered->arena);
}

static void end(struct gathered *gathered)
{
    source_parts_free(&gathered->parts);
    arena_free(&gathered->arena);
}

/* Saves a tensor of floats as a checkpoint by itself, whose one entry it is. */
static size_t add_file(struct gathered *gathered, int32_t ndim, const int64_t *shape, float *data)
{
    char path[8192];
    size_t file;
    dcp_state *root = dcp_state_new();
    dcp_tensor tensor = {.dtype = DCP_F32, .ndim = ndim, .data = data};
    for (int32_t d = 0; d < ndim; d++)
        tensor.global_shape[d] = shape[d];
    snprintf(path, sizeof path, "%s-%zu", gathered->directory, gathered->files++);
    assert_non_null(dcp_state_tensor(root, "t", &tensor));
    must(dcp_save(root, path, &(dcp_save_options){.skip_sync = true}));
    dcp_state_free(root);
    must(source_files_add(&gathered->parts.files, path, NULL, &file));
    return file;
}

static void begin_tensor(struct gathered *gathered, dcp_dtype dtype)
{
    static const int64_t shape[] = {ROWS, COLUMNS};
    const dcp_path_part path[] = {{.key = "whole"}};
    must(source_parts_tensor(&gathered->parts, path, 1, dtype, 2, shape));
}

/* Every range of elements: element i is i. */
static void expect_all(struct gathered *gathered)
{
    for (int64_t first = 0; first < ELEMENTS; first++)
        for (int64_t count = 1; first + count <= ELEMENTS; count++) {
            float read[ELEMENTS];
            must(source_parts_read(&gathered->parts, 0, first, count, DCP_F32, read));
            for (int64_t i = 0; i < count; i++)
                assert_true(read[i] == (float)(first + i));
        }
}

static void flat_parts(void **state)
{
    struct gathered gathered;
    float data[ELEMENTS];
    begin(&gathered, state);
    for (int i = 0; i < ELEMENTS; i++)
        data[i] = (float)i;
    /* Equal ones of files one after another, and an odd one. */
    size_t first = add_file(&gathered, 1, (int64_t[]){7}, data);
    add_file(&gathered, 1, (int64_t[]){7}, data + 7);
    add_file(&gathered, 1, (int64_t[]){7}, data + 14);
    size_t last = add_file(&gathered, 2, (int64_t[]){2, 2}, data + 20);
    begin_tensor(&gathered, DCP_F32);
    for (size_t i = 0; i < 3; i++)
        must(source_parts_add(&gathered.parts, first + i, 0, 0, 7));
    assert_int_equal(gathered.parts.part_count, 1);
    must_fail(source_parts_end(&gathered.parts), DCP_ERR_FORMAT,
              "whole: its parts have 21 elements, its shape [6, 4] has 24");
    must(source_parts_add(&gathered.parts, last, 0, 1, 3));
    must(source_parts_end(&gathered.parts));
    expect_all(&gathered);
    end(&gathered);
}

static void what_is_rounded_stays_rounded(void **state)
{
    struct gathered gathered;
    float data[ELEMENTS], read[ELEMENTS];
    begin(&gathered, state);
    for (int i = 0; i < ELEMENTS; i++)
        data[i] = 1.0f + (float)i / 1024;
    size_t file = add_file(&gathered, 1, (int64_t[]){ELEMENTS}, data);
    begin_tensor(&gathered, DCP_BF16);
    must(source_parts_add(&gathered.parts, file, 0, 0, ELEMENTS));
    must(source_parts_end(&gathered.parts));
    must(source_parts_read(&gathered.parts, 0, 0, ELEMENTS, DCP_F32, read));
    for (int i = 0; i < ELEMENTS; i++) {
        float scaled = (read[i] - 1) * 128; /* bfloat16 has 7 bits behind the first */
        assert_true(scaled == (float)(int)scaled);
    }
    end(&gathered);
}

/* The element of the whole at a row and column of a grid's cell. */
static float cell_value(int row, int column, int inside_row, int inside_column, int columns)
{
    return (float)((row + inside_row) * COLUMNS + column * columns + inside_column);
}

static void grids_of_flat_shards(void **state)
{
    enum { DOWN = 3, ACROSS = 2, R = ROWS / DOWN, C = COLUMNS / ACROSS };
    struct gathered gathered;
    float data[ELEMENTS], *next = data;
    begin(&gathered, state);
    for (int down = 0; down < DOWN; down++)
        for (int across = 0; across < ACROSS; across++)
            for (int row = 0; row < R; row++)
                for (int column = 0; column < C; column++)
                    *next++ = cell_value(down * R, across, row, column, C);
    size_t file = add_file(&gathered, 3, (int64_t[]){DOWN, ACROSS, R * C}, data);
    begin_tensor(&gathered, DCP_F32);
    for (int cell = 0; cell < DOWN * ACROSS; cell++) {
        const int64_t offsets[] = {cell / ACROSS * R, cell % ACROSS * C}, sizes[] = {R, C};
        must(source_parts_add_box(&gathered.parts, file, 0, (struct box){2, offsets, sizes}, NULL,
                                  cell * R * C));
    }
    must(source_parts_end(&gathered.parts));
    expect_all(&gathered);
    end(&gathered);
}

/* What the ranks of a mesh have: rows of the whole, and columns. */
static void add_part(struct gathered *gathered, const dcp_layout *layout, const int *rows,
                     int row_count, int column, int columns)
{
    float data[ELEMENTS], *next = data;
    for (int i = 0; i < row_count; i++)
        for (int c = 0; c < columns; c++)
            *next++ = (float)(rows[i] * COLUMNS + column + c);
    size_t file = add_file(gathered, 2, (int64_t[]){row_count, columns}, data);
    must(source_parts_add_placed(&gathered->parts, file, 0, layout));
}

static void strided_shards_of_uneven_sizes(void **state)
{
    static const int rows[4][2] = {{0, 1}, {3, 4}, {2}, {5}}, counts[] = {2, 2, 1, 1};
    dcp_layout layout = {.mesh = {.ndim = 2, .shape = {2, 2}},
                         .placements = {dcp_strided_shard(0, 2), dcp_shard(0)}};
    struct gathered gathered;
    begin(&gathered, state);
    begin_tensor(&gathered, DCP_F32);
    for (int rank = 0; rank < 4; rank++) {
        layout.mesh.rank = rank;
        add_part(&gathered, &layout, rows[rank], counts[rank], 0, COLUMNS);
    }
    must(source_parts_end(&gathered.parts));
    expect_all(&gathered);
    end(&gathered);
}

static void parts_of_several_runs(void **state)
{
    static const int rows[2][4] = {{0, 1, 3, 4}, {2, 5}}, counts[] = {4, 2};
    dcp_layout layout = {.mesh = {.ndim = 2, .shape = {2, 2}},
                         .placements = {dcp_strided_shard(0, 2), dcp_shard(1)}};
    struct gathered gathered;
    begin(&gathered, state);
    begin_tensor(&gathered, DCP_F32);
    for (int rank = 0; rank < 4; rank++) {
        layout.mesh.rank = rank;
        add_part(&gathered, &layout, rows[rank / 2], counts[rank / 2], rank % 2 * 2, 2);
    }
    assert_true(source_parts_are_complete(&gathered.parts));
    /* Replicas are passed over. */
    layout.mesh.rank = 0;
    size_t before = gathered.parts.part_count;
    add_part(&gathered, &layout, rows[0], counts[0], 0, 2);
    assert_int_equal(gathered.parts.part_count, before);
    must(source_parts_end(&gathered.parts));
    expect_all(&gathered);
    end(&gathered);
}

static void parts_that_do_not_fit(void **state)
{
    dcp_layout layout = {.mesh = {.ndim = 1, .shape = {2}}, .placements = {dcp_shard(0)}};
    const int64_t offsets[] = {2, 0}, sizes[] = {4, COLUMNS};
    float data[ELEMENTS] = {0};
    struct gathered gathered;
    begin(&gathered, state);
    size_t file = add_file(&gathered, 2, (int64_t[]){3, COLUMNS}, data);
    begin_tensor(&gathered, DCP_F32);
    must(source_parts_add_placed(&gathered.parts, file, 0, &layout));
    must_fail(source_parts_end(&gathered.parts), DCP_ERR_COVERAGE, "no chunk holds [3:6, 0:4]");
    must(source_parts_add_box(&gathered.parts, file, 0, (struct box){2, offsets, sizes}, NULL, 0));
    must_fail(source_parts_end(&gathered.parts), DCP_ERR_OVERLAP, "whole");
    layout.mesh.shape[0] = 4;
    must_fail(source_parts_add_placed(&gathered.parts, file, 0, &layout), DCP_ERR_SHAPE,
              "\"t\" has shape [3, 4], expected [2, 4]");
    layout.placements[0].dim = 2;
    must_fail(source_parts_add_placed(&gathered.parts, file, 0, &layout), DCP_ERR_FORMAT,
              "impossible");
    layout.placements[0] = dcp_strided_shard(0, INT64_MAX);
    must_fail(source_parts_add_placed(&gathered.parts, file, 0, &layout), DCP_ERR_FORMAT,
              "impossible");
    end(&gathered);
}

/* More files than stay open. */
static void files_are_closed_and_opened_again(void **state)
{
    enum { FILES = 150 };
    struct gathered gathered;
    float data[2];
    begin(&gathered, state);
    const dcp_path_part path[] = {{.key = "many"}};
    size_t first = 0;
    for (int i = 0; i < FILES; i++) {
        data[0] = (float)(2 * i);
        data[1] = (float)(2 * i + 1);
        size_t file = add_file(&gathered, 1, (int64_t[]){2}, data);
        first = i == 0 ? file : first;
    }
    must(source_parts_tensor(&gathered.parts, path, 1, DCP_F32, 1, (int64_t[]){2 * FILES}));
    for (size_t i = 0; i < FILES; i++)
        must(source_parts_add(&gathered.parts, first + i, 0, 0, 2));
    must(source_parts_end(&gathered.parts));
    for (int round = 0; round < 2; round++) {
        float read[2 * FILES];
        must(source_parts_read(&gathered.parts, 0, 0, 2 * FILES, DCP_F32, read));
        for (int i = 0; i < 2 * FILES; i++)
            assert_true(read[i] == (float)i);
        assert_true(gathered.parts.files.open_count <= 4);
    }
    end(&gathered);
}

enum { LARGE_FILES = 6, LARGE = 600000, STEP = LARGE / 3 };

/* As of PyTorch: each file has one record with one checksum. */
static void begin_large(struct gathered *gathered, void **state, float *data)
{
    const dcp_path_part path[] = {{.key = "whole"}};
    const int64_t shape[] = {(int64_t)LARGE_FILES * LARGE};
    begin(gathered, state);
    must(source_parts_tensor(&gathered->parts, path, 1, DCP_F32, 1, shape));
    for (size_t i = 0; i < LARGE_FILES; i++) {
        for (int k = 0; k < LARGE; k++)
            data[k] = (float)k;
        size_t file = add_file(gathered, 1, (int64_t[]){LARGE}, data);
        scratch_drop_footer(gathered->parts.files.files[file].path, "__0_0.distcp");
        must(source_parts_add(&gathered->parts, file, 0, 0, LARGE));
    }
    must(source_parts_end(&gathered->parts));
}

/* More files than stay open, in turn, a step of each; returns how the steps ended. */
static dcp_status read_steps(struct gathered *gathered, int steps, float *data)
{
    dcp_status status = DCP_OK;
    for (int step = 0; step < steps && status == DCP_OK; step++)
        for (int64_t file = 0; file < LARGE_FILES && status == DCP_OK; file++)
            status = source_parts_read(&gathered->parts, 0, file * LARGE + (int64_t)step * STEP,
                                       STEP, DCP_F32, data);
    return status;
}

static void parts_of_records_are_checked_together(void **state)
{
    static float data[LARGE];
    for (int steps = 1; steps <= 3; steps++)
        for (int damaged = 0; damaged < 2; damaged++) {
            struct gathered gathered;
            begin_large(&gathered, state, data);
            if (damaged)
                scratch_flip(gathered.parts.files.files[4].path, "__0_0.distcp", 5000, 1);
            dcp_status status = read_steps(&gathered, steps, data);
            assert_int_equal(status, damaged && steps == 3 ? DCP_ERR_CHECKSUM : DCP_OK);
            if (status == DCP_OK)
                status = source_files_complete(&gathered.parts.files);
            assert_int_equal(status, damaged ? DCP_ERR_CHECKSUM : DCP_OK);
            if (damaged)
                assert_non_null(strstr(dcp_error_message(), "-4: t (__0_0.distcp"));
            end(&gathered);
        }
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(flat_parts),
        TEST(what_is_rounded_stays_rounded),
        TEST(grids_of_flat_shards),
        TEST(strided_shards_of_uneven_sizes),
        TEST(parts_of_several_runs),
        TEST(parts_that_do_not_fit),
        TEST(files_are_closed_and_opened_again),
        TEST(parts_of_records_are_checked_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
