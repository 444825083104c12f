/* SPDX-License-Identifier: BSD-3-Clause */
#include "convert/dequantize.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"

size_t dequantize_stem(const char *name, const char *suffix)
{
    size_t length = strlen(name), end = strlen(suffix);
    return length > end && strcmp(name + length - end, suffix) == 0 ? length - end : 0;
}

static void take_entry(size_t index, const dcp_entry *entry, dcp_dtype dtype,
                       struct convert_item *item)
{
    *item = (struct convert_item){.name = entry->name,
                                  .entry = index,
                                  .is_tensor = true,
                                  .stored = entry->dtype,
                                  .dtype = dtype == DCP_DTYPE_NONE ? entry->dtype : dtype,
                                  .ndim = entry->ndim,
                                  .shape = entry->global_shape,
                                  .bytes = entry->bytes};
}

bool dequantize_find(struct dequantizing *dequantizing, const char *name, size_t length,
                     const char *suffix, dcp_dtype dtype, struct convert_item *found)
{
    const dcp_checkpoint *checkpoint = dequantizing->source->checkpoint;
    dcp_entry entry;
    size_t index, size = length + strlen(suffix) + 1;
    char *text = memory_allocate(size);
    if (!text) {
        dequantizing->failed = true;
        return false;
    }
    memcpy(text, name, length);
    memcpy(text + length, suffix, size - length);
    dcp_status status = dcp_checkpoint_find(checkpoint, text, &index);
    dequantizing->failed |= status == DCP_ERR_NO_MEMORY;
    bool is_there = status == DCP_OK && dcp_checkpoint_entry(checkpoint, index, &entry) == DCP_OK &&
                    entry.is_tensor;
    if (is_there)
        take_entry(index, &entry, dtype, found);
    memory_release(text);
    return is_there;
}

dcp_status dequantize_new(struct dequantizing *dequantizing, const char *name,
                          const struct convert_item *item, enum quantized_code code,
                          struct quantized_weight **weight)
{
    dcp_entry entry;
    *weight = arena_allocate(&dequantizing->source->arena, sizeof **weight);
    if (!*weight)
        return error_no_memory(sizeof **weight, name);
    RETURN_IF_ERROR(dcp_checkpoint_entry(dequantizing->source->checkpoint, item->entry, &entry));
    **weight = (struct quantized_weight){.recipe = {.read = quantized_weight_read},
                                         .name = name,
                                         .code = code,
                                         .block_rows = 1,
                                         .block_columns = 1,
                                         .computed = DCP_F32};
    take_entry(item->entry, &entry, DCP_DTYPE_NONE, &(*weight)->weight);
    return DCP_OK;
}

/* A text with another end, or itself if it has not the first one. */
static dcp_status change_end(struct arena *arena, const char **text, const char *stored_end,
                             const char *end)
{
    size_t length = dequantize_stem(*text, stored_end), size = length + strlen(end) + 1;
    if (length == 0)
        return DCP_OK;
    char *changed = arena_allocate(arena, size);
    if (!changed)
        return error_no_memory(size, "a name");
    memcpy(changed, *text, length);
    memcpy(changed + length, end, size - length);
    *text = changed;
    return DCP_OK;
}

static dcp_status change_name(struct dequantizing *dequantizing, struct convert_item *item,
                              const char *stored_end, const char *end)
{
    struct arena *arena = &dequantizing->source->arena;
    size_t count = item->path_length, stem = dequantize_stem(item->name, stored_end);
    struct convert_item other;
    if (stem > 0 && dequantize_find(dequantizing, item->name, stem, end, DCP_DTYPE_NONE, &other))
        return dcp_error_set(DCP_ERR_FORMAT, "%s: there is \"%s\" as well, whose name it would get",
                             item->name, other.name);
    dcp_path_part *path = arena_allocate_array(arena, count, sizeof *path);
    if (!path)
        return error_no_memory(count * sizeof *path, "a name");
    memcpy(path, item->path, count * sizeof *path);
    if (path[count - 1].key)
        RETURN_IF_ERROR(change_end(arena, &path[count - 1].key, stored_end, end));
    item->path = path;
    return change_end(arena, &item->name, stored_end, end);
}

