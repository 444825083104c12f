/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/safetensors_header.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/memory.h"
#include "format/json_reader.h"
#include "state/box.h"

enum { LENGTH_SIZE = 8, HEADER_MAX = 100 * 1000 * 1000, WHAT_MAX = 512 };

static const struct {
    const char *name;
    dcp_dtype dtype;
} dtype_names[] = {
    {"F64", DCP_F64},
    {"F32", DCP_F32},
    {"F16", DCP_F16},
    {"BF16", DCP_BF16},
    {"I64", DCP_I64},
    {"I32", DCP_I32},
    {"I16", DCP_I16},
    {"I8", DCP_I8},
    {"U64", DCP_U64},
    {"U32", DCP_U32},
    {"U16", DCP_U16},
    {"U8", DCP_U8},
    {"BOOL", DCP_BOOL},
    {"C64", DCP_C64},
    {"F8_E4M3", DCP_F8_E4M3FN},
    {"F8_E4M3FNUZ", DCP_F8_E4M3FNUZ},
    {"F8_E5M2", DCP_F8_E5M2},
    {"F8_E5M2FNUZ", DCP_F8_E5M2FNUZ},
    {"F8_E8M0", DCP_F8_E8M0FNU},
};

/* One header on its way from text to tensors. */
struct header_parser {
    const char *file_name;
    struct safetensors_header *header;
    struct json_text sharding_info; /* bytes is NULL if there is none */
};

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

/* Counts fit int64_t, as the rest of the library has them. */
static dcp_status read_numbers(struct json_reader *json, struct arena *arena, const int64_t **out,
                               int32_t *count)
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
    *out = arena_copy(arena, numbers, (size_t)*count * sizeof *numbers);
    return *out != NULL ? DCP_OK : error_no_memory((size_t)*count * sizeof *numbers, json->what);
}

