/* SPDX-License-Identifier: BSD-3-Clause */
/* Conversions to DCP directories of several ranks that are ended, by their caller or with their
 * process, and continued: the files of finished ranks stay as they are, and the result is that of a
 * conversion that was not ended. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "convert/convert_scene.h"
#include "fault/failing_allocator.h"
#include "storage/commit/save_mark.h"

enum { RANKS = 4 };
/* More than the file of a rank of scene_save(), less than two. */
#define MORE_THAN_A_RANK 1400000

struct trial {
    char *source, *to, *whole; /* whole: what a conversion at one go makes */
    char *data;                /* of what is kept */
};

static char *keep(void **state, const char *name)
{
    return strdup(path_in(state, name));
}

/* Few tensors, so that progress is told seldom. */
static dcp_convert_options plain(dcp_compression compression)
{
    static const char *const names[] = {"model.large", "model.scalar", "optimizer"};
    return (dcp_convert_options){.form = DCP_FORM_DCP,
                                 .ranks = RANKS,
                                 .thread_count = 1,
                                 .compression = compression,
                                 .include = names,
                                 .include_count = sizeof names / sizeof *names};
}

static dcp_convert_options resumed(dcp_compression compression)
{
    dcp_convert_options options = plain(compression);
    options.resume = true;
    return options;
}

static struct trial begin(void **state, dcp_compression compression)
{
    struct trial trial = {keep(state, "source"), keep(state, "to"), keep(state, "whole"),
                          keep(state, "to.partial/data")};
    dcp_convert_options options = plain(compression);
    scene_save(trial.source, true);
    must(dcp_convert(trial.source, trial.whole, &options, NULL));
    return trial;
}

static void end(struct trial *trial)
{
    free(trial->source);
    free(trial->to);
    free(trial->whole);
    free(trial->data);
}

static char *join(const char *directory, const char *name)
{
    char *path = malloc(strlen(directory) + strlen(name) + 2);
    assert_non_null(path);
    sprintf(path, "%s/%s", directory, name);
    return path;
}

static void expect_whole(void **state, const struct trial *trial)
{
    uint64_t faults;
    scene_same_places(trial->whole, trial->to);
    scene_equal(trial->whole, trial->to);
    must(dcp_verify(trial->to, NULL, NULL, NULL, &faults));
    assert_int_equal(faults, 0);
    scene_expect_names(trial->to, RANKS + 2); /* .metadata and metadata.json */
    scene_expect_names(*state, 3);
}

/* ---- ended by the caller ---- */

static bool end_after_a_rank(void *context, const dcp_progress *told)
{
    (void)context;
    /* What follows within a hundredth of a second would not be told. */
    if (told->phase == DCP_PHASE_WRITING)
        usleep(11000);
    return told->phase != DCP_PHASE_WRITING || told->bytes_done < MORE_THAN_A_RANK;
}

static void continued_in_steps(void **state, dcp_compression compression)
{
    struct trial trial = begin(state, compression);
    dcp_convert_options options = resumed(compression);
    char *first = join(trial.data, "__0_0.distcp"), *last = join(trial.to, "__0_0.distcp");
    dcp_convert_report report;
    unsigned long long bytes, before = 0;
    struct stat kept, found;
    int calls = 0;
    options.progress = end_after_a_rank;
    for (; dcp_convert(trial.source, trial.to, &options, &report) != DCP_OK; calls++) {
        assert_non_null(strstr(dcp_error_message(), " bytes are kept in "));
        assert_int_equal(sscanf(dcp_error_message(), "%llu", &bytes), 1);
        assert_true(bytes > before);
        before = bytes;
        scene_expect_size(trial.to, -1);
        if (calls == 0)
            assert_int_equal(stat(first, &kept), 0);
        assert_in_range(calls, 0, RANKS);
    }
    assert_in_range(calls, 2, RANKS);
    assert_int_equal(report.resumed, before);
    assert_int_equal(stat(last, &found), 0);
    assert_int_equal(kept.st_ino, found.st_ino);
    assert_memory_equal(&kept.st_mtim, &found.st_mtim, sizeof kept.st_mtim);
    expect_whole(state, &trial);
    options.progress = NULL;
    must_fail(dcp_convert(trial.source, trial.to, &options, NULL), DCP_ERR_EXISTS,
              "nothing is overwritten");
    free(first);
    free(last);
    end(&trial);
}

