/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <string.h>

#include "base/checksum.h"
#include "base/error.h"
#include "base/memory.h"
#include "format/footer_layout.h"

/* Read at first: all of the footer of a file of some hundred MiB. */
#define TAIL_SIZE 8192u

/* Checks the trailer and gives the footer's bytes, the hashed part of the trailer included. */
static dcp_status check_trailer(const unsigned char *trailer, uint64_t file_size,
                                struct footer *footer, size_t *size)
{
    footer->content_length = load_u64(trailer);
    uint64_t body_size = load_u64(trailer + 8);
    uint32_t version = load_u32(trailer + 16);
    if (version != FOOTER_VERSION)
        return dcp_error_set(DCP_ERR_UNSUPPORTED,
                             "shard footer of version %" PRIu32 ", expected %u", version,
                             FOOTER_VERSION);
    uint64_t room = file_size - FOOTER_TRAILER_SIZE;
    if (body_size > room || footer->content_length != room - body_size)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "shard footer of %" PRIu64 " bytes at %" PRIu64
                             " is not at the end of its file of %" PRIu64 " bytes",
                             body_size + FOOTER_TRAILER_SIZE, footer->content_length, file_size);
    if (body_size > FOOTER_SIZE_MAX)
        return dcp_error_set(DCP_ERR_UNSUPPORTED,
                             "shard footer of %" PRIu64 " bytes, at most %u are possible",
                             body_size, FOOTER_SIZE_MAX);
    *size = (size_t)body_size + FOOTER_TRAILER_HASHED;
    return DCP_OK;
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

dcp_status footer_decode(struct byte_source file, struct footer *footer, bool *found)
{
    *found = false;
    *footer = (struct footer){0};
    metadata_init(&footer->contents);
    if (file.size < FOOTER_TRAILER_SIZE)
        return DCP_OK;

    unsigned char tail[TAIL_SIZE];
    size_t tail_size = file.size < TAIL_SIZE ? (size_t)file.size : TAIL_SIZE;
    RETURN_IF_ERROR(byte_source_read(&file, file.size - tail_size, tail, tail_size));
    const unsigned char *trailer = tail + tail_size - FOOTER_TRAILER_SIZE;
    if (memcmp(trailer + FOOTER_TRAILER_SIZE - FOOTER_MAGIC_SIZE, FOOTER_MAGIC,
               FOOTER_MAGIC_SIZE) != 0)
        return DCP_OK;

    *found = true;
    size_t size = 0;
    const unsigned char *bytes = NULL;
    unsigned char *copy = NULL;
    dcp_status status = check_trailer(trailer, file.size, footer, &size);
    if (status == DCP_OK)
        status = read_hashed(&file, tail, tail_size, footer->content_length, size, &bytes, &copy);
    if (status == DCP_OK && xxh3_64(bytes, size) != load_u64(trailer + FOOTER_TRAILER_HASHED))
        status = dcp_error_set(DCP_ERR_CHECKSUM, "shard footer does not have its checksum");
    if (status == DCP_OK)
        status = footer_decode_body(bytes, size - FOOTER_TRAILER_HASHED, footer);
    memory_release(copy);
    if (status != DCP_OK)
        footer_free(footer);
    return status;
}

void footer_free(struct footer *footer)
{
    metadata_free(&footer->contents);
    *footer = (struct footer){0};
}
