/* SPDX-License-Identifier: BSD-3-Clause */
/* Chooses what to load for an optimizer from the stored entries. */
#include "state/optimizer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/sized.h"
#include "checkpoint/view/view.h"
#include "state/flatten.h"
#include "state/node_place.h"

/* A stored entry below the prefix, and its path from there. */
struct wanted_entry {
    const struct metadata_entry *entry;
    dcp_path_part *path;
    size_t length;
    const struct state_tensor
        *model; /* the tensor of its parameter; NULL: not the state of a parameter */
};

struct preparation {
    struct optimizer_source source; /* for the parameters' names alone */
    const struct metadata *metadata;
    struct flat_state model;
    const struct state_tensor **tensors; /* of the parameters, in the model */
    bool *has_state;                     /* by parameter */
    struct wanted_entry *wanted;
    size_t count;
    bool some_stored;
    struct arena arena;
};

static dcp_status find_tensors(struct preparation *preparation)
{
    for (size_t i = 0; i < preparation->model.count; i++) {
        const struct flat_entry *entry = &preparation->model.entries[i];
        uint64_t position;
        if (name_table_find(&preparation->source.names, entry->name, strlen(entry->name),
                            &position) &&
            entry->node->kind == DCP_KIND_TENSOR)
            preparation->tensors[position] = entry->node->as.tensor;
    }
    const dcp_optimizer_options *options = preparation->source.options;
    for (size_t p = 0; p < options->parameter_count; p++)
        if (!preparation->tensors[p] && !options->parameters[p].frozen)
            return dcp_error_set(DCP_ERR_MISSING_KEY,
                                 "the parameter \"%s\" is not a tensor of the model",
                                 options->parameters[p].name);
    return DCP_OK;
}

static size_t part_length(const dcp_path_part *part)
{
    char text[24];
    return part->key ? strlen(part->key)
                     : (size_t)snprintf(text, sizeof text, "%" PRId64, part->position);
}

/* Finds the path of an entry below the prefix; its name begins with the prefix and a dot. If the
 * prefix ends inside a key, the rest of the key is the first part. */
static dcp_status cut_path(struct preparation *preparation, const struct metadata_entry *entry,
                           size_t prefix_length, struct wanted_entry *wanted)
{
    size_t done = 0, next = 0;
    dcp_path_part *path =
        arena_allocate_array(&preparation->arena, entry->path_length + 1, sizeof *path);
    if (!path)
        return error_no_memory((entry->path_length + 1) * sizeof *path, "a path");
    *wanted = (struct wanted_entry){.entry = entry, .path = path};
    while (prefix_length > 0 && next < entry->path_length && done < prefix_length) {
        size_t length = part_length(&entry->path[next]);
        if (done + length > prefix_length && entry->path[next].key)
            path[wanted->length++] =
                (dcp_path_part){.key = entry->path[next].key + (prefix_length - done) + 1};
        done += length + 1;
        next++;
    }
    for (; next < entry->path_length; next++)
        path[wanted->length++] = entry->path[next];
    return DCP_OK;
}

/* Keys that are ints are stored as text. */
static bool parse_position(const char *text, uint64_t *position)
{
    size_t length = strspn(text, "0123456789");
    if (length == 0 || length > 18 || text[length] != '\0')
        return false;
    *position = strtoull(text, NULL, 10);
    return true;
}

/* Finds the parameter that an entry is the state of, if it is one of ours. */
static bool find_state(const struct preparation *preparation, const struct wanted_entry *wanted,
                       size_t *position)
{
    const struct optimizer_source *source = &preparation->source;
    const char *first = wanted->path[0].key, *rest;
    uint64_t value;
    if (strcmp(first, OPTIMIZER_STATE) != 0)
        return strncmp(first, OPTIMIZER_STATE ".", strlen(OPTIMIZER_STATE ".")) == 0 &&
               optimizer_find_parameter(source, first + strlen(OPTIMIZER_STATE "."), position,
                                        &rest);
    if (wanted->length < 3)
        return false;
    const char *parameter = wanted->path[1].key;
    if (!parameter || (!name_table_find(&source->names, parameter, strlen(parameter), &value) &&
                       !parse_position(parameter, &value)))
        return false;
    *position = (size_t)value;
    return value < source->options->parameter_count;
}

