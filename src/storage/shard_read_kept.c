/* SPDX-License-Identifier: BSD-3-Clause */
/* Regions of compressed pieces that are wanted one after the other: the piece that was read last
 * stays open, so that its stream is not decompressed from the beginning each time. */
#include "storage/shard_file.h"
#include "storage/shard_request.h"
#include "storage/stored_item.h"

void shard_reader_keep_streams(struct shard_reader *reader)
{
    reader->keeps_streams = true;
}

bool shard_reader_keeps(const struct shard_reader *reader, const struct shard_request *request)
{
    return reader->keeps_streams && request->piece->zstd &&
           !stored_item_is_whole(request->entry, request->piece);
}

static struct shard_piece *exchange_kept(struct shard_reader *reader, struct shard_piece *piece)
{
    pthread_mutex_lock(&reader->mutex);
    struct shard_piece *before = reader->kept;
    reader->kept = piece;
    pthread_mutex_unlock(&reader->mutex);
    return before;
}

void shard_reader_drop_kept(struct shard_reader *reader)
{
    shard_piece_close(exchange_kept(reader, NULL));
}

dcp_status shard_read_kept(struct shard_reader *reader, const struct shard_request *request,
                           dcp_verification verification)
{
    struct shard_piece *opened = exchange_kept(reader, NULL);
    dcp_status status = DCP_OK;
    if (opened && !shard_piece_is_of(opened, request->piece, verification)) {
        shard_piece_close(opened);
        opened = NULL;
    }
    if (!opened)
        status = shard_piece_open(reader, request->entry, request->piece, request->region, false,
                                  verification, &opened);
    if (status == DCP_OK)
        status = shard_piece_fill(opened, request);
    /* Of all reads, the first one sees to it that the stream is right. */
    if (status == DCP_OK)
        status = shard_piece_end(opened);
    shard_piece_close(status == DCP_OK ? exchange_kept(reader, opened) : opened);
    return status;
}
