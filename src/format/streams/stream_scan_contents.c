/* SPDX-License-Identifier: BSD-3-Clause */
/* What one stream holds that a scan has found: a tensor, or an object. */
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/memory.h"
#include "format/streams/item.h"
#include "format/streams/item_decompress.h"
#include "format/streams/stream_scan.h"
#include "format/zip/zip_directory.h"

/* Of a compressed stream: enough for the records before the elements, and what is read for it. */
#define BEGINNING_SIZE ((size_t)64 << 10)
#define INPUT_SIZE     ((size_t)128 << 10)
/* Compressed streams in another order than torch.save's are decompressed whole up to this size. */
#define WHOLE_SIZE ((uint64_t)16 << 20)

static dcp_status read_part(void *context, uint64_t offset, void *bytes, size_t size)
{
    const struct file_part *part = context;
    return byte_source_read(part->file, part->offset + offset, bytes, size);
}

struct byte_source file_part_source(struct file_part *part, uint64_t length)
{
    return (struct byte_source){.read = read_part, .context = part, .size = length};
}

/* Whether a failure says something of the bytes, and nothing of memory or the storage. */
static bool is_of_bytes(dcp_status status)
{
    return status == DCP_ERR_FORMAT || status == DCP_ERR_UNSUPPORTED ||
           status == DCP_ERR_CHECKSUM || status == DCP_ERR_DUPLICATE;
}

static dcp_status look_for_pickle(struct byte_source source)
{
    struct zip_archive archive;
    RETURN_IF_ERROR(zip_open(source, &archive));
    dcp_status status = DCP_OK;
    if (!zip_find(&archive, "data.pkl"))
        status = dcp_error_set(DCP_ERR_FORMAT, "zip archive has no record \"data.pkl\"");
    zip_close(&archive);
    return status;
}

/* A tensor, or else an object: any archive with a pickle. */
static dcp_status describe(struct byte_source source, struct arena *arena,
                           struct found_stream *stream, bool *sound)
{
    dcp_status status = item_open_tensor(source, arena, &stream->view);
    stream->is_tensor = status == DCP_OK;
    if (is_of_bytes(status))
        status = look_for_pickle(source);
    *sound = status == DCP_OK;
    return is_of_bytes(status) ? DCP_OK : status;
}

dcp_status scan_archive(const struct byte_source *file, struct arena *arena,
                        struct found_stream *stream, bool *sound)
{
    struct file_part part = {file, stream->offset};
    return describe(file_part_source(&part, stream->length), arena, stream, sound);
}

/* ---- compressed streams ---- */

/* The first bytes that come of a frame; fewer if it is damaged. */
static dcp_status decompress_beginning(const struct byte_source *packed, unsigned char *bytes,
                                       size_t room, size_t *size)
{
    struct item_decompressor *decompressor;
    struct item_output output = {.bytes = bytes, .size = room};
    bool ended;
    *size = 0;
    size_t taken = packed->size < INPUT_SIZE ? (size_t)packed->size : INPUT_SIZE;
    struct item_input input = {.size = taken, .last = taken == packed->size};
    unsigned char *read = memory_allocate(taken);
    if (!read)
        return error_no_memory(taken, "a compressed stream");
    dcp_status status = byte_source_read(packed, 0, read, taken);
    input.bytes = read;
    if (status == DCP_OK)
        status = item_decompressor_new(&decompressor);
    if (status == DCP_OK) {
        status = item_decompressor_run(decompressor, &input, &output, &ended);
        item_decompressor_free(decompressor);
    }
    memory_release(read);
    *size = output.made;
    return is_of_bytes(status) ? DCP_OK : status;
}

/* What a frame's contents begin with. */
enum frame_kind { FRAME_EMPTY, FRAME_ARCHIVE, FRAME_OTHER };

static dcp_status read_window(void *context, uint64_t offset, void *bytes, size_t size)
{
    const unsigned char *found;
    size_t available;
    RETURN_IF_ERROR(scan_look(context, offset, size, &found, &available));
    memcpy(bytes, found, size);
    return DCP_OK;
}

