/* SPDX-License-Identifier: BSD-3-Clause */
/* Assigns regions to readers: the largest first, each to the least loaded rank that wants it. A
 * large region is spread over several of these ranks, the least loaded first, so that their loads
 * become equal; each reads a run of its elements. Small ones in the same lot of a file go to one
 * rank: it reads them at once. */
#include "plan/share/load_share_assign.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"

enum { RUNS_FIRST = 64 };

/* The smallest part, and a lot, is this fraction of what each rank has to read, as every part costs
 * additional reads. Loads may differ by that much. */
enum { PARTS_OF_SHARE = 16 };

struct assignment {
    struct load_share *share;
    const struct metadata *metadata;
    const struct share_rules *rules;
    const struct share_ranks *ranks;
    uint64_t *loads;
    uint64_t cut_size;    /* smallest part, in bytes */
    uint32_t *order;      /* the regions, the largest first */
    struct taker *takers; /* of the current region */
    struct share_runs runs;
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
                                             const struct share_region *region)
{
    return &metadata->entries[region->entry].pieces[region->piece];
}

static uint64_t element_size(const struct assignment *assignment, const struct share_region *region)
{
    return share_element_size(&assignment->metadata->entries[region->entry]);
}

static uint64_t bytes_of(const struct assignment *assignment, const struct share_region *region)
{
    return (uint64_t)box_volume(region->box) * element_size(assignment, region);
}

uint64_t share_lot_of(const struct load_share *share, const struct metadata *metadata,
                      const struct share_region *region)
{
    const struct metadata_entry *entry = &metadata->entries[region->entry];
    const struct metadata_piece *piece = piece_of(metadata, region);
    if (share->lot == 0 || !metadata_is_in_stream(piece) || piece->length >= SHARE_LOT_PIECE)
        return SHARE_NO_LOT;
    uint64_t elements = (uint64_t)box_volume(share_piece_box(entry, region->piece));
    bool small = elements < SHARE_LOT_PIECE / share_element_size(entry);
    return small ? piece->offset / share->lot : SHARE_NO_LOT;
}

