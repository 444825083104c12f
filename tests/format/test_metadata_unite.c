/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "expected_metadata.h"
#include "failing_allocator.h"
#include "fixture.h"
#include "format/metadata/metadata_codec.h"

static void decode_parts(struct metadata parts[2])
{
    for (int rank = 0; rank < 2; rank++) {
        char path[64];
        snprintf(path, sizeof path, "rank_local_w2/ckpt/__%d.metadata", rank);
        struct bytes bytes = fixture_file(path);
        assert_int_equal(metadata_decode_part(bytes.data, bytes.size, &parts[rank]), DCP_OK);
        bytes_free(&bytes);
    }
}

static void unites_what_pytorch_wrote(void **state)
{
    (void)state;
    struct metadata parts[2], whole;
    struct fixture fixture;
    decode_parts(parts);
    assert_int_equal(metadata_unite(parts, 2, &whole), DCP_OK);
    metadata_free(&parts[0]);
    metadata_free(&parts[1]);
    fixture_open(&fixture, "rank_local_w2");
    check_expected_metadata(&whole, fixture.expected);
    assert_true(whole.has_paths);
    assert_string_not_equal(whole.save_id, "");
    fixture_close(&fixture);
    metadata_free(&whole);
}

static void misses_the_chunks_of_a_missing_rank(void **state)
{
    (void)state;
    struct metadata parts[2], whole;
    decode_parts(parts);
    assert_int_equal(metadata_unite(parts, 1, &whole), DCP_ERR_COVERAGE);
    assert_non_null(strstr(dcp_error_message(), "\"d\": no chunk holds [4:7, 0:3]"));
    assert_int_equal(whole.count, 0);
    metadata_free(&parts[0]);
    metadata_free(&parts[1]);
}

static void reports_every_failed_allocation(void **state)
{
    (void)state;
    struct metadata parts[2];
    decode_parts(parts);
    dcp_status status = DCP_ERR_NO_MEMORY;
    for (size_t n = 0; status != DCP_OK; n++) {
        struct metadata whole;
        failing_allocator_install(n);
        status = metadata_unite(parts, 2, &whole);
        if (status == DCP_OK)
            metadata_free(&whole);
        else
            assert_int_equal(status, DCP_ERR_NO_MEMORY);
        assert_true(failing_allocator_remove() >= n);
    }
    metadata_free(&parts[0]);
    metadata_free(&parts[1]);
}

/* ---- parts by hand ---- */

struct part {
    struct metadata metadata;
    struct metadata_entry entries[2];
    struct metadata_piece pieces[3];
    dcp_path_part path[3];
    int64_t numbers[8];
    char file[16];
    const char *files[1];
};

/* Rank's part of a tensor w of 4 elements per rank and an object o, which all ranks have. */
static void part_make(struct part *part, int rank, int rank_count)
{
    *part = (struct part){.numbers = {4 * rank_count, 4 * rank, 4},
                          .path = {{.key = "w"}, {.key = "list"}, {.position = 7}}};
    snprintf(part->file, sizeof part->file, "file%d", rank);
    part->files[0] = part->file;
    part->pieces[0] = (struct metadata_piece){
        .offsets = part->numbers + 1, .sizes = part->numbers + 2, .offset = 100, .length = 1000};
    part->pieces[1] = (struct metadata_piece){.length = 100 + (uint64_t)rank};
    part->entries[0] = (struct metadata_entry){.name = "w",
                                               .path = part->path,
                                               .path_length = 1,
                                               .is_tensor = true,
                                               .dtype = DCP_F32,
                                               .ndim = 1,
                                               .global_shape = part->numbers,
                                               .pieces = part->pieces,
                                               .piece_count = 1};
    part->entries[1] = (struct metadata_entry){.name = "list.7",
                                               .path = part->path + 1,
                                               .path_length = 2,
                                               .pieces = part->pieces + 1,
                                               .piece_count = 1};
    metadata_init(&part->metadata);
    part->metadata.entries = part->entries;
    part->metadata.count = 2;
    part->metadata.files = part->files;
    part->metadata.file_count = 1;
}

static void make_three(struct part parts[3])
{
    for (int rank = 0; rank < 3; rank++)
        part_make(&parts[rank], rank, 3);
}

static dcp_status unite_three(const struct part parts[3], struct metadata *whole)
{
    const struct metadata list[3] = {parts[0].metadata, parts[1].metadata, parts[2].metadata};
    return metadata_unite(list, 3, whole);
}

static void the_lowest_rank_wins(void **state)
{
    (void)state;
    struct part parts[3];
    struct metadata whole;
    make_three(parts);
    parts[2].metadata.has_paths = true;
    parts[2].metadata.save_id = "id";
    /* rank 2 has the chunk of rank 1 as well */
    parts[2].pieces[1] = (struct metadata_piece){
        .offsets = parts[1].numbers + 1, .sizes = parts[1].numbers + 2, .length = 9999};
    parts[2].pieces[2] = (struct metadata_piece){.length = 5};
    parts[2].entries[0].piece_count = 2;
    parts[2].entries[1].pieces = parts[2].pieces + 2;
    assert_int_equal(unite_three(parts, &whole), DCP_OK);
    assert_int_equal(whole.count, 2);
    assert_int_equal(whole.file_count, 3);
    assert_string_equal(whole.save_id, "id");
    assert_true(whole.has_paths);
    const struct metadata_entry *w = metadata_find(&whole, "w");
    assert_int_equal(w->piece_count, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(w->pieces[i].offsets[0], 4 * i);
        assert_int_equal(w->pieces[i].length, 1000);
        assert_string_equal(whole.files[w->pieces[i].file], parts[i].file);
    }
    const struct metadata_entry *object = metadata_find(&whole, "list.7");
    assert_int_equal(object->piece_count, 1);
    assert_int_equal(object->pieces[0].length, 100);
    assert_string_equal(whole.files[object->pieces[0].file], "file0");
    assert_string_equal(object->path[0].key, "list");
    assert_null(object->path[1].key);
    assert_int_equal(object->path[1].position, 7);
    metadata_free(&whole);
}

