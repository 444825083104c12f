/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/zip/zip_directory.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/memory.h"

#define ENTRY_SIGNATURE 0x02014b50u
#define EXTRA_ZIP64     0x0001u

/* A tensor's stream has about seven records. */
#define FEW_RECORDS 16

struct entry {
    unsigned flags;
    unsigned method;
    unsigned disk;
    uint32_t crc;
    uint64_t stored_size;
    uint64_t size;
    uint64_t header_offset;
    const unsigned char *name;
    size_t name_length;
};

/* The bytes that a record takes at least: header, name and data. */
struct extent {
    uint64_t begin;
    uint64_t end;
};

/* Replaces each value that is all ones by the one in the zip64 field, which must exist then. */
static dcp_status read_zip64(struct reader extra, struct entry *entry)
{
    bool wanted = entry->size == UINT32_MAX || entry->stored_size == UINT32_MAX ||
                  entry->header_offset == UINT32_MAX || entry->disk == UINT16_MAX;
    while (wanted && reader_left(&extra) >= 4) {
        unsigned identifier = reader_u16(&extra);
        size_t size = reader_u16(&extra);
        const unsigned char *bytes = reader_bytes(&extra, size);
        if (bytes == NULL)
            break;
        if (identifier != EXTRA_ZIP64)
            continue;
        struct reader field;
        reader_init(&field, bytes, size);
        if (entry->size == UINT32_MAX)
            entry->size = reader_u64(&field);
        if (entry->stored_size == UINT32_MAX)
            entry->stored_size = reader_u64(&field);
        if (entry->header_offset == UINT32_MAX)
            entry->header_offset = reader_u64(&field);
        if (entry->disk == UINT16_MAX)
            entry->disk = reader_u32(&field);
        wanted = field.failed;
        break;
    }
    if (wanted)
        return dcp_error_set(DCP_ERR_FORMAT, "its zip64 field is missing or too short");
    return DCP_OK;
}

static dcp_status no_entry(void)
{
    return dcp_error_set(DCP_ERR_FORMAT, "its directory entry is missing or ends too early");
}

static dcp_status read_entry(struct reader *reader, struct entry *entry)
{
    const unsigned char *fixed = reader_bytes(reader, ZIP_ENTRY_SIZE);
    if (fixed == NULL || load_u32(fixed) != ENTRY_SIGNATURE)
        return no_entry();
    entry->flags = load_u16(fixed + 8);
    entry->method = load_u16(fixed + 10);
    entry->crc = load_u32(fixed + 16);
    entry->stored_size = load_u32(fixed + 20);
    entry->size = load_u32(fixed + 24);
    entry->name_length = load_u16(fixed + 28);
    size_t extra_length = load_u16(fixed + 30);
    size_t comment_length = load_u16(fixed + 32);
    entry->disk = load_u16(fixed + 34);
    entry->header_offset = load_u32(fixed + 42);
    entry->name = reader_bytes(reader, entry->name_length);
    const unsigned char *extra_bytes = reader_bytes(reader, extra_length);
    reader_bytes(reader, comment_length);
    if (reader->failed)
        return no_entry();
    struct reader extra;
    reader_init(&extra, extra_bytes, extra_length);
    return read_zip64(extra, entry);
}

static dcp_status check_entry(const struct entry *entry, uint64_t directory_offset,
                              struct extent *extent)
{
    if (entry->disk != 0)
        return zip_several_disks();
    if ((entry->flags & ZIP_FLAGS_REFUSED) != 0)
        return dcp_error_set(DCP_ERR_UNSUPPORTED,
                             "it is encrypted or patched, which is not supported (flags 0x%04x)",
                             entry->flags);
    if (entry->method != ZIP_METHOD_STORED && entry->method != ZIP_METHOD_DEFLATED)
        return dcp_error_set(
            DCP_ERR_UNSUPPORTED,
            "compression method %u is not supported, expected %u (stored) or %u (deflated)",
            entry->method, ZIP_METHOD_STORED, ZIP_METHOD_DEFLATED);
    if (entry->method == ZIP_METHOD_STORED && entry->stored_size != entry->size)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "it is stored, but its sizes differ: %" PRIu64 " bytes as %" PRIu64,
                             entry->size, entry->stored_size);
    if (memchr(entry->name, '\0', entry->name_length) != NULL)
        return dcp_error_set(DCP_ERR_FORMAT, "its name contains NUL");
    uint64_t header = ZIP_LOCAL_HEADER_SIZE + entry->name_length;
    if (entry->header_offset > directory_offset ||
        header > directory_offset - entry->header_offset ||
        entry->stored_size > directory_offset - entry->header_offset - header)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "%" PRIu64 " bytes at %" PRIu64 " are not inside the %" PRIu64
                             " bytes in front of the directory",
                             entry->stored_size, entry->header_offset, directory_offset);
    *extent = (struct extent){.begin = entry->header_offset,
                              .end = entry->header_offset + header + entry->stored_size};
    return DCP_OK;
}

