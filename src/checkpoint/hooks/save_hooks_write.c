/* SPDX-License-Identifier: BSD-3-Clause */
/* Writes with a storage writer, and implements the functions that it may call. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "checkpoint/hooks/save_hooks.h"
#include "checkpoint/save/saving.h"
#include "checkpoint/view/view.h"
#include "format/metadata/relative_path.h"

dcp_status dcp_save_default_set_up_storage_writer(dcp_saving *saving)
{
    if (!saving)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the save is NULL");
    saving->hooks->session_wanted = true;
    return DCP_OK;
}

/* ---- writing ---- */

static dcp_status prepare_results(dcp_saving *saving)
{
    struct write_results *results = &saving->results;
    size_t count = saving->orders.count;
    arena_init(&results->arena, 0);
    results->results = arena_allocate_array(&results->arena, count, sizeof *results->results);
    if (!results->results)
        return error_no_memory(count * sizeof *results->results, "write results");
    for (size_t i = 0; i < count; i++)
        results->results[i] = (struct write_result){0};
    results->count = count;
    return DCP_OK;
}

static dcp_status set_result(dcp_saving *saving, size_t index, const struct write_result *result)
{
    struct write_results *results = &saving->results;
    struct write_result *place = &results->results[index];
    pthread_mutex_lock(&saving->hooks->mutex);
    bool again = place->path != NULL;
    char *path =
        again ? NULL : arena_copy_text(&results->arena, result->path, strlen(result->path));
    if (path) {
        *place = *result;
        place->path = path;
    }
    pthread_mutex_unlock(&saving->hooks->mutex);
    if (again)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the location of \"%.200s\" was already set",
                             saving->hooks->plan.items[saving->orders.orders[index].item].name);
    return path ? DCP_OK : error_no_memory(strlen(result->path) + 1, "write results");
}

static dcp_status check_index(const dcp_saving *saving, size_t index, const void *argument)
{
    if (!saving || !argument)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the save or its data is NULL");
    if (index >= saving->hooks->finished.count)
        return dcp_error_set(DCP_ERR_ARGUMENT, "there is no item %zu: the save plan has %zu items",
                             index, saving->hooks->finished.count);
    return DCP_OK;
}

dcp_status dcp_saving_set_location(dcp_saving *saving, size_t index,
                                   const dcp_storage_location *location)
{
    RETURN_IF_ERROR(check_index(saving, index, location));
    const char *name = saving->hooks->finished.items[index].name;
    if (!saving->results.results)
        return dcp_error_set(DCP_ERR_STATE,
                             "the location of \"%s\" can be set only in hook write_data", name);
    if (!location->path)
        return dcp_error_set(DCP_ERR_ARGUMENT, "\"%s\": its location has no path", name);
    if (relative_path_check(location->path, strlen(location->path)) != DCP_OK)
        return error_prefix(dcp_error_set(DCP_ERR_ARGUMENT,
                                          "the path \"%.200s\" may lead out of the checkpoint",
                                          location->path),
                            "\"%s\"", name);
    if (location->length == 0 || location->offset > INT64_MAX ||
        location->length > INT64_MAX - location->offset)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "\"%s\": the length of its location is 0, or too large", name);
    struct write_result result = {
        .path = location->path, .offset = location->offset, .length = location->length};
    return set_result(saving, save_hooks_order(saving->hooks, index), &result);
}

dcp_status dcp_saving_resolve(dcp_saving *saving, size_t index, dcp_write_data *data)
{
    RETURN_IF_ERROR(check_index(saving, index, data));
    const struct write_item *item = &saving->hooks->finished.items[index];
    dcp_write_item view = save_plan_view_item(&saving->hooks->finished, item);
    if (item->is_tensor)
        return save_resolve_item(saving, &view, data);
    size_t order = save_hooks_order(saving->hooks, index);
    *data = (dcp_write_data){
        .bytes = saving->local.sources[saving->orders.orders[order].item].stream,
        .size = (size_t)item->object_length,
    };
    return DCP_OK;
}

dcp_status dcp_saving_stream(dcp_saving *saving, size_t index, dcp_sink sink, void *context)
{
    RETURN_IF_ERROR(check_index(saving, index, (const void *)&sink));
    if (!sink)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the sink is NULL");
    const struct write_order *order =
        &saving->orders.orders[save_hooks_order(saving->hooks, index)];
    return shard_stream_write(&saving->local.sources[order->item], order, sink, context);
}

/* Sets the places of all items in our own files, for a writer that uses them. */
static dcp_status report_places(dcp_saving *saving, const struct write_results *written)
{
    for (size_t i = 0; i < saving->orders.count; i++) {
        const struct write_order *order = &saving->orders.orders[i];
        char name[SHARD_NAME_MAX];
        shard_name(name, saving->file_rank, order->file, saving->session.generation);
        struct write_result result = {
            .path = name, .offset = order->offset, .length = order->length};
        if (written->count > 0)
            result = written->results[i];
        RETURN_IF_ERROR(set_result(saving, i, &result));
    }
    return DCP_OK;
}

