/* SPDX-License-Identifier: BSD-3-Clause */
/* Fills a state from another one in memory: a load whose checkpoint is a tree. */
#include "base/error.h"
#include "base/sized.h"
#include "checkpoint/load/load_fill.h"
#include "checkpoint/load/load_gather.h"
#include "checkpoint/load/load_report.h"
#include "checkpoint/operation/options.h"
#include "checkpoint/states/state_catalog.h"
#include "dcp/whole_state.h"
#include "format/metadata/metadata_codec.h"
#include "group/group.h"
#include "plan/load/load_plan.h"
#include "state/box.h"
#include "state/copy.h"
#include "state/device_memory.h"

struct setting {
    dcp_load_options options; /* of the load that it is */
    bool broadcast;           /* from rank 0 */
    struct flat_state source_flat;
    struct flat_state flat;
    struct state_catalog mine;       /* of the source, where it is */
    struct metadata received;        /* of rank 0's source */
    const struct metadata *metadata; /* one of the two */
    struct load_plan plan;
    struct load_differences differences; /* this rank's */
    struct load_differences all;
};

static dcp_status check_options(const dcp_distribute_state_options *given, struct setting *setting)
{
    const dcp_load_options load = {.group = given->group,
                                   .timeout_seconds = given->timeout_seconds,
                                   .strictness = given->strictness,
                                   .convert = given->convert};
    setting->broadcast = given->broadcast_from_rank0;
    group_enter(given->group, "dcp_distribute_state");
    return options_check_load(&load, &setting->options);
}

static dcp_status catalog_source(struct setting *setting, dcp_state *source)
{
    if (!source)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the state to set is NULL");
    RETURN_IF_ERROR(flatten_state(source, &setting->source_flat));
    return state_catalog_make(&setting->source_flat, 0, setting->broadcast, &setting->mine);
}

/* Sends rank 0's catalog to all ranks. */
static dcp_status share_catalog(struct setting *setting, dcp_state *source, dcp_status status)
{
    struct dcp_collective call = {"sharing the catalog of rank 0",
                                  setting->options.timeout_seconds};
    struct buffer encoded, received;
    buffer_init(&encoded, 0);
    buffer_init(&received, 0);
    if (status == DCP_OK && dcp_group_rank(setting->options.group) == 0) {
        status = catalog_source(setting, source);
        if (status == DCP_OK)
            status = metadata_encode(&setting->mine.metadata, &encoded);
    }
    status = group_broadcast(setting->options.group, &call, 0, status, encoded.data, encoded.size,
                             &received);
    if (status == DCP_OK)
        status = metadata_decode_part(received.data, received.size, &setting->received);
    setting->metadata = &setting->received;
    buffer_free(&received);
    buffer_free(&encoded);
    return status;
}

static dcp_status plan(struct setting *setting, dcp_state *destination)
{
    if (!destination)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the state to be set is NULL");
    RETURN_IF_ERROR(flatten_state(destination, &setting->flat));
    RETURN_IF_ERROR(flatten_own_objects(destination, &setting->flat));
    RETURN_IF_ERROR(load_plan_make(&setting->flat, setting->metadata, NULL,
                                   setting->options.convert, &setting->plan,
                                   &setting->differences));
    return flatten_check_destinations(&setting->flat);
}

static dcp_status put_object(dcp_state *target, const dcp_state *from)
{
    dcp_state *object;
    struct state_pool *pool = state_pool_new(target->root);
    if (!pool)
        return DCP_ERR_NO_MEMORY;
    dcp_status status = node_copy(pool, from, &object);
    if (status == DCP_OK)
        status = node_replace(target, pool, object);
    if (status != DCP_OK)
        state_pool_free(pool);
    return status;
}

/* Copies a region from one chunk to another, through host memory unless it is there already and
 * dense. */
static dcp_status put_region(const struct metadata_entry *entry,
                             const struct catalog_source *source, struct box region,
                             dcp_dtype dtype, const struct state_chunk *target)
{
    const struct state_chunk *chunk = source->chunk;
    struct box held = {entry->ndim, chunk->offsets, chunk->sizes};
    const void *elements = chunk->data;
    struct buffer bytes;
    dcp_status status = DCP_OK;
    buffer_init(&bytes, 0);
    if (!device_is_host(&chunk->device) ||
        !copy_is_dense(entry->ndim, chunk->sizes, chunk->strides)) {
        held = region;
        status = buffer_reserve(&bytes, (size_t)box_volume(region) * dcp_dtype_size(entry->dtype));
        elements = bytes.data;
        if (status == DCP_OK)
            status = state_catalog_read(source, region, bytes.data);
        if (status != DCP_OK)
            error_prefix(status, "%s", entry->name);
    }
    if (status == DCP_OK)
        status = shard_place_region(entry, held, elements, region, dtype, target);
    buffer_free(&bytes);
    return status;
}

