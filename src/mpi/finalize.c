/* SPDX-License-Identifier: BSD-3-Clause */
#include "finalize.h"

#include <pthread.h>
#include <stdatomic.h>

#include "dcp/async.h"
#include "transport.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards `attached` */
static bool attached;

static pthread_rwlock_t gate = PTHREAD_RWLOCK_INITIALIZER;
static atomic_bool gone;

/* MPI_Finalize() deletes the attributes of MPI_COMM_SELF first, while MPI is still usable. */
static int on_finalize(MPI_Comm communicator, int keyval, void *value, void *state)
{
    (void)communicator, (void)keyval, (void)value, (void)state;
    dcp_finish_saves();
    atomic_store(&gone, true);
    /* Waits for threads that are inside MPI. */
    pthread_rwlock_wrlock(&gate);
    pthread_rwlock_unlock(&gate);
    return MPI_SUCCESS;
}

static dcp_status attach(void)
{
    int keyval = MPI_KEYVAL_INVALID;
    int code = MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_finalize, &keyval, NULL);
    if (code != MPI_SUCCESS)
        return transport_mpi_error(code, "MPI_Comm_create_keyval");
    code = MPI_Comm_set_attr(MPI_COMM_SELF, keyval, NULL);
    MPI_Comm_free_keyval(&keyval);
    return code == MPI_SUCCESS ? DCP_OK : transport_mpi_error(code, "MPI_Comm_set_attr");
}

dcp_status finalize_attach(void)
{
    pthread_mutex_lock(&mutex);
    dcp_status status = attached ? DCP_OK : attach();
    attached = attached || status == DCP_OK;
    pthread_mutex_unlock(&mutex);
    return status;
}

bool finalize_hold_off(void)
{
    pthread_rwlock_rdlock(&gate);
    if (!atomic_load(&gone))
        return true;
    pthread_rwlock_unlock(&gate);
    return false;
}

void finalize_let_go(void)
{
    pthread_rwlock_unlock(&gate);
}
