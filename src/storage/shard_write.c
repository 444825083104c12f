/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank's shard files, each written by one thread from its first stream to its footer. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"
#include "device/device_copy.h"
#include "format/footer.h"
#include "format/stream.h"
#include "state/copy.h"
#include "state/device_memory.h"
#include "storage/box_blocks.h"
#include "storage/shard_contents.h"
#include "storage/shard_output.h"
#include "storage/shard_writer.h"

/* What all buffers of a rank take. */
#define BUFFER_BYTES ((size_t)32 << 20)

/* The files of a rank; shared by its threads. */
struct shard_files {
    const struct save_session *session;
    int rank;
    const struct write_orders *orders;
    const struct shard_source *sources;
    const struct shard_write_options *options;
    bool *made; /* by file: created here, so ours to remove */
    pthread_mutex_t mutex;
    struct shard_write_figures *figures; /* guarded */
};

static dcp_status refuse_order(const struct write_order *order, const char *why)
{
    return dcp_error_set(DCP_ERR_INTERNAL,
                         "order for item %" PRIu32 " in file %" PRIu32 " at %" PRIu64 ": %s",
                         order->item, order->file, order->offset, why);
}

/* One block of a chunk, row-major, to host memory. */
static dcp_status gather(const struct shard_source *source, const unsigned char *data, int32_t ndim,
                         const int64_t *sizes, unsigned char *space)
{
    const struct state_chunk *chunk = source->chunk;
    size_t element_size = dcp_dtype_size(source->item->dtype);
    int64_t dense[DCP_MAX_DIMS];
    shape_strides(ndim, sizes, dense);
    if (device_is_host(&chunk->device)) {
        copy_strided(ndim, sizes, element_size, data, chunk->strides, space, dense);
        return DCP_OK;
    }
    dcp_status status = device_copy_to_host(&chunk->device, ndim, sizes, element_size, data,
                                            chunk->strides, space, dense);
    return status == DCP_OK ? DCP_OK : error_prefix(status, "%s", source->item->name);
}

/* Elements that do not lie row-major in host memory are brought there, in that order, in the
 * output's own buffer. */
static dcp_status write_gathered(struct shard_output *output, const struct shard_source *source,
                                 const unsigned char *data, struct box box, uint32_t *crc)
{
    int64_t element_size = (int64_t)dcp_dtype_size(source->item->dtype);
    struct box_blocks blocks;
    struct box_storage block;
    box_blocks_start_bounded(&blocks, box.ndim, box.sizes, (int64_t)output->piece / element_size);
    while (box_blocks_next(&blocks, &block)) {
        int64_t start = 0;
        for (int32_t i = 0; i < box.ndim; i++)
            start += block.offsets[i] * source->chunk->strides[i];
        size_t size = (size_t)(box_volume(box_of(box.ndim, &block)) * element_size);
        unsigned char *space;
        RETURN_IF_ERROR(shard_output_reserve(output, size, &space));
        RETURN_IF_ERROR(gather(source, data + start * element_size, box.ndim, block.sizes, space));
        shard_output_commit(output, size, crc);
    }
    return DCP_OK;
}

static dcp_status write_elements(struct shard_output *output, const struct shard_source *source,
                                 struct box box, uint64_t size, uint32_t *crc)
{
    const struct state_chunk *chunk = source->chunk;
    size_t element_size = dcp_dtype_size(source->item->dtype);
    if (size == 0)
        return DCP_OK;
    int64_t start = 0;
    for (int32_t i = 0; i < box.ndim; i++)
        start += (box.offsets[i] - chunk->offsets[i]) * chunk->strides[i];
    const unsigned char *data = (const unsigned char *)chunk->data + start * (int64_t)element_size;
    if (device_is_host(&chunk->device) && copy_is_dense(box.ndim, box.sizes, chunk->strides))
        return shard_output_append(output, data, size, crc);
    return write_gathered(output, source, data, box, crc);
}

/* scratch: for what surrounds the data. */
static dcp_status write_tensor(struct shard_output *output, const struct write_order *order,
                               const struct shard_source *source, struct buffer *scratch)
{
    const struct write_item *item = source->item;
    const int64_t *sizes = order->box.sizes;
    struct stream_layout layout;
    uint32_t crc = 0;
    RETURN_IF_ERROR(stream_tensor_layout(item->dtype, item->ndim, sizes, &layout));
    if (order->data_offset != layout.data_offset || order->length != layout.length)
        return refuse_order(order, "it has another length than the stream");
    buffer_clear(scratch);
    RETURN_IF_ERROR(stream_tensor_head(scratch, item->dtype, item->ndim, sizes));
    if (scratch->size != layout.data_offset)
        return refuse_order(order, "the head of its stream has another length");
    RETURN_IF_ERROR(shard_output_append(output, scratch->data, scratch->size, NULL));
    RETURN_IF_ERROR(write_elements(output, source, order->box, layout.data_length, &crc));
    buffer_clear(scratch);
    RETURN_IF_ERROR(stream_tensor_tail(scratch, item->dtype, item->ndim, sizes, crc));
    if (scratch->size != layout.length - layout.data_offset - layout.data_length)
        return refuse_order(order, "the tail of its stream has another length");
    return shard_output_append(output, scratch->data, scratch->size, NULL);
}