/* From this rank's own source. */
static dcp_status put_own(const struct setting *setting)
{
    for (size_t i = 0; i < setting->plan.count; i++) {
        const struct read_item *item = &setting->plan.items[i];
        const struct metadata_entry *entry = &setting->metadata->entries[item->entry];
        const struct catalog_source *source =
            &setting->mine.sources[entry->pieces[item->piece].offset];
        dcp_state *node = setting->flat.entries[item->wanted].node;
        if (!source->chunk)
            RETURN_IF_ERROR(put_object(node, source->node));
        else
            RETURN_IF_ERROR(put_region(entry, source, item->region, node->as.tensor->dtype,
                                       &node->as.tensor->chunks[item->chunk]));
    }
    return DCP_OK;
}

static dcp_status fill(struct setting *setting, dcp_status status)
{
    struct dcp_collective call = {"setting a state", setting->options.timeout_seconds};
    const struct state_transfer transfer = {
        .options = &setting->options,
        .whole = setting->metadata,
        .mine = dcp_group_rank(setting->options.group) == 0 ? &setting->mine : NULL,
        .flat = &setting->flat,
        .plan = &setting->plan,
    };
    if (status == DCP_OK)
        status = load_allocate(&setting->flat, &setting->plan);
    if (setting->broadcast)
        status = state_transfer_run(&transfer, status);
    else if (status == DCP_OK)
        status = put_own(setting);
    if (status == DCP_OK)
        status = flatten_notify(&setting->flat);
    status = group_agree(setting->options.group, &call, status);
    return status == DCP_OK ? DCP_OK : error_prefix(status, "the state may be partly changed");
}

static dcp_status set(struct setting *setting, dcp_state *destination, dcp_state *source,
                      dcp_status status, dcp_load_report **report)
{
    struct dcp_collective call = {"planning to set a state", setting->options.timeout_seconds};
    dcp_status decoded = DCP_OK;
    bool shared = setting->broadcast;
    if (shared) {
        status = share_catalog(setting, source, status);
    } else if (status == DCP_OK) {
        status = catalog_source(setting, source);
        setting->metadata = &setting->mine.metadata;
    }
    if (status == DCP_OK)
        status = plan(setting, destination);
    if (shared)
        status = load_gather_differences(&setting->options, setting->metadata, NULL, status,
                                         &setting->differences, &setting->all, &decoded);
    else if (status == DCP_OK)
        status = load_differences_merge(&setting->differences, 1, setting->metadata, NULL,
                                        &setting->all);
    if (status == DCP_OK)
        status = decoded;
    if (status == DCP_OK && report)
        status = load_report_new(&setting->all, report);
    if (status == DCP_OK)
        status = load_differences_judge(&setting->all, setting->options.strictness, false,
                                        setting->metadata);
    status = group_agree(setting->options.group, &call, status);
    RETURN_IF_ERROR(status);
    if (!shared || dcp_group_rank(setting->options.group) == 0)
        load_differences_log(&setting->all, setting->options.strictness, setting->metadata,
                             "a state");
    return fill(setting, status);
}

dcp_status dcp_distribute_state_sized(dcp_state *destination, dcp_state *source,
                                      const dcp_distribute_state_options *options,
                                      size_t options_size, dcp_load_report **report)
{
    dcp_distribute_state_options given;
    struct setting setting = {0};
    if (report)
        *report = NULL;
    RETURN_IF_ERROR(
        sized_read(&given, sizeof given, options, options_size, "dcp_distribute_state_options"));
    metadata_init(&setting.received);
    metadata_init(&setting.mine.metadata);
    dcp_status status = check_options(&given, &setting);
    status = set(&setting, destination, source, status, report);
    load_differences_free(&setting.all);
    load_differences_free(&setting.differences);
    load_plan_free(&setting.plan);
    flatten_free(&setting.flat);
    metadata_free(&setting.received);
    state_catalog_free(&setting.mine);
    flatten_free(&setting.source_flat);
    return status;
}
