/* SPDX-License-Identifier: BSD-3-Clause */
/* What storage_place.c and storage_place_foreign.c share: a place is made of what is found. */
#ifndef STORAGE_OPEN_STORAGE_PLACE_H
#define STORAGE_OPEN_STORAGE_PLACE_H

#include "storage/open/storage_open.h"

dcp_status place_no_memory(const char *path);
/* Names of the files that hold the metadata, or of members; copied. */
dcp_status place_parts(struct storage_place *place, const struct directory_name *names,
                       size_t count);
/* One file: the directory that it is in, and its name. The place's own directory is closed. */
dcp_status place_file(struct storage_place *place, const char *path);
/* There is no checkpoint: DCP_ERR_NOT_FOUND. */
dcp_status place_nothing(const struct storage_place *place, const char *path);
dcp_status place_find_file(const struct storage_directory *directory, const char *name,
                           bool *found);

/* A directory in which nothing is known by the names of DCP and safetensors: what other frameworks
 * have in it, or all around it. */
dcp_status place_foreign(struct storage_place *place);
/* A DCP directory of which more than the model is wanted: Megatron-Core's is a training checkpoint.
 */
dcp_status place_training_step(struct storage_place *place);

#endif
