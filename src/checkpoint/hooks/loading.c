/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/hooks/loading.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "checkpoint/hooks/hooks.h"
#include "checkpoint/hooks/hooks_choose.h"
#include "format/streams/item.h"

dcp_status loading_init(struct dcp_loading *loading, const struct loading_parts *parts)
{
    *loading = (struct dcp_loading){.parts = *parts};
    arena_init(&loading->arena, 0);
    name_table_init(&loading->flat_names);
    read_plan_init(&loading->plan);
    /* Hooks may call back for the item that they are told of. */
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&loading->mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
    loading->has_planner = parts->options->planner != NULL;
    loading->files = &loading->own;
    RETURN_IF_ERROR(storage_take(&loading->own, parts->options->storage));
    return hooks_take(&loading->planner, sizeof loading->planner, parts->options->planner,
                      "dcp_load_planner");
}

void loading_free(struct dcp_loading *loading)
{
    for (size_t i = 0; loading->bytes && i < loading->plan.count; i++)
        buffer_free(&loading->bytes[i]);
    memory_release(loading->bytes);
    memory_release(loading->steps);
    read_targets_free(&loading->targets);
    read_plan_free(&loading->plan);
    name_table_free(&loading->flat_names);
    arena_free(&loading->arena);
    pthread_mutex_destroy(&loading->mutex);
}

static dcp_status takes_id(const void *table, const char *id, bool *takes)
{
    dcp_storage_reader storage;
    if (!table)
        return dcp_error_set(DCP_ERR_ARGUMENT, "one of the storage readers is NULL");
    RETURN_IF_ERROR(hooks_take(&storage, sizeof storage, table, "dcp_storage_reader"));
    *takes = storage.validate_checkpoint_id && storage.validate_checkpoint_id(storage.context, id);
    return DCP_OK;
}

static dcp_status take_reader(struct dcp_loading *loading, const void *table)
{
    dcp_storage_reader *storage = &loading->storage;
    RETURN_IF_ERROR(hooks_take(storage, sizeof *storage, table, "dcp_storage_reader"));
    loading->storage_mask =
        hooks_mask(storage, offsetof(dcp_storage_reader, validate_checkpoint_id), sizeof *storage);
    loading->has_storage = storage->set_up_storage_reader || storage->prepare_local_plan ||
                           storage->prepare_global_plan || storage->read_data;
    if (loading->has_storage && loading->parts.options->memory_limit != 0)
        return dcp_error_set(DCP_ERR_UNSUPPORTED,
                             "memory_limit with a storage reader, whose needs are not known");
    return DCP_OK;
}

dcp_status loading_choose_storage(struct dcp_loading *loading, const char *id)
{
    const dcp_load_options *options = loading->parts.options;
    struct hooks_choices choices = {
        .passed = options->storage_reader,
        .several = (const void *const *)options->storage_readers,
        .count = options->storage_reader_count,
        .takes = takes_id,
    };
    const void *table;
    RETURN_IF_ERROR(hooks_choose(&choices, id, &table, &loading->storage_number));
    RETURN_IF_ERROR(take_reader(loading, table));
    /* A storage reader may take ids that no storage does. */
    if (!table)
        RETURN_IF_ERROR(storage_choose(&loading->own, id, &loading->files));
    if (!loading->storage.reset)
        return DCP_OK;
    error_clear();
    return hook_status(loading->storage.reset(loading->storage.context, id), "reset");
}

dcp_status loading_read_metadata(const struct dcp_loading *loading, struct buffer *raw)
{
    const void *bytes = NULL;
    size_t size = 0;
    error_clear();
    RETURN_IF_ERROR(hook_status(
        loading->storage.read_metadata(loading->storage.context, &bytes, &size), "read_metadata"));
    if (!bytes)
        return dcp_error_set(DCP_ERR_CALLBACK, "the storage reader's read_metadata gave no bytes");
    storage_wrap_raw(bytes, size, raw);
    return buffer_status(raw);
}

static bool is_stored_object(const void *context, const char *name, size_t length)
{
    const struct metadata *metadata = context;
    uint64_t index;
    return name_table_find(&metadata->by_name, name, length, &index) &&
           !metadata->entries[index].is_tensor;
}

dcp_status load_flatten(const dcp_load_options *options, const struct metadata *metadata,
                        dcp_state *state, struct flat_state *flat)
{
    struct flatten_rules rules = {options->unflattened, is_stored_object, metadata};
    if (!state)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the state to load into is NULL");
    return flatten_by_rules(state, &rules, flat);
}

dcp_status dcp_default_set_up_load_planner(dcp_loading *loading, dcp_state *state)
{
    if (!loading || loading->is_set_up)
        return dcp_error_set(DCP_ERR_STATE, "the load planner is set up once, when it is told to");
    struct flat_state *flat = loading->parts.flat;
    RETURN_IF_ERROR(load_flatten(loading->parts.options, loading->parts.metadata, state, flat));
    for (size_t i = 0; i < flat->count; i++) {
        uint64_t place = i;
        bool existing;
        RETURN_IF_ERROR(name_table_add(&loading->flat_names, flat->entries[i].name,
                                       strlen(flat->entries[i].name), &place, &existing));
    }
    size_t bytes = flat->count * sizeof *loading->stored_names;
    loading->stored_names =
        arena_allocate_array(&loading->arena, flat->count, sizeof *loading->stored_names);
    if (!loading->stored_names)
        return error_no_memory(bytes, "stored names");
    memset(loading->stored_names, 0, bytes);
    loading->parts.names->stored = loading->stored_names;
    loading->is_set_up = true;
    return DCP_OK;
}

size_t dcp_loading_name_count(const dcp_loading *loading)
{
    return loading && loading->is_set_up ? loading->parts.flat->count : 0;
}

const char *dcp_loading_name(const dcp_loading *loading, size_t index)
{
    return index < dcp_loading_name_count(loading) ? loading->parts.flat->entries[index].name
                                                   : NULL;
}

dcp_status dcp_loading_rename(dcp_loading *loading, const char *name, const char *stored_name)
{
    uint64_t place;
    if (!loading || !name || !stored_name)
        return dcp_error_set(DCP_ERR_ARGUMENT, "renaming needs a load and two names");
    if (!loading->is_set_up || loading->is_planned)
        return dcp_error_set(DCP_ERR_STATE,
                             "\"%s\": names are changed after the planner's default set-up and "
                             "before the plan is made",
                             name);
    if (!name_table_find(&loading->flat_names, name, strlen(name), &place))
        return dcp_error_set(DCP_ERR_NOT_FOUND, "\"%s\": the state has no such name", name);
    loading->stored_names[place] =
        arena_copy_text(&loading->arena, stored_name, strlen(stored_name));
    if (!loading->stored_names[place])
        return error_no_memory(strlen(stored_name), "a stored name");
    return DCP_OK;
}

dcp_status dcp_object_decode(const void *bytes, size_t size, dcp_state *parent, const char *key)
{
    if (!bytes || !parent)
        return dcp_error_set(DCP_ERR_ARGUMENT, "decoding an object needs bytes and a parent");
    struct state_pool *pool = state_pool_new(parent->root);
    dcp_state *object = NULL;
    if (!pool)
        return DCP_ERR_NO_MEMORY;
    dcp_status status = item_read_object(byte_source_memory(bytes, size), pool, &object);
    if (status == DCP_OK)
        status = dcp_state_none(parent, key);
    if (status == DCP_OK)
        status = node_replace(dcp_state_at(parent, dcp_state_count(parent) - 1), pool, object);
    if (status != DCP_OK)
        state_pool_free(pool);
    return status;
}
