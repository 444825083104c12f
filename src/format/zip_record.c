/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading the records of an open zip archive. */
#include <inttypes.h>
#include <libdeflate.h>
#include <string.h>

#include "base/buffer.h"
#include "base/checksum.h"
#include "base/error.h"
#include "base/memory.h"
#include "format/zip.h"
#include "format/zip_directory.h"

/* What libdeflate takes to inflate, at most. */
#define DECOMPRESSOR_SIZE ((size_t)16 << 10)

dcp_status zip_data_offset(const struct zip_archive *archive, const struct zip_record *record,
                           uint64_t *offset)
{
    unsigned char header[ZIP_LOCAL_HEADER_SIZE];
    RETURN_IF_ERROR(zip_bytes(archive, record->header_offset, header, sizeof header));
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
        return dcp_error_set(DCP_ERR_FORMAT, "deflated data gives more than the %zu bytes expected",
                             size);
    if (result != LIBDEFLATE_SUCCESS)
        return dcp_error_set(DCP_ERR_FORMAT, "deflated data is damaged");
    if (made != size || consumed != stored_size)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "%zu of %zu deflated bytes give %zu bytes, expected %zu", consumed,
                             stored_size, made, size);
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
    void *stored = memory_allocate((size_t)record->stored_size);
    if (stored == NULL)
        return error_no_memory((size_t)record->stored_size, "a deflated zip record");
    dcp_status status = zip_bytes(archive, offset, stored, (size_t)record->stored_size);
    if (status == DCP_OK)
        status = zip_inflate(stored, (size_t)record->stored_size, bytes, (size_t)record->size);
    memory_release(stored);
    return status;
}

dcp_status zip_read(const struct zip_archive *archive, const struct zip_record *record,
                    uint64_t limit, void **bytes)
{
    *bytes = NULL;
    if (record->size > limit)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "zip record \"%s\" has %" PRIu64 " bytes, at most %" PRIu64
                             " are expected",
                             record->name, record->size, limit);
    if (record->deflated && record->size / ZIP_DEFLATE_EXPANDS > record->stored_size)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "record %s: %" PRIu64 " deflated bytes cannot become %" PRIu64,
                             record->name, record->stored_size, record->size);
    uint64_t offset = 0;
    RETURN_IF_ERROR(zip_data_offset(archive, record, &offset));
    void *block = memory_allocate((size_t)record->size);
    if (block == NULL)
        return error_no_memory((size_t)record->size, "a zip record");
    dcp_status status = record->deflated ? read_deflated(archive, record, offset, block)
                                         : zip_bytes(archive, offset, block, (size_t)record->size);
    if (status == DCP_OK)
        status =
            zip_check_crc(record->name, record->crc, crc32_update(0, block, (size_t)record->size));
    if (status != DCP_OK) {
        memory_release(block);
        return status;
    }
    *bytes = block;
    return DCP_OK;
}
