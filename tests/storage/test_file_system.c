/* SPDX-License-Identifier: BSD-3-Clause */
/* The real file operations, in a fresh directory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "fault/at_path.h"
#include "storage/files/file.h"

static const struct file_ops *const ops = &file_ops_system;
static char directory[256];

static int setup(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(directory, sizeof directory, "%s/dcp-test-XXXXXX", base != NULL ? base : "/tmp");
    return mkdtemp(directory) != NULL ? chdir(directory) : -1;
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *position)
{
    (void)status, (void)kind, (void)position;
    return remove(path);
}

static int teardown(void **state)
{
    (void)state;
    return chdir("/") != 0 ? -1 : nftw(directory, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void files_are_written_and_read(void **state)
{
    (void)state;
    struct file file;
    uint64_t length;
    struct file_information information;
    assert_int_equal(file_open(&file, FILE_PATHS(ops), "f", FILE_CREATE_NEW), DCP_OK);
    assert_true(fcntl(file.descriptor, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(file_preallocate(&file, 5000), DCP_OK);
    assert_int_equal(file_write(&file, "hello", 5, 4995), DCP_OK);
    assert_int_equal(file_sync(&file), DCP_OK);
    assert_int_equal(file_size(&file, &length), DCP_OK);
    assert_int_equal(length, 5000);
    assert_int_equal(file_write(&file, "x", 1, UINT64_MAX - 1), DCP_ERR_NO_SPACE);
    assert_int_equal(file_preallocate(&file, UINT64_MAX), DCP_ERR_NO_SPACE);
    assert_int_equal(file_close(&file), DCP_OK);
    assert_int_equal(file_open(&file, FILE_PATHS(ops), "f", FILE_CREATE_NEW), DCP_ERR_EXISTS);
    assert_int_equal(file_rename(FILE_PATHS(ops), "f", "g"), DCP_OK);
    assert_int_equal(sync_at_path(ops, "."), 0);
    struct buffer whole;
    buffer_init(&whole, 0);
    assert_int_equal(file_read_whole(FILE_PATHS(ops), "g", 5000, &whole), DCP_OK);
    assert_int_equal(whole.size, 5000);
    assert_memory_equal(whole.data + 4995, "hello", 5);
    buffer_free(&whole);
    assert_int_equal(file_open(&file, FILE_PATHS(ops), "g", FILE_READ), DCP_OK);
    char byte;
    assert_int_equal(file_read(&file, &byte, 1, UINT64_MAX - 1), DCP_ERR_IO);
    assert_int_equal(file_close(&file), DCP_OK);
    assert_int_equal(file_look(FILE_PATHS(ops), "g", &information), DCP_OK);
    assert_int_equal(information.kind, FILE_REGULAR);
    assert_int_equal(information.size, 5000);
    assert_int_equal(file_unlink(FILE_PATHS(ops), "g", false), DCP_OK);
    assert_int_equal(file_look(FILE_PATHS(ops), "g", &information), DCP_ERR_NOT_FOUND);
    assert_int_equal(file_look(FILE_PATHS(ops), "none/g", &information), DCP_ERR_NOT_FOUND);
}

static int collect(void *context, const char *name)
{
    strcat(strcat(context, name), " ");
    return 0;
}

static int stop(void *context, const char *name)
{
    (void)context, (void)name;
    return ENOMEM;
}

static void directories_are_made_and_listed(void **state)
{
    (void)state;
    char names[300] = "";
    bool created;
    struct file_information information;
    assert_int_equal(make_at_path(ops, "a/b/c", true, &created), DCP_OK);
    assert_true(created);
    assert_int_equal(make_at_path(ops, directory, true, &created), DCP_OK);
    assert_false(created);
    assert_int_equal(file_look(FILE_PATHS(ops), "a/b/c", &information), DCP_OK);
    assert_int_equal(information.kind, FILE_DIRECTORY);
    assert_int_equal(list_at_path(ops, "a/b", collect, names), 0);
    assert_string_equal(names, "c ");
    assert_int_equal(list_at_path(ops, "a/b", stop, NULL), ENOMEM);
    assert_int_equal(list_at_path(ops, "none", collect, names), ENOENT);
    assert_int_equal(sync_at_path(ops, "none"), ENOENT);
    assert_int_equal(ops->remove_directory(ops->context, FILE_NO_DIRECTORY, "a/b"), ENOTEMPTY);
    assert_int_equal(ops->remove_directory(ops->context, FILE_NO_DIRECTORY, "a/b/c"), 0);
}

static void an_open_directory_stays_what_it_is(void **state)
{
    (void)state;
    struct file_directory opened;
    struct file_made made;
    struct file_information information;
    char names[300] = "";
    assert_int_equal(file_make_directories(ops, "d", false, &opened, &made), DCP_OK);
    assert_int_equal(rename("d", "moved"), 0);
    assert_int_equal(mkdir("d", 0777), 0);
    assert_int_equal(write_at_path(&opened, "f", "text", 4, true), DCP_OK);
    assert_int_equal(file_rename_new(&opened, "f", "g"), DCP_OK);
    assert_int_equal(file_look(FILE_PATHS(ops), "moved/g", &information), DCP_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(file_list(&opened, collect, names), DCP_OK);
    assert_string_equal(names, "g g ");
    assert_int_equal(file_sync_directory(&opened), DCP_OK);
    assert_int_equal(file_unlink(&opened, "g", false), DCP_OK);
    /* Another one is not taken back. */
    file_made_remove(&made, &opened);
    assert_int_equal(file_look(FILE_PATHS(ops), "d", &information), DCP_OK);
    assert_int_equal(rmdir("d"), 0);
    assert_int_equal(rename("moved", "d"), 0);
    file_made_remove(&made, &opened);
    assert_int_equal(file_look(FILE_PATHS(ops), "d", &information), DCP_ERR_NOT_FOUND);
    file_made_forget(&made);
    file_directory_close(&opened);
}

