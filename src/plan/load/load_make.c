/* SPDX-License-Identifier: BSD-3-Clause */
/* Compares what a rank's tree wants with what is stored, name by name. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "plan/load/load_differences.h"
#include "plan/load/load_intersect.h"
#include "plan/load/load_plan.h"
#include "state/copy.h"

enum { BOX_TEXT = 256, DETAIL_MAX = 600, DETAIL_NAME_MAX = 512, ITEMS_FIRST = 64 };

struct planner {
    const struct metadata *metadata;
    struct load_names *names; /* NULL: as they are */
    bool convert;
    struct load_plan *plan;
    size_t capacity; /* of plan->items */
    struct load_differences *differences;
    struct box *regions; /* scratch: of one chunk */
    size_t region_capacity;
};

/* One name that is wanted and stored. */
struct match {
    const struct flat_entry *wanted;
    uint32_t wanted_index;
    const char *stored_name; /* the name to look for */
    const struct metadata_entry *stored;
    uint32_t stored_index;
};

static dcp_status add_item(struct planner *planner, struct read_item item)
{
    struct load_plan *plan = planner->plan;
    if (plan->count == planner->capacity) {
        size_t capacity = planner->capacity != 0 ? planner->capacity * 2 : ITEMS_FIRST;
        struct read_item *items = memory_reallocate_array(plan->items, capacity, sizeof *items);
        if (items == NULL)
            return error_no_memory(capacity * sizeof *items, "a load plan");
        plan->items = items;
        planner->capacity = capacity;
    }
    plan->items[plan->count++] = item;
    return DCP_OK;
}

/* Sets the stored name of the last difference, if a rule has changed it. */
static dcp_status note_renaming(struct planner *planner, const struct match *match)
{
    if (match->stored_name == match->wanted->name)
        return DCP_OK;
    return differences_set_stored(planner->differences, match->stored_name,
                                  strlen(match->stored_name));
}

static dcp_status mismatch(struct planner *planner, const struct match *match, dcp_status failure,
                           const char *stored, const char *wanted)
{
    char detail[DETAIL_MAX];
    snprintf(detail, sizeof detail, "stored %s, wanted %s", stored, wanted);
    RETURN_IF_ERROR(
        differences_add_mismatch(planner->differences, failure, match->wanted->name, detail));
    return note_renaming(planner, match);
}

/* PyTorch up to 2.4 stored a dict without tensors as one object, under the name of the dict. */
static dcp_status add_missing(struct planner *planner, const struct match *match)
{
    const char *stored = match->stored_name, *wanted = match->wanted->name;
    char detail[DETAIL_MAX] = "";
    for (const char *dot = strchr(stored, '.'); dot != NULL; dot = strchr(dot + 1, '.')) {
        uint64_t above;
        size_t length = (size_t)(dot - stored);
        if (!name_table_find(&planner->metadata->by_name, stored, length, &above) ||
            planner->metadata->entries[above].is_tensor)
            continue;
        if (length < DETAIL_NAME_MAX)
            snprintf(detail, sizeof detail, "its parent \"%s\" is stored as one object",
                     planner->metadata->entries[above].name);
        else
            snprintf(detail, sizeof detail, "one of its parents is stored as one object");
        break;
    }
    RETURN_IF_ERROR(differences_add(planner->differences, DCP_DIFFERENCE_MISSING, wanted,
                                    strlen(wanted), detail, strlen(detail)));
    return note_renaming(planner, match);
}

