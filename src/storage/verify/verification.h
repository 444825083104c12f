/* SPDX-License-Identifier: BSD-3-Clause */
/* State while a whole checkpoint is verified. Faults are reported and counted, and verification
 * goes on. Functions return a failure only if they cannot go on: for lack of memory or open files,
 * or because the checkpoint was replaced meanwhile. Each job of a check that several threads do has
 * a copy of it, which is joined afterwards. */
#ifndef STORAGE_VERIFY_VERIFICATION_H
#define STORAGE_VERIFY_VERIFICATION_H

#include <stdatomic.h>

#include "format/footer/footer.h"
#include "storage/shard/decompressed_source.h"
#include "storage/shard/shard_file.h"
#include "storage/shard/shard_request.h"
#include "storage/verify/verify.h"
#include "storage/verify/verify_crew.h"

/* How far a check is; threads share it. */
struct verify_progress {
    struct verify_watch watch;
    atomic_uint_fast64_t done;
    uint64_t total;
    int64_t told_at; /* clock_monotonic_ns(); of the calling thread */
};

/* A range of a file that a record's data is expected in, or a part of it, whose checksum is taken
 * while its blocks are checked, so that it is read once. */
struct verify_span {
    uint64_t offset, length; /* length 0: none */
    uint64_t taken;          /* of length, so far */
    uint32_t crc;
};

struct verification {
    dcp_fault_function report;
    void *context;
    uint64_t faults;
    uint64_t unchecked; /* bytes of records that have no checksum of their own or of blocks */
    const char *member; /* the member of a union that is checked now; NULL: no union */
    const struct metadata *metadata;
    struct shard_reader *reader;
    bool damaged; /* the .pt file has damaged records, which objects may use */
    bool blocks;  /* the current file has checksums of its blocks */
    bool *bare;   /* by file: without a footer */
    struct verify_progress *progress;
    uint64_t left;                   /* bytes of the progress that are not done, of the job */
    struct verify_job *job;          /* NULL: none, faults are reported at once */
    const struct verify_span *spans; /* of the current piece or file, in its order */
    size_t span_count;
    const struct read_window *window; /* that has what is checked now; NULL: none */
    bool some_footers;                /* either all files of a save have footers, or none */
};

/* The place of a piece of the metadata; sorted by file, then offset. */
struct placed_piece {
    const struct metadata_entry *entry;
    const struct metadata_piece *piece;
};

void verification_fault(struct verification *verification, const char *file, uint64_t offset,
                        const char *name, const char *format, ...) DCP_PRINTF(5, 6);
/* Whether a failure is our own, and not a fault of the checkpoint: no memory, too many open files,
 * or a checkpoint that was replaced meanwhile. */
bool verification_is_own(dcp_status status);
/* Reports a failed step as a fault with its message, and returns DCP_OK; returns failures of our
 * own. */
dcp_status verification_judge(struct verification *verification, dcp_status status,
                              const char *file, uint64_t offset, const char *name);

/* So many bytes of the current job have been read. DCP_ERR_CANCELLED, with a message, if the watch
 * wants no more. */
dcp_status verification_advance(struct verification *verification, uint64_t bytes);
/* Tells how far the check is, if that is long ago. False: no more is wanted. */
bool verification_tell(struct verify_progress *progress);

/* Checks a file but for its blocks: it exists, and its length and footer are right. *usable: its
 * pieces can be checked. */
dcp_status verify_file(struct verification *verification, uint32_t index, bool *usable);
/* The end of the blocks that begin before `end`; without checksums of blocks `end`, or that of the
 * file. */
uint64_t verify_blocks_end(const struct shard_file *file, uint64_t end);
/* Announces what will be read of pieces of a job, which lie from `from` to `end`: bytes that are
 * read with their blocks and once more with their records come from the page cache. */
dcp_status verify_expect(struct verification *verification, const struct placed_piece *placed,
                         size_t count, uint64_t from, uint64_t end);
/* Checks the blocks that begin in [from, end) of a file; those with the end of its contents for
 * UINT64_MAX. spans: in the order of the file, whose checksums are taken; without checksums of
 * blocks those of large ones, and of what the window has. */
dcp_status verify_blocks(struct verification *verification, uint32_t index, uint64_t from,
                         uint64_t end, struct verify_span *spans, size_t span_count);
/* The same, of a part of a tensor, or of records that are near each other. Without checksums of
 * blocks only those of the spans are taken. */
dcp_status verify_part(struct verification *verification, uint32_t index, uint64_t from,
                       uint64_t end, struct verify_span *spans, size_t span_count);
/* Checks all files of the metadata and their pieces, on several threads if there is much. */
dcp_status verify_files(struct verification *verification);
/* Compares a file's footer, if it has one, with the metadata's pieces in the file. */
dcp_status verify_account(struct verification *verification, uint32_t index,
                          const struct placed_piece *placed, size_t count);
/* After all files: reports files without a footer if others have one. */
void verify_bare_files(struct verification *verification);
/* Checks that the extra files are there, and as they were saved. */
dcp_status verify_extra_files(struct verification *verification);
/* After all files, of a checkpoint that this library wrote: that metadata.json, if there is one, is
 * a JSON object. */
dcp_status verify_json(struct verification *verification);
/* Checks every record of a .pt file. *sound: no fault was found. */
dcp_status verify_pt_records(struct verification *verification, struct shard_file *file,
                             bool *sound);
/* Checks one piece: it is inside its file, its container and records are right, and its contents
 * match the metadata. */
dcp_status verify_piece(struct verification *verification, const struct placed_piece *placed);

#endif
