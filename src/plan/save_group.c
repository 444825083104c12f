/* SPDX-License-Identifier: BSD-3-Clause */
/* Items of all ranks under one name become one entry; ranks must agree on what it is. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "plan/save_merge.h"

enum { ENTRIES_FIRST = 64, SHAPE_TEXT = 256 };

static const char *kind_name(const struct write_item *item)
{
    return item->is_tensor ? "a tensor" : "an object";
}

static dcp_status refuse_kind(const struct merge_entry *entry, const struct write_item *item,
                              uint32_t rank)
{
    return dcp_error_set(DCP_ERR_KIND, "\"%s\": %s on rank %u, %s on rank %u", item->name,
                         kind_name(entry->item), entry->rank, kind_name(item), rank);
}

static dcp_status refuse_shape(const struct merge_entry *entry, const struct write_item *item,
                               uint32_t rank)
{
    char expected[SHAPE_TEXT], found[SHAPE_TEXT];
    shape_format(entry->item->ndim, entry->item->global_shape, expected, sizeof expected);
    shape_format(item->ndim, item->global_shape, found, sizeof found);
    return dcp_error_set(DCP_ERR_SHAPE, "\"%s\": global shape %s on rank %u, %s on rank %u",
                         item->name, expected, entry->rank, found, rank);
}

static dcp_status check_agreement(const struct merge_entry *entry, const struct write_item *item,
                                  uint32_t rank)
{
    const struct write_item *first = entry->item;
    if (item->is_tensor != first->is_tensor)
        return refuse_kind(entry, item, rank);
    if (!item->is_tensor)
        return DCP_OK;
    if (item->dtype != first->dtype)
        return dcp_error_set(DCP_ERR_DTYPE, "\"%s\": %s on rank %u, %s on rank %u", item->name,
                             dcp_dtype_name(first->dtype), entry->rank, dcp_dtype_name(item->dtype),
                             rank);
    if (!box_equal(box_whole(item->ndim, item->global_shape),
                   box_whole(first->ndim, first->global_shape)))
        return refuse_shape(entry, item, rank);
    return DCP_OK;
}

static dcp_status add_entry(struct merge *merge, const struct write_item *item, uint32_t rank)
{
    if (merge->entry_count == merge->entry_capacity) {
        size_t capacity = merge->entry_capacity != 0 ? merge->entry_capacity * 2 : ENTRIES_FIRST;
        struct merge_entry *entries =
            memory_reallocate_array(merge->entries, capacity, sizeof *entries);
        if (entries == NULL)
            return error_no_memory(capacity * sizeof *entries, "names of all ranks");
        merge->entries = entries;
        merge->entry_capacity = capacity;
    }
    merge->entries[merge->entry_count++] = (struct merge_entry){.item = item, .rank = rank};
    return DCP_OK;
}

/* Ranks mostly hold the same names in the same order, so the entry after the one before is tried
 * first, which spares the hash. */
static dcp_status find_entry(struct merge *merge, const struct write_item *item, uint32_t rank,
                             size_t guess, uint32_t *entry)
{
    if (guess < merge->entry_count && strcmp(merge->entries[guess].item->name, item->name) == 0) {
        *entry = (uint32_t)guess;
        return DCP_OK;
    }
    uint64_t value = merge->entry_count;
    bool existing;
    RETURN_IF_ERROR(
        name_table_add(&merge->names, item->name, strlen(item->name), &value, &existing));
    *entry = (uint32_t)value;
    return existing ? DCP_OK : add_entry(merge, item, rank);
}

static dcp_status find_entries(struct merge *merge, uint32_t *entry_of)
{
    for (uint32_t rank = 0; rank < merge->rank_count; rank++) {
        const struct save_plan *plan = &merge->plans[rank];
        const char *name = NULL;
        uint32_t found = UINT32_MAX;
        for (size_t i = 0; i < plan->count; i++) {
            const struct write_item *item = &plan->items[i];
            if (item->name != name)
                RETURN_IF_ERROR(find_entry(merge, item, rank, (size_t)found + 1, &found));
            name = item->name;
            struct merge_entry *entry = &merge->entries[found];
            RETURN_IF_ERROR(check_agreement(entry, item, rank));
            entry->requires_grad |= item->requires_grad;
            entry->held_count++;
            *entry_of++ = found;
        }
    }
    return DCP_OK;
}

static void deal_items(struct merge *merge, const uint32_t *entry_of)
{
    struct held_item *next = merge->held;
    for (size_t i = 0; i < merge->entry_count; i++) {
        merge->entries[i].held = next;
        next += merge->entries[i].held_count;
        merge->entries[i].held_count = 0;
    }
    for (uint32_t rank = 0; rank < merge->rank_count; rank++) {
        const struct save_plan *plan = &merge->plans[rank];
        for (size_t i = 0; i < plan->count; i++) {
            struct merge_entry *entry = &merge->entries[*entry_of++];
            entry->held[entry->held_count++] =
                (struct held_item){&plan->items[i], rank, (uint32_t)i};
        }
    }
}

dcp_status merge_group(struct merge *merge)
{
    for (uint32_t rank = 0; rank < merge->rank_count; rank++)
        merge->item_count += merge->plans[rank].count;
    if (merge->item_count >= UINT32_MAX)
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "%zu chunks and objects on all ranks",
                             merge->item_count);
    uint32_t *entry_of = memory_allocate_array(merge->item_count, sizeof *entry_of);
    merge->held = memory_allocate_array(merge->item_count, sizeof *merge->held);
    dcp_status status;
    if (entry_of == NULL || merge->held == NULL)
        status = error_no_memory(merge->item_count * sizeof *merge->held, "items of all ranks");
    else
        status = find_entries(merge, entry_of);
    if (status == DCP_OK)
        deal_items(merge, entry_of);
    memory_release(entry_of);
    return status;
}
