/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading many regions of tensors: small ones that lie next to each other at once, large ones in
 * parts that several threads share. */
#include <stdatomic.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"
#include "state/box.h"
#include "storage/shard/read_neighbours.h"
#include "storage/shard/stored_item.h"

/* A range from here on is begun while the one before it is read: without the blocks at its ends, it
 * is still one that is read around the page cache. */
#define NEXT_SIZE (SHARD_LARGE + 2 * CHECKED_SOURCE_HELD)
/* Regions from here on are announced. */
#define EXPECTED_SIZE ((uint64_t)1 << 20)

/* What one thread does at a time: requests that are neighbours, or of one compressed piece, or a
 * part of one. */
struct read_task {
    size_t first;
    size_t count;
    bool neighbours;
    bool together; /* they are of one piece */
    bool begun;    /* its batch has, if it takes one */
    struct read_batch *batch;
    struct shard_parts *parts; /* NULL: all of the one */
    size_t part;
};

struct read_tasks {
    struct shard_reader *reader;
    const struct shard_request *requests;
    dcp_verification verification;
    struct read_task *tasks;
    size_t count;
    size_t thread_count;
    struct read_neighbours neighbours;
    atomic_uint_fast64_t moved;
};

/* Whether a request for a compressed piece is read together with the previous one. */
static bool is_of_same_piece(const struct shard_request *request)
{
    return request->piece == request[-1].piece && request->piece->zstd &&
           !stored_item_is_whole(request->entry, request->piece);
}

static size_t choose_parts(const struct shard_request *request, size_t thread_count)
{
    uint64_t parts = shard_request_most_parts(request);
    if (thread_count < 2)
        return 1;
    return (size_t)(parts < 4 * thread_count ? parts : 4 * thread_count);
}

uint64_t shard_read_list_memory(size_t requests, size_t divided, size_t thread_count)
{
    uint64_t parts = thread_count < 2 ? 0 : 4 * (uint64_t)thread_count;
    return requests * (sizeof(struct shard_request) + sizeof(struct read_task)) +
           divided * (parts * sizeof(struct read_task) + shard_parts_memory(parts));
}

static dcp_status add_parts(struct read_tasks *tasks, size_t request, size_t part_count)
{
    struct shard_parts *parts;
    RETURN_IF_ERROR(shard_parts_new(tasks->requests[request].region, part_count,
                                    tasks->requests[request].sum, &parts));
    for (size_t part = 0; part < part_count; part++)
        tasks->tasks[tasks->count++] =
            (struct read_task){.first = request, .count = 1, .parts = parts, .part = part};
    return DCP_OK;
}

/* A task that begins with a request. plan: of its neighbours, which may follow. */
static struct read_task first_task(const struct read_tasks *tasks, size_t index,
                                   struct batch_plan *plan)
{
    *plan = (struct batch_plan){0};
    return (struct read_task){
        .first = index,
        .count = 1,
        .neighbours = read_neighbours_add(&tasks->neighbours, &tasks->requests[index], plan)};
}

static dcp_status make_tasks(struct read_tasks *tasks, size_t count, size_t thread_count)
{
    size_t most = count;
    for (size_t i = 0; i < count; i++)
        most += choose_parts(&tasks->requests[i], thread_count) - 1;
    struct read_task *list = memory_allocate_array(most, sizeof *list);
    if (!list)
        return error_no_memory(most * sizeof *list, "a list of reads");
    struct batch_plan plan = {0};
    tasks->tasks = list;
    tasks->neighbours = read_neighbours_choose(tasks->reader, tasks->requests, count,
                                               tasks->verification, tasks->thread_count);
    for (size_t i = 0; i < count; i++) {
        const struct shard_request *request = &tasks->requests[i];
        struct read_task *last = tasks->count > 0 ? &list[tasks->count - 1] : NULL;
        size_t parts = choose_parts(request, thread_count);
        if (parts > 1)
            RETURN_IF_ERROR(add_parts(tasks, i, parts));
        else if (last && is_of_same_piece(request))
            last->together = ++last->count > 1;
        else if (last && last->neighbours &&
                 read_neighbours_add(&tasks->neighbours, request, &plan))
            last->count++;
        else
            list[tasks->count++] = first_task(tasks, i, &plan);
    }
    return DCP_OK;
}

