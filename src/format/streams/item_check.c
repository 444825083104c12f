/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks streams that are passed on unchanged. */
#include "base/checksum.h"
#include "base/error.h"
#include "base/memory.h"
#include "format/streams/item.h"
#include "format/zip/zip.h"

#define PIECE ((size_t)256 << 10)

/* Inflates as a whole; the inflated size is limited by the stored size. */
static dcp_status check_inflated(const struct zip_archive *archive, const struct zip_record *record)
{
    void *bytes = NULL;
    RETURN_IF_ERROR(zip_check_inflated(record->name, record->stored_size, record->size));
    dcp_status status = zip_read(archive, record, UINT64_MAX, &bytes);
    memory_release(bytes);
    return status;
}

static dcp_status check_record(const struct zip_archive *archive, const struct zip_record *record,
                               unsigned char *space)
{
    uint64_t offset;
    uint32_t crc = 0;
    if (record->deflated)
        return check_inflated(archive, record);
    RETURN_IF_ERROR(zip_data_offset(archive, record, &offset));
    for (uint64_t done = 0; done < record->size; done += PIECE) {
        uint64_t left = record->size - done;
        size_t size = left < PIECE ? (size_t)left : PIECE;
        RETURN_IF_ERROR(byte_source_read(&archive->source, offset + done, space, size));
        crc = crc32_update(crc, space, size);
    }
    return zip_check_crc(record->name, record->crc, crc);
}

static dcp_status check_records(const struct zip_archive *archive)
{
    dcp_status status = DCP_OK;
    if (!zip_find(archive, "data.pkl"))
        return dcp_error_set(DCP_ERR_FORMAT, "not a file of torch.save: it has no record data.pkl");
    unsigned char *space = memory_allocate(PIECE);
    if (!space)
        return error_no_memory(PIECE, "checking a stream");
    for (size_t i = 0; i < archive->count && status == DCP_OK; i++)
        status = check_record(archive, &archive->records[i], space);
    memory_release(space);
    return status;
}

dcp_status item_check_stream(struct byte_source stream)
{
    struct zip_archive archive;
    RETURN_IF_ERROR(zip_open(stream, &archive));
    dcp_status status = check_records(&archive);
    zip_close(&archive);
    return status;
}
