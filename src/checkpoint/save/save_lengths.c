/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/save/save_lengths.h"

#include <string.h>

#include "base/error.h"
#include "checkpoint/save/saving.h"

/* Name and length of each object that this rank writes. */
static void append_lengths(const dcp_saving *saving, struct buffer *out)
{
    const struct write_orders *orders = &saving->orders;
    for (size_t i = 0; i < orders->count; i++) {
        const struct write_item *item = &saving->local.plan.items[orders->orders[i].item];
        if (item->is_tensor)
            continue;
        buffer_append_text(out, item->name, strlen(item->name));
        buffer_append_varint(out, item->object_length);
    }
}

static dcp_status take_lengths(struct metadata *metadata, const void *bytes, size_t size)
{
    struct reader reader;
    reader_init(&reader, bytes, size);
    while (reader_left(&reader) > 0) {
        size_t name_length;
        uint64_t entry;
        const char *name = reader_text(&reader, &name_length);
        uint64_t length = reader_varint(&reader);
        if (reader.failed || length > INT64_MAX ||
            !name_table_find(&metadata->by_name, name, name_length, &entry) ||
            metadata->entries[entry].is_tensor)
            return dcp_error_set(
                DCP_ERR_GROUP,
                "a rank's message with lengths of objects is invalid, or ends too early");
        metadata->entries[entry].pieces[0].length = length;
    }
    return DCP_OK;
}

static dcp_status gather_lengths(dcp_saving *saving, const struct buffer *own, dcp_status status)
{
    struct dcp_collective call = {"gathering lengths of objects", saving->options.timeout_seconds};
    struct group_messages all = {0};
    status = group_gather(saving->options.group, &call, saving->options.coordinator, status,
                          own->data, own->size, &all);
    for (int rank = 0; rank < all.count && status == DCP_OK; rank++)
        status = take_lengths(&saving->coordinator.metadata, all.bytes + all.offsets[rank],
                              all.offsets[rank + 1] - all.offsets[rank]);
    group_messages_free(&all);
    return status;
}

dcp_status save_lengths_update(dcp_saving *saving, bool travel, dcp_status status)
{
    struct buffer own;
    buffer_init(&own, 0);
    append_lengths(saving, &own);
    if (status == DCP_OK)
        status = buffer_status(&own);
    if (travel)
        status = gather_lengths(saving, &own, status);
    else if (status == DCP_OK && saving->coordinates)
        status = take_lengths(&saving->coordinator.metadata, own.data, own.size);
    buffer_free(&own);
    return status;
}

dcp_status save_lengths_share(dcp_saving *saving, struct joint_plan *joint, dcp_status status)
{
    struct dcp_collective call = {"sharing lengths of objects", saving->options.timeout_seconds};
    struct buffer own, received;
    struct reader reader;
    buffer_init(&own, 0);
    buffer_init(&received, 0);
    for (size_t i = 0; i < joint->count && status == DCP_OK; i++)
        if (!joint->entries[i].is_tensor)
            buffer_append_varint(&own, joint->entries[i].object_length);
    if (status == DCP_OK)
        status = buffer_status(&own);
    status =
        group_broadcast(saving->options.group, &call, 0, status, own.data, own.size, &received);
    reader_init(&reader, received.data, received.size);
    for (size_t i = 0; i < joint->count && status == DCP_OK; i++)
        if (!joint->entries[i].is_tensor)
            joint->entries[i].object_length = reader_varint(&reader);
    if (status == DCP_OK && (reader.failed || reader_left(&reader) != 0))
        status = dcp_error_set(DCP_ERR_GROUP,
                               "the number of lengths differs from the number of objects");
    buffer_free(&received);
    buffer_free(&own);
    return status;
}
