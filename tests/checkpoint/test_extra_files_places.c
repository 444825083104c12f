/* SPDX-License-Identifier: BSD-3-Clause */
/* Extra files of ranks that save by themselves, of unions, beside files of a storage writer, and of
 * checkpoints that are published. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/extra_scene.h"
#include "checkpoint/ranks.h"

static void save_rank(const char *path, int32_t rank, const char *name, const char *text)
{
    const dcp_extra_file file = {sizeof file, name, text, strlen(text)};
    dcp_save_options options = {.without_collectives = true,
                                .rank = rank,
                                .overwrite = DCP_OVERWRITE_REPLACE,
                                .extra_files = &file,
                                .extra_file_count = 1};
    must(extra_scene_save(path, 1, &options));
}

static void ranks_by_themselves_have_their_own(void **state)
{
    const char *path = path_in(state, "c");
    dcp_checkpoint *checkpoint;
    save_rank(path, 0, "rng_0", "zero");
    save_rank(path, 1, "rng_1", "one");
    save_rank(path, 1, "rng_1", "one again");
    extra_scene_expect_all(path, "rng_0=zero rng_1=one again");
    assert_int_equal(extra_scene_verify(path), 0);
    save_rank(path, 1, "rng_0", "of another");
    must(dcp_checkpoint_open(path, NULL, &checkpoint));
    extra_scene_expect(checkpoint, "rng_0", "zero");
    dcp_checkpoint_close(checkpoint);
    assert_int_equal(extra_scene_verify(path), 1);
    assert_non_null(
        strstr(extra_scene_faults, "rng_0: an extra file of this name is in __0.g0.extra.rng_0"));
    const dcp_extra_file file = FILE_OF("all", "ranks");
    must(extra_scene_save_files(path, &file, 1));
    extra_scene_expect_all(path, "all=ranks");
}

static void a_union_has_those_of_its_members(void **state)
{
    const dcp_extra_file first = FILE_OF("config", "1"), second = FILE_OF("config", "2");
    dcp_save_options options = {.extra_file_count = 1};
    dcp_open_options open = {.members = (const char *const[]){"x", "pp1"}, .member_count = 2};
    dcp_extra_file_info info;
    dcp_checkpoint *checkpoint;
    options.extra_files = &first;
    must(extra_scene_save(path_in(state, "u/pp0"), 1, &options));
    must(extra_scene_save(path_in(state, "u/x"), 1, &options));
    options.extra_files = &second;
    must(extra_scene_save(path_in(state, "u/pp1"), 1, &options));
    extra_scene_expect_all(path_in(state, "u"), "pp0/config=1 pp1/config=2");
    assert_int_equal(extra_scene_verify(path_in(state, "u")), 0);
    must(dcp_checkpoint_open(path_in(state, "u"), &open, &checkpoint));
    extra_scene_expect(checkpoint, "x/config", "1");
    extra_scene_expect(checkpoint, "pp1/config", "2");
    must(dcp_checkpoint_extra_file(checkpoint, 0, &info));
    assert_string_equal(info.file, "x/__0.g0.extra.config");
    dcp_checkpoint_close(checkpoint);
}

/* ---- hooks ---- */

static dcp_status wants_no_directory(void *context, dcp_saving *saving, bool is_coordinator)
{
    (void)context, (void)saving, (void)is_coordinator;
    return DCP_OK;
}

static dcp_status is_not_called(void *context, dcp_saving *saving, const dcp_save_plan *plan)
{
    (void)context, (void)saving, (void)plan;
    return dcp_error_set(DCP_ERR_INTERNAL, "nothing is to be written");
}

static dcp_status finishes_nothing(void *context, dcp_saving *saving,
                                   const dcp_checkpoint *metadata, const dcp_write_result *results,
                                   size_t count)
{
    (void)context, (void)saving, (void)metadata, (void)results, (void)count;
    return DCP_OK;
}

static void a_writer_without_a_directory_cannot_take_them(void **state)
{
    const dcp_extra_file file = FILE_OF("a", "text");
    const dcp_storage_writer writer = {.size_of = sizeof writer,
                                       .set_up_storage_writer = wants_no_directory,
                                       .write_data = is_not_called,
                                       .finish = finishes_nothing};
    dcp_save_options options = {
        .storage_writer = &writer, .extra_files = &file, .extra_file_count = 1};
    must_fail(extra_scene_save(path_in(state, "c"), 1, &options), DCP_ERR_ARGUMENT, "no directory");
}

/* ---- publishing ---- */

/* Metadata that was lost comes back with the files that it names, and with others. */
static void publishing_adds_files(void **state)
{
    const dcp_extra_file first = FILE_OF("a", "text"), more = FILE_OF("b", "another");
    const char *path = path_in(state, "c");
    dcp_publish_options options = {.extra_files = &more, .extra_file_count = 1};
    dcp_checkpoint *checkpoint;
    needs_files();
    must(extra_scene_save_files(path, &first, 1));
    must(dcp_checkpoint_open(path, NULL, &checkpoint));
    must_fail(dcp_checkpoint_publish(checkpoint, path, &options), DCP_ERR_EXISTS, "refused");
    assert_int_equal(extra_scene_count_stored(path), 1);
    assert_int_equal(unlink(path_in(state, "c/.metadata")), 0);
    must(dcp_checkpoint_publish(checkpoint, path, &options));
    extra_scene_expect_all(path, "a=text b=another");
    assert_int_equal(access(path_in(state, "c/__0.g1.extra.b"), F_OK), 0);
    assert_int_equal(extra_scene_verify(path), 0);
    options.overwrite = DCP_OVERWRITE_REPLACE;
    options.extra_files = &first;
    must_fail(dcp_checkpoint_publish(checkpoint, path, &options), DCP_ERR_DUPLICATE, "\"a\"");
    options.extra_file_count = 0;
    must(dcp_checkpoint_publish(checkpoint, path, &options));
    extra_scene_expect_all(path, "a=text");
    dcp_checkpoint_close(checkpoint);
    must(extra_scene_save_files(path, &more, 1));
    assert_int_equal(extra_scene_count_stored(path), 1);
}

#define TEST(function)                                                                             \
    cmocka_unit_test_setup_teardown(function, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(ranks_by_themselves_have_their_own),
        TEST(a_union_has_those_of_its_members),
        TEST(a_writer_without_a_directory_cannot_take_them),
        TEST(publishing_adds_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
