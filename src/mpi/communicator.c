/* SPDX-License-Identifier: BSD-3-Clause */
#include "communicator.h"

#include <stdlib.h>

#include "finalize.h"

/* The least that the standard guarantees for MPI_TAG_UB. */
enum { LEAST_TAG = 32767 };

struct communicator *communicator_new(MPI_Comm handle)
{
    int found = 0, *highest = NULL;
    struct communicator *made = calloc(1, sizeof *made);
    if (made == NULL)
        return NULL;
    MPI_Comm_get_attr(handle, MPI_TAG_UB, &highest, &found);
    made->handle = handle;
    made->numbers = (found ? *highest : LEAST_TAG) / 2; /* two tags each */
    made->references = 1;
    made->next = 1;
    pthread_mutex_init(&made->mutex, NULL);
    return made;
}

void communicator_hold(struct communicator *communicator)
{
    pthread_mutex_lock(&communicator->mutex);
    communicator->references++;
    pthread_mutex_unlock(&communicator->mutex);
}

/* MPI_Comm_free() does not wait for other ranks here. */
void communicator_release(struct communicator *communicator, bool keep)
{
    pthread_mutex_lock(&communicator->mutex);
    communicator->kept = communicator->kept || keep;
    keep = communicator->kept;
    bool last = --communicator->references == 0;
    pthread_mutex_unlock(&communicator->mutex);
    if (!last)
        return;
    if (!keep && finalize_hold_off()) {
        MPI_Comm_free(&communicator->handle);
        finalize_let_go();
    }
    pthread_mutex_destroy(&communicator->mutex);
    free(communicator);
}

int communicator_propose(struct communicator *communicator)
{
    pthread_mutex_lock(&communicator->mutex);
    int number = communicator->next;
    if (number < communicator->numbers)
        communicator->next++;
    pthread_mutex_unlock(&communicator->mutex);
    return number;
}

bool communicator_claim(struct communicator *communicator, int proposed, int highest)
{
    pthread_mutex_lock(&communicator->mutex);
    bool fresh = highest >= communicator->next;
    if (fresh)
        communicator->next = highest + 1;
    pthread_mutex_unlock(&communicator->mutex);
    return fresh || highest == proposed;
}
