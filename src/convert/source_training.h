/* SPDX-License-Identifier: BSD-3-Clause */
/* Training checkpoints of other frameworks as sources: what a directory is, and what is taken of
 * it. */
#ifndef CONVERT_SOURCE_TRAINING_H
#define CONVERT_SOURCE_TRAINING_H

#include "convert/convert_source.h"
#include "convert/source_parts.h"

/* Whether a path leads to such a checkpoint: fills in form, text and training. What is known and
 * cannot be converted is DCP_ERR_UNSUPPORTED. */
dcp_status training_recognize(struct convert_source *source, bool *recognized);
/* What a metadata.json, below the source's path, says in "sharded_backend", as Megatron-Core's
 * does; NULL: nothing, or there is none. */
dcp_status training_read_backend(struct convert_source *source, const char *file,
                                 const char **backend);
/* Whether it is one of its values. */
dcp_status training_check_take(dcp_take take);
/* Makes its parts. */
dcp_status training_open(struct convert_source *source);

/* Each fills in the parts from the directory source->training. */
dcp_status deepspeed_open(struct convert_source *source);
dcp_status universal_open(struct convert_source *source);
dcp_status megatron_open(struct convert_source *source);
dcp_status torch_checkpointing_open(struct convert_source *source);

/* Whether the names of a directory are all of the kind ITEM_RANK.pt, .json or .bin, of the same
 * ranks: what torch_checkpointing leaves without metadata.pkl. */
dcp_status torch_checkpointing_look(const char *directory, bool *found);

#endif
