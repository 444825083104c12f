/* SPDX-License-Identifier: BSD-3-Clause */
/* A group of threads of one process. For each collective, ranks meet in a room: each records what
 * it sends and where it receives, and the last to arrive moves all bytes, under the lock, before
 * any rank returns. In an all_to_all, which may be large, each rank copies its own messages once
 * all have arrived, and none returns before all are done. So no rank's memory is touched after its
 * call has returned, not even after a timeout. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "dcp/group.h"

enum meeting_kind {
    MEETING_ALL_GATHER,
    MEETING_BROADCAST,
    MEETING_GATHER,
    MEETING_SCATTER,
    MEETING_ALL_TO_ALL
};

static const char *const meeting_names[] = {"all_gather", "broadcast", "gather", "scatter",
                                            "all_to_all"};

/* One rank's call. */
struct visit {
    bool here;
    enum meeting_kind kind;
    int root;
    const void *send;
    void *receive;
    size_t bytes;
    const size_t *sizes; /* at the root of a gather or scatter; in an all_to_all, what is sent */
    const size_t *offsets;
    const size_t *receive_sizes; /* these only in an all_to_all */
    const size_t *receive_offsets;
};

struct meeting_room {
    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t changed;
    int size;
    int handles; /* not yet closed */
    int arrived;
    uint64_t meetings; /* held so far */
    int taking;        /* ranks that still copy their messages of an all_to_all */
    struct saved_error broken;
    char broken_phase[128];
    struct offer *offers; /* one for each rank, in the current split */
    struct visit visits[];
};

/* A room that the first rank of a color has made for all ranks of that color. */
struct offer {
    int color;
    struct meeting_room *room;
};

/* A rank's handle of a room. */
struct door {
    struct meeting_room *room;
    int rank;
};

/* "rank 2", "ranks 2, 5", "ranks 2, 5 and 9 more". */
static void name_missing(const struct meeting_room *room, char *text, size_t size)
{
    enum { NAMED_MAX = 16 };
    int missing = room->size - room->arrived;
    size_t length = (size_t)snprintf(text, size, missing == 1 ? "rank" : "ranks");
    int named = 0;
    for (int rank = 0; rank < room->size && named < NAMED_MAX; rank++)
        if (!room->visits[rank].here)
            length += (size_t)snprintf(text + length, size - length, "%s %d",
                                       named++ != 0 ? "," : "", rank);
    if (missing > named)
        snprintf(text + length, size - length, " and %d more", missing - named);
}

/* Keeps the calling thread's message as the reason why the room is unusable from now on. */
static dcp_status break_room(struct meeting_room *room, const dcp_collective *call,
                             dcp_status status)
{
    error_save(&room->broken);
    snprintf(room->broken_phase, sizeof room->broken_phase, "%s", call->phase);
    pthread_cond_broadcast(&room->changed);
    return status;
}

static dcp_status break_for_missing(struct meeting_room *room, const dcp_collective *call)
{
    char missing[256];
    name_missing(room, missing, sizeof missing);
    return break_room(room, call,
                      dcp_error_set(DCP_ERR_TIMEOUT, "%s did not make this call within %g s",
                                    missing, call->timeout_seconds));
}

/* Checks that each rank sends as much as the other expects. */
static dcp_status check_messages(const struct meeting_room *room)
{
    for (int from = 0; from < room->size; from++)
        for (int to = 0; to < room->size; to++) {
            size_t sent = room->visits[from].sizes[to];
            size_t expected = room->visits[to].receive_sizes[from];
            if (sent != expected)
                return dcp_error_set(DCP_ERR_GROUP,
                                     "rank %d sends %zu bytes to rank %d, which expects %zu", from,
                                     sent, to, expected);
        }
    return DCP_OK;
}

static dcp_status check_sizes(const struct meeting_room *room)
{
    const struct visit *first = &room->visits[0];
    bool same_size = first->kind == MEETING_ALL_GATHER || first->kind == MEETING_BROADCAST;
    for (int rank = 0; rank < room->size; rank++) {
        const struct visit *visit = &room->visits[rank];
        size_t expected = same_size ? first->bytes : room->visits[first->root].sizes[rank];
        if (visit->bytes != expected)
            return dcp_error_set(DCP_ERR_GROUP, "%s of %zu bytes at rank %d, expected %zu",
                                 meeting_names[visit->kind], visit->bytes, rank, expected);
    }
    return DCP_OK;
}

