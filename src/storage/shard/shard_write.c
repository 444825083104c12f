/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank's shard files, each written by one thread from its first stream to its footer. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"
#include "format/footer/footer.h"
#include "format/streams/stream.h"
#include "storage/shard/shard_compress.h"
#include "storage/shard/shard_contents.h"
#include "storage/shard/shard_elements.h"
#include "storage/shard/shard_output.h"
#include "storage/shard/shard_writer.h"

/* Threads of a single file, for its large records. */
#define RECORD_THREADS 4

/* The files of a rank; shared by its threads. */
struct shard_files {
    const struct save_session *session;
    int rank;
    const char *single; /* the name of the only file; NULL: names are those of a rank */
    const struct write_orders *orders;
    const struct shard_source *sources;
    const struct shard_write_options *options;
    struct write_result *results; /* by order; NULL without compression */
    bool *made;                   /* by file: created here, so ours to remove */
    struct device_lanes lanes;
    pthread_mutex_t mutex;
    struct shard_write_figures *figures; /* guarded */
};

/* room: for a name that is made up. */
static const char *file_name(const struct shard_files *files, uint32_t file,
                             char room[SHARD_NAME_MAX])
{
    if (files->single)
        return files->single;
    shard_name(room, files->rank, file, files->session->generation);
    return room;
}

static dcp_status refuse_order(const struct write_order *order, const char *why)
{
    return dcp_error_set(DCP_ERR_INTERNAL,
                         "order for item %" PRIu32 " in file %" PRIu32 " at %" PRIu64 ": %s",
                         order->item, order->file, order->offset, why);
}

/* Elements that are not row-major in host memory are copied, in that order, to the output's
 * buffer. */
static dcp_status write_gathered(struct shard_output *output, const struct shard_source *source,
                                 struct box box, struct device_lanes *lanes, uint32_t *crc)
{
    struct shard_elements elements;
    dcp_status status = shard_elements_start(&elements, source, box, output->piece, lanes);
    while (status == DCP_OK && shard_elements_next(&elements)) {
        unsigned char *space;
        status = shard_output_reserve(output, elements.size, &space);
        if (status == DCP_OK)
            status = shard_elements_gather(&elements, space);
        if (status == DCP_OK)
            shard_output_commit(output, elements.size, crc);
    }
    shard_elements_end(&elements);
    return status;
}

static dcp_status write_elements(struct shard_output *output, const struct shard_source *source,
                                 struct box box, struct device_lanes *lanes, uint64_t size,
                                 uint32_t *crc)
{
    if (size == 0)
        return DCP_OK;
    struct shard_opened opened;
    const void *data = NULL;
    RETURN_IF_ERROR(shard_source_open(&opened, source, box));
    dcp_status status = shard_elements_dense(&opened.source, box, &data);
    if (status == DCP_OK)
        status = data ? shard_output_append(output, data, size, crc)
                      : write_gathered(output, &opened.source, box, lanes, crc);
    shard_source_close(&opened);
    return status;
}

static dcp_status write_tensor(struct shard_output *output, const struct write_order *order,
                               const struct shard_source *source, struct device_lanes *lanes,
                               struct stream_frame *frame)
{
    const struct write_item *item = source->item;
    const struct stream_layout *layout = &frame->layout;
    uint32_t crc = 0;
    RETURN_IF_ERROR(stream_frame_fit(frame, item->dtype, item->ndim, order->box.sizes));
    if (order->data_offset != layout->data_offset || order->length != layout->length)
        return refuse_order(order, "it has another length than the stream");
    if (frame->head.size != layout->data_offset)
        return refuse_order(order, "the head of its stream has another length");
    if (frame->tail.size != layout->length - layout->data_offset - layout->data_length)
        return refuse_order(order, "the tail of its stream has another length");
    RETURN_IF_ERROR(shard_output_append(output, frame->head.data, frame->head.size, NULL));
    RETURN_IF_ERROR(write_elements(output, source, order->box, lanes, layout->data_length, &crc));
    stream_frame_seal(frame, crc);
    return shard_output_append(output, frame->tail.data, frame->tail.size, NULL);
}

/* The orders of one file. */
struct file_orders {
    const struct write_order *orders;
    struct write_result *results; /* NULL without compression */
    size_t count;
    const char *name;
};

