/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "fault/failing_allocator.h"
#include "state/metadata.h"

/* A tensor of up to four pieces in two dimensions: row, column, rows, columns. */
struct tensor {
    struct metadata_entry entry;
    int64_t shape[2];
    int64_t numbers[4][4];
    struct metadata_piece pieces[4];
};

static struct metadata_entry *tensor_of(struct tensor *tensor, int64_t rows, int64_t columns,
                                        size_t count)
{
    memset(tensor, 0, sizeof *tensor);
    tensor->shape[0] = rows;
    tensor->shape[1] = columns;
    tensor->entry = (struct metadata_entry){.name = "model.w",
                                            .is_tensor = true,
                                            .dtype = DCP_F32,
                                            .ndim = 2,
                                            .global_shape = tensor->shape,
                                            .pieces = tensor->pieces,
                                            .piece_count = count};
    for (size_t i = 0; i < 4; i++)
        tensor->pieces[i] =
            (struct metadata_piece){.offsets = tensor->numbers[i], .sizes = tensor->numbers[i] + 2};
    return &tensor->entry;
}

static void set_piece(struct tensor *tensor, size_t piece, int64_t row, int64_t column,
                      int64_t rows, int64_t columns)
{
    tensor->numbers[piece][0] = row;
    tensor->numbers[piece][1] = column;
    tensor->numbers[piece][2] = rows;
    tensor->numbers[piece][3] = columns;
}

static void expect(const struct metadata_entry *entry, dcp_status status, const char *message)
{
    assert_int_equal(metadata_check_entry(entry), status);
    if (message && !strstr(dcp_error_message(), message))
        fail_msg("\"%s\" does not say \"%s\"", dcp_error_message(), message);
}

static void whole_tensors_pass(void **state)
{
    (void)state;
    struct tensor tensor;
    struct metadata_entry *entry = tensor_of(&tensor, 5, 6, 1);
    set_piece(&tensor, 0, 0, 0, 5, 6);
    expect(entry, DCP_OK, NULL);
    entry->piece_count = 4;
    set_piece(&tensor, 0, 0, 0, 3, 3);
    set_piece(&tensor, 1, 0, 3, 3, 3);
    set_piece(&tensor, 2, 3, 0, 2, 5);
    set_piece(&tensor, 3, 3, 5, 2, 1);
    expect(entry, DCP_OK, NULL);
}

static void pieces_without_elements_are_allowed(void **state)
{
    (void)state;
    struct tensor tensor;
    struct metadata_entry *entry = tensor_of(&tensor, 3, 2, 4);
    set_piece(&tensor, 0, 0, 0, 2, 2);
    set_piece(&tensor, 1, 2, 0, 1, 2);
    set_piece(&tensor, 2, 3, 0, 0, 2); /* at the end, as uneven shards have it */
    set_piece(&tensor, 3, 1, 1, 0, 1); /* inside another one */
    expect(entry, DCP_OK, NULL);
    entry = tensor_of(&tensor, 0, 2, 1);
    expect(entry, DCP_OK, NULL);
    entry->piece_count = 0;
    expect(entry, DCP_OK, NULL);
}

static void slabs_in_order_need_no_sorting(void **state)
{
    (void)state;
    struct tensor tensor;
    struct metadata_entry *entry = tensor_of(&tensor, 5, 6, 3);
    set_piece(&tensor, 0, 0, 0, 5, 1);
    set_piece(&tensor, 1, 0, 1, 5, 5);
    set_piece(&tensor, 2, 0, 6, 5, 0);
    failing_allocator_install(1, true);
    expect(entry, DCP_OK, NULL);
    set_piece(&tensor, 1, 0, 2, 5, 4);
    expect(entry, DCP_ERR_NO_MEMORY, NULL);
    assert_int_equal(failing_allocator_remove(), 0);
    expect(entry, DCP_ERR_COVERAGE, "[0:5, 1:2]");
    set_piece(&tensor, 1, 0, 1, 4, 5);
    expect(entry, DCP_ERR_COVERAGE, "[4:5, 1:6]");
    set_piece(&tensor, 1, 0, 0, 5, 6);
    expect(entry, DCP_ERR_OVERLAP, "overlap");
}

static void scalars_have_one_piece(void **state)
{
    (void)state;
    struct tensor tensor;
    struct metadata_entry *entry = tensor_of(&tensor, 0, 0, 1);
    entry->ndim = 0;
    expect(entry, DCP_OK, NULL);
    entry->piece_count = 2;
    expect(entry, DCP_ERR_OVERLAP, "chunks 0 [] and 1 [] overlap");
    entry->piece_count = 0;
    expect(entry, DCP_ERR_COVERAGE, "no chunk holds []");
}

static void holes_are_reported(void **state)
{
    (void)state;
    struct tensor tensor;
    struct metadata_entry *entry = tensor_of(&tensor, 5, 6, 2);
    set_piece(&tensor, 0, 0, 0, 3, 6);
    set_piece(&tensor, 1, 4, 0, 1, 6);
    expect(entry, DCP_ERR_COVERAGE,
           "\"model.w\": no chunk holds [3:4, 0:6]; 6 elements are missing in all");
    entry->piece_count = 0;
    expect(entry, DCP_ERR_COVERAGE, "[0:5, 0:6]");
}

static void overlaps_are_reported(void **state)
{
    (void)state;
    struct tensor tensor;
    struct metadata_entry *entry = tensor_of(&tensor, 5, 6, 3);
    set_piece(&tensor, 0, 0, 0, 3, 6);
    set_piece(&tensor, 1, 3, 0, 2, 4);
    set_piece(&tensor, 2, 2, 4, 3, 2);
    expect(entry, DCP_ERR_OVERLAP, "chunks 0 [0:3, 0:6] and 2 [2:5, 4:6] overlap");
}

