/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan/share/load_share.h"

#include <stdlib.h>

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
    struct share_ranks ranks;
    uint64_t *loads; /* by rank: bytes that it alone wants */
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
        share->bytes_exchanged += bytes * (ranks - 1);
        share->objects_wanted += sharing->rules->objects ? ranks : 0;
        share->objects_distinct += sharing->rules->objects;
        if (ranks > 1 || sharing->rules->holders)
            regions->regions[kept++] = regions->regions[i];
        else
            sharing->loads[sharing->ranks.ranks[sharing->ranks.starts[set->classes[0]]]] += bytes;
    }
    regions->count = kept;
}

/* A piece with too many regions is sent as a whole to all ranks that want a part of it. */
static dcp_status share_whole(struct sharing *sharing, const struct share_claim *claims,
                              size_t count)
{
    const struct share_want *want = claims->want;
    const struct metadata_entry *entry = &sharing->metadata->entries[want->entry];
    const struct share_want whole = {want->entry, want->piece, share_piece_box(entry, want->piece)};
    size_t first = sharing->regions.count;
    bool cut_up;
    struct share_claim *all = memory_allocate_array(sharing->share->class_count, sizeof *all);
    if (all == NULL)
        return error_no_memory(sharing->share->class_count * sizeof *all, "regions of all ranks");
    size_t classes = 0;
    for (uint32_t class = 0; class < sharing->share->class_count; class ++) {
        size_t at = 0;
        while (at < count && claims[at].class != class)
            at++;
        if (at < count)
            all[classes++] = (struct share_claim){&whole, class};
    }
    dcp_status status = share_regions_add(&sharing->regions, &sharing->sets, all, classes, &cut_up);
    if (status == DCP_OK)
        keep_shared(sharing, first);
    memory_release(all);
    return status;
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

static dcp_status cut_out_regions(struct sharing *sharing)
{
    for (size_t i = 0; i < sharing->claim_count;) {
        const struct share_claim *claims = &sharing->claims[i];
        size_t count = 0, first = sharing->regions.count;
        bool cut_up;
        while (i + count < sharing->claim_count &&
               claims[count].want->entry == claims->want->entry &&
               claims[count].want->piece == claims->want->piece)
            count++;
        RETURN_IF_ERROR(
            share_regions_add(&sharing->regions, &sharing->sets, claims, count, &cut_up));
        if (!cut_up)
            keep_shared(sharing, first);
        else if (sharing->rules->holders)
            RETURN_IF_ERROR(share_whole(sharing, claims, count));
        else
            count_unshared(sharing, claims, count);
        i += count;
    }
    return DCP_OK;
}

/* Moves the regions into the result. */
static dcp_status hand_over(struct sharing *sharing)
{
    struct load_share *share = sharing->share;
    if (sharing->regions.count > UINT32_MAX || sharing->sets.count > UINT32_MAX)
        return dcp_error_set(DCP_ERR_UNSUPPORTED,
                             "there are %zu regions to share, at most 2^32 - 1 are supported",
                             sharing->regions.count);
    share->regions = sharing->regions.regions;
    share->region_count = sharing->regions.count;
    share->sets = sharing->sets.sets;
    share->set_count = sharing->sets.count;
    sharing->regions.regions = NULL;
    sharing->sets.sets = NULL;
    return load_share_assign(share, sharing->metadata, sharing->rules, &sharing->ranks,
                             sharing->loads);
}

static dcp_status prepare(struct sharing *sharing, const uint32_t *class_of)
{
    struct load_share *share = sharing->share;
    size_t count = share->rank_count;
    share->class_of = arena_copy(&share->arena, class_of, count * sizeof *class_of);
    sharing->loads = memory_allocate_zeroed(count, sizeof *sharing->loads);
    if (share->class_of == NULL || sharing->loads == NULL)
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