static uint32_t file_of(const struct read_tasks *tasks, size_t index)
{
    return tasks->requests[tasks->tasks[index].first].piece->file;
}

/* Has the ends of what a thread will read next come from the disk while it is busy: the reads of a
 * stream's container and of the blocks around its data would wait behind the large ones of all
 * threads, one after another. */
static void expect_task(const struct read_tasks *tasks, const struct read_task *task,
                        struct shard_file *file)
{
    const struct shard_request *request = &tasks->requests[task->first];
    const struct metadata_piece *piece = request->piece;
    if (!piece->zstd && shard_request_bytes(request) >= EXPECTED_SIZE && task->part == 0)
        shard_file_expect_piece(file, piece, tasks->verification);
}

static uint64_t moved_bytes(const struct shard_request *requests, size_t count)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += (uint64_t)box_volume(requests[i].region) * dcp_dtype_size(requests[i].dtype);
    return bytes;
}

/* What a task reads, if that is one request. */
static struct shard_request request_of(const struct read_tasks *tasks, const struct read_task *task,
                                       struct box_storage *slab)
{
    struct shard_request request = tasks->requests[task->first];
    if (task->parts)
        request.region = shard_parts_region(task->parts, task->part, request.region, slab);
    return request;
}

/* Whether the task is one large range of a file that is read ahead of its turn. */
static bool find_range(const struct read_tasks *tasks, const struct read_task *task,
                       struct shard_range *range)
{
    struct box_storage slab;
    if (task->together || task->neighbours)
        return false;
    const struct shard_request request = request_of(tasks, task, &slab);
    return shard_request_range(&request, range) && range->size >= NEXT_SIZE;
}

/* What went wrong before the turn of a task does so again then, but for a lack of memory. */
static dcp_status blame_early(const struct read_tasks *tasks, size_t index, dcp_status status)
{
    const struct shard_request *request = &tasks->requests[tasks->tasks[index].first];
    if (status == DCP_ERR_NO_MEMORY)
        return shard_reader_blame(tasks->reader, request->entry, request->piece, status);
    if (status != DCP_OK)
        error_clear();
    return DCP_OK;
}

/* Opens the file of what a thread will read after the next task, unless so many files would be open
 * that some are closed again. */
static dcp_status foresee_file(const struct read_tasks *tasks, size_t index)
{
    size_t then = index + 2 * tasks->thread_count;
    if (then >= tasks->count || 4 * tasks->thread_count > tasks->reader->how.open_files ||
        file_of(tasks, then) == file_of(tasks, index) ||
        file_of(tasks, then) == file_of(tasks, then - 1))
        return DCP_OK;
    return blame_early(tasks, then, shard_file_foresee(tasks->reader, file_of(tasks, then)));
}

/* Begins to read what the page cache lacks of a task's neighbours. */
static void begin_batch(const struct read_tasks *tasks, struct read_task *task)
{
    const struct shard_request *first = &tasks->requests[task->first];
    struct shard_file *file;
    struct batch_plan plan;
    if (task->begun || !task->neighbours || !tasks->neighbours.batched)
        return;
    task->begun = true;
    if (shard_file_acquire(tasks->reader, first->piece->file, tasks->verification, &file) !=
        DCP_OK) {
        error_clear(); /* it goes wrong again */
        return;
    }
    read_neighbours_plan(&tasks->neighbours, file, first, task->count, &plan);
    task->batch = read_batch_begin(tasks->reader, &plan, tasks->verification);
    shard_file_release(tasks->reader, file);
}

/* Announces what this thread reads next, or probably next. range: that, if it is large and follows
 * what is, with its file, in use; else its file is NULL. None is opened for a guess. */
