/* SPDX-License-Identifier: BSD-3-Clause */
/* Structures as bytes: a walk that either appends the bytes to a buffer or compares them with
 * others, so that no bytes are made just to be compared. */
#ifndef PLAN_STRUCTURE_WALK_H
#define PLAN_STRUCTURE_WALK_H

#include <string.h>

#include "base/buffer.h"

struct structure_walk {
    struct buffer *out; /* NULL: compares */
    const unsigned char *expected;
    size_t left;
};

/* False if the bytes differ; the walk ends then. */
static inline bool structure_walk_bytes(struct structure_walk *walk, const void *bytes, size_t size)
{
    if (size == 0)
        return true;
    if (walk->out) {
        buffer_append(walk->out, bytes, size);
        return true;
    }
    if (size > walk->left || memcmp(walk->expected, bytes, size) != 0)
        return false;
    walk->expected += size;
    walk->left -= size;
    return true;
}

static inline bool structure_walk_text(struct structure_walk *walk, const char *text)
{
    return structure_walk_bytes(walk, text, strlen(text) + 1);
}

#endif