static void impossible_numbers_are_reported(void **state)
{
    (void)state;
    struct tensor tensor;
    struct metadata_entry *entry = tensor_of(&tensor, 5, 6, 2);
    set_piece(&tensor, 0, 0, 0, 3, 6);
    set_piece(&tensor, 1, 3, 0, 3, 6);
    expect(entry, DCP_ERR_FORMAT, "chunk 1 at [3, 0] of sizes [3, 6] is not inside");
    set_piece(&tensor, 1, INT64_MAX, 0, INT64_MAX, 6);
    expect(entry, DCP_ERR_FORMAT, "not inside the shape [5, 6]");
    set_piece(&tensor, 1, -1, 0, 3, 6);
    expect(entry, DCP_ERR_FORMAT, "[-1, 0]");

    entry = tensor_of(&tensor, INT64_MAX, 2, 0);
    expect(entry, DCP_ERR_FORMAT, "impossible shape [9223372036854775807, 2]");
    entry = tensor_of(&tensor, -1, 2, 0);
    expect(entry, DCP_ERR_FORMAT, "impossible shape [-1, 2]");
    entry->ndim = DCP_MAX_DIMS + 1;
    expect(entry, DCP_ERR_FORMAT, "65 dimensions");
    entry->ndim = -1;
    expect(entry, DCP_ERR_FORMAT, "-1 dimensions");
    entry = tensor_of(&tensor, 1, 2, 0);
    entry->dtype = DCP_DTYPE_NONE;
    expect(entry, DCP_ERR_FORMAT, "no dtype");
}

static void objects_have_one_piece(void **state)
{
    (void)state;
    struct metadata_piece piece = {0};
    struct metadata_entry entry = {.name = "step", .pieces = &piece, .piece_count = 1};
    expect(&entry, DCP_OK, NULL);
    entry.piece_count = 0;
    expect(&entry, DCP_ERR_FORMAT, "the object \"step\" has 0 pieces");
    entry.piece_count = 2;
    expect(&entry, DCP_ERR_FORMAT, "2 pieces");
}

static void names_are_indexed(void **state)
{
    (void)state;
    enum { NAMES = 1000 };
    struct metadata metadata;
    metadata_init(&metadata);
    assert_string_equal(metadata.save_id, "");
    metadata.entries = arena_allocate_array(&metadata.arena, NAMES, sizeof *metadata.entries);
    metadata.count = NAMES;
    for (int i = 0; i < NAMES; i++) {
        char name[32];
        int length = snprintf(name, sizeof name, "layers.%d", i);
        metadata.entries[i] =
            (struct metadata_entry){.name = arena_copy_text(&metadata.arena, name, (size_t)length)};
    }
    assert_int_equal(metadata_index(&metadata), DCP_OK);
    assert_ptr_equal(metadata_find(&metadata, "layers.77"), &metadata.entries[77]);
    assert_null(metadata_find(&metadata, "layers"));
    metadata_free(&metadata);
    assert_int_equal(metadata.count, 0);
    metadata_free(&metadata);
}

static void equal_names_are_refused(void **state)
{
    (void)state;
    struct metadata_entry entries[] = {{.name = "a"}, {.name = "b"}, {.name = "a"}};
    struct metadata metadata;
    metadata_init(&metadata);
    metadata.entries = entries;
    metadata.count = 3;
    assert_int_equal(metadata_index(&metadata), DCP_ERR_DUPLICATE);
    assert_string_equal(dcp_error_message(), "the name \"a\" is entry 0 and entry 2");
    metadata_free(&metadata);
}

static int attachments_freed;

static void free_attachment(void *attachment)
{
    attachments_freed += *(int *)attachment;
}

static void attachments_are_freed(void **state)
{
    (void)state;
    int attachment = 5;
    struct metadata metadata;
    metadata_init(&metadata);
    metadata.attachment = &attachment;
    metadata.free_attachment = free_attachment;
    metadata_free(&metadata);
    metadata_free(&metadata);
    assert_int_equal(attachments_freed, 5);
}

static void memory_failures_are_reported(void **state)
{
    (void)state;
    struct tensor tensor;
    struct metadata_entry *entry = tensor_of(&tensor, 5, 6, 3);
    set_piece(&tensor, 0, 0, 0, 3, 6);
    set_piece(&tensor, 1, 4, 0, 1, 3);
    set_piece(&tensor, 2, 4, 3, 1, 3);
    for (long n = 1;; n++) {
        struct metadata metadata;
        failing_allocator_install(n, false);
        metadata_init(&metadata);
        metadata.entries = entry;
        metadata.count = 1;
        dcp_status status = metadata_index(&metadata);
        if (status == DCP_OK)
            status = metadata_check_entry(entry);
        metadata_free(&metadata);
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        if (!reached) {
            assert_int_equal(status, DCP_ERR_COVERAGE);
            break;
        }
        assert_int_equal(status, DCP_ERR_NO_MEMORY);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_tensors_pass),
        cmocka_unit_test(pieces_without_elements_are_allowed),
        cmocka_unit_test(slabs_in_order_need_no_sorting),
        cmocka_unit_test(scalars_have_one_piece),
        cmocka_unit_test(holes_are_reported),
        cmocka_unit_test(overlaps_are_reported),
        cmocka_unit_test(impossible_numbers_are_reported),
        cmocka_unit_test(objects_have_one_piece),
        cmocka_unit_test(names_are_indexed),
        cmocka_unit_test(equal_names_are_refused),
        cmocka_unit_test(attachments_are_freed),
        cmocka_unit_test(memory_failures_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
