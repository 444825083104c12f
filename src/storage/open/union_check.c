/* SPDX-License-Identifier: BSD-3-Clause */
/* That what several members of a union hold is the same. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "state/box.h"
#include "state/copy.h"
#include "state/node_equal.h"
#include "storage/shard/stored_item.h"

/* Bytes of each side that are in memory at a time, but for a row that is longer. */
#define SLAB_SIZE ((int64_t)4 << 20)

static dcp_status difference_error(const struct metadata *metadata,
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
        status = pools[i] ? shard_read_object(reader, entry, pieces[i], DCP_VERIFY_ALL, pools[i],
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

/* Compares pieces with equal boxes by checksums, if their records hold only their elements. *known:
 * whether that was possible. */
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
    struct shard_piece *piece;
    void *bytes;
};

/* A region by slabs: as many consecutive elements of it, row-major, as fit. */
static dcp_status slabs_equal(const struct metadata_entry *entry, const struct side sides[2],
                              struct box region, int64_t slab_elements, bool *equal)
{
    int64_t volume = box_volume(region), position = 0;
    *equal = true;
    while (position < volume && *equal) {
        struct box_storage slab;
        int64_t end = volume - position > slab_elements ? position + slab_elements : volume;
        int64_t taken = box_next(region, position, end, &slab);
        for (int i = 0; i < 2; i++)
            RETURN_IF_ERROR(
                shard_piece_read(sides[i].piece, box_of(region.ndim, &slab), sides[i].bytes));
        *equal = memcmp(sides[0].bytes, sides[1].bytes,
                        (size_t)taken * dcp_dtype_size(entry->dtype)) == 0;
        position += taken;
    }
    for (int i = 0; i < 2 && *equal; i++)
        RETURN_IF_ERROR(shard_piece_end(sides[i].piece, 0));
    return DCP_OK;
}

static dcp_status region_equal(struct shard_reader *reader, const struct metadata_entry *entry,
                               const struct metadata_piece *const pieces[2], struct box region,
                               bool *equal)
{
    int64_t element = (int64_t)dcp_dtype_size(entry->dtype), volume = box_volume(region);
    int64_t elements = SLAB_SIZE / element < volume ? SLAB_SIZE / element : volume;
    struct side sides[2] = {{NULL, NULL}, {NULL, NULL}};
    dcp_status status = DCP_OK;
    for (int i = 0; i < 2 && status == DCP_OK; i++) {
        status = shard_piece_open(reader, entry, pieces[i], region, false, DCP_VERIFY_ALL, NULL,
                                  &sides[i].piece);
        sides[i].bytes = memory_allocate_array((size_t)elements, (size_t)element);
        if (status == DCP_OK && !sides[i].bytes)
            status = error_no_memory((size_t)(elements * element), "tensors to compare");
    }
    if (status == DCP_OK)
        status = slabs_equal(entry, sides, region, elements, equal);
    for (int i = 0; i < 2; i++) {
        shard_piece_close(sides[i].piece);
        memory_release(sides[i].bytes);
    }
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
            return difference_error(metadata, replica, pieces[0]);
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
