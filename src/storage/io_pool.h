/* SPDX-License-Identifier: BSD-3-Clause */
/* A few threads that carry out transfers by pread and pwrite, in the order in which they come. */
#ifndef STORAGE_IO_POOL_H
#define STORAGE_IO_POOL_H

#include "storage/io_queue.h"

struct io_pool;

/* thread_count: at most; 0: as many as are good. */
dcp_status io_pool_open(const struct file_ops *ops, uint32_t thread_count, struct io_pool **pool);
/* Memory that a pool takes, at most. */
uint64_t io_pool_memory(void);
void io_pool_submit(struct io_pool *pool, struct io_transfer *transfer);
void io_pool_wait(struct io_pool *pool, const struct io_transfer *transfer);
/* After all that was submitted is done. NULL is fine. */
void io_pool_close(struct io_pool *pool);

/* After a write into the page cache: has the disk begin with it, if the transfer asks for that. */
void io_transfer_write_back(const struct file_ops *ops, const struct io_transfer *transfer);
/* One attempt at a transfer, here and now. */
void io_transfer_run(const struct file_ops *ops, struct io_transfer *transfer);

#endif
