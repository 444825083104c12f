/* SPDX-License-Identifier: BSD-3-Clause */
/* File operations: the seam below the file-system storage, and the loops above it.
 *
 * struct file_ops is what tests replace by a simulated file system. Its functions return 0 or an
 * errno value and may be short or interrupted like the system calls; the file_* functions below
 * handle both and tell the story with the path. Paths are whole paths, resolved by the caller. */
#ifndef STORAGE_FILES_FILE_H
#define STORAGE_FILES_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/memory.h"
#include "dcp/status.h"

enum file_kind { FILE_REGULAR, FILE_DIRECTORY, FILE_OTHER };

struct file_information {
    enum file_kind kind;
    uint64_t size;
};

/* How to open. Files are never followed through a symbolic link in their last component when
 * NO_FOLLOW is given. */
enum file_open_flags {
    FILE_READ = 0,
    FILE_CREATE_NEW = 1, /* for writing; fails with EEXIST */
    FILE_NO_FOLLOW = 2,
    FILE_WRITE = 4, /* a file that is there, for writing */
    FILE_DIRECT = 8 /* around the page cache; EINVAL where there is no such way */
};

/* A transfer that a queue carries out on its own. The bytes must stay until it is complete. */
struct file_transfer {
    int descriptor;
    bool write;
    void *bytes;
    size_t size;
    uint64_t offset;
    uint16_t priority; /* Linux's number; 0: that of whoever submits it */
    void *owner;       /* comes back with the completion */
};

/* As what pread and pwrite give. */
struct file_completion {
    void *owner;
    int error;
    size_t done;
};

/* An errno value ends the walk and is its result. */
typedef int (*file_visitor)(void *context, const char *name);

/* What an operation that has a story of its own returns in the place of an errno value, when it has
 * told it by dcp_error_set(). Only for what is called by whoever hears of it: there are no queues
 * over such operations. */
#define FILE_TOLD (-1)

struct file_ops {
    void *context;
    /* Bytes that are better read at once than in parts, as each read is a message to elsewhere; 0:
     * it does not matter. */
    size_t read_size;
    int (*open)(void *context, const char *path, unsigned flags, int *descriptor);
    int (*close)(void *context, int descriptor);
    int (*pread)(void *context, int descriptor, void *bytes, size_t size, uint64_t offset,
                 size_t *done);
    int (*pwrite)(void *context, int descriptor, const void *bytes, size_t size, uint64_t offset,
                  size_t *done);
    int (*allocate)(void *context, int descriptor, uint64_t size); /* EOPNOTSUPP is fine */
    /* Whether a range lies in the page cache, as far as a few samples tell. NULL: nobody knows. */
    int (*cached)(void *context, int descriptor, uint64_t offset, size_t size, bool *cached);
    /* Maps a range of what is open for reading, from wherever it begins. NULL: there is no such
     * way.
     */
    int (*map)(void *context, int descriptor, uint64_t offset, size_t size, const void **bytes);
    void (*unmap)(void *context, const void *bytes, size_t size);
    /* Has a range begin its way into the page cache; a hint. May be NULL. */
    int (*will_need)(void *context, int descriptor, uint64_t offset, size_t size);
    /* Has what the page cache holds of a range begin its way to the disk; a hint. May be NULL. */
    int (*write_back)(void *context, int descriptor, uint64_t offset, size_t size);
    int (*sync)(void *context, int descriptor);
    int (*sync_directory)(void *context, const char *path);
    int (*information)(void *context, const char *path, struct file_information *information);
    int (*descriptor_information)(void *context, int descriptor,
                                  struct file_information *information);
    int (*rename)(void *context, const char *from, const char *to);
    /* As rename; EEXIST if there is something at `to`. */
    int (*rename_new)(void *context, const char *from, const char *to);
    int (*unlink)(void *context, const char *path);
    int (*make_directory)(void *context, const char *path);
    int (*remove_directory)(void *context, const char *path);
    /* Bytes that may still be written to where path is; UINT64_MAX: unknown. */
    int (*free_space)(void *context, const char *path, uint64_t *bytes);
    /* Whether path is on a file system that machines share over a network. NULL: it is not. */
    bool (*remote)(void *context, const char *path);
    /* NULL: there are no directories, nor links, but only names, in which slashes are letters. */
    int (*list)(void *context, const char *path, file_visitor visitor, void *visitor_context);

