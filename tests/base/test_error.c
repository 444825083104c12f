/* SPDX-License-Identifier: BSD-3-Clause */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"

static void every_status_has_its_own_words(void **state)
{
    (void)state;
    int known = 0;
    for (int a = -1; a < 1000; a++) {
        const char *text = dcp_status_string((dcp_status)a);
        assert_non_null(text);
        known += error_is_status((dcp_status)a);
        assert_int_equal(error_is_status((dcp_status)a), strcmp(text, "unknown status") != 0);
        for (int b = -1; b < a; b++)
            if (error_is_status((dcp_status)a))
                assert_string_not_equal(text, dcp_status_string((dcp_status)b));
    }
    assert_int_equal(known, 30);
}

static void the_message_is_kept_until_the_next(void **state)
{
    (void)state;
    error_clear();
    assert_string_equal(dcp_error_message(), "");
    assert_int_equal(dcp_error_set(DCP_ERR_SHAPE, "%s: %d", "weight", 3), DCP_ERR_SHAPE);
    assert_string_equal(dcp_error_message(), "weight: 3");
    /* Built from itself. */
    dcp_error_set(DCP_ERR_SHAPE, "again %s", dcp_error_message());
    assert_string_equal(dcp_error_message(), "again weight: 3");
}

static void a_message_survives_a_failing_cleanup(void **state)
{
    (void)state;
    struct saved_error error;
    dcp_error_set(DCP_ERR_IO, "first");
    error_save(&error);
    dcp_error_set(DCP_ERR_NOT_FOUND, "second");
    assert_int_equal(error_restore(&error), DCP_ERR_IO);
    assert_string_equal(dcp_error_message(), "first");
}

static void prefixes_go_in_front_of_the_right_message(void **state)
{
    (void)state;
    dcp_error_set(DCP_ERR_IO, "disk gone");
    assert_int_equal(error_prefix(DCP_ERR_IO, "rank %d", 3), DCP_ERR_IO);
    assert_string_equal(dcp_error_message(), "rank 3: disk gone");
    /* Of an older failure nothing is told. */
    error_prefix(DCP_ERR_GROUP, "gathering");
    assert_string_equal(dcp_error_message(), "gathering: communication failed");
    error_clear();
    error_prefix(DCP_ERR_CALLBACK, "model");
    assert_string_equal(dcp_error_message(), "model: callback failed");
}

static void long_messages_are_cut_between_characters(void **state)
{
    (void)state;
    char text[3 * ERROR_TEXT_MAX];
    for (size_t shift = 0; shift < 4; shift++) {
        memset(text, 'a', shift);
        text[shift] = '\0';
        for (size_t i = 0; i < 700; i++)
            strcat(text, "\xe2\x82\xac");
        dcp_error_set(DCP_ERR_FORMAT, "%s", text);
        const char *cut = dcp_error_message();
        size_t length = strlen(cut);
        assert_in_range(length, ERROR_TEXT_MAX - 4, ERROR_TEXT_MAX - 1);
        assert_true(utf8_is_valid(cut, length));
        assert_string_equal(cut + length - 3, "...");
        error_prefix(DCP_ERR_FORMAT, "file");
        cut = dcp_error_message();
        assert_true(utf8_is_valid(cut, strlen(cut)));
        assert_memory_equal(cut, "file: ", 6);
    }
    memset(text, 'b', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    error_prefix(DCP_ERR_FORMAT, "%s", text);
    assert_int_equal(strlen(dcp_error_message()), ERROR_TEXT_MAX - 1);
}

static void *fail_elsewhere(void *argument)
{
    (void)argument;
    dcp_error_set(DCP_ERR_IO, "elsewhere");
    return NULL;
}

static void a_size_that_is_not_known_is_not_named(void **state)
{
    (void)state;
    assert_int_equal(error_no_memory(12, "a list"), DCP_ERR_NO_MEMORY);
    assert_string_equal(dcp_error_message(), "no memory for 12 bytes of a list");
    assert_int_equal(error_no_memory(0, "a list"), DCP_ERR_NO_MEMORY);
    assert_string_equal(dcp_error_message(), "no memory for a list");
}

static void messages_belong_to_their_thread(void **state)
{
    (void)state;
    dcp_error_set(DCP_ERR_SHAPE, "here");
    pthread_t thread;
    pthread_create(&thread, NULL, fail_elsewhere, NULL);
    pthread_join(thread, NULL);
    assert_string_equal(dcp_error_message(), "here");
}

struct lines {
    int count;
    dcp_log_level level;
    char last[64];
};

static void keep_line(void *context, dcp_log_level level, const char *line)
{
    struct lines *lines = context;
    lines->count++;
    lines->level = level;
    snprintf(lines->last, sizeof lines->last, "%s", line);
}

static void log_lines_go_to_the_caller_up_to_its_level(void **state)
{
    (void)state;
    struct lines lines = {0};
    log_line(DCP_LOG_ERROR, "nobody listens");
    dcp_set_log(keep_line, &lines, DCP_LOG_INFO);
    log_line(DCP_LOG_DEBUG, "too verbose");
    assert_int_equal(lines.count, 0);
    log_line(DCP_LOG_INFO, "step %d", 7);
    assert_int_equal(lines.count, 1);
    assert_int_equal(lines.level, DCP_LOG_INFO);
    assert_string_equal(lines.last, "step 7");
    dcp_set_log(NULL, NULL, DCP_LOG_DEBUG);
    log_line(DCP_LOG_ERROR, "nobody listens");
    assert_int_equal(lines.count, 1);
}

static void versions_agree(void **state)
{
    (void)state;
    char text[32];
    int number = dcp_version_number();
    snprintf(text, sizeof text, "%d.%d.%d", number / 10000, number / 100 % 100, number % 100);
    assert_string_equal(text, dcp_version_string());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_status_has_its_own_words),
        cmocka_unit_test(the_message_is_kept_until_the_next),
        cmocka_unit_test(a_message_survives_a_failing_cleanup),
        cmocka_unit_test(prefixes_go_in_front_of_the_right_message),
        cmocka_unit_test(long_messages_are_cut_between_characters),
        cmocka_unit_test(a_size_that_is_not_known_is_not_named),
        cmocka_unit_test(messages_belong_to_their_thread),
        cmocka_unit_test(log_lines_go_to_the_caller_up_to_its_level),
        cmocka_unit_test(versions_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
