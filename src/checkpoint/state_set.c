/* SPDX-License-Identifier: BSD-3-Clause */
/* Filling a state from another one in memory: a load whose checkpoint is a tree. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/sized.h"
#include "checkpoint/load_fill.h"
#include "checkpoint/load_report.h"
#include "checkpoint/options.h"
#include "checkpoint/state_catalog.h"
#include "dcp/state_dict.h"
#include "format/item.h"
#include "format/metadata_codec.h"
#include "group/group.h"
#include "plan/load_plan.h"

struct setting {
    dcp_state_set_options options;
    struct flat_state source_flat;
    struct flat_state flat;
    struct state_catalog mine;       /* of the source, where it is */
    struct metadata received;        /* of rank 0's source */
    const struct metadata *metadata; /* one of the two */
    struct load_plan plan;
    struct load_differences differences; /* this rank's */
    struct load_differences all;
    size_t next; /* item of the plan: pieces come in its order */
};

static dcp_status check_options(const dcp_state_set_options *given, dcp_state_set_options *options)
{
    *options = *given;
    if (options->timeout_seconds == 0)
        options->timeout_seconds = OPTIONS_DEFAULT_TIMEOUT_SECONDS;
    if (!isfinite(options->timeout_seconds) || options->timeout_seconds < 0) {
        options->timeout_seconds = OPTIONS_DEFAULT_TIMEOUT_SECONDS;
        return dcp_error_set(DCP_ERR_ARGUMENT, "timeout_seconds is %g, expected a positive number",
                             given->timeout_seconds);
    }
    if (!strictness_is_known(options->strictness))
        return dcp_error_set(DCP_ERR_ARGUMENT, "strictness is %d, which is none of its values",
                             (int)options->strictness);
    return DCP_OK;
}

static dcp_status catalog_source(struct setting *setting, dcp_state *source)
{
    if (!source)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the state to set is NULL");
    RETURN_IF_ERROR(flatten_state(source, &setting->source_flat));
    return state_catalog_make(&setting->source_flat, 0, &setting->mine);
}

/* Rank 0's catalog to all ranks. */
static dcp_status share_catalog(struct setting *setting, dcp_state *source, dcp_status status)
{
    struct dcp_collective call = {"sharing what rank 0 holds", setting->options.timeout_seconds};
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
    RETURN_IF_ERROR(load_plan_make(&setting->flat, setting->metadata, NULL,
                                   setting->options.convert, &setting->plan,
                                   &setting->differences));
    return flatten_check_destinations(&setting->flat);
}

static dcp_status merge(const struct setting *setting, const struct group_messages *messages,
                        struct buffer *merged)
{
    size_t count = (size_t)messages->count;
    struct load_differences all = {0}, *ranks = memory_allocate_zeroed(count, sizeof *ranks);
    if (!ranks)
        return error_no_memory(count * sizeof *ranks, "differences of all ranks");
    dcp_status status = DCP_OK;
    for (size_t r = 0; r < count && status == DCP_OK; r++)
        status =
            load_differences_decode(messages->bytes + messages->offsets[r],
                                    messages->offsets[r + 1] - messages->offsets[r], &ranks[r]);
    if (status == DCP_OK)
        status = load_differences_merge(ranks, messages->count, setting->metadata, NULL, &all);
    if (status == DCP_OK)
        status = load_differences_encode(&all, merged);
    load_differences_free(&all);
    for (size_t r = 0; r < count; r++)
        load_differences_free(&ranks[r]);
    memory_release(ranks);
    return status != DCP_OK ? status : buffer_status(merged);
}

/* A name is unexpected if no rank wants it: the ranks' differences meet at rank 0. */
static dcp_status share_differences(struct setting *setting, dcp_status status)
{
    dcp_group *group = setting->options.group;
    struct dcp_collective call = {"comparing names", setting->options.timeout_seconds};
    struct group_messages messages = {0};
    struct buffer mine, merged, received;
    buffer_init(&mine, 0);
    buffer_init(&merged, 0);
    buffer_init(&received, 0);
    if (status == DCP_OK)
        status = load_differences_encode(&setting->differences, &mine);
    if (status == DCP_OK)
        status = buffer_status(&mine);
    status = group_gather(group, &call, 0, status, mine.data, mine.size, &messages);
    if (status == DCP_OK && dcp_group_rank(group) == 0)
        status = merge(setting, &messages, &merged);
    status = group_broadcast(group, &call, 0, status, merged.data, merged.size, &received);
    if (status == DCP_OK)
        status = load_differences_decode(received.data, received.size, &setting->all);
    group_messages_free(&messages);
    buffer_free(&received);
    buffer_free(&merged);
    buffer_free(&mine);
    return status;
}

static dcp_status put_object(dcp_state *target, const void *bytes, size_t size,
                             const dcp_state *local)
{
    dcp_state *object;
    struct state_pool *pool = state_pool_new(target->root);
    if (!pool)
        return DCP_ERR_NO_MEMORY;
    dcp_status status = local ? node_copy(pool, local, &object)
                              : item_read_object(byte_source_memory(bytes, size), pool, &object);
    if (status == DCP_OK)
        status = node_replace(target, pool, object);
    if (status != DCP_OK)
        state_pool_free(pool);
    return status;
}

