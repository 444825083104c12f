/* SPDX-License-Identifier: BSD-3-Clause */
/* What a conversion that can be continued has done. While it lasts there is a directory beside the
 * destination, DST.partial: "data" is what becomes the destination, and "journal" says how many
 * blocks of it are written, in the order in which a conversion of these options writes them. */
#ifndef CONVERT_CONVERT_JOURNAL_H
#define CONVERT_CONVERT_JOURNAL_H

#include "base/arena.h"
#include "convert/convert_source.h"

#define CONVERT_JOURNAL_HEAD "dcp convert: 1.\n" /* then the fingerprint, 8 bytes */

struct convert_journal {
    char *directory;
    char *path;             /* of the journal */
    int file;               /* -1: it is not open */
    uint64_t end;           /* of what was read or written of it */
    uint64_t blocks, bytes; /* that are done */
    uint64_t kept;          /* of these bytes, those that were done when it was opened */
    uint32_t *numbers;      /* of these blocks: what the target notes, a checksum or a rank */
    size_t capacity;
    bool owned;     /* by this call, and no other process */
    bool committed; /* nothing of it is needed any more */
    struct arena arena;
};

/* Continues what there is, or begins. fingerprint: of convert_fingerprint(). DCP_ERR_BUSY: another
 * process writes it; DCP_ERR_EXISTS: it is of another source, of other options or of another
 * version. convert_journal_close() also after a failure. */
dcp_status convert_journal_open(struct convert_journal *journal, uint64_t fingerprint,
                                const char *target);
/* Blocks are done, and durable: those up to `blocks`. numbers: of those behind journal->blocks;
 * NULL: 0. */
dcp_status convert_journal_note(struct convert_journal *journal, uint64_t blocks, uint64_t bytes,
                                const uint32_t *numbers);
/* Whether there is something to go on with. */
bool convert_journal_is_kept(const struct convert_journal *journal);
/* Leaves what is done, if there is something, and nothing after a commit. */
void convert_journal_close(struct convert_journal *journal);

/* A hash of what decides which bytes a conversion writes: the options, names, dtypes and shapes,
 * and the sizes and times of the source's files. */
dcp_status convert_fingerprint(struct convert_source *source, uint64_t *fingerprint);

#endif
