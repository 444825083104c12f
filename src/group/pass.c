/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages from one rank to another, several pairs at a time. */
#include "base/memory.h"
#include "group/collective.h"
#include "group/group.h"

enum { PASS_RECORD = 12 };

/* The arguments of a multicast, in one allocation. */
struct pass {
    size_t *sizes;
    unsigned char **places;
    bool *to;
    bool *from;
};

static dcp_status pass_new(int ranks, struct pass *pass)
{
    size_t count = (size_t)ranks;
    size_t each = sizeof *pass->sizes + sizeof *pass->places + 2 * sizeof *pass->to;
    pass->sizes = memory_allocate_zeroed(count, each);
    if (pass->sizes == NULL)
        return error_no_memory(count * each, "sizes of messages");
    pass->places = (unsigned char **)(pass->sizes + count);
    pass->to = (bool *)(pass->places + count);
    pass->from = pass->to + count;
    return DCP_OK;
}

/* Finds what this rank sends and receives from all ranks' records. */
static dcp_status prepare(const dcp_group *group, const unsigned char *records, int to,
                          struct pass *pass, struct buffer *received, void **scratch)
{
    size_t largest = 0;
    int senders = 0;
    for (int rank = 0; rank < group->size; rank++) {
        const unsigned char *record = records + (size_t)rank * PASS_RECORD;
        uint64_t size = load_u64(record + 4);
        bool to_us = load_u32(record) == (uint32_t)group->rank && rank != group->rank;
        if (size > SIZE_MAX)
            return dcp_error_set(DCP_ERR_GROUP, "rank %d announces a message whose size overflows",
                                 rank);
        /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): without memory nothing was shared */
        pass->sizes[rank] = (size_t)size;
        pass->from[rank] = to_us;
        pass->to[rank] = rank == to;
        senders += to_us;
        largest = pass->sizes[rank] > largest ? pass->sizes[rank] : largest;
        if (to_us) {
            RETURN_IF_ERROR(buffer_reserve(received, pass->sizes[rank]));
            received->size = pass->sizes[rank];
            pass->places[rank] = received->data;
        }
    }
    if (senders > 1)
        return dcp_error_set(DCP_ERR_INTERNAL,
                             "%d ranks send to rank %d at the same time, expected at most one",
                             senders, group->rank);
    size_t size = collective_multicast_scratch(group, largest);
    *scratch = size != 0 ? memory_allocate(size) : NULL;
    return size != 0 && *scratch == NULL ? error_no_memory(size, "messages of other ranks")
                                         : DCP_OK;
}

bool group_can_pass(const dcp_group *group)
{
    return dcp_group_size(group) > 1 && group->operations.all_to_all != NULL;
}

dcp_status group_pass(dcp_group *group, const dcp_collective *call, dcp_status mine, int to,
                      const void *payload, size_t size, struct buffer *received)
{
    struct pass pass = {0};
    unsigned char record[PASS_RECORD];
    const unsigned char *records;
    void *scratch = NULL;
    buffer_clear(received);
    if (dcp_group_size(group) == 1)
        return mine;
    store_u32(record, (uint32_t)to);
    store_u64(record + 4, to >= 0 ? size : 0);
    if (mine == DCP_OK)
        mine = pass_new(group->size, &pass);
    mine = group_share(group, call, mine, record, sizeof record, &records);
    if (mine == DCP_OK)
        mine = group_agree(group, call, prepare(group, records, to, &pass, received, &scratch));
    if (mine == DCP_OK) {
        struct group_multicast multicast = {.sizes = pass.sizes,
                                            .send = payload,
                                            .to = pass.to,
                                            .from = pass.from,
                                            .places = pass.places,
                                            .scratch = scratch};
        mine = collective_multicast(group, call, &multicast);
    }
    if (mine != DCP_OK)
        buffer_clear(received);
    memory_release(scratch);
    memory_release(pass.sizes);
    return mine;
}
