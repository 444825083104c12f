/* SPDX-License-Identifier: BSD-3-Clause */
/* Transfers that go on while the caller does something else: by io_uring, by a few threads, or, for
 * what is too small to gain from either, on the spot. Around the page cache where the file has been
 * opened for it and the transfer is aligned. */
#ifndef STORAGE_IO_QUEUE_H
#define STORAGE_IO_QUEUE_H

#include "base/file.h"
#include "base/rate.h"
#include "dcp/environment.h"

/* Transfers that one queue takes at a time. */
#define IO_QUEUE_DEPTH 16
/* From here on a file is worth a queue, and direct transfers. */
#define IO_LARGE_FILE ((uint64_t)4 << 20)

/* For one thread. */
struct io_queue;

/* Belongs to the caller, begins as zeros, and stays where it is until it is finished. */
struct io_transfer {
    struct file *file;
    struct file_transfer what;
    bool write_back;
    bool pending; /* guarded by the queue, as what follows */
    int error;
    size_t done;
    struct io_transfer *next;
};

/* How transfers go easy on others. All zero: not at all. */
struct io_manners {
    struct rate *write_rate;  /* NULL: any */
    dcp_io_priority priority; /* which threads have on their own, and those that they start */
    uint32_t threads;         /* of a pool, at most; 0: as many as are good */
};

/* Checks flags of dcp_io. */
dcp_status io_check(uint32_t io);
/* size: of the file that it is for. manners: kept; NULL is as all zero. write_back: what goes
 * through the page cache is sent on to the disk at once, so that a sync finds little left to do.
 * DCP_ERR_UNSUPPORTED if what io demands is not there. */
dcp_status io_queue_open(const struct file_ops *ops, uint32_t io, const struct io_manners *manners,
                         uint64_t size, bool write_back, struct io_queue **queue);
/* Opens the file for direct transfers as well, with the flags that it was opened with, if io
 * demands or allows it for a file of that size. */
dcp_status io_open_direct(struct file *file, uint32_t io, uint64_t size, unsigned flags);
/* Memory that a queue takes, at most. */
uint64_t io_queue_memory(uint32_t io, uint64_t size);
/* Whether transfers go by io_uring. */
bool io_queue_has_ring(const struct io_queue *queue);
/* Whether the file system refused direct transfers when it came to them. */
bool io_queue_was_refused(const struct io_queue *queue);
/* Starts to write all of the bytes, which must stay until the transfer is finished. */
void io_queue_write(struct io_queue *queue, struct io_transfer *transfer, struct file *file,
                    const void *bytes, size_t size, uint64_t offset);
/* Starts to read all of the bytes, as io_queue_write(). */
void io_queue_read(struct io_queue *queue, struct io_transfer *transfer, struct file *file,
                   void *bytes, size_t size, uint64_t offset);
/* Waits until the transfer is complete, and tells what became of it; fine for one that was not
 * started. */
dcp_status io_queue_finish(struct io_queue *queue, struct io_transfer *transfer);
/* Waits for what is under way, whatever becomes of it. NULL is fine. */
void io_queue_close(struct io_queue *queue);

#endif
