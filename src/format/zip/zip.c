/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/zip/zip.h"

#include <inttypes.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/memory.h"
#include "format/zip/zip_directory.h"

/* Enough for everything before or after the data in a tensor's stream. */
#define WINDOW_SIZE         2048u
#define CONTAINER_VERSIONS  10u
#define CONTAINER_TEXT_SIZE 32u

dcp_status zip_window_read(struct zip_archive *archive, uint64_t offset, size_t size,
                           struct zip_window *window)
{
    unsigned char *bytes = arena_allocate(&archive->arena, size);
    if (bytes == NULL)
        return error_no_memory(size, "a part of a zip archive");
    RETURN_IF_ERROR(byte_source_read(&archive->source, offset, bytes, size));
    *window = (struct zip_window){.bytes = bytes, .offset = offset, .size = size};
    return DCP_OK;
}

static const unsigned char *window_part(const struct zip_window *window, uint64_t offset,
                                        uint64_t size)
{
    if (offset < window->offset || offset - window->offset > window->size ||
        size > window->size - (offset - window->offset))
        return NULL;
    return window->bytes + (offset - window->offset);
}

const unsigned char *zip_window_find(const struct zip_archive *archive, uint64_t offset,
                                     uint64_t size)
{
    const unsigned char *part = window_part(&archive->tail, offset, size);
    return part != NULL ? part : window_part(&archive->head, offset, size);
}

dcp_status zip_bytes(const struct zip_archive *archive, uint64_t offset, size_t size, void *room,
                     const unsigned char **bytes)
{
    *bytes = zip_window_find(archive, offset, size);
    if (*bytes != NULL)
        return DCP_OK;
    *bytes = room;
    return byte_source_read(&archive->source, offset, room, size);
}

static dcp_status read_ends(struct zip_archive *archive)
{
    uint64_t size = archive->source.size;
    if (size < ZIP_END_SIZE)
        return dcp_error_set(DCP_ERR_FORMAT, "not a zip archive: it has only %" PRIu64 " bytes",
                             size);
    const void *all = byte_source_at(&archive->source, 0, size);
    if (all != NULL) {
        archive->head = (struct zip_window){.bytes = all, .size = (size_t)size};
        archive->tail = archive->head;
    } else if (size <= 2 * WINDOW_SIZE) {
        RETURN_IF_ERROR(zip_window_read(archive, 0, (size_t)size, &archive->head));
        archive->tail = archive->head;
    } else {
        RETURN_IF_ERROR(zip_window_read(archive, 0, WINDOW_SIZE, &archive->head));
        RETURN_IF_ERROR(zip_window_read(archive, size - WINDOW_SIZE, WINDOW_SIZE, &archive->tail));
    }
    uint32_t signature = load_u32(archive->head.bytes);
    if (signature != ZIP_LOCAL_SIGNATURE)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "not a zip archive: it begins with 0x%08" PRIx32 ", expected 0x%08x",
                             signature, ZIP_LOCAL_SIGNATURE);
    return DCP_OK;
}

/* Reads a record of a few characters as text; *found is false if there is none. */
static dcp_status read_text(const struct zip_archive *archive, const char *name,
                            char text[CONTAINER_TEXT_SIZE], bool *found)
{
    const struct zip_record *record = zip_find(archive, name);
    *found = record != NULL;
    if (record == NULL)
        return DCP_OK;
    const void *bytes = NULL;
    void *memory = NULL;
    RETURN_IF_ERROR(zip_look(archive, record, CONTAINER_TEXT_SIZE - 1, &bytes, &memory));
    memcpy(text, bytes, (size_t)record->size);
    text[record->size] = '\0';
    memory_release(memory);
    return DCP_OK;
}

/* Decimal digits, possibly with white space behind them, as Python's int() and C++'s stoull() take
 * them. */
static bool parse_number(const char *text, uint64_t *number)
{
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 19 || text[digits + strspn(text + digits, " \t\r\n")] != '\0')
        return false;
    *number = 0;
    for (size_t i = 0; i < digits; i++)
        *number = *number * 10 + (uint64_t)(text[i] - '0');
    return true;
}

