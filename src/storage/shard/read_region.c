/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/shard/read_region.h"

#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/stream_copy.h"
#include "device/device_copy.h"
#include "state/box_blocks.h"
#include "state/copy.h"
#include "state/device_memory.h"
#include "state/element_sign.h"
#include "storage/shard/shard_file.h"

/* Runs of at least this size are read one by one, straight into the destination. */
#define DIRECT_SIZE ((int64_t)4 << 10)
/* The same for a source that reads more than requested. */
#define GRAINS_DIRECT 64
/* What is announced to the source beforehand, in windows: for a device, many small ranges take
 * longer than what lies between them. */
#define BYTES_AHEAD  ((int64_t)4 << 20)
#define WINDOW_AHEAD ((int64_t)1 << 20)
#define GAP_AHEAD    ((int64_t)64 << 10)
/* Gaps that are read too: another read would cost more, or they are small beside the wanted
 * bytes. */
#define GAP_SIZE      ((int64_t)512)
#define GAP_OF_WANTED 64
/* Bytes that processors copy fast from and to. */
#define LINE ((uintptr_t)64)

/* The region's dimensions of more than one element, the stored stride falling. */
struct region {
    const struct byte_source *source;
    const struct tensor_view *view;
    const struct region_target *target;
    int64_t stored_size; /* bytes of an element, stored and wanted */
    int64_t wanted_size;
    int64_t start; /* stored elements in front of the first one of the region */
    int32_t ndim;
    int64_t sizes[DCP_MAX_DIMS];
    int64_t stored[DCP_MAX_DIMS];
    int64_t wanted[DCP_MAX_DIMS];
    struct device_lane *lane; /* NULL: copies to the device are waited for */
    int buffer;               /* of the lane: the next one */
};

static void add_dimension(struct region *region, int64_t size, int64_t stored, int64_t wanted)
{
    int32_t at = region->ndim++;
    while (at > 0 && region->stored[at - 1] < stored) {
        region->sizes[at] = region->sizes[at - 1];
        region->stored[at] = region->stored[at - 1];
        region->wanted[at] = region->wanted[at - 1];
        at--;
    }
    region->sizes[at] = size;
    region->stored[at] = stored;
    region->wanted[at] = wanted;
}

/* Views were checked when they were opened. The numbers that reading computes with are checked
 * again where they are used. */
static dcp_status lay_out(struct region *region, const int64_t *offsets, const int64_t *sizes)
{
    const struct tensor_view *view = region->view;
    int64_t first = view->storage_offset, last, way, bytes;
    bool fits = first >= 0;
    for (int32_t i = 0; i < view->ndim; i++) {
        fits = fits && view->strides[i] >= 0 &&
               checked_multiply_i64(offsets[i], view->strides[i], &way) &&
               checked_add_i64(first, way, &first);
        if (sizes[i] > 1)
            add_dimension(region, sizes[i], view->strides[i], region->target->strides[i]);
    }
    last = first;
    for (int32_t i = 0; i < region->ndim; i++)
        fits = fits && checked_multiply_i64(region->sizes[i] - 1, region->stored[i], &way) &&
               checked_add_i64(last, way, &last);
    fits = fits && checked_add_i64(last, 1, &last) &&
           checked_multiply_i64(last, region->stored_size, &bytes) &&
           (uint64_t)bytes <= view->storage_bytes && view->data_length == view->storage_bytes;
    if (!fits)
        return dcp_error_set(DCP_ERR_FORMAT, "the elements reach beyond the stored bytes");
    region->start = first;
    return DCP_OK;
}

/* Where a block begins on both sides, in elements. */
static int64_t way_to(const struct region *region, const struct box_storage *block,
                      const int64_t *strides)
{
    int64_t way = 0;
    for (int32_t i = 0; i < region->ndim; i++)
        way += block->offsets[i] * strides[i];
    return way;
}

static unsigned char *target_of(const struct region *region, const struct box_storage *block)
{
    return (unsigned char *)region->target->element +
           way_to(region, block, region->wanted) * region->wanted_size;
}

static dcp_status read_stored(const struct region *region, int64_t element, void *bytes,
                              int64_t count)
{
    uint64_t offset = region->view->data_offset;
    if (!checked_add_u64(offset, (uint64_t)(element * region->stored_size), &offset))
        return dcp_error_set(DCP_ERR_FORMAT, "the stored bytes begin beyond any file");
    return byte_source_read(region->source, offset, bytes, (size_t)(count * region->stored_size));
}

/* The same to where the elements are wanted: what the source holds goes past the core's cache,
 * which would first read what is overwritten. */