static bool has_prefix(const struct entry *entry, const struct entry *first, size_t length)
{
    if (entry->name_length < length)
        return false;
    for (size_t i = 0; i < length; i++)
        if (zip_lower((char)entry->name[i]) != zip_lower((char)first->name[i]))
            return false;
    return true;
}

static dcp_status add_record(struct zip_archive *archive, const struct entry *entry, size_t prefix)
{
    size_t length = entry->name_length - prefix;
    char *name = arena_copy_text(&archive->arena, (const char *)entry->name + prefix, length);
    if (name == NULL)
        return error_no_memory(length, "the name of a zip record");
    for (size_t i = 0; i < length; i++)
        name[i] = zip_lower(name[i]);
    uint64_t index = archive->count;
    bool existing = false;
    RETURN_IF_ERROR(name_table_add(&archive->by_name, name, length, &index, &existing));
    if (existing)
        return dcp_error_set(DCP_ERR_FORMAT, "the zip archive has two records \"%s\"", name);
    archive->records[archive->count++] =
        (struct zip_record){.name = name,
                            .deflated = entry->method == ZIP_METHOD_DEFLATED,
                            .crc = entry->crc,
                            .stored_size = entry->stored_size,
                            .size = entry->size,
                            .header_offset = entry->header_offset};
    return DCP_OK;
}

/* PyTorch takes the part before the first "/" of the first entry for the top directory. */
static dcp_status top_directory(const struct entry *first, size_t *prefix)
{
    const unsigned char *slash = memchr(first->name, '/', first->name_length);
    if (slash == NULL || slash == first->name)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "the first record of the zip archive is not in a directory");
    *prefix = (size_t)(slash - first->name) + 1;
    return DCP_OK;
}

static dcp_status read_entries(struct zip_archive *archive, const struct zip_place *place,
                               const unsigned char *directory, struct extent *extents)
{
    struct reader reader;
    reader_init(&reader, directory, (size_t)place->size);
    struct entry first = {0};
    size_t prefix = 0;
    for (uint64_t i = 0; i < place->count; i++) {
        struct entry entry = {0};
        dcp_status status = read_entry(&reader, &entry);
        if (status == DCP_OK)
            status = check_entry(&entry, place->offset, &extents[i]);
        if (status == DCP_OK && i == 0) {
            first = entry;
            status = top_directory(&first, &prefix);
        }
        if (status == DCP_OK && has_prefix(&entry, &first, prefix))
            status = add_record(archive, &entry, prefix);
        if (status != DCP_OK)
            return error_prefix(status, "zip record %" PRIu64 " of %" PRIu64, i + 1, place->count);
    }
    if (reader_left(&reader) != 0)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "zip directory has %zu bytes behind the last of its %" PRIu64
                             " records",
                             reader_left(&reader), place->count);
    return DCP_OK;
}

static int compare_extents(const void *a, const void *b)
{
    const struct extent *first = a;
    const struct extent *second = b;
    return (first->begin > second->begin) - (first->begin < second->begin);
}

static bool are_sorted(const struct extent *extents, size_t count)
{
    for (size_t i = 1; i < count; i++)
        if (extents[i].begin < extents[i - 1].begin)
            return false;
    return true;
}

static dcp_status check_overlap(struct extent *extents, size_t count)
{
    if (!are_sorted(extents, count)) /* they nearly always are */
        qsort(extents, count, sizeof *extents, compare_extents);
    for (size_t i = 1; i < count; i++)
        if (extents[i].begin < extents[i - 1].end)
            return dcp_error_set(DCP_ERR_FORMAT,
                                 "zip records at %" PRIu64 " and %" PRIu64 " overlap",
                                 extents[i - 1].begin, extents[i].begin);
    return DCP_OK;
}

dcp_status zip_directory_read(struct zip_archive *archive)
{
    struct zip_place place;
    RETURN_IF_ERROR(zip_find_directory(archive, &place));
    archive->directory_offset = place.offset;
    archive->records =
        arena_allocate_array(&archive->arena, (size_t)place.count, sizeof *archive->records);
    if (archive->records == NULL)
        return error_no_memory((size_t)place.count, "the records of a zip archive");

    dcp_status status = DCP_OK;
    unsigned char *copy = NULL;
    const unsigned char *directory = zip_window_find(archive, place.offset, place.size);
    struct extent few[FEW_RECORDS] = {{0}}, *many = NULL;
    if (place.count > FEW_RECORDS)
        many = memory_allocate_array((size_t)place.count, sizeof *many);
    struct extent *extents = place.count > FEW_RECORDS ? many : few;
    if (extents == NULL)
        status = error_no_memory((size_t)place.count, "the extents of a zip archive's records");
    if (status == DCP_OK && directory == NULL) {
        copy = memory_allocate((size_t)place.size);
        status = copy != NULL
                     ? byte_source_read(&archive->source, place.offset, copy, (size_t)place.size)
                     : error_no_memory((size_t)place.size, "a zip directory");
        directory = copy;
    }
    if (status == DCP_OK)
        status = read_entries(archive, &place, directory, extents);
    if (status == DCP_OK)
        status = check_overlap(extents, (size_t)place.count);
    memory_release(copy);
    memory_release(many);
    return status;
}
