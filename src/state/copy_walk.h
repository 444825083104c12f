/* SPDX-License-Identifier: BSD-3-Clause */
/* The order in which a box of elements is visited: as few and as long rows as the strides allow. */
#ifndef STATE_COPY_WALK_H
#define STATE_COPY_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dcp/tensor.h"

/* Dimensions of more than one element, merged where both sides allow it, the destination's longest
 * strides first. Strides count bytes. */
struct copy_walk {
    int32_t ndim;
    int64_t sizes[DCP_MAX_DIMS];
    int64_t source_strides[DCP_MAX_DIMS];
    int64_t destination_strides[DCP_MAX_DIMS];
};

/* One row: count elements on both sides, with the strides between them in bytes. */
typedef void (*copy_row)(const void *context, const unsigned char *source, int64_t source_stride,
                         unsigned char *destination, int64_t destination_stride, size_t count);

/* Strides count elements of the given sizes. False if there is nothing to visit. */
bool copy_walk_make(struct copy_walk *walk, int32_t ndim, const int64_t *sizes,
                    size_t source_element, const int64_t *source_strides,
                    size_t destination_element, const int64_t *destination_strides);
void copy_walk_run(const struct copy_walk *walk, const void *source, void *destination,
                   copy_row row, const void *context);

#endif
