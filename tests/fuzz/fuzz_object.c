/* SPDX-License-Identifier: BSD-3-Clause */
/* Objects: the input is a pickle, beside a storage that it may refer to. What could be encoded, by
 * itself or as a stream with the tensors inside of it, must be read back, and give the same bytes
 * again. */
#include <stdlib.h>
#include <string.h>

#include "../format/zip_builder.h"
#include "format/streams/item.h"
#include "fuzz_target.h"
#include "state/node.h"

static dcp_status read_object(const void *pickle, size_t size, struct state_pool *pool,
                              dcp_state **object)
{
    static const unsigned char storage[64] = {1, 2, 3};
    struct zip_builder builder;
    zip_builder_init(&builder);
    zip_builder_add_container(&builder, pickle, size);
    zip_builder_add(&builder, "archive/data/0", storage, sizeof storage);
    zip_builder_finish(&builder);
    dcp_status status =
        item_read_object(byte_source_memory(builder.out.data, builder.out.size), pool, object);
    zip_builder_free(&builder);
    return status;
}

static void encode_again(const struct buffer *pickle, struct state_pool *pool)
{
    struct buffer again;
    dcp_state *object;
    buffer_init(&again, 0);
    if (read_object(pickle->data, pickle->size, pool, &object) != DCP_OK ||
        item_encode_object(object, &again) != DCP_OK || again.size != pickle->size ||
        memcmp(again.data, pickle->data, again.size) != 0)
        abort();
    buffer_free(&again);
}

static void encode_stream_again(const struct buffer *stream, struct state_pool *pool)
{
    struct buffer again;
    dcp_state *object;
    buffer_init(&again, 0);
    if (item_read_object(byte_source_memory(stream->data, stream->size), pool, &object) != DCP_OK ||
        item_encode_stream(object, &again) != DCP_OK || again.size != stream->size ||
        memcmp(again.data, stream->data, again.size) != 0)
        abort();
    buffer_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    dcp_state *root = dcp_state_new(), *object;
    struct state_pool *pool = state_pool_new(root->root);
    struct buffer pickle, stream;
    buffer_init(&pickle, 0);
    buffer_init(&stream, 0);
    dcp_status status = read_object(data, size, pool, &object);
    if (status == DCP_OK && item_encode_object(object, &pickle) == DCP_OK)
        encode_again(&pickle, pool);
    if (status == DCP_OK && item_encode_stream(object, &stream) == DCP_OK)
        encode_stream_again(&stream, pool);
    buffer_free(&stream);
    buffer_free(&pickle);
    state_pool_free(pool);
    dcp_state_free(root);
    return 0;
}
