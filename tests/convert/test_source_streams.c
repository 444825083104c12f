/* SPDX-License-Identifier: BSD-3-Clause */
/* Parts of tensors in streams as pieces of metadata: each element of a part is the one of the chunk
 * that it lies in, however both are cut; what is not consecutive is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "checkpoint/ranks.h"
#include "convert/source_description.h"
#include "dcp.h"
#include "fault/failing_allocator.h"

enum { A = 2, B = 3, C = 4, ELEMENTS = A * B * C, CHUNKS_MAX = ELEMENTS };

/* A stored tensor of A x B x C elements in chunks, and one that is made of parts of it. */
struct scene {
    struct description made;
    struct source_parts parts;
    struct metadata metadata;
    char directory[4096];
    size_t file;
};

/* Boxes: offset and size of each dimension, six numbers a chunk. */
static void save(const char *path, const int64_t (*boxes)[6], size_t count)
{
    static float elements[ELEMENTS];
    dcp_state *root = dcp_state_new(), *node = NULL;
    for (size_t i = 0; i < count; i++) {
        dcp_tensor chunk = {
            .dtype = DCP_F32, .ndim = 3, .global_shape = {A, B, C}, .sharded = true};
        for (int d = 0; d < 3; d++) {
            chunk.offsets[d] = boxes[i][2 * d];
            chunk.sizes[d] = boxes[i][2 * d + 1];
        }
        chunk.data = elements;
        if (node)
            must(dcp_state_add_chunk(node, &chunk));
        else
            assert_non_null(node = dcp_state_tensor(root, "t", &chunk));
    }
    must(dcp_save(root, path, &(dcp_save_options){.skip_sync = true}));
    dcp_state_free(root);
}

static void begin(struct scene *scene, void **state, const int64_t (*boxes)[6], size_t count)
{
    static int number;
    char name[32];
    *scene = (struct scene){0};
    snprintf(name, sizeof name, "run-%d", number++);
    snprintf(scene->directory, sizeof scene->directory, "%s", path_in(state, name));
    save(scene->directory, boxes, count);
    arena_init(&scene->made.source.arena, 0);
    scene->made.source.path = scene->directory;
    scene->made.parts = &scene->parts;
    scene->made.metadata = &scene->metadata;
    metadata_init(&scene->metadata);
    name_table_init(&scene->made.file_names);
    name_table_init(&scene->made.stream_lists);
    source_parts_init(&scene->parts, &scene->made.source.arena);
    must(source_files_add(&scene->parts.files, scene->directory, NULL, &scene->file));
}

static void end(struct scene *scene)
{
    source_parts_free(&scene->parts);
    metadata_free(&scene->metadata);
    name_table_free(&scene->made.file_names);
    name_table_free(&scene->made.stream_lists);
    memory_release(scene->made.pieces);
    arena_free(&scene->made.source.arena);
}

static void begin_tensor(struct scene *scene, const char *name, dcp_dtype dtype, int32_t ndim,
                         const int64_t *shape)
{
    const dcp_path_part path[] = {{.key = name}};
    must(source_parts_tensor(&scene->parts, path, 1, dtype, ndim, shape));
}

static dcp_status describe(struct scene *scene, struct metadata_entry *entry)
{
    must(source_parts_end(&scene->parts));
    *entry = (struct metadata_entry){.name = "made"};
    return description_tensor(&scene->made, &scene->parts.tensors[scene->parts.count - 1], entry);
}

