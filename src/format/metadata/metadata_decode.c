/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/error.h"
#include "format/metadata/metadata_checksum.h"
#include "format/metadata/metadata_decoding.h"
#include "format/metadata/metadata_encoder.h"

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

static dcp_status read_pickle(struct metadata_decoding *decoding, const void *bytes, size_t *size)
{
    struct pickle_digester digester = {.digest = metadata_digest, .context = &decoding->digester};
    size_t whole = *size;
    RETURN_IF_ERROR(metadata_checksum_compare(bytes, size));
    dcp_status status = pickle_read_digested(bytes, *size, &digester, &decoding->document);
    if (status != DCP_OK)
        return error_prefix(status, "metadata");
    return *size == whole
               ? metadata_checksum_refuse_damaged(bytes, decoding->document.length, whole)
               : DCP_OK;
}

static dcp_status decode(struct metadata_decoding *decoding, const void *bytes, size_t size)
{
    const struct pickle_value *fields;
    RETURN_IF_ERROR(read_pickle(decoding, bytes, &size));
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

dcp_status metadata_decode_part(const void *bytes, size_t size, struct metadata *metadata)
{
    metadata_init(metadata);
    struct metadata_decoding decoding = {.metadata = metadata};
    arena_init(&decoding.scratch, 0);
    decoding.digester =
        (struct metadata_digester){.boxes = &metadata->arena, .rest = &decoding.scratch};
    dcp_status status = decode(&decoding, bytes, size);
    pickle_free(&decoding.document);
    arena_free(&decoding.scratch);
    if (status != DCP_OK)
        metadata_free(metadata);
    return status;
}

dcp_status metadata_check_chunks(const struct metadata *metadata)
{
    for (size_t i = 0; i < metadata->count; i++)
        RETURN_IF_ERROR(metadata_check_entry(&metadata->entries[i]));
    return DCP_OK;
}

dcp_status metadata_decode(const void *bytes, size_t size, struct metadata *metadata)
{
    RETURN_IF_ERROR(metadata_decode_part(bytes, size, metadata));
    dcp_status status = metadata_check_chunks(metadata);
    if (status != DCP_OK)
        metadata_free(metadata);
    return status;
}
