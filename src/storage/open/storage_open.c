/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/open/storage_open.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "format/metadata/metadata_codec.h"
#include "state/training_form.h"
#include "storage/file_source.h"
#include "storage/open/union.h"
#include "storage/shard/shard_file.h"

/* More than any checkpoint's: a million chunks take a few hundred megabytes. */
#define METADATA_SIZE_MAX ((uint64_t)8 << 30)

/* metadata NULL: compares its two forms. */
static dcp_status read_pickle(const struct storage_directory *directory, const char *id,
                              const char *name, struct metadata *metadata)
{
    struct buffer bytes;
    buffer_init(&bytes, 0);
    dcp_status status = storage_read_whole(directory, name, METADATA_SIZE_MAX, &bytes);
    if (status == DCP_OK) {
        status = metadata ? metadata_decode_part(bytes.data, bytes.size, metadata)
                          : metadata_compare_forms(bytes.data, bytes.size);
        if (status != DCP_OK)
            error_prefix(status, "%s/%s", id, name);
    }
    buffer_free(&bytes);
    return status;
}

static dcp_status decode_safetensors(const struct storage_place *place, const char *name,
                                     struct metadata *metadata)
{
    struct file_source source;
    dcp_status status = file_source_open(&source, &place->directory, name);
    if (status == DCP_ERR_NOT_FOUND && place->index)
        return dcp_error_set(status, "%s: there is no %s, which " SAFETENSORS_INDEX_NAME " names",
                             place->id, name);
    if (status != DCP_OK)
        return status;
    status = safetensors_add(source.source, name, metadata);
    file_source_close(&source);
    return status;
}

dcp_status storage_decode_part(const struct storage_place *place, const char *part,
                               struct metadata *metadata)
{
    return place->form == STORAGE_SAFETENSORS
               ? decode_safetensors(place, part, metadata)
               : read_pickle(&place->directory, place->id, part, metadata);
}

dcp_status storage_compare_forms(const struct storage_directory *directory, const char *id,
                                 const char *part)
{
    return read_pickle(directory, id, part, NULL);
}

static dcp_status unite_parts(const struct storage_place *place, struct metadata *metadata)
{
    struct metadata *parts = memory_allocate_array(place->part_count, sizeof *parts);
    if (!parts)
        return error_no_memory(place->part_count * sizeof *parts, "rank-local metadata");
    size_t count = 0;
    dcp_status status = DCP_OK;
    while (count < place->part_count && status == DCP_OK) {
        metadata_init(&parts[count]);
        status = storage_decode_part(place, place->parts[count], &parts[count]);
        count++;
    }
    if (status == DCP_OK)
        status = metadata_unite_unchecked(parts, count, metadata);
    for (size_t i = 0; i < count; i++)
        metadata_free(&parts[i]);
    memory_release(parts);
    return status;
}

static dcp_status add_parts(const struct storage_place *place, struct metadata *metadata)
{
    for (size_t i = 0; i < place->part_count; i++)
        RETURN_IF_ERROR(storage_decode_part(place, place->parts[i], metadata));
    RETURN_IF_ERROR(safetensors_finish(metadata));
    return place->index ? safetensors_index_check(place->index, metadata) : DCP_OK;
}

dcp_status storage_decode_directory(const struct storage_place *place, struct metadata *metadata)
{
    return place->form == STORAGE_DCP ? storage_decode_part(place, METADATA_NAME, metadata)
           : place->form == STORAGE_SAFETENSORS ? add_parts(place, metadata)
                                                : unite_parts(place, metadata);
}

/* The file stays open: its objects are read from it when they are requested. */
static dcp_status open_pt(struct shard_reader *reader, const char *name, bool local_parts,
                          struct metadata *metadata)
{
    RETURN_IF_ERROR(shard_reader_pin(reader, name));
    dcp_status status =
        pt_decode_parts(shard_file_source(reader->pinned), name, local_parts, metadata);
    return status == DCP_OK ? DCP_OK : error_prefix(status, "%s", shard_file_path(reader->pinned));
}

