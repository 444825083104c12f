/* SPDX-License-Identifier: BSD-3-Clause */
#include "convert/convert_copy.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/checksum.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"
#include "convert/convert_blocks.h"
#include "convert/convert_writer.h"

/* Also where there are fewer processors: they wait for disks. */
enum { THREADS_USUAL = 4, THREADS_MAX = 64 };

/* Where there is a journal, it is told of so many bytes more, or after so long. */
#define NOTE_BYTES       ((uint64_t)256 << 20)
#define NOTE_NANOSECONDS INT64_C(2000000000)

struct copying {
    const struct convert_source *source;
    struct convert_output *output;
    const struct convert_gaps *gaps;
    struct convert_blocks blocks;
    uint32_t *crcs;     /* of blocks; NULL: not wanted */
    atomic_size_t next; /* group */
    size_t kept;        /* blocks that an earlier conversion has copied */
    atomic_size_t *at;  /* by thread: the block that it is at, or behind the last */
    size_t thread_count;
    atomic_uint_fast64_t fresh; /* bytes since the last note */
    pthread_mutex_t noting;     /* guards what follows, and the journal */
    size_t noted;               /* blocks that the journal tells of, of this copy */
    int64_t noted_at;
    atomic_bool failed;
    struct progress *progress;
};

static dcp_status read_block(const struct copying *copying, const struct convert_run *run,
                             uint64_t begin, size_t size, void *space, const void **bytes)
{
    *bytes = space;
    if (!run->item) {
        *bytes = (const unsigned char *)run->bytes + begin;
        return DCP_OK;
    }
    size_t element = dcp_dtype_size(run->item->dtype);
    int64_t first = (int64_t)(begin / element), count = (int64_t)(size / element);
    if (run->storage)
        return dcp_checkpoint_read_storage(copying->source->checkpoint, run->item->entry, first,
                                           count, space, NULL);
    return convert_read(copying->source, run->item, first, count, space);
}

/* ---- the journal ---- */

/* Blocks before it are done: threads take them in order, and say where they are when they have. */
static size_t done_blocks(const struct copying *copying)
{
    size_t least = copying->blocks.count;
    for (size_t i = 0; i < copying->thread_count; i++) {
        size_t at = atomic_load(&copying->at[i]);
        least = at < least ? at : least;
    }
    return least;
}

/* Tells the journal what is done. Called with the mutex. */
static dcp_status note(struct copying *copying)
{
    struct convert_output *output = copying->output;
    size_t done = done_blocks(copying);
    uint64_t bytes = 0;
    if (done <= copying->noted)
        return DCP_OK;
    for (size_t block = copying->noted; block < done; block++)
        bytes += convert_block_at(&copying->blocks, block).size;
    atomic_store(&copying->fresh, 0);
    RETURN_IF_ERROR(convert_output_sync(output));
    RETURN_IF_ERROR(convert_journal_note(output->journal, output->copied + done, bytes,
                                         copying->crcs ? copying->crcs + copying->noted : NULL));
    copying->noted = done;
    copying->noted_at = clock_monotonic_ns();
    return DCP_OK;
}

/* A block was written: it may be time for a note. Only one thread stays for that. */
static dcp_status note_if_due(struct copying *copying, size_t size)
{
    uint64_t fresh = atomic_fetch_add(&copying->fresh, size) + size;
    if (!copying->output->journal || pthread_mutex_trylock(&copying->noting) != 0)
        return DCP_OK;
    bool due = fresh >= NOTE_BYTES || clock_monotonic_ns() - copying->noted_at >= NOTE_NANOSECONDS;
    dcp_status status = due ? note(copying) : DCP_OK;
    pthread_mutex_unlock(&copying->noting);
    return status;
}

/* That files have what the journal tells of. */
static dcp_status check_kept(const struct copying *copying, size_t kept)
{
    const struct convert_output *output = copying->output;
    const struct convert_blocks *blocks = &copying->blocks;
    for (size_t i = 0; i < blocks->run_count && blocks->first[i] < kept; i++) {
        const struct convert_run *run = blocks->runs[i];
        uint64_t there = (uint64_t)(kept - blocks->first[i]) * CONVERT_BLOCK;
        there = there < run->size ? there : run->size;
        if (output->found[run->file] < run->offset + there)
            return dcp_error_set(DCP_ERR_FORMAT,
                                 "%s: is shorter than its journal says; remove %s to begin anew",
                                 output->names[run->file], output->journal->directory);
    }
    return DCP_OK;
}

