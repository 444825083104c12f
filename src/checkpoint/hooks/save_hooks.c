/* SPDX-License-Identifier: BSD-3-Clause */
/* The tables of hooks: taken over, compared between ranks, and called. */
#include "checkpoint/hooks/save_hooks.h"

#include <string.h>

#include "base/checksum.h"
#include "base/error.h"
#include "base/memory.h"
#include "checkpoint/hooks/hooks_choose.h"
#include "checkpoint/save/saving.h"

static dcp_status takes_id(const void *table, const char *id, bool *takes)
{
    dcp_storage_writer writer;
    if (!table)
        return dcp_error_set(DCP_ERR_ARGUMENT, "one of the storage writers is NULL");
    RETURN_IF_ERROR(hooks_take(&writer, sizeof writer, table, "dcp_storage_writer"));
    *takes = writer.validate_checkpoint_id && writer.validate_checkpoint_id(writer.context, id);
    return DCP_OK;
}

/* A rank that was given no path goes by the coordinator's, which must then be a directory. */
static dcp_status choose_storage(struct save_hooks *hooks, const dcp_save_options *options,
                                 const char *path, const void **table)
{
    const struct hooks_choices choices = {
        .passed = options->storage_writer,
        .several = (const void *const *)options->storage_writers,
        .count = options->storage_writer_count,
        .takes = takes_id,
    };
    *table = choices.passed;
    hooks->storage_number = choices.passed ? HOOKS_PASSED : HOOKS_NONE;
    if (!path || !*path)
        return DCP_OK;
    return hooks_choose(&choices, path, table, &hooks->storage_number);
}

dcp_status save_hooks_init(struct save_hooks *hooks, const dcp_save_options *options,
                           const char *path, dcp_status status)
{
    const void *writer = NULL;
    plan_view_init(&hooks->plan);
    plan_view_init(&hooks->finished);
    name_table_init(&hooks->names);
    pthread_mutex_init(&hooks->mutex, NULL);
    if (status == DCP_OK)
        status = choose_storage(hooks, options, path, &writer);
    if (status == DCP_OK)
        status = hooks_take(&hooks->planner, sizeof hooks->planner, options->planner,
                            "dcp_save_planner");
    if (status == DCP_OK)
        status = hooks_take(&hooks->writer, sizeof hooks->writer, writer, "dcp_storage_writer");
    hooks->any = status == DCP_OK && (options->planner || writer);
    return status;
}

void save_hooks_free(struct save_hooks *hooks)
{
    for (int rank = 0; rank < hooks->taken_count; rank++)
        write_results_free(&hooks->taken[rank]);
    memory_release(hooks->taken);
    memory_release(hooks->all_results);
    dcp_state_free(hooks->planner_root);
    memory_release(hooks->stream_offsets);
    pthread_mutex_destroy(&hooks->mutex);
    name_table_free(&hooks->names);
    plan_view_free(&hooks->finished);
    plan_view_free(&hooks->plan);
}

/* ---- the same hooks on all ranks ---- */

enum { HOOKS = 16 };

static const char *const hook_names[HOOKS] = {
    "set_up_planner",
    "create_local_plan",
    "create_global_plan",
    "finish_plan",
    "resolve_data",
    "lookup_object",
    "transform_object",
    "validate_checkpoint_id",
    "reset",
    "storage_meta",
    "set_up_storage_writer",
    "prepare_local_plan",
    "prepare_global_plan",
    "write_data",
    "finish",
    "abandon",
};

static uint32_t hooks_present(const struct save_hooks *hooks)
{
    const dcp_save_planner *planner = &hooks->planner;
    const dcp_storage_writer *writer = &hooks->writer;
    const bool present[HOOKS] = {
        planner->set_up_planner != NULL,
        planner->create_local_plan != NULL,
        planner->create_global_plan != NULL,
        planner->finish_plan != NULL,
        planner->resolve_data != NULL,
        planner->lookup_object != NULL,
        planner->transform_object != NULL,
        writer->validate_checkpoint_id != NULL,
        writer->reset != NULL,
        writer->storage_meta != NULL,
        writer->set_up_storage_writer != NULL,
        writer->prepare_local_plan != NULL,
        writer->prepare_global_plan != NULL,
        writer->write_data != NULL,
        writer->finish != NULL,
        writer->abandon != NULL,
    };
    uint32_t mask = hooks->any ? UINT32_C(1) << HOOKS : 0;
    for (int i = 0; i < HOOKS; i++)
        mask |= (uint32_t)present[i] << i;
    return mask;
}

void save_hooks_append(const struct save_hooks *hooks, struct buffer *out)
{
    buffer_append_u64(out, hooks->storage_number);
    buffer_append_u32(out, hooks_present(hooks));
}

uint64_t save_hooks_kind(const struct save_hooks *hooks)
{
    const uint64_t all[] = {hooks->storage_number, hooks_present(hooks)};
    return hooks->any ? xxh3_64(all, sizeof all) : 0;
}

dcp_status save_hooks_compare(const struct save_hooks *hooks, struct reader *reader)
{
    uint64_t number = reader_u64(reader);
    uint32_t theirs = reader_u32(reader), ours = hooks_present(hooks);
    if (reader->failed)
        return dcp_error_set(DCP_ERR_GROUP, "its plan is cut short");
    for (int i = 0; i < HOOKS; i++)
        if (((theirs ^ ours) >> i & 1) != 0)
            return dcp_error_set(DCP_ERR_ARGUMENT,
                                 "has %s hook %s, the coordinator has %s: all ranks must have the "
                                 "same",
                                 theirs >> i & 1 ? "a" : "no", hook_names[i],
                                 ours >> i & 1 ? "one" : "none");
    if (theirs != ours)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "%s a save planner or storage writer, other than the coordinator: all "
                             "ranks must have the same",
                             theirs > ours ? "has" : "has no");
    if (number != hooks->storage_number)
        return dcp_error_set(DCP_ERR_ARGUMENT, "has another storage writer than the coordinator");
    return DCP_OK;
}
