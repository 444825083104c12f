/* SPDX-License-Identifier: BSD-3-Clause */
/* The exchanges of group.h. Each begins with sizes and ends with bytes, and between the two is a
 * round in which every rank says whether it is ready: with what it brought, and with the memory
 * that it will need. After a round either all go on or all return the same failure, so no rank is
 * left waiting for another's bytes. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "group/collective.h"
#include "group/group.h"

/* A rank's entry in a round: status, length of its story, whether that names a rank already,
 * whether bulk bytes can still pass, and a number of the exchange's own. */
struct round_entry {
    dcp_status status;
    uint32_t story_length;
    bool named;
    bool bulk_broken;
    uint64_t number;
};

enum { ENTRY_NAMED = 1, ENTRY_BULK_BROKEN = 2 };

static void round_entry_encode(const struct round_entry *entry, unsigned char *bytes)
{
    store_u32(bytes, (uint32_t)entry->status);
    store_u32(bytes + 4, entry->story_length);
    store_u32(bytes + 8,
              (entry->named ? ENTRY_NAMED : 0u) | (entry->bulk_broken ? ENTRY_BULK_BROKEN : 0u));
    store_u64(bytes + 12, entry->number);
}

/* What other ranks say is not trusted further than that all ranks read the same. */
static struct round_entry round_entry_decode(const unsigned char *bytes)
{
    struct round_entry entry = {.status = (dcp_status)load_u32(bytes),
                                .story_length = load_u32(bytes + 4),
                                .named = (load_u32(bytes + 8) & ENTRY_NAMED) != 0,
                                .bulk_broken = (load_u32(bytes + 8) & ENTRY_BULK_BROKEN) != 0,
                                .number = load_u64(bytes + 12)};
    if (entry.status != DCP_OK && !error_is_status(entry.status))
        entry.status = DCP_ERR_GROUP;
    if (entry.story_length >= ERROR_TEXT_MAX)
        entry.story_length = ERROR_TEXT_MAX - 1;
    return entry;
}

/* The calling thread's story, if it is the one of this failure; else what the status says. */
static void own_story(dcp_status mine, struct error_story *story)
{
    error_save(story);
    if (mine == DCP_OK)
        story->text[0] = '\0';
    else if (story->status != mine || story->text[0] == '\0')
        snprintf(story->text, sizeof story->text, "%s", dcp_status_string(mine));
    story->status = mine;
}

/* The failed rank tells its story to all, and it becomes the story of all. */
static dcp_status share_failure(dcp_group *group, const dcp_collective *call, int failed,
                                const struct round_entry *told, const struct error_story *mine)
{
    struct round_entry entry = *told;
    char text[ERROR_TEXT_MAX] = {0};
    if (group->rank == failed)
        memcpy(text, mine->text, entry.story_length);
    if (entry.story_length != 0)
        RETURN_IF_ERROR(collective_broadcast(group, call, failed, text, entry.story_length));
    text[entry.story_length] = '\0';
    if (entry.named)
        dcp_error_set(entry.status, "%s", text);
    else
        dcp_error_set(entry.status, "rank %d: %s", failed, text);
    error_save(&group->agreed);
    return entry.status;
}

/* Whether some rank's bulk bytes cannot pass any more: a group of which all hear so is broken. */
static bool bulk_is_broken(const dcp_group *group, size_t entry_size)
{
    bool broken = false;
    for (int rank = 0; rank < group->size; rank++)
        broken = broken || round_entry_decode(group->table + (size_t)rank * entry_size).bulk_broken;
    return broken;
}

/* Brings every rank's status, number and record to every rank: DCP_OK on all of them, or on all of
 * them the failure of the lowest failed rank. A rank that cannot be heard any more returns its own
 * failure, if it has one: it knows more about it than about the group's. */
static dcp_status round_run_with(dcp_group *group, const dcp_collective *call,
                                 const struct error_story *mine, uint64_t number,
                                 const void *record, size_t record_size)
{
    struct round_entry entry = {
        .status = mine->status,
        .story_length = (uint32_t)strlen(mine->text),
        .named = mine->status != DCP_OK && group->agreed.status == mine->status &&
                 strcmp(group->agreed.text, mine->text) == 0,
        .bulk_broken = group->bulk != NULL && group->bulk->broken.status != DCP_OK,
        .number = number,
    };
    unsigned char bytes[ROUND_ENTRY_SIZE + GROUP_RECORD_MAX];
    size_t size = ROUND_ENTRY_SIZE + record_size;
    round_entry_encode(&entry, bytes);
    if (record_size != 0)
        memcpy(bytes + ROUND_ENTRY_SIZE, record, record_size);
    dcp_status status = collective_all_gather(group, call, bytes, size, group->table);
    for (int rank = 0; rank < group->size && status == DCP_OK; rank++) {
        struct round_entry told = round_entry_decode(group->table + (size_t)rank * size);
        if (told.status == DCP_OK)
            continue;
        status = share_failure(group, call, rank, &told, mine);
        if (group->broken.status == DCP_OK && bulk_is_broken(group, size))
            error_save(&group->broken);
        return status;
    }
    return status != DCP_OK && mine->status != DCP_OK ? error_restore(mine) : status;
}

