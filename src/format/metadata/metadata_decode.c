/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "base/error.h"
#include "format/metadata/metadata_compact.h"
#include "format/metadata/metadata_decoding.h"
#include "format/metadata/metadata_encoder.h"
#include "format/metadata/metadata_trailer.h"

/* The fields of the root. PyTorch's own Metadata, or what others derive from it under names of
 * their own: an object with these two fields. */
static dcp_status root_fields(const struct pickle_value *root, const struct pickle_value **fields)
{
    *fields = NULL;
    if (root->kind == PICKLE_OBJECT || root->kind == PICKLE_CALL)
        *fields = root->as.call->state;
    if (pickle_dict_get(*fields, "state_dict_metadata") == NULL ||
        pickle_dict_get(*fields, "storage_data") == NULL)
        return dcp_error_set(DCP_ERR_FORMAT, "not a .metadata file: its pickle is not an object "
                                             "with state_dict_metadata and storage_data");
    return DCP_OK;
}

static dcp_status read_pickle(struct metadata_decoding *decoding, const void *bytes, size_t size,
                              size_t pickle_size)
{
    struct pickle_digester digester = {.digest = metadata_digest, .context = &decoding->digester};
    dcp_status status = pickle_read_digested(bytes, pickle_size, &digester, &decoding->document);
    if (status != DCP_OK)
        return error_prefix(status, "metadata");
    return pickle_size == size
               ? metadata_trailer_refuse_damaged(bytes, decoding->document.length, size)
               : DCP_OK;
}

static dcp_status decode(struct metadata_decoding *decoding, const void *bytes, size_t whole,
                         size_t size)
{
    const struct pickle_value *fields;
    RETURN_IF_ERROR(read_pickle(decoding, bytes, whole, size));
    RETURN_IF_ERROR(root_fields(decoding->document.root, &fields));
    RETURN_IF_ERROR(
        metadata_decode_entries(decoding, pickle_dict_get(fields, "state_dict_metadata")));
    RETURN_IF_ERROR(metadata_decode_pieces(decoding, pickle_dict_get(fields, "storage_data")));
    const struct pickle_value *planner_data = pickle_dict_get(fields, "planner_data");
    bool only_paths;
    RETURN_IF_ERROR(metadata_decode_paths(decoding, planner_data, &only_paths));
    if (!only_paths)
        RETURN_IF_ERROR(metadata_decode_planner(decoding, size, planner_data));
    RETURN_IF_ERROR(
        metadata_decode_extra_files(decoding, pickle_dict_get(fields, METADATA_EXTRA_FILES)));
    return metadata_decode_storage_meta(decoding, size, pickle_dict_get(fields, "storage_meta"));
}

/* size: of the pickle. */
static dcp_status decode_pickle(const void *bytes, size_t whole, size_t size,
                                struct metadata *metadata)
{
    metadata_init(metadata);
    struct metadata_decoding decoding = {.metadata = metadata};
    arena_init(&decoding.scratch, 0);
    decoding.digester =
        (struct metadata_digester){.boxes = &metadata->arena, .rest = &decoding.scratch};
    dcp_status status = decode(&decoding, bytes, whole, size);
    pickle_free(&decoding.document);
    arena_free(&decoding.scratch);
    if (status != DCP_OK)
        metadata_free(metadata);
    return status;
}

/* A pickle cannot say more of pieces than that they are streams. */
static dcp_status check_streams(const struct metadata *metadata)
{
    for (size_t i = 0; i < metadata->count; i++)
        for (size_t k = 0; k < metadata->entries[i].piece_count; k++)
            if (metadata->entries[i].pieces[k].encoding != PIECE_STREAM)
                return dcp_error_set(DCP_ERR_FORMAT,
                                     "metadata in compact form: \"%s\" is not stored as streams",
                                     metadata->entries[i].name);
    return metadata->file_sizes
               ? dcp_error_set(DCP_ERR_FORMAT, "metadata in compact form: it has sizes of files")
               : DCP_OK;
}

static dcp_status decode_compact(const void *bytes, size_t size, struct metadata *metadata)
{
    RETURN_IF_ERROR(metadata_compact_read_part(bytes, size, metadata));
    dcp_status status = check_streams(metadata);
    if (status != DCP_OK)
        metadata_free(metadata);
    return status;
}

dcp_status metadata_decode_part(const void *bytes, size_t size, struct metadata *metadata)
{
    struct metadata_trailer trailer;
    metadata_init(metadata);
    RETURN_IF_ERROR(metadata_trailer_read(bytes, size, &trailer));
    return trailer.compact ? decode_compact(trailer.compact, trailer.compact_size, metadata)
                           : decode_pickle(bytes, size, trailer.pickle_size, metadata);
}

dcp_status metadata_compare_forms(const void *bytes, size_t size)
{
    struct metadata_trailer trailer;
    struct metadata metadata;
    struct buffer expected;
    RETURN_IF_ERROR(metadata_trailer_read(bytes, size, &trailer));
    if (!trailer.compact)
        return DCP_OK;
    RETURN_IF_ERROR(decode_pickle(bytes, size, trailer.pickle_size, &metadata));
    buffer_init(&expected, 0);
    dcp_status status = metadata_compact_append_stored(&metadata, &expected);
    if (status == DCP_OK && (expected.size != trailer.compact_size ||
                             memcmp(expected.data, trailer.compact, expected.size) != 0))
        status = dcp_error_set(DCP_ERR_FORMAT,
                               "metadata: the pickle of %zu bytes says something else than the "
                               "compact form of %zu bytes behind it",
                               trailer.pickle_size, trailer.compact_size);
    buffer_free(&expected);
    metadata_free(&metadata);
    return status;
}

dcp_status metadata_check_chunks(const struct metadata *metadata)
{
    for (size_t i = 0; i < metadata->count; i++)
        RETURN_IF_ERROR(metadata_check_entry(&metadata->entries[i]));
    return DCP_OK;
}

/* A whole checkpoint's chunks cover their tensors. */
static dcp_status check_whole(struct metadata *metadata, dcp_status status)
{
    if (status == DCP_OK)
        status = metadata_check_chunks(metadata);
    if (status != DCP_OK)
        metadata_free(metadata);
    return status;
}

dcp_status metadata_decode(const void *bytes, size_t size, struct metadata *metadata)
{
    return check_whole(metadata, metadata_decode_part(bytes, size, metadata));
}

dcp_status metadata_decode_compact(const void *bytes, size_t size, struct metadata *metadata)
{
    return check_whole(metadata, decode_compact(bytes, size, metadata));
}

dcp_status metadata_find_compact(const void *bytes, size_t size, const void **compact,
                                 size_t *compact_size)
{
    struct metadata_trailer trailer;
    dcp_status status = metadata_trailer_read(bytes, size, &trailer);
    *compact = status == DCP_OK ? trailer.compact : NULL;
    *compact_size = *compact ? trailer.compact_size : 0;
    return status;
}