/* Kind, shape and dtype; *fits: the entry can be read. */
static dcp_status compare(struct planner *planner, const struct match *match, bool *fits)
{
    const struct metadata_entry *stored = match->stored;
    char stored_text[BOX_TEXT], wanted_text[BOX_TEXT];
    bool wants_tensor = match->wanted->node->kind == DCP_KIND_TENSOR;
    *fits = false;
    if (wants_tensor != stored->is_tensor)
        return mismatch(planner, match, DCP_ERR_KIND, stored->is_tensor ? "a tensor" : "an object",
                        wants_tensor ? "a tensor" : "an object");
    if (!wants_tensor) {
        *fits = true;
        return DCP_OK;
    }
    const struct state_tensor *tensor = match->wanted->node->as.tensor;
    bool equal = tensor->ndim == stored->ndim;
    for (int32_t i = 0; i < tensor->ndim && equal; i++)
        equal = tensor->global_shape[i] == stored->global_shape[i];
    if (!equal) {
        shape_format(stored->ndim, stored->global_shape, stored_text, sizeof stored_text);
        shape_format(tensor->ndim, tensor->global_shape, wanted_text, sizeof wanted_text);
        return mismatch(planner, match, DCP_ERR_SHAPE, stored_text, wanted_text);
    }
    *fits = tensor->dtype == stored->dtype;
    if (*fits)
        return DCP_OK;
    const char *from = dcp_dtype_name(stored->dtype), *to = dcp_dtype_name(tensor->dtype);
    if (!planner->convert || !copy_can_convert(stored->dtype, tensor->dtype))
        return mismatch(planner, match, DCP_ERR_DTYPE, from, to);
    *fits = true;
    int length = snprintf(stored_text, sizeof stored_text, "%s -> %s", from, to);
    RETURN_IF_ERROR(differences_add(planner->differences, DCP_DIFFERENCE_CONVERTED,
                                    match->wanted->name, strlen(match->wanted->name), stored_text,
                                    (size_t)length));
    return note_renaming(planner, match);
}

static dcp_status add_region(struct planner *planner, const struct match *match, uint32_t chunk,
                             uint32_t piece, const struct box_storage *common)
{
    int32_t ndim = match->stored->ndim;
    size_t bytes = (size_t)ndim * sizeof(int64_t);
    int64_t *numbers = arena_allocate(&planner->plan->arena, 2 * bytes);
    if (numbers == NULL)
        return error_no_memory(2 * bytes, "a region to read");
    memcpy(numbers, common->offsets, bytes);
    memcpy(numbers + ndim, common->sizes, bytes);
    return add_item(planner, (struct read_item){.wanted = match->wanted_index,
                                                .chunk = chunk,
                                                .entry = match->stored_index,
                                                .piece = piece,
                                                .region = {ndim, numbers, numbers + ndim}});
}

static dcp_status gather_regions(struct planner *planner, size_t first)
{
    size_t count = planner->plan->count - first;
    if (count > planner->region_capacity) {
        struct box *regions = memory_reallocate_array(planner->regions, count, sizeof *regions);
        if (regions == NULL)
            return error_no_memory(count * sizeof *regions, "regions to read");
        planner->regions = regions;
        planner->region_capacity = count;
    }
    for (size_t i = 0; i < count; i++)
        planner->regions[i] = planner->plan->items[first + i].region;
    return DCP_OK;
}

static dcp_status refuse_overlap(const struct planner *planner, const struct match *match,
                                 const struct read_item *a, const struct read_item *b)
{
    const struct metadata_piece *pieces = match->stored->pieces;
    char first[BOX_TEXT], second[BOX_TEXT];
    box_format(piece_box(match->stored, a->piece), first, sizeof first);
    box_format(piece_box(match->stored, b->piece), second, sizeof second);
    return dcp_error_set(
        DCP_ERR_OVERLAP, "\"%s\": stored %s (%s at %" PRIu64 ") overlaps %s (%s at %" PRIu64 ")",
        match->stored->name, first, planner->metadata->files[pieces[a->piece].file],
        pieces[a->piece].offset, second, planner->metadata->files[pieces[b->piece].file],
        pieces[b->piece].offset);
}

