/* SPDX-License-Identifier: BSD-3-Clause */
#include "format/safetensors/safetensors_index.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "format/json/json_reader.h"
#include "format/metadata/relative_path.h"

enum { TENSORS_FIRST = 64 };

struct index_parser {
    struct json_reader json;
    struct arena *arena;
    struct safetensors_index *index;
    size_t capacity;
};

static dcp_status copy_text(struct index_parser *parser, struct json_text text, const char **copy)
{
    if (memchr(text.bytes, '\0', text.length) != NULL)
        return dcp_error_set(DCP_ERR_FORMAT, "%s: byte %zu: a name contains NUL", parser->json.what,
                             parser->json.position);
    *copy = arena_copy_text(parser->arena, text.bytes, text.length);
    return *copy != NULL ? DCP_OK : error_no_memory(text.length, parser->json.what);
}

static dcp_status add_tensor(struct index_parser *parser, struct json_text name,
                             struct json_text file)
{
    struct safetensors_index *index = parser->index;
    if (index->tensor_count == parser->capacity) {
        size_t capacity = parser->capacity == 0 ? TENSORS_FIRST : 2 * parser->capacity;
        struct safetensors_indexed *grown =
            arena_allocate_array(parser->arena, capacity, sizeof *grown);
        if (grown == NULL)
            return error_no_memory(capacity * sizeof *grown, parser->json.what);
        if (index->tensor_count > 0)
            memcpy(grown, index->tensors, index->tensor_count * sizeof *grown);
        index->tensors = grown;
        parser->capacity = capacity;
    }
    struct safetensors_indexed *tensor = &index->tensors[index->tensor_count++];
    RETURN_IF_ERROR(copy_text(parser, name, &tensor->name));
    RETURN_IF_ERROR(copy_text(parser, file, &tensor->file));
    dcp_status status = relative_path_check(tensor->file, strlen(tensor->file));
    return status == DCP_OK ? DCP_OK : error_prefix(status, "%s", parser->json.what);
}

static dcp_status read_weight_map(struct index_parser *parser)
{
    struct json_reader *json = &parser->json;
    bool more;
    RETURN_IF_ERROR(json_enter_object(json));
    for (;;) {
        struct json_text name, file;
        RETURN_IF_ERROR(json_next_member(json, &more, &name));
        if (!more)
            return DCP_OK;
        RETURN_IF_ERROR(json_string(json, &file));
        RETURN_IF_ERROR(add_tensor(parser, name, file));
    }
}

static dcp_status read_index(struct index_parser *parser)
{
    struct json_reader *json = &parser->json;
    struct json_text key;
    bool more, found = false;
    RETURN_IF_ERROR(json_enter_object(json));
    for (;;) {
        RETURN_IF_ERROR(json_next_member(json, &more, &key));
        if (!more)
            break;
        if (!json_text_is(key, "weight_map")) {
            RETURN_IF_ERROR(json_skip(json));
            continue;
        }
        if (found)
            return dcp_error_set(DCP_ERR_DUPLICATE, "%s: 'weight_map' occurs twice", json->what);
        found = true;
        RETURN_IF_ERROR(read_weight_map(parser));
    }
    if (!found)
        return dcp_error_set(DCP_ERR_FORMAT, "%s: 'weight_map' is missing", json->what);
    return json_end(json);
}

static int compare_tensors(const void *left, const void *right)
{
    const struct safetensors_indexed *a = left, *b = right;
    int order = strcmp(a->name, b->name);
    return order != 0 ? order : strcmp(a->file, b->file);
}

static int compare_texts(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

/* Sorts the tensors, and lists their files. */
static dcp_status list_files(struct index_parser *parser)
{
    struct safetensors_index *index = parser->index;
    size_t count = index->tensor_count, kept = 0;
    index->files = arena_allocate_array(parser->arena, count, sizeof *index->files);
    if (index->files == NULL)
        return error_no_memory(count * sizeof *index->files, parser->json.what);
    if (count > 1)
        qsort(index->tensors, count, sizeof *index->tensors, compare_tensors);
    for (size_t i = 0; i < count; i++) {
        const struct safetensors_indexed *tensor = &index->tensors[i];
        index->files[i] = tensor->file;
        if (i > 0 && strcmp(tensor->name, tensor[-1].name) == 0)
            return dcp_error_set(DCP_ERR_DUPLICATE, "%s: '%s' occurs twice, in %s and in %s",
                                 parser->json.what, tensor->name, tensor[-1].file, tensor->file);
    }
    if (count > 1)
        qsort((void *)index->files, count, sizeof *index->files, compare_texts);
    for (size_t i = 0; i < count; i++)
        if (kept == 0 || strcmp(index->files[i], index->files[kept - 1]) != 0)
            index->files[kept++] = index->files[i];
    index->file_count = kept;
    return DCP_OK;
}

dcp_status safetensors_index_read(const void *text, size_t size, struct arena *arena,
                                  struct safetensors_index *index)
{
    *index = (struct safetensors_index){0};
    struct index_parser parser = {.arena = arena, .index = index};
    json_init(&parser.json, SAFETENSORS_INDEX_NAME, text, size, arena);
    RETURN_IF_ERROR(read_index(&parser));
    return list_files(&parser);
}

static bool is_in_file(const struct metadata *metadata, const struct metadata_entry *entry,
                       const char *file)
{
    for (size_t i = 0; i < entry->piece_count; i++)
        if (strcmp(metadata->files[entry->pieces[i].file], file) == 0)
            return true;
    return false;
}

static int compare_name(const void *name, const void *indexed)
{
    return strcmp(name, ((const struct safetensors_indexed *)indexed)->name);
}

/* transformers would leave out such a tensor without a word. */
static dcp_status check_unlisted(const struct safetensors_index *index,
                                 const struct metadata *metadata)
{
    for (size_t i = 0; i < metadata->count; i++) {
        const struct metadata_entry *entry = &metadata->entries[i];
        if (index->tensor_count == 0 || !bsearch(entry->name, index->tensors, index->tensor_count,
                                                 sizeof *index->tensors, compare_name))
            return dcp_error_set(DCP_ERR_FORMAT,
                                 "%s, which " SAFETENSORS_INDEX_NAME
                                 " names, has \"%s\", which the index does not list",
                                 metadata->files[entry->pieces->file], entry->name);
    }
    return DCP_OK;
}

dcp_status safetensors_index_check(const struct safetensors_index *index,
                                   const struct metadata *metadata)
{
    for (size_t i = 0; i < index->tensor_count; i++) {
        const struct safetensors_indexed *tensor = &index->tensors[i];
        const struct metadata_entry *entry = metadata_find(metadata, tensor->name);
        if (entry == NULL)
            return dcp_error_set(DCP_ERR_FORMAT,
                                 SAFETENSORS_INDEX_NAME
                                 " says that '%s' is in %s, which does not have it",
                                 tensor->name, tensor->file);
        if (!is_in_file(metadata, entry, tensor->file))
            return dcp_error_set(DCP_ERR_FORMAT,
                                 SAFETENSORS_INDEX_NAME " says that '%s' is in %s, but it is in %s",
                                 tensor->name, tensor->file, metadata->files[entry->pieces->file]);
    }
    return check_unlisted(index, metadata);
}
