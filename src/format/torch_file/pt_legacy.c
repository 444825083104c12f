/* SPDX-License-Identifier: BSD-3-Clause */
/* Files as torch.save wrote them before PyTorch 1.6, and still writes them without zip
 * serialization: five pickles one after another (a magic number, a version, what system wrote it,
 * the value, the list of its storages' keys), then the storages in that order, each after its
 * number of elements. They have neither sizes nor checksums of their own. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "format/streams/tensor_pickle.h"
#include "format/torch_file/pt_file.h"

/* The pickles are looked for in the first so many bytes, then in four times as many. */
#define FIRST_LOOK ((size_t)1 << 20)

enum { VERSION = 1001, COUNT_SIZE = 8 };

/* What a key stands for, as the value says. */
struct legacy_storage {
    uint64_t bytes, elements;
};

struct legacy {
    struct pt_file *file;
    struct byte_source source;
    size_t size; /* of the bytes that are looked at, file->pickle */
    size_t magic_size;
    size_t position; /* of the next pickle in them */
    struct pickle_document keys;
    struct name_table by_key;
    struct legacy_storage *storages;
    size_t count, capacity;
    const struct pickle_value **stack; /* of values to be looked at */
    size_t depth, room;
    unsigned char *seen; /* by serial */
};

/* ---- the pickles ---- */

static dcp_status next_pickle(struct legacy *legacy, bool persistent_ids,
                              struct pickle_document *document)
{
    const unsigned char *bytes = legacy->file->pickle;
    RETURN_IF_ERROR(pickle_read(bytes + legacy->position, legacy->size - legacy->position,
                                persistent_ids, document));
    legacy->position += document->length;
    return DCP_OK;
}

static dcp_status check_version(struct legacy *legacy)
{
    struct pickle_document document;
    RETURN_IF_ERROR(next_pickle(legacy, false, &document));
    bool known = document.root->kind == PICKLE_INT && document.root->as.integer == VERSION;
    pickle_free(&document);
    return known ? DCP_OK
                 : dcp_error_set(DCP_ERR_UNSUPPORTED,
                                 "a legacy torch.save file of another version than %d", VERSION);
}

static dcp_status skip_system(struct legacy *legacy)
{
    struct pickle_document document;
    RETURN_IF_ERROR(next_pickle(legacy, false, &document));
    pickle_free(&document);
    return DCP_OK;
}

static dcp_status read_pickles(struct legacy *legacy)
{
    legacy->position = legacy->magic_size;
    RETURN_IF_ERROR(check_version(legacy));
    RETURN_IF_ERROR(skip_system(legacy));
    legacy->file->record_offset = legacy->position;
    RETURN_IF_ERROR(next_pickle(legacy, true, &legacy->file->document));
    RETURN_IF_ERROR(next_pickle(legacy, false, &legacy->keys));
    return legacy->keys.root->kind == PICKLE_LIST
               ? DCP_OK
               : dcp_error_set(DCP_ERR_FORMAT, "the keys of its storages are not a list");
}

/* Where the pickles end is known when they have been read. */
static dcp_status look(struct legacy *legacy, uint64_t size)
{
    struct pt_file *file = legacy->file;
    pickle_free(&file->document);
    pickle_free(&legacy->keys);
    memory_release(file->pickle);
    legacy->size = (size_t)size;
    file->pickle = size <= SIZE_MAX ? memory_allocate(legacy->size) : NULL;
    if (file->pickle == NULL)
        return error_no_memory(legacy->size, "the beginning of a file");
    RETURN_IF_ERROR(byte_source_read(&legacy->source, 0, file->pickle, legacy->size));
    return read_pickles(legacy);
}

static dcp_status find_pickles(struct legacy *legacy)
{
    uint64_t whole = legacy->source.size, size = whole < FIRST_LOOK ? whole : FIRST_LOOK;
    dcp_status status = look(legacy, size);
    while (status == DCP_ERR_FORMAT && size < whole) {
        size = size < whole / 4 ? size * 4 : whole;
        status = look(legacy, size);
    }
    return status;
}

/* ---- the storages that the value refers to ---- */

static dcp_status push(struct legacy *legacy, const struct pickle_value *value)
{
    if (value == NULL || legacy->seen[value->serial])
        return DCP_OK;
    legacy->seen[value->serial] = 1;
    if (legacy->depth == legacy->room) {
        size_t room = legacy->room == 0 ? 256 : legacy->room * 2;
        const struct pickle_value **grown =
            memory_reallocate_array(legacy->stack, room, sizeof *grown);
        if (grown == NULL)
            return error_no_memory(room * sizeof *grown, "nested values");
        legacy->stack = grown;
        legacy->room = room;
    }
    legacy->stack[legacy->depth++] = value;
    return DCP_OK;
}

static dcp_status push_all(struct legacy *legacy, const struct pickle_sequence *values)
{
    for (uint32_t i = 0; i < values->count; i++)
        RETURN_IF_ERROR(push(legacy, values->items[i]));
    return DCP_OK;
}

static dcp_status push_call(struct legacy *legacy, const struct pickle_call *call)
{
    RETURN_IF_ERROR(push(legacy, call->arguments));
    RETURN_IF_ERROR(push(legacy, call->state));
    RETURN_IF_ERROR(push_all(legacy, &call->items));
    return push_all(legacy, &call->pairs);
}

