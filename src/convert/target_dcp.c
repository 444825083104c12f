/* SPDX-License-Identifier: BSD-3-Clause */
/* A DCP directory: a save of tensors that are where the source has them, as by one rank or several.
 * One that can be continued is saved as DST.partial/data; a block of its journal is a rank's file.
 */
#include <pthread.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/memory_account.h"
#include "base/thread.h"
#include "checkpoint/save/save_as_ranks.h"
#include "convert/convert_copy.h"
#include "convert/convert_memory.h"
#include "convert/convert_output.h"
#include "convert/convert_target.h"
#include "convert/convert_tree.h"
#include "convert/copied_extras.h"
#include "dcp/estimate.h"

/* Of the save, so that it keeps to small buffers; and more for each name. */
#define SAVE_MEMORY      ((uint64_t)32 << 20)
#define SAVE_NAME_MEMORY ((uint64_t)4 << 10)
/* Compressing takes some 5 MiB of each thread at the usual level. */
#define COMPRESSING_THREADS ((size_t)8)

struct dcp_writing {
    const struct convert_source *source;
    const struct convert_target *target;
    struct convert_memory memory;
    struct copied_extras extras;
    dcp_save_options save;
    uint64_t reported;          /* bytes, to the progress */
    struct saved_error unsound; /* what the source is, if that ended the save */
};

static dcp_status take_bytes(void *context, const void *bytes, size_t size)
{
    struct buffer *stream = context;
    buffer_append(stream, bytes, size);
    return buffer_status(stream);
}

/* The object as the bytes that it is stored as. */
static dcp_status add_object(const struct dcp_writing *writing, const struct convert_item *item,
                             dcp_state *parent, const char *key)
{
    struct buffer stream;
    buffer_init(&stream, 0);
    dcp_status status = convert_read_stream(writing->source, item, take_bytes, &stream);
    if (status == DCP_OK)
        status = dcp_state_stream(parent, key, stream.data, stream.size);
    buffer_free(&stream);
    return status;
}

static dcp_status add_leaf(void *context, const struct convert_item *item, dcp_state *parent,
                           const char *key)
{
    struct dcp_writing *writing = context;
    dcp_tensor tensor;
    if (!item->is_tensor)
        return add_object(writing, item, parent, key);
    convert_memory_tensor(&writing->memory, item, &tensor);
    return dcp_state_tensor(parent, key, &tensor) ? DCP_OK : dcp_state_status(parent);
}

/* Else the save ends: for this, not because somebody has cancelled it. Memory for it is not the
 * save's, which may have a limit. */
static bool is_sound(struct dcp_writing *writing)
{
    struct memory_account *account = memory_account_enter(NULL);
    convert_memory_stop_ahead(&writing->memory);
    dcp_status status = convert_source_check(writing->source);
    memory_account_enter(account);
    if (status == DCP_OK)
        return true;
    error_save(&writing->unsound);
    writing->unsound.status = status;
    return false;
}

/* The progress of the save, as that of the conversion. */
static bool report(void *context, const dcp_progress *progress)
{
    struct dcp_writing *writing = context;
    struct progress *all = writing->target->progress;
    bool written = progress->phase >= DCP_PHASE_WRITING;
    uint64_t done = written ? progress->bytes_done : writing->reported;
    uint64_t more = done > writing->reported ? done - writing->reported : 0;
    writing->reported += more;
    dcp_status status = progress_add(all, more);
    if (status == DCP_OK && progress->phase == DCP_PHASE_COMMIT)
        status = progress_enter(all, DCP_PHASE_COMMIT, all->reported.bytes_total);
    return status == DCP_OK && (progress->phase != DCP_PHASE_COMMIT || is_sound(writing));
}

/* Within the limit; if that is too small, as of large objects, within the smallest that will do, or
 * without one. */
static dcp_status save_limited(dcp_state *root, const char *path, dcp_save_options *save)
{
    dcp_estimate estimate = {.size_of = sizeof estimate};
    dcp_status status = dcp_save(root, path, save);
    if (status == DCP_ERR_NO_MEMORY && dcp_save_estimate(root, path, save, &estimate) == DCP_OK &&
        estimate.smallest_memory > save->memory_limit) {
        save->memory_limit = estimate.smallest_memory;
        status = dcp_save(root, path, save);
    }
    if (status != DCP_ERR_NO_MEMORY)
        return status;
    save->memory_limit = 0;
    return dcp_save(root, path, save);
}

/* Of one rank: as many as there are processors, up to the usual number. What they write overlaps by
 * itself. */
static size_t file_threads(const dcp_convert_options *options)
{
    size_t count = thread_processor_count(), most = convert_thread_count(options);
    return options->thread_count == 0 && count < most ? count : most;
}

