/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/hooks/plan_data_wire.h"

#include "base/error.h"
#include "format/streams/item.h"
#include "format/streams/stream.h"

dcp_status plan_data_append(const struct plan_data *data, const char *what, struct buffer *out)
{
    struct buffer pickle, stream;
    dcp_status status = DCP_OK;

    buffer_init(&pickle, 0);
    buffer_init(&stream, 0);
    if (data->dict) {
        status = dcp_state_status(data->dict);
        if (status == DCP_OK)
            status = item_encode_object(data->dict, &pickle);
        if (status == DCP_OK)
            status = stream_object(&stream, pickle.data, pickle.size);
        if (status != DCP_OK)
            error_prefix(status, "%s", what);
    }
    buffer_append_text(out, (const char *)stream.data, stream.size);
    buffer_free(&stream);
    buffer_free(&pickle);
    return status == DCP_OK ? buffer_status(out) : status;
}

dcp_status plan_data_read(struct plan_data *data, struct reader *reader)
{
    size_t size;
    const char *bytes = reader_text(reader, &size);
    if (!bytes)
        return dcp_error_set(DCP_ERR_GROUP, "the message with a plan's data ends too early");
    plan_data_free(data);
    if (size == 0)
        return DCP_OK;
    data->root = dcp_state_new();
    if (!data->root)
        return DCP_ERR_NO_MEMORY;
    dcp_state *dict = NULL;
    RETURN_IF_ERROR(item_read_object(byte_source_memory(bytes, size), data->root->pool, &dict));
    if (!node_is_dict(dict))
        return dcp_error_set(DCP_ERR_GROUP, "the data of a plan is not a dict");
    data->dict = dict;
    return DCP_OK;
}
