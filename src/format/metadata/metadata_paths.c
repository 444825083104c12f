/* SPDX-License-Identifier: BSD-3-Clause */
/* planner_data: name -> tuple of path parts. */
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "format/metadata/metadata_decoding.h"

static bool is_path_part(const struct pickle_value *value)
{
    if (value->kind == PICKLE_INT)
        return value->as.integer >= 0;
    return value->kind == PICKLE_STRING &&
           utf8_is_valid(value->as.text.bytes, value->as.text.length) &&
           memchr(value->as.text.bytes, '\0', value->as.text.length) == NULL;
}

/* Whether a value is a tuple of strings and list positions that, joined by dots, is not longer than
 * the name, so that paths take no more memory than names. */
static bool is_path(const struct pickle_value *value, size_t name_length)
{
    if (value->kind != PICKLE_TUPLE && value->kind != PICKLE_LIST)
        return false;
    const struct pickle_sequence *parts = &value->as.sequence;
    if (parts->count == 0 || parts->count > name_length + 1)
        return false;
    size_t left = name_length + 1 - parts->count;
    for (uint32_t i = 0; i < parts->count; i++) {
        const struct pickle_value *part = parts->items[i];
        if (!is_path_part(part))
            return false;
        size_t length = part->kind == PICKLE_INT ? 1 : part->as.text.length;
        if (length > left)
            return false;
        left -= length;
    }
    return true;
}

static dcp_status decode_path(struct arena *arena, const struct pickle_sequence *parts,
                              struct metadata_entry *entry)
{
    dcp_path_part *path = arena_allocate_array(arena, parts->count, sizeof *path);
    if (path == NULL)
        return error_no_memory(parts->count * sizeof *path, "a path");
    for (uint32_t i = 0; i < parts->count; i++) {
        const struct pickle_value *part = parts->items[i];
        path[i] = (dcp_path_part){0};
        if (part->kind == PICKLE_INT) {
            path[i].position = part->as.integer;
            continue;
        }
        path[i].key = arena_copy_text(arena, part->as.text.bytes, part->as.text.length);
        if (path[i].key == NULL)
            return error_no_memory(part->as.text.length, "a path");
    }
    entry->path = path;
    entry->path_length = parts->count;
    return DCP_OK;
}

dcp_status metadata_decode_paths(struct metadata_decoding *decoding,
                                 const struct pickle_value *planner_data, bool *only_paths)
{
    struct metadata *metadata = decoding->metadata;
    *only_paths = planner_data == NULL || planner_data->kind == PICKLE_NONE;
    if (planner_data == NULL || planner_data->kind != PICKLE_DICT)
        return DCP_OK;
    size_t foreign = 0;
    const struct pickle_sequence *pairs = &planner_data->as.sequence;
    const struct pickle_value **values =
        arena_allocate_array(&decoding->scratch, metadata->count, sizeof *values);
    if (values == NULL)
        return error_no_memory(metadata->count * sizeof *values, "the paths of a checkpoint");
    memset(values, 0, metadata->count * sizeof *values);
    for (uint32_t i = 0; i < pairs->count; i += 2) {
        const struct pickle_value *key = pairs->items[i];
        uint64_t place;
        if (key->kind == PICKLE_STRING &&
            name_table_find(&metadata->by_name, key->as.text.bytes, key->as.text.length, &place))
            values[place] = pairs->items[i + 1];
        else
            foreign++;
    }
    for (size_t i = 0; i < metadata->count; i++) {
        struct metadata_entry *entry = &metadata->entries[i];
        if (values[i] == NULL)
            continue;
        if (!is_path(values[i], strlen(entry->name))) {
            foreign++;
            continue;
        }
        RETURN_IF_ERROR(decode_path(&metadata->arena, &values[i]->as.sequence, entry));
        metadata->has_paths = true;
    }
    *only_paths = foreign == 0;
    return DCP_OK;
}
