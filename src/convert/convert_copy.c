/* SPDX-License-Identifier: BSD-3-Clause */
#include "convert/convert_copy.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/checksum.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"
#include "convert/convert_order.h"
#include "convert/convert_writer.h"

/* Also where there are fewer processors: they wait for disks. */
enum { THREADS_USUAL = 4, THREADS_MAX = 64 };
/* Of the widest elements. */
enum { ELEMENT_ALIGNMENT = 8 };

/* Where there is a journal, it is told of so many bytes more, or after so long. */
#define NOTE_BYTES       ((uint64_t)256 << 20)
#define NOTE_NANOSECONDS INT64_C(2000000000)

struct copying {
    const struct convert_source *source;
    struct convert_output *output;
    struct convert_run **runs; /* in the order in which they are copied */
    size_t run_count;
    size_t *first;  /* the first block of each run, and behind the last */
    uint32_t *crcs; /* of blocks; NULL: not wanted */
    atomic_size_t next;
    atomic_size_t *at; /* by thread: the block that it is at, or behind the last */
    size_t thread_count;
    atomic_uint_fast64_t fresh; /* bytes since the last note */
    pthread_mutex_t noting;     /* guards what follows, and the journal */
    size_t noted;               /* blocks that the journal tells of, of this copy */
    int64_t noted_at;
    atomic_bool failed;
    struct progress *progress;
};

static size_t block_count(const struct convert_run *run)
{
    return (size_t)(run->size / CONVERT_BLOCK + (run->size % CONVERT_BLOCK != 0));
}

/* The run that a block is of. */
static size_t find_run(const struct copying *copying, size_t block)
{
    size_t low = 0, high = copying->run_count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (copying->first[middle] <= block)
            low = middle;
        else
            high = middle;
    }
    return low;
}

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

/* Where a block begins in its run; *size: its bytes. */
static uint64_t block_begin(const struct copying *copying, size_t run, size_t block, size_t *size)
{
    uint64_t begin = (uint64_t)(block - copying->first[run]) * CONVERT_BLOCK;
    uint64_t left = copying->runs[run]->size - begin;
    *size = left < CONVERT_BLOCK ? (size_t)left : CONVERT_BLOCK;
    return begin;
}

/* ---- the journal ---- */

