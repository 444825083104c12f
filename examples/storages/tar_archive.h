/* SPDX-License-Identifier: BSD-3-Clause */
/* Tar archives (POSIX's ustar, as GNU's tar writes it) that grow at their end. */
#ifndef TAR_ARCHIVE_H
#define TAR_ARCHIVE_H

#include <dcp.h>

enum { TAR_BLOCK = 512, TAR_NAME_SIZE = 92 };

/* A member's header; all zero at the end of an archive. */
struct tar_header {
    char name[100], mode[8], owner[16], size[12], time[12], checksum[8], type, link[100], magic[8];
    char rest[247];
};

/* A member: where its bytes begin, 0 if there is none. */
struct tar_member {
    uint64_t start, size;
};

/* Opens and locks an archive; how is said as open() and flock() have it. */
dcp_status tar_open(const char *path, int flags, int lock, int *archive);
dcp_status tar_read(int archive, void *bytes, size_t size, uint64_t offset);
dcp_status tar_write(int archive, const void *bytes, size_t size, uint64_t offset);
/* The status of a system call that has failed. */
dcp_status tar_failed(const char *what, const char *path);

struct tar_header tar_header_make(const char *name, uint64_t size);
/* The name of a regular file, without a "./" that says nothing; "" of all else. */
const char *tar_header_name(const struct tar_header *header);
uint64_t tar_header_size(const struct tar_header *header);

/* Gives the header at *at, and moves that behind its member; at the end it stays. */
dcp_status tar_next(int archive, uint64_t *at, struct tar_header *header);
/* The last member of a name, and where the archive ends. */
dcp_status tar_find(int archive, const char *name, struct tar_member *found, uint64_t *end);
/* Appends bytes of another file. The header comes last: up to then the archive ends before it.
 * durable: by then the bytes are on the disk. */
dcp_status tar_append(int archive, uint64_t end, const char *name, int from, uint64_t size,
                      bool durable);

#endif
