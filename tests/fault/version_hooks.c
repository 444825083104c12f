/* SPDX-License-Identifier: BSD-3-Clause */
#include "fault/version_hooks.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "storage/files/file.h"

/* ---- a save planner ---- */

static dcp_status set_up_saving(void *context, dcp_saving *saving, dcp_state *state,
                                const dcp_storage_meta *storage_meta, bool is_coordinator)
{
    struct version_hooks *hooks = context;
    (void)storage_meta, (void)is_coordinator;
    hooks->copied = dcp_state_new();
    if (!hooks->copied)
        return DCP_ERR_NO_MEMORY;
    for (size_t i = 0; i < dcp_state_count(state); i++) {
        const char *key;
        size_t length;
        RETURN_IF_ERROR(dcp_state_as_text(dcp_state_key_at(state, i), &key, &length));
        dcp_state_copy(hooks->copied, key, dcp_state_at(state, i));
    }
    RETURN_IF_ERROR(dcp_state_status(hooks->copied));
    return dcp_save_default_set_up_planner(saving, hooks->copied);
}

/* Puts something into a dict that travels. */
static dcp_status send_text(dcp_state *dict, const char *key)
{
    return dict ? dcp_state_string(dict, key, "something to pass on") : DCP_ERR_NO_MEMORY;
}

static dcp_status create_save_plan(void *context, dcp_saving *saving, dcp_save_plan *plan)
{
    (void)context;
    RETURN_IF_ERROR(dcp_save_default_create_local_plan(saving, plan));
    return send_text(dcp_save_plan_planner_data(plan), "sent");
}

static dcp_status create_global_save_plan(void *context, dcp_saving *saving,
                                          dcp_save_plan *const *plans, int plan_count)
{
    (void)context;
    RETURN_IF_ERROR(dcp_save_default_create_global_plan(saving, plans, plan_count));
    dcp_state *reported = dcp_save_plan_planner_data(plans[0]);
    return reported ? dcp_saving_set_planner_data(saving, reported) : DCP_ERR_NO_MEMORY;
}

static dcp_status finish_save_plan(void *context, dcp_saving *saving, dcp_save_plan *plan)
{
    (void)context, (void)saving, (void)plan;
    return DCP_OK;
}

static dcp_status resolve_data(void *context, dcp_saving *saving, const dcp_write_item *item,
                               dcp_write_data *data)
{
    (void)context;
    return dcp_save_default_resolve_data(saving, item, data);
}

static dcp_status lookup_object(void *context, dcp_saving *saving, const dcp_write_item *item,
                                const dcp_state **object)
{
    (void)context;
    return dcp_save_default_lookup_object(saving, item, object);
}

static dcp_status transform_object(void *context, dcp_saving *saving, const dcp_write_item *item,
                                   const dcp_state *object, dcp_write_data *data)
{
    (void)context;
    return dcp_save_default_transform_object(saving, item, object, data);
}

/* ---- a storage writer ---- */

static bool takes_all(void *context, const char *id)
{
    (void)context, (void)id;
    return true;
}

static dcp_status reset(void *context, const char *id)
{
    (void)context, (void)id;
    return DCP_OK;
}

static dcp_status storage_meta(void *context, dcp_storage_meta *meta)
{
    (void)context;
    *meta = (dcp_storage_meta){.checkpoint_id = VERSIONS_PATH, .save_id = "a save"};
    return DCP_OK;
}

static dcp_status set_up_writer(void *context, dcp_saving *saving, bool is_coordinator)
{
    (void)context, (void)is_coordinator;
    return dcp_save_default_set_up_storage_writer(saving);
}

static dcp_status prepare_save_plan(void *context, dcp_saving *saving, dcp_save_plan *plan)
{
    (void)context, (void)saving;
    return send_text(dcp_save_plan_storage_data(plan), "sent");
}

static dcp_status prepare_global_save_plan(void *context, dcp_saving *saving,
                                           dcp_save_plan *const *plans, int plan_count)
{
    (void)context, (void)saving;
    return send_text(dcp_save_plan_storage_data(plans[plan_count - 1]), "answered");
}

static dcp_status write_data(void *context, dcp_saving *saving, const dcp_save_plan *plan)
{
    (void)context, (void)plan;
    return dcp_save_default_write_data(saving);
}

static dcp_status finish(void *context, dcp_saving *saving, const dcp_checkpoint *metadata,
                         const dcp_write_result *results, size_t result_count)
{
    (void)context, (void)metadata, (void)results, (void)result_count;
    return dcp_save_default_finish(saving);
}

