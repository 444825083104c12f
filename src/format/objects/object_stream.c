/* SPDX-License-Identifier: BSD-3-Clause */
/* Whole streams of objects, with the elements of the tensors inside of them. */
#include <stdio.h>
#include <string.h>

#include "base/checksum.h"
#include "base/error.h"
#include "base/memory.h"
#include "format/objects/object_encoder.h"
#include "format/streams/item.h"
#include "format/streams/stream.h"
#include "format/streams/stream_records.h"
#include "state/node_block.h"

enum { NAME_SIZE = 32 };

static dcp_status put_elements(struct buffer *out, const struct encoder_storage *storage,
                               struct stream_record *record)
{
    size_t bytes = (size_t)record->size;
    RETURN_IF_ERROR(buffer_reserve(out, bytes));
    buffer_append_zeros(out, bytes);
    RETURN_IF_ERROR(buffer_status(out));
    unsigned char *space = out->data + out->size - bytes;
    const struct state_tensor *tensor = storage->tensor->as.tensor;
    if (storage->block == NULL)
        RETURN_IF_ERROR(chunk_read(tensor, &tensor->chunks[0], space));
    else if (bytes > 0)
        memcpy(space, storage->block->data, bytes);
    record->crc = crc32_update(0, space, bytes);
    return DCP_OK;
}

static dcp_status put_records(struct buffer *out, const struct encoder *encoder,
                              struct stream_records *records)
{
    for (size_t i = 0; i < records->count; i++) {
        struct stream_record *record = &records->items[i];
        size_t storage = i - STREAM_DATA_RECORD;
        if (i + 1 == records->count)
            stream_records_seal(records);
        stream_put_header(out, record);
        if (i >= STREAM_DATA_RECORD && storage < records->data_count)
            RETURN_IF_ERROR(put_elements(out, &encoder->storages[storage], record));
        else
            buffer_append(out, record->bytes, (size_t)record->size);
        stream_put_descriptor(out, record);
    }
    stream_put_directory(out, records);
    return buffer_status(out);
}

/* The directory counts records by 16 bits, but for a field that no reader of ours needs. */
static dcp_status put_stream(struct buffer *out, const struct encoder *encoder,
                             const struct buffer *pickle)
{
    size_t count = encoder->storage_count;
    struct stream_records records;
    if (count > UINT16_MAX - STREAM_OTHER_RECORDS - 1)
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "%zu storages of tensors inside of one object",
                             count);
    struct stream_data *data = memory_allocate_array(count, sizeof *data);
    struct stream_record *items =
        memory_allocate_array(count + STREAM_OTHER_RECORDS, sizeof *items);
    char(*names)[NAME_SIZE] = memory_allocate_array(count, sizeof *names);
    dcp_status status = DCP_OK;
    if (!data || !items || !names)
        status = error_no_memory(count * sizeof *items, "the storages of an object");
    for (size_t i = 0; i < count && status == DCP_OK; i++) {
        snprintf(names[i], sizeof names[i], "data/%zu", i);
        data[i] = (struct stream_data){names[i], encoder->storages[i].size};
    }
    if (status == DCP_OK) {
        stream_records_place(&records, items, pickle->size, data, count);
        stream_records_fill(&records, pickle->data);
        status = put_records(out, encoder, &records);
    }
    memory_release(names);
    memory_release(items);
    memory_release(data);
    return status;
}

static dcp_status put_stored(struct buffer *out, const dcp_state *object)
{
    const char *bytes = object->as.text.bytes;
    size_t size = object->as.text.length;
    dcp_status status = item_check_stream(byte_source_memory(bytes, size));
    if (status != DCP_OK)
        return error_prefix(status, "a stored stream");
    buffer_append(out, bytes, size);
    return buffer_status(out);
}

/* The pickle of an object and what its tensors look at. In the end encoder_free(). */
static dcp_status encode_pickle(struct encoder *encoder, const dcp_state *object)
{
    pickle_put_protocol(encoder->out, 2);
    dcp_status status = encoder_walk(encoder, object);
    pickle_put_op(encoder->out, OP_STOP);
    return status == DCP_OK ? buffer_status(encoder->out) : status;
}

dcp_status item_encode_parts(const dcp_state *object, struct buffer *pickle,
                             struct item_storage **storages, size_t *count)
{
    struct encoder encoder = {.out = pickle, .takes_tensors = true};
    *storages = NULL;
    *count = 0;
    dcp_status status = encode_pickle(&encoder, object);
    if (status == DCP_OK) {
        *storages = memory_allocate_array(encoder.storage_count, sizeof **storages);
        if (*storages == NULL)
            status = error_no_memory(encoder.storage_count * sizeof **storages, "storages");
    }
    for (size_t i = 0; i < encoder.storage_count && status == DCP_OK; i++) {
        const struct encoder_storage *storage = &encoder.storages[i];
        (*storages)[i] = (struct item_storage){storage->tensor, storage->block, storage->size};
        *count = i + 1;
    }
    encoder_free(&encoder);
    return status;
}

dcp_status item_encode_stream(const dcp_state *object, struct buffer *stream)
{
    if (object->kind == DCP_KIND_STREAM)
        return put_stored(stream, object);
    struct buffer pickle;
    buffer_init(&pickle, 0);
    struct encoder encoder = {.out = &pickle, .takes_tensors = true};
    dcp_status status = encode_pickle(&encoder, object);
    if (status == DCP_OK)
        status = encoder.storage_count == 0 ? stream_object(stream, pickle.data, pickle.size)
                                            : put_stream(stream, &encoder, &pickle);
    encoder_free(&encoder);
    buffer_free(&pickle);
    return status;
}