static dcp_status read_dtype(struct json_reader *json, const char *name, dcp_dtype *dtype)
{
    struct json_text text;
    RETURN_IF_ERROR(json_string(json, &text));
    for (size_t i = 0; i < sizeof dtype_names / sizeof *dtype_names; i++) {
        if (json_text_is(text, dtype_names[i].name)) {
            *dtype = dtype_names[i].dtype;
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
                             struct header_parser *parser, struct safetensors_tensor *tensor,
                             unsigned *fields)
{
    unsigned field = json_text_is(key, "dtype")          ? FIELD_DTYPE
                     : json_text_is(key, "shape")        ? FIELD_SHAPE
                     : json_text_is(key, "data_offsets") ? FIELD_DATA_OFFSETS
                                                         : 0;
    if ((*fields & field) != 0)
        return dcp_error_set(DCP_ERR_FORMAT, "%s: '%s' has two of '%.*s'", json->what, tensor->name,
                             (int)key.length, key.bytes);
    *fields |= field;
    switch (field) {
    case FIELD_DTYPE:
        return read_dtype(json, tensor->name, &tensor->dtype);
    case FIELD_SHAPE:
        return read_numbers(json, &parser->header->arena, &tensor->shape, &tensor->ndim);
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
        return dcp_error_set(DCP_ERR_DUPLICATE, "%s: '%s' is there twice", json->what, *name);
    return DCP_OK;
}

static dcp_status check_tensor(const struct header_parser *parser, const char *what,
                               struct safetensors_tensor *tensor, uint64_t file_size)
{
    uint64_t bytes, data_size = file_size - parser->header->data_offset;
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

static dcp_status read_tensor(struct json_reader *json, struct json_text key,
                              struct header_parser *parser, uint64_t file_size)
{
    struct safetensors_tensor tensor = {0};
    unsigned fields = 0;
    bool more;
    RETURN_IF_ERROR(take_name(json, key, parser->header, &tensor.name));
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
    RETURN_IF_ERROR(check_tensor(parser, json->what, &tensor, file_size));
    return add_tensor(parser->header, tensor);
}

/* "__metadata__": strings alone, of which one is ours to understand. */
static dcp_status read_file_metadata(struct json_reader *json, struct header_parser *parser)
{
    struct name_table keys;
    bool more = true, existing;
    name_table_init(&keys);
    dcp_status status = json_enter_object(json);
    while (status == DCP_OK && more) {
        struct json_text key, value;
        uint64_t unused = 0;
        status = json_next_member(json, &more, &key);
        if (status != DCP_OK || !more)
            break;
        status = name_table_add(&keys, key.bytes, key.length, &unused, &existing);
        if (status == DCP_OK && existing)
            status = dcp_error_set(DCP_ERR_DUPLICATE, "%s: __metadata__ has two of '%.*s'",
                                   json->what, (int)key.length, key.bytes);
        if (status == DCP_OK)
            status = json_string(json, &value);
        if (status == DCP_OK && json_text_is(key, "DCP_SHARDING_INFO"))
            parser->sharding_info = value;
    }
    name_table_free(&keys);
    return status;
}

static dcp_status read_members(struct json_reader *json, struct header_parser *parser,
                               uint64_t file_size)
{
    bool more, has_metadata = false;
    RETURN_IF_ERROR(json_enter_object(json));
    for (;;) {
        struct json_text key;
        RETURN_IF_ERROR(json_next_member(json, &more, &key));
        if (!more)
            return json_end(json);
        if (!json_text_is(key, "__metadata__")) {
            RETURN_IF_ERROR(read_tensor(json, key, parser, file_size));
            continue;
        }
        if (has_metadata)
            return dcp_error_set(DCP_ERR_DUPLICATE, "%s: '__metadata__' is there twice",
                                 json->what);
        has_metadata = true;
        RETURN_IF_ERROR(read_file_metadata(json, parser));
    }
}

static dcp_status read_saved_offsets(struct json_reader *json, struct safetensors_header *header,
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
            return dcp_error_set(DCP_ERR_DUPLICATE, "%s: '%s' is there twice", json->what,
                                 tensor->name);
        RETURN_IF_ERROR(read_numbers(json, &header->arena, &tensor->offsets, &count));
        if (count != tensor->ndim)
            return dcp_error_set(DCP_ERR_FORMAT, "%s: '%s' has %d saved_offsets, expected %d",
                                 json->what, tensor->name, (int)count, (int)tensor->ndim);
    }
    return DCP_OK;
}

static dcp_status read_sharding_info(struct header_parser *parser)
{
    struct safetensors_header *header = parser->header;
    struct json_reader json;
    char what[WHAT_MAX];
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
            RETURN_IF_ERROR(read_saved_offsets(&json, header, &header->tensors[index]));
        else
            RETURN_IF_ERROR(json_skip(&json));
    }
    RETURN_IF_ERROR(json_end(&json));
    for (size_t i = 0; i < header->count; i++)
        if (header->tensors[i].offsets == NULL)
            return dcp_error_set(DCP_ERR_FORMAT, "%s: nothing about '%s'", what,
                                 header->tensors[i].name);
    return DCP_OK;
}

/* Without sharding info every file holds whole tensors. */
static void set_zero_offsets(struct safetensors_header *header)
{
    static const int64_t zeros[DCP_MAX_DIMS];
    for (size_t i = 0; i < header->count; i++)
        header->tensors[i].offsets = zeros;
}

static int compare_begin(const void *a, const void *b)
{
    const struct safetensors_tensor *const *left = a, *const *right = b;
    if ((*left)->begin != (*right)->begin)
        return (*left)->begin < (*right)->begin ? -1 : 1;
    return ((*left)->end > (*right)->end) - ((*left)->end < (*right)->end);
}

/* The tensors' bytes follow each other from the header to the end of the file. */
static dcp_status check_contiguous(const struct header_parser *parser, uint64_t file_size)
{
    const struct safetensors_header *header = parser->header;
    const struct safetensors_tensor **sorted =
        memory_allocate_array(header->count, sizeof(struct safetensors_tensor *));
    if (sorted == NULL)
        return error_no_memory(header->count * sizeof *sorted, "a safetensors header");
    for (size_t i = 0; i < header->count; i++)
        sorted[i] = &header->tensors[i];
    qsort(sorted, header->count, sizeof *sorted, compare_begin);

    dcp_status status = DCP_OK;
    uint64_t end = header->data_offset;
    for (size_t i = 0; i < header->count && status == DCP_OK; i++) {
        if (sorted[i]->begin != end)
            status =
                dcp_error_set(DCP_ERR_FORMAT,
                              "%s: '%s' begins at byte %" PRIu64 ", %s byte %" PRIu64
                              " where the data before it ends",
                              parser->file_name, sorted[i]->name, sorted[i]->begin,
                              sorted[i]->begin < end ? "overlapping" : "leaving a hole from", end);
        end = sorted[i]->end;
    }
    if (status == DCP_OK && end != file_size)
        status = dcp_error_set(DCP_ERR_FORMAT,
                               "%s: the tensors end at byte %" PRIu64 ", the file at %" PRIu64,
                               parser->file_name, end, file_size);
    memory_release(sorted);
    return status;
}

/* The header's text in the arena. */
static dcp_status read_text(const struct byte_source *source, struct header_parser *parser,
                            const char **text, size_t *size)
{
    unsigned char bytes[LENGTH_SIZE];
    if (source->size < LENGTH_SIZE)
        return dcp_error_set(DCP_ERR_FORMAT, "%s: %" PRIu64 " bytes are no safetensors file",
                             parser->file_name, source->size);
    RETURN_IF_ERROR(byte_source_read(source, 0, bytes, sizeof bytes));
    uint64_t length = load_u64(bytes);
    if (length > HEADER_MAX || length > source->size - LENGTH_SIZE)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "%s: the header claims %" PRIu64 " bytes; the file has %" PRIu64
                             " and the most allowed is %d",
                             parser->file_name, length, source->size, (int)HEADER_MAX);
    char *copy = arena_allocate(&parser->header->arena, (size_t)length);
    if (copy == NULL)
        return error_no_memory((size_t)length, "a safetensors header");
    RETURN_IF_ERROR(byte_source_read(source, LENGTH_SIZE, copy, (size_t)length));
    parser->header->data_offset = LENGTH_SIZE + length;
    *text = copy;
    *size = (size_t)length;
    return DCP_OK;
}

dcp_status safetensors_header_read(struct byte_source source, const char *file_name,
                                   struct safetensors_header *header)
{
    struct header_parser parser = {.file_name = file_name, .header = header};
    struct json_reader json;
    const char *text;
    size_t size;
    char what[WHAT_MAX];

    *header = (struct safetensors_header){0};
    arena_init(&header->arena, 0);
    name_table_init(&header->by_name);
    RETURN_IF_ERROR(read_text(&source, &parser, &text, &size));
    snprintf(what, sizeof what, "%s: header", file_name);
    json_init(&json, what, text, size, &header->arena);
    RETURN_IF_ERROR(read_members(&json, &parser, source.size));
    if (parser.sharding_info.bytes != NULL)
        RETURN_IF_ERROR(read_sharding_info(&parser));
    else
        set_zero_offsets(header);
    return check_contiguous(&parser, source.size);
}

void safetensors_header_free(struct safetensors_header *header)
{
    memory_release(header->tensors);
    name_table_free(&header->by_name);
    arena_free(&header->arena);
    *header = (struct safetensors_header){0};
}
