/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/metadata/metadata_digest.h"

#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"

#define METADATA   "torch.distributed.checkpoint.metadata"
#define FILESYSTEM "torch.distributed.checkpoint.filesystem"
/* PyTorch 1.13 */
#define OLD_METADATA   "torch.distributed._shard.checkpoint.metadata"
#define OLD_FILESYSTEM "torch.distributed._shard.checkpoint.filesystem"

bool metadata_is_class(const struct pickle_value *callable, const char *name)
{
    return pickle_is_global(callable, METADATA, name) ||
           pickle_is_global(callable, OLD_METADATA, name);
}

static bool is_storage_class(const struct pickle_value *callable)
{
    return pickle_is_global(callable, FILESYSTEM, "_StorageInfo") ||
           pickle_is_global(callable, OLD_FILESYSTEM, "_StorageInfo");
}

static const struct pickle_sequence *numbers_of(const struct pickle_value *value)
{
    if (pickle_is_call(value, "torch", "Size")) {
        const struct pickle_sequence *arguments = &value->as.call->arguments->as.sequence;
        if (arguments->count != 1)
            return NULL;
        value = arguments->items[0];
    }
    if (value == NULL || (value->kind != PICKLE_TUPLE && value->kind != PICKLE_LIST))
        return NULL;
    return &value->as.sequence;
}

dcp_status metadata_size(const struct pickle_value *value, const char *what,
                         int64_t numbers[DCP_MAX_DIMS], int32_t *ndim)
{
    const struct pickle_sequence *sequence = numbers_of(value);
    if (sequence == NULL)
        return dcp_error_set(DCP_ERR_FORMAT, "%s: %s, expected a torch.Size", what,
                             pickle_kind_name(value));
    if (sequence->count > DCP_MAX_DIMS)
        return dcp_error_set(DCP_ERR_FORMAT, "%s: %" PRIu32 " dimensions, expected at most %d",
                             what, sequence->count, DCP_MAX_DIMS);
    for (uint32_t i = 0; i < sequence->count; i++) {
        const struct pickle_value *item = sequence->items[i];
        if (item->kind != PICKLE_INT)
            return dcp_error_set(DCP_ERR_FORMAT,
                                 "%s: dimension %" PRIu32 " is %s, expected an int of 64 bits",
                                 what, i, pickle_kind_name(item));
        if (item->as.integer < 0)
            return dcp_error_set(DCP_ERR_FORMAT,
                                 "%s: dimension %" PRIu32 " is %" PRId64 ", expected 0 or more",
                                 what, i, item->as.integer);
        numbers[i] = item->as.integer;
    }
    *ndim = (int32_t)sequence->count;
    return DCP_OK;
}

static dcp_status parse_chunk(const struct metadata_digester *digester,
                              const struct pickle_value *state, struct digested_chunk *chunk)
{
    int64_t numbers[2 * DCP_MAX_DIMS];
    int32_t sizes_ndim;
    RETURN_IF_ERROR(
        metadata_size(pickle_dict_get(state, "offsets"), "offsets", numbers, &chunk->ndim));
    RETURN_IF_ERROR(metadata_size(pickle_dict_get(state, "sizes"), "sizes", numbers + chunk->ndim,
                                  &sizes_ndim));
    if (sizes_ndim != chunk->ndim)
        return dcp_error_set(DCP_ERR_FORMAT, "%" PRId32 " offsets, but %" PRId32 " sizes",
                             chunk->ndim, sizes_ndim);
    size_t bytes = 2 * (size_t)chunk->ndim * sizeof *numbers;
    chunk->offsets = arena_copy(digester->boxes, numbers, bytes);
    if (chunk->offsets == NULL)
        return error_no_memory(bytes, "a chunk's box");
    chunk->sizes = chunk->offsets + chunk->ndim;
    return DCP_OK;
}

