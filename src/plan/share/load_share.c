/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/share/load_share.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "plan/share/load_share_assign.h"
#include "plan/share/load_share_regions.h"

struct sharing {
    const struct metadata *metadata;
    const struct share_rules *rules;
    struct load_share *share;
    struct share_claim *claims;
    size_t claim_count;
    struct share_sets sets;
    struct share_regions regions;
    struct share_regions parts; /* of striped pieces, as they are wanted */
    struct share_ranks ranks;
    uint64_t *loads; /* by rank: bytes that it alone wants */
    bool *claims_of; /* by class: whether it has a claim on the current piece */
};

static int compare_claims(const void *left, const void *right)
{
    const struct share_claim *a = left, *b = right;
    if (a->want->entry != b->want->entry)
        return a->want->entry < b->want->entry ? -1 : 1;
    if (a->want->piece != b->want->piece)
        return a->want->piece < b->want->piece ? -1 : 1;
    int order = box_compare(a->want->region, b->want->region);
    if (order != 0)
        return order;
    return a->class < b->class ? -1 : a->class > b->class;
}

static dcp_status collect_claims(struct sharing *sharing, const struct share_wants *wants)
{
    size_t count = 0;
    for (uint32_t class = 0; class < sharing->share->class_count; class ++)
        count += wants[class].count;
    sharing->claims = memory_allocate_array(count, sizeof *sharing->claims);
    if (sharing->claims == NULL)
        return error_no_memory(count * sizeof *sharing->claims, "regions of all ranks");
    for (uint32_t class = 0; class < sharing->share->class_count; class ++)
        for (size_t i = 0; i < wants[class].count; i++)
            if (sharing->metadata->entries[wants[class].wants[i].entry].is_tensor !=
                sharing->rules->objects)
                sharing->claims[sharing->claim_count++] =
                    (struct share_claim){&wants[class].wants[i], class};
    if (sharing->claim_count > 1)
        qsort(sharing->claims, sharing->claim_count, sizeof *sharing->claims, compare_claims);
    return DCP_OK;
}

static uint64_t region_bytes(const struct sharing *sharing, const struct share_region *region)
{
    const struct metadata_entry *entry = &sharing->metadata->entries[region->entry];
    return (uint64_t)box_volume(region->box) * share_element_size(entry);
}

/* Filters the regions added from `first` on: a region that only one rank wants is dropped and
 * counts as that rank's load, unless another rank holds it. */
static void keep_shared(struct sharing *sharing, size_t first)
{
    struct share_regions *regions = &sharing->regions;
    struct load_share *share = sharing->share;
    size_t kept = first;
    for (size_t i = first; i < regions->count; i++) {
        const struct share_set *set = &sharing->sets.sets[regions->regions[i].set];
        size_t ranks = share_set_ranks(&sharing->ranks, set);
        uint64_t bytes = region_bytes(sharing, &regions->regions[i]);
        share->bytes_wanted += bytes * ranks;
        share->bytes_distinct += bytes;
        share->bytes_exchanged +=
            regions->regions[i].striped ? bytes - bytes / ranks : bytes * (ranks - 1);
        share->objects_wanted += sharing->rules->objects ? ranks : 0;
        share->objects_distinct += sharing->rules->objects;
        if (ranks > 1 || sharing->rules->holders)
            regions->regions[kept++] = regions->regions[i];
        else
            sharing->loads[sharing->ranks.ranks[sharing->ranks.starts[set->classes[0]]]] += bytes;
    }
    regions->count = kept;
}

