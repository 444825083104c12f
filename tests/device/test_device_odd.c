/* SPDX-License-Identifier: BSD-3-Clause */
/* Operations for overlapping copies that return what is no status: saves, loads and asynchronous
 * saves say so, and end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "device/late_device.h"

enum { ELEMENTS = 3 << 20, NO_STATUS = 4711 };

static _Atomic int called;

static dcp_status odd(void)
{
    called++;
    return (dcp_status)NO_STATUS;
}

static dcp_status odd_open(const dcp_device *device, void **made)
{
    (void)device, (void)made;
    return odd();
}

static dcp_status odd_event(const dcp_device *device, void *event)
{
    (void)device, (void)event;
    return odd();
}

static dcp_status odd_reached(const dcp_device *device, void *event, bool *reached)
{
    (void)device, (void)event, (void)reached;
    return odd();
}

static dcp_status odd_to_host(const dcp_device *device, void *host, const void *memory,
                              size_t pitch, size_t width, size_t height)
{
    (void)device, (void)host, (void)memory, (void)pitch, (void)width, (void)height;
    return odd();
}

static dcp_status odd_from_host(const dcp_device *device, void *memory, size_t pitch,
                                const void *host, size_t width, size_t height)
{
    (void)device, (void)memory, (void)pitch, (void)host, (void)width, (void)height;
    return odd();
}

enum operation { QUEUE_OPEN, EVENT_OPEN, RECORD, FOLLOW, WAIT, REACHED, TO_HOST, FROM_HOST, COUNT };

static void make_odd(dcp_device_operations *operations, enum operation which)
{
    switch (which) {
    case QUEUE_OPEN:
        operations->queue_open = odd_open;
        break;
    case EVENT_OPEN:
        operations->event_open = odd_open;
        break;
    case RECORD:
        operations->event_record = odd_event;
        break;
    case FOLLOW:
        operations->event_follow = odd_event;
        break;
    case WAIT:
        operations->event_wait = odd_event;
        break;
    case REACHED:
        operations->event_reached = odd_reached;
        break;
    case TO_HOST:
        operations->start_copy_to_host = odd_to_host;
        break;
    default:
        operations->start_copy_from_host = odd_from_host;
        break;
    }
}

static dcp_status save(dcp_state *root, const char *path)
{
    return dcp_save(root, path, &(dcp_save_options){.overwrite = DCP_OVERWRITE_REPLACE});
}

static dcp_status load(dcp_state *root, const char *path)
{
    return dcp_load(root, path, NULL, NULL);
}

static dcp_status save_async(dcp_state *root, const char *path)
{
    dcp_save_chain_options how = {.staging = DCP_STAGING_OVERLAPPED};
    dcp_save_options options = {.overwrite = DCP_OVERWRITE_REPLACE};
    dcp_future *future;
    must(dcp_save_chain_new(&how, &options.chain));
    dcp_status status = dcp_save_async(root, path, &options, &future);
    if (status == DCP_OK)
        status = dcp_future_wait(future, -1);
    dcp_future_free(future);
    dcp_save_chain_free(options.chain);
    return status;
}

static void test_every_operation(void **state)
{
    static dcp_status (*const works[])(dcp_state *, const char *) = {save, save_async, load};
    const dcp_device_operations good = *late_device().operations;
    float *values = calloc(ELEMENTS, sizeof *values);
    assert_non_null(values);
    for (int which = 0; which < COUNT; which++) {
        dcp_device_operations operations = good;
        int seen = 0;
        make_odd(&operations, (enum operation)which);
        for (size_t i = 0; i < sizeof works / sizeof *works; i++) {
            dcp_tensor tensor = {.dtype = DCP_F32,
                                 .ndim = 1,
                                 .global_shape = {ELEMENTS},
                                 .device = late_device(),
                                 .data = values};
            dcp_state *root = dcp_state_new();
            dcp_state_tensor(root, "w", &tensor);
            must(save(root, path_in(state, "c")));
            dcp_state_free(root);
            tensor.device.operations = &operations;
            root = dcp_state_new();
            dcp_state_tensor(root, "w", &tensor);
            called = 0;
            dcp_status status = works[i](root, path_in(state, "c"));
            assert_int_equal(status, called > 0 ? DCP_ERR_CALLBACK : DCP_OK);
            seen += called;
            late_device_forget();
            dcp_state_free(root);
        }
        assert_true(seen > 0);
    }
    free(values);
}

static dcp_status odd_sink(void *context, const void *bytes, size_t size)
{
    (void)context, (void)bytes, (void)size;
    return odd();
}

static void test_a_sink(void **state)
{
    dcp_checkpoint *checkpoint;
    dcp_state *root = dcp_state_new();
    dcp_state_int(root, "step", 1);
    must(save(root, path_in(state, "c")));
    must(dcp_checkpoint_open(path_in(state, "c"), NULL, &checkpoint));
    must_fail(dcp_checkpoint_encode(checkpoint, odd_sink, NULL), DCP_ERR_CALLBACK,
              "a sink returned 4711, which is not a dcp_status");
    dcp_checkpoint_close(checkpoint);
    dcp_state_free(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_operation, directory_setup, directory_teardown),
        cmocka_unit_test_setup_teardown(test_a_sink, directory_setup, directory_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
