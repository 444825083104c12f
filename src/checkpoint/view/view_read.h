/* SPDX-License-Identifier: BSD-3-Clause */
/* Reading several tensors of an open checkpoint at once. */
#ifndef CHECKPOINT_VIEW_VIEW_READ_H
#define CHECKPOINT_VIEW_VIEW_READ_H

#include "dcp/checkpoint.h"

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

#endif
