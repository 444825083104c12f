/* SPDX-License-Identifier: BSD-3-Clause */
/* A state of all sorts of tensors whose elements follow a formula, and ways in which ranks want
 * parts of it: what tests of ranks that read for each other run on. */
#ifndef TESTS_CHECKPOINT_WANTED_PARTS_H
#define TESTS_CHECKPOINT_WANTED_PARTS_H

#include "checkpoint/ranks.h"

/* Who wants what of each tensor. */
enum want {
    WANT_ALL,        /* everyone everything */
    WANT_OVERLAPS,   /* rows of which neighbours want half as well */
    WANT_HYBRID,     /* two replicas of rows over half of the ranks each */
    WANT_MIXED,      /* rank 0 everything, the others a part each, the last one none */
    WANT_TRANSPOSED, /* everyone everything, column-major */
    WANT_COLUMNS,    /* the first half of the columns everyone, of the rest each rank a part */
    WANTS
};

enum { PARTS = 6 };

/* A rank's tensors. */
struct wanted_parts {
    dcp_state *root;
    dcp_tensor tensors[PARTS];
    unsigned char *memory[PARTS];
};

/* rows: of the largest tensor, of about 4 KiB each. wide: floats are doubles, as which a load has
 * to convert them. filled: by the formula. */
void wanted_parts_init(struct wanted_parts *parts, int64_t rows, enum want want, int rank, int size,
                       bool wide, bool filled);
/* Makes all elements wrong; objects stay. */
void wanted_parts_overwrite(struct wanted_parts *parts);
/* Bytes of elements, as stored. */
uint64_t wanted_parts_bytes(const struct wanted_parts *parts);
dcp_status wanted_parts_check(const struct wanted_parts *parts);
void wanted_parts_free(struct wanted_parts *parts);

/* Saves everything from one rank. */
void wanted_parts_save(const char *path, int64_t rows, const dcp_save_options *options);
/* Takes from a checkpoint what PyTorch does not write: footers, with the checksums of blocks. */
void wanted_parts_as_pytorch(const char *path);
/* Bytes of all objects' streams in a checkpoint. */
uint64_t wanted_parts_object_bytes(const char *path);

#endif
