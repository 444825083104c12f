/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/load/load_stored.h"

#include <string.h>

#include "base/error.h"
#include "format/metadata/metadata_changes.h"

void load_stored_init(struct load_stored *stored, dcp_load_plan_cache *cache)
{
    *stored = (struct load_stored){.cache = cache};
    metadata_init(&stored->metadata);
    buffer_init(&stored->raw, 0);
}

void load_stored_free(struct load_stored *stored)
{
    shard_reader_free(stored->reader);
    storage_directory_close(&stored->directory);
    metadata_free(&stored->metadata);
    buffer_free(&stored->raw);
    stored->reader = NULL;
}

dcp_status load_stored_apply(struct load_stored *stored, const void *changes, size_t size)
{
    dcp_load_plan_cache *cache = stored->cache;
    struct arena texts;
    stored->metadata = cache->metadata;
    metadata_init(&cache->metadata);
    stored->taken = true;
    if (size == 0)
        return DCP_OK;
    arena_init(&texts, 0);
    dcp_status status =
        metadata_changes_apply(changes, size, &stored->metadata, &texts, &stored->moved);
    if (status == DCP_OK) {
        arena_free(&cache->texts);
        cache->texts = texts;
    } else {
        arena_free(&texts);
        metadata_free(&stored->metadata);
    }
    return status;
}

/* Bytes equal to those of the previous load, except for the save's id, need not be decoded. Not for
 * unions, whose other members are not in these bytes. */
static dcp_status compare_raw(const struct load_stored *stored, bool *same, struct buffer *changes)
{
    const dcp_load_plan_cache *cache = stored->cache;
    const struct buffer *raw = &stored->raw;
    char id[METADATA_ID_LENGTH + 1];
    *same = false;
    if (cache->metadata.member_count != 0 || raw->size != cache->raw.size)
        return DCP_OK;
    *same = memcmp(raw->data, cache->raw.data, raw->size) == 0;
    if (*same || raw->data[0] != cache->raw.data[0])
        return DCP_OK;
    /* Behind the byte that says what it is. */
    if (!metadata_bytes_differ_by_id(cache->raw.data + 1, raw->data + 1, raw->size - 1,
                                     cache->metadata.save_id, id))
        return DCP_OK;
    *same = true;
    return metadata_changes_append_id(&cache->metadata, id, changes);
}

/* Replaces the cache's metadata by the decoded one, if it has the same structure. */
static dcp_status compare_decoded(struct load_stored *stored, bool *found, struct buffer *changes)
{
    dcp_load_plan_cache *cache = stored->cache;
    *found = metadata_structure_equal(&cache->metadata, &stored->metadata);
    if (!*found)
        return DCP_OK;
    RETURN_IF_ERROR(
        metadata_changes_append(&cache->metadata, &stored->metadata, changes, &stored->moved));
    /* Kept shares of the reading point to pieces of the one that goes. */
    stored->moved = true;
    metadata_free(&cache->metadata);
    arena_free(&cache->texts);
    stored->taken = true;
    return DCP_OK;
}

dcp_status load_stored_find_changes(struct load_stored *stored, const dcp_storage *storage,
                                    const char *path, bool *found, struct buffer *changes)
{
    RETURN_IF_ERROR(compare_raw(stored, found, changes));
    if (*found)
        return load_stored_apply(stored, changes->data, changes->size);
    RETURN_IF_ERROR(storage_decode_raw(storage, path, stored->raw.data, stored->raw.size,
                                       &stored->metadata, &stored->reader));
    return compare_decoded(stored, found, changes);
}

dcp_status load_stored_open(struct load_stored *stored, const dcp_storage *storage,
                            const char *path)
{
    return stored->reader ? DCP_OK
                          : storage_read_known(storage, path, &stored->metadata, &stored->reader);
}
