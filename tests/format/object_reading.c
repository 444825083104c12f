/* SPDX-License-Identifier: BSD-3-Clause */
#include "object_reading.h"

#include "format/streams/item.h"
#include "zip_builder.h"

dcp_status object_open(struct object *object, struct byte_source stream)
{
    *object = (struct object){.root = dcp_state_new()};
    if (object->root == NULL)
        return DCP_ERR_NO_MEMORY;
    object->pool = state_pool_new(object->root->root);
    if (object->pool == NULL)
        return DCP_ERR_NO_MEMORY;
    return item_read_object(stream, object->pool, &object->node);
}

void object_close(struct object *object)
{
    state_pool_free(object->pool);
    dcp_state_free(object->root);
}

dcp_status object_open_pickle(struct object *object, const void *pickle, size_t size,
                              const struct record *records, size_t record_count)
{
    struct zip_builder builder;
    zip_builder_init(&builder);
    zip_builder_add_container(&builder, pickle, size);
    for (size_t i = 0; i < record_count; i++)
        (records[i].deflated ? zip_builder_add_deflated : zip_builder_add)(
            &builder, records[i].name, records[i].bytes, records[i].size);
    zip_builder_finish(&builder);
    dcp_status status = object_open(object, byte_source_memory(builder.out.data, builder.out.size));
    zip_builder_free(&builder);
    return status;
}

dcp_state *object_child(const struct object *object, size_t index)
{
    return dcp_state_at(object->node, index);
}
