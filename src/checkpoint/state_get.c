/* SPDX-License-Identifier: BSD-3-Clause */
/* A copy of a state, its tensors whole if that is asked for. */
#include "dcp/state_dict.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/sized.h"
#include "checkpoint/options.h"
#include "checkpoint/state_catalog.h"
#include "format/item.h"
#include "format/metadata_codec.h"
#include "group/group.h"
#include "state/device_memory.h"
#include "state/node_place.h"

struct getting {
    dcp_state_get_options options;
    dcp_state *into;
    struct flat_state flat;
    struct state_catalog mine;
    struct metadata whole;
    dcp_state **nodes; /* by entry of the whole */
};

static dcp_status check_options(const dcp_state_get_options *given, dcp_state_get_options *options)
{
    *options = *given;
    if (options->timeout_seconds == 0)
        options->timeout_seconds = OPTIONS_DEFAULT_TIMEOUT_SECONDS;
    if (!isfinite(options->timeout_seconds) || options->timeout_seconds < 0) {
        options->timeout_seconds = OPTIONS_DEFAULT_TIMEOUT_SECONDS;
        return dcp_error_set(DCP_ERR_ARGUMENT, "timeout_seconds is %g, expected a positive number",
                             given->timeout_seconds);
    }
    for (size_t i = 0; i < options->parameter_count; i++)
        if (!options->parameters || !options->parameters[i].name)
            return dcp_error_set(DCP_ERR_ARGUMENT, "parameter %zu has no name", i);
    return DCP_OK;
}

static dcp_status leave_out_frozen(struct getting *getting)
{
    const dcp_state_get_options *options = &getting->options;
    struct name_table names;
    dcp_status status = DCP_OK;
    name_table_init(&names);
    for (size_t i = 0; i < options->parameter_count && status == DCP_OK; i++) {
        const char *name = options->parameters[i].name;
        uint64_t value = i;
        bool existing;
        if (options->parameters[i].frozen)
            status = name_table_add(&names, name, strlen(name), &value, &existing);
    }
    for (size_t i = 0; i < getting->flat.count && status == DCP_OK; i++) {
        struct flat_entry *entry = &getting->flat.entries[i];
        uint64_t value;
        entry->left_out = name_table_find(&names, entry->name, strlen(entry->name), &value);
    }
    name_table_free(&names);
    return status;
}

/* ---- as it is ---- */

/* Chunks on devices get host memory of their own. */
static dcp_status bring_to_host(dcp_state *node)
{
    struct state_tensor *tensor = node->as.tensor;
    for (size_t c = 0; c < tensor->chunk_count; c++) {
        struct state_chunk *chunk = &tensor->chunks[c];
        if (device_is_host(&chunk->device) || !chunk->data)
            continue;
        struct state_chunk there = *chunk;
        struct catalog_source source = {node, &there};
        struct buffer bytes;
        const void *elements;
        size_t size;
        buffer_init(&bytes, 0);
        dcp_status status = state_catalog_elements(&source, &bytes, &elements, &size);
        chunk->data = NULL;
        chunk->device = (dcp_device){0};
        if (status == DCP_OK)
            status = node_chunk_allocate(node, c);
        if (status == DCP_OK && chunk->data)
            memcpy(chunk->data, elements, size);
        buffer_free(&bytes);
        RETURN_IF_ERROR(status);
    }
    return DCP_OK;
}

static dcp_status copy_entries(struct getting *getting)
{
    struct state_pool *pool = getting->into->pool;
    for (size_t i = 0; i < getting->flat.count; i++) {
        const struct flat_entry *entry = &getting->flat.entries[i];
        dcp_state *copy;
        if (entry->left_out)
            continue;
        RETURN_IF_ERROR(node_copy(pool, entry->node, &copy));
        if (copy->kind == DCP_KIND_TENSOR && getting->options.cpu_offload)
            RETURN_IF_ERROR(bring_to_host(copy));
        RETURN_IF_ERROR(node_place(getting->into, entry->path, entry->path_length, copy));
    }
    return DCP_OK;
}

/* ---- whole ---- */

static dcp_status decode_parts(const struct group_messages *messages, struct metadata *parts)
{
    for (int r = 0; r < messages->count; r++) {
        dcp_status status =
            metadata_decode_part(messages->bytes + messages->offsets[r],
                                 messages->offsets[r + 1] - messages->offsets[r], &parts[r]);
        if (status != DCP_OK)
            return error_prefix(status, "rank %d", r);
    }
    return DCP_OK;
}

static dcp_status unite(const struct group_messages *messages, struct buffer *united)
{
    size_t count = (size_t)messages->count;
    struct metadata whole, *parts = memory_allocate_array(count, sizeof *parts);
    if (!parts)
        return error_no_memory(count * sizeof *parts, "what ranks hold");
    metadata_init(&whole);
    for (size_t r = 0; r < count; r++)
        metadata_init(&parts[r]);
    dcp_status status = decode_parts(messages, parts);
    if (status == DCP_OK)
        status = metadata_unite(parts, count, &whole);
    if (status == DCP_OK)
        status = metadata_encode(&whole, united);
    metadata_free(&whole);
    for (size_t r = 0; r < count; r++)
        metadata_free(&parts[r]);
    memory_release(parts);
    return status;
}