static dcp_status round_run(dcp_group *group, const dcp_collective *call,
                            const struct error_story *mine, uint64_t number)
{
    return round_run_with(group, call, mine, number, NULL, 0);
}

/* As round_run() once the sizes are known: status is how this rank prepared for the bytes. */
static dcp_status round_ready(dcp_group *group, const dcp_collective *call, dcp_status status)
{
    struct error_story story;
    own_story(status, &story);
    return round_run(group, call, &story, 0);
}

dcp_status group_agree(dcp_group *group, const dcp_collective *call, dcp_status mine)
{
    return dcp_group_size(group) == 1 ? mine : round_ready(group, call, mine);
}

dcp_status group_share(dcp_group *group, const dcp_collective *call, dcp_status mine,
                       const void *record, size_t size, const unsigned char **records)
{
    struct error_story story;
    *records = record;
    if (dcp_group_size(group) == 1)
        return mine;
    own_story(mine, &story);
    RETURN_IF_ERROR(round_run_with(group, call, &story, 0, record, size));
    for (size_t rank = 0; rank < (size_t)group->size; rank++)
        memmove(group->table + rank * size,
                group->table + rank * (ROUND_ENTRY_SIZE + size) + ROUND_ENTRY_SIZE, size);
    *records = group->table;
    return DCP_OK;
}

static dcp_status scratch_new(size_t size, void **scratch)
{
    *scratch = size != 0 ? memory_allocate(size) : NULL;
    return size != 0 && *scratch == NULL ? error_no_memory(size, "messages of other ranks")
                                         : DCP_OK;
}

/* Room for messages of the given sizes. */
static dcp_status messages_new(const size_t *sizes, int count, struct group_messages *messages)
{
    messages->count = count;
    messages->offsets = memory_allocate_array((size_t)count + 1, sizeof *messages->offsets);
    if (messages->offsets == NULL)
        return error_no_memory(((size_t)count + 1) * sizeof *messages->offsets,
                               "offsets of messages");
    messages->offsets[0] = 0;
    for (int rank = 0; rank < count; rank++)
        if (__builtin_add_overflow(messages->offsets[rank], sizes[rank],
                                   &messages->offsets[rank + 1]))
            return error_no_memory(SIZE_MAX, "messages of all ranks");
    messages->bytes = memory_allocate(messages->offsets[count]);
    if (messages->bytes == NULL)
        return error_no_memory(messages->offsets[count], "messages of all ranks");
    return DCP_OK;
}

static dcp_status gather_prepare(dcp_group *group, int root, struct group_messages *all,
                                 void **scratch)
{
    for (int rank = 0; rank < group->size; rank++) {
        uint64_t size = round_entry_decode(group->table + (size_t)rank * ROUND_ENTRY_SIZE).number;
        if (size > SIZE_MAX)
            return dcp_error_set(DCP_ERR_GROUP, "rank %d announces %" PRIu64 " bytes", rank, size);
        group->sizes[rank] = (size_t)size;
    }
    RETURN_IF_ERROR(scratch_new(collective_gather_scratch(group, root, group->sizes), scratch));
    return group->rank == root ? messages_new(group->sizes, group->size, all) : DCP_OK;
}

dcp_status group_gather(dcp_group *group, const struct dcp_collective *call, int root,
                        dcp_status mine, const void *payload, size_t size,
                        struct group_messages *all)
{
    *all = (struct group_messages){0};
    dcp_status status;
    void *scratch = NULL;
    if (dcp_group_size(group) == 1) {
        status = mine == DCP_OK ? messages_new(&size, 1, all) : mine;
        if (status == DCP_OK && size != 0)
            memcpy(all->bytes, payload, size);
    } else {
        struct error_story story;
        own_story(mine, &story);
        RETURN_IF_ERROR(round_run(group, call, &story, size));
        status = round_ready(group, call, gather_prepare(group, root, all, &scratch));
        if (status == DCP_OK)
            status =
                collective_gather(group, call, root, payload, group->sizes, scratch, all->bytes);
    }
    memory_release(scratch);
    if (status != DCP_OK)
        group_messages_free(all);
    return status;
}

/* The root tells all ranks `count` sizes; zeros if it failed, which the round will tell. */
static dcp_status announce(dcp_group *group, const dcp_collective *call, int root, int count)
{
    if (group->rank == root)
        for (int i = 0; i < count; i++)
            store_u64(group->table + (size_t)i * 8, group->sizes[i]);
    RETURN_IF_ERROR(collective_broadcast(group, call, root, group->table, (size_t)count * 8));
    for (int i = 0; i < count; i++) {
        uint64_t size = load_u64(group->table + (size_t)i * 8);
        group->sizes[i] = size <= SIZE_MAX ? (size_t)size : SIZE_MAX;
    }
    return DCP_OK;
}

