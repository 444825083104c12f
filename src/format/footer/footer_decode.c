/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <string.h>

#include "base/checksum.h"
#include "base/error.h"
#include "base/memory.h"
#include "format/footer/footer_layout.h"

/* Bytes of the first read: the whole body of most files, which grows with the file by the checksums
 * of pages. Small, so that reading a row of a tensor does not cost much more than the row. */
#define TAIL_LEAST ((size_t)2 << 10)
#define TAIL_MOST  ((size_t)64 << 10)
#define BYTES_OF_TAIL                                                                              \
    ((uint64_t)64 << 10) /* the first read grows by one byte for so many bytes of the file */

/* Checks that the sums of all blocks lie between content and body. */
static dcp_status check_sums(uint64_t sums_size, struct footer *footer)
{
    if (footer->block_size == 0)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "the shard footer is malformed: the size of blocks is 0");
    footer->block_count = footer_block_count(footer->content_length, footer->block_size);
    if (sums_size % 8 != 0 || sums_size / 8 != footer->block_count)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "the shard footer is malformed: %" PRIu64
                             " bytes of checksums for %" PRIu64 " blocks",
                             sums_size, footer->block_count);
    return DCP_OK;
}

/* Checks the trailer. Finds where the body begins, and how many bytes of body and trailer are
 * hashed. */
static dcp_status check_trailer(const unsigned char *trailer, uint64_t file_size,
                                struct footer *footer, uint64_t *start, size_t *size)
{
    footer->content_length = load_u64(trailer);
    uint64_t body_size = load_u64(trailer + 8);
    uint32_t version = load_u32(trailer + 16);
    footer->block_size = load_u32(trailer + 20);
    if (version != FOOTER_VERSION)
        return dcp_error_set(DCP_ERR_UNSUPPORTED,
                             "shard footer of version %" PRIu32
                             ", expected %u: a later version of the library wrote the file",
                             version, FOOTER_VERSION);
    uint64_t room = file_size - FOOTER_TRAILER_SIZE;
    if (body_size > room || footer->content_length > room - body_size)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "shard footer of %" PRIu64 " bytes behind %" PRIu64
                             " is not at the end of its file of %" PRIu64 " bytes",
                             body_size, footer->content_length, file_size);
    if (body_size > FOOTER_SIZE_MAX)
        return dcp_error_set(DCP_ERR_UNSUPPORTED,
                             "shard footer of %" PRIu64 " bytes, expected at most %u", body_size,
                             FOOTER_SIZE_MAX);
    *start = room - body_size;
    *size = (size_t)body_size + FOOTER_TRAILER_HASHED;
    return check_sums(*start - footer->content_length, footer);
}

/* The body and the hashed part of the trailer: from the tail, or if that is too short from the file
 * into *copy. */
static dcp_status read_hashed(const struct byte_source *file, const unsigned char *tail,
                              size_t tail_size, uint64_t offset, size_t size,
                              const unsigned char **bytes, unsigned char **copy)
{
    uint64_t tail_offset = file->size - tail_size;
    if (offset >= tail_offset) {
        *bytes = tail + (offset - tail_offset);
        return DCP_OK;
    }
    *copy = memory_allocate(size);
    *bytes = *copy;
    if (*copy == NULL)
        return error_no_memory(size, "a shard footer");
    return byte_source_read(file, offset, *copy, size);
}

size_t footer_tail(uint64_t file_size)
{
    uint64_t size = TAIL_LEAST + file_size / BYTES_OF_TAIL;
    size = size < TAIL_MOST ? size : TAIL_MOST;
    return (size_t)(size < file_size ? size : file_size);
}

/* Decodes a footer from the end of a file that is known to have one; reads more of the file if
 * needed. */
static dcp_status decode_tail(const struct byte_source *file, const unsigned char *tail,
                              size_t tail_size, struct footer *footer)
{
    const unsigned char *trailer = tail + tail_size - FOOTER_TRAILER_SIZE, *bytes = NULL;
    unsigned char *copy = NULL;
    uint64_t start = 0;
    size_t size = 0;
    dcp_status status = check_trailer(trailer, file->size, footer, &start, &size);
    if (status == DCP_OK)
        status = read_hashed(file, tail, tail_size, start, size, &bytes, &copy);
    if (status == DCP_OK && xxh3_64(bytes, size) != load_u64(trailer + FOOTER_TRAILER_HASHED))
        status =
            dcp_error_set(DCP_ERR_CHECKSUM,
                          "the checksum of the shard footer does not match: the file is damaged");
    if (status == DCP_OK)
        status = footer_decode_body(bytes, size - FOOTER_TRAILER_HASHED, footer);
    memory_release(copy);
    return status;
}

dcp_status footer_decode(struct byte_source file, struct footer *footer, bool *found)
{
    *found = false;
    *footer = (struct footer){0};
    metadata_init(&footer->contents);
    if (file.size < FOOTER_TRAILER_SIZE)
        return DCP_OK;

    size_t tail_size = footer_tail(file.size);
    unsigned char *tail = memory_allocate(tail_size);
    if (tail == NULL)
        return error_no_memory(tail_size, "the end of a file");
    dcp_status status = byte_source_read(&file, file.size - tail_size, tail, tail_size);
    if (status == DCP_OK)
        *found = memcmp(tail + tail_size - FOOTER_MAGIC_SIZE, FOOTER_MAGIC, FOOTER_MAGIC_SIZE) == 0;
    if (*found)
        status = decode_tail(&file, tail, tail_size, footer);
    memory_release(tail);
    if (status != DCP_OK)
        footer_free(footer);
    return status;
}

void footer_free(struct footer *footer)
{
    metadata_free(&footer->contents);
    *footer = (struct footer){0};
}
