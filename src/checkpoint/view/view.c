/* SPDX-License-Identifier: BSD-3-Clause */
/* A checkpoint as a view: entries, pieces, and reading them one by one. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/sized.h"
#include "checkpoint/load/load_fill.h"
#include "checkpoint/operation/options.h"
#include "checkpoint/view/view.h"
#include "checkpoint/view/view_read.h"
#include "checkpoint/view/view_records.h"
#include "dcp/storage_reader.h"
#include "plan/load/load_plan.h"
#include "storage/shard/shard_reader.h"
#include "storage/verify/verify.h"

/* Takes the options, and chooses the storage for the path. storage: a place for the table. */
static dcp_status take_options(const char *path, const dcp_open_options *given, size_t size,
                               dcp_storage *storage, const dcp_storage **chosen,
                               struct storage_location *location, dcp_open_options *taken)
{
    RETURN_IF_ERROR(sized_read(taken, sizeof *taken, given, size, "dcp_open_options"));
    if (!path || !*path)
        return dcp_error_set(DCP_ERR_ARGUMENT, "a checkpoint to open needs a path");
    if ((taken->member_count == 0) != (taken->members == NULL))
        return dcp_error_set(DCP_ERR_ARGUMENT, "a union needs members");
    *location = (struct storage_location){path, taken->members, taken->member_count,
                                          taken->local_parts, taken->take};
    RETURN_IF_ERROR(storage_take(storage, taken->storage));
    return storage_choose(storage, path, chosen);
}

dcp_status dcp_checkpoint_open_sized(const char *path, const dcp_open_options *options,
                                     size_t options_size, dcp_checkpoint **checkpoint)
{
    struct storage_location location;
    dcp_open_options taken;
    const dcp_storage *chosen;
    enum storage_form form;

    if (!checkpoint)
        return dcp_error_set(DCP_ERR_ARGUMENT, "opening a checkpoint needs a place for it");
    *checkpoint = NULL;
    dcp_checkpoint *made = memory_allocate_zeroed(1, sizeof *made);
    if (!made)
        return error_no_memory(sizeof *made, "checkpoint");
    metadata_init(&made->own);
    made->metadata = &made->own;
    dcp_status status =
        take_options(path, options, options_size, &made->storage, &chosen, &location, &taken);
    if (status == DCP_OK)
        status = storage_read_metadata(chosen, location, &form, &made->own, &made->reader);
    if (status == DCP_OK)
        status = storage_check_replicas(made->reader);
    if (status == DCP_OK)
        status = view_records_new(&made->records);
    if (status == DCP_OK)
        shard_reader_keep_streams(made->reader);
    if (status == DCP_OK && taken.check_last)
        shard_reader_check_last(made->reader);
    if (status == DCP_OK)
        *checkpoint = made;
    else
        dcp_checkpoint_close(made);
    return status;
}

void dcp_checkpoint_close(dcp_checkpoint *checkpoint)
{
    if (!checkpoint)
        return;
    view_records_free(checkpoint->records);
    shard_reader_free(checkpoint->reader);
    metadata_free(&checkpoint->own);
    memory_release(checkpoint);
}

size_t dcp_checkpoint_count(const dcp_checkpoint *checkpoint)
{
    return checkpoint ? checkpoint->metadata->count : 0;
}

const dcp_state *dcp_checkpoint_planner_data(const dcp_checkpoint *checkpoint)
{
    return checkpoint ? checkpoint->metadata->planner_data : NULL;
}

static dcp_status find_entry(const dcp_checkpoint *checkpoint, size_t index,
                             const struct metadata_entry **entry)
{
    if (!checkpoint)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the checkpoint is NULL");
    if (index >= checkpoint->metadata->count)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "entry %zu was requested, but the checkpoint has %zu", index,
                             checkpoint->metadata->count);
    *entry = &checkpoint->metadata->entries[index];
    return DCP_OK;
}