static int count_name(void *context, const char *name)
{
    (void)name;
    ++*(int *)context;
    return 0;
}

/* It takes a descriptor. */
static void a_directory_that_cannot_be_listed_is_an_error(void **state)
{
    (void)state;
    struct file_directory opened;
    struct rlimit limit, none;
    int names = 0;
    assert_int_equal(file_directory_open(&opened, FILE_PATHS(ops), directory, 0), DCP_OK);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = limit;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    dcp_status status = file_list(&opened, count_name, &names);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(status, DCP_ERR_FILE_LIMIT);
    assert_int_equal(names, 0);
    file_directory_close(&opened);
}

static void relative_paths_become_absolute(void **state)
{
    (void)state;
    char path[300], expected[300];
    assert_int_equal(file_absolute_path(ops, "a/b", path, sizeof path), DCP_OK);
    snprintf(expected, sizeof expected, "%s/a/b", directory);
    assert_string_equal(path, expected);
    assert_int_equal(file_absolute_path(ops, "/a/b", path, sizeof path), DCP_OK);
    assert_string_equal(path, "/a/b");
    assert_int_equal(file_absolute_path(ops, "/a/b", path, 4), DCP_ERR_ARGUMENT);
    assert_int_equal(file_absolute_path(ops, "a/b", path, strlen(expected)), DCP_ERR_ARGUMENT);
    assert_int_equal(mkdir("gone", 0777), 0);
    assert_int_equal(chdir("gone"), 0);
    assert_int_equal(rmdir("../gone"), 0);
    assert_int_equal(file_absolute_path(ops, "a", path, sizeof path), DCP_ERR_NOT_FOUND);
    assert_non_null(strstr(dcp_error_message(), "working directory"));
}

static void links_are_followed_only_where_allowed(void **state)
{
    (void)state;
    struct file file;
    assert_int_equal(write_at_path(FILE_PATHS(ops), "f", "text", 4, true), DCP_OK);
    assert_int_equal(symlink("f", "link"), 0);
    assert_int_equal(file_open(&file, FILE_PATHS(ops), "link", FILE_READ), DCP_OK);
    assert_int_equal(file_close(&file), DCP_OK);
    assert_int_equal(file_open(&file, FILE_PATHS(ops), "link", FILE_READ | FILE_NO_FOLLOW),
                     DCP_ERR_IO);
    assert_int_equal(symlink("nowhere", "dangling"), 0);
    assert_int_equal(file_open(&file, FILE_PATHS(ops), "dangling", FILE_CREATE_NEW),
                     DCP_ERR_EXISTS);
}

static void what_is_no_file_is_refused_without_waiting(void **state)
{
    (void)state;
    struct file file;
    struct file_information information;
    assert_int_equal(mkfifo("fifo", 0600), 0);
    assert_int_equal(file_open(&file, FILE_PATHS(ops), "fifo", FILE_READ), DCP_ERR_FORMAT);
    assert_string_equal(dcp_error_message(), "fifo is not a regular file");
    assert_int_equal(file_open(&file, FILE_PATHS(ops), ".", FILE_READ), DCP_ERR_FORMAT);
    assert_int_equal(file_look(FILE_PATHS(ops), "fifo", &information), DCP_OK);
    assert_int_equal(information.kind, FILE_OTHER);
}

