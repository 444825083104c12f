/* SPDX-License-Identifier: BSD-3-Clause */
/* Staging: everything at once or in waves, from host memory and from a device that cannot overlap.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/late_device.h"
#include "device/staging.h"
#include "device/stand_in.h"
#include "fault/failing_allocator.h"
#include "state/box.h"

enum { SOURCES = 40, ROWS_MAX = 300, COLUMNS = 700 };

/* Matrices of int32 whose elements tell where they are; each second one is every other column. */
struct sample {
    struct staging_source sources[SOURCES];
    char names[SOURCES][16];
    int64_t sizes[SOURCES][2];
    int64_t strides[SOURCES][2];
    int32_t *memory[SOURCES]; /* on the host */
    void *on_device[SOURCES];
};

static int32_t value_of(int source, int64_t row, int64_t column)
{
    return (int32_t)(source * 1000003 + row * COLUMNS + column);
}

static void make_sample(struct sample *sample, bool devices)
{
    memset(sample, 0, sizeof *sample);
    for (int i = 0; i < SOURCES; i++) {
        int64_t rows = i == 7 ? 0 : 1 + (i * 37) % ROWS_MAX;
        size_t bytes = (size_t)(rows + 1) * COLUMNS * sizeof(int32_t);
        sample->memory[i] = malloc(bytes);
        for (int64_t row = 0; row <= rows; row++)
            for (int64_t column = 0; column < COLUMNS; column++)
                sample->memory[i][row * COLUMNS + column] = value_of(i, row, column);
        snprintf(sample->names[i], sizeof sample->names[i], "w%d", i);
        sample->sizes[i][0] = rows;
        sample->sizes[i][1] = i % 2 ? COLUMNS / 2 : COLUMNS;
        sample->strides[i][0] = COLUMNS;
        sample->strides[i][1] = i % 2 ? 2 : 1;
        sample->sources[i] = (struct staging_source){
            .name = sample->names[i],
            .from = sample->memory[i],
            .ndim = 2,
            .sizes = sample->sizes[i],
            .strides = sample->strides[i],
            .element_size = sizeof(int32_t),
            .phase = (size_t)(i * 64) % 4096,
        };
        if (devices && i % 3 == 0) {
            sample->on_device[i] = stand_in_new(i % 2, sample->memory[i], bytes);
            sample->sources[i].device = stand_in(i % 2);
            sample->sources[i].from = sample->on_device[i];
        }
    }
}

static void free_sample(struct sample *sample)
{
    for (int i = 0; i < SOURCES; i++) {
        free(sample->memory[i]);
        if (sample->on_device[i])
            stand_in_free(sample->on_device[i]);
    }
}

static void check_source(const struct sample *sample, int source, const int32_t *found)
{
    for (int64_t row = 0; row < sample->sizes[source][0]; row++)
        for (int64_t column = 0; column < sample->sizes[source][1]; column++)
            assert_int_equal(*found++, value_of(source, row, column * sample->strides[source][1]));
}

static size_t bytes_of(const struct sample *sample, int source)
{
    return (size_t)(sample->sizes[source][0] * sample->sizes[source][1]) * sizeof(int32_t);
}

static void everything_is_there_at_once(void **state)
{
    struct sample sample;
    struct staging_pool pool = {0};
    struct staging *staging;
    (void)state;
    make_sample(&sample, true);
    for (uint32_t threads = 0; threads < 5; threads++) {
        struct staging_options options = {.threads = threads, .page_lock = true};
        assert_int_equal(staging_begin(&pool, sample.sources, SOURCES, &options, &staging), DCP_OK);
        assert_true(staging_is_whole(staging));
        assert_int_equal(staging_wait(staging, deadline_after(60)), DCP_OK);
        assert_true(staging_is_over(staging));
        const unsigned char *memory = pool.memory;
        for (int i = 0; i < SOURCES; i++) {
            const void *bytes;
            assert_int_equal(staging_take(staging, (size_t)i, &bytes), DCP_OK);
            check_source(&sample, i, bytes);
            if (bytes_of(&sample, i) >= 65536)
                assert_int_equal((uintptr_t)bytes % 4096, sample.sources[i].phase);
        }
        staging_free(staging);
        /* Kept from one to the next. */
        assert_int_equal(staging_begin(&pool, sample.sources, 5, &options, &staging), DCP_OK);
        staging_free(staging);
        assert_ptr_equal(pool.memory, memory);
    }
    staging_pool_free(&pool);
    free_sample(&sample);
}

