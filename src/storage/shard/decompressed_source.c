/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/shard/decompressed_source.h"

#include <inttypes.h>
#include <string.h>

#include "base/checksum.h"
#include "base/error.h"
#include "base/memory.h"
#include "format/streams/item_decompress.h"

/* Bytes of the latest output that are kept: usually more than a stream has behind its elements. */
#define KEPT ((size_t)16 << 10)
/* Bytes in the window. */
#define WINDOW DECOMPRESSED_BEGINNING
/* Reads from this size on are decompressed straight into the destination, in steps of this size,
 * which stay in a core's cache until they have been checked. */
#define DIRECT ((size_t)32 << 10)
#define PIECE  ((size_t)256 << 10)
/* Input that is announced beforehand. */
#define AHEAD ((uint64_t)2 << 20)

static void begin_anew(struct decompressed_source *decompressed)
{
    item_decompressor_restart(decompressed->decompressor);
    decompressed->input_size = decompressed->input_taken = 0;
    decompressed->packed_position = decompressed->expected = 0;
    decompressed->window_size = 0;
    decompressed->position = 0;
}

/* Announces the next input, so that it is read while this is decompressed. */
static void expect_input(struct decompressed_source *decompressed)
{
    const struct byte_source *packed = &decompressed->packed;
    uint64_t position = decompressed->packed_position, left = packed->size - position;
    uint64_t end = position + (left < AHEAD ? left : AHEAD);
    if (!packed->expect || decompressed->expected >= end ||
        (end < packed->size && end - decompressed->expected < AHEAD / 2))
        return;
    if (decompressed->expected < position)
        decompressed->expected = position;
    packed->expect(packed->context, decompressed->expected, (size_t)(end - decompressed->expected));
    decompressed->expected = end;
}

/* Moves the rest of the input to the front and reads more. */
static dcp_status read_input(struct decompressed_source *decompressed)
{
    size_t left = decompressed->input_size - decompressed->input_taken;
    uint64_t behind = decompressed->packed.size - decompressed->packed_position;
    size_t room = decompressed->input_room - left;
    size_t size = behind < room ? (size_t)behind : room;
    if (left > 0)
        memmove(decompressed->input, decompressed->input + decompressed->input_taken, left);
    decompressed->input_taken = 0;
    decompressed->input_size = left;
    expect_input(decompressed);
    RETURN_IF_ERROR(byte_source_read(&decompressed->packed, decompressed->packed_position,
                                     decompressed->input + left, size));
    decompressed->packed_position += size;
    decompressed->input_size += size;
    return DCP_OK;
}

/* Continues the CRC of the record over new output. */
static void watch(struct decompressed_source *decompressed, uint64_t position,
                  const unsigned char *bytes, size_t size)
{
    uint64_t from = decompressed->record_position, end = position + size;
    if (end > decompressed->record_end)
        end = decompressed->record_end;
    if (from < position || from >= end)
        return;
    decompressed->crc =
        crc32_update(decompressed->crc, bytes + (from - position), (size_t)(end - from));
    decompressed->record_position = end;
}

/* Decompresses up to `room` bytes; none only at the end. */
static dcp_status decompress(struct decompressed_source *decompressed, unsigned char *bytes,
                             size_t room, size_t *made)
{
    struct item_output output = {.bytes = bytes, .size = room};
    bool ended = false;
    while (output.made == 0 && !ended) {
        struct item_input input = {.bytes = decompressed->input,
                                   .size = decompressed->input_size,
                                   .taken = decompressed->input_taken,
                                   .last =
                                       decompressed->packed_position == decompressed->packed.size};
        RETURN_IF_ERROR(item_decompressor_run(decompressed->decompressor, &input, &output, &ended));
        decompressed->input_taken = input.taken;
        if (output.made == 0 && !ended)
            RETURN_IF_ERROR(read_input(decompressed));
    }
    *made = output.made;
    if (ended)
        decompressed->size = decompressed->position + output.made;
    if (output.made > decompressed->limit - decompressed->position)
        return item_decompressor_beyond(decompressed->limit);
    watch(decompressed, decompressed->position, bytes, output.made);
    decompressed->position += output.made;
    return DCP_OK;
}

static bool has_ended(const struct decompressed_source *decompressed)
{
    return decompressed->position == decompressed->size;
}

/* Keeps the end of what is in the window, and fills the rest of it. */
static dcp_status fill_window(struct decompressed_source *decompressed)
{
    size_t kept = decompressed->window_size, made;
    if (kept == WINDOW) {
        kept = KEPT;
        memmove(decompressed->window, decompressed->window + WINDOW - KEPT, KEPT);
    }
    decompressed->window_size = kept;
    while (decompressed->window_size < WINDOW && !has_ended(decompressed)) {
        RETURN_IF_ERROR(decompress(decompressed, decompressed->window + decompressed->window_size,
                                   WINDOW - decompressed->window_size, &made));
        decompressed->window_size += made;
    }
    return DCP_OK;
}

/* Puts the end of what was decompressed past the window into it. */
static void keep(struct decompressed_source *decompressed, const unsigned char *bytes, size_t size)
{
    size_t taken = size < KEPT ? size : KEPT, stays = decompressed->window_size;
    if (stays > KEPT - taken)
        stays = KEPT - taken;
    memmove(decompressed->window, decompressed->window + decompressed->window_size - stays, stays);
    memcpy(decompressed->window + stays, bytes + size - taken, taken);
    decompressed->window_size = stays + taken;
}

static dcp_status end_error(const struct decompressed_source *decompressed, uint64_t offset,
                            size_t size)
{
    return dcp_error_set(DCP_ERR_FORMAT,
                         "%zu bytes expected at offset %" PRIu64
                         ", but the decompressed data ends at %" PRIu64,
                         size, offset, decompressed->size);
}

