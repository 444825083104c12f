/* SPDX-License-Identifier: BSD-3-Clause */
/* Listing directories of storages, removing files, and removing checkpoints: in an order in which
 * nothing half removed looks whole, without touching what is no checkpoint's. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "fault/failing_allocator.h"
#include "storage/commit/save_owner.h"

/* ---- names ---- */

struct names {
    char text[1024]; /* each with a space behind it */
    int limit;       /* fails at this one; 0: never */
    int count;
};

static dcp_status take_name(void *context, const char *name)
{
    struct names *names = context;
    if (++names->count == names->limit)
        return dcp_error_set(DCP_ERR_IO, "enough names");
    size_t length = strlen(names->text);
    snprintf(names->text + length, sizeof names->text - length, "%s ", name);
    return DCP_OK;
}

static void expect_names(const dcp_storage *storage, const char *id, const char *expected)
{
    struct names names = {0};
    must(dcp_storage_list(storage, id, take_name, &names));
    assert_string_equal(names.text, expected);
}

static void expect_none(const dcp_storage *storage, const char *id)
{
    must_fail(dcp_storage_list(storage, id, take_name, NULL), DCP_ERR_NOT_FOUND, "no such");
}

/* A small file that no save makes. */
static void put_file(const dcp_storage *storage, const char *id, const char *name)
{
    struct storage_directory directory;
    struct storage_publication publication;
    bool visible;
    must(storage_directory_open(&directory, storage, id, DCP_OPEN_CREATE, NULL));
    must(storage_publication_prepare(&publication, &directory, name, "x", 1, false));
    must(storage_publication_publish(&publication, DCP_PUBLISH_ALWAYS, &visible));
    storage_directory_close(&directory);
}

static void save_two_files(const dcp_storage *storage, const char *id)
{
    float values[4] = {1, 2, 3, 4};
    dcp_tensor tensor = {.dtype = DCP_F32, .ndim = 1, .global_shape = {4}, .data = values};
    dcp_save_options options = {
        .storage = storage, .files = DCP_FILE_PER_ITEM, .overwrite = DCP_OVERWRITE_REPLACE};
    dcp_state *root = dcp_state_new();
    dcp_state_tensor(root, "a", &tensor);
    dcp_state_int(root, "b", 5);
    must(dcp_save(root, id, &options));
    dcp_state_free(root);
}

/* ---- both storages ---- */

static void try_names(const dcp_storage *storage, const char *id)
{
    struct names names = {.limit = 2};
    save_two_files(storage, id);
    put_file(storage, id, "notes.txt");
    expect_names(storage, id, ".metadata __0_0.distcp __0_1.distcp metadata.json notes.txt ");
    must_fail(dcp_storage_list(storage, id, take_name, &names), DCP_ERR_IO, "enough names");
    assert_int_equal(names.count, 2);
    must(dcp_storage_remove(storage, id, "notes.txt"));
    must_fail(dcp_storage_remove(storage, id, "notes.txt"), DCP_ERR_NOT_FOUND, "notes.txt");
    must_fail(dcp_storage_remove(storage, id, "../notes.txt"), DCP_ERR_ARGUMENT, "is not the name");
    expect_names(storage, id, ".metadata __0_0.distcp __0_1.distcp metadata.json ");
}

static void try_removal(const dcp_storage *storage, const char *id)
{
    struct names names = {0};
    dcp_removal removal;
    dcp_remove_options options = {
        .storage = storage, .foreign = take_name, .foreign_context = &names};
    save_two_files(storage, id);
    put_file(storage, id, "notes.txt");
    put_file(storage, id, "__0_7.g3.distcp"); /* of a save that was interrupted */
    put_file(storage, id, ".metadata.tmp");
    must(dcp_checkpoint_remove(id, &options, &removal));
    assert_int_equal(removal.removed, 6);
    assert_int_equal(removal.foreign, 1);
    assert_string_equal(names.text, "notes.txt ");
    expect_names(storage, id, "notes.txt ");
    put_file(storage, id, "metadata.json");
    must_fail(dcp_checkpoint_remove(id, &options, &removal), DCP_ERR_NOT_FOUND, "no checkpoint");
    assert_int_equal(removal.removed, 0);
    expect_names(storage, id, "metadata.json notes.txt ");
}

