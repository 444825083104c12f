/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies a state, with whole tensors if asked. */
#include "dcp/whole_state.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/sized.h"
#include "checkpoint/operation/options.h"
#include "checkpoint/states/state_catalog.h"
#include "format/metadata/metadata_codec.h"
#include "group/group.h"
#include "state/device_memory.h"
#include "state/node_place.h"

struct getting {
    dcp_gather_state_options options;
    dcp_load_options load; /* options of the load that does it */
    dcp_state *into;
    struct flat_state flat;
    struct state_catalog mine;
    struct metadata whole;
    struct flat_state made; /* nodes by entry of the whole; nothing but these is set */
    struct load_plan plan;  /* of all of them */
};

static dcp_status check_options(const dcp_gather_state_options *given, struct getting *getting)
{
    const dcp_load_options load = {.group = given->group,
                                   .timeout_seconds = given->timeout_seconds};
    getting->options = *given;
    RETURN_IF_ERROR(options_check_load(&load, &getting->load));
    for (size_t i = 0; i < given->parameter_count; i++)
        if (!given->parameters || !given->parameters[i].name)
            return dcp_error_set(DCP_ERR_ARGUMENT, "parameter %zu has no name", i);
    return DCP_OK;
}

static dcp_status leave_out_frozen(struct getting *getting)
{
    const dcp_gather_state_options *options = &getting->options;
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
        const struct state_chunk there = *chunk;
        const struct catalog_source source = {.node = node, .chunk = &there};
        chunk->data = NULL;
        chunk->device = (dcp_device){0};
        RETURN_IF_ERROR(node_chunk_allocate(node, c));
        if (chunk->data)
            RETURN_IF_ERROR(state_catalog_read(
                &source, (struct box){tensor->ndim, chunk->offsets, chunk->sizes}, chunk->data));
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
        return error_no_memory(count * sizeof *parts, "catalogs of all ranks");
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

/* Shares the catalogs of all ranks with every rank. */
static dcp_status share_catalogs(struct getting *getting, dcp_status status)
{
    dcp_group *group = getting->options.group;
    struct dcp_collective call = {"gathering catalogs", getting->load.timeout_seconds};
    struct group_messages messages = {0};
    struct buffer mine, united, received;
    buffer_init(&mine, 0);
    buffer_init(&united, 0);
    buffer_init(&received, 0);
    if (status == DCP_OK)
        status = state_catalog_make(&getting->flat, dcp_group_rank(group), true, &getting->mine);
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
    return group_agree(group, &call, status);
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
    dcp_state *node = node_tensor(pool, &tensor, NULL);
    return node && node_chunk_allocate(node, 0) == DCP_OK ? node : NULL;
}

static dcp_status make_nodes(struct getting *getting)
{
    const struct metadata *whole = &getting->whole;
    getting->made.entries = memory_allocate_zeroed(whole->count, sizeof *getting->made.entries);
    if (!getting->made.entries)
        return error_no_memory(whole->count * sizeof *getting->made.entries, "a whole state");
    getting->made.count = whole->count;
    for (size_t i = 0; i < whole->count; i++) {
        const struct metadata_entry *entry = &whole->entries[i];
        dcp_state *node = make_whole(getting, entry);
        dcp_status status = node ? node_place(getting->into, entry->path, entry->path_length, node)
                                 : error_status();
        if (status != DCP_OK)
            return error_prefix(status, "%s", entry->name);
        getting->made.entries[i] = (struct flat_entry){.name = entry->name, .node = node};
    }
    return DCP_OK;
}

/* Plans every piece into the node of its entry. */
static dcp_status plan_all(struct getting *getting)
{
    const struct metadata *whole = &getting->whole;
    size_t count = 0;
    for (size_t i = 0; i < whole->count; i++)
        count += whole->entries[i].piece_count;
    getting->plan.items = memory_allocate_array(count, sizeof *getting->plan.items);
    if (!getting->plan.items)
        return error_no_memory(count * sizeof *getting->plan.items, "a whole state");
    for (size_t i = 0; i < whole->count; i++) {
        const struct metadata_entry *entry = &whole->entries[i];
        for (uint32_t p = 0; p < entry->piece_count; p++)
            getting->plan.items[getting->plan.count++] =
                (struct read_item){.wanted = (uint32_t)i,
                                   .entry = (uint32_t)i,
                                   .piece = p,
                                   .region = {entry->is_tensor ? entry->ndim : 0,
                                              entry->pieces[p].offsets, entry->pieces[p].sizes}};
    }
    return DCP_OK;
}

static dcp_status gather(struct getting *getting, dcp_status status)
{
    bool receives = !getting->options.cpu_offload || dcp_group_rank(getting->load.group) == 0;
    group_enter(getting->options.group, "dcp_gather_state");
    RETURN_IF_ERROR(share_catalogs(getting, status));
    const struct state_transfer transfer = {
        .options = &getting->load,
        .whole = &getting->whole,
        .mine = &getting->mine,
        .flat = &getting->made,
        .plan = &getting->plan,
    };
    if (receives)
        status = make_nodes(getting);
    if (receives && status == DCP_OK)
        status = plan_all(getting);
    return state_transfer_run(&transfer, status);
}

static dcp_status start(struct getting *getting, dcp_state *source, dcp_state *into)
{
    if (!source || !into || !node_is_dict(into) || into->content || into->root == source->root)
        return dcp_error_set(
            DCP_ERR_ARGUMENT,
            "a state can be copied only from a source into a dict of another tree");
    RETURN_IF_ERROR(dcp_state_status(into));
    RETURN_IF_ERROR(flatten_state(source, &getting->flat));
    return getting->options.ignore_frozen_params ? leave_out_frozen(getting) : DCP_OK;
}

dcp_status dcp_gather_state_sized(dcp_state *source, const dcp_gather_state_options *options,
                                  size_t options_size, dcp_state *into)
{
    dcp_gather_state_options given;
    struct getting getting = {.into = into};
    RETURN_IF_ERROR(
        sized_read(&given, sizeof given, options, options_size, "dcp_gather_state_options"));
    metadata_init(&getting.whole);
    metadata_init(&getting.mine.metadata);
    dcp_status status = check_options(&given, &getting);
    if (status == DCP_OK)
        status = start(&getting, source, into);
    if (getting.options.full_state_dict)
        status = gather(&getting, status);
    else if (status == DCP_OK)
        status = copy_entries(&getting);
    load_plan_free(&getting.plan);
    memory_release(getting.made.entries);
    metadata_free(&getting.whole);
    state_catalog_free(&getting.mine);
    flatten_free(&getting.flat);
    return status;
}