static void abandon(void *context, dcp_saving *saving)
{
    (void)context, (void)saving;
}

/* ---- one that writes a file of its own, into the library's directory ---- */

struct own_file {
    struct file file;
    uint64_t end;
};

/* A name that none had before. */
static void choose_own_path(struct version_hooks *hooks)
{
    static atomic_int chosen;
    snprintf(hooks->own_path, sizeof hooks->own_path, VERSIONS_PATH "/own_%d_%d", hooks->rank,
             atomic_fetch_add(&chosen, 1));
}

static dcp_status append(void *context, const void *bytes, size_t size)
{
    struct own_file *own = context;
    RETURN_IF_ERROR(file_write(&own->file, bytes, size, own->end));
    own->end += size;
    return DCP_OK;
}

static dcp_status write_items(dcp_saving *saving, const dcp_save_plan *plan, struct own_file *own,
                              const char *name)
{
    for (size_t i = 0; i < dcp_save_plan_count(plan); i++) {
        dcp_storage_location location = {name, own->end, 0};
        RETURN_IF_ERROR(dcp_saving_stream(saving, i, append, own));
        location.length = own->end - location.offset;
        RETURN_IF_ERROR(dcp_saving_set_location(saving, i, &location));
    }
    return file_sync(&own->file);
}

static dcp_status write_own_file(void *context, dcp_saving *saving, const dcp_save_plan *plan)
{
    struct version_hooks *hooks = context;
    struct own_file own = {.end = 0};
    struct saved_error error;
    choose_own_path(hooks);
    RETURN_IF_ERROR(file_open(&own.file, FILE_PATHS(hooks->ops), hooks->own_path, FILE_CREATE_NEW));
    dcp_status status = write_items(saving, plan, &own, strrchr(hooks->own_path, '/') + 1);
    if (status == DCP_OK)
        return file_close(&own.file);
    error_save(&error);
    file_close(&own.file);
    return error_restore(&error);
}

static void remove_own_file(void *context, dcp_saving *saving)
{
    struct version_hooks *hooks = context;
    (void)saving;
    if (hooks->own_path[0])
        hooks->ops->unlink(hooks->ops->context, FILE_NO_DIRECTORY, hooks->own_path);
}

/* ---- a load planner ---- */

static dcp_status set_up_loading(void *context, dcp_loading *loading, dcp_state *state,
                                 const dcp_checkpoint *metadata, bool is_coordinator)
{
    (void)context, (void)metadata, (void)is_coordinator;
    return dcp_load_default_set_up_planner(loading, state);
}

static dcp_status create_load_plan(void *context, dcp_loading *loading, dcp_load_plan *plan)
{
    (void)context;
    RETURN_IF_ERROR(dcp_load_default_create_local_plan(loading, plan));
    return send_text(dcp_load_plan_planner_data(plan), "sent");
}

static dcp_status create_global_load_plan(void *context, dcp_loading *loading,
                                          dcp_load_plan *const *plans, int plan_count)
{
    (void)context, (void)loading;
    return send_text(dcp_load_plan_planner_data(plans[plan_count - 1]), "answered");
}

static dcp_status prepare_global_load_plan(void *context, dcp_loading *loading,
                                           dcp_load_plan *const *plans, int plan_count)
{
    (void)context, (void)loading;
    return send_text(dcp_load_plan_storage_data(plans[plan_count - 1]), "answered");
}

static dcp_status look_at_plan(void *context, dcp_loading *loading, dcp_load_plan *plan)
{
    (void)context, (void)loading, (void)plan;
    return DCP_OK;
}

static dcp_status load_bytes(void *context, dcp_loading *loading, const dcp_read_item *item,
                             const void *bytes, size_t size)
{
    (void)context;
    return dcp_load_default_load_bytes(loading, item, bytes, size);
}

static dcp_status resolve_bytes(void *context, dcp_loading *loading, const dcp_read_item *item,
                                size_t size, void **bytes)
{
    (void)context;
    return dcp_load_default_resolve_bytes(loading, item, size, bytes);
}

static dcp_status resolve_tensor(void *context, dcp_loading *loading, const dcp_read_item *item,
                                 dcp_tensor *tensor)
{
    (void)context;
    return dcp_load_default_resolve_tensor(loading, item, tensor);
}

static dcp_status commit_tensor(void *context, dcp_loading *loading, const dcp_read_item *item,
                                const dcp_tensor *tensor)
{
    (void)context, (void)loading, (void)item, (void)tensor;
    return DCP_OK;
}

static dcp_status lookup_tensor(void *context, dcp_loading *loading, const dcp_read_item *item,
                                dcp_tensor *chunk)
{
    (void)context;
    return dcp_load_default_lookup_tensor(loading, item, chunk);
}

