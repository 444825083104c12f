/* SPDX-License-Identifier: BSD-3-Clause */
/* What the caller gets of a checkpoint that has been committed: a call, and its metadata. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/async_model.h"
#include "checkpoint/ranks.h"
#include "fault/over_files.h"

/* What after_commit was called with. */
struct call {
    int count;
    char path[512];
    char save_id[64];
    bool loads;
    dcp_status loaded, returned;
};

static dcp_status note(void *context, const char *path, const char *save_id)
{
    struct call *call = context;
    call->count++;
    snprintf(call->path, sizeof call->path, "%s", path);
    snprintf(call->save_id, sizeof call->save_id, "%s", save_id);
    if (call->loads)
        call->loaded = check(path, 1);
    return call->returned;
}

static dcp_status save_value(dcp_group *group, const char *path, int64_t value,
                             const dcp_save_options *given)
{
    dcp_save_options options = *given;
    dcp_state *root = dcp_state_new();
    options.group = group;
    dcp_state_int(root, "value", value);
    dcp_status status = dcp_save(root, path, &options);
    dcp_state_free(root);
    return status;
}

static atomic_int warnings;

static void count_warnings(void *context, dcp_log_level level, const char *line)
{
    (void)context;
    if (level == DCP_LOG_WARNING && strstr(line, "is committed, but a later step failed"))
        warnings++;
}

static void a_commit_is_followed_by_one_call(void **state)
{
    struct call call = {0};
    dcp_save_options options = {.after_commit = note, .after_commit_context = &call};
    must(save_value(NULL, path_in(state, "a"), 1, &options));
    assert_int_equal(call.count, 1);
    assert_string_equal(call.path, path_in(state, "a"));
    assert_true(strlen(call.save_id) > 0);
    must_fail(save_value(NULL, path_in(state, "a"), 1, &options), DCP_ERR_EXISTS, "refused");
    assert_int_equal(call.count, 1);
}

static void metadata_says_where_it_was_saved(void **state)
{
    dcp_save_options options = {.checkpoint_id = "runs/step_1"};
    dcp_storage_meta meta;
    dcp_checkpoint *checkpoint = NULL;
    must(save_value(NULL, path_in(state, "a"), 1, &options));
    must(dcp_checkpoint_open(path_in(state, "a"), NULL, &checkpoint));
    must(dcp_checkpoint_storage_meta(checkpoint, &meta));
    assert_string_equal(meta.checkpoint_id, "runs/step_1");
    dcp_checkpoint_close(checkpoint);
    options.checkpoint_id = "\xff";
    must_fail(save_value(NULL, path_in(state, "b"), 1, &options), DCP_ERR_ARGUMENT,
              "checkpoint_id is not valid UTF-8");
}

static void its_failure_is_logged_and_undoes_nothing(void **state)
{
    static const dcp_status failures[] = {DCP_ERR_IO, (dcp_status)4711};
    dcp_set_log(count_warnings, NULL, DCP_LOG_WARNING);
    for (int i = 0; i < 2; i++) {
        struct call call = {.returned = failures[i]};
        dcp_save_options options = {.after_commit = note,
                                    .after_commit_context = &call,
                                    .overwrite = DCP_OVERWRITE_REPLACE};
        warnings = 0;
        must(save_value(NULL, path_in(state, "a"), 1, &options));
        assert_string_equal(dcp_error_message(), "");
        assert_int_equal(call.count, 1);
        assert_int_equal(warnings, 1);
    }
    dcp_set_log(NULL, NULL, DCP_LOG_WARNING);
}

/* ---- several ranks ---- */

enum { RANKS = 3 };
static struct call calls[RANKS];

static dcp_status save_with_cache(struct rank *self)
{
    dcp_checkpoint *metadata = NULL;
    dcp_save_options options = {.coordinator = 1,
                                .overwrite = DCP_OVERWRITE_REPLACE,
                                .after_commit = note,
                                .after_commit_context = &calls[self->rank],
                                .metadata = &metadata};
    dcp_figures figures = {.size_of = sizeof figures};
    dcp_status status = dcp_save_plan_cache_new(&options.plan_cache);
    options.figures = &figures;
    for (int64_t value = 1; value <= 2 && status == DCP_OK; value++) {
        status = save_value(self->group, self->path, value, &options);
        if (status == DCP_OK && (metadata != NULL) != (self->rank == 1))
            status = dcp_error_set(DCP_ERR_INTERNAL, "metadata on rank %d", self->rank);
        if (status == DCP_OK && metadata && dcp_checkpoint_count(metadata) != 1)
            status = dcp_error_set(DCP_ERR_INTERNAL, "other metadata");
        if (status == DCP_OK && figures.plan_reused != (value == 2))
            status = dcp_error_set(DCP_ERR_INTERNAL, "the plan is not reused");
        dcp_checkpoint_close(metadata);
    }
    dcp_save_plan_cache_free(options.plan_cache);
    return status;
}

