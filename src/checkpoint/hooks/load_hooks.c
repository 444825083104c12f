/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/hooks/load_hooks.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "checkpoint/hooks/hooks.h"
#include "checkpoint/hooks/hooks_choose.h"
#include "checkpoint/load/loading.h"
#include "format/streams/item.h"
#include "storage/open/storage_open.h"

static struct load_hooks *hooks_new(void)
{
    struct load_hooks *hooks = memory_allocate_zeroed(1, sizeof *hooks);
    pthread_mutexattr_t attributes;
    if (!hooks)
        return NULL;
    arena_init(&hooks->arena, 0);
    name_table_init(&hooks->flat_names);
    load_plan_view_init(&hooks->plan);
    /* Hooks may call back for the item that they are called for. */
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&hooks->mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
    return hooks;
}

void load_hooks_free(dcp_loading *loading)
{
    struct load_hooks *hooks = loading->hooks;
    if (!hooks)
        return;
    for (size_t i = 0; hooks->bytes && i < hooks->plan.count; i++)
        buffer_free(&hooks->bytes[i]);
    memory_release(hooks->bytes);
    memory_release(hooks->item_steps);
    read_targets_free(&hooks->targets);
    load_plan_view_free(&hooks->plan);
    name_table_free(&hooks->flat_names);
    arena_free(&hooks->arena);
    pthread_mutex_destroy(&hooks->mutex);
    memory_release(hooks);
    loading->hooks = NULL;
}

static void use_hooks(dcp_loading *loading)
{
    struct load_steps *steps = &loading->steps;
    steps->plan_holds = false;
    steps->reads_shards = !loading->hooks->storage.read_data;
    steps->plan_local = load_hooks_plan_local;
    steps->prepare = load_hooks_prepare;
    steps->measure = load_hooks_measure;
    steps->read = load_hooks_read;
}

dcp_status load_hooks_take(dcp_loading *loading)
{
    const dcp_load_options *options = &loading->options;
    if (!options->planner && !options->storage_reader && options->storage_reader_count == 0)
        return DCP_OK;
    loading->hooks = hooks_new();
    if (!loading->hooks)
        return error_no_memory(sizeof *loading->hooks, "hooks of a load");
    if (!options->planner)
        return DCP_OK;
    use_hooks(loading);
    return hooks_take(&loading->hooks->planner, sizeof loading->hooks->planner, options->planner,
                      "dcp_load_planner");
}

/* ---- the storage ---- */

static dcp_status takes_id(const void *table, const char *id, bool *takes)
{
    dcp_storage_reader storage;
    if (!table)
        return dcp_error_set(DCP_ERR_ARGUMENT, "one of the storage readers is NULL");
    RETURN_IF_ERROR(hooks_take(&storage, sizeof storage, table, "dcp_storage_reader"));
    *takes = storage.validate_checkpoint_id && storage.validate_checkpoint_id(storage.context, id);
    return DCP_OK;
}

/* Whether a storage reader has more hooks than read_metadata; otherwise the library plans and
 * reads. */
static bool takes_part(const dcp_storage_reader *storage)
{
    return storage->set_up_storage_reader || storage->prepare_local_plan ||
           storage->prepare_global_plan || storage->read_data;
}

static dcp_status take_reader(dcp_loading *loading, const void *table)
{
    dcp_storage_reader *storage = &loading->hooks->storage;
    RETURN_IF_ERROR(hooks_take(storage, sizeof *storage, table, "dcp_storage_reader"));
    loading->kind.present =
        hooks_mask(storage, offsetof(dcp_storage_reader, validate_checkpoint_id), sizeof *storage);
    if (storage->read_metadata)
        loading->steps.read_metadata = load_hooks_read_metadata;
    if (takes_part(storage))
        use_hooks(loading);
    return DCP_OK;
}