static void takes_names_that_only_some_ranks_have(void **state)
{
    (void)state;
    struct part parts[3];
    struct metadata whole;
    make_three(parts);
    parts[0].metadata.count = 1;
    parts[1].metadata.count = 1;
    parts[2].entries[1].name = "late";
    assert_int_equal(unite_three(parts, &whole), DCP_OK);
    assert_int_equal(metadata_find(&whole, "late")->pieces[0].length, 102);
    metadata_free(&whole);
    assert_int_equal(metadata_unite(NULL, 0, &whole), DCP_OK);
    assert_int_equal(whole.count, 0);
    metadata_free(&whole);
}

static void check_refused(const struct part parts[3], dcp_status expected, const char *message)
{
    struct metadata whole;
    assert_int_equal(unite_three(parts, &whole), expected);
    if (strstr(dcp_error_message(), message) == NULL)
        fail_msg("\"%s\", expected \"%s\"", dcp_error_message(), message);
    assert_int_equal(whole.count, 0);
}

static void refuses_ranks_that_disagree(void **state)
{
    (void)state;
    struct part parts[3];
    make_three(parts);
    parts[1].numbers[0] = 13;
    check_refused(parts, DCP_ERR_SHAPE, "\"w\" has the shape [13] on rank 1, but [12] on rank 0");
    make_three(parts);
    parts[2].entries[0].dtype = DCP_I32;
    check_refused(parts, DCP_ERR_DTYPE, "\"w\" is int32 on rank 2, but float32 on rank 0");
    make_three(parts);
    parts[1].entries[1].name = "w";
    parts[1].entries[0].name = "list.7";
    check_refused(parts, DCP_ERR_KIND, "\"list.7\" is a tensor on rank 1, but an object on rank 0");
    make_three(parts);
    parts[1].numbers[1] = 3;
    check_refused(parts, DCP_ERR_OVERLAP, "\"w\": chunks 0 [0:4] and 1 [3:7] overlap");
}

/* The same parts as members of a union, whose files may have the same names. */
static void make_members(struct part parts[3])
{
    static const char *const names[3] = {"pp0", "pp1", "pp2"};
    make_three(parts);
    for (int m = 0; m < 3; m++) {
        snprintf(parts[m].file, sizeof parts[m].file, "file");
        parts[m].metadata.save_id = names[m];
        assert_int_equal(metadata_set_member(&parts[m].metadata, names[m], false), DCP_OK);
    }
}

static void free_members(struct part parts[3])
{
    for (int m = 0; m < 3; m++)
        arena_free(&parts[m].metadata.arena);
}

static void unites_members(void **state)
{
    (void)state;
    struct part parts[3];
    struct metadata whole;
    make_members(parts);
    assert_int_equal(unite_three(parts, &whole), DCP_OK);
    free_members(parts);
    const struct metadata_entry *w = metadata_find(&whole, "w");
    assert_int_equal(w->piece_count, 3);
    assert_string_equal(whole.files[w->pieces[2].file], "pp2/file");
    assert_string_equal(metadata_file_member(&whole, w->pieces[1].file)->save_id, "pp1");
    assert_string_equal(whole.save_id, "");
    assert_int_equal(whole.replica_count, 2); /* the object in pp1 and pp2 */
    for (size_t i = 0; i < 2; i++) {
        assert_string_equal(whole.entries[whole.replicas[i].entry].name, "list.7");
        assert_int_equal(whole.replicas[i].piece.length, 101 + i);
    }
    metadata_free(&whole);
}

static void members_that_overlap_are_named(void **state)
{
    (void)state;
    static const struct {
        int64_t offset, size;
    } others[] = {{3, 4}, {0, 5}, {0, 12}, {11, 1}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct part parts[3];
        struct metadata whole;
        make_members(parts);
        parts[1].numbers[1] = others[i].offset;
        parts[1].numbers[2] = others[i].size;
        assert_int_equal(unite_three(parts, &whole), DCP_ERR_OVERLAP);
        assert_non_null(strstr(dcp_error_message(), " in pp1"));
        assert_non_null(strstr(dcp_error_message(), i < 3 ? "in pp0" : "in pp2"));
        free_members(parts);
    }
}

/* The first member has all of the tensor, the others parts of it. */
static void what_the_first_member_has_whole_is_its(void **state)
{
    (void)state;
    struct part parts[3];
    struct metadata whole;
    make_members(parts);
    parts[0].numbers[2] = 12;
    assert_int_equal(unite_three(parts, &whole), DCP_OK);
    assert_int_equal(metadata_find(&whole, "w")->piece_count, 1);
    assert_int_equal(whole.replica_count, 4);
    metadata_free(&whole);
    parts[1].numbers[1] = 9; /* beyond the end */
    assert_int_equal(unite_three(parts, &whole), DCP_ERR_FORMAT);
    free_members(parts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unites_what_pytorch_wrote),
        cmocka_unit_test(misses_the_chunks_of_a_missing_rank),
        cmocka_unit_test(reports_every_failed_allocation),
        cmocka_unit_test(the_lowest_rank_wins),
        cmocka_unit_test(takes_names_that_only_some_ranks_have),
        cmocka_unit_test(refuses_ranks_that_disagree),
        cmocka_unit_test(unites_members),
        cmocka_unit_test(members_that_overlap_are_named),
        cmocka_unit_test(what_the_first_member_has_whole_is_its),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