static dcp_status check_version(const struct zip_archive *archive)
{
    char text[CONTAINER_TEXT_SIZE];
    bool found = false;
    RETURN_IF_ERROR(read_text(archive, "version", text, &found));
    if (!found)
        RETURN_IF_ERROR(read_text(archive, ".data/version", text, &found));
    if (!found)
        return dcp_error_set(DCP_ERR_FORMAT, "zip archive has no record \"version\"");
    uint64_t version = 0;
    if (!parse_number(text, &version) || version == 0)
        return dcp_error_set(DCP_ERR_FORMAT, "the record \"version\" is not a number");
    if (version > CONTAINER_VERSIONS)
        return dcp_error_set(DCP_ERR_UNSUPPORTED,
                             "torch.save container version %" PRIu64
                             " is not supported, expected 1 to %u",
                             version, CONTAINER_VERSIONS);
    return DCP_OK;
}

/* Checks the records by which torch.save describes its container. */
static dcp_status check_container(struct zip_archive *archive)
{
    if (zip_find(archive, "constants.pkl") != NULL)
        return dcp_error_set(
            DCP_ERR_UNSUPPORTED,
            "a TorchScript archive, not a checkpoint: it has a record \"constants.pkl\"");
    RETURN_IF_ERROR(check_version(archive));

    char text[CONTAINER_TEXT_SIZE];
    bool found = false;
    RETURN_IF_ERROR(read_text(archive, "byteorder", text, &found));
    archive->big_endian = found && strcmp(text, "big") == 0;
    if (found && !archive->big_endian && strcmp(text, "little") != 0)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "record \"byteorder\" is neither \"little\" nor \"big\"");

    uint64_t alignment = 0;
    RETURN_IF_ERROR(read_text(archive, ".storage_alignment", text, &found));
    if (found && !parse_number(text, &alignment))
        return dcp_error_set(DCP_ERR_FORMAT, "the record \".storage_alignment\" is not a number");
    return DCP_OK;
}

dcp_status zip_open(struct byte_source source, struct zip_archive *archive)
{
    *archive = (struct zip_archive){.source = source};
    arena_init(&archive->arena, 0);
    name_table_init(&archive->by_name);
    dcp_status status = read_ends(archive);
    if (status == DCP_OK)
        status = zip_directory_read(archive);
    if (status == DCP_OK)
        status = check_container(archive);
    if (status != DCP_OK)
        zip_close(archive);
    return status;
}

void zip_close(struct zip_archive *archive)
{
    name_table_free(&archive->by_name);
    arena_free(&archive->arena);
    *archive = (struct zip_archive){0};
}

dcp_status zip_open_bare(struct byte_source source, size_t most, struct zip_archive *archive)
{
    *archive = (struct zip_archive){.source = source, .bare = true};
    arena_init(&archive->arena, 0);
    name_table_init(&archive->by_name);
    archive->records = arena_allocate_array(&archive->arena, most, sizeof *archive->records);
    return archive->records != NULL ? DCP_OK
                                    : error_no_memory(most * sizeof *archive->records, "records");
}

dcp_status zip_add_bare(struct zip_archive *archive, const char *name, uint64_t offset,
                        uint64_t size)
{
    size_t length = strlen(name);
    uint64_t index = archive->count;
    bool existing;
    char *lower = arena_copy_text(&archive->arena, name, length);
    if (lower == NULL)
        return error_no_memory(length, "the name of a record");
    for (size_t i = 0; i < length; i++)
        lower[i] = zip_lower(lower[i]);
    RETURN_IF_ERROR(name_table_add(&archive->by_name, lower, length, &index, &existing));
    if (existing)
        return dcp_error_set(DCP_ERR_FORMAT, "there are two storages \"%s\"", lower);
    archive->records[archive->count++] = (struct zip_record){
        .name = lower, .stored_size = size, .size = size, .header_offset = offset};
    return DCP_OK;
}

const struct zip_record *zip_find(const struct zip_archive *archive, const char *name)
{
    char lower[ZIP_NAME_MAX];
    size_t length = strlen(name);
    if (length > sizeof lower)
        return NULL;
    for (size_t i = 0; i < length; i++)
        lower[i] = zip_lower(name[i]);
    uint64_t index = 0;
    if (!name_table_find(&archive->by_name, lower, length, &index))
        return NULL;
    return &archive->records[index];
}
