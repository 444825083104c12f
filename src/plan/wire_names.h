/* SPDX-License-Identifier: BSD-3-Clause */
/* How names and shapes travel in plans. A name is told by what it shares with the one before, at
 * most 255 bytes so that short messages make short names: shared bytes (u8), rest (text). Its path
 * is told by where the name is cut: number of parts, per part its length and kind. A shape is dtype
 * (u8), ndim and sizes. All numbers are varints. */
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

/* previous: "" for the first. DCP_ERR_INTERNAL for a name that is not its path. */
dcp_status wire_append_name(struct buffer *out, const struct wire_name *name, const char *previous);
/* *name: the one before, or all zero; becomes the next. */
dcp_status wire_name(struct reader *reader, struct arena *arena, const char *message,
                     struct wire_name *name);

void wire_append_shape(struct buffer *out, const struct wire_shape *shape);
/* A dtype that is known, and a number of bytes that can be. */
dcp_status wire_shape(struct reader *reader, struct arena *arena, const char *message,
                      struct wire_shape *shape);

#endif
