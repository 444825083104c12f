/* SPDX-License-Identifier: BSD-3-Clause */
/* Moving a region of a stored tensor into memory: straight where the bytes lie alike on both sides,
 * through one bounded buffer where they have to be scattered, swapped or converted, or go to a
 * device: there, through two, where one is read into while the other one is copied. */
#ifndef STORAGE_SHARD_READ_REGION_H
#define STORAGE_SHARD_READ_REGION_H

#include "base/byte_source.h"
#include "device/device_lane.h"
#include "state/metadata.h"

/* Default size of the buffer, in bytes; it stays in a core's cache between reading and scattering.
 */
#define READ_REGION_BUFFER ((size_t)256 << 10)
/* The smallest size. */
#define READ_REGION_LEAST ((size_t)64 << 10)

/* The destination of a region. */
struct region_target {
    dcp_dtype dtype;
    dcp_device device;
    void *element;              /* for the region's first element */
    const int64_t *strides;     /* in elements of dtype */
    size_t buffer_bytes;        /* 0: READ_REGION_BUFFER */
    struct device_lanes *lanes; /* for a device, so that reading continues during copies to it */
};

/* source: what view's offsets count in; the view is not deflated. offsets, sizes: of the region in
 * the view, inside of it. Reads the bytes that the region needs, in ascending order as far as the
 * strides allow, with small gaps between them. Errors: DCP_ERR_FORMAT for a region that is not
 * inside the storage, DCP_ERR_DTYPE if there is no conversion, and those of the source. */
dcp_status read_region(const struct byte_source *source, const struct tensor_view *view,
                       const int64_t *offsets, const int64_t *sizes,
                       const struct region_target *target);

#endif
