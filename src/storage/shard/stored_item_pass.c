/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams that are decompressed as they are read: a tensor's elements lie in the middle, what says
 * so at the end; but the beginning says it, too. */
#include "base/error.h"
#include "base/memory.h"
#include "format/streams/item.h"
#include "format/streams/item_decompress.h"
#include "storage/shard/stored_item.h"

/* So much of the beginning is kept, if not more. */
#define BEGINNING_LEAST ((size_t)4 << 10)

static dcp_status foresee(struct stored_item *item, struct tensor_view *view)
{
    const unsigned char *bytes;
    size_t size;
    RETURN_IF_ERROR(decompressed_source_begin(&item->decompressed, &bytes, &size));
    RETURN_IF_ERROR(item_foresee_tensor(bytes, size, &item->arena, view, &item->foreseen));
    if (!item->foreseen)
        return DCP_OK;
    RETURN_IF_ERROR(stored_item_check_view(item, view));
    if (view->data_length > item->source.size - view->data_offset)
        return item_decompressor_beyond(item->source.size);
    /* What a parser of zip archives looks at first is a part of it. */
    return decompressed_source_keep(&item->decompressed, view->data_offset < BEGINNING_LEAST
                                                             ? BEGINNING_LEAST
                                                             : (size_t)view->data_offset);
}

dcp_status stored_item_foresee(struct stored_item *item, dcp_verification verification,
                               struct tensor_view *view)
{
    if (item->passing)
        RETURN_IF_ERROR(foresee(item, view));
    bool known = item->foreseen;
    if (!known)
        RETURN_IF_ERROR(stored_item_lay_out(item, view, &known));
    if (!known)
        RETURN_IF_ERROR(stored_item_view(item, view));
    if (item->passing && verification != DCP_VERIFY_NONE)
        decompressed_source_watch(&item->decompressed, view->data_offset, view->data_length);
    return DCP_OK;
}

dcp_status stored_item_pass(struct stored_item *item)
{
    struct tensor_view view;
    if (!item->passing)
        return DCP_OK;
    RETURN_IF_ERROR(foresee(item, &view));
    if (!item->foreseen)
        return decompressed_source_end(&item->decompressed, &item->source);
    decompressed_source_watch(&item->decompressed, view.data_offset, view.data_length);
    return stored_item_end(item, &view, DCP_VERIFY_NONE);
}

static dcp_status compare_end(struct stored_item *item, const struct tensor_view *view,
                              struct tensor_view *exact)
{
    RETURN_IF_ERROR(decompressed_source_end(&item->decompressed, &item->source));
    RETURN_IF_ERROR(item_open_tensor(item->source, &item->arena, exact));
    RETURN_IF_ERROR(stored_item_check_view(item, exact));
    if (item_same_view(view, exact))
        return DCP_OK;
    return dcp_error_set(
        DCP_ERR_FORMAT,
        "the zip directory and the headers of the records disagree on where the elements are");
}

dcp_status stored_item_end(struct stored_item *item, const struct tensor_view *view,
                           dcp_verification verification)
{
    struct tensor_view exact = *view;
    uint32_t crc;
    if (!item->passing || item->ended)
        return DCP_OK;
    if (item->foreseen)
        RETURN_IF_ERROR(compare_end(item, view, &exact));
    if (exact.has_crc && verification != DCP_VERIFY_NONE) {
        RETURN_IF_ERROR(decompressed_source_crc(&item->decompressed, exact.data_offset,
                                                exact.data_length, &crc));
        if (crc != exact.crc)
            return checked_crc_error(stored_item_place(item, &exact), exact.crc, crc);
        item->crc_held = true;
    }
    item->ended = true;
    return DCP_OK;
}

dcp_status stored_item_hold(struct stored_item *item)
{
    RETURN_IF_ERROR(decompressed_source_end(&item->decompressed, &item->source));
    size_t size = (size_t)item->source.size;
    item->memory = memory_allocate(size);
    if (!item->memory)
        return error_no_memory(size, "a decompressed item");
    RETURN_IF_ERROR(byte_source_read(&item->source, 0, item->memory, size));
    item->source = byte_source_memory(item->memory, size);
    item->in_memory = true;
    item->passing = item->foreseen = false;
    return DCP_OK;
}
