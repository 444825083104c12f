/* SPDX-License-Identifier: BSD-3-Clause */
/* Writing .metadata: the objects of PyTorch 2.13, protocol 4 without frames. */
#include "base/error.h"
#include "base/memory.h"
#include "format/metadata/metadata_codec.h"
#include "format/metadata/metadata_encoder.h"
#include "format/metadata/metadata_trailer.h"
#include "format/streams/item.h"

struct encoding {
    const struct metadata *metadata;
    struct metadata_encoder encoder;
    struct buffer *out;
    uint32_t *names; /* memo numbers of the entries' names */
    uint32_t *files; /* memo numbers of the files' names, + 1; 0: not yet written */
};

/* The five values that all versions read; PyTorch 2.13 would reject a sixth. */
static void put_properties(struct encoding *encoding, const struct metadata_entry *entry)
{
    struct metadata_encoder *encoder = &encoding->encoder;
    encoder_put_object(encoder, CLASS_PROPERTIES);
    pickle_put_op(encoding->out, OP_MARK);
    encoder_put_shared(encoder, (enum metadata_shared)(SHARED_DTYPES + (int)entry->dtype));
    encoder_put_shared(encoder, VALUE_STRIDED);
    pickle_put_bool(encoding->out, entry->requires_grad);
    encoder_put_shared(encoder, VALUE_CONTIGUOUS);
    pickle_put_bool(encoding->out, false); /* pinned memory */
    pickle_put_op(encoding->out, OP_TUPLE);
    pickle_put_op(encoding->out, OP_BUILD);
}

static void put_tensor(struct encoding *encoding, const struct metadata_entry *entry)
{
    struct metadata_encoder *encoder = &encoding->encoder;
    encoder_put_object(encoder, CLASS_TENSOR);
    encoder_begin_fields(encoder);
    encoder_put_shared(encoder, KEY_PROPERTIES);
    put_properties(encoding, entry);
    encoder_put_shared(encoder, KEY_SIZE);
    encoder_put_size(encoder, entry->ndim, entry->global_shape);
    encoder_put_shared(encoder, KEY_CHUNKS);
    pickle_put_op(encoding->out, OP_EMPTY_LIST);
    for (size_t i = 0; i < entry->piece_count; i++) {
        encoder_batch_next(encoder, i, OP_APPENDS);
        encoder_put_object(encoder, CLASS_CHUNK);
        encoder_begin_fields(encoder);
        encoder_put_shared(encoder, KEY_OFFSETS);
        encoder_put_size(encoder, entry->ndim, entry->pieces[i].offsets);
        encoder_put_shared(encoder, KEY_SIZES);
        encoder_put_size(encoder, entry->ndim, entry->pieces[i].sizes);
        encoder_end_fields(encoder);
    }
    encoder_batch_end(encoder, entry->piece_count, OP_APPENDS);
    encoder_end_fields(encoder);
}

static dcp_status put_state_dict(struct encoding *encoding)
{
    const struct metadata *metadata = encoding->metadata;
    struct metadata_encoder *encoder = &encoding->encoder;
    encoder_put_text(encoder, "state_dict_metadata");
    pickle_put_op(encoding->out, OP_EMPTY_DICT);
    for (size_t i = 0; i < metadata->count; i++) {
        const struct metadata_entry *entry = &metadata->entries[i];
        encoder_batch_next(encoder, i, OP_SETITEMS);
        RETURN_IF_ERROR(encoder_put_name(encoder, entry->name, &encoding->names[i]));
        if (!entry->is_tensor)
            encoder_put_object(encoder, CLASS_BYTES);
        else if (dcp_dtype_name(entry->dtype) != NULL)
            put_tensor(encoding, entry);
        else
            return dcp_error_set(DCP_ERR_ARGUMENT, "\"%s\" has no dtype", entry->name);
    }
    encoder_batch_end(encoder, metadata->count, OP_SETITEMS);
    return DCP_OK;
}

static dcp_status put_path(struct encoding *encoding, const struct metadata_entry *entry)
{
    encoder_begin_tuple(&encoding->encoder, entry->path_length);
    for (size_t i = 0; i < entry->path_length; i++) {
        uint32_t number;
        if (entry->path[i].key == NULL)
            pickle_put_int(encoding->out, entry->path[i].position);
        else
            RETURN_IF_ERROR(encoder_put_name(&encoding->encoder, entry->path[i].key, &number));
    }
    encoder_end_tuple(&encoding->encoder, entry->path_length);
    return DCP_OK;
}

