/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/streams/stream_records.h"

#include <string.h>

#include "base/checksum.h"

#define TOP_DIRECTORY "archive/"
#define ALIGNMENT     64u

#define LOCAL_SIGNATURE      0x04034b50u
#define DESCRIPTOR_SIGNATURE 0x08074b50u
#define ENTRY_SIGNATURE      0x02014b50u
#define END64_SIGNATURE      0x06064b50u
#define LOCATOR_SIGNATURE    0x07064b50u
#define END_SIGNATURE        0x06054b50u
#define EXTRA_ZIP64          0x0001u
#define EXTRA_PADDING        0x4246u /* "FB" */

#define LOCAL_HEADER_SIZE 30u
#define ENTRY_SIZE        46u
#define ENTRY_CRC         16u /* where it is in an entry, and in a descriptor */
#define DESCRIPTOR_CRC    4u
#define END_RECORDS_SIZE  (56u + 20u + 22u)
#define END64_SIZE        44u /* as the record counts it */
#define VERSION_MADE_BY   798u
#define VERSION_NEEDED    45u

#define FLAG_UTF8       0x0800u
#define FLAG_DESCRIPTOR 0x0008u

static bool is_large(uint64_t value)
{
    return value >= UINT32_MAX;
}

/* What a value is in a field of 32 bits. */
static uint32_t narrow(uint64_t value)
{
    return is_large(value) ? UINT32_MAX : (uint32_t)value;
}

static size_t name_length(const struct stream_record *record)
{
    return strlen(TOP_DIRECTORY) + strlen(record->name);
}

/* Of the zip64 field's contents: two sizes if they are large, then the position if it is. */
static uint32_t zip64_size(const struct stream_record *record)
{
    return (is_large(record->size) ? 16u : 0u) + (is_large(record->header_offset) ? 8u : 0u);
}

/* Of the whole field, with its identifier and size. */
static uint32_t zip64_field_size(const struct stream_record *record)
{
    uint32_t size = zip64_size(record);
    return size != 0 ? size + 4 : 0;
}

/* Where the contents of the padding field begin, of a name of so many bytes. */
static uint64_t padding_start(const struct stream_record *record, size_t length)
{
    return record->header_offset + LOCAL_HEADER_SIZE + length + zip64_field_size(record) + 4;
}

/* How many there are: the data begins at a multiple of the alignment behind them. */
static uint32_t padding_from(uint64_t start)
{
    return (uint32_t)(-start % ALIGNMENT);
}

static uint32_t descriptor_size(const struct stream_record *record)
{
    if (record->size == 0)
        return 0;
    return is_large(record->size) || is_large(record->header_offset) ? 24u : 16u;
}

static uint64_t place(struct stream_records *records, uint64_t position, const char *name,
                      uint64_t size)
{
    struct stream_record *record = &records->items[records->count++];
    *record = (struct stream_record){.name = name, .size = size, .header_offset = position};
    size_t length = name_length(record);
    uint64_t start = padding_start(record, length);
    record->data_offset = start + padding_from(start);
    records->directory_size += ENTRY_SIZE + length + zip64_field_size(record);
    return record->data_offset + size + descriptor_size(record);
}

void stream_records_place(struct stream_records *records, struct stream_record *items,
                          uint64_t pickle_size, const struct stream_data *data, size_t data_count)
{
    records->items = items;
    records->count = 0;
    records->data_count = data_count;
    records->directory_size = 0;
    uint64_t position = place(records, 0, "data.pkl", pickle_size);
    position = place(records, position, ".format_version", 1);
    position = place(records, position, ".storage_alignment", 2);
    position = place(records, position, "byteorder", 6);
    records->data_entry = records->directory_size;
    for (size_t i = 0; i < data_count; i++)
        position = place(records, position, data[i].name, data[i].size);
    position = place(records, position, "version", 2);
    records->id_entry = records->directory_size;
    position = place(records, position, ".data/serialization_id", SERIALIZATION_ID_SIZE);
    records->directory_offset = position;
    records->length = position + records->directory_size + END_RECORDS_SIZE;
}

static struct stream_record *fill(struct stream_record *record, const void *bytes)
{
    record->bytes = bytes;
    record->crc = crc32_update(0, bytes, (size_t)record->size);
    return record + 1;
}

void stream_records_fill(struct stream_records *records, const void *pickle)
{
    struct stream_record *record = fill(records->items, pickle);
    record = fill(record, "1");
    record = fill(record, "64");
    record = fill(record, "little");
    fill(record + records->data_count, "3\n");
    records->names_hash = stream_names_hash(records->items, records->count - 1);
}

void stream_records_seal(struct stream_records *records)
{
    stream_serialization_id(records->items, records->count - 1, records->names_hash,
                            records->serialization_id);
    fill(&records->items[records->count - 1], records->serialization_id);
}

