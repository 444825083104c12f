/* SPDX-License-Identifier: BSD-3-Clause */
/* Random ways for elements to lie in memory, and moving them one by one: slow and plain, to compare
 * with. */
#ifndef TESTS_STORAGE_LAYOUT_H
#define TESTS_STORAGE_LAYOUT_H

#include <stdbool.h>

#include "state/box.h"
#include "state/node.h"

struct layout {
    int32_t ndim;
    int64_t sizes[DCP_MAX_DIMS];
    int64_t strides[DCP_MAX_DIMS];
    int64_t first; /* elements in front of element (0, ..., 0) */
    int64_t total; /* elements that the memory must have */
};

/* negative: strides may be; plain: row-major and dense. */
void layout_make(struct layout *layout, uint64_t *random, int32_t ndim, const int64_t *sizes,
                 bool negative, bool plain);
/* A random box in a shape; not empty unless the shape is. */
void layout_random_box(uint64_t *random, int32_t ndim, const int64_t *shape,
                       struct box_storage *box);
/* Steps through the indices of a box in row-major order; false at the end. */
bool layout_next(int32_t ndim, const int64_t *sizes, int64_t *index);
int64_t layout_offset(int32_t ndim, const int64_t *index, const int64_t *strides);
/* Host memory as a destination; what the numbers point to is not changed. */
struct state_chunk layout_target(struct box box, const int64_t *strides, void *memory);
/* Fills the layout's memory from dense bytes. */
void layout_fill(const struct layout *layout, size_t element_size, const unsigned char *dense,
                 unsigned char *memory);

#endif
