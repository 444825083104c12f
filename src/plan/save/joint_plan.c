/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/save/joint_plan.h"

#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "state/box.h"

enum { ENTRIES_FIRST = 64, SHAPE_TEXT = 256 };

void joint_plan_init(struct joint_plan *joint, uint32_t rank_count)
{
    *joint = (struct joint_plan){.rank_count = rank_count};
    name_table_init(&joint->names);
    arena_init(&joint->arena, 0);
}

void joint_plan_free(struct joint_plan *joint)
{
    memory_release(joint->entries);
    name_table_free(&joint->names);
    arena_free(&joint->arena);
    *joint = (struct joint_plan){0};
}

size_t joint_plan_items(const struct joint_plan *joint)
{
    size_t count = 0;
    for (size_t i = 0; i < joint->count; i++)
        for (size_t k = 0; k < joint->entries[i].run_count; k++)
            count += joint->entries[i].runs[k].count;
    return count;
}

static const char *kind_name(bool is_tensor)
{
    return is_tensor ? "a tensor" : "an object";
}

/* Checks that two ranks agree about a name: those of the first run of each entry. */
static dcp_status check_agreement(const struct joint_entry *ours, const struct joint_entry *theirs)
{
    uint32_t our_rank = ours->runs->rank, their_rank = theirs->runs->rank;
    if (ours->is_tensor != theirs->is_tensor)
        return dcp_error_set(DCP_ERR_KIND, "\"%s\" is %s on rank %u, but %s on rank %u", ours->name,
                             kind_name(ours->is_tensor), our_rank, kind_name(theirs->is_tensor),
                             their_rank);
    if (!ours->is_tensor)
        return DCP_OK;
    if (ours->dtype != theirs->dtype)
        return dcp_error_set(DCP_ERR_DTYPE, "\"%s\" is %s on rank %u, but %s on rank %u",
                             ours->name, dcp_dtype_name(ours->dtype), our_rank,
                             dcp_dtype_name(theirs->dtype), their_rank);
    if (!box_equal(box_whole(ours->ndim, ours->global_shape),
                   box_whole(theirs->ndim, theirs->global_shape))) {
        char expected[SHAPE_TEXT], found[SHAPE_TEXT];
        shape_format(ours->ndim, ours->global_shape, expected, sizeof expected);
        shape_format(theirs->ndim, theirs->global_shape, found, sizeof found);
        return dcp_error_set(DCP_ERR_SHAPE,
                             "\"%s\" has the global shape %s on rank %u, but %s on rank %u",
                             ours->name, expected, our_rank, found, their_rank);
    }
    return DCP_OK;
}

dcp_status joint_plan_reserve(struct joint_plan *joint, size_t capacity)
{
    struct joint_entry *entries =
        memory_reallocate_array(joint->entries, capacity, sizeof *entries);
    if (entries == NULL)
        return error_no_memory(capacity * sizeof *entries, "names of all ranks");
    joint->entries = entries;
    joint->capacity = capacity;
    return DCP_OK;
}

static dcp_status add_entry(struct joint_plan *joint, const struct joint_entry *described)
{
    if (joint->count == joint->capacity)
        RETURN_IF_ERROR(
            joint_plan_reserve(joint, joint->capacity != 0 ? joint->capacity * 2 : ENTRIES_FIRST));
    struct joint_entry *entry = &joint->entries[joint->count++];
    *entry = *described;
    entry->runs = NULL;
    entry->run_count = entry->run_capacity = 0;
    return DCP_OK;
}

/* The entry of a description that has the name of the last one, or of none before. */
static dcp_status place_local(struct joint_plan *joint, const struct joint_entry *described,
                              size_t *place)
{
    bool existing = joint->count != 0 && joint->entries[joint->count - 1].name == described->name;
    *place = existing ? joint->count - 1 : joint->count;
    return existing ? DCP_OK : add_entry(joint, described);
}

/* Finds or adds the entry of a description's name. Ranks mostly hold the same names in the same
 * order, so the entry after the one before is tried first, which spares the hash. */
static dcp_status place_entry(struct joint_plan *joint, const struct joint_entry *described,
                              size_t guess, size_t *place)
{
    uint64_t value = guess;
    if (joint->is_local)
        return place_local(joint, described, place);
    bool existing =
        guess < joint->count && strcmp(joint->entries[guess].name, described->name) == 0;
    if (!existing) {
        value = joint->count;
        RETURN_IF_ERROR(name_table_add(&joint->names, described->name, strlen(described->name),
                                       &value, &existing));
    }
    *place = (size_t)value;
    if (!existing)
        return add_entry(joint, described);
    joint->entries[*place].requires_grad |= described->requires_grad;
    return check_agreement(&joint->entries[*place], described);
}

static bool numbers_equal(size_t count, const int64_t *a, const int64_t *b)
{
    return count == 0 || memcmp(a, b, count * sizeof *a) == 0;
}

/* The steps from the last of a run to the first of the next; false if no run can have them. */
static bool find_steps(size_t ndim, const struct joint_run *run, const struct joint_run *next,
                       struct joint_run *steps, int64_t *moved)
{
    int64_t last = (int64_t)run->count - 1;
    int64_t rank = (int64_t)next->rank - (run->rank + last * run->rank_step);
    int64_t item = (int64_t)next->item - (run->item + last * run->item_step);
    bool moves = false;
    if (rank < 0 || item < INT32_MIN || item > INT32_MAX)
        return false;
    for (size_t i = 0; i < ndim; i++) {
        int64_t end = run->offsets[i];
        if (run->steps != NULL)
            end += run->steps[i] * last;
        if (__builtin_sub_overflow(next->offsets[i], end, &moved[i]))
            return false;
        moves = moves || moved[i] != 0;
    }
    *steps = (struct joint_run){
        .rank_step = (uint32_t)rank, .item_step = (int32_t)item, .steps = moves ? moved : NULL};
    return true;
}

