/* SPDX-License-Identifier: BSD-3-Clause */
/* The exchanges of group.h. Each begins with a round that shares statuses and sizes, and ends with
 * the transfer of bytes. If the transfer needs memory, a second round in between finds out whether
 * all ranks have it, so that no rank waits for bytes that never come. */
#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "group/round.h"

dcp_status group_agree(dcp_group *group, const dcp_collective *call, dcp_status mine)
{
    return dcp_group_size(group) == 1 ? mine : round_ready(group, call, mine);
}

dcp_status group_share(dcp_group *group, const dcp_collective *call, dcp_status mine,
                       const void *record, size_t size, const unsigned char **records)
{
    struct saved_error error;
    *records = record;
    if (dcp_group_size(group) == 1)
        return mine;
    round_own_error(mine, &error);
    RETURN_IF_ERROR(round_run(
        group, call, &(struct round){.mine = &error, .record = record, .record_size = size}));
    for (size_t rank = 0; rank < (size_t)group->size; rank++)
        memmove(group->table + rank * size, group->table + rank * ROUND_BYTES + ROUND_ENTRY_SIZE,
                size);
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
        uint64_t size = round_number(group, rank);
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
        struct saved_error error;
        round_own_error(mine, &error);
        RETURN_IF_ERROR(
            round_run(group, call, &(struct round){.mine = &error, .root = root, .number = size}));
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

/* The root sends the size of each rank's payload to all ranks. */
static dcp_status announce(dcp_group *group, const dcp_collective *call, int root,
                           const struct buffer *payloads)
{
    size_t bytes = (size_t)group->size * 8;
    if (group->rank == root)
        for (int rank = 0; rank < group->size; rank++)
            store_u64(group->table + (size_t)rank * 8, payloads[rank].size);
    RETURN_IF_ERROR(collective_broadcast(group, call, root, group->table, bytes));
    for (int rank = 0; rank < group->size; rank++) {
        uint64_t size = load_u64(group->table + (size_t)rank * 8);
        group->sizes[rank] = size <= SIZE_MAX ? (size_t)size : SIZE_MAX;
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

/* The failure to build a payload is the root's failure. */
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
    struct saved_error error;
    round_own_error(mine, &error);
    RETURN_IF_ERROR(round_run(group, call, &(struct round){.mine = &error, .root = root}));
    RETURN_IF_ERROR(announce(group, call, root, payloads));
    dcp_status status = round_ready(
        group, call, scatter_prepare(group, root, payloads, received, &scratch, &joined));
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

/* Payloads up to this size need no round for memory: every rank has this much room already. */
enum { BROADCAST_ROOM = 1024 };

static dcp_status broadcast_among(dcp_group *group, const dcp_collective *call, int root,
                                  dcp_status mine, const void *payload, size_t size,
                                  struct buffer *received)
{
    struct saved_error error;
    if (mine == DCP_OK)
        mine = buffer_reserve(received, BROADCAST_ROOM);
    round_own_error(mine, &error);
    struct round round = {.mine = &error, .root = root, .number = group->rank == root ? size : 0};
    RETURN_IF_ERROR(round_run(group, call, &round));
    uint64_t announced = round_number(group, root);
    size = announced <= SIZE_MAX ? (size_t)announced : SIZE_MAX;
    if (size > BROADCAST_ROOM)
        RETURN_IF_ERROR(round_ready(group, call, buffer_reserve(received, size)));
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
