/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/save/save_gather.h"

#include "base/error.h"
#include "base/memory.h"
#include "group/group.h"

/* The most messages that one rank receives: one per level of the tree of ranks, and one from its
 * root to the coordinator. */
enum { TREE_PARTS = 32 };

/* Adds a message with the plans of higher ranks; it can be freed afterwards. */
static dcp_status take_part(struct save_gathering *gathering, const void *bytes, size_t size)
{
    struct joint_plan *part = &gathering->parts[gathering->part_count++];
    RETURN_IF_ERROR(joint_plan_decode(bytes, size, gathering->joint.rank_count, part));
    return joint_plan_unite(&gathering->joint, part);
}

/* One level of the tree: this rank sends a message, receives one, or neither. */
static dcp_status climb(const dcp_save_options *options, dcp_status status, int to,
                        struct save_gathering *gathering)
{
    struct dcp_collective call = {"gathering save plans", options->timeout_seconds};
    struct buffer message, received;
    buffer_init(&message, 0);
    buffer_init(&received, 0);
    if (to >= 0 && status == DCP_OK)
        status = joint_plan_encode(&gathering->joint, &message);
    status = group_pass(options->group, &call, status, to, message.data, message.size, &received);
    if (status == DCP_OK && received.size != 0)
        status = take_part(gathering, received.data, received.size);
    buffer_free(&received);
    buffer_free(&message);
    return status;
}

/* Ranks 1, 3, 5, ... send to 0, 2, 4, ..., of which 2, 6, ... send to 0, 4, ..., until rank 0 has
 * everything and sends it to the coordinator. Each step also carries failures. */
static dcp_status climb_tree(const dcp_save_options *options, dcp_status status,
                             struct save_gathering *gathering)
{
    int64_t rank = dcp_group_rank(options->group), size = dcp_group_size(options->group);
    for (int64_t step = 1; step < size; step *= 2)
        status =
            climb(options, status, rank % (2 * step) == step ? (int)(rank - step) : -1, gathering);
    if (options->coordinator == 0)
        return status;
    if (rank == options->coordinator) {
        joint_plan_free(&gathering->joint);
        joint_plan_init(&gathering->joint, (uint32_t)size);
    }
    return climb(options, status, rank == 0 ? options->coordinator : -1, gathering);
}

static dcp_status gather_at_once(const dcp_save_options *options, dcp_status status,
                                 struct save_gathering *gathering)
{
    struct dcp_collective call = {"gathering save plans", options->timeout_seconds};
    struct group_messages messages = {0};
    struct buffer message;
    buffer_init(&message, 0);
    if (status == DCP_OK)
        status = joint_plan_encode(&gathering->joint, &message);
    status = group_gather(options->group, &call, options->coordinator, status, message.data,
                          message.size, &messages);
    buffer_free(&message);
    joint_plan_free(&gathering->joint);
    joint_plan_init(&gathering->joint, (uint32_t)dcp_group_size(options->group));
    for (int rank = 0; rank < messages.count && status == DCP_OK; rank++)
        status = take_part(gathering, messages.bytes + messages.offsets[rank],
                           messages.offsets[rank + 1] - messages.offsets[rank]);
    group_messages_free(&messages);
    return status;
}

dcp_status save_gather_plans(const dcp_save_options *options, const struct save_plan *plan,
                             struct save_gathering *gathering)
{
    uint32_t rank = (uint32_t)dcp_group_rank(options->group);
    uint32_t size = (uint32_t)dcp_group_size(options->group);
    bool tree = group_can_pass(options->group);
    *gathering = (struct save_gathering){0};
    joint_plan_init(&gathering->joint, size);
    size_t part_count = tree ? TREE_PARTS : size;
    gathering->parts = memory_allocate_zeroed(part_count, sizeof *gathering->parts);
    dcp_status status =
        gathering->parts != NULL
            ? joint_plan_add(&gathering->joint, plan, rank)
            : error_no_memory(part_count * sizeof *gathering->parts, "plans of other ranks");
    if (size == 1)
        return status;
    return tree ? climb_tree(options, status, gathering)
                : gather_at_once(options, status, gathering);
}

void save_gathering_free(struct save_gathering *gathering)
{
    joint_plan_free(&gathering->joint);
    for (size_t i = 0; i < gathering->part_count; i++)
        joint_plan_free(&gathering->parts[i]);
    memory_release(gathering->parts);
}
