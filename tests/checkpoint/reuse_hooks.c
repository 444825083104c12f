/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/reuse_hooks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* What steady hooks have travel, each time. */
enum { STEADY = 7 };

static dcp_status transform(void *context, dcp_saving *saving, const dcp_write_item *item,
                            const dcp_state *object, dcp_write_data *data)
{
    struct hooking *hooking = context;
    __atomic_add_fetch(&hooking->transformed, 1, __ATOMIC_RELAXED);
    return dcp_save_default_transform_object(saving, item, object, data);
}

/* The metadata's planner data. */
static dcp_status send_values(dcp_saving *saving, int values)
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
    bool steady = hooking->hooks == STEADY_HOOKS;
    dcp_state *data = dcp_save_plan_planner_data(plan);
    dcp_status status =
        data ? dcp_state_int(data, "values", steady ? STEADY : hooking->values) : DCP_ERR_NO_MEMORY;
    if (status == DCP_OK && hooking->coordinates && !steady)
        status = send_values(saving, hooking->values);
    return status == DCP_OK ? dcp_save_default_create_local_plan(saving, plan) : status;
}

static dcp_status plan_global(void *context, dcp_saving *saving, dcp_save_plan *const *plans,
                              int count)
{
    const struct hooking *hooking = context;
    dcp_status status = dcp_save_default_create_global_plan(saving, plans, count);
    for (int rank = 0; rank < count && status == DCP_OK && hooking->hooks == STEADY_HOOKS; rank++) {
        dcp_state *data = dcp_save_plan_planner_data(plans[rank]);
        status = data ? dcp_state_int(data, "dealt", 100 + rank) : DCP_ERR_NO_MEMORY;
    }
    return status == DCP_OK && hooking->hooks == STEADY_HOOKS ? send_values(saving, STEADY)
                                                              : status;
}

static dcp_status finish_plan(void *context, dcp_saving *saving, dcp_save_plan *plan)
{
    const struct hooking *hooking = context;
    int64_t values = -1;
    (void)saving;
    const dcp_state *data = dcp_save_plan_planner_data((dcp_save_plan *)(uintptr_t)plan);
    if (!data)
        return DCP_ERR_NO_MEMORY;
    bool steady = hooking->hooks == STEADY_HOOKS;
    dcp_status status =
        dcp_state_as_int(dcp_state_find(data, steady ? "dealt" : "values"), &values);
    if (status == DCP_OK && values != (steady ? 100 + hooking->rank : hooking->values))
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
    return dcp_save_default_write_data(saving);
}

/* Every result says of what it is, and where that lies. */
static dcp_status finish(void *context, dcp_saving *saving, const dcp_checkpoint *metadata,
                         const dcp_write_result *results, size_t count)
{
    (void)context, (void)metadata;
    if (count == 0)
        return dcp_error_set(DCP_ERR_STATE, "no results");
    for (size_t i = 0; i < count; i++)
        if (!results[i].index.name || !results[i].location.path || results[i].location.length == 0)
            return dcp_error_set(DCP_ERR_STATE, "result %zu of %zu says nothing", i, count);
    return dcp_save_default_finish(saving);
}

static dcp_status reset(void *context, const char *id)
{
    struct hooking *hooking = context;
    snprintf(hooking->directory, sizeof hooking->directory, "%s", id);
    return DCP_OK;
}

static dcp_status to_file(void *context, const void *bytes, size_t size)
{
    return fwrite(bytes, 1, size, context) == size ? DCP_OK
                                                   : dcp_error_set(DCP_ERR_IO, "writing failed");
}

/* A file for each item, whose names are in the opposite order. */
static dcp_status write_files(void *context, dcp_saving *saving, const dcp_save_plan *plan)
{
    const struct hooking *hooking = context;
    dcp_status status = DCP_OK;
    for (size_t i = 0; i < dcp_save_plan_count(plan) && status == DCP_OK; i++) {
        char name[64], path[1200];
        snprintf(name, sizeof name, "own_%d_%zu_%d", 9 - hooking->rank, 999 - i, hooking->values);
        snprintf(path, sizeof path, "%s/%s", hooking->directory, name);
        FILE *file = fopen(path, "w");
        if (!file)
            return dcp_error_set(DCP_ERR_IO, "%s cannot be made", path);
        status = dcp_saving_stream(saving, i, to_file, file);
        long size = ftell(file);
        fclose(file);
        if (status == DCP_OK)
            status = dcp_saving_set_location(
                saving, i, &(dcp_storage_location){.path = name, .length = (uint64_t)size});
    }
    return status;
}

void hooking_init(struct hooking *hooking, enum reuse_hooks hooks, int values, int rank,
                  bool coordinates)
{
    dcp_save_planner *planner = &hooking->planner;
    dcp_storage_writer *writer = &hooking->writer;
    *hooking = (struct hooking){
        .hooks = hooks, .values = values, .rank = rank, .coordinates = coordinates};
    *planner = (dcp_save_planner){.size_of = sizeof *planner, .context = hooking};
    *writer = (dcp_storage_writer){.size_of = sizeof *writer, .context = hooking};
    if (hooks == DATA_HOOKS || hooks == LOCAL_HOOKS)
        planner->transform_object = transform;
    if (hooks == LOCAL_HOOKS || hooks == GLOBAL_HOOKS || hooks == STEADY_HOOKS) {
        planner->create_local_plan = plan_local;
        planner->finish_plan = finish_plan;
    }
    if (hooks == GLOBAL_HOOKS || hooks == STEADY_HOOKS)
        planner->create_global_plan = plan_global;
    if (hooks >= WRITER_HOOKS)
        writer->prepare_local_plan = prepare;
    if (hooks >= RESULT_HOOKS) {
        writer->reset = reset;
        writer->write_data = hooks == RESULT_HOOKS ? write_all : write_files;
        writer->finish = finish;
    }
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
    if (hooks != LOCAL_HOOKS && hooks != GLOBAL_HOOKS && hooks != STEADY_HOOKS)
        return;
    must(dcp_checkpoint_open(path, NULL, &checkpoint));
    const dcp_state *data = dcp_checkpoint_planner_data(checkpoint);
    must(dcp_state_as_int(dcp_state_find(data, "values"), &found));
    assert_int_equal(found, hooks == STEADY_HOOKS ? STEADY : values);
    dcp_checkpoint_close(checkpoint);
}
