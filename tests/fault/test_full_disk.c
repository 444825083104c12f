/* SPDX-License-Identifier: BSD-3-Clause */
/* Disks that are really full: a small tmpfs of our own, where the system lets us mount one, and a
 * limit on the size of files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "dcp.h"
#include "fault/io_ways.h"
#include "fault/small_disk.h"

#define MEGABYTE  (1 << 20)
#define DISK_SIZE "size=16m"
#define RANKS     2

static char mount_point[64];
static char on_disk[64];
static const char *folder = mount_point; /* where tests work at the moment */
static char why_not[SMALL_DISK_WHY];     /* there is no tmpfs; "" if there is */

static bool make_folder(char made[64])
{
    const char *temporary = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    snprintf(made, 64, "%.40s/dcp-full-XXXXXX", temporary);
    return mkdtemp(made) != NULL;
}

static const char *path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* One rank of a save or load of `bytes` bytes each. */
struct part {
    dcp_group *group;
    const char *path;
    int rank;
    int version; /* 0: load */
    size_t bytes;
    dcp_save_options options;
    dcp_status status;
    char message[512];
    unsigned char *memory;
};

static unsigned char byte_of(int version, int rank, size_t index)
{
    uint64_t mixed = ((uint64_t)index + 1) * 0x9e3779b97f4a7c15u + (uint64_t)(version * 31 + rank);
    return (unsigned char)((mixed ^ (mixed >> 29)) * 0xbf58476d1ce4e5b9u >> 56);
}

static void *run_part(void *context)
{
    struct part *part = context;
    dcp_tensor tensor = {.dtype = DCP_U8,
                         .ndim = 1,
                         .sharded = true,
                         .global_shape = {(int64_t)part->bytes * RANKS},
                         .offsets = {(int64_t)part->bytes * part->rank},
                         .sizes = {(int64_t)part->bytes},
                         .data = part->memory};
    dcp_load_options load = {.group = part->group, .timeout_seconds = 30};
    dcp_state *root = dcp_state_new();
    part->options.group = part->group;
    part->options.timeout_seconds = 30;
    part->options.overwrite = DCP_OVERWRITE_REPLACE;
    for (size_t i = 0; i < part->bytes; i++)
        part->memory[i] = part->version ? byte_of(part->version, part->rank, i) : 0;
    dcp_state_tensor(root, "bytes", &tensor);
    part->status = part->version ? dcp_save(root, part->path, &part->options)
                                 : dcp_load(root, part->path, &load, NULL);
    snprintf(part->message, sizeof part->message, "%s", dcp_error_message());
    dcp_state_free(root);
    return NULL;
}

/* On two ranks, which must end alike. bytes: of each. */
static dcp_status run(struct part parts[RANKS], int version, size_t bytes,
                      const dcp_save_options *options)
{
    dcp_group *groups[RANKS];
    pthread_t threads[RANKS];
    assert_int_equal(dcp_group_new_threads(RANKS, groups), DCP_OK);
    const char *path = path_of("c");
    for (int r = 0; r < RANKS; r++) {
        parts[r] = (struct part){.group = groups[r],
                                 .path = path,
                                 .rank = r,
                                 .version = version,
                                 .bytes = bytes,
                                 .memory = aligned_alloc(4096, bytes)};
        assert_non_null(parts[r].memory);
        if (options)
            parts[r].options = *options;
        assert_int_equal(pthread_create(&threads[r], NULL, run_part, &parts[r]), 0);
    }
    for (int r = 0; r < RANKS; r++) {
        pthread_join(threads[r], NULL);
        dcp_group_free(groups[r]);
    }
    assert_int_equal(parts[0].status, parts[1].status);
    if (parts[0].status != DCP_OK)
        assert_string_equal(parts[0].message, parts[1].message);
    return parts[0].status;
}

static void release(struct part parts[RANKS])
{
    for (int r = 0; r < RANKS; r++)
        free(parts[r].memory);
}

static dcp_status save(int version, size_t bytes, const dcp_save_options *options)
{
    struct part parts[RANKS];
    dcp_status status = run(parts, version, bytes, options);
    if (status != DCP_OK)
        dcp_error_set(status, "%s", parts[0].message);
    release(parts);
    return status;
}

static void assert_holds(int version, size_t bytes)
{
    struct part parts[RANKS];
    if (run(parts, 0, bytes, NULL) != DCP_OK)
        fail_msg("%s", parts[0].message);
    for (int r = 0; r < RANKS; r++)
        for (size_t i = 0; i < bytes; i++)
            if (parts[r].memory[i] != byte_of(version, r, i))
                fail_msg("rank %d, byte %zu", r, i);
    release(parts);
}

static int count_names(const char *path)
{
    int count = 0;
    DIR *directory = opendir(path);
    while (directory && readdir(directory))
        count++;
    if (directory)
        closedir(directory);
    return count;
}

