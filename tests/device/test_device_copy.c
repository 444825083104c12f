/* SPDX-License-Identifier: BSD-3-Clause */
/* Boxes of elements go to a device and come back, whatever their strides on both sides, in as few
 * copies as the strides allow. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "device/device_copy.h"
#include "device/late_device.h"
#include "device/stand_in.h"
#include "fault/failing_allocator.h"
#include "storage/layout.h"
#include "storage/scratch.h"

#define ELEMENTS_MAX 4096

static void fill_random(uint64_t *random, unsigned char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)scratch_random(random);
}

static size_t total_bytes(const struct layout *layout, size_t element)
{
    return (size_t)layout->total * element;
}

/* One box of random sizes, with random layouts on both sides. */
static void round_trip(uint64_t *random)
{
    static const size_t element_sizes[] = {1, 2, 4, 8, 16};
    size_t element = element_sizes[scratch_below(random, 5)];
    int32_t ndim = (int32_t)scratch_below(random, 6);
    int64_t sizes[DCP_MAX_DIMS], volume = 1;
    struct layout there, here;
    for (int32_t i = 0; i < ndim; i++) {
        sizes[i] = scratch_below(random, 6);
        volume *= sizes[i];
    }
    layout_make(&there, random, ndim, sizes, true, scratch_below(random, 4) == 0);
    layout_make(&here, random, ndim, sizes, true, scratch_below(random, 4) == 0);
    size_t there_size = total_bytes(&there, element), here_size = total_bytes(&here, element);
    unsigned char *dense = malloc((size_t)volume * element + 1);
    unsigned char *host = malloc(here_size), *expected = malloc(here_size);
    unsigned char *expected_there = malloc(there_size);
    fill_random(random, dense, (size_t)volume * element);
    memset(host, 0xee, here_size);
    memset(expected, 0xee, here_size);
    memset(expected_there, 0xdd, there_size);
    unsigned char *memory = stand_in_new(1, expected_there, there_size);
    dcp_device device = stand_in(1);

    layout_fill(&here, element, dense, expected);
    layout_fill(&there, element, dense, expected_there);
    unsigned char *first = memory + there.first * (int64_t)element;
    assert_int_equal(device_copy_from_host(&device, ndim, sizes, element,
                                           expected + here.first * (int64_t)element, here.strides,
                                           first, there.strides),
                     DCP_OK);
    assert_memory_equal(stand_in_bytes(memory), expected_there, there_size);
    assert_int_equal(device_copy_to_host(&device, ndim, sizes, element, first, there.strides,
                                         host + here.first * (int64_t)element, here.strides),
                     DCP_OK);
    assert_memory_equal(host, expected, here_size);
    stand_in_free(memory);
    free(expected_there);
    free(expected);
    free(host);
    free(dense);
}

static void any_layout_goes_there_and_back(void **state)
{
    (void)state;
    uint64_t random = 7;
    for (int i = 0; i < 5000; i++)
        round_trip(&random);
}

/* A copy that is only started goes on in the caller's memory alone: what needs other memory on the
 * way is waited for. */
static void what_is_started_needs_no_other_memory(void **state)
{
    static const int64_t sizes[] = {3, 4}, dense[] = {4, 1}, wide[] = {8, 2};
    float there[12], here[24] = {0};
    dcp_device device = late_device();
    (void)state;
    for (int i = 0; i < 12; i++)
        there[i] = (float)(i + 1);
    assert_int_equal(
        device_start_to_host(&device, 2, sizes, sizeof(float), there, dense, here, dense), DCP_OK);
    assert_int_equal(late_device_pending(), 1);
    assert_int_equal(device.operations->event_wait(&device, NULL), DCP_OK);
    assert_memory_equal(here, there, sizeof there);
    assert_int_equal(
        device_start_to_host(&device, 2, sizes, sizeof(float), there, dense, here, wide), DCP_OK);
    assert_int_equal(late_device_pending(), 0);
    for (int i = 0; i < 12; i++)
        assert_true(here[2 * i] == there[i]);
    memset(there, 0, sizeof there);
    assert_int_equal(
        device_start_from_host(&device, 2, sizes, sizeof(float), here, wide, there, dense), DCP_OK);
    assert_int_equal(late_device_pending(), 0);
    for (int i = 0; i < 12; i++)
        assert_true(here[2 * i] == there[i]);
}

