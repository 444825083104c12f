/* SPDX-License-Identifier: BSD-3-Clause */
/* Several regions of one compressed piece, read together, so that it is decompressed once. */
#include "base/error.h"
#include "base/memory.h"
#include "state/box.h"
#include "storage/shard/shard_file.h"
#include "storage/shard/shard_request.h"

/* Puts what the requests want of a slab where they want it. */
static dcp_status place_slab(struct shard_reader *reader, const struct shard_request *requests,
                             size_t count, struct box slab, const void *elements)
{
    for (size_t i = 0; i < count; i++) {
        const struct shard_request *request = &requests[i];
        struct box_storage common;
        if (!box_intersect(slab, request->region, &common))
            continue;
        struct box box = box_of(slab.ndim, &common);
        RETURN_IF_ERROR(shard_place_region(request->entry, slab, elements, box, request->dtype,
                                           request->target));
        RETURN_IF_ERROR(progress_add(reader->progress, (uint64_t)box_volume(box) *
                                                           dcp_dtype_size(request->entry->dtype)));
    }
    return DCP_OK;
}

static bool is_wanted(const struct shard_request *requests, size_t count, struct box slab)
{
    struct box_storage common;
    for (size_t i = 0; i < count; i++)
        if (box_intersect(slab, requests[i].region, &common))
            return true;
    return false;
}

/* Goes over the piece by slabs: as many consecutive elements, row-major, as fit. */
static dcp_status read_slabs(struct shard_reader *reader, struct shard_piece *opened,
                             const struct shard_request *requests, size_t count, void *elements,
                             int64_t most)
{
    const struct metadata_piece *piece = requests[0].piece;
    const struct box whole = {requests[0].entry->ndim, piece->offsets, piece->sizes};
    int64_t volume = box_volume(whole), position = 0;
    while (position < volume) {
        struct box_storage slab;
        int64_t end = volume - position > most ? position + most : volume;
        position += box_next(whole, position, end, &slab);
        struct box box = box_of(whole.ndim, &slab);
        if (!is_wanted(requests, count, box))
            continue;
        RETURN_IF_ERROR(shard_piece_read(opened, box, elements));
        RETURN_IF_ERROR(place_slab(reader, requests, count, box, elements));
    }
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes +=
            (uint64_t)box_volume(requests[i].region) * dcp_dtype_size(requests[i].entry->dtype);
    return shard_piece_end(opened, bytes);
}

static dcp_status read_flowing(struct shard_reader *reader, struct shard_piece *opened,
                               const struct shard_request *requests, size_t count)
{
    const struct metadata_piece *piece = requests[0].piece;
    size_t element = dcp_dtype_size(requests[0].entry->dtype);
    int64_t volume =
        box_volume((struct box){requests[0].entry->ndim, piece->offsets, piece->sizes});
    int64_t most = (int64_t)(reader->how.buffer_bytes / element);
    most = most < volume ? most : volume;
    void *elements = memory_allocate_array((size_t)most, element);
    if (!elements)
        return error_no_memory((size_t)most * element, "a read buffer");
    dcp_status status = read_slabs(reader, opened, requests, count, elements, most);
    memory_release(elements);
    return status;
}

dcp_status shard_read_together(struct shard_reader *reader, const struct shard_request *requests,
                               size_t count, dcp_verification verification)
{
    const struct metadata_entry *entry = requests[0].entry;
    const struct metadata_piece *piece = requests[0].piece;
    const struct box whole = {entry->ndim, piece->offsets, piece->sizes};
    struct shard_piece *opened = NULL;
    dcp_status status =
        shard_piece_open(reader, entry, piece, whole, false, verification, NULL, &opened);
    bool flows = status == DCP_OK && shard_piece_flows(opened);
    if (flows)
        status = read_flowing(reader, opened, requests, count);
    shard_piece_close(opened);
    for (size_t i = 0; i < count && status == DCP_OK && !flows; i++)
        status = shard_read_request(reader, &requests[i], verification, NULL, NULL, 0, NULL);
    return status;
}
