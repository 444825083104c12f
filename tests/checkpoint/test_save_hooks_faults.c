/* SPDX-License-Identifier: BSD-3-Clause */
/* Saves with hooks, with every allocation failing in turn: each is a failure of its own or none,
 * and nothing is left behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "checkpoint/ranks.h"
#include "fault/failing_allocator.h"

static dcp_status change_items(void *context, dcp_saving *saving, dcp_save_plan *plan)
{
    (void)context;
    dcp_status status = dcp_save_default_create_local_plan(saving, plan);
    for (size_t i = 0; i < dcp_save_plan_count(plan) && status == DCP_OK; i++) {
        dcp_write_item item;
        char name[64];
        status = dcp_save_plan_item(plan, i, &item);
        if (status != DCP_OK)
            return status;
        snprintf(name, sizeof name, "to.%s", item.index.name);
        item.index.name = name;
        item.path_length = 0;
        if (item.is_tensor)
            item.dtype = DCP_F16;
        status = dcp_save_plan_set_item(plan, i, &item);
    }
    dcp_state *data = status == DCP_OK ? dcp_save_plan_planner_data(plan) : NULL;
    if (status == DCP_OK && !data)
        return dcp_error_set(DCP_ERR_NO_MEMORY, "no planner data");
    return status == DCP_OK ? dcp_state_string(data, "sent", "something") : status;
}

static dcp_status read_data(void *context, dcp_saving *saving, dcp_save_plan *const *plans,
                            int plan_count)
{
    (void)context;
    dcp_status status = dcp_save_default_create_global_plan(saving, plans, plan_count);
    return status == DCP_OK
               ? dcp_saving_set_planner_data(saving, dcp_save_plan_planner_data(plans[0]))
               : status;
}

/* The last item comes first. */
static dcp_status turn_items(void *context, dcp_saving *saving, dcp_save_plan *plan)
{
    dcp_write_item items[8];
    size_t count = dcp_save_plan_count(plan);
    dcp_status status = DCP_OK;
    (void)context;
    (void)saving;
    assert_in_range(count, 1, 8);
    for (size_t i = 0; i < count && status == DCP_OK; i++)
        status = dcp_save_plan_item(plan, i, &items[i]);
    dcp_save_plan_clear(plan);
    for (size_t i = 0; i < count && status == DCP_OK; i++)
        status = dcp_save_plan_add(plan, &items[count - 1 - i]);
    return status;
}

static dcp_status count_bytes(void *context, const void *bytes, size_t size)
{
    (void)bytes;
    *(uint64_t *)context += size;
    return DCP_OK;
}

static dcp_status write_data(void *context, dcp_saving *saving, const dcp_save_plan *plan)
{
    dcp_status status = DCP_OK;
    (void)context;
    for (size_t i = 0; i < dcp_save_plan_count(plan) && status == DCP_OK; i++) {
        dcp_storage_location location = {.path = "somewhere"};
        status = dcp_saving_stream(saving, i, count_bytes, &location.length);
        if (status == DCP_OK)
            status = dcp_saving_set_location(saving, i, &location);
    }
    return status;
}

static dcp_status set_up(void *context, dcp_saving *saving, bool is_coordinator)
{
    (void)context;
    (void)saving;
    (void)is_coordinator;
    return DCP_OK;
}

static dcp_status finish(void *context, dcp_saving *saving, const dcp_checkpoint *metadata,
                         const dcp_write_result *results, size_t result_count)
{
    uint64_t size = 0;
    (void)context;
    (void)saving;
    (void)results;
    assert_int_equal(result_count, 2);
    return dcp_checkpoint_encode(metadata, count_bytes, &size);
}

static void fail_each_allocation(const char *path, const dcp_storage_writer *writer,
                                 bool unflattened)
{
    static float memory[6];
    dcp_checkpoint *metadata = NULL;
    dcp_save_planner planner = {.size_of = sizeof planner,
                                .create_local_plan = change_items,
                                .create_global_plan = read_data,
                                .finish_plan = turn_items};
    dcp_save_options options = {
        .planner = &planner, .storage_writer = writer, .skip_sync = true, .metadata = &metadata};
    dcp_tensor tensor = {.dtype = DCP_F32, .ndim = 1, .data = memory, .global_shape = {6}};
    options.unflattened = unflattened;
    if (unflattened)
        options.planner = NULL;
    for (long n = 1;; n++) {
        failing_allocator_install(n, false);
        dcp_state *root = dcp_state_new();
        dcp_state *model = root ? dcp_state_dict(root, "model") : NULL;
        if (model) {
            dcp_state_tensor(model, "w", &tensor);
            dcp_state_int(root, "step", 7);
        }
        dcp_status status = model ? dcp_save(root, path, &options) : DCP_ERR_NO_MEMORY;
        dcp_state_free(root);
        assert_int_equal(metadata != NULL, status == DCP_OK);
        dcp_checkpoint_close(metadata);
        metadata = NULL;
        bool reached = failing_allocator_reached();
        assert_int_equal(failing_allocator_remove(), 0);
        if (!reached) {
            must(status);
            break;
        }
        /* All is written and visible; sweeping, which comes last, is not worth failing a save. */
        if (status == DCP_OK) {
            assert_true(n > 50);
            break;
        }
        if (status != DCP_ERR_NO_MEMORY)
            fail_msg("allocation %ld: %d, %s", n, (int)status, dcp_error_message());
        assert_int_not_equal(access(path, F_OK), 0);
    }
}

static void survives_in_planners(void **state)
{
    fail_each_allocation(path_in(state, "a"), NULL, false);
}

static void survives_in_storage_writers(void **state)
{
    const dcp_storage_writer writer = {.size_of = sizeof writer,
                                       .set_up_storage_writer = set_up,
                                       .write_data = write_data,
                                       .finish = finish};
    fail_each_allocation(path_in(state, "a"), &writer, false);
}

static void survives_in_values_stored_whole(void **state)
{
    fail_each_allocation(path_in(state, "a"), NULL, true);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, directory_setup, directory_teardown)
    const struct CMUnitTest tests[] = {
        TEST(survives_in_planners),
        TEST(survives_in_storage_writers),
        TEST(survives_in_values_stored_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
