/* SPDX-License-Identifier: BSD-3-Clause */
/* Small files that appear at once and whole: over the file system, a simulated one, and memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
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

static void memory(void **state)
{
    dcp_storage *storage;
    (void)state;
    assert_int_equal(dcp_storage_memory_new(&storage), DCP_OK);
    check_storage(storage, "published");
    dcp_storage_memory_free(storage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(files, scratch_setup, scratch_teardown),
        cmocka_unit_test(simulated_files),
        cmocka_unit_test(memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
