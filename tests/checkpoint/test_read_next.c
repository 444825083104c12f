/* SPDX-License-Identifier: BSD-3-Clause */
/* Files that are opened before their turn, or cannot be: for what is read after a part of a tensor,
 * and to look whether that goes around the page cache. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dcp.h>
#include <stdlib.h>

#include "fault/failing_allocator.h"
#include "fault/simulated_file_system.h"
#include "state/box.h"
#include "storage/shard/shard_file.h"
#include "storage/shard/shard_read_needs.h"
#include "storage/shard/shard_reader.h"

#define PATH "c"

enum { ELEMENTS = 1 << 20 };

/* An open checkpoint with two large tensors, each in a file. */
struct stored {
    struct simulated_file_system *fs;
    int32_t *elements;
    struct metadata metadata;
    struct shard_reader *reader;
};

static int setup(void **state)
{
    struct stored *stored = *state = calloc(1, sizeof *stored);
    stored->fs = simulated_new();
    stored->elements = calloc(ELEMENTS, sizeof *stored->elements);
    return 0;
}

static int teardown(void **state)
{
    struct stored *stored = *state;
    simulated_free(stored->fs);
    free(stored->elements);
    free(stored);
    return 0;
}

static void save(struct stored *stored)
{
    const dcp_tensor tensor = {
        .dtype = DCP_I32, .ndim = 1, .global_shape = {ELEMENTS}, .data = stored->elements};
    const dcp_save_options options = {.storage = simulated_storage(stored->fs),
                                      .files = DCP_FILE_PER_ITEM};
    dcp_state *root = dcp_state_new();
    for (int i = 0; i < ELEMENTS; i++)
        stored->elements[i] = i;
    dcp_state_tensor(root, "a", &tensor);
    dcp_state_tensor(root, "b", &tensor);
    assert_int_equal(dcp_save(root, PATH, &options), DCP_OK);
    dcp_state_free(root);
}

static void open_stored(struct stored *stored)
{
    enum storage_form form;
    assert_int_equal(storage_read_metadata(simulated_storage(stored->fs), storage_at(PATH), &form,
                                           &stored->metadata, &stored->reader),
                     DCP_OK);
}

static void close_stored(struct stored *stored)
{
    shard_reader_free(stored->reader);
    metadata_free(&stored->metadata);
    assert_int_equal(simulated_open_descriptors(stored->fs), 0);
}

static struct shard_piece *open_piece(const struct stored *stored, size_t index)
{
    const struct metadata_entry *entry = &stored->metadata.entries[index];
    const struct box whole = {1, entry->pieces->offsets, entry->pieces->sizes};
    struct shard_piece *piece;
    assert_int_equal(shard_piece_open(stored->reader, entry, entry->pieces, whole, false,
                                      DCP_VERIFY_ALL, NULL, &piece),
                     DCP_OK);
    return piece;
}

static void foresee_second(const struct stored *stored, struct shard_piece *first)
{
    const struct metadata_entry *second = &stored->metadata.entries[1];
    shard_piece_foresee(first, second, second->pieces, 0, ELEMENTS);
}

static void check_elements(const struct stored *stored, struct shard_piece *piece)
{
    const int64_t zero = 0, all = ELEMENTS;
    int32_t *read = calloc(ELEMENTS, sizeof *read);
    assert_int_equal(shard_piece_read_span(piece, (struct box){1, &zero, &all}, 0, all, read),
                     DCP_OK);
    assert_int_equal(shard_piece_end(piece, ELEMENTS * sizeof *read), DCP_OK);
    assert_memory_equal(read, stored->elements, ELEMENTS * sizeof *read);
    free(read);
}

/* Reads both, after what happened to the first. */
static void check_both(const struct stored *stored, struct shard_piece *first)
{
    check_elements(stored, first);
    shard_piece_close(first);
    struct shard_piece *second = open_piece(stored, 1);
    check_elements(stored, second);
    shard_piece_close(second);
}

static void the_next_file_is_opened(void **state)
{
    struct stored *stored = *state;
    save(stored);
    open_stored(stored);
    struct shard_piece *first = open_piece(stored, 0);
    foresee_second(stored, first);
    assert_int_equal(stored->reader->open_count, 2);
    foresee_second(stored, first);
    check_both(stored, first);
    close_stored(stored);
}

/* So that no more files are open than counted. */
static void under_a_limit_it_is_not(void **state)
{
    const struct shard_read_how least = shard_read_how_least();
    struct stored *stored = *state;
    save(stored);
    open_stored(stored);
    shard_reader_set_how(stored->reader, &least);
    struct shard_piece *first = open_piece(stored, 0);
    foresee_second(stored, first);
    assert_int_equal(stored->reader->open_count, 1);
    check_both(stored, first);
    close_stored(stored);
}

static void fail_operation(const struct stored *stored, long n)
{
    const struct simulated_fault fault = {
        .operation = n, .kind = SIMULATED_ERROR, .error_number = EIO};
    simulated_set_fault(stored->fs, &fault);
}

/* Neither error is of the part that is read meanwhile, nor does it last. */
static void a_file_that_cannot_be_opened_early_is_opened_later(void **state)
{
    struct stored *stored = *state;
    bool reached = true;
    save(stored);
    for (long n = 1; reached; n++) {
        open_stored(stored);
        struct shard_piece *first = open_piece(stored, 0);
        fail_operation(stored, n);
        foresee_second(stored, first);
        reached = simulated_fault_reached(stored->fs);
        simulated_set_fault(stored->fs, NULL);
        assert_true(reached || n > 1);
        check_both(stored, first);
        close_stored(stored);
    }
}

static void nor_need_there_be_memory_for_it(void **state)
{
    struct stored *stored = *state;
    bool reached = true;
    save(stored);
    for (long n = 1; reached; n++) {
        open_stored(stored);
        struct shard_piece *first = open_piece(stored, 0);
        failing_allocator_install(n, false);
        foresee_second(stored, first);
        reached = failing_allocator_reached();
        failing_allocator_remove();
        assert_true(reached || n > 1);
        check_both(stored, first);
        close_stored(stored);
    }
}

/* Looking is no more than that. */
static void looking_at_a_file_that_cannot_be_opened_is_no_error(void **state)
{
    struct stored *stored = *state;
    bool reached = true;
    int refused = 0;
    save(stored);
    for (long n = 1; reached; n++) {
        open_stored(stored);
        fail_operation(stored, n);
        bool bypasses = shard_reader_bypasses_cache(stored->reader, 0, 0);
        reached = simulated_fault_reached(stored->fs);
        simulated_set_fault(stored->fs, NULL);
        assert_true(bypasses || reached);
        assert_string_equal(dcp_error_message(), "");
        refused += !bypasses;
        check_both(stored, open_piece(stored, 0));
        close_stored(stored);
    }
    assert_true(refused > 0);
}

#define next_test(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        next_test(the_next_file_is_opened),
        next_test(under_a_limit_it_is_not),
        next_test(a_file_that_cannot_be_opened_early_is_opened_later),
        next_test(nor_need_there_be_memory_for_it),
        next_test(looking_at_a_file_that_cannot_be_opened_is_no_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
