/* SPDX-License-Identifier: BSD-3-Clause */
/* The plan of one rank, whose items are whole tensors, is that of all: orders are for parts of the
 * items. Ranks' files are written one after the other, some at a time. */
#include "checkpoint/save/save_as_ranks.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/memory_available.h"
#include "base/thread.h"
#include "checkpoint/save/save_page_cache.h"
#include "checkpoint/save/saving.h"
#include "storage/commit/save_resume.h"

/* Of the buffers of all files together: a conversion has not more to do than the disk. */
#define BUFFERS ((size_t)8 << 20)

struct save_ranks {
    uint32_t count;
    uint32_t thread_count;
    struct shard_write_options how;
    struct write_results *results; /* of each rank */
    const struct save_kept *kept;  /* NULL: a failure leaves nothing */
};

static bool is_kept(const struct save_ranks *ranks, size_t rank)
{
    return ranks->kept && ranks->kept->ranks[rank];
}

/* Of the steps of a save that can be continued. */
static dcp_status begin_resumed(dcp_saving *saving)
{
    const struct save_ranks *ranks = saving->ranks;
    const dcp_storage *storage;
    char *id;
    RETURN_IF_ERROR(storage_choose(&saving->storage, saving->path, &storage));
    RETURN_IF_ERROR(storage_keep_id(storage, saving->path, &id));
    dcp_status status =
        save_session_resume(&saving->session, storage, id, !saving->options.skip_sync,
                            ranks->kept->ranks, ranks->count);
    memory_release(id);
    return status;
}

static dcp_status plan_global(dcp_saving *saving)
{
    struct joint_plan joint;
    joint_plan_init(&joint, saving->ranks->count);
    dcp_status status = joint_plan_add_rows(&joint, &saving->local.plan);
    if (status == DCP_OK)
        status = save_coordinator_plan(saving, &joint);
    joint_plan_free(&joint);
    saving->assigned = status == DCP_OK;
    return status;
}

static dcp_status read_orders(dcp_saving *saving, const struct buffer *assignment,
                              struct write_orders *orders)
{
    struct reader reader;
    reader_init(&reader, assignment->data, assignment->size);
    RETURN_IF_ERROR(save_session_read(saving, &reader));
    return write_orders_decode(assignment->data + reader.position, reader_left(&reader),
                               &saving->local.plan, orders);
}

static uint64_t tensor_bytes(const struct shard_source *sources, const struct write_orders *orders)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < orders->count; i++) {
        const struct write_order *order = &orders->orders[i];
        const struct write_item *item = sources[order->item].item;
        uint64_t part = 0;
        if (item->is_tensor && shape_bytes(item->ndim, order->box.sizes, item->dtype, &part))
            bytes += part;
    }
    return bytes;
}

/* results: also after a failure to be freed. */
static dcp_status write_orders_of(dcp_saving *saving, size_t rank,
                                  const struct write_orders *orders, struct write_results *results)
{
    const struct save_ranks *ranks = saving->ranks;
    const struct save_kept *kept = ranks->kept;
    const struct shard_source *sources = saving->local.sources;
    struct shard_write_figures figures;
    if (is_kept(ranks, rank))
        return shard_file_check_kept(&saving->session, (int)rank, orders, sources, ranks->how.zstd,
                                     results);
    RETURN_IF_ERROR(shard_files_write(&saving->session, (int)rank, orders, sources, &ranks->how,
                                      results, &figures));
    if (kept) {
        RETURN_IF_ERROR(
            kept->written(kept->context, (uint32_t)rank, tensor_bytes(sources, orders)));
        kept->ranks[rank] = true;
    }
    return DCP_OK;
}

static dcp_status write_rank(void *context, size_t rank)
{
    dcp_saving *saving = context;
    struct buffer *assignment = &saving->coordinator.assignments[rank];
    struct write_orders orders = {0};
    dcp_status status = read_orders(saving, assignment, &orders);
    buffer_free(assignment);
    if (status == DCP_OK)
        status = write_orders_of(saving, rank, &orders, &saving->ranks->results[rank]);
    write_orders_free(&orders);
    return status;
}

/* Each file has one thread: its buffers, and what compresses, are there while it is written. */
static dcp_status write_ranks(dcp_saving *saving)
{
    struct save_ranks *ranks = saving->ranks;
    ranks->how = saving->how;
    ranks->how.buffer_bytes = BUFFERS / ranks->thread_count;
    ranks->how.record_threads = ranks->how.zstd_threads = 1;
    ranks->how.page_cache =
        save_page_cache_decide(&saving->options, saving->coordinator.content, memory_available(""));
    return thread_run(ranks->count, ranks->thread_count, write_rank, saving);
}

static void free_results(dcp_saving *saving)
{
    struct save_ranks *ranks = saving->ranks;
    for (uint32_t rank = 0; rank < ranks->count && ranks->results; rank++)
        write_results_free(&ranks->results[rank]);
    memory_release(ranks->results);
    ranks->results = NULL;
}

/* Before the metadata is encoded, which takes as much. */
static dcp_status take_results(dcp_saving *saving, const struct group_messages *messages)
{
    (void)messages;
    dcp_status status = save_plan_place(saving->ranks->results, (int)saving->ranks->count,
                                        &saving->coordinator.metadata);
    free_results(saving);
    return status;
}

static void abandon(dcp_saving *saving)
{
    for (uint32_t rank = 0; rank < saving->ranks->count; rank++)
        if (!is_kept(saving->ranks, rank))
            shard_files_discard(&saving->session, (int)rank, 1);
}

/* Those of the library, but for what is done for many ranks. */
static dcp_status choose_steps(dcp_saving *saving, struct save_ranks *ranks)
{
    saving->ranks = ranks;
    saving->steps.plan_global = plan_global;
    saving->steps.write = write_ranks;
    saving->steps.take_results = take_results;
    saving->steps.abandon = abandon;
    saving->steps.free = free_results;
    if (ranks->kept) {
        saving->steps.begin = begin_resumed;
        saving->coordinator.kept = ranks->kept->ranks;
    }
    ranks->results = memory_allocate_zeroed(ranks->count, sizeof *ranks->results);
    return ranks->results ? DCP_OK
                          : error_no_memory(ranks->count * sizeof *ranks->results, "write results");
}

dcp_status save_as_ranks(dcp_state *state, const char *path, const dcp_save_options *options,
                         uint32_t rank_count, uint32_t thread_count, const struct save_kept *kept)
{
    struct dcp_saving saving = {.path = path};
    struct save_ranks ranks = {.count = rank_count, .thread_count = thread_count, .kept = kept};
    dcp_status status = saving_begin(&saving, options);
    dcp_status chosen = choose_steps(&saving, &ranks);
    status = saving_take(&saving, state, status == DCP_OK ? chosen : status);
    status = saving_plan(&saving, state, status);
    if (saving.assigned) {
        if (status == DCP_OK)
            status = saving_write(&saving);
        status = saving_finish(&saving, status);
    }
    saving_free(&saving);
    save_extra_files_free(&saving.extra_files);
    operation_finish(&saving.operation, options->figures);
    return status;
}
