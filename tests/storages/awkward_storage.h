/* SPDX-License-Identifier: BSD-3-Clause */
/* A storage that makes things as hard as dcp/storage.h allows, over another one: transfers that end
 * late and out of order, failures at any call, statuses that are none, handles that are filled with
 * rubbish where a call fails, or nothing that is optional. It counts what is open, so that a test
 * sees what was left. */
#ifndef STORAGES_AWKWARD_STORAGE_H
#define STORAGES_AWKWARD_STORAGE_H

#include <pthread.h>

#include "dcp.h"

/* The calls that can fail. */
enum awkward_call {
    AWKWARD_ANY, /* each of those below counts */
    AWKWARD_OPEN,
    AWKWARD_FREE_SPACE,
    AWKWARD_LIST,
    AWKWARD_REMOVE,
    AWKWARD_OPEN_FILE,
    AWKWARD_READ, /* those of queues as well */
    AWKWARD_CREATE,
    AWKWARD_WRITE, /* those of queues as well */
    AWKWARD_SEAL,
    AWKWARD_SYNC,
    AWKWARD_PREPARE, /* to create and to write what is published as well */
    AWKWARD_PUBLISH, /* over what is there as well, and to seal what is published */
    AWKWARD_IDENTIFY,
    AWKWARD_QUEUE_OPEN,
    AWKWARD_MAP,
    AWKWARD_REMOVE_DIRECTORY,
    AWKWARD_CALLS
};

/* What goes wrong. All zero: nothing. */
struct awkward_fault {
    enum awkward_call call;
    long n; /* the n-th such call, from 1; 0: none */
    bool from_then_on;
    bool afterwards; /* publishing: it has happened all the same */
    bool silent;     /* without a message */
    int status;      /* that is returned, which may be no dcp_status */
};

/* How it behaves. All zero: it only passes calls on, with queues of its own. */
struct awkward_manner {
    bool bare;             /* has none of the optional functions */
    unsigned microseconds; /* that a transfer takes, at most */
    dcp_storage_traits traits;
    size_t alignment; /* of every file */
};

struct awkward_storage {
    dcp_storage table;        /* whose context is this */
    const dcp_storage *below; /* stays as long */
    struct awkward_manner manner;
    pthread_mutex_t mutex; /* over what follows */
    struct awkward_fault fault;
    long counted;             /* calls that the fault is about */
    enum awkward_call struck; /* the first that it struck */
    long calls[AWKWARD_CALLS];
    long open; /* directories, files, publications, queues and mappings */
    unsigned random;
};

/* Passed to calls as `&storage->table`, which takes all ids unless a `takes` is put into it; must
 * stay where it is. */
void awkward_storage_init(struct awkward_storage *storage, const dcp_storage *below,
                          const struct awkward_manner *manner);
void awkward_storage_destroy(struct awkward_storage *storage);
/* From now on; counts anew. fault: NULL: nothing fails. */
void awkward_storage_fail(struct awkward_storage *storage, const struct awkward_fault *fault);
/* The call that the fault has struck first; AWKWARD_ANY: none. */
enum awkward_call awkward_storage_struck(struct awkward_storage *storage);
/* How often a function has been called since awkward_storage_fail(). */
long awkward_storage_calls(struct awkward_storage *storage, enum awkward_call call);
/* What is open. */
long awkward_storage_open_count(struct awkward_storage *storage);

/* ---- for awkward_queue.c ---- */

/* DCP_OK, or what the call is to return; says why unless it is to be silent. */
dcp_status awkward_storage_strike(struct awkward_storage *storage, enum awkward_call call);
void awkward_storage_count_open(struct awkward_storage *storage, long change);
/* Takes some time. */
void awkward_storage_dawdle(struct awkward_storage *storage);
dcp_status awkward_read(void *context, dcp_storage_file *file, void *bytes, size_t size,
                        uint64_t offset);
dcp_status awkward_write(void *context, dcp_storage_file *file, const void *bytes, size_t size,
                         uint64_t offset);

dcp_status awkward_queue_open(void *context, void *directory, unsigned depth,
                              const dcp_storage_access *access, void **queue);
void awkward_queue_start(void *context, void *queue, dcp_storage_transfer *transfer);
dcp_status awkward_queue_finish(void *context, void *queue, dcp_storage_transfer *transfer);
void awkward_queue_close(void *context, void *queue);

#endif
