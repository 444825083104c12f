/* SPDX-License-Identifier: BSD-3-Clause */
/* A checkpoint is copied from one place to another, and is none there before all of it is. */
#include "run/run_copy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/sized.h"
#include "dcp/checkpoint.h"

/* ---- the source ---- */

/* The first fault. */
struct fault {
    char text[512];
};

static void take_fault(void *context, const char *file, uint64_t offset, const char *name,
                       const char *fault)
{
    struct fault *first = context;
    (void)offset, (void)name;
    if (!first->text[0])
        snprintf(first->text, sizeof first->text, "%.200s: %.280s", file ? file : "checkpoint",
                 fault);
}

static dcp_status verify_source(const struct copying *copying)
{
    const dcp_open_options options = {.storage = copying->from.storage,
                                      .progress = copying->options.progress,
                                      .progress_context = copying->options.progress_context};
    struct fault first = {""};
    uint64_t faults = 0;
    RETURN_IF_ERROR(dcp_verify(copying->from.root, &options, take_fault, &first, &faults));
    return faults == 0 ? DCP_OK
                       : dcp_error_set(DCP_ERR_CHECKSUM, "%s is damaged and is not copied: %s",
                                       copying->from.root, first.text);
}

/* Whether it still is the checkpoint whose files were copied. */
static dcp_status check_unchanged(const struct copying *copying, const struct copy_file *file)
{
    struct buffer bytes;
    bool found;
    buffer_init(&bytes, 0);
    dcp_status status = run_place_read(&copying->from, file->path, file->size, &bytes, &found);
    bool same = found && bytes.size == file->size &&
                (file->size == 0 || memcmp(bytes.data, file->content.data, bytes.size) == 0);
    buffer_free(&bytes);
    return status != DCP_OK || same
               ? status
               : dcp_error_set(DCP_ERR_BUSY, "%s was replaced or removed while it was copied",
                               copying->from.root);
}

/* ---- the destination ---- */

dcp_status run_copy_check_owner(const struct copying *copying)
{
    return copying->owner ? dcp_owner_check(copying->owner) : DCP_OK;
}

/* *whole: the checkpoint is there. Another one is refused, unless it may be replaced. */
static dcp_status look_there(struct copying *copying, bool *whole)
{
    bool found, same = true;
    uint64_t size;
    *whole = true;
    for (size_t i = 0; i < copying->count; i++) {
        struct copy_file *file = &copying->files[i];
        RETURN_IF_ERROR(run_copy_is_there(copying, file, &file->there));
        *whole = *whole && file->there;
        if (file->there || !file->commits)
            continue;
        RETURN_IF_ERROR(run_place_size(&copying->to, file->path, &size, &found));
        same = same && !found;
    }
    return same || copying->options.replace
               ? DCP_OK
               : dcp_error_set(DCP_ERR_EXISTS, "%s holds another checkpoint than %s",
                               copying->to.root, copying->from.root);
}

/* From here on nobody else changes what is there. *whole: somebody has completed it meanwhile. */
static dcp_status own(struct copying *copying, bool *whole)
{
    const dcp_owner_options options = {.storage = copying->options.destination,
                                       .takeover_seconds = copying->options.takeover_seconds};
    RETURN_IF_ERROR(dcp_owner_take(copying->to.root, &options, &copying->owner));
    return look_there(copying, whole);
}

static dcp_status check_space(struct copying *copying)
{
    const dcp_storage *table = copying->to.table;
    uint64_t needed = 0, space = UINT64_MAX;
    void *directory;
    if (!table->free_space)
        return DCP_OK;
    for (size_t i = 0; i < copying->count; i++) {
        if (!copying->files[i].there &&
            __builtin_add_overflow(needed, copying->files[i].size, &needed))
            needed = UINT64_MAX;
    }
    char *id = run_place_id(&copying->to, "");
    if (!id)
        return DCP_ERR_NO_MEMORY;
    dcp_status status =
        run_place_open(&copying->to, id, DCP_OPEN_CREATE | DCP_OPEN_DURABLE, &directory);
    if (status == DCP_OK) {
        status = error_checked(table->free_space(table->context, directory, &space),
                               "the storage's free_space");
        run_place_close(&copying->to, directory);
    }
    memory_release(id);
    return status != DCP_OK || needed <= space
               ? status
               : dcp_error_set(DCP_ERR_NO_SPACE,
                               "%s has %" PRIu64 " bytes left, and the copy of %s needs %" PRIu64,
                               copying->to.root, space, copying->from.root, needed);
}

/* ---- the copy ---- */

/* Somebody may have removed files there meanwhile. */
static dcp_status check_all_there(struct copying *copying)
{
    bool there;
    for (size_t i = 0; i < copying->count && !copying->files[i].commits; i++) {
        RETURN_IF_ERROR(run_copy_is_there(copying, &copying->files[i], &there));
        if (!there)
            return dcp_error_set(DCP_ERR_BUSY, "%s/%s went while the checkpoint was copied",
                                 copying->to.root, copying->files[i].path);
    }
    return DCP_OK;
}

