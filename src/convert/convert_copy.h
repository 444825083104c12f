/* SPDX-License-Identifier: BSD-3-Clause */
/* Moves elements from a source into files at known places, block by block, on several threads. */
#ifndef CONVERT_CONVERT_COPY_H
#define CONVERT_CONVERT_COPY_H

#include "base/progress.h"
#include "convert/convert_output.h"
#include "convert/convert_source.h"

/* Bytes of a block: each thread has memory for one. */
#define CONVERT_BLOCK ((size_t)4 << 20)
/* Of the widest elements. */
#define CONVERT_ALIGNMENT 8

/* One run of bytes of a file, and where they come from. */
struct convert_run {
    const struct convert_item *item; /* the tensor; NULL: bytes */
    bool storage;                    /* not its elements, but all of the storage that they are in */
    const void *bytes;
    uint64_t size;
    size_t file;
    uint64_t offset; /* in the file */
    uint32_t crc;    /* is filled in */
};

/* What lies between runs, where it depends on their checksums. */
struct convert_gaps {
    /* Fills the bytes between a run, whose checksum is known, and the one behind it in the list and
     * the file; they are zeros. Called on any thread, for some of the runs. */
    void (*fill)(void *context, const struct convert_run *run, unsigned char *bytes, size_t size);
    void *context;
};

/* Copies all runs, in their order or that of a compressed source, as far as threads keep to it.
 * Small neighbours are copied at once, and what is between them is written. gaps: with that and
 * checksums; NULL: with zeros, and no checksums are wanted. What the output's journal tells of is
 * not copied again. */
dcp_status convert_copy(const struct convert_source *source, struct convert_output *output,
                        struct convert_run *runs, size_t count, const struct convert_gaps *gaps,
                        struct progress *progress);
size_t convert_thread_count(const dcp_convert_options *options);

#endif
