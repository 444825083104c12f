/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/shard/shard_needs.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"
#include "device/device_lane.h"
#include "format/footer/footer.h"
#include "format/streams/item_compress.h"
#include "state/box.h"
#include "state/copy.h"
#include "state/device_memory.h"
#include "storage/shard/shard_compress.h"
#include "storage/shard/shard_contents.h"
#include "storage/shard/shard_output.h"

/* What surrounds a tensor's data, paths, lists of transfers and of threads: for each file that is
 * written at a time. */
#define SMALL_THINGS ((uint64_t)64 << 10)

/* The orders of one file. */
struct part {
    const struct write_order *orders;
    size_t count;
    const char *name;
};

/* Stands in for results that are not there yet: as large as they may become. */
static dcp_status guess_results(const struct part *part, struct write_result **results)
{
    *results = memory_allocate_zeroed(part->count, sizeof **results);
    if (!*results)
        return error_no_memory(part->count * sizeof **results, "write results");
    uint64_t offset = 0;
    for (size_t i = 0; i < part->count; i++) {
        uint64_t length = item_compressed_bound(part->orders[i].length);
        (*results)[i] = (struct write_result){part->name, offset, length, true};
        offset += length;
    }
    return DCP_OK;
}

static dcp_status make_footer(const struct save_session *session, const struct part *part,
                              const struct shard_source *sources, bool zstd, uint64_t content,
                              struct buffer *footer)
{
    size_t page_count = (size_t)footer_page_count(footer_block_count(content, FOOTER_BLOCK_SIZE));
    struct write_result *results = NULL;
    struct metadata contents;
    dcp_status status = zstd ? guess_results(part, &results) : DCP_OK;
    uint64_t *pages = memory_allocate_zeroed(page_count, sizeof *pages);
    if (status == DCP_OK && !pages)
        status = error_no_memory(page_count * sizeof *pages, "checksums of a footer");
    if (status == DCP_OK)
        status =
            shard_contents_make(part->name, part->orders, results, part->count, sources, &contents);
    if (status == DCP_OK) {
        status = footer_encode(footer, session->save_id, content, FOOTER_BLOCK_SIZE, pages,
                               page_count, &contents);
        metadata_free(&contents);
    }
    memory_release(pages);
    memory_release(results);
    return status == DCP_OK ? buffer_status(footer) : status;
}

static uint64_t content_of(const struct part *part, bool zstd)
{
    if (part->count == 0)
        return 0;
    if (zstd)
        return shard_compressed_bound(part->orders, part->count);
    return part->orders[part->count - 1].offset + part->orders[part->count - 1].length;
}

static dcp_status add_file(const struct save_session *session, const struct part *part,
                           const struct shard_source *sources, bool zstd, struct shard_needs *needs)
{
    uint64_t content = content_of(part, zstd);
    struct memory_span span;
    struct buffer footer;
    memory_span_start(&span);
    buffer_init(&footer, 0);
    dcp_status status = make_footer(session, part, sources, zstd, content, &footer);
    uint64_t sums = footer_block_count(content, FOOTER_BLOCK_SIZE) * sizeof(uint64_t);
    needs->bytes += content + sums + footer.size;
    if (content > needs->largest)
        needs->largest = content;
    buffer_free(&footer);
    uint64_t memory = memory_span_end(&span);
    if (memory > needs->footer)
        needs->footer = memory;
    return status;
}

/* Devices that were seen; further ones count each time. */
struct devices {
    const dcp_device *seen[16];
    uint32_t count;
};

static void add_device(struct devices *devices, const dcp_device *device)
{
    const uint32_t most = sizeof devices->seen / sizeof *devices->seen;
    for (uint32_t i = 0; i < devices->count && i < most; i++)
        if (devices->seen[i]->operations == device->operations &&
            devices->seen[i]->index == device->index)
            return;
    if (devices->count < most)
        devices->seen[devices->count] = device;
    devices->count++;
}

/* What is resolved while it is written may lie on a device, and in any way. */
static void look_at_source(const struct write_order *order, const struct shard_source *source,
                           struct devices *devices, struct shard_needs *needs)
{
    const struct state_chunk *chunk = source->chunk;
    uint64_t bytes = (uint64_t)box_volume(order->box) * dcp_dtype_size(source->item->dtype);
    if (!source->resolver && (!chunk || device_is_host(&chunk->device) || bytes == 0))
        return;
    needs->converts = needs->converts || source->resolver;
    needs->packs = needs->packs || source->resolver ||
                   !copy_is_dense(order->box.ndim, order->box.sizes, chunk->strides);
    if (!source->resolver && device_lane_is_worth_it(&chunk->device, bytes))
        add_device(devices, &chunk->device);
}

static void look_at_devices(const struct write_orders *orders, const struct shard_source *sources,
                            struct shard_needs *needs)
{
    struct devices devices = {.count = 0};
    for (size_t i = 0; i < orders->count; i++) {
        const struct write_order *order = &orders->orders[i];
        if (sources[order->item].item->is_tensor)
            look_at_source(order, &sources[order->item], &devices, needs);
    }
    needs->devices = devices.count > 0 || !needs->converts ? devices.count : 1;
}

