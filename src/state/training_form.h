/* SPDX-License-Identifier: BSD-3-Clause */
/* Training checkpoints of other frameworks, which consist of many files.
 *
 * The one call that goes up: storage/ finds such a checkpoint where it finds none of its own forms,
 * or where more than the model is wanted of a DCP directory that is Megatron-Core's, and convert/,
 * which knows them, describes it (convert/source_description.c). The declaration is here because
 * both know this room. */
#ifndef STATE_TRAINING_FORM_H
#define STATE_TRAINING_FORM_H

#include "dcp/types.h"
#include "state/metadata.h"

/* Whether a path in the file system leads to such a checkpoint. is_dcp: it is a DCP directory,
 * which is one only if it is Megatron-Core's. What is known and cannot be read is
 * DCP_ERR_UNSUPPORTED. */
dcp_status training_form_find(const char *path, bool is_dcp, bool *found);
/* Describes it: names of files are relative to the path. On failure metadata is empty. */
dcp_status training_form_describe(const char *path, dcp_take take, struct metadata *metadata);

#endif
