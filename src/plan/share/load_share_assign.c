/* SPDX-License-Identifier: BSD-3-Clause */
/* Who reads what: the largest regions first, each to the least loaded of those who want it. One
 * that is large enough is poured over them like water over steps, so that the lowest loads rise
 * first, to one common level, and each reads a run of its elements. */
#include "plan/share/load_share_deal.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"

enum { RUNS_FIRST = 64 };

/* No part is smaller than one of so many of what each rank has to read, as each costs some reads
 * besides; by that much loads may differ. */
enum { PARTS_OF_SHARE = 16 };

struct dealing {
    struct load_share *share;
    const struct metadata *metadata;
    const struct share_rules *rules;
    const struct share_ranks *ranks;
    uint64_t *loads;
    uint64_t cut_size;    /* bytes of the smallest part that is worth it */
    uint32_t *order;      /* the atoms, the largest first */
    struct taker *takers; /* of the atom at hand */
    size_t run_capacity;
};

struct taker {
    uint64_t load;
    uint32_t rank;
};

dcp_status share_ranks_init(struct share_ranks *ranks, const struct load_share *share)
{
    *ranks = (struct share_ranks){0};
    ranks->starts = memory_allocate_zeroed((size_t)share->class_count + 2, sizeof *ranks->starts);
    ranks->ranks = memory_allocate_array(share->rank_count, sizeof *ranks->ranks);
    if (ranks->starts == NULL || ranks->ranks == NULL)
        return error_no_memory(share->rank_count * sizeof *ranks->ranks, "ranks by class");
    for (uint32_t rank = 0; rank < share->rank_count; rank++)
        ranks->starts[share->class_of[rank] + 2]++;
    for (uint32_t class = 0; class < share->class_count; class ++)
        ranks->starts[class + 2] += ranks->starts[class + 1];
    for (uint32_t rank = 0; rank < share->rank_count; rank++)
        ranks->ranks[ranks->starts[share->class_of[rank] + 1]++] = rank;
    return DCP_OK;
}

void share_ranks_free(struct share_ranks *ranks)
{
    memory_release(ranks->starts);
    memory_release(ranks->ranks);
}

size_t share_set_ranks(const struct share_ranks *ranks, const struct share_set *set)
{
    size_t count = 0;
    for (size_t i = 0; i < set->count; i++)
        count += ranks->starts[set->classes[i] + 1] - ranks->starts[set->classes[i]];
    return count;
}

static const struct metadata_piece *piece_of(const struct metadata *metadata,
                                             const struct share_atom *atom)
{
    return &metadata->entries[atom->entry].pieces[atom->piece];
}

static uint64_t element_size(const struct dealing *dealing, const struct share_atom *atom)
{
    return share_element_size(&dealing->metadata->entries[atom->entry]);
}

static uint64_t bytes_of(const struct dealing *dealing, const struct share_atom *atom)
{
    return (uint64_t)box_volume(atom->region) * element_size(dealing, atom);
}

static int compare_by_size(const void *left, const void *right, void *context)
{
    const struct dealing *dealing = context;
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    uint64_t size_a = bytes_of(dealing, &dealing->share->atoms[a]);
    uint64_t size_b = bytes_of(dealing, &dealing->share->atoms[b]);
    if (size_a != size_b)
        return size_a > size_b ? -1 : 1;
    return a < b ? -1 : a > b;
}

static int compare_takers(const void *left, const void *right)
{
    const struct taker *a = left, *b = right;
    if (a->load != b->load)
        return a->load < b->load ? -1 : 1;
    return a->rank < b->rank ? -1 : a->rank > b->rank;
}

static dcp_status add_run(struct dealing *dealing, struct share_run run)
{
    struct load_share *share = dealing->share;
    if (share->run_count == dealing->run_capacity) {
        size_t capacity = dealing->run_capacity != 0 ? 2 * dealing->run_capacity : RUNS_FIRST;
        void *grown = memory_reallocate_array(share->runs, capacity, sizeof *share->runs);
        if (grown == NULL)
            return error_no_memory(capacity * sizeof *share->runs, "what is read for others");
        share->runs = grown;
        dealing->run_capacity = capacity;
    }
    share->runs[share->run_count++] = run;
    return DCP_OK;
}

static size_t list_takers(const struct dealing *dealing, const struct share_atom *atom)
{
    const struct share_set *set = &dealing->share->sets[atom->set];
    size_t count = 0;
    for (size_t i = 0; i < set->count; i++)
        for (uint32_t at = dealing->ranks->starts[set->classes[i]];
             at < dealing->ranks->starts[set->classes[i] + 1]; at++) {
            uint32_t rank = dealing->ranks->ranks[at];
            dealing->takers[count++] = (struct taker){dealing->loads[rank], rank};
        }
    return count;
}

static dcp_status give_whole(struct dealing *dealing, uint32_t atom, size_t taker_count)
{
    const struct share_atom *of = &dealing->share->atoms[atom];
    const struct taker *least = dealing->takers;
    for (size_t i = 1; i < taker_count; i++)
        if (compare_takers(&dealing->takers[i], least) < 0)
            least = &dealing->takers[i];
    dealing->loads[least->rank] += bytes_of(dealing, of);
    return add_run(dealing, (struct share_run){atom, least->rank, 0, box_volume(of->region)});
}

static dcp_status give_to_holder(struct dealing *dealing, uint32_t atom)
{
    const struct share_atom *of = &dealing->share->atoms[atom];
    uint32_t holder = dealing->rules->holders[piece_of(dealing->metadata, of)->file];
    if (holder >= dealing->share->rank_count)
        return dcp_error_set(DCP_ERR_GROUP, "%s is held by rank %" PRIu32,
                             dealing->metadata->entries[of->entry].name, holder);
    return add_run(dealing, (struct share_run){atom, holder, 0, box_volume(of->region)});
}