/* In portions of odd sizes, which are no pieces. */
static void read_all(const struct sample *sample, struct staging *staging)
{
    int32_t *space = malloc((size_t)ROWS_MAX * COLUMNS * sizeof *space);
    for (int i = 0; i < SOURCES; i++) {
        size_t total = bytes_of(sample, i), portion = 1000 + (size_t)i * 977;
        for (size_t done = 0; done < total; done += portion)
            assert_int_equal(staging_read(staging, (size_t)i, done, (char *)space + done,
                                          total - done < portion ? total - done : portion),
                             DCP_OK);
        check_source(sample, i, space);
    }
    free(space);
}

static void waves_pass_through_little_memory(void **state)
{
    static const uint64_t limits[] = {STAGING_LIMIT_MINIMUM, 300001, 1 << 20, 64 << 20};
    struct sample sample;
    (void)state;
    make_sample(&sample, true);
    for (size_t l = 0; l < sizeof limits / sizeof *limits; l++) {
        for (uint32_t threads = 1; threads < 4; threads++) {
            struct staging_pool pool = {0};
            struct staging_options options = {.limit = limits[l], .threads = threads};
            struct staging *staging;
            assert_int_equal(staging_begin(&pool, sample.sources, SOURCES, &options, &staging),
                             DCP_OK);
            assert_int_equal(staging_is_whole(staging), limits[l] == 64 << 20);
            assert_true(pool.size <= limits[l]);
            if (!staging_is_whole(staging)) {
                assert_int_equal(staging_wait(staging, deadline_after(0.01)), DCP_ERR_TIMEOUT);
                assert_false(staging_is_over(staging));
            }
            read_all(&sample, staging);
            assert_int_equal(staging_wait(staging, deadline_after(60)), DCP_OK);
            staging_free(staging);
            staging_pool_free(&pool);
        }
    }
    free_sample(&sample);
}

static void changes_are_named(void **state)
{
    struct sample sample;
    struct staging_pool pool = {0};
    struct staging_options options = {
        .limit = STAGING_LIMIT_MINIMUM, .threads = 1, .detect_changes = true};
    struct staging *staging;
    (void)state;
    make_sample(&sample, true);
    assert_int_equal(staging_begin(&pool, sample.sources, SOURCES, &options, &staging), DCP_OK);
    read_all(&sample, staging);
    assert_int_equal(staging_wait(staging, deadline_after(60)), DCP_OK);
    staging_free(staging);

    /* The first wave is under way at most; the last ones are still to come. */
    assert_int_equal(staging_begin(&pool, sample.sources, SOURCES, &options, &staging), DCP_OK);
    sample.memory[SOURCES - 2][5]++;
    *(int32_t *)(void *)stand_in_bytes((void *)(uintptr_t)sample.sources[SOURCES - 1].from) += 1;
    sample.memory[SOURCES - 3][1]++; /* a column that is not staged */
    dcp_status status = DCP_OK;
    char *space = malloc((size_t)ROWS_MAX * COLUMNS * 4);
    for (int i = 0; i < SOURCES && status == DCP_OK; i++)
        status = staging_read(staging, (size_t)i, 0, space, bytes_of(&sample, i));
    assert_int_equal(staging_wait(staging, deadline_after(60)), DCP_ERR_STATE);
    assert_non_null(strstr(dcp_error_message(), "w38, w39: changed before it was staged (2 in"));
    staging_free(staging);
    free(space);
    staging_pool_free(&pool);
    free_sample(&sample);
}