static dcp_status write_plain(struct shard_output *output, struct shard_files *files,
                              const struct file_orders *file)
{
    struct stream_frame frame;
    dcp_status status = DCP_OK;
    stream_frame_init(&frame);
    for (size_t i = 0; i < file->count && status == DCP_OK; i++) {
        const struct write_order *order = &file->orders[i];
        const struct shard_source *source = &files->sources[order->item];
        status = shard_output_skip(output, order->offset);
        if (status == DCP_OK)
            status = source->item->is_tensor
                         ? write_tensor(output, order, source, &files->lanes, &frame)
                         : shard_output_append(output, source->stream, order->length, NULL);
    }
    stream_frame_free(&frame);
    return status;
}

/* The threads that compress are divided among the files that are written side by side. */
static dcp_status write_compressed(struct shard_output *output, struct shard_files *files,
                                   const struct file_orders *file)
{
    const struct shard_write_options *options = files->options;
    uint32_t side_by_side = files->orders->file_count < options->thread_count
                                ? files->orders->file_count
                                : options->thread_count;
    uint32_t threads = options->zstd_threads / side_by_side;
    struct shard_compress_options how = {
        .level = options->zstd_level,
        .thread_count = threads > 0 ? threads : 1,
        .staging = options->staging,
        .lanes = &files->lanes,
        .progress = options->progress,
    };
    return shard_compress_streams(output, file->orders, file->count, files->sources, &how,
                                  file->results);
}

static dcp_status write_footer(struct shard_output *output, const struct shard_files *files,
                               const struct file_orders *file)
{
    const struct save_session *session = files->session;
    struct metadata contents;
    struct buffer footer;
    shard_output_end(output);
    size_t page_count = (size_t)footer_page_count(output->block_count);
    uint64_t *pages = memory_allocate_array(page_count, sizeof *pages);
    if (!pages)
        return error_no_memory(page_count * sizeof *pages, "checksums of a footer");
    footer_seal_sums(output->blocks, output->block_count, pages);
    buffer_init(&footer, 0);
    dcp_status status = shard_contents_make(file->name, file->orders, file->results, file->count,
                                            files->sources, &contents);
    if (status == DCP_OK) {
        status = footer_encode(&footer, session->save_id, output->position, FOOTER_BLOCK_SIZE,
                               pages, page_count, &contents);
        metadata_free(&contents);
    }
    if (status == DCP_OK)
        status = shard_output_finish(output, footer.data, footer.size);
    buffer_free(&footer);
    memory_release(pages);
    return status;
}

uint64_t shard_files_content(const struct write_orders *orders, bool zstd)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < orders->count; i++) {
        const struct write_order *order = &orders->orders[i];
        if (zstd)
            bytes += order->length;
        else if (i + 1 == orders->count || orders->orders[i + 1].file != order->file)
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
    figures->direct = figures->direct || output->ways & DCP_IO_DIRECT;
    figures->ring = figures->ring || output->ways & DCP_IO_RING;
    pthread_mutex_unlock(&files->mutex);
}

static void find_orders(const struct shard_files *files, size_t index, struct file_orders *file)
{
    size_t first = first_order(files->orders, index);
    file->count = first_order(files->orders, (uint64_t)index + 1) - first;
    file->orders = file->count > 0 ? &files->orders->orders[first] : NULL;
    file->results = files->results ? &files->results[first] : NULL;
}

static uint64_t content_length(const struct file_orders *file)
{
    const struct write_order *last = file->count > 0 ? &file->orders[file->count - 1] : NULL;
    if (file->results)
        return shard_compressed_bound(file->orders, file->count);
    return last ? last->offset + last->length : 0;
}

uint32_t shard_files_record_threads(uint32_t thread_count, uint32_t limit)
{
    size_t half = thread_processor_count() / 2;
    size_t most = limit > 0 && limit < RECORD_THREADS ? limit : RECORD_THREADS;
    if (thread_count > 1 || half < 1)
        return 1;
    return (uint32_t)(half < most ? half : most);
}

static dcp_status make_file(struct shard_files *files, size_t index)
{
    const struct save_session *session = files->session;
    char room[SHARD_NAME_MAX];
    struct file_orders file = {.name = file_name(files, (uint32_t)index, room)};
    struct shard_output output;

    find_orders(files, index, &file);
    struct shard_output_options options = {
        .content_length = content_length(&file),
        .estimated = file.results != NULL,
        .buffer_bytes = files->options->buffer_bytes,
        .plain = files->options->plain,
        .io = files->options->io,
        .page_cache = files->options->page_cache,
        .manners = files->options->manners,
        .threads = files->options->record_threads,
        .progress = file.results ? NULL : files->options->progress,
        .sync = session->sync,
    };
    RETURN_IF_ERROR(shard_output_create(&output, &session->directory, file.name, &options));
    dcp_status status =
        file.results ? write_compressed(&output, files, &file) : write_plain(&output, files, &file);
    if (status == DCP_OK)
        status = write_footer(&output, files, &file);
    files->made[index] = status == DCP_OK;
    note_file(files, &output);
    shard_output_free(&output);
    return status;
}

