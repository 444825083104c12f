/* SPDX-License-Identifier: BSD-3-Clause */
/* The description of a save in storage_meta. Except for save_id, its texts are only for users.
 * Values that are not text are ignored. */
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/log.h"
#include "format/metadata/metadata_decoding.h"

/* Longer texts are not paths. */
#define PATH_LONGEST 4096

/* Leaves the text unchanged unless the value is a text. */
static dcp_status decode_text(struct metadata *metadata, const struct pickle_value *value,
                              const char **text)
{
    if (value == NULL || value->kind != PICKLE_STRING ||
        memchr(value->as.text.bytes, '\0', value->as.text.length) != NULL ||
        !utf8_is_valid(value->as.text.bytes, value->as.text.length))
        return DCP_OK;
    const char *copy =
        arena_copy_text(&metadata->arena, value->as.text.bytes, value->as.text.length);
    if (copy == NULL)
        return error_no_memory(value->as.text.length, "a description of a save");
    *text = copy;
    return DCP_OK;
}

/* A text of the pickle may be in the list many times; this keeps the memory in proportion to the
 * pickle. */
static bool is_moderate(const struct pickle_sequence *list, size_t pickle_size)
{
    size_t allowance = pickle_size;
    for (uint32_t i = 0; i < list->count; i++) {
        const struct pickle_value *item = list->items[i];
        size_t length = item->kind == PICKLE_STRING ? item->as.text.length : 0;
        if (length > allowance)
            return false;
        allowance -= length;
    }
    return true;
}

static dcp_status decode_modules(struct metadata *metadata, const struct pickle_value *list,
                                 size_t pickle_size)
{
    if (list == NULL || list->kind != PICKLE_LIST || list->as.sequence.count == 0)
        return DCP_OK;
    if (!is_moderate(&list->as.sequence, pickle_size)) {
        log_line(DCP_LOG_WARNING,
                 "ignoring modules of storage_meta: they are larger than their pickle");
        return DCP_OK;
    }
    size_t count = list->as.sequence.count;
    const char **modules = arena_allocate_array(&metadata->arena, count, sizeof *modules);
    if (modules == NULL)
        return error_no_memory(count * sizeof *modules, "a description of a save");
    metadata->modules = modules;
    for (size_t i = 0; i < count; i++) {
        const char **module = &modules[metadata->module_count];
        *module = NULL;
        RETURN_IF_ERROR(decode_text(metadata, list->as.sequence.items[i], module));
        metadata->module_count += *module != NULL;
    }
    return DCP_OK;
}

/* A pathlib.Path, which is what checkpoint_id is if PyTorch chooses it: called with its parts, of
 * which the first one may be the root. */
static bool is_path(const struct pickle_value *value)
{
    static const char *const modules[] = {"pathlib", "pathlib._local"};
    static const char *const classes[] = {"PosixPath", "PurePosixPath"};
    for (size_t i = 0; i < 4; i++)
        if (pickle_is_call(value, modules[i / 2], classes[i % 2]))
            return value->as.call->arguments->kind == PICKLE_TUPLE;
    return false;
}

static dcp_status decode_path(struct metadata *metadata, const struct pickle_value *value,
                              const char **text)
{
    const struct pickle_sequence *parts = &value->as.call->arguments->as.sequence;
    char path[PATH_LONGEST];
    size_t size = 0;
    for (uint32_t i = 0; i < parts->count; i++) {
        const struct pickle_value *part = parts->items[i];
        bool slash = size > 0 && path[size - 1] != '/';
        if (part->kind != PICKLE_STRING || part->as.text.length > sizeof path - size - slash)
            return DCP_OK;
        if (slash)
            path[size++] = '/';
        memcpy(path + size, part->as.text.bytes, part->as.text.length);
        size += part->as.text.length;
    }
    const struct pickle_value whole = {.kind = PICKLE_STRING, .as.text = {path, size}};
    return decode_text(metadata, &whole, text);
}

dcp_status metadata_decode_storage_meta(struct metadata_decoding *decoding, size_t pickle_size,
                                        const struct pickle_value *storage_meta)
{
    struct metadata *metadata = decoding->metadata;
    if (storage_meta == NULL || storage_meta->kind != PICKLE_OBJECT)
        return DCP_OK;
    const struct pickle_value *fields = storage_meta->as.call->state;
    const struct pickle_value *id = pickle_dict_get(fields, "checkpoint_id");
    RETURN_IF_ERROR(decode_text(metadata, pickle_dict_get(fields, "save_id"), &metadata->save_id));
    RETURN_IF_ERROR(is_path(id) ? decode_path(metadata, id, &metadata->checkpoint_id)
                                : decode_text(metadata, id, &metadata->checkpoint_id));
    RETURN_IF_ERROR(decode_text(metadata, pickle_dict_get(fields, "load_id"), &metadata->load_id));
    return decode_modules(metadata, pickle_dict_get(fields, "modules"), pickle_size);
}