static void try_busy(const dcp_storage *storage, const char *id)
{
    struct storage_directory directory;
    struct save_owner *owner;
    char save_id[SAVE_ID_SIZE];
    bool taken_over;
    dcp_remove_options options = {.storage = storage};
    save_two_files(storage, id);
    must(storage_directory_open(&directory, storage, id, 0, NULL));
    must(save_id_make(save_id));
    must(save_owner_take(&directory, ALL_RANKS, save_id, 60, &owner, &taken_over));
    must_fail(dcp_checkpoint_remove(id, &options, NULL), DCP_ERR_BUSY, save_id);
    expect_names(storage, id, ".dcp_owner .metadata __0_0.distcp __0_1.distcp metadata.json ");
    save_owner_free(owner, &directory);
    put_file(storage, id, ".dcp_owner"); /* torn: stale */
    must(dcp_checkpoint_remove(id, &options, NULL));
    expect_none(storage, id);
    storage_directory_close(&directory);
}

/* An interrupted removal has left its mark and nothing else. */
static void try_last_mark(const dcp_storage *storage, const char *id)
{
    dcp_remove_options options = {.storage = storage};
    put_file(storage, id, ".dcp_owner");
    must(dcp_checkpoint_remove(id, &options, NULL));
    expect_none(storage, id);
}

static void test_files(void **state)
{
    const dcp_storage *files = dcp_storage_files();
    needs_files();
    try_names(files, path_in(state, "names"));
    try_removal(files, path_in(state, "removal"));
    try_busy(files, path_in(state, "busy"));
    try_last_mark(files, path_in(state, "mark"));
    save_two_files(NULL, path_in(state, "default"));
    must(dcp_checkpoint_remove(path_in(state, "default"), NULL, NULL));
    expect_none(NULL, path_in(state, "default"));
    must_fail(dcp_storage_list(NULL, path_in(state, "none"), take_name, NULL), DCP_ERR_NOT_FOUND,
              "none");
    must_fail(dcp_storage_remove(NULL, path_in(state, "none"), "a"), DCP_ERR_NOT_FOUND, "none");
    must_fail(dcp_checkpoint_remove(path_in(state, "none"), NULL, NULL), DCP_ERR_NOT_FOUND, "none");
}

/* Ways to write where the directory is, and what keeps it. */
static void test_directories(void **state)
{
    char path[512], target[512];
    needs_files();
    const char *above = path_in(state, "above");
    snprintf(target, sizeof target, "%s/c", above);
    snprintf(path, sizeof path, "%s/c//", above);
    save_two_files(NULL, path);
    must(dcp_checkpoint_remove(path, NULL, NULL));
    expect_none(NULL, target);
    expect_names(NULL, above, "");
    snprintf(path, sizeof path, "%s/c/.", above);
    save_two_files(NULL, path);
    must(dcp_checkpoint_remove(path, NULL, NULL));
    expect_names(NULL, target, "");
    save_two_files(NULL, target);
    snprintf(path, sizeof path, "%s/latest", above);
    assert_int_equal(symlink("c", path), 0);
    must(dcp_checkpoint_remove(path, NULL, NULL));
    expect_names(NULL, target, "");
    save_two_files(NULL, path);
    snprintf(path, sizeof path, "%s/c/logs", above);
    assert_int_equal(mkdir(path, 0777), 0);
    must(dcp_checkpoint_remove(target, NULL, NULL));
    expect_names(NULL, target, "logs ");
    /* Relative, from the directory above. */
    int here = open(".", O_RDONLY | O_DIRECTORY);
    assert_int_equal(rmdir(path), 0);
    save_two_files(NULL, target);
    assert_int_equal(chdir(above), 0);
    must(dcp_checkpoint_remove("c", NULL, NULL));
    expect_none(NULL, target);
    assert_int_equal(fchdir(here), 0);
    close(here);
}