dcp_status load_hooks_choose_storage(dcp_loading *loading, const char *id)
{
    const dcp_load_options *options = &loading->options;
    struct hooks_choices choices = {
        .passed = options->storage_reader,
        .several = (const void *const *)options->storage_readers,
        .count = options->storage_reader_count,
        .takes = takes_id,
    };
    const void *table;
    RETURN_IF_ERROR(hooks_choose(&choices, id, &table, &loading->kind.storage));
    if (!table)
        return storage_choose(&loading->own, id, &loading->files);
    /* A storage reader may take ids that no storage does. */
    if (storage_choose(&loading->own, id, &loading->files) != DCP_OK) {
        loading->files = &loading->own;
        error_clear();
    }
    RETURN_IF_ERROR(take_reader(loading, table));
    const dcp_storage_reader *storage = &loading->hooks->storage;
    if (!storage->reset)
        return DCP_OK;
    error_clear();
    return hook_status(storage->reset(storage->context, id), "reset");
}

dcp_status load_hooks_read_metadata(dcp_loading *loading, const char *path, struct buffer *raw)
{
    const dcp_storage_reader *storage = &loading->hooks->storage;
    const void *bytes = NULL;
    size_t size = 0;
    (void)path;
    error_clear();
    RETURN_IF_ERROR(
        hook_status(storage->read_metadata(storage->context, &bytes, &size), "read_metadata"));
    if (!bytes)
        return dcp_error_set(
            DCP_ERR_CALLBACK,
            "hook read_metadata of the storage reader succeeded, but gave no bytes");
    storage_wrap_raw(bytes, size, raw);
    return buffer_status(raw);
}

/* ---- setting up, and names ---- */

dcp_status dcp_load_default_set_up_planner(dcp_loading *loading, dcp_state *state)
{
    if (!loading || loading->hooks->is_set_up)
        return dcp_error_set(
            DCP_ERR_STATE,
            "dcp_load_default_set_up_planner() was called twice, or outside of set_up_planner");
    struct flat_state *flat = &loading->planning.flat;
    RETURN_IF_ERROR(load_flatten(loading, state));
    for (size_t i = 0; i < flat->count; i++) {
        uint64_t place = i;
        bool existing;
        RETURN_IF_ERROR(name_table_add(&loading->hooks->flat_names, flat->entries[i].name,
                                       strlen(flat->entries[i].name), &place, &existing));
    }
    size_t bytes = flat->count * sizeof *loading->hooks->stored_names;
    loading->hooks->stored_names = arena_allocate_array(&loading->hooks->arena, flat->count,
                                                        sizeof *loading->hooks->stored_names);
    if (!loading->hooks->stored_names)
        return error_no_memory(bytes, "stored names");
    memset(loading->hooks->stored_names, 0, bytes);
    loading->planning.names.stored = loading->hooks->stored_names;
    loading->hooks->is_set_up = true;
    return DCP_OK;
}

size_t dcp_loading_name_count(const dcp_loading *loading)
{
    return loading && loading->hooks->is_set_up ? loading->planning.flat.count : 0;
}

const char *dcp_loading_name(const dcp_loading *loading, size_t index)
{
    return index < dcp_loading_name_count(loading) ? loading->planning.flat.entries[index].name
                                                   : NULL;
}

dcp_status dcp_loading_rename(dcp_loading *loading, const char *name, const char *stored_name)
{
    uint64_t place;
    if (!loading || !name || !stored_name)
        return dcp_error_set(DCP_ERR_ARGUMENT, "dcp_loading_rename: the load or a name is NULL");
    if (!loading->hooks->is_set_up || loading->hooks->is_planned)
        return dcp_error_set(
            DCP_ERR_STATE,
            "\"%s\": names can be changed only between the planner's default set-up and the plan",
            name);
    if (!name_table_find(&loading->hooks->flat_names, name, strlen(name), &place))
        return dcp_error_set(DCP_ERR_NOT_FOUND, "\"%s\": the state has no such name", name);
    loading->hooks->stored_names[place] =
        arena_copy_text(&loading->hooks->arena, stored_name, strlen(stored_name));
    if (!loading->hooks->stored_names[place])
        return error_no_memory(strlen(stored_name), "a stored name");
    return DCP_OK;
}
