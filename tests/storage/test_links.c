/* SPDX-License-Identifier: BSD-3-Clause */
/* Names that were found in a checkpoint lead through no symbolic link; those of the caller may. A
 * directory that is open is itself, wherever its path leads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "scratch.h"
#include "storage/storage.h"

static dcp_status try_open(const struct storage_directory *directory, const char *name,
                           bool trusted)
{
    const dcp_storage_access access = {.size_of = sizeof access, .trusted = trusted};
    struct storage_file file;
    dcp_status status = storage_file_open(&file, directory, name, &access);
    if (status == DCP_OK)
        storage_file_close(&file);
    return status;
}

static void links_are_not_followed(void **state)
{
    struct storage_directory directory;
    char *real = scratch_path(*state, "real"), *way = scratch_path(*state, "way");
    char *end = scratch_path(*state, "end");
    assert_int_equal(mkdir(real, 0777), 0);
    scratch_write(real, "file", "bytes", 5);
    assert_int_equal(symlink("real", way), 0);
    assert_int_equal(symlink("real/file", end), 0);
    assert_int_equal(storage_directory_open(&directory, dcp_storage_files(), *state, 0, NULL),
                     DCP_OK);
    assert_int_equal(try_open(&directory, "real/file", false), DCP_OK);
    assert_int_equal(try_open(&directory, "way/file", false), DCP_ERR_FORMAT);
    assert_non_null(strstr(dcp_error_message(), "symbolic link"));
    assert_int_not_equal(try_open(&directory, "end", false), DCP_OK);
    assert_int_equal(try_open(&directory, "way/file", true), DCP_OK);
    assert_int_equal(try_open(&directory, "end", true), DCP_OK);
    storage_directory_close(&directory);
    assert_int_equal(unlink(way), 0);
    assert_int_equal(unlink(end), 0);
    free(real);
    free(way);
    free(end);
}

/* What is opened, made, looked at and removed is in the directory that was opened. */
static void a_directory_that_was_moved_is_used_where_it_is(void **state)
{
    struct storage_directory directory;
    struct storage_publication publication;
    bool visible;
    char *path = scratch_path(*state, "path"), *moved = scratch_path(*state, "moved");
    assert_int_equal(mkdir(path, 0777), 0);
    scratch_write(path, "file", "bytes", 5);
    assert_int_equal(storage_directory_open(&directory, dcp_storage_files(), path, 0, NULL),
                     DCP_OK);
    assert_int_equal(rename(path, moved), 0);
    assert_int_equal(mkdir(path, 0777), 0);
    scratch_write(path, "other", "bytes", 5);
    assert_int_equal(try_open(&directory, "file", true), DCP_OK);
    assert_int_equal(try_open(&directory, "file", false), DCP_OK);
    assert_int_equal(try_open(&directory, "other", true), DCP_ERR_NOT_FOUND);
    assert_int_equal(storage_publication_prepare(&publication, &directory, "new", "new", 3, true),
                     DCP_OK);
    assert_int_equal(storage_publication_publish(&publication, DCP_PUBLISH_ALWAYS, &visible),
                     DCP_OK);
    assert_int_equal(storage_directory_remove(&directory, "file"), DCP_OK);
    storage_directory_close(&directory);
    assert_string_equal(scratch_list(path), "other");
    assert_string_equal(scratch_list(moved), "new");
    scratch_remove(path, "other");
    scratch_remove(moved, "new");
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rmdir(moved), 0);
    free(path);
    free(moved);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(links_are_not_followed, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(a_directory_that_was_moved_is_used_where_it_is,
                                        scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
