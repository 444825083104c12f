/* SPDX-License-Identifier: BSD-3-Clause */
#include "layout.h"

#include <string.h>

#include "scratch.h"

void layout_make(struct layout *layout, uint64_t *random, int32_t ndim, const int64_t *sizes,
                 bool negative, bool plain)
{
    int32_t order[DCP_MAX_DIMS];
    *layout = (struct layout){.ndim = ndim, .total = 1};
    for (int32_t i = 0; i < ndim; i++) {
        int32_t at = plain ? i : (int32_t)scratch_below(random, i + 1);
        order[i] = order[at];
        order[at] = i;
        layout->sizes[i] = sizes[i];
    }
    for (int32_t i = ndim - 1; i >= 0; i--) {
        int32_t d = order[i];
        int64_t padding = plain || scratch_below(random, 2) ? 0 : scratch_below(random, 3);
        layout->strides[d] = layout->total;
        if (negative && !plain && scratch_below(random, 3) == 0 && sizes[d] > 0) {
            layout->first += (sizes[d] - 1) * layout->total;
            layout->strides[d] = -layout->total;
        }
        layout->total *= (sizes[d] > 0 ? sizes[d] : 1) + padding;
    }
}

void layout_random_box(uint64_t *random, int32_t ndim, const int64_t *shape,
                       struct box_storage *box)
{
    for (int32_t i = 0; i < ndim; i++) {
        box->offsets[i] = shape[i] > 0 ? scratch_below(random, shape[i]) : 0;
        box->sizes[i] = shape[i] > 0 ? 1 + scratch_below(random, shape[i] - box->offsets[i]) : 0;
    }
}

bool layout_next(int32_t ndim, const int64_t *sizes, int64_t *index)
{
    for (int32_t i = ndim - 1; i >= 0; i--) {
        if (++index[i] < sizes[i])
            return true;
        index[i] = 0;
    }
    return false;
}

int64_t layout_offset(int32_t ndim, const int64_t *index, const int64_t *strides)
{
    int64_t offset = 0;
    for (int32_t i = 0; i < ndim; i++)
        offset += index[i] * strides[i];
    return offset;
}

void layout_fill(const struct layout *layout, size_t element_size, const unsigned char *dense,
                 unsigned char *memory)
{
    int64_t index[DCP_MAX_DIMS] = {0};
    for (int32_t i = 0; i < layout->ndim; i++) {
        if (layout->sizes[i] == 0)
            return;
    }
    do {
        int64_t at = layout->first + layout_offset(layout->ndim, index, layout->strides);
        memcpy(memory + at * (int64_t)element_size, dense, element_size);
        dense += element_size;
    } while (layout_next(layout->ndim, layout->sizes, index));
}

struct state_chunk layout_target(struct box box, const int64_t *strides, void *memory)
{
    return (struct state_chunk){
        .offsets = (int64_t *)box.offsets,
        .sizes = (int64_t *)box.sizes,
        .strides = (int64_t *)strides,
        .data = memory,
    };
}
