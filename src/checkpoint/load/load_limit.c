/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/load/load_limit.h"
#include "dcp/load.h"

#include "base/error.h"
#include "base/memory.h"
#include "checkpoint/load/load_fill.h"
#include "group/group.h"

/* Memory for messages between reading and the end of a load. */
#define SMALL_THINGS ((uint64_t)64 << 10)

dcp_status load_limit_look(struct load_limit *limit, const struct load_sharing *sharing)
{
    struct shard_request *requests;
    size_t count;
    RETURN_IF_ERROR(load_list_requests(sharing->flat, sharing->metadata, sharing->plan, true,
                                       &requests, &count));
    dcp_status status = shard_read_needs_find(sharing->reader, requests, count,
                                              sharing->options->verification, &limit->needs);
    memory_release(requests);
    return status;
}

/* Memory held from now until the end, without open files, which reading opens or keeps open. */
static uint64_t held_memory(const struct operation *operation, struct shard_reader *reader)
{
    return memory_account_taken(operation->account) - shard_reader_open_memory(reader);
}

void load_limit_find(struct load_limit *limit, const struct operation *operation,
                     const struct load_sharing *sharing)
{
    const struct shard_read_how least = shard_read_how_least();
    uint64_t peak = memory_account_peak(operation->account) + SMALL_THINGS;
    uint64_t reading =
        held_memory(operation, sharing->reader) + shard_read_needs_memory(&limit->needs, &least);
    limit->smallest = reading > peak ? reading : peak;
}

dcp_status load_limit_check(struct load_limit *limit, const dcp_load_options *options)
{
    limit->too_small = limit->smallest > options->memory_limit;
    return limit->too_small ? error_no_memory((size_t)limit->smallest, "a load") : DCP_OK;
}

/* Chooses the fastest way of reading that fits the limit besides `taken`. */
static void fit(struct load_limit *limit, const struct load_sharing *sharing, uint64_t taken)
{
    const dcp_load_options *options = sharing->options;
    limit->how = shard_read_how_usual();
    limit->how.thread_count = load_thread_count(options->thread_count, sharing->plan->bytes_wanted);
    uint64_t room = options->memory_limit - taken;
    shard_read_needs_fit(&limit->needs, room, &limit->how);
    shard_reader_set_how(sharing->reader, &limit->how);
    /* Device lanes get the memory that buffers and threads leave. */
    uint64_t used = shard_read_needs_memory(&limit->needs, &limit->how);
    uint64_t lanes = room > used ? (room - used) / SHARD_READER_LANE_MEMORY : 0;
    shard_reader_allow_device_lanes(sharing->reader, lanes < SIZE_MAX ? (size_t)lanes : SIZE_MAX);
}

void load_limit_fit(struct load_limit *limit, const struct operation *operation,
                    const struct load_sharing *sharing)
{
    fit(limit, sharing, held_memory(operation, sharing->reader));
}

dcp_status load_limit_fit_sharing(struct load_limit *limit, const struct operation *operation,
                                  const struct load_sharing *sharing,
                                  const struct load_share *share)
{
    const struct shard_read_how least = shard_read_how_least();
    uint64_t taken = held_memory(operation, sharing->reader) + load_share_memory(sharing, share);
    uint64_t smallest = taken + shard_read_needs_memory(&limit->needs, &least);
    if (smallest > sharing->options->memory_limit)
        return error_no_memory((size_t)smallest, "reading for other ranks");
    fit(limit, sharing, taken);
    return DCP_OK;
}

static dcp_status find_largest(const struct group_messages *all, unsigned char *largest)
{
    uint64_t most = 0;
    for (int rank = 0; rank < all->count; rank++) {
        if (all->offsets[rank + 1] - all->offsets[rank] != sizeof most)
            return dcp_error_set(DCP_ERR_GROUP,
                                 "rank %d: its message on memory needs ends too early", rank);
        uint64_t one = load_u64(all->bytes + all->offsets[rank]);
        most = one > most ? one : most;
    }
    store_u64(largest, most);
    return DCP_OK;
}

dcp_status load_limit_share(const dcp_load_options *options, dcp_status status, uint64_t mine,
                            uint64_t *smallest)
{
    struct dcp_collective call = {"sharing the memory needs of the load", options->timeout_seconds};
    struct group_messages all = {0};
    unsigned char message[sizeof mine];
    struct buffer heard;

    buffer_init(&heard, 0);
    store_u64(message, mine);
    status = group_gather(options->group, &call, options->coordinator, status, message,
                          sizeof message, &all);
    if (status == DCP_OK && dcp_group_rank(options->group) == options->coordinator)
        status = find_largest(&all, message);
    status = group_broadcast(options->group, &call, options->coordinator, status, message,
                             sizeof message, &heard);
    if (status == DCP_OK && heard.size != sizeof message)
        status = dcp_error_set(DCP_ERR_GROUP,
                               "the coordinator's message on memory needs ends too early");
    if (status == DCP_OK)
        *smallest = load_u64(heard.data);
    group_messages_free(&all);
    buffer_free(&heard);
    return status;
}