/* Ranks in different calls would read and write past each other's memory. */
static dcp_status check_in_step(const struct meeting_room *room)
{
    const struct visit *first = &room->visits[0];
    for (int rank = 0; rank < room->size; rank++) {
        const struct visit *visit = &room->visits[rank];
        if (visit->kind != first->kind || visit->root != first->root)
            return dcp_error_set(DCP_ERR_GROUP,
                                 "rank 0 called %s with root %d, but rank %d called %s with root "
                                 "%d: all ranks must make the same calls",
                                 meeting_names[first->kind], first->root, rank,
                                 meeting_names[visit->kind], visit->root);
    }
    return first->kind == MEETING_ALL_TO_ALL ? check_messages(room) : check_sizes(room);
}

static void copy_bytes(void *to, const void *from, size_t size)
{
    if (size != 0 && to != from)
        memcpy(to, from, size);
}

/* Joins all ranks' bytes in rank order. */
static void concatenate(const struct meeting_room *room, unsigned char *receive)
{
    for (int rank = 0; rank < room->size; rank++) {
        copy_bytes(receive, room->visits[rank].send, room->visits[rank].bytes);
        receive += room->visits[rank].bytes;
    }
}

static void move_bytes(const struct meeting_room *room)
{
    const struct visit *root = &room->visits[room->visits[0].root];
    const unsigned char *dealt = root->send;
    if (root->kind == MEETING_GATHER) {
        concatenate(room, root->receive);
        return;
    }
    for (int rank = 0; rank < room->size; rank++) {
        const struct visit *visit = &room->visits[rank];
        if (visit->kind == MEETING_ALL_GATHER)
            concatenate(room, visit->receive);
        else
            copy_bytes(visit->receive, dealt, visit->bytes);
        if (visit->kind == MEETING_SCATTER)
            dealt += visit->bytes;
    }
}

static dcp_status hold_meeting(struct meeting_room *room, const dcp_collective *call)
{
    dcp_status status = check_in_step(room);
    if (status != DCP_OK)
        return break_room(room, call, status);
    if (room->visits[0].kind == MEETING_ALL_TO_ALL)
        room->taking = room->size;
    else
        move_bytes(room);
    for (int rank = 0; rank < room->size; rank++)
        room->visits[rank].here = false;
    room->arrived = 0;
    room->meetings++;
    pthread_cond_broadcast(&room->changed);
    return DCP_OK;
}

/* Sleeps until something has changed or the deadline has passed. Conditions use the system's clock,
 * but the time left is measured on the library's. */
static void wait_for_change(struct meeting_room *room, struct deadline deadline)
{
    struct timespec until = deadline_timespec(deadline);
    pthread_cond_timedwait(&room->changed, &room->mutex, &until);
}

/* Unlocks the room while the caller's log function runs. */
static double log_missing(struct meeting_room *room, const dcp_collective *call, double waited)
{
    char missing[256];
    name_missing(room, missing, sizeof missing);
    pthread_mutex_unlock(&room->mutex);
    double next = dcp_collective_log_wait(call, waited, missing);
    pthread_mutex_lock(&room->mutex);
    return next;
}

static dcp_status wait_for_meeting(struct meeting_room *room, const dcp_collective *call)
{
    uint64_t before = room->meetings;
    double next = dcp_collective_log_wait(call, 0, NULL);
    struct deadline deadline = deadline_after(call->timeout_seconds);
    while (room->meetings == before && room->broken.status == DCP_OK) {
        double left = deadline_left(deadline), waited = call->timeout_seconds - left;
        if (deadline_passed(deadline))
            return break_for_missing(room, call);
        if (waited >= next)
            next = log_missing(room, call, waited);
        else
            wait_for_change(room, next - waited < left ? deadline_after(next - waited) : deadline);
    }
    return room->meetings != before ? DCP_OK : error_restore(&room->broken);
}

static dcp_status meet(const struct door *door, const dcp_collective *call,
                       const struct visit *visit)
{
    struct meeting_room *room = door->room;
    dcp_status status;
    pthread_mutex_lock(&room->mutex);
    if (room->broken.status != DCP_OK) {
        status = dcp_error_set(DCP_ERR_STATE, "the group is broken: %s: %s", room->broken_phase,
                               room->broken.text);
    } else {
        room->visits[door->rank] = *visit;
        room->arrived++;
        status =
            room->arrived == room->size ? hold_meeting(room, call) : wait_for_meeting(room, call);
    }
    pthread_mutex_unlock(&room->mutex);
    return status;
}

