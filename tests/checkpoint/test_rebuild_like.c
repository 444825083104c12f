/* SPDX-License-Identifier: BSD-3-Clause */
/* Metadata of PyTorch's shard files, rebuilt by another checkpoint. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "fault/failing_allocator.h"

static const dcp_shard_list_options with_streams = {.streams = true};

/* A copy of a fixture, with or without its .metadata. */
static void copy_fixture(const char *name, const char *to, bool with_metadata)
{
    char line[2048];
    snprintf(line, sizeof line, "cp -r '%s/%s/ckpt' '%s' && chmod -R u+w '%s'%s%s%s", FIXTURES,
             name, to, to, with_metadata ? "" : " && rm '", with_metadata ? "" : to,
             with_metadata ? "" : "/.metadata'");
    assert_int_equal(system(line), 0);
}

static dcp_shard_list *read_list(const char *directory)
{
    dcp_shard_list *list;
    must(dcp_shard_list_read(directory, &with_streams, &list));
    return list;
}

static dcp_checkpoint *open_checkpoint(const char *path)
{
    dcp_checkpoint *checkpoint;
    must(dcp_checkpoint_open(path, NULL, &checkpoint));
    return checkpoint;
}

static void count_fault(void *context, const char *file, uint64_t offset, const char *name,
                        const char *fault)
{
    (void)file, (void)offset, (void)name, (void)fault;
    ++*(size_t *)context;
}

static void test_same_as_before(void **state)
{
    const char *lost = path_in(state, "lost"), *other = path_in(state, "other");
    copy_fixture("fsdp2_adam_w2", lost, false);
    copy_fixture("fsdp2_adam_w2", other, true);
    dcp_checkpoint *like = open_checkpoint(other), *made;
    dcp_shard_list *list = read_list(lost);
    size_t faults = 0;
    uint64_t damaged = 0;
    const dcp_rebuild_options options = {
        .like = like, .report = count_fault, .report_context = &faults};
    must(dcp_shard_list_rebuild(list, &options, &made));
    dcp_shard_list_free(list);
    assert_int_equal(dcp_checkpoint_count(made), dcp_checkpoint_count(like));
    dcp_checkpoint_close(like);
    must(dcp_checkpoint_publish(made, lost, NULL));
    dcp_checkpoint_close(made);
    must(dcp_verify(lost, NULL, count_fault, &faults, &damaged));
    assert_int_equal(faults, 0);
    assert_int_equal(damaged, 0);
}

static void test_streams(void **state)
{
    const char *lost = path_in(state, "lost");
    dcp_shard_info info;
    dcp_shard_stream stream;
    copy_fixture("basic", lost, false);
    dcp_shard_list *list = read_list(lost);
    must(dcp_shard_list_file(list, 0, &info));
    assert_int_equal(info.status, DCP_ERR_NOT_FOUND);
    assert_true(info.stream_count > 1);
    uint64_t end = 0;
    for (size_t i = 0; i < info.stream_count; i++) {
        must(dcp_shard_list_stream(list, 0, i, &stream));
        assert_int_equal(stream.offset, end);
        assert_string_equal(stream.problem, "");
        end += stream.length;
    }
    assert_int_equal(end, info.size);
    must_fail(dcp_shard_list_stream(list, 0, info.stream_count, &stream), DCP_ERR_ARGUMENT,
              "no stream");
    dcp_shard_list_free(list);
    must(dcp_shard_list_read(lost, NULL, &list));
    must(dcp_shard_list_file(list, 0, &info));
    assert_int_equal(info.stream_count, 0);
    dcp_shard_list_free(list);
}