static dcp_status read_wanted(const struct region *region, int64_t element, void *bytes,
                              int64_t count)
{
    uint64_t offset;
    size_t size = (size_t)(count * region->stored_size);
    const void *held = NULL;
    stream_copy_prepare(bytes, size);
    if (checked_add_u64(region->view->data_offset, (uint64_t)(element * region->stored_size),
                        &offset))
        RETURN_IF_ERROR(byte_source_hold(region->source, offset, size, &held));
    if (!held)
        return read_stored(region, element, bytes, count);
    stream_copy(bytes, held, size);
    return DCP_OK;
}

/* Dimensions from *split on lie in both places alike and without gaps; returns their elements. */
static int64_t find_common_run(const struct region *region, int32_t *split)
{
    int64_t run = 1;
    int32_t i = region->ndim;
    while (i > 0 && region->stored[i - 1] == run && region->wanted[i - 1] == run)
        run *= region->sizes[--i];
    *split = i;
    return run;
}

/* Elements from a block's first to its last, as they are stored. */
static int64_t span_of(const struct region *region, const struct box_storage *block)
{
    int64_t span = 1;
    for (int32_t i = 0; i < region->ndim; i++)
        span += (block->sizes[i] - 1) * region->stored[i];
    return span;
}

/* The first block that has not been announced yet, in stored elements. */
struct ahead {
    struct box_blocks blocks;
    bool more;
    int64_t first, end;
};

static bool next_ahead(const struct region *region, struct ahead *ahead)
{
    struct box_storage block;
    ahead->more = region->source->expect && box_blocks_next(&ahead->blocks, &block);
    if (ahead->more) {
        ahead->first = way_to(region, &block, region->stored);
        ahead->end = ahead->first + span_of(region, &block);
    }
    return ahead->more;
}

/* Announces what comes within some MiB of a place, so that it is read while others are copied. */
static void expect(const struct region *region, struct ahead *ahead, int64_t place)
{
    const struct byte_source *source = region->source;
    int64_t size = region->stored_size;
    while (ahead->more && ahead->first < place + BYTES_AHEAD / size) {
        int64_t first = ahead->first, end = ahead->end;
        while (next_ahead(region, ahead) && ahead->first >= first &&
               ahead->first <= end + GAP_AHEAD / size && ahead->end <= first + WINDOW_AHEAD / size)
            end = ahead->end > end ? ahead->end : end;
        source->expect(source->context,
                       region->view->data_offset + (uint64_t)((region->start + first) * size),
                       (size_t)((end - first) * size));
    }
}

/* Whether each run is read separately, straight into its destination; not if its neighbours lie in
 * the same blocks, unless the cost is negligible. */
static bool is_worth_a_read(const struct region *region, int32_t split, int64_t run)
{
    int64_t grain = (int64_t)region->source->grain, size = run * region->stored_size;
    int64_t gap = region->stored[split - 1] * region->stored_size - size;
    return size >= DIRECT_SIZE && (gap >= grain || size >= GRAINS_DIRECT * grain);
}

/* Large runs are not announced: what the page cache lacks of them is read around it. */
static dcp_status read_direct(const struct region *region, int32_t split, int64_t run)
{
    struct box_blocks blocks;
    struct box_storage block;
    box_blocks_start(&blocks, region->ndim, region->sizes, split - 1, 1);
    struct ahead ahead = {.blocks = blocks};
    if (split > 0 && run * region->stored_size < (int64_t)SHARD_LARGE)
        next_ahead(region, &ahead);
    while (box_blocks_next(&blocks, &block)) {
        int64_t first = way_to(region, &block, region->stored);
        expect(region, &ahead, first);
        RETURN_IF_ERROR(read_wanted(region, region->start + first, target_of(region, &block), run));
    }
    return DCP_OK;
}

/* Cuts the region into blocks that are read at once: as many inner dimensions as have no large gaps
 * in between and fit the buffer. Returns the stored elements that a block spans at most. */
static int64_t choose_blocks(const struct region *region, int32_t *split, int64_t *step)
{
    int64_t widest =
        region->stored_size > region->wanted_size ? region->stored_size : region->wanted_size;
    size_t given = region->target->buffer_bytes;
    int64_t buffer_bytes = (int64_t)(given != 0 ? given : READ_REGION_BUFFER);
    if (region->lane)
        buffer_bytes = (int64_t)DEVICE_LANE_BUFFER;
    /* Data for a device may need three more buffers, for conversion and packing. */
    int64_t most =
        buffer_bytes / (device_is_host(&region->target->device) ? region->stored_size : widest);
    int64_t span = 1;
    *split = -1;
    *step = 1;
    for (int32_t i = region->ndim - 1; i >= 0; i--) {
        int64_t gap = (region->stored[i] - span) * region->stored_size;
        if (gap > GAP_SIZE && gap > span * region->stored_size / GAP_OF_WANTED &&
            gap >= (int64_t)region->source->grain) {
            *split = i;
            break;
        }
        int64_t whole = (region->sizes[i] - 1) * region->stored[i] + span;
        if (whole > most) {
            *split = i;
            *step = 1 + (most - span) / region->stored[i];
            return span + (*step - 1) * region->stored[i];
        }
        span = whole;
    }
    return span;
}

