/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/open/union.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "format/metadata/metadata_codec.h"

/* One member: its .metadata, if another rank read it; else it is read from the storage. */
struct member {
    const char *name;
    const void *pickle;
    size_t size;
};

static dcp_status decode_stored(const dcp_storage *storage, const char *id, const char *name,
                                bool chosen, struct metadata *metadata)
{
    struct storage_place place;
    RETURN_IF_ERROR(storage_place_member(storage, id, name, chosen, &place));
    dcp_status status = storage_decode_directory(&place, metadata);
    storage_place_free(&place);
    return status;
}

static dcp_status decode_member(const dcp_storage *storage, const char *id,
                                const struct member *member, bool chosen, struct metadata *metadata)
{
    dcp_status status;
    if (member->pickle) {
        status = metadata_decode_part(member->pickle, member->size, metadata);
        if (status != DCP_OK)
            error_prefix(status, "%s/%s/" METADATA_NAME, id, member->name);
    } else {
        status = decode_stored(storage, id, member->name, chosen, metadata);
    }
    return status == DCP_OK ? metadata_set_member(metadata, member->name, chosen) : status;
}

static dcp_status unite_members(const dcp_storage *storage, const char *id,
                                const struct member *members, size_t count, bool chosen,
                                struct metadata *metadata)
{
    struct metadata *parts = memory_allocate_array(count, sizeof *parts);
    if (!parts)
        return error_no_memory(count * sizeof *parts, "the members of a union");
    size_t decoded = 0;
    dcp_status status = DCP_OK;
    while (decoded < count && status == DCP_OK) {
        metadata_init(&parts[decoded]);
        status = decode_member(storage, id, &members[decoded], chosen, &parts[decoded]);
        decoded++;
    }
    if (status == DCP_OK) {
        status = metadata_unite(parts, count, metadata);
        if (status != DCP_OK)
            error_prefix(status, "%s", id);
    }
    for (size_t i = 0; i < decoded; i++)
        metadata_free(&parts[i]);
    memory_release(parts);
    return status;
}

dcp_status union_decode(const struct storage_place *place, struct metadata *metadata)
{
    struct member *members = memory_allocate_zeroed(place->part_count, sizeof *members);
    if (!members)
        return error_no_memory(place->part_count * sizeof *members, "the members of a union");
    for (size_t i = 0; i < place->part_count; i++)
        members[i].name = place->parts[i];
    dcp_status status = unite_members(place->storage, place->id, members, place->part_count,
                                      place->chosen, metadata);
    memory_release(members);
    return status;
}

static dcp_status append_member(const struct storage_place *place, const char *name,
                                struct buffer *raw)
{
    struct storage_place member;
    struct buffer pickle;
    RETURN_IF_ERROR(storage_place_member(place->storage, place->id, name, place->chosen, &member));
    buffer_init(&pickle, 0);
    bool has_pickle = member.form == STORAGE_DCP;
    dcp_status status = has_pickle ? storage_append_pickle(&member.directory, &pickle) : DCP_OK;
    buffer_append_text(raw, name, strlen(name));
    buffer_append_u8(raw, has_pickle);
    buffer_append_u64(raw, pickle.size);
    buffer_append(raw, pickle.data, pickle.size);
    buffer_free(&pickle);
    storage_place_free(&member);
    return status;
}

dcp_status union_append_raw(const struct storage_place *place, struct buffer *raw)
{
    buffer_append_u8(raw, place->chosen);
    buffer_append_u32(raw, (uint32_t)place->part_count);
    for (size_t i = 0; i < place->part_count; i++)
        RETURN_IF_ERROR(append_member(place, place->parts[i], raw));
    return buffer_status(raw);
}

static dcp_status read_member(struct reader *message, struct arena *arena, struct member *member)
{
    size_t length;
    const char *name = reader_text(message, &length);
    bool has_pickle = reader_u8(message) != 0;
    uint64_t size = reader_u64(message);
    const unsigned char *pickle = size <= SIZE_MAX ? reader_bytes(message, (size_t)size) : NULL;
    if (message->failed || length == 0 || memchr(name, '\0', length) || !pickle)
        return dcp_error_set(DCP_ERR_GROUP, "the coordinator's metadata of a union is malformed");
    member->name = arena_copy_text(arena, name, length);
    member->pickle = has_pickle ? pickle : NULL;
    member->size = (size_t)size;
    return member->name ? DCP_OK : error_no_memory(length, "a member's name");
}

dcp_status union_decode_raw(const dcp_storage *storage, const char *id, struct reader *message,
                            struct metadata *metadata)
{
    bool chosen = reader_u8(message) != 0;
    uint32_t count = reader_u32(message);
    if (message->failed || count > STORAGE_MEMBERS_MAX)
        return dcp_error_set(DCP_ERR_GROUP, "the coordinator's metadata of a union is malformed");
    struct arena arena;
    arena_init(&arena, 0);
    struct member *members = arena_allocate_array(&arena, count, sizeof *members);
    dcp_status status =
        members ? DCP_OK : error_no_memory(count * sizeof *members, "the members of a union");
    for (uint32_t i = 0; i < count && status == DCP_OK; i++)
        status = read_member(message, &arena, &members[i]);
    if (status == DCP_OK)
        status = unite_members(storage, id, members, count, chosen, metadata);
    arena_free(&arena);
    return status;
}
