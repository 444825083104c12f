/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads with hooks: by a storage reader, or from files. Each item has a state, so that none is read
 * twice or forgotten. */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/io_priority.h"
#include "base/memory.h"
#include "base/memory_account.h"
#include "base/sized.h"
#include "base/thread.h"
#include "checkpoint/hooks/hooks.h"
#include "checkpoint/hooks/load_hooks_hand_over.h"

/* Takes the lock if the item is in the expected state. */
static dcp_status enter(struct dcp_loading *loading, size_t index, bool is_tensor,
                        enum item_step from)
{
    if (!loading || !loading->hooks->item_steps)
        return dcp_error_set(DCP_ERR_STATE, "there is no load plan to read yet");
    if (index >= loading->hooks->plan.count)
        return dcp_error_set(DCP_ERR_ARGUMENT, "there is no item %zu: the load plan has %zu items",
                             index, loading->hooks->plan.count);
    const dcp_read_item *item = &loading->hooks->plan.items[index];
    if (item->is_tensor != is_tensor)
        return dcp_error_set(DCP_ERR_KIND, "item %zu, \"%s\", is %s", index, item->destination.name,
                             item->is_tensor ? "a tensor" : "an object");
    pthread_mutex_lock(&loading->hooks->mutex);
    if (loading->hooks->item_steps[index] == from)
        return DCP_OK;
    bool done = loading->hooks->item_steps[index] == ITEM_DONE;
    pthread_mutex_unlock(&loading->hooks->mutex);
    return dcp_error_set(DCP_ERR_STATE, "item %zu, \"%s\", %s", index, item->destination.name,
                         done                   ? "was already handed over"
                         : from == ITEM_WAITING ? "is being handed over"
                                                : "has not been resolved");
}

static dcp_status leave(struct dcp_loading *loading, size_t index, enum item_step step,
                        dcp_status status)
{
    if (status == DCP_OK)
        loading->hooks->item_steps[index] = (unsigned char)step;
    pthread_mutex_unlock(&loading->hooks->mutex);
    return status;
}

static dcp_status resolve(struct dcp_loading *loading, size_t index, dcp_tensor *tensor)
{
    RETURN_IF_ERROR(enter(loading, index, true, ITEM_WAITING));
    return leave(loading, index, ITEM_RESOLVED, hand_over_resolve(loading, index, tensor));
}

static dcp_status commit(struct dcp_loading *loading, size_t index, const dcp_tensor *tensor)
{
    RETURN_IF_ERROR(enter(loading, index, true, ITEM_RESOLVED));
    struct box part = loading->hooks->targets.targets[index].destination;
    loading->hooks->bytes_moved += (uint64_t)box_volume(part) * dcp_dtype_size(tensor->dtype);
    return leave(loading, index, ITEM_DONE, hand_over_commit(loading, index, tensor));
}

dcp_status dcp_loading_resolve_tensor_sized(dcp_loading *loading, size_t index, dcp_tensor *tensor,
                                            size_t tensor_size)
{
    dcp_tensor ours;
    if (!tensor)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the place for a tensor is NULL");
    RETURN_IF_ERROR(resolve(loading, index, &ours));
    sized_write(tensor, tensor_size, &ours, sizeof ours);
    return DCP_OK;
}

/* Committed items were read by a storage reader, which does not report progress itself. */
static dcp_status report_progress(struct dcp_loading *loading, size_t index)
{
    const struct read_target *target = &loading->hooks->targets.targets[index];
    dcp_dtype dtype = loading->planning.stored.metadata.entries[target->entry].dtype;
    return progress_add(&loading->operation.progress,
                        (uint64_t)box_volume(target->stored) * dcp_dtype_size(dtype));
}

dcp_status dcp_loading_commit_tensor_sized(dcp_loading *loading, size_t index,
                                           const dcp_tensor *tensor, size_t tensor_size)
{
    dcp_tensor ours;
    if (!tensor)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the tensor is NULL");
    RETURN_IF_ERROR(sized_read(&ours, sizeof ours, tensor, tensor_size, "dcp_tensor"));
    RETURN_IF_ERROR(commit(loading, index, &ours));
    return report_progress(loading, index);
}

dcp_status dcp_loading_resolve_bytes(dcp_loading *loading, size_t index, size_t size, void **bytes)
{
    if (!bytes)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the place for memory is NULL");
    RETURN_IF_ERROR(enter(loading, index, false, ITEM_WAITING));
    return leave(loading, index, ITEM_WAITING, hand_over_lend(loading, index, size, bytes));
}

dcp_status dcp_loading_load_bytes(dcp_loading *loading, size_t index, const void *bytes,
                                  size_t size)
{
    if (!bytes)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the stream of an object is NULL");
    RETURN_IF_ERROR(enter(loading, index, false, ITEM_WAITING));
    return leave(loading, index, ITEM_DONE, hand_over_bytes(loading, index, bytes, size));
}

static struct state_chunk chunk_of(const struct read_target *target, dcp_tensor *tensor)
{
    return (struct state_chunk){
        .offsets = (int64_t *)target->stored.offsets,
        .sizes = (int64_t *)target->stored.sizes,
        .strides = tensor->strides,
        .data = tensor->data,
        .device = tensor->device,
    };
}