dcp_status dcp_checkpoint_entry_sized(const dcp_checkpoint *checkpoint, size_t index,
                                      dcp_entry *entry, size_t entry_size)
{
    const struct metadata_entry *stored = NULL;

    if (!entry)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the place for an entry is NULL");
    RETURN_IF_ERROR(find_entry(checkpoint, index, &stored));
    dcp_entry ours = {
        .name = stored->name,
        .path = stored->path,
        .path_length = stored->path_length,
        .is_tensor = stored->is_tensor,
        .chunk_count = stored->piece_count,
        .requires_grad = stored->is_tensor && stored->requires_grad,
    };
    if (stored->is_tensor) {
        ours.dtype = stored->dtype;
        ours.ndim = stored->ndim;
        ours.global_shape = stored->global_shape;
        if (!shape_bytes(stored->ndim, stored->global_shape, stored->dtype, &ours.bytes))
            return dcp_error_set(DCP_ERR_FORMAT, "%s: its size in bytes overflows", stored->name);
    }
    sized_write(entry, entry_size, &ours, sizeof ours);
    return DCP_OK;
}

dcp_status dcp_checkpoint_entries_sized(const dcp_checkpoint *checkpoint, size_t first,
                                        size_t count, dcp_entry *entries, size_t entry_size)
{
    size_t total = dcp_checkpoint_count(checkpoint);
    if (!checkpoint || (!entries && count > 0))
        return dcp_error_set(DCP_ERR_ARGUMENT, "listing entries needs a checkpoint and a place");
    if (first > total || count > total - first)
        return dcp_error_set(
            DCP_ERR_ARGUMENT,
            "%zu entries from number %zu on were requested, but the checkpoint has %zu", count,
            first, total);
    for (size_t i = 0; i < count; i++) {
        void *entry = (unsigned char *)entries + i * entry_size;
        RETURN_IF_ERROR(dcp_checkpoint_entry_sized(checkpoint, first + i, entry, entry_size));
    }
    return DCP_OK;
}

dcp_status dcp_checkpoint_find(const dcp_checkpoint *checkpoint, const char *name, size_t *index)
{
    uint64_t found;

    if (!checkpoint || !name || !index)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "finding an entry needs a checkpoint, a name and a place");
    if (!name_table_find(&checkpoint->metadata->by_name, name, strlen(name), &found))
        return dcp_error_set(DCP_ERR_NOT_FOUND, "%s: not in the checkpoint", name);
    *index = (size_t)found;
    return DCP_OK;
}

dcp_status view_find_piece(const dcp_checkpoint *checkpoint, size_t entry, size_t chunk,
                           const struct metadata_entry **found, const struct metadata_piece **piece)
{
    RETURN_IF_ERROR(find_entry(checkpoint, entry, found));
    if (chunk >= (*found)->piece_count)
        return dcp_error_set(DCP_ERR_ARGUMENT, "%s: chunk %zu was requested, but it has %zu",
                             (*found)->name, chunk, (*found)->piece_count);
    *piece = &(*found)->pieces[chunk];
    return DCP_OK;
}

dcp_status dcp_checkpoint_chunk_sized(const dcp_checkpoint *checkpoint, size_t entry, size_t chunk,
                                      dcp_stored_chunk *stored, size_t stored_size)
{
    const struct metadata_entry *found = NULL;
    const struct metadata_piece *piece = NULL;

    if (!stored)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the place for a chunk is NULL");
    RETURN_IF_ERROR(view_find_piece(checkpoint, entry, chunk, &found, &piece));
    dcp_stored_chunk ours = {
        .offsets = piece->offsets,
        .sizes = piece->sizes,
        .file = checkpoint->metadata->files[piece->file],
        .offset = piece->offset,
        .length = piece->length,
        .is_stream = piece->encoding == PIECE_STREAM,
        .compressed = piece->zstd,
        .is_range = piece->encoding == PIECE_RANGE,
    };
    if (found->is_tensor && piece->encoding == PIECE_VIEW) {
        const struct tensor_view *view = piece->view;
        ours.strides = view->strides;
        ours.storage_offset = view->storage_offset;
        ours.storage_bytes = view->storage_bytes;
        ours.altered = view->swapped || view->conjugate || view->negative;
        ours.deflated = view->deflated;
        ours.has_crc32 = view->has_crc;
        ours.crc32 = view->crc;
    }
    sized_write(stored, stored_size, &ours, sizeof ours);
    return DCP_OK;
}

