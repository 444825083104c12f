/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/streams/item_decompress.h"

#include <inttypes.h>

#include "base/error.h"

#if DCP_HAVE_ZSTD
#include <string.h>

#include "base/buffer.h"
#include "base/memory.h"
#include "format/streams/zstd_memory.h"

/* Most memory that a frame may ask for: 128 MiB, as PyTorch's reader allows. */
#define WINDOW_LOG_MAX 27
/* Initial output size for frames that do not state their size. */
#define GROWTH_FIRST (64u << 10)

#define FRAME_SIGNATURE          0xfd2fb528u
#define SKIPPABLE_SIGNATURE      0x184d2a50u
#define SKIPPABLE_SIGNATURE_MASK 0xfffffff0u
#define SIGNATURE_SIZE           4u

/* The largest header of a frame, the header of a block, and the checksum that may follow the last
 * block. */
#define FRAME_HEADER_SIZE 18u
#define BLOCK_HEADER_SIZE 3u
#define CHECKSUM_SIZE     4u

enum { BLOCK_RAW = 0, BLOCK_REPEATED = 1, BLOCK_COMPRESSED = 2 };

struct item_decompressor {
    ZSTD_DCtx *context;
    uint64_t taken; /* of the item, for messages */
    size_t refused; /* bytes that zstd asked for in vain, for messages */
    size_t wanted;  /* of the current frame; 0 between frames */
    bool begun;
};

/* zstd may also accept older formats, which items do not use. */
static bool is_frame(const struct item_input *input)
{
    if (input->size - input->taken < SIGNATURE_SIZE)
        return false;
    uint32_t signature = load_u32((const unsigned char *)input->bytes + input->taken);
    return signature == FRAME_SIGNATURE ||
           (signature & SKIPPABLE_SIGNATURE_MASK) == SKIPPABLE_SIGNATURE;
}

static void *allocate(void *context, size_t size)
{
    struct item_decompressor *decompressor = context;
    void *block = memory_allocate(size);
    if (block == NULL)
        decompressor->refused = size;
    return block;
}

static void release(void *context, void *block)
{
    (void)context;
    memory_release(block);
}

dcp_status item_decompressor_new(struct item_decompressor **made)
{
    struct item_decompressor *decompressor = memory_allocate_zeroed(1, sizeof *decompressor);
    const ZSTD_customMem memory = {allocate, release, decompressor};
    *made = NULL;
    if (decompressor == NULL)
        return error_no_memory(sizeof *decompressor, "decompressing an item");
    decompressor->context = ZSTD_createDCtx_advanced(memory);
    dcp_status status = DCP_OK;
    if (decompressor->context == NULL)
        status = error_no_memory(decompressor->refused, "decompressing an item");
    else if (ZSTD_isError(ZSTD_DCtx_setParameter(decompressor->context, ZSTD_d_windowLogMax,
                                                 WINDOW_LOG_MAX)))
        status = dcp_error_set(DCP_ERR_INTERNAL, "zstd refuses a window of 2^%d", WINDOW_LOG_MAX);
    if (status == DCP_OK)
        *made = decompressor;
    else
        item_decompressor_free(decompressor);
    return status;
}

void item_decompressor_free(struct item_decompressor *decompressor)
{
    if (decompressor == NULL)
        return;
    ZSTD_freeDCtx(decompressor->context);
    memory_release(decompressor);
}

void item_decompressor_restart(struct item_decompressor *decompressor)
{
    ZSTD_DCtx_reset(decompressor->context, ZSTD_reset_session_only);
    decompressor->taken = 0;
    decompressor->wanted = 0;
    decompressor->begun = false;
}

static dcp_status decompress_some(struct item_decompressor *decompressor, struct item_input *input,
                                  struct item_output *output)
{
    ZSTD_inBuffer in = {.src = input->bytes, .size = input->size, .pos = input->taken};
    ZSTD_outBuffer out = {.dst = output->bytes, .size = output->size, .pos = output->made};
    decompressor->begun = true;
    decompressor->wanted = ZSTD_decompressStream(decompressor->context, &out, &in);
    decompressor->taken += in.pos - input->taken;
    input->taken = in.pos;
    output->made = out.pos;
    if (zstd_lacks_memory(decompressor->wanted))
        return error_no_memory(decompressor->refused, "decompressing an item");
    if (ZSTD_isError(decompressor->wanted))
        return dcp_error_set(DCP_ERR_FORMAT, "zstd-compressed item, byte %" PRIu64 ": %s",
                             decompressor->taken, ZSTD_getErrorName(decompressor->wanted));
    return DCP_OK;
}