/* Blocks before it are done: threads take them in order, and say where they are when they have. */
static size_t done_blocks(const struct copying *copying)
{
    size_t least = copying->first[copying->run_count];
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
    size_t done = done_blocks(copying), size;
    uint64_t bytes = 0;
    if (done <= copying->noted)
        return DCP_OK;
    for (size_t block = copying->noted; block < done; block++, bytes += size)
        block_begin(copying, find_run(copying, block), block, &size);
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
    for (size_t i = 0; i < copying->run_count && copying->first[i] < kept; i++) {
        const struct convert_run *run = copying->runs[i];
        uint64_t there = (uint64_t)(kept - copying->first[i]) * CONVERT_BLOCK;
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
    size_t blocks = copying->first[copying->run_count];
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

/* Where a block goes in memory: it lies in its page as in the file's, as far as elements can. */
static void *place_block(unsigned char *space, uint64_t offset)
{
    size_t skew = (size_t)(offset % MEMORY_PAGE);
    return skew % ELEMENT_ALIGNMENT == 0 ? space + skew : space;
}

static dcp_status copy_block(struct copying *copying, size_t thread, size_t block,
                             unsigned char *space, struct convert_writer *writer)
{
    size_t index = find_run(copying, block), size;
    const struct convert_run *run = copying->runs[index];
    uint64_t begin = block_begin(copying, index, block, &size), offset = run->offset + begin;
    const void *bytes;
    RETURN_IF_ERROR(read_block(copying, run, begin, size, place_block(space, offset), &bytes));
    if (copying->crcs)
        copying->crcs[block] = crc32_update(0, bytes, size);
    RETURN_IF_ERROR(convert_writer_write(writer, run->file, bytes, size, offset));
    atomic_store(&copying->at[thread], block + 1);
    RETURN_IF_ERROR(note_if_due(copying, size));
    return progress_add(copying->progress, size);
}

/* One thread: takes blocks until there are none. */
static dcp_status copy_blocks(void *context, size_t index)
{
    struct copying *copying = context;
    size_t count = copying->first[copying->run_count], block;
    struct convert_writer writer;
    unsigned char *space = memory_allocate_large(CONVERT_BLOCK + MEMORY_PAGE);
    if (!space)
        return error_no_memory(CONVERT_BLOCK + MEMORY_PAGE, "a block");
    convert_writer_init(&writer, copying->output);
    dcp_status status = DCP_OK;
    while (status == DCP_OK && !atomic_load(&copying->failed) &&
           (block = atomic_fetch_add(&copying->next, 1)) < count) {
        atomic_store(&copying->at[index], block);
        status = copy_block(copying, index, block, space, &writer);
    }
    if (status != DCP_OK)
        atomic_store(&copying->failed, true);
    else if (!atomic_load(&copying->failed))
        atomic_store(&copying->at[index], count);
    convert_writer_close(&writer);
    memory_release_aligned(space);
    return status;
}

static void join_sums(const struct copying *copying)
{
    for (size_t i = 0; i < copying->run_count; i++) {
        struct convert_run *run = copying->runs[i];
        uint64_t left = run->size;
        run->crc = 0;
        for (size_t block = copying->first[i]; block < copying->first[i + 1]; block++) {
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
    atomic_store(&copying->next, kept);
    for (size_t i = 0; i < copying->thread_count; i++)
        atomic_store(&copying->at[i], kept);
    copying->noted = kept;
    copying->noted_at = clock_monotonic_ns();
    dcp_status status =
        thread_run(copying->thread_count, copying->thread_count, copy_blocks, copying);
    if (!copying->output->journal)
        return status;
    if (status == DCP_OK)
        return note(copying);
    error_save(&error);
    error.status = status;
    note(copying);
    return error_restore(&error);
}

/* Orders the runs, and numbers their blocks. */
static dcp_status prepare(struct copying *copying, struct convert_run *runs, bool with_crc,
                          size_t *blocks)
{
    size_t count = copying->run_count;
    copying->runs = memory_allocate_array(count, sizeof *copying->runs);
    copying->first = memory_allocate_array(count + 1, sizeof *copying->first);
    copying->at = memory_allocate_zeroed(copying->thread_count, sizeof *copying->at);
    if (!copying->runs || !copying->first || !copying->at)
        return error_no_memory(2 * count * sizeof(size_t), "the parts of a conversion");
    RETURN_IF_ERROR(convert_order(copying->source, runs, count, copying->runs));
    *blocks = 0;
    for (size_t i = 0; i < count; i++) {
        copying->first[i] = *blocks;
        *blocks += block_count(copying->runs[i]);
    }
    copying->first[count] = *blocks;
    if (with_crc)
        copying->crcs = memory_allocate_array(*blocks, sizeof *copying->crcs);
    return !with_crc || copying->crcs
               ? DCP_OK
               : error_no_memory(*blocks * sizeof *copying->crcs, "the blocks of a conversion");
}

dcp_status convert_copy(const struct convert_source *source, struct convert_output *output,
                        struct convert_run *runs, size_t count, bool with_crc,
                        struct progress *progress)
{
    struct copying copying = {.source = source,
                              .output = output,
                              .run_count = count,
                              .thread_count = convert_thread_count(source->options),
                              .progress = progress};
    size_t blocks;
    dcp_status status = prepare(&copying, runs, with_crc, &blocks);
    pthread_mutex_init(&copying.noting, NULL);
    if (status == DCP_OK)
        status = run_threads(&copying);
    if (status == DCP_OK && with_crc)
        join_sums(&copying);
    if (status == DCP_OK)
        output->copied += blocks;
    pthread_mutex_destroy(&copying.noting);
    memory_release((void *)copying.runs);
    memory_release(copying.first);
    memory_release(copying.at);
    memory_release(copying.crcs);
    return status;
}
