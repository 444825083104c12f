/* SPDX-License-Identifier: BSD-3-Clause */
/* Conversions that are ended again and again, and continued, come to the same bytes as one that is
 * not; what does not belong to a conversion is not continued. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "convert/convert_scene.h"
#include "fault/failing_allocator.h"

/* A path of the test's directory that stays. */
static char *keep(void **state, const char *name)
{
    return strdup(path_in(state, name));
}

static dcp_convert_options options_of(dcp_form form)
{
    return (dcp_convert_options){.form = form,
                                 .resume = true,
                                 .model_only = true,
                                 .thread_count = 1,
                                 .shard_size = form == DCP_FORM_HF ? 3 << 20 : 0,
                                 .progress = scene_end_at_first};
}

/* Every call is ended when it has done something. Returns how many there were. */
static int convert_in_steps(const char *from, const char *to, dcp_convert_options options)
{
    dcp_convert_report report;
    uint64_t resumed = 0;
    for (int calls = 1;; calls++) {
        dcp_status status = dcp_convert(from, to, &options, &report);
        if (status == DCP_OK) {
            assert_true(report.resumed >= resumed);
            return calls;
        }
        must_fail(status, DCP_ERR_CANCELLED, " bytes are kept in ");
        assert_non_null(strstr(dcp_error_message(), ".partial"));
        unsigned long long bytes;
        assert_int_equal(sscanf(dcp_error_message(), "%llu", &bytes), 1);
        assert_true(bytes > resumed);
        resumed = bytes;
        scene_expect_size(to, -1);
        assert_true(calls < 1000);
    }
}

static void test_in_steps(void **state)
{
    static const struct {
        dcp_form form;
        const char *name;
    } cases[] = {{DCP_FORM_PT, "a.pt"}, {DCP_FORM_SAFETENSORS, "a.safetensors"}};
    char *source = keep(state, "source");
    scene_save(source, true);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dcp_convert_options options = options_of(cases[i].form), plain = {.model_only = true};
        char *to = keep(state, cases[i].name), *whole = keep(state, "whole");
        char *partial = malloc(strlen(to) + sizeof ".partial");
        sprintf(partial, "%s.partial", to);
        plain.form = cases[i].form;
        assert_true(convert_in_steps(source, to, options) > 3);
        scene_expect_size(partial, -1);
        must(dcp_convert(source, whole, &plain, NULL));
        scene_same_file(to, whole);
        assert_int_equal(unlink(whole), 0);
        free(to);
        free(whole);
        free(partial);
    }
    free(source);
}

static void test_directory_in_steps(void **state)
{
    char *source = keep(state, "source"), *to = keep(state, "model"), *whole = keep(state, "whole");
    dcp_convert_options options = options_of(DCP_FORM_HF), plain = options;
    plain.resume = false;
    plain.progress = NULL;
    scene_save(source, true);
    must(dcp_convert(source, whole, &plain, NULL));
    assert_true(convert_in_steps(source, to, options) > 3);
    scene_equal(whole, to);
    scene_expect_names(*state, 3);
    free(source);
    free(to);
    free(whole);
}

/* What is in TARGET.partial after a call that was ended early. */
static void begin(const char *source, const char *to)
{
    const dcp_convert_options options = options_of(DCP_FORM_SAFETENSORS);
    must_fail(dcp_convert(source, to, &options, NULL), DCP_ERR_CANCELLED, "are kept in");
}

static void test_of_another(void **state)
{
    char *source = keep(state, "source"), *to = keep(state, "a.safetensors");
    char *shard = keep(state, "source/__0_0.distcp");
    dcp_convert_options options = options_of(DCP_FORM_SAFETENSORS);
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000}};
    struct stat about;
    scene_save(source, true);
    begin(source, to);
    options.tied = DCP_TIED_KEEP;
    must_fail(dcp_convert(source, to, &options, NULL), DCP_ERR_EXISTS,
              ".partial: is of another conversion: ");
    options = options_of(DCP_FORM_SAFETENSORS);
    assert_int_equal(stat(shard, &about), 0);
    assert_int_equal(utimensat(AT_FDCWD, shard, times, 0), 0);
    must_fail(dcp_convert(source, to, &options, NULL), DCP_ERR_EXISTS, "its source has changed");
    const struct timespec before[2] = {{.tv_nsec = UTIME_OMIT}, about.st_mtim};
    assert_int_equal(utimensat(AT_FDCWD, shard, before, 0), 0);
    options.progress = NULL;
    dcp_convert_report report;
    must(dcp_convert(source, to, &options, &report));
    assert_true(report.resumed > 0);
    must_fail(dcp_convert(source, to, &options, &report), DCP_ERR_EXISTS, "nothing is overwritten");
    scene_expect_names(*state, 2); /* and no directory for another try */
    free(source);
    free(to);
    free(shard);
}

