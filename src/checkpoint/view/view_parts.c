/* SPDX-License-Identifier: BSD-3-Clause */
/* The parts of records that tensors are read in. */
#include "base/error.h"
#include "base/memory.h"
#include "checkpoint/view/view_records.h"
#include "plan/share/record_parts.h"

struct view_part {
    struct record_part of;
    struct shard_part_sum sum;
};

static bool is_part(const dcp_checkpoint *checkpoint, const struct read_item *item,
                    dcp_verification verification, struct record_part *part)
{
    const struct metadata_entry *entry = &checkpoint->metadata->entries[item->entry];
    const struct share_want want = {item->entry, item->piece, item->region};
    return entry->is_tensor && record_part_of(checkpoint->metadata, &want, part) &&
           view_is_joined(checkpoint, verification, view_owner_of(entry, item->entry, item->piece),
                          part->end - part->from);
}

dcp_status view_parts_list(const dcp_checkpoint *checkpoint, const struct load_plan *plan,
                           dcp_verification verification, struct view_parts *parts)
{
    struct record_part part;
    size_t count = 0;
    *parts = (struct view_parts){0};
    for (size_t i = 0; i < plan->count; i++)
        count += is_part(checkpoint, &plan->items[i], verification, &part);
    if (count == 0)
        return DCP_OK;
    parts->parts = memory_allocate_zeroed(count, sizeof *parts->parts);
    parts->sums = memory_allocate_zeroed(plan->count, sizeof *parts->sums);
    if (!parts->parts || !parts->sums)
        return error_no_memory(count * sizeof *parts->parts, "parts of records");
    for (size_t i = 0; i < plan->count; i++)
        if (is_part(checkpoint, &plan->items[i], verification, &part)) {
            struct view_part *made = &parts->parts[parts->count++];
            made->of = part;
            parts->sums[i] = &made->sum;
        }
    return DCP_OK;
}

dcp_status view_parts_take(dcp_checkpoint *checkpoint, const struct view_parts *parts)
{
    for (size_t i = 0; i < parts->count; i++) {
        const struct view_part *part = &parts->parts[i];
        const struct metadata_entry *entry = &checkpoint->metadata->entries[part->of.entry];
        const struct view_span span = {part->of.from, part->of.end, part->sum};
        RETURN_IF_ERROR(view_take_span(
            checkpoint, view_owner_of(entry, part->of.entry, part->of.piece), &span));
    }
    return DCP_OK;
}

void view_parts_free(struct view_parts *parts)
{
    memory_release(parts->parts);
    memory_release(parts->sums);
}
