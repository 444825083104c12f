/* SPDX-License-Identifier: BSD-3-Clause */
/* Overlaps and holes of many boxes, by dividing space.
 *
 * A region of space is cut in two at the edge of a box until each part is trivial: a part without
 * boxes is a hole; a part that one box fills is covered, and a second box in it is an overlap.
 * Boxes that a cut divides are in both parts. Regions are cut at the median of a sample of edges,
 * in the dimension that separates best, so that disjoint boxes take about n log n steps. */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "state/box.h"

#define SAMPLE_MAX 24

struct interval {
    int64_t low;
    int64_t high; /* exclusive */
};

/* A region that must still be examined. Its boxes are lists[first .. first + count), its intervals
 * are regions[number * ndim ..]. Parts form a stack: the list of the last one is at the end of
 * lists.
 */
struct part {
    size_t first;
    size_t count;
};

struct division {
    int32_t ndim;               /* dimensions in which the boxes differ */
    int32_t dims[DCP_MAX_DIMS]; /* which of the boxes' dimensions these are */
    size_t box_count;
    struct interval *bounds; /* box_count * ndim */
    size_t *numbers;         /* of the boxes as the caller counts them */

    size_t *lists;
    size_t list_capacity;
    struct part *parts;
    struct interval *regions;
    size_t part_count;
    size_t part_capacity;
    uint32_t random;
};

struct cut {
    int32_t dim;
    int64_t at;
};

static void division_free(struct division *division)
{
    memory_release(division->bounds);
    memory_release(division->numbers);
    memory_release(division->lists);
    memory_release(division->parts);
    memory_release(division->regions);
}

static dcp_status reserve_lists(struct division *division, size_t needed)
{
    if (needed <= division->list_capacity)
        return DCP_OK;
    size_t capacity = needed + needed / 2;
    size_t *lists = memory_reallocate_array(division->lists, capacity, sizeof *lists);
    if (!lists)
        return error_no_memory(capacity * sizeof *lists, "lists of boxes");
    division->lists = lists;
    division->list_capacity = capacity;
    return DCP_OK;
}

static dcp_status reserve_parts(struct division *division, size_t needed)
{
    if (needed <= division->part_capacity)
        return DCP_OK;
    size_t capacity = needed * 2 + 30;
    size_t ndim = (size_t)division->ndim + 1; /* not zero for 0-d */
    struct part *parts = memory_reallocate_array(division->parts, capacity, sizeof *parts);
    if (parts)
        division->parts = parts;
    struct interval *regions =
        memory_reallocate_array(division->regions, capacity, ndim * sizeof *regions);
    if (regions)
        division->regions = regions;
    if (!parts || !regions)
        return error_no_memory(capacity * ndim * sizeof *regions, "regions of space");
    division->part_capacity = capacity;
    return DCP_OK;
}

static struct interval *region_of(const struct division *division, size_t part)
{
    return division->regions + part * (size_t)division->ndim;
}

static const struct interval *bounds_of(const struct division *division, size_t box)
{
    return division->bounds + box * (size_t)division->ndim;
}

/* Keeps the boxes that touch the region (given in all dimensions) and the dimensions in which some
 * box does not fill it; the region becomes the first part. */
