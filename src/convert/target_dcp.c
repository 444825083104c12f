/* SPDX-License-Identifier: BSD-3-Clause */
/* A DCP directory: a save of tensors that are where the source has them, by one rank or several
 * threads that play ranks. */
#include <pthread.h>
#include <string.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"
#include "convert/convert_copy.h"
#include "convert/convert_memory.h"
#include "convert/convert_target.h"
#include "convert/convert_tree.h"
#include "convert/copied_extras.h"
#include "dcp/estimate.h"
#include "dcp/save.h"

/* Of the save by all ranks, so that they keep to small buffers; and more for each name. */
#define SAVE_MEMORY      ((uint64_t)32 << 20)
#define SAVE_NAME_MEMORY ((uint64_t)4 << 10)

struct dcp_writing {
    const struct convert_source *source;
    const struct convert_target *target;
    struct convert_memory memory;
    struct copied_extras extras;
    dcp_save_options save; /* of rank 0; others give no files */
    struct writer *writers;
    int32_t rank_count;
    pthread_mutex_t mutex; /* guards what follows */
    bool complete;         /* all threads have started, or it has failed */
};

/* One rank. */
struct writer {
    struct dcp_writing *writing;
    dcp_group *group;
    int32_t rank;
    struct thread thread;
    uint64_t reported; /* bytes, to the progress */
    struct saved_error error;
};

static dcp_status take_bytes(void *context, const void *bytes, size_t size)
{
    struct buffer *stream = context;
    buffer_append(stream, bytes, size);
    return buffer_status(stream);
}

/* The object as the bytes that it is stored as. Ranks but the first have a placeholder: rank 0's is
 * written. */
static dcp_status add_object(const struct writer *writer, const struct convert_item *item,
                             dcp_state *parent, const char *key)
{
    struct buffer stream;
    if (writer->rank > 0)
        return dcp_state_none(parent, key);
    buffer_init(&stream, 0);
    dcp_status status = convert_read_stream(writer->writing->source, item, take_bytes, &stream);
    if (status == DCP_OK)
        status = dcp_state_stream(parent, key, stream.data, stream.size);
    buffer_free(&stream);
    return status;
}

/* Ranks have consecutive parts of the first dimension, as torch.chunk divides it. */
static dcp_status add_leaf(void *context, const struct convert_item *item, dcp_state *parent,
                           const char *key)
{
    struct writer *writer = context;
    struct dcp_writing *writing = writer->writing;
    dcp_tensor tensor;
    if (!item->is_tensor)
        return add_object(writer, item, parent, key);
    convert_memory_tensor(&writing->memory, item, &tensor);
    if (writing->rank_count > 1 && tensor.ndim > 0) {
        int64_t rows = tensor.global_shape[0], ranks = writing->rank_count;
        int64_t part = rows / ranks + (rows % ranks != 0);
        int64_t begin =
            writer->rank < (rows > 0 ? (rows + part - 1) / part : 0) ? writer->rank * part : rows;
        tensor.sharded = true;
        memcpy(tensor.sizes, tensor.global_shape, sizeof tensor.sizes);
        tensor.offsets[0] = begin;
        tensor.sizes[0] = rows - begin < part ? rows - begin : part;
        uint64_t row_bytes = rows > 0 ? item->bytes / (uint64_t)rows : 0;
        tensor.data = (char *)tensor.data + row_bytes * (uint64_t)begin;
    }
    return dcp_state_tensor(parent, key, &tensor) ? DCP_OK : dcp_state_status(parent);
}

/* The progress of all ranks, as one. */
static bool report(void *context, const dcp_progress *progress)
{
    struct writer *writer = context;
    struct progress *all = writer->writing->target->progress;
    bool written = progress->phase >= DCP_PHASE_WRITING;
    uint64_t done = written ? progress->bytes_done : writer->reported;
    uint64_t more = done > writer->reported ? done - writer->reported : 0;
    writer->reported += more;
    dcp_status status = progress_add(all, more);
    if (status == DCP_OK && progress->phase == DCP_PHASE_COMMIT && writer->rank == 0)
        status = progress_enter(all, DCP_PHASE_COMMIT, all->reported.bytes_total);
    return status == DCP_OK;
}

/* Within the limit; if that is too small, as of many ranks, within the smallest that will do. All
 * ranks get the same status, and do the same. */
static dcp_status save_limited(dcp_state *root, const char *path, dcp_save_options *save)
{
    dcp_estimate estimate = {.size_of = sizeof estimate};
    dcp_status status = dcp_save(root, path, save);
    if (status != DCP_ERR_NO_MEMORY || save->memory_limit == 0)
        return status;
    RETURN_IF_ERROR(dcp_save_estimate(root, path, save, &estimate));
    if (estimate.smallest_memory > save->memory_limit) {
        save->memory_limit = estimate.smallest_memory;
        status = dcp_save(root, path, save);
    }
    return status;
}

