/* SPDX-License-Identifier: BSD-3-Clause */
/* Divides sources into the pieces that staging copies, and places them in the pool. */
#ifndef DEVICE_STAGING_PIECES_H
#define DEVICE_STAGING_PIECES_H

#include "device/staging.h"

enum piece_state { PIECE_WAITS, PIECE_UNDER_WAY, PIECE_STAGED, PIECE_READ };

/* A run of a source's row-major elements. */
struct staging_piece {
    size_t source;
    const void *from;
    const int64_t *sizes;
    size_t bytes;
    uint64_t position; /* offset in the source's bytes */
    uint64_t at;   /* offset in the pool, never reduced when the ring wraps; in a limited pool only
                      once the piece has room */
    uint64_t hash; /* hash of the source's elements when staging began */
    void *event;   /* of a device: reached when the piece is staged */
    enum piece_state state;
    struct staging_piece *later; /* list of copies that a device was asked to make, in order */
};

/* What staging keeps about a source. */
struct staged_source {
    const char *name;
    dcp_device device;
    int32_t ndim;
    size_t element_size;
    const int64_t *strides;
    uint64_t bytes;
    size_t first, count; /* pieces */
    size_t queue;        /* of a device: index of the staging's queue */
    size_t reading;      /* piece that staging_read() is at */
    bool changed;
};

struct staging_pieces {
    struct staged_source *sources;
    size_t source_count;
    struct staging_piece *pieces;
    size_t count;
    uint64_t bytes;     /* of all sources */
    uint64_t pool_size; /* size of a pool that holds all pieces at the same time */
    size_t largest;
    int64_t *numbers; /* sizes and strides */
    size_t number_count;
};

/* The largest size of a piece within a limit of the pool; limit 0: none. */
size_t staging_piece_most(uint64_t limit);
/* Only counts what staging_pieces_make() will make. */
void staging_pieces_measure(struct staging_pieces *pieces, const struct staging_source *sources,
                            size_t count, size_t most);
/* Bytes of all lists, as measured. */
uint64_t staging_pieces_memory(const struct staging_pieces *pieces);
/* most: largest size of a piece, in bytes. */
dcp_status staging_pieces_make(struct staging_pieces *pieces, const struct staging_source *sources,
                               size_t count, size_t most);
void staging_pieces_free(struct staging_pieces *pieces);
/* Copies a piece's elements, or starts to, by a queue that may be another than its source's. */
dcp_status staging_piece_copy(const struct staging_pieces *pieces,
                              const struct staging_piece *piece, const dcp_device *device,
                              bool start, void *to);

#endif
