/* SPDX-License-Identifier: BSD-3-Clause */
/* The stream of one item, for storage writers that store it themselves. */
#include "base/checksum.h"
#include "base/error.h"
#include "base/memory.h"
#include "format/streams/stream.h"
#include "storage/shard/shard_elements.h"

#define PIECE ((size_t)1 << 20)

/* A sink and what has passed into it. */
struct outlet {
    dcp_sink sink;
    void *context;
    uint32_t crc;
};

static dcp_status pass(struct outlet *outlet, const void *bytes, size_t size)
{
    outlet->crc = crc32_update(outlet->crc, bytes, size);
    return error_checked(outlet->sink(outlet->context, bytes, size), "a sink");
}

static dcp_status pass_dense(struct outlet *outlet, const unsigned char *bytes, uint64_t size)
{
    for (uint64_t done = 0; done < size; done += PIECE)
        RETURN_IF_ERROR(
            pass(outlet, bytes + done, size - done < PIECE ? (size_t)(size - done) : PIECE));
    return DCP_OK;
}

static dcp_status pass_gathered(struct outlet *outlet, const struct shard_source *source,
                                struct box box)
{
    struct shard_elements elements;
    unsigned char *space = memory_allocate(PIECE);
    dcp_status status = DCP_OK;
    if (!space)
        return error_no_memory(PIECE, "gathering elements");
    status = shard_elements_start(&elements, source, box, PIECE, NULL);
    while (status == DCP_OK && shard_elements_next(&elements)) {
        status = shard_elements_gather(&elements, space);
        if (status == DCP_OK)
            status = pass(outlet, space, elements.size);
    }
    shard_elements_end(&elements);
    memory_release(space);
    return status;
}

static dcp_status pass_elements(struct outlet *outlet, const struct shard_source *source,
                                struct box box, uint64_t size)
{
    struct shard_opened opened;
    const void *data = NULL;
    if (size == 0)
        return DCP_OK;
    RETURN_IF_ERROR(shard_source_open(&opened, source, box));
    dcp_status status = shard_elements_dense(&opened.source, box, &data);
    if (status == DCP_OK)
        status = data ? pass_dense(outlet, data, size) : pass_gathered(outlet, &opened.source, box);
    shard_source_close(&opened);
    return status;
}

static dcp_status pass_tensor(struct outlet *outlet, const struct shard_source *source,
                              struct box box, struct stream_frame *frame)
{
    const struct write_item *item = source->item;
    RETURN_IF_ERROR(stream_frame_fit(frame, item->dtype, item->ndim, box.sizes));
    RETURN_IF_ERROR(pass(outlet, frame->head.data, frame->head.size));
    outlet->crc = 0;
    RETURN_IF_ERROR(pass_elements(outlet, source, box, frame->layout.data_length));
    stream_frame_seal(frame, outlet->crc);
    return pass(outlet, frame->tail.data, frame->tail.size);
}

dcp_status shard_stream_write(const struct shard_source *source, const struct write_order *order,
                              dcp_sink sink, void *context)
{
    struct outlet outlet = {.sink = sink, .context = context};
    struct stream_frame frame;
    if (!source->item->is_tensor)
        return pass_dense(&outlet, source->stream, order->length);
    stream_frame_init(&frame);
    dcp_status status = pass_tensor(&outlet, source, order->box, &frame);
    stream_frame_free(&frame);
    return status;
}
