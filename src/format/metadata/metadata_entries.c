/* SPDX-License-Identifier: BSD-3-Clause */
/* state_dict_metadata: name -> TensorStorageMetadata or BytesStorageMetadata. */
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "format/metadata/metadata_decoding.h"

dcp_status metadata_prefix_name(dcp_status status, const char *name, size_t length)
{
    return error_prefix(status, "metadata, \"%.*s\"", length < 200 ? (int)length : 200, name);
}

/* Dtypes are looked up in a closed table: other attributes of torch are refused. */
static dcp_status decode_dtype(const struct pickle_value *value, dcp_dtype *dtype)
{
    char name[32];
    if (value->kind != PICKLE_GLOBAL)
        return dcp_error_set(DCP_ERR_FORMAT, "properties: %s, expected a dtype",
                             pickle_kind_name(value));
    uint32_t module_length = value->as.global.module_length;
    uint32_t name_length = value->as.global.name_length;
    snprintf(name, sizeof name, "%.*s", name_length < sizeof name ? (int)name_length : 0,
             value->as.global.name);
    *dtype = dcp_dtype_from_name(name);
    if (*dtype == DCP_DTYPE_NONE || !pickle_is_global(value, "torch", name))
        return dcp_error_set(DCP_ERR_FORMAT, "properties: \"%.*s.%.*s\" is not a known dtype",
                             module_length < 100 ? (int)module_length : 100,
                             value->as.global.module, name_length < 100 ? (int)name_length : 100,
                             value->as.global.name);
    return DCP_OK;
}

static bool is_properties(const struct pickle_value *value)
{
    return value != NULL && value->kind == PICKLE_OBJECT &&
           (metadata_is_class(value->as.call->callable, "TensorProperties") ||
            /* until 2.2 */
            pickle_is_global(value->as.call->callable,
                             "torch.distributed._shard.sharded_tensor.metadata",
                             "TensorProperties"));
}

/* A tuple of 5 values, or more from 2.15 on; all but the dtype only inform. */
static dcp_status decode_properties(const struct pickle_value *value, struct metadata_entry *entry)
{
    if (!is_properties(value))
        return dcp_error_set(DCP_ERR_FORMAT, "properties: %s, expected TensorProperties",
                             pickle_kind_name(value));
    const struct pickle_value *state = value->as.call->state;
    if (state == NULL || state->kind != PICKLE_TUPLE || state->as.sequence.count < 5)
        return dcp_error_set(DCP_ERR_FORMAT, "properties: expected a tuple of at least 5 values");
    struct pickle_value **fields = state->as.sequence.items;
    entry->requires_grad = fields[2]->kind == PICKLE_BOOL && fields[2]->as.boolean;
    return decode_dtype(fields[0], &entry->dtype);
}

static dcp_status decode_tensor(struct metadata_decoding *decoding,
                                const struct pickle_value *state, struct metadata_entry *entry,
                                const struct pickle_sequence **chunks)
{
    int64_t shape[DCP_MAX_DIMS];
    uint64_t bytes;
    char text[200];
    RETURN_IF_ERROR(decode_properties(pickle_dict_get(state, "properties"), entry));
    RETURN_IF_ERROR(metadata_size(pickle_dict_get(state, "size"), "size", shape, &entry->ndim));
    if (!shape_bytes(entry->ndim, shape, entry->dtype, &bytes))
        return dcp_error_set(DCP_ERR_FORMAT, "size: the bytes of %s of %s overflow",
                             shape_format(entry->ndim, shape, text, sizeof text),
                             dcp_dtype_name(entry->dtype));
    size_t size = (size_t)entry->ndim * sizeof *shape;
    entry->global_shape = arena_copy(&decoding->metadata->arena, shape, size);
    if (entry->global_shape == NULL)
        return error_no_memory(size, "a tensor's shape");

    const struct pickle_value *list = pickle_dict_get(state, "chunks");
    if (list == NULL || (list->kind != PICKLE_LIST && list->kind != PICKLE_TUPLE))
        return dcp_error_set(DCP_ERR_FORMAT, "chunks: %s, expected a list", pickle_kind_name(list));
    *chunks = &list->as.sequence;
    return DCP_OK;
}