static dcp_status division_init(struct division *division, int32_t ndim,
                                const struct interval *region, const struct box *boxes,
                                size_t count)
{
    *division = (struct division){.random = 1};
    division->numbers = memory_allocate_array(count, sizeof *division->numbers);
    if (!division->numbers)
        return error_no_memory(count * sizeof *division->numbers, "numbers of boxes");
    bool differs[DCP_MAX_DIMS] = {false};
    for (size_t i = 0; i < count; i++) {
        bool touches = true;
        for (int32_t d = 0; d < ndim && touches; d++)
            touches = boxes[i].sizes[d] > 0 && boxes[i].offsets[d] < region[d].high &&
                      boxes[i].offsets[d] + boxes[i].sizes[d] > region[d].low;
        if (!touches)
            continue;
        division->numbers[division->box_count++] = i;
        for (int32_t d = 0; d < ndim; d++)
            differs[d] = differs[d] || boxes[i].offsets[d] > region[d].low ||
                         boxes[i].offsets[d] + boxes[i].sizes[d] < region[d].high;
    }
    for (int32_t d = 0; d < ndim; d++)
        if (differs[d])
            division->dims[division->ndim++] = d;

    size_t dims = (size_t)division->ndim;
    division->bounds =
        memory_allocate_array(division->box_count, (dims + 1) * sizeof *division->bounds);
    if (!division->bounds)
        return error_no_memory(division->box_count * dims * sizeof *division->bounds, "boxes");
    RETURN_IF_ERROR(reserve_lists(division, division->box_count));
    RETURN_IF_ERROR(reserve_parts(division, 1));
    for (size_t i = 0; i < division->box_count; i++) {
        const struct box *box = &boxes[division->numbers[i]];
        division->lists[i] = i;
        for (size_t d = 0; d < dims; d++) {
            int64_t low = box->offsets[division->dims[d]];
            division->bounds[i * dims + d] =
                (struct interval){low, low + box->sizes[division->dims[d]]};
        }
    }
    for (size_t d = 0; d < dims; d++)
        region_of(division, 0)[d] = region[division->dims[d]];
    division->parts[0] = (struct part){0, division->box_count};
    division->part_count = 1;
    return DCP_OK;
}

static bool box_fills(const struct interval *bounds, const struct interval *region, int32_t ndim)
{
    for (int32_t d = 0; d < ndim; d++)
        if (bounds[d].low > region[d].low || bounds[d].high < region[d].high)
            return false;
    return true;
}

/* A box of the list that fills the region; count if there is none. */
static size_t find_filling(const struct division *division, const size_t *list, size_t count,
                           const struct interval *region)
{
    for (size_t i = 0; i < count; i++)
        if (box_fills(bounds_of(division, list[i]), region, division->ndim))
            return i;
    return count;
}

