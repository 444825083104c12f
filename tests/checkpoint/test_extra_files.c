/* SPDX-License-Identifier: BSD-3-Clause */
/* Extra files: given by ranks, under which names, replaced and removed with their checkpoint. What
 * a crash leaves of them is in fault/test_extra_file_faults.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/extra_scene.h"
#include "checkpoint/ranks.h"

enum { RANKS = 3 };

static dcp_status save_of_rank(struct rank *self)
{
    const char *const *names = self->context; /* of each rank; NULL: none */
    char text[64];
    dcp_extra_file files[2] = {{.size_of = sizeof *files, .name = names[self->rank], .bytes = text},
                               FILE_OF("config.yaml", "layers: 2\n")};
    dcp_save_options options = {.group = self->group,
                                .coordinator = 1,
                                .timeout_seconds = 20,
                                .extra_files = files,
                                .extra_file_count = names[self->rank] ? 1 : 0};
    files[0].size = (size_t)snprintf(text, sizeof text, "of %d", self->rank);
    if (self->rank == 2)
        options.extra_file_count = 2;
    return extra_scene_save(self->path, 1, &options);
}

static void ranks_give_files_that_are_read_back(void **state)
{
    const char *const names[RANKS] = {"rng_0.bin", NULL, "rng_2.bin"};
    const char *path = path_in(state, "c");
    dcp_extra_file_info info;
    dcp_checkpoint *checkpoint;
    char text[8];
    size_t index = 7;
    ranks_must(RANKS, path, save_of_rank, (void *)names);
    extra_scene_expect_all(path, "rng_0.bin=of 0 rng_2.bin=of 2 config.yaml=layers: 2\n");
    must(dcp_checkpoint_open(path, NULL, &checkpoint));
    must(dcp_checkpoint_extra_file(checkpoint, 2, &info));
    assert_string_equal(info.file, "__2.g0.extra.config.yaml");
    assert_true(info.xxh3 != 0);
    must_fail(dcp_checkpoint_extra_file(checkpoint, 3, &info), DCP_ERR_ARGUMENT, "has 3");
    must_fail(dcp_checkpoint_extra_file(NULL, 0, &info), DCP_ERR_ARGUMENT, "NULL");
    must_fail(dcp_checkpoint_extra_file_sized(checkpoint, 0, NULL, 0), DCP_ERR_ARGUMENT, "place");
    must_fail(dcp_checkpoint_find_extra_file(checkpoint, "value", &index), DCP_ERR_NOT_FOUND,
              "value");
    must_fail(dcp_checkpoint_find_extra_file(checkpoint, NULL, &index), DCP_ERR_ARGUMENT, "name");
    must_fail(dcp_checkpoint_read_extra_file(checkpoint, 0, text, 3, NULL), DCP_ERR_ARGUMENT,
              "expected 4");
    must_fail(dcp_checkpoint_read_extra_file(checkpoint, 0, NULL, 4, NULL), DCP_ERR_ARGUMENT,
              "rng_0");
    must_fail(dcp_checkpoint_read_extra_file(checkpoint, 9, text, 4, NULL), DCP_ERR_ARGUMENT, "9");
    assert_int_equal(index, 7);
    assert_int_equal(dcp_checkpoint_extra_file_count(NULL), 0);
    dcp_checkpoint_close(checkpoint);
}

static void a_name_is_given_by_one_rank(void **state)
{
    const char *const names[RANKS] = {"same", "other", "same"};
    struct rank ranks[RANKS_MAX];
    dcp_checkpoint *checkpoint;
    ranks_run(ranks, RANKS, path_in(state, "c"), save_of_rank, (void *)names);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(ranks[r].status, DCP_ERR_DUPLICATE);
        assert_non_null(strstr(ranks[r].message, "\"same\" is given by rank 0 and by rank 2"));
    }
    must_fail(dcp_checkpoint_open(path_in(state, "c"), NULL, &checkpoint), DCP_ERR_NOT_FOUND, "");
}

/* ---- what is refused ---- */