static dcp_status parse_index(const struct metadata_digester *digester,
                              const struct pickle_value *state,
                              const struct digested_index **result)
{
    const struct pickle_value *fqn = pickle_dict_get(state, "fqn");
    const struct pickle_value *offset = pickle_dict_get(state, "offset");
    int64_t numbers[DCP_MAX_DIMS];
    int32_t ndim = -1;
    if (fqn == NULL || fqn->kind != PICKLE_STRING)
        return dcp_error_set(DCP_ERR_FORMAT, "fqn: %s, expected a string", pickle_kind_name(fqn));
    if (offset != NULL && offset->kind != PICKLE_NONE)
        RETURN_IF_ERROR(metadata_size(offset, "offset", numbers, &ndim));
    size_t offset_bytes = ndim > 0 ? (size_t)ndim * sizeof *numbers : 0;
    struct digested_index *index = arena_allocate(digester->rest, sizeof *index + offset_bytes);
    if (index == NULL)
        return error_no_memory(sizeof *index + offset_bytes, "the key of a stored piece");
    index->name = fqn->as.text.bytes;
    index->name_length = (uint32_t)fqn->as.text.length;
    index->ndim = ndim;
    const struct pickle_value *hint = pickle_dict_get(state, "index");
    index->hint =
        hint != NULL && hint->kind == PICKLE_INT ? (uint64_t)hint->as.integer : UINT64_MAX;
    memcpy(index->offset, numbers, offset_bytes);
    *result = index;
    return DCP_OK;
}

/* "name[@domain]/version": of the name stream.zstd, all versions 1 are the same. */
static bool is_zstd(const char *text, size_t length)
{
    static const char name[] = "stream.zstd";
    size_t name_length = sizeof name - 1;
    const char *slash = memchr(text, '/', length);
    if (slash == NULL || length < name_length || memcmp(text, name, name_length) != 0 ||
        (text[name_length] != '/' && text[name_length] != '@'))
        return false;
    size_t version_length = length - (size_t)(slash + 1 - text);
    return version_length >= 1 && slash[1] == '1' && (version_length == 1 || slash[2] == '.');
}

static dcp_status parse_transforms(const struct pickle_value *descriptors, bool *zstd)
{
    *zstd = false;
    if (descriptors == NULL || descriptors->kind == PICKLE_NONE)
        return DCP_OK;
    if (descriptors->kind != PICKLE_LIST && descriptors->kind != PICKLE_TUPLE)
        return dcp_error_set(DCP_ERR_FORMAT, "transform_descriptors: %s, expected a list",
                             pickle_kind_name(descriptors));
    if (descriptors->as.sequence.count == 0)
        return DCP_OK;
    if (descriptors->as.sequence.count > 1)
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "%" PRIu32 " transforms, expected at most one",
                             descriptors->as.sequence.count);
    const struct pickle_value *descriptor = descriptors->as.sequence.items[0];
    if (descriptor->kind != PICKLE_STRING)
        return dcp_error_set(DCP_ERR_FORMAT, "transform_descriptors: %s, expected a string",
                             pickle_kind_name(descriptor));
    size_t length = descriptor->as.text.length;
    *zstd = is_zstd(descriptor->as.text.bytes, length);
    if (!*zstd)
        return dcp_error_set(DCP_ERR_UNSUPPORTED,
                             "transform \"%.*s\" is not supported (only stream.zstd/1 is)",
                             length < 100 ? (int)length : 100, descriptor->as.text.bytes);
    return DCP_OK;
}

static dcp_status parse_bytes(const struct pickle_value *state, const char *key, uint64_t *bytes)
{
    const struct pickle_value *value = pickle_dict_get(state, key);
    if (value == NULL || value->kind != PICKLE_INT)
        return dcp_error_set(DCP_ERR_FORMAT, "%s: %s, expected an int of 64 bits", key,
                             pickle_kind_name(value));
    if (value->as.integer < 0)
        return dcp_error_set(DCP_ERR_FORMAT, "%s: %" PRId64 ", expected 0 or more", key,
                             value->as.integer);
    *bytes = (uint64_t)value->as.integer;
    return DCP_OK;
}

static dcp_status parse_storage(const struct metadata_digester *digester,
                                const struct pickle_value *state,
                                const struct digested_storage **result)
{
    const struct pickle_value *path = pickle_dict_get(state, "relative_path");
    struct digested_storage storage;
    if (path == NULL || path->kind != PICKLE_STRING)
        return dcp_error_set(DCP_ERR_FORMAT, "relative_path: %s, expected a string",
                             pickle_kind_name(path));
    storage.path = path->as.text.bytes;
    storage.path_length = (uint32_t)path->as.text.length;
    RETURN_IF_ERROR(parse_bytes(state, "offset", &storage.offset));
    RETURN_IF_ERROR(parse_bytes(state, "length", &storage.length));
    if (storage.length == 0)
        return dcp_error_set(DCP_ERR_FORMAT, "length: 0, expected at least one byte");
    if (storage.length > INT64_MAX - storage.offset)
        return dcp_error_set(DCP_ERR_FORMAT, "offset %" PRIu64 " plus length %" PRIu64 " overflows",
                             storage.offset, storage.length);
    RETURN_IF_ERROR(
        parse_transforms(pickle_dict_get(state, "transform_descriptors"), &storage.zstd));
    *result = arena_copy(digester->rest, &storage, sizeof storage);
    return *result != NULL ? DCP_OK : error_no_memory(sizeof storage, "the place of a piece");
}