/* The root's payloads in one piece, as collectives take them. */
static dcp_status payloads_join(const struct buffer *payloads, int count, unsigned char **joined)
{
    size_t total = 0;
    for (int rank = 0; rank < count; rank++)
        if (__builtin_add_overflow(total, payloads[rank].size, &total))
            return error_no_memory(SIZE_MAX, "messages to all ranks");
    unsigned char *place = *joined = memory_allocate(total);
    if (place == NULL)
        return error_no_memory(total, "messages to all ranks");
    for (int rank = 0; rank < count; rank++) {
        if (payloads[rank].size != 0)
            memcpy(place, payloads[rank].data, payloads[rank].size);
        place += payloads[rank].size;
    }
    return DCP_OK;
}

static dcp_status scatter_prepare(dcp_group *group, int root, const struct buffer *payloads,
                                  struct buffer *received, void **scratch, unsigned char **joined)
{
    RETURN_IF_ERROR(buffer_reserve(received, group->sizes[group->rank]));
    if (group->rank == root)
        return payloads_join(payloads, group->size, joined);
    return scratch_new(collective_scatter_scratch(group, root, group->sizes), scratch);
}

/* A payload that could not be built is the root's failure. */
static dcp_status payloads_status(const struct buffer *payloads, int count)
{
    for (int rank = 0; rank < count; rank++)
        RETURN_IF_ERROR(buffer_status(&payloads[rank]));
    return DCP_OK;
}

static dcp_status scatter_among(dcp_group *group, const dcp_collective *call, int root,
                                dcp_status mine, const struct buffer *payloads,
                                struct buffer *received)
{
    void *scratch = NULL;
    unsigned char *joined = NULL;
    struct error_story story;
    own_story(mine, &story);
    for (int rank = 0; rank < group->size; rank++)
        group->sizes[rank] = group->rank == root && mine == DCP_OK ? payloads[rank].size : 0;
    dcp_status status = announce(group, call, root, group->size);
    if (status != DCP_OK)
        return mine != DCP_OK ? error_restore(&story) : status;
    if (mine == DCP_OK)
        own_story(scatter_prepare(group, root, payloads, received, &scratch, &joined), &story);
    status = round_run(group, call, &story, 0);
    if (status == DCP_OK)
        status =
            collective_scatter(group, call, root, joined, group->sizes, scratch, received->data);
    if (status == DCP_OK)
        received->size = group->sizes[group->rank];
    memory_release(scratch);
    memory_release(joined);
    return status;
}

dcp_status group_scatter(dcp_group *group, const struct dcp_collective *call, int root,
                         dcp_status mine, const struct buffer *payloads, struct buffer *received)
{
    buffer_clear(received);
    int size = dcp_group_size(group);
    if (mine == DCP_OK && dcp_group_rank(group) == root)
        mine = payloads_status(payloads, size);
    if (size > 1) {
        mine = scatter_among(group, call, root, mine, payloads, received);
    } else if (mine == DCP_OK) {
        buffer_append(received, payloads->data, payloads->size);
        mine = buffer_status(received);
    }
    if (mine != DCP_OK)
        buffer_clear(received);
    return mine;
}

static dcp_status broadcast_among(dcp_group *group, const dcp_collective *call, int root,
                                  dcp_status mine, const void *payload, size_t size,
                                  struct buffer *received)
{
    struct error_story story;
    own_story(mine, &story);
    group->sizes[0] = mine == DCP_OK ? size : 0;
    dcp_status status = announce(group, call, root, 1);
    if (status != DCP_OK)
        return mine != DCP_OK ? error_restore(&story) : status;
    size = group->sizes[0];
    if (mine == DCP_OK)
        own_story(buffer_reserve(received, size), &story);
    RETURN_IF_ERROR(round_run(group, call, &story, 0));
    if (size == 0)
        return DCP_OK;
    if (group->rank == root)
        memcpy(received->data, payload, size);
    RETURN_IF_ERROR(collective_broadcast(group, call, root, received->data, size));
    received->size = size;
    return DCP_OK;
}

dcp_status group_broadcast(dcp_group *group, const struct dcp_collective *call, int root,
                           dcp_status mine, const void *payload, size_t size,
                           struct buffer *received)
{
    buffer_clear(received);
    if (dcp_group_size(group) > 1) {
        mine = broadcast_among(group, call, root, mine, payload, size, received);
    } else if (mine == DCP_OK) {
        buffer_append(received, payload, size);
        mine = buffer_status(received);
    }
    if (mine != DCP_OK)
        buffer_clear(received);
    return mine;
}
