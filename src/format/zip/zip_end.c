/* SPDX-License-Identifier: BSD-3-Clause */
/* Finding an archive's central directory: the end record, and its zip64 form. */
#include <inttypes.h>

#include "base/buffer.h"
#include "base/error.h"
#include "format/zip/zip_directory.h"

#define COMMENT_MAX        65535u
#define DIRECTORY_SIZE_MAX (64u << 20) /* about 900,000 records */

/* The last end record in the tail, as PyTorch looks for it; NULL if there is none. */
static const unsigned char *find_end_record(const struct zip_window *tail)
{
    for (size_t at = tail->size - ZIP_END_SIZE + 1; at-- > 0;)
        if (load_u32(tail->bytes + at) == ZIP_END_SIGNATURE &&
            load_u16(tail->bytes + at + 20) <= tail->size - at - ZIP_END_SIZE)
            return tail->bytes + at;
    return NULL;
}

static dcp_status locate_end_record(struct zip_archive *archive, uint64_t *position)
{
    const unsigned char *record = find_end_record(&archive->tail);
    if (record == NULL && archive->tail.offset > 0) {
        uint64_t size = archive->source.size;
        size_t reach =
            size < ZIP_END_SIZE + COMMENT_MAX ? (size_t)size : ZIP_END_SIZE + COMMENT_MAX;
        RETURN_IF_ERROR(zip_window_read(archive, size - reach, reach, &archive->tail));
        record = find_end_record(&archive->tail);
    }
    if (record == NULL)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "not a zip archive, or truncated: no end record in its %" PRIu64
                             " bytes",
                             archive->source.size);
    *position = archive->tail.offset + (uint64_t)(record - archive->tail.bytes);
    return DCP_OK;
}

dcp_status zip_several_disks(void)
{
    return dcp_error_set(DCP_ERR_UNSUPPORTED, "zip archives on several disks are not supported");
}

/* Takes over the values of the zip64 end record, which the plain one must not contradict. */
static dcp_status read_end64(const struct zip_archive *archive, const unsigned char *locator,
                             struct zip_place *place)
{
    uint64_t position = load_u64(locator + 8);
    unsigned char room[ZIP_END64_SIZE];
    const unsigned char *record;
    if (load_u32(locator + 4) != 0 || load_u32(locator + 16) > 1)
        return zip_several_disks();
    if (place->limit < ZIP_END64_SIZE || position > place->limit - ZIP_END64_SIZE)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "zip64 end record at %" PRIu64 " is behind its locator at %" PRIu64,
                             position, place->limit);
    RETURN_IF_ERROR(zip_bytes(archive, position, sizeof room, room, &record));
    if (load_u32(record) != ZIP_END64_SIGNATURE)
        return dcp_error_set(DCP_ERR_FORMAT, "no zip64 end record at %" PRIu64, position);
    uint64_t count = load_u64(record + 32);
    uint64_t size = load_u64(record + 40);
    uint64_t offset = load_u64(record + 48);
    if (load_u32(record + 16) != 0 || load_u32(record + 20) != 0 || load_u64(record + 24) != count)
        return zip_several_disks();
    if ((place->count != UINT16_MAX && place->count != count) ||
        (place->size != UINT32_MAX && place->size != size) ||
        (place->offset != UINT32_MAX && place->offset != offset))
        return dcp_error_set(DCP_ERR_FORMAT, "the zip and zip64 end records contradict each other");
    *place = (struct zip_place){.count = count, .size = size, .offset = offset, .limit = position};
    return DCP_OK;
}

static dcp_status check_place(const struct zip_place *place)
{
    if (place->offset > place->limit || place->size > place->limit - place->offset)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "zip directory of %" PRIu64 " bytes at %" PRIu64
                             " runs into its end record at %" PRIu64,
                             place->size, place->offset, place->limit);
    if (place->size > DIRECTORY_SIZE_MAX)
        return dcp_error_set(DCP_ERR_UNSUPPORTED,
                             "zip directory of %" PRIu64 " bytes, at most %u are supported",
                             place->size, DIRECTORY_SIZE_MAX);
    if (place->count == 0 || place->count > place->size / ZIP_ENTRY_SIZE)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "zip directory of %" PRIu64 " bytes claims %" PRIu64 " records",
                             place->size, place->count);
    return DCP_OK;
}

dcp_status zip_find_directory(struct zip_archive *archive, struct zip_place *place)
{
    uint64_t position = 0;
    RETURN_IF_ERROR(locate_end_record(archive, &position));
    unsigned char room[ZIP_END_SIZE];
    const unsigned char *record, *locator;
    RETURN_IF_ERROR(zip_bytes(archive, position, sizeof room, room, &record));
    *place = (struct zip_place){.count = load_u16(record + 10),
                                .size = load_u32(record + 12),
                                .offset = load_u32(record + 16),
                                .limit = position};
    if (position >= ZIP_LOCATOR_SIZE) {
        unsigned char locator_room[ZIP_LOCATOR_SIZE];
        RETURN_IF_ERROR(zip_bytes(archive, position - ZIP_LOCATOR_SIZE, ZIP_LOCATOR_SIZE,
                                  locator_room, &locator));
        if (load_u32(locator) == ZIP_LOCATOR_SIGNATURE) {
            place->limit = position - ZIP_LOCATOR_SIZE;
            RETURN_IF_ERROR(read_end64(archive, locator, place));
            return check_place(place);
        }
    }
    if (load_u16(record + 4) != 0 || load_u16(record + 6) != 0 ||
        load_u16(record + 8) != place->count)
        return zip_several_disks();
    return check_place(place);
}