static int compare_numbers(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

/* By lots: those of one set and file. */
static int compare_lots(const struct assignment *assignment, const struct share_region *a,
                        const struct share_region *b)
{
    const struct load_share *share = assignment->share;
    const struct metadata *metadata = assignment->metadata;
    if (a->set != b->set)
        return a->set < b->set ? -1 : 1;
    int order = compare_numbers(piece_of(metadata, a)->file, piece_of(metadata, b)->file);
    return order != 0 ? order
                      : compare_numbers(share_lot_of(share, metadata, a),
                                        share_lot_of(share, metadata, b));
}

/* Those in lots come last. */
static int compare_regions(const void *left, const void *right, void *context)
{
    const struct assignment *assignment = context;
    const struct load_share *share = assignment->share;
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    const struct share_region *x = &share->regions[a], *y = &share->regions[b];
    bool lot = share_lot_of(share, assignment->metadata, x) != SHARE_NO_LOT;
    if (lot != (share_lot_of(share, assignment->metadata, y) != SHARE_NO_LOT))
        return lot ? 1 : -1;
    int order = lot ? compare_lots(assignment, x, y)
                    : compare_numbers(bytes_of(assignment, y), bytes_of(assignment, x));
    return order != 0 ? order : compare_numbers(a, b);
}

static int compare_takers(const void *left, const void *right)
{
    const struct taker *a = left, *b = right;
    if (a->load != b->load)
        return a->load < b->load ? -1 : 1;
    return a->rank < b->rank ? -1 : a->rank > b->rank;
}

dcp_status share_runs_append(struct share_runs *runs, struct share_run run)
{
    if (runs->count == runs->capacity) {
        size_t capacity = runs->capacity != 0 ? 2 * runs->capacity : RUNS_FIRST;
        void *grown = memory_reallocate_array(runs->runs, capacity, sizeof *runs->runs);
        if (grown == NULL)
            return error_no_memory(capacity * sizeof *runs->runs, "regions to read for others");
        runs->runs = grown;
        runs->capacity = capacity;
    }
    runs->runs[runs->count++] = run;
    return DCP_OK;
}

void share_runs_hand_over(struct share_runs *runs, struct load_share *share)
{
    memory_release(share->runs);
    share->runs = runs->runs;
    share->run_count = runs->count;
    *runs = (struct share_runs){0};
}

static size_t list_takers(const struct assignment *assignment, const struct share_region *region)
{
    const struct share_set *set = &assignment->share->sets[region->set];
    size_t count = 0;
    for (size_t i = 0; i < set->count; i++)
        for (uint32_t at = assignment->ranks->starts[set->classes[i]];
             at < assignment->ranks->starts[set->classes[i] + 1]; at++) {
            uint32_t rank = assignment->ranks->ranks[at];
            assignment->takers[count++] = (struct taker){assignment->loads[rank], rank};
        }
    return count;
}

/* Gives regions to one rank. */
static dcp_status give_whole(struct assignment *assignment, const uint32_t *regions, size_t count,
                             size_t taker_count)
{
    const struct taker *least = assignment->takers;
    for (size_t i = 1; i < taker_count; i++)
        if (compare_takers(&assignment->takers[i], least) < 0)
            least = &assignment->takers[i];
    for (size_t i = 0; i < count; i++) {
        const struct share_region *of = &assignment->share->regions[regions[i]];
        assignment->loads[least->rank] += bytes_of(assignment, of);
        RETURN_IF_ERROR(
            share_runs_append(&assignment->runs,
                              (struct share_run){regions[i], least->rank, 0, box_volume(of->box)}));
    }
    return DCP_OK;
}

/* How many regions from one on, of `left`, are in its lot. */
static size_t count_lot(const struct assignment *assignment, const uint32_t *order, size_t left)
{
    const struct load_share *share = assignment->share;
    const struct share_region *first = &share->regions[order[0]];
    size_t count = 1;
    if (share_lot_of(share, assignment->metadata, first) == SHARE_NO_LOT)
        return 1;
    while (count < left && compare_lots(assignment, first, &share->regions[order[count]]) == 0)
        count++;
    return count;
}

static dcp_status give_to_holder(struct assignment *assignment, uint32_t region)
{
    const struct share_region *of = &assignment->share->regions[region];
    uint32_t holder = assignment->rules->holders[piece_of(assignment->metadata, of)->file];
    if (holder >= assignment->share->rank_count)
        return dcp_error_set(DCP_ERR_GROUP, "%s is held by rank %" PRIu32,
                             assignment->metadata->entries[of->entry].name, holder);
    return share_runs_append(&assignment->runs,
                             (struct share_run){region, holder, 0, box_volume(of->box)});
}

/* How many of the takers, the least loaded first, take part, and up to which level. */
static size_t find_level(const struct assignment *assignment, size_t taker_count, uint64_t bytes,
                         uint64_t *level)
{
    uint64_t sum = assignment->takers[0].load;
    size_t count = 1;
    while (count < taker_count) {
        uint64_t load = assignment->takers[count].load;
        if ((sum + load + bytes) / (count + 1) < load + assignment->cut_size)
            break;
        sum += load;
        count++;
    }
    *level = (sum + bytes) / count;
    return count;
}

static dcp_status spread(struct assignment *assignment, uint32_t region, size_t taker_count)
{
    const struct share_region *of = &assignment->share->regions[region];
    uint64_t level, assigned = 0;
    int64_t from = 0, volume = box_volume(of->box);
    qsort(assignment->takers, taker_count, sizeof *assignment->takers, compare_takers);
    size_t count = find_level(assignment, taker_count, bytes_of(assignment, of), &level);
    for (size_t i = 0; i < count && from < volume; i++) {
        const struct taker *taker = &assignment->takers[i];
        assigned += level - taker->load;
        int64_t end =
            i + 1 == count ? volume : share_choose_cut(assignment->metadata, of, assigned);
        if (end <= from)
            continue;
        assignment->loads[taker->rank] += (uint64_t)(end - from) * element_size(assignment, of);
        RETURN_IF_ERROR(share_runs_append(&assignment->runs,
                                          (struct share_run){region, taker->rank, from, end}));
        from = end;
    }
    return DCP_OK;
}

static dcp_status assign_regions(struct assignment *assignment)
{
    struct load_share *share = assignment->share;
    uint64_t total = 0;
    for (size_t i = 0; i < share->region_count; i++) {
        assignment->order[i] = (uint32_t)i;
        total += bytes_of(assignment, &share->regions[i]);
    }
    assignment->cut_size = total / share->rank_count / PARTS_OF_SHARE;
    share->lot = assignment->rules->lot < assignment->cut_size ? assignment->rules->lot
                                                               : assignment->cut_size;
    if (assignment->cut_size < assignment->rules->cut_size)
        assignment->cut_size = assignment->rules->cut_size;
    if (share->region_count > 1)
        qsort_r(assignment->order, share->region_count, sizeof *assignment->order, compare_regions,
                assignment);
    for (size_t i = 0, count; i < share->region_count; i += count) {
        uint32_t region = assignment->order[i];
        const struct share_region *of = &share->regions[region];
        count = 1;
        if (assignment->rules->holders) {
            RETURN_IF_ERROR(give_to_holder(assignment, region));
            continue;
        }
        size_t takers = list_takers(assignment, of);
        bool cut = bytes_of(assignment, of) >= 2 * assignment->cut_size &&
                   share_can_be_cut(assignment->metadata, assignment->rules, of);
        if (!cut)
            count = count_lot(assignment, &assignment->order[i], share->region_count - i);
        RETURN_IF_ERROR(cut ? spread(assignment, region, takers)
                            : give_whole(assignment, &assignment->order[i], count, takers));
    }
    return DCP_OK;
}

/* How far the first class of a run's set is from that of its reader: each reader begins with its
 * own, so that not all of them send to the same ranks. */
static uint32_t distance_of(const struct load_share *share, const struct share_run *run)
{
    uint32_t first = share->sets[share->regions[run->region].set].classes[0];
    uint32_t own = share->class_of[run->reader];
    return first >= own ? first - own : first + share->class_count - own;
}

/* Of a striped piece. */
static int compare_in_piece(const struct assignment *assignment, const struct share_run *a,
                            const struct share_run *b)
{
    const struct load_share *share = assignment->share;
    const struct metadata *metadata = assignment->metadata;
    int64_t x = share_stripe_of(metadata, &share->regions[a->region], a->from).index;
    int64_t y = share_stripe_of(metadata, &share->regions[b->region], b->from).index;
    if (x != y)
        return x < y ? -1 : 1;
    uint32_t p = distance_of(share, a), q = distance_of(share, b);
    if (p != q)
        return p < q ? -1 : 1;
    if (a->region != b->region)
        return a->region < b->region ? -1 : 1;
    return a->from < b->from ? -1 : a->from > b->from;
}

/* Of striped pieces of a file: what is in one lot by who gets it. */
static int compare_striped(const struct assignment *assignment, const struct share_run *a,
                           const struct share_run *b)
{
    const struct load_share *share = assignment->share;
    const struct metadata *metadata = assignment->metadata;
    const struct share_region *x = &share->regions[a->region], *y = &share->regions[b->region];
    const struct metadata_piece *p = piece_of(metadata, x), *q = piece_of(metadata, y);
    uint64_t unit = share->lot > 0 ? share->lot : 1;
    bool small = share_lot_of(share, metadata, x) != SHARE_NO_LOT;
    int order = compare_numbers(p->offset / unit, q->offset / unit);
    if (order == 0 && small != (share_lot_of(share, metadata, y) != SHARE_NO_LOT))
        return small ? -1 : 1;
    if (order == 0 && small)
        order = compare_numbers(distance_of(share, a), distance_of(share, b));
    if (order == 0 && small)
        order = compare_numbers(x->set, y->set);
    if (order == 0)
        order = compare_numbers(p->offset, q->offset);
    return order == 0 && p == q ? compare_in_piece(assignment, a, b) : order;
}

static int compare_runs(const void *left, const void *right, void *context)
{
    const struct assignment *assignment = context;
    const struct share_run *a = left, *b = right;
    const struct share_region *x = &assignment->share->regions[a->region];
    const struct share_region *y = &assignment->share->regions[b->region];
    const struct metadata_piece *p = piece_of(assignment->metadata, x);
    const struct metadata_piece *q = piece_of(assignment->metadata, y);
    if (x->striped != y->striped)
        return x->striped ? 1 : -1;
    if (!x->striped && x->set != y->set)
        return x->set < y->set ? -1 : 1;
    if (p->file != q->file)
        return p->file < q->file ? -1 : 1;
    int order =
        x->striped ? compare_striped(assignment, a, b) : compare_numbers(p->offset, q->offset);
    if (order != 0)
        return order;
    if (a->region != b->region)
        return a->region < b->region ? -1 : 1;
    return a->from < b->from ? -1 : a->from > b->from;
}

dcp_status load_share_order_runs(struct load_share *share, const struct metadata *metadata)
{
    struct assignment assignment = {.share = share, .metadata = metadata};
    if (share->run_count >= UINT32_MAX)
        return dcp_error_set(DCP_ERR_UNSUPPORTED,
                             "there are %zu regions to share, at most 2^32 - 2 are supported",
                             share->run_count);
    uint32_t end = (uint32_t)share->run_count;
    share->next = arena_allocate_array(&share->arena, end, sizeof *share->next);
    share->first = arena_allocate_array(&share->arena, share->rank_count, sizeof *share->first);
    if (share->next == NULL || share->first == NULL)
        return error_no_memory(end * sizeof *share->next, "regions to read for others");
    if (end > 1)
        qsort_r(share->runs, end, sizeof *share->runs, compare_runs, &assignment);
    for (uint32_t rank = 0; rank < share->rank_count; rank++)
        share->first[rank] = end;
    for (uint32_t at = end; at-- > 0;) {
        share->next[at] = share->first[share->runs[at].reader];
        share->first[share->runs[at].reader] = at;
    }
    return DCP_OK;
}

dcp_status load_share_assign(struct load_share *share, const struct metadata *metadata,
                             const struct share_rules *rules, const struct share_ranks *ranks,
                             uint64_t *loads)
{
    struct assignment assignment = {
        .share = share, .metadata = metadata, .rules = rules, .ranks = ranks, .loads = loads};
    assignment.order = memory_allocate_array(share->region_count, sizeof *assignment.order);
    assignment.takers = memory_allocate_array(share->rank_count, sizeof *assignment.takers);
    dcp_status status = DCP_OK;
    if (assignment.order == NULL || assignment.takers == NULL)
        status =
            error_no_memory(share->region_count * sizeof *assignment.order, "readers of regions");
    if (status == DCP_OK)
        status = assign_regions(&assignment);
    share_runs_hand_over(&assignment.runs, share);
    memory_release(assignment.takers);
    memory_release(assignment.order);
    return status;
}
