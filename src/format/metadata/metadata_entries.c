/* SPDX-License-Identifier: BSD-3-Clause */
/* state_dict_metadata: name -> TensorStorageMetadata or BytesStorageMetadata. */
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "format/metadata/metadata_decoding.h"

dcp_status metadata_prefix_name(dcp_status status, const char *name, size_t length)
{
    return error_prefix(status, "metadata, \"%.*s\"", length < 200 ? (int)length : 200, name);
}

static dcp_status decode_entry(struct metadata_decoding *decoding, const struct pickle_value *value,
                               struct metadata_entry *entry, const struct digested_tensor **tensor)
{
    const char *name = entry->name;
    const dcp_path_part *path = entry->path;
    *entry = (struct metadata_entry){.name = name, .path = path, .path_length = 1};
    *tensor = NULL;
    if (value->kind == PICKLE_OBJECT &&
        metadata_is_class(value->as.call->callable, "BytesStorageMetadata"))
        return DCP_OK;
    RETURN_IF_ERROR(metadata_tensor(&decoding->digester, value, tensor));
    entry->is_tensor = true;
    entry->dtype = (*tensor)->dtype;
    entry->requires_grad = (*tensor)->requires_grad;
    entry->ndim = (*tensor)->ndim;
    entry->global_shape = (*tensor)->shape;
    return DCP_OK;
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
    decoding->tensors = arena_allocate_array(&decoding->scratch, count, sizeof *decoding->tensors);
    if (metadata->entries == NULL || decoding->tensors == NULL)
        return error_no_memory(count * sizeof *metadata->entries, "the entries of a checkpoint");
    for (size_t i = 0; i < count; i++) {
        uint64_t place = 0;
        RETURN_IF_ERROR(place_entry(metadata, pairs->items[2 * i], &place));
        struct metadata_entry *entry = &metadata->entries[place];
        dcp_status status =
            decode_entry(decoding, pairs->items[2 * i + 1], entry, &decoding->tensors[place]);
        if (status != DCP_OK)
            return metadata_prefix_name(status, entry->name, strlen(entry->name));
    }
    return DCP_OK;
}
