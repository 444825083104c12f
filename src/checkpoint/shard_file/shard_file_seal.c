/* SPDX-License-Identifier: BSD-3-Clause */
/* Seals a shard file: lays out and writes its items as a save does. */
#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/io_priority.h"
#include "base/memory.h"
#include "base/memory_available.h"
#include "checkpoint/save/save_page_cache.h"
#include "checkpoint/shard_file/shard_file_writer.h"
#include "format/metadata/piece_table.h"
#include "format/streams/stream.h"
#include "plan/save/save_layout.h"
#include "plan/save/save_plan.h"

/* ---- what was added must fit together ---- */

static dcp_status compare_items(const struct write_item *first, const struct write_item *other)
{
    if (!first->is_tensor && !other->is_tensor)
        return dcp_error_set(DCP_ERR_DUPLICATE, "\"%s\": the object was added twice", first->name);
    if (first->is_tensor != other->is_tensor)
        return dcp_error_set(DCP_ERR_DUPLICATE, "\"%s\" was added as a tensor and as an object",
                             first->name);
    size_t bytes = (size_t)first->ndim * sizeof *first->global_shape;
    if (first->dtype != other->dtype || first->ndim != other->ndim ||
        memcmp(first->global_shape, other->global_shape, bytes) != 0)
        return dcp_error_set(DCP_ERR_DUPLICATE,
                             "\"%s\": its chunks were added with different dtypes or global shapes",
                             first->name);
    return DCP_OK;
}

static dcp_status check_items(const struct save_plan *plan, struct name_table *names,
                              struct piece_table *pieces, struct piece_key *keys)
{
    for (size_t i = 0; i < plan->count; i++) {
        const struct write_item *item = &plan->items[i];
        uint64_t first = i;
        bool existing;
        RETURN_IF_ERROR(name_table_add(names, item->name, strlen(item->name), &first, &existing));
        if (existing)
            RETURN_IF_ERROR(compare_items(&plan->items[first], item));
        keys[i] = (struct piece_key){(uint32_t)first, item->is_tensor ? item->ndim : -1,
                                     item->is_tensor ? item->box.offsets : NULL};
        if (piece_table_add(pieces, i) != i) {
            char text[256];
            return dcp_error_set(DCP_ERR_DUPLICATE,
                                 "\"%s\": another chunk at the offset of %s was added before",
                                 item->name, box_format(item->box, text, sizeof text));
        }
    }
    return DCP_OK;
}

dcp_status shard_writer_check_items(const struct dcp_shard_writer *writer)
{
    const struct save_plan *plan = &writer->local.plan;
    struct name_table names;
    struct piece_table pieces = {0};
    struct piece_key *keys = memory_allocate_array(plan->count, sizeof *keys);
    if (!keys)
        return error_no_memory(plan->count * sizeof *keys, "the items of a shard file");
    name_table_init(&names);
    dcp_status status = piece_table_init(&pieces, keys, plan->count);
    if (status == DCP_OK)
        status = check_items(plan, &names, &pieces, keys);
    piece_table_free(&pieces);
    name_table_free(&names);
    memory_release(keys);
    return status;
}

/* ---- where everything goes ---- */

/* The stream of an item; total: an upper bound of where it can end. */
static dcp_status measure_stream(const struct write_item *item, uint32_t number,
                                 struct layout_stream *stream, uint64_t *total)
{
    *stream = (struct layout_stream){.number = number, .is_tensor = item->is_tensor};
    stream->piece.length = item->object_length;
    if (item->is_tensor) {
        struct stream_layout layout;
        RETURN_IF_ERROR(stream_tensor_layout(item->dtype, item->ndim, item->box.sizes, &layout));
        stream->piece.data_offset = layout.data_offset;
        stream->piece.length = layout.length;
    }
    if (!checked_add_u64(*total, stream->piece.length, total) ||
        !checked_add_u64(*total, SAVE_PAGE, total) || *total > INT64_MAX)
        return dcp_error_set(DCP_ERR_UNSUPPORTED, "\"%s\": the file would exceed 2^63 bytes",
                             item->name);
    return DCP_OK;
}

static dcp_status place_streams(const struct save_plan *plan, struct rank_layout *layout)
{
    const struct save_plan_options options = {.thread_count = 1};
    uint64_t total = 0;
    for (size_t i = 0; i < plan->count; i++)
        RETURN_IF_ERROR(measure_stream(&plan->items[i], (uint32_t)i, &layout->streams[i], &total));
    return layout_assign(layout, &options);
}

static void set_orders(const struct save_plan *plan, const struct rank_layout *layout,
                       struct write_orders *orders)
{
    for (size_t i = 0; i < plan->count; i++) {
        const struct layout_stream *stream = &layout->streams[layout->sequence[i]];
        orders->orders[i] = (struct write_order){
            .item = stream->number,
            .box = plan->items[stream->number].box,
            .offset = stream->offset,
            .data_offset = stream->piece.data_offset,
            .length = stream->piece.length,
            .room = stream->piece.length,
        };
    }
    orders->count = plan->count;
    orders->file_count = 1;
}