static dcp_status transform_tensor(void *context, dcp_loading *loading, const dcp_read_item *item,
                                   dcp_tensor *tensor)
{
    (void)context;
    return dcp_load_default_transform_tensor(loading, item, tensor);
}

/* ---- a storage reader ---- */

static dcp_status read_metadata(void *context, const void **bytes, size_t *size)
{
    struct version_hooks *hooks = context;
    struct buffer read;
    buffer_init(&read, 0);
    dcp_status status = file_read_whole(FILE_PATHS(hooks->ops), VERSIONS_PATH "/.metadata",
                                        (uint64_t)1 << 20, &read);
    free(hooks->metadata);
    hooks->metadata = status == DCP_OK ? malloc(read.size) : NULL;
    if (hooks->metadata) {
        memcpy(hooks->metadata, read.data, read.size);
        hooks->metadata_size = read.size;
    }
    buffer_free(&read);
    *bytes = hooks->metadata;
    *size = hooks->metadata_size;
    return status;
}

static dcp_status set_up_reader(void *context, dcp_loading *loading, const dcp_checkpoint *metadata,
                                bool is_coordinator)
{
    (void)context, (void)loading, (void)metadata, (void)is_coordinator;
    return DCP_OK;
}

static dcp_status read_data(void *context, dcp_loading *loading, const dcp_load_plan *plan)
{
    (void)context, (void)plan;
    return dcp_load_default_read_data(loading);
}

/* ---- a storage ---- */

static bool takes_versions(void *context, const char *id)
{
    (void)context;
    return strcmp(id, VERSIONS_PATH) == 0;
}

void version_hooks_init(struct version_hooks *hooks, const struct file_ops *ops, int rank)
{
    *hooks = (struct version_hooks){.ops = ops, .rank = rank};
    hooks->save_planner = (dcp_save_planner){sizeof hooks->save_planner,
                                             hooks,
                                             set_up_saving,
                                             create_save_plan,
                                             create_global_save_plan,
                                             finish_save_plan,
                                             resolve_data,
                                             lookup_object,
                                             transform_object};
    hooks->writer = (dcp_storage_writer){sizeof hooks->writer,
                                         hooks,
                                         takes_all,
                                         reset,
                                         storage_meta,
                                         set_up_writer,
                                         prepare_save_plan,
                                         prepare_global_save_plan,
                                         write_data,
                                         finish,
                                         abandon};
    hooks->load_planner = (dcp_load_planner){sizeof hooks->load_planner,
                                             hooks,
                                             set_up_loading,
                                             create_load_plan,
                                             create_global_load_plan,
                                             look_at_plan,
                                             load_bytes,
                                             resolve_bytes,
                                             resolve_tensor,
                                             commit_tensor,
                                             lookup_tensor,
                                             transform_tensor};
    hooks->reader = (dcp_storage_reader){sizeof hooks->reader,
                                         hooks,
                                         takes_all,
                                         reset,
                                         read_metadata,
                                         set_up_reader,
                                         look_at_plan,
                                         prepare_global_load_plan,
                                         read_data};
    hooks->files = files_storage(ops);
    awkward_storage_init(&hooks->storage, &hooks->files, NULL);
    hooks->storage.table.takes = takes_versions;
}

void version_hooks_save(struct version_hooks *hooks, enum version_hooked how,
                        dcp_save_options *options)
{
    options->storage = how == VERSION_OWN_STORAGE ? &hooks->storage.table : &hooks->files;
    if (how == VERSION_BY_HOOKS)
        options->planner = &hooks->save_planner;
    if (how == VERSION_BY_HOOKS || how == VERSION_OWN_FILES)
        options->storage_writer = &hooks->writer;
    if (how == VERSION_OWN_FILES) {
        hooks->writer.write_data = write_own_file;
        hooks->writer.abandon = remove_own_file;
    }
}

void version_hooks_load(struct version_hooks *hooks, enum version_hooked how,
                        dcp_load_options *options)
{
    options->storage = how == VERSION_OWN_STORAGE ? &hooks->storage.table : &hooks->files;
    if (how == VERSION_BY_HOOKS) {
        options->planner = &hooks->load_planner;
        options->storage_reader = &hooks->reader;
    }
}

void version_hooks_free(struct version_hooks *hooks)
{
    if (awkward_storage_open_count(&hooks->storage) != 0)
        abort();
    awkward_storage_destroy(&hooks->storage);
    dcp_state_free(hooks->copied);
    free(hooks->metadata);
}
