/* SPDX-License-Identifier: BSD-3-Clause */
/* The parts of records that tensors are read in. */
#include "base/error.h"
#include "base/memory.h"
#include "checkpoint/view/view_records.h"
#include "plan/share/record_parts.h"
#include "state/copy.h"

/* Of a storage of a .pt file: elements that follow each other in it. */
static bool find_in_storage(const struct metadata_entry *entry, const struct metadata_piece *piece,
                            struct box region, struct view_span *span)
{
    const struct tensor_view *view = piece->view;
    const struct box whole = {entry->ndim, piece->offsets, piece->sizes};
    const int64_t count = box_volume(region);
    if (count == 0 || box_run(whole, region) < count ||
        !copy_is_dense(view->ndim, view->sizes, view->strides))
        return false;
    uint64_t size = dcp_dtype_size(entry->dtype);
    span->from = (uint64_t)(view->storage_offset + box_position(whole, region, 0)) * size;
    span->end = span->from + (uint64_t)count * size;
    return true;
}

static bool find_in_stream(const struct metadata *metadata, const struct read_item *item,
                           struct view_span *span)
{
    const struct share_want want = {item->entry, item->piece, item->region};
    uint64_t size = dcp_dtype_size(metadata->entries[item->entry].dtype);
    struct record_part part;
    if (!record_part_of(metadata, &want, &part))
        return false;
    span->from = (uint64_t)part.from * size;
    span->end = (uint64_t)part.end * size;
    return true;
}

static bool find_span(const dcp_checkpoint *checkpoint, const struct read_item *item,
                      dcp_verification verification, struct view_span *span)
{
    const struct metadata_entry *entry = &checkpoint->metadata->entries[item->entry];
    const struct metadata_piece *piece = &entry->pieces[item->piece];
    *span = (struct view_span){0};
    return entry->is_tensor &&
           (piece->encoding == PIECE_VIEW ? find_in_storage(entry, piece, item->region, span)
                                          : find_in_stream(checkpoint->metadata, item, span)) &&
           view_is_joined(checkpoint, verification, (struct view_chunk){item->entry, item->piece},
                          span->end - span->from);
}

dcp_status view_parts_list(const dcp_checkpoint *checkpoint, const struct load_plan *plan,
                           dcp_verification verification, struct view_parts *parts)
{
    struct view_span span;
    bool any = false;
    *parts = (struct view_parts){.unheld = view_count_unheld(checkpoint)};
    for (size_t i = 0; i < plan->count && !any; i++)
        any = find_span(checkpoint, &plan->items[i], verification, &span);
    if (!any)
        return DCP_OK;
    parts->spans = memory_allocate_zeroed(plan->count, sizeof *parts->spans);
    parts->sums = memory_allocate_zeroed(plan->count, sizeof *parts->sums);
    if (!parts->spans || !parts->sums)
        return error_no_memory(plan->count * sizeof *parts->spans, "parts of records");
    for (size_t i = 0; i < plan->count; i++)
        if (find_span(checkpoint, &plan->items[i], verification, &parts->spans[i]))
            parts->sums[i] = &parts->spans[i].sum;
    return DCP_OK;
}

/* An item that was no part, or whose sum is not known for another reason. */
static dcp_status take_unheld(dcp_checkpoint *checkpoint, const struct read_item *item)
{
    bool is_tensor = checkpoint->metadata->entries[item->entry].is_tensor;
    return is_tensor && box_volume(item->region) > 0
               ? view_take_unheld(checkpoint, (struct view_chunk){item->entry, item->piece})
               : DCP_OK;
}

dcp_status view_parts_take(dcp_checkpoint *checkpoint, const struct load_plan *plan,
                           const struct view_parts *parts)
{
    bool unheld = view_has_unheld(checkpoint, parts->unheld);
    for (size_t i = 0; i < plan->count && (parts->spans || unheld); i++) {
        const struct read_item *item = &plan->items[i];
        const struct view_chunk of = {item->entry, item->piece};
        if (parts->spans && parts->spans[i].sum.known)
            RETURN_IF_ERROR(view_take_span(checkpoint, of, &parts->spans[i]));
        else if (unheld)
            RETURN_IF_ERROR(take_unheld(checkpoint, item));
    }
    return DCP_OK;
}

void view_parts_free(struct view_parts *parts)
{
    memory_release(parts->spans);
    memory_release(parts->sums);
}
