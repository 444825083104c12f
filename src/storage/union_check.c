/* SPDX-License-Identifier: BSD-3-Clause */
/* That what several members of a union hold is the same. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "state/box.h"
#include "state/copy.h"
#include "state/node_equal.h"
#include "storage/stored_item.h"

/* Bytes of each side that are in memory at a time, but for a row that is longer. */
#define SLAB_SIZE ((int64_t)4 << 20)

static dcp_status tell_difference(const struct metadata *metadata,
                                  const struct metadata_replica *replica,
                                  const struct metadata_piece *kept)
{
    const struct metadata_entry *entry = &metadata->entries[replica->entry];
    return dcp_error_set(DCP_ERR_DUPLICATE, "\"%s\" has one value in %s and another in %s",
                         entry->name, metadata_file_member(metadata, kept->file)->name,
                         metadata_file_member(metadata, replica->piece.file)->name);
}

static dcp_status objects_equal(struct shard_reader *reader, const struct metadata_entry *entry,
                                const struct metadata_piece *const pieces[2], bool *equal)
{
    dcp_state *objects[2] = {NULL, NULL};
    dcp_state *root = dcp_state_new();
    struct state_pool *pools[2] = {NULL, NULL};
    dcp_status status = root ? DCP_OK : DCP_ERR_NO_MEMORY;
    for (int i = 0; i < 2 && status == DCP_OK; i++) {
        pools[i] = state_pool_new(root->root);
        status = pools[i] ? shard_read_object(reader, entry, pieces[i], DCP_VERIFY_READ, pools[i],
                                              &objects[i])
                          : DCP_ERR_NO_MEMORY;
    }
    if (status == DCP_OK)
        status = node_equal(objects[0], objects[1], equal);
    for (int i = 0; i < 2; i++)
        state_pool_free(pools[i]);
    dcp_state_free(root);
    return status;
}

static dcp_status look_at_record(struct shard_reader *reader, const struct metadata_entry *entry,
                                 const struct metadata_piece *piece, struct tensor_view *view,
                                 bool *plain)
{
    struct stored_item item;
    RETURN_IF_ERROR(stored_item_open(&item, reader, entry, piece, DCP_VERIFY_NONE, false));
    dcp_status status = stored_item_view(&item, view);
    uint64_t bytes;
    *plain = status == DCP_OK && view->has_crc && !view->conjugate && !view->negative &&
             !view->swapped && shape_bytes(view->ndim, view->sizes, view->dtype, &bytes) &&
             bytes == view->storage_bytes && copy_is_dense(view->ndim, view->sizes, view->strides);
    stored_item_close(&item);
    return status;
}

/* Pieces of equal boxes whose records hold just their elements can be compared by checksums.
 * *known: they could. */
static dcp_status records_equal(struct shard_reader *reader, const struct metadata_entry *entry,
                                const struct metadata_piece *const pieces[2], bool *known,
                                bool *equal)
{
    struct tensor_view views[2];
    bool plain[2] = {false, false};
    for (int i = 0; i < 2; i++)
        RETURN_IF_ERROR(look_at_record(reader, entry, pieces[i], &views[i], &plain[i]));
    *known = plain[0] && plain[1];
    *equal = *known && views[0].crc == views[1].crc;
    return DCP_OK;
}

/* One side of a comparison: a piece, and memory for a slab of it. */
struct side {
    const struct metadata_piece *piece;
    void *bytes;
};

static dcp_status slab_equal(struct shard_reader *reader, const struct metadata_entry *entry,
                             const struct side sides[2], struct box slab, bool *equal)
{
    int64_t strides[DCP_MAX_DIMS];
    uint64_t bytes = (uint64_t)box_volume(slab) * dcp_dtype_size(entry->dtype);
    shape_strides(slab.ndim, slab.sizes, strides);
    for (int i = 0; i < 2; i++) {
        struct box_storage box;
        memcpy(box.offsets, slab.offsets, (size_t)slab.ndim * sizeof *box.offsets);
        memcpy(box.sizes, slab.sizes, (size_t)slab.ndim * sizeof *box.sizes);
        struct state_chunk target = {
            .offsets = box.offsets, .sizes = box.sizes, .strides = strides, .data = sides[i].bytes};
        RETURN_IF_ERROR(shard_read_tensor(reader, entry, sides[i].piece, slab, entry->dtype,
                                          &target, DCP_VERIFY_READ));
    }
    *equal = memcmp(sides[0].bytes, sides[1].bytes, (size_t)bytes) == 0;
    return DCP_OK;
}

