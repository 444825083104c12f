/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fault/failing_allocator.h"
#include "plan/save/save_plan.h"

static struct write_result sample[] = {
    {"__0_0.distcp", 0, 1, true},
    {"__0_0.distcp", 1, 100000, false},
    {"elsewhere/\xc3\xa4", 5, 7, true},
    {"__0_0.distcp", INT64_MAX - 9, 9, false},
};

static void encode(struct buffer *bytes)
{
    struct write_results results = {.results = sample, .count = 4};
    buffer_init(bytes, 0);
    assert_int_equal(write_results_encode(&results, bytes), DCP_OK);
}

static void test_round_trip(void **state)
{
    (void)state;
    struct buffer bytes;
    struct write_results results;
    encode(&bytes);
    assert_int_equal(write_results_decode(bytes.data, bytes.size, &results), DCP_OK);
    assert_int_equal(results.count, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(results.results[i].path, sample[i].path);
        assert_int_equal(results.results[i].offset, sample[i].offset);
        assert_int_equal(results.results[i].length, sample[i].length);
        assert_int_equal(results.results[i].zstd, sample[i].zstd);
    }
    assert_ptr_equal(results.results[0].path, results.results[1].path);
    write_results_free(&results);
    buffer_free(&bytes);
}

static void expect_refused(const void *data, size_t size)
{
    struct write_results results;
    assert_int_equal(write_results_decode(data, size, &results), DCP_ERR_FORMAT);
    assert_non_null(strstr(dcp_error_message(), "write results"));
    write_results_free(&results);
}

static void test_cut_and_changed(void **state)
{
    (void)state;
    struct buffer bytes;
    encode(&bytes);
    for (size_t size = 0; size < bytes.size; size++)
        expect_refused(bytes.data, size);
    for (size_t i = 0; i < bytes.size * 8; i++) {
        struct write_results results;
        bytes.data[i / 8] ^= (unsigned char)(1u << i % 8);
        dcp_status status = write_results_decode(bytes.data, bytes.size, &results);
        assert_true(status == DCP_OK || status == DCP_ERR_FORMAT);
        write_results_free(&results);
        bytes.data[i / 8] ^= (unsigned char)(1u << i % 8);
    }
    buffer_append_u8(&bytes, 0);
    expect_refused(bytes.data, bytes.size);
    buffer_free(&bytes);
}

static void test_refused(void **state)
{
    (void)state;
    /* A path before the first, unknown flags, no bytes, an end beyond 2^63, a lying count. */
    static const char *const cases[] = {"\x23\1\2\1\1", "\x23\1\4\1a\1\1", "\x23\1\0\1a\1\0",
                                        "\x23\1\0\1a\xff\xff\xff\xff\xff\xff\xff\xff\x7f\1",
                                        "\x23\xff\xff\xff\xff\x0f\0"};
    static const size_t sizes[] = {5, 7, 7, 15, 7};
    for (size_t i = 0; i < 5; i++)
        expect_refused(cases[i], sizes[i]);
}

static void test_no_memory(void **state)
{
    (void)state;
    struct buffer bytes;
    encode(&bytes);
    for (long n = 1;; n++) {
        struct write_results results;
        failing_allocator_install(n, false);
        dcp_status status = write_results_decode(bytes.data, bytes.size, &results);
        write_results_free(&results);
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        assert_int_equal(status, reached ? DCP_ERR_NO_MEMORY : DCP_OK);
        if (!reached)
            break;
    }
    buffer_free(&bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_cut_and_changed),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