dcp_status item_decompressor_run(struct item_decompressor *decompressor, struct item_input *input,
                                 struct item_output *output, bool *ended)
{
    *ended = false;
    while (output->made < output->size) {
        size_t left = input->size - input->taken;
        if (decompressor->wanted == 0) {
            if (left < SIGNATURE_SIZE && !input->last)
                return DCP_OK;
            *ended = left == 0 && decompressor->begun;
            if (*ended)
                return DCP_OK;
            if (!is_frame(input))
                return dcp_error_set(
                    DCP_ERR_FORMAT, "zstd-compressed item, byte %" PRIu64 ": expected a zstd frame",
                    decompressor->taken);
        }
        RETURN_IF_ERROR(decompress_some(decompressor, input, output));
        bool starved =
            decompressor->wanted != 0 && input->taken == input->size && output->made < output->size;
        if (starved && input->last)
            return dcp_error_set(DCP_ERR_FORMAT, "zstd-compressed item ends inside a frame");
        if (starved)
            return DCP_OK;
    }
    return DCP_OK;
}

dcp_status item_decompressor_beyond(uint64_t limit)
{
    return dcp_error_set(
        DCP_ERR_FORMAT,
        "zstd-compressed item decompresses to more than the expected %" PRIu64 " bytes", limit);
}

/* A frame, while walking over the headers of an item. */
struct frame {
    uint64_t position; /* of what comes next */
    uint64_t window;
    bool blocks; /* blocks follow: not a skippable frame */
    bool checksum;
};

/* If there is no valid frame, *sound is false and the walk ends; decompression will report the
 * error. */
static dcp_status look_at_frame(const struct byte_source *packed, struct frame *frame, bool *sound)
{
    unsigned char bytes[FRAME_HEADER_SIZE];
    ZSTD_frameHeader header;
    uint64_t left = packed->size - frame->position;
    size_t size = left < sizeof bytes ? (size_t)left : sizeof bytes;
    RETURN_IF_ERROR(byte_source_read(packed, frame->position, bytes, size));
    *sound = ZSTD_getFrameHeader(&header, bytes, size) == 0;
    if (!*sound)
        return DCP_OK;
    frame->blocks = header.frameType == ZSTD_frame;
    frame->checksum = header.checksumFlag != 0;
    frame->window = frame->blocks ? header.windowSize : 0;
    frame->position +=
        frame->blocks ? header.headerSize : 2 * SIGNATURE_SIZE + header.frameContentSize;
    return DCP_OK;
}

static dcp_status walk_over_blocks(const struct byte_source *packed, struct frame *frame,
                                   bool *sound)
{
    for (bool last = false; !last && *sound;) {
        unsigned char bytes[4] = {0};
        *sound =
            frame->position <= packed->size && packed->size - frame->position >= BLOCK_HEADER_SIZE;
        if (!*sound)
            return DCP_OK;
        RETURN_IF_ERROR(byte_source_read(packed, frame->position, bytes, BLOCK_HEADER_SIZE));
        uint32_t header = load_u32(bytes), type = header >> 1 & 3;
        last = header & 1;
        *sound = type <= BLOCK_COMPRESSED;
        frame->position += BLOCK_HEADER_SIZE + (type == BLOCK_REPEATED ? 1 : header >> 3);
    }
    frame->position += frame->checksum ? CHECKSUM_SIZE : 0;
    return DCP_OK;
}

dcp_status item_decompressor_memory(const struct byte_source *packed, bool whole_item,
                                    uint64_t *memory)
{
    const uint64_t most = (uint64_t)1 << WINDOW_LOG_MAX;
    struct frame frame = {0};
    uint64_t window = 0;
    bool sound = true, some = false;
    *memory = 0;
    while (sound && frame.position < packed->size && (whole_item || !some)) {
        RETURN_IF_ERROR(look_at_frame(packed, &frame, &sound));
        some = some || sound;
        window = sound && frame.window > window ? frame.window : window;
        if (sound && frame.blocks && whole_item)
            RETURN_IF_ERROR(walk_over_blocks(packed, &frame, &sound));
    }
    if (some)
        *memory = sizeof(struct item_decompressor) +
                  ZSTD_estimateDStreamSize((size_t)(window < most ? window : most));
    return DCP_OK;
}

