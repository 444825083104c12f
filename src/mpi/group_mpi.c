/* SPDX-License-Identifier: BSD-3-Clause */
/* A process group over MPI: its collectives as stars around a root, and as a binomial tree where a
 * large message goes to everyone. */
#include <stdlib.h>
#include <string.h>

#include "dcp/mpi.h"
#include "finalize.h"
#include "transport.h"

/* Beyond the deadline, ranks that wait for the root give it this time to say who is missing. */
static const double grace_seconds = 0.5;

/* Up to here a broadcast goes from the root to everyone directly: then a rank that is missing
 * concerns nobody but itself. */
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

/* For messages to ranks that are known to have come: never so short that they could not pass. */
static double deadline_for_sending(double deadline)
{
    double soon = transport_now() + grace_seconds;
    return deadline > soon ? deadline : soon;
}

/* Makes all others (at the root) or the root neighbours. */
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

/* Where a rank stands in a broadcast; positions count from the root. */
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
    /* In a binomial tree the lowest set bit is the step from the parent; smaller ones lead on. */
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

/* All at once: each pair of ranks has its own two slots, so that nobody waits for a third. */
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

/* Notices may still be under way to a broken group: its communicator must not be taken for a newer
 * one, and is left to MPI_Finalize. */
static void mpi_close(void *context)
{
    struct transport *transport = context;
    MPI_Comm communicator = transport->communicator;
    bool broken = transport->broken;
    transport_close(transport);
    if (broken || !finalize_hold_off())
        return;
    MPI_Comm_free(&communicator);
    finalize_let_go();
}

/* What would otherwise end the program inside MPI. */
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
        return dcp_error_set(DCP_ERR_STATE, "MPI was initialized for calls from its main thread "
                                            "only; this thread needs MPI_THREAD_SERIALIZED");
    if (communicator == MPI_COMM_NULL)
        return dcp_error_set(DCP_ERR_ARGUMENT, "dcp_group_new_mpi: the communicator is null");
    MPI_Comm_test_inter(communicator, &inter);
    if (inter)
        return dcp_error_set(DCP_ERR_ARGUMENT,
                             "dcp_group_new_mpi: inter-communicators are not supported");
    return DCP_OK;
}

static dcp_status mpi_duplicate(void *context, const dcp_collective *call, void **copy);
static dcp_status mpi_split(void *context, const dcp_collective *call, int color, int rank,
                            int size, void **part);

/* This rank's part in making a group, which owns the communicator then. */
static dcp_status make_group(MPI_Comm communicator, dcp_group **group)
{
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
    struct transport *transport;
    dcp_status status = transport_open(communicator, &transport);
    if (status != DCP_OK)
        return status;
    status = dcp_group_new(&operations, transport, transport->rank, transport->size, group);
    if (status != DCP_OK)
        transport_close(transport);
    return status;
}

/* All ranks have a group, or none has. */
static dcp_status agree(MPI_Comm communicator, dcp_status mine)
{
    struct {
        int status, rank;
    } own = {.status = (int)mine}, worst;
    MPI_Comm_rank(communicator, &own.rank);
    int code = MPI_Allreduce(&own, &worst, 1, MPI_2INT, MPI_MAXLOC, communicator);
    if (mine != DCP_OK)
        return mine;
    if (code != MPI_SUCCESS)
        return transport_mpi_error(code, "MPI_Allreduce");
    if (worst.status == DCP_OK)
        return DCP_OK;
    return dcp_error_set((dcp_status)worst.status, "rank %d could not make its group: %s",
                         worst.rank, dcp_status_string((dcp_status)worst.status));
}

/* Whether every rank may call MPI on several threads at the same time. */
static dcp_status all_are_multiple(struct transport *transport, const dcp_collective *call,
                                   bool *multiple)
{
    int level = 0;
    MPI_Query_thread(&level);
    int *levels = calloc((size_t)transport->size, sizeof *levels);
    if (levels == NULL)
        return dcp_error_set(DCP_ERR_NO_MEMORY, "no memory for the levels of %d ranks",
                             transport->size);
    dcp_status status = mpi_all_gather(transport, call, &level, sizeof level, levels);
    *multiple = true;
    for (int rank = 0; rank < transport->size; rank++)
        *multiple = *multiple && levels[rank] == MPI_THREAD_MULTIPLE;
    free(levels);
    return status;
}

/* A transport over a communicator that MPI has just made, on all of its ranks or on none; frees the
 * communicator otherwise. */
static dcp_status open_for_all(MPI_Comm communicator, void **context)
{
    struct transport *made = NULL;
    MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN);
    dcp_status status = agree(communicator, transport_open(communicator, &made));
    if (status == DCP_OK) {
        *context = made;
        return DCP_OK;
    }
    if (made != NULL)
        transport_close(made);
    MPI_Comm_free(&communicator);
    return status;
}

/* All ranks have just met, so that MPI's own collectives are not left waiting. */
static dcp_status mpi_duplicate(void *context, const dcp_collective *call, void **copy)
{
    struct transport *transport = context;
    bool multiple = false;
    MPI_Comm duplicate;
    dcp_status status = all_are_multiple(transport, call, &multiple);
    if (status != DCP_OK || !multiple)
        return status;
    int code = MPI_Comm_dup(transport->communicator, &duplicate);
    if (code != MPI_SUCCESS)
        return transport_mpi_error(code, "MPI_Comm_dup");
    return open_for_all(duplicate, copy);
}

/* As above: they have told each other their colors. */
static dcp_status mpi_split(void *context, const dcp_collective *call, int color, int rank,
                            int size, void **part)
{
    struct transport *transport = context;
    MPI_Comm communicator;
    (void)call;
    (void)size;
    int code = MPI_Comm_split(transport->communicator, color < 0 ? MPI_UNDEFINED : color, rank,
                              &communicator);
    if (code != MPI_SUCCESS)
        return transport_mpi_error(code, "MPI_Comm_split");
    return communicator == MPI_COMM_NULL ? DCP_OK : open_for_all(communicator, part);
}

dcp_status dcp_group_new_mpi(MPI_Comm communicator, dcp_group **group)
{
    if (group == NULL)
        return dcp_error_set(DCP_ERR_ARGUMENT, "dcp_group_new_mpi: group is NULL");
    *group = NULL;
    dcp_status status = check_mpi(communicator);
    if (status == DCP_OK)
        status = finalize_attach();
    if (status != DCP_OK)
        return status;
    MPI_Comm duplicate;
    int code = MPI_Comm_dup(communicator, &duplicate);
    if (code != MPI_SUCCESS)
        return transport_mpi_error(code, "MPI_Comm_dup");
    MPI_Comm_set_errhandler(duplicate, MPI_ERRORS_RETURN);
    dcp_group *made = NULL;
    status = agree(duplicate, make_group(duplicate, &made));
    if (status == DCP_OK)
        *group = made;
    else if (made != NULL)
        dcp_group_free(made);
    else
        MPI_Comm_free(&duplicate);
    return status;
}