/* Applies byte order, conjugation and negation to the buffered elements. */
static void settle(const struct region *region, void *elements, int64_t count)
{
    const struct tensor_view *view = region->view;
    if (view->swapped)
        copy_swap_bytes(view->dtype, elements, (size_t)count);
    if (view->conjugate)
        element_conjugate(view->dtype, elements, (size_t)count);
    if (view->negative)
        element_negate(view->dtype, elements, (size_t)count);
}

/* A buffer of the lane with nothing under way in it. */
static dcp_status next_buffer(struct region *region, unsigned char **buffer)
{
    region->buffer = 1 - region->buffer;
    *buffer = device_lane_buffer(region->lane, region->buffer);
    return device_lane_wait(region->lane, region->buffer);
}

/* Starts the copy of a block from the lane's buffer that was given out last. */
static dcp_status start_to_device(struct region *region, const struct box_storage *block,
                                  const void *elements, const int64_t *strides)
{
    RETURN_IF_ERROR(device_start_from_host(device_lane_queue(region->lane), region->ndim,
                                           block->sizes, (size_t)region->wanted_size, elements,
                                           strides, target_of(region, block), region->wanted));
    return device_lane_mark(region->lane, region->buffer);
}

static dcp_status convert_through_lane(struct region *region, const struct box_storage *block,
                                       const void *elements)
{
    int64_t dense[DCP_MAX_DIMS];
    unsigned char *converted;
    RETURN_IF_ERROR(next_buffer(region, &converted));
    shape_strides(region->ndim, block->sizes, dense);
    copy_convert(region->ndim, block->sizes, region->view->dtype, elements, region->stored,
                 region->target->dtype, converted, dense);
    return start_to_device(region, block, converted, dense);
}

/* Conversion takes place on the host, in front of the copy. */
static dcp_status convert_to_device(const struct region *region, const struct box_storage *block,
                                    const void *elements)
{
    const struct region_target *target = region->target;
    int64_t dense[DCP_MAX_DIMS];
    size_t size = (size_t)(box_volume(box_of(region->ndim, block)) * region->wanted_size);
    unsigned char *converted = memory_allocate(size);
    if (!converted)
        return error_no_memory(size, "converted elements for a device");
    shape_strides(region->ndim, block->sizes, dense);
    copy_convert(region->ndim, block->sizes, region->view->dtype, elements, region->stored,
                 target->dtype, converted, dense);
    dcp_status status = device_copy_from_host(&target->device, region->ndim, block->sizes,
                                              (size_t)region->wanted_size, converted, dense,
                                              target_of(region, block), region->wanted);
    memory_release(converted);
    return status;
}

/* Copies the elements of a block, which are in host memory as stored, to the destination. */
static dcp_status scatter(struct region *region, const struct box_storage *block,
                          const void *elements)
{
    const struct region_target *target = region->target;
    bool convert = target->dtype != region->view->dtype;
    void *first = target_of(region, block);
    if (region->lane)
        return convert ? convert_through_lane(region, block, elements)
                       : start_to_device(region, block, elements, region->stored);
    if (!device_is_host(&target->device)) {
        if (convert)
            return convert_to_device(region, block, elements);
        return device_copy_from_host(&target->device, region->ndim, block->sizes,
                                     (size_t)region->stored_size, elements, region->stored, first,
                                     region->wanted);
    }
    if (convert)
        copy_convert(region->ndim, block->sizes, region->view->dtype, elements, region->stored,
                     target->dtype, first, region->wanted);
    else
        copy_strided(region->ndim, block->sizes, (size_t)region->stored_size, elements,
                     region->stored, first, region->wanted);
    return DCP_OK;
}

/* Where in a buffer with LINE bytes to spare an element lies as it does in its file. */
static unsigned char *align_as_stored(const struct region *region, int64_t element,
                                      unsigned char *buffer)
{
    uint64_t place = region->source->place + region->view->data_offset +
                     (uint64_t)(element * region->stored_size);
    return buffer + (place - (uintptr_t)buffer) % LINE;
}

