/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams, info and removal with each allocation failing in turn: the failure is reported, and
 * nothing leaks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "fault/failing_allocator.h"

static dcp_status count_bytes(void *context, const void *bytes, size_t size)
{
    (void)bytes;
    *(size_t *)context += size;
    return DCP_OK;
}

static dcp_status count_name(void *context, const char *name)
{
    *(size_t *)context += strlen(name);
    return DCP_OK;
}

static const float elements[6] = {1, 2, 3, 4, 5, 6};

static dcp_tensor tensor_of(void)
{
    return (dcp_tensor){
        .dtype = DCP_F32, .ndim = 2, .global_shape = {2, 3}, .data = (void *)elements};
}

static void save(const char *path)
{
    dcp_tensor tensor = tensor_of();
    dcp_state *root = dcp_state_new(), *info = dcp_state_new();
    dcp_state_float(dcp_state_tuple(root, "object"), NULL, 0.5);
    dcp_state_tensor(root, "tensor", &tensor);
    dcp_state_float(dcp_state_list(info, "list"), NULL, 0.1);
    dcp_save_options options = {.overwrite = DCP_OVERWRITE_REPLACE, .info = info};
    must(dcp_save(root, path, &options));
    dcp_state_free(root);
    dcp_state_free(info);
}

/* ---- calls that free all that they make ---- */

static dcp_status read_streams(const char *path)
{
    dcp_checkpoint *checkpoint = NULL;
    size_t bytes = 0;
    dcp_status status = dcp_checkpoint_open(path, NULL, &checkpoint);
    for (size_t i = 0; i < 2 && status == DCP_OK; i++)
        status = dcp_checkpoint_read_stream(checkpoint, i, 0, count_bytes, &bytes, NULL);
    dcp_checkpoint_close(checkpoint);
    return status;
}

static dcp_status read_info(const char *path)
{
    dcp_checkpoint *checkpoint = NULL;
    dcp_save_info info;
    dcp_state *root = dcp_state_new();
    dcp_status status = root ? dcp_checkpoint_open(path, NULL, &checkpoint) : DCP_ERR_NO_MEMORY;
    if (status == DCP_OK)
        status = dcp_checkpoint_info(checkpoint, root, "info", &info);
    dcp_checkpoint_close(checkpoint);
    dcp_state_free(root);
    return status;
}

static dcp_status encode(const char *path)
{
    dcp_tensor tensor = tensor_of();
    size_t bytes = 0;
    (void)path;
    dcp_state *root = dcp_state_new();
    dcp_status status = DCP_ERR_NO_MEMORY;
    if (root && dcp_state_string(root, "a", "text") == DCP_OK)
        status = dcp_object_encode(dcp_state_find(root, "a"), count_bytes, &bytes);
    if (status == DCP_OK)
        status = dcp_tensor_encode(&tensor, count_bytes, &bytes);
    dcp_state_free(root);
    return status;
}

static dcp_status list(const char *path)
{
    size_t bytes = 0;
    return dcp_storage_list(NULL, path, count_name, &bytes);
}

static dcp_status remove_all(const char *path)
{
    return dcp_checkpoint_remove(path, NULL, NULL);
}

/* again: the checkpoint is saved anew for each attempt. */
static void walk(const char *path, dcp_status (*call)(const char *), bool again)
{
    save(path);
    for (long n = 1;; n++) {
        if (again)
            save(path);
        failing_allocator_install(n, false);
        dcp_status status = call(path);
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        if (!reached) {
            assert_int_equal(status, DCP_OK);
            return;
        }
        /* what only says that the mark could not be removed is logged */
        assert_true(status == DCP_ERR_NO_MEMORY || (again && status == DCP_OK));
    }
}

static void test_walks(void **state)
{
    walk(path_in(state, "streams"), read_streams, false);
    walk(path_in(state, "info"), read_info, false);
    walk(path_in(state, "encode"), encode, false);
    walk(path_in(state, "list"), list, false);
    walk(path_in(state, "removal"), remove_all, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_walks, directory_setup, directory_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