/* The stored tensor's element that is the first of the chunk whose stream a piece is a range of. */
static int64_t first_of_chunk(const struct scene *scene, const struct metadata_piece *piece)
{
    dcp_checkpoint *checkpoint;
    dcp_entry entry;
    int64_t first = -1;
    must(dcp_checkpoint_open(scene->directory, NULL, &checkpoint));
    must(dcp_checkpoint_entry(checkpoint, 0, &entry));
    for (size_t i = 0; i < entry.chunk_count; i++) {
        dcp_stored_chunk chunk;
        must(dcp_checkpoint_chunk(checkpoint, 0, i, &chunk));
        if (chunk.offset != piece->offset)
            continue;
        assert_int_equal(piece->length, chunk.length);
        assert_string_equal(scene->metadata.files[piece->file], chunk.file);
        assert_int_equal(piece->range->ndim, 3);
        assert_memory_equal(piece->range->sizes, chunk.sizes, 3 * sizeof *chunk.sizes);
        first = (chunk.offsets[0] * B + chunk.offsets[1]) * C + chunk.offsets[2];
    }
    dcp_checkpoint_close(checkpoint);
    assert_true(first >= 0);
    return first;
}

/* That each element of a piece of the made matrix is the stored one behind element `shift`. */
static void expect_piece(const struct scene *scene, const struct metadata_entry *entry,
                         const struct metadata_piece *piece, int64_t shift)
{
    int64_t columns = entry->global_shape[1], at = piece->range->first;
    assert_int_equal(piece->encoding, PIECE_RANGE);
    assert_true(metadata_range_fits(entry, piece));
    at += first_of_chunk(scene, piece);
    for (int64_t row = 0; row < piece->sizes[0]; row++)
        for (int64_t column = 0; column < piece->sizes[1]; column++)
            assert_int_equal(at++, shift + (piece->offsets[0] + row) * columns + piece->offsets[1] +
                                       column);
}

static const int64_t rows[][6] = {
    {0, 1, 0, 1, 0, 3}, {0, 1, 0, 1, 3, 1}, {0, 1, 1, 2, 0, 4}, {1, 1, 0, 3, 0, 4}};
static const int64_t whole[][6] = {{0, 2, 0, 3, 0, 4}};
static const int64_t columns[][6] = {{0, 2, 0, 3, 0, 1}, {0, 2, 0, 3, 1, 3}};
static const int64_t middles[][6] = {{0, 2, 0, 1, 0, 4}, {0, 2, 1, 2, 0, 4}};

/* Ranges of every beginning and length, as matrices of all widths that they have. */
static void every_range(void **state)
{
    struct scene scene;
    for (int in_chunks = 0; in_chunks < 2; in_chunks++) {
        int64_t count = 0;
        begin(&scene, state, in_chunks ? rows : whole, in_chunks ? 4 : 1);
        for (int64_t first = 0; first < ELEMENTS; first++)
            for (int64_t length = 1; first + length <= ELEMENTS; length++)
                for (int64_t width = 1; width <= length; width++) {
                    struct metadata_entry entry;
                    char name[32];
                    if (length % width != 0)
                        continue;
                    snprintf(name, sizeof name, "t%d", (int)count++);
                    begin_tensor(&scene, name, DCP_F32, 2, (int64_t[]){length / width, width});
                    /* In two parts, the second of which begins anywhere. */
                    must(source_parts_add(&scene.parts, scene.file, 0, first, length / 3));
                    must(source_parts_add(&scene.parts, scene.file, 0, first + length / 3,
                                          length - length / 3));
                    must(describe(&scene, &entry));
                    for (size_t i = 0; i < entry.piece_count; i++)
                        expect_piece(&scene, &entry, &entry.pieces[i], first);
                }
        end(&scene);
    }
}

/* Flat boxes, such as cells of a grid: a matrix of 4 x 6 in two halves. */
static void flat_boxes(void **state)
{
    static const int64_t shape[] = {4, 6}, sizes[] = {4, 3};
    struct scene scene;
    struct metadata_entry entry;
    begin(&scene, state, rows, 4);
    begin_tensor(&scene, "halves", DCP_F32, 2, shape);
    for (int64_t half = 0; half < 2; half++) {
        const int64_t offsets[] = {0, 3 * half};
        must(source_parts_add_box(&scene.parts, scene.file, 0, (struct box){2, offsets, sizes},
                                  NULL, 12 * (1 - half)));
    }
    must(describe(&scene, &entry));
    for (size_t i = 0; i < entry.piece_count; i++) {
        const struct metadata_piece *piece = &entry.pieces[i];
        int64_t half = piece->offsets[1] / 3;
        int64_t at = first_of_chunk(&scene, piece) + piece->range->first;
        assert_true(piece->offsets[1] % 3 + piece->sizes[1] <= 3);
        assert_int_equal(at, 12 * (1 - half) + piece->offsets[0] * 3 + piece->offsets[1] % 3);
    }
    end(&scene);
}

