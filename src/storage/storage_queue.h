/* SPDX-License-Identifier: BSD-3-Clause */
/* Transfers in the background: by the storage's queue, or by a few threads if it has none. Small
 * transfers are done at once, in the calling thread. */
#ifndef STORAGE_STORAGE_QUEUE_H
#define STORAGE_STORAGE_QUEUE_H

#include "storage/storage.h"

/* Transfers that one queue takes at a time. */
#define STORAGE_QUEUE_DEPTH 16
/* Files of at least this size use a queue and direct transfers. */
#define STORAGE_LARGE_FILE ((uint64_t)4 << 20)

/* For one thread. */
struct storage_queue;

/* Belongs to the caller, begins as zeros, and stays where it is until it is finished. At most
 * STORAGE_QUEUE_DEPTH of a queue are under way. */
struct storage_transfer {
    dcp_storage_transfer what;
    struct storage_file *file; /* NULL: not started, or finished */
};

/* How transfers spare other work on the machine. All zero: they do not. */
struct storage_manners {
    struct rate *write_rate;  /* NULL: any */
    dcp_io_priority priority; /* which threads have on their own, and those that they start */
    uint32_t threads;         /* of a pool, at most; 0: as many as are good */
};

/* Checks flags of dcp_io. */
dcp_status storage_check_io(uint32_t io);
/* access: of the files that it is for; size: of the largest of them. manners: kept; NULL is as all
 * zero. DCP_ERR_UNSUPPORTED if what io demands is not there. */
dcp_status storage_queue_open(const struct storage_directory *directory,
                              const dcp_storage_access *access,
                              const struct storage_manners *manners, uint64_t size,
                              struct storage_queue **queue);
/* Memory that a queue takes, at most. */
uint64_t storage_queue_memory(uint32_t io, uint64_t size);
/* By which ways transfers of the file went in the queue: DCP_IO_DIRECT, DCP_IO_RING. Either may be
 * NULL. */
uint32_t storage_queue_ways(struct storage_queue *queue, struct storage_file *file);
/* Starts to write or read all of the bytes, which must stay until the transfer is finished. */
void storage_queue_write(struct storage_queue *queue, struct storage_transfer *transfer,
                         struct storage_file *file, const void *bytes, size_t size,
                         uint64_t offset);
void storage_queue_read(struct storage_queue *queue, struct storage_transfer *transfer,
                        struct storage_file *file, void *bytes, size_t size, uint64_t offset);
/* Waits until the transfer is complete, and returns its result. DCP_OK for one that was not
 * started. */
dcp_status storage_queue_finish(struct storage_queue *queue, struct storage_transfer *transfer);
/* Waits for transfers that are under way, and ignores their results. NULL is allowed. */
void storage_queue_close(struct storage_queue *queue);

#endif
