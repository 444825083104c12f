/* SPDX-License-Identifier: BSD-3-Clause */
/* Small files that appear at once and whole, also in the place of one another: over the file
 * system, a simulated one, and memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "fault/failing_allocator.h"
#include "fault/simulated_file_system.h"
#include "scratch.h"
#include "storage/storage.h"

static dcp_status publish(const struct storage_directory *directory, const char *text,
                          dcp_storage_condition condition, bool *visible)
{
    struct storage_publication publication;
    *visible = false;
    RETURN_IF_ERROR(
        storage_publication_prepare(&publication, directory, "name", text, strlen(text), true));
    return storage_publication_publish(&publication, condition, visible);
}

static dcp_status count_name(void *context, const char *name)
{
    assert_string_equal(name, "name");
    ++*(int *)context;
    return DCP_OK;
}

/* There is one file, nothing temporary beside it, and it holds this. */
static void check(const struct storage_directory *directory, const char *text)
{
    struct buffer bytes;
    int names = 0;
    assert_int_equal(storage_directory_list(directory, count_name, &names), DCP_OK);
    assert_int_equal(names, 1);
    buffer_init(&bytes, 0);
    assert_int_equal(storage_read_whole(directory, "name", 100, &bytes), DCP_OK);
    assert_int_equal(bytes.size, strlen(text));
    assert_memory_equal(bytes.data, text, bytes.size);
    buffer_free(&bytes);
}

/* Over what is there and nothing else. */
static void check_replacing(const struct storage_directory *directory)
{
    struct storage_publication publication;
    char before[DCP_STORAGE_IDENTITY], after[DCP_STORAGE_IDENTITY];
    bool visible;
    assert_int_equal(storage_directory_identify(directory, "none", before), DCP_ERR_NOT_FOUND);
    assert_int_equal(storage_directory_identify(directory, "name", before), DCP_OK);
    for (int i = 0; i < 3; i++) {
        static const char *const texts[] = {"five", "six", "seven"};
        static const dcp_status expected[] = {DCP_OK, DCP_ERR_BUSY, DCP_ERR_BUSY};
        /* The second one comes too late; for the third one there is nothing. */
        if (i == 2)
            assert_int_equal(storage_directory_remove(directory, "name"), DCP_OK);
        assert_int_equal(storage_publication_prepare(&publication, directory, "name", texts[i],
                                                     strlen(texts[i]), false),
                         DCP_OK);
        assert_int_equal(storage_publication_publish_over(&publication, before, &visible),
                         expected[i]);
        assert_int_equal(visible, i == 0);
        if (i < 2)
            check(directory, "five");
        if (i == 0) {
            assert_int_equal(storage_directory_identify(directory, "name", after), DCP_OK);
            assert_string_not_equal(before, after);
        }
    }
    assert_int_equal(storage_directory_identify(directory, "name", before), DCP_ERR_NOT_FOUND);
}

enum { ADDERS = 8, ADDITIONS = 60 };

struct adder {
    const struct storage_directory *directory;
    long added;
    pthread_t thread;
};

static long read_number(const struct storage_directory *directory)
{
    struct buffer bytes;
    buffer_init(&bytes, 0);
    long number = -1;
    if (storage_read_whole(directory, "name", 100, &bytes) == DCP_OK) {
        buffer_append_u8(&bytes, 0);
        number = strtol((const char *)bytes.data, NULL, 10);
    }
    buffer_free(&bytes);
    return number;
}

/* Adds one to a number in a file, again and again, in the place of the one that it has read. */
static void *add(void *argument)
{
    struct adder *adder = argument;
    for (int i = 0; i < ADDITIONS; i++) {
        char identity[DCP_STORAGE_IDENTITY], text[32];
        struct storage_publication publication;
        bool visible;
        if (storage_directory_identify(adder->directory, "name", identity) != DCP_OK)
            continue;
        snprintf(text, sizeof text, "%ld", read_number(adder->directory) + 1);
        if (storage_publication_prepare(&publication, adder->directory, "name", text, strlen(text),
                                        false) == DCP_OK)
            adder->added +=
                storage_publication_publish_over(&publication, identity, &visible) == DCP_OK;
    }
    return NULL;
}

/* None is lost, and none is counted twice. */
static void check_adders(const struct storage_directory *directory)
{
    struct adder adders[ADDERS];
    bool visible;
    long added = 0;
    assert_int_equal(publish(directory, "0", DCP_PUBLISH_ALWAYS, &visible), DCP_OK);
    for (int i = 0; i < ADDERS; i++) {
        adders[i] = (struct adder){.directory = directory};
        assert_int_equal(pthread_create(&adders[i].thread, NULL, add, &adders[i]), 0);
    }
    for (int i = 0; i < ADDERS; i++) {
        assert_int_equal(pthread_join(adders[i].thread, NULL), 0);
        added += adders[i].added;
    }
    assert_int_equal(read_number(directory), added);
    assert_true(added > 0);
}

