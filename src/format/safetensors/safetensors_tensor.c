/* SPDX-License-Identifier: BSD-3-Clause */
/* One tensor of a safetensors header. */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "format/safetensors/safetensors_parser.h"
#include "state/box.h"
#include "state/dtype.h"

static dcp_status add_tensor(struct safetensors_header *header, struct safetensors_tensor tensor)
{
    if (header->count == header->capacity) {
        size_t capacity = header->capacity == 0 ? 64 : header->capacity * 2;
        struct safetensors_tensor *grown =
            memory_reallocate_array(header->tensors, capacity, sizeof *grown);
        if (grown == NULL)
            return error_no_memory(capacity * sizeof *grown, "a safetensors header");
        header->tensors = grown;
        header->capacity = capacity;
    }
    header->tensors[header->count++] = tensor;
    return DCP_OK;
}

dcp_status safetensors_read_numbers(struct safetensors_parser *parser, struct json_reader *json,
                                    const int64_t **out, int32_t *count)
{
    int64_t numbers[DCP_MAX_DIMS];
    bool more;
    *count = 0;
    RETURN_IF_ERROR(json_enter_array(json));
    for (;;) {
        RETURN_IF_ERROR(json_next_element(json, &more));
        if (!more)
            break;
        uint64_t number;
        if (*count == DCP_MAX_DIMS)
            return dcp_error_set(DCP_ERR_FORMAT, "%s: byte %zu: more than %d dimensions",
                                 json->what, json->position, DCP_MAX_DIMS);
        RETURN_IF_ERROR(json_u64(json, &number));
        if (number > INT64_MAX)
            return dcp_error_set(DCP_ERR_FORMAT, "%s: byte %zu: %" PRIu64 " exceeds 2^63 - 1",
                                 json->what, json->position, number);
        numbers[(*count)++] = (int64_t)number;
    }
    *out = arena_copy(&parser->header->arena, numbers, (size_t)*count * sizeof *numbers);
    return *out != NULL ? DCP_OK : error_no_memory((size_t)*count * sizeof *numbers, json->what);
}

static dcp_status read_dtype(struct json_reader *json, const char *name, dcp_dtype *dtype)
{
    struct json_text text;
    RETURN_IF_ERROR(json_string(json, &text));
    const struct dtype_facts *facts;
    for (size_t i = 0; (facts = dtype_facts_at(i)) != NULL; i++) {
        if (facts->safetensors != NULL && json_text_is(text, facts->safetensors)) {
            *dtype = facts->dtype;
            return DCP_OK;
        }
    }
    return dcp_error_set(DCP_ERR_UNSUPPORTED, "%s: '%s' has an unknown dtype '%.*s'", json->what,
                         name, (int)(text.length < 32 ? text.length : 32), text.bytes);
}

static dcp_status read_data_offsets(struct json_reader *json, const char *name,
                                    struct safetensors_tensor *tensor)
{
    uint64_t bounds[2];
    bool more;
    RETURN_IF_ERROR(json_enter_array(json));
    for (int i = 0; i < 3; i++) {
        RETURN_IF_ERROR(json_next_element(json, &more));
        if (more != (i < 2))
            return dcp_error_set(DCP_ERR_FORMAT, "%s: data_offsets of '%s' are not two numbers",
                                 json->what, name);
        if (more)
            RETURN_IF_ERROR(json_u64(json, &bounds[i]));
    }
    tensor->begin = bounds[0];
    tensor->end = bounds[1];
    return DCP_OK;
}

/* Which fields of a tensor were there. */
enum { FIELD_DTYPE = 1, FIELD_SHAPE = 2, FIELD_DATA_OFFSETS = 4, FIELD_ALL = 7 };