/* A small load: the destinations as a tree, so that planning proves that all of them are filled. */
dcp_status view_read_tensors(dcp_checkpoint *checkpoint, const struct view_read *reads,
                             size_t count, const dcp_read_options *options)
{
    const struct metadata *metadata = checkpoint->metadata;
    struct flat_state flat = {0};
    struct load_plan plan = {0};
    struct load_differences differences = {0};
    struct view_parts parts = {0};
    dcp_state *root = dcp_state_new();
    uint64_t moved;
    dcp_status status = DCP_ERR_NO_MEMORY;

    if (!root)
        goto done;
    for (size_t i = 0; i < count; i++)
        dcp_state_tensor(root, metadata->entries[reads[i].entry].name, &reads[i].destination);
    status = flatten_state(root, &flat);
    if (status == DCP_OK)
        status = flatten_check_layout(&flat);
    if (status == DCP_OK)
        status = load_plan_make(&flat, metadata, NULL, options->convert, &plan, &differences);
    if (status == DCP_OK)
        status = load_differences_judge(&differences, DCP_STRICT_MISSING, false, metadata);
    if (status == DCP_OK)
        status = flatten_try_writable(&flat);
    if (status == DCP_OK)
        status = view_parts_list(checkpoint, &plan, options->verification, &parts);
    if (status == DCP_OK)
        status = load_read_tensors(&flat, metadata, &plan, parts.sums, checkpoint->reader,
                                   options->verification, 1, &moved);
    if (status == DCP_OK)
        status = view_parts_take(checkpoint, &plan, &parts);
done:
    view_parts_free(&parts);
    load_differences_free(&differences);
    load_plan_free(&plan);
    flatten_free(&flat);
    dcp_state_free(root);
    return status;
}

dcp_status dcp_checkpoint_locate_sized(const dcp_checkpoint *checkpoint,
                                       const dcp_item_index *stored, dcp_storage_location *location,
                                       size_t location_size)
{
    if (!checkpoint || !stored || !stored->name || !location)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "locating an item needs a checkpoint, its index and a place");
    const struct metadata *metadata = checkpoint->metadata;
    const struct metadata_entry *entry = metadata_find(metadata, stored->name);
    if (!entry)
        return dcp_error_set(DCP_ERR_NOT_FOUND, "%s: not in the checkpoint", stored->name);
    size_t bytes = (size_t)entry->ndim * sizeof *stored->offsets;
    for (size_t i = 0; i < entry->piece_count; i++) {
        const struct metadata_piece *piece = &entry->pieces[i];
        if (entry->is_tensor && bytes > 0 &&
            (stored->ndim != entry->ndim || !stored->offsets ||
             memcmp(stored->offsets, piece->offsets, bytes) != 0))
            continue;
        dcp_storage_location ours = {metadata->files[piece->file], piece->offset, piece->length};
        sized_write(location, location_size, &ours, sizeof ours);
        return DCP_OK;
    }
    return dcp_error_set(DCP_ERR_NOT_FOUND, "%s: no chunk begins there", stored->name);
}

dcp_status view_read_options(const char *name, const dcp_read_options *given, size_t size,
                             dcp_read_options *options)
{
    RETURN_IF_ERROR(sized_read(options, sizeof *options, given, size, "dcp_read_options"));
    RETURN_IF_ERROR(options_check_verification(options->verification));
    if (options->convert)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "%s: only dcp_checkpoint_read_tensor() converts elements; leave "
                             "dcp_read_options::convert false",
                             name);
    return DCP_OK;
}

