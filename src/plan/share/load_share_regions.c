/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/share/load_share_regions.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"

/* Limits on the regions that overlapping regions of one piece are divided into: in all, and for
 * each region. */
enum { REGIONS_MOST = 1024, REGIONS_PER_CLAIM = 16, FIRST = 64 };

dcp_status share_sets_init(struct share_sets *sets, size_t class_count, struct arena *arena)
{
    *sets = (struct share_sets){.arena = arena};
    name_table_init(&sets->by_classes);
    sets->scratch = memory_allocate_array(class_count + 1, sizeof *sets->scratch);
    if (sets->scratch == NULL)
        return error_no_memory((class_count + 1) * sizeof *sets->scratch, "sets of ranks");
    return DCP_OK;
}

void share_sets_free(struct share_sets *sets)
{
    memory_release(sets->sets);
    memory_release(sets->scratch);
    name_table_free(&sets->by_classes);
}

dcp_status share_sets_find(struct share_sets *sets, const uint32_t *classes, size_t count,
                           uint32_t *set)
{
    uint64_t value = sets->count;
    bool existing;
    size_t bytes = count * sizeof *classes;
    if (name_table_find(&sets->by_classes, (const char *)classes, bytes, &value)) {
        *set = (uint32_t)value;
        return DCP_OK;
    }
    if (sets->count == sets->capacity) {
        size_t capacity = sets->capacity != 0 ? 2 * sets->capacity : FIRST;
        void *grown = memory_reallocate_array(sets->sets, capacity, sizeof *sets->sets);
        if (grown == NULL)
            return error_no_memory(capacity * sizeof *sets->sets, "sets of ranks");
        sets->sets = grown;
        sets->capacity = capacity;
    }
    uint32_t *copy = arena_copy(sets->arena, classes, bytes);
    if (copy == NULL)
        return error_no_memory(bytes, "sets of ranks");
    RETURN_IF_ERROR(
        name_table_add(&sets->by_classes, (const char *)copy, bytes, &value, &existing));
    *set = (uint32_t)sets->count;
    sets->sets[sets->count++] = (struct share_set){copy, count};
    return DCP_OK;
}

/* The classes of two sets together. */
static dcp_status unite(struct share_sets *sets, uint32_t a, uint32_t b, uint32_t *united)
{
    const struct share_set *x = &sets->sets[a], *y = &sets->sets[b];
    size_t i = 0, j = 0, count = 0;
    while (i < x->count || j < y->count) {
        bool from_x = j == y->count || (i < x->count && x->classes[i] <= y->classes[j]);
        uint32_t class = from_x ? x->classes[i++] : y->classes[j++];
        if (count == 0 || sets->scratch[count - 1] != class)
            sets->scratch[count++] = class;
    }
    return share_sets_find(sets, sets->scratch, count, united);
}

dcp_status share_regions_append(struct share_regions *regions, struct share_region region)
{
    if (regions->count == regions->capacity) {
        size_t capacity = regions->capacity != 0 ? 2 * regions->capacity : FIRST;
        void *grown = memory_reallocate_array(regions->regions, capacity, sizeof *regions->regions);
        if (grown == NULL)
            return error_no_memory(capacity * sizeof *regions->regions, "regions to share");
        regions->regions = grown;
        regions->capacity = capacity;
    }
    regions->regions[regions->count++] = region;
    return DCP_OK;
}

/* Keeps a box for the life of the arena. */
static dcp_status keep_box(struct arena *arena, int32_t ndim, const struct box_storage *storage,
                           struct box *box)
{
    size_t bytes = (size_t)ndim * sizeof(int64_t);
    int64_t *numbers = arena_allocate(arena, 2 * bytes);
    if (numbers == NULL)
        return error_no_memory(2 * bytes, "regions to share");
    if (ndim != 0) {
        memcpy(numbers, storage->offsets, bytes);
        memcpy(numbers + ndim, storage->sizes, bytes);
    }
    *box = (struct box){ndim, numbers, numbers + ndim};
    return DCP_OK;
}

