/* SPDX-License-Identifier: BSD-3-Clause */
/* Builds zip archives for tests, wrong ones too: what the directory will say of a record can be
 * changed until it is written. */
#ifndef TESTS_FORMAT_ZIP_BUILDER_H
#define TESTS_FORMAT_ZIP_BUILDER_H

#include "base/buffer.h"

enum { ZIP_BUILDER_RECORDS = 72 };

struct zip_builder_record {
    const char *name;
    size_t name_length;
    uint16_t flags;
    uint16_t method;
    uint16_t disk;
    uint32_t crc;
    uint64_t stored_size;
    uint64_t size;
    uint64_t header_offset;
    bool zip64; /* sizes and position go into a zip64 field */
};

struct zip_builder {
    struct buffer out;
    struct zip_builder_record records[ZIP_BUILDER_RECORDS];
    size_t count;
    size_t directory_offset; /* of the finished archive */
    size_t end64_offset;
    bool zip64; /* write a zip64 end record, and ones where it has the values */
};

void zip_builder_init(struct zip_builder *builder);
/* Append a record and return what the directory will say of it. The name is borrowed. */
struct zip_builder_record *zip_builder_add(struct zip_builder *builder, const char *name,
                                           const void *bytes, size_t size);
struct zip_builder_record *zip_builder_add_deflated(struct zip_builder *builder, const char *name,
                                                    const void *bytes, size_t size);
/* "archive/data.pkl" and what belongs to a container, around the given pickle. */
void zip_builder_add_container(struct zip_builder *builder, const void *pickle, size_t size);
/* Appends the directory and the end records. */
void zip_builder_finish(struct zip_builder *builder);
void zip_builder_free(struct zip_builder *builder);

#endif