static dcp_status take_tensor(struct dcp_loading *loading, size_t index, struct stream_bytes stream)
{
    const struct read_target *target = &loading->hooks->targets.targets[index];
    const struct metadata_entry *entry = &loading->planning.stored.metadata.entries[target->entry];
    dcp_tensor tensor;
    RETURN_IF_ERROR(resolve(loading, index, &tensor));
    struct state_chunk chunk = chunk_of(target, &tensor);
    RETURN_IF_ERROR(shard_take_tensor(loading->planning.stored.reader, entry,
                                      &entry->pieces[target->piece], stream, &chunk, tensor.dtype,
                                      loading->options.verification));
    RETURN_IF_ERROR(commit(loading, index, &tensor));
    return report_progress(loading, index);
}

/* Delivers an object's stream in memory that the planner provides. */
static dcp_status deliver(struct dcp_loading *loading, size_t index, const struct buffer *stream)
{
    void *lent;
    RETURN_IF_ERROR(dcp_loading_resolve_bytes(loading, index, stream->size, &lent));
    memcpy(lent, stream->data, stream->size);
    return dcp_loading_load_bytes(loading, index, lent, stream->size);
}

dcp_status dcp_loading_stream(dcp_loading *loading, size_t index, const void *bytes, size_t size)
{
    struct stream_bytes stream = {bytes, size};
    struct buffer whole;
    if (!loading || !bytes)
        return dcp_error_set(DCP_ERR_ARGUMENT, "the load, or the stream of item %zu, is NULL",
                             index);
    bool is_tensor =
        index < loading->hooks->plan.count && loading->hooks->plan.items[index].is_tensor;
    RETURN_IF_ERROR(enter(loading, index, is_tensor, ITEM_WAITING));
    leave(loading, index, ITEM_WAITING, DCP_OK);
    if (is_tensor)
        return take_tensor(loading, index, stream);
    const struct read_target *target = &loading->hooks->targets.targets[index];
    const struct metadata_entry *entry = &loading->planning.stored.metadata.entries[target->entry];
    buffer_init(&whole, 0);
    dcp_status status = shard_take_stream(loading->planning.stored.reader, entry,
                                          &entry->pieces[target->piece], stream, &whole);
    if (status == DCP_OK)
        status = deliver(loading, index, &whole);
    buffer_free(&whole);
    return status;
}

static dcp_status read_tensor(struct dcp_loading *loading, size_t index)
{
    const struct read_target *target = &loading->hooks->targets.targets[index];
    const struct metadata_entry *entry = &loading->planning.stored.metadata.entries[target->entry];
    dcp_tensor tensor;
    RETURN_IF_ERROR(resolve(loading, index, &tensor));
    struct state_chunk chunk = chunk_of(target, &tensor);
    RETURN_IF_ERROR(shard_read_tensor(loading->planning.stored.reader, entry,
                                      &entry->pieces[target->piece], target->stored, tensor.dtype,
                                      &chunk, loading->options.verification));
    return commit(loading, index, &tensor);
}

static dcp_status read_object(struct dcp_loading *loading, size_t index)
{
    const struct read_target *target = &loading->hooks->targets.targets[index];
    const struct metadata_entry *entry = &loading->planning.stored.metadata.entries[target->entry];
    dcp_state *object = NULL;
    RETURN_IF_ERROR(enter(loading, index, false, ITEM_WAITING));
    struct state_pool *pool = hand_over_pool(loading, index);
    dcp_status status = pool ? shard_read_object(loading->planning.stored.reader, entry,
                                                 &entry->pieces[target->piece],
                                                 loading->options.verification, pool, &object)
                             : DCP_ERR_NO_MEMORY;
    if (status == DCP_OK)
        status = hand_over_object(loading, index, pool, object);
    if (status != DCP_OK)
        state_pool_free(pool);
    return leave(loading, index, ITEM_DONE, status);
}

static dcp_status read_bytes(struct dcp_loading *loading, size_t index)
{
    const struct read_target *target = &loading->hooks->targets.targets[index];
    const struct metadata_entry *entry = &loading->planning.stored.metadata.entries[target->entry];
    struct buffer whole;
    buffer_init(&whole, 0);
    dcp_status status =
        shard_read_stream(loading->planning.stored.reader, entry, &entry->pieces[target->piece],
                          loading->options.verification, &whole);
    if (status == DCP_OK)
        status = deliver(loading, index, &whole);
    buffer_free(&whole);
    return status;
}

/* A tensor's item and its destination, while many are read at once. */
struct pending_tensor {
    size_t index;
    dcp_tensor tensor;
    struct state_chunk chunk;
};

