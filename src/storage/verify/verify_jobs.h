/* SPDX-License-Identifier: BSD-3-Clause */
/* The files of a checkpoint in jobs: runs of neighbouring pieces with the blocks that they lie in,
 * so that all of a job is read once, or again while it is in the page cache. The data of a large
 * tensor is divided further, into parts: jobs that check blocks and take checksums, which the job
 * behind them joins. So are the records of a .pt file, of which a part may have several. */
#ifndef STORAGE_VERIFY_VERIFY_JOBS_H
#define STORAGE_VERIFY_VERIFY_JOBS_H

#include "storage/verify/verification.h"

struct file_job {
    uint32_t file;
    bool first;         /* of its file: finds out whether that can be checked */
    bool accounts;      /* for the file as a whole */
    bool is_part;       /* of the data of the pieces of a later job */
    uint64_t from, end; /* bytes of the file whose blocks are its own; end UINT64_MAX: all */
    size_t piece, count;
    uint64_t bytes;                /* of these */
    size_t parts;                  /* how many jobs before it are parts of its data */
    size_t first_span, span_count; /* of a part: data whose checksums it takes */
    bool taken;                    /* it did; see verify_job_set() */
    /* What was found. */
    uint64_t faults, unchecked;
    bool some_footers;
};

struct file_jobs {
    struct placed_piece *placed; /* all pieces, by file and offset; of ranges of a stream one */
    size_t placed_count;
    struct file_job *list; /* by file */
    size_t count, capacity;
    struct verify_span *spans; /* of parts, in their order */
    size_t span_count, span_capacity;
};

/* To be freed in any case. */
dcp_status verify_jobs_make(const struct metadata *metadata, enum storage_form form,
                            struct file_jobs *jobs);
void verify_jobs_free(struct file_jobs *jobs);
/* Lists all pieces. */
dcp_status verify_place_pieces(const struct metadata *metadata, struct file_jobs *jobs);
/* Bytes of a piece in its file; views of one storage have its parts. */
uint64_t verify_piece_bytes(const struct placed_piece *placed);
/* The pieces of a job's file: those of its first job, which are the first ones, and those that
 * follow. */
size_t verify_file_pieces(const struct file_jobs *jobs, const struct file_job *job);
/* Whether a file that has these pieces is a .pt file, whose records are checked as a whole. */
bool verify_is_pt(enum storage_form form, const struct placed_piece *placed, size_t count);
/* Where the data of a tensor lies if our writer has laid it out, or its view says; length 0: not
 * known. */
void verify_expect_data(const struct placed_piece *placed, struct verify_span *span);

#endif
