/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading several tensors of an open checkpoint at once, and all of it in parts. */
#ifndef CHECKPOINT_VIEW_VIEW_READ_H
#define CHECKPOINT_VIEW_VIEW_READ_H

#include "dcp/checkpoint.h"

struct view_records;

/* A tensor that is read with others. */
struct view_read {
    size_t entry;
    dcp_tensor destination; /* with memory */
};

/* Reads tensors, each of another entry, as dcp_checkpoint_read_tensor() does: neighbours in a file
 * at once. Where one of them fails, others may not have been read. The checkpoint can be read, and
 * has the entries. Any thread. */
dcp_status view_read_tensors(dcp_checkpoint *checkpoint, const struct view_read *reads,
                             size_t count, const dcp_read_options *options);

/* From now on parts of large records are not read along with the rest, to be compared at once, as
 * all of it is read in the end: view_records.h. Before anything is read. */
void view_join_records(dcp_checkpoint *checkpoint);
/* Reads what is missing of records of which parts were read, and compares them. By one thread,
 * after all others. */
dcp_status view_complete_records(dcp_checkpoint *checkpoint);
/* What was read so far, of a checkpoint that is closed now and goes on when it is opened again. */
struct view_records *view_detach_records(dcp_checkpoint *checkpoint);
/* Goes on with it, which becomes the checkpoint's; that of something else counts for nothing. */
void view_attach_records(dcp_checkpoint *checkpoint, struct view_records *records);
void view_records_free(struct view_records *records); /* NULL is allowed */

#endif
