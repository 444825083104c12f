/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/copy_walk.h"

/* Elements of a row that are visited before the next row, where neighbours in the source are in
 * neighbouring rows: its cache lines then serve many rows. */
#define STRIP 64

static int64_t magnitude(int64_t stride)
{
    return stride < 0 ? -stride : stride;
}

static void insert_dimension(struct copy_walk *walk, int64_t size, int64_t source,
                             int64_t destination)
{
    int32_t at = walk->ndim++;
    for (; at > 0 && magnitude(walk->destination_strides[at - 1]) < magnitude(destination); at--) {
        walk->sizes[at] = walk->sizes[at - 1];
        walk->source_strides[at] = walk->source_strides[at - 1];
        walk->destination_strides[at] = walk->destination_strides[at - 1];
    }
    walk->sizes[at] = size;
    walk->source_strides[at] = source;
    walk->destination_strides[at] = destination;
}

static void merge_dimensions(struct copy_walk *walk)
{
    int32_t last = 0;
    for (int32_t i = 1; i < walk->ndim; i++) {
        if (walk->source_strides[last] == walk->source_strides[i] * walk->sizes[i] &&
            walk->destination_strides[last] == walk->destination_strides[i] * walk->sizes[i]) {
            walk->sizes[last] *= walk->sizes[i];
        } else {
            last++;
            walk->sizes[last] = walk->sizes[i];
        }
        walk->source_strides[last] = walk->source_strides[i];
        walk->destination_strides[last] = walk->destination_strides[i];
    }
    if (walk->ndim > 0)
        walk->ndim = last + 1;
}

bool copy_walk_make(struct copy_walk *walk, int32_t ndim, const int64_t *sizes,
                    size_t source_element, const int64_t *source_strides,
                    size_t destination_element, const int64_t *destination_strides)
{
    walk->ndim = 0;
    for (int32_t i = 0; i < ndim; i++)
        if (sizes[i] == 0)
            return false;
    for (int32_t i = 0; i < ndim; i++)
        if (sizes[i] > 1)
            insert_dimension(walk, sizes[i], source_strides[i] * (int64_t)source_element,
                             destination_strides[i] * (int64_t)destination_element);
    merge_dimensions(walk);
    if (walk->ndim == 0)
        insert_dimension(walk, 1, (int64_t)source_element, (int64_t)destination_element);
    return true;
}

/* Visits rows with elements first to first + count - 1 of the innermost dimension. */
static void run_strip(const struct copy_walk *walk, const unsigned char *source,
                      unsigned char *destination, int64_t first, int64_t count, copy_row row,
                      const void *context)
{
    int64_t position[DCP_MAX_DIMS] = {0};
    int32_t inner = walk->ndim - 1;
    int64_t source_stride = walk->source_strides[inner];
    int64_t destination_stride = walk->destination_strides[inner];
    source += first * source_stride;
    destination += first * destination_stride;
    for (;;) {
        row(context, source, source_stride, destination, destination_stride, (size_t)count);
        int32_t i = inner - 1;
        for (; i >= 0 && ++position[i] == walk->sizes[i]; i--) {
            position[i] = 0;
            source -= (walk->sizes[i] - 1) * walk->source_strides[i];
            destination -= (walk->sizes[i] - 1) * walk->destination_strides[i];
        }
        if (i < 0)
            return;
        source += walk->source_strides[i];
        destination += walk->destination_strides[i];
    }
}

void copy_walk_run(const struct copy_walk *walk, const void *source, void *destination,
                   copy_row row, const void *context)
{
    int32_t inner = walk->ndim - 1;
    int64_t length = walk->sizes[inner];
    int64_t strip = length;
    if (inner > 0 &&
        magnitude(walk->source_strides[inner - 1]) < magnitude(walk->source_strides[inner]))
        strip = STRIP;
    for (int64_t first = 0; first < length; first += strip)
        run_strip(walk, source, destination, first, length - first < strip ? length - first : strip,
                  row, context);
}