static dcp_status put_planner_data(struct encoding *encoding)
{
    const struct metadata *metadata = encoding->metadata;
    struct metadata_encoder *encoder = &encoding->encoder;
    encoder_put_text(encoder, "planner_data");
    if (metadata->planner_data != NULL)
        return item_put_object(metadata->planner_data, &encoder->memo_count, encoding->out);
    if (!metadata->has_paths) {
        pickle_put_none(encoding->out);
        return DCP_OK;
    }
    pickle_put_op(encoding->out, OP_EMPTY_DICT);
    for (size_t i = 0; i < metadata->count; i++) {
        encoder_batch_next(encoder, i, OP_SETITEMS);
        pickle_get_memo(encoding->out, encoding->names[i]);
        RETURN_IF_ERROR(put_path(encoding, &metadata->entries[i]));
    }
    encoder_batch_end(encoder, metadata->count, OP_SETITEMS);
    return DCP_OK;
}

static void put_index(struct encoding *encoding, const struct metadata_entry *entry,
                      uint32_t name_number, size_t piece)
{
    struct metadata_encoder *encoder = &encoding->encoder;
    encoder_put_object(encoder, CLASS_INDEX);
    encoder_begin_fields(encoder);
    encoder_put_shared(encoder, KEY_FQN);
    pickle_get_memo(encoding->out, name_number);
    encoder_put_shared(encoder, KEY_INDEX);
    if (entry->is_tensor) {
        pickle_put_uint(encoding->out, piece);
        encoder_put_shared(encoder, KEY_OFFSET);
        encoder_put_size(encoder, entry->ndim, entry->pieces[piece].offsets);
    } else {
        pickle_put_none(encoding->out);
    }
    encoder_end_fields(encoder);
}

static dcp_status put_file(struct encoding *encoding, uint32_t file)
{
    uint32_t *number = &encoding->files[file];
    if (*number != 0) {
        pickle_get_memo(encoding->out, *number - 1);
        return DCP_OK;
    }
    RETURN_IF_ERROR(encoder_put_name(&encoding->encoder, encoding->metadata->files[file], number));
    ++*number;
    return DCP_OK;
}

static dcp_status put_storage(struct encoding *encoding, const struct metadata_piece *piece)
{
    struct metadata_encoder *encoder = &encoding->encoder;
    encoder_put_object(encoder, CLASS_STORAGE);
    encoder_begin_fields(encoder);
    encoder_put_shared(encoder, KEY_PATH);
    RETURN_IF_ERROR(put_file(encoding, piece->file));
    encoder_put_shared(encoder, KEY_OFFSET);
    pickle_put_uint(encoding->out, piece->offset);
    encoder_put_shared(encoder, KEY_LENGTH);
    pickle_put_uint(encoding->out, piece->length);
    if (piece->zstd) {
        encoder_put_shared(encoder, KEY_TRANSFORMS);
        pickle_put_op(encoding->out, OP_EMPTY_LIST);
        encoder_put_shared(encoder, TEXT_ZSTD);
        pickle_put_op(encoding->out, OP_APPEND);
    }
    encoder_end_fields(encoder);
    return DCP_OK;
}

static dcp_status put_storage_data(struct encoding *encoding)
{
    const struct metadata *metadata = encoding->metadata;
    size_t position = 0;
    encoder_put_text(&encoding->encoder, "storage_data");
    pickle_put_op(encoding->out, OP_EMPTY_DICT);
    for (size_t i = 0; i < metadata->count; i++) {
        const struct metadata_entry *entry = &metadata->entries[i];
        for (size_t k = 0; k < entry->piece_count; k++) {
            if (entry->pieces[k].encoding != PIECE_STREAM)
                return dcp_error_set(DCP_ERR_UNSUPPORTED, "\"%s\" is not stored as streams",
                                     entry->name);
            encoder_batch_next(&encoding->encoder, position++, OP_SETITEMS);
            put_index(encoding, entry, encoding->names[i], k);
            RETURN_IF_ERROR(put_storage(encoding, &entry->pieces[k]));
        }
    }
    encoder_batch_end(&encoding->encoder, position, OP_SETITEMS);
    return DCP_OK;
}