void stream_records_reseal(struct stream_records *records, uint32_t crc, unsigned char *tail)
{
    const struct stream_record *id = &records->items[records->count - 1];
    struct stream_record *data = &records->items[STREAM_DATA_RECORD];
    const uint64_t start = data->data_offset + data->size;
    unsigned char *entry = tail + (records->directory_offset - start); /* the first one */
    data->crc = crc;
    stream_records_seal(records);
    if (data->size != 0)
        store_u32(tail + DESCRIPTOR_CRC, crc);
    memcpy(tail + (id->data_offset - start), id->bytes, (size_t)id->size);
    store_u32(tail + (id->data_offset + id->size - start) + DESCRIPTOR_CRC, id->crc);
    store_u32(entry + records->data_entry + ENTRY_CRC, crc);
    store_u32(entry + records->id_entry + ENTRY_CRC, id->crc);
}

static void put_name(struct buffer *out, const struct stream_record *record)
{
    buffer_append(out, TOP_DIRECTORY, strlen(TOP_DIRECTORY));
    buffer_append(out, record->name, strlen(record->name));
}

static uint16_t flags(const struct stream_record *record)
{
    return record->size != 0 ? FLAG_UTF8 | FLAG_DESCRIPTOR : FLAG_UTF8;
}

static void put_zip64(struct buffer *out, const struct stream_record *record,
                      uint64_t compressed_size)
{
    if (zip64_size(record) == 0)
        return;
    buffer_append_u16(out, EXTRA_ZIP64);
    buffer_append_u16(out, (uint16_t)zip64_size(record));
    if (is_large(record->size)) {
        buffer_append_u64(out, record->size);
        buffer_append_u64(out, compressed_size);
    }
    if (is_large(record->header_offset))
        buffer_append_u64(out, record->header_offset);
}

void stream_put_header(struct buffer *out, const struct stream_record *record)
{
    uint32_t padding = padding_from(padding_start(record, name_length(record)));
    buffer_append_u32(out, LOCAL_SIGNATURE);
    buffer_append_u16(out, 0); /* version needed */
    buffer_append_u16(out, flags(record));
    buffer_append_zeros(out, 2 + 4 + 12); /* stored; no time; checksum and sizes come later */
    buffer_append_u16(out, (uint16_t)name_length(record));
    buffer_append_u16(out, (uint16_t)(zip64_field_size(record) + 4 + padding));
    put_name(out, record);
    put_zip64(out, record, 0); /* its compressed size counts as not yet known */
    buffer_append_u16(out, EXTRA_PADDING);
    buffer_append_u16(out, (uint16_t)padding);
    static const char filling[ALIGNMENT + 1] =
        "ZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZZ";
    buffer_append(out, filling, padding);
}

void stream_put_descriptor(struct buffer *out, const struct stream_record *record)
{
    uint32_t size = descriptor_size(record);
    if (size == 0)
        return;
    buffer_append_u32(out, DESCRIPTOR_SIGNATURE);
    buffer_append_u32(out, record->crc);
    if (size == 16) {
        buffer_append_u32(out, (uint32_t)record->size);
        buffer_append_u32(out, (uint32_t)record->size);
    } else {
        buffer_append_u64(out, record->size);
        buffer_append_u64(out, record->size);
    }
}

void stream_put_record(struct buffer *out, const struct stream_record *record)
{
    stream_put_header(out, record);
    buffer_append(out, record->bytes, (size_t)record->size);
    stream_put_descriptor(out, record);
}

static void put_entry(struct buffer *out, const struct stream_record *record)
{
    buffer_append_u32(out, ENTRY_SIGNATURE);
    buffer_append_u32(out, 0); /* versions made by and needed */
    buffer_append_u16(out, flags(record));
    buffer_append_zeros(out, 2 + 4); /* stored; no time */
    buffer_append_u32(out, record->crc);
    buffer_append_u32(out, narrow(record->size));
    buffer_append_u32(out, narrow(record->size));
    buffer_append_u16(out, (uint16_t)name_length(record));
    buffer_append_u16(out, (uint16_t)zip64_field_size(record));
    buffer_append_zeros(out, 2 + 2 + 6); /* no comment; disk; attributes */
    buffer_append_u32(out, narrow(record->header_offset));
    put_name(out, record);
    put_zip64(out, record, record->size);
}

void stream_put_directory(struct buffer *out, const struct stream_records *records)
{
    for (size_t i = 0; i < records->count; i++)
        put_entry(out, &records->items[i]);

    buffer_append_u32(out, END64_SIGNATURE);
    buffer_append_u64(out, END64_SIZE);
    buffer_append_u16(out, VERSION_MADE_BY);
    buffer_append_u16(out, VERSION_NEEDED);
    buffer_append_zeros(out, 8); /* disks */
    buffer_append_u64(out, records->count);
    buffer_append_u64(out, records->count);
    buffer_append_u64(out, records->directory_size);
    buffer_append_u64(out, records->directory_offset);

    buffer_append_u32(out, LOCATOR_SIGNATURE);
    buffer_append_u32(out, 0); /* disk */
    buffer_append_u64(out, records->directory_offset + records->directory_size);
    buffer_append_u32(out, 1); /* disks */

    buffer_append_u32(out, END_SIGNATURE);
    buffer_append_u32(out, 0); /* disks */
    buffer_append_u16(out, (uint16_t)records->count);
    buffer_append_u16(out, (uint16_t)records->count);
    buffer_append_u32(out, narrow(records->directory_size));
    buffer_append_u32(out, narrow(records->directory_offset));
    buffer_append_u16(out, 0); /* comment */
}
