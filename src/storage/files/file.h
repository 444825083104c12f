/* SPDX-License-Identifier: BSD-3-Clause */
/* File operations: the seam below the file-system storage, and the loops above it.
 *
 * struct file_ops is what tests replace by a simulated file system. Its functions return 0 or an
 * errno value and may be short or interrupted like the system calls; the file_* functions below
 * handle both and say with the path what has failed.
 *
 * Names begin at an open directory: what a path leads to may change while it is worked with, an
 * open directory stays the one that was opened. */
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
    uint64_t device, number; /* together: which one it is */
};

/* In the place of an open directory's descriptor: the name is a path, absolute or from where the
 * process is. */
#define FILE_NO_DIRECTORY (-1)

/* How to open. Files are never followed through a symbolic link in their last component when
 * NO_FOLLOW is given. */
enum file_open_flags {
    FILE_READ = 0,
    FILE_CREATE_NEW = 1, /* for writing; fails with EEXIST */
    FILE_NO_FOLLOW = 2,
    FILE_WRITE = 4,        /* an existing file, for writing */
    FILE_DIRECT = 8,       /* around the page cache; EINVAL where there is no such way */
    FILE_AS_DIRECTORY = 16 /* for names to begin at; ENOTDIR if it is none */
};

/* A transfer that a queue carries out on its own. The bytes must stay until it is complete. */
struct file_transfer {
    int descriptor;
    bool write;
    void *bytes;
    size_t size;
    uint64_t offset;
    uint16_t priority; /* Linux's number; 0: that of the submitting thread */
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

/* Returned instead of an errno value by an operation that has set a message itself. Only for calls
 * in the same thread, as the message belongs to it: not for queues. */
#define FILE_ERROR_SET (-1)

struct file_ops {
    void *context;
    /* Bytes that are better read at once than in parts, as each read is a message to elsewhere; 0:
     * it does not matter. */
    size_t read_size;
    int (*open)(void *context, int directory, const char *name, unsigned flags, int *descriptor);
    int (*close)(void *context, int descriptor);
    int (*pread)(void *context, int descriptor, void *bytes, size_t size, uint64_t offset,
                 size_t *done);
    int (*pwrite)(void *context, int descriptor, const void *bytes, size_t size, uint64_t offset,
                  size_t *done);
    int (*allocate)(void *context, int descriptor, uint64_t size); /* EOPNOTSUPP is fine */
    /* Whether a range is in the page cache, by a few samples. NULL: not known. */
    int (*cached)(void *context, int descriptor, uint64_t offset, size_t size, bool *cached);
    /* Maps a range of a file that is open for reading; it may begin anywhere. NULL: not supported.
     */
    int (*map)(void *context, int descriptor, uint64_t offset, size_t size, const void **bytes);
    void (*unmap)(void *context, const void *bytes, size_t size);
    /* Has a range begin its way into the page cache; a hint. May be NULL. */
    int (*will_need)(void *context, int descriptor, uint64_t offset, size_t size);
    /* Has what the page cache holds of a range begin its way to the disk; a hint. May be NULL. */
    int (*write_back)(void *context, int descriptor, uint64_t offset, size_t size);
    /* Drops what the page cache holds of a file and the disk has as well; a hint. May be NULL. */
    int (*drop)(void *context, int descriptor);
    int (*sync)(void *context, int descriptor);
    int (*sync_directory)(void *context, int directory);
    int (*information)(void *context, int directory, const char *name,
                       struct file_information *information);
    int (*descriptor_information)(void *context, int descriptor,
                                  struct file_information *information);
    int (*rename)(void *context, int directory, const char *from, const char *to);
    /* As rename; EEXIST if there is something at `to`. */
    int (*rename_new)(void *context, int directory, const char *from, const char *to);
    int (*unlink)(void *context, int directory, const char *name);
    int (*make_directory)(void *context, int directory, const char *name);
    int (*remove_directory)(void *context, int directory, const char *name);
    /* Bytes that may still be written to where a directory is; UINT64_MAX: unknown. */
    int (*free_space)(void *context, int directory, uint64_t *bytes);
    /* Whether it is on a file system that machines share over a network. NULL: it is not. */
    bool (*remote)(void *context, int directory);
    int (*list)(void *context, int directory, file_visitor visitor, void *visitor_context);
    /* Where relative paths begin, absolute; ERANGE if that does not fit. NULL: they begin where
     * absolute ones do. */
    int (*working_directory)(void *context, char *path, size_t size);

