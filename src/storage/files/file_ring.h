/* SPDX-License-Identifier: BSD-3-Clause */
/* The queues of file_ops_system, over io_uring; only in builds that have it. */
#ifndef STORAGE_FILES_FILE_RING_H
#define STORAGE_FILES_FILE_RING_H

#include "storage/files/file.h"

/* ENOSYS, EPERM and others where the kernel or its settings refuse. */
int file_ring_open(void *context, unsigned depth, void **queue);
int file_ring_submit(void *context, void *queue, const struct file_transfer *transfer);
size_t file_ring_take(void *context, void *queue, struct file_completion *completions, size_t room,
                      bool wait);
void file_ring_close(void *context, void *queue);

#endif