dcp_status item_decompressor_frame(const struct byte_source *packed, uint64_t offset, uint64_t *end,
                                   bool *skippable)
{
    struct frame frame = {.position = offset};
    bool sound = true;
    *end = 0;
    RETURN_IF_ERROR(look_at_frame(packed, &frame, &sound));
    *skippable = sound && !frame.blocks;
    if (sound && frame.blocks)
        RETURN_IF_ERROR(walk_over_blocks(packed, &frame, &sound));
    if (sound && frame.position > offset && frame.position <= packed->size)
        *end = frame.position;
    return DCP_OK;
}

/* Doubles the output buffer, up to one byte more than the limit, so that output beyond the limit is
 * detected. */
static dcp_status grow(struct item_output *output, uint64_t limit)
{
    size_t size = output->size != 0 ? output->size * 2 : GROWTH_FIRST;
    if (output->size > limit)
        return item_decompressor_beyond(limit);
    if (size > limit)
        size = (size_t)limit + 1;
    void *bytes = memory_reallocate_array(output->bytes, size, 1);
    if (bytes == NULL)
        return error_no_memory(size, "decompressing an item");
    output->bytes = bytes;
    output->size = size;
    return DCP_OK;
}

dcp_status item_decompress(const void *compressed, size_t compressed_size, uint64_t limit,
                           void **bytes, size_t *size)
{
    struct item_decompressor *decompressor;
    struct item_input input = {.bytes = compressed, .size = compressed_size, .last = true};
    struct item_output output = {0};
    bool ended = false;
    *bytes = NULL;
    *size = 0;
    RETURN_IF_ERROR(item_decompressor_new(&decompressor));
    dcp_status status = DCP_OK;
    while (status == DCP_OK && !ended) {
        if (output.made == output.size)
            status = grow(&output, limit);
        if (status == DCP_OK)
            status = item_decompressor_run(decompressor, &input, &output, &ended);
    }
    if (status == DCP_OK && output.made > limit)
        status = item_decompressor_beyond(limit);
    item_decompressor_free(decompressor);
    if (status != DCP_OK) {
        memory_release(output.bytes);
        return status;
    }
    *bytes = output.bytes;
    *size = output.made;
    return DCP_OK;
}

#else

static dcp_status refuse(void)
{
    return dcp_error_set(
        DCP_ERR_UNSUPPORTED,
        "cannot read a zstd-compressed item: this library was built with DCP_ZSTD=OFF");
}

dcp_status item_decompressor_new(struct item_decompressor **made)
{
    *made = NULL;
    return refuse();
}

void item_decompressor_free(struct item_decompressor *decompressor)
{
    (void)decompressor;
}

void item_decompressor_restart(struct item_decompressor *decompressor)
{
    (void)decompressor;
}

dcp_status item_decompressor_run(struct item_decompressor *decompressor, struct item_input *input,
                                 struct item_output *output, bool *ended)
{
    (void)decompressor, (void)input, (void)output;
    *ended = false;
    return refuse();
}

dcp_status item_decompressor_beyond(uint64_t limit)
{
    (void)limit;
    return refuse();
}

dcp_status item_decompressor_memory(const struct byte_source *packed, bool whole_item,
                                    uint64_t *memory)
{
    (void)packed, (void)whole_item;
    *memory = 0;
    return DCP_OK;
}

dcp_status item_decompressor_frame(const struct byte_source *packed, uint64_t offset, uint64_t *end,
                                   bool *skippable)
{
    (void)packed, (void)offset;
    *end = 0;
    *skippable = false;
    return DCP_OK;
}

dcp_status item_decompress(const void *compressed, size_t compressed_size, uint64_t limit,
                           void **bytes, size_t *size)
{
    (void)compressed, (void)compressed_size, (void)limit;
    *bytes = NULL;
    *size = 0;
    return refuse();
}

#endif