static bool is_setting(const struct preparation *preparation, const struct wanted_entry *wanted)
{
    const char *first = wanted->path[0].key, *rest;
    size_t position;
    if (strcmp(first, OPTIMIZER_GROUPS) == 0)
        return wanted->length > 1;
    return strncmp(first, OPTIMIZER_GROUPS ".", strlen(OPTIMIZER_GROUPS ".")) == 0 &&
           optimizer_find_parameter(&preparation->source, first + strlen(OPTIMIZER_GROUPS "."),
                                    &position, &rest);
}

static dcp_status learn_name(struct preparation *preparation, const struct wanted_entry *wanted)
{
    const char *first = wanted->path[0].key;
    size_t length = strlen(OPTIMIZER_GROUPS ".");
    return strncmp(first, OPTIMIZER_GROUPS ".", length) == 0
               ? optimizer_learn_name(&preparation->source, first + length)
               : DCP_OK;
}

/* Keeps an entry, in its place, if it belongs to this optimizer. */
static dcp_status choose_entry(struct preparation *preparation, struct wanted_entry entry)
{
    struct wanted_entry *wanted = &preparation->wanted[preparation->count];
    size_t position;
    *wanted = entry;
    if (find_state(preparation, wanted, &position)) {
        if (preparation->source.options->parameters[position].frozen)
            return DCP_OK;
        wanted->model = preparation->tensors[position];
        preparation->has_state[position] = true;
        preparation->some_stored = true;
        preparation->count++;
    } else if (is_setting(preparation, wanted)) {
        preparation->count++;
    }
    return DCP_OK;
}

static dcp_status choose(struct preparation *preparation, const char *prefix)
{
    size_t length = strlen(prefix);
    size_t below = 0;
    for (size_t i = 0; i < preparation->metadata->count; i++) {
        const struct metadata_entry *entry = &preparation->metadata->entries[i];
        struct wanted_entry *wanted = &preparation->wanted[below];
        if (length > 0 && (strncmp(entry->name, prefix, length) != 0 || entry->name[length] != '.'))
            continue;
        RETURN_IF_ERROR(cut_path(preparation, entry, length, wanted));
        if (wanted->length == 0 || !wanted->path[0].key)
            continue;
        RETURN_IF_ERROR(learn_name(preparation, wanted));
        below++;
    }
    for (size_t i = 0; i < below; i++)
        RETURN_IF_ERROR(choose_entry(preparation, preparation->wanted[i]));
    if (preparation->count == 0)
        return dcp_error_set(DCP_ERR_MISSING_KEY,
                             "the checkpoint has no state of this optimizer under \"%s\"", prefix);
    const dcp_optimizer_options *options = preparation->source.options;
    for (size_t p = 0; p < options->parameter_count; p++)
        if (preparation->some_stored && !options->partial && !options->parameters[p].frozen &&
            !preparation->has_state[p])
            return dcp_error_set(DCP_ERR_MISSING_KEY,
                                 "the checkpoint has no optimizer state of the parameter \"%s\"",
                                 options->parameters[p].name);
    return DCP_OK;
}

static int compare_parts(const dcp_path_part *left, const dcp_path_part *right)
{
    if (!left->key != !right->key)
        return left->key ? 1 : -1;
    if (left->key)
        return strcmp(left->key, right->key);
    return left->position < right->position ? -1 : left->position > right->position;
}

/* Elements of lists in their order. */
static int compare_wanted(const void *left, const void *right)
{
    const struct wanted_entry *a = left, *b = right;
    for (size_t i = 0; i < a->length && i < b->length; i++) {
        int order = compare_parts(&a->path[i], &b->path[i]);
        if (order != 0)
            return order;
    }
    return a->length < b->length ? -1 : a->length > b->length;
}

/* ---- building ---- */