/* own: the buffer for blocks, unless a buffer of the lane is used. */
static dcp_status read_blocks(struct region *region, int32_t split, int64_t step,
                              unsigned char *own)
{
    struct box_blocks blocks;
    struct box_storage block;
    unsigned char *buffer = own;
    box_blocks_start(&blocks, region->ndim, region->sizes, split, step);
    struct ahead ahead = {.blocks = blocks};
    next_ahead(region, &ahead);
    while (box_blocks_next(&blocks, &block)) {
        int64_t count = span_of(region, &block), first = way_to(region, &block, region->stored);
        expect(region, &ahead, first);
        if (!own)
            RETURN_IF_ERROR(next_buffer(region, &buffer));
        first += region->start;
        if (own)
            buffer = align_as_stored(region, first, own);
        RETURN_IF_ERROR(read_stored(region, first, buffer, count));
        settle(region, buffer, count);
        RETURN_IF_ERROR(scatter(region, &block, buffer));
    }
    return DCP_OK;
}

/* All of the region, if the source has it in memory as it is wanted but for places and dtype. */
static const void *find_in_memory(const struct region *region, struct box_storage *all)
{
    const struct tensor_view *view = region->view;
    uint64_t offset;
    *all = (struct box_storage){0};
    memcpy(all->sizes, region->sizes, sizeof all->sizes);
    if (view->swapped || view->conjugate || view->negative ||
        !checked_add_u64(view->data_offset, (uint64_t)(region->start * region->stored_size),
                         &offset))
        return NULL;
    return byte_source_at(region->source, offset,
                          (uint64_t)(span_of(region, all) * region->stored_size));
}

static dcp_status read_buffered(struct region *region)
{
    int32_t split;
    int64_t step;
    int64_t span = choose_blocks(region, &split, &step);
    size_t size = (size_t)(span * region->stored_size);
    unsigned char *own = NULL;
    if (!region->lane || region->target->dtype != region->view->dtype) {
        own = memory_allocate(size + LINE);
        if (!own)
            return error_no_memory(size, "a read buffer");
    }
    dcp_status status = read_blocks(region, split, step, own);
    memory_release(own);
    return status;
}

/* Elements for a device have arrived when this returns. */
static dcp_status read_to_device(struct region *region)
{
    const struct region_target *target = region->target;
    uint64_t bytes = (uint64_t)region->wanted_size;
    for (int32_t i = 0; i < region->ndim; i++)
        bytes *= (uint64_t)region->sizes[i];
    RETURN_IF_ERROR(device_lane_take(target->lanes, &target->device, bytes, &region->lane));
    dcp_status status = read_buffered(region);
    for (int i = 0; region->lane && status == DCP_OK && i < 2; i++)
        status = device_lane_wait(region->lane, i);
    device_lane_give(target->lanes, region->lane);
    return status;
}

static dcp_status check_dtypes(const struct tensor_view *view, const struct region_target *target)
{
    if (view->dtype != target->dtype && !copy_can_convert(view->dtype, target->dtype))
        return dcp_error_set(DCP_ERR_DTYPE, "%s cannot be converted to %s",
                             dcp_dtype_name(view->dtype), dcp_dtype_name(target->dtype));
    if (view->negative && !element_has_sign(view->dtype))
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "a negated view of %s",
                             dcp_dtype_name(view->dtype));
    return DCP_OK;
}

dcp_status read_region(const struct byte_source *source, const struct tensor_view *view,
                       const int64_t *offsets, const int64_t *sizes,
                       const struct region_target *target)
{
    struct region region = {
        .source = source,
        .view = view,
        .target = target,
        .stored_size = (int64_t)dcp_dtype_size(view->dtype),
        .wanted_size = (int64_t)dcp_dtype_size(target->dtype),
    };
    for (int32_t i = 0; i < view->ndim; i++) {
        if (sizes[i] == 0)
            return DCP_OK;
    }
    RETURN_IF_ERROR(check_dtypes(view, target));
    RETURN_IF_ERROR(lay_out(&region, offsets, sizes));
    bool as_it_is =
        view->dtype == target->dtype && !view->swapped && !view->conjugate && !view->negative;
    int32_t split;
    int64_t run = find_common_run(&region, &split);
    if (!device_is_host(&target->device))
        return read_to_device(&region);
    if (as_it_is && (split == 0 || is_worth_a_read(&region, split, run)))
        return read_direct(&region, split, run);
    struct box_storage all;
    const void *elements = find_in_memory(&region, &all);
    return elements ? scatter(&region, &all, elements) : read_buffered(&region);
}