/* Blocks that are there from an earlier conversion; *count: how many. */
static dcp_status keep_blocks(struct copying *copying, size_t *count)
{
    const struct convert_output *output = copying->output;
    const struct convert_journal *journal = output->journal;
    size_t blocks = copying->blocks.count;
    *count = 0;
    if (!journal || journal->blocks <= output->copied)
        return DCP_OK;
    *count = journal->blocks - output->copied < blocks ? (size_t)(journal->blocks - output->copied)
                                                       : blocks;
    for (size_t i = 0; i < *count && copying->crcs; i++)
        copying->crcs[i] = journal->numbers[output->copied + i];
    return check_kept(copying, *count);
}

/* ---- copying ---- */

/* What a thread has for it. */
struct copy_thread {
    struct copying *copying;
    size_t index;
    unsigned char *space;
    struct convert_writer writer;
    struct convert_whole *wholes; /* of a group */
};

/* Where a block goes in memory: it lies in its page as in the file's, as far as elements can. */
static unsigned char *place_block(unsigned char *space, uint64_t offset)
{
    size_t skew = (size_t)(offset % MEMORY_PAGE);
    return skew % CONVERT_ALIGNMENT == 0 ? space + skew : space;
}

/* Blocks of so many bytes, up to `end`, are in the file. */
static dcp_status pass_blocks(struct copy_thread *thread, size_t end, size_t size)
{
    struct copying *copying = thread->copying;
    atomic_store(&copying->at[thread->index], end);
    RETURN_IF_ERROR(note_if_due(copying, size));
    return progress_add(copying->progress, size);
}

static dcp_status copy_block(struct copy_thread *thread, size_t index)
{
    struct copying *copying = thread->copying;
    const struct convert_block block = convert_block_at(&copying->blocks, index);
    uint64_t offset = block.run->offset + block.begin;
    const void *bytes;
    RETURN_IF_ERROR(read_block(copying, block.run, block.begin, block.size,
                               place_block(thread->space, offset), &bytes));
    if (copying->crcs)
        copying->crcs[index] = crc32_update(0, bytes, block.size);
    RETURN_IF_ERROR(
        convert_writer_write(&thread->writer, block.run->file, bytes, block.size, offset));
    return pass_blocks(thread, index + 1, block.size);
}

/* Reads the runs of a group to where they lie in the file, from the first one on. */
static dcp_status read_group(struct copy_thread *thread, size_t first, size_t end,
                             unsigned char *bytes)
{
    const struct convert_blocks *blocks = &thread->copying->blocks;
    uint64_t begin = convert_block_at(blocks, first).run->offset;
    size_t count = 0;
    for (size_t i = first; i < end; i++) {
        const struct convert_run *run = convert_block_at(blocks, i).run;
        unsigned char *place = bytes + (run->offset - begin);
        if (run->item)
            thread->wholes[count++] = (struct convert_whole){run->item, place};
        else
            memcpy(place, run->bytes, (size_t)run->size);
    }
    return count > 0 ? convert_read_wholes(thread->copying->source, thread->wholes, count) : DCP_OK;
}

/* Takes the checksums of a group's runs, and fills what is between them. Returns the bytes of them
 * alone. */
static size_t finish_group(const struct copying *copying, size_t first, size_t end,
                           unsigned char *bytes)
{
    struct convert_run *before = NULL;
    size_t size = 0;
    for (size_t i = first; i < end; i++) {
        struct convert_run *run = convert_block_at(&copying->blocks, i).run;
        if (before) {
            size_t gap = (size_t)(run->offset - before->offset - before->size);
            memset(bytes, 0, gap);
            if (gap > 0 && copying->gaps)
                copying->gaps->fill(copying->gaps->context, before, bytes, gap);
            bytes += gap;
        }
        if (copying->crcs)
            run->crc = copying->crcs[i] = crc32_update(0, bytes, (size_t)run->size);
        bytes += run->size;
        size += (size_t)run->size;
        before = run;
    }
    return size;
}

static dcp_status copy_group(struct copy_thread *thread, size_t first, size_t end)
{
    const struct convert_blocks *blocks = &thread->copying->blocks;
    const struct convert_run *from = convert_block_at(blocks, first).run;
    const struct convert_run *last = convert_block_at(blocks, end - 1).run;
    unsigned char *bytes = place_block(thread->space, from->offset);
    if (end - first == 1)
        return copy_block(thread, first);
    RETURN_IF_ERROR(read_group(thread, first, end, bytes));
    size_t size = finish_group(thread->copying, first, end, bytes);
    RETURN_IF_ERROR(convert_writer_write(&thread->writer, from->file, bytes,
                                         (size_t)(last->offset + last->size - from->offset),
                                         from->offset));
    return pass_blocks(thread, end, size);
}