/* Copies a box out and returns how many copies it took. */
static long copies_of(int32_t ndim, const int64_t *sizes, const int64_t *strides)
{
    int64_t dense[DCP_MAX_DIMS];
    float values[ELEMENTS_MAX], host[ELEMENTS_MAX];
    int64_t index[DCP_MAX_DIMS] = {0};
    dcp_device device = stand_in(0);
    for (int i = 0; i < ELEMENTS_MAX; i++)
        values[i] = (float)i;
    float *memory = stand_in_new(0, values, sizeof values);
    shape_strides(ndim, sizes, dense);
    stand_in_reset(0, 0);
    assert_int_equal(
        device_copy_to_host(&device, ndim, sizes, sizeof *host, memory, strides, host, dense),
        DCP_OK);
    do {
        assert_true(host[layout_offset(ndim, index, dense)] ==
                    (float)layout_offset(ndim, index, strides));
    } while (layout_next(ndim, sizes, index));
    stand_in_free(memory);
    return stand_in_figures().copies;
}

static void copies_are_few(void **state)
{
    (void)state;
    assert_int_equal(copies_of(0, NULL, NULL), 1);
    assert_int_equal(copies_of(3, (int64_t[]){4, 5, 6}, (int64_t[]){30, 6, 1}), 1);
    /* Some columns of a matrix, and some of its transpose. */
    assert_int_equal(copies_of(2, (int64_t[]){30, 7}, (int64_t[]){64, 1}), 1);
    assert_int_equal(copies_of(2, (int64_t[]){7, 30}, (int64_t[]){1, 64}), 1);
    /* Every other element; an element again and again; rows again and again. */
    assert_int_equal(copies_of(1, (int64_t[]){40}, (int64_t[]){2}), 1);
    assert_int_equal(copies_of(2, (int64_t[]){8, 9}, (int64_t[]){0, 0}), 1);
    assert_int_equal(copies_of(2, (int64_t[]){8, 9}, (int64_t[]){0, 1}), 1);
    /* The longest dimension gives the rows of a copy: the fewest copies remain. */
    assert_int_equal(copies_of(3, (int64_t[]){20, 3, 4}, (int64_t[]){100, 10, 1}), 3);
    assert_int_equal(copies_of(3, (int64_t[]){3, 20, 4}, (int64_t[]){1000, 10, 1}), 3);
}

/* A sliding window: rows that overlap are copied one by one. */
static void overlapping_sources_are_read(void **state)
{
    (void)state;
    assert_int_equal(copies_of(2, (int64_t[]){10, 5}, (int64_t[]){1, 1}), 10);
    assert_int_equal(copies_of(2, (int64_t[]){10, 5}, (int64_t[]){3, 1}), 10);
}

static void failures_name_the_device(void **state)
{
    (void)state;
    int64_t sizes[] = {4, 8}, transposed[] = {1, 4}, dense[] = {8, 1};
    int32_t host[32];
    void *memory = stand_in_new(3, NULL, sizeof host);
    dcp_device device = stand_in(3);
    stand_in_reset(1, 0);
    assert_int_equal(device_copy_to_host(&device, 2, sizes, 4, memory, dense, host, dense),
                     DCP_ERR_DEVICE);
    assert_string_equal(dcp_error_message(), "stand-in:3: the copy failed on purpose");
    stand_in_reset(1, 0);
    assert_int_equal(device_copy_from_host(&device, 2, sizes, 4, host, transposed, memory, dense),
                     DCP_ERR_DEVICE);
    stand_in_reset(0, 0);

    failing_allocator_install(1, false);
    assert_int_equal(device_copy_to_host(&device, 2, sizes, 4, memory, transposed, host, dense),
                     DCP_ERR_NO_MEMORY);
    assert_int_equal(failing_allocator_remove(), 0);
    assert_int_equal(stand_in_figures().copies, 0);
    stand_in_free(memory);
}

/* So that the other tests mean something. */
static void touching_device_memory_crashes(void **state)
{
    (void)state;
    volatile unsigned char *memory = stand_in_new(0, NULL, 64);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(STDERR_FILENO);
        _exit(memory[5] == 0 ? 0 : 0);
    }
    int outcome = 0;
    assert_int_equal(waitpid(child, &outcome, 0), child);
    assert_false(WIFEXITED(outcome) && WEXITSTATUS(outcome) == 0);
    stand_in_free((void *)memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_layout_goes_there_and_back),
        cmocka_unit_test(what_is_started_needs_no_other_memory),
        cmocka_unit_test(copies_are_few),
        cmocka_unit_test(overlapping_sources_are_read),
        cmocka_unit_test(failures_name_the_device),
        cmocka_unit_test(touching_device_memory_crashes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
