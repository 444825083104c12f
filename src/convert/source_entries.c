/* SPDX-License-Identifier: BSD-3-Clause */
/* The names of a source: a checkpoint's, or those that a training checkpoint's parts make. */
#include "base/error.h"
#include "convert/source_training.h"
#include "format/json/json_state.h"
#include "state/node.h"

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

/* Adds a text that is in no checkpoint's file to a tree. */
static dcp_status add_text(const struct source_tensor *object, dcp_state *parent, const char *key)
{
    struct json_reader json;
    dcp_state *value = NULL;
    if (!object->is_json)
        return dcp_state_bytes(parent, key, object->text, object->text_size);
    struct state_pool *pool = state_pool_new(parent->root);
    if (!pool)
        return DCP_ERR_NO_MEMORY;
    json_init(&json, object->name, object->text, object->text_size, &pool->arena);
    dcp_status status = json_read_state(&json, pool, &value);
    if (status == DCP_OK)
        status = json_end(&json);
    return node_add_object(status, parent, key, pool, value);
}

static dcp_status encode_text(const struct source_tensor *object, dcp_sink sink, void *context)
{
    dcp_state *root = dcp_state_new();
    if (!root)
        return error_no_memory(1, object->name);
    dcp_status status = add_text(object, root, "value");
    if (status == DCP_OK)
        status = dcp_object_encode(dcp_state_find(root, "value"), sink, context);
    dcp_state_free(root);
    return status;
}

/* The text that an object is; NULL: it is an entry of a file. */
static const struct source_tensor *text_of(const struct convert_source *source,
                                           const struct convert_item *item)
{
    const struct source_tensor *object =
        source->parts ? &source->parts->tensors[item->entry] : NULL;
    return object && object->text ? object : NULL;
}

dcp_status convert_read_object(const struct convert_source *source, const struct convert_item *item,
                               dcp_state *parent, const char *key)
{
    const struct source_tensor *text = text_of(source, item);
    dcp_checkpoint *checkpoint;
    size_t entry;
    if (text)
        return add_text(text, parent, key);
    RETURN_IF_ERROR(take_object(source, item, &checkpoint, &entry));
    dcp_status status = dcp_checkpoint_read_object(checkpoint, entry, parent, key, NULL);
    give_object(source, item);
    return status;
}

dcp_status convert_read_stream(const struct convert_source *source, const struct convert_item *item,
                               dcp_sink sink, void *context)
{
    const struct source_tensor *text = text_of(source, item);
    dcp_checkpoint *checkpoint;
    size_t entry;
    if (text)
        return encode_text(text, sink, context);
    RETURN_IF_ERROR(take_object(source, item, &checkpoint, &entry));
    dcp_status status = dcp_checkpoint_read_stream(checkpoint, entry, 0, sink, context, NULL);
    give_object(source, item);
    return status;
}
