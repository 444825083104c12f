/* SPDX-License-Identifier: BSD-3-Clause */
/* Chooses writers for replicas, so that all ranks write about the same number of bytes: pieces with
 * only one holder are counted first, then small replicas go whole to the least loaded holder, and
 * large ones, in slices, even out the rest. */
#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"
#include "plan/save/save_merge.h"

static void give(struct merge *merge, struct merge_piece *piece, const struct held_item *writer)
{
    piece->holders = writer;
    piece->holder_count = 1;
    merge->loads[writer->rank] += piece->length;
}

static void give_to_least_loaded(struct merge *merge, struct merge_piece *piece)
{
    const struct held_item *least = piece->holders;
    for (uint32_t i = 1; i < piece->holder_count; i++)
        if (merge->loads[piece->holders[i].rank] < merge->loads[least->rank])
            least = &piece->holders[i];
    give(merge, piece, least);
}

static bool is_sliced(const struct merge *merge, const struct merge_piece *piece)
{
    return merge->options.replicas == DCP_REPLICAS_SLICE && piece->length >= SAVE_SLICED_SIZE;
}

/* The largest first. Ties are ordered by entry and box, as pieces are in memory. */
static int compare_whole(const void *left, const void *right)
{
    const struct merge_piece *a = *(struct merge_piece *const *)left;
    const struct merge_piece *b = *(struct merge_piece *const *)right;
    if (a->length != b->length)
        return a->length > b->length ? -1 : 1;
    return a < b ? -1 : a > b;
}

/* Pieces with the fewest holders first. */
static int compare_sliced(const void *left, const void *right)
{
    const struct merge_piece *a = *(struct merge_piece *const *)left;
    const struct merge_piece *b = *(struct merge_piece *const *)right;
    if (a->holder_count != b->holder_count)
        return a->holder_count < b->holder_count ? -1 : 1;
    return compare_whole(left, right);
}

/* Replicated pieces: those to be written whole from the front, those to be sliced from the back. */
static void sort_out(struct merge *merge, struct merge_piece **replicas, size_t *whole,
                     size_t *sliced)
{
    *whole = *sliced = 0;
    for (size_t i = 0; i < merge->piece_count; i++) {
        struct merge_piece *piece = &merge->pieces[i];
        if (piece->holder_count == 1 || merge->options.replicas == DCP_REPLICAS_LOWEST)
            give(merge, piece, piece->holders);
        else if (is_sliced(merge, piece))
            replicas[merge->piece_count - ++*sliced] = piece;
        else
            replicas[(*whole)++] = piece;
    }
}

static dcp_status deal(struct merge *merge, struct merge_piece **replicas,
                       struct slice_share *shares)
{
    size_t whole, sliced;
    sort_out(merge, replicas, &whole, &sliced);
    qsort(replicas, whole, sizeof(*replicas), compare_whole);
    for (size_t i = 0; i < whole; i++)
        give_to_least_loaded(merge, replicas[i]);
    struct merge_piece **large = replicas + (merge->piece_count - sliced);
    qsort(large, sliced, sizeof(*large), compare_sliced);
    for (size_t i = 0; i < sliced; i++)
        RETURN_IF_ERROR(merge_slice(merge, large[i], shares));
    return DCP_OK;
}

/* Replaces pieces by their slices. */
static dcp_status insert_slices(struct merge *merge)
{
    size_t count = merge->piece_count + merge->slice_count;
    if (merge->slice_count == 0)
        return DCP_OK;
    if (count > UINT32_MAX)
        return dcp_error_set(DCP_ERR_UNSUPPORTED,
                             "there are %zu pieces to write, at most 2^32 - 1 are supported",
                             count);
    struct merge_piece *pieces = memory_allocate_array(count, sizeof *pieces);
    if (pieces == NULL)
        return error_no_memory(count * sizeof *pieces, "pieces to write");
    struct merge_piece *next = pieces;
    for (size_t i = 0; i < merge->piece_count; i++) {
        const struct merge_piece *piece = &merge->pieces[i];
        for (uint32_t k = 0; k < piece->slice_count; k++)
            *next++ = merge->slices[piece->first_slice + k];
        if (piece->slice_count == 0)
            *next++ = *piece;
    }
    memory_release(merge->pieces);
    merge->pieces = pieces;
    merge->piece_count = (size_t)(next - pieces);
    return DCP_OK;
}

dcp_status merge_choose_writers(struct merge *merge)
{
    struct merge_piece **replicas = memory_allocate_array(merge->piece_count, sizeof(*replicas));
    struct slice_share *shares = memory_allocate_array(merge->rank_count, sizeof *shares);
    dcp_status status;
    merge->loads = memory_allocate_zeroed(merge->rank_count, sizeof *merge->loads);
    if (replicas == NULL || shares == NULL || merge->loads == NULL)
        status = error_no_memory(merge->piece_count * sizeof(*replicas), "replicas");
    else
        status = deal(merge, replicas, shares);
    if (status == DCP_OK)
        status = insert_slices(merge);
    memory_release(shares);
    memory_release(replicas);
    return status;
}
