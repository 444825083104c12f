/* SPDX-License-Identifier: BSD-3-Clause */
/* One replicated piece, written in slices by the ranks that hold it.
 *
 * The bytes are poured over the holders like water over steps: those with the lowest load rise
 * first, to one common level. Each then gets a run of consecutive rows as long as its share. Rows
 * are those of the outermost dimension that divides finely enough; a run that crosses the end of an
 * outer row makes several boxes, so cuts that come near such an end are moved there. */
#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"
#include "plan/save_merge.h"

enum { SLICES_FIRST = 64, ROWS_PER_SHARE = 16 };

/* How a box is divided: into units, which are the rows of dimension dim. */
struct slicing {
    struct box box;
    uint32_t entry;
    int32_t dim;
    int64_t unit_bytes;
    int64_t units;
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

/* Fills in the shares, by rank; returns how many holders take part. A holder does so if its share
 * is worth a slice; the most loaded one's is the smallest. */
static size_t deal_shares(const struct merge *merge, const struct merge_piece *piece,
                          uint64_t bytes, struct slice_share *shares)
{
    for (uint32_t i = 0; i < piece->holder_count; i++)
        shares[i] = (struct slice_share){.holder = &piece->holders[i],
                                         .load = merge->loads[piece->holders[i].rank]};
    qsort(shares, piece->holder_count, sizeof *shares, compare_loads);
    uint64_t below = 0; /* bytes that lift all before to the load of the last one */
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

static struct slicing choose_units(struct box box, uint32_t entry, uint64_t bytes, size_t shares)
{
    struct slicing slicing = {
        .box = box, .entry = entry, .dim = -1, .unit_bytes = (int64_t)bytes, .units = 1};
    uint64_t fine = bytes / shares / ROWS_PER_SHARE;
    if (fine < SAVE_SLICE_MIN)
        fine = SAVE_SLICE_MIN;
    while ((uint64_t)slicing.unit_bytes > fine && slicing.dim + 1 < box.ndim) {
        slicing.dim++;
        slicing.unit_bytes /= box.sizes[slicing.dim];
        slicing.units *= box.sizes[slicing.dim];
    }
    return slicing;
}

/* The cut after so many bytes, in units. */
static int64_t place_cut(const struct slicing *slicing, uint64_t bytes)
{
    int64_t cut = (int64_t)(bytes / (uint64_t)slicing->unit_bytes);
    if (bytes % (uint64_t)slicing->unit_bytes >= ((uint64_t)slicing->unit_bytes + 1) / 2)
        cut++;
    if (cut > slicing->units)
        cut = slicing->units;
    int64_t row = slicing->box.sizes[slicing->dim];
    int64_t near = SAVE_SLICE_MIN / slicing->unit_bytes;
    int64_t past = cut % row;
    if (past <= row / 2)
        return past < near ? cut - past : cut;
    return row - past < near ? cut + (row - past) : cut;
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

/* The largest box that begins at unit start and ends at unit end or before: whole rows of the
 * outermost dimension possible. Returns the units in it. */
static int64_t carve(const struct slicing *slicing, int64_t start, int64_t end, int64_t *offsets,
                     int64_t *sizes)
{
    struct box box = slicing->box;
    int64_t rest = start;
    int64_t units = slicing->units; /* in one row of the dimension before */
    int32_t dim = -1;
    int64_t taken = 0;
    for (int32_t i = 0; i < box.ndim; i++) {
        offsets[i] = box.offsets[i];
        sizes[i] = box.sizes[i];
        if (dim >= 0 || i > slicing->dim)
            continue;
        units /= box.sizes[i];
        int64_t index = rest / units;
        rest %= units;
        offsets[i] += index;
        sizes[i] = 1;
        if (rest != 0 || end - start < units)
            continue;
        dim = i;
        sizes[i] = (end - start) / units;
        if (sizes[i] > box.sizes[i] - index)
            sizes[i] = box.sizes[i] - index;
        taken = sizes[i] * units;
    }
    return taken;
}

/* The units from start to end, as boxes that one rank writes. */
static dcp_status add_run(struct merge *merge, const struct slicing *slicing,
                          const struct held_item *writer, int64_t start, int64_t end)
{
    size_t ndim = (size_t)slicing->box.ndim;
    while (start < end) {
        struct merge_piece *slice = add_slice(merge);
        int64_t *numbers = arena_allocate_array(&merge->arena, 2 * ndim, sizeof *numbers);
        if (slice == NULL || numbers == NULL)
            return error_no_memory(sizeof *slice, "slices of replicas");
        start += carve(slicing, start, end, numbers, numbers + ndim);
        *slice = (struct merge_piece){.offsets = numbers,
                                      .sizes = numbers + ndim,
                                      .holders = writer,
                                      .holder_count = 1,
                                      .entry = slicing->entry,
                                      .is_slice = true};
        RETURN_IF_ERROR(merge_stream_layout(merge, slice));
        merge->loads[writer->rank] += slice->length;
    }
    return DCP_OK;
}

dcp_status merge_slice(struct merge *merge, struct merge_piece *piece, struct slice_share *shares)
{
    struct box box = merge_box(merge, piece);
    dcp_dtype dtype = merge->entries[piece->entry].item->dtype;
    uint64_t bytes = (uint64_t)box_volume(box) * dcp_dtype_size(dtype);
    size_t count = deal_shares(merge, piece, bytes, shares);
    struct slicing slicing = choose_units(box, piece->entry, bytes, count);
    if (count == 1 || slicing.dim < 0) {
        piece->holders = shares[0].holder;
        piece->holder_count = 1;
        merge->loads[piece->holders->rank] += piece->length;
        return DCP_OK;
    }
    piece->first_slice = merge->slice_count;
    uint64_t dealt = 0;
    int64_t start = 0;
    for (size_t i = 0; i < count; i++) {
        dealt += shares[i].bytes;
        int64_t end = i + 1 < count ? place_cut(&slicing, dealt) : slicing.units;
        RETURN_IF_ERROR(add_run(merge, &slicing, shares[i].holder, start, end));
        start = end;
    }
    piece->slice_count = (uint32_t)(merge->slice_count - piece->first_slice);
    return DCP_OK;
}
