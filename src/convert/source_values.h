/* SPDX-License-Identifier: BSD-3-Clause */
/* Small values in the files of a training checkpoint. */
#ifndef CONVERT_SOURCE_VALUES_H
#define CONVERT_SOURCE_VALUES_H

#include "base/arena.h"
#include "dcp/checkpoint.h"

/* Whether an entry is in the dict or list under a key of the outermost dict. */
bool source_entry_is_below(const dcp_entry *entry, const char *key);
/* An entry by its name; false: there is none. */
bool source_entry_find(const dcp_checkpoint *checkpoint, const char *name, size_t *index);

/* A torch.Size, or a list or tuple of ints. DCP_ERR_FORMAT for all else. */
dcp_status source_value_shape(dcp_checkpoint *checkpoint, size_t index, int64_t shape[DCP_MAX_DIMS],
                              int32_t *ndim);
/* A string, copied to the arena. */
dcp_status source_value_text(dcp_checkpoint *checkpoint, size_t index, struct arena *arena,
                             const char **text);
/* An int, or the one at a position of a list of ints. */
dcp_status source_value_integer(dcp_checkpoint *checkpoint, size_t index, size_t position,
                                int64_t *value);

#endif
