/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/load/load_gather.h"

#include "base/error.h"
#include "base/memory.h"
#include "group/group.h"

static dcp_status decode_all(const struct group_messages *messages, struct load_differences *ranks)
{
    for (int rank = 0; rank < messages->count; rank++) {
        dcp_status status = load_differences_decode(
            messages->bytes + messages->offsets[rank],
            messages->offsets[rank + 1] - messages->offsets[rank], &ranks[rank]);
        if (status != DCP_OK)
            return error_prefix(status, "rank %d", rank);
    }
    return DCP_OK;
}

/* At the coordinator. */
static dcp_status merge_all(const struct group_messages *messages, const struct metadata *metadata,
                            const struct load_names *names, struct buffer *merged)
{
    size_t count = (size_t)messages->count;
    struct load_differences *ranks = memory_allocate_zeroed(count, sizeof *ranks);
    struct load_differences all = {0};

    if (!ranks)
        return error_no_memory(count * sizeof *ranks, "differences of all ranks");
    dcp_status status = decode_all(messages, ranks);
    if (status == DCP_OK)
        status = load_differences_merge(ranks, messages->count, metadata, names, &all);
    if (status == DCP_OK)
        status = load_differences_encode(&all, merged);
    if (status == DCP_OK)
        status = buffer_status(merged);
    load_differences_free(&all);
    for (size_t rank = 0; rank < count; rank++)
        load_differences_free(&ranks[rank]);
    memory_release(ranks);
    return status;
}

dcp_status load_gather_differences(const dcp_load_options *options, const struct metadata *metadata,
                                   const struct load_names *names, dcp_status status,
                                   const struct load_differences *mine,
                                   struct load_differences *all, dcp_status *decoded)
{
    struct dcp_collective gathering = {"gathering load plans", options->timeout_seconds};
    struct dcp_collective call = {"sharing the load report", options->timeout_seconds};
    bool coordinates = dcp_group_rank(options->group) == options->coordinator;
    struct group_messages messages = {0};
    struct buffer message, merged, received;

    buffer_init(&message, 0);
    buffer_init(&merged, 0);
    buffer_init(&received, 0);
    if (status == DCP_OK)
        status = load_differences_encode(mine, &message);
    if (status == DCP_OK)
        status = buffer_status(&message);
    status = group_gather(options->group, &gathering, options->coordinator, status, message.data,
                          message.size, &messages);
    if (coordinates && status == DCP_OK)
        status = merge_all(&messages, metadata, names, &merged);
    status = group_broadcast(options->group, &call, options->coordinator, status, merged.data,
                             merged.size, &received);
    *decoded =
        status == DCP_OK ? load_differences_decode(received.data, received.size, all) : DCP_OK;
    group_messages_free(&messages);
    buffer_free(&received);
    buffer_free(&merged);
    buffer_free(&message);
    return status;
}