static void remove_tree(const char *name)
{
    char path[512];
    const char *tree = path_of(name);
    DIR *directory = opendir(tree);
    struct dirent *entry;
    while (directory && (entry = readdir(directory))) {
        snprintf(path, sizeof path, "%s/%s", tree, entry->d_name);
        unlink(path);
    }
    if (directory)
        closedir(directory);
    rmdir(tree);
}

/* Somebody else takes the space when writing has begun, but for a MiB. */
static bool take_space(void *context, const dcp_progress *progress)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static char zeros[64 << 10];
    (void)context;
    if (progress->phase != DCP_PHASE_WRITING)
        return true;
    char path[128];
    struct statvfs space;
    snprintf(path, sizeof path, "%s/hog", folder);
    pthread_mutex_lock(&mutex);
    int descriptor = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    while (descriptor >= 0 && fstatvfs(descriptor, &space) == 0 &&
           space.f_bavail * space.f_frsize > MEGABYTE && write(descriptor, zeros, sizeof zeros) > 0)
        ;
    close(descriptor);
    pthread_mutex_unlock(&mutex);
    return true;
}

static void expect_failure(size_t bytes, const dcp_save_options *options, int old)
{
    int names = old ? count_names(path_of("c")) : 0, descriptors = count_names("/proc/self/fd");
    dcp_status status = save(2, bytes, options);
    if (status != DCP_ERR_NO_SPACE)
        fail_msg("%s: %s", dcp_status_string(status), dcp_error_message());
    assert_int_equal(count_names("/proc/self/fd"), descriptors);
    if (old) {
        assert_int_equal(count_names(path_of("c")), names);
        assert_holds(old, MEGABYTE);
    } else {
        assert_int_not_equal(access(path_of("c"), F_OK), 0);
    }
}

static void test_no_room(void **state)
{
    (void)state;
    if (why_not[0]) {
        print_message("%s\n", why_not);
        skip();
    }
    expect_failure(12 * MEGABYTE, NULL, 0);
    assert_int_equal(save(1, MEGABYTE, NULL), DCP_OK);
    expect_failure(12 * MEGABYTE, NULL, 1);
    remove_tree("c");
}

static void fill_up(const dcp_save_options *options, int old)
{
    dcp_save_options filling = *options;
    filling.progress = take_space;
    if (old)
        assert_int_equal(save(old, MEGABYTE, NULL), DCP_OK);
    expect_failure(5 * MEGABYTE, &filling, old);
    unlink(path_of("hog"));
    assert_int_equal(save(3, 5 * MEGABYTE, options), DCP_OK);
    assert_holds(3, 5 * MEGABYTE);
    remove_tree("c");
}

static void test_space_goes_meanwhile(void **state)
{
    (void)state;
    if (why_not[0]) {
        print_message("%s\n", why_not);
        skip();
    }
    for (size_t i = 0; i < IO_WAY_COUNT; i++) {
        dcp_save_options options = {.io = io_ways[i], .thread_count = 1 + (int)i % 2};
        dcp_status status = save(1, MEGABYTE, &options);
        remove_tree("c");
        if (status == DCP_ERR_UNSUPPORTED) {
            print_message("not tested: %s\n", dcp_error_message());
            continue;
        }
        assert_int_equal(status, DCP_OK);
        fill_up(&options, 0);
        fill_up(&options, 1);
    }
#if DCP_HAVE_ZSTD
    dcp_save_options options = {.compression = DCP_COMPRESSION_ZSTD};
    fill_up(&options, 0);
    fill_up(&options, 1);
#endif
}

/* Writes beyond the limit are EFBIG, in the middle of a file where space is not taken beforehand.
 */
static void test_files_may_not_grow(void **state)
{
    (void)state;
    struct rlimit before, limit;
    folder = on_disk;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    for (size_t i = 0; i < IO_WAY_COUNT; i++) {
        dcp_save_options options = {.io = io_ways[i]};
        dcp_status status = save(1, MEGABYTE, &options);
        if (status == DCP_ERR_UNSUPPORTED) {
            print_message("not tested: %s\n", dcp_error_message());
            continue;
        }
        assert_int_equal(status, DCP_OK);
        limit = before;
        limit.rlim_cur = 2 * MEGABYTE + 8192; /* direct writes must end at a page */
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        expect_failure(5 * MEGABYTE, &options, 1);
#if DCP_HAVE_ZSTD
        options.compression = DCP_COMPRESSION_ZSTD;
        expect_failure(5 * MEGABYTE, &options, 1);
#endif
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_int_equal(save(3, 5 * MEGABYTE, &options), DCP_OK);
        assert_holds(3, 5 * MEGABYTE);
        remove_tree("c");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_space_goes_meanwhile),
        cmocka_unit_test(test_files_may_not_grow),
    };
    signal(SIGXFSZ, SIG_IGN);
    if (!make_folder(mount_point) || !make_folder(on_disk))
        return 1;
    small_disk_mount(mount_point, DISK_SIZE, why_not);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (!why_not[0])
        umount(mount_point);
    rmdir(mount_point);
    rmdir(on_disk);
    return failed;
}
