/* SPDX-License-Identifier: BSD-3-Clause */
/* Stored streams of entries, and the streams of values that are not stored yet. */
#include "base/error.h"
#include "base/memory.h"
#include "base/sized.h"
#include "checkpoint/view/view.h"
#include "format/streams/item.h"
#include "format/streams/stream.h"
#include "storage/shard/shard_writer.h"

dcp_status dcp_checkpoint_read_stream_sized(dcp_checkpoint *checkpoint, size_t entry, size_t chunk,
                                            dcp_sink sink, void *context,
                                            const dcp_read_options *options, size_t options_size)
{
    dcp_read_options how;
    const struct metadata_entry *found = NULL;
    const struct metadata_piece *piece = NULL;
    if (!sink)
        return dcp_error_set(DCP_ERR_ARGUMENT, "reading a stream needs a sink");
    RETURN_IF_ERROR(view_find_piece(checkpoint, entry, chunk, &found, &piece));
    RETURN_IF_ERROR(view_check_readable(checkpoint, found));
    RETURN_IF_ERROR(view_read_options(found->name, options, options_size, &how));
    return shard_pass_stream(checkpoint->reader, found, piece, how.verification, sink, context);
}

dcp_status dcp_object_encode(const dcp_state *value, dcp_sink sink, void *context)
{
    struct buffer stream;
    if (!value || !sink)
        return dcp_error_set(DCP_ERR_ARGUMENT, "encoding an object needs a value and a sink");
    RETURN_IF_ERROR(dcp_state_status(value));
    buffer_init(&stream, 0);
    dcp_status status = item_encode_stream(value, &stream);
    if (status == DCP_OK)
        status = error_checked(sink(context, stream.data, stream.size), "a sink");
    buffer_free(&stream);
    return status;
}

static dcp_status encode_chunk(const struct state_tensor *tensor, dcp_sink sink, void *context)
{
    const struct state_chunk *chunk = &tensor->chunks[0];
    struct box box = {tensor->ndim, chunk->offsets, chunk->sizes};
    struct write_item item = {.name = "a tensor",
                              .is_tensor = true,
                              .dtype = tensor->dtype,
                              .ndim = tensor->ndim,
                              .global_shape = tensor->global_shape,
                              .box = box};
    struct shard_source source = {.item = &item, .chunk = chunk};
    struct write_order order = {.box = box};
    if (!chunk->data && box_volume(box) != 0)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the tensor to encode has no memory");
    return shard_stream_write(&source, &order, sink, context);
}

dcp_status dcp_tensor_encode_sized(const dcp_tensor *tensor, size_t tensor_size, dcp_sink sink,
                                   void *context)
{
    if (!tensor || !sink)
        return dcp_error_set(DCP_ERR_ARGUMENT, "encoding a tensor needs the tensor and a sink");
    dcp_state *root = dcp_state_new();
    if (!root)
        return DCP_ERR_NO_MEMORY;
    const dcp_state *node = dcp_state_tensor_sized(root, "tensor", tensor, tensor_size);
    dcp_status status =
        node ? encode_chunk(node->as.tensor, sink, context) : dcp_state_status(root);
    dcp_state_free(root);
    return status;
}
