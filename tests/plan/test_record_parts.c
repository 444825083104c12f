/* SPDX-License-Identifier: BSD-3-Clause */
/* Which parts of records ranks check together. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plan/share/record_parts.h"
#include "samples.h"

enum { ROWS = 1000, COLUMNS = 30, BYTES = ROWS * COLUMNS * 4, TENSORS = 2 };

static const int64_t shape[] = {ROWS, COLUMNS}, zeros[] = {0, 0}, strides[] = {COLUMNS, 1};

/* Tensors of one stream each, of which tests make what else they need. */
struct scene {
    struct tensor_view view;
    struct metadata_piece pieces[TENSORS];
    struct metadata_entry entries[TENSORS];
    struct metadata metadata;
};

static void scene_init(struct scene *scene)
{
    *scene = (struct scene){.metadata = {.entries = scene->entries, .count = TENSORS}};
    scene->view = (struct tensor_view){.dtype = DCP_F32,
                                       .ndim = 2,
                                       .sizes = shape,
                                       .strides = strides,
                                       .has_crc = true,
                                       .data_length = BYTES,
                                       .storage_bytes = BYTES};
    for (int i = 0; i < TENSORS; i++) {
        scene->pieces[i] = (struct metadata_piece){
            .offsets = zeros, .sizes = shape, .encoding = PIECE_STREAM, .length = BYTES + 1000};
        scene->entries[i] = (struct metadata_entry){.name = "t",
                                                    .is_tensor = true,
                                                    .dtype = DCP_F32,
                                                    .ndim = 2,
                                                    .global_shape = shape,
                                                    .pieces = &scene->pieces[i],
                                                    .piece_count = 1};
    }
}

static bool is_part(const struct scene *scene, struct box region, struct record_part *part)
{
    const struct share_want want = {.entry = 1, .region = region};
    return record_part_of(&scene->metadata, &want, part);
}

static const struct box middle = {2, (const int64_t[]){10, 0}, (const int64_t[]){20, COLUMNS}};

static void parts_are_elements_that_follow_each_other(void **state)
{
    struct scene scene;
    struct record_part part;
    (void)state;
    scene_init(&scene);
    assert_true(is_part(&scene, middle, &part));
    assert_int_equal(part.entry, 1);
    assert_int_equal(part.piece, 0);
    assert_int_equal(part.from, 10 * COLUMNS);
    assert_int_equal(part.end, 30 * COLUMNS);
    assert_true(is_part(&scene, BOX(2, DIMS(7, 3), DIMS(1, 20)), &part));
    assert_int_equal(part.from, 7 * COLUMNS + 3);
    assert_int_equal(part.end, 7 * COLUMNS + 23);
    assert_false(is_part(&scene, BOX(2, DIMS(7, 3), DIMS(2, 20)), &part));
    assert_false(is_part(&scene, BOX(2, zeros, shape), &part));
    assert_false(is_part(&scene, BOX(2, DIMS(7, 0), DIMS(0, COLUMNS)), &part));
}

static void only_whole_records_with_a_checksum_have_parts(void **state)
{
    struct scene scene;
    struct record_part part;
    struct metadata_piece *piece = &scene.pieces[1];
    int64_t elements = ROWS * COLUMNS;
    const struct stream_range range = {.ndim = 1, .sizes = &elements};
    (void)state;
    scene_init(&scene);
    piece->zstd = true;
    assert_false(is_part(&scene, middle, &part));
    piece->zstd = false;
    piece->encoding = PIECE_RANGE;
    piece->range = &range;
    assert_true(is_part(&scene, middle, &part));
    elements++;
    assert_false(is_part(&scene, middle, &part));
    piece->encoding = PIECE_RAW;
    piece->view = &scene.view;
    assert_false(is_part(&scene, middle, &part));
    piece->encoding = PIECE_STREAM;
    piece->length = 64 << 10;
    assert_false(is_part(&scene, middle, &part));
    piece->encoding = PIECE_VIEW;
    assert_true(is_part(&scene, middle, &part));
    scene.view.has_crc = false;
    assert_false(is_part(&scene, middle, &part));
    scene.view.has_crc = true;
    scene.view.deflated = true;
    assert_false(is_part(&scene, middle, &part));
    scene.view.deflated = false;
    scene.view.strides = (const int64_t[]){1, ROWS}; /* transposed: see shard_part_sum::together */
    assert_true(is_part(&scene, middle, &part));
    scene.view.strides = strides;
    scene.view.storage_bytes++;
    assert_false(is_part(&scene, middle, &part));
    scene.view.storage_bytes--;
    scene.view.data_length = 64 << 10;
    assert_false(is_part(&scene, middle, &part));
    scene.view.data_length = BYTES;
    assert_true(is_part(&scene, middle, &part));
    scene.entries[1].is_tensor = false;
    assert_false(is_part(&scene, middle, &part));
}

