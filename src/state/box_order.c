/* SPDX-License-Identifier: BSD-3-Clause */
#include "state/box.h"

int64_t box_run(struct box outer, struct box region)
{
    int64_t run = 1;
    for (int32_t i = region.ndim; i-- > 0;) {
        run *= region.sizes[i];
        if (region.sizes[i] != outer.sizes[i])
            break;
    }
    return run;
}

int64_t box_position(struct box outer, struct box region, int64_t element)
{
    int64_t position = 0, stride = 1;
    for (int32_t i = region.ndim; i-- > 0;) {
        int64_t index = element % region.sizes[i] + region.offsets[i] - outer.offsets[i];
        element /= region.sizes[i];
        position += index * stride;
        stride *= outer.sizes[i];
    }
    return position;
}

int64_t box_elements_before(struct box outer, struct box region, int64_t position)
{
    int64_t before = 0, slice = box_volume(outer), own = box_volume(region);
    for (int32_t i = 0; i < region.ndim; i++) {
        slice /= outer.sizes[i];
        own /= region.sizes[i];
        int64_t index = position / slice + outer.offsets[i] - region.offsets[i];
        position %= slice;
        if (index < 0)
            return before;
        if (index >= region.sizes[i])
            return before + region.sizes[i] * own;
        before += index * own;
    }
    return region.ndim == 0 ? position : before;
}