/* Without memory to find it again it stays, and the checkpoint is gone all the same. */
static void test_memory_that_is_refused(void **state)
{
    needs_files();
    long stays = 0;
    for (long n = 1;; n++) {
        struct stat found;
        const char *path = path_in(state, "scarce");
        save_two_files(NULL, path);
        failing_allocator_install(n, false);
        dcp_status status = dcp_checkpoint_remove(path, NULL, NULL);
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        assert_true(status == DCP_OK || (reached && status == DCP_ERR_NO_MEMORY));
        bool gone = stat(path, &found) != 0;
        stays += status == DCP_OK && !gone;
        if (!reached) {
            assert_true(gone && stays > 0);
            return;
        }
    }
}

/* Another directory has its name by then: it is somebody else's. */
static char exchanged[512];

static dcp_status exchange_directory(void *context, void *directory)
{
    char aside[600];
    snprintf(aside, sizeof aside, "%s.aside", exchanged);
    assert_int_equal(rename(exchanged, aside), 0);
    assert_int_equal(mkdir(exchanged, 0777), 0);
    return dcp_storage_files()->remove_directory(context, directory);
}

static void test_exchanged_directory(void **state)
{
    dcp_storage exchanging = *dcp_storage_files();
    needs_files();
    exchanging.remove_directory = exchange_directory;
    dcp_remove_options options = {.storage = &exchanging};
    snprintf(exchanged, sizeof exchanged, "%s", path_in(state, "c"));
    save_two_files(NULL, exchanged);
    must(dcp_checkpoint_remove(exchanged, &options, NULL));
    expect_names(NULL, exchanged, "");
    expect_names(NULL, path_in(state, "c.aside"), "");
}

/* Removing the directory fails: it is said, and that is all. */
static char logged[512];

static void keep_line(void *context, dcp_log_level level, const char *line)
{
    (void)context, (void)level;
    snprintf(logged, sizeof logged, "%s", line);
}

static dcp_status fail_to_remove_directory(void *context, void *directory)
{
    (void)context, (void)directory;
    return dcp_error_set(DCP_ERR_IO, "it is nailed down");
}

static void test_directory_that_stays(void **state)
{
    dcp_storage *memory, failing;
    dcp_removal removal;
    (void)state;
    must(dcp_storage_memory_new(&memory));
    failing = *memory;
    failing.remove_directory = fail_to_remove_directory;
    dcp_remove_options options = {.storage = &failing};
    save_two_files(memory, "c");
    dcp_set_log(keep_line, NULL, DCP_LOG_WARNING);
    must(dcp_checkpoint_remove("c", &options, &removal));
    dcp_set_log(NULL, NULL, DCP_LOG_WARNING);
    assert_string_equal(logged, "c stays: it is nailed down");
    assert_int_equal(removal.removed, 4);
    expect_names(memory, "c", "");
    failing.remove_directory = NULL;
    save_two_files(memory, "c");
    must(dcp_checkpoint_remove("c", &options, &removal));
    expect_names(memory, "c", "");
    dcp_storage_memory_free(memory);
}

static void test_memory(void **state)
{
    dcp_storage *memory;
    (void)state;
    must(dcp_storage_memory_new(&memory));
    try_names(memory, "names");
    try_removal(memory, "removal");
    try_busy(memory, "busy");
    try_last_mark(memory, "mark");
    save_two_files(memory, "a");
    save_two_files(memory, "a/b");
    must(dcp_checkpoint_remove("a", &(dcp_remove_options){.storage = memory}, NULL));
    expect_names(memory, "a", "b ");
    dcp_storage_memory_free(memory);
}

static void test_arguments(void **state)
{
    dcp_remove_options options = {.takeover_seconds = -1};
    (void)state;
    must_fail(dcp_checkpoint_remove(NULL, NULL, NULL), DCP_ERR_ARGUMENT, "path");
    must_fail(dcp_checkpoint_remove("x", &options, NULL), DCP_ERR_ARGUMENT, "takeover_seconds");
    must_fail(dcp_storage_list(NULL, "x", NULL, NULL), DCP_ERR_ARGUMENT, "visitor");
    must_fail(dcp_storage_remove(NULL, "x", NULL), DCP_ERR_ARGUMENT, "name");
}

/* ---- owned by the program ---- */