/* A region by slabs: as many consecutive elements of it, row-major, as fit. */
static dcp_status slabs_equal(struct shard_reader *reader, const struct metadata_entry *entry,
                              const struct side sides[2], struct box region, int64_t slab_elements,
                              bool *equal)
{
    int64_t volume = box_volume(region), position = 0;
    *equal = true;
    while (position < volume && *equal) {
        struct box_storage slab;
        int64_t end = volume - position > slab_elements ? position + slab_elements : volume;
        int64_t taken =
            shape_next_box(region.ndim, region.sizes, position, end, slab.offsets, slab.sizes);
        for (int32_t d = 0; d < region.ndim; d++)
            slab.offsets[d] += region.offsets[d];
        RETURN_IF_ERROR(slab_equal(reader, entry, sides, box_of(region.ndim, &slab), equal));
        position += taken;
    }
    return DCP_OK;
}

static dcp_status region_equal(struct shard_reader *reader, const struct metadata_entry *entry,
                               const struct metadata_piece *const pieces[2], struct box region,
                               bool *equal)
{
    int64_t element = (int64_t)dcp_dtype_size(entry->dtype), volume = box_volume(region);
    int64_t elements = SLAB_SIZE / element;
    /* A compressed piece is decompressed for each slab, so it is taken as one. */
    if (elements > volume || pieces[0]->zstd || pieces[1]->zstd)
        elements = volume;
    struct side sides[2] = {{pieces[0], NULL}, {pieces[1], NULL}};
    dcp_status status = DCP_OK;
    for (int i = 0; i < 2 && status == DCP_OK; i++) {
        sides[i].bytes = memory_allocate_array((size_t)elements, (size_t)element);
        if (!sides[i].bytes)
            status = error_no_memory((size_t)(elements * element), "tensors to compare");
    }
    if (status == DCP_OK)
        status = slabs_equal(reader, entry, sides, region, elements, equal);
    memory_release(sides[0].bytes);
    memory_release(sides[1].bytes);
    return status;
}

static dcp_status pieces_equal(struct shard_reader *reader, const struct metadata_entry *entry,
                               const struct metadata_piece *const pieces[2], bool *equal)
{
    struct box boxes[2];
    struct box_storage common;
    bool known = false;
    *equal = true;
    for (int i = 0; i < 2; i++)
        boxes[i] = (struct box){entry->ndim, pieces[i]->offsets, pieces[i]->sizes};
    if (!box_intersect(boxes[0], boxes[1], &common))
        return DCP_OK;
    if (box_equal(boxes[0], boxes[1]))
        RETURN_IF_ERROR(records_equal(reader, entry, pieces, &known, equal));
    return known ? DCP_OK
                 : region_equal(reader, entry, pieces, box_of(entry->ndim, &common), equal);
}

dcp_status storage_check_replica(struct shard_reader *reader,
                                 const struct metadata_replica *replica)
{
    const struct metadata *metadata = reader->metadata;
    const struct metadata_entry *entry = &metadata->entries[replica->entry];
    for (size_t i = 0; i < entry->piece_count; i++) {
        const struct metadata_piece *const pieces[2] = {&entry->pieces[i], &replica->piece};
        bool equal = false;
        RETURN_IF_ERROR(entry->is_tensor ? pieces_equal(reader, entry, pieces, &equal)
                                         : objects_equal(reader, entry, pieces, &equal));
        if (!equal)
            return tell_difference(metadata, replica, pieces[0]);
    }
    return DCP_OK;
}

dcp_status storage_check_replicas(struct shard_reader *reader)
{
    const struct metadata *metadata = reader->metadata;
    for (size_t i = 0; i < metadata->replica_count; i++)
        RETURN_IF_ERROR(storage_check_replica(reader, &metadata->replicas[i]));
    return DCP_OK;
}
