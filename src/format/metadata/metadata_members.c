/* SPDX-License-Identifier: BSD-3-Clause */
/* Members of a union: their files, and what several of them hold. */
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "format/metadata/metadata_codec.h"

#define BOX_TEXT_MAX 160

static dcp_status join_name(struct arena *arena, const char *member, const char **file)
{
    size_t length = strlen(member), file_length = strlen(*file);
    char *joined = arena_allocate(arena, length + file_length + 2);
    if (!joined)
        return error_no_memory(length + file_length + 2, "a file's name");
    memcpy(joined, member, length);
    joined[length] = '/';
    memcpy(joined + length + 1, *file, file_length + 1);
    *file = joined;
    return DCP_OK;
}

static dcp_status join_extra_names(struct metadata *part, const char *member)
{
    struct extra_file *extras =
        arena_copy(&part->arena, part->extra_files, part->extra_file_count * sizeof *extras);
    if (!extras)
        return error_no_memory(part->extra_file_count * sizeof *extras, "extra files");
    part->extra_files = extras;
    for (size_t i = 0; i < part->extra_file_count; i++) {
        RETURN_IF_ERROR(join_name(&part->arena, member, &extras[i].name));
        RETURN_IF_ERROR(join_name(&part->arena, member, &extras[i].file));
    }
    return DCP_OK;
}

dcp_status metadata_set_member(struct metadata *part, const char *name, bool chosen)
{
    struct metadata_member *member = arena_allocate(&part->arena, sizeof *member);
    char *copy = arena_copy_text(&part->arena, name, strlen(name));
    uint32_t *file_members =
        arena_allocate_array(&part->arena, part->file_count, sizeof *file_members);
    if (!member || !copy || !file_members)
        return error_no_memory(part->file_count * sizeof *file_members, "a member of a union");
    *member = (struct metadata_member){copy, chosen, part->save_id};
    for (size_t i = 0; i < part->file_count; i++) {
        file_members[i] = 0;
        RETURN_IF_ERROR(join_name(&part->arena, name, &part->files[i]));
    }
    RETURN_IF_ERROR(join_extra_names(part, name));
    part->members = member;
    part->member_count = 1;
    part->file_members = file_members;
    return DCP_OK;
}

static uint32_t member_of(const struct metadata *whole, const struct metadata_entry *entry,
                          size_t piece)
{
    return whole->file_members[entry->pieces[piece].file];
}

/* Pieces of the first member come first. Returns how many there are. */
static size_t count_first(const struct metadata *whole, const struct metadata_entry *entry)
{
    size_t count = 1;
    while (count < entry->piece_count &&
           member_of(whole, entry, count) == member_of(whole, entry, 0))
        count++;
    return count;
}

static dcp_status find_overlap(const struct metadata_entry *entry, bool *found, size_t *first,
                               size_t *second)
{
    struct box *boxes = memory_allocate_array(entry->piece_count, sizeof *boxes);
    if (!boxes)
        return error_no_memory(entry->piece_count * sizeof *boxes, "boxes");
    for (size_t i = 0; i < entry->piece_count; i++)
        boxes[i] = (struct box){entry->ndim, entry->pieces[i].offsets, entry->pieces[i].sizes};
    dcp_status status = box_find_overlap(boxes, entry->piece_count, found, first, second);
    memory_release(boxes);
    return status;
}

static dcp_status overlap_error(const struct metadata *whole, const struct metadata_entry *entry,
                                size_t first, size_t second)
{
    char text[2][BOX_TEXT_MAX];
    size_t pieces[2] = {first < second ? first : second, first < second ? second : first};
    for (int i = 0; i < 2; i++) {
        const struct metadata_piece *piece = &entry->pieces[pieces[i]];
        box_format((struct box){entry->ndim, piece->offsets, piece->sizes}, text[i], BOX_TEXT_MAX);
    }
    return dcp_error_set(DCP_ERR_OVERLAP, "\"%s\": chunks %s in %s and %s in %s overlap",
                         entry->name, text[0],
                         whole->members[member_of(whole, entry, pieces[0])].name, text[1],
                         whole->members[member_of(whole, entry, pieces[1])].name);
}

/* Keeps the first member's pieces; the others become replicas, for which there is room: uniting
 * takes as much as there are pieces in all parts. */
static void keep_first(struct metadata *whole, size_t index, size_t kept)
{
    struct metadata_entry *entry = &whole->entries[index];
    for (size_t i = kept; i < entry->piece_count; i++)
        whole->replicas[whole->replica_count++] =
            (struct metadata_replica){index, entry->pieces[i]};
    entry->piece_count = kept;
}

static dcp_status settle(struct metadata *whole, size_t index)
{
    struct metadata_entry *entry = &whole->entries[index];
    size_t first_count = entry->piece_count > 1 ? count_first(whole, entry) : entry->piece_count;
    bool found;
    size_t first, second;
    if (!entry->is_tensor || first_count == entry->piece_count)
        return DCP_OK;
    /* The following check finds boxes outside the shape. */
    for (size_t i = 0; i < entry->piece_count; i++)
        if (!box_check((struct box){entry->ndim, entry->pieces[i].offsets, entry->pieces[i].sizes},
                       entry->global_shape))
            return DCP_OK;
    RETURN_IF_ERROR(find_overlap(entry, &found, &first, &second));
    if (!found)
        return DCP_OK;
    struct metadata_entry alone = *entry;
    alone.piece_count = first_count;
    dcp_status status = metadata_check_entry(&alone);
    if (status == DCP_OK)
        keep_first(whole, index, first_count);
    else if (status != DCP_ERR_NO_MEMORY)
        status = overlap_error(whole, entry, first, second);
    return status;
}

dcp_status metadata_settle_members(struct metadata *whole)
{
    for (size_t i = 0; i < whole->count && whole->member_count > 0; i++)
        RETURN_IF_ERROR(settle(whole, i));
    return DCP_OK;
}