static void failing_copies_reach_everyone(void **state)
{
    struct sample sample;
    (void)state;
    make_sample(&sample, true);
    for (long failing = 1;; failing++) {
        struct staging_pool pool = {0};
        struct staging_options options = {.threads = 2};
        struct staging *staging;
        const void *bytes;
        stand_in_reset(failing, 0);
        assert_int_equal(staging_begin(&pool, sample.sources, SOURCES, &options, &staging), DCP_OK);
        dcp_status status = staging_wait(staging, deadline_after(60));
        if (status != DCP_OK) {
            assert_int_equal(status, DCP_ERR_DEVICE);
            assert_non_null(strstr(dcp_error_message(), ": stand-in:"));
            status = DCP_OK;
            for (int i = 0; i < SOURCES && status == DCP_OK; i++)
                status = staging_take(staging, (size_t)i, &bytes);
            assert_int_equal(status, DCP_ERR_DEVICE);
        }
        bool ended = staging_wait(staging, deadline_after(60)) == DCP_OK;
        staging_free(staging);
        staging_pool_free(&pool);
        if (ended)
            break;
    }
    stand_in_reset(0, 0);
    free_sample(&sample);
}

static void failing_allocations_leave_nothing(void **state)
{
    struct sample sample;
    (void)state;
    make_sample(&sample, false);
    dcp_status status = DCP_ERR_NO_MEMORY;
    for (long failing = 1; status != DCP_OK; failing++) {
        struct staging_pool pool = {0};
        struct staging_options options = {.threads = 2, .detect_changes = true};
        struct staging *staging;
        failing_allocator_install(failing, false);
        status = staging_begin(&pool, sample.sources, SOURCES, &options, &staging);
        assert_true(status == DCP_OK || (status == DCP_ERR_NO_MEMORY && !staging));
        staging_free(staging);
        staging_pool_free(&pool);
        assert_int_equal(failing_allocator_remove(), 0);
    }
    free_sample(&sample);
}

static void *stop_soon(void *staging)
{
    struct timespec pause = {.tv_nsec = 20000000};
    nanosleep(&pause, NULL);
    dcp_error_set(DCP_ERR_IO, "the disk is gone");
    staging_stop(staging);
    return NULL;
}

/* Whoever writes has failed: nobody waits for room that never comes. */
static void stopping_wakes_everyone(void **state)
{
    struct sample sample;
    struct staging_pool pool = {0};
    struct staging_options options = {.limit = STAGING_LIMIT_MINIMUM, .threads = 2};
    struct staging *staging;
    pthread_t thread;
    (void)state;
    make_sample(&sample, false);
    assert_int_equal(staging_begin(&pool, sample.sources, SOURCES, &options, &staging), DCP_OK);
    assert_int_equal(pthread_create(&thread, NULL, stop_soon, staging), 0);
    assert_int_equal(staging_wait(staging, deadline_after(60)), DCP_ERR_IO);
    assert_string_equal(dcp_error_message(), "the disk is gone");
    pthread_join(thread, NULL);
    staging_free(staging);

    assert_int_equal(staging_begin(&pool, sample.sources, SOURCES, &options, &staging), DCP_OK);
    staging_free(staging);
    staging_pool_free(&pool);
    free_sample(&sample);
}

/* Memory that a device still copies into is not given back. */
static void what_was_started_ends_before_its_memory_goes(void **state)
{
    enum { COUNT = 3, ELEMENTS = 1000 };
    static int32_t memory[COUNT][ELEMENTS];
    static const int64_t sizes[] = {ELEMENTS}, strides[] = {1};
    struct staging_source sources[COUNT];
    struct staging_pool pool = {0};
    struct staging_options options = {.threads = 1};
    struct staging *staging;
    (void)state;
    for (int i = 0; i < COUNT; i++)
        sources[i] = (struct staging_source){.name = "w",
                                             .device = late_device(),
                                             .from = memory[i],
                                             .ndim = 1,
                                             .sizes = sizes,
                                             .strides = strides,
                                             .element_size = sizeof(int32_t)};
    late_device_fail_waits(1);
    assert_int_equal(staging_begin(&pool, sources, COUNT, &options, &staging), DCP_OK);
    assert_int_equal(staging_wait(staging, deadline_after(60)), DCP_ERR_DEVICE);
    staging_free(staging);
    assert_int_equal(late_device_pending(), 0);
    staging_pool_free(&pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_is_there_at_once),
        cmocka_unit_test(what_was_started_ends_before_its_memory_goes),
        cmocka_unit_test(waves_pass_through_little_memory),
        cmocka_unit_test(changes_are_named),
        cmocka_unit_test(failing_copies_reach_everyone),
        cmocka_unit_test(failing_allocations_leave_nothing),
        cmocka_unit_test(stopping_wakes_everyone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
