/* SPDX-License-Identifier: BSD-3-Clause */
/* Extra files of saves that go on behind the caller's back, are tried again, go elsewhere or fail,
 * and of which any allocation fails. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/extra_scene.h"
#include "checkpoint/ranks.h"
#include "fault/failing_allocator.h"
#include "fault/over_files.h"

static dcp_status save_behind(dcp_save_chain *chain, const char *path, int64_t value,
                              dcp_extra_file *file, const struct file_ops *ops, dcp_future **future)
{
    dcp_save_options options = {.chain = chain,
                                .overwrite = DCP_OVERWRITE_REPLACE,
                                .extra_files = file,
                                .extra_file_count = 1};
    dcp_state *root = dcp_state_new();
    dcp_state_int(root, "value", value);
    dcp_status status = ops ? save_async_over(ops, root, path, &options, future)
                            : dcp_save_async(root, path, &options, future);
    dcp_state_free(root);
    return status;
}

static void asynchronous_saves_have_copies(void **state)
{
    char name[] = "a.txt", text[] = "before";
    dcp_extra_file file = {sizeof file, name, text, sizeof text - 1};
    dcp_future *future;
    must(save_behind(NULL, path_in(state, "c"), 1, &file, NULL, &future));
    memset(name, 'x', sizeof name);
    memset(text, 'x', sizeof text);
    memset(&file, 0xff, sizeof file);
    must(dcp_future_wait(future, 60));
    dcp_future_free(future);
    extra_scene_expect_all(path_in(state, "c"), "a.txt=before");
}

/* The system's files, of which making some fails for a while. */
static atomic_int failures_left;
static const char *failing_part;

static int failing_open(void *context, int within, const char *path, unsigned flags,
                        int *descriptor)
{
    if ((flags & FILE_CREATE_NEW) && strstr(path, failing_part) && failures_left > 0) {
        failures_left--;
        return 5; /* EIO */
    }
    return file_ops_system.open(context, within, path, flags, descriptor);
}

static void retries_and_a_fallback_have_them(void **state)
{
    needs_files();
    static struct file_ops failing;
    dcp_save_chain_options how = {
        .retries = 1, .retry_seconds = 0.001, .fallback_path = path_in(state, "elsewhere")};
    dcp_extra_file file = FILE_OF("a", "text");
    for (int failures = 1; failures <= 2; failures++) {
        dcp_save_chain *chain;
        dcp_future *future;
        failing = file_ops_system;
        failing.open = failing_open;
        failures_left = failures;
        failing_part = ".extra.";
        must(dcp_save_chain_new(&how, &chain));
        must(save_behind(chain, path_in(state, "c"), failures, &file, &failing, &future));
        must(dcp_future_wait(future, 60));
        dcp_future_free(future);
        dcp_save_chain_free(chain);
        assert_int_equal(failures_left, 0);
        extra_scene_expect_all(path_in(state, failures == 1 ? "c" : "elsewhere/c"), "a=text");
        assert_int_equal(extra_scene_count_stored(path_in(state, "c")), 1);
    }
}

/* Before and after the extra files of the save were made. */
static void a_failed_save_leaves_none(void **state)
{
    static const char *const parts[] = {"extra.b", ".distcp"};
    static struct file_ops failing;
    const dcp_extra_file files[] = {FILE_OF("a", "text"), FILE_OF("b", "another")};
    dcp_save_options options = {
        .overwrite = DCP_OVERWRITE_REPLACE, .extra_files = files, .extra_file_count = 2};
    dcp_state *root = dcp_state_new();
    needs_files();
    dcp_state_int(root, "value", 1);
    must(extra_scene_save_files(path_in(state, "c"), files, 1));
    failing = file_ops_system;
    failing.open = failing_open;
    for (size_t i = 0; i < 2; i++) {
        failures_left = 1;
        failing_part = parts[i];
        must_fail(save_over(&failing, root, path_in(state, "c"), &options), DCP_ERR_IO, parts[i]);
        assert_int_equal(extra_scene_count_stored(path_in(state, "c")), 1);
        extra_scene_expect_all(path_in(state, "c"), "a=text");
    }
    dcp_state_free(root);
}