static void names_that_checkpoints_use_are_refused(void **state)
{
    static const char *const refused[] = {
        "",
        ".metadata",
        ".dcp_owner.3",
        "..",
        "../a",
        "a/b",
        "a\\b",
        "/a",
        "metadata.json",
        "__0_0.distcp",
        "__0.g0.extra.a",
        "a.distcp",
        "a.safetensors",
        "a.tmp",
        "model.safetensors.index.json",
        "pp0",
        "a\nb",
        "\xff",
        "0123456789012345678901234567890123456789012345678901234567890123"};
    static const char *const taken[] = {
        "pp",
        "pp0.txt",
        "a b",
        "metadata.json.bak",
        "r\xc3\xa9sum\xc3\xa9",
        "distcp",
        "012345678901234567890123456789012345678901234567890123456789012"};
    const char *path = path_in(state, "c");
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const dcp_extra_file file = {sizeof file, refused[i], "x", 1};
        must_fail(extra_scene_save_files(path, &file, 1), DCP_ERR_ARGUMENT, "cannot be the name");
    }
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        const dcp_extra_file file = {sizeof file, taken[i], "x", 1};
        char expected[128];
        must(extra_scene_save_files(path, &file, 1));
        snprintf(expected, sizeof expected, "%s=x", taken[i]);
        extra_scene_expect_all(path, expected);
    }
}

static void wrong_arguments_are_refused(void **state)
{
    const char *path = path_in(state, "c");
    dcp_extra_file files[2] = {FILE_OF("a", "1"), FILE_OF("a", "2")};
    must_fail(extra_scene_save_files(path, files, 2), DCP_ERR_DUPLICATE, "\"a\" is given twice");
    must_fail(extra_scene_save_files(path, NULL, 2), DCP_ERR_ARGUMENT, "extra_files is NULL");
    files[1].name = NULL;
    must_fail(extra_scene_save_files(path, files, 2), DCP_ERR_ARGUMENT, "file 1 has no name");
    files[1].name = "b";
    files[1].bytes = NULL;
    must_fail(extra_scene_save_files(path, files, 2), DCP_ERR_ARGUMENT, "file 1 has no bytes");
    files[1].size = 0;
    must(extra_scene_save_files(path, files, 2));
    extra_scene_expect_all(path, "a=1 b=");
    files[1].size_of = 8;
    must_fail(extra_scene_save_files(path, files, 2), DCP_ERR_ARGUMENT, "file 1 has size_of 8");
    files[0].size_of = 0;
    must_fail(extra_scene_save_files(path, files, 2), DCP_ERR_ARGUMENT, "size_of 0");
}

/* Of a version to come. */
static void files_of_a_larger_struct_are_taken(void **state)
{
    struct larger {
        dcp_extra_file file;
        uint64_t later;
    } files[2] = {{FILE_OF("a", "1"), 0}, {FILE_OF("b", "2"), 0}};
    files[0].file.size_of = files[1].file.size_of = sizeof *files;
    must(extra_scene_save_files(path_in(state, "c"), &files[0].file, 2));
    extra_scene_expect_all(path_in(state, "c"), "a=1 b=2");
    files[1].later = 1;
    must_fail(extra_scene_save_files(path_in(state, "c"), &files[0].file, 2), DCP_ERR_ARGUMENT,
              "dcp_extra_file");
}

/* ---- overwriting ---- */

static void files_are_replaced_with_their_checkpoint(void **state)
{
    const dcp_extra_file first[] = {FILE_OF("a", "a1"), FILE_OF("b", "b1")};
    const dcp_extra_file second[] = {FILE_OF("b", "b2"), FILE_OF("c", "c2")};
    const char *path = path_in(state, "c");
    must(extra_scene_save_files(path, first, 2));
    must(extra_scene_save_files(path, second, 2));
    extra_scene_expect_all(path, "b=b2 c=c2");
    must(extra_scene_save_files(path, NULL, 0));
    extra_scene_expect_all(path, "");
}