/* Of ranks whose files are written at a time. */
static size_t rank_threads(const dcp_convert_options *options)
{
    size_t count = thread_processor_count();
    if (options->thread_count > 0 || options->compression == DCP_COMPRESSION_NONE)
        return file_threads(options);
    return count < COMPRESSING_THREADS ? count : COMPRESSING_THREADS;
}

static dcp_status write_directory(struct dcp_writing *writing, const char *path,
                                  const struct save_kept *kept)
{
    const dcp_convert_options *options = writing->source->options;
    dcp_save_options save = writing->save;
    dcp_state *root = dcp_state_new();
    if (!root)
        return error_no_memory(sizeof save, "a state tree");
    save.progress = report;
    save.progress_context = writing;
    dcp_status status = convert_build_tree(writing->source, root, add_leaf, writing);
    if (status == DCP_OK && options->ranks > 1) {
        save.io_threads = 1;
        status = save_as_ranks(root, path, &save, (uint32_t)options->ranks,
                               (uint32_t)rank_threads(options), kept);
    } else if (status == DCP_OK) {
        save.io_threads = (int32_t)file_threads(options);
        save.memory_limit = SAVE_MEMORY + SAVE_NAME_MEMORY * writing->source->count;
        status = save_limited(root, path, &save);
    }
    dcp_state_free(root);
    return writing->unsound.status == DCP_OK ? status : error_restore(&writing->unsound);
}

/* The ranks of a journal, which their threads note. */
struct noted_ranks {
    struct convert_journal *journal;
    pthread_mutex_t mutex;
};

static dcp_status note_rank(void *context, uint32_t rank, uint64_t bytes)
{
    struct noted_ranks *noted = context;
    pthread_mutex_lock(&noted->mutex);
    dcp_status status =
        convert_journal_note(noted->journal, noted->journal->blocks + 1, bytes, &rank);
    pthread_mutex_unlock(&noted->mutex);
    return status;
}

static dcp_status take_noted(const struct convert_journal *journal, const struct save_kept *kept,
                             size_t rank_count)
{
    for (uint64_t i = 0; i < journal->blocks; i++) {
        if (journal->numbers[i] >= rank_count)
            return dcp_error_set(DCP_ERR_FORMAT,
                                 "%s: has a rank %u of %zu; remove %s to begin anew", journal->path,
                                 (unsigned)journal->numbers[i], rank_count, journal->directory);
        kept->ranks[journal->numbers[i]] = true;
    }
    return DCP_OK;
}

static dcp_status write_kept(struct dcp_writing *writing, const struct save_kept *kept)
{
    const struct convert_target *target = writing->target;
    struct convert_output output;
    dcp_status status =
        convert_output_begin(&output, target->path, true, writing->save.skip_sync, target->journal);
    if (status == DCP_OK)
        status = write_directory(writing, output.temporary, kept);
    if (status == DCP_OK)
        status = convert_output_commit(&output, writing->source, target->progress);
    convert_output_end(&output);
    return status;
}

static dcp_status write_resumed(struct dcp_writing *writing)
{
    struct convert_journal *journal = writing->target->journal;
    struct noted_ranks noted = {journal, PTHREAD_MUTEX_INITIALIZER};
    struct save_kept kept = {.written = note_rank, .context = &noted};
    size_t rank_count = (size_t)writing->source->options->ranks;
    kept.ranks = memory_allocate_zeroed(rank_count, sizeof *kept.ranks);
    if (!kept.ranks)
        return error_no_memory(rank_count * sizeof *kept.ranks, "ranks of a conversion");
    dcp_status status = take_noted(journal, &kept, rank_count);
    if (status == DCP_OK)
        status = write_kept(writing, &kept);
    memory_release(kept.ranks);
    return status;
}

dcp_status convert_to_dcp(struct convert_source *source, const struct convert_target *target)
{
    const dcp_convert_options *options = source->options;
    struct dcp_writing writing = {.source = source, .target = target};
    writing.save = (dcp_save_options){
        .skip_sync = options->skip_sync,
        .compression = options->compression,
        .compression_level = options->compression_level,
        .storage = options->target_storage,
    };
    dcp_status status = convert_memory_open(&writing.memory, source);
    if (status == DCP_OK && options->ranks <= 1 && !options->dry_run)
        status = convert_memory_use_windows(&writing.memory);
    if (status == DCP_OK)
        status = copied_extras_read(&writing.extras, source, &writing.save);
    if (status == DCP_OK && !options->dry_run)
        status = target->journal ? write_resumed(&writing)
                                 : write_directory(&writing, target->path, NULL);
    copied_extras_free(&writing.extras);
    convert_memory_close(&writing.memory);
    return status;
}