dcp_status dcp_save_default_write_data(dcp_saving *saving)
{
    struct write_results written = {0};
    if (!saving || !saving->results.results)
        return dcp_error_set(DCP_ERR_STATE, "files can be written only in hook write_data");
    if (!saving->hooks->session_wanted)
        return dcp_error_set(DCP_ERR_STATE,
                             "there is no directory to write to: hook set_up_storage_writer has "
                             "not called dcp_save_default_set_up_storage_writer()");
    dcp_status status = saving_write_files(saving, &written);
    if (status == DCP_OK)
        status = report_places(saving, &written);
    write_results_free(&written);
    return status;
}

static dcp_status check_results(const dcp_saving *saving)
{
    size_t missing = 0, first = 0;
    for (size_t i = saving->results.count; i-- > 0;)
        if (!saving->results.results[i].path) {
            missing++;
            first = i;
        }
    if (missing == 0)
        return DCP_OK;
    const struct write_item *item = &saving->hooks->plan.items[saving->orders.orders[first].item];
    return dcp_error_set(
        DCP_ERR_ARGUMENT,
        "hook write_data has not set the locations of %zu of %zu items, \"%s\" among them", missing,
        saving->results.count, item->name);
}

dcp_status save_hooks_write(dcp_saving *saving)
{
    const dcp_storage_writer *writer = &saving->hooks->writer;
    RETURN_IF_ERROR(prepare_results(saving));
    error_clear();
    RETURN_IF_ERROR(writer->write_data ? hook_status(writer->write_data(writer->context, saving,
                                                                        &saving->hooks->finished),
                                                     "write_data")
                                       : dcp_save_default_write_data(saving));
    return check_results(saving);
}

/* ---- finishing ---- */

dcp_status dcp_save_default_finish(dcp_saving *saving)
{
    if (!saving || !saving->coordinates)
        return dcp_error_set(DCP_ERR_STATE, "only the coordinator can finish a save");
    if (!saving->hooks->session_wanted)
        return dcp_error_set(DCP_ERR_STATE,
                             "there is no directory to finish: hook set_up_storage_writer has not "
                             "called dcp_save_default_set_up_storage_writer()");
    return save_coordinator_commit(saving);
}

/* Sets which items each rank writes, in the order of its results. The indexes refer to the
 * metadata. */
dcp_status save_hooks_expect_results(dcp_saving *saving, int rank,
                                     const struct write_orders *orders,
                                     const struct save_plan *held)
{
    struct plan_extras *extras = &saving->extras;
    size_t count = extras->result_count + orders->count;
    dcp_write_result *results = memory_reallocate_array(extras->results, count, sizeof *results);
    if (!results)
        return error_no_memory(count * sizeof *results, "results of all ranks");
    extras->results = results;
    for (size_t i = 0; i < orders->count; i++) {
        const struct write_order *order = &orders->orders[i];
        const struct write_item *item = &held->items[order->item];
        dcp_write_result *result = &results[extras->result_count++];
        *result = (dcp_write_result){
            .rank = rank,
            .index = {.name = metadata_find(&saving->coordinator.metadata, item->name)->name},
        };
        if (item->is_tensor) {
            result->index.offsets = order->box.offsets;
            result->index.ndim = item->ndim;
        }
    }
    return DCP_OK;
}

void save_hooks_forget_results(struct save_hooks *hooks)
{
    for (int rank = 0; rank < hooks->taken_count; rank++)
        write_results_free(&hooks->taken[rank]);
    memory_release(hooks->taken);
    hooks->taken = NULL;
    hooks->taken_count = 0;
}

dcp_status save_hooks_take_results(dcp_saving *saving, const struct group_messages *messages)
{
    struct save_hooks *hooks = saving->hooks;
    size_t next = 0;
    if (hooks->writer.write_data && saving->planning.cache)
        RETURN_IF_ERROR(
            save_plan_places_take(&saving->coordinator.metadata, &saving->extras.places));
    RETURN_IF_ERROR(save_coordinator_place(&saving->coordinator, messages));
    if (!hooks->writer.finish)
        return DCP_OK;
    hooks->taken = memory_allocate_zeroed((size_t)messages->count, sizeof *hooks->taken);
    if (!hooks->taken)
        return error_no_memory((size_t)messages->count * sizeof *hooks->taken, "write results");
    for (int rank = 0; rank < messages->count; rank++) {
        struct write_results *taken = &hooks->taken[hooks->taken_count++];
        RETURN_IF_ERROR(write_results_decode(messages->bytes + messages->offsets[rank],
                                             messages->offsets[rank + 1] - messages->offsets[rank],
                                             taken));
        for (size_t i = 0; i < taken->count; i++)
            saving->extras.results[next++].location = (dcp_storage_location){
                taken->results[i].path, taken->results[i].offset, taken->results[i].length};
    }
    return DCP_OK;
}

dcp_status save_hooks_commit(dcp_saving *saving)
{
    const struct save_hooks *hooks = saving->hooks;
    const dcp_storage_writer *writer = &hooks->writer;
    if (!writer->finish)
        return save_coordinator_commit(saving);
    dcp_checkpoint metadata = {.metadata = &saving->coordinator.metadata};
    error_clear();
    return hook_status(writer->finish(writer->context, saving, &metadata, saving->extras.results,
                                      saving->extras.result_count),
                       "finish");
}

void save_hooks_abandon(dcp_saving *saving)
{
    const dcp_storage_writer *writer = &saving->hooks->writer;
    struct saved_error error;
    if (!saving->hooks->writer_began || !writer->abandon)
        return;
    error_save(&error);
    writer->abandon(writer->context, saving);
    error_restore(&error);
}