static dcp_status commit(struct copying *copying)
{
    bool there;
    RETURN_IF_ERROR(check_all_there(copying));
    for (size_t i = 0; i < copying->count; i++) {
        const struct copy_file *file = &copying->files[i];
        if (!file->commits)
            continue;
        RETURN_IF_ERROR(check_unchanged(copying, file));
        RETURN_IF_ERROR(run_copy_is_there(copying, file, &there));
        RETURN_IF_ERROR(run_copy_check_owner(copying));
        if (!there)
            RETURN_IF_ERROR(run_copy_publish(copying, file));
    }
    return DCP_OK;
}

/* Shards of the checkpoint that was there before. What stays harms nothing. */
static void sweep(struct copying *copying)
{
    struct run_names names;
    bool found;
    dcp_status status = run_place_list(&copying->to, "", &names, &found);
    for (size_t i = 0; i < names.count && status == DCP_OK; i++) {
        size_t j = 0;
        while (j < copying->count && strcmp(copying->files[j].path, names.names[i]) != 0)
            j++;
        if (j == copying->count && run_copy_is_shard(names.names[i]))
            status = run_place_remove(&copying->to, "", names.names[i]);
    }
    if (status != DCP_OK)
        log_line(DCP_LOG_WARNING, "%s: files of an earlier checkpoint stay: %s", copying->to.root,
                 dcp_error_message());
    run_names_free(&names);
}

static void count_all_as_kept(struct copying *copying)
{
    copying->done.was_whole = true;
    copying->done.kept_files = copying->count;
    for (size_t i = 0; i < copying->count; i++)
        copying->done.kept_bytes += copying->files[i].size;
}

static dcp_status copy_files(struct copying *copying)
{
    for (size_t i = 0; i < copying->count; i++)
        if (!copying->files[i].commits && (copying->files[i].there || !copying->options.dry_run))
            copying->to_move += 2 * copying->files[i].size;
    RETURN_IF_ERROR(progress_enter(&copying->progress, DCP_PHASE_WRITING, copying->to_move));
    for (size_t i = 0; i < copying->count; i++)
        if (!copying->files[i].commits)
            RETURN_IF_ERROR(run_copy_file(copying, &copying->files[i]));
    return DCP_OK;
}

static dcp_status copy(struct copying *copying)
{
    const dcp_copy_options *options = &copying->options;
    bool whole;
    RETURN_IF_ERROR(run_copy_list(copying));
    RETURN_IF_ERROR(look_there(copying, &whole));
    if (!(whole && !options->compare_all) && !options->dry_run)
        RETURN_IF_ERROR(own(copying, &whole));
    if (whole && !options->compare_all) {
        count_all_as_kept(copying);
        return DCP_OK;
    }
    if (!options->trust_source && !options->dry_run)
        RETURN_IF_ERROR(verify_source(copying));
    if (!options->dry_run)
        RETURN_IF_ERROR(check_space(copying));
    RETURN_IF_ERROR(copy_files(copying));
    if (options->dry_run)
        return DCP_OK;
    RETURN_IF_ERROR(commit(copying));
    if (copying->done.files == 0)
        copying->done.was_whole = true;
    sweep(copying);
    return DCP_OK;
}

/* ---- the call ---- */

static void free_copying(struct copying *copying)
{
    struct saved_error error;
    error_save(&error);
    dcp_owner_release(copying->owner);
    for (size_t i = 0; i < copying->count; i++)
        buffer_free(&copying->files[i].content);
    memory_release(copying->files);
    copy_lanes_free(&copying->lanes);
    arena_free(&copying->arena);
    rate_free(&copying->rate);
    progress_free(&copying->progress);
    error_restore(&error);
}

dcp_status dcp_checkpoint_copy_sized(const char *source, const char *destination,
                                     const dcp_copy_options *options, size_t options_size,
                                     dcp_copied *copied, size_t copied_size)
{
    struct copying copying = {0};
    if (!source || !*source || !destination || !*destination)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "copying a checkpoint needs its path, and one for the copy");
    RETURN_IF_ERROR(sized_read(&copying.options, sizeof copying.options, options, options_size,
                               "dcp_copy_options"));
    run_place_init(&copying.from, copying.options.source, source);
    run_place_init(&copying.to, copying.options.destination, destination);
    if (copying.from.table == copying.to.table && strcmp(source, destination) == 0)
        return dcp_error_set(DCP_ERR_ARGUMENT, "%s cannot be copied to itself", source);
    arena_init(&copying.arena, 0);
    rate_init(&copying.rate, copying.options.bytes_per_second);
    progress_init(&copying.progress, copying.options.progress, copying.options.progress_context);
    dcp_status status = copy_lanes_new(&copying.lanes, copying.options.bytes_per_second);
    if (status == DCP_OK)
        status = copy(&copying);
    if (copied)
        sized_write(copied, copied_size, &copying.done, sizeof copying.done);
    free_copying(&copying);
    return status;
}
