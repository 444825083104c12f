/* SPDX-License-Identifier: BSD-3-Clause */
/* Inside of stream: the zip records of a torch.save stream, where each lies, and their bytes. */
#ifndef FORMAT_STREAM_RECORDS_H
#define FORMAT_STREAM_RECORDS_H

#include "base/buffer.h"

/* The record of a tensor's elements; in front of it are those that describe it. */
enum { STREAM_DATA_RECORD = 4, STREAM_RECORDS_MAX = 7 };

#define SERIALIZATION_ID_SIZE 40u

struct stream_record {
    const char *name;  /* below the top directory */
    const void *bytes; /* the contents; NULL where somebody else writes them */
    uint64_t size;
    uint32_t crc;
    uint64_t header_offset; /* in the stream, as data_offset */
    uint64_t data_offset;
};

struct stream_records {
    struct stream_record items[STREAM_RECORDS_MAX];
    size_t count;
    uint64_t directory_offset;
    uint64_t directory_size;
    uint64_t length; /* of the stream */
    char serialization_id[SERIALIZATION_ID_SIZE + 1];
};

/* Places all records of a tensor's or (without data) an object's stream. */
void stream_records_place(struct stream_records *records, uint64_t pickle_size, bool has_data,
                          uint64_t data_size);
/* Gives the records their contents and checksums, which writing needs. The pickle is borrowed. */
void stream_records_fill(struct stream_records *records, const void *pickle, uint32_t data_crc);

/* Append, in this order for each record and with the directory last, what the stream consists of.
 */
void stream_put_header(struct buffer *out, const struct stream_record *record);
void stream_put_descriptor(struct buffer *out, const struct stream_record *record);
void stream_put_directory(struct buffer *out, const struct stream_records *records);

/* The contents of the last record, from the names and checksums of those before it: 40 digits. */
void stream_serialization_id(const struct stream_record *records, size_t count,
                             char id[SERIALIZATION_ID_SIZE + 1]);

#endif
