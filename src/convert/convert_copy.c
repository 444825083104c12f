/* SPDX-License-Identifier: BSD-3-Clause */
#include "convert/convert_copy.h"

#include <stdatomic.h>

#include "base/checksum.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"

enum { THREADS_USUAL = 4, THREADS_MAX = 64 };

struct copying {
    const struct convert_source *source;
    const struct convert_output *output;
    struct convert_run *runs;
    size_t run_count;
    size_t *first;  /* the first block of each run, and behind the last */
    uint32_t *crcs; /* of blocks; NULL: not wanted */
    atomic_size_t next;
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

static dcp_status copy_block(struct copying *copying, size_t block, void *space)
{
    size_t index = find_run(copying, block);
    const struct convert_run *run = &copying->runs[index];
    uint64_t begin = (uint64_t)(block - copying->first[index]) * CONVERT_BLOCK;
    uint64_t left = run->size - begin;
    size_t size = left < CONVERT_BLOCK ? (size_t)left : CONVERT_BLOCK;
    const void *bytes;
    RETURN_IF_ERROR(read_block(copying, run, begin, size, space, &bytes));
    if (copying->crcs)
        copying->crcs[block] = crc32_update(0, bytes, size);
    RETURN_IF_ERROR(
        convert_output_write(copying->output, run->file, bytes, size, run->offset + begin));
    return progress_add(copying->progress, size);
}

/* One thread: takes blocks until there are none. */
static dcp_status copy_blocks(void *context, size_t index)
{
    struct copying *copying = context;
    size_t count = copying->first[copying->run_count], block;
    (void)index;
    void *space = memory_allocate(CONVERT_BLOCK);
    if (!space)
        return error_no_memory(CONVERT_BLOCK, "a block");
    dcp_status status = DCP_OK;
    while (status == DCP_OK && !atomic_load(&copying->failed) &&
           (block = atomic_fetch_add(&copying->next, 1)) < count)
        status = copy_block(copying, block, space);
    if (status != DCP_OK)
        atomic_store(&copying->failed, true);
    memory_release(space);
    return status;
}

static void join_sums(const struct copying *copying)
{
    for (size_t i = 0; i < copying->run_count; i++) {
        struct convert_run *run = &copying->runs[i];
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
    if (options->thread_count > 0)
        return count < THREADS_MAX ? count : THREADS_MAX;
    count = thread_processor_count();
    return count < THREADS_USUAL ? count : THREADS_USUAL;
}

dcp_status convert_copy(const struct convert_source *source, const struct convert_output *output,
                        struct convert_run *runs, size_t count, bool with_crc,
                        struct progress *progress)
{
    struct copying copying = {
        .source = source, .output = output, .runs = runs, .run_count = count, .progress = progress};
    size_t threads = convert_thread_count(source->options), blocks = 0;
    dcp_status status = DCP_OK;
    copying.first = memory_allocate_array(count + 1, sizeof *copying.first);
    for (size_t i = 0; i < count && copying.first; i++) {
        copying.first[i] = blocks;
        blocks += block_count(&runs[i]);
    }
    if (copying.first)
        copying.first[count] = blocks;
    if (with_crc)
        copying.crcs = memory_allocate_array(blocks, sizeof *copying.crcs);
    if (!copying.first || (with_crc && !copying.crcs))
        status = error_no_memory((blocks + count) * sizeof(size_t), "the blocks of a conversion");
    if (status == DCP_OK)
        status = thread_run(threads, threads, copy_blocks, &copying);
    if (status == DCP_OK && with_crc)
        join_sums(&copying);
    memory_release(copying.first);
    memory_release(copying.crcs);
    return status;
}