/* Every rank learns what all ranks hold together. */
static dcp_status share_catalogs(struct getting *getting, dcp_status status)
{
    dcp_group *group = getting->options.group;
    struct dcp_collective call = {"gathering what ranks hold", getting->options.timeout_seconds};
    struct group_messages messages = {0};
    struct buffer mine, united, received;
    buffer_init(&mine, 0);
    buffer_init(&united, 0);
    buffer_init(&received, 0);
    if (status == DCP_OK)
        status = state_catalog_make(&getting->flat, dcp_group_rank(group), &getting->mine);
    if (status == DCP_OK)
        status = metadata_encode(&getting->mine.metadata, &mine);
    status = group_gather(group, &call, 0, status, mine.data, mine.size, &messages);
    if (status == DCP_OK && dcp_group_rank(group) == 0)
        status = unite(&messages, &united);
    status = group_broadcast(group, &call, 0, status, united.data, united.size, &received);
    if (status == DCP_OK)
        status = metadata_decode(received.data, received.size, &getting->whole);
    group_messages_free(&messages);
    buffer_free(&received);
    buffer_free(&united);
    buffer_free(&mine);
    return status;
}

/* The device that this rank's own chunk is on. */
static dcp_device device_of(const struct getting *getting, const char *name)
{
    const struct metadata_entry *own = metadata_find(&getting->mine.metadata, name);
    if (!own || own->piece_count == 0 || getting->options.cpu_offload)
        return (dcp_device){0};
    return getting->mine.sources[own->pieces[0].offset].chunk->device;
}

static dcp_state *make_whole(const struct getting *getting, const struct metadata_entry *entry)
{
    struct state_pool *pool = getting->into->pool;
    if (!entry->is_tensor)
        return node_new(pool, DCP_KIND_NONE);
    dcp_tensor tensor = {.dtype = entry->dtype,
                         .ndim = entry->ndim,
                         .requires_grad = entry->requires_grad,
                         .device = device_of(getting, entry->name)};
    if (entry->ndim > 0)
        memcpy(tensor.global_shape, entry->global_shape,
               (size_t)entry->ndim * sizeof *entry->global_shape);
    dcp_state *node = node_tensor(pool, &tensor, false);
    return node && node_chunk_allocate(node, 0) == DCP_OK ? node : NULL;
}

static dcp_status told(void)
{
    struct error_story story;
    error_save(&story);
    return story.status;
}

static dcp_status make_nodes(struct getting *getting)
{
    const struct metadata *whole = &getting->whole;
    getting->nodes = memory_allocate_zeroed(whole->count, sizeof *getting->nodes);
    if (!getting->nodes)
        return error_no_memory(whole->count * sizeof *getting->nodes, "a whole state");
    for (size_t i = 0; i < whole->count; i++) {
        const struct metadata_entry *entry = &whole->entries[i];
        dcp_state *node = make_whole(getting, entry);
        dcp_status status =
            node ? node_place(getting->into, entry->path, entry->path_length, node) : told();
        if (status != DCP_OK)
            return error_prefix(status, "%s", entry->name);
        getting->nodes[i] = node;
    }
    return DCP_OK;
}

static dcp_status receive(void *context, size_t index, size_t piece, const void *bytes, size_t size)
{
    struct getting *getting = context;
    const struct metadata_entry *entry = &getting->whole.entries[index];
    const struct metadata_piece *part = &entry->pieces[piece];
    dcp_state *node = getting->nodes[index], *object;
    if (entry->is_tensor)
        return state_piece_put(entry, part, bytes, size,
                               (struct box){entry->ndim, part->offsets, part->sizes}, entry->dtype,
                               &node->as.tensor->chunks[0]);
    struct state_pool *pool = state_pool_new(node->root);
    if (!pool)
        return DCP_ERR_NO_MEMORY;
    dcp_status status = item_read_object(byte_source_memory(bytes, size), pool, &object);
    if (status == DCP_OK)
        status = node_replace(node, pool, object);
    if (status != DCP_OK)
        state_pool_free(pool);
    return status;
}

static dcp_status gather(struct getting *getting, dcp_status status)
{
    bool receives = !getting->options.cpu_offload || dcp_group_rank(getting->options.group) == 0;
    RETURN_IF_ERROR(share_catalogs(getting, status));
    struct state_transfer transfer = {
        .group = getting->options.group,
        .timeout_seconds = getting->options.timeout_seconds,
        .whole = &getting->whole,
        .mine = &getting->mine,
        .from_all = true,
        .to_all = !getting->options.cpu_offload,
        .receive = receive,
        .context = getting,
    };
    return state_transfer_run(&transfer, receives ? make_nodes(getting) : DCP_OK);
}

static dcp_status start(struct getting *getting, dcp_state *source, dcp_state *into)
{
    if (!source || !into || !node_is_dict(into) || into->content || into->root == source->root)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "getting a state needs a source and a dict of another tree");
    RETURN_IF_ERROR(dcp_state_status(into));
    RETURN_IF_ERROR(flatten_state(source, &getting->flat));
    return getting->options.ignore_frozen_params ? leave_out_frozen(getting) : DCP_OK;
}

dcp_status dcp_state_get_dict_sized(dcp_state *source, const dcp_state_get_options *options,
                                    size_t options_size, dcp_state *into)
{
    dcp_state_get_options given;
    struct getting getting = {.into = into};
    RETURN_IF_ERROR(
        sized_read(&given, sizeof given, options, options_size, "dcp_state_get_options"));
    metadata_init(&getting.whole);
    metadata_init(&getting.mine.metadata);
    dcp_status status = check_options(&given, &getting.options);
    if (status == DCP_OK)
        status = start(&getting, source, into);
    if (getting.options.full_state_dict)
        status = gather(&getting, status);
    else if (status == DCP_OK)
        status = copy_entries(&getting);
    memory_release(getting.nodes);
    metadata_free(&getting.whole);
    state_catalog_free(&getting.mine);
    flatten_free(&getting.flat);
    return status;
}
