/* SPDX-License-Identifier: BSD-3-Clause */
/* A storage reader as a user of an object store would write it: files in memory that are read by
 * ranges, counted, and wrong on demand. */
#ifndef TESTS_RANGE_READER_H
#define TESTS_RANGE_READER_H

#include <stdatomic.h>

#include "checkpoint/memory_reader.h"

struct range_reader {
    dcp_storage_reader table; /* its context is this struct */
    struct memory_reader memory;
    atomic_long calls; /* of both hooks */
    atomic_ulong data; /* bytes that were read of files but .metadata */
    atomic_int inside; /* threads that are reading */
    atomic_int most_inside;
    long fails_at;       /* the call that fails, from 1 on; 0: none */
    size_t gives;        /* bytes at a time; 0: all that are asked for */
    bool gives_nothing;  /* but says that all is well */
    bool gives_too_much; /* or so it says */
    uint64_t adds;       /* to the sizes that it tells */
    unsigned slow;       /* microseconds for each read */
};

/* Takes all files of a directory. */
void range_reader_init(struct range_reader *reader, const char *directory);
void range_reader_free(struct range_reader *reader);

#endif
