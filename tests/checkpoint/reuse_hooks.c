/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/reuse_hooks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static dcp_status transform(void *context, dcp_saving *saving, const dcp_write_item *item,
                            const dcp_state *object, dcp_write_data *data)
{
    struct hooking *hooking = context;
    __atomic_add_fetch(&hooking->transformed, 1, __ATOMIC_RELAXED);
    return dcp_default_transform_object(saving, item, object, data);
}

/* The metadata's planner data. */
static dcp_status tell_values(dcp_saving *saving, int values)
{
    dcp_state *data = dcp_state_new();
    if (!data)
        return DCP_ERR_NO_MEMORY;
    dcp_status status = dcp_state_int(data, "values", values);
    if (status == DCP_OK)
        status = dcp_saving_set_planner_data(saving, data);
    dcp_state_free(data);
    return status;
}

static dcp_status plan_local(void *context, dcp_saving *saving, dcp_save_plan *plan)
{
    const struct hooking *hooking = context;
    dcp_state *data = dcp_save_plan_planner_data(plan);
    dcp_status status = data ? dcp_state_int(data, "values", hooking->values) : DCP_ERR_NO_MEMORY;
    if (status == DCP_OK && hooking->coordinates)
        status = tell_values(saving, hooking->values);
    return status == DCP_OK ? dcp_default_create_local_plan(saving, plan) : status;
}

static dcp_status plan_global(void *context, dcp_saving *saving, dcp_save_plan *const *plans,
                              int count)
{
    (void)context;
    return dcp_default_create_global_plan(saving, plans, count);
}

static dcp_status finish_plan(void *context, dcp_saving *saving, const dcp_save_plan *plan)
{
    const struct hooking *hooking = context;
    int64_t values = -1;
    (void)saving;
    const dcp_state *data = dcp_save_plan_planner_data((dcp_save_plan *)(uintptr_t)plan);
    if (!data)
        return DCP_ERR_NO_MEMORY;
    dcp_status status = dcp_state_as_int(dcp_state_get(data, "values"), &values);
    if (status == DCP_OK && values != hooking->values)
        status = dcp_error_set(DCP_ERR_STATE, "data of another save's plan");
    return status;
}

static dcp_status prepare(void *context, dcp_saving *saving, dcp_save_plan *plan)
{
    (void)context, (void)saving;
    return dcp_save_plan_count(plan) > 0 ? DCP_OK : dcp_error_set(DCP_ERR_STATE, "an empty plan");
}

static dcp_status write_all(void *context, dcp_saving *saving, const dcp_save_plan *plan)
{
    (void)context, (void)plan;
    return dcp_default_write_data(saving);
}

void hooking_init(struct hooking *hooking, enum reuse_hooks hooks, int values, bool coordinates)
{
    dcp_save_planner *planner = &hooking->planner;
    dcp_storage_writer *writer = &hooking->writer;
    *hooking = (struct hooking){.hooks = hooks, .values = values, .coordinates = coordinates};
    *planner = (dcp_save_planner){.size_of = sizeof *planner, .context = hooking};
    *writer = (dcp_storage_writer){.size_of = sizeof *writer, .context = hooking};
    if (hooks == DATA_HOOKS || hooks == LOCAL_HOOKS)
        planner->transform_object = transform;
    if (hooks == LOCAL_HOOKS || hooks == GLOBAL_HOOKS) {
        planner->create_local_plan = plan_local;
        planner->finish_plan = finish_plan;
    }
    if (hooks == GLOBAL_HOOKS)
        planner->create_global_plan = plan_global;
    if (hooks == WRITER_HOOKS || hooks == RESULT_HOOKS)
        writer->prepare_local_plan = prepare;
    if (hooks == RESULT_HOOKS)
        writer->write_data = write_all;
}

void hooking_set_options(const struct hooking *hooking, dcp_save_options *options)
{
    if (hooking->hooks >= WRITER_HOOKS)
        options->storage_writer = &hooking->writer;
    else if (hooking->hooks != NO_HOOKS)
        options->planner = &hooking->planner;
}

bool hooking_was_called(const struct hooking *hooking)
{
    return hooking->transformed > 0 || !hooking->planner.transform_object;
}

void check_planner_data(enum reuse_hooks hooks, int values, const char *path)
{
    dcp_checkpoint *checkpoint;
    int64_t found = -1;
    if (hooks != LOCAL_HOOKS && hooks != GLOBAL_HOOKS)
        return;
    must(dcp_open(path, NULL, &checkpoint));
    const dcp_state *data = dcp_checkpoint_planner_data(checkpoint);
    must(dcp_state_as_int(dcp_state_get(data, "values"), &found));
    assert_int_equal(found, values);
    dcp_close(checkpoint);
}
