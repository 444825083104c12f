/* SPDX-License-Identifier: BSD-3-Clause */
#include "checkpoint/save/save_needs.h"

#include <string.h>

#include "base/error.h"
#include "base/thread.h"
#include "checkpoint/save/save_beside.h"

/* Memory for paths, lists of files and messages during the commit, and for exchanges. */
#define SMALL_THINGS ((uint64_t)64 << 10)
/* Memory of a write result at the coordinator, as a message and decoded. */
#define RESULT_SIZE ((uint64_t)256)

/* Results come from all ranks when a save is compressed. */
static uint64_t results_memory(const struct metadata *metadata, const dcp_save_options *options)
{
    uint64_t pieces = 0;
    if (options->compression == DCP_COMPRESSION_NONE)
        return 0;
    for (size_t i = 0; i < metadata->count; i++)
        pieces += metadata->entries[i].piece_count;
    return pieces * RESULT_SIZE;
}

static dcp_status look_at_commit(const dcp_saving *saving, struct save_needs *needs)
{
    uint64_t metadata_bytes, results;
    struct memory_span span;
    if (!saving->coordinates)
        return DCP_OK;
    memory_span_start(&span);
    dcp_status status =
        save_coordinator_measure(&saving->coordinator, &saving->options, &metadata_bytes);
    needs->commit = memory_span_end(&span);
    RETURN_IF_ERROR(status);
    results = results_memory(&saving->coordinator.metadata, &saving->options);
    needs->commit = results > needs->commit ? results : needs->commit;
    needs->bytes += metadata_bytes;
    needs->files += 2;
    return DCP_OK;
}

static dcp_status look_at_staging(const dcp_saving *saving, struct save_needs *needs)
{
    const struct write_orders *orders = &saving->orders;
    needs->staged = saving->staging.wanted && !saving->staged;
    if (!needs->staged)
        return DCP_OK;
    needs->lists = orders->count * (sizeof(struct shard_source) + sizeof(uint64_t));
    needs->starting = orders->count * sizeof(struct staging_source) + SMALL_THINGS;
    return save_staging_needs(orders, saving->local.sources, &saving->staging, &needs->staging);
}

/* Of the copies of the whole state, which an asynchronous save with hooks holds until it ends. */
static dcp_status look_at_tree(const dcp_saving *saving, struct save_needs *needs, uint64_t *memory)
{
    *memory = 0;
    if (!saving->staging.tree)
        return DCP_OK;
    uint64_t objects;
    RETURN_IF_ERROR(
        save_staging_tree_needs(&saving->local.flat, &saving->staging, &needs->staging, &objects));
    /* Once it has begun, the tensors in objects have been copied, and are among what is held. */
    *memory = saving->staging.begun
                  ? staging_needs_pool(&needs->staging, &saving->staging.options)
                  : staging_needs_memory(&needs->staging, &saving->staging.options) + objects +
                        SMALL_THINGS;
    return DCP_OK;
}

/* Sets the way of writing that takes the least memory. */
static void minimize(const struct save_needs *needs, struct shard_write_options *how,
                     struct save_staging *staging)
{
    shard_needs_minimize(how);
    staging_needs_minimize(&needs->staging, staging->whole, &staging->options);
}

