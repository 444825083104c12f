/* SPDX-License-Identifier: BSD-3-Clause */
/* Expands runs of holders into single holders. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "plan/save/save_merge.h"

/* Numbers that the boxes of a run need: one offset for each, unless all are at the same, and one
 * size. */
static size_t count_numbers(const struct joint_entry *entry)
{
    size_t count = 0, ndim = (size_t)entry->ndim;
    for (size_t i = 0; i < entry->run_count; i++)
        count += ndim * (entry->runs[i].steps != NULL ? entry->runs[i].count + (size_t)1 : 2);
    return count;
}

static struct held_item *expand_run(const struct joint_run *run, size_t ndim,
                                    struct held_item *held, int64_t **numbers)
{
    int64_t *sizes = *numbers, *place = sizes + ndim;
    if (ndim != 0) {
        memcpy(sizes, run->sizes, ndim * sizeof *sizes);
        memcpy(place, run->offsets, ndim * sizeof *place);
    }
    for (uint32_t i = 0; i < run->count; i++) {
        if (i != 0 && run->steps != NULL) {
            for (size_t dim = 0; dim < ndim; dim++)
                place[ndim + dim] = place[dim] + run->steps[dim];
            place += ndim;
        }
        *held++ = (struct held_item){.offsets = place,
                                     .sizes = sizes,
                                     .rank = run->rank + i * run->rank_step,
                                     .index = run->item + i * (uint32_t)run->item_step};
    }
    *numbers = place + ndim;
    return held;
}

static void expand_entry(struct merge_entry *entry, struct held_item *held, int64_t *numbers)
{
    const struct joint_entry *joint = entry->joint;
    entry->held = held;
    for (size_t i = 0; i < joint->run_count; i++)
        held = expand_run(&joint->runs[i], (size_t)joint->ndim, held, &numbers);
    entry->held_count = (size_t)(held - entry->held);
}

dcp_status merge_expand(struct merge *merge, const struct joint_plan *joint)
{
    size_t number_count = 0;
    merge->item_count = joint_plan_items(joint);
    if (merge->item_count >= UINT32_MAX || joint->count >= UINT32_MAX)
        return dcp_error_set(
            DCP_ERR_UNSUPPORTED,
            "all ranks together have %zu chunks and objects, at most 2^32 - 2 are supported",
            merge->item_count);
    merge->entries = memory_allocate_array(joint->count, sizeof *merge->entries);
    merge->held = memory_allocate_array(merge->item_count, sizeof *merge->held);
    for (size_t i = 0; i < joint->count; i++)
        number_count += count_numbers(&joint->entries[i]);
    int64_t *numbers = arena_allocate_array(&merge->metadata->arena, number_count, sizeof *numbers);
    if (merge->entries == NULL || merge->held == NULL || numbers == NULL)
        return error_no_memory(merge->item_count * sizeof *merge->held, "items of all ranks");
    struct held_item *held = merge->held;
    for (size_t i = 0; i < joint->count; i++) {
        struct merge_entry *entry = &merge->entries[merge->entry_count++];
        entry->joint = &joint->entries[i];
        expand_entry(entry, held, numbers);
        held += entry->held_count;
        numbers += count_numbers(entry->joint);
    }
    return DCP_OK;
}
