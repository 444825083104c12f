/* SPDX-License-Identifier: BSD-3-Clause */
/* Tar archives (POSIX's ustar, as GNU's tar writes it) that grow at their end. */
#ifndef TAR_ARCHIVE_H
#define TAR_ARCHIVE_H

#include <dcp.h>

enum { TAR_NAME_SIZE = 92 };

/* A file in an archive. All zero: before the first one. */
struct tar_member {
    char name[100]; /* "": at the end of the archive */
    uint64_t start; /* of its bytes; 0: there is none */
    uint64_t size;
    uint64_t end; /* where what follows begins */
};

/* Opens the archive of an id, and locks it until it is closed: for oneself with O_RDWR. To be
 * closed after a failure, too, when it may be -1. */
dcp_status tar_open(const char *id, int flags, int *archive);
/* Before it is closed. */
void tar_unlock(int archive);
dcp_status tar_unlink(const char *id);
/* All of the bytes. */
dcp_status tar_read(int archive, void *bytes, size_t size, uint64_t offset);
dcp_status tar_write(int archive, const void *bytes, size_t size, uint64_t offset);

/* Goes on to the next member that is a file and was not removed. */
dcp_status tar_next(int archive, struct tar_member *member);
/* The last member of a name, with the end of the archive. */
dcp_status tar_find(int archive, const char *name, struct tar_member *found);
/* DCP_ERR_NOT_FOUND if there is none. */
dcp_status tar_remove(int archive, const char *name);

/* Makes a file without a name for what is to become a member; on failure it is -1. */
dcp_status tar_begin(const char *id, const char *name, int *file);
/* Appends such a file, by the name and size of a member. The header comes last: up to then the
 * archive ends before it. durable: by then the bytes are on the disk, and at the end all is. */
dcp_status tar_append(int archive, uint64_t end, const struct tar_member *member, int from,
                      bool durable);

#endif
