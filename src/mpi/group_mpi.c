/* SPDX-License-Identifier: BSD-3-Clause */
/* A process group over MPI: its collectives as stars around a root, and as a binomial tree where a
 * large message goes to everyone. */
#include <string.h>

#include "dcp/mpi.h"
#include "finalize.h"
#include "meeting.h"
#include "transport.h"

/* After the deadline, ranks that wait for the root give it this time to report which rank is
 * missing. */
static const double grace_seconds = 0.5;

/* Up to this size, the root of a broadcast sends to every rank directly, so that a missing rank
 * delays no other. */
enum { STAR_BROADCAST_MAX = 64 << 10 };

static void copy_bytes(void *to, const void *from, size_t size)
{
    if (size != 0 && to != from)
        memmove(to, from, size);
}

static double deadline_of(const dcp_collective *call)
{
    return transport_now() + call->timeout_seconds;
}

/* The deadline for messages to ranks that have arrived: never so short that they could not pass. */
static double deadline_for_sending(double deadline)
{
    double soon = transport_now() + grace_seconds;
    return deadline > soon ? deadline : soon;
}

/* Makes the root a neighbour; at the root, all other ranks. */
static void add_star(struct transport *transport, int root)
{
    for (int rank = 0; rank < transport->size; rank++)
        if (transport->rank == root || rank == root)
            transport_add_neighbor(transport, rank);
}

/* sizes: NULL for bytes from each rank. */
static dcp_status gather_star(struct transport *transport, const dcp_collective *call, int root,
                              const void *send, size_t bytes, void *receive, const size_t *sizes,
                              double deadline)
{
    add_star(transport, root);
    if (transport->rank != root) {
        transport_send(transport, root, send, bytes);
        return transport_run(transport, call, deadline + grace_seconds);
    }
    unsigned char *place = receive;
    for (int rank = 0; rank < transport->size; rank++) {
        size_t size = sizes != NULL ? sizes[rank] : bytes;
        if (rank == root)
            copy_bytes(place, send, size);
        else
            transport_receive(transport, rank, place, size);
        place += size;
    }
    return transport_run(transport, call, deadline);
}

/* A rank's position in a broadcast, counted from the root. */
struct position {
    int parent; /* -1: the root */
    int first_step;
    bool star;
};

static struct position position_of(const struct transport *transport, int root, size_t bytes)
{
    int own = (transport->rank - root + transport->size) % transport->size;
    struct position position = {.parent = -1, .star = bytes <= STAR_BROADCAST_MAX};
    if (position.star) {
        position.parent = own != 0 ? root : -1;
        return position;
    }
    /* In a binomial tree, the lowest set bit is the step from the parent; lower bits lead to
     * children. */
    int step = 1;
    while (step < transport->size && (own & step) == 0)
        step *= 2;
    if (own != 0)
        position.parent = (own - step + root) % transport->size;
    position.first_step = step / 2;
    return position;
}

/* The children of a rank, one at a time; -1 after the last. *next begins as 0. */
static int next_child(const struct transport *transport, int root, struct position position,
                      int *next)
{
    int size = transport->size;
    int own = (transport->rank - root + size) % size;
    if (position.star) {
        if (position.parent >= 0 || ++*next >= size)
            return -1;
        return (root + *next) % size;
    }
    for (*next = *next == 0 ? position.first_step : *next / 2; *next > 0; *next /= 2)
        if (own + *next < size)
            return (own + *next + root) % size;
    return -1;
}

static dcp_status broadcast_from(struct transport *transport, const dcp_collective *call, int root,
                                 void *data, size_t bytes, double deadline)
{
    struct position position = position_of(transport, root, bytes);
    int next = 0, child;
    while ((child = next_child(transport, root, position, &next)) >= 0)
        transport_add_neighbor(transport, child);
    if (position.parent >= 0) {
        transport_add_neighbor(transport, position.parent);
        transport_receive(transport, position.parent, data, bytes);
        dcp_status status = transport_run(transport, call, deadline + grace_seconds);
        if (status != DCP_OK)
            return status;
        deadline = deadline_for_sending(deadline);
    }
    next = 0;
    while ((child = next_child(transport, root, position, &next)) >= 0)
        transport_send(transport, child, data, bytes);
    return transport_run(transport, call, deadline);
}

static dcp_status mpi_all_gather(void *context, const dcp_collective *call, const void *send,
                                 size_t bytes, void *receive)
{
    struct transport *transport = context;
    double deadline = deadline_of(call);
    dcp_status status = transport_begin(transport, call);
    if (status == DCP_OK)
        status = gather_star(transport, call, 0, send, bytes, receive, NULL, deadline);
    if (status != DCP_OK)
        return status;
    if (transport->rank == 0)
        deadline = deadline_for_sending(deadline);
    return broadcast_from(transport, call, 0, receive, bytes * (size_t)transport->size, deadline);
}

static dcp_status mpi_broadcast(void *context, const dcp_collective *call, int root, void *data,
                                size_t bytes)
{
    struct transport *transport = context;
    double deadline = deadline_of(call);
    dcp_status status = transport_begin(transport, call);
    return status == DCP_OK ? broadcast_from(transport, call, root, data, bytes, deadline) : status;
}

