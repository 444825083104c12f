/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/shard_needs.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"
#include "format/footer.h"
#include "format/item_compress.h"
#include "storage/shard_compress.h"
#include "storage/shard_contents.h"
#include "storage/shard_output.h"

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
    size_t block_count = (size_t)(content / FOOTER_BLOCK_SIZE + (content % FOOTER_BLOCK_SIZE != 0));
    struct write_result *results = NULL;
    struct metadata contents;
    dcp_status status = zstd ? guess_results(part, &results) : DCP_OK;
    uint64_t *blocks = memory_allocate_zeroed(block_count, sizeof *blocks);
    if (status == DCP_OK && !blocks)
        status = error_no_memory(block_count * sizeof *blocks, "block checksums");
    if (status == DCP_OK)
        status =
            shard_contents_make(part->name, part->orders, results, part->count, sources, &contents);
    if (status == DCP_OK) {
        status = footer_encode(footer, session->save_id, content, FOOTER_BLOCK_SIZE, blocks,
                               block_count, &contents);
        metadata_free(&contents);
    }
    memory_release(blocks);
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
    needs->bytes += content + footer.size;
    if (content > needs->largest)
        needs->largest = content;
    buffer_free(&footer);
    uint64_t memory = memory_span_end(&span);
    if (memory > needs->footer)
        needs->footer = memory;
    return status;
}

dcp_status shard_needs_find(const struct save_session *session, int rank,
                            const struct write_orders *orders, const struct shard_source *sources,
                            const struct shard_write_options *options, struct shard_needs *needs)
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
    uint64_t file = shard_output_memory(&output) + needs->footer + SMALL_THINGS;
    uint32_t threads = needs->files < options->thread_count ? needs->files : options->thread_count;
    uint32_t zstd_threads = options->zstd_threads / (threads > 0 ? threads : 1);
    if (options->zstd)
        file += shard_compress_memory(options->zstd_level, zstd_threads > 0 ? zstd_threads : 1);
    uint64_t stacks = threads > 1 ? (threads - 1) * (uint64_t)THREAD_STACK_SIZE : 0;
    return needs->bookkeeping + threads * file + stacks;
}

void shard_needs_minimize(struct shard_write_options *options)
{
    options->thread_count = 1;
    options->zstd_threads = 1;
    options->record_threads = 1;
    options->buffer_bytes = SHARD_OUTPUT_LEAST;
    options->plain = true;
}

void shard_needs_fit(const struct shard_needs *needs, uint64_t memory,
                     struct shard_write_options *options)
{
    struct shard_write_options least = *options;
    while (shard_needs_memory(needs, options) > memory &&
           options->buffer_bytes > SHARD_OUTPUT_LEAST)
        options->buffer_bytes /= 2;
    while (shard_needs_memory(needs, options) > memory && options->record_threads > 1)
        options->record_threads /= 2;
    while (shard_needs_memory(needs, options) > memory && options->zstd_threads > 1)
        options->zstd_threads /= 2;
    while (shard_needs_memory(needs, options) > memory && options->thread_count > 1)
        options->thread_count--;
    shard_needs_minimize(&least);
    if (shard_needs_memory(needs, options) > memory)
        *options = least;
}
