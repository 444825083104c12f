/* SPDX-License-Identifier: BSD-3-Clause */
/* The names of a source: a checkpoint's, or those that a training checkpoint's parts make. */
#include "base/error.h"
#include "convert/source_training.h"

size_t convert_entry_count(const struct convert_source *source)
{
    return source->parts ? source->parts->count : dcp_checkpoint_count(source->checkpoint);
}

dcp_status convert_entry(const struct convert_source *source, size_t index, dcp_entry *entry)
{
    if (!source->parts)
        return dcp_checkpoint_entry(source->checkpoint, index, entry);
    const struct source_tensor *tensor = &source->parts->tensors[index];
    *entry = (dcp_entry){.name = tensor->name,
                         .path = tensor->path,
                         .path_length = tensor->path_length,
                         .is_tensor = tensor->is_tensor,
                         .dtype = tensor->dtype,
                         .ndim = tensor->ndim,
                         .global_shape = tensor->shape,
                         .chunk_count = tensor->part_count};
    if (tensor->is_tensor)
        shape_bytes(tensor->ndim, tensor->shape, tensor->dtype, &entry->bytes);
    return DCP_OK;
}

/* Where an object is. */
static dcp_status take_object(const struct convert_source *source, const struct convert_item *item,
                              dcp_checkpoint **checkpoint, size_t *entry)
{
    if (!source->parts) {
        *checkpoint = source->checkpoint;
        *entry = item->entry;
        return DCP_OK;
    }
    const struct source_tensor *object = &source->parts->tensors[item->entry];
    *entry = object->entry;
    return source_files_take(&source->parts->files, object->file, checkpoint);
}

static void give_object(const struct convert_source *source, const struct convert_item *item)
{
    if (source->parts)
        source_files_give(&source->parts->files, source->parts->tensors[item->entry].file);
}

dcp_status convert_read_object(const struct convert_source *source, const struct convert_item *item,
                               dcp_state *parent, const char *key)
{
    dcp_checkpoint *checkpoint;
    size_t entry;
    RETURN_IF_ERROR(take_object(source, item, &checkpoint, &entry));
    dcp_status status = dcp_checkpoint_read_object(checkpoint, entry, parent, key, NULL);
    give_object(source, item);
    return status;
}

dcp_status convert_read_stream(const struct convert_source *source, const struct convert_item *item,
                               dcp_sink sink, void *context)
{
    dcp_checkpoint *checkpoint;
    size_t entry;
    RETURN_IF_ERROR(take_object(source, item, &checkpoint, &entry));
    dcp_status status = dcp_checkpoint_read_stream(checkpoint, entry, 0, sink, context, NULL);
    give_object(source, item);
    return status;
}