static dcp_status decode_entry(struct metadata_decoding *decoding, const struct pickle_value *value,
                               struct metadata_entry *entry, const struct pickle_sequence **chunks)
{
    const char *name = entry->name;
    const dcp_path_part *path = entry->path;
    *entry = (struct metadata_entry){.name = name, .path = path, .path_length = 1};
    *chunks = NULL;
    if (value->kind == PICKLE_OBJECT &&
        metadata_is_class(value->as.call->callable, "TensorStorageMetadata")) {
        entry->is_tensor = true;
        return decode_tensor(decoding, value->as.call->state, entry, chunks);
    }
    if (value->kind == PICKLE_OBJECT &&
        metadata_is_class(value->as.call->callable, "BytesStorageMetadata"))
        return DCP_OK;
    return dcp_error_set(DCP_ERR_FORMAT, "expected TensorStorageMetadata or BytesStorageMetadata");
}

/* The place of an entry: that of the same name if there is one, as in a dict. */
static dcp_status place_entry(struct metadata *metadata, const struct pickle_value *key,
                              uint64_t *place)
{
    if (key->kind != PICKLE_STRING)
        return dcp_error_set(DCP_ERR_FORMAT, "metadata: a name is %s, expected a string",
                             pickle_kind_name(key));
    const char *text = key->as.text.bytes;
    size_t length = key->as.text.length;
    if (!utf8_is_valid(text, length) || memchr(text, '\0', length) != NULL)
        return metadata_prefix_name(
            dcp_error_set(DCP_ERR_FORMAT, "the name contains NUL, or is not UTF-8"), text, length);
    if (name_table_find(&metadata->by_name, text, length, place))
        return DCP_OK;

    bool existing;
    char *name = arena_copy_text(&metadata->arena, text, length);
    dcp_path_part part = {.key = name};
    dcp_path_part *path = arena_copy(&metadata->arena, &part, sizeof part);
    if (name == NULL || path == NULL)
        return error_no_memory(length, "a name");
    *place = metadata->count;
    RETURN_IF_ERROR(name_table_add(&metadata->by_name, name, length, place, &existing));
    metadata->entries[metadata->count].name = name;
    metadata->entries[metadata->count].path = path;
    metadata->count++;
    return DCP_OK;
}

dcp_status metadata_decode_entries(struct metadata_decoding *decoding,
                                   const struct pickle_value *state_dict)
{
    struct metadata *metadata = decoding->metadata;
    if (state_dict == NULL || state_dict->kind != PICKLE_DICT)
        return dcp_error_set(DCP_ERR_FORMAT, "metadata: state_dict_metadata is %s, expected a dict",
                             pickle_kind_name(state_dict));
    const struct pickle_sequence *pairs = &state_dict->as.sequence;
    size_t count = pairs->count / 2;
    metadata->entries = arena_allocate_array(&metadata->arena, count, sizeof *metadata->entries);
    decoding->chunks = arena_allocate_array(&decoding->scratch, count, sizeof *decoding->chunks);
    if (metadata->entries == NULL || decoding->chunks == NULL)
        return error_no_memory(count * sizeof *metadata->entries, "the entries of a checkpoint");
    for (size_t i = 0; i < count; i++) {
        uint64_t place = 0;
        RETURN_IF_ERROR(place_entry(metadata, pairs->items[2 * i], &place));
        struct metadata_entry *entry = &metadata->entries[place];
        dcp_status status =
            decode_entry(decoding, pairs->items[2 * i + 1], entry, &decoding->chunks[place]);
        if (status != DCP_OK)
            return metadata_prefix_name(status, entry->name, strlen(entry->name));
    }
    return DCP_OK;
}