    /* Queues of transfers that are under way at the same time, each for one thread. queue_open is
     * NULL, or fails, where there are none. */
    int (*queue_open)(void *context, unsigned depth, void **queue);
    /* Starts a transfer; on failure it has not begun. At most depth are under way. */
    int (*queue_submit)(void *context, void *queue, const struct file_transfer *transfer);
    /* Takes up to room completions; wait: of those under way, of which there are some, at least
     * one.
     */
    size_t (*queue_take)(void *context, void *queue, struct file_completion *completions,
                         size_t room, bool wait);
    /* With nothing under way. */
    void (*queue_close)(void *context, void *queue);
};

extern const struct file_ops file_ops_system;

/* An open file. descriptor is -1 when closed. */
struct file {
    const struct file_ops *ops;
    int descriptor;
    int direct; /* a second one, around the page cache; -1: none */
    char *path;
};

/* What is opened for reading and is no regular file is refused with DCP_ERR_FORMAT. */
dcp_status file_open(struct file *file, const struct file_ops *ops, const char *path,
                     unsigned flags);
/* Opens the second descriptor of an open file, with the flags of the first but FILE_CREATE_NEW.
 * DCP_ERR_UNSUPPORTED where the file system refuses. */
dcp_status file_open_direct(struct file *file, unsigned flags);
/* Reports a failed close; the file is closed in any case. Closing a closed file is fine. */
dcp_status file_close(struct file *file);
/* All of it or an error; reading past the end is DCP_ERR_FORMAT ("file ends at ..., expected ...").
 */
dcp_status file_read(struct file *file, void *bytes, size_t size, uint64_t offset);
dcp_status file_write(struct file *file, const void *bytes, size_t size, uint64_t offset);
dcp_status file_sync(struct file *file);

/* A range of a file in memory, which may outlive the open file. All zero: nothing. */
struct file_mapping {
    const struct file_ops *ops;
    const void *bytes;
    size_t size;
};

/* A range inside the file; no bytes are NULL. DCP_ERR_UNSUPPORTED where files cannot be mapped. */
dcp_status file_map(struct file *file, uint64_t offset, size_t size, struct file_mapping *mapping);
dcp_status file_size(struct file *file, uint64_t *size);
dcp_status file_preallocate(struct file *file, uint64_t size);
/* Appends a file as a whole; bigger than limit is DCP_ERR_FORMAT. */
dcp_status file_read_whole(const struct file_ops *ops, const char *path, uint64_t limit,
                           struct buffer *bytes);
/* A new small file as a whole, durable when sync is set (its name is not); nothing is left of it on
 * failure. */
dcp_status file_write_whole(const struct file_ops *ops, const char *path, const void *bytes,
                            size_t size, bool sync);

dcp_status file_rename(const struct file_ops *ops, const char *from, const char *to);
/* DCP_ERR_EXISTS if there is something at `to`. */
dcp_status file_rename_new(const struct file_ops *ops, const char *from, const char *to);
/* That path is a directory by itself: a symbolic link could lead anywhere. */
dcp_status file_check_directory(const struct file_ops *ops, const char *path);
/* missing_is_fine: a file that is not there counts as removed. */
dcp_status file_unlink(const struct file_ops *ops, const char *path, bool missing_is_fine);
dcp_status file_sync_directory(const struct file_ops *ops, const char *path);
/* DCP_ERR_NOT_FOUND when there is nothing, without setting a story. */
dcp_status file_look(const struct file_ops *ops, const char *path,
                     struct file_information *information);
/* Makes a directory and its missing parents, each durable (its parent is synced) when sync is set;
 * the last one also if it was there.
 * *created: whether the last one was made by this call. */
dcp_status file_make_directories(const struct file_ops *ops, const char *path, bool sync,
                                 bool *created);
dcp_status file_list(const struct file_ops *ops, const char *path, file_visitor visitor,
                     void *context);
/* Whether what is read comes over a network, as far as one can tell: not if path is not there. */
bool file_is_remote(const struct file_ops *ops, const char *path);
/* UINT64_MAX where the file system does not say. */
dcp_status file_free_space(const struct file_ops *ops, const char *path, uint64_t *bytes);
/* Maps an errno value to a status and tells the story: "cannot VERB PATH: reason". */
dcp_status file_error(int error_number, const char *verb, const char *path);
/* As above, of a transfer. */
dcp_status file_transfer_error(int error_number, const char *verb, const char *path, size_t size,
                               uint64_t offset);

#endif