/* Straight into the destination. */
static dcp_status read_straight(struct decompressed_source *decompressed, unsigned char *bytes,
                                size_t size)
{
    size_t done = 0;
    while (done < size && !has_ended(decompressed)) {
        size_t made, room = size - done < PIECE ? size - done : PIECE;
        RETURN_IF_ERROR(decompress(decompressed, bytes + done, room, &made));
        done += made;
    }
    keep(decompressed, bytes, done);
    return done == size ? DCP_OK : end_error(decompressed, decompressed->position, size - done);
}

/* The part of a range that is held, from its beginning. */
static size_t copy_part(const struct decompressed_source *decompressed, uint64_t offset,
                        unsigned char *bytes, size_t size)
{
    uint64_t start = decompressed->position - decompressed->window_size;
    const unsigned char *from = NULL;
    size_t left = 0;
    if (offset < decompressed->beginning_size) {
        from = decompressed->beginning + offset;
        left = decompressed->beginning_size - (size_t)offset;
    } else if (offset >= start && offset < decompressed->position) {
        from = decompressed->window + (offset - start);
        left = (size_t)(decompressed->position - offset);
    }
    size = size < left ? size : left;
    if (size > 0)
        memcpy(bytes, from, size);
    return size;
}

static dcp_status read_decompressed(void *context, uint64_t offset, void *bytes, size_t size)
{
    struct decompressed_source *decompressed = context;
    unsigned char *to = bytes;
    while (size > 0) {
        size_t copied = copy_part(decompressed, offset, to, size);
        to += copied;
        offset += copied;
        size -= copied;
        if (copied > 0)
            continue;
        if (offset < decompressed->position)
            begin_anew(decompressed);
        if (offset == decompressed->position && size >= DIRECT)
            return read_straight(decompressed, to, size);
        if (has_ended(decompressed))
            return end_error(decompressed, offset, size);
        RETURN_IF_ERROR(fill_window(decompressed));
    }
    return DCP_OK;
}

dcp_status decompressed_source_open(struct decompressed_source *decompressed,
                                    struct byte_source packed, size_t input_room, uint64_t limit,
                                    struct byte_source *source)
{
    *decompressed = (struct decompressed_source){
        .packed = packed,
        .limit = limit,
        .input_room = packed.size < input_room ? (size_t)packed.size : input_room,
        .size = UINT64_MAX};
    *source =
        (struct byte_source){.read = read_decompressed, .context = decompressed, .size = limit};
    RETURN_IF_ERROR(item_decompressor_new(&decompressed->decompressor));
    decompressed->input = memory_allocate(decompressed->input_room + WINDOW);
    if (!decompressed->input)
        return error_no_memory(decompressed->input_room + WINDOW, "decompressing an item");
    decompressed->window = decompressed->input + decompressed->input_room;
    return DCP_OK;
}

dcp_status decompressed_source_begin(struct decompressed_source *decompressed,
                                     const unsigned char **bytes, size_t *size)
{
    RETURN_IF_ERROR(fill_window(decompressed));
    *bytes = decompressed->window;
    *size = decompressed->window_size;
    return DCP_OK;
}

dcp_status decompressed_source_keep(struct decompressed_source *decompressed, size_t size)
{
    if (size > decompressed->window_size)
        size = decompressed->window_size;
    decompressed->beginning = memory_allocate(size);
    if (!decompressed->beginning)
        return error_no_memory(size, "the beginning of an item");
    memcpy(decompressed->beginning, decompressed->window, size);
    decompressed->beginning_size = size;
    return DCP_OK;
}

void decompressed_source_watch(struct decompressed_source *decompressed, uint64_t offset,
                               uint64_t length)
{
    decompressed->record_start = decompressed->record_position = offset;
    decompressed->record_end = offset + length;
    decompressed->crc = 0;
    watch(decompressed, decompressed->position - decompressed->window_size, decompressed->window,
          decompressed->window_size);
}

uint64_t decompressed_source_way(const struct decompressed_source *decompressed, uint64_t offset)
{
    if (offset >= decompressed->position)
        return offset - decompressed->position;
    return offset < decompressed->position - decompressed->window_size ? offset : 0;
}

dcp_status decompressed_source_end(struct decompressed_source *decompressed,
                                   struct byte_source *source)
{
    while (decompressed->size == UINT64_MAX)
        RETURN_IF_ERROR(fill_window(decompressed));
    source->size = decompressed->size;
    return DCP_OK;
}

bool decompressed_source_watches(const struct decompressed_source *decompressed, uint64_t offset,
                                 uint64_t length)
{
    return decompressed->record_start == offset && decompressed->record_end == offset + length;
}

dcp_status decompressed_source_crc(struct decompressed_source *decompressed, uint64_t offset,
                                   uint64_t length, uint32_t *crc)
{
    if (!decompressed_source_watches(decompressed, offset, length))
        decompressed_source_watch(decompressed, offset, length);
    while (decompressed->record_position < decompressed->record_end) {
        if (decompressed->record_position < decompressed->position)
            begin_anew(decompressed);
        if (has_ended(decompressed))
            return end_error(decompressed, offset, (size_t)length);
        RETURN_IF_ERROR(fill_window(decompressed));
    }
    *crc = decompressed->crc;
    return DCP_OK;
}

void decompressed_source_close(struct decompressed_source *decompressed)
{
    item_decompressor_free(decompressed->decompressor);
    memory_release(decompressed->beginning);
    memory_release(decompressed->input);
}

uint64_t decompressed_source_memory(size_t input_room)
{
    return input_room + 2 * WINDOW;
}
