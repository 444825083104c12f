/* SPDX-License-Identifier: BSD-3-Clause */
#include "device/staging_needs.h"

#include "base/memory.h"
#include "base/thread.h"
#include "device/staging_pieces.h"
#include "state/copy.h"
#include "state/device_memory.h"

/* The staging itself, queues of devices, the list of threads, and overhead of blocks. */
#define SMALL_THINGS ((uint64_t)64 << 10)

void staging_needs_find(const struct staging_source *sources, size_t count, bool detect_changes,
                        struct staging_needs *needs)
{
    struct staging_pieces pieces;
    *needs = (struct staging_needs){.count = count, .detects = detect_changes};
    for (int i = 0; i < STAGING_PIECE_SIZES; i++) {
        staging_pieces_measure(&pieces, sources, count,
                               staging_piece_most(STAGING_LIMIT_MINIMUM << i));
        needs->lists[i] = staging_pieces_memory(&pieces);
    }
    needs->bytes = pieces.bytes;
    needs->pool = pieces.pool_size;
    for (size_t i = 0; i < count && !needs->packs; i++)
        needs->packs = !device_is_host(&sources[i].device) &&
                       !copy_is_dense(sources[i].ndim, sources[i].sizes, sources[i].strides);
}

static bool is_whole(const struct staging_needs *needs, const struct staging_options *options)
{
    return options->limit == 0 || needs->pool <= options->limit;
}

uint64_t staging_needs_pool(const struct staging_needs *needs,
                            const struct staging_options *options)
{
    if (needs->count == 0)
        return 0;
    uint64_t size = is_whole(needs, options) ? needs->pool : options->limit;
    return staging_pool_memory(size < MEMORY_PAGE ? MEMORY_PAGE : size);
}

/* All memory except the pool. */
static uint64_t beside_pool(const struct staging_needs *needs,
                            const struct staging_options *options)
{
    size_t most = staging_piece_most(options->limit), threads;
    int size = 0;
    threads = staging_thread_count(needs->bytes, options->threads);
    while (size + 1 < STAGING_PIECE_SIZES &&
           staging_piece_most(STAGING_LIMIT_MINIMUM << (size + 1)) <= most)
        size++;
    uint64_t spaces = (needs->packs ? threads : 0) + (needs->detects ? 1 : 0);
    return SMALL_THINGS + needs->lists[size] + threads * (uint64_t)THREAD_STACK_SIZE +
           spaces * most;
}

uint64_t staging_needs_memory(const struct staging_needs *needs,
                              const struct staging_options *options)
{
    return needs->count == 0 ? 0 : staging_needs_pool(needs, options) + beside_pool(needs, options);
}

/* Small waves need a small pool, but many pieces in lists. */
void staging_needs_minimize(const struct staging_needs *needs, bool whole,
                            struct staging_options *options)
{
    struct staging_options least = *options, tried = *options;
    least.threads = tried.threads = 1;
    for (int i = 0; i < STAGING_PIECE_SIZES && !whole; i++) {
        tried.limit = STAGING_LIMIT_MINIMUM << i;
        if ((options->limit == 0 || tried.limit <= options->limit) &&
            staging_needs_memory(needs, &tried) < staging_needs_memory(needs, &least))
            least = tried;
    }
    *options = least;
}

bool staging_needs_fit_whole(const struct staging_needs *needs, uint64_t memory,
                             struct staging_options *options)
{
    struct staging_options tried = *options;
    tried.threads = (uint32_t)staging_thread_count(needs->bytes, options->threads);
    while (staging_needs_memory(needs, &tried) > memory && tried.threads > 1)
        tried.threads--;
    if (!is_whole(needs, &tried) || staging_needs_memory(needs, &tried) > memory)
        return false;
    *options = tried;
    return true;
}

/* All threads but the first get an eighth of the memory at most. */
void staging_needs_fit_waves(const struct staging_needs *needs, uint64_t memory,
                             struct staging_options *options)
{
    struct staging_options least = *options, tried = *options;
    staging_needs_minimize(needs, false, &least);
    tried.threads = (uint32_t)staging_thread_count(needs->bytes, options->threads);
    while (tried.threads > 1 && tried.threads * (uint64_t)THREAD_STACK_SIZE > memory / 8)
        tried.threads--;
    if (tried.limit == 0 || tried.limit > memory)
        tried.limit = memory & ~(uint64_t)(MEMORY_PAGE - 1);
    for (;;) {
        uint64_t taken = staging_needs_memory(needs, &tried);
        if (taken <= memory)
            break;
        uint64_t excess = (taken - memory + MEMORY_PAGE - 1) & ~(uint64_t)(MEMORY_PAGE - 1);
        if (tried.limit < STAGING_LIMIT_MINIMUM + excess) {
            tried = least;
            break;
        }
        tried.limit -= excess;
    }
    *options = tried;
}
