/* SPDX-License-Identifier: BSD-3-Clause */
/* Rebuilds the metadata of a save from the footers of its files. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/sized.h"
#include "checkpoint/shard_file/shard_file_list.h"
#include "checkpoint/view/view.h"
#include "format/metadata/metadata_codec.h"

/* A save that has files in the list. */
struct found_save {
    const char *save_id;
    uint32_t generation;              /* the latest of its files */
    const struct listed_file **files; /* in the order of the list; a part of one array */
    size_t count;
};

struct found_saves {
    struct found_save *saves; /* the latest generation first */
    size_t count;
    const struct listed_file **files;
};

static int compare_files(const void *left, const void *right)
{
    const struct listed_file *a = *(const struct listed_file *const *)left;
    const struct listed_file *b = *(const struct listed_file *const *)right;
    int order = strcmp(a->footer.save_id, b->footer.save_id);
    if (order != 0)
        return order;
    return a < b ? -1 : a > b;
}

static int compare_saves(const void *left, const void *right)
{
    const struct found_save *a = left, *b = right;
    if (a->generation != b->generation)
        return a->generation > b->generation ? -1 : 1;
    return strcmp(a->save_id, b->save_id);
}

/* Groups the valid files by their save. */
static dcp_status find_saves(const dcp_shard_list *list, struct found_saves *found)
{
    found->files = memory_allocate_array(list->count, sizeof(struct listed_file *));
    found->saves = memory_allocate_array(list->count, sizeof *found->saves);
    if (!found->files || !found->saves)
        return error_no_memory(list->count * sizeof *found->saves, "the saves of a directory");
    size_t good = 0;
    for (size_t i = 0; i < list->count; i++)
        if (list->files[i].status == DCP_OK)
            found->files[good++] = &list->files[i];
    if (good > 1)
        qsort(found->files, good, sizeof(struct listed_file *), compare_files);
    for (size_t i = 0; i < good; i++) {
        const struct listed_file *file = found->files[i];
        struct found_save *save = found->count > 0 ? &found->saves[found->count - 1] : NULL;
        if (!save || strcmp(save->save_id, file->footer.save_id) != 0) {
            save = &found->saves[found->count++];
            *save = (struct found_save){.save_id = file->footer.save_id, .files = &found->files[i]};
        }
        save->count++;
        if (file->is_numbered && file->generation > save->generation)
            save->generation = file->generation;
    }
    if (found->count > 1)
        qsort(found->saves, found->count, sizeof *found->saves, compare_saves);
    return DCP_OK;
}

static void free_saves(struct found_saves *found)
{
    memory_release(found->saves);
    memory_release(found->files);
}

/* ---- whether all files are there ---- */

static int compare_numbers(const void *left, const void *right)
{
    const struct listed_file *a = *(const struct listed_file *const *)left;
    const struct listed_file *b = *(const struct listed_file *const *)right;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return a->number < b->number ? -1 : a->number > b->number;
}

static dcp_status missing_file(const struct found_save *save, int rank, uint32_t number)
{
    return dcp_error_set(
        DCP_ERR_NOT_FOUND,
        "save %s has files with higher numbers, but no valid file of rank %d with number %" PRIu32
        " of generation %" PRIu32,
        save->save_id, rank, number, save->generation);
}

/* Ranks count from 0 without gaps, and so do the files of each. */
static dcp_status check_sequence(const struct found_save *save,
                                 const struct listed_file *const *sorted)
{
    int rank = -1;
    uint32_t number = 0;
    for (size_t i = 0; i < save->count; i++) {
        const struct listed_file *file = sorted[i];
        if (file->rank != rank && file->rank != rank + 1)
            return missing_file(save, rank + 1, 0);
        number = file->rank == rank ? number + 1 : 0;
        rank = file->rank;
        if (file->number != number)
            return missing_file(save, rank, number);
    }
    return DCP_OK;
}

