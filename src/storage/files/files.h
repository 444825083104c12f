/* SPDX-License-Identifier: BSD-3-Clause */
/* The file system as a storage: a directory's id is its path, which is followed once, when it is
 * opened. */
#ifndef STORAGE_FILES_FILES_H
#define STORAGE_FILES_FILES_H

#include <stdatomic.h>

#include "dcp/storage.h"
#include "storage/files/file.h"

/* Over given file operations, which stay as long as the table is used: what dcp_storage_files() is
 * over the system's, and what tests run over a simulated file system. */
dcp_storage files_storage(const struct file_ops *ops);

/* The parts of the table. `context` is the struct file_ops. */

struct files_directory {
    struct file_directory at;
    struct file_made made;
    atomic_bool synced_early; /* beside the first file that was sealed */
    atomic_uint changes;      /* of names through this handle, each counted after it is made */
    atomic_uint durable;      /* as many of them as that covered */
};

/* Behind dcp_storage_file::handle. */
struct files_file {
    struct file file;
    struct files_directory *directory; /* that it was created in */
    char *name;                        /* when it was created */
    bool direct_demanded;              /* DCP_IO_DIRECT: there is no other way */
    bool write_back;                   /* data in the page cache is sent to the disk at once */
    bool durable;
    bool drop;                  /* nothing is to be left in the page cache */
    atomic_bool direct_refused; /* by the file system, when it came to it */
};

dcp_status files_open_file(void *context, void *directory, const char *name,
                           const dcp_storage_access *access, dcp_storage_file *opened);
dcp_status files_read(void *context, dcp_storage_file *file, void *bytes, size_t size,
                      uint64_t offset);
void files_close_file(void *context, dcp_storage_file *file);
dcp_status files_create(void *context, void *directory, const char *name,
                        const dcp_storage_access *access, dcp_storage_file *opened);
dcp_status files_write(void *context, dcp_storage_file *file, const void *bytes, size_t size,
                       uint64_t offset);
dcp_status files_seal(void *context, dcp_storage_file *file, uint64_t size,
                      dcp_storage_condition condition, const char *identity);
void files_abandon(void *context, dcp_storage_file *file);
bool files_is_direct(const struct files_file *file);
/* Begins to send what was written through the page cache on to the disk, where that is wanted. */
void files_write_back(const struct files_file *file, int descriptor, uint64_t offset, size_t size);
/* The descriptor for a transfer: the direct one if the transfer can go that way. */
int files_descriptor(const struct files_file *file, const void *bytes, size_t size,
                     uint64_t offset);
/* Carries out a transfer, which may move less than all; an errno value. */
int files_attempt(const struct files_file *file, const struct file_transfer *what, size_t *done);
/* Does plainly what the attempt has left undone: the end of a short transfer, what was interrupted
 * or refused for the moment, and what cannot be direct after all. Other errors are the transfer's.
 */
dcp_status files_settle(struct files_file *file, const struct file_transfer *what, int error,
                        size_t done);

dcp_status files_prepare(void *context, void *directory, const char *name, const void *bytes,
                         size_t size, const dcp_storage_access *access, void **publication);
dcp_status files_publish(void *context, void *publication, dcp_storage_condition condition,
                         bool *visible);
void files_retract(void *context, void *publication);
dcp_status files_identify(void *context, void *directory, const char *name,
                          char identity[DCP_STORAGE_IDENTITY]);
dcp_status files_publish_over(void *context, void *publication, const char *identity,
                              bool *visible);

dcp_status files_queue_open(void *context, void *directory, unsigned depth,
                            const dcp_storage_access *access, void **queue);
void files_queue_start(void *context, void *queue, dcp_storage_transfer *transfer);
dcp_status files_queue_finish(void *context, void *queue, dcp_storage_transfer *transfer);
void files_queue_close(void *context, void *queue);
uint32_t files_ways(void *context, dcp_storage_file *file, void *queue);

#endif