/* text NULL: None. */
static void put_id(struct encoding *encoding, const char *field, const char *text)
{
    encoder_put_text(&encoding->encoder, field);
    if (text != NULL)
        encoder_put_text(&encoding->encoder, text);
    else
        pickle_put_none(encoding->out);
}

static void put_storage_meta(struct encoding *encoding)
{
    struct metadata_encoder *encoder = &encoding->encoder;
    const struct metadata *metadata = encoding->metadata;
    encoder_put_text(encoder, "storage_meta");
    encoder_put_object_once(encoder, "StorageMeta");
    encoder_begin_fields(encoder);
    put_id(encoding, "checkpoint_id", metadata->checkpoint_id);
    put_id(encoding, "save_id", metadata->save_id[0] != '\0' ? metadata->save_id : NULL);
    put_id(encoding, "load_id", metadata->load_id);
    encoder_put_text(encoder, "modules");
    pickle_put_op(encoding->out, OP_EMPTY_LIST);
    for (size_t i = 0; i < metadata->module_count; i++) {
        encoder_batch_next(encoder, i, OP_APPENDS);
        encoder_put_text(encoder, metadata->modules[i]);
    }
    encoder_batch_end(encoder, metadata->module_count, OP_APPENDS);
    encoder_end_fields(encoder);
}

static dcp_status put_metadata(struct encoding *encoding)
{
    struct metadata_encoder *encoder = &encoding->encoder;
    pickle_put_protocol(encoding->out, 4);
    encoder_put_object_once(encoder, "Metadata");
    encoder_begin_fields(encoder);
    RETURN_IF_ERROR(put_state_dict(encoding));
    RETURN_IF_ERROR(put_planner_data(encoding));
    RETURN_IF_ERROR(put_storage_data(encoding));
    put_storage_meta(encoding);
    metadata_put_extra_files(encoder, encoding->metadata);
    encoder_put_text(encoder, "version");
    encoder_put_text(encoder, "1.0.0");
    encoder_end_fields(encoder);
    pickle_put_op(encoding->out, OP_STOP);
    return DCP_OK;
}

static size_t most_pieces(const struct metadata *metadata)
{
    size_t most = 0;
    for (size_t i = 0; i < metadata->count; i++)
        most = metadata->entries[i].piece_count > most ? metadata->entries[i].piece_count : most;
    return most;
}

/* An estimate of the file's size: growing a buffer by doubling would copy the file and hold it
 * twice. */
static size_t estimate_size(const struct metadata *metadata)
{
    size_t size = 1024;
    for (size_t i = 0; i < metadata->count; i++) {
        const struct metadata_entry *entry = &metadata->entries[i];
        size_t dimensions = entry->is_tensor ? (size_t)entry->ndim : 0;
        size += 200 + 16 * entry->path_length + (90 + 14 * dimensions) * entry->piece_count;
        size += strlen(entry->name) + 30 + (16 + 8 * dimensions) * entry->piece_count; /* compact */
    }
    return size;
}

dcp_status metadata_encode(const struct metadata *metadata, struct buffer *out)
{
    struct encoding encoding = {.metadata = metadata, .out = out};
    metadata_encoder_init(&encoding.encoder, out);
    encoding.names = memory_allocate_array(metadata->count, sizeof *encoding.names);
    encoding.files = memory_allocate_zeroed(metadata->file_count, sizeof *encoding.files);
    size_t start = out->size;
    dcp_status status = buffer_reserve(out, estimate_size(metadata));
    if (status == DCP_OK && (encoding.names == NULL || encoding.files == NULL))
        status = error_no_memory((metadata->count + metadata->file_count) * sizeof(uint32_t),
                                 "the memo of a pickle");
    if (status == DCP_OK)
        status = encoder_share_sizes(&encoding.encoder, most_pieces(metadata));
    if (status == DCP_OK)
        status = put_metadata(&encoding);
    if (status == DCP_OK)
        status = metadata_trailer_append(metadata, start, out);
    memory_release(encoding.files);
    memory_release(encoding.names);
    metadata_encoder_free(&encoding.encoder);
    return status;
}
