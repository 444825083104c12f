/* SPDX-License-Identifier: BSD-3-Clause */
/* What reading will take of memory, found out before anything is read but the footers of files. */
#ifndef STORAGE_SHARD_SHARD_READ_NEEDS_H
#define STORAGE_SHARD_SHARD_READ_NEEDS_H

#include "storage/shard/shard_reader.h"

struct shard_read_needs {
    uint64_t files;   /* memory of all files, if they are open at a time */
    uint64_t largest; /* of these, the one that takes most */
    uint64_t opening; /* taken for a moment while a file is opened */
    uint64_t block;   /* the largest block that is held to be checked */
    uint64_t item;    /* for the piece that takes most, beyond what opening any one does */
    size_t requests;  /* of tensors */
    size_t divided;   /* of these, what may be read in parts */
    bool device;      /* some of it is read into a device */
    bool passing;     /* some is decompressed as it is read */
    uint32_t io;
    size_t request; /* bytes that are better read from the storage in one request */
};

/* Closes all files, then opens every file of the requests; of requests for objects only the piece
 * is used. Reads the headers in the streams of compressed tensors, and opens unusual pieces. For
 * one thread. */
dcp_status shard_read_needs_find(struct shard_reader *reader, const struct shard_request *requests,
                                 size_t count, dcp_verification verification,
                                 struct shard_read_needs *needs);
/* Memory that the files take that are open now. */
uint64_t shard_reader_open_memory(struct shard_reader *reader);

/* Memory that reading takes at a time at most, open files among it. */
uint64_t shard_read_needs_memory(const struct shard_read_needs *needs,
                                 const struct shard_read_how *how);
/* What takes least: one thread, one file, a small buffer, through the page cache. */
struct shard_read_how shard_read_how_least(void);
/* Changes *how as little as possible so that reading needs at most this much memory. At least
 * `least` is needed. */
void shard_read_needs_fit(const struct shard_read_needs *needs, uint64_t memory,
                          struct shard_read_how *how);

#endif