dcp_status shard_needs_find(const struct save_session *session, int rank,
                            const struct write_orders *orders, const struct shard_source *sources,
                            bool staged, const struct shard_write_options *options,
                            struct shard_needs *needs)
{
    char name[SHARD_NAME_MAX];
    struct part part = {.orders = orders->orders, .name = name};
    const struct write_order *end = orders->orders + orders->count;
    *needs = (struct shard_needs){
        .files = orders->file_count,
        .bookkeeping = SMALL_THINGS + orders->file_count,
    };
    if (options->zstd)
        needs->bookkeeping += 2 * orders->count * sizeof(struct write_result) +
                              (uint64_t)orders->file_count * SHARD_NAME_MAX;
    if (!staged)
        look_at_devices(orders, sources, needs);
    for (uint32_t file = 0; file < orders->file_count; file++) {
        part.count = 0;
        while (part.orders + part.count < end && part.orders[part.count].file == file)
            part.count++;
        shard_name(name, rank, file, session->generation);
        RETURN_IF_ERROR(add_file(session, &part, sources, options->zstd, needs));
        part.orders += part.count;
    }
    return DCP_OK;
}

/* Threads that write files side by side. */
static uint32_t file_threads(const struct shard_needs *needs,
                             const struct shard_write_options *options)
{
    uint32_t threads = needs->files < options->thread_count ? needs->files : options->thread_count;
    return threads > 0 ? threads : 1;
}

/* Of each file, those that bring elements. */
static uint32_t bringing_threads(const struct shard_needs *needs,
                                 const struct shard_write_options *options)
{
    uint32_t threads = options->zstd ? options->zstd_threads / file_threads(needs, options) : 1;
    return threads > 0 ? threads : 1;
}

static uint64_t lane_memory(const struct shard_needs *needs)
{
    uint64_t beside = needs->packs ? DEVICE_LANE_BUFFER : 0;
    return DEVICE_LANE_MEMORY + beside;
}

/* Lanes that are of use. */
static uint32_t useful_lanes(const struct shard_needs *needs,
                             const struct shard_write_options *options)
{
    return needs->devices * file_threads(needs, options) * bringing_threads(needs, options);
}

/* Elements of one byte may come from those of eight, which may be packed, too. */
static uint64_t beside_piece(const struct shard_needs *needs, uint64_t piece)
{
    return (needs->packs ? piece : 0) + (needs->converts ? 16 * piece : 0);
}

uint64_t shard_needs_memory(const struct shard_needs *needs,
                            const struct shard_write_options *options)
{
    struct shard_output_options output = {
        .content_length = needs->largest,
        .buffer_bytes = options->buffer_bytes,
        .io = options->io,
        .plain = options->plain,
        .threads = options->record_threads,
    };
    uint32_t threads = file_threads(needs, options);
    uint32_t bringing = bringing_threads(needs, options);
    uint32_t lanes = useful_lanes(needs, options);
    uint64_t piece = options->zstd ? SHARD_COMPRESS_PIECE : shard_output_piece(&output);
    uint64_t file = shard_output_memory(&output) + needs->footer + SMALL_THINGS +
                    bringing * beside_piece(needs, piece);
    if (options->zstd)
        file += shard_compress_memory(options->zstd_level, bringing);
    lanes = lanes < options->lanes ? lanes : options->lanes;
    return needs->bookkeeping + threads * file + (threads - 1) * (uint64_t)THREAD_STACK_SIZE +
           lanes * lane_memory(needs);
}

void shard_needs_minimize(struct shard_write_options *options)
{
    options->thread_count = 1;
    options->zstd_threads = 1;
    options->record_threads = 1;
    options->buffer_bytes = SHARD_OUTPUT_LEAST;
    options->plain = true;
    options->lanes = 0;
}

static void fit_buffers(const struct shard_needs *needs, uint64_t memory,
                        struct shard_write_options *options)
{
    while (shard_needs_memory(needs, options) > memory &&
           options->buffer_bytes > SHARD_OUTPUT_LEAST)
        options->buffer_bytes /= 2;
    while (shard_needs_memory(needs, options) > memory && options->record_threads > 1)
        options->record_threads /= 2;
    while (shard_needs_memory(needs, options) > memory && options->zstd_threads > 1)
        options->zstd_threads /= 2;
    while (shard_needs_memory(needs, options) > memory && options->thread_count > 1)
        options->thread_count--;
}

/* Lanes get what buffers and threads leave. */
void shard_needs_fit(const struct shard_needs *needs, uint64_t memory,
                     struct shard_write_options *options)
{
    struct shard_write_options least = *options;
    options->lanes = 0;
    fit_buffers(needs, memory, options);
    shard_needs_minimize(&least);
    if (shard_needs_memory(needs, options) > memory) {
        *options = least;
        return;
    }
    uint64_t room = (memory - shard_needs_memory(needs, options)) / lane_memory(needs);
    uint32_t useful = useful_lanes(needs, options);
    options->lanes = room < useful ? (uint32_t)room : useful;
}
