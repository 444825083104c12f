/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/error.h"
#include "format/item.h"
#include "format/stream.h"

dcp_status item_encode_stream(const dcp_state *object, struct buffer *stream)
{
    struct buffer pickle;
    buffer_init(&pickle, 0);
    dcp_status status = item_encode_object(object, &pickle);
    if (status == DCP_OK)
        status = stream_object(stream, pickle.data, pickle.size);
    buffer_free(&pickle);
    return status;
}
