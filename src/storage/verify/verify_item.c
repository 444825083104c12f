/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>

#include "base/checksum.h"
#include "base/error.h"
#include "base/memory.h"
#include "format/zip/zip.h"
#include "storage/shard/stored_item.h"
#include "storage/verify/verification.h"

#define PIECE_SIZE ((size_t)1 << 20)

/* CRC-32 of a stored range, through a bounded buffer. */
static dcp_status compute_crc(const struct byte_source *source, uint64_t offset, uint64_t length,
                              uint32_t *crc)
{
    size_t size = length < PIECE_SIZE ? (size_t)length : PIECE_SIZE;
    unsigned char *bytes = memory_allocate(size);
    dcp_status status = DCP_OK;
    if (!bytes)
        return error_no_memory(size, "a buffer for checking");
    *crc = 0;
    while (length > 0 && status == DCP_OK) {
        size_t taken = length < size ? (size_t)length : size;
        status = byte_source_read(source, offset, bytes, taken);
        if (status == DCP_OK)
            *crc = crc32_update(*crc, bytes, taken);
        offset += taken;
        length -= taken;
    }
    memory_release(bytes);
    return status;
}

/* The checksum of just these bytes, if it was taken with the blocks of the file. */
static bool is_known(const struct verification *verification, uint64_t offset, uint64_t length,
                     uint32_t *crc)
{
    size_t low = 0, high = verification->span_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (verification->spans[middle].offset < offset)
            low = middle + 1;
        else
            high = middle;
    }
    const struct verify_span *span = verification->spans + low;
    if (low == verification->span_count || span->offset != offset || span->length != length ||
        span->taken != length)
        return false;
    *crc = span->crc;
    return true;
}

/* passing: the decompressor of the archive's source, or NULL. place: of the archive in the file. */
static dcp_status verify_record(struct verification *verification,
                                const struct zip_archive *archive, const struct zip_record *record,
                                struct decompressed_source *passing, uint64_t place)
{
    if (record->crc == 0 && !verification->blocks)
        verification->unchecked += record->stored_size;
    if (record->deflated) {
        void *bytes;
        RETURN_IF_ERROR(zip_read(archive, record, UINT64_MAX, &bytes));
        memory_release(bytes);
        return DCP_OK;
    }
    uint64_t offset;
    uint32_t crc;
    RETURN_IF_ERROR(zip_data_offset(archive, record, &offset));
    if (record->crc == 0)
        return DCP_OK; /* not computed, or of an empty record */
    if (passing && decompressed_source_watches(passing, offset, record->stored_size))
        RETURN_IF_ERROR(decompressed_source_crc(passing, offset, record->stored_size, &crc));
    else if (!is_known(verification, place + offset, record->stored_size, &crc))
        RETURN_IF_ERROR(compute_crc(&archive->source, offset, record->stored_size, &crc));
    return zip_check_crc(record->name, record->crc, crc);
}

/* place: of the archive in the file. *sound: no fault was found. */
static dcp_status verify_records(struct verification *verification,
                                 const struct zip_archive *archive,
                                 struct decompressed_source *passing, const char *file,
                                 uint64_t place, const char *name, bool *sound)
{
    dcp_status status = DCP_OK;
    *sound = true;
    for (size_t i = 0; i < archive->count && status == DCP_OK; i++) {
        const struct zip_record *record = &archive->records[i];
        status = verify_record(verification, archive, record, passing, place);
        if (status != DCP_OK) {
            *sound = false;
            status =
                verification_judge(verification, status, file, place + record->header_offset, name);
        }
    }
    return status;
}

dcp_status verify_pt_records(struct verification *verification, struct shard_file *file,
                             bool *sound)
{
    struct zip_archive archive;
    dcp_status status = zip_open(shard_file_source(file), &archive);
    *sound = false;
    if (status == DCP_OK)
        status = zip_locate(&archive);
    if (status != DCP_OK)
        status = verification_judge(verification, status, file->name, 0, "");
    else
        status = verify_records(verification, &archive, NULL, file->name, 0, "", sound);
    zip_close(&archive);
    return status;
}

static dcp_status verify_stream(struct verification *verification, struct stored_item *item,
                                const char *file, bool *sound)
{
    const char *name = item->entry->name;
    struct zip_archive archive;
    uint64_t place = item->piece->offset;
    dcp_status status = zip_open(item->source, &archive);
    *sound = false;
    if (status != DCP_OK)
        return verification_judge(verification, status, file, place, name);
    status = verify_records(verification, &archive, item->passing ? &item->decompressed : NULL,
                            file, place, name, sound);
    zip_close(&archive);
    return status;
}

static dcp_status check_contents(const struct verification *verification, struct stored_item *item)
{
    struct tensor_view view;
    if (!item->entry->is_tensor)
        return verification->damaged ? DCP_OK
                                     : stored_item_check_object(item, verification->metadata);
    /* The records of a .pt file have been inflated and checked already. */
    bool inflated = item->piece->encoding == PIECE_VIEW && item->piece->view->deflated;
    if (inflated)
        view = *item->piece->view;
    else
        RETURN_IF_ERROR(stored_item_view(item, &view));
    if (view.data_offset > item->source.size ||
        view.data_length > item->source.size - view.data_offset)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "expected %" PRIu64 " bytes of data, but the whole file has %" PRIu64,
                             view.data_length, item->source.size);
    return DCP_OK;
}

dcp_status verify_piece(struct verification *verification, const struct placed_piece *placed)
{
    const struct metadata_piece *piece = placed->piece;
    const char *name = placed->entry->name;
    const char *file = verification->metadata->files[piece->file];
    struct stored_item item;
    bool sound = true;
    dcp_status status = stored_item_open_in(&item, verification->reader, placed->entry, piece,
                                            DCP_VERIFY_NONE, true, verification->window);
    if (status == DCP_OK) {
        status = stored_item_pass(&item);
        if (status != DCP_OK)
            stored_item_close(&item);
    }
    if (status != DCP_OK)
        return verification_judge(verification, status, file, piece->offset, name);
    verification->blocks = item.file && item.file->footer == FOOTER_GOOD;
    if (metadata_is_in_stream(piece))
        status = verify_stream(verification, &item, file, &sound);
    if (status == DCP_OK && sound)
        status = verification_judge(verification, check_contents(verification, &item), file,
                                    piece->offset, name);
    stored_item_close(&item);
    return status;
}