/* Has a piece assigned as if all ranks that want a part of it wanted all of it. */
static dcp_status share_whole(struct sharing *sharing, const struct share_claim *claims,
                              size_t count, bool striped)
{
    const struct share_want *want = claims->want;
    const struct metadata_entry *entry = &sharing->metadata->entries[want->entry];
    struct share_region whole = {want->entry, want->piece, 0, share_piece_box(entry, want->piece),
                                 striped};
    struct share_sets *sets = &sharing->sets;
    size_t first = sharing->regions.count, classes = 0;
    memset(sharing->claims_of, 0, sharing->share->class_count * sizeof *sharing->claims_of);
    for (size_t i = 0; i < count; i++)
        sharing->claims_of[claims[i].class] = true;
    for (uint32_t class = 0; class < sharing->share->class_count; class ++)
        if (sharing->claims_of[class])
            sets->scratch[classes++] = class;
    RETURN_IF_ERROR(share_sets_find(sets, sets->scratch, classes, &whole.set));
    RETURN_IF_ERROR(share_regions_append(&sharing->regions, whole));
    keep_shared(sharing, first);
    return DCP_OK;
}

/* A piece that cannot be shared is read by everyone. */
static void count_unshared(struct sharing *sharing, const struct share_claim *claims, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct share_want *want = claims[i].want;
        const struct metadata_entry *entry = &sharing->metadata->entries[want->entry];
        uint64_t bytes = (uint64_t)box_volume(want->region) * share_element_size(entry);
        const uint32_t *starts = sharing->ranks.starts + claims[i].class;
        for (uint32_t at = starts[0]; at < starts[1]; at++) {
            sharing->loads[sharing->ranks.ranks[at]] += bytes;
            sharing->share->bytes_wanted += bytes;
            sharing->share->bytes_distinct += bytes;
        }
    }
}

/* Whether ranks want all of a piece, but in so short runs that each would read all of it. */
static bool is_striped(const struct sharing *sharing, const struct share_region *regions,
                       size_t count)
{
    const struct metadata_entry *entry = &sharing->metadata->entries[regions->entry];
    struct box piece = share_piece_box(entry, regions->piece);
    uint64_t size = share_element_size(entry);
    int64_t wanted = 0;
    if (sharing->rules->objects ||
        (uint64_t)box_volume(piece) * size < sharing->rules->striped_size)
        return false;
    for (size_t i = 0; i < count; i++) {
        int64_t run = box_run(piece, regions[i].box), volume = box_volume(regions[i].box);
        if ((uint64_t)run * size >= sharing->rules->long_run || run == volume)
            return false;
        wanted += volume;
    }
    return wanted == box_volume(piece);
}

/* Has a piece striped whose regions were added from `first` on. */
static dcp_status share_stripes(struct sharing *sharing, const struct share_claim *claims,
                                size_t count, size_t first)
{
    struct share_regions *regions = &sharing->regions;
    size_t parts = sharing->parts.count;
    for (size_t i = first; i < regions->count; i++)
        RETURN_IF_ERROR(share_regions_append(&sharing->parts, regions->regions[i]));
    regions->count = first;
    RETURN_IF_ERROR(share_whole(sharing, claims, count, true));
    if (regions->count == first) /* only one rank wants any of it */
        sharing->parts.count = parts;
    return DCP_OK;
}

/* Shares a piece, of which there are `count` claims. */
static dcp_status share_piece(struct sharing *sharing, const struct share_claim *claims,
                              size_t count)
{
    struct share_regions *regions = &sharing->regions;
    size_t first = regions->count;
    bool cut_up;
    RETURN_IF_ERROR(share_regions_add(regions, &sharing->sets, claims, count, &cut_up));
    if (!cut_up && is_striped(sharing, regions->regions + first, regions->count - first))
        return share_stripes(sharing, claims, count, first);
    if (!cut_up)
        keep_shared(sharing, first);
    else if (sharing->rules->holders)
        return share_whole(sharing, claims, count, false);
    else
        count_unshared(sharing, claims, count);
    return DCP_OK;
}

static dcp_status cut_out_regions(struct sharing *sharing)
{
    for (size_t i = 0, count; i < sharing->claim_count; i += count) {
        const struct share_claim *claims = &sharing->claims[i];
        count = 1;
        while (i + count < sharing->claim_count &&
               claims[count].want->entry == claims->want->entry &&
               claims[count].want->piece == claims->want->piece)
            count++;
        RETURN_IF_ERROR(share_piece(sharing, claims, count));
    }
    return DCP_OK;
}