/* Takes groups until there are none; of the first one there may be blocks already. */
static dcp_status copy_groups(struct copy_thread *thread)
{
    struct copying *copying = thread->copying;
    const struct convert_blocks *blocks = &copying->blocks;
    dcp_status status = DCP_OK;
    size_t group, kept = copying->kept;
    while (status == DCP_OK && !atomic_load(&copying->failed) &&
           (group = atomic_fetch_add(&copying->next, 1)) < blocks->group_count) {
        size_t first = blocks->groups[group] > kept ? blocks->groups[group] : kept;
        atomic_store(&copying->at[thread->index], first);
        status = copy_group(thread, first, blocks->groups[group + 1]);
    }
    return status;
}

static dcp_status run_thread(void *context, size_t index)
{
    struct copying *copying = context;
    struct copy_thread thread = {.copying = copying, .index = index};
    thread.space = memory_allocate_large(CONVERT_BLOCK + MEMORY_PAGE);
    thread.wholes = memory_allocate_array(CONVERT_GROUP_MOST, sizeof *thread.wholes);
    convert_writer_init(&thread.writer, copying->output);
    dcp_status status = thread.space && thread.wholes
                            ? copy_groups(&thread)
                            : error_no_memory(CONVERT_BLOCK + MEMORY_PAGE, "a block");
    if (status != DCP_OK)
        atomic_store(&copying->failed, true);
    else if (!atomic_load(&copying->failed))
        atomic_store(&copying->at[index], copying->blocks.count);
    convert_writer_close(&thread.writer);
    memory_release(thread.wholes);
    memory_release_aligned(thread.space);
    return status;
}

static void join_sums(const struct copying *copying)
{
    const struct convert_blocks *blocks = &copying->blocks;
    for (size_t i = 0; i < blocks->run_count; i++) {
        struct convert_run *run = blocks->runs[i];
        uint64_t left = run->size;
        run->crc = 0;
        for (size_t block = blocks->first[i]; block < blocks->first[i + 1]; block++) {
            uint64_t size = left < CONVERT_BLOCK ? left : CONVERT_BLOCK;
            run->crc = crc32_join(run->crc, copying->crcs[block], size);
            left -= size;
        }
    }
}

size_t convert_thread_count(const dcp_convert_options *options)
{
    size_t count = (size_t)options->thread_count;
    if (options->thread_count == 0)
        return THREADS_USUAL;
    return count < THREADS_MAX ? count : THREADS_MAX;
}

/* Threads copy what is not there yet. A failure keeps what was done. */
static dcp_status run_threads(struct copying *copying)
{
    struct saved_error error;
    size_t kept;
    RETURN_IF_ERROR(keep_blocks(copying, &kept));
    copying->kept = kept;
    atomic_store(&copying->next, kept < copying->blocks.count
                                     ? convert_blocks_group(&copying->blocks, kept)
                                     : copying->blocks.group_count);
    for (size_t i = 0; i < copying->thread_count; i++)
        atomic_store(&copying->at[i], kept);
    copying->noted = kept;
    copying->noted_at = clock_monotonic_ns();
    dcp_status status =
        thread_run(copying->thread_count, copying->thread_count, run_thread, copying);
    if (!copying->output->journal)
        return status;
    if (status == DCP_OK)
        return note(copying);
    error_save(&error);
    error.status = status;
    note(copying);
    return error_restore(&error);
}

static dcp_status prepare(struct copying *copying, struct convert_run *runs, size_t count)
{
    RETURN_IF_ERROR(convert_blocks_make(copying->source, runs, count, &copying->blocks));
    copying->at = memory_allocate_zeroed(copying->thread_count, sizeof *copying->at);
    if (!copying->at)
        return error_no_memory(copying->thread_count * sizeof *copying->at, "threads");
    size_t blocks = copying->blocks.count;
    if (copying->gaps)
        copying->crcs = memory_allocate_array(blocks, sizeof *copying->crcs);
    return !copying->gaps || copying->crcs
               ? DCP_OK
               : error_no_memory(blocks * sizeof *copying->crcs, "the blocks of a conversion");
}

dcp_status convert_copy(const struct convert_source *source, struct convert_output *output,
                        struct convert_run *runs, size_t count, const struct convert_gaps *gaps,
                        struct progress *progress)
{
    struct copying copying = {.source = source,
                              .output = output,
                              .gaps = gaps,
                              .thread_count = convert_thread_count(source->options),
                              .progress = progress};
    dcp_status status = prepare(&copying, runs, count);
    pthread_mutex_init(&copying.noting, NULL);
    if (status == DCP_OK)
        status = run_threads(&copying);
    if (status == DCP_OK && gaps)
        join_sums(&copying);
    if (status == DCP_OK)
        output->copied += copying.blocks.count;
    pthread_mutex_destroy(&copying.noting);
    convert_blocks_free(&copying.blocks);
    memory_release(copying.at);
    memory_release(copying.crcs);
    return status;
}