static void runs_are_parts_of_regions(void **state)
{
    struct scene scene;
    struct record_part part;
    struct share_region regions[] = {{.entry = 1, .box = middle},
                                     {.entry = 1, .box = {2, zeros, shape}}};
    const struct load_share share = {.regions = regions, .region_count = 2};
    const struct share_run run = {.region = 0, .from = 50, .end = 70},
                           cut = {.region = 1, .end = 9},
                           all = {.region = 1, .end = ROWS * COLUMNS};
    (void)state;
    scene_init(&scene);
    assert_true(record_part_of_run(&scene.metadata, &share, &run, &part));
    assert_int_equal(part.entry, 1);
    assert_int_equal(part.from, 10 * COLUMNS + 50);
    assert_int_equal(part.end, 10 * COLUMNS + 70);
    regions[0].striped = true;
    assert_false(record_part_of_run(&scene.metadata, &share, &run, &part));
    assert_true(record_part_of_run(&scene.metadata, &share, &cut, &part));
    assert_int_equal(part.from, 0);
    assert_int_equal(part.end, 9);
    assert_false(record_part_of_run(&scene.metadata, &share, &all, &part));
}

static void messages_say_the_same(void **state)
{
    const struct record_part parts[] = {{0, 0, 5, 9, 3, 0}, {1, 0, 0, ROWS * COLUMNS, 3, 1}};
    struct record_part heard[2];
    struct scene scene;
    struct buffer message;
    (void)state;
    scene_init(&scene);
    buffer_init(&message, 0);
    for (size_t i = 0; i < 2; i++)
        record_part_append(&message, &parts[i]);
    assert_int_equal(message.size, 2 * RECORD_PART_SIZE);
    assert_int_equal(record_parts_decode(message.data, message.size, &scene.metadata, 3, heard),
                     DCP_OK);
    assert_memory_equal(heard, parts, sizeof parts);
    assert_int_equal(record_parts_decode(message.data, message.size - 1, &scene.metadata, 3, heard),
                     DCP_ERR_GROUP);
    assert_non_null(strstr(dcp_error_message(), "rank 3"));
    buffer_free(&message);
}

static void messages_about_what_is_not_there_are_refused(void **state)
{
    const struct record_part wrong[] = {
        {TENSORS, 0, 0, 1, 0, 0}, {0, 1, 0, 1, 0, 0},  {0, 0, -1, 1, 0, 0},
        {0, 0, 5, 5, 0, 0},       {0, 0, 6, 5, 0, 0},  {0, 0, 0, ROWS * COLUMNS + 1, 0, 0},
        {1, 0, 0, 1, 0, 0},       {0, 0, 0, -1, 0, 0},
    };
    struct scene scene;
    struct record_part heard;
    (void)state;
    scene_init(&scene);
    scene.entries[1].is_tensor = false;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct buffer message;
        buffer_init(&message, 0);
        record_part_append(&message, &wrong[i]);
        assert_int_equal(
            record_parts_decode(message.data, message.size, &scene.metadata, 0, &heard),
            DCP_ERR_GROUP);
        buffer_free(&message);
    }
}