static void every_rank_is_called_with_the_same(void **state)
{
    memset(calls, 0, sizeof calls);
    ranks_must(RANKS, path_in(state, "a"), save_with_cache, NULL);
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(calls[rank].count, 2);
        assert_string_equal(calls[rank].path, path_in(state, "a"));
        assert_string_equal(calls[rank].save_id, calls[0].save_id);
    }
}

/* ---- asynchronous saves ---- */

/* The system's files, of which creating shard files fails for a while. */
static atomic_int failures_left;
static struct file_ops failing_ops;

static int failing_open(void *context, int within, const char *path, unsigned flags,
                        int *descriptor)
{
    if ((flags & FILE_CREATE_NEW) && strstr(path, ".distcp") && failures_left > 0) {
        failures_left--;
        return 5; /* EIO */
    }
    return file_ops_system.open(context, within, path, flags, descriptor);
}

/* Of several attempts only the one that succeeds counts, where it was. */
static void a_fallback_is_reported_once(void **state)
{
    needs_files();
    struct model model;
    struct call call = {.loads = true, .loaded = DCP_ERR_STATE};
    dcp_checkpoint *metadata = NULL;
    dcp_save_chain_options how = {
        .retries = 1, .retry_seconds = 0.001, .fallback_path = path_in(state, "elsewhere")};
    dcp_save_options options = {
        .after_commit = note, .after_commit_context = &call, .metadata = &metadata};
    dcp_future *future;
    make_model(&model, 0, 1, 1);
    must(dcp_save_chain_new(&how, &options.chain));
    failures_left = 2;
    failing_ops = file_ops_system;
    failing_ops.open = failing_open;
    dcp_state *root = tree_of(&model, 1);
    must(save_async_over(&failing_ops, root, path_in(state, "step_1"), &options, &future));
    dcp_state_free(root);
    must(dcp_future_wait(future, WAIT));
    assert_int_equal(call.count, 1);
    assert_string_equal(call.path, path_in(state, "elsewhere/step_1"));
    must(call.loaded);
    assert_int_equal(dcp_checkpoint_count(metadata), 3);
    dcp_checkpoint_close(metadata);
    dcp_future_free(future);
    dcp_save_chain_free(options.chain);
    free(model.shard);
}

/* ---- metadata ---- */

static dcp_status take_bytes(void *context, const void *bytes, size_t size)
{
    unsigned char *at = context;
    size_t length;
    memcpy(&length, at, sizeof length);
    assert_true(length + size <= 65536);
    memcpy(at + sizeof length + length, bytes, size);
    length += size;
    memcpy(at, &length, sizeof length);
    return DCP_OK;
}

static void metadata_is_what_was_committed(void **state)
{
    static unsigned char given[65536 + 64], stored[65536 + 64];
    dcp_checkpoint *metadata = NULL, *opened;
    dcp_save_options options = {.metadata = &metadata};
    must(save_value(NULL, path_in(state, "a"), 1, &options));
    assert_non_null(metadata);
    must(dcp_checkpoint_open(path_in(state, "a"), NULL, &opened));
    memset(given, 0, sizeof(size_t));
    memset(stored, 0, sizeof(size_t));
    must(dcp_checkpoint_encode(metadata, take_bytes, given));
    must(dcp_checkpoint_encode(opened, take_bytes, stored));
    assert_memory_equal(given, stored, sizeof given);
    must_fail(dcp_checkpoint_read_object(metadata, 0, NULL, "value", NULL), DCP_ERR_STATE, "");
    dcp_checkpoint_close(opened);
    dcp_checkpoint_close(metadata);
    must_fail(save_value(NULL, path_in(state, "a"), 1, &options), DCP_ERR_EXISTS, "refused");
    assert_null(metadata);
}

#define TEST(function)                                                                             \
    cmocka_unit_test_setup_teardown(function, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_commit_is_followed_by_one_call),
        TEST(metadata_says_where_it_was_saved),
        TEST(its_failure_is_logged_and_undoes_nothing),
        TEST(every_rank_is_called_with_the_same),
        TEST(a_fallback_is_reported_once),
        TEST(metadata_is_what_was_committed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