dcp_status save_needs_find(const dcp_saving *saving, struct save_needs *needs)
{
    const struct memory_account *account = saving->operation.account;
    struct shard_write_options least = saving->how;
    struct save_staging staging = saving->staging;
    uint64_t copies;
    *needs = (struct save_needs){0};
    RETURN_IF_ERROR(shard_needs_find(&saving->session, saving->file_rank, &saving->orders,
                                     saving->local.sources, staging.wanted, &saving->how,
                                     &needs->writing));
    needs->bytes = needs->writing.bytes + save_extra_files_size(&saving->extra_files);
    needs->files = needs->writing.files + saving->extra_files.count;
    RETURN_IF_ERROR(look_at_commit(saving, needs));
    RETURN_IF_ERROR(look_at_staging(saving, needs));
    RETURN_IF_ERROR(look_at_tree(saving, needs, &copies));
    /* The pool can be freed, or has the copies of the state. */
    bool replaced = (needs->staged || staging.tree) && staging.pool;
    uint64_t pool = replaced ? staging_pool_taken(staging.pool) : 0;
    needs->held = memory_account_taken(account) - pool + copies;
    needs->peak = memory_account_peak(account) - pool + copies + SMALL_THINGS;
    needs->commit += SMALL_THINGS;
    if (needs->peak < needs->held + needs->commit)
        needs->peak = needs->held + needs->commit;
    uint64_t planning = needs->peak - needs->held;
    /* What all ranks write is held until the metadata is made of it. */
    uint64_t preparing = saving->planning.describes_beside ? planning : needs->commit;
    /* Another attempt plans again, which takes as much memory. */
    if (staging.whole)
        needs->commit = planning;
    minimize(needs, &least, &staging);
    needs->smallest = save_needs_memory(needs, &least, &staging);
    /* Only now: a save within a limit takes one step after the other. */
    needs->beginning = save_begins_beside(saving) ? THREAD_STACK_SIZE : 0;
    needs->starting += saving->planning.describes_beside ? planning : 0;
    needs->preparing = save_prepares_beside(saving) ? preparing + THREAD_STACK_SIZE : 0;
    return DCP_OK;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t writing_memory(const struct save_needs *needs,
                               const struct shard_write_options *how)
{
    return shard_needs_memory(&needs->writing, how) + needs->preparing;
}

/* The memory of the save's thread while orders are being staged and afterwards. */
static uint64_t beside_staging(const struct save_needs *needs,
                               const struct shard_write_options *how)
{
    uint64_t writing = larger(writing_memory(needs, how), needs->commit);
    return needs->lists + larger(writing + THREAD_STACK_SIZE, needs->starting);
}

uint64_t save_needs_memory(const struct save_needs *needs, const struct shard_write_options *how,
                           const struct save_staging *staging)
{
    uint64_t later = writing_memory(needs, how);
    if (staging->threaded)
        later = larger(later, needs->commit) + THREAD_STACK_SIZE;
    if (needs->staged)
        later =
            beside_staging(needs, how) + staging_needs_memory(&needs->staging, &staging->options);
    return larger(needs->peak + needs->beginning, needs->held + later);
}

/* With waves, copying waits for writing, so writing gets up to a quarter. Memory for the next
 * planning is left free, if that is not too much, so that the pool can be kept. */
static uint64_t waves_memory(const struct save_needs *needs, uint64_t limit, uint64_t room,
                             const struct shard_write_options *how,
                             const struct save_staging *staging)
{
    struct shard_write_options least_how = *how;
    struct save_staging least = *staging;
    minimize(needs, &least_how, &least);
    uint64_t smallest = staging_needs_memory(&needs->staging, &least.options);
    uint64_t more = beside_staging(needs, how) - beside_staging(needs, &least_how);
    more = more < room / 4 ? more : room / 4;
    uint64_t waves = larger(room - more, smallest);
    uint64_t beside_planning = limit - needs->peak;
    if (beside_planning < waves && beside_planning >= waves / 2)
        waves = larger(beside_planning, smallest);
    return waves;
}

static void fit_staging(const struct save_needs *needs, uint64_t limit,
                        const struct shard_write_options *how, struct save_staging *staging)
{
    struct shard_write_options least = *how;
    shard_needs_minimize(&least);
    uint64_t room = limit - needs->held - beside_staging(needs, &least);
    if (!staging_needs_fit_whole(&needs->staging, room, &staging->options))
        staging_needs_fit_waves(&needs->staging, waves_memory(needs, limit, room, how, staging),
                                &staging->options);
}

void save_needs_fit(const struct save_needs *needs, uint64_t limit, struct shard_write_options *how,
                    struct save_staging *staging)
{
    uint64_t room = limit - needs->held;
    if (needs->staged) {
        fit_staging(needs, limit, how, staging);
        room -= staging_needs_memory(&needs->staging, &staging->options) + needs->lists;
    }
    if (staging->threaded)
        room -= THREAD_STACK_SIZE;
    shard_needs_fit(&needs->writing, room, how);
}

static void append(struct buffer *message, const struct save_needs *needs)
{
    buffer_append_u64(message, needs->bytes);
    buffer_append_u64(message, needs->files);
    buffer_append_u64(message, needs->smallest);
}

static dcp_status read(const void *bytes, size_t size, struct save_needs *needs)
{
    struct reader reader;
    reader_init(&reader, bytes, size);
    needs->bytes = reader_u64(&reader);
    needs->files = reader_u64(&reader);
    needs->smallest = reader_u64(&reader);
    return reader.failed
               ? dcp_error_set(DCP_ERR_GROUP, "a rank's message on memory needs ends too early")
               : DCP_OK;
}

static dcp_status unite(const struct group_messages *messages, struct buffer *united)
{
    struct save_needs all = {0}, one = {0};
    for (int rank = 0; rank < messages->count; rank++) {
        RETURN_IF_ERROR(read(messages->bytes + messages->offsets[rank],
                             messages->offsets[rank + 1] - messages->offsets[rank], &one));
        all.bytes += one.bytes;
        all.files += one.files;
        all.smallest = one.smallest > all.smallest ? one.smallest : all.smallest;
    }
    append(united, &all);
    return buffer_status(united);
}

dcp_status save_needs_share(dcp_group *group, const struct dcp_collective *call, int coordinator,
                            dcp_status status, const struct save_needs *mine,
                            struct save_needs *all)
{
    struct group_messages messages = {0};
    struct buffer message, united, received;

    *all = (struct save_needs){0};
    buffer_init(&message, 0);
    buffer_init(&united, 0);
    buffer_init(&received, 0);
    append(&message, mine);
    if (status == DCP_OK)
        status = buffer_status(&message);
    status = group_gather(group, call, coordinator, status, message.data, message.size, &messages);
    if (status == DCP_OK && dcp_group_rank(group) == coordinator)
        status = unite(&messages, &united);
    status = group_broadcast(group, call, coordinator, status, united.data, united.size, &received);
    if (status == DCP_OK)
        status = read(received.data, received.size, all);
    group_messages_free(&messages);
    buffer_free(&received);
    buffer_free(&united);
    buffer_free(&message);
    return status;
}
