/* SPDX-License-Identifier: BSD-3-Clause */
/* From the footers of all files of a checkpoint its metadata can be rebuilt. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"
#include "format/footer/footer.h"
#include "format/metadata/metadata_codec.h"

enum { FILES_MAX = 16 };

/* The entries of one file, with the pieces that lie there. */
static void select_file(const struct metadata *whole, uint32_t file, struct metadata *part)
{
    metadata_init(part);
    part->files = arena_allocate(&part->arena, sizeof *part->files);
    part->entries = arena_allocate_array(&part->arena, whole->count, sizeof *part->entries);
    assert_non_null(part->files);
    assert_non_null(part->entries);
    part->files[0] = whole->files[file];
    part->file_count = 1;
    part->has_paths = whole->has_paths;
    for (size_t i = 0; i < whole->count; i++) {
        struct metadata_entry entry = whole->entries[i];
        const struct metadata_piece *pieces = entry.pieces;
        size_t count = entry.piece_count;
        entry.pieces = arena_allocate_array(&part->arena, count, sizeof *pieces);
        assert_non_null(entry.pieces);
        entry.piece_count = 0;
        for (size_t p = 0; p < count; p++)
            if (pieces[p].file == file)
                entry.pieces[entry.piece_count++] = pieces[p];
        if (entry.piece_count != 0)
            part->entries[part->count++] = entry;
    }
}

/* What the footer of that file says of it, after it was written and read. */
static void through_footer(const struct metadata *whole, uint32_t file, struct footer *footer)
{
    static const unsigned char zeros[1 << 20];
    const uint64_t page = 7;
    struct metadata part;
    struct buffer bytes;
    bool found = false;
    select_file(whole, file, &part);
    buffer_init(&bytes, 0);
    buffer_append(&bytes, zeros, sizeof zeros);
    buffer_append_u64(&bytes, 0);
    assert_int_equal(footer_encode(&bytes, "id", sizeof zeros, sizeof zeros, &page, 1, &part),
                     DCP_OK);
    assert_int_equal(footer_decode(byte_source_memory(bytes.data, bytes.size), footer, &found),
                     DCP_OK);
    assert_true(found);
    buffer_free(&bytes);
    metadata_free(&part);
}

static const struct metadata_piece *find_piece(const struct metadata_entry *entry,
                                               const struct metadata_piece *wanted)
{
    size_t size = (size_t)entry->ndim * sizeof *wanted->offsets;
    for (size_t i = 0; i < entry->piece_count; i++)
        if (!entry->is_tensor || size == 0 ||
            memcmp(entry->pieces[i].offsets, wanted->offsets, size) == 0)
            return &entry->pieces[i];
    return NULL;
}

static void assert_same_entry(const struct metadata *whole, const struct metadata_entry *a,
                              const struct metadata *rebuilt)
{
    const struct metadata_entry *b = metadata_find(rebuilt, a->name);
    assert_non_null(b);
    assert_int_equal(a->is_tensor, b->is_tensor);
    assert_int_equal(a->dtype, b->dtype);
    assert_int_equal(a->ndim, b->ndim);
    assert_int_equal(a->requires_grad, b->requires_grad);
    size_t size = (size_t)a->ndim * sizeof *a->global_shape;
    if (size != 0)
        assert_memory_equal(a->global_shape, b->global_shape, size);
    assert_int_equal(a->path_length, b->path_length);
    for (size_t i = 0; i < a->path_length; i++) {
        assert_int_equal(a->path[i].key != NULL, b->path[i].key != NULL);
        if (a->path[i].key != NULL)
            assert_string_equal(a->path[i].key, b->path[i].key);
        else
            assert_int_equal(a->path[i].position, b->path[i].position);
    }
    assert_int_equal(a->piece_count, b->piece_count);
    for (size_t i = 0; i < a->piece_count; i++) {
        const struct metadata_piece *piece = find_piece(b, &a->pieces[i]);
        assert_non_null(piece);
        if (size != 0)
            assert_memory_equal(a->pieces[i].sizes, piece->sizes, size);
        assert_string_equal(whole->files[a->pieces[i].file], rebuilt->files[piece->file]);
        assert_int_equal(a->pieces[i].offset, piece->offset);
        assert_int_equal(a->pieces[i].length, piece->length);
        assert_int_equal(a->pieces[i].zstd, piece->zstd);
    }
}

static void check_rebuilt(const char *name)
{
    char path[256];
    struct metadata whole;
    struct metadata rebuilt;
    struct footer footers[FILES_MAX];
    struct metadata parts[FILES_MAX];
    snprintf(path, sizeof path, "%s/ckpt/.metadata", name);
    struct bytes bytes = fixture_file(path);
    assert_int_equal(metadata_decode(bytes.data, bytes.size, &whole), DCP_OK);
    bytes_free(&bytes);
    assert_true(whole.file_count <= FILES_MAX);
    for (uint32_t file = 0; file < whole.file_count; file++) {
        through_footer(&whole, file, &footers[file]);
        parts[file] = footers[file].contents;
    }
    assert_int_equal(metadata_unite(parts, whole.file_count, &rebuilt), DCP_OK);
    assert_int_equal(rebuilt.count, whole.count);
    assert_int_equal(rebuilt.has_paths, whole.has_paths);
    for (size_t i = 0; i < whole.count; i++)
        assert_same_entry(&whole, &whole.entries[i], &rebuilt);
    for (uint32_t file = 0; file < whole.file_count; file++)
        footer_free(&footers[file]);
    metadata_free(&rebuilt);
    metadata_free(&whole);
}

static void test_rebuild(void **state)
{
    (void)state;
    static const char *const names[] = {
        "basic",       "nesting",   "no_flatten",        "shapes",    "zstd_w2",
        "fsdp2_tp_w4", "mesh2d_w4", "sharded_tensor_w2", "uneven_w4", "training_state"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        check_rebuilt(names[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rebuild)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
