/* SPDX-License-Identifier: BSD-3-Clause */
/* Saves and loads that go easy on others: the rate over a clock that only sleeping moves, and the
 * threads and priorities that file operations see. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "checkpoint/ranks.h"
#include "fault/io_ways.h"
#include "fault/over_files.h"
#include "storage/files/file.h"

#define ELEMENTS (24 << 18)
#define LOW      (2 << 13 | 7)
#define IDLE     (3 << 13)
#define THREADS  64

/* file_ops_system, watched. */
static struct {
    struct file_ops ops;
    pthread_mutex_t mutex;
    long threads[THREADS]; /* that moved bytes */
    size_t thread_count;
    size_t moves;      /* reads and writes, and those that were submitted */
    size_t low, idle;  /* of these, how many with which priority of the thread */
    size_t tagged_low; /* submitted with the priority in the transfer */
    size_t submitted;
} watch;

/* Small files are none of a save's data: metadata, and the directory's mark. */
static void note(size_t size)
{
    if (size < 4096)
        return;
    long thread = syscall(SYS_gettid);
    long priority = syscall(SYS_ioprio_get, 1, 0);
    size_t i = 0;
    pthread_mutex_lock(&watch.mutex);
    while (i < watch.thread_count && watch.threads[i] != thread)
        i++;
    if (i == watch.thread_count && i < THREADS)
        watch.threads[watch.thread_count++] = thread;
    watch.moves++;
    watch.low += priority == LOW;
    watch.idle += priority == IDLE;
    pthread_mutex_unlock(&watch.mutex);
}

static int watched_pwrite(void *context, int descriptor, const void *bytes, size_t size,
                          uint64_t offset, size_t *done)
{
    note(size);
    return file_ops_system.pwrite(context, descriptor, bytes, size, offset, done);
}

static int watched_pread(void *context, int descriptor, void *bytes, size_t size, uint64_t offset,
                         size_t *done)
{
    note(size);
    return file_ops_system.pread(context, descriptor, bytes, size, offset, done);
}

static int watched_submit(void *context, void *queue, const struct file_transfer *transfer)
{
    note(transfer->size);
    pthread_mutex_lock(&watch.mutex);
    watch.submitted++;
    watch.tagged_low += transfer->priority == LOW;
    pthread_mutex_unlock(&watch.mutex);
    return file_ops_system.queue_submit(context, queue, transfer);
}

static void watch_anew(void)
{
    memset(&watch, 0, sizeof watch);
    pthread_mutex_init(&watch.mutex, NULL);
    watch.ops = file_ops_system;
    watch.ops.pwrite = watched_pwrite;
    watch.ops.pread = watched_pread;
    if (file_ops_system.queue_submit)
        watch.ops.queue_submit = watched_submit;
}

static dcp_state *sample(float *values)
{
    dcp_tensor tensor = {.dtype = DCP_F32, .ndim = 1, .global_shape = {ELEMENTS}, .data = values};
    dcp_state *root = dcp_state_new();
    dcp_state_tensor(root, "values", &tensor);
    dcp_state_int(root, "step", 3);
    return root;
}

static dcp_status save(const char *path, const dcp_save_options *options)
{
    float *values = aligned_alloc(4096, ELEMENTS * sizeof *values);
    assert_non_null(values);
    for (int i = 0; i < ELEMENTS; i++)
        values[i] = (float)i;
    dcp_state *root = sample(values);
    dcp_status status = save_over(&watch.ops, root, path, options);
    dcp_state_free(root);
    free(values);
    return status;
}

static dcp_status load(const char *path, const dcp_load_options *options)
{
    float *values = aligned_alloc(4096, ELEMENTS * sizeof *values);
    assert_non_null(values);
    dcp_state *root = sample(values);
    dcp_status status = load_over(&watch.ops, root, path, options, NULL);
    for (int i = 0; i < ELEMENTS && status == DCP_OK; i++)
        assert_true(values[i] == (float)i);
    dcp_state_free(root);
    free(values);
    return status;
}