/* Where there is no place to begin with. */
static void a_place_that_cannot_be_is_fallen_back_from(void **state)
{
    needs_files();
    dcp_save_chain_options how = {.fallback_path = path_in(state, "elsewhere")};
    dcp_extra_file file = FILE_OF("a", "text");
    dcp_save_chain *chain;
    dcp_future *future;
    FILE *in_the_way = fopen(path_in(state, "file"), "w");
    assert_non_null(in_the_way);
    fclose(in_the_way);
    must(dcp_save_chain_new(&how, &chain));
    must(save_behind(chain, path_in(state, "file/c"), 1, &file, NULL, &future));
    must(dcp_future_wait(future, 60));
    dcp_future_free(future);
    dcp_save_chain_free(chain);
    extra_scene_expect_all(path_in(state, "elsewhere/c"), "a=text");
}

/* ---- memory ---- */

static dcp_status save_once(const char *path)
{
    const dcp_extra_file files[] = {FILE_OF("a", "text"), FILE_OF("b", "another")};
    dcp_save_options options = {.overwrite = DCP_OVERWRITE_REPLACE,
                                .skip_sync = true,
                                .extra_files = files,
                                .extra_file_count = 2};
    return extra_scene_save(path, 1, &options);
}

static dcp_status save_behind_once(const char *path)
{
    dcp_extra_file file = FILE_OF("a", "text");
    dcp_future *future = NULL;
    dcp_save_chain_options how = {.timeout_seconds = 20};
    dcp_save_chain *chain = NULL;
    dcp_state *root = dcp_state_new();
    dcp_status status = root ? dcp_state_int(root, "value", 1) ? DCP_OK : dcp_state_status(root)
                             : DCP_ERR_NO_MEMORY;
    if (status == DCP_OK)
        status = dcp_save_chain_new(&how, &chain);
    dcp_save_options options = {.chain = chain,
                                .overwrite = DCP_OVERWRITE_REPLACE,
                                .skip_sync = true,
                                .extra_files = &file,
                                .extra_file_count = 1};
    if (status == DCP_OK)
        status = dcp_save_async(root, path, &options, &future);
    if (status == DCP_OK)
        status = dcp_future_wait(future, 60);
    dcp_future_free(future);
    dcp_save_chain_free(chain);
    dcp_state_free(root);
    return status;
}

static dcp_status publish_once(const char *path)
{
    const dcp_extra_file file = FILE_OF("c", "more");
    dcp_publish_options options = {.overwrite = DCP_OVERWRITE_REPLACE,
                                   .skip_sync = true,
                                   .extra_files = &file,
                                   .extra_file_count = 1};
    dcp_checkpoint *checkpoint;
    dcp_status status = dcp_checkpoint_open(path, NULL, &checkpoint);
    if (status != DCP_OK)
        return status;
    status = dcp_checkpoint_publish(checkpoint, path, &options);
    dcp_checkpoint_close(checkpoint);
    return status;
}

static dcp_status read_once(const char *path)
{
    char text[1024];
    dcp_checkpoint *checkpoint;
    uint64_t count;
    dcp_status status = dcp_checkpoint_open(path, NULL, &checkpoint);
    if (status != DCP_OK)
        return status;
    status = extra_scene_read(checkpoint, "a", text);
    dcp_checkpoint_close(checkpoint);
    return status == DCP_OK ? dcp_verify(path, NULL, NULL, NULL, &count) : status;
}

static void each_allocation_may_fail(void **state)
{
    static dcp_status (*const calls[])(const char *) = {save_once, read_once, publish_once,
                                                        save_behind_once};
    const char *path = path_in(state, "c");
    needs_files();
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        for (long n = 1;; n++) {
            must(save_once(path));
            failing_allocator_install(n, false);
            dcp_status status = calls[i](path);
            bool reached = failing_allocator_reached();
            assert_int_equal(failing_allocator_remove(), 0);
            if (!reached) {
                must(status);
                break;
            }
            /* what fails after the commit is logged */
            assert_true(status == DCP_ERR_NO_MEMORY || (status == DCP_OK && calls[i] != read_once));
            if (i < 2)
                extra_scene_expect_all(path, "a=text b=another");
        }
}

#define TEST(function)                                                                             \
    cmocka_unit_test_setup_teardown(function, directory_setup, directory_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(asynchronous_saves_have_copies), TEST(retries_and_a_fallback_have_them),
        TEST(a_failed_save_leaves_none),      TEST(a_place_that_cannot_be_is_fallen_back_from),
        TEST(each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
