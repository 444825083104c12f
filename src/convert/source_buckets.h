/* SPDX-License-Identifier: BSD-3-Clause */
/* The buckets of Megatron-Core's distributed optimizer (dp_reshardable): flat fp32 weights of which
 * no file says which parameter lies where.
 *
 * They are found by their values. A parameter of a rank begins at a multiple of 64 elements, begins
 * and ends where chunks of the bucket do, and rounded to the model's dtype it is what the model's
 * chunk has. Where several have equal values (norms that are all ones) the order decides: in a
 * bucket parameters lie in the reverse order of the model's names, which the others must keep. */
#ifndef CONVERT_SOURCE_BUCKETS_H
#define CONVERT_SOURCE_BUCKETS_H

#include "convert/source_parts.h"

/* Where a name stands in the model. */
struct bucket_order {
    int section; /* odd: of stacked layers */
    int64_t layer;
    size_t index;
};

/* What a rank has of a parameter: a chunk of the stored tensor, or two (gate and up of SwiGLU), one
 * after the other. */
struct bucket_piece {
    size_t tensor; /* index of the entry */
    dcp_dtype dtype;
    int32_t ndim;
    const int64_t *shape; /* of the tensor */
    size_t boxes;
    const int64_t *offsets[2], *sizes;
    int64_t length; /* elements of all */
    uint64_t digest;
    struct bucket_order order;
    size_t place; /* index of places; SIZE_MAX: none is known */
};

struct bucket {
    size_t entry;
    uint64_t chain, group, buffer; /* each has a sequence of buckets */
    uint64_t number;
    int64_t length;
    int64_t *borders; /* where chunks begin, ascending, and the length */
    size_t border_count;
};

/* Where in a bucket a piece may lie. */
struct bucket_place {
    size_t bucket;
    int64_t at;
    size_t first, end; /* of pieces, sorted: those that are equal to it */
    uint64_t bits;     /* digest of the fp32 weights */
    bool certain;      /* it can only be the one piece */
    bool given;        /* to a piece, or it is as good as the one that was */
    bool dropped;      /* values that happen to be there */
};

struct buckets {
    struct bucket *buckets;
    size_t count;
    struct bucket_piece *pieces; /* by length, dtype, digest, order */
    size_t piece_count, piece_capacity;
    struct bucket_place *places; /* by group, buffer, bucket and position */
    size_t place_count, place_capacity;
    unsigned char *ways; /* by entry: the boxes of its pieces; 0: it is not in buckets */
    dcp_checkpoint *checkpoint;
    const char *directory; /* for messages */
    struct arena *arena;
};

/* Finds the parameters of a DCP directory; none where it has no buckets. buckets_free() also after
 * a failure. DCP_ERR_UNSUPPORTED names a tensor whose place cannot be told. */
dcp_status buckets_find(struct buckets *buckets, dcp_checkpoint *checkpoint, const char *directory,
                        struct arena *arena);
void buckets_free(struct buckets *buckets);
/* Whether a tensor's fp32 weights are in buckets; a frozen one's are not. */
bool buckets_have(const struct buckets *buckets, size_t tensor);
/* Adds them to the tensor that was begun: of one layer of stacked ones, or all (-1). */
dcp_status buckets_add(const struct buckets *buckets, size_t tensor, int64_t layer,
                       struct source_parts *parts, size_t file);

/* ---- what there is (source_bucket_pieces.c) ---- */

dcp_status buckets_list(struct buckets *buckets);
dcp_status buckets_list_pieces(struct buckets *buckets);
/* The digest of a range of a bucket, rounded to a dtype. */
dcp_status bucket_digest(const struct buckets *buckets, const struct bucket *bucket, int64_t at,
                         int64_t length, dcp_dtype dtype, uint64_t *digest);
/* Behind ".layers." of a name whose layers are stacked; NULL: they are not. */
const char *megatron_behind_layers(const char *name);
/* Whether a name is the optimizer's; of several (of experts apart) which: chained_N.optimizer. */
bool megatron_is_optimizer(const char *name, uint64_t *chain);

#endif