static dcp_status read_field(struct json_reader *json, struct json_text key,
                             struct safetensors_parser *parser, struct safetensors_tensor *tensor,
                             unsigned *fields)
{
    unsigned field = json_text_is(key, "dtype")          ? FIELD_DTYPE
                     : json_text_is(key, "shape")        ? FIELD_SHAPE
                     : json_text_is(key, "data_offsets") ? FIELD_DATA_OFFSETS
                                                         : 0;
    if ((*fields & field) != 0)
        return dcp_error_set(DCP_ERR_FORMAT, "%s: '%s' has '%.*s' twice", json->what, tensor->name,
                             (int)key.length, key.bytes);
    *fields |= field;
    switch (field) {
    case FIELD_DTYPE:
        return read_dtype(json, tensor->name, &tensor->dtype);
    case FIELD_SHAPE:
        return safetensors_read_numbers(parser, json, &tensor->shape, &tensor->ndim);
    case FIELD_DATA_OFFSETS:
        return read_data_offsets(json, tensor->name, tensor);
    default:
        return json_skip(json);
    }
}

/* Registers the name, which must be new and must not contain NUL. */
static dcp_status take_name(struct json_reader *json, struct json_text key,
                            struct safetensors_header *header, const char **name)
{
    uint64_t index = header->count;
    bool existing;
    if (memchr(key.bytes, '\0', key.length) != NULL)
        return dcp_error_set(DCP_ERR_FORMAT, "%s: the name '%.*s' contains NUL", json->what,
                             (int)key.length, key.bytes);
    *name = arena_copy_text(&header->arena, key.bytes, key.length);
    if (*name == NULL)
        return error_no_memory(key.length, json->what);
    RETURN_IF_ERROR(name_table_add(&header->by_name, *name, key.length, &index, &existing));
    if (existing)
        return dcp_error_set(DCP_ERR_DUPLICATE, "%s: '%s' occurs twice", json->what, *name);
    return DCP_OK;
}

static dcp_status check_tensor(const struct safetensors_parser *parser, const char *what,
                               struct safetensors_tensor *tensor)
{
    uint64_t bytes, data_size = parser->file_size - parser->header->data_offset;
    char shape[256];
    if (!shape_bytes(tensor->ndim, tensor->shape, tensor->dtype, &bytes))
        return dcp_error_set(DCP_ERR_FORMAT, "%s: the shape %s of '%s' exceeds 2^63 bytes", what,
                             shape_format(tensor->ndim, tensor->shape, shape, sizeof shape),
                             tensor->name);
    if (tensor->begin > tensor->end || tensor->end > data_size)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "%s: '%s' has data_offsets [%" PRIu64 ", %" PRIu64
                             "], the data has %" PRIu64 " bytes",
                             what, tensor->name, tensor->begin, tensor->end, data_size);
    if (tensor->end - tensor->begin != bytes)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "%s: '%s' has %" PRIu64 " bytes, expected %" PRIu64
                             " for shape %s of %s",
                             what, tensor->name, tensor->end - tensor->begin, bytes,
                             shape_format(tensor->ndim, tensor->shape, shape, sizeof shape),
                             dcp_dtype_name(tensor->dtype));
    tensor->begin += parser->header->data_offset;
    tensor->end += parser->header->data_offset;
    return DCP_OK;
}

dcp_status safetensors_read_tensor(struct safetensors_parser *parser, struct json_reader *json,
                                   struct json_text name)
{
    struct safetensors_tensor tensor = {0};
    unsigned fields = 0;
    bool more;
    RETURN_IF_ERROR(take_name(json, name, parser->header, &tensor.name));
    RETURN_IF_ERROR(json_enter_object(json));
    for (;;) {
        struct json_text field;
        RETURN_IF_ERROR(json_next_member(json, &more, &field));
        if (!more)
            break;
        RETURN_IF_ERROR(read_field(json, field, parser, &tensor, &fields));
    }
    if (fields != FIELD_ALL)
        return dcp_error_set(DCP_ERR_FORMAT, "%s: '%s' lacks %s", json->what, tensor.name,
                             (fields & FIELD_DTYPE) == 0   ? "dtype"
                             : (fields & FIELD_SHAPE) == 0 ? "shape"
                                                           : "data_offsets");
    RETURN_IF_ERROR(check_tensor(parser, json->what, &tensor));
    return add_tensor(parser->header, tensor);
}
