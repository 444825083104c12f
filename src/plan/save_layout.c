/* SPDX-License-Identifier: BSD-3-Clause */
/* Which file of its rank each piece goes to, and where in it.
 *
 * In a file come objects, then small tensors, then large ones. The data of a large tensor begins at
 * a page of the file, so there is a gap before its stream; tiny tensors fill such gaps as far as
 * they fit, and the rest of them comes last. What remains is less than a page per large tensor. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "plan/save_merge.h"

enum piece_class { CLASS_OBJECT, CLASS_SMALL, CLASS_LARGE, CLASS_TINY, CLASS_COUNT };

struct file_assignment {
    struct merge *merge;
    uint32_t rank;
    uint32_t *pieces; /* of the rank; in the end by file and offset */
    size_t count;
    uint32_t file_count;
    uint32_t *scratch; /* count */
    size_t *buckets;   /* file_count * CLASS_COUNT + 1: where each file's classes begin */
    uint64_t *loads;   /* file_count */
};

static enum piece_class class_of(const struct merge *merge, const struct merge_piece *piece)
{
    if (!merge->entries[piece->entry].item->is_tensor)
        return CLASS_OBJECT;
    if (piece->length - piece->data_offset >= SAVE_PAGED_SIZE)
        return CLASS_LARGE;
    return piece->length < SAVE_PAGE ? CLASS_TINY : CLASS_SMALL;
}

static int compare_lengths(const void *left, const void *right, void *context)
{
    const struct merge_piece *pieces = context;
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    if (pieces[a].length != pieces[b].length)
        return pieces[a].length > pieces[b].length ? -1 : 1;
    return a < b ? -1 : a > b;
}

/* Objects in turn; tensors, the largest first, to the file with the least in it. */
static void deal_files(struct file_assignment *files)
{
    const struct merge *merge = files->merge;
    struct merge_piece *pieces = merge->pieces;
    size_t tensors = 0;
    uint32_t turn = 0;
    memset(files->loads, 0, files->file_count * sizeof *files->loads);
    for (size_t i = 0; i < files->count; i++) {
        struct merge_piece *piece = &pieces[files->pieces[i]];
        if (merge->entries[piece->entry].item->is_tensor) {
            files->scratch[tensors++] = files->pieces[i];
            continue;
        }
        piece->file = turn++ % files->file_count;
        files->loads[piece->file] += piece->length;
    }
    if (files->file_count > 1)
        qsort_r(files->scratch, tensors, sizeof *files->scratch, compare_lengths, pieces);
    for (size_t i = 0; i < tensors; i++) {
        struct merge_piece *piece = &pieces[files->scratch[i]];
        uint32_t least = 0;
        for (uint32_t file = 1; file < files->file_count; file++)
            if (files->loads[file] < files->loads[least])
                least = file;
        piece->file = least;
        files->loads[least] += piece->length;
    }
}

/* Sorts the pieces by file and class, each class in the order of the entries; they end up in
 * scratch. */
static void sort_into_buckets(struct file_assignment *files)
{
    const struct merge *merge = files->merge;
    size_t bucket_count = (size_t)files->file_count * CLASS_COUNT;
    memset(files->buckets, 0, (bucket_count + 1) * sizeof *files->buckets);
    for (size_t i = 0; i < files->count; i++) {
        const struct merge_piece *piece = &merge->pieces[files->pieces[i]];
        files->buckets[piece->file * (size_t)CLASS_COUNT + class_of(merge, piece)]++;
    }
    size_t end = 0;
    for (size_t i = 0; i <= bucket_count; i++) {
        end += files->buckets[i];
        files->buckets[i] = end;
    }
    for (size_t i = files->count; i-- > 0;) {
        const struct merge_piece *piece = &merge->pieces[files->pieces[i]];
        size_t bucket = piece->file * (size_t)CLASS_COUNT + class_of(merge, piece);
        files->scratch[--files->buckets[bucket]] = files->pieces[i];
    }
}

static uint64_t align_up(uint64_t position, uint64_t alignment)
{
    return (position + alignment - 1) / alignment * alignment;
}

/* Where a stream can begin, at position or after. */
static uint64_t find_start(const struct merge_piece *piece, enum piece_class class,
                           uint64_t position)
{
    if (class == CLASS_OBJECT)
        return position;
    uint64_t alignment = class == CLASS_LARGE ? SAVE_PAGE : SAVE_ALIGNMENT;
    return align_up(position + piece->data_offset, alignment) - piece->data_offset;
}