static dcp_status write_rank(struct writer *writer)
{
    struct dcp_writing *writing = writer->writing;
    dcp_save_options save = writing->save;
    dcp_state *root = dcp_state_new();
    if (!root)
        return error_no_memory(sizeof save, "a state tree");
    save.group = writer->group;
    save.progress = report;
    save.progress_context = writer;
    if (writer->rank > 0) {
        save.extra_files = NULL;
        save.extra_file_count = 0;
    }
    dcp_status status = convert_build_tree(writing->source, root, add_leaf, writer);
    /* A rank that has no tree still comes: its failure becomes everybody's. */
    if (writer->group)
        status = dcp_group_agree(writer->group, status, 0);
    if (status == DCP_OK)
        status = save_limited(root, writing->target->path, &save);
    dcp_state_free(root);
    return status;
}

static void *run_rank(void *argument)
{
    struct writer *writer = argument;
    struct dcp_writing *writing = writer->writing;
    pthread_mutex_lock(&writing->mutex);
    bool complete = writing->complete;
    pthread_mutex_unlock(&writing->mutex);
    writer->error.status = DCP_ERR_CANCELLED;
    if (complete && write_rank(writer) != DCP_OK)
        error_save(&writer->error);
    else if (complete)
        writer->error.status = DCP_OK;
    return NULL;
}

/* Threads wait for the mutex until all of them have started. */
static dcp_status run_ranks(struct dcp_writing *writing)
{
    int32_t started = 0;
    int failure = 0;
    pthread_mutex_lock(&writing->mutex);
    while (started < writing->rank_count && failure == 0) {
        struct writer *writer = &writing->writers[started];
        failure = thread_start(&writer->thread, run_rank, writer);
        started += failure == 0;
    }
    writing->complete = failure == 0;
    pthread_mutex_unlock(&writing->mutex);
    for (int32_t i = 0; i < started; i++)
        thread_join(&writing->writers[i].thread);
    if (failure != 0)
        return dcp_error_set(DCP_ERR_NO_MEMORY, "cannot start %d threads, one for each rank: %s",
                             (int)writing->rank_count, strerror(failure));
    for (int32_t i = 0; i < started; i++)
        if (writing->writers[i].error.status != DCP_OK)
            return error_restore(&writing->writers[i].error);
    return DCP_OK;
}

static dcp_status write_as_ranks(struct dcp_writing *writing)
{
    size_t count = (size_t)writing->rank_count;
    dcp_group **groups = memory_allocate_zeroed(count, sizeof(dcp_group *));
    dcp_status status =
        groups ? dcp_group_new_threads((int)writing->rank_count, groups)
               : error_no_memory(count * sizeof(dcp_group *), "the ranks of a conversion");
    for (size_t i = 0; i < count && status == DCP_OK; i++)
        writing->writers[i].group = groups[i];
    if (status == DCP_OK)
        status = run_ranks(writing);
    for (size_t i = 0; i < count && groups; i++)
        dcp_group_free(groups[i]);
    memory_release((void *)groups);
    return status;
}

static dcp_status write_directory(struct dcp_writing *writing)
{
    size_t count = (size_t)writing->rank_count;
    writing->writers = memory_allocate_zeroed(count, sizeof *writing->writers);
    if (!writing->writers)
        return error_no_memory(count * sizeof *writing->writers, "the ranks of a conversion");
    for (size_t i = 0; i < count; i++)
        writing->writers[i] = (struct writer){.writing = writing, .rank = (int32_t)i};
    writing->save.memory_limit = SAVE_MEMORY / count + SAVE_NAME_MEMORY * writing->source->count;
    dcp_status status = count > 1 ? write_as_ranks(writing) : write_rank(writing->writers);
    if (status != DCP_ERR_NO_MEMORY || writing->save.memory_limit == 0)
        return status;
    writing->save.memory_limit = 0; /* many ranks, long names, large objects */
    return count > 1 ? write_as_ranks(writing) : write_rank(writing->writers);
}

dcp_status convert_to_dcp(struct convert_source *source, const struct convert_target *target)
{
    const dcp_convert_options *options = source->options;
    struct dcp_writing writing = {.source = source, .target = target};
    writing.rank_count = options->ranks > 1 ? options->ranks : 1;
    writing.save = (dcp_save_options){
        .skip_sync = options->skip_sync,
        .compression = options->compression,
        .compression_level = options->compression_level,
        .storage = options->target_storage,
        .io_threads = writing.rank_count == 1 ? (int32_t)convert_thread_count(options) : 1,
    };
    pthread_mutex_init(&writing.mutex, NULL);
    dcp_status status = convert_memory_open(&writing.memory, source);
    if (status == DCP_OK)
        status = copied_extras_read(&writing.extras, source, &writing.save);
    if (status == DCP_OK && !options->dry_run)
        status = write_directory(&writing);
    copied_extras_free(&writing.extras);
    memory_release(writing.writers);
    convert_memory_close(&writing.memory);
    pthread_mutex_destroy(&writing.mutex);
    return status;
}
