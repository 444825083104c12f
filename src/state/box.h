/* SPDX-License-Identifier: BSD-3-Clause */
/* Axis-aligned boxes of a tensor: the geometry that planning, reading and writing share. */
#ifndef STATE_BOX_H
#define STATE_BOX_H

#include <stdbool.h>
#include <stdint.h>

#include "dcp/tensor.h"

/* A box; offsets and sizes are borrowed. Boxes that came through box_check() have no overflow in
 * what follows. */
struct box {
    int32_t ndim;
    const int64_t *offsets;
    const int64_t *sizes;
};

/* A box that carries its numbers. */
struct box_storage {
    int64_t offsets[DCP_MAX_DIMS];
    int64_t sizes[DCP_MAX_DIMS];
};

/* Number of elements of a shape and its bytes; false if a size is negative or a product leaves
 * int64_t. In a shape without elements only the single sizes are limited: before multiplying them,
 * check whether one is zero. */
bool shape_volume(int32_t ndim, const int64_t *shape, int64_t *elements);
bool shape_bytes(int32_t ndim, const int64_t *shape, dcp_dtype dtype, uint64_t *bytes);

/* Inside the shape, nothing negative or overflowing. */
bool box_check(struct box box, const int64_t *shape);
int64_t box_volume(struct box box);
/* Exactly: the same offsets and sizes. */
static inline bool box_equal(struct box a, struct box b)
{
    if (a.ndim != b.ndim)
        return false;
    for (int32_t i = 0; i < a.ndim; i++)
        if (a.offsets[i] != b.offsets[i] || a.sizes[i] != b.sizes[i])
            return false;
    return true;
}

/* An order by offsets, then sizes, of boxes of as many dimensions. */
int box_compare(struct box a, struct box b);
/* Whether inner lies inside outer. outer must have been checked, inner need not. */
bool box_contains(struct box outer, struct box inner);
/* True and the common box if there is a common element; 0-d boxes always have one. */
bool box_intersect(struct box a, struct box b, struct box_storage *common);
struct box box_of(int32_t ndim, const struct box_storage *storage);
/* What of a box lies outside of one that it contains, as disjoint boxes, at most two for each
 * dimension. */
struct box_rest {
    struct box inner;
    struct box_storage left; /* the rest of outer that was not returned yet, and inner */
    int32_t dim;
};

void box_rest_start(struct box_rest *rest, struct box outer, struct box inner);
/* False at the end. */
bool box_rest_next(struct box_rest *rest, struct box_storage *box);
/* The whole of a shape, which is borrowed. */
struct box box_whole(int32_t ndim, const int64_t *shape);
/* "[0:4, 3:9]", for messages; always NUL-terminated; returns text. */
const char *box_format(struct box box, char *text, size_t size);
/* "[4, 9]". */
const char *shape_format(int32_t ndim, const int64_t *shape, char *text, size_t size);
/* Row-major strides in elements (PyTorch's: sizes of zero count as one). */
void shape_strides(int32_t ndim, const int64_t *shape, int64_t *strides);

/* The next box of a range of elements of a row-major shape, from element `from` to `end` at most:
 * as many whole slices as fit, of the outermost dimension in which a slice begins at `from`, up to
 * the end of that dimension. Returns the number of elements of the box, which are consecutive. */
int64_t shape_next_box(int32_t ndim, const int64_t *shape, int64_t from, int64_t end,
                       int64_t *offsets, int64_t *sizes);
/* The same of a region's elements, in the coordinates that the region is in. */
int64_t box_next(struct box region, int64_t from, int64_t end, struct box_storage *next);

/* The order of a region's elements among those of a box that contains it, both row-major and not
 * empty. How many of them are consecutive in the outer box: all runs have the same length. */
int64_t box_run(struct box outer, struct box region);
/* The position in the outer box of an element of the region. */
int64_t box_position(struct box outer, struct box region, int64_t element);
/* How many of the region's elements are in front of a position, which may be the end. */
int64_t box_elements_before(struct box outer, struct box region, int64_t position);

/* Whether any two of count boxes share an element (false for boxes with a size of zero); cost near
 * that of sorting. first and second are the offending pair. DCP_ERR_NO_MEMORY is the only failure.
 */
dcp_status box_find_overlap(const struct box *boxes, size_t count, bool *found, size_t *first,
                            size_t *second);

/* Finds a box inside wanted that none of the count boxes covers, if there is one. The boxes need
 * not be disjoint. */
dcp_status box_find_hole(struct box wanted, const struct box *boxes, size_t count, bool *found,
                         struct box_storage *hole);

#endif
