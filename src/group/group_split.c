/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/error.h"
#include "base/memory.h"
#include "group/collective.h"
#include "group/group.h"

enum { RECORD_SIZE = 8 };

/* This rank's place among the ranks of its color. */
struct seat {
    int color;
    int rank;
    int size;
};

/* Ranks are ordered by key, and by their old number where keys are equal. */
static void find_seat(const dcp_group *group, const unsigned char *records, struct seat *seat)
{
    int own_key = (int)load_u32(records + (size_t)group->rank * RECORD_SIZE + 4);
    for (int rank = 0; rank < group->size; rank++) {
        const unsigned char *record = records + (size_t)rank * RECORD_SIZE;
        int key = (int)load_u32(record + 4);
        if ((int)load_u32(record) != seat->color)
            continue;
        seat->size++;
        seat->rank += key < own_key || (key == own_key && rank < group->rank);
    }
}

/* This rank's part. A rank without a color also makes the call. */
static dcp_status make(dcp_group *group, const dcp_collective *call, const struct seat *seat,
                       dcp_group **part)
{
    void *context = NULL;
    RETURN_IF_ERROR(error_checked(group->operations.split(group->context, call, seat->color,
                                                          seat->rank, seat->size, &context),
                                  "the operation `split`"));
    if (seat->color == DCP_NO_COLOR)
        return DCP_OK;
    if (!context)
        return dcp_error_set(DCP_ERR_CALLBACK, "the operation `split` made no group");
    dcp_status status = dcp_group_new(&group->operations, context, seat->rank, seat->size, part);
    if (status != DCP_OK && group->operations.close)
        group->operations.close(context);
    return status;
}

/* Splits the group that carries bulk bytes in the same way. */
static dcp_status split_bulk(dcp_group *group, const dcp_collective *call, int color, int key,
                             dcp_group *part)
{
    dcp_group *bulk = NULL;
    dcp_status status = dcp_group_split(group->bulk, color, key, call->timeout_seconds, &bulk);
    group->agreed = group->bulk->agreed; /* so that no second rank is named in the message */
    if (part)
        part->bulk = bulk;
    return status;
}

static dcp_status split(dcp_group *group, const dcp_collective *call, int color, int key,
                        dcp_status mine, dcp_group **part)
{
    unsigned char record[RECORD_SIZE];
    const unsigned char *records;
    struct seat seat = {.color = color};
    store_u32(record, (uint32_t)color);
    store_u32(record + 4, (uint32_t)key);
    if (mine == DCP_OK && !group->operations.split)
        mine = dcp_error_set(DCP_ERR_UNSUPPORTED, "groups of this kind cannot be split");
    RETURN_IF_ERROR(group_share(group, call, mine, record, sizeof record, &records));
    find_seat(group, records, &seat);
    RETURN_IF_ERROR(group_agree(group, call, make(group, call, &seat, part)));
    if (group->bulk)
        return group_agree(group, call, split_bulk(group, call, color, key, *part));
    return DCP_OK;
}

dcp_status dcp_group_split(dcp_group *group, int color, int key, double timeout_seconds,
                           dcp_group **part)
{
    dcp_collective call;
    dcp_group *made = NULL;
    dcp_status mine =
        collective_for_caller("dcp_group_split", "splitting the group", timeout_seconds, &call);
    if (!part)
        mine = dcp_error_set(DCP_ERR_ARGUMENT, "dcp_group_split: part is NULL");
    else
        *part = NULL;
    if (color < 0 && color != DCP_NO_COLOR)
        mine = dcp_error_set(
            DCP_ERR_ARGUMENT,
            "dcp_group_split: the color is %d, expected 0 or more, or DCP_NO_COLOR", color);
    if (!group)
        return mine;
    group_enter(group, "dcp_group_split");
    dcp_status status = split(group, &call, color, key, mine, &made);
    if (status != DCP_OK)
        dcp_group_free(made);
    else
        *part = made;
    return status;
}
