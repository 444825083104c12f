/* SPDX-License-Identifier: BSD-3-Clause */
/* One thread's writing into the files of an output: large blocks around the page cache, where the
 * file system can do that; what goes through it, close behind the disk, so that the end need not
 * wait for much. */
#ifndef CONVERT_CONVERT_WRITER_H
#define CONVERT_CONVERT_WRITER_H

#include "convert/convert_output.h"

/* A place in a file. */
struct convert_span {
    size_t file, size;
    uint64_t offset;
};

struct convert_writer {
    const struct convert_output *output;
    int direct;    /* the file that large blocks were written to last; -1: none */
    size_t file;   /* which one that is */
    bool buffered; /* the file system has no way around the page cache */
    /* What has been written and the disk may not have yet: so much that the disk is busy. */
    struct convert_span spans[256];
    size_t first, count;
    uint64_t bytes; /* of them */
};

void convert_writer_init(struct convert_writer *writer, const struct convert_output *output);
void convert_writer_close(struct convert_writer *writer);
/* Large blocks go around the page cache from memory that lies in its page as `offset` does in the
 * file's; in large pages that is fastest. */
dcp_status convert_writer_write(struct convert_writer *writer, size_t file, const void *bytes,
                                size_t size, uint64_t offset);

#endif
