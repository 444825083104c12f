/* SPDX-License-Identifier: BSD-3-Clause */
/* What is copied at a time when sources are staged, and where it goes in the pool. */
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
    uint64_t position; /* in the source's bytes */
    uint64_t at;       /* in the pool, counted on and on; of a limited pool only once it waits no
                          longer */
    uint64_t hash;     /* of the source's elements when staging began */
    void *event;       /* at a device: reached when it is staged */
    enum piece_state state;
    struct staging_piece *later; /* copies that a device was told to make, in that order */
};

/* What is kept of a source. */
struct staged_source {
    const char *name;
    dcp_device device;
    int32_t ndim;
    size_t element_size;
    const int64_t *strides;
    uint64_t bytes;
    size_t first, count; /* pieces */
    size_t queue;        /* at a device: which of the staging's queues */
    size_t reading;      /* piece that staging_read() is at */
    bool changed;
};

struct staging_pieces {
    struct staged_source *sources;
    size_t source_count;
    struct staging_piece *pieces;
    size_t count;
    uint64_t bytes;     /* of all sources */
    uint64_t pool_size; /* that it takes to have all at the same time */
    size_t largest;
    int64_t *numbers; /* sizes and strides */
    size_t number_count;
};

/* Bytes of a piece at most, within a limit of the pool; 0: none. */
size_t staging_piece_most(uint64_t limit);
/* Only counts: what it takes to make them. */
void staging_pieces_measure(struct staging_pieces *pieces, const struct staging_source *sources,
                            size_t count, size_t most);
/* Bytes of all lists, as they were measured. */
uint64_t staging_pieces_memory(const struct staging_pieces *pieces);
/* most: bytes of a piece. */
dcp_status staging_pieces_make(struct staging_pieces *pieces, const struct staging_source *sources,
                               size_t count, size_t most);
void staging_pieces_free(struct staging_pieces *pieces);
/* Copies a piece's elements, or starts to, by a queue that may be another than its source's. */
dcp_status staging_piece_copy(const struct staging_pieces *pieces,
                              const struct staging_piece *piece, const dcp_device *device,
                              bool start, void *to);

#endif