static void place_file(struct file_assignment *files, uint32_t file, uint32_t **placed)
{
    struct merge_piece *pieces = files->merge->pieces;
    const size_t *buckets = &files->buckets[file * (size_t)CLASS_COUNT];
    size_t tiny = buckets[CLASS_TINY], tiny_end = buckets[CLASS_COUNT];
    uint64_t position = 0;
    for (size_t i = buckets[CLASS_OBJECT]; i < buckets[CLASS_TINY]; i++) {
        enum piece_class class = i < buckets[CLASS_SMALL]   ? CLASS_OBJECT
                                 : i < buckets[CLASS_LARGE] ? CLASS_SMALL
                                                            : CLASS_LARGE;
        struct merge_piece *piece = &pieces[files->scratch[i]];
        piece->offset = find_start(piece, class, position);
        while (class == CLASS_LARGE && tiny < tiny_end) {
            struct merge_piece *filler = &pieces[files->scratch[tiny]];
            uint64_t start = find_start(filler, CLASS_TINY, position);
            if (start + filler->length > piece->offset)
                break;
            filler->offset = start;
            position = start + filler->length;
            *(*placed)++ = files->scratch[tiny++];
        }
        position = piece->offset + piece->length;
        *(*placed)++ = files->scratch[i];
    }
    for (; tiny < tiny_end; tiny++) {
        struct merge_piece *piece = &pieces[files->scratch[tiny]];
        piece->offset = find_start(piece, CLASS_TINY, position);
        position = piece->offset + piece->length;
        *(*placed)++ = files->scratch[tiny];
    }
}

static dcp_status assign_rank(struct file_assignment *files)
{
    struct merge *merge = files->merge;
    bool per_item = merge->options->files == DCP_FILE_PER_ITEM;
    uint32_t threads = merge->options->thread_count != 0 ? merge->options->thread_count : 1;
    files->file_count = per_item ? (uint32_t)files->count : threads;
    merge->file_counts[files->rank] = files->file_count;
    size_t bucket_count = (size_t)files->file_count * CLASS_COUNT + 1;
    dcp_status status = DCP_OK;
    files->scratch = memory_allocate_array(files->count, sizeof *files->scratch);
    files->buckets = memory_allocate_array(bucket_count, sizeof *files->buckets);
    files->loads = memory_allocate_array(files->file_count, sizeof *files->loads);
    if (files->scratch == NULL || files->buckets == NULL || files->loads == NULL) {
        status = error_no_memory(bucket_count * sizeof *files->buckets, "files of a rank");
        goto done;
    }
    if (per_item)
        for (size_t i = 0; i < files->count; i++)
            merge->pieces[files->pieces[i]].file = (uint32_t)i;
    else
        deal_files(files);
    sort_into_buckets(files);
    uint32_t *placed = files->pieces;
    for (uint32_t file = 0; file < files->file_count; file++)
        place_file(files, file, &placed);
done:
    memory_release(files->loads);
    memory_release(files->buckets);
    memory_release(files->scratch);
    return status;
}

static void sort_by_rank(struct merge *merge)
{
    memset(merge->rank_start, 0, (merge->rank_count + (size_t)1) * sizeof *merge->rank_start);
    for (size_t i = 0; i < merge->piece_count; i++)
        merge->rank_start[merge->pieces[i].writer->rank]++;
    size_t end = 0;
    for (size_t rank = 0; rank <= merge->rank_count; rank++) {
        end += merge->rank_start[rank];
        merge->rank_start[rank] = end;
    }
    for (size_t i = merge->piece_count; i-- > 0;)
        merge->sequence[--merge->rank_start[merge->pieces[i].writer->rank]] = (uint32_t)i;
}

dcp_status merge_assign_files(struct merge *merge)
{
    size_t ranks = merge->rank_count;
    merge->sequence = memory_allocate_array(merge->piece_count, sizeof *merge->sequence);
    merge->rank_start = memory_allocate_array(ranks + 1, sizeof *merge->rank_start);
    merge->file_counts = memory_allocate_array(ranks, sizeof *merge->file_counts);
    if (merge->sequence == NULL || merge->rank_start == NULL || merge->file_counts == NULL)
        return error_no_memory(merge->piece_count * sizeof *merge->sequence, "files of all ranks");
    sort_by_rank(merge);
    for (uint32_t rank = 0; rank < merge->rank_count; rank++) {
        struct file_assignment files = {
            .merge = merge,
            .rank = rank,
            .pieces = &merge->sequence[merge->rank_start[rank]],
            .count = merge->rank_start[rank + 1] - merge->rank_start[rank],
        };
        RETURN_IF_ERROR(assign_rank(&files));
    }
    return DCP_OK;
}