dcp_status metadata_digest(void *context, const struct pickle_value *value, uint16_t *tag,
                           const void **digest, bool *taken)
{
    struct metadata_digester *digester = context;
    const struct pickle_call *object = value->as.call;
    dcp_status status;
    if (value->kind != PICKLE_OBJECT || object->state == NULL)
        return DCP_OK;
    if (metadata_is_class(object->callable, "ChunkStorageMetadata")) {
        struct digested_chunk chunk = {0};
        status = parse_chunk(digester, object->state, &chunk);
        *tag = (uint16_t)(DIGEST_CHUNK | chunk.ndim);
        *digest = chunk.offsets;
    } else if (metadata_is_class(object->callable, "MetadataIndex")) {
        const struct digested_index *index = NULL;
        status = parse_index(digester, object->state, &index);
        *tag = DIGEST_INDEX;
        *digest = index;
    } else if (is_storage_class(object->callable)) {
        const struct digested_storage *storage = NULL;
        status = parse_storage(digester, object->state, &storage);
        *tag = DIGEST_STORAGE;
        *digest = storage;
    } else if (metadata_is_class(object->callable, "TensorStorageMetadata")) {
        const struct digested_tensor *tensor = NULL;
        status = metadata_parse_tensor(digester, object->state, &tensor);
        if (status == DCP_OK && tensor->list != NULL)
            return DCP_OK;
        *tag = DIGEST_TENSOR;
        *digest = tensor;
    } else {
        return DCP_OK;
    }
    /* A malformed one may never be used. Code that uses it calls the parser again, to set the
     * error. */
    *taken = status == DCP_OK;
    return status == DCP_ERR_NO_MEMORY ? status : DCP_OK;
}

/* The state of an object of the right class that was not digested. */
static dcp_status undigested_state(const struct pickle_value *value, bool right, const char *name,
                                   const struct pickle_value **state)
{
    if (!right)
        return dcp_error_set(DCP_ERR_FORMAT, "%s, expected a %s", pickle_kind_name(value), name);
    *state = value->as.call->state;
    if (*state == NULL || (*state)->kind != PICKLE_DICT)
        return dcp_error_set(DCP_ERR_FORMAT, "a %s has no fields", name);
    return DCP_OK;
}

dcp_status metadata_chunk(const struct metadata_digester *digester,
                          const struct pickle_value *value, struct digested_chunk *chunk)
{
    const struct pickle_value *state = NULL;
    if (value->kind == PICKLE_DIGEST && (value->tag & 0xff00) == DIGEST_CHUNK) {
        chunk->ndim = value->tag & 0xff;
        chunk->offsets = value->as.digest;
        chunk->sizes = chunk->offsets + chunk->ndim;
        return DCP_OK;
    }
    bool right = value->kind == PICKLE_OBJECT &&
                 metadata_is_class(value->as.call->callable, "ChunkStorageMetadata");
    RETURN_IF_ERROR(undigested_state(value, right, "ChunkStorageMetadata", &state));
    return parse_chunk(digester, state, chunk);
}

dcp_status metadata_index_key(const struct metadata_digester *digester,
                              const struct pickle_value *value, const struct digested_index **index)
{
    const struct pickle_value *state = NULL;
    if (value->kind == PICKLE_DIGEST && value->tag == DIGEST_INDEX) {
        *index = value->as.digest;
        return DCP_OK;
    }
    bool right = value->kind == PICKLE_OBJECT &&
                 metadata_is_class(value->as.call->callable, "MetadataIndex");
    RETURN_IF_ERROR(undigested_state(value, right, "MetadataIndex", &state));
    return parse_index(digester, state, index);
}

dcp_status metadata_storage(const struct metadata_digester *digester,
                            const struct pickle_value *value,
                            const struct digested_storage **storage)
{
    const struct pickle_value *state = NULL;
    if (value->kind == PICKLE_DIGEST && value->tag == DIGEST_STORAGE) {
        *storage = value->as.digest;
        return DCP_OK;
    }
    bool right = value->kind == PICKLE_OBJECT && is_storage_class(value->as.call->callable);
    RETURN_IF_ERROR(undigested_state(value, right, "_StorageInfo", &state));
    return parse_storage(digester, state, storage);
}