/* Another state: some of it is left out if that is wanted, else the first fault is the result. */
static void test_what_differs(void **state)
{
    const char *lost = path_in(state, "lost"), *other = path_in(state, "other");
    copy_fixture("uneven_w4", lost, false);
    copy_fixture("fsdp2_tp_w4", other, true);
    dcp_checkpoint *like = open_checkpoint(other), *made;
    dcp_shard_list *list = read_list(lost);
    size_t faults = 0;
    dcp_rebuild_options options = {.like = like, .report = count_fault, .report_context = &faults};
    assert_int_not_equal(dcp_shard_list_rebuild(list, &options, &made), DCP_OK);
    assert_null(made);
    assert_true(faults > 1);
    size_t before = faults;
    options.leave_out = true;
    dcp_status status = dcp_shard_list_rebuild(list, &options, &made);
    assert_int_equal(faults, 2 * before);
    assert_true(status != DCP_OK || dcp_checkpoint_count(made) < dcp_checkpoint_count(like));
    dcp_checkpoint_close(made);
    dcp_checkpoint_close(like);
    dcp_shard_list_free(list);
}

static void test_what_is_refused(void **state)
{
    const char *lost = path_in(state, "lost"), *ours = path_in(state, "ours");
    dcp_checkpoint *made;
    dcp_shard_list *list;
    copy_fixture("basic", lost, true);
    dcp_checkpoint *like = open_checkpoint(lost);
    const dcp_rebuild_options options = {.like = like};
    must(dcp_shard_list_read(lost, NULL, &list));
    must_fail(dcp_shard_list_rebuild(list, &options, &made), DCP_ERR_ARGUMENT, "::streams");
    must_fail(dcp_shard_list_rebuild(list, NULL, &made), DCP_ERR_NOT_FOUND, "--like");
    dcp_shard_list_free(list);
    dcp_state *root = dcp_state_new();
    must(dcp_state_int(root, "step", 3));
    must(dcp_save(root, ours, NULL));
    dcp_state_free(root);
    list = read_list(ours);
    must_fail(dcp_shard_list_rebuild(list, &options, &made), DCP_ERR_STATE, "has a footer");
    dcp_shard_list_free(list);
    dcp_checkpoint_close(like);
    char path[1024];
    snprintf(path, sizeof path, "%s/hf_single/ckpt", FIXTURES);
    like = open_checkpoint(path);
    list = read_list(lost);
    const dcp_rebuild_options model = {.like = like};
    must_fail(dcp_shard_list_rebuild(list, &model, &made), DCP_ERR_ARGUMENT,
              "not one DCP directory");
    dcp_checkpoint_close(like);
    static const char *const members[] = {"lost"};
    must(dcp_checkpoint_open(*state, &(dcp_open_options){.members = members, .member_count = 1},
                             &like));
    const dcp_rebuild_options united = {.like = like};
    must_fail(dcp_shard_list_rebuild(list, &united, &made), DCP_ERR_ARGUMENT,
              "not one DCP directory");
    dcp_shard_list_free(list);
    dcp_checkpoint_close(like);
}

static void test_no_memory(void **state)
{
    const char *lost = path_in(state, "lost"), *other = path_in(state, "other");
    copy_fixture("basic", lost, false);
    copy_fixture("basic", other, true);
    dcp_checkpoint *like = open_checkpoint(other);
    const dcp_rebuild_options options = {.like = like};
    bool reached = true;
    long trials = 0;
    while (reached) {
        dcp_shard_list *list = NULL;
        dcp_checkpoint *made = NULL;
        failing_allocator_install(++trials, false);
        dcp_status status = dcp_shard_list_read(lost, &with_streams, &list);
        if (status == DCP_OK)
            status = dcp_shard_list_rebuild(list, &options, &made);
        dcp_checkpoint_close(made);
        dcp_shard_list_free(list);
        reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        assert_int_equal(status == DCP_OK, !reached);
    }
    assert_true(trials > 50);
    dcp_checkpoint_close(like);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_same_as_before, directory_setup, directory_teardown),
        cmocka_unit_test_setup_teardown(test_streams, directory_setup, directory_teardown),
        cmocka_unit_test_setup_teardown(test_what_differs, directory_setup, directory_teardown),
        cmocka_unit_test_setup_teardown(test_what_is_refused, directory_setup, directory_teardown),
        cmocka_unit_test_setup_teardown(test_no_memory, directory_setup, directory_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
