/* SPDX-License-Identifier: BSD-3-Clause */
/* What ranks hold of tensors that are divided by rows. */
#include <string.h>

#include "base/error.h"
#include "plan/save/joint_plan.h"

/* Rows from `begin` on for each of a number of ranks. Its numbers live as long as the joint plan.
 */
static dcp_status make_run(struct joint_plan *joint, const struct write_item *item, int64_t begin,
                           int64_t rows, struct joint_run *run)
{
    size_t ndim = (size_t)item->ndim;
    int64_t *offsets = arena_allocate_array(&joint->arena, 3 * ndim, sizeof *offsets);
    if (offsets == NULL)
        return error_no_memory(3 * ndim * sizeof *offsets, "rows of ranks");
    int64_t *sizes = offsets + ndim, *steps = sizes + ndim;
    memset(offsets, 0, 3 * ndim * sizeof *offsets);
    memcpy(sizes, item->global_shape, ndim * sizeof *sizes);
    offsets[0] = begin;
    sizes[0] = steps[0] = rows;
    run->offsets = offsets;
    run->sizes = sizes;
    run->steps = run->count > 1 && rows > 0 ? steps : NULL;
    return DCP_OK;
}

/* As torch.chunk divides: ranks with equal parts, one with what is left, and some with nothing. */
static dcp_status add_rows(struct joint_plan *joint, const struct write_item *item, uint32_t index,
                           size_t *place)
{
    int64_t rows = item->global_shape[0], ranks = joint->rank_count;
    int64_t part = rows / ranks + (rows % ranks != 0);
    int64_t full = part > 0 ? rows / part : 0, rest = part > 0 ? rows % part : 0;
    const int64_t counts[] = {full, rest > 0, ranks - full - (rest > 0)};
    const int64_t begins[] = {0, full * part, rows}, sizes[] = {part, rest, 0};
    struct joint_run runs[3];
    size_t run_count = 0;
    uint32_t rank = 0;
    for (size_t i = 0; i < 3; i++) {
        if (counts[i] == 0)
            continue;
        struct joint_run *run = &runs[run_count++];
        *run = (struct joint_run){
            .count = (uint32_t)counts[i], .rank = rank, .rank_step = 1, .item = index};
        rank += run->count;
        RETURN_IF_ERROR(make_run(joint, item, begins[i], sizes[i], run));
    }
    return joint_plan_add_runs(joint, item, runs, run_count, place);
}

dcp_status joint_plan_add_rows(struct joint_plan *joint, const struct save_plan *plan)
{
    size_t place = SIZE_MAX;
    for (size_t i = 0; i < plan->count; i++) {
        const struct write_item *item = &plan->items[i];
        struct joint_run whole = {.count = item->is_tensor ? joint->rank_count : 1,
                                  .rank_step = item->is_tensor,
                                  .item = (uint32_t)i,
                                  .offsets = item->box.offsets,
                                  .sizes = item->box.sizes};
        if (item->is_tensor && item->ndim > 0)
            RETURN_IF_ERROR(add_rows(joint, item, (uint32_t)i, &place));
        else
            RETURN_IF_ERROR(joint_plan_add_runs(joint, item, &whole, 1, &place));
    }
    return DCP_OK;
}