static dcp_status prepare_next(const struct read_tasks *tasks, size_t index,
                               struct thread_turn *turn, struct shard_range *range)
{
    bool large = find_range(tasks, &tasks->tasks[index], range);
    bool ahead = large || tasks->tasks[index].batch;
    size_t taken = ahead ? thread_turn_take_next(turn) : tasks->count;
    size_t next = taken < tasks->count ? taken : index + tasks->thread_count;
    *range = (struct shard_range){.file = NULL};
    if (next >= tasks->count)
        return DCP_OK;
    if (taken < tasks->count && tasks->tasks[next].neighbours) {
        begin_batch(tasks, &tasks->tasks[next]);
        return DCP_OK;
    }
    bool follows = large && taken < tasks->count && find_range(tasks, &tasks->tasks[next], range);
    if (!follows && file_of(tasks, next) != file_of(tasks, index))
        return DCP_OK;
    struct shard_file *file;
    dcp_status status =
        shard_file_acquire(tasks->reader, file_of(tasks, next), tasks->verification, &file);
    if (status != DCP_OK)
        return blame_early(tasks, next, status);
    expect_task(tasks, &tasks->tasks[next], file);
    if (follows)
        range->file = file;
    else
        shard_file_release(tasks->reader, file);
    return DCP_OK;
}

static void end_batch(struct read_task *task)
{
    read_batch_end(task->batch);
    task->batch = NULL;
}

static dcp_status run_task(void *context, size_t index, struct thread_turn *turn)
{
    struct read_tasks *tasks = context;
    struct read_task *task = &tasks->tasks[index];
    struct box_storage slab;
    const struct shard_request first = request_of(tasks, task, &slab);
    const struct shard_request *requests = task->parts ? &first : &tasks->requests[task->first];
    struct shard_range range = {.file = NULL};
    dcp_status status;
    if (!tasks->reader->how.plain) {
        RETURN_IF_ERROR(foresee_file(tasks, index));
        begin_batch(tasks, task);
        RETURN_IF_ERROR(prepare_next(tasks, index, turn, &range));
    }
    const struct shard_range *then = range.file ? &range : NULL;
    if (task->parts)
        status = shard_read_request(tasks->reader, requests, tasks->verification, NULL, task->parts,
                                    task->part, then);
    else if (task->together)
        status = shard_read_together(tasks->reader, requests, task->count, tasks->verification);
    else if (task->neighbours)
        status =
            read_neighbours(tasks->reader, requests, task->count, tasks->verification, task->batch);
    else
        status = shard_read_one(tasks->reader, requests, tasks->verification, NULL, then);
    if (range.file)
        shard_file_release(tasks->reader, range.file);
    end_batch(task);
    if (status == DCP_OK)
        atomic_fetch_add_explicit(&tasks->moved, moved_bytes(requests, task->count),
                                  memory_order_relaxed);
    return status;
}

dcp_status shard_read_tensors(struct shard_reader *reader, const struct shard_request *requests,
                              size_t count, size_t thread_count, dcp_verification verification,
                              uint64_t *moved)
{
    struct read_tasks tasks = {.reader = reader,
                               .requests = requests,
                               .verification = verification,
                               .thread_count = thread_count};
    dcp_status status = make_tasks(&tasks, count, thread_count);
    if (status == DCP_OK)
        status = thread_run_turns(tasks.count, thread_count, run_task, &tasks);
    shard_reader_settle(reader);
    for (size_t i = 0; i < tasks.count; i++) {
        end_batch(&tasks.tasks[i]); /* that failed before its turn */
        if (tasks.tasks[i].parts && tasks.tasks[i].part == 0)
            shard_parts_free(tasks.tasks[i].parts);
    }
    memory_release(tasks.tasks);
    device_lanes_clear(&reader->device_lanes);
    read_window_free_rooms(reader);
    *moved = tasks.moved;
    return status;
}
