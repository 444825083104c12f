/* SPDX-License-Identifier: BSD-3-Clause */
/* Stored chunks as mappings. */
#include "base/error.h"
#include "base/memory.h"
#include "base/sized.h"
#include "checkpoint/operation/options.h"
#include "checkpoint/view/view.h"
#include "storage/shard/shard_map.h"

/* What outlives the checkpoint. */
struct dcp_mapping {
    struct shard_mapping mapped;
    int64_t offsets[DCP_MAX_DIMS];
    int64_t sizes[DCP_MAX_DIMS];
};

static size_t alignment_of(const void *data)
{
    size_t alignment = 1;
    while (alignment < MEMORY_PAGE && (uintptr_t)data % (2 * alignment) == 0)
        alignment *= 2;
    return alignment;
}

static dcp_status map_piece(dcp_checkpoint *checkpoint, const struct metadata_entry *entry,
                            const struct metadata_piece *piece, dcp_verification verification,
                            dcp_mapping **mapping)
{
    dcp_mapping *made = memory_allocate_zeroed(1, sizeof *made);
    if (!made)
        return error_no_memory(sizeof *made, "a mapping");
    dcp_status status =
        shard_map_tensor(checkpoint->reader, entry, piece, verification, &made->mapped);
    if (status != DCP_OK) {
        memory_release(made);
        return status;
    }
    for (int32_t i = 0; i < entry->ndim; i++) {
        made->offsets[i] = piece->offsets[i];
        made->sizes[i] = piece->sizes[i];
    }
    *mapping = made;
    return DCP_OK;
}

dcp_status dcp_checkpoint_map_chunk_sized(dcp_checkpoint *checkpoint, size_t entry, size_t chunk,
                                          const dcp_read_options *options, size_t options_size,
                                          dcp_mapping **mapping, dcp_mapped_chunk *mapped,
                                          size_t mapped_size)
{
    dcp_read_options how;
    const struct metadata_entry *found = NULL;
    const struct metadata_piece *piece = NULL;

    if (!mapping || !mapped)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the place for a mapping is NULL");
    *mapping = NULL;
    RETURN_IF_ERROR(view_find_piece(checkpoint, entry, chunk, &found, &piece));
    RETURN_IF_ERROR(view_check_readable(checkpoint, found));
    RETURN_IF_ERROR(view_read_options(found->name, options, options_size, &how));
    RETURN_IF_ERROR(map_piece(checkpoint, found, piece, how.verification, mapping));
    const dcp_mapping *made = *mapping;
    dcp_mapped_chunk ours = {
        .data = made->mapped.bytes.bytes,
        .bytes = made->mapped.bytes.size,
        .alignment = alignment_of(made->mapped.bytes.bytes),
        .offsets = made->offsets,
        .sizes = made->sizes,
        .strides = made->mapped.strides,
    };
    sized_write(mapped, mapped_size, &ours, sizeof ours);
    return DCP_OK;
}

void dcp_mapping_free(dcp_mapping *mapping)
{
    if (!mapping)
        return;
    storage_unmap(&mapping->mapped.bytes);
    memory_release(mapping);
}