static int compare_positions(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a;
    int64_t right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

/* The middle of the sample's edges inside the region in one dimension, and how many boxes of the
 * sample the fuller side has. */
static bool cut_dimension(const struct division *division, const size_t *sample, size_t count,
                          const struct interval *region, int32_t dim, int64_t *at, size_t *fuller)
{
    int64_t edges[2 * SAMPLE_MAX];
    size_t edge_count = 0;
    for (size_t i = 0; i < count; i++) {
        struct interval interval = bounds_of(division, sample[i])[dim];
        if (interval.low > region[dim].low)
            edges[edge_count++] = interval.low;
        if (interval.high < region[dim].high)
            edges[edge_count++] = interval.high;
    }
    if (edge_count == 0)
        return false;
    qsort(edges, edge_count, sizeof edges[0], compare_positions);
    *at = edges[edge_count / 2];
    size_t left = 0;
    size_t right = 0;
    for (size_t i = 0; i < count; i++) {
        struct interval interval = bounds_of(division, sample[i])[dim];
        left += interval.low < *at;
        right += interval.high > *at;
    }
    *fuller = left > right ? left : right;
    return true;
}

/* No box of the list fills the region, so that each one has an edge inside it. */
static struct cut choose_cut(struct division *division, const size_t *list, size_t count,
                             const struct interval *region)
{
    size_t sample[SAMPLE_MAX];
    size_t sample_count = count < SAMPLE_MAX ? count : SAMPLE_MAX;
    for (size_t i = 0; i < sample_count; i++) {
        division->random = division->random * 1664525u + 1013904223u;
        sample[i] = count <= SAMPLE_MAX ? list[i] : list[(division->random >> 4) % count];
    }
    struct cut best = {0, 0};
    size_t best_fuller = SIZE_MAX;
    for (int32_t d = 0; d < division->ndim; d++) {
        int64_t at;
        size_t fuller;
        if (cut_dimension(division, sample, sample_count, region, d, &at, &fuller) &&
            fuller < best_fuller) {
            best = (struct cut){d, at};
            best_fuller = fuller;
        }
    }
    return best;
}

/* Replaces the last part by its two sides. */
static dcp_status divide(struct division *division, struct cut cut)
{
    size_t number = division->part_count - 1;
    struct part part = division->parts[number];
    RETURN_IF_ERROR(reserve_lists(division, part.first + 2 * part.count));
    RETURN_IF_ERROR(reserve_parts(division, division->part_count + 1));

    size_t *list = division->lists + part.first;
    size_t left = 0;
    size_t right = 0;
    for (size_t i = 0; i < part.count; i++) {
        size_t box = list[i];
        struct interval interval = bounds_of(division, box)[cut.dim];
        if (interval.high > cut.at)
            list[part.count + right++] = box;
        if (interval.low < cut.at)
            list[left++] = box;
    }
    memmove(list + left, list + part.count, right * sizeof *list);
    division->parts[number] = (struct part){part.first, left};
    division->parts[number + 1] = (struct part){part.first + left, right};
    division->part_count++;

    struct interval *left_region = region_of(division, number);
    struct interval *right_region = region_of(division, number + 1);
    memcpy(right_region, left_region, (size_t)division->ndim * sizeof *left_region);
    left_region[cut.dim].high = cut.at;
    right_region[cut.dim].low = cut.at;
    return DCP_OK;
}

static dcp_status search_overlap(struct division *division, bool *found, size_t *first,
                                 size_t *second)
{
    while (division->part_count > 0) {
        struct part part = division->parts[division->part_count - 1];
        if (part.count < 2) {
            division->part_count--;
            continue;
        }
        const size_t *list = division->lists + part.first;
        const struct interval *region = region_of(division, division->part_count - 1);
        size_t filling = find_filling(division, list, part.count, region);
        if (filling < part.count) {
            size_t a = division->numbers[list[filling]];
            size_t b = division->numbers[list[filling == 0 ? 1 : 0]];
            *first = a < b ? a : b;
            *second = a < b ? b : a;
            *found = true;
            return DCP_OK;
        }
        RETURN_IF_ERROR(divide(division, choose_cut(division, list, part.count, region)));
    }
    return DCP_OK;
}

dcp_status box_find_overlap(const struct box *boxes, size_t count, bool *found, size_t *first,
                            size_t *second)
{
    *found = false;
    if (count < 2)
        return DCP_OK;
    int32_t ndim = boxes[0].ndim;
    struct interval region[DCP_MAX_DIMS];
    for (int32_t d = 0; d < ndim; d++) {
        region[d] = (struct interval){INT64_MAX, INT64_MIN};
        for (size_t i = 0; i < count; i++) {
            int64_t low = boxes[i].offsets[d];
            int64_t high = low + boxes[i].sizes[d];
            region[d].low = low < region[d].low ? low : region[d].low;
            region[d].high = high > region[d].high ? high : region[d].high;
        }
    }
    struct division division;
    dcp_status status = division_init(&division, ndim, region, boxes, count);
    if (status == DCP_OK)
        status = search_overlap(&division, found, first, second);
    division_free(&division);
    return status;
}

static dcp_status search_hole(struct division *division, bool *found)
{
    while (division->part_count > 0) {
        struct part part = division->parts[division->part_count - 1];
        if (part.count == 0) {
            *found = true;
            return DCP_OK;
        }
        const size_t *list = division->lists + part.first;
        const struct interval *region = region_of(division, division->part_count - 1);
        if (find_filling(division, list, part.count, region) < part.count)
            division->part_count--;
        else
            RETURN_IF_ERROR(divide(division, choose_cut(division, list, part.count, region)));
    }
    return DCP_OK;
}

dcp_status box_find_hole(struct box wanted, const struct box *boxes, size_t count, bool *found,
                         struct box_storage *hole)
{
    *found = false;
    struct interval region[DCP_MAX_DIMS];
    for (int32_t d = 0; d < wanted.ndim; d++) {
        if (wanted.sizes[d] == 0)
            return DCP_OK;
        region[d] = (struct interval){wanted.offsets[d], wanted.offsets[d] + wanted.sizes[d]};
    }
    struct division division;
    dcp_status status = division_init(&division, wanted.ndim, region, boxes, count);
    if (status == DCP_OK)
        status = search_hole(&division, found);
    if (status == DCP_OK && *found) {
        const struct interval *empty = region_of(&division, division.part_count - 1);
        for (int32_t d = 0; d < division.ndim; d++)
            region[division.dims[d]] = empty[d];
        for (int32_t d = 0; d < wanted.ndim; d++) {
            hole->offsets[d] = region[d].low;
            hole->sizes[d] = region[d].high - region[d].low;
        }
    }
    division_free(&division);
    return status;
}