static void check_storage(const dcp_storage *storage, const char *id)
{
    struct storage_directory directory;
    struct storage_publication publication;
    bool visible;
    assert_int_equal(storage_directory_open(&directory, storage, id, DCP_OPEN_CREATE, NULL),
                     DCP_OK);
    assert_int_equal(publish(&directory, "one", DCP_PUBLISH_IF_ABSENT, &visible), DCP_OK);
    assert_true(visible);
    check(&directory, "one");
    assert_int_equal(publish(&directory, "two", DCP_PUBLISH_IF_ABSENT, &visible), DCP_ERR_EXISTS);
    assert_false(visible);
    check(&directory, "one");
    assert_int_equal(publish(&directory, "three", DCP_PUBLISH_ALWAYS, &visible), DCP_OK);
    assert_true(visible);
    check(&directory, "three");
    assert_int_equal(
        storage_publication_prepare(&publication, &directory, "name", "four", 4, false), DCP_OK);
    storage_publication_retract(&publication);
    check(&directory, "three");
    check_replacing(&directory);
    check_adders(&directory);
    storage_directory_close(&directory);
}

static void files(void **state)
{
    char *path = scratch_path(*state, "published");
    check_storage(dcp_storage_files(), path);
    free(path);
}

static void simulated_files(void **state)
{
    (void)state;
    struct simulated_file_system *fs = simulated_new();
    check_storage(simulated_storage(fs), "published");
    assert_int_equal(simulated_open_descriptors(fs), 0);
    simulated_free(fs);
}

/* Ranks write their shards between the two: only the publication waits for the disk. */
static void preparing_does_not_wait(void **state)
{
    static const char *const expected[] = {"sync ", "rename"};
    struct simulated_file_system *fs = simulated_new();
    const dcp_storage *storage = simulated_storage(fs);
    struct storage_directory directory;
    struct storage_publication publication;
    bool visible;
    size_t found = 0;
    (void)state;
    assert_int_equal(storage_directory_open(&directory, storage, "c", DCP_OPEN_CREATE, NULL),
                     DCP_OK);
    simulated_set_fault(fs, NULL);
    assert_int_equal(storage_publication_prepare(&publication, &directory, "name", "one", 3, true),
                     DCP_OK);
    long prepared = simulated_operation_count(fs);
    assert_int_equal(storage_publication_publish(&publication, DCP_PUBLISH_IF_ABSENT, &visible),
                     DCP_OK);
    for (long n = 1; n <= simulated_operation_count(fs); n++) {
        const char *name = simulated_operation_name(fs, n);
        assert_false(n <= prepared && strncmp(name, "sync", strlen("sync")) == 0);
        if (found < 2 && strncmp(name, expected[found], strlen(expected[found])) == 0)
            found++;
    }
    assert_int_equal(found, 2);
    storage_directory_close(&directory);
    simulated_free(fs);
}

static void memory(void **state)
{
    dcp_storage *storage;
    (void)state;
    assert_int_equal(dcp_storage_memory_new(&storage), DCP_OK);
    check_storage(storage, "published");
    dcp_storage_memory_free(storage);
}

/* ---- a storage whose calls fail, or say so ---- */

static const dcp_storage *below;
static const char *failing; /* the function */
static long handles;

static dcp_status fail_in(const char *function)
{
    return strcmp(failing, function) == 0 ? dcp_error_set(DCP_ERR_IO, "%s fails", function)
                                          : DCP_OK;
}

static dcp_status create_or_fail(void *context, void *directory, const char *name,
                                 const dcp_storage_access *access, dcp_storage_file *file)
{
    assert_true(access->published);
    RETURN_IF_ERROR(fail_in("create"));
    handles++;
    return below->create(context, directory, name, access, file);
}

static dcp_status write_or_fail(void *context, dcp_storage_file *file, const void *bytes,
                                size_t size, uint64_t offset)
{
    RETURN_IF_ERROR(fail_in("write"));
    return below->write(context, file, bytes, size, offset);
}

static void count_closed(void *context, dcp_storage_file *file)
{
    handles--;
    below->close_file(context, file);
    dcp_error_set(DCP_ERR_INTERNAL, "what is said while tidying up");
}

static dcp_status seal_and_fail(void *context, dcp_storage_file *file, uint64_t size,
                                dcp_storage_condition condition, const char *identity)
{
    if (fail_in("seal") != DCP_OK) {
        count_closed(context, file);
        return fail_in("seal");
    }
    handles--;
    RETURN_IF_ERROR(below->seal(context, file, size, condition, identity));
    return fail_in("seal afterwards");
}

