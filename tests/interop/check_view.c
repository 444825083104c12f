/* SPDX-License-Identifier: BSD-3-Clause */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "compare_value.h"

static bool path_matches(const dcp_entry *entry, const cJSON *path)
{
    const cJSON *part;
    size_t i = 0;

    if (entry->path_length != (size_t)cJSON_GetArraySize(path))
        return false;
    cJSON_ArrayForEach(part, path)
    {
        const dcp_path_part *found = &entry->path[i++];
        if (cJSON_IsString(part) ? !found->key || strcmp(found->key, part->valuestring) != 0
                                 : found->key || found->position != (int64_t)part->valuedouble)
            return false;
    }
    return true;
}

static bool numbers_match(const int64_t *found, int32_t count, const cJSON *expected)
{
    const cJSON *number;
    int32_t i = 0;

    if (cJSON_GetArraySize(expected) != count)
        return false;
    cJSON_ArrayForEach(number,
                       expected) if (found[i++] != (int64_t)number->valuedouble) return false;
    return true;
}

static bool chunk_matches(const dcp_entry *entry, const dcp_stored_chunk *chunk,
                          const cJSON *expected)
{
    const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(expected, "offsets");
    const cJSON *offset = cJSON_GetObjectItemCaseSensitive(expected, "offset");
    const cJSON *length = cJSON_GetObjectItemCaseSensitive(expected, "length");
    const char *file = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(expected, "file"));

    if (strcmp(chunk->file, file) != 0 || chunk->offset != (uint64_t)offset->valuedouble ||
        chunk->length != (uint64_t)length->valuedouble)
        return false;
    if (!entry->is_tensor)
        return !chunk->offsets && !chunk->sizes;
    return numbers_match(chunk->offsets, entry->ndim, offsets) &&
           numbers_match(chunk->sizes, entry->ndim,
                         cJSON_GetObjectItemCaseSensitive(expected, "sizes"));
}

static bool chunk_is_stored(dcp_checkpoint *checkpoint, size_t index, const dcp_entry *entry,
                            const cJSON *expected)
{
    dcp_stored_chunk chunk;

    for (size_t i = 0; i < entry->chunk_count; i++)
        if (dcp_checkpoint_chunk(checkpoint, index, i, &chunk) == DCP_OK &&
            chunk_matches(entry, &chunk, expected))
            return true;
    return false;
}

/* Where ranks saved without each other, a replicated chunk is stored by each and known once. */
static void check_chunks(dcp_checkpoint *checkpoint, size_t index, const dcp_entry *entry,
                         const struct manifest_entry *expected, bool united)
{
    const cJSON *chunk;
    size_t count = (size_t)cJSON_GetArraySize(expected->chunks);
    size_t found = 0;

    if (expected->storage && !chunk_is_stored(checkpoint, index, entry, expected->storage))
        check_failed(expected->name, "is stored elsewhere than expected");
    cJSON_ArrayForEach(chunk, expected->chunks) found +=
        chunk_is_stored(checkpoint, index, entry, chunk);
    if (expected->chunks && (entry->chunk_count != found || (found != count && !united)))
        check_failed(expected->name, "%zu of %zu chunks, %zu of them where expected",
                     entry->chunk_count, count, found);
}

static void check_tensor(dcp_checkpoint *checkpoint, size_t index, const dcp_entry *entry,
                         const struct manifest_entry *expected)
{
    dcp_tensor whole = expected->whole;

    if (entry->dtype != whole.dtype || entry->ndim != whole.ndim || entry->bytes != expected->bytes)
        check_failed(expected->name, "%s of %" PRId32 " dimensions and %" PRIu64 " bytes",
                     dcp_dtype_name(entry->dtype), entry->ndim, entry->bytes);
    else if (memcmp(entry->global_shape, whole.global_shape,
                    (size_t)whole.ndim * sizeof *whole.global_shape) != 0)
        check_failed(expected->name, "has another shape");

    whole.data = calloc(1, expected->bytes + 1);
    if (dcp_checkpoint_read_tensor(checkpoint, index, &whole, NULL) != DCP_OK)
        check_failed(expected->name, "%s", dcp_error_message());
    else if (memcmp(whole.data, expected->whole.data, expected->bytes) != 0)
        check_failed(expected->name, "has other contents");
    free(whole.data);
}

static void check_object(dcp_checkpoint *checkpoint, size_t index,
                         const struct manifest_entry *expected, const char *directory)
{
    dcp_state *root = dcp_state_new();
    char *json = NULL;

    if (dcp_checkpoint_read_object(checkpoint, index, root, "value", NULL) != DCP_OK)
        check_failed(expected->name, "%s", dcp_error_message());
    else if (dcp_state_to_json(dcp_state_find(root, "value"), 0, &json) != DCP_OK)
        check_failed(expected->name, "%s", dcp_error_message());
    else if (!value_matches(dcp_state_find(root, "value"), expected->value, directory))
        check_failed(expected->name, "is another value: %s", json);
    dcp_text_free(json);
    dcp_state_free(root);
}

static void check_entry(dcp_checkpoint *checkpoint, const struct manifest_entry *expected,
                        const struct manifest *manifest)
{
    dcp_entry entry;
    size_t index;

    if (dcp_checkpoint_find(checkpoint, expected->name, &index) != DCP_OK ||
        dcp_checkpoint_entry(checkpoint, index, &entry) != DCP_OK) {
        check_failed(expected->name, "%s", dcp_error_message());
        return;
    }
    if (strcmp(entry.name, expected->name) != 0 || !path_matches(&entry, expected->path))
        check_failed(expected->name, "has another path");
    if (entry.is_tensor != expected->is_tensor) {
        check_failed(expected->name, "is %s", entry.is_tensor ? "a tensor" : "an object");
        return;
    }
    check_chunks(checkpoint, index, &entry, expected,
                 strcmp(manifest->kind, "dcp-rank-local") == 0);
    if (expected->is_tensor)
        check_tensor(checkpoint, index, &entry, expected);
    else
        check_object(checkpoint, index, expected, manifest->directory);
}

static void print_fault(void *context, const char *file, uint64_t offset, const char *name,
                        const char *fault)
{
    (void)context;
    check_failed(name, "verify: %s at %" PRIu64 ": %s", file, offset, fault);
}

void check_view(const struct manifest *manifest)
{
    dcp_checkpoint *checkpoint = NULL;
    uint64_t faults = 0;

    if (dcp_checkpoint_open(manifest->checkpoint, NULL, &checkpoint) != DCP_OK) {
        check_failed("open", "%s", dcp_error_message());
        return;
    }
    if (dcp_checkpoint_count(checkpoint) != manifest->count)
        check_failed("open", "%zu names, expected %zu", dcp_checkpoint_count(checkpoint),
                     manifest->count);
    for (size_t i = 0; i < manifest->count; i++)
        check_entry(checkpoint, &manifest->entries[i], manifest);
    dcp_checkpoint_close(checkpoint);

    if (dcp_verify(manifest->checkpoint, NULL, print_fault, NULL, &faults) != DCP_OK)
        check_failed("verify", "%s", dcp_error_message());
}
