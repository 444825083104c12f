/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/storage_open.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "format/metadata_codec.h"
#include "storage/file_source.h"
#include "storage/shard_file.h"

/* More than any checkpoint's: a million chunks take a few hundred megabytes. */
#define METADATA_SIZE_MAX ((uint64_t)8 << 30)

static dcp_status decode_pickle(const struct file_ops *ops, const char *path,
                                struct metadata *metadata)
{
    struct buffer bytes;
    buffer_init(&bytes, 0);
    dcp_status status = file_read_whole(ops, path, METADATA_SIZE_MAX, &bytes);
    if (status == DCP_OK) {
        status = metadata_decode_part(bytes.data, bytes.size, metadata);
        if (status != DCP_OK)
            error_prefix(status, "%s", path);
    }
    buffer_free(&bytes);
    return status;
}

static dcp_status decode_safetensors(const struct file_ops *ops, const char *path, const char *name,
                                     struct metadata *metadata)
{
    struct file_source source;
    RETURN_IF_ERROR(file_source_open(&source, ops, path));
    dcp_status status = safetensors_add(source.source, name, metadata);
    file_source_close(&source);
    return status;
}

dcp_status storage_decode_part(const struct file_ops *ops, const struct storage_place *place,
                               const char *part, struct metadata *metadata)
{
    char *path = file_path_join(place->directory, part);
    if (!path)
        return error_no_memory(strlen(place->directory) + strlen(part) + 2, "a path");
    dcp_status status = place->form == STORAGE_SAFETENSORS
                            ? decode_safetensors(ops, path, part, metadata)
                            : decode_pickle(ops, path, metadata);
    memory_release(path);
    return status;
}

static dcp_status unite_parts(const struct file_ops *ops, const struct storage_place *place,
                              struct metadata *metadata)
{
    struct metadata *parts = memory_allocate_array(place->part_count, sizeof *parts);
    if (!parts)
        return error_no_memory(place->part_count * sizeof *parts, "rank-local metadata");
    size_t count = 0;
    dcp_status status = DCP_OK;
    while (count < place->part_count && status == DCP_OK) {
        metadata_init(&parts[count]);
        status = storage_decode_part(ops, place, place->parts[count], &parts[count]);
        count++;
    }
    if (status == DCP_OK)
        status = metadata_unite(parts, count, metadata);
    for (size_t i = 0; i < count; i++)
        metadata_free(&parts[i]);
    memory_release(parts);
    return status;
}

static dcp_status add_parts(const struct file_ops *ops, const struct storage_place *place,
                            struct metadata *metadata)
{
    for (size_t i = 0; i < place->part_count; i++)
        RETURN_IF_ERROR(storage_decode_part(ops, place, place->parts[i], metadata));
    return safetensors_finish(metadata);
}

/* The file stays open: its objects are read from it when they are asked for. */
static dcp_status open_pt(struct shard_reader *reader, const char *name, struct metadata *metadata)
{
    RETURN_IF_ERROR(shard_reader_pin(reader, name));
    dcp_status status = pt_decode(shard_file_source(reader->pinned), name, metadata);
    return status == DCP_OK ? DCP_OK : error_prefix(status, "%s", reader->pinned->file.path);
}

static dcp_status decode_place(const struct file_ops *ops, const struct storage_place *place,
                               struct metadata *metadata, struct shard_reader *reader)
{
    dcp_status status = DCP_OK;
    switch (place->form) {
    case STORAGE_DCP:
        status = storage_decode_part(ops, place, METADATA_NAME, metadata);
        break;
    case STORAGE_RANK_LOCAL:
        status = unite_parts(ops, place, metadata);
        break;
    case STORAGE_SAFETENSORS:
        status = add_parts(ops, place, metadata);
        break;
    case STORAGE_PT:
        status = open_pt(reader, place->parts[0], metadata);
        break;
    }
    return status == DCP_OK ? shard_reader_bind(reader, metadata) : status;
}

/* On failure nothing is handed out: .pt metadata lets go of the file before the file is closed. */
static dcp_status hand_out(dcp_status status, struct metadata *metadata, struct shard_reader *made,
                           struct shard_reader **reader)
{
    if (status == DCP_OK) {
        *reader = made;
        return DCP_OK;
    }
    metadata_free(metadata);
    shard_reader_free(made);
    return status;
}

dcp_status storage_open_place(const struct file_ops *ops, const struct storage_place *place,
                              bool lenient, struct metadata *metadata, struct shard_reader **reader)
{
    struct shard_reader *made = NULL;
    metadata_init(metadata);
    *reader = NULL;
    dcp_status status = shard_reader_new(ops, place->directory, place->form, &made);
    if (status == DCP_OK)
        status = decode_place(ops, place, metadata, made);
    if (status == DCP_OK && place->form == STORAGE_DCP && !lenient) {
        status = metadata_check_chunks(metadata);
        if (status != DCP_OK)
            error_prefix(status, "%s/" METADATA_NAME, place->directory);
    }
    return hand_out(status, metadata, made, reader);
}

dcp_status storage_read_metadata(const struct file_ops *ops, const char *path,
                                 enum storage_form *form, struct metadata *metadata,
                                 struct shard_reader **reader)
{
    struct storage_place place;
    metadata_init(metadata);
    *reader = NULL;
    RETURN_IF_ERROR(storage_place_find(ops, path, &place));
    *form = place.form;
    dcp_status status = storage_open_place(ops, &place, false, metadata, reader);
    storage_place_free(&place);
    return status;
}

dcp_status storage_read_raw(const struct file_ops *ops, const char *path, struct buffer *raw)
{
    struct storage_place place;
    RETURN_IF_ERROR(storage_place_find(ops, path, &place));
    dcp_status status;
    if (place.form == STORAGE_DCP) {
        char *file = file_path_join(path, METADATA_NAME);
        status = file ? file_read_whole(ops, file, METADATA_SIZE_MAX, raw)
                      : error_no_memory(strlen(path) + sizeof METADATA_NAME + 1, "a path");
        memory_release(file);
    } else {
        status = dcp_error_set(DCP_ERR_NOT_FOUND, "%s: no .metadata", path);
    }
    storage_place_free(&place);
    return status;
}

dcp_status storage_decode_raw(const struct file_ops *ops, const char *path, const void *raw,
                              size_t size, struct metadata *metadata, struct shard_reader **reader)
{
    struct shard_reader *made = NULL;
    metadata_init(metadata);
    *reader = NULL;
    dcp_status status = metadata_decode(raw, size, metadata);
    if (status != DCP_OK)
        error_prefix(status, "%s/" METADATA_NAME, path);
    else
        status = shard_reader_new(ops, path, STORAGE_DCP, &made);
    if (status == DCP_OK)
        status = shard_reader_bind(made, metadata);
    return hand_out(status, metadata, made, reader);
}