static dcp_status thread_all_gather(void *context, const dcp_collective *call, const void *send,
                                    size_t bytes, void *receive)
{
    return meet(context, call,
                &(struct visit){.here = true,
                                .kind = MEETING_ALL_GATHER,
                                .send = send,
                                .receive = receive,
                                .bytes = bytes});
}

static dcp_status thread_broadcast(void *context, const dcp_collective *call, int root, void *data,
                                   size_t bytes)
{
    return meet(context, call,
                &(struct visit){.here = true,
                                .kind = MEETING_BROADCAST,
                                .root = root,
                                .send = data,
                                .receive = data,
                                .bytes = bytes});
}

static dcp_status thread_gather(void *context, const dcp_collective *call, int root,
                                const void *send, size_t bytes, void *receive, const size_t *sizes)
{
    return meet(context, call,
                &(struct visit){.here = true,
                                .kind = MEETING_GATHER,
                                .root = root,
                                .send = send,
                                .receive = receive,
                                .bytes = bytes,
                                .sizes = sizes});
}

static dcp_status thread_scatter(void *context, const dcp_collective *call, int root,
                                 const void *send, const size_t *sizes, void *receive, size_t bytes)
{
    return meet(context, call,
                &(struct visit){.here = true,
                                .kind = MEETING_SCATTER,
                                .root = root,
                                .send = send,
                                .receive = receive,
                                .bytes = bytes,
                                .sizes = sizes});
}

/* Other ranks' visits stay unchanged until all ranks have copied. */
static void take_messages(struct meeting_room *room, int rank)
{
    const struct visit *own = &room->visits[rank];
    for (int from = 0; from < room->size; from++) {
        const struct visit *visit = &room->visits[from];
        if (visit->sizes[rank] != 0)
            memcpy((unsigned char *)own->receive + own->receive_offsets[from],
                   (const unsigned char *)visit->send + visit->offsets[rank], visit->sizes[rank]);
    }
    pthread_mutex_lock(&room->mutex);
    if (--room->taking == 0)
        pthread_cond_broadcast(&room->changed);
    while (room->taking != 0)
        pthread_cond_wait(&room->changed, &room->mutex);
    pthread_mutex_unlock(&room->mutex);
}

static dcp_status thread_all_to_all(void *context, const dcp_collective *call, const void *send,
                                    const size_t *send_sizes, const size_t *send_offsets,
                                    void *receive, const size_t *receive_sizes,
                                    const size_t *receive_offsets)
{
    struct door *door = context;
    RETURN_IF_ERROR(meet(door, call,
                         &(struct visit){.here = true,
                                         .kind = MEETING_ALL_TO_ALL,
                                         .send = send,
                                         .receive = receive,
                                         .sizes = send_sizes,
                                         .offsets = send_offsets,
                                         .receive_sizes = receive_sizes,
                                         .receive_offsets = receive_offsets}));
    take_messages(door->room, door->rank);
    return DCP_OK;
}

static void room_free(struct meeting_room *room)
{
    pthread_cond_destroy(&room->changed);
    pthread_mutex_destroy(&room->mutex);
    memory_release(room);
}

/* The last rank to leave frees the room. */
static void room_leave(struct meeting_room *room)
{
    pthread_mutex_lock(&room->mutex);
    bool last = --room->handles == 0;
    pthread_mutex_unlock(&room->mutex);
    if (last)
        room_free(room);
}

static void thread_close(void *context)
{
    struct door *door = context;
    room_leave(door->room);
    memory_release(door);
}