static long own_priority(void)
{
    return syscall(SYS_ioprio_get, 1, 0);
}

static void test_priority(void **state)
{
    long before = own_priority();
    if (syscall(SYS_ioprio_set, 1, 0, before) != 0)
        skip();
    for (size_t i = 0; i < IO_WAY_COUNT; i++) {
        dcp_save_options saving = {.overwrite = DCP_OVERWRITE_REPLACE,
                                   .io = io_ways[i],
                                   .io_priority = DCP_IO_PRIORITY_LOW,
                                   .thread_count = 1 + (int)i % 2};
        dcp_load_options loading = {.io = io_ways[i], .io_priority = DCP_IO_PRIORITY_IDLE};
        watch_anew();
        dcp_status status = save(path_in(state, "c"), &saving);
        if (status == DCP_ERR_UNSUPPORTED) {
            print_message("not tested: %s\n", dcp_error_message());
            continue;
        }
        must(status);
        assert_true(watch.low == watch.moves && watch.low > 2);
        assert_int_equal(watch.tagged_low, watch.submitted);
        assert_int_equal(own_priority(), before);
        watch_anew();
        must(load(path_in(state, "c"), &loading));
        assert_true(watch.idle > 0);
        assert_int_equal(own_priority(), before);
        watch_anew();
        saving.io_priority = DCP_IO_PRIORITY_KEPT;
        must(save(path_in(state, "c"), &saving));
        assert_int_equal(watch.low + watch.idle + watch.tagged_low, 0);
    }
}

static void test_priority_is_given_back_after_failures(void **state)
{
    long before = own_priority();
    dcp_save_options saving = {.io_priority = DCP_IO_PRIORITY_IDLE};
    watch_anew();
    must(save(path_in(state, "c"), &saving));
    must_fail(save(path_in(state, "c"), &saving), DCP_ERR_EXISTS, "overwriting");
    assert_int_equal(own_priority(), before);
}

static void test_threads(void **state)
{
    static const uint32_t ways[] = {DCP_IO_POOL | DCP_IO_BUFFERED, DCP_IO_POOL | DCP_IO_DIRECT};
    for (size_t i = 0; i < 2; i++) {
        dcp_save_options options = {
            .overwrite = DCP_OVERWRITE_REPLACE, .io = ways[i], .io_threads = 1};
        watch_anew();
        dcp_status status = save(path_in(state, "c"), &options);
        if (status == DCP_ERR_UNSUPPORTED)
            continue;
        must(status);
        /* One, and the calling one for what is small. */
        assert_true(watch.thread_count <= 2);
    }
}

static _Atomic int64_t now_ns;

static int64_t now(void *context)
{
    (void)context;
    return now_ns;
}

static void sleep_for(void *context, int64_t duration)
{
    (void)context;
    now_ns += duration;
}

static void test_rate(void **state)
{
    static const struct clock_source source = {now, now, sleep_for, NULL};
    for (size_t i = 0; i < IO_WAY_COUNT; i++) {
        dcp_save_options options = {.overwrite = DCP_OVERWRITE_REPLACE,
                                    .io = io_ways[i],
                                    .write_rate = (uint64_t)1 << 20,
                                    .thread_count = 1 + (int)i % 2,
                                    .timeout_seconds = 100000};
        watch_anew();
        now_ns = 1000000000;
        clock_replace(&source);
        dcp_status status = save(path_in(state, "c"), &options);
        clock_replace(NULL);
        if (status == DCP_ERR_UNSUPPORTED) {
            print_message("not tested: %s\n", dcp_error_message());
            continue;
        }
        must(status);
        double seconds = (double)(now_ns - 1000000000) * 1e-9;
        /* 24 MiB, a MiB each second, but for the last pieces. Several threads may sleep at once, of
         * which this clock makes a sum. */
        if (seconds < 20 || (options.thread_count == 1 && i == 0 && seconds > 80))
            fail_msg("way %zu took %g s", i, seconds);
    }
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_priority),
        TEST(test_priority_is_given_back_after_failures),
        TEST(test_threads),
        TEST(test_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