static dcp_status write_file(void *context, size_t index)
{
    struct shard_files *files = context;
    dcp_status status = make_file(files, index);
    if (status != DCP_OK && files->options->staging)
        staging_stop(files->options->staging);
    return status;
}

/* After a failure; the message is kept. */
static void remove_made(const struct shard_files *files)
{
    struct saved_error error;
    error_save(&error);
    for (uint32_t file = 0; file < files->orders->file_count; file++) {
        char room[SHARD_NAME_MAX];
        if (!files->made[file])
            continue;
        storage_directory_remove(&files->session->directory, file_name(files, file, room));
    }
    error_restore(&error);
}

/* Results that say as much as is known beforehand: the file of each. */
static dcp_status prepare_results(const struct shard_files *files, struct write_results *results)
{
    const struct write_orders *orders = files->orders;
    results->results =
        arena_allocate_array(&results->arena, orders->count, sizeof *results->results);
    if (!results->results)
        return error_no_memory(orders->count * sizeof *results->results, "write results");
    results->count = orders->count;
    const char *path = NULL;
    for (size_t i = 0; i < orders->count; i++) {
        const struct write_order *order = &orders->orders[i];
        if (i == 0 || order->file != order[-1].file) {
            char room[SHARD_NAME_MAX];
            const char *name = file_name(files, order->file, room);
            path = arena_copy_text(&results->arena, name, strlen(name));
            if (!path)
                return error_no_memory(strlen(name) + 1, "write results");
        }
        results->results[i] = (struct write_result){.path = path};
    }
    return DCP_OK;
}

static dcp_status sync_directory(const struct save_session *session,
                                 struct shard_write_figures *figures)
{
    int64_t began_ns = clock_monotonic_ns();
    dcp_status status = storage_directory_sync(&session->directory);
    figures->syncing_seconds += (double)(clock_monotonic_ns() - began_ns) * 1e-9;
    return status;
}

static dcp_status write_files(struct shard_files *files)
{
    const struct save_session *session = files->session;
    struct shard_write_figures *figures = files->figures;
    uint32_t file_count = files->orders->file_count, thread_count = files->options->thread_count;
    files->made = memory_allocate_zeroed(file_count, sizeof *files->made);
    if (!files->made)
        return error_no_memory(file_count, "the files of a rank");
    device_lanes_init(&files->lanes, files->options->lanes);
    dcp_status status = thread_run(file_count, thread_count, write_file, files);
    device_lanes_free(&files->lanes);
    if (figures->files > 0)
        figures->syncing_seconds /= thread_count < figures->files ? thread_count : figures->files;
    if (status == DCP_OK && session->sync)
        status = sync_directory(session, figures);
    if (status != DCP_OK)
        remove_made(files);
    memory_release(files->made);
    return status;
}

static dcp_status start_writing(struct shard_files *files, struct write_results *results)
{
    *files->figures = (struct shard_write_figures){0};
    *results = (struct write_results){0};
    arena_init(&results->arena, 0);
    if (files->options->zstd) {
        RETURN_IF_ERROR(prepare_results(files, results));
        files->results = results->results;
    }
    return write_files(files);
}

dcp_status shard_files_write(const struct save_session *session, int rank,
                             const struct write_orders *orders, const struct shard_source *sources,
                             const struct shard_write_options *options,
                             struct write_results *results, struct shard_write_figures *figures)
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
    return start_writing(&files, results);
}

dcp_status shard_file_write(const struct save_session *session, const char *name,
                            const struct write_orders *orders, const struct shard_source *sources,
                            const struct shard_write_options *options,
                            struct write_results *results, struct shard_write_figures *figures)
{
    struct shard_files files = {
        .session = session,
        .single = name,
        .orders = orders,
        .sources = sources,
        .options = options,
        .mutex = PTHREAD_MUTEX_INITIALIZER,
        .figures = figures,
    };
    return start_writing(&files, results);
}
