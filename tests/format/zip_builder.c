/* SPDX-License-Identifier: BSD-3-Clause */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <libdeflate.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"
#include "zip_builder.h"

void zip_builder_init(struct zip_builder *builder)
{
    *builder = (struct zip_builder){0};
    buffer_init(&builder->out, 0);
}

void zip_builder_free(struct zip_builder *builder)
{
    buffer_free(&builder->out);
}

static struct zip_builder_record *add(struct zip_builder *builder, const char *name,
                                      uint16_t method, const void *stored, size_t stored_size,
                                      const void *bytes, size_t size)
{
    assert_true(builder->count < ZIP_BUILDER_RECORDS);
    struct zip_builder_record *record = &builder->records[builder->count++];
    *record = (struct zip_builder_record){.name = name,
                                          .name_length = strlen(name),
                                          .method = method,
                                          .crc = crc32_update(0, bytes, size),
                                          .stored_size = stored_size,
                                          .size = size,
                                          .header_offset = builder->out.size};
    buffer_append(&builder->out, "PK\3\4\0\0\0\0", 8);
    buffer_append_u16(&builder->out, method);
    buffer_append_zeros(&builder->out, 4 + 12);
    buffer_append_u16(&builder->out, (uint16_t)strlen(name));
    buffer_append_u16(&builder->out, 0);
    buffer_append(&builder->out, name, strlen(name));
    buffer_append(&builder->out, stored, stored_size);
    return record;
}

struct zip_builder_record *zip_builder_add(struct zip_builder *builder, const char *name,
                                           const void *bytes, size_t size)
{
    return add(builder, name, 0, bytes, size, bytes, size);
}

struct zip_builder_record *zip_builder_add_deflated(struct zip_builder *builder, const char *name,
                                                    const void *bytes, size_t size)
{
    struct libdeflate_compressor *compressor = libdeflate_alloc_compressor(6);
    assert_non_null(compressor);
    size_t bound = libdeflate_deflate_compress_bound(compressor, size);
    void *stored = malloc(bound);
    assert_non_null(stored);
    size_t stored_size = libdeflate_deflate_compress(compressor, bytes, size, stored, bound);
    struct zip_builder_record *record = add(builder, name, 8, stored, stored_size, bytes, size);
    free(stored);
    libdeflate_free_compressor(compressor);
    return record;
}

void zip_builder_add_container(struct zip_builder *builder, const void *pickle, size_t size)
{
    zip_builder_add(builder, "archive/data.pkl", pickle, size);
    zip_builder_add(builder, "archive/byteorder", "little", 6);
    zip_builder_add(builder, "archive/version", "3\n", 2);
}

static void put_entry(struct buffer *out, const struct zip_builder_record *record)
{
    buffer_append(out, "PK\1\2\0\0\0\0", 8);
    buffer_append_u16(out, record->flags);
    buffer_append_u16(out, record->method);
    buffer_append_zeros(out, 4);
    buffer_append_u32(out, record->crc);
    buffer_append_u32(out, record->zip64 ? UINT32_MAX : (uint32_t)record->stored_size);
    buffer_append_u32(out, record->zip64 ? UINT32_MAX : (uint32_t)record->size);
    buffer_append_u16(out, (uint16_t)record->name_length);
    buffer_append_u16(out, record->zip64 ? 4 + 5 + 4 + 28 : 0);
    buffer_append_u16(out, 0);
    buffer_append_u16(out, record->disk); /* all ones: in the zip64 field, too */
    buffer_append_zeros(out, 6);
    buffer_append_u32(out, record->zip64 ? UINT32_MAX : (uint32_t)record->header_offset);
    buffer_append(out, record->name, strlen(record->name));
    if (!record->zip64)
        return;
    buffer_append(out, "UT\5\0time!\1\0\34\0", 13); /* a field of another kind, and ours */
    buffer_append_u64(out, record->size);
    buffer_append_u64(out, record->stored_size);
    buffer_append_u64(out, record->header_offset);
    buffer_append_u32(out, 0); /* disk */
}

static void put_end64(struct zip_builder *builder, size_t directory_size)
{
    struct buffer *out = &builder->out;
    builder->end64_offset = out->size;
    buffer_append(out, "PK\6\6", 4);
    buffer_append_u64(out, 44);
    buffer_append_zeros(out, 4 + 8);
    buffer_append_u64(out, builder->count);
    buffer_append_u64(out, builder->count);
    buffer_append_u64(out, directory_size);
    buffer_append_u64(out, builder->directory_offset);
    buffer_append(out, "PK\6\7\0\0\0\0", 8);
    buffer_append_u64(out, builder->end64_offset);
    buffer_append_u32(out, 1);
}

void zip_builder_finish(struct zip_builder *builder)
{
    struct buffer *out = &builder->out;
    builder->directory_offset = out->size;
    for (size_t i = 0; i < builder->count; i++)
        put_entry(out, &builder->records[i]);
    size_t directory_size = out->size - builder->directory_offset;
    if (builder->zip64)
        put_end64(builder, directory_size);
    uint16_t count = builder->zip64 ? UINT16_MAX : (uint16_t)builder->count;
    buffer_append(out, "PK\5\6\0\0\0\0", 8);
    buffer_append_u16(out, count);
    buffer_append_u16(out, count);
    buffer_append_u32(out, builder->zip64 ? UINT32_MAX : (uint32_t)directory_size);
    buffer_append_u32(out, builder->zip64 ? UINT32_MAX : (uint32_t)builder->directory_offset);
    buffer_append_u16(out, 0);
    assert_int_equal(buffer_status(out), DCP_OK);
}
