/* SPDX-License-Identifier: BSD-3-Clause */
/* A part of a shard file as a byte source that checks what is read through it. A byte is checked
 * once: by the footer's checksum of its block where there is a footer, else by the CRC-32 of its
 * record (the data of a tensor).
 *
 * Widening reads whole blocks, so that every byte that is handed out has been checked, before it
 * is. Reads that follow each other read each block once. A watch checks a record that passes by as
 * a whole, in order. For one thread.
 */
#ifndef STORAGE_SHARD_CHECKED_SOURCE_H
#define STORAGE_SHARD_CHECKED_SOURCE_H

#include "base/checksum.h"
#include "storage/shard/shard_reader.h"
#include "storage/shard/shard_request.h"

struct checked_source {
    struct shard_file *file;
    uint64_t offset;                /* of the part in the file */
    struct progress_part part;      /* is called for bytes that are read */
    const struct shard_range *next; /* what is read after it; NULL: unknown */
    struct read_batch *batch;       /* NULL, or what may have bytes of it; borrowed */
    byte_taker take;                /* gets what is read, which then has no place; NULL: it has */
    void *taking;

    bool widened;
    struct shard_sums_window sums;
    uint64_t straight_end; /* of the whole blocks that are being read */
    unsigned char *held;   /* the blocks that were read last to be handed out in parts */
    size_t held_room;
    uint64_t held_start;
    size_t held_size;
    uint64_t held_bytes; /* that were read in all, to be counted once: threads would wait */

    struct cached_group nearby; /* of the range that was announced last */
    struct cached_group ending; /* the same, of the block that a read ends in */

    struct shard_part_sum *sum; /* gets the CRC of a part when it is known; may be NULL */
    struct shard_parts *parts;  /* the record is one part of these; NULL: all of it */
    size_t part_index;
    uint64_t place;           /* of the whole record, for messages */
    bool watching;            /* the record has been seen from its beginning to record_position */
    bool passed;              /* all of it has been read and was right, or its sum is known */
    uint64_t record_position; /* in the file, as record_end */
    uint64_t record_end;
    uint64_t record_start;
    uint32_t crc;
    uint32_t stored_crc;
};

/* The most bytes of blocks that are held at a time; and the memory of a source in all. */
#define CHECKED_SOURCE_HELD   ((size_t)64 << 10)
#define CHECKED_SOURCE_MEMORY (CHECKED_SOURCE_HELD + SHARD_SUMS_WINDOW)

/* source->read gives bytes offset + 0 to offset + length - 1 of the file. Both must stay where they
 * are. Nothing is checked until one of the following is called. */
void checked_source_open(struct checked_source *checked, struct shard_file *file, uint64_t offset,
                         uint64_t length, struct byte_source *source);
/* From now on; without a good footer this does nothing. */
void checked_source_widen(struct checked_source *checked, struct byte_source *source);
/* Checks a record's CRC when it passes by as a whole. offset: in the part. */
void checked_source_watch(struct checked_source *checked, uint64_t offset, uint64_t length,
                          uint32_t crc);
/* As above, for one part; its CRC is stored in sum. */
void checked_source_watch_sum(struct checked_source *checked, uint64_t offset, uint64_t length,
                              struct shard_part_sum *sum, uint64_t place, uint32_t crc);
/* As above, for one part; its CRC is combined with those of the other parts. place: of the whole
 * record in the file; crc: of the whole record. */
void checked_source_watch_part(struct checked_source *checked, uint64_t offset, uint64_t length,
                               struct shard_parts *parts, size_t part, uint64_t place,
                               uint32_t crc);
/* Reads a range, as source->read, and gives its bytes to `take`, each part after it was checked as
 * far as it is by itself. */
dcp_status checked_source_give(struct checked_source *checked, const struct byte_source *source,
                               uint64_t offset, size_t size, byte_taker take, void *taking);
/* Checks whole blocks that are in memory: of the file, from a position on. After widening. */
dcp_status checked_source_pass(struct checked_source *checked, uint64_t position,
                               const unsigned char *bytes, size_t size);
void checked_source_close(struct checked_source *checked);

/* Sets the error of a CRC that differs. offset: of the record in the file. */
dcp_status checked_crc_error(uint64_t offset, uint32_t stored, uint32_t computed);

#endif
