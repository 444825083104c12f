/* SPDX-License-Identifier: BSD-3-Clause */
/* The message in which a rank reports where it has written its streams:
 *
 *   tag, number of results, per result: flags, path (unless it is the one before), offset, length
 *
 * Numbers are varints but flags, a byte. */
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "plan/save/save_plan.h"
#include "plan/wire.h"

enum result_flags { RESULT_ZSTD = 1, RESULT_SAME_PATH = 2, RESULT_FLAGS = 3 };

static const char message[] = "write results";

dcp_status write_results_encode(const struct write_results *results, struct buffer *out)
{
    buffer_append_u8(out, WIRE_WRITE_RESULTS);
    buffer_append_varint(out, results->count);
    for (size_t i = 0; i < results->count; i++) {
        const struct write_result *result = &results->results[i];
        bool same = i > 0 && strcmp(result->path, result[-1].path) == 0;
        buffer_append_u8(
            out, (uint8_t)((result->zstd ? RESULT_ZSTD : 0) | (same ? RESULT_SAME_PATH : 0)));
        if (!same)
            buffer_append_text(out, result->path, strlen(result->path));
        buffer_append_varint(out, result->offset);
        buffer_append_varint(out, result->length);
    }
    return buffer_status(out);
}

static dcp_status read_path(struct reader *reader, struct write_results *results,
                            struct write_result *result)
{
    const char *path = NULL;
    size_t length = 0;
    RETURN_IF_ERROR(wire_text(reader, message, &path, &length));
    result->path = arena_copy_text(&results->arena, path, length);
    return result->path != NULL ? DCP_OK : error_no_memory(length + 1, message);
}

static dcp_status read_result(struct reader *reader, struct write_results *results)
{
    struct write_result *result = &results->results[results->count];
    uint8_t flags = reader_u8(reader);
    *result = (struct write_result){.zstd = flags & RESULT_ZSTD};
    if (reader->failed || flags > RESULT_FLAGS || (flags & RESULT_SAME_PATH && results->count == 0))
        return wire_fault(reader, message, "unknown flags");
    if (flags & RESULT_SAME_PATH)
        result->path = result[-1].path;
    else
        RETURN_IF_ERROR(read_path(reader, results, result));
    result->offset = reader_varint(reader);
    result->length = reader_varint(reader);
    uint64_t end;
    if (reader->failed || result->length == 0 ||
        !checked_add_u64(result->offset, result->length, &end) || end > INT64_MAX)
        return wire_fault(reader, message, "an offset or a length is out of range");
    results->count++;
    return DCP_OK;
}

dcp_status write_results_decode(const void *bytes, size_t size, struct write_results *results)
{
    struct reader reader;
    *results = (struct write_results){0};
    arena_init(&results->arena, 0);
    reader_init(&reader, bytes, size);
    RETURN_IF_ERROR(wire_begin(&reader, WIRE_WRITE_RESULTS, message));
    size_t count = wire_count(&reader);
    results->results = arena_allocate_array(&results->arena, count, sizeof *results->results);
    if (results->results == NULL)
        return error_no_memory(count * sizeof *results->results, message);
    while (results->count < count)
        RETURN_IF_ERROR(read_result(&reader, results));
    return wire_end(&reader, message);
}
