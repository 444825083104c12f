/* SPDX-License-Identifier: BSD-3-Clause */
/* metadata.json: a summary of a checkpoint for people and scripts. */
#ifndef CHECKPOINT_OPERATION_METADATA_JSON_H
#define CHECKPOINT_OPERATION_METADATA_JSON_H

#include "dcp/save.h"
#include "state/metadata.h"

/* text: dcp_text_free(). */
dcp_status metadata_json_print(const struct metadata *metadata, const dcp_save_options *options,
                               int world_size, char **text);

#endif
