/* SPDX-License-Identifier: BSD-3-Clause */
/* Resolves the items of a plan against state and metadata. Hooks may have made the items, so
 * everything is checked. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "plan/load/load_intersect.h"
#include "plan/load/load_plan_view.h"

enum { BOX_TEXT = 256 };

struct resolving {
    const struct name_table *flat_names;
    const struct flat_state *flat;
    const struct metadata *metadata;
    struct read_targets *targets;
    const struct read_target **order; /* sorted by wanted chunk */
    struct box *parts;                /* scratch: of one chunk */
};

static dcp_status find_names(const struct resolving *resolving, const dcp_read_item *item,
                             struct read_target *target)
{
    const char *name = item->destination.name, *stored = item->stored.name;
    uint64_t wanted, entry;
    if (!name_table_find(resolving->flat_names, name, strlen(name), &wanted))
        return dcp_error_set(DCP_ERR_ARGUMENT, "the state has no such name");
    if (resolving->flat->entries[wanted].left_out)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the name is left out by the options");
    if (!name_table_find(&resolving->metadata->by_name, stored, strlen(stored), &entry))
        return dcp_error_set(DCP_ERR_MISSING_KEY, "the checkpoint has no \"%s\"", stored);
    bool wants_tensor = resolving->flat->entries[wanted].node->kind == DCP_KIND_TENSOR;
    bool is_tensor = resolving->metadata->entries[entry].is_tensor;
    if (wants_tensor != item->is_tensor || is_tensor != item->is_tensor)
        return dcp_error_set(DCP_ERR_KIND, "the item is %s, the state has %s and \"%s\" is %s",
                             item->is_tensor ? "a tensor" : "an object",
                             wants_tensor ? "a tensor" : "an object", stored,
                             is_tensor ? "a tensor" : "an object");
    target->wanted = (uint32_t)wanted;
    target->entry = (uint32_t)entry;
    return DCP_OK;
}

/* The part, in the coordinates of the tensor that the outer box is in. */
static bool part_of(struct box outer, const int64_t *way, const int64_t *lengths,
                    struct arena *arena, struct box *part)
{
    int64_t *offsets = arena_allocate_array(arena, (size_t)outer.ndim, sizeof *offsets);
    for (int32_t i = 0; offsets != NULL && i < outer.ndim; i++) {
        if (way[i] > outer.sizes[i] || lengths[i] > outer.sizes[i] - way[i])
            return false;
        offsets[i] = outer.offsets[i] + way[i];
    }
    *part = (struct box){outer.ndim, offsets, lengths};
    return true;
}

static dcp_status leaves(const char *what, struct box outer, const int64_t *way,
                         const int64_t *lengths)
{
    char part[BOX_TEXT], whole[BOX_TEXT];
    shape_format(outer.ndim, lengths, part, sizeof part);
    char begin[BOX_TEXT];
    return dcp_error_set(DCP_ERR_ARGUMENT,
                         "its box of sizes %s at offset %s is not inside the %s chunk %s", part,
                         shape_format(outer.ndim, way, begin, sizeof begin), what,
                         box_format(outer, whole, sizeof whole));
}

static dcp_status no_chunk(const char *where, const dcp_item_index *index)
{
    char text[BOX_TEXT];
    return dcp_error_set(DCP_ERR_ARGUMENT, "%s has no chunk of \"%s\" at %s", where, index->name,
                         shape_format(index->ndim, index->offsets, text, sizeof text));
}

static bool begins_at(const dcp_item_index *index, int32_t ndim, const int64_t *offsets)
{
    return index->ndim == ndim &&
           (ndim == 0 || memcmp(index->offsets, offsets, (size_t)ndim * sizeof *offsets) == 0);
}

/* A chunk without elements may begin where another one does: take the last one that has
 * elements. */
static dcp_status find_chunk(const struct state_tensor *tensor, const dcp_item_index *index,
                             uint32_t *found, struct box *box)
{
    bool any = false;
    for (size_t i = 0; i < tensor->chunk_count; i++) {
        const struct state_chunk *chunk = &tensor->chunks[i];
        struct box candidate = {tensor->ndim, chunk->offsets, chunk->sizes};
        if (!begins_at(index, tensor->ndim, chunk->offsets) || (any && box_volume(candidate) == 0))
            continue;
        *found = (uint32_t)i;
        *box = candidate;
        any = true;
    }
    return any ? DCP_OK : no_chunk("the state", index);
}

