/* SPDX-License-Identifier: BSD-3-Clause */
/* Who writes what several ranks hold, so that all write about equally much: what only one rank
 * holds is counted first, then small replicas go whole to the least loaded holder, and the large
 * ones, in slices, level out what is left. */
#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"
#include "plan/save_merge.h"

static void give(struct merge *merge, struct merge_chunk *chunk, const struct held_item *writer)
{
    chunk->writer = writer;
    merge->loads[writer->rank] += chunk->length;
}

static void give_to_least_loaded(struct merge *merge, struct merge_chunk *chunk)
{
    const struct held_item *least = chunk->holders;
    for (uint32_t i = 1; i < chunk->holder_count; i++)
        if (merge->loads[chunk->holders[i].rank] < merge->loads[least->rank])
            least = &chunk->holders[i];
    give(merge, chunk, least);
}

static bool is_sliced(const struct merge *merge, const struct merge_chunk *chunk)
{
    return merge->options->replicas == DCP_REPLICAS_SLICE && chunk->length >= SAVE_SLICED_SIZE;
}

/* The largest first. Chunks lie in memory by entry and box, which settles ties. */
static int compare_whole(const void *left, const void *right)
{
    const struct merge_chunk *a = *(struct merge_chunk *const *)left;
    const struct merge_chunk *b = *(struct merge_chunk *const *)right;
    if (a->length != b->length)
        return a->length > b->length ? -1 : 1;
    return a < b ? -1 : a > b;
}

/* Those with less choice first. */
static int compare_sliced(const void *left, const void *right)
{
    const struct merge_chunk *a = *(struct merge_chunk *const *)left;
    const struct merge_chunk *b = *(struct merge_chunk *const *)right;
    if (a->holder_count != b->holder_count)
        return a->holder_count < b->holder_count ? -1 : 1;
    return compare_whole(left, right);
}

/* Replicated chunks: those to be written whole from the front, those to be sliced from the back. */
static void sort_out(struct merge *merge, struct merge_chunk **replicas, size_t *whole,
                     size_t *sliced)
{
    *whole = *sliced = 0;
    for (size_t i = 0; i < merge->chunk_count; i++) {
        struct merge_chunk *chunk = &merge->chunks[i];
        if (chunk->holder_count == 1 || merge->options->replicas == DCP_REPLICAS_LOWEST)
            give(merge, chunk, chunk->holders);
        else if (is_sliced(merge, chunk))
            replicas[merge->chunk_count - ++*sliced] = chunk;
        else
            replicas[(*whole)++] = chunk;
    }
}

static dcp_status deal(struct merge *merge, struct merge_chunk **replicas,
                       struct slice_share *shares)
{
    size_t whole, sliced;
    sort_out(merge, replicas, &whole, &sliced);
    qsort(replicas, whole, sizeof(*replicas), compare_whole);
    for (size_t i = 0; i < whole; i++)
        give_to_least_loaded(merge, replicas[i]);
    struct merge_chunk **large = replicas + (merge->chunk_count - sliced);
    qsort(large, sliced, sizeof(*large), compare_sliced);
    for (size_t i = 0; i < sliced; i++)
        RETURN_IF_ERROR(merge_slice(merge, large[i], shares));
    return DCP_OK;
}

dcp_status merge_choose_writers(struct merge *merge)
{
    struct merge_chunk **replicas = memory_allocate_array(merge->chunk_count, sizeof(*replicas));
    struct slice_share *shares = memory_allocate_array(merge->rank_count, sizeof *shares);
    dcp_status status;
    merge->loads = memory_allocate_zeroed(merge->rank_count, sizeof *merge->loads);
    if (replicas == NULL || shares == NULL || merge->loads == NULL)
        status = error_no_memory(merge->chunk_count * sizeof(*replicas), "replicas");
    else
        status = deal(merge, replicas, shares);
    memory_release(shares);
    memory_release(replicas);
    return status;
}

dcp_status merge_make_pieces(struct merge *merge)
{
    size_t count = merge->chunk_count + merge->slice_count;
    if (count > UINT32_MAX)
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "%zu pieces to write", count);
    merge->pieces = memory_allocate_array(count, sizeof *merge->pieces);
    if (merge->pieces == NULL)
        return error_no_memory(count * sizeof *merge->pieces, "pieces to write");
    for (size_t i = 0; i < merge->chunk_count; i++) {
        const struct merge_chunk *chunk = &merge->chunks[i];
        for (size_t k = 0; k < chunk->slice_count; k++)
            merge->pieces[merge->piece_count++] = merge->slices[chunk->first_slice + k];
        if (chunk->writer == NULL)
            continue;
        merge->pieces[merge->piece_count++] = (struct merge_piece){
            .box = chunk->box,
            .entry = chunk->entry,
            .writer = chunk->writer,
            .data_offset = chunk->data_offset,
            .length = chunk->length,
        };
    }
    return DCP_OK;
}
