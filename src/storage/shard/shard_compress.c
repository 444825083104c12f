/* SPDX-License-Identifier: BSD-3-Clause */
#include "storage/shard/shard_compress.h"

#include <pthread.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"
#include "format/streams/item_compress.h"
#include "format/streams/stream.h"
#include "storage/shard/shard_elements.h"

/* Streams up to here are compressed into memory, and appended when it is their turn; others pass
 * through. */
#define SMALL_STREAM ((uint64_t)1 << 20)

/* What one thread needs. */
struct worker {
    struct worker *next; /* idle ones */
    struct item_compressor *compressor;
    struct buffer small; /* a compressed stream */
    struct stream_frame frame;
    unsigned char *gathered; /* SHARD_COMPRESS_PIECE; NULL: not needed so far */
};

struct compression {
    struct shard_output *output; /* belongs to the thread whose turn it is */
    const struct write_order *orders;
    const struct shard_source *sources;
    const struct shard_compress_options *options;
    struct write_result *results;
    struct worker *large; /* with separate threads; compresses to output */
    pthread_mutex_t mutex;
    pthread_cond_t moved;
    size_t turn;   /* guarded, as what follows: the order that is appended next */
    size_t failed; /* the lowest order that failed; count: none */
    struct worker *idle;
};

static dcp_status worker_new(int32_t level, uint32_t thread_count, struct worker **made)
{
    struct worker *worker = memory_allocate_zeroed(1, sizeof *worker);
    if (!worker)
        return error_no_memory(sizeof *worker, "compressing");
    buffer_init(&worker->small, 0);
    stream_frame_init(&worker->frame);
    dcp_status status = item_compressor_new(level, thread_count, &worker->compressor);
    if (status == DCP_OK)
        *made = worker;
    else
        memory_release(worker);
    return status;
}

static void worker_free(struct worker *worker)
{
    if (!worker)
        return;
    item_compressor_free(worker->compressor);
    buffer_free(&worker->small);
    stream_frame_free(&worker->frame);
    memory_release(worker->gathered);
    memory_release(worker);
}

static dcp_status take_worker(struct compression *compression, struct worker **worker)
{
    pthread_mutex_lock(&compression->mutex);
    *worker = compression->idle;
    if (*worker)
        compression->idle = (*worker)->next;
    pthread_mutex_unlock(&compression->mutex);
    return *worker ? DCP_OK : worker_new(compression->options->level, 0, worker);
}

static void give_worker(struct compression *compression, struct worker *worker)
{
    pthread_mutex_lock(&compression->mutex);
    worker->next = compression->idle;
    compression->idle = worker;
    pthread_mutex_unlock(&compression->mutex);
}

/* Whether the order's turn has come; false when one before it has failed. */
static bool wait_for_turn(struct compression *compression, size_t index)
{
    pthread_mutex_lock(&compression->mutex);
    while (compression->turn != index && compression->failed > index)
        pthread_cond_wait(&compression->moved, &compression->mutex);
    bool come = compression->turn == index;
    pthread_mutex_unlock(&compression->mutex);
    return come;
}

static void end_turn(struct compression *compression, size_t index, dcp_status status)
{
    pthread_mutex_lock(&compression->mutex);
    if (status == DCP_OK)
        compression->turn++;
    else if (index < compression->failed)
        compression->failed = index;
    pthread_cond_broadcast(&compression->moved);
    pthread_mutex_unlock(&compression->mutex);
}

static dcp_status receive_small(void *context, const void *bytes, size_t size)
{
    struct buffer *small = context;
    buffer_append(small, bytes, size);
    return buffer_status(small);
}

static dcp_status receive_large(void *context, const void *bytes, size_t size)
{
    return shard_output_append_copy(context, bytes, size);
}

/* A stream that is being written. */
struct passage {
    struct worker *worker;
    const struct shard_compress_options *options;
    item_compressed receive;
    void *context;
};

static dcp_status pass(const struct passage *passage, const void *bytes, size_t size)
{
    RETURN_IF_ERROR(item_compressor_add(passage->worker->compressor, bytes, size, passage->receive,
                                        passage->context));
    return progress_add(passage->options->progress, size);
}

static dcp_status pass_dense(const struct passage *passage, const unsigned char *data,
                             uint64_t size, uint32_t *crc)
{
    for (uint64_t done = 0; done < size; done += SHARD_COMPRESS_PIECE) {
        size_t piece =
            size - done < SHARD_COMPRESS_PIECE ? (size_t)(size - done) : SHARD_COMPRESS_PIECE;
        *crc = crc32_update(*crc, data + done, piece);
        RETURN_IF_ERROR(pass(passage, data + done, piece));
    }
    return DCP_OK;
}

static dcp_status pass_gathered(const struct passage *passage, const struct shard_source *source,
                                struct box box, uint32_t *crc)
{
    struct worker *worker = passage->worker;
    struct shard_elements elements;
    if (!worker->gathered)
        worker->gathered = memory_allocate(SHARD_COMPRESS_PIECE);
    if (!worker->gathered)
        return error_no_memory(SHARD_COMPRESS_PIECE, "gathering elements");
    dcp_status status =
        shard_elements_start(&elements, source, box, SHARD_COMPRESS_PIECE, passage->options->lanes);
    while (status == DCP_OK && shard_elements_next(&elements)) {
        status = shard_elements_gather(&elements, worker->gathered);
        if (status != DCP_OK)
            break;
        *crc = crc32_update(*crc, worker->gathered, elements.size);
        status = pass(passage, worker->gathered, elements.size);
    }
    shard_elements_end(&elements);
    return status;
}

