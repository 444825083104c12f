/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "finalize.h"

/* A group's two tags. */
enum tag { TAG_MESSAGE, TAG_NOTICE };

static int tag_of(const struct transport *transport, enum tag tag)
{
    return 2 * transport->number + (int)tag;
}

/* Bytes of the slots of all ranks together, and of each: with few ranks, pieces are large. */
enum { SLOTS_BYTES = 16 << 20, SLOT_BYTES_MIN = 4 << 10, SLOT_BYTES_MAX = 1 << 20 };

/* How long a rank that gives up waits for its notices to be sent. */
static const double farewell_seconds = 0.05;

double transport_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

dcp_status transport_mpi_error(int code, const char *call)
{
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    return dcp_error_set(DCP_ERR_GROUP, "%s failed: %s", call, text);
}

static dcp_status hear_notices(struct transport *transport)
{
    int code = MPI_Irecv(&transport->heard, (int)sizeof transport->heard, MPI_BYTE, MPI_ANY_SOURCE,
                         tag_of(transport, TAG_NOTICE), transport->communicator->handle,
                         &transport->hearing);
    return code == MPI_SUCCESS ? DCP_OK : transport_mpi_error(code, "MPI_Irecv");
}

static dcp_status allocate(struct transport *transport)
{
    size_t size = (size_t)transport->size;
    size_t slot = SLOTS_BYTES / (2 * size);
    slot = slot < SLOT_BYTES_MIN ? SLOT_BYTES_MIN : slot > SLOT_BYTES_MAX ? SLOT_BYTES_MAX : slot;
    transport->slot_size = slot;
    transport->slots = calloc(2 * size, slot);
    transport->transfers = calloc(2 * size, sizeof *transport->transfers);
    transport->requests = calloc(3 * size, sizeof *transport->requests);
    transport->statuses = calloc(2 * size, sizeof *transport->statuses);
    transport->indices = calloc(2 * size, sizeof *transport->indices);
    transport->neighbors = calloc(size, sizeof *transport->neighbors);
    transport->places = calloc(size, sizeof *transport->places);
    transport->exchanged = calloc(5 * size, sizeof *transport->exchanged);
    if (transport->slots == NULL || transport->transfers == NULL || transport->requests == NULL ||
        transport->statuses == NULL || transport->indices == NULL || transport->neighbors == NULL ||
        transport->places == NULL || transport->exchanged == NULL)
        return dcp_error_set(DCP_ERR_NO_MEMORY, "no memory for %zu bytes of message slots",
                             2 * size * slot);
    for (size_t i = 0; i < 3 * size; i++)
        transport->requests[i] = MPI_REQUEST_NULL;
    return DCP_OK;
}

static void release(struct transport *transport)
{
    free(transport->slots);
    free(transport->transfers);
    free(transport->requests);
    free(transport->statuses);
    free(transport->indices);
    free(transport->neighbors);
    free(transport->places);
    free(transport->exchanged);
    free(transport);
}

dcp_status transport_open(struct communicator *communicator, int number, int rank, int size,
                          const int *places, struct transport **transport)
{
    struct transport *made = calloc(1, sizeof *made);
    if (made == NULL)
        return dcp_error_set(DCP_ERR_NO_MEMORY, "no memory for %zu bytes of a group", sizeof *made);
    made->communicator = communicator;
    made->number = number;
    made->hearing = MPI_REQUEST_NULL;
    made->rank = rank;
    made->size = size;
    dcp_status status = allocate(made);
    for (int i = 0; i < size && status == DCP_OK; i++)
        made->places[i] = places != NULL ? places[i] : i;
    if (status == DCP_OK)
        status = hear_notices(made);
    if (status == DCP_OK) {
        communicator_hold(communicator);
        *transport = made;
    } else {
        release(made);
    }
    return status;
}