static void test_in_steps(void **state)
{
    continued_in_steps(state, DCP_COMPRESSION_NONE);
}

static void test_compressed_in_steps(void **state)
{
    if (DCP_HAVE_ZSTD)
        continued_in_steps(state, DCP_COMPRESSION_ZSTD);
}

/* Nothing that could be kept was done. */
static void test_ended_at_once(void **state)
{
    struct trial trial = begin(state, DCP_COMPRESSION_NONE);
    dcp_convert_options options = resumed(DCP_COMPRESSION_NONE);
    options.progress = scene_end_at_first;
    must_fail(dcp_convert(trial.source, trial.to, &options, NULL), DCP_ERR_CANCELLED, "cancelled");
    scene_expect_names(*state, 2);
    end(&trial);
}

/* ---- ended with its process ---- */

struct death {
    dcp_phase phase;
    uint64_t bytes; /* done in it */
    int times;      /* that this is told */
};

static bool die(void *context, const dcp_progress *told)
{
    struct death *death = context;
    if (told->phase == DCP_PHASE_WRITING)
        usleep(11000);
    if (told->phase == death->phase && told->bytes_done >= death->bytes && --death->times == 0)
        _exit(7);
    return true;
}

static void convert_and_die(const struct trial *trial, struct death death)
{
    int ended;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dcp_convert_options options = resumed(DCP_COMPRESSION_NONE);
        options.progress = die;
        options.progress_context = &death;
        dcp_convert(trial->source, trial->to, &options, NULL);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_true(WIFEXITED(ended) && WEXITSTATUS(ended) == 7);
}

/* As if the process had run on another machine, where nobody can tell whether it still does. */
static void move_mark(const struct trial *trial)
{
    char text[SAVE_MARK_SIZE];
    struct save_mark mark;
    save_mark_init(&mark, "another");
    snprintf(mark.process.host, sizeof mark.process.host, "elsewhere");
    snprintf(mark.process.boot, sizeof mark.process.boot, "another");
    save_mark_print(&mark, text);
    scene_write(trial->data, ".dcp_owner", text);
}

static void test_killed(void **state)
{
    static const struct {
        struct death death;
        const char *left; /* which a conversion that fails would have removed */
        uint64_t kept;    /* at least */
    } cases[] = {
        {{DCP_PHASE_WRITING, 1, 1}, "__0_0.distcp", 0},
        {{DCP_PHASE_WRITING, MORE_THAN_A_RANK, 1}, "__1_0.distcp", 1 << 20},
        {{DCP_PHASE_COMMIT, 0, 1}, ".dcp_owner", 4 << 20},
        {{DCP_PHASE_COMMIT, 0, 2}, ".metadata", 4 << 20}, /* it has only not its name yet */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct trial trial = begin(state, DCP_COMPRESSION_NONE);
        const dcp_convert_options options = resumed(DCP_COMPRESSION_NONE);
        char *left = join(trial.data, cases[i].left);
        dcp_convert_report report;
        convert_and_die(&trial, cases[i].death);
        assert_int_equal(access(left, F_OK), 0);
        scene_expect_size(trial.to, -1);
        move_mark(&trial);
        must(dcp_convert(trial.source, trial.to, &options, &report));
        assert_true(report.resumed >= cases[i].kept);
        expect_whole(state, &trial);
        free(left);
        end(&trial);
        directory_teardown(state);
        directory_setup(state);
    }
}

/* ---- what is kept is not what it should be ---- */

