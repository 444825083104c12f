/* SPDX-License-Identifier: BSD-3-Clause */
/* What `dcp ls` and `dcp verify` do, over a storage of the caller's own: entries, chunks, reading
 * them, and faults. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/load_scene.h"
#include "checkpoint/own_storage.h"

static void entries_and_chunks_are_listed(void **state)
{
    struct own_storage own;
    dcp_checkpoint *checkpoint;
    dcp_stored_chunk chunk;
    dcp_entry entry;
    size_t index, entries;
    own_storage_init(&own, *state);
    const dcp_open_options options = {.storage = &own.table};
    must(dcp_checkpoint_open("store://c", &options, &checkpoint));
    assert_int_equal(own.data, 0); /* the metadata is enough */
    entries = dcp_checkpoint_count(checkpoint);
    assert_true(entries >= 4);
    for (size_t i = 0; i < entries; i++)
        must(dcp_checkpoint_entry(checkpoint, i, &entry));
    must(dcp_checkpoint_find(checkpoint, "w", &index));
    must(dcp_checkpoint_entry(checkpoint, index, &entry));
    assert_true(entry.is_tensor);
    assert_int_equal(entry.dtype, DCP_F32);
    assert_int_equal(entry.global_shape[0], SCENE_ROWS);
    assert_int_equal(entry.chunk_count, 2);
    must(dcp_checkpoint_chunk(checkpoint, index, 1, &chunk));
    assert_string_equal(chunk.file, "__1_0.distcp");
    assert_int_equal(chunk.offsets[0], SCENE_ROWS / 2);
    must_fail(dcp_checkpoint_find(checkpoint, "x", &index), DCP_ERR_NOT_FOUND, "x");
    dcp_checkpoint_close(checkpoint);
    assert_int_equal(own.open, 0);
}

/* The table is read by dcp_checkpoint_open(), and may go; what its context points to may not. */
static void what_is_listed_can_be_read(void **state)
{
    struct own_storage own;
    dcp_checkpoint *checkpoint;
    dcp_mapping *mapping;
    dcp_mapped_chunk mapped;
    float b[SCENE_COLUMNS] = {0}, column[SCENE_ROWS];
    int64_t step = 0;
    size_t index;
    const dcp_tensor vector = {
        .dtype = DCP_F32, .ndim = 1, .data = b, .global_shape = {SCENE_COLUMNS}};
    const dcp_tensor part = {.dtype = DCP_F32,
                             .ndim = 2,
                             .sharded = true,
                             .data = column,
                             .global_shape = {SCENE_ROWS, SCENE_COLUMNS},
                             .offsets = {0, 3},
                             .sizes = {SCENE_ROWS, 1}};
    own_storage_init(&own, *state);
    dcp_storage table = own.table;
    const dcp_open_options options = {.storage = &table};
    must(dcp_checkpoint_open("store://c", &options, &checkpoint));
    memset(&table, 0xa5, sizeof table);
    must(dcp_checkpoint_find(checkpoint, "b", &index));
    must(dcp_checkpoint_read_tensor(checkpoint, index, &vector, NULL));
    assert_true(b[0] == 7 && b[5] == 12);
    must_fail(dcp_checkpoint_map_chunk(checkpoint, index, 0, NULL, &mapping, &mapped),
              DCP_ERR_UNSUPPORTED, ".distcp: the storage cannot map files");
    must(dcp_checkpoint_find(checkpoint, "w", &index));
    must(dcp_checkpoint_read_tensor(checkpoint, index, &part, NULL));
    assert_true(column[0] == 3 && column[SCENE_ROWS - 1] == 100 * (SCENE_ROWS - 1) + 3);
    must(dcp_checkpoint_find(checkpoint, "step", &index));
    dcp_state *state_read = dcp_state_new();
    must(dcp_checkpoint_read_object(checkpoint, index, state_read, "step", NULL));
    must(dcp_state_as_int(dcp_state_find(state_read, "step"), &step));
    assert_int_equal(step, 1000);
    dcp_state_free(state_read);
    dcp_checkpoint_close(checkpoint);
    assert_int_equal(own.open, 0);
}

struct faults {
    uint64_t count;
    char file[128];
};

static void note_fault(void *context, const char *file, uint64_t offset, const char *name,
                       const char *fault)
{
    struct faults *faults = context;
    (void)offset, (void)name, (void)fault;
    faults->count++;
    snprintf(faults->file, sizeof faults->file, "%s", file);
}

static void verifying_finds_what_is_wrong(void **state)
{
    struct own_storage own;
    uint64_t count = 1;
    own_storage_init(&own, *state);
    const dcp_open_options options = {.storage = &own.table};
    must(dcp_verify("store://c", &options, NULL, NULL, &count));
    assert_int_equal(count, 0);

    struct faults faults = {.count = 0};
    own.damaged = "__1_0.distcp";
    own.damaged_at = 300;
    must(dcp_verify("store://c", &options, note_fault, &faults, &count));
    assert_true(count > 0 && faults.count == count);
    assert_string_equal(faults.file, "__1_0.distcp");

    faults = (struct faults){.count = 0};
    own.damaged = NULL;
    own.missing = "__0_0.distcp";
    must(dcp_verify("store://c", &options, note_fault, &faults, &count));
    assert_true(count > 0);
    assert_string_equal(faults.file, "__0_0.distcp");
    assert_int_equal(own.open, 0);
}

static void what_cannot_be_opened_says_why(void **state)
{
    struct own_storage own;
    dcp_checkpoint *checkpoint;
    own_storage_init(&own, *state);
    const dcp_open_options options = {.storage = &own.table};
    must_fail(dcp_checkpoint_open("store://nothing", &options, &checkpoint), DCP_ERR_NOT_FOUND,
              "nothing");
    assert_null(checkpoint);
    must_fail(dcp_checkpoint_open("other://c", &options, &checkpoint), DCP_ERR_UNSUPPORTED,
              "no storage takes \"other://c\"");
    must_fail(dcp_checkpoint_open("", &options, &checkpoint), DCP_ERR_ARGUMENT, "needs a path");
    own.fails_at = own.calls + 1;
    must_fail(dcp_checkpoint_open("store://c", &options, &checkpoint), DCP_ERR_IO,
              "the store is away");
    own.fails_in = "read";
    own.fails_at = own.calls + 1;
    must_fail(dcp_checkpoint_open("store://c", &options, &checkpoint), DCP_ERR_IO,
              "the store is away, read of .metadata");
    assert_int_equal(own.open, 0);
}

static int setup(void **state)
{
    if (directory_setup(state) != 0)
        return -1;
    ranks_must(2, path_in(state, "c"), scene_save, NULL);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_and_chunks_are_listed),
        cmocka_unit_test(what_is_listed_can_be_read),
        cmocka_unit_test(verifying_finds_what_is_wrong),
        cmocka_unit_test(what_cannot_be_opened_says_why),
    };
    return cmocka_run_group_tests(tests, setup, directory_teardown);
}
