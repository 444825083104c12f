/* SPDX-License-Identifier: BSD-3-Clause */
/* A check of a whole checkpoint on its way: faults are reported and counted, and the check goes on.
 * Functions return a failure only when they cannot go on, for want of memory or open
 * files, or because the checkpoint was replaced meanwhile. */
#ifndef STORAGE_VERIFY_VERIFICATION_H
#define STORAGE_VERIFY_VERIFICATION_H

#include "format/footer/footer.h"
#include "storage/shard/decompressed_source.h"
#include "storage/shard/shard_file.h"
#include "storage/verify/verify.h"

struct verification {
    dcp_fault_function report;
    void *context;
    uint64_t faults;
    uint64_t unchecked; /* bytes of records without a checksum, of blocks or of their own */
    const char *member; /* of a union, whose files are looked at; NULL: no union */
    const struct metadata *metadata;
    struct shard_reader *reader;
    bool damaged;      /* the .pt file has records that are at fault, and objects may be of them */
    bool blocks;       /* the file that is looked at has checksums of its blocks */
    bool *bare;        /* by file: without a footer */
    bool some_footers; /* files of one save have them all, or none has */
};

/* Where one piece of the metadata lies; sorted by file, then offset. */
struct placed_piece {
    const struct metadata_entry *entry;
    const struct metadata_piece *piece;
};

void verification_fault(struct verification *verification, const char *file, uint64_t offset,
                        const char *name, const char *format, ...) DCP_PRINTF(5, 6);
/* Whether a failure is one of whoever checks, and says nothing of what is checked: no memory, too
 * many open files, a checkpoint that was replaced meanwhile. */
bool verification_is_own(dcp_status status);
/* A step that failed is a fault, told by its message, and DCP_OK is returned; a failure of our own
 * is returned. */
dcp_status verification_judge(struct verification *verification, dcp_status status,
                              const char *file, uint64_t offset, const char *name);

/* A file by itself: there, whole, its footer and all blocks right. *usable: its pieces can be
 * looked at. */
dcp_status verify_file(struct verification *verification, uint32_t index, bool *usable);
/* What a file says of itself, or is silent about, against the metadata's pieces in it. */
dcp_status verify_account(struct verification *verification, uint32_t index,
                          const struct placed_piece *placed, size_t count);
/* After all files: those that lack the footer that others have. */
void verify_bare_files(struct verification *verification);
/* Every record of a zip archive that starts at offset of the file. passing: NULL, or what the
 * source comes from, whose size is known. *sound: no fault was found. */
dcp_status verify_records(struct verification *verification, struct byte_source source,
                          struct decompressed_source *passing, const char *file, uint64_t offset,
                          const char *name, bool *sound);
/* One piece: inside its file, its container and records right, what it holds as the metadata says.
 */
dcp_status verify_piece(struct verification *verification, const struct placed_piece *placed);

#endif
