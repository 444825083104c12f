/* SPDX-License-Identifier: BSD-3-Clause */
/* Parts of records with one checksum, as PyTorch writes them, that ranks read. Where they are
 * together all of a record, the checksums of the parts are joined to that of the record, and no
 * rank has to read what nobody asked it for in order to check what it reads. Pure. */
#ifndef PLAN_SHARE_RECORD_PARTS_H
#define PLAN_SHARE_RECORD_PARTS_H

#include "plan/share/load_share.h"

/* Elements from to end - 1 of a piece that is all of its record. */
struct record_part {
    uint32_t entry;
    uint32_t piece;
    int64_t from;
    int64_t end;
    uint32_t rank;
    uint32_t index; /* among the parts of the rank */
};

/* Whether what is wanted is such a part, not all of it. Records of 64 KiB or less do not count: to
 * read them whole costs no more. */
bool record_part_of(const struct metadata *metadata, const struct share_want *want,
                    struct record_part *part);
/* The same of what a run reads, which may be a part of a region that is a whole record. */
bool record_part_of_run(const struct metadata *metadata, const struct load_share *share,
                        const struct share_run *run, struct record_part *part);

/* The size of a part in a message, which is several of them. */
enum { RECORD_PART_SIZE = 24 };
void record_part_append(struct buffer *out, const struct record_part *part);
/* parts: room for size / RECORD_PART_SIZE. */
dcp_status record_parts_decode(const void *bytes, size_t size, const struct metadata *metadata,
                               uint32_t rank, struct record_part *parts);

/* Keeps the parts of records that they are all of, where each two are the same or have no common
 * element. Sorts them by record and place, and returns how many there are. */
size_t record_parts_join(struct record_part *parts, size_t count, const struct metadata *metadata);
/* How many parts from one on are of its record. */
size_t record_parts_of_record(const struct record_part *parts, size_t count);
/* How many from one on are the same, of different ranks or chunks. */
size_t record_parts_alike(const struct record_part *parts, size_t count);

#endif
