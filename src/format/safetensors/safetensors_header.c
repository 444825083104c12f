/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/safetensors/safetensors_header.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/memory.h"
#include "format/safetensors/safetensors_parser.h"

enum { LENGTH_SIZE = 8, HEADER_MAX = 100 * 1000 * 1000 };

static dcp_status read_pair(struct json_reader *json, struct safetensors_parser *parser,
                            struct name_table *keys, struct json_text key)
{
    struct json_text value;
    uint64_t unused = 0;
    bool existing;
    RETURN_IF_ERROR(name_table_add(keys, key.bytes, key.length, &unused, &existing));
    if (existing)
        return dcp_error_set(DCP_ERR_DUPLICATE, "%s: '%.*s' occurs twice in __metadata__",
                             json->what, (int)key.length, key.bytes);
    RETURN_IF_ERROR(json_string(json, &value));
    if (json_text_is(key, "DCP_SHARDING_INFO"))
        parser->sharding_info = value;
    return DCP_OK;
}

/* "__metadata__": only strings, of which we use one. */
static dcp_status read_file_metadata(struct json_reader *json, struct safetensors_parser *parser)
{
    struct name_table keys;
    struct json_text key;
    bool more = true;
    if (json_peek(json) == JSON_NULL)
        return json_skip(json);
    name_table_init(&keys);
    dcp_status status = json_enter_object(json);
    while (status == DCP_OK && more) {
        status = json_next_member(json, &more, &key);
        if (status == DCP_OK && more)
            status = read_pair(json, parser, &keys, key);
    }
    name_table_free(&keys);
    return status;
}

static dcp_status read_members(struct json_reader *json, struct safetensors_parser *parser)
{
    bool more, has_metadata = false;
    RETURN_IF_ERROR(json_enter_object(json));
    for (;;) {
        struct json_text key;
        RETURN_IF_ERROR(json_next_member(json, &more, &key));
        if (!more)
            return json_end(json);
        if (!json_text_is(key, "__metadata__")) {
            RETURN_IF_ERROR(safetensors_read_tensor(parser, json, key));
            continue;
        }
        if (has_metadata)
            return dcp_error_set(DCP_ERR_DUPLICATE, "%s: '__metadata__' occurs twice", json->what);
        has_metadata = true;
        RETURN_IF_ERROR(read_file_metadata(json, parser));
    }
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

/* Checks that the tensors' bytes are adjacent, from the header to the end of the file. */
static dcp_status check_contiguous(const struct safetensors_parser *parser)
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
                              sorted[i]->begin < end ? "overlapping" : "leaving a gap from", end);
        end = sorted[i]->end;
    }
    if (status == DCP_OK && end != parser->file_size)
        status = dcp_error_set(DCP_ERR_FORMAT,
                               "%s: the tensors end at byte %" PRIu64 ", the file at %" PRIu64,
                               parser->file_name, end, parser->file_size);
    memory_release(sorted);
    return status;
}

/* The header's text in the arena. */
static dcp_status read_text(const struct byte_source *source, struct safetensors_parser *parser,
                            const char **text, size_t *size)
{
    unsigned char bytes[LENGTH_SIZE];
    if (source->size < LENGTH_SIZE)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "%s: not a safetensors file: it has only %" PRIu64 " bytes",
                             parser->file_name, source->size);
    RETURN_IF_ERROR(byte_source_read(source, 0, bytes, sizeof bytes));
    uint64_t length = load_u64(bytes);
    if (length > HEADER_MAX || length > source->size - LENGTH_SIZE)
        return dcp_error_set(DCP_ERR_FORMAT,
                             "%s: the header claims %" PRIu64 " bytes, but the file has %" PRIu64
                             " and at most %d are allowed",
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
    struct safetensors_parser parser = {
        .file_name = file_name, .file_size = source.size, .header = header};
    struct json_reader json;
    const char *text;
    size_t size;
    char what[SAFETENSORS_WHAT_MAX];

    *header = (struct safetensors_header){0};
    arena_init(&header->arena, 0);
    name_table_init(&header->by_name);
    RETURN_IF_ERROR(read_text(&source, &parser, &text, &size));
    snprintf(what, sizeof what, "%s: header", file_name);
    json_init(&json, what, text, size, &header->arena);
    RETURN_IF_ERROR(read_members(&json, &parser));
    if (parser.sharding_info.bytes != NULL)
        RETURN_IF_ERROR(safetensors_read_sharding_info(&parser));
    else
        set_zero_offsets(header);
    return check_contiguous(&parser);
}

void safetensors_header_free(struct safetensors_header *header)
{
    memory_release(header->tensors);
    name_table_free(&header->by_name);
    arena_free(&header->arena);
    *header = (struct safetensors_header){0};
}