static dcp_status resolve_waiting(struct dcp_loading *loading, struct pending_tensor *pending,
                                  struct shard_request *requests, size_t *count)
{
    *count = 0;
    for (size_t i = 0; i < loading->hooks->plan.count; i++) {
        const struct read_target *target = &loading->hooks->targets.targets[i];
        const struct metadata_entry *entry =
            &loading->planning.stored.metadata.entries[target->entry];
        struct pending_tensor *one = &pending[*count];
        if (!loading->hooks->plan.items[i].is_tensor ||
            loading->hooks->item_steps[i] != ITEM_WAITING)
            continue;
        one->index = i;
        RETURN_IF_ERROR(resolve(loading, i, &one->tensor));
        one->chunk = chunk_of(target, &one->tensor);
        requests[(*count)++] = (struct shard_request){.entry = entry,
                                                      .piece = &entry->pieces[target->piece],
                                                      .region = target->stored,
                                                      .dtype = one->tensor.dtype,
                                                      .target = &one->chunk};
    }
    return DCP_OK;
}

/* Reads all tensors as a load without hooks does: neighbours together, large ones in parts. */
static dcp_status read_tensors(struct dcp_loading *loading, size_t threads)
{
    size_t most = loading->hooks->plan.count, count = 0;
    struct pending_tensor *pending = memory_allocate_array(most, sizeof *pending);
    struct shard_request *requests = memory_allocate_array(most, sizeof *requests);
    uint64_t moved;
    dcp_status status = DCP_OK;
    if (!pending || !requests)
        status = error_no_memory(most * sizeof *pending, "a list of reads");
    if (status == DCP_OK)
        status = resolve_waiting(loading, pending, requests, &count);
    if (status == DCP_OK)
        status = shard_read_tensors(loading->planning.stored.reader, requests, count, threads,
                                    loading->options.verification, &moved);
    for (size_t i = 0; status == DCP_OK && i < count; i++)
        status = commit(loading, pending[i].index, &pending[i].tensor);
    memory_release(requests);
    memory_release(pending);
    return status;
}

static dcp_status read_item(void *context, size_t index)
{
    struct dcp_loading *loading = context;
    if (loading->hooks->item_steps[index] != ITEM_WAITING)
        return DCP_OK;
    if (loading->hooks->plan.items[index].is_tensor)
        return read_tensor(loading, index);
    if (loading->hooks->planner.load_bytes || loading->hooks->planner.resolve_bytes)
        return read_bytes(loading, index);
    return read_object(loading, index);
}

/* Whether the planner sees items one by one. */
static bool sees_items(const dcp_load_planner *planner)
{
    return planner->load_bytes || planner->resolve_bytes || planner->resolve_tensor ||
           planner->commit_tensor || planner->lookup_tensor || planner->transform_tensor;
}

uint64_t load_hooks_list_memory(const dcp_loading *loading)
{
    if (sees_items(&loading->hooks->planner))
        return 0;
    return loading->hooks->plan.count *
           (uint64_t)(sizeof(struct pending_tensor) + sizeof(struct shard_request));
}

dcp_status dcp_load_default_read_data(dcp_loading *loading)
{
    if (!loading || !loading->hooks->item_steps)
        return dcp_error_set(DCP_ERR_STATE, "there is no load plan to read yet");
    bool hooked = sees_items(&loading->hooks->planner);
    bool alone = hooked || loading->options.memory_limit != 0;
    size_t threads =
        alone ? 1 : load_thread_count(loading->options.thread_count, loading->hooks->targets.bytes);
    if (!hooked)
        RETURN_IF_ERROR(read_tensors(loading, threads));
    return thread_run(loading->hooks->plan.count, threads, read_item, loading);
}

static dcp_status check_done(const struct dcp_loading *loading)
{
    size_t missing = 0, first = 0;
    for (size_t i = loading->hooks->plan.count; i > 0; i--) {
        if (loading->hooks->item_steps[i - 1] == ITEM_DONE)
            continue;
        first = i - 1;
        missing++;
    }
    if (missing == 0)
        return DCP_OK;
    return dcp_error_set(
        DCP_ERR_COVERAGE,
        "the storage reader handed over %zu of %zu items: item %zu, \"%s\", is missing",
        loading->hooks->plan.count - missing, loading->hooks->plan.count, first,
        loading->hooks->plan.items[first].destination.name);
}

static dcp_status read_data(dcp_loading *loading)
{
    const dcp_storage_reader *storage = &loading->hooks->storage;
    if (!storage->read_data)
        return dcp_load_default_read_data(loading);
    struct memory_account *account = memory_account_current();
    if (loading->hooks->unseen)
        memory_account_enter(NULL);
    error_clear();
    dcp_status status = hook_status(
        storage->read_data(storage->context, loading, &loading->hooks->plan), "read_data");
    memory_account_enter(account);
    return status == DCP_OK ? check_done(loading) : status;
}

dcp_status load_hooks_read(dcp_loading *loading)
{
    load_begin_reading(loading);
    int priority = io_priority_enter(loading->options.io_priority);
    dcp_status status = read_data(loading);
    io_priority_leave(priority);
    loading->operation.figures.bytes_moved = loading->hooks->bytes_moved;
    status = loading_agree(loading, "reading with hooks", status);
    return status == DCP_OK ? DCP_OK : error_prefix(status, "tensors may be partly filled");
}
