/* SPDX-License-Identifier: BSD-3-Clause */
/* The pieces of a checkpoint in the order of its files, and where their data is expected. */
#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"
#include "format/metadata/metadata_codec.h"
#include "format/streams/stream.h"
#include "storage/verify/verify_jobs.h"

static int compare_placed(const void *left, const void *right)
{
    const struct metadata_piece *a = ((const struct placed_piece *)left)->piece;
    const struct metadata_piece *b = ((const struct placed_piece *)right)->piece;
    if (a->file != b->file)
        return a->file < b->file ? -1 : 1;
    return a->offset < b->offset ? -1 : a->offset > b->offset;
}

/* Ranges of one stream, which is checked once, under one of their names. */
static bool same_stream(const struct metadata_piece *a, const struct metadata_piece *b)
{
    return a->encoding == PIECE_RANGE && b->encoding == PIECE_RANGE && a->file == b->file &&
           a->offset == b->offset && a->length == b->length;
}

static void drop_repeated(struct file_jobs *jobs)
{
    size_t kept = 0;
    for (size_t i = 0; i < jobs->placed_count; i++)
        if (kept == 0 || !same_stream(jobs->placed[kept - 1].piece, jobs->placed[i].piece))
            jobs->placed[kept++] = jobs->placed[i];
    jobs->placed_count = kept;
}

dcp_status verify_place_pieces(const struct metadata *metadata, struct file_jobs *jobs)
{
    size_t total = 0, next = 0;
    for (size_t i = 0; i < metadata->count; i++)
        total += metadata->entries[i].piece_count;
    jobs->placed = memory_allocate_array(total, sizeof *jobs->placed);
    if (!jobs->placed)
        return error_no_memory(total * sizeof *jobs->placed, "a list of pieces");
    for (size_t i = 0; i < metadata->count; i++) {
        const struct metadata_entry *entry = &metadata->entries[i];
        for (size_t p = 0; p < entry->piece_count; p++)
            jobs->placed[next++] = (struct placed_piece){entry, &entry->pieces[p]};
    }
    jobs->placed_count = total;
    if (total > 1)
        qsort(jobs->placed, total, sizeof *jobs->placed, compare_placed);
    drop_repeated(jobs);
    return DCP_OK;
}

uint64_t verify_piece_bytes(const struct placed_piece *placed)
{
    uint64_t bytes;
    const struct metadata_piece *piece = placed->piece;
    return piece->encoding == PIECE_VIEW && placed->entry->is_tensor &&
                   shape_bytes(placed->entry->ndim, piece->sizes, placed->entry->dtype, &bytes) &&
                   bytes < piece->length
               ? bytes
               : piece->length;
}

size_t verify_file_pieces(const struct file_jobs *jobs, const struct file_job *job)
{
    size_t end = job->piece;
    while (end < jobs->placed_count && jobs->placed[end].piece->file == job->file)
        end++;
    return end - job->piece;
}

bool verify_is_pt(enum storage_form form, const struct placed_piece *placed, size_t count)
{
    for (size_t i = 0; i < count && form == STORAGE_TRAINING; i++)
        if (placed[i].piece->encoding == PIECE_VIEW && placed[i].piece->view->has_crc)
            return true;
    return form == STORAGE_PT;
}

void verify_expect_data(const struct placed_piece *placed, struct verify_span *span)
{
    const struct metadata_entry *entry = placed->entry;
    const struct metadata_piece *piece = placed->piece;
    struct stream_layout layout;
    *span = (struct verify_span){0};
    if (!entry->is_tensor || piece->zstd || piece->offset > UINT64_MAX - piece->length)
        return;
    const struct metadata_shape shape = metadata_stream_shape(entry, piece);
    if (metadata_is_in_stream(piece) &&
        stream_tensor_layout(entry->dtype, shape.ndim, shape.sizes, &layout) == DCP_OK &&
        layout.length == piece->length)
        *span = (struct verify_span){.offset = piece->offset + layout.data_offset,
                                     .length = layout.data_length};
    else if (piece->encoding == PIECE_VIEW && piece->view->has_crc && !piece->view->deflated &&
             piece->view->data_offset <= UINT64_MAX - piece->view->data_length)
        *span = (struct verify_span){.offset = piece->view->data_offset,
                                     .length = piece->view->data_length};
}