static void test_owned_by_the_program(void **state)
{
    dcp_storage *memory;
    dcp_owner *owner, *second;
    (void)state;
    must(dcp_storage_memory_new(&memory));
    const dcp_owner_options options = {.storage = memory};
    const dcp_remove_options removing = {.storage = memory};
    must(dcp_owner_take("a", &options, &owner));
    expect_names(memory, "a", ".dcp_owner ");
    must_fail(dcp_owner_take("a", &options, &second), DCP_ERR_BUSY, ".dcp_owner");
    assert_null(second);
    must_fail(dcp_checkpoint_remove("a", &removing, NULL), DCP_ERR_BUSY, ".dcp_owner");
    must(dcp_owner_check(owner));
    must(dcp_storage_remove(memory, "a", ".dcp_owner"));
    must_fail(dcp_owner_check(owner), DCP_ERR_BUSY, "nothing is committed");
    dcp_owner_release(owner);
    save_two_files(memory, "a");
    must(dcp_owner_take("a", &options, &owner));
    dcp_owner_release(owner);
    expect_names(memory, "a", ".metadata __0_0.distcp __0_1.distcp metadata.json ");
    dcp_owner_release(NULL);
    must_fail(dcp_owner_take(NULL, NULL, &owner), DCP_ERR_ARGUMENT, "path");
    must_fail(dcp_owner_take("a", &(dcp_owner_options){.takeover_seconds = -1}, &owner),
              DCP_ERR_ARGUMENT, "takeover_seconds");
    must_fail(dcp_owner_check(NULL), DCP_ERR_ARGUMENT, "owner");
    dcp_storage_memory_free(memory);
}

static void test_owning_a_directory_removes_what_it_made(void **state)
{
    const char *path = path_in(state, "made");
    dcp_owner *owner;
    needs_files();
    must(dcp_owner_take(path, NULL, &owner));
    assert_int_equal(access(path, F_OK), 0);
    dcp_owner_release(owner);
    assert_int_not_equal(access(path, F_OK), 0);
}

/* ---- interrupted at each file ---- */

static const dcp_storage *below;
static int removals_left; /* until all fail */

static dcp_status fail_to_remove(void *context, void *directory, const char *name)
{
    if (removals_left == 0)
        return dcp_error_set(DCP_ERR_IO, "%s cannot be removed", name);
    removals_left--;
    return below->remove(context, directory, name);
}

/* Whenever it stops: either all of the checkpoint is there, or opening it fails; and a second
 * removal ends the first one. */
static void test_interrupted(void **state)
{
    dcp_storage *memory, failing;
    dcp_checkpoint *checkpoint;
    int stops = 0;
    (void)state;
    must(dcp_storage_memory_new(&memory));
    below = memory;
    failing = *memory;
    failing.remove = fail_to_remove;
    dcp_remove_options options = {.storage = &failing}, plain = {.storage = memory};
    dcp_open_options open = {.storage = memory};
    for (int n = 0;; n++) {
        dcp_removal removal;
        save_two_files(memory, "c");
        removals_left = n;
        dcp_status status = dcp_checkpoint_remove("c", &options, &removal);
        if (status == DCP_OK)
            break;
        assert_int_equal(status, DCP_ERR_IO);
        assert_int_equal(removal.removed, n);
        stops++;
        if (n == 0) {
            must(dcp_checkpoint_open("c", &open, &checkpoint));
            dcp_checkpoint_close(checkpoint);
        } else {
            must_fail(dcp_checkpoint_open("c", &open, &checkpoint), DCP_ERR_NOT_FOUND, "c");
        }
        must(dcp_checkpoint_remove("c", &plain, NULL));
        expect_none(memory, "c");
    }
    assert_int_equal(stops, 4);
    dcp_storage_memory_free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_files, directory_setup, directory_teardown),
        cmocka_unit_test_setup_teardown(test_directories, directory_setup, directory_teardown),
        cmocka_unit_test_setup_teardown(test_memory_that_is_refused, directory_setup,
                                        directory_teardown),
        cmocka_unit_test_setup_teardown(test_exchanged_directory, directory_setup,
                                        directory_teardown),
        cmocka_unit_test(test_directory_that_stays),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_interrupted),
        cmocka_unit_test(test_owned_by_the_program),
        cmocka_unit_test_setup_teardown(test_owning_a_directory_removes_what_it_made,
                                        directory_setup, directory_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
