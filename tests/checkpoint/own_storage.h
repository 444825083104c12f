/* SPDX-License-Identifier: BSD-3-Clause */
/* A storage as a user would write it, for ids that begin with "store://": directories of the file
 * system below a root. It has no more than it must, is counted, and is wrong on demand. */
#ifndef TESTS_OWN_STORAGE_H
#define TESTS_OWN_STORAGE_H

#include <stdatomic.h>

#include "dcp.h"

struct own_storage {
    dcp_storage table;       /* its context is this struct */
    const dcp_storage *kept; /* where the bytes are: the file system */
    char root[512];
    atomic_long calls; /* of functions that can fail; of fails_in, if that is set */
    atomic_ulong data; /* bytes that were read of files but .metadata */
    atomic_int inside; /* threads that are reading */
    atomic_int most_inside;
    atomic_int open;      /* handles: directories, files, publications, queues */
    unsigned slow;        /* microseconds for each read */
    size_t request_size;  /* that the storage says is good */
    bool repeats;         /* names in listings: of directories, those of files in them */
    long fails_at;        /* the call that fails, from 1 on; 0: none */
    const char *fails_in; /* the function of the table that fails; NULL: any */
    int fails_with;
    bool fails_silently;
    uint64_t adds;       /* to the sizes of files */
    const char *missing; /* a file that is not there */
    const char *damaged; /* the file whose byte damaged_at has one bit flipped */
    uint64_t damaged_at;
};

void own_storage_init(struct own_storage *own, const char *root);
/* A queue of its own, in which nothing moves before it is waited for. */
void own_storage_add_queue(struct own_storage *own);

#endif