/* How many of the parts of ranks 0, 1 and so on are kept. */
static size_t join(const struct scene *scene, const struct record_part *parts, size_t count,
                   struct record_part *joined)
{
    for (size_t i = 0; i < count; i++) {
        joined[i] = parts[i];
        joined[i].rank = (uint32_t)i;
    }
    return record_parts_join(joined, count, &scene->metadata);
}

#define ALL (ROWS * COLUMNS)

static void records_are_joined_if_their_parts_are_all_of_them(void **state)
{
    static const struct {
        size_t count, kept;
        struct record_part parts[5];
    } cases[] = {
        {0, 0, {{0}}},
        {2, 2, {{0, 0, 40, ALL, 0, 0}, {0, 0, 0, 40, 0, 0}}},
        {2, 0, {{0, 0, 0, 40, 0, 0}, {0, 0, 41, ALL, 0, 0}}},
        {2, 0, {{0, 0, 0, 40, 0, 0}, {0, 0, 39, ALL, 0, 0}}},
        {2, 0, {{0, 0, 1, 40, 0, 0}, {0, 0, 40, ALL, 0, 0}}},
        {2, 0, {{0, 0, 0, 40, 0, 0}, {0, 0, 40, ALL - 1, 0, 0}}},
        {4,
         4,
         {{0, 0, 0, 9, 0, 0}, {0, 0, 9, ALL, 0, 0}, {0, 0, 0, 9, 0, 0}, {0, 0, 9, ALL, 0, 0}}},
        {3, 0, {{0, 0, 0, 9, 0, 0}, {0, 0, 9, ALL, 0, 0}, {0, 0, 9, ALL - 1, 0, 0}}},
        {4, 2, {{0, 0, 0, 9, 0, 0}, {1, 0, 9, ALL, 0, 0}, {1, 0, 0, 9, 0, 0}, {0, 0, 0, 9, 0, 0}}},
        {5,
         5,
         {{1, 0, 9, 20, 0, 0},
          {0, 0, 9, ALL, 0, 0},
          {1, 0, 20, ALL, 0, 0},
          {0, 0, 0, 9, 0, 0},
          {1, 0, 0, 9, 0, 0}}},
    };
    struct scene scene;
    (void)state;
    scene_init(&scene);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct record_part joined[5];
        assert_int_equal(join(&scene, cases[i].parts, cases[i].count, joined), cases[i].kept);
    }
}

static void joined_parts_are_in_order(void **state)
{
    const struct record_part parts[] = {{1, 0, 9, ALL, 0, 0}, {0, 0, 9, ALL, 0, 0},
                                        {1, 0, 0, 9, 0, 0},   {0, 0, 0, 9, 0, 0},
                                        {1, 0, 9, ALL, 0, 0}, {0, 0, 0, 9, 0, 0}};
    static const uint32_t ranks[] = {3, 5, 1, 2, 0, 4};
    struct record_part joined[6];
    struct scene scene;
    (void)state;
    scene_init(&scene);
    assert_int_equal(join(&scene, parts, 6, joined), 6);
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(joined[i].rank, ranks[i]);
    assert_int_equal(record_parts_of_record(joined, 6), 3);
    assert_int_equal(record_parts_of_record(joined + 3, 3), 3);
    assert_int_equal(record_parts_alike(joined, 6), 2);
    assert_int_equal(record_parts_alike(joined + 2, 4), 1);
    assert_int_equal(record_parts_alike(joined + 4, 2), 2);
    assert_int_equal(record_parts_alike(joined, 1), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_elements_that_follow_each_other),
        cmocka_unit_test(only_whole_records_with_a_checksum_have_parts),
        cmocka_unit_test(runs_are_parts_of_regions),
        cmocka_unit_test(messages_say_the_same),
        cmocka_unit_test(messages_about_what_is_not_there_are_refused),
        cmocka_unit_test(records_are_joined_if_their_parts_are_all_of_them),
        cmocka_unit_test(joined_parts_are_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