/* Whether the steps of a run equal the given ones. */
static bool steps_match(size_t ndim, const struct joint_run *run, const struct joint_run *steps)
{
    return run->count == 1 ||
           (run->rank_step == steps->rank_step && run->item_step == steps->item_step &&
            (run->steps == NULL) == (steps->steps == NULL) &&
            (run->steps == NULL || numbers_equal(ndim, run->steps, steps->steps)));
}

/* Extends a run by another one that begins where it ends, if it does. */
static dcp_status extend_run(struct joint_plan *joint, size_t ndim, struct joint_run *run,
                             const struct joint_run *next, bool *extended)
{
    struct joint_run steps;
    int64_t moved[DCP_MAX_DIMS];
    *extended = UINT32_MAX - run->count >= next->count &&
                numbers_equal(ndim, run->sizes, next->sizes) &&
                find_steps(ndim, run, next, &steps, moved) && steps_match(ndim, run, &steps) &&
                steps_match(ndim, next, &steps);
    if (!*extended)
        return DCP_OK;
    if (run->count == 1 && steps.steps != NULL) {
        run->steps = arena_copy(&joint->arena, moved, ndim * sizeof *moved);
        if (run->steps == NULL)
            return error_no_memory(ndim * sizeof *moved, "steps of boxes");
    }
    run->rank_step = steps.rank_step;
    run->item_step = steps.item_step;
    run->count += next->count;
    return DCP_OK;
}

dcp_status joint_entry_add_run(struct joint_plan *joint, struct joint_entry *entry,
                               const struct joint_run *run)
{
    if (entry->run_count > 0) {
        struct joint_run *last = &entry->runs[entry->run_count - 1];
        bool extended = !entry->is_tensor; /* the lowest rank's is all that counts */
        if (!entry->is_tensor && last->rank == run->rank)
            return dcp_error_set(DCP_ERR_DUPLICATE, "\"%s\": rank %u has two objects of this name",
                                 entry->name, run->rank);
        if (entry->is_tensor)
            RETURN_IF_ERROR(extend_run(joint, (size_t)entry->ndim, last, run, &extended));
        if (extended)
            return DCP_OK;
    }
    if (entry->run_count == entry->run_capacity) {
        size_t capacity = entry->run_capacity != 0 ? entry->run_capacity * 2 : 1;
        struct joint_run *runs = arena_allocate_array(&joint->arena, capacity, sizeof *runs);
        if (runs == NULL)
            return error_no_memory(capacity * sizeof *runs, "holders of chunks");
        if (entry->run_count != 0)
            memcpy(runs, entry->runs, entry->run_count * sizeof *runs);
        entry->runs = runs;
        entry->run_capacity = capacity;
    }
    entry->runs[entry->run_count++] = *run;
    return DCP_OK;
}

dcp_status joint_plan_add_runs(struct joint_plan *joint, const struct write_item *item,
                               const struct joint_run *runs, size_t run_count, size_t *place)
{
    struct joint_run first = runs[0];
    struct joint_entry described = {.name = item->name,
                                    .path = item->path,
                                    .path_length = item->path_length,
                                    .is_tensor = item->is_tensor,
                                    .requires_grad = item->requires_grad,
                                    .dtype = item->dtype,
                                    .ndim = item->ndim,
                                    .global_shape = item->global_shape,
                                    .object_length = item->object_length,
                                    .runs = &first};
    RETURN_IF_ERROR(place_entry(joint, &described, *place + 1, place));
    for (size_t i = 0; i < run_count; i++)
        RETURN_IF_ERROR(joint_entry_add_run(joint, &joint->entries[*place], &runs[i]));
    return DCP_OK;
}

dcp_status joint_plan_add(struct joint_plan *joint, const struct save_plan *plan, uint32_t rank)
{
    size_t place = SIZE_MAX;
    const char *name = NULL;
    for (size_t i = 0; i < plan->count; i++) {
        const struct write_item *item = &plan->items[i];
        struct joint_run run = {.count = 1,
                                .rank = rank,
                                .item = (uint32_t)i,
                                .offsets = item->box.offsets,
                                .sizes = item->box.sizes};
        if (item->name == name)
            RETURN_IF_ERROR(joint_entry_add_run(joint, &joint->entries[place], &run));
        else
            RETURN_IF_ERROR(joint_plan_add_runs(joint, item, &run, 1, &place));
        name = item->name;
    }
    return DCP_OK;
}

dcp_status joint_plan_unite(struct joint_plan *joint, const struct joint_plan *higher)
{
    size_t place = SIZE_MAX;
    for (size_t i = 0; i < higher->count; i++) {
        const struct joint_entry *theirs = &higher->entries[i];
        RETURN_IF_ERROR(place_entry(joint, theirs, place + 1, &place));
        for (size_t k = 0; k < theirs->run_count; k++)
            RETURN_IF_ERROR(joint_entry_add_run(joint, &joint->entries[place], &theirs->runs[k]));
    }
    return DCP_OK;
}
