/* SPDX-License-Identifier: BSD-3-Clause */
/* DCP_SHARDING_INFO: JSON text in a string of the header, which says where in its tensor each of
 * the file's chunks lies. */
#include <stdio.h>

#include "base/error.h"
#include "format/safetensors/safetensors_parser.h"

static dcp_status read_saved_offsets(struct safetensors_parser *parser, struct json_reader *json,
                                     struct safetensors_tensor *tensor)
{
    struct json_text key;
    int32_t count;
    bool more;
    RETURN_IF_ERROR(json_enter_object(json));
    for (;;) {
        RETURN_IF_ERROR(json_next_member(json, &more, &key));
        if (!more)
            break;
        if (!json_text_is(key, "saved_offsets")) {
            RETURN_IF_ERROR(json_skip(json));
            continue;
        }
        if (tensor->offsets != NULL)
            return dcp_error_set(DCP_ERR_DUPLICATE, "%s: '%s' occurs twice", json->what,
                                 tensor->name);
        RETURN_IF_ERROR(safetensors_read_numbers(parser, json, &tensor->offsets, &count));
        if (count != tensor->ndim)
            return dcp_error_set(DCP_ERR_FORMAT, "%s: '%s' has %d saved_offsets, expected %d",
                                 json->what, tensor->name, (int)count, (int)tensor->ndim);
    }
    return DCP_OK;
}

dcp_status safetensors_read_sharding_info(struct safetensors_parser *parser)
{
    struct safetensors_header *header = parser->header;
    struct json_reader json;
    char what[SAFETENSORS_WHAT_MAX];
    bool more;
    snprintf(what, sizeof what, "%s: DCP_SHARDING_INFO", parser->file_name);
    json_init(&json, what, parser->sharding_info.bytes, parser->sharding_info.length,
              &header->arena);
    RETURN_IF_ERROR(json_enter_object(&json));
    for (;;) {
        struct json_text name;
        uint64_t index;
        RETURN_IF_ERROR(json_next_member(&json, &more, &name));
        if (!more)
            break;
        if (name_table_find(&header->by_name, name.bytes, name.length, &index))
            RETURN_IF_ERROR(read_saved_offsets(parser, &json, &header->tensors[index]));
        else
            RETURN_IF_ERROR(json_skip(&json));
    }
    RETURN_IF_ERROR(json_end(&json));
    for (size_t i = 0; i < header->count; i++)
        if (header->tensors[i].offsets == NULL)
            return dcp_error_set(DCP_ERR_FORMAT, "%s: no entry for '%s'", what,
                                 header->tensors[i].name);
    return DCP_OK;
}