static void what_the_page_cache_holds_is_known(void **state)
{
    (void)state;
    enum { SIZE = 1 << 20 };
    static const char bytes[SIZE];
    struct file file;
    bool cached = false;
    assert_int_equal(write_at_path(FILE_PATHS(ops), "f", bytes, SIZE, true), DCP_OK);
    assert_int_equal(file_open(&file, FILE_PATHS(ops), "f", FILE_READ), DCP_OK);
    assert_int_equal(ops->cached(ops->context, file.descriptor, 0, SIZE, &cached), 0);
    assert_true(cached);
    assert_int_equal(posix_fadvise(file.descriptor, 0, 0, POSIX_FADV_DONTNEED), 0);
    assert_int_equal(ops->cached(ops->context, file.descriptor, 0, SIZE, &cached), 0);
    if (cached)
        print_message("not tested: a file that the page cache gives up\n");
    assert_int_equal(ops->will_need(ops->context, file.descriptor, 4096, 70000), 0);
    assert_int_equal(ops->will_need(ops->context, -1, 0, 1), EBADF);
    assert_int_equal(ops->will_need(ops->context, file.descriptor, UINT64_MAX, 1), EOVERFLOW);
    assert_int_equal(ops->write_back(ops->context, file.descriptor, 0, SIZE), 0);
    assert_int_equal(ops->write_back(ops->context, -1, 0, SIZE), EBADF);
    assert_int_equal(ops->write_back(ops->context, file.descriptor, UINT64_MAX, 1), EFBIG);
    assert_int_equal(ops->cached(ops->context, file.descriptor, UINT64_MAX, 1, &cached), EOVERFLOW);
    assert_int_equal(ops->cached(ops->context, -1, 0, SIZE, &cached), EBADF);
    assert_int_equal(file_close(&file), DCP_OK);
}

/* From now on the process lives on a kernel that does not know the call. */
static bool forget_system_call(unsigned number)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

enum { SAME, DIFFERENT, NOT_TESTED };

/* In a process of its own: older kernels tell the same of what is cached and of what is not. */
static int look_as_on_an_older_kernel(int descriptor, size_t size)
{
    enum { CACHESTAT = 451 };
    const bool expected[2] = {false, true};
    bool cached[2] = {true, false};
    if (!forget_system_call(CACHESTAT))
        return NOT_TESTED;
    for (size_t i = 0; i < 2; i++) {
        if (ops->cached(ops->context, descriptor, i * size, size, &cached[i]) != 0)
            return DIFFERENT;
    }
    return memcmp(cached, expected, sizeof cached) == 0 ? SAME : DIFFERENT;
}

static void older_kernels_know_what_the_page_cache_holds(void **state)
{
    (void)state;
    enum { SIZE = 1 << 20 };
    static const char bytes[2 * SIZE];
    static char read[SIZE];
    struct file file;
    bool first = true, second = false;
    int status = NOT_TESTED;
    assert_int_equal(write_at_path(FILE_PATHS(ops), "f", bytes, sizeof bytes, true), DCP_OK);
    assert_int_equal(file_open(&file, FILE_PATHS(ops), "f", FILE_READ), DCP_OK);
    assert_int_equal(posix_fadvise(file.descriptor, 0, 0, POSIX_FADV_DONTNEED), 0);
    assert_int_equal(posix_fadvise(file.descriptor, 0, 0, POSIX_FADV_RANDOM), 0);
    assert_int_equal(file_read(&file, read, SIZE, SIZE), DCP_OK);
    assert_int_equal(ops->cached(ops->context, file.descriptor, 0, SIZE, &first), 0);
    assert_int_equal(ops->cached(ops->context, file.descriptor, SIZE, SIZE, &second), 0);
    assert_true(second);
    if (!first) {
        pid_t child = fork();
        if (child == 0)
            _exit(look_as_on_an_older_kernel(file.descriptor, SIZE));
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        status = WEXITSTATUS(status);
    }
    assert_int_not_equal(status, DIFFERENT);
    if (status == NOT_TESTED)
        print_message("not tested: a kernel that does not know cachestat\n");
    assert_int_equal(file_close(&file), DCP_OK);
}

#define FILE_TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FILE_TEST(files_are_written_and_read),
        FILE_TEST(directories_are_made_and_listed),
        FILE_TEST(an_open_directory_stays_what_it_is),
        FILE_TEST(a_directory_that_cannot_be_listed_is_an_error),
        FILE_TEST(relative_paths_become_absolute),
        FILE_TEST(links_are_followed_only_where_allowed),
        FILE_TEST(what_the_page_cache_holds_is_known),
        FILE_TEST(older_kernels_know_what_the_page_cache_holds),
        FILE_TEST(what_is_no_file_is_refused_without_waiting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
