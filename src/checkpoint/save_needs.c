/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/save_needs.h"

#include <string.h>

#include "base/error.h"

/* Paths, lists of files and messages while a save is committed, and exchanges in between. */
#define SMALL_THINGS ((uint64_t)64 << 10)
/* What a write result takes at the coordinator, as a message and decoded. */
#define RESULT_SIZE ((uint64_t)256)

/* Results come from all ranks when a save is compressed. */
static uint64_t results_memory(const struct metadata *metadata, const dcp_save_options *options)
{
    uint64_t pieces = 0;
    if (options->compression == DCP_COMPRESSION_NONE)
        return 0;
    for (size_t i = 0; i < metadata->count; i++)
        pieces += metadata->entries[i].piece_count;
    return pieces * RESULT_SIZE;
}

dcp_status save_needs_find(const struct operation *operation, const struct save_session *session,
                           int rank, const struct write_orders *orders,
                           const struct shard_source *sources,
                           const struct save_coordinator *coordinator,
                           const dcp_save_options *options, const struct shard_write_options *how,
                           struct save_needs *needs)
{
    struct shard_write_options least = *how;
    uint64_t metadata_bytes = 0, results = 0;
    *needs = (struct save_needs){0};
    RETURN_IF_ERROR(shard_needs_find(session, rank, orders, sources, how, &needs->writing));
    if (coordinator) {
        RETURN_IF_ERROR(save_coordinator_measure(coordinator, options, &metadata_bytes));
        results = results_memory(&coordinator->metadata, options);
    }
    needs->bytes = needs->writing.bytes + metadata_bytes;
    needs->files = needs->writing.files + (coordinator ? 2 : 0);
    needs->held = memory_account_taken(operation->account);
    needs->peak = memory_account_peak(operation->account) + SMALL_THINGS;
    if (needs->peak < needs->held + results)
        needs->peak = needs->held + results;
    shard_needs_minimize(&least);
    needs->smallest = save_needs_memory(needs, &least);
    return DCP_OK;
}

uint64_t save_needs_memory(const struct save_needs *needs, const struct shard_write_options *how)
{
    uint64_t writing = needs->held + shard_needs_memory(&needs->writing, how);
    return writing > needs->peak ? writing : needs->peak;
}

static void append(struct buffer *message, const struct save_needs *needs)
{
    buffer_append_u64(message, needs->bytes);
    buffer_append_u64(message, needs->files);
    buffer_append_u64(message, needs->smallest);
}

static dcp_status read(const void *bytes, size_t size, struct save_needs *needs)
{
    struct reader reader;
    reader_init(&reader, bytes, size);
    needs->bytes = reader_u64(&reader);
    needs->files = reader_u64(&reader);
    needs->smallest = reader_u64(&reader);
    return reader.failed ? dcp_error_set(DCP_ERR_GROUP, "a rank's needs are cut short") : DCP_OK;
}

static dcp_status unite(const struct group_messages *messages, struct buffer *united)
{
    struct save_needs all = {0}, one = {0};
    for (int rank = 0; rank < messages->count; rank++) {
        RETURN_IF_ERROR(read(messages->bytes + messages->offsets[rank],
                             messages->offsets[rank + 1] - messages->offsets[rank], &one));
        all.bytes += one.bytes;
        all.files += one.files;
        all.smallest = one.smallest > all.smallest ? one.smallest : all.smallest;
    }
    append(united, &all);
    return buffer_status(united);
}

dcp_status save_needs_share(dcp_group *group, const struct dcp_collective *call, int coordinator,
                            dcp_status status, const struct save_needs *mine,
                            struct save_needs *all)
{
    struct group_messages messages = {0};
    struct buffer message, united, received;

    *all = (struct save_needs){0};
    buffer_init(&message, 0);
    buffer_init(&united, 0);
    buffer_init(&received, 0);
    append(&message, mine);
    if (status == DCP_OK)
        status = buffer_status(&message);
    status = group_gather(group, call, coordinator, status, message.data, message.size, &messages);
    if (status == DCP_OK && dcp_group_rank(group) == coordinator)
        status = unite(&messages, &united);
    status = group_broadcast(group, call, coordinator, status, united.data, united.size, &received);
    if (status == DCP_OK)
        status = read(received.data, received.size, all);
    group_messages_free(&messages);
    buffer_free(&received);
    buffer_free(&united);
    buffer_free(&message);
    return status;
}