static void expect_failure(const struct storage_directory *directory, const char *function,
                           const char *text, bool appears)
{
    bool visible;
    failing = function;
    assert_int_equal(publish(directory, text, DCP_PUBLISH_ALWAYS, &visible), DCP_ERR_IO);
    assert_non_null(strstr(dcp_error_message(), function));
    assert_int_equal(visible, appears);
    failing = "none";
    assert_int_equal(handles, 0);
}

/* Publishing by create, write and seal: whatever fails, nothing stays open, and whether the file is
 * there all the same is found out. */
static void failures(void **state)
{
    dcp_storage *storage, table;
    struct storage_directory directory;
    bool visible;
    (void)state;
    assert_int_equal(dcp_storage_memory_new(&storage), DCP_OK);
    below = storage;
    table = *storage;
    table.create = create_or_fail;
    table.write = write_or_fail;
    table.seal = seal_and_fail;
    table.abandon = count_closed;
    assert_int_equal(storage_directory_open(&directory, &table, "c", DCP_OPEN_CREATE, NULL),
                     DCP_OK);
    failing = "none";
    assert_int_equal(publish(&directory, "one", DCP_PUBLISH_ALWAYS, &visible), DCP_OK);
    expect_failure(&directory, "create", "two", false);
    expect_failure(&directory, "write", "two", false);
    expect_failure(&directory, "seal", "two", false);
    table.abandon = NULL;
    table.close_file = count_closed;
    expect_failure(&directory, "write", "two", false);
    table.close_file = storage->close_file;
    assert_int_equal(storage_directory_list(&directory, count_name, &(int){0}), DCP_OK);
    expect_failure(&directory, "seal afterwards", "three", true);
    storage_directory_close(&directory);
    dcp_storage_memory_free(storage);
}

static dcp_status use_and_free(dcp_storage *storage)
{
    struct storage_directory directory;
    char identity[DCP_STORAGE_IDENTITY];
    bool visible;
    RETURN_IF_ERROR(storage_directory_open(&directory, storage, "c", DCP_OPEN_CREATE, NULL));
    dcp_status status = publish(&directory, "one", DCP_PUBLISH_ALWAYS, &visible);
    if (status == DCP_OK)
        status = storage_directory_identify(&directory, "name", identity);
    if (status == DCP_OK)
        status = publish(&directory, "two", DCP_PUBLISH_ALWAYS, &visible);
    if (status == DCP_OK)
        status = storage_directory_remove(&directory, "name");
    storage_directory_withdraw(&directory);
    storage_directory_close(&directory);
    return status;
}

static void memory_that_is_refused(void **state)
{
    (void)state;
    for (long n = 1;; n++) {
        dcp_storage *storage = NULL;
        failing_allocator_install(n, false);
        dcp_status status = dcp_storage_memory_new(&storage);
        if (status == DCP_OK)
            status = use_and_free(storage);
        dcp_storage_memory_free(storage);
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        if (!reached) {
            assert_int_equal(status, DCP_OK);
            assert_true(n > 10);
            return;
        }
        assert_int_equal(status, DCP_ERR_NO_MEMORY);
    }
}

/* ---- a storage without directories ---- */

static dcp_status refuse_id(void *context, void *directory, dcp_storage_visitor visitor,
                            void *visiting)
{
    (void)context, (void)visitor, (void)visiting;
    return dcp_error_set(DCP_ERR_IO, "listed <%s>", (const char *)directory);
}

static void ids(void **state)
{
    static const char *const pairs[][2] = {{"a/b", "a/b"}, {"a/b//", "a/b"}, {"/", "/"}};
    dcp_storage *storage, table;
    (void)state;
    assert_int_equal(dcp_storage_memory_new(&storage), DCP_OK);
    table = *storage;
    table.open = NULL;
    table.close = NULL;
    table.list = refuse_id;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct storage_directory directory;
        char expected[32];
        bool created;
        snprintf(expected, sizeof expected, "<%s>", pairs[i][1]);
        assert_int_equal(storage_directory_open(&directory, &table, pairs[i][0], 0, &created),
                         DCP_OK);
        assert_false(created);
        assert_int_equal(storage_directory_list(&directory, count_name, NULL), DCP_ERR_IO);
        assert_non_null(strstr(dcp_error_message(), expected));
        storage_directory_close(&directory);
        assert_int_equal(
            storage_directory_open(&directory, &table, pairs[i][0], DCP_OPEN_CREATE, &created),
            DCP_OK);
        assert_true(created);
        storage_directory_close(&directory);
    }
    dcp_storage_memory_free(storage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(files, scratch_setup, scratch_teardown),
        cmocka_unit_test(simulated_files),
        cmocka_unit_test(preparing_does_not_wait),
        cmocka_unit_test(memory),
        cmocka_unit_test(failures),
        cmocka_unit_test(memory_that_is_refused),
        cmocka_unit_test(ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
