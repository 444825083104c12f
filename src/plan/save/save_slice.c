/* SPDX-License-Identifier: BSD-3-Clause */
/* One replicated piece, written in slices by the ranks that hold it.
 *
 * Bytes are assigned to the holders with the lowest load first, up to a common load. Each holder
 * then gets a run of consecutive elements as long as its share, cut between slices of the outermost
 * dimension that divides finely enough. A run that crosses the end of an outer row makes several
 * boxes, so cuts that come near such an end are moved there. */
#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"
#include "plan/save/save_merge.h"

enum { SLICES_FIRST = 64, UNITS_PER_SHARE = 16 };

/* How a box is divided: between units, preferably between rows. All three count elements. */
struct slicing {
    struct box box;
    uint32_t entry;
    size_t element_size;
    int64_t elements;
    int64_t unit; /* a slice of the dimension in which it is cut */
    int64_t row;  /* a slice of the dimension around that one */
};

static int compare_loads(const void *left, const void *right)
{
    const struct slice_share *a = left, *b = right;
    if (a->load != b->load)
        return a->load < b->load ? -1 : 1;
    return a->holder->rank < b->holder->rank ? -1 : a->holder->rank > b->holder->rank;
}

static int compare_ranks(const void *left, const void *right)
{
    const struct slice_share *a = left, *b = right;
    return a->holder->rank < b->holder->rank ? -1 : a->holder->rank > b->holder->rank;
}

/* Fills in the shares, by rank; returns how many holders take part. A holder takes part if its
 * share is large enough for a slice; the most loaded one's is the smallest. */
static size_t deal_shares(const struct merge *merge, const struct merge_piece *piece,
                          uint64_t bytes, struct slice_share *shares)
{
    for (uint32_t i = 0; i < piece->holder_count; i++)
        shares[i] = (struct slice_share){.holder = &piece->holders[i],
                                         .load = merge->loads[piece->holders[i].rank]};
    qsort(shares, piece->holder_count, sizeof *shares, compare_loads);
    uint64_t below = 0; /* bytes that raise all previous holders to the load of the last one */
    size_t count = 1;
    while (count < piece->holder_count) {
        uint64_t step = shares[count].load - shares[count - 1].load;
        if (step > bytes / count)
            break;
        uint64_t lift = below + step * count;
        if (lift > bytes || bytes - lift < (count + 1) * (uint64_t)SAVE_SLICE_MIN)
            break;
        below = lift;
        count++;
    }
    uint64_t level = shares[count - 1].load + (bytes - below) / count;
    for (size_t i = 0; i < count; i++)
        shares[i].bytes = level - shares[i].load;
    qsort(shares, count, sizeof *shares, compare_ranks);
    return count;
}

static struct slicing slicing_of(const struct merge *merge, const struct merge_piece *piece)
{
    struct slicing slicing = {
        .box = merge_box(merge, piece),
        .entry = piece->entry,
        .element_size = dcp_dtype_size(merge->entries[piece->entry].joint->dtype),
    };
    slicing.elements = box_volume(slicing.box);
    slicing.unit = slicing.row = slicing.elements;
    return slicing;
}

/* Chooses units small enough to cut shares evenly, but not smaller than is useful. */
static void refine_units(struct slicing *slicing, size_t shares)
{
    int64_t fine = slicing->elements / (int64_t)shares / UNITS_PER_SHARE;
    int64_t least = SAVE_SLICE_MIN / (int64_t)slicing->element_size;
    for (int32_t dim = 0; dim < slicing->box.ndim && slicing->unit > least && slicing->unit > fine;
         dim++) {
        slicing->row = slicing->unit;
        slicing->unit /= slicing->box.sizes[dim];
    }
}

/* The element before which to cut, so that about so many bytes come before. */
static int64_t place_cut(const struct slicing *slicing, uint64_t bytes)
{
    int64_t cut = (int64_t)(bytes / slicing->element_size);
    int64_t past = cut % slicing->unit;
    cut += past < slicing->unit - past ? -past : slicing->unit - past;
    int64_t near = SAVE_SLICE_MIN / (int64_t)slicing->element_size;
    past = cut % slicing->row;
    if (past < near)
        return cut - past;
    return slicing->row - past < near ? cut + (slicing->row - past) : cut;
}

static struct merge_piece *add_slice(struct merge *merge)
{
    if (merge->slice_count == merge->slice_capacity) {
        size_t capacity = merge->slice_capacity != 0 ? merge->slice_capacity * 2 : SLICES_FIRST;
        struct merge_piece *slices =
            memory_reallocate_array(merge->slices, capacity, sizeof *slices);
        if (slices == NULL)
            return NULL;
        merge->slices = slices;
        merge->slice_capacity = capacity;
    }
    return &merge->slices[merge->slice_count++];
}

/* The elements from start to end, as boxes that one rank writes. */
static dcp_status add_run(struct merge *merge, const struct slicing *slicing,
                          const struct held_item *writer, int64_t start, int64_t end)
{
    struct box box = slicing->box;
    size_t ndim = (size_t)box.ndim;
    while (start < end) {
        struct merge_piece *slice = add_slice(merge);
        int64_t *numbers = arena_allocate_array(&merge->metadata->arena, 2 * ndim, sizeof *numbers);
        if (slice == NULL || numbers == NULL)
            return error_no_memory(sizeof *slice, "slices of replicas");
        start += shape_next_box(box.ndim, box.sizes, start, end, numbers, numbers + ndim);
        for (size_t i = 0; i < ndim; i++)
            numbers[i] += box.offsets[i];
        *slice = (struct merge_piece){.offsets = numbers,
                                      .sizes = numbers + ndim,
                                      .holders = writer,
                                      .holder_count = 1,
                                      .entry = slicing->entry,
                                      .is_part = true};
        RETURN_IF_ERROR(merge_stream_layout(merge, slice));
        merge->loads[writer->rank] += slice->length;
    }
    return DCP_OK;
}

dcp_status merge_slice(struct merge *merge, struct merge_piece *piece, struct slice_share *shares)
{
    struct slicing slicing = slicing_of(merge, piece);
    uint64_t bytes = (uint64_t)slicing.elements * slicing.element_size;
    size_t count = deal_shares(merge, piece, bytes, shares);
    if (count == 1) {
        piece->holders = shares[0].holder;
        piece->holder_count = 1;
        merge->loads[piece->holders->rank] += piece->length;
        return DCP_OK;
    }
    refine_units(&slicing, count);
    piece->first_slice = merge->slice_count;
    uint64_t dealt = 0;
    int64_t start = 0;
    for (size_t i = 0; i < count; i++) {
        dealt += shares[i].bytes;
        int64_t end = i + 1 < count ? place_cut(&slicing, dealt) : slicing.elements;
        RETURN_IF_ERROR(add_run(merge, &slicing, shares[i].holder, start, end));
        start = end;
    }
    piece->slice_count = (uint32_t)(merge->slice_count - piece->first_slice);
    return DCP_OK;
}
