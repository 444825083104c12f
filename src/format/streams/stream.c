/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/streams/stream.h"

#include <string.h>

#include "base/error.h"
#include "format/streams/tensor_pickle.h"
#include "state/box.h"

static dcp_status check_tensor(dcp_dtype dtype, int32_t ndim, const int64_t *sizes, uint64_t *bytes)
{
    char shape[128];
    const char *name = dcp_dtype_name(dtype);
    if (name == NULL || ndim < 0 || ndim > DCP_MAX_DIMS)
        return dcp_error_set(DCP_ERR_ARGUMENT, "a tensor cannot have dtype %d and %d dimensions",
                             (int)dtype, (int)ndim);
    if (dtype >= DCP_BITS8)
        return dcp_error_set(DCP_ERR_UNSUPPORTED,
                             "dtype %s cannot be saved, because PyTorch cannot load it", name);
    if (!shape_bytes(ndim, sizes, dtype, bytes))
        return dcp_error_set(DCP_ERR_ARGUMENT, "shape %s is negative or exceeds 2^63 bytes",
                             shape_format(ndim, sizes, shape, sizeof shape));
    return DCP_OK;
}

dcp_status stream_tensor_layout(dcp_dtype dtype, int32_t ndim, const int64_t *sizes,
                                struct stream_layout *layout)
{
    uint64_t bytes = 0;
    struct stream_records records;
    struct stream_record items[STREAM_RECORDS_FEW];
    RETURN_IF_ERROR(check_tensor(dtype, ndim, sizes, &bytes));
    stream_records_place(&records, items, tensor_pickle_size(dtype, ndim, sizes),
                         &(struct stream_data){"data/0", bytes}, 1);
    *layout = (struct stream_layout){.data_offset = records.items[STREAM_DATA_RECORD].data_offset,
                                     .data_length = bytes,
                                     .length = records.length};
    return DCP_OK;
}

/* The records of a tensor's stream with all that is in them. The pickle must outlive them. */
static dcp_status tensor_records(dcp_dtype dtype, int32_t ndim, const int64_t *sizes, uint32_t crc,
                                 struct buffer *pickle, struct stream_record *items,
                                 struct stream_records *records)
{
    uint64_t bytes = 0;
    RETURN_IF_ERROR(check_tensor(dtype, ndim, sizes, &bytes));
    tensor_pickle_write(pickle, dtype, ndim, sizes);
    RETURN_IF_ERROR(buffer_status(pickle));
    stream_records_place(records, items, pickle->size, &(struct stream_data){"data/0", bytes}, 1);
    stream_records_fill(records, pickle->data);
    items[STREAM_DATA_RECORD].bytes = NULL;
    items[STREAM_DATA_RECORD].crc = crc;
    stream_records_seal(records);
    return DCP_OK;
}

/* Leaves records without contents: only their sizes and checksums are needed further on. */
static dcp_status make_frame(struct stream_frame *frame, dcp_dtype dtype, int32_t ndim,
                             const int64_t *sizes, struct buffer *pickle)
{
    struct stream_record *items = frame->items;
    struct stream_records *records = &frame->records;
    RETURN_IF_ERROR(tensor_records(dtype, ndim, sizes, 0, pickle, items, records));
    for (size_t i = 0; i < STREAM_DATA_RECORD; i++)
        stream_put_record(&frame->head, &items[i]);
    stream_put_header(&frame->head, &items[STREAM_DATA_RECORD]);
    stream_put_descriptor(&frame->tail, &items[STREAM_DATA_RECORD]);
    for (size_t i = STREAM_DATA_RECORD + 1; i < records->count; i++)
        stream_put_record(&frame->tail, &items[i]);
    stream_put_directory(&frame->tail, records);
    RETURN_IF_ERROR(buffer_status(&frame->head));
    return buffer_status(&frame->tail);
}

void stream_frame_init(struct stream_frame *frame)
{
    *frame = (struct stream_frame){.dtype = DCP_DTYPE_NONE};
    buffer_init(&frame->head, 0);
    buffer_init(&frame->tail, 0);
}

dcp_status stream_frame_fit(struct stream_frame *frame, dcp_dtype dtype, int32_t ndim,
                            const int64_t *sizes)
{
    struct buffer pickle;
    size_t bytes = ndim > 0 ? (size_t)ndim * sizeof *sizes : 0;
    if (frame->dtype == dtype && dtype != DCP_DTYPE_NONE && frame->ndim == ndim &&
        (bytes == 0 || memcmp(frame->sizes, sizes, bytes) == 0))
        return DCP_OK;
    frame->dtype = DCP_DTYPE_NONE;
    RETURN_IF_ERROR(stream_tensor_layout(dtype, ndim, sizes, &frame->layout));
    buffer_clear(&frame->head);
    buffer_clear(&frame->tail);
    buffer_init(&pickle, 0);
    dcp_status status = make_frame(frame, dtype, ndim, sizes, &pickle);
    buffer_free(&pickle);
    RETURN_IF_ERROR(status);
    frame->dtype = dtype;
    frame->ndim = ndim;
    if (bytes != 0)
        memcpy(frame->sizes, sizes, bytes);
    return DCP_OK;
}

void stream_frame_seal(struct stream_frame *frame, uint32_t crc)
{
    stream_records_reseal(&frame->records, crc, frame->tail.data);
}

void stream_frame_free(struct stream_frame *frame)
{
    buffer_free(&frame->head);
    buffer_free(&frame->tail);
}

dcp_status stream_object(struct buffer *out, const void *pickle, size_t size)
{
    struct stream_records records;
    struct stream_record items[STREAM_RECORDS_FEW];
    stream_records_place(&records, items, size, NULL, 0);
    stream_records_fill(&records, pickle);
    stream_records_seal(&records);
    for (size_t i = 0; i < records.count; i++)
        stream_put_record(out, &records.items[i]);
    stream_put_directory(out, &records);
    return buffer_status(out);
}