/* Moves the regions into the result. */
static dcp_status hand_over(struct sharing *sharing)
{
    struct load_share *share = sharing->share;
    size_t regions = sharing->regions.count + sharing->parts.count;
    if (regions > UINT32_MAX || sharing->sets.count > UINT32_MAX)
        return dcp_error_set(DCP_ERR_UNSUPPORTED,
                             "there are %zu regions to share, at most 2^32 - 1 are supported",
                             regions);
    share->regions = sharing->regions.regions;
    share->region_count = sharing->regions.count;
    share->sets = sharing->sets.sets;
    share->set_count = sharing->sets.count;
    sharing->regions.regions = NULL;
    sharing->sets.sets = NULL;
    RETURN_IF_ERROR(load_share_assign(share, sharing->metadata, sharing->rules, &sharing->ranks,
                                      sharing->loads));
    RETURN_IF_ERROR(load_share_stripe(share, sharing->metadata, &sharing->parts));
    RETURN_IF_ERROR(load_share_order_runs(share, sharing->metadata));
    return load_share_choose_window(share, sharing->metadata, sharing->rules);
}

static dcp_status prepare(struct sharing *sharing, const uint32_t *class_of)
{
    struct load_share *share = sharing->share;
    size_t count = share->rank_count;
    share->class_of = arena_copy(&share->arena, class_of, count * sizeof *class_of);
    sharing->loads = memory_allocate_zeroed(count, sizeof *sharing->loads);
    sharing->claims_of = memory_allocate_array(count, sizeof *sharing->claims_of);
    if (share->class_of == NULL || sharing->loads == NULL || sharing->claims_of == NULL)
        return error_no_memory(count * sizeof *sharing->loads, "regions of all ranks");
    RETURN_IF_ERROR(share_ranks_init(&sharing->ranks, share));
    return share_sets_init(&sharing->sets, share->class_count, &share->arena);
}

dcp_status load_share_make(const struct metadata *metadata, const struct share_wants *wants,
                           size_t class_count, const uint32_t *class_of, size_t rank_count,
                           const struct share_rules *rules, struct load_share *share)
{
    struct sharing sharing = {.metadata = metadata, .rules = rules, .share = share};
    *share = (struct load_share){.rank_count = (uint32_t)rank_count,
                                 .class_count = (uint32_t)class_count};
    arena_init(&share->arena, 0);
    dcp_status status = prepare(&sharing, class_of);
    if (status == DCP_OK)
        status = collect_claims(&sharing, wants);
    if (status == DCP_OK)
        status = cut_out_regions(&sharing);
    if (status == DCP_OK)
        status = hand_over(&sharing);
    share_sets_free(&sharing.sets);
    share_ranks_free(&sharing.ranks);
    memory_release(sharing.regions.regions);
    memory_release(sharing.parts.regions);
    memory_release(sharing.claims_of);
    memory_release(sharing.loads);
    memory_release(sharing.claims);
    return status;
}

bool load_share_wants(const struct load_share *share, uint32_t set, uint32_t rank)
{
    const struct share_set *of = &share->sets[set];
    size_t low = 0, high = of->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (of->classes[middle] < share->class_of[rank])
            low = middle + 1;
        else
            high = middle;
    }
    return low < of->count && of->classes[low] == share->class_of[rank];
}

void load_share_measure(struct load_share *share, const struct metadata *metadata)
{
    for (size_t i = 0; i < share->region_count; i++) {
        struct share_region *region = &share->regions[i];
        region->box = share_piece_box(&metadata->entries[region->entry], region->piece);
    }
    for (size_t i = 0; i < share->run_count; i++)
        share->runs[i].end = box_volume(share->regions[share->runs[i].region].box);
}

void load_share_free(struct load_share *share)
{
    memory_release(share->sets);
    memory_release(share->regions);
    memory_release(share->runs);
    arena_free(&share->arena);
    *share = (struct load_share){0};
}