/* The parts of a region outside a box in it become separate regions. */
static dcp_status add_rest(struct share_regions *regions, struct share_sets *sets,
                           struct share_region region, struct box inner)
{
    struct box_rest rest;
    struct box_storage box;
    box_rest_start(&rest, region.box, inner);
    while (box_rest_next(&rest, &box)) {
        RETURN_IF_ERROR(keep_box(sets->arena, inner.ndim, &box, &region.box));
        RETURN_IF_ERROR(share_regions_append(regions, region));
    }
    return DCP_OK;
}

/* Adds a region to the regions from first on, and divides regions that overlap. The remaining parts
 * of the new region are kept in a separate list until they are added. */
static dcp_status lay_over(struct share_regions *regions, size_t first,
                           struct share_regions *pending, struct share_sets *sets,
                           struct share_region region)
{
    pending->count = 0;
    RETURN_IF_ERROR(share_regions_append(pending, region));
    while (pending->count > 0) {
        struct share_region part = pending->regions[--pending->count];
        struct box_storage common;
        size_t at = first;
        while (at < regions->count && !box_intersect(regions->regions[at].box, part.box, &common))
            at++;
        if (at == regions->count) {
            RETURN_IF_ERROR(share_regions_append(regions, part));
            continue;
        }
        struct share_region met = regions->regions[at];
        struct box shared;
        RETURN_IF_ERROR(keep_box(sets->arena, part.box.ndim, &common, &shared));
        RETURN_IF_ERROR(add_rest(pending, sets, part, shared));
        RETURN_IF_ERROR(add_rest(regions, sets, met, shared));
        regions->regions[at].box = shared;
        RETURN_IF_ERROR(unite(sets, met.set, part.set, &regions->regions[at].set));
    }
    return DCP_OK;
}

/* Whether regions overlap at all; mostly they do not. */
static dcp_status find_overlap(const struct share_region *claimed, size_t count, bool *found)
{
    size_t first, second;
    *found = false;
    if (count < 2)
        return DCP_OK;
    struct box *boxes = memory_allocate_array(count, sizeof *boxes);
    if (boxes == NULL)
        return error_no_memory(count * sizeof *boxes, "regions to share");
    for (size_t i = 0; i < count; i++)
        boxes[i] = claimed[i].box;
    dcp_status status = box_find_overlap(boxes, count, found, &first, &second);
    memory_release(boxes);
    return status;
}

/* Each region that is claimed once, with the set of those who claim it. */
static dcp_status unite_claims(struct share_regions *claimed, struct share_sets *sets,
                               const struct share_claim *claims, size_t count)
{
    for (size_t i = 0; i < count;) {
        const struct share_want *want = claims[i].want;
        struct share_region region = {
            .entry = want->entry, .piece = want->piece, .box = want->region};
        size_t classes = 0;
        for (; i < count && box_compare(claims[i].want->region, want->region) == 0; i++)
            if (classes == 0 || sets->scratch[classes - 1] != claims[i].class)
                sets->scratch[classes++] = claims[i].class;
        RETURN_IF_ERROR(share_sets_find(sets, sets->scratch, classes, &region.set));
        RETURN_IF_ERROR(share_regions_append(claimed, region));
    }
    return DCP_OK;
}

static dcp_status add_disjoint(struct share_regions *regions, struct share_sets *sets,
                               const struct share_regions *claimed, bool *cut_up)
{
    struct share_regions pending = {0};
    size_t first = regions->count, most = REGIONS_MOST + REGIONS_PER_CLAIM * claimed->count;
    dcp_status status = DCP_OK;
    bool overlap = false;
    status = find_overlap(claimed->regions, claimed->count, &overlap);
    for (size_t i = 0; i < claimed->count && status == DCP_OK && !*cut_up; i++) {
        if (overlap)
            status = lay_over(regions, first, &pending, sets, claimed->regions[i]);
        else
            status = share_regions_append(regions, claimed->regions[i]);
        *cut_up = overlap && regions->count - first > most;
    }
    if (*cut_up)
        regions->count = first;
    memory_release(pending.regions);
    return status;
}

dcp_status share_regions_add(struct share_regions *regions, struct share_sets *sets,
                             const struct share_claim *claims, size_t count, bool *cut_up)
{
    struct share_regions claimed = {0};
    *cut_up = false;
    dcp_status status = unite_claims(&claimed, sets, claims, count);
    if (status == DCP_OK)
        status = add_disjoint(regions, sets, &claimed, cut_up);
    memory_release(claimed.regions);
    return status;
}