static void keep_a_rank(const struct trial *trial)
{
    dcp_convert_options options = resumed(DCP_COMPRESSION_NONE);
    options.progress = end_after_a_rank;
    must_fail(dcp_convert(trial->source, trial->to, &options, NULL), DCP_ERR_CANCELLED, "kept in");
}

static void replace(const char *path, const char *by, long size)
{
    size_t length;
    char *bytes = scene_read(by, &length);
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    assert_true(file >= 0);
    length = size >= 0 && (size_t)size < length ? (size_t)size : length;
    assert_int_equal(write(file, bytes, length), length);
    close(file);
    free(bytes);
}

static void expect_refused(const struct trial *trial, const char *text)
{
    const dcp_convert_options options = resumed(DCP_COMPRESSION_NONE);
    must_fail(dcp_convert(trial->source, trial->to, &options, NULL), DCP_ERR_FORMAT, text);
    assert_non_null(strstr(dcp_error_message(), "remove "));
    scene_expect_size(trial->to, -1);
}

static void test_damaged(void **state)
{
    struct trial trial = begin(state, DCP_COMPRESSION_NONE);
    const dcp_convert_options options = resumed(DCP_COMPRESSION_NONE);
    char *first = join(trial.data, "__0_0.distcp"), *second = join(trial.data, "__1_0.distcp");
    char *foreign = join(trial.whole, "__0_0.distcp");
    char *first_copy = keep(state, "first"), *second_copy = keep(state, "second");
    keep_a_rank(&trial);
    keep_a_rank(&trial);
    replace(first_copy, first, -1);
    replace(second_copy, second, -1);
    assert_int_equal(unlink(first), 0);
    expect_refused(&trial, "had finished 2 files, but only 1 are there");
    replace(first, foreign, -1);
    expect_refused(&trial, "is of another save");
    replace(first, first_copy, 1000);
    expect_refused(&trial, "is damaged");
    replace(first, second_copy, -1);
    expect_refused(&trial, "holds something else");
    replace(first, first_copy, -1);
    replace(second, first_copy, -1);
    expect_refused(&trial, "holds something else");
    replace(second, second_copy, -1);
    must(dcp_convert(trial.source, trial.to, &options, NULL));
    assert_int_equal(unlink(first_copy), 0);
    assert_int_equal(unlink(second_copy), 0);
    expect_whole(state, &trial);
    free(first);
    free(second);
    free(foreign);
    free(first_copy);
    free(second_copy);
    end(&trial);
}

static void test_of_another(void **state)
{
    struct trial trial = begin(state, DCP_COMPRESSION_NONE);
    dcp_convert_options options = resumed(DCP_COMPRESSION_NONE);
    keep_a_rank(&trial);
    options.ranks = RANKS + 1;
    must_fail(dcp_convert(trial.source, trial.to, &options, NULL), DCP_ERR_EXISTS,
              ".partial: is of another conversion: ");
    options = resumed(DCP_COMPRESSION_NONE);
    options.include_count = 2;
    must_fail(dcp_convert(trial.source, trial.to, &options, NULL), DCP_ERR_EXISTS,
              ".partial: is of another conversion: ");
    end(&trial);
}

/* Each call continues what one without memory has left. Some failures cost nothing but time. */
static void test_without_memory(void **state)
{
    struct trial trial = begin(state, DCP_COMPRESSION_NONE);
    const dcp_convert_options options = resumed(DCP_COMPRESSION_NONE);
    dcp_status status = DCP_ERR_NO_MEMORY;
    for (long n = 1; status != DCP_OK; n += n < 200 ? 7 : 53) {
        failing_allocator_install(n, false);
        status = dcp_convert(trial.source, trial.to, &options, NULL);
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        assert_true(reached ? status == DCP_OK || status == DCP_ERR_NO_MEMORY : status == DCP_OK);
    }
    expect_whole(state, &trial);
    end(&trial);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_in_steps),       TEST(test_compressed_in_steps),
        TEST(test_ended_at_once),  TEST(test_killed),
        TEST(test_damaged),        TEST(test_of_another),
        TEST(test_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
