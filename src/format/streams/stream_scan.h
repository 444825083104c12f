/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds the streams of a shard file that nothing describes: no metadata, no footer. */
#ifndef FORMAT_STREAMS_STREAM_SCAN_H
#define FORMAT_STREAMS_STREAM_SCAN_H

#include "base/arena.h"
#include "base/byte_source.h"
#include "state/metadata.h"

/* A stream of torch.save, or bytes that belong to none. */
struct found_stream {
    uint64_t offset;
    uint64_t length;
    uint64_t
        empty; /* bytes of empty frames behind it, which some writers count and others do not */
    bool is_stream;
    bool zstd; /* compressed as a whole */
    bool is_tensor;
    struct tensor_view view; /* of a tensor: as its pickle says; the checksum was not compared */
    const char *problem;     /* why it is none; NULL: it is one */
};

struct found_streams {
    struct found_stream *items; /* in the order of the file; memory_release() */
    size_t count;
    size_t room;
};

/* Reads little of tensors, whose pickles say where they end, and all of what is damaged. What a
 * pickle holds beside one tensor is not decoded. Bytes between streams that are not zero are
 * listed. The time is linear in the file's size. Errors: only those of memory and of the source;
 * *found must be freed also after one. */
dcp_status stream_scan(struct byte_source file, struct arena *arena, struct found_streams *found);

/* ---- internal to the scan ---- */

/* Bytes of a file around the place that is looked at. */
struct scan_window {
    struct byte_source file;
    unsigned char *bytes; /* SCAN_WINDOW */
    uint64_t offset;
    size_t size;
    uint64_t left; /* work that candidates which turn out to be none may still cost */
};

#define SCAN_WINDOW ((size_t)256 << 10)

/* Bytes from an offset on: at least `least` of them, or all up to the file's end. */
dcp_status scan_look(struct scan_window *window, uint64_t offset, size_t least,
                     const unsigned char **bytes, size_t *available);

/* The end records of zip archives. */
struct scan_ends {
    uint64_t floor;      /* archives begin here or later */
    uint64_t next;       /* where the search goes on */
    uint64_t start, end; /* of the archive that was found */
};

/* Finds the next end record whose directory lies right before it, and whose archive begins with a
 * local header. *found false: there is none up to the file's end. */
dcp_status scan_find_end(struct scan_window *window, struct scan_ends *ends, bool *found);

/* A part of a file, as a source. The part must stay where it is. */
struct file_part {
    const struct byte_source *file;
    uint64_t offset;
};
struct byte_source file_part_source(struct file_part *part, uint64_t length);

/* Describes the zip archive in a range of the file. *sound false: it is no stream of torch.save. */
dcp_status scan_archive(const struct byte_source *file, struct arena *arena,
                        struct found_stream *stream, bool *sound);
/* Finds the end of a compressed stream, and describes it; *sound false: none begins here. */
dcp_status scan_compressed(struct scan_window *window, struct arena *arena,
                           struct found_stream *stream, bool *sound);

#endif