static dcp_status note_storage(struct legacy *legacy, const struct pickle_value *value)
{
    struct tensor_pickle storage = {0};
    uint64_t index = legacy->count;
    bool existing;
    RETURN_IF_ERROR(tensor_pickle_storage(value, &storage));
    const struct legacy_storage noted = {storage.storage_bytes,
                                         storage.storage_bytes / dcp_dtype_size(storage.dtype)};
    RETURN_IF_ERROR(name_table_add(&legacy->by_key, storage.storage_key, storage.storage_key_length,
                                   &index, &existing));
    if (existing)
        return legacy->storages[index].bytes == noted.bytes
                   ? DCP_OK
                   : dcp_error_set(DCP_ERR_FORMAT, "the storage \"%.*s\" has two sizes",
                                   (int)storage.storage_key_length, storage.storage_key);
    if (legacy->count == legacy->capacity) {
        size_t capacity = legacy->capacity == 0 ? 64 : legacy->capacity * 2;
        struct legacy_storage *grown =
            memory_reallocate_array(legacy->storages, capacity, sizeof *grown);
        if (grown == NULL)
            return error_no_memory(capacity * sizeof *grown, "storages");
        legacy->storages = grown;
        legacy->capacity = capacity;
    }
    legacy->storages[legacy->count++] = noted;
    return DCP_OK;
}

static dcp_status visit(struct legacy *legacy, const struct pickle_value *value)
{
    switch ((enum pickle_kind)value->kind) {
    case PICKLE_TUPLE:
    case PICKLE_LIST:
    case PICKLE_DICT:
    case PICKLE_SET:
    case PICKLE_FROZENSET:
        return push_all(legacy, &value->as.sequence);
    case PICKLE_CALL:
    case PICKLE_OBJECT:
        return push_call(legacy, value->as.call);
    case PICKLE_PERSISTENT:
        return note_storage(legacy, value);
    default:
        return DCP_OK;
    }
}

static dcp_status find_storages(struct legacy *legacy)
{
    const struct pickle_document *document = &legacy->file->document;
    legacy->seen = memory_allocate_zeroed(document->value_count, 1);
    if (legacy->seen == NULL)
        return error_no_memory(document->value_count, "marks of values");
    dcp_status status = push(legacy, document->root);
    while (status == DCP_OK && legacy->depth > 0)
        status = visit(legacy, legacy->stack[--legacy->depth]);
    return status;
}

/* ---- where they are ---- */

static dcp_status place_storage(struct legacy *legacy, const struct pickle_value *key,
                                uint64_t *offset)
{
    char name[ZIP_NAME_MAX + 1];
    unsigned char count[COUNT_SIZE];
    uint64_t index, left = legacy->source.size - *offset;
    if (key->kind != PICKLE_STRING || key->as.text.length >= sizeof name - sizeof "data/" ||
        memchr(key->as.text.bytes, '\0', key->as.text.length) != NULL ||
        !name_table_find(&legacy->by_key, key->as.text.bytes, key->as.text.length, &index))
        return dcp_error_set(DCP_ERR_FORMAT, "a storage that no value refers to");
    const struct legacy_storage *storage = &legacy->storages[index];
    snprintf(name, sizeof name, "data/%.*s", (int)key->as.text.length, key->as.text.bytes);
    if (left < COUNT_SIZE || storage->bytes > left - COUNT_SIZE)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "its storage \"%s\" of %" PRIu64 " bytes at %" PRIu64
                             " reaches beyond the file of %" PRIu64,
                             name, storage->bytes, *offset, legacy->source.size);
    RETURN_IF_ERROR(byte_source_read(&legacy->source, *offset, count, sizeof count));
    if (load_u64(count) != storage->elements)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "its storage \"%s\" at %" PRIu64 " has %" PRIu64
                             " elements, expected %" PRIu64,
                             name, *offset, load_u64(count), storage->elements);
    RETURN_IF_ERROR(
        zip_add_bare(&legacy->file->archive, name, *offset + COUNT_SIZE, storage->bytes));
    *offset += COUNT_SIZE + storage->bytes;
    return DCP_OK;
}

static dcp_status place_storages(struct legacy *legacy)
{
    struct pt_file *file = legacy->file;
    const struct pickle_sequence *keys = &legacy->keys.root->as.sequence;
    uint64_t offset = legacy->position;
    RETURN_IF_ERROR(zip_open_bare(legacy->source, (size_t)keys->count + 1, &file->archive));
    RETURN_IF_ERROR(
        zip_add_bare(&file->archive, "data.pkl", file->record_offset, file->document.length));
    file->record = &file->archive.records[0];
    for (uint32_t i = 0; i < keys->count; i++)
        RETURN_IF_ERROR(place_storage(legacy, keys->items[i], &offset));
    return DCP_OK;
}

dcp_status pt_legacy_open(struct byte_source source, size_t magic_size, struct pt_file *file)
{
    struct legacy legacy = {.file = file, .source = source, .magic_size = magic_size};
    name_table_init(&legacy.by_key);
    dcp_status status = find_pickles(&legacy);
    if (status == DCP_OK)
        status = find_storages(&legacy);
    if (status == DCP_OK)
        status = place_storages(&legacy);
    pickle_free(&legacy.keys);
    name_table_free(&legacy.by_key);
    memory_release(legacy.storages);
    memory_release(legacy.stack);
    memory_release(legacy.seen);
    return status == DCP_OK
               ? DCP_OK
               : error_prefix(status, "a legacy torch.save file, as before PyTorch 1.6");
}
