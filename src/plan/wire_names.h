/* SPDX-License-Identifier: BSD-3-Clause */
/* Encodes names and shapes in plans. A name is encoded as the number of leading bytes that it
 * shares with the previous name (u8; at most 255, so that short messages make short names) and the
 * rest (text). Its path follows as the number of parts, and the length and kind of each part in the
 * name. A shape is dtype (u8), ndim and sizes. All numbers are varints. */
#ifndef PLAN_WIRE_NAMES_H
#define PLAN_WIRE_NAMES_H

#include "base/arena.h"
#include "base/buffer.h"
#include "state/box.h"
#include "state/node.h"

struct wire_name {
    const char *text; /* the path's parts joined by dots */
    const dcp_path_part *path;
    size_t path_length;
};

struct wire_shape {
    dcp_dtype dtype;
    int32_t ndim;
    const int64_t *sizes;
};

/* previous: "" for the first. DCP_ERR_INTERNAL if the name is not its path joined by dots. */
dcp_status wire_append_name(struct buffer *out, const struct wire_name *name, const char *previous);
/* *name: in, the previous name, or all zero; out, the next name. */
dcp_status wire_name(struct reader *reader, struct arena *arena, const char *message,
                     struct wire_name *name);

void wire_append_shape(struct buffer *out, const struct wire_shape *shape);
/* Checks that the dtype is known and that the number of bytes does not overflow. */
dcp_status wire_shape(struct reader *reader, struct arena *arena, const char *message,
                      struct wire_shape *shape);

#endif