/* As it is a tensor stays in its chunks, in streams of its own name or as ranges of these. */
static void whole_tensors(void **state)
{
    static const char *const names[] = {"t", "other"};
    struct scene scene;
    begin(&scene, state, columns, 2);
    for (size_t i = 0; i < 2; i++) {
        struct metadata_entry entry;
        begin_tensor(&scene, names[i], DCP_F32, 3, (int64_t[]){A, B, C});
        must(source_parts_add(&scene.parts, scene.file, 0, 0, ELEMENTS));
        must(describe(&scene, &entry));
        assert_int_equal(entry.piece_count, 2);
        for (size_t p = 0; p < 2; p++) {
            const struct metadata_piece *piece = &entry.pieces[p];
            assert_int_equal(piece->encoding, i == 0 ? PIECE_STREAM : PIECE_RANGE);
            if (i == 0)
                continue;
            assert_int_equal(piece->range->first, 0);
            assert_memory_equal(piece->range->sizes, piece->sizes, 3 * sizeof *piece->sizes);
        }
    }
    end(&scene);
}

static void what_cannot_be_read_in_place(void **state)
{
    static const int64_t shape[] = {4, 6}, start[] = {0, 0, 0}, stored[] = {1, B, C};
    struct scene scene;
    struct metadata_entry entry;
    for (int i = 0; i < 2; i++) {
        begin(&scene, state, i == 0 ? columns : middles, 2);
        begin_tensor(&scene, "flat", DCP_F32, 2, shape);
        must(source_parts_add(&scene.parts, scene.file, 0, 0, ELEMENTS));
        must_fail(describe(&scene, &entry), DCP_ERR_UNSUPPORTED,
                  "in chunks that are not consecutive elements; dcp convert takes it");
        end(&scene);
    }
    begin(&scene, state, rows, 4);
    begin_tensor(&scene, "box", DCP_F32, 3, stored);
    must(source_parts_add_box(&scene.parts, scene.file, 0, (struct box){3, start, stored}, start,
                              0));
    must_fail(describe(&scene, &entry), DCP_ERR_UNSUPPORTED, "as boxes in streams");
    begin_tensor(&scene, "beyond", DCP_F32, 2, shape);
    must(source_parts_add(&scene.parts, scene.file, 0, 1, ELEMENTS));
    must_fail(describe(&scene, &entry), DCP_ERR_SHAPE, "reaches beyond the tensor there");
    end(&scene);
}

static void every_allocation_may_fail(void **state)
{
    struct scene scene;
    for (long n = 1;; n++) {
        struct metadata_entry entry;
        dcp_checkpoint *checkpoint;
        begin(&scene, state, rows, 4);
        begin_tensor(&scene, "flat", DCP_F32, 2, (int64_t[]){4, 6});
        must(source_parts_add(&scene.parts, scene.file, 0, 0, ELEMENTS));
        must(source_parts_end(&scene.parts));
        must(source_files_take(&scene.parts.files, scene.file, &checkpoint));
        failing_allocator_install(n, false);
        dcp_status status = description_tensor(&scene.made, scene.parts.tensors, &entry);
        bool reached = failing_allocator_reached();
        failing_allocator_remove();
        source_files_give(&scene.parts.files, scene.file);
        end(&scene);
        assert_int_equal(status, reached ? DCP_ERR_NO_MEMORY : DCP_OK);
        if (!reached)
            break;
    }
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_range),
        TEST(flat_boxes),
        TEST(whole_tensors),
        TEST(what_cannot_be_read_in_place),
        TEST(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