/* Ends the receive of notices. True if MPI no longer uses its memory. */
static bool stop_hearing(struct transport *transport)
{
    int done = transport->hearing == MPI_REQUEST_NULL;
    double until = transport_now() + farewell_seconds;
    if (done || MPI_Cancel(&transport->hearing) != MPI_SUCCESS)
        return done;
    while (MPI_Test(&transport->hearing, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done &&
           transport_now() < until)
        sched_yield();
    return done;
}

/* Notices may still be under way to a broken group. A newer communicator must not receive them, so
 * this one is left to MPI_Finalize(). */
void transport_close(struct transport *transport)
{
    if (!finalize_hold_off())
        return; /* MPI may still use the memory */
    if (!stop_hearing(transport))
        transport->abandoned = true;
    finalize_let_go();
    communicator_release(transport->communicator, transport->broken || transport->abandoned);
    if (!transport->abandoned)
        release(transport);
}

/* ---- giving up */

/* Whether a notice has come. Only the first one matters. */
static bool has_heard(struct transport *transport)
{
    int heard = 0;
    if (transport->hearing == MPI_REQUEST_NULL)
        return false;
    if (MPI_Test(&transport->hearing, &heard, MPI_STATUS_IGNORE) != MPI_SUCCESS || !heard)
        return false;
    transport->heard.phase[sizeof transport->heard.phase - 1] = '\0';
    transport->heard.text[sizeof transport->heard.text - 1] = '\0';
    return true;
}

/* Waits a moment for cancelled transfers and for notices. If MPI needs longer, our memory is left
 * to it. */
static void see_off(struct transport *transport)
{
    int count = 3 * transport->size, done = 0;
    double until = transport_now() + farewell_seconds;
    while (MPI_Testall(count, transport->requests, &done, MPI_STATUSES_IGNORE) == MPI_SUCCESS &&
           !done && transport_now() < until)
        sched_yield();
    for (int i = 0; i < count; i++)
        if (transport->requests[i] != MPI_REQUEST_NULL) {
            transport->abandoned = true;
            MPI_Request_free(&transport->requests[i]);
        }
}

static void give_up(struct transport *transport, const struct notice *notice)
{
    transport->broken = true;
    transport->failure = *notice;
    for (int i = 0; i < transport->transfer_count; i++)
        if (transport->requests[i] != MPI_REQUEST_NULL && transport->transfers[i].receiving)
            MPI_Cancel(&transport->requests[i]);
    for (int rank = 0; rank < transport->size; rank++)
        if (transport->neighbors[rank])
            MPI_Isend(&transport->failure, (int)sizeof transport->failure, MPI_BYTE,
                      transport->places[rank], tag_of(transport, TAG_NOTICE),
                      transport->communicator->handle,
                      &transport->requests[2 * transport->size + rank]);
    see_off(transport);
}

/* Gives up with the calling thread's message. */
static dcp_status fail(struct transport *transport, const dcp_collective *call, dcp_status status)
{
    struct notice notice = {.status = (uint32_t)status};
    snprintf(notice.phase, sizeof notice.phase, "%s", call->phase);
    snprintf(notice.text, sizeof notice.text, "%s", dcp_error_message());
    give_up(transport, &notice);
    return dcp_error_set(status, "%s", notice.text);
}

static dcp_status fail_as_heard(struct transport *transport)
{
    give_up(transport, &transport->heard);
    return dcp_error_set((dcp_status)transport->heard.status, "%s", transport->heard.text);
}

/* Whether an earlier message to or from the same peer failed too, so that it is named already. */
static bool is_named_before(const struct transport *transport, int index)
{
    for (int i = 0; i < index; i++)
        if (transport->requests[i] != MPI_REQUEST_NULL &&
            transport->transfers[i].peer == transport->transfers[index].peer)
            return true;
    return false;
}

/* "rank 2", "ranks 2, 5", "ranks 2, 5 and 9 more". */
static void name_missing(const struct transport *transport, char *text, size_t size)
{
    enum { NAMED_MAX = 16 };
    char names[256] = "";
    size_t length = 0;
    int missing = 0;
    for (int i = 0; i < transport->transfer_count; i++)
        if (transport->requests[i] != MPI_REQUEST_NULL && !is_named_before(transport, i) &&
            missing++ < NAMED_MAX)
            length += (size_t)snprintf(names + length, sizeof names - length, "%s %d",
                                       missing > 1 ? "," : "", transport->transfers[i].peer);
    if (missing > NAMED_MAX)
        snprintf(names + length, sizeof names - length, " and %d more", missing - NAMED_MAX);
    snprintf(text, size, "%s%s", missing == 1 ? "rank" : "ranks", names);
}

static dcp_status fail_for_missing(struct transport *transport, const dcp_collective *call)
{
    char missing[320];
    name_missing(transport, missing, sizeof missing);
    return fail(transport, call,
                dcp_error_set(DCP_ERR_TIMEOUT, "%s did not make this call within %g s", missing,
                              call->timeout_seconds));
}

/* ---- moving messages */

/* MPI has ended, so no notices can be sent. */
static dcp_status fail_as_finalized(struct transport *transport, const dcp_collective *call)
{
    transport->broken = transport->abandoned = true;
    transport->failure = (struct notice){.status = DCP_ERR_STATE, .text = "MPI was finalized"};
    snprintf(transport->failure.phase, sizeof transport->failure.phase, "%s", call->phase);
    return dcp_error_set(DCP_ERR_STATE, "%s: MPI was finalized", call->phase);
}

dcp_status transport_begin(struct transport *transport, const dcp_collective *call)
{
    memset(transport->neighbors, 0, (size_t)transport->size * sizeof *transport->neighbors);
    transport->transfer_count = 0;
    if (!transport->broken) {
        if (!finalize_hold_off())
            return fail_as_finalized(transport, call);
        bool heard = has_heard(transport);
        finalize_let_go();
        if (!heard)
            return DCP_OK;
        transport->broken = true;
        transport->failure = transport->heard;
    }
    return dcp_error_set(DCP_ERR_STATE, "the group is broken: %s: %s", transport->failure.phase,
                         transport->failure.text);
}

void transport_add_neighbor(struct transport *transport, int rank)
{
    transport->neighbors[rank] = rank != transport->rank;
}

void transport_send(struct transport *transport, int peer, const void *bytes, size_t size)
{
    transport->transfers[transport->transfer_count++] =
        (struct transfer){.peer = peer, .bytes = (unsigned char *)bytes, .left = size};
}

void transport_receive(struct transport *transport, int peer, void *bytes, size_t size)
{
    transport->transfers[transport->transfer_count++] =
        (struct transfer){.peer = peer, .receiving = true, .bytes = bytes, .left = size};
}

static unsigned char *slot_of(const struct transport *transport, int index)
{
    return transport->slots + (size_t)index * transport->slot_size;
}

static dcp_status start_piece(struct transport *transport, int index)
{
    struct transfer *transfer = &transport->transfers[index];
    MPI_Request *request = &transport->requests[index];
    unsigned char *slot = slot_of(transport, index);
    size_t left = transfer->left;
    transfer->piece = left < transport->slot_size ? left : transport->slot_size;
    MPI_Comm communicator = transport->communicator->handle;
    int code, peer = transport->places[transfer->peer], tag = tag_of(transport, TAG_MESSAGE);
    if (transfer->receiving) {
        code = MPI_Irecv(slot, (int)transfer->piece, MPI_BYTE, peer, tag, communicator, request);
    } else {
        if (transfer->piece != 0)
            memcpy(slot, transfer->bytes, transfer->piece);
        code = MPI_Isend(slot, (int)transfer->piece, MPI_BYTE, peer, tag, communicator, request);
    }
    return code == MPI_SUCCESS
               ? DCP_OK
               : transport_mpi_error(code, transfer->receiving ? "MPI_Irecv" : "MPI_Isend");
}

/* Called when a piece has passed: takes it out of its slot and starts the next one, if any. */
static dcp_status finish_piece(struct transport *transport, int index, MPI_Status *mpi_status,
                               int *unfinished)
{
    struct transfer *transfer = &transport->transfers[index];
    if (transfer->receiving) {
        int count = 0;
        MPI_Get_count(mpi_status, MPI_BYTE, &count);
        if ((size_t)count != transfer->piece)
            return dcp_error_set(DCP_ERR_GROUP, "rank %d sent %d bytes, expected %zu",
                                 transfer->peer, count, transfer->piece);
        if (transfer->piece != 0)
            memcpy(transfer->bytes, slot_of(transport, index), transfer->piece);
    }
    transfer->left -= transfer->piece;
    if (transfer->left == 0) {
        --*unfinished;
        return DCP_OK;
    }
    transfer->bytes += transfer->piece;
    return start_piece(transport, index);
}

/* Tests all transfers once. *progressed: whether a piece has passed. */
static dcp_status poll_transfers(struct transport *transport, int *unfinished, bool *progressed)
{
    int done = 0;
    int code = MPI_Testsome(transport->transfer_count, transport->requests, &done,
                            transport->indices, transport->statuses);
    if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS)
        return transport_mpi_error(code, "MPI_Testsome");
    *progressed = done > 0;
    dcp_status status = DCP_OK;
    for (int i = 0; i < done && status == DCP_OK; i++) {
        MPI_Status *one = &transport->statuses[i];
        if (code == MPI_ERR_IN_STATUS && one->MPI_ERROR != MPI_SUCCESS)
            status = transport_mpi_error(one->MPI_ERROR, "a message");
        else
            status = finish_piece(transport, transport->indices[i], one, unfinished);
    }
    return status;
}