/* *end 0: no frame begins at the offset. */
static dcp_status look_at_frame(struct scan_window *window, uint64_t offset, uint64_t *end,
                                enum frame_kind *kind)
{
    const struct byte_source headers = {
        .read = read_window, .context = window, .size = window->file.size};
    unsigned char bytes[4];
    size_t size = 0;
    bool skippable = false;
    RETURN_IF_ERROR(item_decompressor_frame(&headers, offset, end, &skippable));
    if (*end != 0 && !skippable) {
        struct file_part part = {&window->file, offset};
        struct byte_source packed = file_part_source(&part, *end - offset);
        RETURN_IF_ERROR(decompress_beginning(&packed, bytes, sizeof bytes, &size));
    }
    bool archive = size == sizeof bytes && load_u32(bytes) == ZIP_LOCAL_SIGNATURE;
    *kind = archive ? FRAME_ARCHIVE : size == 0 ? FRAME_EMPTY : FRAME_OTHER;
    return DCP_OK;
}

/* The frames of one stream: all up to the next that begins an archive. Length 0: there is none. */
static dcp_status find_frames(struct scan_window *window, struct found_stream *stream)
{
    enum frame_kind kind;
    uint64_t end, from = stream->offset;
    RETURN_IF_ERROR(look_at_frame(window, from, &end, &kind));
    if (end == 0 || kind != FRAME_ARCHIVE)
        return DCP_OK;
    while (end != 0 && (kind != FRAME_ARCHIVE || from == stream->offset)) {
        if (kind == FRAME_EMPTY) {
            stream->empty = end - (stream->offset + stream->length);
        } else {
            stream->length = end - stream->offset;
            stream->empty = 0;
        }
        from = end;
        if (from == window->file.size)
            return DCP_OK;
        RETURN_IF_ERROR(look_at_frame(window, from, &end, &kind));
    }
    return DCP_OK;
}

static dcp_status describe_whole(const struct byte_source *packed, struct arena *arena,
                                 struct found_stream *stream, bool *sound)
{
    void *bytes = NULL, *contents = NULL;
    size_t size;
    if (packed->size > WHOLE_SIZE)
        return DCP_OK;
    bytes = memory_allocate((size_t)packed->size);
    if (!bytes)
        return error_no_memory((size_t)packed->size, "a compressed stream");
    dcp_status status = byte_source_read(packed, 0, bytes, (size_t)packed->size);
    if (status == DCP_OK)
        status = item_decompress(bytes, (size_t)packed->size, WHOLE_SIZE, &contents, &size);
    if (status == DCP_OK)
        status = describe(byte_source_memory(contents, size), arena, stream, sound);
    memory_release(contents);
    memory_release(bytes);
    return is_of_bytes(status) ? DCP_OK : status;
}

dcp_status scan_compressed(struct scan_window *window, struct arena *arena,
                           struct found_stream *stream, bool *sound)
{
    static const unsigned char signature[] = {0x28, 0xb5, 0x2f, 0xfd};
    const unsigned char *bytes;
    size_t size;
    *sound = false;
    RETURN_IF_ERROR(scan_look(window, stream->offset, sizeof signature, &bytes, &size));
    stream->zstd = size >= sizeof signature && memcmp(bytes, signature, sizeof signature) == 0;
    if (!stream->zstd)
        return DCP_OK;
    RETURN_IF_ERROR(find_frames(window, stream));
    if (stream->length == 0)
        return DCP_OK;
    *sound = true; /* an archive by its first bytes; an object unless it is a tensor */
    struct file_part part = {&window->file, stream->offset};
    struct byte_source packed = file_part_source(&part, stream->length);
    unsigned char *beginning = memory_allocate(BEGINNING_SIZE);
    if (!beginning)
        return error_no_memory(BEGINNING_SIZE, "a compressed stream");
    dcp_status status = decompress_beginning(&packed, beginning, BEGINNING_SIZE, &size);
    if (status == DCP_OK)
        status = item_foresee_tensor(beginning, size, arena, &stream->view, &stream->is_tensor);
    memory_release(beginning);
    return status == DCP_OK && !stream->is_tensor ? describe_whole(&packed, arena, stream, sound)
                                                  : status;
}