static dcp_status mpi_gather(void *context, const dcp_collective *call, int root, const void *send,
                             size_t bytes, void *receive, const size_t *sizes)
{
    struct transport *transport = context;
    double deadline = deadline_of(call);
    dcp_status status = transport_begin(transport, call);
    if (status != DCP_OK)
        return status;
    return gather_star(transport, call, root, send, bytes, receive, sizes, deadline);
}

static dcp_status mpi_scatter(void *context, const dcp_collective *call, int root, const void *send,
                              const size_t *sizes, void *receive, size_t bytes)
{
    struct transport *transport = context;
    double deadline = deadline_of(call);
    dcp_status status = transport_begin(transport, call);
    if (status != DCP_OK)
        return status;
    add_star(transport, root);
    if (transport->rank != root) {
        transport_receive(transport, root, receive, bytes);
        return transport_run(transport, call, deadline + grace_seconds);
    }
    const unsigned char *place = send;
    for (int rank = 0; rank < transport->size; rank++) {
        if (rank == root)
            copy_bytes(receive, place, bytes);
        else
            transport_send(transport, rank, place, sizes[rank]);
        place += sizes[rank];
    }
    return transport_run(transport, call, deadline);
}

/* All messages at once: each pair of ranks has its own two slots, so no pair waits for another. */
static dcp_status mpi_all_to_all(void *context, const dcp_collective *call, const void *send,
                                 const size_t *send_sizes, const size_t *send_offsets,
                                 void *receive, const size_t *receive_sizes,
                                 const size_t *receive_offsets)
{
    struct transport *transport = context;
    double deadline = deadline_of(call);
    dcp_status status = transport_begin(transport, call);
    if (status != DCP_OK)
        return status;
    for (int way = 1; way < transport->size; way++) {
        int to = (transport->rank + way) % transport->size;
        int from = (transport->rank - way + transport->size) % transport->size;
        transport_add_neighbor(transport, to);
        if (receive_sizes[from] != 0)
            transport_receive(transport, from, (unsigned char *)receive + receive_offsets[from],
                              receive_sizes[from]);
        if (send_sizes[to] != 0)
            transport_send(transport, to, (const unsigned char *)send + send_offsets[to],
                           send_sizes[to]);
    }
    return transport_run(transport, call, deadline);
}

static void mpi_close(void *context)
{
    transport_close(context);
}

/* Checks for errors that would otherwise end the program inside MPI. */
static dcp_status check_mpi(MPI_Comm communicator)
{
    int initialized = 0, finalized = 0, main_thread = 0, level = 0, inter = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (!initialized || finalized)
        return dcp_error_set(DCP_ERR_STATE, "MPI is %s",
                             finalized ? "finalized already" : "not initialized");
    MPI_Is_thread_main(&main_thread);
    MPI_Query_thread(&level);
    if (!main_thread && level < MPI_THREAD_SERIALIZED)
        return dcp_error_set(
            DCP_ERR_STATE,
            "MPI was initialized for calls from its main thread only: call MPI_Init_thread() with "
            "MPI_THREAD_SERIALIZED or more to use it in this thread");
    if (communicator == MPI_COMM_NULL)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "dcp_group_new_mpi: the communicator is MPI_COMM_NULL");
    MPI_Comm_test_inter(communicator, &inter);
    if (inter)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "dcp_group_new_mpi: inter-communicators are not supported");
    return DCP_OK;
}

static dcp_status mpi_duplicate(void *context, const dcp_collective *call, void **copy);
static dcp_status mpi_split(void *context, const dcp_collective *call, int color, int rank,
                            int size, void **part);

static const dcp_group_operations operations = {
    .size_of = sizeof operations,
    .all_gather = mpi_all_gather,
    .broadcast = mpi_broadcast,
    .gather = mpi_gather,
    .scatter = mpi_scatter,
    .close = mpi_close,
    .all_to_all = mpi_all_to_all,
    .duplicate = mpi_duplicate,
    .split = mpi_split,
};

/* What a rank shares about the new group. */
struct wish {
    int color;
    int rank;
    int level; /* MPI's thread level */
    int number;
};
_Static_assert(sizeof(struct wish) == 4 * sizeof(int), "exchanged has room for these and one more");

/* Shares all ranks' wishes and agrees on a number for the new group. If another thread takes that
 * number at the same time for a group of some of these ranks, they try again. */
