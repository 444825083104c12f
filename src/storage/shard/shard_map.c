/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/shard/shard_map.h"

#include <inttypes.h>

#include "base/checked.h"
#include "base/error.h"
#include "storage/shard/stored_item.h"

static dcp_status refuse(const char *why)
{
    return dcp_error_set(DCP_ERR_UNSUPPORTED, "cannot be mapped: its elements are stored %s", why);
}

static dcp_status check_form(const struct stored_item *item, const struct tensor_view *view)
{
    if (item->piece->zstd || item->inflated)
        return refuse("compressed");
    if (view->swapped)
        return refuse("big-endian");
    return view->conjugate || view->negative ? refuse("to be conjugated or negated") : DCP_OK;
}

/* Bytes from the first element to the end of the last one; the view's strides have been checked to
 * stay inside its storage. */
static uint64_t extent(const struct tensor_view *view)
{
    uint64_t last = 0;
    for (int32_t i = 0; i < view->ndim; i++) {
        if (view->sizes[i] == 0)
            return 0;
        last += (uint64_t)(view->sizes[i] - 1) * (uint64_t)view->strides[i];
    }
    return (last + 1) * dcp_dtype_size(view->dtype);
}

static dcp_status map_view(const struct stored_item *item, const struct tensor_view *view,
                           struct shard_mapping *mapping)
{
    struct shard_file *file = item->file;
    uint64_t size = extent(view), start, end;
    uint64_t element = (uint64_t)view->storage_offset * dcp_dtype_size(view->dtype);
    uint64_t piece = metadata_is_in_stream(item->piece) ? item->piece->offset : 0;
    if (!checked_add_u64(piece, view->data_offset, &start) ||
        !checked_add_u64(start, element, &start) || !checked_add_u64(start, size, &end) ||
        end > shard_file_size(file) || size > SIZE_MAX)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "%" PRIu64 " bytes at %" PRIu64 " expected, the file has %" PRIu64,
                             size, start, shard_file_size(file));
    for (int32_t i = 0; i < view->ndim; i++)
        mapping->strides[i] = view->strides[i];
    return storage_file_map(&file->file, start, (size_t)size, &mapping->bytes);
}

static dcp_status map_item(struct stored_item *item, dcp_verification verification,
                           struct shard_mapping *mapping)
{
    struct tensor_view view;
    bool known;
    RETURN_IF_ERROR(stored_item_lay_out(item, &view, &known));
    if (!known)
        RETURN_IF_ERROR(stored_item_view(item, &view));
    RETURN_IF_ERROR(check_form(item, &view));
    if (verification != DCP_VERIFY_NONE && !item->memory)
        checked_source_widen(&item->checked, &item->source);
    if (verification != DCP_VERIFY_NONE)
        RETURN_IF_ERROR(stored_item_check_record(item, &view));
    return map_view(item, &view, mapping);
}

dcp_status shard_map_tensor(struct shard_reader *reader, const struct metadata_entry *entry,
                            const struct metadata_piece *piece, dcp_verification verification,
                            struct shard_mapping *mapping)
{
    struct stored_item item;
    *mapping = (struct shard_mapping){0};
    dcp_status status = DCP_OK;
    if (!entry->is_tensor)
        return dcp_error_set(DCP_ERR_KIND, "%s: is an object, not a tensor", entry->name);
    /* Before all of it is decompressed. */
    if (piece->zstd)
        status = refuse("compressed");
    if (status == DCP_OK) {
        status = stored_item_open(&item, reader, entry, piece, verification, false);
        if (status == DCP_OK) {
            status = map_item(&item, verification, mapping);
            stored_item_close(&item);
        }
    }
    return shard_reader_blame(reader, entry, piece, status);
}