static dcp_status find_piece(const struct metadata_entry *entry, const dcp_item_index *index,
                             uint32_t *found, struct box *box)
{
    bool any = false;
    for (size_t i = 0; i < entry->piece_count; i++) {
        struct box candidate = piece_box(entry, (uint32_t)i);
        if (!begins_at(index, entry->ndim, candidate.offsets) ||
            (any && box_volume(candidate) == 0))
            continue;
        *found = (uint32_t)i;
        *box = candidate;
        any = true;
    }
    return any ? DCP_OK : no_chunk("the checkpoint", index);
}

static dcp_status find_tensor(struct resolving *resolving, const dcp_read_item *item,
                              struct read_target *target)
{
    const struct metadata_entry *entry = &resolving->metadata->entries[target->entry];
    const struct state_tensor *tensor = resolving->flat->entries[target->wanted].node->as.tensor;
    struct arena *arena = &resolving->targets->arena;
    struct box chunk = {0}, piece = {0};
    uint64_t bytes;
    RETURN_IF_ERROR(find_chunk(tensor, &item->destination, &target->chunk, &chunk));
    RETURN_IF_ERROR(find_piece(entry, &item->stored, &target->piece, &piece));
    if (!part_of(chunk, item->destination_offsets, item->lengths, arena, &target->destination))
        return leaves("wanted", chunk, item->destination_offsets, item->lengths);
    if (!part_of(piece, item->stored_offsets, item->lengths, arena, &target->stored))
        return leaves("stored", piece, item->stored_offsets, item->lengths);
    if (target->destination.offsets == NULL || target->stored.offsets == NULL)
        return error_no_memory((size_t)entry->ndim * sizeof(int64_t), "a load plan");
    if (!shape_bytes(entry->ndim, item->lengths, entry->dtype, &bytes) ||
        !checked_add_u64(resolving->targets->bytes, bytes, &resolving->targets->bytes))
        resolving->targets->bytes = UINT64_MAX;
    return DCP_OK;
}

static dcp_status find_targets(struct resolving *resolving, const struct dcp_load_plan *plan)
{
    struct read_targets *targets = resolving->targets;
    targets->targets = memory_allocate_zeroed(plan->count, sizeof *targets->targets);
    resolving->order = memory_allocate_array(plan->count, sizeof *resolving->order);
    resolving->parts = memory_allocate_array(plan->count, sizeof *resolving->parts);
    if (targets->targets == NULL || resolving->order == NULL || resolving->parts == NULL)
        return error_no_memory(plan->count * sizeof *targets->targets, "a load plan");
    targets->count = plan->count;
    for (size_t i = 0; i < plan->count; i++) {
        struct read_target *target = &targets->targets[i];
        dcp_status status = find_names(resolving, &plan->items[i], target);
        if (status == DCP_OK && plan->items[i].is_tensor)
            status = find_tensor(resolving, &plan->items[i], target);
        if (status != DCP_OK)
            return error_prefix(status, "item %zu of the load plan, \"%s\"", i,
                                plan->items[i].destination.name);
        resolving->order[i] = target;
    }
    return DCP_OK;
}

static int compare_targets(const void *left, const void *right)
{
    const struct read_target *a = *(const struct read_target *const *)left;
    const struct read_target *b = *(const struct read_target *const *)right;
    if (a->wanted != b->wanted)
        return a->wanted < b->wanted ? -1 : 1;
    if (a->chunk != b->chunk)
        return a->chunk < b->chunk ? -1 : 1;
    return a < b ? -1 : a > b;
}

/* The end of the targets of the current chunk. */
static size_t take_chunk(struct resolving *resolving, size_t *next, uint32_t wanted, uint32_t chunk)
{
    size_t count = 0;
    while (*next < resolving->targets->count && resolving->order[*next]->wanted == wanted &&
           resolving->order[*next]->chunk == chunk)
        resolving->parts[count++] = resolving->order[(*next)++]->destination;
    return count;
}

