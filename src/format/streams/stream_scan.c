/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/streams/stream_scan.h"

#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/memory.h"
#include "format/streams/item.h"
#include "format/zip/zip_directory.h"

/* What a beginning is predicted from: torch.save's records before the elements are far smaller. */
#define BEGINNING_SIZE ((size_t)64 << 10)
/* What a candidate that is no archive costs, about: both of its ends are read. And what all may, in
 * a small file. */
#define CANDIDATE_COST ((uint64_t)128 << 10)
#define LEAST_WORK     ((uint64_t)16 << 20)

static const char no_stream[] = "no stream of torch.save: damaged, cut off, or of another writer";

/* A scan on its way. */
struct scan {
    struct scan_window window;
    struct arena *arena;
    struct found_streams *found;
    uint64_t position;
    uint64_t ahead;         /* bytes that may be passed in search of the end of a damaged stream */
    bool trusts_beginnings; /* until one was wrong */
    bool looks_for_frames;  /* until one was damaged: its walk may have gone to the end */
};

static void spend(uint64_t *budget, uint64_t cost)
{
    *budget -= cost < *budget ? cost : *budget;
}

static dcp_status add(struct found_streams *found, const struct found_stream *stream)
{
    if (found->count == found->room) {
        size_t room = found->room != 0 ? found->room * 2 : 64;
        void *items = memory_reallocate_array(found->items, room, sizeof *found->items);
        if (!items)
            return error_no_memory(room * sizeof *found->items, "the streams of a file");
        found->items = items;
        found->room = room;
    }
    found->items[found->count++] = *stream;
    return DCP_OK;
}

/* Zeros between streams are padding. */
static dcp_status add_gap(struct scan *scan, uint64_t end)
{
    static const unsigned char zeros[4096];
    const struct found_stream gap = {
        .offset = scan->position, .length = end - scan->position, .problem = no_stream};
    for (uint64_t at = scan->position; at < end;) {
        const unsigned char *bytes;
        size_t size;
        RETURN_IF_ERROR(scan_look(&scan->window, at, 1, &bytes, &size));
        size = size < sizeof zeros ? size : sizeof zeros;
        size = end - at < size ? (size_t)(end - at) : size;
        if (memcmp(bytes, zeros, size) != 0)
            return add(scan->found, &gap);
        at += size;
    }
    return DCP_OK;
}

/* The end of a tensor's elements, as the beginning of its stream says it, if it lies in the file.
 */
static dcp_status foresee_end(struct scan *scan, uint64_t *end)
{
    const unsigned char *bytes;
    size_t size;
    struct tensor_view view;
    bool known = false;
    uint64_t left = scan->window.file.size - scan->position;
    *end = scan->position;
    if (!scan->trusts_beginnings)
        return DCP_OK;
    RETURN_IF_ERROR(scan_look(&scan->window, scan->position, BEGINNING_SIZE, &bytes, &size));
    if (size < ZIP_LOCAL_HEADER_SIZE || load_u32(bytes) != ZIP_LOCAL_SIGNATURE)
        return DCP_OK;
    size = size < BEGINNING_SIZE ? size : BEGINNING_SIZE;
    RETURN_IF_ERROR(item_foresee_tensor(bytes, size, scan->arena, &view, &known));
    if (known && view.data_offset <= left && view.data_length <= left - view.data_offset)
        *end += view.data_offset + view.data_length;
    return DCP_OK;
}

/* A candidate that is no archive costs what was read for it. */
static dcp_status try_archive(struct scan *scan, const struct scan_ends *ends,
                              struct found_stream *stream, bool *found)
{
    *stream = (struct found_stream){.offset = ends->start, .length = ends->end - ends->start};
    RETURN_IF_ERROR(scan_archive(&scan->window.file, scan->arena, stream, found));
    if (!*found)
        spend(&scan->window.left, stream->length + CANDIDATE_COST);
    return DCP_OK;
}

static dcp_status begins_archive(struct scan *scan, bool *begins)
{
    const unsigned char *bytes;
    size_t size;
    RETURN_IF_ERROR(scan_look(&scan->window, scan->position, 4, &bytes, &size));
    *begins = size >= 4 && load_u32(bytes) == ZIP_LOCAL_SIGNATURE;
    return DCP_OK;
}

/* The archive that begins at the position, which may contain others, as bytes of an object; else
 * the next one. *found false: there is none. */
static dcp_status find_archive(struct scan *scan, uint64_t from, struct found_stream *stream,
                               bool *found)
{
    struct scan_ends ends = {.floor = scan->position, .next = from};
    struct found_stream other;
    bool begins, some = true, other_found = false;
    *found = false;
    RETURN_IF_ERROR(begins_archive(scan, &begins));
    while (scan->window.left >= CANDIDATE_COST && !(other_found && (!begins || scan->ahead == 0))) {
        uint64_t before = ends.next;
        RETURN_IF_ERROR(scan_find_end(&scan->window, &ends, &some));
        if (other_found)
            spend(&scan->ahead, (some ? ends.next : scan->window.file.size) - before);
        if (!some)
            break;
        if (ends.start == scan->position) {
            RETURN_IF_ERROR(try_archive(scan, &ends, stream, found));
            if (*found)
                return DCP_OK;
        } else if (!other_found) {
            RETURN_IF_ERROR(try_archive(scan, &ends, &other, &other_found));
        }
    }
    *found = other_found;
    if (other_found)
        *stream = other;
    return DCP_OK;
}

static dcp_status next_archive(struct scan *scan, struct found_stream *stream, bool *found)
{
    uint64_t from;
    RETURN_IF_ERROR(foresee_end(scan, &from));
    RETURN_IF_ERROR(find_archive(scan, from, stream, found));
    if (from == scan->position || (*found && stream->offset == scan->position))
        return DCP_OK;
    scan->trusts_beginnings = false;
    return find_archive(scan, scan->position, stream, found);
}

static dcp_status step(struct scan *scan)
{
    struct found_stream stream = {.offset = scan->position};
    bool found = false;
    if (scan->looks_for_frames)
        RETURN_IF_ERROR(scan_compressed(&scan->window, scan->arena, &stream, &found));
    scan->looks_for_frames = found || !stream.zstd ? scan->looks_for_frames : false;
    if (!found)
        RETURN_IF_ERROR(next_archive(scan, &stream, &found));
    uint64_t end = found ? stream.offset : scan->window.file.size;
    if (end > scan->position)
        RETURN_IF_ERROR(add_gap(scan, end));
    scan->position = end;
    if (!found)
        return DCP_OK;
    stream.is_stream = true;
    scan->position += stream.length + stream.empty;
    return add(scan->found, &stream);
}

dcp_status stream_scan(struct byte_source file, struct arena *arena, struct found_streams *found)
{
    struct scan scan = {.window = {.file = file,
                                   .bytes = memory_allocate(SCAN_WINDOW),
                                   .left = file.size + LEAST_WORK},
                        .arena = arena,
                        .found = found,
                        .ahead = file.size + LEAST_WORK,
                        .trusts_beginnings = true,
                        .looks_for_frames = true};
    dcp_status status = DCP_OK;
    *found = (struct found_streams){0};
    if (!scan.window.bytes)
        return error_no_memory(SCAN_WINDOW, "looking for streams");
    while (status == DCP_OK && scan.position < file.size)
        status = step(&scan);
    memory_release(scan.window.bytes);
    return status;
}
