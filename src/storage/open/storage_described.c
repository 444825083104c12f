/* SPDX-License-Identifier: BSD-3-Clause */
/* Metadata of .pt files, safetensors and training checkpoints that one rank reads for all. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "storage/shard/shard_file.h"

/* Objects beyond this are read by each rank itself. */
#define OBJECTS_BYTES_MAX ((size_t)256 << 20)

/* The objects of a .pt file, which are values of its pickle until then, as streams in memory. */
static dcp_status hold_objects(struct shard_reader *reader, struct metadata *metadata)
{
    size_t held = 0;
    for (size_t i = 0; i < metadata->count; i++) {
        const struct metadata_entry *entry = &metadata->entries[i];
        struct buffer stream;
        if (entry->is_tensor || entry->pieces->encoding != PIECE_VIEW)
            continue;
        buffer_init(&stream, 0);
        dcp_status status =
            shard_read_stream(reader, entry, entry->pieces, DCP_VERIFY_NONE, &stream);
        const void *kept = NULL;
        if (status == DCP_OK && stream.size > OBJECTS_BYTES_MAX - held)
            status = dcp_error_set(DCP_ERR_UNSUPPORTED, "%s: objects of more than %zu bytes",
                                   entry->name, OBJECTS_BYTES_MAX);
        if (status == DCP_OK) {
            kept = arena_copy(&metadata->arena, stream.data, stream.size);
            if (!kept)
                status = error_no_memory(stream.size, entry->name);
        }
        if (status == DCP_OK) {
            entry->pieces->encoding = PIECE_HELD;
            entry->pieces->object = kept;
            entry->pieces->length = stream.size;
            held += stream.size;
        }
        buffer_free(&stream);
        RETURN_IF_ERROR(status);
    }
    if (metadata->free_attachment)
        metadata->free_attachment(metadata->attachment);
    metadata->attachment = NULL;
    metadata->free_attachment = NULL;
    return DCP_OK;
}

static dcp_status measure_files(struct shard_reader *reader, struct metadata *metadata)
{
    uint64_t *sizes = arena_allocate_array(&metadata->arena, metadata->file_count, sizeof *sizes);
    if (!sizes)
        return error_no_memory(metadata->file_count * sizeof *sizes, "sizes of files");
    for (size_t i = 0; i < metadata->file_count; i++) {
        struct shard_file *file;
        RETURN_IF_ERROR(shard_file_acquire(reader, (uint32_t)i, DCP_VERIFY_NONE, &file));
        sizes[i] = shard_file_size(file);
        shard_file_release(reader, file);
    }
    metadata->file_sizes = sizes;
    return DCP_OK;
}

dcp_status storage_make_portable(struct shard_reader *reader, struct metadata *metadata)
{
    dcp_status status = hold_objects(reader, metadata);
    if (status == DCP_OK)
        status = measure_files(reader, metadata);
    return status == DCP_OK || status == DCP_ERR_NO_MEMORY
               ? status
               : error_prefix(DCP_ERR_UNSUPPORTED, "each rank must read it");
}

/* The directory of a path that is a file's, or seems to be: the path as it is cannot be opened. */
static dcp_status find_directory(const dcp_storage *storage, const char *path,
                                 enum storage_form form, char **id)
{
    struct storage_directory directory;
    const char *slash = strrchr(path, '/');
    bool is_file = form == STORAGE_PT;
    if (form == STORAGE_SAFETENSORS) {
        is_file = storage_directory_open(&directory, storage, path, 0, NULL) != DCP_OK;
        if (is_file)
            error_clear();
        else
            storage_directory_close(&directory);
    }
    *id = memory_copy_text(is_file && !slash ? "." : path);
    if (*id && is_file && slash)
        (*id)[slash == path ? 1 : slash - path] = '\0';
    return *id ? DCP_OK : error_no_memory(strlen(path) + 1, "a path");
}

dcp_status storage_read_described(const dcp_storage *storage, const char *path,
                                  enum storage_form form, const struct metadata *metadata,
                                  struct shard_reader **reader)
{
    struct shard_reader *made = NULL;
    char *id;
    *reader = NULL;
    RETURN_IF_ERROR(find_directory(storage, path, form, &id));
    dcp_status status = shard_reader_new(storage, id, form, &made);
    memory_release(id);
    if (status == DCP_OK)
        status = shard_reader_bind(made, metadata);
    if (status == DCP_OK)
        *reader = made;
    else
        shard_reader_free(made);
    return status;
}

bool shard_reader_sees(struct shard_reader *reader, uint32_t file)
{
    const struct metadata *metadata = reader->metadata;
    struct shard_file *opened;
    struct saved_error error;
    error_save(&error);
    dcp_status status = shard_file_acquire(reader, file, DCP_VERIFY_NONE, &opened);
    error_restore(&error);
    if (status != DCP_OK)
        return false;
    bool same = !metadata->file_sizes || metadata->file_sizes[file] == shard_file_size(opened);
    shard_file_release(reader, opened);
    return same;
}