dcp_status view_check_readable(const dcp_checkpoint *checkpoint, const struct metadata_entry *entry)
{
    if (checkpoint->reader)
        return DCP_OK;
    return dcp_error_set(DCP_ERR_STATE, "%s: planners see metadata only: no data can be read here",
                         entry->name);
}

static bool has_elements(const dcp_tensor *chunk)
{
    const int64_t *sizes = chunk->sharded ? chunk->sizes : chunk->global_shape;
    for (int32_t d = 0; d < chunk->ndim && d < DCP_MAX_DIMS; d++)
        if (sizes[d] == 0)
            return false;
    return true;
}

dcp_status dcp_checkpoint_read_tensor_sized(dcp_checkpoint *checkpoint, size_t entry,
                                            const dcp_tensor *destination, size_t tensor_size,
                                            const dcp_read_options *options, size_t options_size)
{
    const struct metadata_entry *found = NULL;
    dcp_read_options how;
    struct view_read read = {.entry = entry};
    dcp_tensor *ours = &read.destination;

    RETURN_IF_ERROR(find_entry(checkpoint, entry, &found));
    RETURN_IF_ERROR(view_check_readable(checkpoint, found));
    if (!destination)
        return dcp_error_set(DCP_ERR_ARGUMENT, "%s: the destination is NULL", found->name);
    RETURN_IF_ERROR(sized_read(ours, sizeof *ours, destination, tensor_size, "dcp_tensor"));
    RETURN_IF_ERROR(sized_read(&how, sizeof how, options, options_size, "dcp_read_options"));
    RETURN_IF_ERROR(tensor_check_given(ours));
    if (!ours->data && has_elements(ours))
        return dcp_error_set(DCP_ERR_ARGUMENT, "%s: the destination has no memory", found->name);
    RETURN_IF_ERROR(options_check_verification(how.verification));
    return view_read_tensors(checkpoint, &read, 1, &how);
}

dcp_status dcp_checkpoint_read_object_sized(dcp_checkpoint *checkpoint, size_t entry,
                                            dcp_state *parent, const char *key,
                                            const dcp_read_options *options, size_t options_size)
{
    const struct metadata_entry *found = NULL;
    dcp_read_options how;
    dcp_state *object = NULL;

    RETURN_IF_ERROR(find_entry(checkpoint, entry, &found));
    RETURN_IF_ERROR(view_check_readable(checkpoint, found));
    if (found->is_tensor && !found->pieces[0].object)
        return dcp_error_set(DCP_ERR_KIND, "%s: is a tensor, not an object", found->name);
    if (!parent)
        return dcp_error_set(DCP_ERR_ARGUMENT, "%s: the parent is NULL", found->name);
    RETURN_IF_ERROR(view_read_options(found->name, options, options_size, &how));
    struct state_pool *pool = state_pool_new(parent->root);
    if (!pool)
        return DCP_ERR_NO_MEMORY;
    dcp_status status = shard_read_object(checkpoint->reader, found, &found->pieces[0],
                                          how.verification, pool, &object);
    return node_add_object(status, parent, key, pool, object);
}

dcp_status dcp_verify_sized(const char *path, const dcp_open_options *options, size_t options_size,
                            dcp_fault_function report, void *context, uint64_t *faults)
{
    struct storage_location location;
    dcp_open_options taken;
    const dcp_storage *chosen;
    dcp_storage storage;
    if (!faults)
        return dcp_error_set(DCP_ERR_ARGUMENT, "verifying needs a place for the number of faults");
    RETURN_IF_ERROR(
        take_options(path, options, options_size, &storage, &chosen, &location, &taken));
    const struct verify_watch watch = {taken.progress, taken.progress_context};
    return storage_verify(chosen, location, report, context, &watch, faults);
}