static dcp_status room_new(int size, struct meeting_room **room)
{
    size_t bytes;
    if (__builtin_mul_overflow((size_t)size, sizeof(struct visit) + sizeof(struct offer), &bytes) ||
        __builtin_add_overflow(bytes, sizeof **room, &bytes))
        bytes = SIZE_MAX;
    struct meeting_room *made = memory_allocate_zeroed(1, bytes);
    if (made == NULL)
        return error_no_memory(bytes, "a thread group");
    made->size = size;
    made->offers = (struct offer *)&made->visits[size];
    pthread_condattr_t attributes;
    int result = pthread_condattr_init(&attributes);
    if (result == 0) {
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
        result = pthread_cond_init(&made->changed, &attributes);
        pthread_condattr_destroy(&attributes);
    }
    if (result != 0) {
        memory_release(made);
        return error_no_memory(sizeof made->changed, "a thread group");
    }
    pthread_mutex_init(&made->mutex, NULL);
    *room = made;
    return DCP_OK;
}

/* Takes a handle of the room that the first rank of the color has made. */
static dcp_status take_offer(struct meeting_room *room, int color, int rank, void **part)
{
    struct meeting_room *offered = NULL;
    pthread_mutex_lock(&room->mutex);
    for (int i = 0; i < room->size && !offered; i++)
        offered = room->offers[i].color == color ? room->offers[i].room : NULL;
    pthread_mutex_unlock(&room->mutex);
    if (!offered)
        return dcp_error_set(DCP_ERR_NO_MEMORY, "out of memory for another group");
    struct door *mine = memory_allocate(sizeof *mine);
    if (!mine) {
        room_leave(offered);
        return error_no_memory(sizeof *mine, "a thread group");
    }
    *mine = (struct door){.room = offered, .rank = rank};
    *part = mine;
    return DCP_OK;
}

/* Either all ranks learn where the rooms are, or none does. The library has all ranks agree before
 * they split again, so every offer stays until it has been taken. */
static dcp_status thread_split(void *context, const dcp_collective *call, int color, int rank,
                               int size, void **part)
{
    const struct door *door = context;
    struct meeting_room *room = door->room, *made = NULL;
    dcp_status status = color >= 0 && rank == 0 ? room_new(size, &made) : DCP_OK;
    if (made)
        made->handles = size;
    pthread_mutex_lock(&room->mutex);
    room->offers[door->rank] = (struct offer){color, made};
    pthread_mutex_unlock(&room->mutex);
    struct saved_error error;
    error_save(&error);
    dcp_status met =
        thread_broadcast(context, call, 0, &(char){0}, 0); /* until all have made their offers */
    if (met != DCP_OK && made)
        room_free(made);
    RETURN_IF_ERROR(met);
    if (status != DCP_OK)
        return error_restore(&error);
    return color >= 0 ? take_offer(room, color, rank, part) : DCP_OK;
}

static dcp_status thread_duplicate(void *context, const dcp_collective *call, void **copy)
{
    const struct door *door = context;
    return thread_split(context, call, 0, door->rank, door->room->size, copy);
}

static dcp_status door_new(struct meeting_room *room, int rank, dcp_group **group)
{
    static const dcp_group_operations operations = {
        .size_of = sizeof operations,
        .all_gather = thread_all_gather,
        .broadcast = thread_broadcast,
        .gather = thread_gather,
        .scatter = thread_scatter,
        .close = thread_close,
        .all_to_all = thread_all_to_all,
        .duplicate = thread_duplicate,
        .split = thread_split,
    };
    struct door *door = memory_allocate(sizeof *door);
    if (door == NULL)
        return error_no_memory(sizeof *door, "a thread group");
    *door = (struct door){.room = room, .rank = rank};
    dcp_status status = dcp_group_new(&operations, door, rank, room->size, group);
    if (status != DCP_OK)
        memory_release(door);
    else
        room->handles++;
    return status;
}

dcp_status dcp_group_new_threads(int size, dcp_group **groups)
{
    if (groups == NULL || size < 1)
        return dcp_error_set(DCP_ERR_ARGUMENT, "dcp_group_new_threads: %s",
                             groups == NULL ? "groups is NULL" : "size must be at least 1");
    for (int rank = 0; rank < size; rank++)
        groups[rank] = NULL;
    struct meeting_room *room = NULL;
    RETURN_IF_ERROR(room_new(size, &room));
    for (int rank = 0; rank < size; rank++) {
        dcp_status status = door_new(room, rank, &groups[rank]);
        if (status == DCP_OK)
            continue;
        if (rank == 0)
            room_free(room); /* otherwise closing the last door frees it */
        for (int made = 0; made < rank; made++) {
            dcp_group_free(groups[made]);
            groups[made] = NULL;
        }
        return status;
    }
    return DCP_OK;
}
