/* SPDX-License-Identifier: BSD-3-Clause */
/* Internal to zip: finds and reads an archive's central directory. */
#ifndef FORMAT_ZIP_ZIP_DIRECTORY_H
#define FORMAT_ZIP_ZIP_DIRECTORY_H

#include "format/zip/zip.h"

#define ZIP_LOCAL_SIGNATURE   0x04034b50u
#define ZIP_LOCAL_HEADER_SIZE 30u
#define ZIP_ENTRY_SIZE        46u /* of the directory, without name and fields */
#define ZIP_END_SIGNATURE     0x06054b50u
#define ZIP_END_SIZE          22u
#define ZIP_LOCATOR_SIGNATURE                                                                      \
    0x07064b50u /* of the zip64 end record, between it and the plain one */
#define ZIP_LOCATOR_SIZE    20u
#define ZIP_END64_SIGNATURE 0x06064b50u
#define ZIP_END64_SIZE      56u
#define ZIP_METHOD_STORED   0u
#define ZIP_METHOD_DEFLATED 8u
/* Encrypted, patched data, strongly encrypted, hidden local headers. */
#define ZIP_FLAGS_REFUSED 0x2061u

/* The place of the central directory, from the end records. */
struct zip_place {
    uint64_t count;
    uint64_t size;
    uint64_t offset;
    uint64_t limit; /* where the end records begin: the directory ends before */
};

/* Fills the window with size bytes of the source at offset. */
dcp_status zip_window_read(struct zip_archive *archive, uint64_t offset, size_t size,
                           struct zip_window *window);
/* Points to bytes of the source: in a window if it holds them; otherwise reads them into `room`. */
dcp_status zip_bytes(const struct zip_archive *archive, uint64_t offset, size_t size, void *room,
                     const unsigned char **bytes);
/* The bytes in a window; NULL if no window holds them all. */
const unsigned char *zip_window_find(const struct zip_archive *archive, uint64_t offset,
                                     uint64_t size);

/* Checks the fixed part of a record's local header, and finds where its data begins. */
dcp_status zip_header_read(const struct zip_archive *archive, const struct zip_record *record,
                           const unsigned char *header, uint64_t *offset);

/* Names compare in ASCII lower case. */
static inline char zip_lower(char character)
{
    return character >= 'A' && character <= 'Z' ? (char)(character + ('a' - 'A')) : character;
}

/* Reads and checks the end records. */
dcp_status zip_find_directory(struct zip_archive *archive, struct zip_place *place);
/* DCP_ERR_UNSUPPORTED with its message. */
dcp_status zip_several_disks(void);
/* Fills records, count, by_name and directory_offset. */
dcp_status zip_directory_read(struct zip_archive *archive);

#endif
