/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/error.h"
#include "format/item.h"

#if DCP_HAVE_ZSTD
#include <inttypes.h>

#include "base/buffer.h"
#include "base/memory.h"
#include "format/zstd_memory.h"

/* Most memory that a frame may ask for: 128 MiB, as PyTorch's reader allows. */
#define WINDOW_LOG_MAX 27
/* Grow by this where frames do not say how much they hold. */
#define GROWTH_FIRST (64u << 10)

/* More than what surrounds a tensor's elements, and what a frame without any takes. */
#define SPARE_SIZE ((uint64_t)256 << 10)

#define FRAME_SIGNATURE          0xfd2fb528u
#define SKIPPABLE_SIGNATURE      0x184d2a50u
#define SKIPPABLE_SIGNATURE_MASK 0xfffffff0u

/* The library may know older formats, too; an item has none of them. */
static bool is_frame(const ZSTD_inBuffer *input)
{
    if (input->size - input->pos < 4)
        return false;
    uint32_t signature = load_u32((const unsigned char *)input->src + input->pos);
    return signature == FRAME_SIGNATURE ||
           (signature & SKIPPABLE_SIGNATURE_MASK) == SKIPPABLE_SIGNATURE;
}

static void *allocate(void *context, size_t size)
{
    (void)context;
    return memory_allocate(size);
}

static void release(void *context, void *block)
{
    (void)context;
    memory_release(block);
}

/* Doubles the room for output, up to the limit. The limit itself leaves a byte of room, so that
 * output beyond it shows. */
static dcp_status grow(ZSTD_outBuffer *output, uint64_t limit)
{
    if (output->size > limit)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "zstd-compressed item gives more than the %" PRIu64 " bytes expected",
                             limit);
    size_t size = output->size != 0 ? output->size * 2 : GROWTH_FIRST;
    if (size > limit)
        size = (size_t)limit + 1;
    void *bytes = memory_reallocate_array(output->dst, size, 1);
    if (bytes == NULL)
        return error_no_memory(size, "decompressing an item");
    output->dst = bytes;
    output->size = size;
    return DCP_OK;
}

static dcp_status decompress_frames(ZSTD_DCtx *context, ZSTD_inBuffer *input,
                                    ZSTD_outBuffer *output, uint64_t limit)
{
    size_t wanted = 0; /* of the frame at hand; 0 between frames */
    do {
        if (wanted == 0 && !is_frame(input))
            return dcp_error_set(DCP_ERR_FORMAT,
                                 "no zstd frame at byte %zu of a zstd-compressed item", input->pos);
        if (output->pos == output->size)
            RETURN_IF_ERROR(grow(output, limit));
        wanted = ZSTD_decompressStream(context, output, input);
        if (zstd_lacks_memory(wanted))
            return error_no_memory(0, "decompressing an item");
        if (ZSTD_isError(wanted))
            return dcp_error_set(DCP_ERR_FORMAT, "zstd-compressed item, byte %zu: %s", input->pos,
                                 ZSTD_getErrorName(wanted));
        if (wanted != 0 && input->pos == input->size && output->pos < output->size)
            return dcp_error_set(DCP_ERR_FORMAT, "zstd-compressed item ends inside of a frame");
    } while (wanted != 0 || input->pos < input->size);
    if (output->pos > limit)
        return grow(output, limit);
    return DCP_OK;
}

dcp_status item_decompress(const void *compressed, size_t compressed_size, uint64_t limit,
                           void **bytes, size_t *size)
{
    *bytes = NULL;
    *size = 0;
    static const ZSTD_customMem memory = {allocate, release, NULL};
    ZSTD_DCtx *context = ZSTD_createDCtx_advanced(memory);
    if (context == NULL)
        return error_no_memory(0, "decompressing an item");
    ZSTD_inBuffer input = {.src = compressed, .size = compressed_size};
    ZSTD_outBuffer output = {0};
    dcp_status status = DCP_OK;
    if (ZSTD_isError(ZSTD_DCtx_setParameter(context, ZSTD_d_windowLogMax, WINDOW_LOG_MAX)))
        status = dcp_error_set(DCP_ERR_INTERNAL, "zstd refuses a window of 2^%d", WINDOW_LOG_MAX);
    if (status == DCP_OK)
        status = decompress_frames(context, &input, &output, limit);
    ZSTD_freeDCtx(context);
    if (status != DCP_OK) {
        memory_release(output.dst);
        return status;
    }
    *bytes = output.dst;
    *size = output.pos;
    return DCP_OK;
}

/* Room for the container around the elements, buffers of a block, and a window of the past. */
uint64_t item_decompress_memory(const void *compressed, size_t size)
{
    ZSTD_frameHeader header;
    unsigned long long most = (unsigned long long)1 << WINDOW_LOG_MAX;
    if (ZSTD_getFrameHeader(&header, compressed, size) != 0)
        return SPARE_SIZE;
    if (header.windowSize > most)
        header.windowSize = most;
    return ZSTD_estimateDStreamSize((size_t)header.windowSize) + SPARE_SIZE;
}

#else

uint64_t item_decompress_memory(const void *compressed, size_t size)
{
    (void)compressed, (void)size;
    return 0;
}

dcp_status item_decompress(const void *compressed, size_t compressed_size, uint64_t limit,
                           void **bytes, size_t *size)
{
    (void)compressed, (void)compressed_size, (void)limit;
    *bytes = NULL;
    *size = 0;
    return dcp_error_set(DCP_ERR_UNSUPPORTED,
                         "a zstd-compressed item, but this library was built with DCP_ZSTD=OFF");
}

#endif