static void test_refused(void **state)
{
    char *source = keep(state, "source"), *to = keep(state, "a.safetensors");
    char *data = keep(state, "a.safetensors.partial/data");
    char *journal = keep(state, "a.safetensors.partial/journal");
    dcp_convert_options options = options_of(DCP_FORM_SAFETENSORS);
    scene_save(source, true);
    begin(source, to);
    int held = open(journal, O_RDONLY);
    assert_int_equal(flock(held, LOCK_EX | LOCK_NB), 0);
    must_fail(dcp_convert(source, to, &options, NULL), DCP_ERR_BUSY, "another process writes it");
    close(held);
    assert_int_equal(unlink(data), 0);
    must_fail(dcp_convert(source, to, &options, NULL), DCP_ERR_FORMAT,
              "is shorter than its journal says; remove ");
    options.form = DCP_FORM_DCP;
    must_fail(dcp_convert(source, to, &options, NULL), DCP_ERR_ARGUMENT, "of one rank");
    options.ranks = 2;
    options.target_storage = dcp_storage_files();
    must_fail(dcp_convert(source, to, &options, NULL), DCP_ERR_ARGUMENT, "can be resumed");
    options.target_storage = NULL;
    options.ranks = 0;
    options.form = DCP_FORM_SAFETENSORS;
    options.storage = dcp_storage_files();
    must_fail(dcp_convert(source, to, &options, NULL), DCP_ERR_ARGUMENT, "can be resumed");
    free(source);
    free(to);
    free(data);
    free(journal);
}

/* Of a journal that was being written only whole records count, and none that is damaged. */
static void test_damaged_journal(void **state)
{
    char *source = keep(state, "source"), *to = keep(state, "a.pt"), *whole = keep(state, "b.pt");
    char *journal = keep(state, "a.pt.partial/journal");
    dcp_convert_options options = options_of(DCP_FORM_PT), plain = {.model_only = true};
    scene_save(source, true);
    must(dcp_convert(source, whole, &plain, NULL));
    for (int trial = 0; trial < 4; trial++) {
        size_t size;
        options.progress = scene_end_at_first;
        for (int calls = 0; calls < 3; calls++)
            must_fail(dcp_convert(source, to, &options, NULL), DCP_ERR_CANCELLED, "are kept in");
        char *bytes = scene_read(journal, &size);
        bytes[size - 9 - 36 * (size_t)(trial / 2)] ^= 1; /* a checksum of a block, of one record */
        int file = open(journal, O_WRONLY | O_TRUNC);
        size -= trial % 2 == 0 ? 0 : 5;
        assert_int_equal(write(file, bytes, size), size);
        close(file);
        free(bytes);
        options.progress = NULL;
        must(dcp_convert(source, to, &options, NULL));
        scene_same_file(to, whole);
        assert_int_equal(unlink(to), 0);
    }
    free(source);
    free(to);
    free(whole);
    free(journal);
}

/* Each call continues what one without memory has left. */
static void test_without_memory(void **state)
{
    char *source = keep(state, "source"), *to = keep(state, "a.pt"), *whole = keep(state, "b.pt");
    dcp_convert_options options = options_of(DCP_FORM_PT), plain = {.model_only = true};
    bool reached = true;
    scene_save(source, true);
    must(dcp_convert(source, whole, &plain, NULL));
    options.progress = NULL;
    for (long n = 1; reached; n += n < 200 ? 7 : 53) {
        failing_allocator_install(n, false);
        dcp_status status = dcp_convert(source, to, &options, NULL);
        reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        assert_true(status == DCP_ERR_NO_MEMORY || status == DCP_OK);
        if (status != DCP_OK)
            continue;
        scene_same_file(to, whole); /* some of it can be done without */
        scene_expect_names(*state, 3);
        assert_int_equal(unlink(to), 0);
    }
    free(source);
    free(to);
    free(whole);
}

/* A journal claims more than it has, and more than there is memory for. */
static void test_hostile_journal(void **state)
{
    static const uint64_t claims[][3] = {{1, 1, 1},
                                         {UINT64_MAX, UINT64_MAX, UINT64_MAX},
                                         {1 << 20, 1 << 28, 1 << 28},
                                         {5, (uint64_t)1 << 62, (uint64_t)1 << 62},
                                         {5, UINT64_MAX, 0},
                                         {5, 3, 4}};
    char *source = keep(state, "source"), *to = keep(state, "a.safetensors");
    char *journal = keep(state, "a.safetensors.partial/journal");
    dcp_convert_options options = options_of(DCP_FORM_SAFETENSORS);
    scene_save(source, true);
    for (size_t i = 0; i < sizeof claims / sizeof *claims; i++) {
        dcp_convert_report report;
        options.progress = scene_end_at_first;
        begin(source, to);
        int file = open(journal, O_RDWR);
        assert_int_equal(ftruncate(file, 24), 0);
        assert_int_equal(pwrite(file, claims[i], sizeof claims[i], 24), sizeof claims[i]);
        assert_int_equal(ftruncate(file, 1000), 0);
        close(file);
        options.progress = NULL;
        must(dcp_convert(source, to, &options, &report));
        assert_int_equal(report.resumed, 0);
        assert_int_equal(unlink(to), 0);
    }
    free(source);
    free(to);
    free(journal);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_hostile_journal), TEST(test_in_steps), TEST(test_directory_in_steps),
        TEST(test_of_another),      TEST(test_refused),  TEST(test_damaged_journal),
        TEST(test_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
