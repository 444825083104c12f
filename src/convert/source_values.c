/* SPDX-License-Identifier: BSD-3-Clause */
#include "convert/source_values.h"

#include <string.h>

#include "base/error.h"

bool source_entry_is_below(const dcp_entry *entry, const char *key)
{
    return entry->path_length > 1 && entry->path[0].key && strcmp(entry->path[0].key, key) == 0;
}

bool source_entry_find(const dcp_checkpoint *checkpoint, const char *name, size_t *index)
{
    return dcp_checkpoint_find(checkpoint, name, index) == DCP_OK;
}

/* Reads an object; the caller frees *root. */
static dcp_status read_value(dcp_checkpoint *checkpoint, size_t index, dcp_state **root,
                             const dcp_state **value)
{
    *root = dcp_state_new();
    if (!*root)
        return error_no_memory(1, "a value");
    RETURN_IF_ERROR(dcp_checkpoint_read_object(checkpoint, index, *root, "value", NULL));
    *value = dcp_state_find(*root, "value");
    return DCP_OK;
}

static dcp_status not_a(const dcp_checkpoint *checkpoint, size_t index, const char *expected)
{
    dcp_entry entry;
    RETURN_IF_ERROR(dcp_checkpoint_entry(checkpoint, index, &entry));
    return dcp_error_set(DCP_ERR_FORMAT, "\"%s\" is not %s", entry.name, expected);
}

static bool is_sequence(const dcp_state *value)
{
    dcp_kind kind = dcp_state_kind(value);
    return kind == DCP_KIND_SIZE || kind == DCP_KIND_LIST || kind == DCP_KIND_TUPLE;
}

dcp_status source_value_shape(dcp_checkpoint *checkpoint, size_t index, int64_t shape[DCP_MAX_DIMS],
                              int32_t *ndim)
{
    dcp_state *root;
    const dcp_state *value = NULL;
    *ndim = 0;
    dcp_status status = read_value(checkpoint, index, &root, &value);
    bool fits = status == DCP_OK && is_sequence(value) && dcp_state_count(value) <= DCP_MAX_DIMS;
    for (size_t i = 0; fits && i < dcp_state_count(value); i++) {
        fits = dcp_state_as_int(dcp_state_at(value, i), &shape[i]) == DCP_OK && shape[i] >= 0;
        *ndim = (int32_t)i + 1;
    }
    dcp_state_free(root);
    return status == DCP_OK && !fits ? not_a(checkpoint, index, "a shape") : status;
}

dcp_status source_value_text(dcp_checkpoint *checkpoint, size_t index, struct arena *arena,
                             const char **text)
{
    dcp_state *root;
    const dcp_state *value = NULL;
    const char *found;
    size_t length;
    *text = NULL;
    dcp_status status = read_value(checkpoint, index, &root, &value);
    bool fits = status == DCP_OK && dcp_state_kind(value) == DCP_KIND_STRING &&
                dcp_state_as_text(value, &found, &length) == DCP_OK;
    if (fits) {
        *text = arena_copy_text(arena, found, length);
        if (!*text)
            status = error_no_memory(length, "a text");
    }
    dcp_state_free(root);
    return status == DCP_OK && !fits ? not_a(checkpoint, index, "a string") : status;
}

dcp_status source_value_integer(dcp_checkpoint *checkpoint, size_t index, size_t position,
                                int64_t *value)
{
    dcp_state *root;
    const dcp_state *found = NULL;
    dcp_status status = read_value(checkpoint, index, &root, &found);
    if (status == DCP_OK && is_sequence(found))
        found = dcp_state_at(found, position);
    bool fits = status == DCP_OK && found && dcp_state_as_int(found, value) == DCP_OK;
    dcp_state_free(root);
    return status == DCP_OK && !fits ? not_a(checkpoint, index, "an int, or a list of ints")
                                     : status;
}