static dcp_status write_streams(struct shard_output *output, const struct shard_files *files,
                                const struct write_order *orders, size_t count)
{
    struct buffer scratch;
    dcp_status status = DCP_OK;
    buffer_init(&scratch, 0);
    for (size_t i = 0; i < count && status == DCP_OK; i++) {
        const struct shard_source *source = &files->sources[orders[i].item];
        status = shard_output_skip(output, orders[i].offset);
        if (status == DCP_OK)
            status = source->item->is_tensor
                         ? write_tensor(output, &orders[i], source, &scratch)
                         : shard_output_append(output, source->stream, orders[i].length, NULL);
    }
    buffer_free(&scratch);
    return status;
}

static dcp_status write_footer(struct shard_output *output, const struct shard_files *files,
                               const char *name, const struct write_order *orders, size_t count)
{
    const struct save_session *session = files->session;
    struct metadata contents;
    struct buffer footer;
    shard_output_end(output);
    RETURN_IF_ERROR(shard_contents_make(name, orders, count, files->sources, &contents));
    buffer_init(&footer, 0);
    dcp_status status =
        footer_encode(&footer, session->save_id, output->position, FOOTER_BLOCK_SIZE,
                      output->blocks, output->block_count, &contents);
    if (status == DCP_OK)
        status = shard_output_finish(output, footer.data, footer.size);
    buffer_free(&footer);
    metadata_free(&contents);
    return status;
}

uint64_t shard_files_content(const struct write_orders *orders)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < orders->count; i++) {
        const struct write_order *order = &orders->orders[i];
        if (i + 1 == orders->count || orders->orders[i + 1].file != order->file)
            bytes += order->offset + order->length;
    }
    return bytes;
}

/* The first order of a file: they are sorted. */
static size_t first_order(const struct write_orders *orders, uint64_t file)
{
    size_t low = 0, high = orders->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (orders->orders[middle].file < file)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void note_file(struct shard_files *files, const struct shard_output *output)
{
    struct shard_write_figures *figures = files->figures;
    pthread_mutex_lock(&files->mutex);
    figures->files++;
    figures->bytes_written += shard_output_size(output);
    figures->syncing_seconds += (double)output->sync_ns * 1e-9;
    figures->direct = figures->direct || output->file.direct >= 0;
    figures->ring = figures->ring || io_queue_has_ring(output->queue);
    pthread_mutex_unlock(&files->mutex);
}

static dcp_status write_file(void *context, size_t index)
{
    struct shard_files *files = context;
    const struct save_session *session = files->session;
    size_t first = first_order(files->orders, index);
    size_t count = first_order(files->orders, (uint64_t)index + 1) - first;
    const struct write_order *orders = count > 0 ? &files->orders->orders[first] : NULL;
    uint64_t length = count > 0 ? orders[count - 1].offset + orders[count - 1].length : 0;
    char name[SHARD_NAME_MAX];
    struct shard_output output;

    shard_name(name, files->rank, (uint32_t)index, session->generation);
    char *path = file_path_join(session->path, name);
    if (!path)
        return error_no_memory(strlen(session->path) + sizeof name, "a path");
    struct shard_output_options options = {
        .content_length = length,
        .buffer_bytes = BUFFER_BYTES / files->options->thread_count,
        .io = files->options->io,
        .progress = files->options->progress,
        .sync = session->sync,
    };
    dcp_status status = shard_output_create(&output, session->ops, path, &options);
    memory_release(path);
    RETURN_IF_ERROR(status);
    files->made[index] = true;
    status = write_streams(&output, files, orders, count);
    if (status == DCP_OK)
        status = write_footer(&output, files, name, orders, count);
    note_file(files, &output);
    shard_output_free(&output);
    return status;
}

/* After a failure; the story is kept. */
static void remove_made(const struct shard_files *files)
{
    struct error_story story;
    error_save(&story);
    for (uint32_t file = 0; file < files->orders->file_count; file++) {
        char name[SHARD_NAME_MAX];
        if (!files->made[file])
            continue;
        shard_name(name, files->rank, file, files->session->generation);
        char *path = file_path_join(files->session->path, name);
        if (path)
            file_unlink(files->session->ops, path, true);
        memory_release(path);
    }
    error_restore(&story);
}

static dcp_status sync_directory(const struct save_session *session,
                                 struct shard_write_figures *figures)
{
    int64_t began_ns = clock_monotonic_ns();
    dcp_status status = file_sync_directory(session->ops, session->path);
    figures->syncing_seconds += (double)(clock_monotonic_ns() - began_ns) * 1e-9;
    return status;
}

dcp_status shard_files_write(const struct save_session *session, int rank,
                             const struct write_orders *orders, const struct shard_source *sources,
                             const struct shard_write_options *options,
                             struct shard_write_figures *figures)
{
    struct shard_files files = {
        .session = session,
        .rank = rank,
        .orders = orders,
        .sources = sources,
        .options = options,
        .mutex = PTHREAD_MUTEX_INITIALIZER,
        .figures = figures,
    };
    *figures = (struct shard_write_figures){0};
    files.made = memory_allocate_zeroed(orders->file_count, sizeof *files.made);
    if (!files.made)
        return error_no_memory(orders->file_count, "the files of a rank");
    uint32_t thread_count = options->thread_count;
    dcp_status status = thread_run(orders->file_count, thread_count, write_file, &files);
    if (figures->files > 0)
        figures->syncing_seconds /= thread_count < figures->files ? thread_count : figures->files;
    if (status == DCP_OK && session->sync)
        status = sync_directory(session, figures);
    if (status != DCP_OK)
        remove_made(&files);
    memory_release(files.made);
    return status;
}