static dcp_status decode_place(struct storage_place *place, struct metadata *metadata,
                               struct shard_reader *reader)
{
    dcp_status status = DCP_OK;
    switch (place->form) {
    case STORAGE_DCP:
    case STORAGE_RANK_LOCAL:
    case STORAGE_SAFETENSORS:
        status = storage_decode_directory(place, metadata);
        break;
    case STORAGE_PT:
        shard_reader_take_directory(reader, &place->directory);
        status = open_pt(reader, place->parts[0], place->local_parts, metadata);
        break;
    case STORAGE_TRAINING:
        status = training_form_describe(place->id, place->take, metadata);
        break;
    case STORAGE_UNION:
        status = union_decode(place, metadata);
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

dcp_status storage_open_place(struct storage_place *place, bool lenient, struct metadata *metadata,
                              struct shard_reader **reader)
{
    struct shard_reader *made = NULL;
    metadata_init(metadata);
    *reader = NULL;
    dcp_status status = shard_reader_new(place->storage, place->id, place->form, &made);
    if (status == DCP_OK)
        status = decode_place(place, metadata, made);
    if (status == DCP_OK && !lenient &&
        (place->form == STORAGE_DCP || place->form == STORAGE_RANK_LOCAL)) {
        status = metadata_check_chunks(metadata);
        if (status != DCP_OK)
            error_prefix(status, "%s%s", place->id,
                         place->form == STORAGE_DCP ? "/" METADATA_NAME : "");
    }
    if (status == DCP_OK)
        shard_reader_take_directory(made, &place->directory);
    return hand_out(status, metadata, made, reader);
}

dcp_status storage_read_metadata(const dcp_storage *storage, struct storage_location location,
                                 enum storage_form *form, struct metadata *metadata,
                                 struct shard_reader **reader)
{
    struct storage_place place;
    metadata_init(metadata);
    *reader = NULL;
    RETURN_IF_ERROR(storage_place_find(storage, location, &place));
    *form = place.form;
    place.local_parts = location.local_parts;
    place.take = location.take;
    dcp_status status = storage_open_place(&place, false, metadata, reader);
    storage_place_free(&place);
    return status;
}

dcp_status storage_append_pickle(const struct storage_directory *directory, struct buffer *bytes)
{
    return storage_read_whole(directory, METADATA_NAME, METADATA_SIZE_MAX, bytes);
}

/* What is passed on begins with the form, a byte. */
dcp_status storage_read_raw(const dcp_storage *storage, struct storage_location location,
                            struct buffer *raw, struct storage_directory *opened)
{
    struct storage_place place;
    *opened = (struct storage_directory){0};
    RETURN_IF_ERROR(storage_place_find(storage, location, &place));
    buffer_append_u8(raw, (uint8_t)place.form);
    dcp_status status;
    if (place.form == STORAGE_DCP)
        status = storage_append_pickle(&place.directory, raw);
    else if (place.form == STORAGE_UNION)
        status = union_append_raw(&place, raw);
    else
        status = dcp_error_set(DCP_ERR_NOT_FOUND, "%s: no .metadata", place.id);
    if (status == DCP_OK) {
        *opened = place.directory;
        place.directory = (struct storage_directory){0};
    }
    storage_place_free(&place);
    return status;
}

void storage_wrap_raw(const void *metadata, size_t size, struct buffer *raw)
{
    buffer_append_u8(raw, STORAGE_DCP);
    buffer_append(raw, metadata, size);
}

dcp_status storage_find_compact(const char *path, const struct buffer *raw, const void **compact,
                                size_t *size)
{
    *compact = NULL;
    *size = 0;
    if (raw->size == 0 || raw->data[0] != STORAGE_DCP)
        return DCP_OK;
    dcp_status status = metadata_find_compact(raw->data + 1, raw->size - 1, compact, size);
    return status == DCP_OK ? status : error_prefix(status, "%s/" METADATA_NAME, path);
}

dcp_status storage_decode_raw(const dcp_storage *storage, const char *path, const void *raw,
                              size_t size, struct metadata *metadata, struct shard_reader **reader)
{
    struct shard_reader *made = NULL;
    struct reader message;
    metadata_init(metadata);
    *reader = NULL;
    reader_init(&message, raw, size);
    enum storage_form form = reader_u8(&message) == STORAGE_UNION ? STORAGE_UNION : STORAGE_DCP;
    dcp_status status;
    if (form == STORAGE_UNION) {
        status = union_decode_raw(storage, path, &message, metadata);
    } else {
        status = metadata_decode(message.data + message.position, reader_left(&message), metadata);
        if (status != DCP_OK)
            error_prefix(status, "%s/" METADATA_NAME, path);
    }
    if (status == DCP_OK)
        status = shard_reader_new(storage, path, form, &made);
    if (status == DCP_OK)
        status = shard_reader_bind(made, metadata);
    return hand_out(status, metadata, made, reader);
}

dcp_status storage_read_known(const dcp_storage *storage, const char *path,
                              const struct metadata *metadata, struct shard_reader **reader)
{
    struct shard_reader *made = NULL;
    enum storage_form form = metadata->member_count != 0 ? STORAGE_UNION : STORAGE_DCP;
    *reader = NULL;
    RETURN_IF_ERROR(shard_reader_new(storage, path, form, &made));
    dcp_status status = shard_reader_bind(made, metadata);
    if (status == DCP_OK)
        *reader = made;
    else
        shard_reader_free(made);
    return status;
}