/* How many of the takers, the least loaded first, take part, and up to which level. */
static size_t find_level(const struct dealing *dealing, size_t taker_count, uint64_t bytes,
                         uint64_t *level)
{
    uint64_t sum = dealing->takers[0].load;
    size_t count = 1;
    while (count < taker_count) {
        uint64_t load = dealing->takers[count].load;
        if ((sum + load + bytes) / (count + 1) < load + dealing->cut_size)
            break;
        sum += load;
        count++;
    }
    *level = (sum + bytes) / count;
    return count;
}

static dcp_status pour(struct dealing *dealing, uint32_t atom, size_t taker_count)
{
    const struct share_atom *of = &dealing->share->atoms[atom];
    uint64_t level, poured = 0;
    int64_t from = 0, volume = box_volume(of->region);
    qsort(dealing->takers, taker_count, sizeof *dealing->takers, compare_takers);
    size_t count = find_level(dealing, taker_count, bytes_of(dealing, of), &level);
    for (size_t i = 0; i < count && from < volume; i++) {
        const struct taker *taker = &dealing->takers[i];
        poured += level - taker->load;
        int64_t end = i + 1 == count ? volume : share_choose_cut(dealing->metadata, of, poured);
        if (end <= from)
            continue;
        dealing->loads[taker->rank] += (uint64_t)(end - from) * element_size(dealing, of);
        RETURN_IF_ERROR(add_run(dealing, (struct share_run){atom, taker->rank, from, end}));
        from = end;
    }
    return DCP_OK;
}

static dcp_status deal_atoms(struct dealing *dealing)
{
    struct load_share *share = dealing->share;
    uint64_t total = 0;
    for (size_t i = 0; i < share->atom_count; i++) {
        dealing->order[i] = (uint32_t)i;
        total += bytes_of(dealing, &share->atoms[i]);
    }
    dealing->cut_size = total / share->rank_count / PARTS_OF_SHARE;
    if (dealing->cut_size < dealing->rules->cut_size)
        dealing->cut_size = dealing->rules->cut_size;
    if (share->atom_count > 1)
        qsort_r(dealing->order, share->atom_count, sizeof *dealing->order, compare_by_size,
                dealing);
    for (size_t i = 0; i < share->atom_count; i++) {
        uint32_t atom = dealing->order[i];
        const struct share_atom *of = &share->atoms[atom];
        if (dealing->rules->holders) {
            RETURN_IF_ERROR(give_to_holder(dealing, atom));
            continue;
        }
        size_t takers = list_takers(dealing, of);
        bool cut = bytes_of(dealing, of) >= 2 * dealing->cut_size &&
                   share_can_be_cut(dealing->metadata, dealing->rules, of);
        RETURN_IF_ERROR(cut ? pour(dealing, atom, takers) : give_whole(dealing, atom, takers));
    }
    return DCP_OK;
}

static int compare_runs(const void *left, const void *right, void *context)
{
    const struct dealing *dealing = context;
    const struct share_run *a = left, *b = right;
    const struct share_atom *x = &dealing->share->atoms[a->atom];
    const struct share_atom *y = &dealing->share->atoms[b->atom];
    const struct metadata_piece *p = piece_of(dealing->metadata, x);
    const struct metadata_piece *q = piece_of(dealing->metadata, y);
    if (x->set != y->set)
        return x->set < y->set ? -1 : 1;
    if (p->file != q->file)
        return p->file < q->file ? -1 : 1;
    if (p->offset != q->offset)
        return p->offset < q->offset ? -1 : 1;
    if (a->atom != b->atom)
        return a->atom < b->atom ? -1 : 1;
    return a->from < b->from ? -1 : a->from > b->from;
}

dcp_status load_share_order_runs(struct load_share *share, const struct metadata *metadata)
{
    struct dealing dealing = {.share = share, .metadata = metadata};
    if (share->run_count >= UINT32_MAX)
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "%zu regions to share", share->run_count);
    uint32_t end = (uint32_t)share->run_count;
    share->next = arena_allocate_array(&share->arena, end, sizeof *share->next);
    share->first = arena_allocate_array(&share->arena, share->rank_count, sizeof *share->first);
    if (share->next == NULL || share->first == NULL)
        return error_no_memory(end * sizeof *share->next, "what is read for others");
    if (end > 1)
        qsort_r(share->runs, end, sizeof *share->runs, compare_runs, &dealing);
    for (uint32_t rank = 0; rank < share->rank_count; rank++)
        share->first[rank] = end;
    for (uint32_t at = end; at-- > 0;) {
        share->next[at] = share->first[share->runs[at].reader];
        share->first[share->runs[at].reader] = at;
    }
    return DCP_OK;
}

dcp_status load_share_deal(struct load_share *share, const struct metadata *metadata,
                           const struct share_rules *rules, const struct share_ranks *ranks,
                           uint64_t *loads)
{
    struct dealing dealing = {
        .share = share, .metadata = metadata, .rules = rules, .ranks = ranks, .loads = loads};
    dealing.order = memory_allocate_array(share->atom_count, sizeof *dealing.order);
    dealing.takers = memory_allocate_array(share->rank_count, sizeof *dealing.takers);
    dcp_status status = DCP_OK;
    if (dealing.order == NULL || dealing.takers == NULL)
        status = error_no_memory(share->atom_count * sizeof *dealing.order, "who reads what");
    if (status == DCP_OK)
        status = deal_atoms(&dealing);
    if (status == DCP_OK)
        status = load_share_order_runs(share, metadata);
    if (status == DCP_OK)
        status = load_share_choose_window(share, metadata, rules);
    memory_release(dealing.takers);
    memory_release(dealing.order);
    return status;
}
