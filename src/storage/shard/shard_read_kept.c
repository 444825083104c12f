/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads regions of compressed pieces in succession. The pieces that were read last stay open, so
 * that their streams are not decompressed from the beginning each time. */
#include <string.h>

#include "storage/shard/shard_file.h"
#include "storage/shard/shard_request.h"
#include "storage/shard/stored_item.h"

void shard_reader_keep_streams(struct shard_reader *reader)
{
    reader->keeps_streams = true;
}

void shard_reader_check_last(struct shard_reader *reader)
{
    reader->checks_last = true;
}

bool shard_reader_keeps(const struct shard_reader *reader, const struct shard_request *request)
{
    return reader->keeps_streams && request->piece->zstd &&
           !stored_item_is_whole(request->entry, request->piece);
}

/* The piece, if it is kept; from then on it is not. Several threads may have left it at different
 * places: the nearest one before the region, so that none is sent back to the beginning while
 * another one is there. Where all must go back, it is the one that has been kept longest. */
static struct shard_piece *take_kept(struct shard_reader *reader,
                                     const struct shard_request *request,
                                     dcp_verification verification)
{
    struct shard_piece *taken = NULL;
    size_t best = SHARD_KEPT;
    uint64_t least = UINT64_MAX;
    pthread_mutex_lock(&reader->mutex);
    for (size_t i = 0; i < SHARD_KEPT; i++) {
        const struct shard_piece *kept = reader->kept[i];
        if (!kept || !shard_piece_is_of(kept, request->piece, verification))
            continue;
        uint64_t way = shard_piece_way(kept, request->region);
        if (way <= least) {
            best = i;
            least = way;
        }
    }
    if (best < SHARD_KEPT) {
        taken = reader->kept[best];
        reader->kept[best] = NULL;
    }
    pthread_mutex_unlock(&reader->mutex);
    return taken;
}

/* Keeps the piece; replaces the one that has been kept longest if necessary. */
static void keep(struct shard_reader *reader, struct shard_piece *piece)
{
    size_t room = 0;
    pthread_mutex_lock(&reader->mutex);
    while (room < SHARD_KEPT - 1 && reader->kept[room])
        room++;
    struct shard_piece *longest = reader->kept[room];
    memmove(reader->kept + 1, reader->kept, room * sizeof(struct shard_piece *));
    reader->kept[0] = piece;
    pthread_mutex_unlock(&reader->mutex);
    shard_piece_close(longest);
}

dcp_status shard_read_one(struct shard_reader *reader, const struct shard_request *request,
                          dcp_verification verification, struct read_window *window,
                          const struct shard_range *next)
{
    return shard_reader_keeps(reader, request)
               ? shard_read_kept(reader, request, verification)
               : shard_read_request(reader, request, verification, window, NULL, 0, next);
}

void shard_reader_drop_kept(struct shard_reader *reader)
{
    for (size_t i = 0; i < SHARD_KEPT; i++) {
        shard_piece_close(reader->kept[i]);
        reader->kept[i] = NULL;
    }
}

static bool has_last(const struct shard_request *request)
{
    const struct metadata_piece *piece = request->piece;
    for (int32_t d = 0; d < request->entry->ndim; d++)
        if (request->region.offsets[d] + request->region.sizes[d] !=
            piece->offsets[d] + piece->sizes[d])
            return false;
    return true;
}

dcp_status shard_read_kept(struct shard_reader *reader, const struct shard_request *request,
                           dcp_verification verification)
{
    struct shard_piece *opened = take_kept(reader, request, verification);
    dcp_status status = DCP_OK;
    if (!opened)
        status = shard_piece_open(reader, request->entry, request->piece, request->region, false,
                                  verification, NULL, &opened);
    if (status == DCP_OK)
        status = shard_piece_fill(opened, request);
    /* Of all reads, the first one sees to it that the stream is right, or the last. */
    if (status == DCP_OK && (!reader->checks_last || has_last(request)))
        status = shard_piece_end(opened, 0);
    if (status == DCP_OK)
        keep(reader, opened);
    else
        shard_piece_close(opened);
    return status;
}