dcp_status shard_writer_order(struct dcp_shard_writer *writer, struct write_orders *orders)
{
    const struct save_plan *plan = &writer->local.plan;
    struct rank_layout layout = {.count = plan->count};
    arena_init(&orders->arena, 0);
    orders->orders = arena_allocate_array(&orders->arena, plan->count, sizeof *orders->orders);
    layout.streams = memory_allocate_array(plan->count, sizeof *layout.streams);
    layout.sequence = memory_allocate_array(plan->count, sizeof *layout.sequence);
    dcp_status status = DCP_OK;
    if (!orders->orders || !layout.streams || !layout.sequence)
        status = error_no_memory(plan->count * sizeof *layout.streams, "the plan of a shard file");
    if (status == DCP_OK)
        status = place_streams(plan, &layout);
    if (status == DCP_OK)
        set_orders(plan, &layout, orders);
    memory_release(layout.sequence);
    memory_release(layout.streams);
    return status;
}

/* ---- writing ---- */

static struct shard_write_options
write_options(const dcp_save_options *options, const struct write_orders *orders, struct rate *rate)
{
    bool zstd = options->compression == DCP_COMPRESSION_ZSTD;
    return (struct shard_write_options){
        .thread_count = 1,
        .io = options->io,
        .manners = {rate, options->io_priority, (uint32_t)options->io_threads},
        .zstd = zstd,
        .zstd_level = options->compression_level,
        .zstd_threads = (uint32_t)options->compression_threads,
        .buffer_bytes = SHARD_FILES_BUFFERS,
        .record_threads = shard_files_record_threads(1, (uint32_t)options->io_threads),
        .lanes = UINT32_MAX,
        .page_cache = save_page_cache_decide(options, shard_files_content(orders, zstd),
                                             memory_available("")),
    };
}

static dcp_status write_file(dcp_shard_writer *writer, const struct write_orders *orders,
                             struct write_results *results)
{
    struct shard_write_figures written;
    struct rate rate;
    rate_init(&rate, writer->options.write_rate);
    const struct shard_write_options how = write_options(&writer->options, orders, &rate);
    int priority = io_priority_enter(writer->options.io_priority);
    dcp_status status = shard_file_write(&writer->session, writer->file, orders,
                                         writer->local.sources, &how, results, &written);
    io_priority_leave(priority);
    rate_free(&rate);
    if (status == DCP_OK)
        writer->file_size = written.bytes_written;
    return status;
}

static void note_locations(dcp_shard_writer *writer, const struct write_orders *orders,
                           const struct write_results *results)
{
    for (size_t i = 0; i < orders->count; i++) {
        const struct write_order *order = &orders->orders[i];
        dcp_storage_location *location = &writer->locations[order->item];
        *location = (dcp_storage_location){writer->file, order->offset, order->length};
        if (results->count > 0) {
            location->offset = results->results[i].offset;
            location->length = results->results[i].length;
        }
    }
}

static dcp_status plan_file(dcp_shard_writer *writer, struct write_orders *orders)
{
    struct save_local *local = &writer->local;
    RETURN_IF_ERROR(flatten_await_devices(&local->flat, writer->options.timeout_seconds));
    RETURN_IF_ERROR(save_local_plan(local));
    if (local->plan.count != local->flat.count)
        return dcp_error_set(DCP_ERR_INTERNAL,
                             "%zu items were added to %s, but %zu are to be written",
                             local->flat.count, writer->file, local->plan.count);
    RETURN_IF_ERROR(shard_writer_check_items(writer));
    writer->locations = memory_allocate_array(local->plan.count, sizeof *writer->locations);
    if (!writer->locations)
        return error_no_memory(local->plan.count * sizeof *writer->locations, "locations");
    return shard_writer_order(writer, orders);
}

dcp_status dcp_shard_writer_seal(dcp_shard_writer *writer)
{
    struct write_orders orders = {0};
    struct write_results results = {0};
    if (!writer)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the shard writer is NULL");
    if (writer->stage != SHARD_WRITER_OPEN)
        return dcp_error_set(DCP_ERR_STATE, "%s was already sealed or abandoned", writer->file);
    dcp_status status = plan_file(writer, &orders);
    if (status == DCP_OK)
        status = write_file(writer, &orders, &results);
    if (status == DCP_OK) {
        note_locations(writer, &orders, &results);
        writer->stage = SHARD_WRITER_SEALED;
    } else {
        dcp_shard_writer_abandon(writer);
    }
    write_results_free(&results);
    write_orders_free(&orders);
    return status;
}
