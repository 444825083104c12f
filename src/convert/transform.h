/* SPDX-License-Identifier: BSD-3-Clause */
/* Transform files: rules that rename, divide, join and turn tensors. They are read, inverted if
 * that is wanted, and applied one after the other to all items of a source. */
#ifndef CONVERT_TRANSFORM_H
#define CONVERT_TRANSFORM_H

#include "convert/convert_source.h"

enum transform_kind {
    TRANSFORM_RENAME,
    TRANSFORM_JOIN,    /* several along a dimension, group by group */
    TRANSFORM_SPLIT,   /* the inverse */
    TRANSFORM_STACK,   /* numbered ones along a new dimension */
    TRANSFORM_UNSTACK, /* the inverse */
    TRANSFORM_TRANSPOSE,
    TRANSFORM_PERMUTE,   /* rows of heads: halves become pairs */
    TRANSFORM_UNPERMUTE, /* the inverse */
    TRANSFORM_CAST,
    TRANSFORM_PAD, /* zeros, up to a multiple of a number */
    TRANSFORM_CUT, /* the inverse */
    TRANSFORM_DROP,
    TRANSFORM_TIE,  /* leaves one out that equals another one */
    TRANSFORM_UNTIE /* the inverse */
};

struct transform_rule {
    enum transform_kind kind;
    size_t number;           /* in the file, from 1 */
    const char **from, **to; /* patterns; to is where the result goes, or what it is tied with */
    size_t from_count, to_count;
    uint64_t dims[2];
    uint64_t groups;
    uint64_t *parts; /* in which proportion joined ones stand; NULL: equal ones */
    uint64_t heads, multiple, size;
    dcp_dtype dtype, stored; /* cast: to and from */
    bool optional;           /* need not apply to any name */
    bool forward_only, inverse_only;
};

struct transform {
    struct transform_rule *rules;
    size_t count;
    enum transform_others { TRANSFORM_KEEP, TRANSFORM_DROP_OTHERS, TRANSFORM_REFUSE } others;
};

/* Applies the transform file of the options. */
dcp_status convert_transform(struct convert_source *source);

/* Reads a file; `config`: text of a config.json whose numbers rules name, or NULL. In the arena. */
dcp_status transform_read(const char *path, const char *text, size_t size, const char *config,
                          size_t config_size, struct arena *arena, struct transform *transform);
/* Turns the rules and their order around. DCP_ERR_ARGUMENT: one has no inverse. */
dcp_status transform_invert(struct transform *transform, struct arena *arena);
dcp_status transform_apply(const struct transform *transform, struct convert_source *source);

#endif