static dcp_status check_gaps(const struct found_save *save)
{
    for (size_t i = 0; i < save->count; i++)
        if (!save->files[i]->is_numbered || save->files[i]->generation != save->generation)
            return DCP_OK; /* names without numbers */
    const struct listed_file **sorted =
        memory_allocate_array(save->count, sizeof(struct listed_file *));
    if (!sorted)
        return error_no_memory(save->count * sizeof(struct listed_file *), "shard files");
    memcpy(sorted, save->files, save->count * sizeof(struct listed_file *));
    qsort(sorted, save->count, sizeof(struct listed_file *), compare_numbers);
    dcp_status status = check_sequence(save, sorted);
    memory_release(sorted);
    return status;
}

/* ---- one save ---- */

/* Reports the current failure as a fault. */
static dcp_status report_fault(const dcp_rebuild_options *options, const char *name,
                               dcp_status status)
{
    if (status != DCP_OK && status != DCP_ERR_NO_MEMORY && options->report)
        options->report(options->report_context, "", 0, name, dcp_error_message());
    return status;
}

static dcp_status check_files(const struct found_save *save, const dcp_rebuild_options *options)
{
    dcp_status status = DCP_OK;
    if (options->file_count != 0 && save->count != options->file_count)
        status = dcp_error_set(DCP_ERR_NOT_FOUND, "save %s has %zu valid files here, expected %zu",
                               save->save_id, save->count, options->file_count);
    if (status == DCP_OK && !options->allow_gaps)
        status = check_gaps(save);
    return report_fault(options, "", status);
}

/* All faults are reported; the first one is the result. */
static dcp_status check_entries(const struct metadata *metadata, const dcp_rebuild_options *options)
{
    struct saved_error first;
    dcp_status result = DCP_OK;
    for (size_t i = 0; i < metadata->count; i++) {
        const struct metadata_entry *entry = &metadata->entries[i];
        dcp_status status = report_fault(options, entry->name, metadata_check_entry(entry));
        if (status == DCP_ERR_NO_MEMORY)
            return status;
        if (status == DCP_OK || result != DCP_OK)
            continue;
        result = status;
        error_save(&first);
    }
    if (result != DCP_OK)
        error_restore(&first);
    return result;
}

static dcp_status unite_footers(const struct found_save *save, const dcp_rebuild_options *options,
                                struct metadata *metadata)
{
    struct metadata *parts = memory_allocate_array(save->count, sizeof *parts);
    if (!parts)
        return error_no_memory(save->count * sizeof *parts, "the footers of a save");
    for (size_t i = 0; i < save->count; i++)
        parts[i] = save->files[i]->footer.contents; /* borrowed */
    dcp_status status =
        report_fault(options, "", metadata_unite_unchecked(parts, save->count, metadata));
    memory_release(parts);
    return status;
}

/* metadata is empty after a failure. */
static dcp_status rebuild_save(const struct found_save *save, const dcp_rebuild_options *options,
                               struct metadata *metadata)
{
    dcp_status files = check_files(save, options);
    struct saved_error error;
    error_save(&error);
    if (files == DCP_ERR_NO_MEMORY)
        return files;
    /* Even if files are missing: the missing boxes say more than the names of files. */
    RETURN_IF_ERROR(unite_footers(save, options, metadata));
    dcp_status status = check_entries(metadata, options);
    if (status == DCP_OK && files != DCP_OK)
        status = error_restore(&error);
    if (status != DCP_OK)
        metadata_free(metadata);
    return status;
}

/* ---- which save ---- */

static dcp_status rebuild_given(const struct found_saves *found, const char *directory,
                                const dcp_rebuild_options *options, struct metadata *metadata)
{
    for (size_t i = 0; i < found->count; i++)
        if (strcmp(found->saves[i].save_id, options->save_id) == 0)
            return rebuild_save(&found->saves[i], options, metadata);
    return dcp_error_set(DCP_ERR_NOT_FOUND, "%s has no valid shard file of save %.40s", directory,
                         options->save_id);
}

static dcp_status refuse_choice(const struct found_save *one, const struct found_save *other)
{
    return dcp_error_set(DCP_ERR_DUPLICATE,
                         "saves %s and %s are both complete and of generation %" PRIu32
                         ": choose one by its id",
                         one->save_id, other->save_id, one->generation);
}