/* Checks that the items from `first` on fill the wanted box, each element once. */
static dcp_status check_regions(struct planner *planner, const struct match *match,
                                struct box wanted, size_t first)
{
    const struct read_item *items = &planner->plan->items[first];
    size_t count = planner->plan->count - first;
    bool found;
    size_t a, b;
    RETURN_IF_ERROR(gather_regions(planner, first));
    RETURN_IF_ERROR(box_find_overlap(planner->regions, count, &found, &a, &b));
    if (found)
        return refuse_overlap(planner, match, &items[a], &items[b]);
    int64_t missing = box_volume(wanted);
    uint64_t bytes = (uint64_t)missing * dcp_dtype_size(match->stored->dtype);
    for (size_t i = 0; i < count; i++)
        missing -= box_volume(planner->regions[i]);
    if (missing != 0) {
        struct box_storage hole;
        char hole_text[BOX_TEXT], wanted_text[BOX_TEXT];
        RETURN_IF_ERROR(box_find_hole(wanted, planner->regions, count, &found, &hole));
        box_format(box_of(wanted.ndim, &hole), hole_text, sizeof hole_text);
        box_format(wanted, wanted_text, sizeof wanted_text);
        return dcp_error_set(DCP_ERR_COVERAGE,
                             "\"%s\": the checkpoint does not hold %s of the wanted box %s",
                             match->stored->name, hole_text, wanted_text);
    }
    if (!checked_add_u64(planner->plan->bytes_wanted, bytes, &planner->plan->bytes_wanted))
        planner->plan->bytes_wanted = UINT64_MAX;
    return DCP_OK;
}

static dcp_status plan_chunk(struct planner *planner, const struct match *match,
                             const struct piece_index *index, uint32_t chunk)
{
    const struct state_tensor *tensor = match->wanted->node->as.tensor;
    struct box wanted = {tensor->ndim, tensor->chunks[chunk].offsets, tensor->chunks[chunk].sizes};
    if (box_volume(wanted) == 0)
        return DCP_OK;
    size_t first_item = planner->plan->count;
    size_t place, end;
    piece_index_find(index, wanted, &place, &end);
    for (; place < end; place++) {
        struct box_storage common;
        uint32_t piece = piece_index_at(index, place);
        if (box_intersect(wanted, piece_box(match->stored, piece), &common))
            RETURN_IF_ERROR(add_region(planner, match, chunk, piece, &common));
    }
    return check_regions(planner, match, wanted, first_item);
}

static dcp_status plan_tensor(struct planner *planner, const struct match *match)
{
    size_t chunk_count = match->wanted->node->as.tensor->chunk_count;
    struct piece_index index;
    RETURN_IF_ERROR(piece_index_init(&index, match->stored, chunk_count));
    dcp_status status = DCP_OK;
    for (size_t i = 0; i < chunk_count && status == DCP_OK; i++)
        status = plan_chunk(planner, match, &index, (uint32_t)i);
    piece_index_free(&index);
    return status;
}

/* Applies the options to a name: which stored name to look for, and whether to load it at all. */
static dcp_status apply_names(struct planner *planner, struct flat_entry *entry, size_t index,
                              const char **stored_name)
{
    struct load_names *names = planner->names;
    bool *used = planner->differences->used;
    size_t rule;
    *stored_name = entry->name;
    if (names == NULL)
        return DCP_OK;
    RETURN_IF_ERROR(name_rules_apply(&names->rules, entry->name, stored_name, &rule));
    if (names->stored != NULL && names->stored[index] != NULL)
        *stored_name = names->stored[index];
    if (rule < names->rules.count)
        used[rule] = true;
    entry->left_out = !name_filter_passes(&names->filter, entry->name, used + names->rules.count);
    return DCP_OK;
}