    /* Queues of transfers that are under way at the same time, each for one thread. queue_open is
     * NULL, or fails, where there are none. */
    int (*queue_open)(void *context, unsigned depth, void **queue);
    /* Starts a transfer; on failure it has not begun. At most depth are under way. */
    int (*queue_submit)(void *context, void *queue, const struct file_transfer *transfer);
    /* Takes up to room completions. wait: waits for at least one; transfers must be in progress.
     */
    size_t (*queue_take)(void *context, void *queue, struct file_completion *completions,
                         size_t room, bool wait);
    /* With nothing under way. */
    void (*queue_close)(void *context, void *queue);
};

extern const struct file_ops file_ops_system;

/* An open directory, which files are opened in. */
struct file_directory {
    const struct file_ops *ops;
    int descriptor;
    const char *path; /* for messages; "" without a descriptor */
};

/* Where names are paths. */
#define FILE_PATHS(ops) (&(const struct file_directory){(ops), FILE_NO_DIRECTORY, ""})

/* Opens a directory in another one, with respect to FILE_NO_FOLLOW. DCP_ERR_FORMAT if it exists but
 * is not a directory, or is a link that is not followed. */
dcp_status file_directory_open(struct file_directory *opened,
                               const struct file_directory *directory, const char *name,
                               unsigned flags);
/* Does nothing for one without a descriptor. */
void file_directory_close(struct file_directory *opened);

/* An open file. descriptor is -1 when closed. */
struct file {
    const struct file_ops *ops;
    int descriptor;
    int direct; /* a second one, around the page cache; -1: none */
    char *path; /* for messages */
};

/* What is opened for reading and is no regular file is refused with DCP_ERR_FORMAT. */
dcp_status file_open(struct file *file, const struct file_directory *directory, const char *name,
                     unsigned flags);
/* Opens the second descriptor of an open file, with the flags of the first but FILE_CREATE_NEW.
 * DCP_ERR_UNSUPPORTED where the file system refuses. */
dcp_status file_open_direct(struct file *file, const struct file_directory *directory,
                            const char *name, unsigned flags);
/* Reports a failed close; the file is closed in any case. Closing a closed file does nothing. */
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
dcp_status file_read_whole(const struct file_directory *directory, const char *name, uint64_t limit,
                           struct buffer *bytes);
/* A new small file, which stays open; nothing is left of it on failure. */
dcp_status file_write_new(struct file *file, const struct file_directory *directory,
                          const char *name, const void *bytes, size_t size);

dcp_status file_rename(const struct file_directory *directory, const char *from, const char *to);
/* DCP_ERR_EXISTS if there is something at `to`. */
dcp_status file_rename_new(const struct file_directory *directory, const char *from,
                           const char *to);
/* missing_is_fine: a file that is not there counts as removed. */
dcp_status file_unlink(const struct file_directory *directory, const char *name,
                       bool missing_is_fine);
dcp_status file_sync_directory(const struct file_directory *directory);
/* DCP_ERR_NOT_FOUND when there is nothing, without a message. */
dcp_status file_look(const struct file_directory *directory, const char *name,
                     struct file_information *information);
dcp_status file_list(const struct file_directory *directory, file_visitor visitor, void *context);
/* Whether reads go over a network, as far as is known. */
bool file_is_remote(const struct file_directory *directory);
/* UINT64_MAX where the file system does not say. */
dcp_status file_free_space(const struct file_directory *directory, uint64_t *bytes);

/* A directory that was made: where it has its name. All zero but above: there is nothing. */
struct file_made {
    const struct file_ops *ops;
    int above; /* the directory's descriptor; FILE_NO_DIRECTORY: none was made */
    char *name;
};

/* Opens the directory at a path, and makes it and its missing parents, each durable (its parent is
 * synced) when sync is set; the last one also if it was there.
 * made: of the last one, if it was made by this call. */
dcp_status file_make_directories(const struct file_ops *ops, const char *path, bool sync,
                                 struct file_directory *opened, struct file_made *made);
/* Removes it if it is empty and has its name still, else DCP_OK. */
dcp_status file_made_remove(const struct file_made *made, const struct file_directory *directory);
/* Removes a directory that existed before, durably. Its path is resolved again, and only the open
 * directory is removed. A directory whose path ends in a symbolic link or a dot stays. */
dcp_status file_directory_remove(const struct file_directory *directory);
void file_made_forget(struct file_made *made);
/* Writes an absolute path, which stays valid if the working directory changes, into size bytes. */
dcp_status file_absolute_path(const struct file_ops *ops, const char *path, char *text,
                              size_t size);

/* Maps an errno value to a status and sets the message "cannot VERB PATH: reason". */
dcp_status file_error(int error_number, const char *verb, const char *path);
/* As above, of a transfer. */
dcp_status file_transfer_error(int error_number, const char *verb, const char *path, size_t size,
                               uint64_t offset);

#endif