/* The first complete one. *metadata is empty after a failure. */
static dcp_status rebuild_latest(const struct found_saves *found, const char *directory,
                                 const dcp_rebuild_options *options, struct metadata *metadata)
{
    const struct found_save *chosen = NULL;
    struct saved_error first;
    dcp_status result = DCP_ERR_NOT_FOUND;
    if (found->count == 0 || !found->saves)
        return dcp_error_set(result,
                             "%s has no shard file with a valid footer: streams of PyTorch say no "
                             "names, which another checkpoint of the job has (--like, or "
                             "dcp_rebuild_options::like)",
                             directory);
    for (size_t i = 0; i < found->count; i++) {
        const struct found_save *save = &found->saves[i];
        struct metadata other;
        if (chosen && save->generation != chosen->generation)
            break;
        dcp_status status = rebuild_save(save, options, chosen ? &other : metadata);
        if (status == DCP_OK && chosen) {
            metadata_free(&other);
            metadata_free(metadata);
            return refuse_choice(chosen, save);
        }
        if (status == DCP_OK)
            chosen = save;
        if (i == 0 && status != DCP_OK) {
            error_save(&first);
            result = status;
        }
        if (status == DCP_ERR_NO_MEMORY) {
            if (chosen)
                metadata_free(metadata);
            return status;
        }
    }
    if (chosen)
        return DCP_OK;
    error_restore(&first);
    return error_prefix(result, "%s: none of %zu saves is complete, the latest is %s", directory,
                        found->count, found->saves[0].save_id);
}

static void log_left_alone(const dcp_shard_list *list, const struct metadata *metadata)
{
    for (size_t i = 0; i < list->count; i++) {
        const struct listed_file *file = &list->files[i];
        if (file->status != DCP_OK)
            log_line(DCP_LOG_INFO, "%s: not used to rebuild the metadata: %s", list->id,
                     file->problem);
        else if (strcmp(file->footer.save_id, metadata->save_id) != 0)
            log_line(DCP_LOG_INFO, "%s: not used to rebuild the metadata: %s is of save %s",
                     list->id, file->name, file->footer.save_id);
    }
}

static dcp_status rebuild_by_footers(const dcp_shard_list *list, const dcp_rebuild_options *options,
                                     dcp_checkpoint *made)
{
    struct found_saves found = {0};
    dcp_status status = find_saves(list, &found);
    if (status == DCP_OK)
        status = options->save_id ? rebuild_given(&found, list->id, options, &made->own)
                                  : rebuild_latest(&found, list->id, options, &made->own);
    free_saves(&found);
    if (status == DCP_OK)
        log_left_alone(list, &made->own);
    return status;
}

static dcp_status make_view(const dcp_shard_list *list, const dcp_rebuild_options *options,
                            dcp_checkpoint *made)
{
    RETURN_IF_ERROR(options->like ? shard_list_rebuild_like(list, options, &made->own)
                                  : rebuild_by_footers(list, options, made));
    made->storage = list->storage;
    const dcp_storage *chosen;
    RETURN_IF_ERROR(storage_choose(&made->storage, list->id, &chosen));
    RETURN_IF_ERROR(storage_read_known(chosen, list->id, &made->own, &made->reader));
    shard_reader_keep_streams(made->reader);
    return DCP_OK;
}

dcp_status dcp_shard_list_rebuild_sized(const dcp_shard_list *list,
                                        const dcp_rebuild_options *options, size_t options_size,
                                        dcp_checkpoint **checkpoint)
{
    dcp_rebuild_options given;
    if (!list || !checkpoint)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the list of files or the result is NULL");
    *checkpoint = NULL;
    RETURN_IF_ERROR(sized_read(&given, sizeof given, options, options_size, "dcp_rebuild_options"));
    dcp_checkpoint *made = memory_allocate_zeroed(1, sizeof *made);
    if (!made)
        return error_no_memory(sizeof *made, "checkpoint");
    metadata_init(&made->own);
    made->metadata = &made->own;
    dcp_status status = make_view(list, &given, made);
    if (status == DCP_OK)
        *checkpoint = made;
    else
        dcp_checkpoint_close(made);
    return status;
}
