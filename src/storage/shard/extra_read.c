/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/shard/extra_read.h"

#include <inttypes.h>

#include "base/checksum.h"
#include "base/error.h"
#include "base/memory.h"

enum { PART = 1 << 18 };

static dcp_status open_sized(struct shard_reader *reader, const struct extra_file *extra,
                             struct storage_file *file)
{
    RETURN_IF_ERROR(shard_reader_open_extra(reader, extra, file));
    uint64_t size = file->file.size;
    if (size == extra->size)
        return DCP_OK;
    dcp_error_set(DCP_ERR_FORMAT, "%s has %" PRIu64 " bytes, expected %" PRIu64, file->path, size,
                  extra->size);
    storage_file_close(file);
    return DCP_ERR_FORMAT;
}

static dcp_status compare(const struct storage_file *file, uint64_t digest, uint64_t expected)
{
    if (digest == expected)
        return DCP_OK;
    return dcp_error_set(DCP_ERR_CHECKSUM, "%s has XXH3 %016" PRIx64 ", expected %016" PRIx64,
                         file->path, digest, expected);
}

dcp_status extra_read(struct shard_reader *reader, const struct extra_file *extra,
                      dcp_verification verification, void *bytes)
{
    struct storage_file file;
    RETURN_IF_ERROR(open_sized(reader, extra, &file));
    dcp_status status = storage_file_read(&file, bytes, (size_t)extra->size, 0);
    if (status == DCP_OK && verification != DCP_VERIFY_NONE)
        status = compare(&file, xxh3_64(bytes, (size_t)extra->size), extra->digest);
    storage_file_close(&file);
    return status;
}

static dcp_status check_parts(struct storage_file *file, const struct extra_file *extra,
                              struct xxh3_stream *stream, void *part)
{
    for (uint64_t at = 0; at < extra->size; at += PART) {
        size_t size = extra->size - at < PART ? (size_t)(extra->size - at) : PART;
        RETURN_IF_ERROR(storage_file_read(file, part, size, at));
        xxh3_stream_update(stream, part, size);
    }
    return compare(file, xxh3_stream_digest(stream), extra->digest);
}

dcp_status extra_check(struct shard_reader *reader, const struct extra_file *extra)
{
    struct storage_file file;
    RETURN_IF_ERROR(open_sized(reader, extra, &file));
    struct xxh3_stream *stream = xxh3_stream_new();
    void *part = memory_allocate(PART);
    dcp_status status = stream && part ? check_parts(&file, extra, stream, part)
                                       : error_no_memory(PART, "a part of an extra file");
    memory_release(part);
    xxh3_stream_free(stream);
    storage_file_close(&file);
    return status;
}
