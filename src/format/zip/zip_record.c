/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading the records of an open zip archive. */
#include <inttypes.h>
#include <libdeflate.h>
#include <string.h>

#include "base/buffer.h"
#include "base/checksum.h"
#include "base/error.h"
#include "base/memory.h"
#include "format/zip/zip.h"
#include "format/zip/zip_directory.h"

/* The most memory that libdeflate takes to inflate. */
#define DECOMPRESSOR_SIZE ((size_t)16 << 10)

dcp_status zip_header_read(const struct zip_archive *archive, const struct zip_record *record,
                           const unsigned char *header, uint64_t *offset)
{
    if (load_u32(header) != ZIP_LOCAL_SIGNATURE)
        return dcp_error_set(DCP_ERR_FORMAT, "zip record \"%s\" has no local header at %" PRIu64,
                             record->name, record->header_offset);
    unsigned flags = load_u16(header + 6);
    unsigned method = load_u16(header + 8);
    unsigned expected = record->deflated ? ZIP_METHOD_DEFLATED : ZIP_METHOD_STORED;
    if ((flags & ZIP_FLAGS_REFUSED) != 0 || method != expected)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "zip record \"%s\" has method %u and flags 0x%04x in its local "
                             "header, but method %u in the directory",
                             record->name, method, flags, expected);

    /* The directory was checked to lie in the source, so these sums cannot overflow. */
    uint64_t data = record->header_offset + ZIP_LOCAL_HEADER_SIZE + load_u16(header + 26) +
                    load_u16(header + 28);
    if (data > archive->directory_offset || record->stored_size > archive->directory_offset - data)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "zip record \"%s\" has %" PRIu64 " bytes at %" PRIu64
                             ", which runs into the central directory at %" PRIu64,
                             record->name, record->stored_size, data, archive->directory_offset);
    *offset = data;
    return DCP_OK;
}

dcp_status zip_data_offset(const struct zip_archive *archive, const struct zip_record *record,
                           uint64_t *offset)
{
    unsigned char room[ZIP_LOCAL_HEADER_SIZE];
    const unsigned char *header;
    *offset = archive->bare ? record->header_offset : record->data_offset;
    if (archive->bare || record->data_offset > 0)
        return DCP_OK;
    RETURN_IF_ERROR(zip_bytes(archive, record->header_offset, sizeof room, room, &header));
    return zip_header_read(archive, record, header, offset);
}

dcp_status zip_inflate(const void *stored, size_t stored_size, void *bytes, size_t size)
{
    void *charge = memory_allocate_beside(0, DECOMPRESSOR_SIZE);
    struct libdeflate_decompressor *decompressor = charge ? libdeflate_alloc_decompressor() : NULL;
    if (decompressor == NULL) {
        memory_release(charge);
        return error_no_memory(DECOMPRESSOR_SIZE, "inflating");
    }
    size_t consumed = 0;
    size_t made = 0;
    enum libdeflate_result result = libdeflate_deflate_decompress_ex(
        decompressor, stored, stored_size, bytes, size, &consumed, &made);
    libdeflate_free_decompressor(decompressor);
    memory_release(charge);
    if (result == LIBDEFLATE_INSUFFICIENT_SPACE)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "deflated data inflates to more than the expected %zu bytes", size);
    if (result != LIBDEFLATE_SUCCESS)
        return dcp_error_set(DCP_ERR_FORMAT, "deflated data is damaged");
    if (made != size || consumed != stored_size)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "%zu of %zu deflated bytes inflate to %zu bytes, expected %zu",
                             consumed, stored_size, made, size);
    return DCP_OK;
}

dcp_status zip_check_crc(const char *record, uint32_t stored, uint32_t computed)
{
    if (stored == 0 || stored == computed)
        return DCP_OK;
    return dcp_error_set(DCP_ERR_CHECKSUM,
                         "zip record \"%s\" has CRC-32 0x%08" PRIx32 ", expected 0x%08" PRIx32,
                         record, computed, stored);
}

static dcp_status read_deflated(const struct zip_archive *archive, const struct zip_record *record,
                                uint64_t offset, void *bytes)
{
    const unsigned char *stored;
    void *room = memory_allocate((size_t)record->stored_size);
    if (room == NULL)
        return error_no_memory((size_t)record->stored_size, "a deflated zip record");
    dcp_status status = zip_bytes(archive, offset, (size_t)record->stored_size, room, &stored);
    if (status == DCP_OK)
        status = zip_inflate(stored, (size_t)record->stored_size, bytes, (size_t)record->size);
    memory_release(room);
    return status;
}

dcp_status zip_check_inflated(const char *record, uint64_t stored_size, uint64_t size)
{
    if (size <= ZIP_INFLATED_BASE || size / ZIP_INFLATED_TIMES <= stored_size)
        return DCP_OK;
    return dcp_error_set(DCP_ERR_FORMAT,
                         "zip record \"%s\": %" PRIu64
                         " deflated bytes claim to inflate to %" PRIu64
                         ", expected at most %d times as many or 64 MiB",
                         record, stored_size, size, ZIP_INFLATED_TIMES);
}

static dcp_status check_sizes(const struct zip_record *record, uint64_t limit)
{
    if (record->size > limit)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "zip record \"%s\" has %" PRIu64 " bytes, expected at most %" PRIu64,
                             record->name, record->size, limit);
    return record->deflated ? zip_check_inflated(record->name, record->stored_size, record->size)
                            : DCP_OK;
}

/* Reads the record into new memory, without checking it. */
static dcp_status read_contents(const struct zip_archive *archive, const struct zip_record *record,
                                uint64_t offset, void **memory)
{
    void *block = memory_allocate((size_t)record->size);
    if (block == NULL)
        return error_no_memory((size_t)record->size, "a zip record");
    dcp_status status =
        record->deflated ? read_deflated(archive, record, offset, block)
                         : byte_source_read(&archive->source, offset, block, (size_t)record->size);
    if (status == DCP_OK)
        *memory = block;
    else
        memory_release(block);
    return status;
}

dcp_status zip_look(const struct zip_archive *archive, const struct zip_record *record,
                    uint64_t limit, const void **bytes, void **memory)
{
    uint64_t offset = 0;
    *memory = NULL;
    RETURN_IF_ERROR(check_sizes(record, limit));
    RETURN_IF_ERROR(zip_data_offset(archive, record, &offset));
    *bytes = record->deflated ? NULL : zip_window_find(archive, offset, record->size);
    if (*bytes == NULL) {
        RETURN_IF_ERROR(read_contents(archive, record, offset, memory));
        *bytes = *memory;
    }
    dcp_status status =
        zip_check_crc(record->name, record->crc, crc32_update(0, *bytes, (size_t)record->size));
    if (status != DCP_OK) {
        memory_release(*memory);
        *memory = NULL;
    }
    return status;
}

dcp_status zip_read(const struct zip_archive *archive, const struct zip_record *record,
                    uint64_t limit, void **bytes)
{
    const void *found = NULL;
    *bytes = NULL;
    RETURN_IF_ERROR(zip_look(archive, record, limit, &found, bytes));
    if (*bytes != NULL)
        return DCP_OK;
    *bytes = memory_allocate((size_t)record->size);
    if (*bytes == NULL)
        return error_no_memory((size_t)record->size, "a zip record");
    memcpy(*bytes, found, (size_t)record->size);
    return DCP_OK;
}
