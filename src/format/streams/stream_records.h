/* SPDX-License-Identifier: BSD-3-Clause */
/* Internal to stream: the zip records of a torch.save stream, their places and bytes. */
#ifndef FORMAT_STREAMS_STREAM_RECORDS_H
#define FORMAT_STREAMS_STREAM_RECORDS_H

#include "base/buffer.h"

/* The first record of elements, behind those that describe them. A tensor's stream has one record
 * of elements, an object's as many as it has tensors. */
enum { STREAM_DATA_RECORD = 4, STREAM_OTHER_RECORDS = 6, STREAM_RECORDS_FEW = 7 };

#define SERIALIZATION_ID_SIZE 40u

struct stream_record {
    const char *name;  /* below the top directory */
    const void *bytes; /* the contents; NULL if the caller writes them */
    uint64_t size;
    uint32_t crc;
    uint64_t header_offset; /* in the stream, as data_offset */
    uint64_t data_offset;
};

struct stream_records {
    struct stream_record *items;
    size_t count;
    size_t data_count;
    uint64_t directory_offset;
    uint64_t directory_size;
    uint64_t data_entry; /* of the first record of elements, in the directory */
    uint64_t id_entry;   /* of the last record */
    uint64_t length;     /* of the stream */
    uint64_t names_hash; /* of all names but the last one */
    char serialization_id[SERIALIZATION_ID_SIZE + 1];
};

/* Of the elements of one tensor. */
struct stream_data {
    const char *name; /* "data/0", borrowed */
    uint64_t size;
};

/* Places all records. items: the caller's, STREAM_OTHER_RECORDS more than there are data. */
void stream_records_place(struct stream_records *records, struct stream_record *items,
                          uint64_t pickle_size, const struct stream_data *data, size_t data_count);
/* Sets the contents and checksums of the records, for writing. The caller sets the checksums of
 * elements. The pickle is borrowed. */
void stream_records_fill(struct stream_records *records, const void *pickle);
/* Then fills the last record, which depends on all others. */
void stream_records_seal(struct stream_records *records);

/* Seals again after the checksum of a tensor's elements has changed, and updates what depends on it
 * in the bytes behind the elements. */
void stream_records_reseal(struct stream_records *records, uint32_t crc, unsigned char *tail);

/* Append the parts of the stream: in this order for each record, with the directory last. */
void stream_put_header(struct buffer *out, const struct stream_record *record);
void stream_put_descriptor(struct buffer *out, const struct stream_record *record);
void stream_put_directory(struct buffer *out, const struct stream_records *records);
/* A record whose contents are known, from header to descriptor. */
void stream_put_record(struct buffer *out, const struct stream_record *record);

/* The contents of the last record, from the names and checksums of those before it: 40 digits. */
uint64_t stream_names_hash(const struct stream_record *records, size_t count);
void stream_serialization_id(const struct stream_record *records, size_t count, uint64_t names_hash,
                             char id[SERIALIZATION_ID_SIZE + 1]);

#endif