static dcp_status pass_elements(const struct passage *passage, const struct shard_source *source,
                                struct box box, uint64_t size, uint32_t *crc)
{
    struct shard_opened opened;
    const void *data = NULL;
    RETURN_IF_ERROR(shard_source_open(&opened, source, box));
    dcp_status status = shard_elements_dense(&opened.source, box, &data);
    if (status == DCP_OK)
        status = data ? pass_dense(passage, data, size, crc)
                      : pass_gathered(passage, &opened.source, box, crc);
    shard_source_close(&opened);
    return status;
}

static dcp_status pass_tensor(const struct passage *passage, const struct shard_source *source,
                              struct box box)
{
    const struct write_item *item = source->item;
    struct stream_frame *frame = &passage->worker->frame;
    uint32_t crc = 0;
    RETURN_IF_ERROR(stream_frame_fit(frame, item->dtype, item->ndim, box.sizes));
    RETURN_IF_ERROR(pass(passage, frame->head.data, frame->head.size));
    if (frame->layout.data_length > 0)
        RETURN_IF_ERROR(pass_elements(passage, source, box, frame->layout.data_length, &crc));
    stream_frame_seal(frame, crc);
    return pass(passage, frame->tail.data, frame->tail.size);
}

static dcp_status pass_stream(const struct compression *compression, size_t index,
                              const struct passage *passage)
{
    const struct write_order *order = &compression->orders[index];
    const struct shard_source *source = &compression->sources[order->item];
    if (source->item->is_tensor)
        RETURN_IF_ERROR(pass_tensor(passage, source, order->box));
    else
        RETURN_IF_ERROR(pass(passage, source->stream, (size_t)order->length));
    return item_compressor_end(passage->worker->compressor, passage->receive, passage->context);
}

/* One thread is as well without those of zstd. */
static dcp_status append_large(struct compression *compression, size_t index, struct worker *worker)
{
    if (compression->options->thread_count > 1) {
        if (!compression->large)
            RETURN_IF_ERROR(worker_new(compression->options->level,
                                       compression->options->thread_count, &compression->large));
        worker = compression->large;
    }
    struct passage passage = {worker, compression->options, receive_large, compression->output};
    return pass_stream(compression, index, &passage);
}

/* Compresses a small stream beforehand, a large one when it is its turn. */
static dcp_status write_stream(struct compression *compression, size_t index, struct worker *worker)
{
    struct write_result *result = &compression->results[index];
    bool small = compression->orders[index].length <= SMALL_STREAM;
    struct passage passage = {worker, compression->options, receive_small, &worker->small};
    buffer_clear(&worker->small);
    if (small)
        RETURN_IF_ERROR(pass_stream(compression, index, &passage));
    if (!wait_for_turn(compression, index))
        return dcp_error_set(DCP_ERR_STATE, "an earlier stream of the file has failed");
    result->zstd = true;
    result->offset = compression->output->position;
    RETURN_IF_ERROR(small ? shard_output_append_copy(compression->output, worker->small.data,
                                                     worker->small.size)
                          : append_large(compression, index, worker));
    result->length = compression->output->position - result->offset;
    return DCP_OK;
}

/* After a failure a compressor is in the middle of a stream: then nothing is compressed any more.
 */
static dcp_status work(void *context, size_t index)
{
    struct compression *compression = context;
    struct worker *worker = NULL;
    dcp_status status = take_worker(compression, &worker);
    if (status == DCP_OK) {
        status = write_stream(compression, index, worker);
        give_worker(compression, worker);
    }
    if (status != DCP_OK && compression->options->staging)
        staging_stop(compression->options->staging);
    end_turn(compression, index, status);
    return status;
}

uint64_t shard_compress_memory(int32_t level, uint32_t thread_count)
{
    uint64_t worker = item_compressor_memory(level, 0) + 4 * SMALL_STREAM + THREAD_STACK_SIZE;
    uint64_t large = thread_count > 1 ? item_compressor_memory(level, thread_count) : 0;
    return thread_count * worker + large;
}

uint64_t shard_compressed_bound(const struct write_order *orders, size_t count)
{
    uint64_t bound = 0;
    for (size_t i = 0; i < count; i++)
        bound += item_compressed_bound(orders[i].length);
    return bound;
}

dcp_status shard_compress_streams(struct shard_output *output, const struct write_order *orders,
                                  size_t count, const struct shard_source *sources,
                                  const struct shard_compress_options *options,
                                  struct write_result *results)
{
    struct compression compression = {
        .output = output,
        .orders = orders,
        .sources = sources,
        .options = options,
        .results = results,
        .failed = count,
    };
    pthread_mutex_init(&compression.mutex, NULL);
    pthread_cond_init(&compression.moved, NULL);
    dcp_status status = thread_run(count, options->thread_count, work, &compression);
    pthread_cond_destroy(&compression.moved);
    pthread_mutex_destroy(&compression.mutex);
    while (compression.idle) {
        struct worker *worker = compression.idle;
        compression.idle = worker->next;
        worker_free(worker);
    }
    worker_free(compression.large);
    return status;
}