/* A tensor of the parameter's shape is divided as the parameter is; others are loaded whole. */
static dcp_state *make_tensor(struct state_pool *pool, const struct wanted_entry *wanted)
{
    const struct metadata_entry *entry = wanted->entry;
    const struct state_tensor *model = wanted->model;
    size_t bytes = (size_t)entry->ndim * sizeof(int64_t);
    dcp_tensor tensor = {.dtype = entry->dtype, .ndim = entry->ndim};
    if (bytes > 0)
        memcpy(tensor.global_shape, entry->global_shape, bytes);
    if (!model || model->ndim != entry->ndim || entry->ndim == 0 ||
        memcmp(model->global_shape, entry->global_shape, bytes) != 0)
        return node_tensor(pool, &tensor, NULL);
    dcp_state *node = node_tensor_empty(pool, &tensor);
    tensor.sharded = true;
    for (size_t c = 0; c < model->chunk_count && node; c++) {
        memcpy(tensor.offsets, model->chunks[c].offsets, bytes);
        memcpy(tensor.sizes, model->chunks[c].sizes, bytes);
        tensor.device = model->chunks[c].device;
        if (node_add_chunk(node, &tensor) != DCP_OK)
            node = NULL;
    }
    return node;
}

static dcp_status build_entry(dcp_state *into, const struct wanted_entry *wanted)
{
    dcp_state *leaf = wanted->entry->is_tensor ? make_tensor(into->pool, wanted)
                                               : node_new(into->pool, DCP_KIND_NONE);
    if (!leaf)
        return error_status();
    dcp_status status = node_place(into, wanted->path, wanted->length, leaf);
    return status == DCP_OK ? DCP_OK : error_prefix(status, "%s", wanted->entry->name);
}

static dcp_status prepare(struct preparation *preparation, const char *prefix, dcp_state *model,
                          dcp_state *into)
{
    size_t parameters = preparation->source.options->parameter_count,
           entries = preparation->metadata->count;
    RETURN_IF_ERROR(flatten_state(model, &preparation->model));
    preparation->tensors = memory_allocate_zeroed(parameters, sizeof *preparation->tensors);
    preparation->has_state = memory_allocate_zeroed(parameters, sizeof *preparation->has_state);
    preparation->wanted = memory_allocate_array(entries, sizeof *preparation->wanted);
    if (!preparation->tensors || !preparation->has_state || !preparation->wanted)
        return error_no_memory(entries * sizeof *preparation->wanted, "an optimizer's state");
    RETURN_IF_ERROR(find_tensors(preparation));
    RETURN_IF_ERROR(choose(preparation, prefix));
    qsort(preparation->wanted, preparation->count, sizeof *preparation->wanted, compare_wanted);
    for (size_t i = 0; i < preparation->count; i++)
        RETURN_IF_ERROR(build_entry(into, &preparation->wanted[i]));
    return DCP_OK;
}

dcp_status dcp_optimizer_prepare_sized(const dcp_checkpoint *checkpoint, const char *prefix,
                                       dcp_state *model, const dcp_optimizer_options *optimizer,
                                       size_t options_size, dcp_state *into)
{
    dcp_optimizer_options options;
    RETURN_IF_ERROR(
        sized_read(&options, sizeof options, optimizer, options_size, "dcp_optimizer_options"));
    if (!checkpoint || !prefix || !model || !into || !node_is_dict(into) ||
        dcp_state_count(into) > 0)
        return dcp_error_set(DCP_ERR_ARGUMENT, "an optimizer's state can be prepared only with a "
                                               "checkpoint, a prefix, a model and an empty dict");
    RETURN_IF_ERROR(dcp_state_status(into));
    struct preparation preparation = {.metadata = checkpoint->metadata};
    arena_init(&preparation.arena, 0);
    dcp_status status = optimizer_source_init(&preparation.source, &options);
    if (status == DCP_OK)
        status = prepare(&preparation, prefix, model, into);
    memory_release(preparation.wanted);
    memory_release(preparation.has_state);
    memory_release(preparation.tensors);
    flatten_free(&preparation.model);
    optimizer_source_free(&preparation.source);
    arena_free(&preparation.arena);
    return status;
}
