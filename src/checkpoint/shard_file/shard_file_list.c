/* SPDX-License-Identifier: BSD-3-Clause */
/* Lists the shard files of a directory, by their footers. */
#include "checkpoint/shard_file/shard_file_list.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/sized.h"
#include "checkpoint/shard_file/shard_file_name.h"
#include "state/write_plan.h"
#include "storage/shard/shard_footer.h"

static dcp_status read_source(void *context, uint64_t offset, void *bytes, size_t size)
{
    return storage_file_read(context, bytes, size, offset);
}

/* Whether a failure concerns only one file, so that listing goes on. */
static bool is_of_file(dcp_status status)
{
    return status != DCP_ERR_NO_MEMORY && status != DCP_ERR_FILE_LIMIT;
}

static dcp_status check_footer(const struct listed_file *file, bool found)
{
    if (!found)
        return dcp_error_set(DCP_ERR_NOT_FOUND,
                             "%s has no footer: PyTorch wrote it, or it is truncated", file->name);
    RETURN_IF_ERROR(shard_footer_check_blocks(&file->footer));
    if (strcmp(file->footer.contents.files[0], file->name) != 0)
        return dcp_error_set(DCP_ERR_FOREIGN,
                             "%s has the footer of %.200s: the file was renamed or replaced",
                             file->name, file->footer.contents.files[0]);
    return DCP_OK;
}

static dcp_status list_items(struct listed_file *file)
{
    const struct metadata *contents = &file->footer.contents;
    size_t total = 0;
    for (size_t i = 0; i < contents->count; i++)
        total += contents->entries[i].piece_count;
    file->items = memory_allocate_array(total, sizeof *file->items);
    if (!file->items)
        return error_no_memory(total * sizeof *file->items, "the items of a shard file");
    for (size_t i = 0; i < contents->count; i++)
        for (size_t p = 0; p < contents->entries[i].piece_count; p++)
            file->items[file->item_count++] =
                (struct listed_item){&contents->entries[i], &contents->entries[i].pieces[p]};
    return DCP_OK;
}

/* The result must be freed also after a failure. */
static dcp_status read_footer(const struct storage_directory *directory, struct listed_file *file)
{
    const dcp_storage_access access = {.size_of = sizeof access};
    struct storage_file opened;
    bool found = false;
    RETURN_IF_ERROR(storage_file_open(&opened, directory, file->name, &access));
    const struct byte_source source = {
        .read = read_source, .context = &opened, .size = opened.file.size};
    file->size = opened.file.size;
    dcp_status status = footer_decode(source, &file->footer, &found);
    if (status != DCP_OK)
        error_prefix(status, "%s", file->name);
    else
        status = check_footer(file, found);
    storage_file_close(&opened);
    return status == DCP_OK ? list_items(file) : status;
}

static dcp_status find_streams(const struct storage_directory *directory, struct listed_file *file,
                               struct arena *arena)
{
    const dcp_storage_access access = {.size_of = sizeof access};
    struct storage_file opened;
    dcp_status status = storage_file_open(&opened, directory, file->name, &access);
    if (status == DCP_OK) {
        const struct byte_source source = {
            .read = read_source, .context = &opened, .size = opened.file.size};
        status = stream_scan(source, arena, &file->streams);
        storage_file_close(&opened);
    }
    return is_of_file(status) ? DCP_OK : status; /* what was found until then, and the problem */
}

static dcp_status list_file(dcp_shard_list *list, const struct storage_directory *directory,
                            struct listed_file *file)
{
    file->is_numbered = shard_name_parse(file->name, &file->rank, &file->number, &file->generation);
    metadata_init(&file->footer.contents);
    file->status = read_footer(directory, file);
    if (file->status == DCP_OK || !is_of_file(file->status))
        return file->status;
    file->problem = memory_copy_text(dcp_error_message());
    footer_free(&file->footer);
    if (!file->problem)
        return error_no_memory(1, "a message on a shard file");
    return list->streams ? find_streams(directory, file, &list->arena) : DCP_OK;
}

static dcp_status read_files(dcp_shard_list *list, const struct storage_directory *directory)
{
    RETURN_IF_ERROR(directory_read(directory, &list->directory));
    list->files = memory_allocate_zeroed(list->directory.count, sizeof *list->files);
    if (!list->files)
        return error_no_memory(list->directory.count * sizeof *list->files, "shard files");
    for (size_t i = 0; i < list->directory.count; i++) {
        const char *name = list->directory.names[i].name;
        if (!shard_file_has_suffix(name))
            continue;
        struct listed_file *file = &list->files[list->count++];
        file->name = name;
        RETURN_IF_ERROR(list_file(list, directory, file));
    }
    return DCP_OK;
}

static dcp_status read_list(dcp_shard_list *list, const char *id, const dcp_storage *storage)
{
    struct storage_directory directory;
    RETURN_IF_ERROR(storage_take(&list->storage, storage));
    RETURN_IF_ERROR(storage_choose(&list->storage, id, &list->chosen));
    RETURN_IF_ERROR(storage_keep_id(list->chosen, id, &list->id));
    RETURN_IF_ERROR(storage_directory_open(&directory, list->chosen, list->id, 0, NULL));
    dcp_status status = read_files(list, &directory);
    storage_directory_close(&directory);
    return status;
}