/* Other ranks may need our core, so waiting yields at once and soon sleeps, for up to a
 * millisecond. */
void transport_pause(unsigned idle_polls)
{
    enum { YIELDS = 2000, LONGEST_NS = 1000000 };
    if (idle_polls < YIELDS) {
        sched_yield();
        return;
    }
    long duration = (long)(idle_polls - YIELDS + 1) * 10000;
    struct timespec time = {.tv_nsec = duration < LONGEST_NS ? duration : LONGEST_NS};
    nanosleep(&time, NULL);
}

/* Called between polls, while MPI is not held. *next: when to log that this rank is waiting. */
static void wait_a_little(const struct transport *transport, const dcp_collective *call,
                          double waited, double *next, unsigned idle_polls)
{
    char missing[320];
    if (waited >= *next) {
        name_missing(transport, missing, sizeof missing);
        *next = dcp_collective_log_wait(call, waited, missing);
    }
    transport_pause(idle_polls);
}

/* As transport_run(), while MPI is held; releases it to wait. *gone: MPI was finalized
 * meanwhile. */
static dcp_status run_held(struct transport *transport, const dcp_collective *call, double deadline,
                           bool *gone)
{
    dcp_status status = DCP_OK;
    for (int i = 0; i < transport->transfer_count && status == DCP_OK; i++)
        status = start_piece(transport, i);
    int unfinished = transport->transfer_count;
    unsigned idle_polls = 0;
    double began = transport_now(), next = dcp_collective_log_wait(call, 0, NULL);
    while (status == DCP_OK && unfinished > 0) {
        bool progressed = false;
        status = poll_transfers(transport, &unfinished, &progressed);
        if (status != DCP_OK || unfinished == 0)
            break;
        idle_polls = progressed ? 0 : idle_polls + 1;
        if (has_heard(transport))
            return fail_as_heard(transport);
        double now = transport_now();
        if (now >= deadline)
            return fail_for_missing(transport, call);
        finalize_let_go();
        wait_a_little(transport, call, now - began, &next, idle_polls);
        *gone = !finalize_hold_off();
        if (*gone)
            return fail_as_finalized(transport, call);
    }
    return status == DCP_OK ? DCP_OK : fail(transport, call, status);
}

dcp_status transport_run(struct transport *transport, const dcp_collective *call, double deadline)
{
    bool gone = !finalize_hold_off();
    if (gone)
        return fail_as_finalized(transport, call);
    dcp_status status = run_held(transport, call, deadline, &gone);
    if (!gone)
        finalize_let_go();
    if (status == DCP_OK)
        transport->transfer_count = 0;
    return status;
}