/* One piece to every place that wants it. */
static dcp_status put_piece(struct setting *setting, size_t index, size_t piece, const void *bytes,
                            size_t size, const dcp_state *local)
{
    const struct metadata_entry *entry = &setting->metadata->entries[index];
    const struct load_plan *all = &setting->plan;
    for (; setting->next < all->count && all->items[setting->next].entry == index &&
           all->items[setting->next].piece == piece;
         setting->next++) {
        const struct read_item *item = &all->items[setting->next];
        dcp_state *node = setting->flat.entries[item->wanted].node;
        if (entry->is_tensor)
            RETURN_IF_ERROR(state_piece_put(entry, &entry->pieces[piece], bytes, size, item->region,
                                            node->as.tensor->dtype,
                                            &node->as.tensor->chunks[item->chunk]));
        else
            RETURN_IF_ERROR(put_object(node, bytes, size, local));
    }
    return DCP_OK;
}

static dcp_status receive(void *context, size_t index, size_t piece, const void *bytes, size_t size)
{
    return put_piece(context, index, piece, bytes, size, NULL);
}

/* From this rank's own source. */
static dcp_status put_own(struct setting *setting)
{
    while (setting->next < setting->plan.count) {
        const struct read_item *item = &setting->plan.items[setting->next];
        const struct metadata_entry *entry = &setting->metadata->entries[item->entry];
        const struct catalog_source *source =
            &setting->mine.sources[entry->pieces[item->piece].offset];
        struct buffer bytes;
        const void *elements = NULL;
        size_t size = 0;
        buffer_init(&bytes, 0);
        dcp_status status =
            source->chunk ? state_catalog_elements(source, &bytes, &elements, &size) : DCP_OK;
        if (status == DCP_OK)
            status = put_piece(setting, item->entry, item->piece, elements, size,
                               source->chunk ? NULL : source->node);
        buffer_free(&bytes);
        if (status != DCP_OK)
            return error_prefix(status, "%s", entry->name);
    }
    return DCP_OK;
}

static dcp_status fill(struct setting *setting, dcp_status status)
{
    struct dcp_collective call = {"setting a state", setting->options.timeout_seconds};
    if (status == DCP_OK)
        status = load_allocate(&setting->flat, &setting->plan);
    if (setting->options.broadcast_from_rank0) {
        struct state_transfer transfer = {
            .group = setting->options.group,
            .timeout_seconds = setting->options.timeout_seconds,
            .whole = setting->metadata,
            .mine = dcp_group_rank(setting->options.group) == 0 ? &setting->mine : NULL,
            .to_all = true,
            .receive = receive,
            .context = setting,
        };
        status = state_transfer_run(&transfer, status);
    } else if (status == DCP_OK) {
        status = put_own(setting);
    }
    if (status == DCP_OK && setting->next != setting->plan.count)
        status = dcp_error_set(DCP_ERR_INTERNAL, "%zu of %zu pieces came", setting->next,
                               setting->plan.count);
    if (status == DCP_OK)
        status = flatten_notify(&setting->flat);
    status = group_agree(setting->options.group, &call, status);
    return status == DCP_OK ? DCP_OK : error_prefix(status, "the state may be partly changed");
}

static dcp_status set(struct setting *setting, dcp_state *destination, dcp_state *source,
                      dcp_status status, dcp_load_report **report)
{
    struct dcp_collective call = {"planning to set a state", setting->options.timeout_seconds};
    bool shared = setting->options.broadcast_from_rank0;
    if (shared) {
        status = share_catalog(setting, source, status);
    } else if (status == DCP_OK) {
        status = catalog_source(setting, source);
        setting->metadata = &setting->mine.metadata;
    }
    if (status == DCP_OK)
        status = plan(setting, destination);
    if (shared)
        status = share_differences(setting, status);
    else if (status == DCP_OK)
        status = load_differences_merge(&setting->differences, 1, setting->metadata, NULL,
                                        &setting->all);
    if (status == DCP_OK && report)
        status = load_report_new(&setting->all, report);
    if (status == DCP_OK)
        status =
            load_differences_judge(&setting->all, setting->options.strictness, setting->metadata);
    status = group_agree(setting->options.group, &call, status);
    RETURN_IF_ERROR(status);
    if (!shared || dcp_group_rank(setting->options.group) == 0)
        load_differences_log(&setting->all, setting->options.strictness, setting->metadata,
                             "a state");
    return fill(setting, status);
}

dcp_status dcp_state_set_dict_sized(dcp_state *destination, dcp_state *source,
                                    const dcp_state_set_options *options, size_t options_size,
                                    dcp_load_report **report)
{
    dcp_state_set_options given;
    struct setting setting = {0};
    if (report)
        *report = NULL;
    RETURN_IF_ERROR(
        sized_read(&given, sizeof given, options, options_size, "dcp_state_set_options"));
    metadata_init(&setting.received);
    metadata_init(&setting.mine.metadata);
    dcp_status status = check_options(&given, &setting.options);
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
