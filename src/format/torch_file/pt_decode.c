/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/error.h"
#include "base/memory.h"
#include "format/metadata/metadata_codec.h"
#include "format/objects/object_builder.h"
#include "format/torch_file/pt_file.h"

/* A deflated pickle may be larger than the file that holds it, but not by any amount. */
#define PICKLE_BYTES_BASE (UINT64_C(64) << 20)

static void free_file(void *attachment)
{
    struct pt_file *file = attachment;
    pickle_free(&file->document);
    memory_release(file->pickle);
    zip_close(&file->archive);
    memory_release(file);
}

static dcp_status read_pickle(struct pt_file *file)
{
    file->record = zip_find(&file->archive, "data.pkl");
    if (file->record == NULL)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "not a torch.save file: a zip archive without a record \"data.pkl\"");
    RETURN_IF_ERROR(zip_data_offset(&file->archive, file->record, &file->record_offset));
    RETURN_IF_ERROR(zip_read(&file->archive, file->record,
                             file->archive.source.size + PICKLE_BYTES_BASE, &file->pickle));
    return pickle_read(file->pickle, (size_t)file->record->size, true, &file->document);
}

static dcp_status open_archive(struct byte_source source, struct pt_file *file)
{
    RETURN_IF_ERROR(zip_open(source, &file->archive));
    RETURN_IF_ERROR(zip_locate(&file->archive));
    return read_pickle(file);
}

dcp_status pt_decode(struct byte_source source, const char *file_name, struct metadata *metadata)
{
    return pt_decode_parts(source, file_name, false, metadata);
}

dcp_status pt_decode_parts(struct byte_source source, const char *file_name, bool local_parts,
                           struct metadata *metadata)
{
    size_t magic_size;
    metadata_init(metadata);
    RETURN_IF_ERROR(pt_recognize(&source, &magic_size));
    struct pt_file *file = memory_allocate_zeroed(1, sizeof *file);
    if (file == NULL)
        return error_no_memory(sizeof *file, "an open file");
    file->local_parts = local_parts;
    metadata->attachment = file;
    metadata->free_attachment = free_file;
    dcp_status status =
        magic_size != 0 ? pt_legacy_open(source, magic_size, file) : open_archive(source, file);
    if (status == DCP_OK)
        status = pt_flatten(file, file_name, metadata);
    if (status != DCP_OK)
        metadata_free(metadata);
    return status;
}

dcp_status pt_has_records(struct byte_source source, bool *has)
{
    size_t magic_size = 0;
    dcp_status status = pt_recognize(&source, &magic_size);
    *has = magic_size == 0;
    return status;
}

dcp_status pt_read_object(const struct metadata *metadata, const struct metadata_piece *piece,
                          struct state_pool *pool, dcp_state **object)
{
    const struct pt_file *file = metadata->attachment;
    return object_build(piece->object, &file->document, (size_t)file->record->size, &file->archive,
                        pool, object);
}