static dcp_status plan_entry(struct planner *planner, struct flat_state *flat, size_t index)
{
    struct match match = {.wanted = &flat->entries[index], .wanted_index = (uint32_t)index};
    bool fits;
    RETURN_IF_ERROR(apply_names(planner, &flat->entries[index], index, &match.stored_name));
    match.stored = metadata_find(planner->metadata, match.stored_name);
    if (match.stored == NULL)
        return match.wanted->left_out ? DCP_OK : add_missing(planner, &match);
    match.stored_index = (uint32_t)(match.stored - planner->metadata->entries);
    differences_want(planner->differences, match.stored_index);
    if (match.wanted->left_out)
        return DCP_OK;
    RETURN_IF_ERROR(compare(planner, &match, &fits));
    if (!fits)
        return DCP_OK;
    if (match.stored->is_tensor)
        return plan_tensor(planner, &match);
    return add_item(planner,
                    (struct read_item){.wanted = match.wanted_index, .entry = match.stored_index});
}

static int compare_items(const void *left, const void *right, void *context)
{
    const struct metadata *metadata = context;
    const struct read_item *a = left, *b = right;
    const struct metadata_piece *piece_a = &metadata->entries[a->entry].pieces[a->piece];
    const struct metadata_piece *piece_b = &metadata->entries[b->entry].pieces[b->piece];
    if (piece_a->file != piece_b->file)
        return piece_a->file < piece_b->file ? -1 : 1;
    if (piece_a->offset != piece_b->offset)
        return piece_a->offset < piece_b->offset ? -1 : 1;
    if (a->wanted != b->wanted)
        return a->wanted < b->wanted ? -1 : 1;
    if (a->chunk != b->chunk)
        return a->chunk < b->chunk ? -1 : 1;
    return a->piece < b->piece ? -1 : a->piece > b->piece;
}

/* Mostly, names are wanted in the order in which they were saved. */
void load_plan_sort(struct load_plan *plan, const struct metadata *metadata)
{
    size_t i = 1;
    while (i < plan->count &&
           compare_items(&plan->items[i - 1], &plan->items[i], (void *)metadata) <= 0)
        i++;
    if (i < plan->count)
        qsort_r(plan->items, plan->count, sizeof *plan->items, compare_items, (void *)metadata);
}

static dcp_status begin(const struct flat_state *flat, const struct metadata *metadata,
                        struct load_names *names, struct load_plan *plan,
                        struct load_differences *differences)
{
    *plan = (struct load_plan){0};
    arena_init(&plan->arena, 0);
    if (names != NULL)
        names->flat = flat;
    RETURN_IF_ERROR(differences_init(differences, metadata->count, load_names_count(names)));
    if (flat->count > UINT32_MAX || metadata->count > UINT32_MAX)
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "%zu names wanted of %zu stored", flat->count,
                             metadata->count);
    return DCP_OK;
}

dcp_status load_plan_skip(struct flat_state *flat, const struct metadata *metadata,
                          struct load_names *names, struct load_plan *plan,
                          struct load_differences *differences)
{
    struct planner planner = {.metadata = metadata, .names = names, .differences = differences};
    const char *stored_name;
    RETURN_IF_ERROR(begin(flat, metadata, names, plan, differences));
    for (size_t i = 0; i < flat->count; i++)
        RETURN_IF_ERROR(apply_names(&planner, &flat->entries[i], i, &stored_name));
    return DCP_OK;
}

dcp_status load_plan_make(struct flat_state *flat, const struct metadata *metadata,
                          struct load_names *names, bool convert, struct load_plan *plan,
                          struct load_differences *differences)
{
    RETURN_IF_ERROR(begin(flat, metadata, names, plan, differences));
    struct planner planner = {.metadata = metadata,
                              .names = names,
                              .convert = convert,
                              .plan = plan,
                              .differences = differences};
    dcp_status status = DCP_OK;
    for (size_t i = 0; i < flat->count && status == DCP_OK; i++)
        status = plan_entry(&planner, flat, i);
    memory_release(planner.regions);
    if (status == DCP_OK)
        load_plan_sort(plan, metadata);
    return status;
}

void load_plan_free(struct load_plan *plan)
{
    memory_release(plan->items);
    arena_free(&plan->arena);
    *plan = (struct load_plan){0};
}