dcp_status dequantize_take(struct dequantizing *dequantizing, const struct quantized_weight *weight,
                           struct convert_item *item, int32_t ndim, const int64_t *shape,
                           const char *stored_end, const char *end)
{
    struct convert_source *source = dequantizing->source;
    item->dtype = item->stored = source->options->dequantize;
    uint64_t bytes = dcp_dtype_size(item->dtype);
    for (int32_t d = 0; d < ndim; d++) {
        if (shape[d] < 0 || (shape[d] > 0 && bytes > INT64_MAX / (uint64_t)shape[d]))
            return dcp_error_set(DCP_ERR_SHAPE, "%s: more than 2^63 bytes as %s", weight->name,
                                 dcp_dtype_name(item->dtype));
        bytes *= (uint64_t)shape[d];
    }
    item->ndim = ndim;
    item->shape = arena_copy(&source->arena, shape, (size_t)ndim * sizeof *shape);
    if (!item->shape)
        return error_no_memory((size_t)ndim * sizeof *shape, weight->name);
    item->bytes = bytes;
    item->recipe = &weight->recipe;
    source->dequantized++;
    return end ? change_name(dequantizing, item, stored_end, end) : DCP_OK;
}

static bool is_compressed(const struct convert_source *source)
{
    return source->quantized && strcmp(source->quantized, "compressed-tensors") == 0;
}

static bool is_computed(const struct convert_source *source)
{
    return !source->quantized || is_compressed(source) || strcmp(source->quantized, "fp8") == 0 ||
           strcmp(source->quantized, "mxfp4") == 0;
}

/* A tensor that shows the method: of a name that only it has, or of bytes; NULL: there is none. */
static const char *find_example(const struct convert_source *source)
{
    if (source->quantized_name)
        return source->quantized_name;
    for (size_t i = 0; i < source->count; i++)
        if (source->items[i].is_tensor && dcp_dtype_size(source->items[i].stored) == 1)
            return source->items[i].name;
    return NULL;
}

dcp_status convert_refuse_foreign(const struct convert_source *source, const char *doing)
{
    const char *example = find_example(source);
    if (is_computed(source))
        return DCP_OK;
    return dcp_error_set(DCP_ERR_UNSUPPORTED,
                         "%s: a model quantized by %s%s%s%s, which is copied, not %s", source->path,
                         source->quantized, example ? " (as \"" : "", example ? example : "",
                         example ? "\")" : "", doing);
}

static dcp_status read_config(struct dequantizing *dequantizing)
{
    struct convert_source *source = dequantizing->source;
    const char *text;
    size_t size;
    if (source->form != DCP_FORM_HF)
        return DCP_OK;
    RETURN_IF_ERROR(convert_read_text(source, "config.json", &text, &size));
    if (!text)
        return DCP_OK;
    dcp_status status = quantization_config_read(text, size, &source->arena, &dequantizing->config);
    return status == DCP_OK ? DCP_OK : error_prefix(status, "%s", source->path);
}

static dcp_status dequantize_item(struct dequantizing *dequantizing, struct convert_item *item,
                                  bool *drop)
{
    dcp_entry entry;
    *drop = false;
    if (!item->is_tensor)
        return DCP_OK;
    RETURN_IF_ERROR(dcp_checkpoint_entry(dequantizing->source->checkpoint, item->entry, &entry));
    dcp_status status = is_compressed(dequantizing->source)
                            ? dequantize_compressed(dequantizing, entry.name, item, drop)
                            : dequantize_blocks(dequantizing, entry.name, item, drop);
    return dequantizing->failed ? error_no_memory(strlen(entry.name), "a name") : status;
}

dcp_status convert_dequantize(struct convert_source *source)
{
    struct dequantizing dequantizing = {.source = source};
    size_t kept = 0;
    bool drop;
    RETURN_IF_ERROR(convert_refuse_foreign(source, "dequantized"));
    RETURN_IF_ERROR(read_config(&dequantizing));
    for (size_t i = 0; i < source->count; i++) {
        dcp_status status = dequantize_item(&dequantizing, &source->items[i], &drop);
        if (status != DCP_OK)
            return error_prefix(status, "%s", source->path);
        if (!drop)
            source->items[kept++] = source->items[i];
    }
    source->count = kept;
    return source->dequantized > 0 ? DCP_OK
                                   : dcp_error_set(DCP_ERR_ARGUMENT,
                                                   "%s: no weight there is quantized in a way that "
                                                   "can be computed",
                                                   source->path);
}