static void what_is_not_named_is_swept(void **state)
{
    const dcp_extra_file first[] = {FILE_OF("a", "a1"), FILE_OF("b", "b1")};
    const char *path = path_in(state, "c");
    needs_files();
    must(extra_scene_save_files(path, first, 2));
    assert_int_equal(extra_scene_count_stored(path), 2);
    must(extra_scene_save_files(path, first, 1));
    assert_int_equal(extra_scene_count_stored(path), 1);
    must(extra_scene_save_files(path, NULL, 0));
    assert_int_equal(extra_scene_count_stored(path), 0);
}

static void a_reader_learns_that_the_checkpoint_was_replaced(void **state)
{
    const dcp_extra_file first = FILE_OF("a", "a1"), second = FILE_OF("a", "a2");
    const char *path = path_in(state, "c");
    char text[1024];
    dcp_checkpoint *checkpoint;
    must(extra_scene_save_files(path, &first, 1));
    must(dcp_checkpoint_open(path, NULL, &checkpoint));
    extra_scene_expect(checkpoint, "a", "a1");
    must(extra_scene_save_files(path, &second, 1));
    must_fail(extra_scene_read(checkpoint, "a", text), DCP_ERR_BUSY, "replaced while it was read");
    dcp_checkpoint_close(checkpoint);
    extra_scene_expect_all(path, "a=a2");
}

static void removing_a_checkpoint_removes_its_files(void **state)
{
    const dcp_extra_file file = FILE_OF("a", "a1");
    const char *path = path_in(state, "c");
    dcp_removal removal;
    needs_files();
    must(extra_scene_save_files(path, &file, 1));
    must(dcp_checkpoint_remove(path, NULL, &removal));
    assert_int_equal(removal.removed, 4);
    assert_int_equal(removal.foreign, 0);
    assert_int_not_equal(access(path, F_OK), 0);
}

/* ---- what saves with files keep ---- */

static dcp_status save_with_cache(struct rank *self)
{
    dcp_figures figures = {.size_of = sizeof figures};
    dcp_extra_file files[] = {FILE_OF("first", "1"), FILE_OF("second", "2"), FILE_OF("third", "3")};
    dcp_save_options options = {.group = self->group,
                                .timeout_seconds = 20,
                                .overwrite = DCP_OVERWRITE_REPLACE,
                                .figures = &figures};
    dcp_status status = dcp_save_plan_cache_new(&options.plan_cache);
    for (int i = 0; i < 4 && status == DCP_OK; i++) {
        options.extra_files = &files[i];
        options.extra_file_count = self->rank == i && i < 3 ? 1 : 0;
        status = extra_scene_save(self->path, i, &options);
        if (status == DCP_OK && figures.plan_reused != (i > 0))
            status = dcp_error_set(DCP_ERR_INTERNAL, "save %d planned anew", i);
        static const char *const expected[] = {"first=1", "second=2", "third=3", ""};
        if (status == DCP_OK)
            status = dcp_group_agree(self->group, DCP_OK, 20);
        if (status == DCP_OK && self->rank == 0)
            extra_scene_expect_all(self->path, expected[i]);
        if (status == DCP_OK)
            status = dcp_group_agree(self->group, DCP_OK, 20);
    }
    dcp_save_plan_cache_free(options.plan_cache);
    return status;
}

static void plans_are_kept_whatever_files_there_are(void **state)
{
    ranks_must(RANKS, path_in(state, "c"), save_with_cache, NULL);
}

#define TEST(function)                                                                             \
    cmocka_unit_test_setup_teardown(function, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(ranks_give_files_that_are_read_back),
        TEST(a_name_is_given_by_one_rank),
        TEST(names_that_checkpoints_use_are_refused),
        TEST(wrong_arguments_are_refused),
        TEST(files_of_a_larger_struct_are_taken),
        TEST(files_are_replaced_with_their_checkpoint),
        TEST(what_is_not_named_is_swept),
        TEST(a_reader_learns_that_the_checkpoint_was_replaced),
        TEST(removing_a_checkpoint_removes_its_files),
        TEST(plans_are_kept_whatever_files_there_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