dcp_status dcp_shard_list_read_sized(const char *directory, const dcp_shard_list_options *options,
                                     size_t options_size, dcp_shard_list **list)
{
    dcp_shard_list_options ours;
    if (!directory || !*directory || !list)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "dcp_shard_list_read: the directory or the result is NULL");
    *list = NULL;
    RETURN_IF_ERROR(
        sized_read(&ours, sizeof ours, options, options_size, "dcp_shard_list_options"));
    dcp_shard_list *made = memory_allocate_zeroed(1, sizeof *made);
    if (!made)
        return error_no_memory(sizeof *made, "a list of shard files");
    arena_init(&made->directory.arena, 0);
    arena_init(&made->arena, 0);
    made->streams = ours.streams;
    dcp_status status = read_list(made, directory, ours.storage);
    if (status == DCP_OK)
        *list = made;
    else
        dcp_shard_list_free(made);
    return status;
}

void dcp_shard_list_free(dcp_shard_list *list)
{
    if (!list)
        return;
    for (size_t i = 0; i < list->count; i++) {
        footer_free(&list->files[i].footer);
        memory_release(list->files[i].items);
        memory_release(list->files[i].problem);
        memory_release(list->files[i].streams.items);
    }
    memory_release(list->files);
    directory_free(&list->directory);
    arena_free(&list->arena);
    memory_release(list->id);
    memory_release(list);
}

size_t dcp_shard_list_count(const dcp_shard_list *list)
{
    return list ? list->count : 0;
}

static dcp_status find_file(const dcp_shard_list *list, size_t file,
                            const struct listed_file **found)
{
    if (!list)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the list of shard files is NULL");
    if (file >= list->count)
        return dcp_error_set(DCP_ERR_ARGUMENT, "there is no shard file %zu: the list has %zu files",
                             file, list->count);
    *found = &list->files[file];
    return DCP_OK;
}

dcp_status dcp_shard_list_file_sized(const dcp_shard_list *list, size_t file, dcp_shard_info *info,
                                     size_t info_size)
{
    const struct listed_file *found = NULL;
    if (!info)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the result for a shard file is NULL");
    RETURN_IF_ERROR(find_file(list, file, &found));
    const dcp_shard_info ours = {
        .file = found->name,
        .size = found->size,
        .status = found->status,
        .problem = found->problem ? found->problem : "",
        .save_id = found->footer.save_id,
        .item_count = found->item_count,
        .stream_count = found->streams.count,
    };
    sized_write(info, info_size, &ours, sizeof ours);
    return DCP_OK;
}

dcp_status dcp_shard_list_item_sized(const dcp_shard_list *list, size_t file, size_t index,
                                     dcp_shard_item *item, size_t item_size)
{
    const struct listed_file *found = NULL;
    if (!item)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the result for an item is NULL");
    RETURN_IF_ERROR(find_file(list, file, &found));
    if (index >= found->item_count)
        return dcp_error_set(DCP_ERR_ARGUMENT, "%s: there is no item %zu: the file has %zu items",
                             found->name, index, found->item_count);
    const struct metadata_entry *entry = found->items[index].entry;
    const struct metadata_piece *piece = found->items[index].piece;
    dcp_shard_item ours = {
        .name = entry->name,
        .path = entry->path,
        .path_length = entry->path_length,
        .is_tensor = entry->is_tensor,
        .offset = piece->offset,
        .length = piece->length,
        .compressed = piece->zstd,
    };
    if (entry->is_tensor) {
        ours.requires_grad = entry->requires_grad;
        ours.dtype = entry->dtype;
        ours.ndim = entry->ndim;
        ours.global_shape = entry->global_shape;
        ours.offsets = piece->offsets;
        ours.sizes = piece->sizes;
    }
    sized_write(item, item_size, &ours, sizeof ours);
    return DCP_OK;
}

dcp_status dcp_shard_list_stream_sized(const dcp_shard_list *list, size_t file, size_t index,
                                       dcp_shard_stream *stream, size_t stream_size)
{
    const struct listed_file *found = NULL;
    if (!stream)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the result for a stream is NULL");
    RETURN_IF_ERROR(find_file(list, file, &found));
    if (index >= found->streams.count)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "%s: there is no stream %zu: %zu were found in the file", found->name,
                             index, found->streams.count);
    const struct found_stream *one = &found->streams.items[index];
    dcp_shard_stream ours = {
        .offset = one->offset,
        .length = one->length,
        .problem = one->problem ? one->problem : "",
        .compressed = one->zstd,
        .is_tensor = one->is_tensor,
    };
    if (one->is_tensor) {
        ours.dtype = one->view.dtype;
        ours.ndim = one->view.ndim;
        ours.sizes = one->view.sizes;
        ours.strides = one->view.strides;
    }
    sized_write(stream, stream_size, &ours, sizeof ours);
    return DCP_OK;
}