static dcp_status refuse_nothing(const char *name)
{
    return dcp_error_set(DCP_ERR_COVERAGE, "\"%s\": the load plan does not read it", name);
}

/* Checks that the parts fill the chunk, each element once. accounted: there may be no parts. */
static dcp_status check_chunk(const struct resolving *resolving, const struct flat_entry *wanted,
                              uint32_t chunk, size_t count, bool accounted)
{
    const struct state_tensor *tensor = wanted->node->as.tensor;
    struct box whole = {tensor->ndim, tensor->chunks[chunk].offsets, tensor->chunks[chunk].sizes};
    char first[BOX_TEXT], second[BOX_TEXT];
    bool found;
    size_t a, b;
    int64_t missing = box_volume(whole);
    if (missing == 0 || (count == 0 && accounted))
        return DCP_OK;
    if (count == 0)
        return refuse_nothing(wanted->name);
    RETURN_IF_ERROR(box_find_overlap(resolving->parts, count, &found, &a, &b));
    if (found)
        return dcp_error_set(DCP_ERR_OVERLAP,
                             "\"%s\": the load plan reads %s and %s, which overlap", wanted->name,
                             box_format(resolving->parts[a], first, sizeof first),
                             box_format(resolving->parts[b], second, sizeof second));
    for (size_t i = 0; i < count; i++)
        missing -= box_volume(resolving->parts[i]);
    if (missing == 0)
        return DCP_OK;
    struct box_storage hole;
    RETURN_IF_ERROR(box_find_hole(whole, resolving->parts, count, &found, &hole));
    return dcp_error_set(DCP_ERR_COVERAGE,
                         "\"%s\": the load plan does not read %s of the wanted box %s",
                         wanted->name, box_format(box_of(whole.ndim, &hole), first, sizeof first),
                         box_format(whole, second, sizeof second));
}

static dcp_status check_object(struct resolving *resolving, size_t *next, uint32_t wanted,
                               bool accounted)
{
    const char *name = resolving->flat->entries[wanted].name;
    size_t count = take_chunk(resolving, next, wanted, 0);
    if (count > 1)
        return dcp_error_set(DCP_ERR_OVERLAP,
                             "\"%s\": the load plan reads it %zu times, expected once", name,
                             count);
    return count == 1 || accounted ? DCP_OK : refuse_nothing(name);
}

static dcp_status check_all(struct resolving *resolving, const bool *accounted)
{
    size_t next = 0;
    if (resolving->targets->count > 1)
        qsort(resolving->order, resolving->targets->count, sizeof *resolving->order,
              compare_targets);
    for (uint32_t i = 0; i < resolving->flat->count; i++) {
        const struct flat_entry *wanted = &resolving->flat->entries[i];
        bool free_to_miss = accounted[i] || wanted->left_out;
        if (wanted->node->kind != DCP_KIND_TENSOR) {
            RETURN_IF_ERROR(check_object(resolving, &next, i, free_to_miss));
            continue;
        }
        for (uint32_t chunk = 0; chunk < wanted->node->as.tensor->chunk_count; chunk++) {
            size_t count = take_chunk(resolving, &next, i, chunk);
            RETURN_IF_ERROR(check_chunk(resolving, wanted, chunk, count, free_to_miss));
        }
    }
    return DCP_OK;
}

dcp_status load_plan_view_resolve(const struct dcp_load_plan *plan,
                                  const struct name_table *flat_names,
                                  const struct flat_state *flat, const struct metadata *metadata,
                                  const bool *accounted, struct read_targets *targets)
{
    struct resolving resolving = {flat_names, flat, metadata, targets, NULL, NULL};
    *targets = (struct read_targets){0};
    arena_init(&targets->arena, 0);
    dcp_status status = find_targets(&resolving, plan);
    if (status == DCP_OK)
        status = check_all(&resolving, accounted);
    memory_release(resolving.order);
    memory_release(resolving.parts);
    return status;
}

void read_targets_free(struct read_targets *targets)
{
    memory_release(targets->targets);
    arena_free(&targets->arena);
    *targets = (struct read_targets){0};
}