static dcp_status agree_on_number(struct transport *transport, const dcp_collective *call,
                                  struct wish *own, const struct wish **wishes)
{
    struct communicator *communicator = transport->communicator;
    for (int unclaimed = 1; unclaimed > 0;) {
        own->number = communicator_propose(communicator);
        dcp_status status = mpi_all_gather(transport, call, own, sizeof *own, transport->exchanged);
        *wishes = (const struct wish *)(const void *)transport->exchanged;
        int highest = own->number;
        for (int r = 0; r < transport->size && status == DCP_OK; r++)
            highest = (*wishes)[r].number > highest ? (*wishes)[r].number : highest;
        if (status == DCP_OK && highest >= communicator->numbers)
            return dcp_error_set(DCP_ERR_UNSUPPORTED,
                                 "MPI has no tags left for another group over this communicator: "
                                 "make a new one with dcp_group_new_mpi()");
        int *claims = transport->exchanged + 4 * (size_t)transport->size;
        int claimed = status == DCP_OK && communicator_claim(communicator, own->number, highest);
        if (status == DCP_OK)
            status = mpi_all_gather(transport, call, &claimed, sizeof claimed, claims);
        if (status != DCP_OK)
            return status;
        unclaimed = 0;
        for (int r = 0; r < transport->size; r++)
            unclaimed += !claims[r];
        own->number = highest;
    }
    return DCP_OK;
}

/* The caller has all ranks agree afterwards whether all of them succeeded. */
static dcp_status mpi_duplicate(void *context, const dcp_collective *call, void **copy)
{
    struct transport *transport = context, *made;
    struct wish own = {.rank = transport->rank};
    const struct wish *wishes;
    MPI_Query_thread(&own.level);
    dcp_status status = agree_on_number(transport, call, &own, &wishes);
    for (int r = 0; r < transport->size && status == DCP_OK; r++)
        if (wishes[r].level != MPI_THREAD_MULTIPLE)
            return DCP_OK; /* no two threads may call MPI at the same time */
    if (status == DCP_OK)
        status = transport_open(transport->communicator, own.number, transport->rank,
                                transport->size, transport->places, &made);
    if (status == DCP_OK)
        *copy = made;
    return status;
}

/* As above. Parts have the same number, as no rank is in two of them. */
static dcp_status mpi_split(void *context, const dcp_collective *call, int color, int rank,
                            int size, void **part)
{
    struct transport *transport = context, *made;
    struct wish own = {.color = color, .rank = rank};
    const struct wish *wishes;
    dcp_status status = agree_on_number(transport, call, &own, &wishes);
    if (status != DCP_OK || color < 0)
        return status;
    int *places = transport->indices; /* which are unused between messages */
    for (int r = 0; r < transport->size; r++)
        if (wishes[r].color == color && wishes[r].rank < size)
            places[wishes[r].rank] = transport->places[r];
    status = transport_open(transport->communicator, own.number, rank, size, places, &made);
    if (status == DCP_OK)
        *part = made;
    return status;
}

/* This rank's part of making a group. */
static dcp_status make_group(struct communicator *communicator, dcp_group **group)
{
    int rank = 0, size = 1;
    struct transport *transport;
    if (communicator == NULL)
        return dcp_error_set(DCP_ERR_NO_MEMORY, "no memory for %zu bytes of a group",
                             sizeof *communicator);
    MPI_Comm_rank(communicator->handle, &rank);
    MPI_Comm_size(communicator->handle, &size);
    dcp_status status = transport_open(communicator, 0, rank, size, NULL, &transport);
    if (status != DCP_OK)
        return status;
    status = dcp_group_new(&operations, transport, rank, size, group);
    if (status != DCP_OK)
        transport_close(transport);
    return status;
}

static dcp_status make_for_all(MPI_Comm handle, const dcp_collective *call, struct meeting *meeting,
                               dcp_group **group)
{
    double deadline = deadline_of(call);
    dcp_group *made = NULL;
    MPI_Comm copy;
    dcp_status status = meeting_duplicate(meeting, handle, call, deadline, &copy);
    if (status != DCP_OK)
        return status;
    struct communicator *communicator = communicator_new(copy);
    status = make_group(communicator, &made);
    status = meeting_agree(meeting, copy, call, deadline, status);
    if (status == DCP_OK)
        *group = made;
    else
        dcp_group_free(made);
    if (communicator != NULL)
        communicator_release(communicator, meeting->late);
    else if (!meeting->late)
        MPI_Comm_free(&copy);
    return status;
}

dcp_status dcp_group_new_mpi_within(MPI_Comm communicator, double timeout_seconds,
                                    dcp_group **group)
{
    static const double default_seconds = 1800;
    dcp_collective call = {"dcp_group_new_mpi",
                           timeout_seconds == 0 ? default_seconds : timeout_seconds};
    if (group == NULL)
        return dcp_error_set(DCP_ERR_ARGUMENT, "dcp_group_new_mpi: group is NULL");
    *group = NULL;
    if (!(timeout_seconds >= 0 && timeout_seconds <= 1e9))
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "dcp_group_new_mpi: the timeout is %g seconds, expected 0 to 1e9",
                             timeout_seconds);
    dcp_status status = check_mpi(communicator);
    if (status == DCP_OK)
        status = finalize_attach();
    if (status != DCP_OK)
        return status;
    struct meeting *meeting = meeting_new();
    if (meeting == NULL)
        return dcp_error_set(DCP_ERR_NO_MEMORY, "no memory for %zu bytes of a group",
                             sizeof *meeting);
    status = make_for_all(communicator, &call, meeting, group);
    meeting_free(meeting);
    return status;
}

dcp_status dcp_group_new_mpi(MPI_Comm communicator, dcp_group **group)
{
    return dcp_group_new_mpi_within(communicator, 0, group);
}
